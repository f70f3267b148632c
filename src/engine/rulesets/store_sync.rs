//! Comparison of the rulesets with their copies in the store: writes copies, loads those that matches need, and ends the
//! grace periods of retired sets.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::domain::id::{SetId, TicketId};
use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::load::RulesetLoad;
use crate::domain::time::UnixMs;
use crate::engine::common::Common;
use crate::engine::error::{EngineError, RetireObstacle};
use crate::engine::queues::QueueEngine;
use crate::engine::queues::queue_engine::ruleset_use::RulesetUsage;
use crate::engine::rulesets::activator::RulesetActivator;
use crate::engine::rulesets::report::RetiredSetCounts;
use crate::engine::rulesets::stored_copies::{
    ParsedCopies, RulesetRetention, keep_rulesets_of_matches, merge_copies, ruleset_to_report, rulesets_to_report,
};
use crate::engine::startup_retry::retry_at_startup;
use crate::engine::writer_inbox::RETRY_AFTER_MS;
use crate::rules::catalog::{ActiveRuleset, CatalogState};
use crate::store::StoreError;
use crate::store::ruleset_copies::{RulesetCopy, RulesetKey, RulesetReport};

/// Interval at which deadlines of retiring sets are checked.
const DUE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Pause before a requested comparison; several requests share one.
const SYNC_REQUEST_DEBOUNCE: Duration = Duration::from_millis(20);

/// Interval at which a server of a shared store reports its rulesets. A set counts as removed only while none reports it.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);

/// Minimum removal grace period on a shared store, milliseconds: three reports.
const SHARED_REMOVAL_GRACE_MIN_MS: u64 = 15_000;

/// Interval between purges of unused copies.
const PURGE_INTERVAL: Duration = Duration::from_secs(60);

/// Minimum age of a purged copy, milliseconds.
const PURGED_COPY_AGE_MIN_MS: u64 = 60_000;

/// Maximum tickets that one comparison ends.
const ENDED_TICKETS_MAX: usize = 1_000;

/// Compares rulesets with their copies in the store, and retires sets.
#[derive(Debug)]
pub(crate) struct RulesetStoreSync {
    common: Arc<Common>,
    activator: Arc<RulesetActivator>,
    queues: QueueEngine,
    /// Held during a comparison.
    state: Mutex<SyncState>,
}

/// State between comparisons.
#[derive(Debug, Default)]
pub(crate) struct SyncState {
    parsed: ParsedCopies,
    /// Copies as last read.
    copies: Vec<RulesetCopy>,
    reported_at: Option<Instant>,
    purged_at: Option<Instant>,
    /// The last comparison failed, and the failure was logged.
    has_failed: bool,
}

/// Reports the active rulesets and loads the copies of others, before advertisements and queues are loaded.
pub(crate) async fn load_copies_at_start(common: &Common) -> Result<SyncState, StoreError> {
    let mut state = SyncState::default();
    let copies = retry_at_startup("report rulesets", async || {
        let (active, _) = rulesets_to_report(&common.rulesets.snapshot());
        let report = RulesetReport { active, now: common.clock.now(), ..RulesetReport::default() };
        common.store.apply_ruleset_report(&report).await
    })
    .await?;
    state.parsed.update(&copies, &common.rulesets.snapshot());
    let retention = ruleset_retention(common);
    let now = common.clock.now();
    common.rulesets.update_state(|catalog| {
        merge_copies(catalog, &copies, &state.parsed, (None, &BTreeSet::new()), retention, now);
    });
    for retiring in common.rulesets.snapshot().retiring.values() {
        let (set_id, ends_in_ms) = (retiring.ruleset.set_id, retiring.ends_at.ms_since(now));
        tracing::warn!(%set_id, ends_in_ms, "ruleset loaded from the store, its file is missing");
    }
    state.copies = copies;
    Ok(state)
}

/// Removal grace period. On a shared store it covers the reports of the other servers.
pub(crate) fn removal_grace_ms(common: &Common) -> u64 {
    let configured = common.settings.ruleset_removal_grace_ms;
    if common.store_health.is_some() { configured.max(SHARED_REMOVAL_GRACE_MIN_MS) } else { configured }
}

fn ruleset_retention(common: &Common) -> RulesetRetention {
    RulesetRetention {
        removal_grace_ms: removal_grace_ms(common),
        keep_retired_ms: common.settings.retired_ruleset_retention_ms,
    }
}

impl RulesetStoreSync {
    /// Sync that continues from the state of the start.
    pub(crate) fn new(
        common: Arc<Common>,
        activator: Arc<RulesetActivator>,
        queues: QueueEngine,
        state: SyncState,
    ) -> Self {
        Self { common, activator, queues, state: Mutex::new(state) }
    }

    /// Compares when requested, and when a report, a purge or the end of a grace period is due, until stopped.
    pub(crate) async fn run(self: Arc<Self>, shutdown: CancellationToken) {
        let mut is_requested = true;
        loop {
            if is_requested || self.is_due().await {
                self.sync_now().await;
            }
            is_requested = tokio::select! {
                () = shutdown.cancelled() => return,
                () = self.common.ruleset_sync_requests.notified() => true,
                () = tokio::time::sleep(DUE_CHECK_INTERVAL) => false,
            };
            // Requests repeat while the store is unavailable, or while a write of a ticket's end fails.
            let pause = match (is_requested, self.state.lock().await.has_failed) {
                (false, _) => continue,
                (true, true) => DUE_CHECK_INTERVAL,
                (true, false) => SYNC_REQUEST_DEBOUNCE,
            };
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    async fn is_due(&self) -> bool {
        let catalog = self.common.rulesets.snapshot();
        let now = self.common.clock.now();
        let state = self.state.lock().await;
        let is_older = |time: Option<Instant>, age: Duration| time.is_none_or(|time| time + age <= Instant::now());
        let is_shared = self.common.store_health.is_some();
        let has_ended =
            !catalog.retiring.is_empty() && !self.sets_to_retire(&state, &self.queues.ruleset_usage(), now).is_empty();
        let has_more_copies = state.copies.len() > catalog.active.len();
        state.has_failed
            || has_ended
            || (is_shared && is_older(state.reported_at, REPORT_INTERVAL))
            || (has_more_copies && is_older(state.purged_at, PURGE_INTERVAL))
    }

    /// Writes copies of rulesets that are about to become active, so that the first ticket can enter at once. After a
    /// failure tickets are refused until a later comparison has written them.
    pub(crate) async fn write_copies(&self, rulesets: &[(PathBuf, Arc<Ruleset>)], load: &RulesetLoad) {
        let now = load.at;
        // The rulesets until now were active until now, so their copies are not purged yet.
        let catalog = self.common.rulesets.snapshot();
        let (until_now, _) = rulesets_to_report(&catalog);
        let before =
            RulesetReport { active: until_now, now: UnixMs(now.0.saturating_sub(1)), ..RulesetReport::default() };
        let load_of = |ruleset: &Ruleset| {
            let is_active = |active: &ActiveRuleset| active.ruleset.hash == ruleset.hash;
            let known = catalog.active.get(&ruleset.set_id).filter(|active| is_active(active));
            known.map_or_else(|| Some(load.clone()), |_| catalog.load_of(ruleset).cloned())
        };
        let active = rulesets.iter().map(|(file, ruleset)| ruleset_to_report(file, ruleset, load_of(ruleset)));
        let report = RulesetReport { active: active.collect(), now, ..RulesetReport::default() };
        let store = &self.common.store;
        let written = match store.apply_ruleset_report(&before).await {
            Ok(_) => store.apply_ruleset_report(&report).await,
            Err(error) => Err(error),
        };
        match written {
            Ok(copies) => self.common.rulesets.update_state(|catalog| {
                catalog.durable = copies.iter().map(RulesetCopy::key).collect();
            }),
            Err(error) => {
                tracing::warn!(%error, "failed to write copies of rulesets, their queues accept no tickets yet")
            }
        }
    }

    /// Compares now. A failure is logged once per outage, and the comparison is repeated.
    pub(crate) async fn sync_now(&self) {
        let mut state = self.state.lock().await;
        let is_first_failure = !state.has_failed;
        match self.compare_with_store(&mut state).await {
            Ok(()) => {
                if std::mem::take(&mut state.has_failed) {
                    tracing::info!("comparison of rulesets with their copies in the store recovered");
                }
            }
            Err(error) => {
                state.has_failed = true;
                if is_first_failure {
                    tracing::warn!(%error, "failed to compare rulesets with their copies in the store");
                }
            }
        }
    }

    async fn compare_with_store(&self, state: &mut SyncState) -> Result<(), StoreError> {
        // Tickets before copies: if a set is retired in the copies read afterwards, it was when these tickets waited.
        let usage = self.queues.ruleset_usage();
        let catalog = self.common.rulesets.snapshot();
        let inactive_sets =
            usage.waiting_ticket_count_by_set.keys().filter(|set_id| !catalog.active.contains_key(set_id));
        let waiting = self.queues.waiting_tickets_of_sets(&inactive_sets.copied().collect(), ENDED_TICKETS_MAX);
        let wanted = std::mem::take(&mut *self.common.wanted_rulesets.lock());
        let is_purge_due = state.purged_at.is_none_or(|time| time + PURGE_INTERVAL <= Instant::now());
        let now = self.common.clock.now();
        let (active, removed) = rulesets_to_report(&catalog);
        let report = RulesetReport {
            active,
            removed,
            purge_before: is_purge_due.then(|| self.purge_before(now)),
            now,
            ..RulesetReport::default()
        };
        self.report_and_merge_copies(state, &report, &usage, &wanted).await?;
        (state.reported_at, state.purged_at) =
            (Some(Instant::now()), if is_purge_due { Some(Instant::now()) } else { state.purged_at });
        let sets_to_retire = self.sets_to_retire(state, &usage, now);
        if !sets_to_retire.is_empty() {
            self.retire_sets(state, sets_to_retire, &usage).await?;
        }
        self.end_tickets_without_ruleset(waiting).await;
        self.common
            .metrics
            .rulesets_retired
            .set(i64::try_from(self.common.rulesets.snapshot().retiring.len()).unwrap_or(i64::MAX));
        self.common.ruleset_syncs.send_modify(|count| *count = count.wrapping_add(1));
        if *catalog != *self.common.rulesets.snapshot() {
            self.queues.notify_rulesets_changed();
        }
        Ok(())
    }

    /// Applies a report to the store, and the copies to the catalog and the indexes.
    async fn report_and_merge_copies(
        &self,
        state: &mut SyncState,
        report: &RulesetReport,
        usage: &RulesetUsage,
        wanted: &BTreeSet<RulesetKey>,
    ) -> Result<(), StoreError> {
        let copies = self.common.store.apply_ruleset_report(report).await?;
        state.parsed.update(&copies, &self.common.rulesets.snapshot());
        let live: BTreeSet<RulesetKey> = usage.live_match_count_by_ruleset.keys().copied().collect();
        let retention = ruleset_retention(&self.common);
        let merge = |catalog: &mut CatalogState| {
            merge_copies(catalog, &copies, &state.parsed, (Some(&live), wanted), retention, report.now);
        };
        let before = self.common.rulesets.snapshot();
        match self.activator.change_catalog(merge).await {
            Ok(()) | Err(EngineError::Draining) => {}
            Err(_) => return Err(StoreError::Unavailable("the indexes of rulesets could not be changed".into())),
        }
        for (set_id, hash) in self.common.rulesets.snapshot().unavailable.difference(&before.unavailable) {
            let (live_matches, hash_value) =
                (usage.live_match_count_by_ruleset.get(&(*set_id, *hash)).copied().unwrap_or(0), hash.0);
            tracing::error!(%set_id, hash = hash_value, live_matches, "ruleset of matches not found in the store");
        }
        state.copies = copies;
        Ok(())
    }

    fn purge_before(&self, now: UnixMs) -> UnixMs {
        let settings = &self.common.settings;
        let age_ms = [settings.retired_ruleset_retention_ms, removal_grace_ms(&self.common), PURGED_COPY_AGE_MIN_MS];
        UnixMs(now.0.saturating_sub(age_ms.into_iter().max().unwrap_or_default()))
    }

    /// Retiring sets whose grace period is over, or whose file is marked as retired and for which no ticket waits.
    fn sets_to_retire(&self, state: &SyncState, usage: &RulesetUsage, now: UnixMs) -> Vec<SetId> {
        let catalog = self.common.rulesets.snapshot();
        // Another server may still have the set active.
        let is_reported = |set_id: SetId| {
            self.common.store_health.is_some()
                && state.copies.iter().any(|copy| {
                    copy.set_id == set_id && now.ms_since(copy.last_active_at) < SHARED_REMOVAL_GRACE_MIN_MS
                })
        };
        let has_retired_file = |set_id: SetId| {
            catalog.retired_files.contains_key(&set_id)
                && usage.waiting_ticket_count_of_set(set_id) == 0
                && !is_reported(set_id)
        };
        let over =
            catalog.retiring.iter().filter(|(set_id, retiring)| retiring.ends_at <= now || has_retired_file(**set_id));
        over.map(|(set_id, _)| *set_id).collect()
    }

    /// Retires sets in the store and in the catalog.
    async fn retire_sets(
        &self,
        state: &mut SyncState,
        sets_to_retire: Vec<SetId>,
        usage: &RulesetUsage,
    ) -> Result<(), StoreError> {
        let (active, _) = rulesets_to_report(&self.common.rulesets.snapshot());
        let now = self.common.clock.now();
        let report = RulesetReport { active, sets_to_retire: sets_to_retire.clone(), now, ..RulesetReport::default() };
        self.report_and_merge_copies(state, &report, usage, &BTreeSet::new()).await?;
        for set_id in sets_to_retire {
            let (live_tickets, live_matches) =
                (usage.waiting_ticket_count_of_set(set_id), usage.live_match_count_of_set(set_id));
            tracing::warn!(%set_id, live_tickets, live_matches, "removal grace period of a set ended");
        }
        Ok(())
    }

    /// Ends the tickets of sets that have no ruleset in force, here or in the store.
    async fn end_tickets_without_ruleset(&self, waiting: Vec<(SetId, TicketId)>) -> u32 {
        let catalog = self.common.rulesets.snapshot();
        let is_retired = |(set_id, _): &(SetId, TicketId)| catalog.ruleset_in_force(*set_id).is_none();
        let tickets = waiting.into_iter().filter(is_retired).take(ENDED_TICKETS_MAX).map(|(_, id)| id).collect();
        self.queues.end_tickets_of_retired_sets(tickets).await
    }

    /// Purges retired rulesets past their retention. Those that matches still use are kept as copies.
    pub(crate) async fn purge_retired_rulesets(&self) -> Result<(), EngineError> {
        let now = self.common.clock.now();
        let live: BTreeSet<RulesetKey> = self.queues.ruleset_usage().live_match_count_by_ruleset.into_keys().collect();
        self.activator
            .change_catalog(|catalog| {
                let before: Vec<Arc<Ruleset>> = catalog.retired.iter().map(|old| Arc::clone(&old.ruleset)).collect();
                catalog.prune_superseded_rulesets(now);
                let used = before.into_iter().map(|ruleset| ((ruleset.set_id, ruleset.hash), ruleset));
                let used = used.filter(|(key, _)| live.contains(key));
                let stored = catalog.copies.clone().into_iter().chain(catalog.copies_without_index.clone());
                keep_rulesets_of_matches(catalog, &stored.chain(used).collect(), Some(&live));
            })
            .await
    }

    /// Ends the grace period of a retiring set now. With `force` its waiting tickets end too.
    pub(crate) async fn retire_set(&self, set_id: SetId, force: bool) -> Result<RetiredSetCounts, EngineError> {
        self.sync_now().await;
        let mut state = self.state.lock().await;
        let usage = self.queues.ruleset_usage();
        let (live_tickets, live_matches) =
            (usage.waiting_ticket_count_of_set(set_id), usage.live_match_count_of_set(set_id));
        let refuse = |obstacle| EngineError::CannotRetireSet { set_id, live_tickets, live_matches, obstacle };
        let catalog = self.common.rulesets.snapshot();
        if catalog.active.contains_key(&set_id) {
            return Err(refuse(RetireObstacle::ActiveHere));
        }
        let Some(retiring) = catalog.retiring.get(&set_id) else { return Err(EngineError::UnknownSet(set_id)) };
        let is_active_elsewhere =
            |copy: &RulesetCopy| copy.set_id == set_id && retiring.noticed_at < copy.last_active_at;
        if self.common.store_health.is_some() && state.copies.iter().any(is_active_elsewhere) {
            return Err(refuse(RetireObstacle::ActiveElsewhere));
        }
        if !force && live_tickets > 0 {
            return Err(refuse(RetireObstacle::WaitingTickets));
        }
        self.retire_sets(&mut state, vec![set_id], &usage).await.map_err(|error| {
            tracing::warn!(%error, %set_id, "failed to retire a set");
            EngineError::StoreUnavailable { retry_after_ms: RETRY_AFTER_MS }
        })?;
        let mut ended_tickets = 0;
        loop {
            let waiting = self.queues.waiting_tickets_of_sets(&[set_id].into(), ENDED_TICKETS_MAX);
            let count = self.end_tickets_without_ruleset(waiting).await;
            ended_tickets += count;
            if count == 0 {
                break;
            }
        }
        self.queues.notify_rulesets_changed();
        Ok(RetiredSetCounts { ended_tickets, live_matches })
    }

    /// Waiting tickets and live matches of every set.
    pub(crate) fn usage(&self) -> RulesetUsage {
        self.queues.ruleset_usage()
    }
}
