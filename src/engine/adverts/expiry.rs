//! What time alone does: expired advertisements and lapsed holds leave, bounds shrink, the store forgets.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::domain::id::AdvertisementId;
use crate::domain::time::UnixMs;
use crate::engine::adverts::advert_set_map::LockedAdvertSet;
use crate::engine::adverts::writer_command::AdvertWriterCommand;
use crate::engine::core::Core;

/// How often to look. What is expired is invisible at once; this bounds how long it takes up room and, for a lapsed
/// hold, how long its seats stay closed: well under the 2 s that are promised (R10).
const SWEEP_INTERVAL: Duration = Duration::from_millis(500);

/// The store is asked to forget every so many sweeps.
const SWEEPS_PER_STORE_PURGE: u32 = 20;

/// Advertisements and holds that one sweep may send to the writer from one set, so that a mass expiry does not fill the
/// inbox that clients wait in.
const EXPIRED_PER_SWEEP_MAX: usize = 2_000;

/// What is borne with lasts for some sweeps more, and for what other servers have to write when the store is back.
const OUTAGE_EXPIRY_GRACE_MS: u64 = 2_000;

/// Sweeps until told to stop.
pub(in crate::engine) async fn run_expiry_sweeps(
    core: Arc<Core>,
    inbox: mpsc::Sender<AdvertWriterCommand>,
    stop: CancellationToken,
) {
    let mut every = tokio::time::interval(SWEEP_INTERVAL);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut round = 0_u32;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = every.tick() => {}
        }
        sweep_expired_adverts(&core, &inbox).await;
        round = round.wrapping_add(1);
        if round.is_multiple_of(SWEEPS_PER_STORE_PURGE)
            && core.store_staleness_ms(core.clock.now()).is_none()
            && let Err(error) = core.store.purge(core.clock.now()).await
        {
            tracing::warn!(%error, "forget what is due");
        }
    }
}

/// One sweep: sends what is due to the writer, which looks again before it acts.
pub(in crate::engine) async fn sweep_expired_adverts(core: &Core, inbox: &mpsc::Sender<AdvertWriterCommand>) {
    let now = core.clock.now();
    let mut expired = Vec::new();
    let stale = core.store_staleness_ms(now).is_some();
    if let Some(sharing) = core.replication.as_ref().filter(|_| stale) {
        sharing.extend_expiry_grace(now.plus_ms(4 * OUTAGE_EXPIRY_GRACE_MS));
    }
    for (set_id, shelf) in core.advert_sets.all() {
        expired.clear();
        if stale {
            extend_remote_adverts(&shelf, now, &mut expired);
            continue;
        }
        let lapsed = {
            let shelf = shelf.read();
            shelf.collect_expired(now, EXPIRED_PER_SWEEP_MAX, &mut expired);
            shelf.expired_holds(now, EXPIRED_PER_SWEEP_MAX)
        };
        for &id in &expired {
            if inbox.send(AdvertWriterCommand::ExpireAdvert(id, set_id, None)).await.is_err() {
                return;
            }
        }
        for (advertisement_id, id) in lapsed {
            if inbox.send(AdvertWriterCommand::ExpireHold(id, advertisement_id, set_id)).await.is_err() {
                return;
            }
        }
        shelf.write().shrink_index_bounds();
    }
    update_gauges(core);
}

/// Believes for a little longer what is about to expire and that another server holds: its host may well have kept it
/// alive there, and here nobody can hear of it. What this server holds expires as ever, but is not taken away.
fn extend_remote_adverts(shelf: &LockedAdvertSet, now: UnixMs, about_to: &mut Vec<AdvertisementId>) {
    loop {
        about_to.clear();
        shelf.read().collect_expired(now.plus_ms(2 * OUTAGE_EXPIRY_GRACE_MS), EXPIRED_PER_SWEEP_MAX, about_to);
        let mut shelf = shelf.write();
        about_to.retain(|&id| shelf.get(id).is_some_and(|record| !record.is_heartbeat_owner));
        about_to.iter().for_each(|&id| shelf.extend_expiry(id, now.plus_ms(4 * OUTAGE_EXPIRY_GRACE_MS)));
        if about_to.len() < EXPIRED_PER_SWEEP_MAX {
            return;
        }
    }
}

/// Tells how much is in memory.
pub(in crate::engine) fn update_gauges(core: &Core) {
    let (mut advertisements, mut reservations) = (0, 0);
    for (_, shelf) in core.advert_sets.all() {
        let shelf = shelf.read();
        advertisements += shelf.len();
        reservations += shelf.unended_reservation_count();
    }
    core.metrics.advertisements.set(i64::try_from(advertisements).unwrap_or(i64::MAX));
    let stale_ms = core.store_staleness_ms(core.clock.now()).unwrap_or(0);
    core.metrics.store_staleness_seconds.set(i64::try_from(stale_ms).unwrap_or(i64::MAX));
    let pending = core.replication.as_ref().map_or(0, |sharing| sharing.unwritten_count());
    core.metrics.advertisements_pending.set(i64::try_from(pending).unwrap_or(i64::MAX));
    core.metrics.reservations.set(i64::try_from(reservations).unwrap_or(i64::MAX));
}
