//! What to write so that a store's rows say what the changes came to: by kind of row, each once, in the order of names.

use std::sync::Arc;

use crate::domain::id::{MatchId, SetId, UserKey};
use crate::domain::lifecycle::Match;
use crate::domain::lifecycle::penalty::Penalty;
use crate::domain::match_result::{MatchResult, RatingHistoryEntry};
use crate::domain::time::UnixMs;
use crate::store::queues::queue_rows::{QueueRows, TicketUser, queue_key};
use crate::store::queues::{QueueKey, RatingRow, StoredTicket};

/// The difference between what was found and what the changes came to. What goes must go before what comes: a user may
/// leave one ticket or match and be in another.
#[derive(Debug, Default)]
pub(in crate::store) struct QueueRowChanges<'a> {
    pub(in crate::store) inserted_tickets: Vec<&'a StoredTicket>,
    /// State, expiry and edition: nothing else about a ticket ever changes.
    pub(in crate::store) updated_tickets: Vec<&'a StoredTicket>,
    pub(in crate::store) inserted_matches: Vec<&'a Arc<Match>>,
    pub(in crate::store) updated_matches: Vec<&'a Arc<Match>>,
    pub(in crate::store) deleted_ticket_users: Vec<(UserKey, QueueKey)>,
    pub(in crate::store) inserted_ticket_users: Vec<(UserKey, TicketUser)>,
    pub(in crate::store) deleted_match_users: Vec<UserKey>,
    pub(in crate::store) inserted_match_users: Vec<(UserKey, MatchId)>,
    pub(in crate::store) inserted_penalties: Vec<((UserKey, SetId), Penalty)>,
    pub(in crate::store) updated_penalties: Vec<((UserKey, SetId), Penalty)>,
    pub(in crate::store) inserted_ratings: Vec<&'a RatingRow>,
    pub(in crate::store) updated_ratings: Vec<&'a RatingRow>,
    pub(in crate::store) inserted_results: Vec<&'a MatchResult>,
    /// Changes of ratings to remember, each in the place of one that was there before.
    pub(in crate::store) upserted_rating_changes: Vec<&'a RatingHistoryEntry>,
    pub(in crate::store) inserted_feedback: Vec<(MatchId, UserKey, u8, UnixMs)>,
}

impl<'a> QueueRowChanges<'a> {
    /// `before` is what was found, `after` a copy of it that the changes were made in. Remembered changes of
    /// ratings are never found, only set.
    pub(in crate::store) fn between(before: &QueueRows, after: &'a QueueRows) -> Self {
        let mut difference = Self::default();
        difference.compare_tickets(before, after);
        for (id, play) in &after.matches {
            match before.matches.get(id) {
                None => difference.inserted_matches.push(play),
                Some(known) if !Arc::ptr_eq(known, play) => difference.updated_matches.push(play),
                Some(_) => {}
            }
        }
        for (user, in_match) in &before.match_by_user {
            if after.match_by_user.get(user) != Some(in_match) {
                difference.deleted_match_users.push(*user);
            }
        }
        for (user, in_match) in &after.match_by_user {
            if before.match_by_user.get(user) != Some(in_match) {
                difference.inserted_match_users.push((*user, *in_match));
            }
        }
        for (key, penalty) in &after.penalties {
            match before.penalties.get(key) {
                None => difference.inserted_penalties.push((*key, *penalty)),
                Some(known) if known != penalty => difference.updated_penalties.push((*key, *penalty)),
                Some(_) => {}
            }
        }
        for (key, row) in &after.ratings {
            match before.ratings.get(key) {
                None => difference.inserted_ratings.push(row),
                Some(known) if known != row => difference.updated_ratings.push(row),
                Some(_) => {}
            }
        }
        let made = after.results.iter().filter(|(id, _)| !before.results.contains_key(*id));
        difference.inserted_results.extend(made.map(|(_, result)| &**result));
        difference.upserted_rating_changes.extend(after.rating_changes.values());
        let made = after.feedback.iter().filter(|(key, _)| !before.feedback.contains_key(*key));
        difference.inserted_feedback.extend(made.map(|((id, user), (score, at))| (*id, *user, *score, *at)));
        difference.sort_by_id();
        difference
    }

    fn compare_tickets(&mut self, before: &QueueRows, after: &'a QueueRows) {
        for (id, stored) in &after.tickets {
            let (queue, known) = (queue_key(&stored.ticket), before.tickets.get(id));
            match known {
                None => self.inserted_tickets.push(stored),
                Some(known) if known.version != stored.version => self.updated_tickets.push(stored),
                Some(_) => {}
            }
            match (known.is_some_and(StoredTicket::is_open), stored.is_open()) {
                (true, false) => {
                    let users = stored.ticket.session.sorted_users();
                    self.deleted_ticket_users.extend(users.into_iter().map(|user| (user, queue)));
                }
                (false, true) => {
                    let spot = TicketUser { queue, ticket: *id, exclusive: stored.ticket.exclusive };
                    let users = stored.ticket.session.sorted_users();
                    self.inserted_ticket_users.extend(users.into_iter().map(|user| (user, spot)));
                }
                _ => {}
            }
        }
    }

    /// Servers that write the same rows write them in the same order, and so wait for each other rather than each other's.
    fn sort_by_id(&mut self) {
        self.inserted_tickets.sort_unstable_by_key(|it| it.ticket.id);
        self.updated_tickets.sort_unstable_by_key(|it| it.ticket.id);
        self.inserted_matches.sort_unstable_by_key(|it| it.id);
        self.updated_matches.sort_unstable_by_key(|it| it.id);
        self.inserted_results.sort_unstable_by_key(|it| it.report.match_id);
        self.deleted_ticket_users.sort_unstable();
        self.inserted_ticket_users.sort_unstable_by_key(|(user, spot)| (*user, spot.queue));
    }
}
