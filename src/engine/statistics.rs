//! Statistics of matchmaking: events become counts by hour, set, region and party size, in the metrics and in the store.
//!
//! Recording an event costs an entry in a list. A task of its own turns the list into counts (`pending_counts.rs`), and adds them
//! to the store every two seconds (`statistics_task.rs`). Each event is recorded by one server: the one whose commit it was.

mod pending_counts;
mod sample;
mod search_refusals;
mod unsaved_batch;
mod unsettled_seats;

use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;

use crate::clock::Clock;
use crate::domain::filter::Refusal;
use crate::domain::id::ReservationId;
use crate::domain::queue::report::PassReport;
use crate::domain::ruleset::Ruleset;
use crate::domain::statistic::StatisticKind;
use crate::domain::time::UnixMs;
use crate::engine::statistics::pending_counts::PendingCounts;
use crate::engine::statistics::search_refusals::SearchRefusals;
use crate::engine::statistics::unsaved_batch::UnsavedBatch;
use crate::engine::statistics::unsettled_seats::UnsettledReservations;
use crate::store::statistics::{StatisticsQuery, StatisticsTotals};
use crate::store::{Store, StoreError};
use crate::telemetry::label::SeatOutcomeLabel;
use crate::telemetry::metric::Metrics;

pub(crate) use self::sample::Sample;
pub(crate) use self::unsettled_seats::UnsettledReservation;

/// Samples that wait to be counted. The recorder of a further one counts all of them.
const UNCOUNTED_SAMPLES_MAX: usize = 4_096;

/// Recorder of matchmaking statistics.
#[derive(Debug, Default)]
pub(crate) struct StatisticsRecorder {
    samples: Mutex<Vec<Sample>>,
    search_refusals: SearchRefusals,
    unsettled_reservations: UnsettledReservations,
    pending: Mutex<PendingCounts>,
    unsaved: AsyncMutex<UnsavedBatch>,
    /// Held by the caller who reads the store's counts.
    store_read_lock: AsyncMutex<()>,
}

impl StatisticsRecorder {
    /// Records samples.
    pub(crate) fn record(&self, samples: impl IntoIterator<Item = Sample>, metrics: &Metrics) {
        let mut waiting = self.samples.lock();
        waiting.extend(samples);
        if UNCOUNTED_SAMPLES_MAX <= waiting.len() {
            let full = std::mem::take(&mut *waiting);
            drop(waiting);
            self.add_to_counts(full, metrics);
        }
    }

    /// Records the refusals of a search by a party with this number of players.
    pub(crate) fn record_search_refusals(&self, ruleset: &Ruleset, players: u16, refusals: &[(Refusal, u32)]) {
        if !refusals.is_empty() {
            self.search_refusals.record(ruleset, players, refusals);
        }
    }

    /// Records the refusals of a pass at `now`.
    pub(crate) fn record_pass_refusals(&self, ruleset: &Ruleset, report: &PassReport, now: UnixMs, metrics: &Metrics) {
        let refusals = report.refusal_counts.iter().map(|(refusal, count)| Sample {
            rule: Some(refusal.rule_name(ruleset).into()),
            count: *count,
            ..Sample::new(StatisticKind::PassRefusals, ruleset.set_id, 0.0, now)
        });
        self.record(refusals, metrics);
    }

    /// Keeps a searching party's reservation until it is settled.
    pub(crate) fn add_unsettled_reservation(&self, id: ReservationId, seat: UnsettledReservation) {
        self.unsettled_reservations.insert(id, seat);
    }

    /// Counts a reservation that this server made: its host has confirmed it, or its party has joined. No effect
    /// for others, and the second time.
    pub(crate) fn record_settled_reservation(&self, id: ReservationId, now: UnixMs, metrics: &Metrics) {
        if let Some(seat) = self.unsettled_reservations.take(id) {
            record_outcome(&seat, SeatOutcomeLabel::Seated, now, metrics);
            self.record(seat.into_samples(), metrics);
        }
    }

    /// Counts the end of a reservation that this server made and that was not settled. No effect for others, and the second time.
    pub(crate) fn record_ended_reservation(
        &self,
        id: ReservationId,
        outcome: SeatOutcomeLabel,
        now: UnixMs,
        metrics: &Metrics,
    ) {
        if let Some(seat) = self.unsettled_reservations.take(id) {
            record_outcome(&seat, outcome, now, metrics);
        }
    }

    /// Counts a reservation that another server has ended: before its deadline it was released.
    pub(crate) fn record_reservation_ended_elsewhere(&self, id: ReservationId, now: UnixMs, metrics: &Metrics) {
        if let Some(seat) = self.unsettled_reservations.take(id) {
            let was_released = now < seat.deadline;
            let outcome = if was_released { SeatOutcomeLabel::Released } else { SeatOutcomeLabel::Expired };
            record_outcome(&seat, outcome, now, metrics);
        }
    }

    /// Adds all counts to the store. On an error they are kept, and a caller that stops waiting loses none. Without `is_writable`
    /// they wait.
    pub(crate) async fn flush(
        &self,
        (store, is_writable): (&dyn Store, bool),
        clock: &dyn Clock,
        metrics: &Metrics,
    ) -> Result<(), StoreError> {
        let mut unsaved = self.unsaved.lock().await;
        self.add_recorded_to_counts(clock.now(), metrics);
        if !is_writable {
            return Err(StoreError::Unavailable("the last commit failed".into()));
        }
        // At most one purge, for which a caller would wait.
        let mut may_purge = true;
        while let Some(batch) = unsaved.next(&self.pending, clock, may_purge) {
            may_purge &= !batch.purges;
            let must_continue_purge = store.add_statistics(batch).await?;
            unsaved.mark_saved(must_continue_purge);
        }
        Ok(())
    }

    /// Totals that the store has. Reads take turns: each may take seconds.
    pub(crate) async fn read(
        &self,
        store: &dyn Store,
        query: &StatisticsQuery,
    ) -> Result<StatisticsTotals, StoreError> {
        let _turn = self.store_read_lock.lock().await;
        store.read_statistics(query).await
    }

    /// Turns everything that was recorded into counts.
    fn add_recorded_to_counts(&self, now: UnixMs, metrics: &Metrics) {
        for seat in self.unsettled_reservations.take_expired(now) {
            record_outcome(&seat, SeatOutcomeLabel::Expired, now, metrics);
        }
        metrics.statistics_dropped.inc_by(self.unsettled_reservations.take_dropped_count());
        let refusals = self.search_refusals.take(now);
        let samples = std::mem::take(&mut *self.samples.lock());
        self.add_to_counts(samples.into_iter().chain(refusals), metrics);
    }

    fn add_to_counts(&self, samples: impl IntoIterator<Item = Sample>, metrics: &Metrics) {
        let mut pending = self.pending.lock();
        samples.into_iter().for_each(|sample| pending.add(sample, metrics));
    }
}

/// Records the outcome of a reservation, which is known at `now`. No outcome is later than the deadline.
fn record_outcome(seat: &UnsettledReservation, outcome: SeatOutcomeLabel, now: UnixMs, metrics: &Metrics) {
    let waited_ms = seat.waited_ms_until(now.min(seat.deadline));
    metrics.record_seat_attempt(seat.set_id, outcome, waited_ms as f64 / 1_000.0);
}
