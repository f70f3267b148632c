//! Data of one user in the in-memory store.

use std::collections::BTreeSet;

use async_trait::async_trait;

use crate::domain::erasure::UserKeyReplacement;
use crate::domain::id::{MatchId, UserKey};
use crate::domain::time::UnixMs;
use crate::store::adverts::UserTraces;
use crate::store::error::StoreError;
use crate::store::memory::MemoryStore;
use crate::store::queues::queue_rows::QueueRows;
use crate::store::user_data::{GivenFeedback, UserDataStore, UserRowKind};

#[async_trait]
impl UserDataStore for MemoryStore {
    async fn find_user_rows(
        &self,
        kind: UserRowKind,
        user: UserKey,
        after: [u8; 16],
        limit: usize,
    ) -> Result<Vec<[u8; 16]>, StoreError> {
        let mut ids = if kind == UserRowKind::Advertisement {
            let traces = UserTraces::of_user(user);
            let rows = self.lock_adverts();
            let named = rows.reservations.values().filter(|reservation| reservation.names_user(&traces));
            let mut ids: BTreeSet<_> = named.map(|reservation| *reservation.advertisement_id.as_bytes()).collect();
            let names = UserKeyReplacement { user, key: UserKey::of_erased(&[0; 16], &[0; 16]) };
            let adverts = rows.advertisements.iter();
            let named = adverts.filter(|(_, row)| {
                row.new_advertisement.as_ref().is_some_and(|known| {
                    known.publisher == Some(user) || names.erase_from_advertisement(known).is_some()
                })
            });
            ids.extend(named.map(|(id, _)| *id.as_bytes()));
            ids.into_iter().collect()
        } else {
            ids_naming(&self.lock_queues(), kind, user)
        };
        ids.retain(|id| after < *id);
        ids.sort_unstable();
        ids.truncate(limit);
        Ok(ids)
    }

    async fn read_given_feedback(
        &self,
        user: UserKey,
        after: MatchId,
        limit: usize,
    ) -> Result<Vec<GivenFeedback>, StoreError> {
        let rows = self.lock_queues();
        let given = rows.feedback.iter().filter(|((id, giver), _)| *giver == user && after < *id);
        let feedback = given
            .map(|((match_id, _), (stars, given_at))| GivenFeedback {
                match_id: *match_id,
                stars: *stars,
                given_at: *given_at,
            })
            .take(limit);
        Ok(feedback.collect())
    }

    async fn get_or_insert_user_log_name(
        &self,
        user: UserKey,
        new_name: Option<[u8; 16]>,
    ) -> Result<Option<[u8; 16]>, StoreError> {
        let mut rows = self.lock_queues();
        if let Some(new_name) = new_name {
            rows.log_names.entry(user).or_insert(new_name);
        }
        Ok(rows.log_names.get(&user).copied())
    }

    async fn request_erasure_cleanup(&self, _: UnixMs) -> Result<(), StoreError> {
        Ok(())
    }

    async fn clean_up_erasures(&self) -> Result<bool, StoreError> {
        self.lock_queues().erased_users.clear();
        Ok(true)
    }

    async fn record_user_key_secret_id(&self, secret_id: i64) -> Result<i64, StoreError> {
        Ok(secret_id)
    }

    /// Always 0: a process has no erasures of before.
    async fn read_erasure_position(&self, _: u64) -> Result<u64, StoreError> {
        Ok(0)
    }

    async fn record_erasure_position(&self, _: u64, _: u64) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Ids of the rows of a kind that name `user`.
fn ids_naming(rows: &QueueRows, kind: UserRowKind, user: UserKey) -> Vec<[u8; 16]> {
    let names = UserKeyReplacement { user, key: UserKey::of_erased(&[0; 16], &[0; 16]) };
    match kind {
        UserRowKind::Ticket => {
            let named = rows.tickets.values().filter(|stored| names.erase_from_ticket(&stored.ticket).is_some());
            named.map(|stored| *stored.ticket.id.as_bytes()).collect()
        }
        UserRowKind::Match => {
            let named = rows.matches.values().filter(|found| names.erase_from_match(found, None).is_some());
            named.map(|found| *found.id.as_bytes()).collect()
        }
        UserRowKind::Result => {
            let named = rows.results.iter().filter(|(_, result)| names.erase_from_result(result).is_some());
            named.map(|(id, _)| *id.as_bytes()).collect()
        }
        UserRowKind::BlockList => {
            let named = rows.block_lists.values().filter(|list| list.blocked.contains(&user));
            named.map(|list| *list.user.as_bytes()).collect()
        }
        // They are in the rows of advertisements.
        UserRowKind::Advertisement => Vec::new(),
        UserRowKind::Feedback => {
            let given = rows.feedback.keys().filter(|(_, giver)| *giver == user);
            given.map(|(id, _)| *id.as_bytes()).collect()
        }
    }
}
