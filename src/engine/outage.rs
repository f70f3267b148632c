//! What goes on while the store that servers share is out of reach: known advertisements are kept alive in memory, and
//! written when it is back. What must be decided by the store is refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::domain::id::{AdvertisementId, SetId};
use crate::domain::time::UnixMs;
use crate::engine::command::UpdateAnswer;
use crate::engine::core::Core;
use crate::engine::fault::Fault;
use crate::engine::job::{Extend, Job, Publish};
use crate::engine::receipt::Seen;
use crate::engine::shelf::Record;
use crate::engine::writer::RETRY_AFTER_MS;
use crate::store::{Outcome, Step, Write};

/// Advertisements that are written together when the store is back.
const TOGETHER: usize = 1_000;

/// What the store has yet to be told of.
#[derive(Debug, Default)]
pub(super) struct Pending(BTreeMap<AdvertisementId, SetId>);

impl Pending {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Some of it.
    fn some(&self) -> Vec<(AdvertisementId, SetId)> {
        self.0.iter().take(TOGETHER).map(|(id, set_id)| (*id, *set_id)).collect()
    }
}

impl Core {
    /// Does without the store what can be done without it, and refuses the rest.
    pub(super) fn weather(&self, job: Job, pending: &mut Pending, now: UnixMs) {
        let fault = || Fault::StoreUnavailable { retry_after_ms: RETRY_AFTER_MS };
        match job {
            Job::Publish(publish, reply, in_flight) => {
                let kept = self.keep(*publish, pending, now);
                self.answer(reply, in_flight, kept.ok_or_else(fault));
            }
            Job::Extend(extend, reply, in_flight) => {
                let kept = self.keep_alive_alone(&extend, pending, now);
                self.answer(reply, in_flight, kept.ok_or_else(fault));
            }
            Job::Delete(_, _, reply, in_flight) => self.answer(reply, in_flight, Err(fault())),
            Job::Take(_, reply, in_flight) => self.answer(reply, in_flight, Err(fault())),
            Job::Release(_, _, _, reply, in_flight) => self.answer(reply, in_flight, Err(fault())),
            Job::Expire(_, set_id, Some(record)) => self.put_back(set_id, *record),
            Job::Lapse(..) | Job::Expire(_, _, None) | Job::News(..) | Job::Rules(..) | Job::Mark(_) => {}
        }
    }

    /// Replaces a known advertisement in memory alone.
    fn keep(&self, publish: Publish, pending: &mut Pending, now: UnixMs) -> Option<UpdateAnswer> {
        let Publish { advertisement, ruleset, encoded, proof, time_to_live_ms, confirmed, settled, ignored } = publish;
        // Seats are the store's to decide.
        if !confirmed.is_empty() || !settled.is_empty() {
            return None;
        }
        let (id, set_id) = (advertisement.id, advertisement.set_id);
        let shelf = self.directory.shelf(set_id)?;
        let mut shelf = shelf.write();
        let known = shelf.get(id)?;
        let mut advertisement = advertisement;
        if advertisement.since != known.advertisement.since {
            Arc::make_mut(&mut advertisement).since = known.advertisement.since;
        }
        let record = Record {
            advertisement,
            expires: now.after(u64::from(time_to_live_ms)),
            time_to_live_ms,
            encoded,
            pending: true,
            held: true,
            ..known.clone()
        };
        let seen = Seen::of(&record, now);
        shelf.put(record);
        drop(shelf);
        pending.0.insert(id, set_id);
        let answer = self.update_answer_by(Some(&ruleset), seen, Some(proof), now);
        Some(UpdateAnswer { pending: true, ignored, ..answer })
    }

    /// Keeps a known advertisement alive in memory alone.
    fn keep_alive_alone(&self, extend: &Extend, pending: &mut Pending, now: UnixMs) -> Option<UpdateAnswer> {
        if !extend.confirmed.is_empty() || !extend.settled.is_empty() {
            return None;
        }
        let shelf = self.directory.shelf(extend.set_id)?;
        let mut shelf = shelf.write();
        let known = shelf.get(extend.id)?;
        let time_to_live_ms = extend.time_to_live_ms.unwrap_or(known.time_to_live_ms);
        shelf.extend(extend.id, now.after(u64::from(time_to_live_ms)));
        shelf.mark(extend.id, |record| (record.pending, record.held) = (true, true));
        let seen = Seen::of(shelf.get(extend.id)?, now);
        drop(shelf);
        pending.0.insert(extend.id, extend.set_id);
        Some(UpdateAnswer { pending: true, ..self.update_answer(seen, None, now) })
    }

    /// What to write of what is pending, a batch at most; what has expired meanwhile is let go.
    pub(super) fn pending_writes(&self, pending: &mut Pending, now: UnixMs) -> Vec<(SetId, Write)> {
        let mut writes = Vec::new();
        for (id, set_id) in pending.some() {
            let write = self.directory.shelf(set_id).and_then(|shelf| {
                let shelf = shelf.read();
                let record = shelf.get(id).filter(|record| record.pending && now < record.expires)?;
                let expires = record.expires.after(u64::from(record.time_to_live_ms));
                let advertisement = Arc::clone(&record.advertisement);
                Some(Write::Put { advertisement, expires, confirmed: Vec::new(), settled: Vec::new(), now })
            });
            match write {
                Some(write) => writes.push((set_id, write)),
                None => self.no_longer_pending(id, set_id, pending),
            }
        }
        writes
    }

    /// The store has been told.
    pub(super) fn told(&self, set_id: SetId, write: &Write, outcome: &Outcome, pending: &mut Pending) {
        let Write::Put { advertisement, expires, .. } = write else { return };
        let id = advertisement.id;
        self.no_longer_pending(id, set_id, pending);
        let Some(shelf) = self.directory.shelf(set_id) else { return };
        match outcome {
            // Another server deleted it meanwhile.
            Outcome::Tombstoned => {
                shelf.write().remove(id);
                self.events.forget(id);
            }
            // Publishing says when, even sooner than what was stored before the outage.
            _ => shelf.write().mark(id, |record| record.stored_expires = *expires),
        }
    }

    fn no_longer_pending(&self, id: AdvertisementId, set_id: SetId, pending: &mut Pending) {
        pending.0.remove(&id);
        if let Some(shelf) = self.directory.shelf(set_id) {
            shelf.write().mark(id, |record| record.pending = false);
        }
    }

    /// Notes how a batch has moved an advertisement in the store; `false` when memory did not know where it was before.
    pub(super) fn stamp(&self, id: AdvertisementId, set_id: SetId, step: Step) -> bool {
        let Some(shelf) = self.directory.shelf(set_id) else { return true };
        let mut in_step = true;
        shelf.write().mark(id, |record| {
            in_step = record.version == step.before || record.version == step.after;
            if in_step {
                record.version = step.after;
            }
        });
        in_step
    }
}
