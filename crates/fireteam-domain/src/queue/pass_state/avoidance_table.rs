//! Avoidance between the waiting tickets of a pass: looked up once per ticket, so that a pair check is cheap.

use hashbrown::HashMap;

use crate::id::{BuildIdHasher, UserKey};
use crate::queue::avoidance::AvoidanceReasons;
use crate::queue::input::PassInput;
use crate::queue::prepared_ticket::PreparedTicket;
use crate::ruleset::queue::{AvoidStrictness, AvoidTarget};
use crate::time::UnixMs;

/// Reasons of all rows to avoid each other.
#[derive(Debug, Default)]
pub(super) struct AvoidanceTable {
    /// A rule forbids a match.
    pub(super) may_forbid_match: bool,
    /// A rule forbids one team.
    pub(super) may_forbid_team: bool,
    /// A rule is about blocked users, and a ticket has some.
    has_blocks: bool,
    /// Rows met by each row, row by row, sorted. Empty if no two rows have met.
    met_rows: Vec<u32>,
    /// Start of the latest match with each of `met_rows`, as opponents and as teammates.
    last_started_at: Vec<[Option<UnixMs>; 2]>,
    /// Start of each row in `met_rows`, and the end of the last one.
    starts: Vec<u32>,
}

impl AvoidanceTable {
    /// Table for `tickets`, one per row.
    pub(super) fn new<'a>(input: &PassInput<'a>, tickets: impl Iterator<Item = &'a PreparedTicket> + Clone) -> Self {
        let rules = &input.queue.avoid;
        let uses_blocks = rules.iter().any(|rule| rule.whom == AvoidTarget::Blocked);
        let mut table = Self {
            may_forbid_match: rules.iter().any(|rule| rule.how == AvoidStrictness::Never),
            may_forbid_team: rules.iter().any(|rule| rule.how == AvoidStrictness::NotSameTeam),
            has_blocks: uses_blocks && tickets.clone().any(|ticket| !ticket.ticket.blocked_users.is_empty()),
            ..Self::default()
        };
        let uses_meetings = rules.iter().any(|rule| rule.whom != AvoidTarget::Blocked);
        if uses_meetings && !input.past_matches.is_empty() {
            table.add_meetings(input, tickets);
        }
        table
    }

    fn add_meetings<'a>(&mut self, input: &PassInput<'a>, tickets: impl Iterator<Item = &'a PreparedTicket> + Clone) {
        let rows = RowsByUser::new(input, tickets.clone());
        let mut met: Vec<(u32, [Option<UnixMs>; 2])> = Vec::new();
        for (row, ticket) in (0..).zip(tickets) {
            self.starts.push(self.met_rows.len() as u32);
            for meetings in ticket.users.iter().filter_map(|&user| input.past_matches.known_meetings_of(user)) {
                for meeting in meetings.iter() {
                    let started_at = Some(meeting.started_at());
                    let starts = if meeting.same_team() { [None, started_at] } else { [started_at, None] };
                    let others = rows.of(meeting.other_user).filter(|&other| other != row);
                    met.extend(others.map(|other| (other, starts)));
                }
            }
            met.sort_unstable_by_key(|(other, _)| *other);
            for (other, [as_opponents, as_teammates]) in met.drain(..) {
                let is_known = self.starts.last().is_some_and(|&start| (start as usize) < self.met_rows.len())
                    && self.met_rows.last() == Some(&other);
                match self.last_started_at.last_mut().filter(|_| is_known) {
                    Some(last) => *last = [last[0].max(as_opponents), last[1].max(as_teammates)],
                    None => {
                        self.met_rows.push(other);
                        self.last_started_at.push([as_opponents, as_teammates]);
                    }
                }
            }
        }
        self.starts.push(self.met_rows.len() as u32);
    }

    /// Reasons for which two rows with these tickets avoid each other; `None` if there are none.
    pub(super) fn reasons(
        &self,
        (one, ours): (u32, &PreparedTicket),
        (other, theirs): (u32, &PreparedTicket),
    ) -> Option<AvoidanceReasons> {
        let last_started_at = self.last_started_at(one, other);
        let blocked = self.has_blocks && (has_blocked(ours, theirs) || has_blocked(theirs, ours));
        if !blocked && last_started_at.is_none() {
            return None;
        }
        Some(AvoidanceReasons { blocked, last_started_at: last_started_at.unwrap_or_default() })
    }

    /// Whether no two rows avoid each other.
    pub(super) fn is_empty(&self) -> bool {
        !self.has_blocks && self.met_rows.is_empty()
    }

    fn last_started_at(&self, one: u32, other: u32) -> Option<[Option<UnixMs>; 2]> {
        if self.met_rows.is_empty() {
            return None;
        }
        let (start, end) = (self.starts[one as usize] as usize, self.starts[one as usize + 1] as usize);
        let index = self.met_rows[start..end].binary_search(&other).ok()?;
        Some(self.last_started_at[start + index])
    }
}

/// Rows of the users who have meetings.
struct RowsByUser {
    first: HashMap<UserKey, u32, BuildIdHasher>,
    /// Further rows of users who wait in several, sorted.
    further: Vec<(UserKey, u32)>,
}

impl RowsByUser {
    fn new<'a>(input: &PassInput<'a>, tickets: impl Iterator<Item = &'a PreparedTicket>) -> Self {
        let mut rows = Self { first: HashMap::default(), further: Vec::new() };
        for (row, ticket) in (0..).zip(tickets) {
            let users = ticket.users.iter().filter(|&&user| input.past_matches.known_meetings_of(user).is_some());
            for &user in users {
                if *rows.first.entry(user).or_insert(row) != row {
                    rows.further.push((user, row));
                }
            }
        }
        rows.further.sort_unstable();
        rows
    }

    fn of(&self, user: UserKey) -> impl Iterator<Item = u32> + '_ {
        let further = &self.further[self.further.partition_point(|it| it.0 < user)..];
        let further = further.iter().take_while(move |it| it.0 == user).map(|it| it.1);
        self.first.get(&user).copied().into_iter().chain(further)
    }
}

/// Whether a user of `one` has blocked a user of `other`.
fn has_blocked(one: &PreparedTicket, other: &PreparedTicket) -> bool {
    let is_blocked =
        |user: &UserKey| one.blocked_filter.may_contain(*user) && one.ticket.blocked_users.binary_search(user).is_ok();
    other.users.iter().any(is_blocked)
}
