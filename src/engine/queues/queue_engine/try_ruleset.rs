//! Trial of a ruleset on the tickets that wait now, without loading it.

use std::sync::Arc;

use crate::domain::id::{SetId, SiloId, TicketId};
use crate::domain::queue::trial::{RulesetTrial, try_ruleset};
use crate::domain::ruleset::Ruleset;
use crate::domain::time::UnixMs;
use crate::engine::error::EngineError;
use crate::engine::queues::queue_engine::QueueEngine;
use crate::engine::queues::ruleset_trial::{RulesetTrialAnswer, TRIED_TICKETS_MAX};
use crate::engine::queues::shared_state::SharedState;
use crate::engine::queues::snapshot::{PreparedTicketCache, QueueSnapshot};
use crate::store::queues::QueueKey;

impl QueueEngine {
    /// Tries `ruleset` on the longest waiting tickets of its set, beside the set's current ruleset. Runs on a blocking thread; one trial
    /// at a time.
    pub async fn try_ruleset(
        &self,
        ruleset: Arc<Ruleset>,
        silo: Option<SiloId>,
    ) -> Result<RulesetTrialAnswer, EngineError> {
        let set_id = ruleset.set_id;
        let current = self.shared.common.current_or_cached_ruleset(set_id, None)?;
        if current.queue.is_none() || ruleset.queue.is_none() {
            return Err(EngineError::NoQueue(set_id));
        }
        let only_trial = Arc::clone(&self.shared.ruleset_trial_lock).lock_owned().await;
        let silo = silo.unwrap_or_else(|| self.silo_with_most_tickets(set_id));
        let (shared, key) = (Arc::clone(&self.shared), QueueKey { set_id, silo });
        let result = tokio::task::spawn_blocking(move || {
            // Also after the caller has gone: the next trial waits for this one.
            let _only_trial = only_trial;
            let now = shared.common.clock.now();
            let (tickets, is_truncated) = longest_waits(&shared, key, now);
            let trial_by = |ruleset: &Arc<Ruleset>| trial_of(&shared, key, ruleset, now);
            let (of_current, of_tried) = (trial_by(&current), trial_by(&ruleset));
            let (current, tried) = ((current, of_current), (ruleset, of_tried));
            RulesetTrialAnswer { silo, tickets, is_truncated, current, tried }
        });
        result.await.map_err(|_| EngineError::Internal)
    }

    /// Silo in which most tickets of a set wait; the first one if none waits.
    fn silo_with_most_tickets(&self, set_id: SetId) -> SiloId {
        let cache = self.shared.cache.read();
        let queues = cache.queues().filter(|(key, _)| key.set_id == set_id);
        queues.max_by_key(|(_, index)| index.waiting_ticket_count()).map_or(SiloId::default(), |(key, _)| key.silo)
    }
}

/// The longest waiting tickets with their waits in milliseconds, and whether more wait.
fn longest_waits(shared: &SharedState, key: QueueKey, now: UnixMs) -> (Vec<(TicketId, u64)>, bool) {
    let cache = shared.cache.read();
    let Some(index) = cache.queue_index(key) else { return (Vec::new(), false) };
    let longest = index.waiting_tickets().take(TRIED_TICKETS_MAX);
    let waits = longest.map(|(entered_at, id)| (id, now.ms_since(entered_at))).collect();
    (waits, TRIED_TICKETS_MAX < index.waiting_ticket_count())
}

fn trial_of(shared: &SharedState, key: QueueKey, ruleset: &Arc<Ruleset>, now: UnixMs) -> RulesetTrial {
    let Some(queue) = ruleset.queue.as_ref() else { return RulesetTrial::default() };
    let mut prepared = PreparedTicketCache::default();
    let snapshot =
        QueueSnapshot::take_longest_waiting(shared, (key, TRIED_TICKETS_MAX), ruleset, queue, &mut prepared, now);
    snapshot.with_pass_input(try_ruleset).unwrap_or_default()
}
