//! Expiry sweep: removes expired advertisements and holds, shrinks index bounds and purges the store.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::domain::id::AdvertisementId;
use crate::domain::time::UnixMs;
use crate::engine::adverts::advert_set_map::AdvertSetLock;
use crate::engine::adverts::advert_state::AdvertState;
use crate::engine::adverts::writer_command::AdvertWriterCommand;

/// Sweep interval. Expired advertisements are invisible at once; this bounds their memory use and how long an expired
/// hold blocks seats. A hold must free its seats within 2 s.
const SWEEP_INTERVAL: Duration = Duration::from_millis(500);

/// Number of sweeps between store purges.
const SWEEPS_PER_TOMBSTONE_PURGE: u32 = 20;

/// Maximum advertisements, and maximum holds, sent to the writer per set and sweep. A mass expiry must not fill the
/// inbox that clients share.
const EXPIRED_PER_SWEEP_MAX: usize = 2_000;

/// Unit of the expiry grace during an outage: several sweeps, and time for other replicas to write afterwards.
const OUTAGE_EXPIRY_GRACE_UNIT_MS: u64 = 2_000;

/// Sweeps until stopped.
pub(crate) async fn run_expiry_sweeps(
    state: Arc<AdvertState>,
    advert_writer: mpsc::Sender<AdvertWriterCommand>,
    shutdown: CancellationToken,
) {
    let mut interval = tokio::time::interval(SWEEP_INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut sweeps = 0_u32;
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            _ = interval.tick() => {}
        }
        sweep_expired_adverts(&state, &advert_writer).await;
        sweeps = sweeps.wrapping_add(1);
        if sweeps.is_multiple_of(SWEEPS_PER_TOMBSTONE_PURGE)
            && state.common.store_staleness_ms(state.common.clock.now()).is_none()
            && let Err(error) = state.common.store.purge_tombstones_and_reservations(state.common.clock.now()).await
        {
            tracing::warn!(%error, "store purge failed");
        }
    }
}

/// Sends expired advertisements and holds to the writer, which checks them again.
pub(crate) async fn sweep_expired_adverts(state: &AdvertState, advert_writer: &mpsc::Sender<AdvertWriterCommand>) {
    let now = state.common.clock.now();
    let mut expired = Vec::new();
    let fleet = state.common.beacons.fleet(now);
    let is_stale = state.common.store_staleness_ms(now).is_some();
    if let Some(replication) = state.replication.as_ref().filter(|_| is_stale) {
        replication.extend_expiry_grace(now.plus_ms(4 * OUTAGE_EXPIRY_GRACE_UNIT_MS));
    }
    for (set_id, set) in state.advert_sets.all_sets() {
        expired.clear();
        if is_stale {
            extend_remote_adverts(&set, now, &mut expired);
            continue;
        }
        let expired_holds = {
            let set = set.lock_for_read();
            set.collect_expired(now, EXPIRED_PER_SWEEP_MAX, &mut expired);
            set.expired_holds(now, EXPIRED_PER_SWEEP_MAX)
        };
        for &id in &expired {
            if advert_writer.send(AdvertWriterCommand::ExpireAdvert(id, set_id, None)).await.is_err() {
                return;
            }
        }
        for (advertisement_id, id) in expired_holds {
            if advert_writer.send(AdvertWriterCommand::ExpireHold(id, advertisement_id, set_id)).await.is_err() {
                return;
            }
        }
        set.lock_for_write().maintain_indexes(fleet.as_ref());
    }
    update_gauges(state);
}

/// Extends other replicas' advertisements that are about to expire during an outage.
///
/// Their hosts may have sent heartbeats to the owner, which this replica cannot see. Own advertisements expire as usual
/// but are not removed.
fn extend_remote_adverts(set: &AdvertSetLock, now: UnixMs, expiring: &mut Vec<AdvertisementId>) {
    loop {
        expiring.clear();
        set.lock_for_read().collect_expired(
            now.plus_ms(2 * OUTAGE_EXPIRY_GRACE_UNIT_MS),
            EXPIRED_PER_SWEEP_MAX,
            expiring,
        );
        let mut set = set.lock_for_write();
        expiring.retain(|&id| set.get(id).is_some_and(|record| !record.is_heartbeat_owner));
        expiring.iter().for_each(|&id| set.extend_expiry(id, now.plus_ms(4 * OUTAGE_EXPIRY_GRACE_UNIT_MS)));
        if expiring.len() < EXPIRED_PER_SWEEP_MAX {
            return;
        }
    }
}

/// Sets the gauges of the in-memory state.
pub(crate) fn update_gauges(state: &AdvertState) {
    let common = &state.common;
    let (mut advertisements, mut reservations) = (0, 0);
    let mut counts = Vec::new();
    for (set_id, set) in state.advert_sets.all_sets() {
        let set = set.lock_for_read();
        advertisements += set.len();
        reservations += set.unended_reservation_count();
        counts.push((set_id, set.counts()));
    }
    common.metrics.set_advertisement_counts(counts);
    common.metrics.advertisements.set(i64::try_from(advertisements).unwrap_or(i64::MAX));
    let now = common.clock.now();
    let stale_ms = common.store_staleness_ms(now).unwrap_or(0);
    common.metrics.store_staleness_seconds.set(stale_ms as f64 / 1_000.0);
    for (feed, age_ms) in common.feed_reads.ages_ms(now) {
        common.metrics.feed_age_seconds.get_or_create(&feed).set(age_ms as f64 / 1_000.0);
    }
    let unwritten = state.replication.as_ref().map_or(0, |replication| replication.unwritten_count());
    common.metrics.advertisements_pending.set(i64::try_from(unwritten).unwrap_or(i64::MAX));
    common.metrics.reservations.set(i64::try_from(reservations).unwrap_or(i64::MAX));
}
