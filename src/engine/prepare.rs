//! From a job to a write, or straight to its answer where memory already knows it.

use std::sync::Arc;

use crate::domain::advertisement::Kind;
use crate::domain::facts::Facts;
use crate::domain::filter::Side;
use crate::domain::filter::{Refusal, Searcher, admit};
use crate::domain::id::{AdvertisementId, ReservationId, SetId};
use crate::domain::limit;
use crate::domain::time::UnixMs;
use crate::engine::core::Core;
use crate::engine::fault::Fault;
use crate::engine::job::{Extend, Job, Publish, Take};
use crate::engine::shelf::{Record, listed};
use crate::store::{Reservation, ReservationState, Write};

/// How long a server waits for the one that is nearest to the host before it ends a lapsed hold itself.
const OTHERS_FIRST_MS: u64 = 1_000;

impl Core {
    /// The write that `job` needs. `None` when it has been answered without one.
    pub(super) fn prepare(&self, job: Job, now: UnixMs) -> Option<(Job, Write)> {
        match job {
            Job::Publish(publish, reply, in_flight) => {
                let write = put(&publish, now);
                Some((Job::Publish(publish, reply, in_flight), write))
            }
            Job::Extend(extend, reply, in_flight) => match self.extension(&extend, now) {
                Ok(write) => Some((Job::Extend(extend, reply, in_flight), write)),
                Err(fault) => {
                    self.answer(reply, in_flight, Err(fault));
                    None
                }
            },
            Job::Delete(id, set_id, reply, in_flight) => {
                let tombstone_until = now.after(u64::from(self.settings.time_to_live_max_ms) * 2);
                Some((Job::Delete(id, set_id, reply, in_flight), Write::Delete { id, tombstone_until }))
            }
            Job::Take(take, reply, in_flight) => match self.taking(&take, now) {
                Ok(write) => Some((Job::Take(take, reply, in_flight), write)),
                Err(fault) => {
                    self.answer(reply, in_flight, Err(fault));
                    None
                }
            },
            Job::Release(id, advertisement_id, set_id, reply, in_flight) => {
                let write = self.ending(id, advertisement_id, now);
                Some((Job::Release(id, advertisement_id, set_id, reply, in_flight), write))
            }
            Job::Lapse(id, advertisement_id, set_id) => {
                let due = self.lapses_at(set_id, advertisement_id, id).is_some_and(|until| until <= now);
                due.then(|| (Job::Lapse(id, advertisement_id, set_id), self.ending(id, advertisement_id, now)))
            }
            Job::Expire(id, set_id, _) => {
                let (record, write) = self.expiry(id, set_id, now)?;
                Some((Job::Expire(id, set_id, Some(Box::new(record))), write))
            }
            Job::News(..) | Job::Rules(..) | Job::Mark(_) => None,
        }
    }

    fn extension(&self, extend: &Extend, now: UnixMs) -> Result<Write, Fault> {
        let shelf = self.directory.shelf(extend.set_id).ok_or(Fault::AdvertisementNotFound)?;
        let shelf = shelf.read();
        let record = shelf.get(extend.id).filter(|record| now < record.expires).ok_or(Fault::AdvertisementNotFound)?;
        let time_to_live_ms = u64::from(extend.time_to_live_ms.unwrap_or(record.time_to_live_ms));
        Ok(Write::Extend {
            id: extend.id,
            expires: padded(now, time_to_live_ms),
            confirmed: extend.confirmed.clone(),
            settled: extend.settled.clone(),
            now,
        })
    }

    /// Judges the rules again. A retry of what is already held goes to the store, which knows the answer.
    fn taking(&self, take: &Take, now: UnixMs) -> Result<Write, Fault> {
        let shelf = self.directory.shelf(take.set_id).ok_or(Fault::AdvertisementNotFound)?;
        let shelf = shelf.read();
        let record = shelf.get(take.advertisement_id).ok_or(Fault::AdvertisementNotFound)?;
        if !record.reservations.iter().any(|known| known.id == take.id) {
            judge(take, record, now)?;
        }
        let reservation = Reservation {
            id: take.id,
            advertisement_id: take.advertisement_id,
            seats: take.session.player_count(),
            users: take.users.clone(),
            payload: take.payload,
            state: ReservationState::Held,
            until: now.after(u64::from(take.hold_ms)),
        };
        Ok(Write::Reserve { reservation, now })
    }

    fn ending(&self, id: ReservationId, advertisement_id: AdvertisementId, now: UnixMs) -> Write {
        Write::End { id, advertisement_id, forget_at: now.after(self.settings.ended_kept_ms) }
    }

    /// When a hold is to be ended from here: at its deadline, or a little later where another server, which took the
    /// host's last heartbeat, will have done it by then.
    fn lapses_at(&self, set_id: SetId, id: AdvertisementId, reservation: ReservationId) -> Option<UnixMs> {
        let shelf = self.directory.shelf(set_id)?;
        let shelf = shelf.read();
        let record = shelf.get(id)?;
        let held = record.reservations.iter().find(|known| known.id == reservation)?;
        let until = if record.held { held.until } else { held.until.after(OTHERS_FIRST_MS) };
        (held.state == ReservationState::Held).then_some(until)
    }

    /// Takes an expired advertisement out of memory, so that no heartbeat can be promised on it while the store is
    /// told. The store's own expiry may lie ahead by the padding; what was promised to the host is over. But where
    /// another server has changed it since, that one may have promised more, and the store goes by what it has.
    fn expiry(&self, id: AdvertisementId, set_id: SetId, now: UnixMs) -> Option<(Record, Write)> {
        let shelf = self.directory.shelf(set_id)?;
        let mut shelf = shelf.write();
        shelf.get(id).filter(|record| record.expires <= now)?;
        let record = shelf.remove(id)?;
        let seen = self.sharing.is_some().then_some(record.version);
        let write = match record.held {
            true => Write::Expire { id, now: now.max(record.stored_expires), seen },
            false => Write::Expire { id, now, seen: None },
        };
        Some((record, write))
    }

    /// Takes back an expired record that the store could not be told of: it is invisible, and the next sweep tries
    /// again. Memory and store go on agreeing about its reservations.
    pub(super) fn put_back(&self, set_id: SetId, record: Record) {
        let shelf = self.directory.shelf_or_new(set_id);
        let mut shelf = shelf.write();
        if shelf.get(record.advertisement.id).is_none() {
            shelf.put(record);
        }
    }
}

/// Whether `take` may sit down in `record`. Open seats are the store's to judge.
fn judge(take: &Take, record: &Record, now: UnixMs) -> Result<(), Fault> {
    let refused = |rule: &str, side| Err(Fault::Refused { rule: rule.into(), side });
    let advertisement = &record.advertisement;
    if advertisement.kind != take.kind || advertisement.session.silo != take.silo {
        return refused("silo", Side::Searcher);
    }
    if take.kind == Kind::Server {
        return if record.expires <= now { Err(Fault::AdvertisementNotFound) } else { Ok(()) };
    }
    if record.holds_for(&take.users, take.id, now) {
        return refused("own", Side::Searcher);
    }
    if limit::RESERVATIONS_MAX <= record.holding(now).count() {
        return Err(Fault::TooManyReservations);
    }
    let facts = Facts::of(&take.ruleset, &advertisement.session);
    let searcher = Searcher {
        facts: &take.facts,
        locality: take.session.locality,
        regions: &take.session.regions,
        seats: take.session.player_count(),
        users: &take.users,
        subject: take.subject,
        excluded: &[],
        waited_ms: now.since(take.searching_since),
    };
    match admit(&take.ruleset, &searcher, &listed(record, &facts), None, now) {
        Ok(()) | Err(Refusal::Full) => Ok(()),
        Err(Refusal::Expired) => Err(Fault::AdvertisementNotFound),
        Err(Refusal::Filter { filter, side }) => {
            refused(take.ruleset.hard.get(filter).map_or("allowed", |hard| &hard.name), side)
        }
        Err(Refusal::Silo) => refused("silo", Side::Searcher),
        Err(Refusal::Own | Refusal::Excluded) => refused("own", Side::Searcher),
        // The rest are queues' refusals.
        Err(other) => refused(other.as_str(), Side::Searcher),
    }
}

fn put(publish: &Publish, now: UnixMs) -> Write {
    Write::Put {
        advertisement: Arc::clone(&publish.advertisement),
        expires: padded(now, u64::from(publish.time_to_live_ms)),
        confirmed: publish.confirmed.clone(),
        settled: publish.settled.clone(),
        now,
    }
}

/// What the store is told: one time to live beyond what the host is promised, so that the heartbeats until then need
/// not be written (DESIGN section 6).
fn padded(now: UnixMs, time_to_live_ms: u64) -> UnixMs {
    now.after(time_to_live_ms * 2)
}
