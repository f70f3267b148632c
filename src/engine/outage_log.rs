//! Outages of this server and of others, from which the deadlines in effect are computed.
//!
//! An outage of this server begins with its last commit that succeeded before a failure, and ends with the next success.
//! The log is saved in the store when that is available again, and read with those of the other servers.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;

use crate::domain::available_time::{OUTAGE_START_TOLERANCE_MS, Outage, OutageTimes};
use crate::domain::time::UnixMs;
use crate::store::StoreError;
use crate::store::outages::{OUTAGES_READ_MAX, StoredOutages};

/// Silence after which another server counts as silent, milliseconds. Servers report every second, those of earlier versions
/// every two seconds.
pub(crate) const SERVER_SILENT_AFTER_MS: u64 = 5_000;

/// Time without a tick after which this process was paused. Ticks come every second or two.
const PAUSED_AFTER: Duration = Duration::from_secs(10);

/// Outages of this server and of others.
#[derive(Debug, Default)]
pub(crate) struct OutageLog {
    state: Mutex<OutageState>,
    /// Outages as of the last change.
    times: RwLock<Arc<OutageTimes>>,
}

#[derive(Debug, Default)]
struct OutageState {
    last_success_at: Option<UnixMs>,
    /// Last time at which this process is known to have run, by the monotonic clock and by the engine's.
    last_tick: Option<(Instant, UnixMs)>,
    /// Start of the outage that lasts.
    open_since: Option<UnixMs>,
    /// Outages that are not in the store yet.
    unsaved: Vec<Outage>,
    /// Outages in the store, of all servers, and servers that are silent.
    stored: Vec<Outage>,
    silent_servers_since: Vec<UnixMs>,
    /// Earliest of the last signs of life of the other servers that are not silent.
    others_alive_watermark: Option<UnixMs>,
}

impl OutageLog {
    /// Outages that extend deadlines.
    pub(crate) fn outages_extending_deadlines(&self) -> Arc<OutageTimes> {
        #[cfg(feature = "failpoints")]
        if fail_point_ignores_outages() {
            return Arc::default();
        }
        Arc::clone(&self.times.read())
    }

    /// Whether the last commit failed, or this process was paused and has not noticed yet. Then no deadline may be applied.
    pub(crate) fn has_open_outage(&self) -> bool {
        #[cfg(feature = "failpoints")]
        if fail_point_ignores_outages() {
            return false;
        }
        let own = self.state.lock();
        let is_paused = own.last_tick.is_some_and(|(tick, _)| PAUSED_AFTER <= tick.elapsed());
        own.open_since.is_some() || is_paused
    }

    /// Deadlines up to this time, at most `now`, are enforced. A later one waits until each other server has given a sign of
    /// life after it, or is silent: then the deadline is extended for its clients.
    pub(crate) fn deadlines_enforced_until(&self, now: UnixMs) -> UnixMs {
        #[cfg(feature = "failpoints")]
        if fail_point_ignores_outages() {
            return now;
        }
        fail::fail_point!("enforce_deadlines_at_once", |_| now);
        self.state.lock().others_alive_watermark.map_or(now, |alive_at| alive_at.min(now))
    }

    /// Records the result of a commit at `now`. An error of one row does not count.
    pub(crate) fn record_commit_result<T>(&self, result: &Result<T, StoreError>, now: UnixMs) {
        match result {
            Ok(_) => self.record_success(now),
            Err(error) if error.is_of_one_row() => {}
            Err(_) => self.record_failure(now),
        }
    }

    /// Records a commit that succeeded.
    fn record_success(&self, now: UnixMs) {
        let mut own = self.state.lock();
        own.last_success_at = own.last_success_at.max(Some(now));
        if let Some(from) = own.open_since.take() {
            let is_counted = own.add_ended(Outage { from, to: now });
            self.publish(&own);
            if is_counted {
                let duration_ms = now.ms_since(from);
                tracing::info!(duration_ms, "outage ended, deadlines are extended by it");
            }
        }
    }

    /// Records a commit that failed, or a write that was refused.
    pub(crate) fn record_failure(&self, now: UnixMs) {
        let mut own = self.state.lock();
        if own.open_since.is_none() {
            let earliest = UnixMs(now.ms_since(UnixMs(OUTAGE_START_TOLERANCE_MS)));
            own.open_since = Some(own.last_success_at.unwrap_or(now).clamp(earliest, now));
            self.publish(&own);
        }
    }

    /// Records that this process runs at `now`. If it was paused, for example with its machine, that was an outage.
    pub(crate) fn record_process_alive(&self, now: UnixMs) {
        let mut own = self.state.lock();
        let Some((tick, from)) = own.last_tick.replace((Instant::now(), now)) else { return };
        if PAUSED_AFTER <= tick.elapsed() && from < now {
            own.add_ended(Outage { from, to: now });
            self.publish(&own);
            let duration_ms = now.ms_since(from);
            tracing::warn!(duration_ms, "process pause ended, deadlines are extended by it");
        }
    }

    /// Adds an outage that ended before this server started.
    pub(crate) fn add_ended(&self, outage: Outage) {
        let mut own = self.state.lock();
        own.add_ended(outage);
        self.publish(&own);
    }

    /// Outages to save.
    pub(crate) fn unsaved(&self) -> Vec<Outage> {
        self.state.lock().unsaved.clone()
    }

    /// Applies what the store has at `now`, after `saved` was saved. Outages that ended before `oldest` concern no
    /// deadline any more. Returns whether the outages changed.
    pub(crate) fn apply_stored(&self, stored: StoredOutages, saved: &[Outage], oldest: UnixMs, now: UnixMs) -> bool {
        let before = self.outages_extending_deadlines();
        let mut own = self.state.lock();
        own.unsaved.retain(|outage| !saved.contains(outage));
        own.stored = stored.outages.into_iter().filter(|outage| oldest <= outage.to).collect();
        let others = stored.servers.iter().filter(|mark| !mark.is_own && !mark.is_stopped).map(|mark| mark.alive_at);
        let (silent, alive): (Vec<UnixMs>, Vec<UnixMs>) =
            others.partition(|alive_at| SERVER_SILENT_AFTER_MS < now.ms_since(*alive_at));
        own.others_alive_watermark = alive.into_iter().min();
        own.silent_servers_since = silent.into_iter().filter(|alive_at| oldest <= *alive_at).collect();
        own.silent_servers_since.sort_unstable();
        self.publish(&own);
        *before != **self.times.read()
    }

    fn publish(&self, own: &OutageState) {
        let open = own.open_since.map(|from| Outage { from, to: UnixMs(u64::MAX) });
        let outages = own.stored.iter().chain(&own.unsaved).copied().chain(open).collect();
        let times = OutageTimes::new(outages, own.silent_servers_since.clone());
        let mut published = self.times.write();
        if **published != times {
            *published = Arc::new(times);
        }
    }
}

impl OutageState {
    /// Adds an outage to those to save. One without duration, of a commit that failed and succeeded within a millisecond or of a
    /// clock that was set back, extends nothing, and the store refuses it. Returns whether it was added.
    fn add_ended(&mut self, outage: Outage) -> bool {
        if outage.to <= outage.from {
            return false;
        }
        self.unsaved.push(outage);
        let surplus = self.unsaved.len().saturating_sub(OUTAGES_READ_MAX);
        self.unsaved.drain(..surplus);
        true
    }
}

/// Whether the fail point is on that counts outages in deadlines.
#[cfg(feature = "failpoints")]
fn fail_point_ignores_outages() -> bool {
    fail::fail_point!("count_outages", |_| true);
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::outages::ServerSignOfLife;

    fn failed() -> Result<(), StoreError> {
        Err(StoreError::Unavailable("down".into()))
    }

    fn effective(log: &OutageLog, set_at: u64, deadline: u64) -> UnixMs {
        log.outages_extending_deadlines().effective_deadline(UnixMs(set_at), UnixMs(deadline))
    }

    #[test]
    fn outage_lasts_from_the_last_success_to_the_next() {
        let log = OutageLog::default();
        log.record_commit_result(&Ok(()), UnixMs(10_000));
        log.record_commit_result(&failed(), UnixMs(12_000));
        log.record_commit_result(&failed(), UnixMs(13_000));
        assert!(log.has_open_outage());
        assert_eq!(effective(&log, 9_000, 15_000), UnixMs(u64::MAX), "no deadline passes during an outage");
        log.record_commit_result(&Ok(()), UnixMs(40_000));
        assert!(!log.has_open_outage());
        assert_eq!(effective(&log, 9_000, 15_000), UnixMs(45_000));
        assert_eq!(log.unsaved(), [Outage { from: UnixMs(10_000), to: UnixMs(40_000) }]);
    }

    /// The store refuses an outage without duration, and a server that cannot save its outages processes no deadline.
    #[test]
    fn outage_without_duration_is_not_saved() {
        let log = OutageLog::default();
        log.record_commit_result(&Ok(()), UnixMs(10_000));
        log.record_commit_result(&failed(), UnixMs(10_000));
        log.record_commit_result(&Ok(()), UnixMs(10_000));
        assert!(!log.has_open_outage());
        assert_eq!(log.unsaved(), []);
        log.record_commit_result(&failed(), UnixMs(9_000));
        log.record_commit_result(&Ok(()), UnixMs(8_000));
        assert!(!log.has_open_outage(), "the clock was set back");
        assert_eq!(log.unsaved(), []);
    }

    #[test]
    fn outage_begins_at_most_the_tolerance_before_its_first_failure() {
        let log = OutageLog::default();
        log.record_commit_result(&Ok(()), UnixMs(10_000));
        log.record_commit_result(&failed(), UnixMs(100_000));
        log.record_commit_result(&Ok(()), UnixMs(101_000));
        assert_eq!(log.unsaved(), [Outage { from: UnixMs(95_000), to: UnixMs(101_000) }]);
        let corrupt: Result<(), _> = Err(StoreError::CorruptRow { table: "t", column: "c", reason: "r".into() });
        log.record_commit_result(&corrupt, UnixMs(102_000));
        assert!(!log.has_open_outage(), "an error of one row is no outage");
    }

    #[test]
    fn stored_outages_replace_the_saved_ones() {
        let log = OutageLog::default();
        let saved = Outage { from: UnixMs(1_000), to: UnixMs(2_000) };
        let other = Outage { from: UnixMs(5_000), to: UnixMs(6_000) };
        log.add_ended(saved);
        let mark = |is_own, alive_ms, is_stopped| ServerSignOfLife { is_own, alive_at: UnixMs(alive_ms), is_stopped };
        let silent = [mark(false, 94_999, false), mark(false, 10, false)];
        let alive = [mark(true, 0, false), mark(false, 95_000, false)];
        let stopped = [mark(false, 94_000, true), mark(false, 95_001, true), mark(false, 99_000, true)];
        let servers = [&silent[..], &alive, &stopped].concat();
        let stored = StoredOutages { outages: vec![saved, other], servers };
        assert!(log.apply_stored(stored.clone(), &[saved], UnixMs(3_000), UnixMs(100_000)));
        assert!(log.unsaved().is_empty());
        assert_eq!(*log.outages_extending_deadlines(), OutageTimes::new(vec![other], vec![UnixMs(94_999)]));
        assert_eq!(
            log.deadlines_enforced_until(UnixMs(100_001)),
            UnixMs(95_000),
            "the server that is not silent lived then"
        );
        assert_eq!(log.deadlines_enforced_until(UnixMs(94_000)), UnixMs(94_000));
        assert!(!log.apply_stored(stored, &[saved], UnixMs(3_000), UnixMs(100_000)));
    }
}
