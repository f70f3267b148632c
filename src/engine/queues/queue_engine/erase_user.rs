//! Erasure of a user: the user leaves every ticket and match, becomes a random key in the records of others, and all rows of
//! the user's own are removed.

use crate::auth::public_user_keys::KeyPurpose;
use crate::domain::id::{AdvertisementId, MatchId, RatingKey, TicketId, UserKey};
use crate::engine::error::EngineError;
use crate::engine::queues::operator_command::EraseUserChangedRecords;
use crate::engine::queues::queue_engine::QueueEngine;
use crate::engine::queues::queue_engine::match_results::log_and_return_unavailable;
use crate::engine::writer_inbox::RETRY_AFTER_MS;
use crate::store::queues::{
    ERASED_ROWS_PER_KIND_MAX, QueueOutcome, QueueWrite, UserErasure, UserTicketsMatchAndPenalties,
};
use crate::store::user_data::UserRowKind;

/// Maximum rounds: a player whose game still runs may enter again meanwhile.
const ROUNDS_MAX: usize = 4;

impl QueueEngine {
    /// Erases a user, who is known to advertisements as `callers`. Idempotent. Continues if the caller stops waiting.
    pub async fn erase_user(
        &self,
        user: UserKey,
        callers: Vec<UserKey>,
    ) -> Result<EraseUserChangedRecords, EngineError> {
        let engine = self.clone();
        let task = tokio::spawn(async move { engine.erase_user_to_the_end(user, &callers).await });
        task.await.unwrap_or(Err(EngineError::Internal))
    }

    async fn erase_user_to_the_end(
        &self,
        user: UserKey,
        callers: &[UserKey],
    ) -> Result<EraseUserChangedRecords, EngineError> {
        let _one_at_a_time = self.shared.user_data_scan_lock.lock().await;
        let number = self.keep_in_erasure_log(user, callers).await?;
        let answer = self.erase_in_rounds(user, callers).await?;
        self.record_finished(number).await?;
        Ok(answer)
    }

    /// Erases again the users whose erasures this store has not finished: it was restored from a backup, or a server ended in
    /// between. Returns their number. Called before the first client call; several servers may do so.
    pub async fn repeat_kept_erasures(&self) -> Result<usize, EngineError> {
        let common = &self.shared.common;
        let Some(log) = &common.erasure_log else { return Ok(0) };
        let _one_at_a_time = self.shared.user_data_scan_lock.lock().await;
        let content = log.content();
        let read = common.store.read_erasure_position(log.file_id()).await;
        let position = read.map_err(|error| log_and_return_unavailable(&error))?;
        if content.has_dropped_after(position) {
            tracing::error!(
                position,
                "erasures lost, the erasure log no longer has them; erase again by your own records whom this backup names"
            );
        }
        let pending = content.after(position);
        for erasure in pending {
            let user_of =
                |key: [u8; 16]| common.public_user_keys.user_of(KeyPurpose::ErasureLog, UserKey::from_bytes(key));
            let callers: Vec<UserKey> = erasure.publishers.iter().copied().map(user_of).collect();
            match self.erase_in_rounds(user_of(erasure.user), &callers).await {
                // At another server the user has entered again, which is new data.
                Ok(_) | Err(EngineError::Overloaded { .. }) => self.record_finished(Some(erasure.number)).await?,
                Err(error) => return Err(error),
            }
        }
        Ok(pending.len())
    }

    /// Adds an erasure to the file, before it begins. Returns its number there.
    async fn keep_in_erasure_log(&self, user: UserKey, callers: &[UserKey]) -> Result<Option<u64>, EngineError> {
        let common = &self.shared.common;
        let Some(log) = common.erasure_log.clone() else { return Ok(None) };
        let key_of = |user: UserKey| *common.public_user_keys.public_key(KeyPurpose::ErasureLog, user).as_bytes();
        let (user, callers): (_, Vec<_>) = (key_of(user), callers.iter().copied().map(key_of).collect());
        let now = common.clock.now();
        let written = tokio::task::spawn_blocking(move || log.append(now, user, &callers)).await;
        let number = written.map_err(|_| EngineError::Internal)?.map_err(|error| log_and_return_unavailable(&error))?;
        Ok(Some(number))
    }

    /// Records in the store that an erasure of the file is finished.
    async fn record_finished(&self, number: Option<u64>) -> Result<(), EngineError> {
        let common = &self.shared.common;
        let (Some(log), Some(number)) = (&common.erasure_log, number) else { return Ok(()) };
        let recorded = common.store.record_erasure_position(log.file_id(), number).await;
        recorded.map_err(|error| log_and_return_unavailable(&error))
    }

    /// Erases a user while calls in progress may write more about the user.
    async fn erase_in_rounds(
        &self,
        user: UserKey,
        callers: &[UserKey],
    ) -> Result<EraseUserChangedRecords, EngineError> {
        let shared = &self.shared;
        let store = &shared.common.store;
        // A crash in between leaves a request behind, so that the next start cleans up.
        store
            .request_erasure_cleanup(shared.common.clock.now())
            .await
            .map_err(|error| log_and_return_unavailable(&error))?;
        let seed = shared.common.clock.random_bytes();
        let erasure = UserErasure {
            user,
            seed,
            tickets: Vec::new(),
            matches: Vec::new(),
            block_list_owners: Vec::new(),
            removes_own_rows: false,
        };
        let mut answer = EraseUserChangedRecords::default();
        let mut is_quiet = false;
        for _ in 0..ROUNDS_MAX {
            let before = answer;
            let has_left_all = self.leave_tickets_and_matches(user).await?;
            shared.adverts.delete_sessions_of_erased_user(user, callers).await?;
            let has_published = self.delete_published_by(callers).await?;
            let was_in_advertisements = self.erase_from_advertisements(user, seed).await?;
            self.erase_from_rows(&erasure, &mut answer).await?;
            let is_member =
                self.write_erasure(UserErasure { removes_own_rows: true, ..erasure.clone() }, &mut answer).await?;
            // What a call in progress has written meanwhile is found by a further round.
            let was_advertised = has_published || was_in_advertisements;
            is_quiet = has_left_all && !is_member && !was_advertised && answer == before;
            if is_quiet {
                break;
            }
        }
        shared.connected_users.lock().forget(user);
        store
            .request_erasure_cleanup(shared.common.clock.now())
            .await
            .map_err(|error| log_and_return_unavailable(&error))?;
        store.clean_up_erasures().await.map_err(|error| log_and_return_unavailable(&error))?;
        if !is_quiet && self.has_ticket_or_match(user).await? {
            return Err(EngineError::Overloaded { retry_after_ms: RETRY_AFTER_MS });
        }
        Ok(answer)
    }

    /// Takes the user out of all tickets and matches. Returns whether there were none.
    async fn leave_tickets_and_matches(&self, user: UserKey) -> Result<bool, EngineError> {
        let stored = self.read_tickets_match_and_penalties(user).await?;
        for membership in &stored.tickets {
            match self.end_ticket_or_leave_match(membership.ticket_id, &[user], Some(user)).await {
                // It has ended and was forgotten since the read.
                Ok(_) | Err(EngineError::TicketNotFound | EngineError::MatchNotFound) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(stored.tickets.is_empty() && stored.match_id.is_none())
    }

    async fn read_tickets_match_and_penalties(
        &self,
        user: UserKey,
    ) -> Result<UserTicketsMatchAndPenalties, EngineError> {
        let stored = self.shared.common.store.read_tickets_match_and_penalties(user).await;
        stored.map_err(|error| log_and_return_unavailable(&error))
    }

    async fn has_ticket_or_match(&self, user: UserKey) -> Result<bool, EngineError> {
        let stored = self.read_tickets_match_and_penalties(user).await?;
        Ok(!stored.tickets.is_empty() || stored.match_id.is_some())
    }

    /// Deletes the advertisements in the store that `callers` publish, also those that this server does not have. Returns whether
    /// there were any.
    async fn delete_published_by(&self, callers: &[UserKey]) -> Result<bool, EngineError> {
        let mut were_any = false;
        for caller in callers {
            let mut after = [0; 16];
            loop {
                let ids =
                    self.user_row_ids(*caller, UserRowKind::Advertisement, after, ERASED_ROWS_PER_KIND_MAX).await?;
                let Some(last) = ids.last() else { break };
                (were_any, after) = (true, *last);
                for id in ids {
                    self.shared.adverts.delete_by_id(AdvertisementId::from_bytes(id)).await?;
                }
            }
        }
        Ok(were_any)
    }

    /// Replaces the user in advertisements and reservations, and releases the user's seats. Returns whether one named the
    /// user.
    async fn erase_from_advertisements(&self, user: UserKey, seed: [u8; 16]) -> Result<bool, EngineError> {
        let (mut was_named, mut after) = (false, [0; 16]);
        loop {
            let ids = self.user_row_ids(user, UserRowKind::Advertisement, after, ERASED_ROWS_PER_KIND_MAX).await?;
            let Some(last) = ids.last() else { return Ok(was_named) };
            after = *last;
            for id in ids.into_iter().map(AdvertisementId::from_bytes) {
                was_named |= self.shared.adverts.erase_from_advertisement(id, user, seed).await?;
            }
        }
    }

    /// Replaces the user in the tickets, matches, results and feedback that name it, and removes it from block lists.
    async fn erase_from_rows(
        &self,
        erasure: &UserErasure,
        answer: &mut EraseUserChangedRecords,
    ) -> Result<(), EngineError> {
        use UserRowKind::{BlockList, Feedback, Match, Result, Ticket};
        for kind in [Match, Result, Feedback, Ticket, BlockList] {
            let mut after = [0; 16];
            loop {
                let ids = self.user_row_ids(erasure.user, kind, after, ERASED_ROWS_PER_KIND_MAX).await?;
                let Some(last) = ids.last() else { break };
                after = *last;
                let mut write = erasure.clone();
                if kind == Ticket {
                    write.tickets = ids.into_iter().map(TicketId::from_bytes).collect();
                } else if kind == BlockList {
                    write.block_list_owners = ids.into_iter().map(UserKey::from_bytes).collect();
                } else {
                    for id in ids.into_iter().map(MatchId::from_bytes) {
                        write.matches.push((id, self.rating_key_of_match(id).await?));
                    }
                }
                self.write_erasure(write, answer).await?;
            }
        }
        Ok(())
    }

    /// Ids of rows that name the user.
    pub(super) async fn user_row_ids(
        &self,
        user: UserKey,
        kind: UserRowKind,
        after: [u8; 16],
        max: usize,
    ) -> Result<Vec<[u8; 16]>, EngineError> {
        let found = self.shared.common.store.find_user_rows(kind, user, after, max).await;
        found.map_err(|error| log_and_return_unavailable(&error))
    }

    /// Ratings that a match counts for.
    async fn rating_key_of_match(&self, id: MatchId) -> Result<Option<RatingKey>, EngineError> {
        let stored =
            self.shared.common.store.read_match(id).await.map_err(|error| log_and_return_unavailable(&error))?;
        let Some(found) = stored else { return Ok(None) };
        self.shared.wait_for_ruleset(found.set_id, found.ruleset_hash).await;
        Ok(self.rating_spec_for_match(&found).map(|rating| rating.key))
    }

    /// Writes one part of an erasure. Returns whether the user is a member of one of its rows.
    async fn write_erasure(
        &self,
        erasure: UserErasure,
        answer: &mut EraseUserChangedRecords,
    ) -> Result<bool, EngineError> {
        match self.shared.submit_write(QueueWrite::EraseUser(erasure)).await? {
            QueueOutcome::UserErased { tickets, matches, results, is_member, .. } => {
                let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
                answer.tickets = answer.tickets.saturating_add(count(tickets.len()));
                answer.matches = answer.matches.saturating_add(count(matches.len()));
                answer.results = answer.results.saturating_add(results);
                Ok(is_member)
            }
            _ => Err(EngineError::Internal),
        }
    }
}
