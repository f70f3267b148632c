//! Start of a searched session's match: its tickets, its users, and the end of their waiting tickets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::domain::id::{TicketId, UserKey};
use crate::domain::queue::seat_vectors::SeatBeaconVectors;
use crate::domain::queue::ticket::{Ticket, TicketEndReason};
use crate::store::queues::queue_rows::{QueueRows, present_users, queue_key};
use crate::store::queues::{QueueOutcome, QueueWrite, StoredTicket, TicketMembership, TicketState};

/// Version of a ticket that has just been written.
const FIRST_TICKET_VERSION: u64 = 1;

impl QueueRows {
    /// Applies [`QueueWrite::StartSessionMatch`].
    pub(super) fn start_session_match(&mut self, write: &QueueWrite) -> QueueOutcome {
        let QueueWrite::StartSessionMatch { started, tickets, other_tickets, consents, expires_at, purge_at } = write
        else {
            return QueueOutcome::StaleMatchVersion(None);
        };
        if let Some(stored) = self.matches.get(&started.id) {
            return QueueOutcome::MatchStarted { started: Arc::clone(stored), tickets: Vec::new() };
        }
        if let Some(spent) = self.find_unavailable_consent(started.id.into(), consents) {
            return QueueOutcome::ConsentUnavailable(spent);
        }
        let users = present_users(started);
        let busy: Vec<UserKey> = users.iter().copied().filter(|user| self.match_by_user.contains_key(user)).collect();
        if !busy.is_empty() {
            return QueueOutcome::UsersInMatch { users: busy };
        }
        let is_waiting =
            |id: &TicketId| self.tickets.get(id).is_some_and(|stored| stored.state == TicketState::Waiting);
        let ended: BTreeSet<TicketId> = other_tickets.iter().copied().filter(is_waiting).collect();
        let conflicting = self.conflicting_tickets(&users, tickets, &ended);
        if !conflicting.is_empty() {
            return QueueOutcome::TicketsUnavailable { tickets: conflicting.into_iter().collect() };
        }
        self.take_consents(started.id.into(), consents);
        let mut changed = BTreeMap::new();
        for id in ended {
            let end_reason = TicketEndReason::MatchedElsewhere;
            let state = TicketState::Ended { end_reason, match_id: Some(started.id), purge_at: *purge_at };
            changed.extend(self.set_ticket_state(id, state, None).map(|stored| (id, stored)));
        }
        let request_digest = started.session_match_start_by_host.as_ref().map_or([0; 16], |start| start.request_digest);
        for ticket in tickets {
            let queue = queue_key(ticket);
            for user in ticket.session.sorted_users() {
                self.add_ticket_user(
                    user,
                    TicketMembership { queue, ticket_id: ticket.id, exclusive: ticket.excludes_other_tickets },
                );
                self.add_match_user(user, started.id);
            }
            let stored = StoredTicket {
                ticket: Arc::clone(ticket),
                state: TicketState::InMatch(started.id),
                expires_at: *expires_at,
                version: FIRST_TICKET_VERSION,
                request_digest,
                ready_check_delivered_mask: 0,
                seat_vectors: SeatBeaconVectors::default(),
            };
            self.tickets.insert(ticket.id, stored.clone());
            changed.insert(ticket.id, stored);
        }
        self.matches.insert(started.id, Arc::clone(started));
        QueueOutcome::MatchStarted { started: Arc::clone(started), tickets: changed.into_values().collect() }
    }

    /// Tickets of the users that would remain beside the new ones and must not: in the same queue, or exclusive.
    fn conflicting_tickets(
        &self,
        users: &BTreeSet<UserKey>,
        tickets: &[Arc<Ticket>],
        ended: &BTreeSet<TicketId>,
    ) -> BTreeSet<TicketId> {
        let queues: Vec<_> = tickets.iter().map(|ticket| queue_key(ticket)).collect();
        let memberships = users.iter().filter_map(|user| self.tickets_by_user.get(user)).flatten();
        let remaining = memberships.filter(|membership| !ended.contains(&membership.ticket_id));
        let conflicting = remaining.filter(|membership| membership.exclusive || queues.contains(&membership.queue));
        let existing = tickets.iter().map(|ticket| ticket.id).filter(|id| self.tickets.contains_key(id));
        conflicting.map(|membership| membership.ticket_id).chain(existing).collect()
    }
}
