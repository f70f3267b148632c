//! What time alone does: expired advertisements and lapsed holds leave, bounds shrink, the store forgets.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::domain::id::AdvertisementId;
use crate::domain::time::UnixMs;
use crate::engine::core::Core;
use crate::engine::directory::Shared;
use crate::engine::job::Job;

/// How often to look. What is expired is invisible at once; this bounds how long it takes up room and, for a lapsed
/// hold, how long its seats stay closed: well under the 2 s that are promised (R10).
const EVERY: Duration = Duration::from_millis(500);

/// The store is asked to forget every so many sweeps.
const FORGET_EVERY: u32 = 20;

/// Advertisements and holds that one sweep may send to the writer from one set, so that a mass expiry does not fill the
/// inbox that clients wait in.
const MOST: usize = 2_000;

/// What is borne with lasts for some sweeps more, and for what other servers have to write when the store is back.
const BORNE_MS: u64 = 2_000;

/// Sweeps until told to stop.
pub(super) async fn run(core: Arc<Core>, inbox: mpsc::Sender<Job>, stop: CancellationToken) {
    let mut every = tokio::time::interval(EVERY);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut round = 0_u32;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = every.tick() => {}
        }
        sweep(&core, &inbox).await;
        round = round.wrapping_add(1);
        if round.is_multiple_of(FORGET_EVERY)
            && core.stale_for_ms(core.clock.now()).is_none()
            && let Err(error) = core.store.forget(core.clock.now()).await
        {
            tracing::warn!(%error, "forget what is due");
        }
    }
}

/// One sweep: sends what is due to the writer, which looks again before it acts.
pub(super) async fn sweep(core: &Core, inbox: &mpsc::Sender<Job>) {
    let now = core.clock.now();
    let mut expired = Vec::new();
    let stale = core.stale_for_ms(now).is_some();
    if let Some(sharing) = core.sharing.as_ref().filter(|_| stale) {
        sharing.bear(now.after(4 * BORNE_MS));
    }
    for (set_id, shelf) in core.directory.shelves() {
        expired.clear();
        if stale {
            bear_with(&shelf, now, &mut expired);
            continue;
        }
        let lapsed = {
            let shelf = shelf.read();
            shelf.expired(now, MOST, &mut expired);
            shelf.lapsed(now, MOST)
        };
        for &id in &expired {
            if inbox.send(Job::Expire(id, set_id, None)).await.is_err() {
                return;
            }
        }
        for (advertisement_id, id) in lapsed {
            if inbox.send(Job::Lapse(id, advertisement_id, set_id)).await.is_err() {
                return;
            }
        }
        shelf.write().tidy();
    }
    count(core);
}

/// Believes for a little longer what is about to expire and that another server holds: its host may well have kept it
/// alive there, and here nobody can hear of it. What this server holds expires as ever, but is not taken away.
fn bear_with(shelf: &Shared, now: UnixMs, about_to: &mut Vec<AdvertisementId>) {
    loop {
        about_to.clear();
        shelf.read().expired(now.after(2 * BORNE_MS), MOST, about_to);
        let mut shelf = shelf.write();
        about_to.retain(|&id| shelf.get(id).is_some_and(|record| !record.held));
        about_to.iter().for_each(|&id| shelf.extend(id, now.after(4 * BORNE_MS)));
        if about_to.len() < MOST {
            return;
        }
    }
}

/// Tells how much is in memory.
pub(super) fn count(core: &Core) {
    let (mut advertisements, mut reservations) = (0, 0);
    for (_, shelf) in core.directory.shelves() {
        let shelf = shelf.read();
        advertisements += shelf.len();
        reservations += shelf.live_reservations();
    }
    core.metrics.advertisements.set(i64::try_from(advertisements).unwrap_or(i64::MAX));
    let stale_ms = core.stale_for_ms(core.clock.now()).unwrap_or(0);
    core.metrics.store_stale_ms.set(i64::try_from(stale_ms).unwrap_or(i64::MAX));
    let pending = core.sharing.as_ref().map_or(0, |sharing| sharing.pending());
    core.metrics.pending.set(i64::try_from(pending).unwrap_or(i64::MAX));
    core.metrics.reservations.set(i64::try_from(reservations).unwrap_or(i64::MAX));
}
