//! Matches in the order of their file: each is predicted from what was known before it, and then learned from.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::cli::backtest::match_rows::{RejectedMatchRow, ReplayMatch};
use crate::cli::backtest::prediction_tally::ScoredPrediction;
use crate::domain::rating::{SetActivity, Side, Skill};
use crate::domain::ruleset::rating::RatingSpec;
use crate::domain::time::UnixMs;

/// Matches in one file, at most: what is kept of each must fit into memory.
const REPLAY_MATCHES_MAX: usize = 20_000_000;

/// A replay as far as it has come.
pub(super) struct RatingReplay {
    pub(super) rating_spec: RatingSpec,
    /// Players by name.
    pub(super) skills_by_player: HashMap<String, Skill>,
    /// One prediction a match, in order.
    pub(super) predictions: Vec<ScoredPrediction>,
    /// When the latest match was.
    pub(super) latest_match_at: UnixMs,
    /// Matches that are older than one before them; they are played in the file's order all the same.
    pub(super) out_of_order_matches: u64,
    /// How far they have been played.
    pub(super) set_activity: SetActivity,
    /// On which line each match was.
    line_by_match_id: HashMap<String, u64>,
}

impl RatingReplay {
    pub(super) fn new(spec: RatingSpec) -> Self {
        Self {
            rating_spec: spec,
            skills_by_player: HashMap::new(),
            predictions: Vec::new(),
            latest_match_at: UnixMs(0),
            out_of_order_matches: 0,
            set_activity: SetActivity::default(),
            line_by_match_id: HashMap::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.predictions.is_empty()
    }

    /// Predicts a match and learns from it; a bad one changes nothing.
    pub(super) fn predict_and_learn(&mut self, row: ReplayMatch) -> Result<(), RejectedMatchRow> {
        let bad = |why: String| RejectedMatchRow { line: row.line, why };
        if REPLAY_MATCHES_MAX <= self.predictions.len() {
            return Err(bad(format!("there are more than {REPLAY_MATCHES_MAX} matches: split the file")));
        }
        if let Some(line) = self.line_by_match_id.get(&row.match_id) {
            return Err(bad(format!("match `{}` was on line {line} already: a match counts once", row.match_id)));
        }
        let newcomer = self.rating_spec.initial_skill();
        let known = |player: &String| self.skills_by_player.get(player).copied().unwrap_or(newcomer);
        let side =
            |(players, rank): &(Vec<String>, u32)| Side { players: players.iter().map(known).collect(), rank: *rank };
        let sides: Vec<Side> = row.sides.iter().map(side).collect();
        let now = |side: &Side| {
            side.players
                .iter()
                .map(|skill| self.rating_spec.skill_at_with_activity(*skill, row.played_at, self.set_activity))
                .collect()
        };
        let current: Vec<Vec<Skill>> = sides.iter().map(now).collect();
        let chances = self.rating_spec.win_probabilities(&current).map_err(|error| bad(error.to_string()))?;
        let after = self
            .rating_spec
            .rate_match_with_activity(&sides, row.played_at, self.set_activity)
            .map_err(|error| bad(error.to_string()))?;

        self.set_activity = after.iter().flatten().fold(self.set_activity, SetActivity::including_skill);
        let ranks: Vec<u32> = sides.iter().map(|side| side.rank).collect();
        self.predictions.push(ScoredPrediction::from_result(
            &chances,
            &ranks,
            calibration_side(&row.match_id, ranks.len()),
        ));
        let players = row.sides.into_iter().flat_map(|(players, _)| players);
        for (player, skill) in players.zip(after.into_iter().flatten()) {
            match self.skills_by_player.entry(player) {
                Entry::Occupied(mut entry) => *entry.get_mut() = skill,
                Entry::Vacant(entry) => _ = entry.insert(skill),
            }
        }
        self.out_of_order_matches += u64::from(row.played_at < self.latest_match_at);
        self.latest_match_at = self.latest_match_at.max(row.played_at);
        self.line_by_match_id.insert(row.match_id, row.line);
        Ok(())
    }
}

/// Which side of a match is looked at: files often name the winner first, so it is drawn by the match's name, the same on every run
/// (FNV-1a).
fn calibration_side(id: &str, sides: usize) -> usize {
    let hash = id
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    // The low bits alone follow the last digit.
    ((hash ^ (hash >> 32)) % sides as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ruleset::rating::RatingSystem;

    fn replay_match(line: u64, id: &str, sides: &[(&[&str], u32)]) -> ReplayMatch {
        let side = |(players, rank): &(&[&str], u32)| (players.iter().map(|it| (*it).to_owned()).collect(), *rank);
        ReplayMatch { line, match_id: id.into(), played_at: UnixMs(line), sides: sides.iter().map(side).collect() }
    }

    #[test]
    fn replay_counts_a_match_once_and_ignores_an_invalid_one() {
        let mut replay =
            RatingReplay::new(RatingSpec::with_defaults(RatingSystem::Elo { initial: 1500.0, k: 16.0, scale: 400.0 }));
        replay.predict_and_learn(replay_match(2, "a", &[(&["Ann"], 1), (&["Bob"], 2)])).unwrap();
        let again = replay.predict_and_learn(replay_match(3, "a", &[(&["Ann"], 1), (&["Bob"], 2)])).unwrap_err();
        assert!(again.line == 3 && again.why.contains("line 2"), "{again}");
        replay.predict_and_learn(replay_match(4, "b", &[(&["Cem"], 1), (&["Dai"], 0)])).unwrap_err();
        assert_eq!((replay.skills_by_player.len(), replay.predictions.len()), (2, 1));
        assert_eq!(replay.skills_by_player["Ann"].estimate.rating, 1508.0);
        replay.predict_and_learn(replay_match(1, "c", &[(&["Ann"], 1), (&["Bob"], 2)])).unwrap();
        assert_eq!((replay.out_of_order_matches, replay.latest_match_at), (1, UnixMs(2)));
    }

    #[test]
    fn calibration_side_is_drawn_evenly() {
        let first = (0..1_000).filter(|number| calibration_side(&format!("match {number}"), 2) == 0).count();
        assert!((400..600).contains(&first), "{first}");
    }
}
