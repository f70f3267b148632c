//! Avoidance between the waiting tickets of a pass: prepared once per pass, so that a pair check only looks it up.

use hashbrown::HashMap;

use crate::id::{BuildIdHasher, UserKey};
use crate::queue::avoidance::{AvoidanceReasons, Meeting};
use crate::queue::input::PassInput;
use crate::queue::pass_state::PassTicket;
use crate::ruleset::queue::AvoidTarget;

/// Reasons of all rows to avoid each other.
#[derive(Debug, Default)]
pub(super) struct AvoidanceTable<'a> {
    /// One entry per row; empty if no ticket can avoid another.
    rows: Vec<RowAvoidance>,
    /// Meetings of each user, row by row, in the order of `PreparedTicket::users`.
    meetings: Vec<&'a [Meeting]>,
    /// Rows that each row avoids because of a block, by either side; sorted.
    blocked_rows: Vec<u32>,
}

/// Parts of the lists of `AvoidanceTable` that belong to a row, as start and end.
#[derive(Clone, Copy, Debug, Default)]
struct RowAvoidance {
    meetings: (u32, u32),
    blocked_rows: (u32, u32),
}

impl<'a> AvoidanceTable<'a> {
    pub(super) fn new(input: &PassInput<'a>, tickets: &[PassTicket<'a>]) -> Self {
        let rules = &input.queue.avoid;
        let uses_blocks = rules.iter().any(|rule| rule.whom == AvoidTarget::Blocked);
        let uses_meetings = rules.iter().any(|rule| rule.whom != AvoidTarget::Blocked);
        let mut table = Self::default();
        if uses_blocks {
            table.add_blocks(tickets);
        }
        if uses_meetings && !input.past_matches.is_empty() {
            table.add_meetings(input, tickets);
        }
        table
    }

    /// Reasons for which two rows avoid each other; `None` if there are none.
    pub(super) fn reasons(&self, tickets: &[PassTicket<'_>], one: u32, other: u32) -> Option<AvoidanceReasons> {
        let (one_row, other_row) = (self.rows.get(one as usize)?, self.rows.get(other as usize)?);
        let blocked_rows = part(&self.blocked_rows, one_row.blocked_rows);
        let blocked = !blocked_rows.is_empty() && blocked_rows.binary_search(&other).is_ok();
        let mut reasons = AvoidanceReasons { blocked, ..AvoidanceReasons::default() };
        let (ours, theirs) = (part(&self.meetings, one_row.meetings), part(&self.meetings, other_row.meetings));
        if let ([ours], [theirs]) = (ours, theirs) {
            // Both have each meeting, so the shorter list is enough.
            let (meetings, other) = if ours.len() <= theirs.len() { (ours, other) } else { (theirs, one) };
            reasons.add_meetings(meetings, &tickets[other as usize].prepared.users);
        } else if !theirs.is_empty() {
            let users = &tickets[other as usize].prepared.users;
            ours.iter().for_each(|meetings| reasons.add_meetings(meetings, users));
        }
        (reasons != AvoidanceReasons::default()).then_some(reasons)
    }

    /// Finds the rows with a user that another row has blocked. Most blocked users do not wait: a bit per hash tells
    /// most of them apart before the exact lookup.
    fn add_blocks(&mut self, tickets: &[PassTicket<'a>]) {
        if tickets.iter().all(|ticket| ticket.prepared.ticket.blocked_users.is_empty()) {
            return;
        }
        let mut rows_by_user: HashMap<UserKey, Vec<u32>, BuildIdHasher> = HashMap::default();
        let mut waiting_users = UserFilter::for_users(tickets.iter().map(|ticket| ticket.prepared.users.len()).sum());
        for (ticket, row) in tickets.iter().zip(0_u32..) {
            for &user in &ticket.prepared.users {
                waiting_users.insert(user);
                rows_by_user.entry(user).or_default().push(row);
            }
        }
        let mut pairs: Vec<(u32, u32)> = Vec::new();
        for (ticket, row) in tickets.iter().zip(0_u32..) {
            let blocked = &ticket.prepared.ticket.blocked_users;
            for user in blocked.iter().filter(|user| waiting_users.may_contain(**user)) {
                let others = rows_by_user.get(user).into_iter().flatten();
                others.for_each(|&other| pairs.extend([(row, other), (other, row)]));
            }
        }
        pairs.sort_unstable();
        pairs.dedup();
        self.rows.resize(tickets.len(), RowAvoidance::default());
        for of_row in pairs.chunk_by(|one, other| one.0 == other.0) {
            let start = self.blocked_rows.len() as u32;
            self.blocked_rows.extend(of_row.iter().map(|(_, other)| *other));
            self.rows[of_row[0].0 as usize].blocked_rows = (start, self.blocked_rows.len() as u32);
        }
    }

    /// Looks up the meetings of all users.
    fn add_meetings(&mut self, input: &PassInput<'a>, tickets: &[PassTicket<'a>]) {
        self.rows.resize(tickets.len(), RowAvoidance::default());
        for (ticket, row) in tickets.iter().zip(&mut self.rows) {
            let start = self.meetings.len();
            self.meetings.extend(ticket.prepared.users.iter().map(|&user| input.past_matches.meetings_of(user)));
            if self.meetings[start..].iter().all(|meetings| meetings.is_empty()) {
                self.meetings.truncate(start);
            }
            row.meetings = (start as u32, self.meetings.len() as u32);
        }
    }
}

fn part<T>(list: &[T], (start, end): (u32, u32)) -> &[T] {
    &list[start as usize..end as usize]
}

/// Set of users with false positives and without false negatives: a bit per hash. It fits in the processor's cache.
struct UserFilter {
    words: Vec<u64>,
    mask: usize,
}

impl UserFilter {
    /// Bits per user: about one of sixteen other users is a false positive.
    const BITS_PER_USER: usize = 16;

    fn for_users(count: usize) -> Self {
        let bits = (count * Self::BITS_PER_USER).next_power_of_two().max(64);
        Self { words: vec![0; bits / 64], mask: bits - 1 }
    }

    fn insert(&mut self, user: UserKey) {
        let bit = self.bit(user);
        self.words[bit / 64] |= 1 << (bit % 64);
    }

    fn may_contain(&self, user: UserKey) -> bool {
        let bit = self.bit(user);
        self.words[bit / 64] >> (bit % 64) & 1 == 1
    }

    /// User keys are digests, so their first bytes are as good as a hash.
    fn bit(&self, user: UserKey) -> usize {
        let [a, b, c, d, e, f, g, h, ..] = *user.as_bytes();
        usize::try_from(u64::from_le_bytes([a, b, c, d, e, f, g, h]) & self.mask as u64).unwrap_or(0)
    }
}
