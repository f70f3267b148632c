//! Avoidance rules: players who blocked each other, or who recently were opponents or teammates.

use std::cmp::Reverse;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::id::{BuildIdHasher, UserKey};
use crate::played_values::PlayedValues;
use crate::ruleset::queue::{AvoidStrictness, AvoidTarget, AvoidanceRule};
use crate::time::UnixMs;

/// Two users who played in the same match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlayedPair {
    /// First user.
    pub user: UserKey,
    /// Second user.
    pub other_user: UserKey,
    /// Whether they were in the same team.
    pub same_team: bool,
    /// Start of their match.
    pub started_at: UnixMs,
}

/// Start of a user's match with another user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Meeting {
    pub(super) other_user: UserKey,
    /// Start of the match in milliseconds, doubled; plus 1 if they were in the same team. One number keeps lists short.
    start_and_team: u64,
}

impl Meeting {
    pub(super) fn new(other_user: UserKey, same_team: bool, started_at: UnixMs) -> Self {
        Self { other_user, start_and_team: started_at.0 << 1 | u64::from(same_team) }
    }

    pub(super) fn same_team(self) -> bool {
        self.start_and_team & 1 == 1
    }

    pub(super) fn started_at(self) -> UnixMs {
        UnixMs(self.start_and_team >> 1)
    }

    /// Sort key by the start.
    pub(super) fn start_sort_key(self) -> (u64, UserKey) {
        (self.start_and_team, self.other_user)
    }
}

/// Meetings of one user, sorted.
#[derive(Clone, Debug, Default)]
pub(super) struct UserMeetings(Vec<Meeting>);

/// No meetings.
static NO_MEETINGS: UserMeetings = UserMeetings(Vec::new());

impl UserMeetings {
    pub(super) fn from_unsorted(mut meetings: Vec<Meeting>) -> Self {
        meetings.sort_unstable();
        Self(meetings)
    }

    /// Adds a meeting.
    pub(super) fn insert(&mut self, meeting: Meeting) {
        self.0.insert(self.0.partition_point(|existing| *existing < meeting), meeting);
    }

    /// Removes all meetings with `other`.
    pub(super) fn remove_all_with(&mut self, other: UserKey) {
        let from = self.0.partition_point(|meeting| meeting.other_user < other);
        let to = from + self.0[from..].partition_point(|meeting| meeting.other_user == other);
        self.0.drain(from..to);
    }

    /// Each user met, once.
    pub(super) fn met_users(&self) -> impl Iterator<Item = UserKey> + '_ {
        self.0.chunk_by(|one, other| one.other_user == other.other_user).map(|meetings| meetings[0].other_user)
    }

    /// All meetings, by user.
    pub(super) fn iter(&self) -> impl Iterator<Item = Meeting> + '_ {
        self.0.iter().copied()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Meetings with `other`, earliest first.
    fn all_with(&self, other: UserKey) -> &[Meeting] {
        let rest = &self.0[self.0.partition_point(|meeting| meeting.other_user < other)..];
        let count = rest.iter().take_while(|meeting| meeting.other_user == other).count();
        &rest[..count]
    }
}

/// Meetings of each user who has some.
pub(super) type MeetingsByUser = HashMap<UserKey, UserMeetings, BuildIdHasher>;

/// Recent matches of users, as input of a pass. Older ones than the ruleset's rules need have no effect.
#[derive(Clone, Debug, Default)]
pub struct PastMatches {
    /// Meetings of each user. Both users of a pair have the meeting.
    pub(super) meetings_by_user: Arc<MeetingsByUser>,
    /// Starts of matches of opponents, and of teammates. Only the next ones to reach the age limit of a rule are needed.
    pub(super) starts_by_same_team: [Vec<UnixMs>; 2],
    /// Values that the users played, where the ruleset chooses by them.
    pub played_values: PlayedValues,
}

impl PastMatches {
    /// Keeps only the latest match of each pair, as opponents and as teammates.
    pub fn from_pairs_keeping_latest(past_matches: impl IntoIterator<Item = PlayedPair>) -> Self {
        let ordered = |it: PlayedPair| PlayedPair {
            user: it.user.min(it.other_user),
            other_user: it.user.max(it.other_user),
            ..it
        };
        let mut latest_by_pair: Vec<PlayedPair> = past_matches.into_iter().map(ordered).collect();
        latest_by_pair.sort_unstable_by_key(|it| (it.user, it.other_user, it.same_team, Reverse(it.started_at)));
        latest_by_pair.dedup_by_key(|it| (it.user, it.other_user, it.same_team));
        let mut meetings_by_user: HashMap<UserKey, Vec<Meeting>, BuildIdHasher> = HashMap::default();
        let mut starts = [Vec::new(), Vec::new()];
        for PlayedPair { user: one, other_user: other, same_team, started_at } in latest_by_pair {
            meetings_by_user.entry(one).or_default().push(Meeting::new(other, same_team, started_at));
            meetings_by_user.entry(other).or_default().push(Meeting::new(one, same_team, started_at));
            starts[usize::from(same_team)].push(started_at);
        }
        let sorted = |(user, meetings): (UserKey, Vec<Meeting>)| (user, UserMeetings::from_unsorted(meetings));
        let meetings_by_user = Arc::new(meetings_by_user.into_iter().map(sorted).collect());
        Self { meetings_by_user, starts_by_same_team: starts, ..Self::default() }
    }

    /// Meetings of the users of one side, with anyone.
    pub(super) fn from_meetings_by_user(meetings_by_user: MeetingsByUser) -> Self {
        Self { meetings_by_user: Arc::new(meetings_by_user), ..Self::default() }
    }

    /// The same matches, with the values that the users played.
    pub fn with_played_values(self, played: PlayedValues) -> Self {
        Self { played_values: played, ..self }
    }

    /// Users whom the users of these matches have met. A user can occur several times.
    pub fn all_met_users(&self) -> impl Iterator<Item = UserKey> + '_ {
        self.meetings_by_user.values().flat_map(UserMeetings::met_users)
    }

    /// Start of the latest match that two users played as opponents or, with `same_team`, as teammates.
    pub fn last_started_at(&self, one: UserKey, other: UserKey, same_team: bool) -> Option<UnixMs> {
        let met = self.meetings_of_user_or_empty(one).all_with(other).iter().rev();
        met.copied().find(|meeting| meeting.same_team() == same_team).map(Meeting::started_at)
    }

    /// All pairs, each once, and each match of a pair.
    pub fn pairs(&self) -> impl Iterator<Item = PlayedPair> + '_ {
        let mut users: Vec<UserKey> = self.meetings_by_user.keys().copied().collect();
        users.sort_unstable();
        users.into_iter().flat_map(move |user| {
            // The other user has the meeting as well, if it is in the map.
            let is_first = move |meeting: &&Meeting| {
                user <= meeting.other_user || !self.meetings_by_user.contains_key(&meeting.other_user)
            };
            self.meetings_of_user_or_empty(user).0.iter().filter(is_first).map(move |meeting| PlayedPair {
                user,
                other_user: meeting.other_user,
                same_team: meeting.same_team(),
                started_at: meeting.started_at(),
            })
        })
    }

    /// Meetings of a user, sorted; `None` for a user without any.
    pub(super) fn meetings_of_user(&self, user: UserKey) -> Option<&UserMeetings> {
        self.meetings_by_user.get(&user)
    }

    fn meetings_of_user_or_empty(&self, user: UserKey) -> &UserMeetings {
        self.meetings_of_user(user).unwrap_or(&NO_MEETINGS)
    }

    /// Whether there are no recent matches.
    pub fn is_empty(&self) -> bool {
        self.meetings_by_user.is_empty()
    }
}

/// Reasons for which two parties avoid each other, before any rule is applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AvoidanceReasons {
    /// A user of one has blocked a user of the other.
    pub(super) blocked: bool,
    /// Start of the latest match in which two of their users were opponents, and in which two were teammates.
    pub(super) last_started_at_by_same_team: [Option<UnixMs>; 2],
}

impl AvoidanceReasons {
    /// Reasons between two parties.
    pub(super) fn between(past_matches: &PastMatches, one: AvoidanceSide<'_>, other: AvoidanceSide<'_>) -> Self {
        let mut reasons = Self {
            blocked: have_common_user(one.blocked_users, other.users)
                || have_common_user(other.blocked_users, one.users),
            ..Self::default()
        };
        if !past_matches.is_empty() {
            one.users
                .iter()
                .for_each(|&user| reasons.add_meetings(past_matches.meetings_of_user_or_empty(user), other.users));
        }
        reasons
    }

    /// Adds the meetings of one user with the users of the other party.
    pub(super) fn add_meetings(&mut self, meetings: &UserMeetings, met_users: &[UserKey]) {
        for meeting in met_users.iter().flat_map(|&other| meetings.all_with(other)) {
            let last = &mut self.last_started_at_by_same_team[usize::from(meeting.same_team())];
            *last = (*last).max(Some(meeting.started_at()));
        }
    }

    /// Applies the rules at `now`.
    pub(super) fn meeting_restriction(&self, rules: &[AvoidanceRule], now: UnixMs) -> MeetingRestriction {
        let mut verdict = MeetingRestriction::default();
        for rule in rules {
            let flag = match rule.how {
                AvoidStrictness::Never => &mut verdict.never_meet,
                AvoidStrictness::NotSameTeam => &mut verdict.separate_teams,
                AvoidStrictness::PreferNot { .. } => continue,
            };
            *flag = *flag || self.applicable_reason_of_kind(rule.whom, now).is_some();
        }
        verdict
    }

    /// Quality cost of one rule; 0 for rules without a cost.
    pub(super) fn rule_cost(&self, rule: &AvoidanceRule, now: UnixMs) -> f64 {
        let AvoidStrictness::PreferNot { cost, half_life_ms } = rule.how else { return 0.0 };
        match self.applicable_reason_of_kind(rule.whom, now) {
            Some(Some(started_at)) => cost * 0.5_f64.powf(now.ms_since(started_at) as f64 / half_life_ms.max(1) as f64),
            Some(None) => cost,
            None => 0.0,
        }
    }

    /// Reason of one kind, with its time if it has one. `None` if there is none, or if it is too old.
    pub(super) fn applicable_reason_of_kind(&self, whom: AvoidTarget, now: UnixMs) -> Option<Option<UnixMs>> {
        let (recent_ms, same_team) = match whom {
            AvoidTarget::Blocked => return self.blocked.then_some(None),
            AvoidTarget::RecentOpponents { recent_ms } => (recent_ms, false),
            AvoidTarget::RecentTeammates { recent_ms } => (recent_ms, true),
        };
        let started_at = self.last_started_at_by_same_team[usize::from(same_team)]?;
        (now.ms_since(started_at) < recent_ms).then_some(Some(started_at))
    }
}

/// Result of the avoidance rules for two parties.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MeetingRestriction {
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
pub fn meeting_restriction_between(
    rules: &[AvoidanceRule],
    past_matches: &PastMatches,
    one: AvoidanceSide<'_>,
    other: AvoidanceSide<'_>,
    now: UnixMs,
) -> MeetingRestriction {
    if rules.is_empty() {
        return MeetingRestriction::default();
    }
    AvoidanceReasons::between(past_matches, one, other).meeting_restriction(rules, now)
}

/// Quality cost of one rule for a match with both parties: the cost for the latest match of any two of their users. It
/// halves every half-life. 0 for rules without a cost.
pub fn avoidance_rule_cost(
    rule: &AvoidanceRule,
    past_matches: &PastMatches,
    one: AvoidanceSide<'_>,
    other: AvoidanceSide<'_>,
    now: UnixMs,
) -> f64 {
    AvoidanceReasons::between(past_matches, one, other).rule_cost(rule, now)
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

/// Age up to which a match is recent for a rule, milliseconds, and the index of its starts. `None` for blocks.
pub(super) fn recency_limit_of(rule: &AvoidanceRule) -> Option<(u64, usize)> {
    match rule.whom {
        AvoidTarget::Blocked => None,
        AvoidTarget::RecentOpponents { recent_ms } => Some((recent_ms, 0)),
        AvoidTarget::RecentTeammates { recent_ms } => Some((recent_ms, 1)),
    }
}

/// Next time at which a past match is no longer recent for one of the rules. `None` if no match is recent.
pub(super) fn next_recency_end(rules: &[AvoidanceRule], past_matches: &PastMatches, now: UnixMs) -> Option<UnixMs> {
    let of_rule = |rule: &AvoidanceRule| {
        let (recent_ms, team) = recency_limit_of(rule)?;
        let ends = past_matches.starts_by_same_team[team].iter().map(|started_at| started_at.plus_ms(recent_ms));
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
        let past_match = |one, other, same_team, started_at| PlayedPair {
            user: user(one),
            other_user: user(other),
            same_team,
            started_at,
        };
        let past_matches = PastMatches::from_pairs_keeping_latest([
            past_match(2, 1, false, UnixMs(0)),
            past_match(1, 2, false, started_at),
            past_match(1, 3, true, started_at),
        ]);
        let (one, two, three) = ([user(1)], [user(2)], [user(3)]);
        let side = |users| AvoidanceSide { users, blocked_users: &[] };
        let verdict = |rules: &[AvoidanceRule], other, now| {
            meeting_restriction_between(rules, &past_matches, side(&one), side(other), UnixMs(now))
        };
        let opponents = [avoid_rule(AvoidTarget::RecentOpponents { recent_ms: HOUR }, AvoidStrictness::Never)];
        assert!(verdict(&opponents, &two, 1_000 + HOUR - 1).never_meet);
        assert!(!verdict(&opponents, &two, 1_000 + HOUR).never_meet, "an hour later");
        assert!(!verdict(&opponents, &three, 1_000).never_meet, "they were teammates");
        let teammates = [avoid_rule(AvoidTarget::RecentTeammates { recent_ms: HOUR }, AvoidStrictness::NotSameTeam)];
        assert_eq!(verdict(&teammates, &three, 1_000), MeetingRestriction { never_meet: false, separate_teams: true });
        assert_eq!(next_recency_end(&opponents, &past_matches, UnixMs(2_000)), Some(UnixMs(1_000 + HOUR)));
        assert_eq!(next_recency_end(&opponents, &past_matches, UnixMs(1_000 + HOUR)), None);
    }

    #[test]
    fn block_keeps_both_sides_apart() {
        let rules = [avoid_rule(AvoidTarget::Blocked, AvoidStrictness::Never)];
        let (one, two) = ([user(1)], [user(2)]);
        let (blocker, blocked) =
            (AvoidanceSide { users: &one, blocked_users: &two }, AvoidanceSide { users: &two, blocked_users: &[] });
        for (here, there) in [(blocker, blocked), (blocked, blocker)] {
            assert!(meeting_restriction_between(&rules, &PastMatches::default(), here, there, UnixMs(0)).never_meet);
        }
        let neutral = AvoidanceSide { users: &one, blocked_users: &[] };
        assert!(!meeting_restriction_between(&rules, &PastMatches::default(), neutral, blocked, UnixMs(0)).never_meet);
    }

    #[test]
    fn avoidance_cost_halves_every_half_life() {
        let past_match = PlayedPair { user: user(1), other_user: user(2), same_team: false, started_at: UnixMs(0) };
        let past_matches = PastMatches::from_pairs_keeping_latest([past_match]);
        let how = AvoidStrictness::PreferNot { cost: 0.4, half_life_ms: HOUR };
        let (one, two) = ([user(1)], [user(2)]);
        let side = |users| AvoidanceSide { users, blocked_users: &[] };
        let at =
            |whom, now| avoidance_rule_cost(&avoid_rule(whom, how), &past_matches, side(&one), side(&two), UnixMs(now));
        let opponents = AvoidTarget::RecentOpponents { recent_ms: 10 * HOUR };
        assert_eq!([at(opponents, 0), at(opponents, HOUR), at(opponents, 2 * HOUR)], [0.4, 0.2, 0.1]);
        assert_eq!(at(opponents, 10 * HOUR), 0.0, "no longer recent");
        assert_eq!(at(AvoidTarget::RecentTeammates { recent_ms: HOUR }, 0), 0.0);
    }
}
