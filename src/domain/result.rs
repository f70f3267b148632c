//! What came of a match: who came in where, what that made of the ratings, and what had been wanted of it.

use sha2::{Digest, Sha256};

use crate::domain::id::{MatchId, RulesetHash, SetId, SiloId, UserKey};
use crate::domain::queue::ticket::Rated;
use crate::domain::rating::{Played, RateError, Side, Skill};
use crate::domain::ruleset::rating::{OnDisconnect, RatingSpec};
use crate::domain::time::UnixMs;

/// What came of a match, as whoever hosted it says.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Which.
    pub match_id: MatchId,
    /// The set that it was played under.
    pub set_id: SetId,
    /// The population.
    pub silo: SiloId,
    /// The ruleset that made it.
    pub hash: RulesetHash,
    /// Who came in where: the teams in their order, or every player alone.
    pub sides: Vec<Placed>,
    /// Users who had left before its end, sorted, each once.
    pub disconnected: Vec<UserKey>,
    /// When it began.
    pub began: UnixMs,
    /// How long it was played, milliseconds, as far as anybody knows.
    pub duration_ms: Option<u64>,
    /// What had been wanted.
    pub wanted: Wanted,
}

/// One side, and where it came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Its team: a place in `TeamsSpec::sizes`.
    pub team: u16,
    /// Its users, in the order of the match.
    pub users: Vec<UserKey>,
    /// 1 is best, equal is a draw; no number is left out.
    pub rank: u32,
}

/// What was known of a match when it was made, to be held against what came of it (S1-98).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wanted {
    /// How good the pass thought it, higher is better.
    pub quality: f64,
    /// The chance of each side to come in first, by the ratings that its players entered with; empty where there are none.
    pub chances: Vec<f64>,
    /// The largest difference between two sides' mean ratings.
    pub gap: f64,
    /// How long each of its tickets had waited when play began, milliseconds.
    pub waits_ms: Vec<u64>,
    /// Round trip of each of its tickets to the region where all met, milliseconds, as far as they had said.
    pub round_trips_ms: Vec<Option<f32>>,
    /// That region, if the ruleset goes by regions.
    pub region: Option<Box<str>>,
}

/// A result as it is kept: once for each match.
#[derive(Clone, Debug, PartialEq)]
pub struct MatchResult {
    /// As it was reported.
    pub report: Report,
    /// A digest of what was said, so that another report for the match is noticed.
    pub payload: [u8; 16],
    /// When it was taken.
    pub reported: UnixMs,
    /// What it made of everybody, in the order of sides; empty where it made nothing.
    pub changes: Vec<Change>,
    /// Why it made nothing.
    pub unrated: Option<Unrated>,
}

/// What a match made of one user.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// Whose.
    pub user: UserKey,
    /// As it was stored before.
    pub before: Rated,
    /// As it is stored after.
    pub after: Rated,
}

/// Why a match changes no rating.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unrated {
    /// The set has no rating system.
    NoSystem,
    /// There was nobody to play against, as where a session was filled up.
    OneSide,
    /// Somebody left before its end, and the ruleset counts no such match (S2-13).
    Disconnected,
}

impl Report {
    /// Why it changes no rating under these rules, if it does not.
    pub fn unrated(&self, spec: Option<&RatingSpec>) -> Option<Unrated> {
        match spec {
            None => Some(Unrated::NoSystem),
            Some(_) if self.sides.len() < 2 => Some(Unrated::OneSide),
            Some(spec) if spec.on_disconnect == OnDisconnect::Ignore && !self.disconnected.is_empty() => {
                Some(Unrated::Disconnected)
            }
            Some(_) => None,
        }
    }

    /// What it makes of everybody, in the order of sides; `known` says what is stored of a user, `played` how far the set has been
    /// played before.
    pub fn rate(
        &self,
        spec: &RatingSpec,
        known: impl Fn(UserKey) -> Skill,
        at: UnixMs,
        played: Played,
    ) -> Result<Vec<(UserKey, Skill, Skill)>, RateError> {
        let side =
            |side: &Placed| Side { players: side.users.iter().map(|user| known(*user)).collect(), rank: side.rank };
        let sides: Vec<Side> = self.sides.iter().map(side).collect();
        let after = spec.rate_in(&sides, at, played)?;
        let before = sides.iter().flat_map(|side| side.players.iter().copied());
        let skills = before.zip(after.into_iter().flatten());
        let changes = self.users().zip(skills).map(|(user, (before, after))| (user, before, after));
        Ok(changes.collect())
    }

    /// Everybody in it, in the order of sides.
    pub fn users(&self) -> impl Iterator<Item = UserKey> + '_ {
        self.sides.iter().flat_map(|side| side.users.iter().copied())
    }

    /// Where a user came in.
    pub fn rank_of(&self, user: UserKey) -> Option<u32> {
        self.sides.iter().find(|side| side.users.contains(&user)).map(|side| side.rank)
    }

    /// A digest of who came in where, who had left, and how long it took if that was said: what two reports must have in common
    /// to be the same.
    pub fn digest(&self, said_duration_ms: Option<u64>) -> [u8; 16] {
        let mut digest = Sha256::new();
        let count = |count: usize| (count as u64).to_be_bytes();
        digest.update(count(self.sides.len()));
        for side in &self.sides {
            digest.update(side.rank.to_be_bytes());
            digest.update(count(side.users.len()));
            side.users.iter().for_each(|user| digest.update(user.as_bytes()));
        }
        digest.update(count(self.disconnected.len()));
        self.disconnected.iter().for_each(|user| digest.update(user.as_bytes()));
        digest.update([u8::from(said_duration_ms.is_some())]);
        digest.update(said_duration_ms.unwrap_or(0).to_be_bytes());
        let digest: [u8; 32] = digest.finalize().into();
        std::array::from_fn(|at| digest[at])
    }

    /// It in a few words, for whoever has said something else: `team 0 came in 1, team 1 came in 2`.
    pub fn in_words(&self) -> String {
        let side = |side: &Placed| format!("team {} came in {}", side.team, side.rank);
        let mut words = self.sides.iter().take(WORDS_MAX).map(side).collect::<Vec<_>>().join(", ");
        if WORDS_MAX < self.sides.len() {
            words.push_str(", and so on");
        }
        match self.disconnected.len() {
            0 => {}
            1 => words.push_str("; one had left"),
            some => words.push_str(&format!("; {some} had left")),
        }
        words
    }
}

/// Sides that are put in words.
const WORDS_MAX: usize = 4;

/// The same order in the least numbers: 10, 7, 7 becomes 2, 1, 1.
pub fn dense(ranks: &[u32]) -> Vec<u32> {
    let mut known: Vec<u32> = ranks.to_vec();
    known.sort_unstable();
    known.dedup();
    let place = |rank: &u32| known.partition_point(|it| it < rank) + 1;
    ranks.iter().map(|rank| u32::try_from(place(rank)).unwrap_or(u32::MAX)).collect()
}

/// How content a user is with a set's matches, as far as it shows (S1-97). The losing streak is the rating's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Satisfaction {
    /// Matches that the user has left before their end.
    pub abandoned: u32,
    /// Matches that the user has scored.
    pub scores: u32,
    /// The sum of those scores, each 1 to 5.
    pub score_sum: u32,
}

impl Satisfaction {
    /// The mean of the scores that were given.
    pub fn mean_score(&self) -> Option<f64> {
        (0 < self.scores).then(|| f64::from(self.score_sum) / f64::from(self.scores))
    }
}

/// One change of a user's rating, as it is remembered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RatingChange {
    /// Whose.
    pub user: UserKey,
    /// Which set's.
    pub set_id: SetId,
    /// The number of matches that count in the rating after it.
    pub number: u32,
    /// By which match.
    pub match_id: MatchId,
    /// When.
    pub at: UnixMs,
    /// Where the user's side came in.
    pub rank: u32,
    /// Among how many sides.
    pub sides: u32,
    /// Before.
    pub before: Rated,
    /// After.
    pub after: Rated,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ruleset::rating::RatingSystem;

    fn report(ranks: &[u32]) -> Report {
        let side = |(team, rank): (u16, &u32)| Placed {
            team,
            users: vec![UserKey::from_bytes([team as u8; 16])],
            rank: *rank,
        };
        Report {
            match_id: MatchId::from_bytes([1; 16]),
            set_id: SetId(1),
            silo: SiloId(0),
            hash: RulesetHash(1),
            sides: (0..).zip(ranks).map(side).collect(),
            disconnected: Vec::new(),
            began: UnixMs(1),
            duration_ms: None,
            wanted: Wanted::default(),
        }
    }

    fn elo() -> RatingSpec {
        RatingSpec::plain(RatingSystem::Elo { initial: 1500.0, k: 16.0, scale: 400.0 })
    }

    #[test]
    fn ranks_are_told_apart_by_order_alone() {
        assert_eq!(dense(&[10, 7, 7]), [2, 1, 1]);
        assert_eq!(dense(&[1, 2, 3]), [1, 2, 3]);
        assert_eq!(dense(&[u32::MAX]), [1]);
        assert_eq!(dense(&[]), [0_u32; 0]);
    }

    /// S1-61: of two equals the winner gets half of K from the loser.
    #[test]
    fn everybody_is_rated_in_the_order_of_sides() {
        let changes = report(&[2, 1]).rate(&elo(), |_| elo().newcomer(), UnixMs(9), Played::default()).unwrap();
        let ratings: Vec<(u8, f64, i32)> =
            changes.iter().map(|(user, _, after)| (user.as_bytes()[0], after.rated.rating, after.streak)).collect();
        assert_eq!(ratings, [(0, 1492.0, -1), (1, 1508.0, 1)]);
    }

    /// S2-13: a match that somebody left counts, or does not, as the ruleset has it.
    #[test]
    fn what_is_not_rated_is_known_by_its_reason() {
        let mut left = report(&[1, 2]);
        left.disconnected.push(UserKey::from_bytes([1; 16]));
        let strict = RatingSpec { on_disconnect: OnDisconnect::Ignore, ..elo() };
        assert_eq!(left.unrated(Some(&elo())), None);
        assert_eq!(left.unrated(Some(&strict)), Some(Unrated::Disconnected));
        assert_eq!(report(&[1, 2]).unrated(Some(&strict)), None);
        assert_eq!(report(&[1]).unrated(Some(&strict)), Some(Unrated::OneSide));
        assert_eq!(left.unrated(None), Some(Unrated::NoSystem));
    }

    #[test]
    fn reports_that_say_the_same_have_one_digest() {
        let (first, mut other) = (report(&[1, 2]), report(&[1, 2]));
        other.wanted.quality = 3.0;
        other.duration_ms = Some(3);
        assert_eq!(first.digest(None), other.digest(None), "what fireteam knows itself is not what was said");
        let all =
            [first.digest(None), first.digest(Some(0)), report(&[2, 1]).digest(None), report(&[1, 1]).digest(None)];
        other.disconnected.push(UserKey::from_bytes([1; 16]));
        let mut all: Vec<_> = all.into_iter().chain([other.digest(None)]).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 5);
        assert_eq!(other.in_words(), "team 0 came in 1, team 1 came in 2; one had left");
    }
}
