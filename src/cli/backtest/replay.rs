//! Replay of matches in the order of their file: each is predicted from the skills before it, then rated.

use std::collections::HashMap;

use crate::cli::backtest::match_rows::{RejectedMatchRow, ReplayMatch};
use crate::cli::backtest::prediction_tally::ScoredPrediction;
use crate::domain::rating::{AllUsersMatchActivity, Side, Skill};
use crate::domain::ruleset::rating::RatingSpec;
use crate::domain::time::UnixMs;

/// Maximum number of matches in one file, because the data kept for each must fit into memory.
const REPLAY_MATCHES_MAX: usize = 20_000_000;

/// State of a replay.
pub(super) struct RatingReplay {
    pub(super) rating_spec: RatingSpec,
    /// Skills by player name.
    pub(super) skills_by_player: HashMap<String, Skill>,
    /// One prediction per match, in order.
    pub(super) predictions: Vec<ScoredPrediction>,
    /// Time of the latest match, as the rating systems see it.
    pub(super) latest_match_at: UnixMs,
    /// Number of matches older than one before them. They are rated in the order of the file.
    pub(super) out_of_order_matches: u64,
    /// Match activity so far.
    pub(super) set_activity: AllUsersMatchActivity,
    /// Line of each match.
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
            set_activity: AllUsersMatchActivity::default(),
            line_by_match_id: HashMap::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.predictions.is_empty()
    }

    /// Predicts a match, then updates the skills. An invalid match changes nothing.
    pub(super) fn predict_and_learn(&mut self, replay_match: &ReplayMatch) -> Result<(), RejectedMatchRow> {
        let reject = |reason: String| RejectedMatchRow { line: replay_match.line, why: reason };
        if self.predictions.len() >= REPLAY_MATCHES_MAX {
            return Err(reject(format!("file has too many matches; split it at {REPLAY_MATCHES_MAX}")));
        }
        if let Some(line) = self.line_by_match_id.get(&replay_match.match_id) {
            return Err(reject(format!(
                "match `{}` is already on line {line}; use each match_id once",
                replay_match.match_id
            )));
        }
        let newcomer = self.rating_spec.initial_skill();
        let known_skill = |player: &String| self.skills_by_player.get(player).copied().unwrap_or(newcomer);
        let played_at = replay_match.played_at.rating_time();
        let side = |(players, rank): &(Vec<String>, u32)| Side {
            players: players.iter().map(known_skill).collect(),
            rank: *rank,
        };
        let sides: Vec<Side> = replay_match.sides.iter().map(side).collect();
        let with_inactivity = |side: &Side| {
            side.players
                .iter()
                .map(|skill| self.rating_spec.skill_at_with_activity(*skill, played_at, self.set_activity))
                .collect()
        };
        let current_skills: Vec<Vec<Skill>> = sides.iter().map(with_inactivity).collect();
        let probabilities =
            self.rating_spec.win_probabilities(&current_skills).map_err(|error| reject(error.to_string()))?;
        let after = self
            .rating_spec
            .rate_match_with_activity(&sides, played_at, self.set_activity)
            .map_err(|error| reject(error.to_string()))?;

        self.set_activity =
            after.iter().flatten().fold(self.set_activity, AllUsersMatchActivity::including_last_match_of);
        let ranks: Vec<u32> = sides.iter().map(|side| side.rank).collect();
        self.predictions.push(ScoredPrediction::from_result(
            &probabilities,
            &ranks,
            side_by_match_id_hash(&replay_match.match_id, ranks.len()),
        ));
        let players = replay_match.sides.iter().flat_map(|(players, _)| players);
        for (player, skill) in players.zip(after.into_iter().flatten()) {
            match self.skills_by_player.get_mut(player) {
                Some(known) => *known = skill,
                None => _ = self.skills_by_player.insert(player.clone(), skill),
            }
        }
        self.out_of_order_matches += u64::from(played_at < self.latest_match_at);
        self.latest_match_at = self.latest_match_at.max(played_at);
        self.line_by_match_id.insert(replay_match.match_id.clone(), replay_match.line);
        Ok(())
    }
}

/// Side that counts in the calibration. Files often list the winner first, so a hash of the match id selects it
/// (FNV-1a), the same on every run.
fn side_by_match_id_hash(id: &str, sides: usize) -> usize {
    let hash = id
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    // The low bits depend on the last character only.
    ((hash ^ (hash >> 32)) % sides as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::backtest::match_time::{MatchTime, parse_match_time};
    use crate::domain::ruleset::rating::RatingSystem;

    /// Time this many milliseconds after the beginning of 1970.
    fn time(ms: u64) -> MatchTime {
        parse_match_time(&ms.to_string()).unwrap()
    }

    fn replay_match(line: u64, id: &str, sides: &[(&[&str], u32)]) -> ReplayMatch {
        let side = |(players, rank): &(&[&str], u32)| (players.iter().map(|it| (*it).to_owned()).collect(), *rank);
        ReplayMatch { line, match_id: id.into(), played_at: time(line), sides: sides.iter().map(side).collect() }
    }

    #[test]
    fn replay_counts_a_match_once_and_ignores_an_invalid_one() {
        let mut replay =
            RatingReplay::new(RatingSpec::with_defaults(RatingSystem::Elo { initial: 1500.0, k: 16.0, scale: 400.0 }));
        replay.predict_and_learn(&replay_match(2, "a", &[(&["Ann"], 1), (&["Bob"], 2)])).unwrap();
        let again = replay.predict_and_learn(&replay_match(3, "a", &[(&["Ann"], 1), (&["Bob"], 2)])).unwrap_err();
        assert!(again.line == 3 && again.why.contains("line 2"), "{again}");
        replay.predict_and_learn(&replay_match(4, "b", &[(&["Cem"], 1), (&["Dai"], 0)])).unwrap_err();
        assert_eq!((replay.skills_by_player.len(), replay.predictions.len()), (2, 1));
        assert_eq!(replay.skills_by_player["Ann"].estimate.rating, 1508.0);
        replay.predict_and_learn(&replay_match(1, "c", &[(&["Ann"], 1), (&["Bob"], 2)])).unwrap();
        assert_eq!((replay.out_of_order_matches, replay.latest_match_at), (1, time(2).rating_time()));
    }

    #[test]
    fn calibration_side_is_drawn_evenly() {
        let first = (0..1_000).filter(|number| side_by_match_id_hash(&format!("match {number}"), 2) == 0).count();
        assert!((400..600).contains(&first), "{first}");
    }
}
