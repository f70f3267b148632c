//! Avoidance between the waiting tickets of a pass: looked up once per ticket, so that a pair check is cheap.

use crate::id::UserKey;
use crate::queue::avoidance::{AvoidanceReasons, UserMeetings};
use crate::queue::input::PassInput;
use crate::queue::prepared_ticket::PreparedTicket;
use crate::ruleset::queue::AvoidTarget;

/// Reasons of all rows to avoid each other.
#[derive(Debug, Default)]
pub(super) struct AvoidanceTable<'a> {
    /// A rule is about blocked users, and a ticket has some.
    has_blocks: bool,
    /// Meetings of each user who has some, row by row. Empty if no user of a row has.
    meetings: Vec<&'a UserMeetings>,
    /// Start of each row in `meetings`, and the end of the last one.
    starts: Vec<u32>,
}

impl<'a> AvoidanceTable<'a> {
    /// Table for `tickets`, one per row.
    pub(super) fn new(input: &PassInput<'a>, tickets: impl Iterator<Item = &'a PreparedTicket> + Clone) -> Self {
        let rules = &input.queue.avoid;
        let uses_blocks = rules.iter().any(|rule| rule.whom == AvoidTarget::Blocked);
        let has_blocks = uses_blocks && tickets.clone().any(|ticket| !ticket.ticket.blocked_users.is_empty());
        let mut table = Self { has_blocks, ..Self::default() };
        let uses_meetings = rules.iter().any(|rule| rule.whom != AvoidTarget::Blocked);
        if uses_meetings && !input.past_matches.is_empty() {
            for ticket in tickets {
                table.starts.push(table.meetings.len() as u32);
                table
                    .meetings
                    .extend(ticket.users.iter().filter_map(|&user| input.past_matches.known_meetings_of(user)));
            }
            table.starts.push(table.meetings.len() as u32);
        }
        table
    }

    /// Reasons for which two rows with these tickets avoid each other; `None` if there are none.
    pub(super) fn reasons(
        &self,
        (one, ours): (u32, &PreparedTicket),
        (other, theirs): (u32, &PreparedTicket),
    ) -> Option<AvoidanceReasons> {
        if !self.has_blocks && self.meetings.is_empty() {
            return None;
        }
        let blocked = self.has_blocks && (has_blocked(ours, theirs) || has_blocked(theirs, ours));
        let mut reasons = AvoidanceReasons { blocked, ..AvoidanceReasons::default() };
        match (self.meetings_of(one), self.meetings_of(other)) {
            // Both users of a recent meeting have it, so the shorter list is enough.
            ([our_meetings], [their_meetings]) if their_meetings.len() < our_meetings.len() => {
                reasons.add_meetings(their_meetings, &ours.users);
            }
            (our_meetings, _) => {
                our_meetings.iter().for_each(|meetings| reasons.add_meetings(meetings, &theirs.users));
            }
        }
        (reasons != AvoidanceReasons::default()).then_some(reasons)
    }

    fn meetings_of(&self, row: u32) -> &[&'a UserMeetings] {
        let row = row as usize;
        match (self.starts.get(row), self.starts.get(row + 1)) {
            (Some(&start), Some(&end)) => &self.meetings[start as usize..end as usize],
            _ => &[],
        }
    }
}

/// Whether a user of `one` has blocked a user of `other`.
fn has_blocked(one: &PreparedTicket, other: &PreparedTicket) -> bool {
    let is_blocked =
        |user: &UserKey| one.blocked_filter.may_contain(*user) && one.ticket.blocked_users.binary_search(user).is_ok();
    other.users.iter().any(is_blocked)
}
