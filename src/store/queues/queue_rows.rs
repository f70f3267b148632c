//! Rows of the queues, or those that a batch can touch, as maps that writes are applied to.

mod apply_writes;
mod block_list_writes;
mod consent_writes;
mod erase_user;
pub(in crate::store) mod record_result;
mod start_match;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::domain::id::{BuildIdHasher, ConsentId, MatchId, RatingKey, SetId, TicketId, UserKey};
use crate::domain::lifecycle::penalty::Penalty;
use crate::domain::lifecycle::{Match, MatchStage};
use crate::domain::match_result::{MatchResult, RatingHistoryEntry};
use crate::domain::queue::ticket::Ticket;
use crate::domain::rating::AllUsersMatchActivity;
use crate::domain::time::UnixMs;
use crate::store::queues::consents::{CONSENT_RETENTION_AFTER_EXPIRY_MS, StoredConsent};
use crate::store::queues::first_scale::FirstRatingScaleOfSet;
use crate::store::queues::{
    QueueKey, RESULT_RETENTION_MS, RatingRow, StoredBlockList, StoredTicket, TicketMembership,
    UserTicketsMatchAndPenalties,
};

/// Rows by key.
#[derive(Clone, Debug, Default)]
pub(in crate::store) struct QueueRows {
    pub(in crate::store) tickets: HashMap<TicketId, StoredTicket, BuildIdHasher>,
    pub(in crate::store) matches: HashMap<MatchId, Arc<Match>, BuildIdHasher>,
    /// Tickets of each user that have not ended. A user without tickets has no entry.
    pub(in crate::store) tickets_by_user: BTreeMap<UserKey, Vec<TicketMembership>>,
    /// Match of each user who is in one that has not ended.
    pub(in crate::store) match_by_user: BTreeMap<UserKey, MatchId>,
    /// Users of each match: the inverse of `match_by_user`. A match without users has no entry.
    pub(in crate::store) users_by_match: HashMap<MatchId, BTreeSet<UserKey>, BuildIdHasher>,
    pub(in crate::store) penalties: BTreeMap<(UserKey, SetId), Penalty>,
    /// Consents that were taken or revoked.
    pub(in crate::store) consents: BTreeMap<ConsentId, StoredConsent>,
    /// Block lists.
    pub(in crate::store) block_lists: BTreeMap<UserKey, StoredBlockList>,
    pub(in crate::store) ratings: BTreeMap<(UserKey, RatingKey), RatingRow>,
    /// Match activity by rating key, from users whose ratings were not read. Empty if all rows are present.
    pub(in crate::store) activity_of_other_users: BTreeMap<RatingKey, AllUsersMatchActivity>,
    /// Match results.
    pub(in crate::store) results: HashMap<MatchId, Arc<MatchResult>, BuildIdHasher>,
    /// Rating history entries by slot. If only part of the rows was read: the entries that the batch writes.
    pub(in crate::store) rating_changes: BTreeMap<(UserKey, RatingKey, u32), RatingHistoryEntry>,
    /// First scale of each set. Not read for a batch.
    pub(in crate::store) first_scales: BTreeMap<SetId, FirstRatingScaleOfSet>,
    /// Names of users in logs. Not read for a batch.
    pub(in crate::store) log_names: BTreeMap<UserKey, [u8; 16]>,
    /// Users whose remaining rows are to be deleted.
    pub(in crate::store) erased_users: BTreeSet<UserKey>,
    /// Stars and time of each player's feedback on a match.
    pub(in crate::store) feedback: BTreeMap<(MatchId, UserKey), (u8, UnixMs)>,
}

impl QueueRows {
    pub(in crate::store) fn add_ticket_user(&mut self, user: UserKey, membership: TicketMembership) {
        self.tickets_by_user.entry(user).or_default().push(membership);
    }

    pub(in crate::store) fn add_match_user(&mut self, user: UserKey, match_id: MatchId) {
        self.match_by_user.insert(user, match_id);
        self.users_by_match.entry(match_id).or_default().insert(user);
    }

    /// Removes a user from a match; no effect if the user is not in it.
    pub(in crate::store) fn remove_match_user(&mut self, user: UserKey, match_id: MatchId) {
        if let Some(users) = self.users_by_match.get_mut(&match_id)
            && users.remove(&user)
        {
            self.match_by_user.remove(&user);
            if users.is_empty() {
                self.users_by_match.remove(&match_id);
            }
        }
    }

    /// Removes the users of an ended ticket from its queue.
    pub(in crate::store) fn remove_ticket_users(&mut self, ticket: &Ticket) {
        for user in ticket.session.sorted_users() {
            if let Some(memberships) = self.tickets_by_user.get_mut(&user) {
                memberships.retain(|membership| membership.ticket_id != ticket.id);
                if memberships.is_empty() {
                    self.tickets_by_user.remove(&user);
                }
            }
        }
    }

    /// Removes the membership of a user who left the match of the ticket. The ticket itself stays.
    pub(in crate::store) fn remove_ticket_user(&mut self, user: UserKey, ticket_id: TicketId) {
        if let Some(memberships) = self.tickets_by_user.get_mut(&user) {
            memberships.retain(|membership| membership.ticket_id != ticket_id);
            if memberships.is_empty() {
                self.tickets_by_user.remove(&user);
            }
        }
    }

    /// Tickets, match and penalties of a user.
    pub(in crate::store) fn tickets_match_and_penalties(&self, user: UserKey) -> UserTicketsMatchAndPenalties {
        let mut tickets = self.tickets_by_user.get(&user).cloned().unwrap_or_default();
        tickets.sort_unstable_by_key(|membership| membership.ticket_id);
        let penalties = self.penalties.range((user, SetId(0))..=(user, SetId(u32::MAX)));
        UserTicketsMatchAndPenalties {
            tickets,
            match_id: self.match_by_user.get(&user).copied(),
            penalties: penalties.map(|((_, set_id), penalty)| (*set_id, *penalty)).collect(),
        }
    }

    /// Removes rows that are due to be purged by `now`.
    pub(in crate::store) fn purge(&mut self, now: UnixMs) {
        self.tickets.retain(|_, stored| stored.purge_at().is_none_or(|purge_at| now < purge_at));
        self.matches.retain(|_, found| match_purge_at(found).is_none_or(|purge_at| now < purge_at));
        self.penalties.retain(|_, penalty| now < penalty.expires_at());
        self.consents.retain(|_, consent| now < consent.expires_at.plus_ms(CONSENT_RETENTION_AFTER_EXPIRY_MS));
        self.results.retain(|_, result| now < result.reported_at.plus_ms(RESULT_RETENTION_MS));
        self.feedback.retain(|_, (_, given_at)| now < given_at.plus_ms(RESULT_RETENTION_MS));
    }
}

/// When a match may be purged, if it has ended.
pub(in crate::store) fn match_purge_at(found: &Match) -> Option<UnixMs> {
    match found.stage {
        MatchStage::Ended { purge_at, .. } => Some(purge_at),
        MatchStage::ReadyCheck { .. }
        | MatchStage::Placing { .. }
        | MatchStage::Confirming { .. }
        | MatchStage::Playing { .. } => None,
    }
}

pub(in crate::store) fn queue_key(ticket: &Ticket) -> QueueKey {
    QueueKey { set_id: ticket.set_id, silo: ticket.session.silo }
}

/// Users in a match who have not left it.
pub(in crate::store) fn present_users(found: &Match) -> BTreeSet<UserKey> {
    found.present_players().map(|(_, player)| player.user).collect()
}
