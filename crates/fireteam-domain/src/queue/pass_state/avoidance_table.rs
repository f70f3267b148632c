//! Avoidance between the waiting tickets of a pass: looked up once per ticket, so that a pair check is cheap.

use hashbrown::HashMap;

use crate::id::{BuildIdHasher, UserKey};
use crate::queue::avoidance::AvoidanceReasons;
use crate::queue::input::PassInput;
use crate::queue::pass_state::blocked_rows::BlockedRows;
use crate::queue::prepared_ticket::PreparedTicket;
use crate::ruleset::queue::{AvoidStrictness, AvoidTarget};
use crate::time::UnixMs;

/// Reasons of all rows to avoid each other.
#[derive(Debug, Default)]
pub(super) struct AvoidanceTable<'a> {
    /// A rule forbids a match.
    pub(super) may_forbid_match: bool,
    /// A rule forbids one team.
    pub(super) may_forbid_team: bool,
    /// `None` if no rule is about blocked users, or no ticket has some.
    blocked_rows: Option<BlockedRows<'a>>,
    /// Rows met by each row, row by row, sorted. Empty if no two rows have met.
    met_rows: Vec<u32>,
    /// Start of the latest match with each of `met_rows`, as opponents and as teammates.
    last_started_at: Vec<[Option<UnixMs>; 2]>,
    /// Start of each row in `met_rows`, and the end of the last one.
    met_row_offsets: Vec<u32>,
}

impl<'a> AvoidanceTable<'a> {
    /// Table for `tickets`, one per row.
    pub(super) fn new(input: &PassInput<'a>, tickets: impl Iterator<Item = &'a PreparedTicket> + Clone) -> Self {
        let rules = &input.queue.avoid;
        let uses_blocks = rules.iter().any(|rule| rule.whom == AvoidTarget::Blocked);
        let mut table = Self {
            may_forbid_match: rules.iter().any(|rule| rule.how == AvoidStrictness::Never),
            may_forbid_team: rules.iter().any(|rule| rule.how == AvoidStrictness::NotSameTeam),
            blocked_rows: (uses_blocks && tickets.clone().any(|ticket| !ticket.blocked_users.is_empty()))
                .then(|| BlockedRows::new(tickets.clone())),
            ..Self::default()
        };
        let uses_meetings = rules.iter().any(|rule| rule.whom != AvoidTarget::Blocked);
        if uses_meetings && !input.past_matches.is_empty() {
            table.add_meetings(input, tickets);
        }
        table
    }

    /// Adds the meetings of the tickets' users with each other.
    fn add_meetings(&mut self, input: &PassInput<'a>, tickets: impl Iterator<Item = &'a PreparedTicket> + Clone) {
        let rows = RowsByUser::new(input, tickets.clone());
        // Rows met by one row, with the start as opponents or as teammates.
        let mut met: Vec<(u32, [Option<UnixMs>; 2])> = Vec::new();
        for (row, ticket) in (0..).zip(tickets) {
            self.met_row_offsets.push(self.met_rows.len() as u32);
            for meetings in ticket.users.iter().filter_map(|&user| input.past_matches.meetings_of_user(user)) {
                for meeting in meetings.iter() {
                    let started_at = Some(meeting.started_at());
                    let starts = if meeting.same_team() { [None, started_at] } else { [started_at, None] };
                    let others = rows.of(meeting.other_user).filter(|&other| other != row);
                    met.extend(others.map(|other| (other, starts)));
                }
            }
            met.sort_unstable_by_key(|(other, _)| *other);
            for meetings in met.chunk_by(|one, other| one.0 == other.0) {
                let latest = |team: usize| meetings.iter().filter_map(|(_, starts)| starts[team]).max();
                self.met_rows.push(meetings[0].0);
                self.last_started_at.push([latest(0), latest(1)]);
            }
            met.clear();
        }
        self.met_row_offsets.push(self.met_rows.len() as u32);
    }

    /// Reasons for which two rows avoid each other; `None` if there are none.
    pub(super) fn reasons(&self, one: u32, other: u32) -> Option<AvoidanceReasons> {
        let last_started_at = self.last_started_at(one, other);
        let has_blocked = |rows: &BlockedRows<'_>| rows.has_blocked(one, other) || rows.has_blocked(other, one);
        let blocked = self.blocked_rows.as_ref().is_some_and(has_blocked);
        if !blocked && last_started_at.is_none() {
            return None;
        }
        Some(AvoidanceReasons { blocked, last_started_at_by_same_team: last_started_at.unwrap_or_default() })
    }

    /// Whether no two rows avoid each other.
    pub(super) fn is_empty(&self) -> bool {
        self.blocked_rows.is_none() && self.met_rows.is_empty()
    }

    fn last_started_at(&self, one: u32, other: u32) -> Option<[Option<UnixMs>; 2]> {
        if self.met_rows.is_empty() {
            return None;
        }
        let (start, end) =
            (self.met_row_offsets[one as usize] as usize, self.met_row_offsets[one as usize + 1] as usize);
        let index = self.met_rows[start..end].binary_search(&other).ok()?;
        Some(self.last_started_at[start + index])
    }
}

/// Rows of the users who have meetings.
struct RowsByUser {
    /// First row of each user.
    first: HashMap<UserKey, u32, BuildIdHasher>,
    /// Further rows of users who wait in several, sorted.
    further: Vec<(UserKey, u32)>,
}

impl RowsByUser {
    fn new<'a>(input: &PassInput<'a>, tickets: impl Iterator<Item = &'a PreparedTicket>) -> Self {
        let mut rows = Self { first: HashMap::default(), further: Vec::new() };
        for (row, ticket) in (0..).zip(tickets) {
            let users = ticket.users.iter().filter(|&&user| input.past_matches.meetings_of_user(user).is_some());
            for &user in users {
                if *rows.first.entry(user).or_insert(row) != row {
                    rows.further.push((user, row));
                }
            }
        }
        rows.further.sort_unstable();
        rows
    }

    /// Rows of a user.
    fn of(&self, user: UserKey) -> impl Iterator<Item = u32> + '_ {
        let further = &self.further[self.further.partition_point(|it| it.0 < user)..];
        let further = further.iter().take_while(move |it| it.0 == user).map(|it| it.1);
        self.first.get(&user).copied().into_iter().chain(further)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::queue::avoidance::AvoidanceSide;
    use crate::queue::rng::SplitMix64;
    use crate::queue::tests::fixture::random_queue_fixture;
    use crate::ruleset::queue::AvoidanceRule;

    /// The table gives each two rows the reasons that their users and blocked users have, also if a user waits in several
    /// tickets.
    #[test]
    fn avoidance_table_equals_a_look_up_by_user() {
        let (mut met, mut blocked, mut in_several_rows) = (0, 0, 0);
        for seed in 0..300 {
            let mut fixture = random_queue_fixture(seed, 30);
            let mut rng = SplitMix64(seed);
            let mut targets =
                vec![AvoidTarget::RecentOpponents { recent_ms: 1 }, AvoidTarget::RecentTeammates { recent_ms: 1 }];
            targets.extend((seed % 2 == 0).then_some(AvoidTarget::Blocked));
            fixture.queue_mut().avoid =
                targets.iter().map(|&whom| AvoidanceRule { whom, how: AvoidStrictness::Never }).collect();
            for index in 1..fixture.tickets.len() {
                let from = fixture.tickets[(rng.next_u64() % index as u64) as usize].session.players[0].user;
                if rng.next_u64().is_multiple_of(4) {
                    Arc::make_mut(&mut fixture.tickets[index]).session.players[0].user = from;
                    in_several_rows += 1;
                }
            }
            let prepared = fixture.prepared_tickets();
            fixture.with_input(&prepared, |input| {
                let table = AvoidanceTable::new(input, prepared.iter());
                let side = |of: &'_ PreparedTicket| {
                    (of.users.clone(), if seed % 2 == 0 { of.blocked_users.to_vec() } else { Vec::new() })
                };
                let mut is_empty = true;
                for (one, ours) in (0..).zip(&prepared) {
                    for (other, theirs) in (0..).zip(&prepared).filter(|(other, _)| *other != one) {
                        let (here, there) = (side(ours), side(theirs));
                        let expected = AvoidanceReasons::between(
                            input.past_matches,
                            AvoidanceSide { users: &here.0, blocked_users: &here.1 },
                            AvoidanceSide { users: &there.0, blocked_users: &there.1 },
                        );
                        let actual = table.reasons(one, other).unwrap_or_default();
                        assert_eq!(actual, expected, "seed {seed}, rows {one} and {other}");
                        is_empty &= expected == AvoidanceReasons::default();
                        met += u32::from(expected.last_started_at_by_same_team != [None, None]);
                        blocked += u32::from(expected.blocked);
                    }
                }
                assert!(is_empty || !table.is_empty(), "seed {seed}");
            });
        }
        assert!(met > 300 && blocked > 100 && in_several_rows > 100, "{met}, {blocked}, {in_several_rows}");
    }
}
