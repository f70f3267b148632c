//! Rows that this server cannot decode because a newer server wrote them.
//!
//! Such a row costs only itself: it is not loaded, and a write that touches it is refused, so that the newer server's
//! values stay as they are. Other rows, and the change feed, continue.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::domain::id::{AdvertisementId, MatchId, TicketId};
use crate::store::error::StoreError;

/// Key of a row that can have values of a newer server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RowKey {
    /// Advertisement, or one of its reservations.
    Advertisement(AdvertisementId),
    Ticket(TicketId),
    Match(MatchId),
    /// Result of a match.
    Result(MatchId),
}

impl RowKey {
    fn table(self) -> &'static str {
        match self {
            Self::Advertisement(_) => "advertisement",
            Self::Ticket(_) => "ticket",
            Self::Match(_) => "match",
            Self::Result(_) => "result",
        }
    }
}

/// Known unknown rows of a store.
#[derive(Debug, Default)]
pub(super) struct UnknownRows {
    state: Mutex<State>,
    /// Size of `State::keys`, to skip the lock while there are none.
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    keys: BTreeSet<RowKey>,
    /// Tables with a logged row. One log line per table is enough: the metric has the number.
    logged_tables: BTreeSet<&'static str>,
}

impl UnknownRows {
    /// Returns the decoded row; `None` if a newer server wrote it. Other errors are returned.
    pub(super) fn none_if_unknown<T>(
        &self,
        key: RowKey,
        decoded: Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        match decoded {
            Ok(row) => Ok(Some(row)),
            Err(error @ StoreError::UnknownRow { .. }) => {
                self.record(key, &error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// As [`none_if_unknown`](Self::none_if_unknown), for a row that a write depends on: returns the error also for an unknown row.
    pub(super) fn record_if_unknown<T>(&self, key: RowKey, decoded: Result<T, StoreError>) -> Result<T, StoreError> {
        decoded.inspect_err(|error| {
            if matches!(error, StoreError::UnknownRow { .. }) {
                self.record(key, error);
            }
        })
    }

    fn record(&self, key: RowKey, error: &StoreError) {
        let mut state = self.lock();
        state.keys.insert(key);
        self.count.store(state.keys.len(), Ordering::Relaxed);
        if state.logged_tables.insert(key.table()) {
            tracing::warn!(%error, table = key.table(), "row of a newer server ignored; later ones are only counted");
        }
    }

    /// Logs, once per table, that the change feed has records of an unknown kind.
    pub(super) fn log_unknown_feed_records(&self, table: &'static str, count: i64) {
        if count > 0 && self.lock().logged_tables.insert(table) {
            tracing::warn!(table, count, "change of a newer server's kind read; later ones are not logged");
        }
    }

    /// Forgets the keys that `is_stale` selects: their rows are read again, or are gone.
    pub(super) fn forget_keys_where(&self, is_stale: impl Fn(&RowKey) -> bool) {
        if !self.is_empty() {
            let mut state = self.lock();
            state.keys.retain(|key| !is_stale(key));
            self.count.store(state.keys.len(), Ordering::Relaxed);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    pub(super) fn contains(&self, key: RowKey) -> bool {
        !self.is_empty() && self.lock().keys.contains(&key)
    }

    /// Number of rows per table.
    pub(super) fn counts(&self) -> Vec<(&'static str, u64)> {
        let mut counts: BTreeMap<&'static str, u64> =
            ["advertisement", "match", "result", "ticket"].into_iter().map(|table| (table, 0)).collect();
        self.lock().keys.iter().for_each(|key| *counts.entry(key.table()).or_default() += 1);
        counts.into_iter().collect()
    }

    /// Commits a batch without the writes that touch an unknown row; those have the outcome `refused`.
    ///
    /// A transaction that finds an unknown row fails and records it. Then the batch is tried again without its writes.
    pub(super) async fn commit_without_unknown<W, O, F>(
        &self,
        batch: &[W],
        refused: O,
        touches_unknown: impl Fn(&W) -> bool,
        commit: impl Fn(Vec<W>) -> F,
    ) -> Result<Vec<O>, StoreError>
    where
        W: Clone,
        O: Clone,
        F: Future<Output = Result<Vec<O>, StoreError>>,
    {
        loop {
            let known_before = self.count.load(Ordering::Relaxed);
            let is_refused: Vec<bool> = batch.iter().map(|write| known_before > 0 && touches_unknown(write)).collect();
            let allowed: Vec<W> = batch
                .iter()
                .zip(&is_refused)
                .filter(|(_, refused)| !**refused)
                .map(|(write, _)| write.clone())
                .collect();
            let committed = if allowed.is_empty() { Ok(Vec::new()) } else { commit(allowed).await };
            match committed {
                Ok(outcomes) => {
                    let mut outcomes = outcomes.into_iter();
                    let outcome = |refused_write: bool| {
                        if refused_write { Some(refused.clone()) } else { outcomes.next() }
                    };
                    return Ok(is_refused.into_iter().map_while(outcome).collect());
                }
                Err(StoreError::UnknownRow { .. }) if self.count.load(Ordering::Relaxed) > known_before => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
