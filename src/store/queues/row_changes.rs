//! Row changes of a queue batch: rows to insert, update and delete, by table, each once, in id order.

use std::sync::Arc;

use crate::domain::id::{ConsentId, MatchId, RatingKey, SetId, TicketId, UserKey};
use crate::domain::lifecycle::Match;
use crate::domain::lifecycle::penalty::Penalty;
use crate::domain::match_result::{MatchResult, RatingHistoryEntry};
use crate::domain::time::UnixMs;
use crate::store::queues::consents::StoredConsent;
use crate::store::queues::queue_rows::{QueueRows, queue_key};
use crate::store::queues::{QueueKey, RatingRow, StoredBlockList, StoredTicket, TicketMembership};

/// Difference between the rows before and after a batch. Deletes must run before inserts: a user can leave one ticket
/// or match and join another in one batch.
#[derive(Debug, Default)]
pub(in crate::store) struct QueueRowChanges<'a> {
    pub(in crate::store) inserted_tickets: Vec<&'a StoredTicket>,
    /// Tickets with a new state, expiry or version; the other columns never change.
    pub(in crate::store) updated_tickets: Vec<&'a StoredTicket>,
    /// Tickets with other constant columns, because a user was erased.
    pub(in crate::store) rewritten_tickets: Vec<&'a StoredTicket>,
    pub(in crate::store) inserted_matches: Vec<&'a Arc<Match>>,
    pub(in crate::store) updated_matches: Vec<&'a Arc<Match>>,
    /// Users who are no longer in a ticket: it ended, or they left its match. Such a user may be in another ticket of
    /// the queue by now, so the ticket belongs to the key.
    pub(in crate::store) deleted_ticket_users: Vec<(UserKey, QueueKey, TicketId)>,
    pub(in crate::store) inserted_ticket_users: Vec<(UserKey, TicketMembership)>,
    pub(in crate::store) deleted_match_users: Vec<UserKey>,
    pub(in crate::store) inserted_match_users: Vec<(UserKey, MatchId)>,
    pub(in crate::store) inserted_penalties: Vec<((UserKey, SetId), Penalty)>,
    pub(in crate::store) updated_penalties: Vec<((UserKey, SetId), Penalty)>,
    pub(in crate::store) inserted_consents: Vec<(ConsentId, StoredConsent)>,
    pub(in crate::store) updated_consents: Vec<(ConsentId, StoredConsent)>,
    pub(in crate::store) inserted_block_lists: Vec<&'a StoredBlockList>,
    pub(in crate::store) updated_block_lists: Vec<&'a StoredBlockList>,
    pub(in crate::store) inserted_ratings: Vec<&'a RatingRow>,
    pub(in crate::store) updated_ratings: Vec<&'a RatingRow>,
    /// Ratings to delete, with their history.
    pub(in crate::store) deleted_ratings: Vec<(UserKey, RatingKey)>,
    pub(in crate::store) inserted_results: Vec<&'a MatchResult>,
    /// Results in which a user was erased.
    pub(in crate::store) updated_results: Vec<&'a MatchResult>,
    /// Rating history entries; each replaces the entry in the same slot.
    pub(in crate::store) upserted_rating_changes: Vec<&'a RatingHistoryEntry>,
    pub(in crate::store) deleted_feedback: Vec<(MatchId, UserKey)>,
    pub(in crate::store) inserted_feedback: Vec<(MatchId, UserKey, u8, UnixMs)>,
    /// Users whose ratings, rating history, feedback, penalties, block lists and names in logs are deleted, read or not.
    pub(in crate::store) erased_users: Vec<UserKey>,
}

impl<'a> QueueRowChanges<'a> {
    /// Compares the rows read with the rows after the batch. Rating history entries are never read, only written.
    pub(in crate::store) fn between(before: &QueueRows, after: &'a QueueRows) -> Self {
        let mut changes = Self::default();
        changes.compare_tickets(before, after);
        for (id, found) in &after.matches {
            match before.matches.get(id) {
                None => {
                    changes.inserted_matches.push(found);
                    changes.add_users_who_left(None, found);
                }
                Some(known) if !Arc::ptr_eq(known, found) => {
                    changes.updated_matches.push(found);
                    changes.add_users_who_left(Some(known), found);
                }
                Some(_) => {}
            }
        }
        for (user, match_id) in &before.match_by_user {
            if after.match_by_user.get(user) != Some(match_id) {
                changes.deleted_match_users.push(*user);
            }
        }
        for (user, match_id) in &after.match_by_user {
            if before.match_by_user.get(user) != Some(match_id) {
                changes.inserted_match_users.push((*user, *match_id));
            }
        }
        for (key, penalty) in &after.penalties {
            match before.penalties.get(key) {
                None => changes.inserted_penalties.push((*key, *penalty)),
                Some(known) if known != penalty => changes.updated_penalties.push((*key, *penalty)),
                Some(_) => {}
            }
        }
        for (id, consent) in &after.consents {
            match before.consents.get(id) {
                None => changes.inserted_consents.push((*id, *consent)),
                Some(known) if known != consent => changes.updated_consents.push((*id, *consent)),
                Some(_) => {}
            }
        }
        changes.compare_block_lists(before, after);
        for (key, row) in &after.ratings {
            match before.ratings.get(key) {
                None => changes.inserted_ratings.push(row),
                Some(known) if known != row => changes.updated_ratings.push(row),
                Some(_) => {}
            }
        }
        let is_removed = |key: &&(UserKey, RatingKey)| !after.ratings.contains_key(*key);
        changes.deleted_ratings.extend(before.ratings.keys().filter(is_removed));
        for (id, result) in &after.results {
            if before.results.get(id).is_some_and(|known| !Arc::ptr_eq(known, result)) {
                changes.updated_results.push(result);
            }
        }
        changes.erased_users.extend(&after.erased_users);
        changes.deleted_feedback.extend(before.feedback.keys().filter(|key| !after.feedback.contains_key(*key)));
        let new_results = after.results.iter().filter(|(id, _)| !before.results.contains_key(*id));
        changes.inserted_results.extend(new_results.map(|(_, result)| &**result));
        changes.upserted_rating_changes.extend(after.rating_changes.values());
        let new_feedback = after.feedback.iter().filter(|(key, _)| !before.feedback.contains_key(*key));
        changes.inserted_feedback.extend(new_feedback.map(|((id, user), (stars, at))| (*id, *user, *stars, *at)));
        changes.sort_by_id();
        changes
    }

    fn compare_tickets(&mut self, before: &QueueRows, after: &'a QueueRows) {
        for (id, stored) in &after.tickets {
            let (queue, known) = (queue_key(&stored.ticket), before.tickets.get(id));
            match known {
                None => self.inserted_tickets.push(stored),
                Some(known) if !Arc::ptr_eq(&known.ticket, &stored.ticket) => self.rewritten_tickets.push(stored),
                Some(known) if known.version != stored.version => self.updated_tickets.push(stored),
                Some(_) => {}
            }
            match (known.is_some_and(StoredTicket::is_open), stored.is_open()) {
                (true, false) => {
                    let users = stored.ticket.session.sorted_users();
                    self.deleted_ticket_users.extend(users.into_iter().map(|user| (user, queue, *id)));
                }
                (false, true) => {
                    let membership =
                        TicketMembership { queue, ticket_id: *id, exclusive: stored.ticket.excludes_other_tickets };
                    let mut users = stored.ticket.session.sorted_users();
                    // Without those who left its match in the same batch.
                    users.retain(|user| after.tickets_by_user.get(user).is_some_and(|all| all.contains(&membership)));
                    self.inserted_ticket_users.extend(users.into_iter().map(|user| (user, membership)));
                }
                _ => {}
            }
        }
    }

    fn compare_block_lists(&mut self, before: &QueueRows, after: &'a QueueRows) {
        for (user, list) in &after.block_lists {
            match before.block_lists.get(user) {
                None => self.inserted_block_lists.push(list),
                Some(known) if known.version != list.version => self.updated_block_lists.push(list),
                Some(_) => {}
            }
        }
    }

    /// Adds the users who left the match between the two versions, or since it was proposed in this batch.
    fn add_users_who_left(&mut self, before: Option<&Match>, after: &Match) {
        let queue = QueueKey { set_id: after.set_id, silo: after.silo };
        let tickets_before = before.map_or(&[][..], |before| &before.tickets);
        for ticket in &after.tickets {
            for player in ticket.players.iter().filter(|player| player.left_at.is_some()) {
                let mut seats_before = tickets_before
                    .iter()
                    .filter(|it| it.ticket_id == ticket.ticket_id)
                    .flat_map(|it| &it.players)
                    .filter(|it| it.user == player.user);
                if seats_before.all(|it| it.left_at.is_none()) {
                    self.deleted_ticket_users.push((player.user, queue, ticket.ticket_id));
                }
            }
        }
    }

    /// Sorts by key. Servers that write the same rows in the same order cannot deadlock.
    fn sort_by_id(&mut self) {
        self.inserted_tickets.sort_unstable_by_key(|stored| stored.ticket.id);
        self.updated_tickets.sort_unstable_by_key(|stored| stored.ticket.id);
        self.inserted_matches.sort_unstable_by_key(|found| found.id);
        self.updated_matches.sort_unstable_by_key(|found| found.id);
        self.rewritten_tickets.sort_unstable_by_key(|stored| stored.ticket.id);
        self.inserted_results.sort_unstable_by_key(|result| result.report.match_id);
        self.updated_results.sort_unstable_by_key(|result| result.report.match_id);
        self.deleted_ticket_users.sort_unstable();
        // A user who left with the whole party is in the list twice.
        self.deleted_ticket_users.dedup();
        self.inserted_ticket_users.sort_unstable_by_key(|(user, membership)| (*user, membership.queue));
    }
}
