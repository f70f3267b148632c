//! Match results: ranks of the sides, rating updates, and the forecast at the time of the proposal.

use sha2::{Digest, Sha256};

use crate::id::{MatchId, RatingKey, RulesetHash, SetId, SiloId, UserKey};
use crate::queue::ticket::PlayerRating;
use crate::rating::{AllUsersMatchActivity, RatingError, Side, Skill};
use crate::ruleset::rating::{DisconnectPolicy, RatingSpec};
use crate::time::UnixMs;

/// Result of a match, as reported by its host.
#[derive(Clone, Debug, PartialEq)]
pub struct ResultReport {
    /// Match id.
    pub match_id: MatchId,
    /// Matchmaking set of the match.
    pub set_id: SetId,
    /// Silo of the match.
    pub silo: SiloId,
    /// Hash of the ruleset that created the match.
    pub ruleset_hash: RulesetHash,
    /// Ranked sides: the teams in their order, or one side per player.
    pub sides: Vec<SideRank>,
    /// Users who left before the end, sorted, without duplicates.
    pub left_early: Vec<UserKey>,
    /// Users in `left_early` who left by their own call, or hosted and were lost. They are rated also if the match is
    /// otherwise unrated because a player left early, or because its reports contradict each other.
    pub always_rated_leavers: Vec<UserKey>,
    /// Users of the sides whose reports contradict each other; empty if there is a result.
    pub disputing_users: Vec<UserKey>,
    /// Start of play.
    pub started_at: UnixMs,
    /// Playing time, milliseconds, if known.
    pub duration_ms: Option<u64>,
    /// Expectation when the match was created.
    pub forecast: MatchForecast,
}

/// One side of a match and its rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SideRank {
    /// Team of the side, an index in `TeamsSpec::sizes`.
    pub team_index: u16,
    /// Users of the side, in match order.
    pub users: Vec<UserKey>,
    /// Rank: 1 is best, equal ranks are a draw, no number is skipped.
    pub rank: u32,
}

/// Expected quality, waits and win probabilities of a match at its creation, for comparison with the result.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MatchForecast {
    /// Quality assigned by the queue pass; higher is better.
    pub match_quality: f64,
    /// Win probability per side, from the players' ratings on entering the queue; empty without ratings.
    pub win_probabilities: Vec<f64>,
    /// Largest difference between the mean ratings of two sides.
    pub max_rating_gap: f64,
    /// Wait of each ticket until play started, milliseconds.
    pub ticket_waits_ms: Vec<u64>,
    /// Round trip of each ticket to `region`, milliseconds; `None` if not reported.
    pub ticket_round_trips_ms: Vec<Option<f32>>,
    /// Region of the match, if the ruleset uses regions.
    pub region: Option<Box<str>>,
}

/// Stored result; exactly one per match.
#[derive(Clone, Debug, PartialEq)]
pub struct MatchResult {
    /// The accepted report.
    pub report: ResultReport,
    /// Digest of the reported values, for detecting a different second report.
    pub report_digest: [u8; 16],
    /// Time of acceptance.
    pub reported_at: UnixMs,
    /// Rating updates in the order of the sides; empty if the match is unrated.
    pub rating_updates: Vec<RatingUpdate>,
    /// Reason if the match is unrated.
    pub unrated_reason: Option<UnratedReason>,
}

/// Rating of one user before and after a match.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RatingUpdate {
    /// User.
    pub user: UserKey,
    /// Stored rating before the match.
    pub before: PlayerRating,
    /// Stored rating after the match.
    pub after: PlayerRating,
    /// Category of the rating after the match, by the ruleset that made it; `None` without categories.
    pub category_after: Option<u16>,
}

/// Reason that a match changes no rating.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnratedReason {
    /// The set has no rating system.
    NoRatingSystem,
    /// The match has fewer than two sides, for example after a backfill of one session.
    SingleSide,
    /// A player left before the end, and the ruleset ignores such matches.
    PlayerLeftEarly,
    /// The reports of its sides contradict each other.
    Disputed,
}

impl ResultReport {
    /// Reason that the match is unrated under `spec`; `None` if it is rated.
    pub fn unrated_reason(&self, spec: Option<&RatingSpec>) -> Option<UnratedReason> {
        match spec {
            None => Some(UnratedReason::NoRatingSystem),
            Some(_) if self.sides.len() < 2 => Some(UnratedReason::SingleSide),
            Some(_) if !self.disputing_users.is_empty() => Some(UnratedReason::Disputed),
            Some(spec) if spec.on_disconnect == DisconnectPolicy::Ignore && self.has_disconnected_player() => {
                Some(UnratedReason::PlayerLeftEarly)
            }
            Some(_) => None,
        }
    }

    /// Whether a player left early of whom the host says so. A player's own leaving never makes a match unrated.
    fn has_disconnected_player(&self) -> bool {
        self.left_early.iter().any(|user| !self.always_rated_leavers.contains(user))
    }

    /// Whether the match changes the rating of `user`, given its reason to be unrated.
    pub fn is_user_rated(&self, user: UserKey, unrated_reason: Option<UnratedReason>) -> bool {
        match unrated_reason {
            None => true,
            Some(UnratedReason::PlayerLeftEarly | UnratedReason::Disputed) => self.always_rated_leavers.contains(&user),
            Some(UnratedReason::NoRatingSystem | UnratedReason::SingleSide) => false,
        }
    }

    /// Computes (user, skill before, skill after) for all users, in the order of the sides. `stored_skill` returns a
    /// user's stored skill; `activity` is the set's activity so far.
    pub fn rate_players(
        &self,
        spec: &RatingSpec,
        stored_skill: impl Fn(UserKey) -> Skill,
        at: UnixMs,
        activity: AllUsersMatchActivity,
    ) -> Result<Vec<(UserKey, Skill, Skill)>, RatingError> {
        let side = |side: &SideRank| Side {
            players: side.users.iter().map(|user| stored_skill(*user)).collect(),
            rank: side.rank,
        };
        let sides: Vec<Side> = self.sides.iter().map(side).collect();
        let after = spec.rate_match_with_activity(&sides, at, activity)?;
        let before = sides.iter().flat_map(|side| side.players.iter().copied());
        let skills = before.zip(after.into_iter().flatten());
        let updates = self.users().zip(skills).map(|(user, (before, after))| (user, before, after));
        Ok(updates.collect())
    }

    /// All users, in the order of the sides.
    pub fn users(&self) -> impl Iterator<Item = UserKey> + '_ {
        self.sides.iter().flat_map(|side| side.users.iter().copied())
    }

    /// Rank of a user's side; `None` if the user is not in the match.
    pub fn rank_of_user(&self, user: UserKey) -> Option<u32> {
        self.sides.iter().find(|side| side.users.contains(&user)).map(|side| side.rank)
    }

    /// Digest of the reported values: ranks, users, users who left early, and the duration if the report contains one.
    /// Two reports are equal if their digests are equal.
    pub fn digest(&self, reported_duration_ms: Option<u64>) -> [u8; 16] {
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
        digest.update([u8::from(reported_duration_ms.is_some())]);
        digest.update(reported_duration_ms.unwrap_or(0).to_be_bytes());
        let digest: [u8; 32] = digest.finalize().into();
        std::array::from_fn(|index| digest[index])
    }

    /// Text for the error about a different second report: `team 0 has rank 1, team 1 has rank 2`.
    pub fn describe_ranks(&self) -> String {
        let side = |side: &SideRank| format!("team {} has rank {}", side.team_index, side.rank);
        let mut summary = self.sides.iter().take(SUMMARY_SIDES_MAX).map(side).collect::<Vec<_>>().join(", ");
        if self.sides.len() > SUMMARY_SIDES_MAX {
            summary.push_str(", ...");
        }
        match self.left_early.len() {
            0 => {}
            1 => summary.push_str("; 1 player left early"),
            count => summary.push_str(&format!("; {count} players left early")),
        }
        summary
    }
}

/// Maximum number of sides in a summary.
const SUMMARY_SIDES_MAX: usize = 4;

/// Replaces ranks by dense ranks from 1, in the same order: 10, 7, 7 becomes 2, 1, 1.
pub fn dense_ranks(ranks: &[u32]) -> Vec<u32> {
    let mut distinct: Vec<u32> = ranks.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    let dense = |rank: &u32| distinct.partition_point(|lower| lower < rank) + 1;
    ranks.iter().map(|rank| u32::try_from(dense(rank)).unwrap_or(u32::MAX)).collect()
}

/// Satisfaction statistics of a user, stored with one rating. The losing streak is part of the rating itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserSatisfactionStatistics {
    /// Matches that the user left before the end.
    pub abandoned_matches: u32,
    /// Matches of the user whose sides reported different results.
    pub disputed_matches: u32,
    /// Matches for which the user gave feedback.
    pub given_feedback_count: u32,
    /// Sum of the feedback values, each 1 to 5.
    pub given_feedback_sum: u32,
}

impl UserSatisfactionStatistics {
    /// Share of disputed matches among the disputed and the rated ones, percent; 0 without matches.
    pub fn disputed_percent(&self, rated_matches: u32) -> f64 {
        let total = f64::from(self.disputed_matches) + f64::from(rated_matches);
        if total > 0.0 { 100.0 * f64::from(self.disputed_matches) / total } else { 0.0 }
    }

    /// Mean feedback, 1 to 5; `None` without feedback.
    pub fn mean_feedback(&self) -> Option<f64> {
        (self.given_feedback_count > 0)
            .then(|| f64::from(self.given_feedback_sum) / f64::from(self.given_feedback_count))
    }
}

/// Entry in a user's rating history.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RatingHistoryEntry {
    /// User.
    pub user: UserKey,
    /// Pool and scale of the rating.
    pub key: RatingKey,
    /// Number of rated matches of the user, including this one.
    pub rated_match_number: u32,
    /// Match that changed the rating.
    pub match_id: MatchId,
    /// Time of the report.
    pub reported_at: UnixMs,
    /// Rank of the user's side; 1 is best.
    pub rank: u32,
    /// Number of sides in the match.
    pub side_count: u32,
    /// Rating before the match.
    pub before: PlayerRating,
    /// Rating after the match.
    pub after: PlayerRating,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ruleset::rating::RatingSystem;

    fn report(ranks: &[u32]) -> ResultReport {
        let side = |(team_index, rank): (u16, &u32)| SideRank {
            team_index,
            users: vec![UserKey::from_bytes([team_index as u8; 16])],
            rank: *rank,
        };
        ResultReport {
            match_id: MatchId::from_bytes([1; 16]),
            set_id: SetId(1),
            silo: SiloId(0),
            ruleset_hash: RulesetHash(1),
            sides: (0..).zip(ranks).map(side).collect(),
            left_early: Vec::new(),
            always_rated_leavers: Vec::new(),
            disputing_users: Vec::new(),
            started_at: UnixMs(1),
            duration_ms: None,
            forecast: MatchForecast::default(),
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

    /// S1-61: with equal ratings, the winner gains half of K and the loser loses it.
    #[test]
    fn rate_players_updates_users_in_side_order() {
        let updates = report(&[2, 1])
            .rate_players(&elo_spec(), |_| elo_spec().initial_skill(), UnixMs(9), AllUsersMatchActivity::default())
            .unwrap();
        let ratings: Vec<(u8, f64, i32)> =
            updates.iter().map(|(user, _, after)| (user.as_bytes()[0], after.estimate.rating, after.streak)).collect();
        assert_eq!(ratings, [(0, 1492.0, -1), (1, 1508.0, 1)]);
    }

    /// S2-13: the ruleset decides whether a match counts that a player left early.
    #[test]
    fn unrated_match_reports_its_reason() {
        let mut with_leaver = report(&[1, 2]);
        with_leaver.left_early.push(UserKey::from_bytes([1; 16]));
        let strict = RatingSpec { on_disconnect: DisconnectPolicy::Ignore, ..elo_spec() };
        assert_eq!(with_leaver.unrated_reason(Some(&elo_spec())), None);
        assert_eq!(with_leaver.unrated_reason(Some(&strict)), Some(UnratedReason::PlayerLeftEarly));
        assert_eq!(report(&[1, 2]).unrated_reason(Some(&strict)), None);
        assert_eq!(report(&[1]).unrated_reason(Some(&strict)), Some(UnratedReason::SingleSide));
        assert_eq!(with_leaver.unrated_reason(None), Some(UnratedReason::NoRatingSystem));
    }

    /// `OnDisconnect="ignore"` needs the host's word, and does not let off a player who left by the call.
    #[test]
    fn leaver_by_call_is_rated_by_any_result() {
        let strict = RatingSpec { on_disconnect: DisconnectPolicy::Ignore, ..elo_spec() };
        let [leaver, disconnected] = [0, 1].map(|n| UserKey::from_bytes([n; 16]));
        let left = ResultReport { left_early: vec![leaver], always_rated_leavers: vec![leaver], ..report(&[2, 1]) };
        assert_eq!(left.unrated_reason(Some(&strict)), None);
        let both = ResultReport { left_early: vec![leaver, disconnected], ..left.clone() };
        let reason = both.unrated_reason(Some(&strict));
        assert_eq!(reason, Some(UnratedReason::PlayerLeftEarly));
        assert!(both.is_user_rated(leaver, reason) && !both.is_user_rated(disconnected, reason));
        let disputed = ResultReport { disputing_users: vec![leaver, disconnected], ..left };
        assert_eq!(disputed.unrated_reason(Some(&elo_spec())), Some(UnratedReason::Disputed));
        assert!(!disputed.is_user_rated(disconnected, Some(UnratedReason::Disputed)));
    }

    #[test]
    fn disputed_percent_counts_rated_and_disputed_matches() {
        let stats = UserSatisfactionStatistics { disputed_matches: 1, ..UserSatisfactionStatistics::default() };
        assert_eq!((stats.disputed_percent(3), stats.disputed_percent(0)), (25.0, 100.0));
        assert_eq!(UserSatisfactionStatistics::default().disputed_percent(0), 0.0);
    }

    #[test]
    fn report_digest_depends_only_on_reported_facts() {
        let (first, mut other) = (report(&[1, 2]), report(&[1, 2]));
        other.forecast.match_quality = 3.0;
        other.duration_ms = Some(3);
        assert_eq!(first.digest(None), other.digest(None), "the digest contains reported values only");
        let digests =
            [first.digest(None), first.digest(Some(0)), report(&[2, 1]).digest(None), report(&[1, 1]).digest(None)];
        other.left_early.push(UserKey::from_bytes([1; 16]));
        let mut digests: Vec<_> = digests.into_iter().chain([other.digest(None)]).collect();
        digests.sort_unstable();
        digests.dedup();
        assert_eq!(digests.len(), 5);
        assert_eq!(other.describe_ranks(), "team 0 has rank 1, team 1 has rank 2; 1 player left early");
    }
}
