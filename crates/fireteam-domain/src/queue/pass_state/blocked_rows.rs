//! Rows that each row has blocked.

use std::cell::{Cell, OnceCell};

use crate::id::UserKey;
use crate::queue::pass_state::row_set::RowSet;
use crate::queue::prepared_ticket::PreparedTicket;

/// Number of look-ups in a row's block list after which the blocked rows are listed: that costs as much as some of them.
const LOOK_UPS_BEFORE_LISTING: u32 = 16;

/// Rows that each row has blocked. Each look-up has the result of [`has_blocked_user`]; those after the first few of a row take a
/// bit of a set instead of a search in the list of blocked users.
#[derive(Debug)]
pub(super) struct BlockedRows<'a> {
    tickets: Vec<&'a PreparedTicket>,
    /// Users of all rows with their rows, sorted.
    users_with_rows: OnceCell<Vec<(u128, u32)>>,
    by_row: Box<[BlockedByRow]>,
}

/// Rows that one row has blocked.
#[derive(Debug, Default)]
struct BlockedByRow {
    look_ups: Cell<u32>,
    listed: OnceCell<RowSet>,
}

impl<'a> BlockedRows<'a> {
    /// For `tickets`, one per row.
    pub(super) fn new(tickets: impl Iterator<Item = &'a PreparedTicket>) -> Self {
        let tickets: Vec<&PreparedTicket> = tickets.collect();
        let by_row = tickets.iter().map(|_| BlockedByRow::default()).collect();
        Self { tickets, users_with_rows: OnceCell::new(), by_row }
    }

    /// Whether a user of the first row has blocked a user of the second.
    pub(super) fn has_blocked(&self, one: u32, other: u32) -> bool {
        let blocked = &self.by_row[one as usize];
        if let Some(listed) = blocked.listed.get() {
            return listed.contains(other);
        }
        let (ours, theirs) = (self.tickets[one as usize], self.tickets[other as usize]);
        if !theirs.users.iter().any(|user| ours.blocked_filter.may_contain(*user)) {
            return false;
        }
        blocked.look_ups.set(blocked.look_ups.get() + 1);
        if blocked.look_ups.get() == LOOK_UPS_BEFORE_LISTING {
            let users_with_rows = self.users_with_rows.get_or_init(|| sorted_users_with_rows(&self.tickets));
            let rows = rows_of_users(&ours.blocked_users, users_with_rows);
            blocked.listed.get_or_init(|| RowSet::new(rows, self.tickets.len() as u32));
        }
        has_blocked_user(ours, theirs)
    }
}

/// Users of all tickets with their rows, sorted by user. A user may wait in several rows.
fn sorted_users_with_rows(tickets: &[&PreparedTicket]) -> Vec<(u128, u32)> {
    let rows = (0..).zip(tickets);
    let mut users: Vec<_> =
        rows.flat_map(|(row, ticket)| ticket.users.iter().map(move |user| (sort_key(user), row))).collect();
    users.sort_unstable();
    users
}

/// Number whose order is that of the users.
fn sort_key(user: &UserKey) -> u128 {
    u128::from_be_bytes(*user.as_bytes())
}

/// Rows of the `selected` users, which are sorted too: one walk over both lists.
fn rows_of_users(selected: &[UserKey], users_with_rows: &[(u128, u32)]) -> Vec<u32> {
    let mut rows = Vec::new();
    let (mut at, mut selected_at) = (0, 0);
    while let (Some(&(user, row)), Some(next)) = (users_with_rows.get(at), selected.get(selected_at)) {
        let next = sort_key(next);
        if user == next {
            rows.push(row);
        }
        at += usize::from(user <= next);
        selected_at += usize::from(next < user);
    }
    rows
}

/// Whether a user of `one` has blocked a user of `other`.
fn has_blocked_user(one: &PreparedTicket, other: &PreparedTicket) -> bool {
    other.users.iter().any(|user| one.blocked_users.binary_search(user).is_ok())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::queue::rng::SplitMix64;
    use crate::queue::tests::fixture::random_queue_fixture;

    /// Each look-up, before and after the rows are listed, is a search in the block list: for few and many blocked users, waiting
    /// or not, and for users who wait in several rows.
    #[test]
    fn blocked_rows_equal_a_search_in_the_block_lists() {
        let (mut listed, mut blocked) = (0, 0);
        for seed in 0..60 {
            let mut fixture = random_queue_fixture(seed, 40);
            let mut rng = SplitMix64(seed);
            let count = fixture.tickets.len() as u64;
            for index in 1..fixture.tickets.len() {
                let earlier = fixture.tickets[(rng.next_u64() % index as u64) as usize].session.players[0].user;
                if rng.next_u64().is_multiple_of(5) {
                    Arc::make_mut(&mut fixture.tickets[index]).session.players[0].user = earlier;
                }
            }
            let users: Vec<UserKey> = fixture.tickets.iter().map(|ticket| ticket.session.players[0].user).collect();
            for ticket in &mut fixture.tickets {
                let len = rng.next_u64() % 60 * (rng.next_u64() % 3);
                let user = |draw: u64| match draw % 3 {
                    0 => UserKey::from_name(&draw.to_string()),
                    _ => users[(draw / 3 % count) as usize],
                };
                let mut list: Vec<UserKey> = (0..len).map(|_| user(rng.next_u64())).collect();
                list.sort_unstable();
                list.dedup();
                Arc::make_mut(ticket).blocked_users = list;
            }
            let prepared = fixture.prepared_tickets();
            let rows = BlockedRows::new(prepared.iter());
            for _ in 0..2 {
                for (one, ours) in (0..).zip(&prepared) {
                    for (other, theirs) in (0..).zip(&prepared) {
                        let expected = has_blocked_user(ours, theirs);
                        assert_eq!(rows.has_blocked(one, other), expected, "seed {seed}, rows {one} and {other}");
                        blocked += u32::from(expected);
                    }
                }
            }
            listed += rows.by_row.iter().filter(|row| row.listed.get().is_some()).count();
        }
        assert!(listed > 300 && blocked > 10_000, "{listed}, {blocked}");
    }
}
