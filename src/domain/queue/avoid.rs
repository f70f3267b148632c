//! Whom players would not meet again: those they blocked, and those they met lately (S1-96).

use crate::domain::id::UserKey;
use crate::domain::ruleset::queue::{Avoid, AvoidHow, AvoidWhom};
use crate::domain::time::UnixMs;

/// Two users who were in one match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meeting {
    /// One of them.
    pub one: UserKey,
    /// The other.
    pub other: UserKey,
    /// Whether they were in one team.
    pub same_team: bool,
    /// When their match began.
    pub began: UnixMs,
}

/// Who met whom lately, as far back as the ruleset's rules ask.
#[derive(Clone, Debug, Default)]
pub struct Meetings {
    /// The lesser user first, sorted; of several meetings of two users the latest.
    list: Vec<Meeting>,
    /// All users of `list`, sorted.
    users: Vec<UserKey>,
}

impl Meetings {
    /// Of several meetings of two users only the latest is kept, as opponents and as teammates.
    pub fn of(meetings: impl IntoIterator<Item = Meeting>) -> Self {
        let ordered = |it: Meeting| {
            let (one, other) = if it.one <= it.other { (it.one, it.other) } else { (it.other, it.one) };
            Meeting { one, other, ..it }
        };
        let mut list: Vec<Meeting> = meetings.into_iter().map(ordered).collect();
        list.sort_unstable_by_key(|it| (it.one, it.other, it.same_team, std::cmp::Reverse(it.began)));
        list.dedup_by_key(|it| (it.one, it.other, it.same_team));
        let mut users: Vec<UserKey> = list.iter().flat_map(|it| [it.one, it.other]).collect();
        users.sort_unstable();
        users.dedup();
        Self { list, users }
    }

    /// When the last match of these two began in which they were opponents or, with `same_team`, teammates.
    pub fn last(&self, one: UserKey, other: UserKey, same_team: bool) -> Option<UnixMs> {
        let (one, other) = if one <= other { (one, other) } else { (other, one) };
        let at =
            self.list.binary_search_by_key(&(one, other, same_team), |it| (it.one, it.other, it.same_team)).ok()?;
        Some(self.list[at].began)
    }

    /// Whether a user met anybody.
    pub fn knows(&self, user: UserKey) -> bool {
        self.users.binary_search(&user).is_ok()
    }

    /// Whether nobody met anybody.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

/// What the rules say about two parties.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Avoided {
    /// They do not meet.
    pub never: bool,
    /// They are not in one team.
    pub apart: bool,
}

/// Two parties, as far as avoiding goes.
#[derive(Clone, Copy, Debug)]
pub struct Wary<'a> {
    /// Its users, sorted.
    pub users: &'a [UserKey],
    /// Users whom any of them has blocked, sorted.
    pub blocked: &'a [UserKey],
}

/// What `rules` say about two parties at `now`.
pub fn judge(rules: &[Avoid], meetings: &Meetings, one: Wary<'_>, other: Wary<'_>, now: UnixMs) -> Avoided {
    let mut avoided = Avoided::default();
    for rule in rules {
        let verdict = match rule.how {
            AvoidHow::Never => &mut avoided.never,
            AvoidHow::NotSameTeam => &mut avoided.apart,
            AvoidHow::RatherNot { .. } => continue,
        };
        *verdict = *verdict || grudge(rule.whom, meetings, one, other, now).is_some();
    }
    avoided
}

/// What a match with both of them is worth less by one rule: the dearest grudge between any two of their users, halved for
/// every half-life that has gone by. 0 for rules that are not of that kind.
pub fn cost(rule: &Avoid, meetings: &Meetings, one: Wary<'_>, other: Wary<'_>, now: UnixMs) -> f64 {
    let AvoidHow::RatherNot { cost, half_life_ms } = rule.how else { return 0.0 };
    match grudge(rule.whom, meetings, one, other, now) {
        Some(Some(began)) => cost * 0.5_f64.powf(now.since(began) as f64 / half_life_ms.max(1) as f64),
        Some(None) => cost,
        None => 0.0,
    }
}

/// The freshest reason of one kind for which two parties avoid each other, if there is one, with its moment if it has one.
fn grudge(whom: AvoidWhom, meetings: &Meetings, one: Wary<'_>, other: Wary<'_>, now: UnixMs) -> Option<Option<UnixMs>> {
    let (for_ms, same_team) = match whom {
        AvoidWhom::Blocked => {
            let blocks = |one: Wary<'_>, other: Wary<'_>| shares(one.blocked, other.users);
            return (blocks(one, other) || blocks(other, one)).then_some(None);
        }
        AvoidWhom::RecentOpponents { for_ms } => (for_ms, false),
        AvoidWhom::RecentTeammates { for_ms } => (for_ms, true),
    };
    if meetings.is_empty() {
        return None;
    }
    let pairs = one.users.iter().flat_map(|&one| other.users.iter().map(move |&other| (one, other)));
    let began = pairs.filter_map(|(one, other)| meetings.last(one, other, same_team)).max()?;
    (now.since(began) < for_ms).then_some(Some(began))
}

/// Whether two sorted lists share an entry. The shorter is looked up in the longer.
pub(super) fn shares(one: &[UserKey], other: &[UserKey]) -> bool {
    let (few, many) = if one.len() <= other.len() { (one, other) } else { (other, one) };
    match (few, many) {
        ([], _) => false,
        ([one], [other]) => one == other,
        _ => few.iter().any(|user| many.binary_search(user).is_ok()),
    }
}

/// The next moment at which a meeting is no longer recent for one of the rules; `None` when none is.
pub(super) fn next_end(rules: &[Avoid], meetings: &Meetings, now: UnixMs) -> Option<UnixMs> {
    let of_rule = |rule: &Avoid| {
        let (for_ms, same_team) = match rule.whom {
            AvoidWhom::Blocked => return None,
            AvoidWhom::RecentOpponents { for_ms } => (for_ms, false),
            AvoidWhom::RecentTeammates { for_ms } => (for_ms, true),
        };
        let ends = meetings.list.iter().filter(|it| it.same_team == same_team).map(|it| it.began.after(for_ms));
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

    fn rule(whom: AvoidWhom, how: AvoidHow) -> Avoid {
        Avoid { whom, how }
    }

    const HOUR: u64 = 3_600_000;

    /// S1-96: earlier groupings are remembered for a while, each way of meeting by itself.
    #[test]
    fn meetings_are_remembered_for_as_long_as_the_rule_says() {
        let began = UnixMs(1_000);
        let met = |one, other, same_team, began| Meeting { one: user(one), other: user(other), same_team, began };
        let meetings = Meetings::of([met(2, 1, false, UnixMs(0)), met(1, 2, false, began), met(1, 3, true, began)]);
        let (one, two, three) = ([user(1)], [user(2)], [user(3)]);
        let wary = |users| Wary { users, blocked: &[] };
        let judged = |rules: &[Avoid], other, now| judge(rules, &meetings, wary(&one), wary(other), UnixMs(now));
        let opponents = [rule(AvoidWhom::RecentOpponents { for_ms: HOUR }, AvoidHow::Never)];
        assert!(judged(&opponents, &two, 1_000 + HOUR - 1).never);
        assert!(!judged(&opponents, &two, 1_000 + HOUR).never, "an hour later");
        assert!(!judged(&opponents, &three, 1_000).never, "they were teammates");
        let teammates = [rule(AvoidWhom::RecentTeammates { for_ms: HOUR }, AvoidHow::NotSameTeam)];
        assert_eq!(judged(&teammates, &three, 1_000), Avoided { never: false, apart: true });
        assert_eq!(next_end(&opponents, &meetings, UnixMs(2_000)), Some(UnixMs(1_000 + HOUR)));
        assert_eq!(next_end(&opponents, &meetings, UnixMs(1_000 + HOUR)), None);
    }

    #[test]
    fn a_block_counts_whoever_made_it() {
        let rules = [rule(AvoidWhom::Blocked, AvoidHow::Never)];
        let (one, two) = ([user(1)], [user(2)]);
        let (hater, hated) = (Wary { users: &one, blocked: &two }, Wary { users: &two, blocked: &[] });
        for (here, there) in [(hater, hated), (hated, hater)] {
            assert!(judge(&rules, &Meetings::default(), here, there, UnixMs(0)).never);
        }
        let nobody = Wary { users: &one, blocked: &[] };
        assert!(!judge(&rules, &Meetings::default(), nobody, hated, UnixMs(0)).never);
    }

    #[test]
    fn a_grudge_halves_with_every_half_life() {
        let meeting = Meeting { one: user(1), other: user(2), same_team: false, began: UnixMs(0) };
        let meetings = Meetings::of([meeting]);
        let how = AvoidHow::RatherNot { cost: 0.4, half_life_ms: HOUR };
        let (one, two) = ([user(1)], [user(2)]);
        let wary = |users| Wary { users, blocked: &[] };
        let at = |whom, now| cost(&rule(whom, how), &meetings, wary(&one), wary(&two), UnixMs(now));
        let opponents = AvoidWhom::RecentOpponents { for_ms: 10 * HOUR };
        assert_eq!([at(opponents, 0), at(opponents, HOUR), at(opponents, 2 * HOUR)], [0.4, 0.2, 0.1]);
        assert_eq!(at(opponents, 10 * HOUR), 0.0, "forgotten");
        assert_eq!(at(AvoidWhom::RecentTeammates { for_ms: HOUR }, 0), 0.0);
    }
}
