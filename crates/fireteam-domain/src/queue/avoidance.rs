//! Whom players would not meet again: those they blocked, and those they met lately (S1-96).

use crate::id::UserKey;
use crate::ruleset::queue::{AvoidStrictness, AvoidTarget, AvoidanceRule};
use crate::time::UnixMs;

/// Two users who were in one match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastMatch {
    /// One of them.
    pub user: UserKey,
    /// The other.
    pub other_user: UserKey,
    /// Whether they were in one team.
    pub same_team: bool,
    /// When their match began.
    pub started_at: UnixMs,
}

/// Who met whom lately, as far back as the ruleset's rules ask.
#[derive(Clone, Debug, Default)]
pub struct PastMatches {
    /// The lesser user first, sorted; of several meetings of two users the latest.
    latest_by_pair: Vec<PastMatch>,
    /// All users of `list`, sorted.
    users: Vec<UserKey>,
}

impl PastMatches {
    /// Of several meetings of two users only the latest is kept, as opponents and as teammates.
    pub fn latest_of(meetings: impl IntoIterator<Item = PastMatch>) -> Self {
        let ordered = |it: PastMatch| {
            let (one, other) =
                if it.user <= it.other_user { (it.user, it.other_user) } else { (it.other_user, it.user) };
            PastMatch { user: one, other_user: other, ..it }
        };
        let mut list: Vec<PastMatch> = meetings.into_iter().map(ordered).collect();
        list.sort_unstable_by_key(|it| (it.user, it.other_user, it.same_team, std::cmp::Reverse(it.started_at)));
        list.dedup_by_key(|it| (it.user, it.other_user, it.same_team));
        let mut users: Vec<UserKey> = list.iter().flat_map(|it| [it.user, it.other_user]).collect();
        users.sort_unstable();
        users.dedup();
        Self { latest_by_pair: list, users }
    }

    /// When the last match of these two began in which they were opponents or, with `same_team`, teammates.
    pub fn last_started_at(&self, one: UserKey, other: UserKey, same_team: bool) -> Option<UnixMs> {
        let (one, other) = if one <= other { (one, other) } else { (other, one) };
        let at = self
            .latest_by_pair
            .binary_search_by_key(&(one, other, same_team), |it| (it.user, it.other_user, it.same_team))
            .ok()?;
        Some(self.latest_by_pair[at].started_at)
    }

    /// Whether a user met anybody.
    pub fn includes_user(&self, user: UserKey) -> bool {
        self.users.binary_search(&user).is_ok()
    }

    /// Whether nobody met anybody.
    pub fn is_empty(&self) -> bool {
        self.latest_by_pair.is_empty()
    }
}

/// What the rules say about two parties.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AvoidanceVerdict {
    /// They do not meet.
    pub never_meet: bool,
    /// They are not in one team.
    pub separate_teams: bool,
}

/// Two parties, as far as avoiding goes.
#[derive(Clone, Copy, Debug)]
pub struct AvoidanceSide<'a> {
    /// Its users, sorted.
    pub users: &'a [UserKey],
    /// Users whom any of them has blocked, sorted.
    pub blocked_users: &'a [UserKey],
}

/// What `rules` say about two parties at `now`.
pub fn evaluate_avoidance(
    rules: &[AvoidanceRule],
    meetings: &PastMatches,
    one: AvoidanceSide<'_>,
    other: AvoidanceSide<'_>,
    now: UnixMs,
) -> AvoidanceVerdict {
    let mut avoided = AvoidanceVerdict::default();
    for rule in rules {
        let verdict = match rule.how {
            AvoidStrictness::Never => &mut avoided.never_meet,
            AvoidStrictness::NotSameTeam => &mut avoided.separate_teams,
            AvoidStrictness::RatherNot { .. } => continue,
        };
        *verdict = *verdict || latest_avoidance_reason(rule.whom, meetings, one, other, now).is_some();
    }
    avoided
}

/// What a match with both of them is worth less by one rule: the dearest grudge between any two of their users, halved for
/// every half-life that has gone by. 0 for rules that are not of that kind.
pub fn avoidance_cost(
    rule: &AvoidanceRule,
    meetings: &PastMatches,
    one: AvoidanceSide<'_>,
    other: AvoidanceSide<'_>,
    now: UnixMs,
) -> f64 {
    let AvoidStrictness::RatherNot { cost, half_life_ms } = rule.how else { return 0.0 };
    match latest_avoidance_reason(rule.whom, meetings, one, other, now) {
        Some(Some(began)) => cost * 0.5_f64.powf(now.ms_since(began) as f64 / half_life_ms.max(1) as f64),
        Some(None) => cost,
        None => 0.0,
    }
}

/// The freshest reason of one kind for which two parties avoid each other, if there is one, with its moment if it has one.
fn latest_avoidance_reason(
    whom: AvoidTarget,
    meetings: &PastMatches,
    one: AvoidanceSide<'_>,
    other: AvoidanceSide<'_>,
    now: UnixMs,
) -> Option<Option<UnixMs>> {
    let (for_ms, same_team) = match whom {
        AvoidTarget::Blocked => {
            let blocks =
                |one: AvoidanceSide<'_>, other: AvoidanceSide<'_>| have_common_user(one.blocked_users, other.users);
            return (blocks(one, other) || blocks(other, one)).then_some(None);
        }
        AvoidTarget::RecentOpponents { for_ms } => (for_ms, false),
        AvoidTarget::RecentTeammates { for_ms } => (for_ms, true),
    };
    if meetings.is_empty() {
        return None;
    }
    let pairs = one.users.iter().flat_map(|&one| other.users.iter().map(move |&other| (one, other)));
    let began = pairs.filter_map(|(one, other)| meetings.last_started_at(one, other, same_team)).max()?;
    (now.ms_since(began) < for_ms).then_some(Some(began))
}

/// Whether two sorted lists share an entry. The shorter is looked up in the longer.
pub(super) fn have_common_user(one: &[UserKey], other: &[UserKey]) -> bool {
    let (few, many) = if one.len() <= other.len() { (one, other) } else { (other, one) };
    match (few, many) {
        ([], _) => false,
        ([one], [other]) => one == other,
        _ => few.iter().any(|user| many.binary_search(user).is_ok()),
    }
}

/// The next moment at which a meeting is no longer recent for one of the rules; `None` when none is.
pub(super) fn next_avoidance_end(rules: &[AvoidanceRule], meetings: &PastMatches, now: UnixMs) -> Option<UnixMs> {
    let of_rule = |rule: &AvoidanceRule| {
        let (for_ms, same_team) = match rule.whom {
            AvoidTarget::Blocked => return None,
            AvoidTarget::RecentOpponents { for_ms } => (for_ms, false),
            AvoidTarget::RecentTeammates { for_ms } => (for_ms, true),
        };
        let ends = meetings
            .latest_by_pair
            .iter()
            .filter(|it| it.same_team == same_team)
            .map(|it| it.started_at.plus_ms(for_ms));
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

    /// S1-96: earlier groupings are remembered for a while, each way of meeting by itself.
    #[test]
    fn past_matches_count_until_the_rule_expires() {
        let began = UnixMs(1_000);
        let met = |one, other, same_team, began| PastMatch {
            user: user(one),
            other_user: user(other),
            same_team,
            started_at: began,
        };
        let meetings =
            PastMatches::latest_of([met(2, 1, false, UnixMs(0)), met(1, 2, false, began), met(1, 3, true, began)]);
        let (one, two, three) = ([user(1)], [user(2)], [user(3)]);
        let wary = |users| AvoidanceSide { users, blocked_users: &[] };
        let judged = |rules: &[AvoidanceRule], other, now| {
            evaluate_avoidance(rules, &meetings, wary(&one), wary(other), UnixMs(now))
        };
        let opponents = [avoid_rule(AvoidTarget::RecentOpponents { for_ms: HOUR }, AvoidStrictness::Never)];
        assert!(judged(&opponents, &two, 1_000 + HOUR - 1).never_meet);
        assert!(!judged(&opponents, &two, 1_000 + HOUR).never_meet, "an hour later");
        assert!(!judged(&opponents, &three, 1_000).never_meet, "they were teammates");
        let teammates = [avoid_rule(AvoidTarget::RecentTeammates { for_ms: HOUR }, AvoidStrictness::NotSameTeam)];
        assert_eq!(judged(&teammates, &three, 1_000), AvoidanceVerdict { never_meet: false, separate_teams: true });
        assert_eq!(next_avoidance_end(&opponents, &meetings, UnixMs(2_000)), Some(UnixMs(1_000 + HOUR)));
        assert_eq!(next_avoidance_end(&opponents, &meetings, UnixMs(1_000 + HOUR)), None);
    }

    #[test]
    fn block_keeps_both_sides_apart() {
        let rules = [avoid_rule(AvoidTarget::Blocked, AvoidStrictness::Never)];
        let (one, two) = ([user(1)], [user(2)]);
        let (hater, hated) =
            (AvoidanceSide { users: &one, blocked_users: &two }, AvoidanceSide { users: &two, blocked_users: &[] });
        for (here, there) in [(hater, hated), (hated, hater)] {
            assert!(evaluate_avoidance(&rules, &PastMatches::default(), here, there, UnixMs(0)).never_meet);
        }
        let nobody = AvoidanceSide { users: &one, blocked_users: &[] };
        assert!(!evaluate_avoidance(&rules, &PastMatches::default(), nobody, hated, UnixMs(0)).never_meet);
    }

    #[test]
    fn avoidance_cost_halves_every_half_life() {
        let meeting = PastMatch { user: user(1), other_user: user(2), same_team: false, started_at: UnixMs(0) };
        let meetings = PastMatches::latest_of([meeting]);
        let how = AvoidStrictness::RatherNot { cost: 0.4, half_life_ms: HOUR };
        let (one, two) = ([user(1)], [user(2)]);
        let wary = |users| AvoidanceSide { users, blocked_users: &[] };
        let at = |whom, now| avoidance_cost(&avoid_rule(whom, how), &meetings, wary(&one), wary(&two), UnixMs(now));
        let opponents = AvoidTarget::RecentOpponents { for_ms: 10 * HOUR };
        assert_eq!([at(opponents, 0), at(opponents, HOUR), at(opponents, 2 * HOUR)], [0.4, 0.2, 0.1]);
        assert_eq!(at(opponents, 10 * HOUR), 0.0, "forgotten");
        assert_eq!(at(AvoidTarget::RecentTeammates { for_ms: HOUR }, 0), 0.0);
    }
}
