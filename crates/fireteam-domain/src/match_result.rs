//! What came of a match: who came in where, what that made of the ratings, and what had been wanted of it.

use sha2::{Digest, Sha256};

use crate::id::{MatchId, RulesetHash, SetId, SiloId, UserKey};
use crate::queue::ticket::PlayerRating;
use crate::rating::{RatingError, SetActivity, Side, Skill};
use crate::ruleset::rating::{DisconnectPolicy, RatingSpec};
use crate::time::UnixMs;

/// What came of a match, as whoever hosted it says.
#[derive(Clone, Debug, PartialEq)]
pub struct ResultReport {
    /// Which.
    pub match_id: MatchId,
    /// The set that it was played under.
    pub set_id: SetId,
    /// The population.
    pub silo: SiloId,
    /// The ruleset that made it.
    pub ruleset_hash: RulesetHash,
    /// Who came in where: the teams in their order, or every player alone.
    pub sides: Vec<SideRank>,
    /// Users who had left before its end, sorted, each once.
    pub left_early: Vec<UserKey>,
    /// When it began.
    pub started_at: UnixMs,
    /// How long it was played, milliseconds, as far as anybody knows.
    pub duration_ms: Option<u64>,
    /// What had been wanted.
    pub expectation: MatchExpectation,
}

/// One side, and where it came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SideRank {
    /// Its team: a place in `TeamsSpec::sizes`.
    pub team_index: u16,
    /// Its users, in the order of the match.
    pub users: Vec<UserKey>,
    /// 1 is best, equal is a draw; no number is left out.
    pub rank: u32,
}

/// What was known of a match when it was made, to be held against what came of it (S1-98).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MatchExpectation {
    /// How good the pass thought it, higher is better.
    pub match_quality: f64,
    /// The chance of each side to come in first, by the ratings that its players entered with; empty where there are none.
    pub win_probabilities: Vec<f64>,
    /// The largest difference between two sides' mean ratings.
    pub max_rating_gap: f64,
    /// How long each of its tickets had waited when play began, milliseconds.
    pub ticket_waits_ms: Vec<u64>,
    /// Round trip of each of its tickets to the region where all met, milliseconds, as far as they had said.
    pub ticket_round_trips_ms: Vec<Option<f32>>,
    /// That region, if the ruleset goes by regions.
    pub region: Option<Box<str>>,
}

/// A result as it is kept: once for each match.
#[derive(Clone, Debug, PartialEq)]
pub struct MatchResult {
    /// As it was reported.
    pub report: ResultReport,
    /// A digest of what was said, so that another report for the match is noticed.
    pub report_digest: [u8; 16],
    /// When it was taken.
    pub reported_at: UnixMs,
    /// What it made of everybody, in the order of sides; empty where it made nothing.
    pub rating_updates: Vec<RatingUpdate>,
    /// Why it made nothing.
    pub unrated_reason: Option<UnratedReason>,
}

/// What a match made of one user.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RatingUpdate {
    /// Whose.
    pub user: UserKey,
    /// As it was stored before.
    pub before: PlayerRating,
    /// As it is stored after.
    pub after: PlayerRating,
}

/// Why a match changes no rating.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnratedReason {
    /// The set has no rating system.
    NoRatingSystem,
    /// There was nobody to play against, as where a session was filled up.
    SingleSide,
    /// Somebody left before its end, and the ruleset counts no such match (S2-13).
    PlayerLeftEarly,
}

impl ResultReport {
    /// Why it changes no rating under these rules, if it does not.
    pub fn unrated_reason(&self, spec: Option<&RatingSpec>) -> Option<UnratedReason> {
        match spec {
            None => Some(UnratedReason::NoRatingSystem),
            Some(_) if self.sides.len() < 2 => Some(UnratedReason::SingleSide),
            Some(spec) if spec.on_disconnect == DisconnectPolicy::Ignore && !self.left_early.is_empty() => {
                Some(UnratedReason::PlayerLeftEarly)
            }
            Some(_) => None,
        }
    }

    /// What it makes of everybody, in the order of sides; `known` says what is stored of a user, `played` how far the set has been
    /// played before.
    pub fn rate_players(
        &self,
        spec: &RatingSpec,
        known: impl Fn(UserKey) -> Skill,
        at: UnixMs,
        played: SetActivity,
    ) -> Result<Vec<(UserKey, Skill, Skill)>, RatingError> {
        let side =
            |side: &SideRank| Side { players: side.users.iter().map(|user| known(*user)).collect(), rank: side.rank };
        let sides: Vec<Side> = self.sides.iter().map(side).collect();
        let after = spec.rate_match_with_activity(&sides, at, played)?;
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
        digest.update(count(self.left_early.len()));
        self.left_early.iter().for_each(|user| digest.update(user.as_bytes()));
        digest.update([u8::from(said_duration_ms.is_some())]);
        digest.update(said_duration_ms.unwrap_or(0).to_be_bytes());
        let digest: [u8; 32] = digest.finalize().into();
        std::array::from_fn(|at| digest[at])
    }

    /// It in a few words, for whoever has said something else: `team 0 came in 1, team 1 came in 2`.
    pub fn summary(&self) -> String {
        let side = |side: &SideRank| format!("team {} came in {}", side.team_index, side.rank);
        let mut words = self.sides.iter().take(SUMMARY_SIDES_MAX).map(side).collect::<Vec<_>>().join(", ");
        if SUMMARY_SIDES_MAX < self.sides.len() {
            words.push_str(", and so on");
        }
        match self.left_early.len() {
            0 => {}
            1 => words.push_str("; one had left"),
            some => words.push_str(&format!("; {some} had left")),
        }
        words
    }
}

/// Sides that are put in words.
const SUMMARY_SIDES_MAX: usize = 4;

/// The same order in the least numbers: 10, 7, 7 becomes 2, 1, 1.
pub fn dense_ranks(ranks: &[u32]) -> Vec<u32> {
    let mut known: Vec<u32> = ranks.to_vec();
    known.sort_unstable();
    known.dedup();
    let place = |rank: &u32| known.partition_point(|it| it < rank) + 1;
    ranks.iter().map(|rank| u32::try_from(place(rank)).unwrap_or(u32::MAX)).collect()
}

/// How content a user is with a set's matches, as far as it shows (S1-97). The losing streak is the rating's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SatisfactionStats {
    /// Matches that the user has left before their end.
    pub abandoned_matches: u32,
    /// Matches that the user has scored.
    pub feedback_count: u32,
    /// The sum of those scores, each 1 to 5.
    pub feedback_sum: u32,
}

impl SatisfactionStats {
    /// The mean of the scores that were given.
    pub fn mean_feedback(&self) -> Option<f64> {
        (0 < self.feedback_count).then(|| f64::from(self.feedback_sum) / f64::from(self.feedback_count))
    }
}

/// One change of a user's rating, as it is remembered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RatingHistoryEntry {
    /// Whose.
    pub user: UserKey,
    /// Which set's.
    pub set_id: SetId,
    /// The number of matches that count in the rating after it.
    pub rated_match_number: u32,
    /// By which match.
    pub match_id: MatchId,
    /// When.
    pub reported_at: UnixMs,
    /// Where the user's side came in.
    pub rank: u32,
    /// Among how many sides.
    pub side_count: u32,
    /// Before.
    pub before: PlayerRating,
    /// After.
    pub after: PlayerRating,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ruleset::rating::RatingSystem;

    fn report(ranks: &[u32]) -> ResultReport {
        let side = |(team, rank): (u16, &u32)| SideRank {
            team_index: team,
            users: vec![UserKey::from_bytes([team as u8; 16])],
            rank: *rank,
        };
        ResultReport {
            match_id: MatchId::from_bytes([1; 16]),
            set_id: SetId(1),
            silo: SiloId(0),
            ruleset_hash: RulesetHash(1),
            sides: (0..).zip(ranks).map(side).collect(),
            left_early: Vec::new(),
            started_at: UnixMs(1),
            duration_ms: None,
            expectation: MatchExpectation::default(),
        }
    }

    fn elo_spec() -> RatingSpec {
        RatingSpec::with_defaults(RatingSystem::Elo { initial: 1500.0, k: 16.0, scale: 400.0 })
    }

    #[test]
    fn dense_ranks_keep_order_and_ties() {
        assert_eq!(dense_ranks(&[10, 7, 7]), [2, 1, 1]);
        assert_eq!(dense_ranks(&[1, 2, 3]), [1, 2, 3]);
        assert_eq!(dense_ranks(&[u32::MAX]), [1]);
        assert_eq!(dense_ranks(&[]), [0_u32; 0]);
    }

    /// S1-61: of two equals the winner gets half of K from the loser.
    #[test]
    fn rate_players_updates_users_in_side_order() {
        let changes = report(&[2, 1])
            .rate_players(&elo_spec(), |_| elo_spec().initial_skill(), UnixMs(9), SetActivity::default())
            .unwrap();
        let ratings: Vec<(u8, f64, i32)> =
            changes.iter().map(|(user, _, after)| (user.as_bytes()[0], after.estimate.rating, after.streak)).collect();
        assert_eq!(ratings, [(0, 1492.0, -1), (1, 1508.0, 1)]);
    }

    /// S2-13: a match that somebody left counts, or does not, as the ruleset has it.
    #[test]
    fn unrated_match_reports_its_reason() {
        let mut left = report(&[1, 2]);
        left.left_early.push(UserKey::from_bytes([1; 16]));
        let strict = RatingSpec { on_disconnect: DisconnectPolicy::Ignore, ..elo_spec() };
        assert_eq!(left.unrated_reason(Some(&elo_spec())), None);
        assert_eq!(left.unrated_reason(Some(&strict)), Some(UnratedReason::PlayerLeftEarly));
        assert_eq!(report(&[1, 2]).unrated_reason(Some(&strict)), None);
        assert_eq!(report(&[1]).unrated_reason(Some(&strict)), Some(UnratedReason::SingleSide));
        assert_eq!(left.unrated_reason(None), Some(UnratedReason::NoRatingSystem));
    }

    #[test]
    fn report_digest_depends_only_on_reported_facts() {
        let (first, mut other) = (report(&[1, 2]), report(&[1, 2]));
        other.expectation.match_quality = 3.0;
        other.duration_ms = Some(3);
        assert_eq!(first.digest(None), other.digest(None), "what fireteam knows itself is not what was said");
        let all =
            [first.digest(None), first.digest(Some(0)), report(&[2, 1]).digest(None), report(&[1, 1]).digest(None)];
        other.left_early.push(UserKey::from_bytes([1; 16]));
        let mut all: Vec<_> = all.into_iter().chain([other.digest(None)]).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 5);
        assert_eq!(other.summary(), "team 0 came in 1, team 1 came in 2; one had left");
    }
}
