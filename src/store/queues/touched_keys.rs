//! Keys of the queue rows that a batch can touch: a backend reads these rows before it applies the batch.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::domain::id::{ConsentId, MatchId, RatingKey, TicketId, UserKey};
use crate::domain::lifecycle::Match;
use crate::domain::queue::ticket::Ticket;
use crate::domain::ruleset::rating::scale::KeyedRatingSpec;
use crate::store::queues::queue_rows::present_users;
use crate::store::queues::{QueueWrite, UserErasure};
use crate::store::unknown_rows::{RowKey, UnknownRows};

/// Ids in a batch, each once.
#[derive(Default)]
pub(in crate::store) struct TouchedQueueKeys {
    pub(in crate::store) tickets: BTreeSet<TicketId>,
    /// Proposed and changing matches; their users are read too.
    pub(in crate::store) matches: BTreeSet<MatchId>,
    /// Users whose tickets, match and penalties are read.
    pub(in crate::store) users: BTreeSet<UserKey>,
    /// Entering users, and whether the ticket is exclusive or the user's tickets are counted: then servers must not enter
    /// the user at the same time.
    pub(in crate::store) user_entry_locks: BTreeSet<(UserKey, bool)>,
    /// Consents that can be taken or revoked.
    pub(in crate::store) consents: BTreeSet<ConsentId>,
    /// Users whose block lists can change.
    pub(in crate::store) block_lists: BTreeSet<UserKey>,
    /// Users whose penalties can change.
    pub(in crate::store) penalized_users: BTreeSet<UserKey>,
    /// Ratings that can change.
    pub(in crate::store) ratings: BTreeSet<(UserKey, RatingKey)>,
    /// Ratings whose match activity, over all users, is needed.
    pub(in crate::store) match_activity_keys: BTreeSet<RatingKey>,
    /// Matches whose result is read.
    pub(in crate::store) results: BTreeSet<MatchId>,
    /// Users of whom all ratings are read, to be removed.
    pub(in crate::store) erased_users: BTreeSet<UserKey>,
    /// Feedback that can exist already.
    pub(in crate::store) feedback: BTreeSet<(MatchId, UserKey)>,
}

impl TouchedQueueKeys {
    pub(in crate::store) fn of_batch(batch: &[QueueWrite]) -> Self {
        let mut keys = Self::default();
        for write in batch {
            keys.add_write(write);
        }
        keys
    }

    pub(in crate::store) fn of_write(write: &QueueWrite) -> Self {
        let mut keys = Self::default();
        keys.add_write(write);
        keys
    }

    /// Whether one of the rows is known to be of a newer server.
    pub(in crate::store) fn has_row_of_newer_server(&self, unknown_rows: &UnknownRows) -> bool {
        let tickets = self.tickets.iter().map(|id| RowKey::Ticket(*id));
        let matches = self.matches.iter().map(|id| RowKey::Match(*id));
        let results = self.results.iter().map(|id| RowKey::Result(*id));
        tickets.chain(matches).chain(results).any(|key| unknown_rows.contains(key))
    }

    fn add_proposed_match(&mut self, proposed: &Match) {
        self.tickets.extend(proposed.tickets.iter().map(|match_ticket| match_ticket.ticket_id));
        self.matches.insert(proposed.id);
        self.users.extend(present_users(proposed));
    }

    fn add_write(&mut self, write: &QueueWrite) {
        match write {
            QueueWrite::EnterQueue { ticket, consents, max_tickets_per_user, .. } => {
                self.consents.extend(consents.iter().map(|consent| consent.id));
                self.add_entering_ticket(ticket, max_tickets_per_user.is_some());
            }
            QueueWrite::Heartbeat { ticket_id, .. }
            | QueueWrite::RenewBeaconVector { ticket_id, .. }
            | QueueWrite::RecordReadyCheckDelivery { ticket_id, .. }
            | QueueWrite::EndTicket { ticket_id, .. } => {
                self.tickets.insert(*ticket_id);
            }
            QueueWrite::TakeConsents { consents, .. } => {
                self.consents.extend(consents.iter().map(|consent| consent.id));
            }
            QueueWrite::RevokeConsent { consent } => {
                self.consents.insert(consent.id);
            }
            QueueWrite::UpdateBlockList { user, .. } => {
                self.block_lists.insert(*user);
            }
            QueueWrite::ProposeMatch { proposed, .. } => self.add_proposed_match(proposed),
            QueueWrite::StartSessionMatch { started, tickets, other_tickets, consents, .. } => {
                self.consents.extend(consents.iter().map(|consent| consent.id));
                self.add_started_match(started, tickets, other_tickets)
            }
            QueueWrite::TransitionMatch {
                updated_match,
                ticket_fates,
                other_tickets,
                penalized_users,
                leaver_rating,
                ..
            } => {
                if let Some(rating) = leaver_rating {
                    let players = updated_match.tickets.iter().flat_map(|ticket| &ticket.players);
                    let leavers = players.filter(|player| player.left_at.is_some());
                    self.ratings.extend(leavers.map(|player| (player.user, rating.key)));
                }
                self.tickets.extend(ticket_fates.iter().map(|(id, ..)| *id));
                self.tickets.extend(other_tickets);
                self.matches.insert(updated_match.id);
                self.users.extend(penalized_users);
                self.penalized_users.extend(penalized_users);
            }
            QueueWrite::ImportRatings { rows } => {
                self.ratings.extend(rows.iter().map(|row| (row.user, row.key)));
            }
            QueueWrite::RecordResult { report, end_transition, rating, .. } => {
                self.matches.insert(report.match_id);
                self.results.insert(report.match_id);
                if let Some(KeyedRatingSpec { key, spec }) = rating {
                    self.match_activity_keys.extend(spec.decays_by_active_periods().then_some(*key));
                    self.ratings.extend(report.users().map(|user| (user, *key)));
                    self.ratings.extend(report.left_early.iter().map(|user| (*user, *key)));
                    self.ratings.extend(report.disputing_users.iter().map(|user| (*user, *key)));
                }
                if let Some(end_transition) = end_transition {
                    self.add_write(end_transition);
                }
            }
            QueueWrite::EraseUser(erasure) => self.add_erasure(erasure),
            QueueWrite::RemoveInactiveRatings { ratings, .. } => self.ratings.extend(ratings),
            QueueWrite::RecordFeedback { match_id, user, rating, .. } => {
                self.ratings.extend(rating.map(|rating| (*user, rating.key)));
                self.feedback.insert((*match_id, *user));
            }
        }
    }

    fn add_entering_ticket(&mut self, ticket: &Ticket, has_ticket_limit: bool) {
        self.tickets.insert(ticket.id);
        let users = ticket.session.sorted_users();
        self.users.extend(&users);
        // Servers that count the tickets of one user must not do so at the same time.
        let is_exclusive = ticket.excludes_other_tickets || has_ticket_limit;
        self.user_entry_locks.extend(users.into_iter().map(|user| (user, is_exclusive)));
    }

    fn add_started_match(&mut self, started: &Match, tickets: &[Arc<Ticket>], other_tickets: &[TicketId]) {
        self.tickets.extend(tickets.iter().map(|ticket| ticket.id));
        self.tickets.extend(other_tickets);
        self.matches.insert(started.id);
        let users = present_users(started);
        self.users.extend(&users);
        self.user_entry_locks.extend(users.into_iter().map(|user| (user, false)));
    }

    fn add_erasure(
        &mut self,
        UserErasure { user, tickets, matches, block_list_owners: block_lists, .. }: &UserErasure,
    ) {
        self.users.insert(*user);
        self.erased_users.insert(*user);
        self.tickets.extend(tickets);
        self.block_lists.extend(block_lists);
        for (id, _) in matches {
            self.matches.insert(*id);
            self.results.insert(*id);
            self.feedback.insert((*id, *user));
        }
    }
}
