//! Erasure of a user, and removal of old ratings.

use std::sync::Arc;

use crate::domain::erasure::UserKeyReplacement;
use crate::domain::id::{MatchId, RatingKey, TicketId, UserKey};
use crate::domain::lifecycle::Match;
use crate::domain::time::UnixMs;
use crate::store::queues::queue_rows::QueueRows;
use crate::store::queues::{QueueOutcome, RatingRow, StoredBlockList, StoredTicket, TicketState, UserErasure};

impl QueueRows {
    /// Applies [`QueueWrite::EraseUser`](crate::store::queues::QueueWrite::EraseUser).
    pub(super) fn erase_user(&mut self, erasure: &UserErasure) -> QueueOutcome {
        let (mut tickets, mut matches) = (Vec::new(), Vec::new());
        let (mut results, mut is_member) = (0, false);
        for id in &erasure.tickets {
            if self.is_in_ticket(erasure.user, *id) {
                is_member = true;
            } else {
                tickets.extend(self.erase_from_ticket(erasure, *id));
            }
        }
        for (id, rating_key) in &erasure.matches {
            if self.match_by_user.get(&erasure.user) == Some(id) {
                is_member = true;
                continue;
            }
            matches.extend(self.erase_from_match(erasure, *id, *rating_key));
            results += u32::from(self.erase_from_result(erasure, *id));
            if let Some(given) = self.feedback.remove(&(*id, erasure.user)) {
                self.feedback.insert((*id, UserKey::of_erased(&erasure.seed, id.as_bytes())), given);
            }
        }
        let of_users = erasure.block_list_owners.iter();
        let mut block_lists: Vec<StoredBlockList> =
            of_users.filter_map(|user| self.remove_erased_from_block_list_of(*user, erasure.user)).collect();
        if erasure.removes_own_rows {
            is_member |=
                self.tickets_by_user.contains_key(&erasure.user) || self.match_by_user.contains_key(&erasure.user);
        }
        if erasure.removes_own_rows && !is_member {
            self.ratings.retain(|(user, _), _| *user != erasure.user);
            self.rating_changes.retain(|(user, ..), _| *user != erasure.user);
            self.penalties.retain(|(user, _), _| *user != erasure.user);
            self.feedback.retain(|(_, user), _| *user != erasure.user);
            self.block_lists.remove(&erasure.user);
            self.log_names.remove(&erasure.user);
            self.erased_users.insert(erasure.user);
        }
        tickets.sort_unstable_by_key(|stored| stored.ticket.id);
        matches.sort_unstable_by_key(|found| found.id);
        block_lists.sort_unstable_by_key(|list| list.user);
        QueueOutcome::UserErased { tickets, matches, block_lists, results, is_member }
    }

    /// Applies [`QueueWrite::RemoveInactiveRatings`](crate::store::queues::QueueWrite::RemoveRatings).
    pub(super) fn remove_ratings_with_last_match_before(
        &mut self,
        ratings: &[(UserKey, RatingKey)],
        last_match_before: UnixMs,
    ) -> QueueOutcome {
        let is_due = |row: &RatingRow| row.last_match_at < last_match_before;
        let mut removed = ratings.to_vec();
        removed.retain(|key| self.ratings.get(key).is_some_and(is_due));
        for (user, key) in &removed {
            self.ratings.remove(&(*user, *key));
            self.rating_changes.retain(|(of_user, of_key, _), _| (of_user, of_key) != (user, key));
        }
        QueueOutcome::RatingsRemoved(removed)
    }

    fn is_in_ticket(&self, user: UserKey, id: TicketId) -> bool {
        self.tickets_by_user.get(&user).is_some_and(|all| all.iter().any(|membership| membership.ticket_id == id))
    }

    /// Replaces the user in a ticket by the key that it has in the ticket's match.
    fn erase_from_ticket(&mut self, erasure: &UserErasure, id: TicketId) -> Option<StoredTicket> {
        let stored = self.tickets.get_mut(&id)?;
        let match_id = match stored.state {
            TicketState::Waiting => None,
            TicketState::InMatch(match_id) => Some(match_id),
            TicketState::Ended { match_id, .. } => match_id,
        };
        let record = match_id.as_ref().map_or(id.as_bytes(), MatchId::as_bytes);
        let erased = replacement(erasure, record).erase_from_ticket(&stored.ticket)?;
        stored.ticket = Arc::new(erased);
        stored.version += 1;
        // The digest of the request could be computed from the party's accounts.
        stored.request_digest = *UserKey::of_erased(&erasure.seed, id.as_bytes()).as_bytes();
        Some(stored.clone())
    }

    fn erase_from_match(
        &mut self,
        erasure: &UserErasure,
        id: MatchId,
        rating_key: Option<RatingKey>,
    ) -> Option<Arc<Match>> {
        let found = self.matches.get(&id)?;
        let skill = rating_key.filter(|_| !self.results.contains_key(&id)).and_then(|key| {
            let row = self.ratings.get(&(erasure.user, key))?;
            Some((key, row.skill()))
        });
        let erased = Arc::new(replacement(erasure, id.as_bytes()).erase_from_match(found, skill)?);
        self.matches.insert(id, Arc::clone(&erased));
        Some(erased)
    }

    /// Replaces the user in a result. Returns whether it was there.
    fn erase_from_result(&mut self, erasure: &UserErasure, id: MatchId) -> bool {
        let replacement = replacement(erasure, id.as_bytes());
        let erased = self.results.get(&id).and_then(|result| replacement.erase_from_result(result));
        erased.map(|erased| self.results.insert(id, Arc::new(erased))).is_some()
    }
}

fn replacement(erasure: &UserErasure, record: &[u8; 16]) -> UserKeyReplacement {
    UserKeyReplacement { user: erasure.user, key: UserKey::of_erased(&erasure.seed, record) }
}
