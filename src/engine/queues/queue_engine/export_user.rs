//! Export of what is kept about one user, and the user's name in logs.

use crate::domain::id::{AdvertisementId, MatchId, RatingKey, SetId, TicketId, UserKey};
use crate::domain::time::UnixMs;
use crate::engine::error::EngineError;
use crate::engine::queues::operator_command::{
    EXPORTED_FEEDBACK_MAX, EXPORTED_ROWS_PER_KIND_MAX, ExportedRating, UserExportPage,
};
use crate::engine::queues::queue_engine::QueueEngine;
use crate::engine::queues::queue_engine::match_results::log_and_return_unavailable;
use crate::store::queues::UserTicketsMatchAndPenalties;
use crate::store::user_data::UserRowKind;

impl QueueEngine {
    /// Time by the server's clock.
    pub fn now(&self) -> UnixMs {
        self.shared.common.clock.now()
    }

    /// Page of what is kept about a user: everything but results on the first page, and at most `max` results after `after`.
    pub async fn export_user_page(
        &self,
        user: UserKey,
        after: Option<MatchId>,
        max: usize,
    ) -> Result<UserExportPage, EngineError> {
        let _one_at_a_time = self.shared.user_data_scan_lock.lock().await;
        let unavailable = |error: crate::store::StoreError| log_and_return_unavailable(&error);
        let store = &self.shared.common.store;
        let first = [0; 16];
        let from = after.map_or(first, |id| *id.as_bytes());
        let mut ids = self.user_row_ids(user, UserRowKind::Result, from, max + 1).await?;
        let has_more = ids.len() > max;
        ids.truncate(max);
        let mut export = UserExportPage {
            user,
            log_name: store.get_or_insert_user_log_name(user, None).await.map_err(unavailable)?,
            ratings: Vec::new(),
            penalties: Vec::new(),
            tickets: Vec::new(),
            adverts: Vec::new(),
            feedback: Vec::new(),
            matches_without_result: Vec::new(),
            results: Vec::with_capacity(ids.len()),
            blocked_users: Vec::new(),
            has_more,
        };
        for id in ids {
            let id = MatchId::from_bytes(id);
            let Some(result) = store.read_match_result(id).await.map_err(unavailable)? else { continue };
            // A result is kept longer than its match.
            let kept = store.read_match(id).await.map_err(unavailable)?;
            export.results.push((result, kept.map(|match_| match_.chosen_values.clone()).unwrap_or_default()));
        }
        if after.is_none() {
            let blocked = self.shared.common.block_lists.read().list_of(user).cloned();
            export.blocked_users.extend(blocked.iter().flat_map(|blocked| blocked.iter().copied()));
            export.penalties = store.read_tickets_match_and_penalties(user).await.map_err(unavailable)?.penalties;
            let rows = self.shared.ratings.lock().ratings_of(user);
            for row in rows {
                let changes = store.read_rating_changes(user, row.key).await.map_err(unavailable)?;
                export.ratings.push(ExportedRating { row, sets: self.sets_rated_by(row.key), changes });
            }
            let earliest = MatchId::from_bytes(first);
            let feedback = store.read_given_feedback(user, earliest, EXPORTED_FEEDBACK_MAX).await;
            export.feedback = feedback.map_err(unavailable)?;
            for id in self.user_row_ids(user, UserRowKind::Ticket, first, EXPORTED_ROWS_PER_KIND_MAX).await? {
                export.tickets.extend(self.shared.cache.read().ticket(TicketId::from_bytes(id)).cloned());
            }
            for id in self.user_row_ids(user, UserRowKind::Advertisement, first, EXPORTED_ROWS_PER_KIND_MAX).await? {
                export
                    .adverts
                    .extend(self.shared.adverts.advert_with_reservations_of(AdvertisementId::from_bytes(id), user));
            }
            for id in self.user_row_ids(user, UserRowKind::Match, first, EXPORTED_ROWS_PER_KIND_MAX).await? {
                let id = MatchId::from_bytes(id);
                if store.read_match_result(id).await.map_err(unavailable)?.is_none() {
                    export.matches_without_result.extend(store.read_match(id).await.map_err(unavailable)?);
                }
            }
        }
        Ok(export)
    }

    /// Sets whose rulesets use the ratings with `key` now.
    fn sets_rated_by(&self, key: RatingKey) -> Vec<SetId> {
        let catalog = self.shared.common.rulesets.snapshot();
        let mut sets: Vec<SetId> = catalog.active.keys().chain(catalog.retiring.keys()).copied().collect();
        sets.sort_unstable();
        sets.dedup();
        let ratings = self.shared.ratings.lock();
        sets.retain(|set_id| {
            let rating = catalog.ruleset_in_force(*set_id).and_then(|ruleset| ratings.keyed_spec_of_ruleset(ruleset));
            rating.is_some_and(|rating| rating.key == key)
        });
        sets
    }

    /// Name of a user in logs. A user without one gets one; it is not kept if nothing else about the user is.
    pub async fn existing_or_new_log_name(&self, user: UserKey) -> Result<[u8; 16], EngineError> {
        let (store, new_name) = (&self.shared.common.store, self.shared.common.clock.random_bytes());
        let has_ratings = !self.shared.ratings.lock().ratings_of(user).is_empty();
        let has_block_list = self.shared.common.block_lists.read().list_of(user).is_some();
        let is_known = has_ratings
            || has_block_list
            || store
                .read_tickets_match_and_penalties(user)
                .await
                .map_err(|error| log_and_return_unavailable(&error))?
                != UserTicketsMatchAndPenalties::default();
        let name = store.get_or_insert_user_log_name(user, is_known.then_some(new_name)).await;
        Ok(name.map_err(|error| log_and_return_unavailable(&error))?.unwrap_or(new_name))
    }

    /// Name of a user in logs; a random one for a user without one, which is not kept.
    pub async fn existing_or_random_log_name(&self, user: UserKey) -> Result<[u8; 16], EngineError> {
        let name = self.shared.common.store.get_or_insert_user_log_name(user, None).await;
        let new_name = self.shared.common.clock.random_bytes();
        Ok(name.map_err(|error| log_and_return_unavailable(&error))?.unwrap_or(new_name))
    }
}
