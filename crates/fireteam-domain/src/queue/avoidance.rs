//! Avoidance rules: players who blocked each other, or who recently were opponents or teammates.

use crate::id::UserKey;
use crate::ruleset::queue::{AvoidStrictness, AvoidTarget, AvoidanceRule};
use crate::time::UnixMs;

/// Two users who played in the same match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastMatch {
    /// First user.
    pub user: UserKey,
    /// Second user.
    pub other_user: UserKey,
    /// Whether they were in the same team.
    pub same_team: bool,
    /// Start of their match.
    pub started_at: UnixMs,
}

/// Recent matches of pairs of users, as far back as the ruleset's rules need.
#[derive(Clone, Debug, Default)]
pub struct PastMatches {
    /// Lower user first, sorted; per pair and `same_team` only the latest match.
    latest_by_pair: Vec<PastMatch>,
    /// All users of `latest_by_pair`, sorted.
    users: Vec<UserKey>,
}

impl PastMatches {
    /// Keeps only the latest match of each pair, as opponents and as teammates.
    pub fn latest_of(past_matches: impl IntoIterator<Item = PastMatch>) -> Self {
        let ordered = |it: PastMatch| {
            let (one, other) =
                if it.user <= it.other_user { (it.user, it.other_user) } else { (it.other_user, it.user) };
            PastMatch { user: one, other_user: other, ..it }
        };
        let mut latest_by_pair: Vec<PastMatch> = past_matches.into_iter().map(ordered).collect();
        latest_by_pair
            .sort_unstable_by_key(|it| (it.user, it.other_user, it.same_team, std::cmp::Reverse(it.started_at)));
        latest_by_pair.dedup_by_key(|it| (it.user, it.other_user, it.same_team));
        let mut users: Vec<UserKey> = latest_by_pair.iter().flat_map(|it| [it.user, it.other_user]).collect();
        users.sort_unstable();
        users.dedup();
        Self { latest_by_pair, users }
    }

    /// Start of the latest match that two users played as opponents or, with `same_team`, as teammates.
    pub fn last_started_at(&self, one: UserKey, other: UserKey, same_team: bool) -> Option<UnixMs> {
        let (one, other) = if one <= other { (one, other) } else { (other, one) };
        let index = self
            .latest_by_pair
            .binary_search_by_key(&(one, other, same_team), |it| (it.user, it.other_user, it.same_team))
            .ok()?;
        Some(self.latest_by_pair[index].started_at)
    }

    /// Whether a user has a recent match.
    pub fn includes_user(&self, user: UserKey) -> bool {
        self.users.binary_search(&user).is_ok()
    }

    /// Whether there are no recent matches.
    pub fn is_empty(&self) -> bool {
        self.latest_by_pair.is_empty()
    }
}

/// Result of the avoidance rules for two parties.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AvoidanceVerdict {
    /// They must not meet.
    pub never_meet: bool,
    /// They must not be in the same team.
    pub separate_teams: bool,
}

/// One of two parties for avoidance rules.
#[derive(Clone, Copy, Debug)]
pub struct AvoidanceSide<'a> {
    /// Users of the party, sorted.
    pub users: &'a [UserKey],
    /// Users blocked by any of them, sorted.
    pub blocked_users: &'a [UserKey],
}

/// Evaluates `rules` for two parties at `now`.
pub fn evaluate_avoidance(
    rules: &[AvoidanceRule],
    past_matches: &PastMatches,
    one: AvoidanceSide<'_>,
    other: AvoidanceSide<'_>,
    now: UnixMs,
) -> AvoidanceVerdict {
    let mut verdict = AvoidanceVerdict::default();
    for rule in rules {
        let flag = match rule.how {
            AvoidStrictness::Never => &mut verdict.never_meet,
            AvoidStrictness::NotSameTeam => &mut verdict.separate_teams,
            AvoidStrictness::PreferNot { .. } => continue,
        };
        *flag = *flag || latest_avoidance_reason(rule.whom, past_matches, one, other, now).is_some();
    }
    verdict
}

/// Quality cost of one rule for a match with both parties: the cost for the latest match of any two of their users. It
/// halves every half-life. 0 for rules without a cost.
pub fn avoidance_cost(
    rule: &AvoidanceRule,
    past_matches: &PastMatches,
    one: AvoidanceSide<'_>,
    other: AvoidanceSide<'_>,
    now: UnixMs,
) -> f64 {
    let AvoidStrictness::PreferNot { cost, half_life_ms } = rule.how else { return 0.0 };
    match latest_avoidance_reason(rule.whom, past_matches, one, other, now) {
        Some(Some(started_at)) => cost * 0.5_f64.powf(now.ms_since(started_at) as f64 / half_life_ms.max(1) as f64),
        Some(None) => cost,
        None => 0.0,
    }
}

/// Latest reason of one kind for which two parties avoid each other, with its time if it has one.
fn latest_avoidance_reason(
    whom: AvoidTarget,
    past_matches: &PastMatches,
    one: AvoidanceSide<'_>,
    other: AvoidanceSide<'_>,
    now: UnixMs,
) -> Option<Option<UnixMs>> {
    let (recent_ms, same_team) = match whom {
        AvoidTarget::Blocked => {
            let blocks =
                |one: AvoidanceSide<'_>, other: AvoidanceSide<'_>| have_common_user(one.blocked_users, other.users);
            return (blocks(one, other) || blocks(other, one)).then_some(None);
        }
        AvoidTarget::RecentOpponents { recent_ms } => (recent_ms, false),
        AvoidTarget::RecentTeammates { recent_ms } => (recent_ms, true),
    };
    if past_matches.is_empty() {
        return None;
    }
    let pairs = one.users.iter().flat_map(|&one| other.users.iter().map(move |&other| (one, other)));
    let started_at = pairs.filter_map(|(one, other)| past_matches.last_started_at(one, other, same_team)).max()?;
    (now.ms_since(started_at) < recent_ms).then_some(Some(started_at))
}

/// Whether two sorted lists have a common entry. Looks up the shorter list in the longer.
pub(super) fn have_common_user(one: &[UserKey], other: &[UserKey]) -> bool {
    let (few, many) = if one.len() <= other.len() { (one, other) } else { (other, one) };
    match (few, many) {
        ([], _) => false,
        ([one], [other]) => one == other,
        _ => few.iter().any(|user| many.binary_search(user).is_ok()),
    }
}

/// Next time at which a past match is no longer recent for one of the rules. `None` if no match is recent.
pub(super) fn next_avoidance_end(rules: &[AvoidanceRule], past_matches: &PastMatches, now: UnixMs) -> Option<UnixMs> {
    let of_rule = |rule: &AvoidanceRule| {
        let (recent_ms, same_team) = match rule.whom {
            AvoidTarget::Blocked => return None,
            AvoidTarget::RecentOpponents { recent_ms } => (recent_ms, false),
            AvoidTarget::RecentTeammates { recent_ms } => (recent_ms, true),
        };
        let ends = past_matches
            .latest_by_pair
            .iter()
            .filter(|it| it.same_team == same_team)
            .map(|it| it.started_at.plus_ms(recent_ms));
        ends.filter(|&end| now < end).min()
    };
    rules.iter().filter_map(of_rule).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: u8) -> UserKey {
        UserKey::from_bytes([name; 16])
    }

    fn avoid_rule(whom: AvoidTarget, how: AvoidStrictness) -> AvoidanceRule {
        AvoidanceRule { whom, how }
    }

    const HOUR: u64 = 3_600_000;

    /// S1-96: recent matches count for the time given by the rule, separately as opponents and as teammates.
    #[test]
    fn past_matches_count_until_the_rule_expires() {
        let started_at = UnixMs(1_000);
        let past_match = |one, other, same_team, started_at| PastMatch {
            user: user(one),
            other_user: user(other),
            same_team,
            started_at,
        };
        let past_matches = PastMatches::latest_of([
            past_match(2, 1, false, UnixMs(0)),
            past_match(1, 2, false, started_at),
            past_match(1, 3, true, started_at),
        ]);
        let (one, two, three) = ([user(1)], [user(2)], [user(3)]);
        let side = |users| AvoidanceSide { users, blocked_users: &[] };
        let verdict = |rules: &[AvoidanceRule], other, now| {
            evaluate_avoidance(rules, &past_matches, side(&one), side(other), UnixMs(now))
        };
        let opponents = [avoid_rule(AvoidTarget::RecentOpponents { recent_ms: HOUR }, AvoidStrictness::Never)];
        assert!(verdict(&opponents, &two, 1_000 + HOUR - 1).never_meet);
        assert!(!verdict(&opponents, &two, 1_000 + HOUR).never_meet, "an hour later");
        assert!(!verdict(&opponents, &three, 1_000).never_meet, "they were teammates");
        let teammates = [avoid_rule(AvoidTarget::RecentTeammates { recent_ms: HOUR }, AvoidStrictness::NotSameTeam)];
        assert_eq!(verdict(&teammates, &three, 1_000), AvoidanceVerdict { never_meet: false, separate_teams: true });
        assert_eq!(next_avoidance_end(&opponents, &past_matches, UnixMs(2_000)), Some(UnixMs(1_000 + HOUR)));
        assert_eq!(next_avoidance_end(&opponents, &past_matches, UnixMs(1_000 + HOUR)), None);
    }

    #[test]
    fn block_keeps_both_sides_apart() {
        let rules = [avoid_rule(AvoidTarget::Blocked, AvoidStrictness::Never)];
        let (one, two) = ([user(1)], [user(2)]);
        let (blocker, blocked) =
            (AvoidanceSide { users: &one, blocked_users: &two }, AvoidanceSide { users: &two, blocked_users: &[] });
        for (here, there) in [(blocker, blocked), (blocked, blocker)] {
            assert!(evaluate_avoidance(&rules, &PastMatches::default(), here, there, UnixMs(0)).never_meet);
        }
        let neutral = AvoidanceSide { users: &one, blocked_users: &[] };
        assert!(!evaluate_avoidance(&rules, &PastMatches::default(), neutral, blocked, UnixMs(0)).never_meet);
    }

    #[test]
    fn avoidance_cost_halves_every_half_life() {
        let past_match = PastMatch { user: user(1), other_user: user(2), same_team: false, started_at: UnixMs(0) };
        let past_matches = PastMatches::latest_of([past_match]);
        let how = AvoidStrictness::PreferNot { cost: 0.4, half_life_ms: HOUR };
        let (one, two) = ([user(1)], [user(2)]);
        let side = |users| AvoidanceSide { users, blocked_users: &[] };
        let at = |whom, now| avoidance_cost(&avoid_rule(whom, how), &past_matches, side(&one), side(&two), UnixMs(now));
        let opponents = AvoidTarget::RecentOpponents { recent_ms: 10 * HOUR };
        assert_eq!([at(opponents, 0), at(opponents, HOUR), at(opponents, 2 * HOUR)], [0.4, 0.2, 0.1]);
        assert_eq!(at(opponents, 10 * HOUR), 0.0, "no longer recent");
        assert_eq!(at(AvoidTarget::RecentTeammates { recent_ms: HOUR }, 0), 0.0);
    }
}
