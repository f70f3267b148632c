//! Matches in the order of their file: each is predicted from what was known before it, and then learned from.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::cli::rate::matches::{BadRow, Row};
use crate::cli::rate::tally::Judged;
use crate::domain::rating::{Played, Side, Skill};
use crate::domain::ruleset::rating::RatingSpec;
use crate::domain::time::UnixMs;

/// Matches in one file, at most: what is kept of each must fit into memory.
const MATCHES_MAX: usize = 20_000_000;

/// A replay as far as it has come.
pub(super) struct Replay {
    pub(super) spec: RatingSpec,
    /// Players by name.
    pub(super) skills: HashMap<String, Skill>,
    /// One prediction a match, in order.
    pub(super) judged: Vec<Judged>,
    /// When the latest match was.
    pub(super) latest: UnixMs,
    /// Matches that are older than one before them; they are played in the file's order all the same.
    pub(super) unordered: u64,
    /// How far they have been played.
    pub(super) played: Played,
    /// On which line each match was.
    lines: HashMap<String, u64>,
}

impl Replay {
    pub(super) fn new(spec: RatingSpec) -> Self {
        Self {
            spec,
            skills: HashMap::new(),
            judged: Vec::new(),
            latest: UnixMs(0),
            unordered: 0,
            played: Played::default(),
            lines: HashMap::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.judged.is_empty()
    }

    /// Predicts a match and learns from it; a bad one changes nothing.
    pub(super) fn play(&mut self, row: Row) -> Result<(), BadRow> {
        let bad = |why: String| BadRow { line: row.line, why };
        if MATCHES_MAX <= self.judged.len() {
            return Err(bad(format!("there are more than {MATCHES_MAX} matches: split the file")));
        }
        if let Some(line) = self.lines.get(&row.id) {
            return Err(bad(format!("match `{}` was on line {line} already: a match counts once", row.id)));
        }
        let newcomer = self.spec.newcomer();
        let known = |player: &String| self.skills.get(player).copied().unwrap_or(newcomer);
        let side =
            |(players, rank): &(Vec<String>, u32)| Side { players: players.iter().map(known).collect(), rank: *rank };
        let sides: Vec<Side> = row.sides.iter().map(side).collect();
        let now = |side: &Side| side.players.iter().map(|skill| self.spec.at_in(*skill, row.at, self.played)).collect();
        let current: Vec<Vec<Skill>> = sides.iter().map(now).collect();
        let chances = self.spec.win_chances(&current).map_err(|error| bad(error.to_string()))?;
        let after = self.spec.rate_in(&sides, row.at, self.played).map_err(|error| bad(error.to_string()))?;

        self.played = after.iter().flatten().fold(self.played, Played::with);
        let ranks: Vec<u32> = sides.iter().map(|side| side.rank).collect();
        self.judged.push(Judged::of(&chances, &ranks, shuffled(&row.id, ranks.len())));
        let players = row.sides.into_iter().flat_map(|(players, _)| players);
        for (player, skill) in players.zip(after.into_iter().flatten()) {
            match self.skills.entry(player) {
                Entry::Occupied(mut entry) => *entry.get_mut() = skill,
                Entry::Vacant(entry) => _ = entry.insert(skill),
            }
        }
        self.unordered += u64::from(row.at < self.latest);
        self.latest = self.latest.max(row.at);
        self.lines.insert(row.id, row.line);
        Ok(())
    }
}

/// Which side of a match is looked at: files often name the winner first, so it is drawn by the match's name, the same on every run
/// (FNV-1a).
fn shuffled(id: &str, sides: usize) -> usize {
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

    fn row(line: u64, id: &str, sides: &[(&[&str], u32)]) -> Row {
        let side = |(players, rank): &(&[&str], u32)| (players.iter().map(|it| (*it).to_owned()).collect(), *rank);
        Row { line, id: id.into(), at: UnixMs(line), sides: sides.iter().map(side).collect() }
    }

    #[test]
    fn a_match_counts_once_and_a_bad_one_leaves_nobody_behind() {
        let mut replay = Replay::new(RatingSpec::plain(RatingSystem::Elo { initial: 1500.0, k: 16.0, scale: 400.0 }));
        replay.play(row(2, "a", &[(&["Ann"], 1), (&["Bob"], 2)])).unwrap();
        let again = replay.play(row(3, "a", &[(&["Ann"], 1), (&["Bob"], 2)])).unwrap_err();
        assert!(again.line == 3 && again.why.contains("line 2"), "{again}");
        replay.play(row(4, "b", &[(&["Cem"], 1), (&["Dai"], 0)])).unwrap_err();
        assert_eq!((replay.skills.len(), replay.judged.len()), (2, 1));
        assert_eq!(replay.skills["Ann"].rated.rating, 1508.0);
        replay.play(row(1, "c", &[(&["Ann"], 1), (&["Bob"], 2)])).unwrap();
        assert_eq!((replay.unordered, replay.latest), (1, UnixMs(2)));
    }

    #[test]
    fn sides_are_drawn_evenly() {
        let first = (0..1_000).filter(|number| shuffled(&format!("match {number}"), 2) == 0).count();
        assert!((400..600).contains(&first), "{first}");
    }
}
