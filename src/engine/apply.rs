//! From an outcome of the store to memory, to the answer, and to whoever must hear.

use crate::auth::token::ReservationClaim;
use crate::domain::id::{AdvertisementId, ReservationId, SetId};
use crate::domain::time::UnixMs;
use crate::engine::answer;
use crate::engine::command::{ReservationChange, ReservationEvent, ReserveAnswer, UpdateAnswer};
use crate::engine::core::Core;
use crate::engine::fault::Fault;
use crate::engine::job::{Extend, Job, Take};
use crate::engine::receipt::Seen;
use crate::engine::run::Run;
use crate::engine::shelf::has_lapsed;
use crate::store::{Outcome, Reservation, ReservationState, Write};

impl Core {
    /// Brings memory to where the store is, then answers. Publications wait in `run` for others that may join them, and
    /// go before whatever else comes.
    pub(super) fn apply(&self, run: &mut Run, job: Job, write: &Write, outcome: Outcome, now: UnixMs) {
        if !matches!(job, Job::Publish(..)) {
            self.apply_run(run, now);
        }
        match job {
            Job::Publish(publish, reply, in_flight) => {
                self.gather(run, (*publish, reply, in_flight), write, &outcome, now);
            }
            Job::Extend(extend, reply, in_flight) => {
                let answer = self.extended(*extend, write, &outcome, now);
                self.answer(reply, in_flight, answer);
            }
            Job::Delete(id, set_id, reply, in_flight) => {
                self.forget(id, set_id);
                self.answer(reply, in_flight, Ok(()));
            }
            Job::Take(take, reply, in_flight) => {
                let answer = self.taken(&take, outcome, now);
                self.answer(reply, in_flight, answer);
            }
            Job::Release(id, advertisement_id, set_id, reply, in_flight) => {
                self.ended(id, advertisement_id, set_id, ReservationChange::Released, now);
                self.answer(reply, in_flight, Ok(()));
            }
            Job::Lapse(id, advertisement_id, set_id) => {
                self.ended(id, advertisement_id, set_id, ReservationChange::Expired, now);
            }
            Job::Expire(id, ..) => {
                self.events.forget(id);
                self.metrics.expired.inc();
            }
            Job::News(..) | Job::Rules(..) | Job::Mark(_) => {}
        }
    }

    fn extended(&self, extend: Extend, write: &Write, outcome: &Outcome, now: UnixMs) -> Result<UpdateAnswer, Fault> {
        match outcome {
            Outcome::Done => {}
            Outcome::Absent => return Err(Fault::AdvertisementNotFound),
            other => return Err(self.broken("extend", other)),
        }
        let Write::Extend { expires: stored_expires, now: decided, .. } = write else {
            return Err(self.broken("extend", outcome));
        };
        let shelf = self.directory.shelf(extend.set_id).ok_or(Fault::AdvertisementNotFound)?;
        let mut shelf = shelf.write();
        let record = shelf.get(extend.id).ok_or(Fault::AdvertisementNotFound)?;
        let time_to_live_ms = u64::from(extend.time_to_live_ms.unwrap_or(record.time_to_live_ms));
        shelf.note_stored(extend.id, *stored_expires);
        shelf.extend(extend.id, decided.after(time_to_live_ms));
        // The store now has this server for the one that took the last heartbeat.
        shelf.mark(extend.id, |record| record.held = true);
        let events = if extend.confirmed.is_empty() && extend.settled.is_empty() {
            Vec::new()
        } else {
            let change = |all: &mut Vec<_>| self.settle(all, &extend.confirmed, &extend.settled, *decided);
            shelf.change_reservations(extend.id, change).unwrap_or_default()
        };
        let seen = Seen::of(shelf.get(extend.id).ok_or(Fault::AdvertisementNotFound)?, now);
        drop(shelf);
        self.tell(extend.id, events, now);
        Ok(self.update_answer(seen, extend.proof, now))
    }

    fn taken(&self, take: &Take, outcome: Outcome, now: UnixMs) -> Result<ReserveAnswer, Fault> {
        let (reservation, replayed) = match outcome {
            Outcome::Reserved { reservation, replayed } => (reservation, replayed),
            Outcome::Full { open_seats } => return Err(Fault::SeatsTaken { open_seats }),
            Outcome::Absent => return Err(Fault::AdvertisementNotFound),
            Outcome::KeyReused => return Err(Fault::KeyReused),
            Outcome::TooManyReservations => return Err(Fault::TooManyReservations),
            other => return Err(self.broken("reserve", &other)),
        };
        if reservation.state == ReservationState::Ended || has_lapsed(&reservation, now) {
            return Err(Fault::ReservationEnded);
        }
        let shelf = self.directory.shelf(take.set_id).ok_or(Fault::AdvertisementNotFound)?;
        let mut shelf = shelf.write();
        let held = reservation.clone();
        shelf.change_reservations(take.advertisement_id, |all| {
            all.retain(|known| known.state != ReservationState::Ended || now < known.until);
            if !all.iter().any(|known| known.id == held.id) {
                all.push(held);
            }
        });
        let record = shelf.get(take.advertisement_id).ok_or(Fault::AdvertisementNotFound)?;
        let connect_data = record.advertisement.connect_data.clone();
        drop(shelf);
        let claim = ReservationClaim {
            id: reservation.id,
            advertisement_id: take.advertisement_id,
            set_id: take.set_id,
            subject: take.subject,
        };
        let token = self.signer.seal(&claim);
        let answer = ReserveAnswer { reservation: answer::reservation(&reservation, token, now), connect_data };
        if !replayed {
            self.tell(take.advertisement_id, vec![(reservation, ReservationChange::Held)], now);
        }
        Ok(answer)
    }

    fn forget(&self, id: AdvertisementId, set_id: SetId) {
        if let Some(shelf) = self.directory.shelf(set_id) {
            shelf.write().remove(id);
        }
        self.events.forget(id);
    }

    fn ended(&self, id: ReservationId, from: AdvertisementId, set_id: SetId, change: ReservationChange, now: UnixMs) {
        let Some(shelf) = self.directory.shelf(set_id) else { return };
        let forget_at = now.after(self.settings.ended_kept_ms);
        let ended = shelf.write().change_reservations(from, |all| {
            let live = |known: &&mut Reservation| known.id == id && known.state != ReservationState::Ended;
            all.iter_mut().find(live).map(|reservation| end(reservation, forget_at))
        });
        if let Some(Some(reservation)) = ended {
            self.tell(from, vec![(reservation, change)], now);
        }
    }

    /// Confirms and ends reservations as the store has done; says what listeners must hear.
    pub(super) fn settle(
        &self,
        all: &mut Vec<Reservation>,
        confirmed: &[ReservationId],
        settled: &[ReservationId],
        now: UnixMs,
    ) -> Vec<(Reservation, ReservationChange)> {
        let forget_at = now.after(self.settings.ended_kept_ms);
        let mut events = Vec::new();
        for reservation in all.iter_mut() {
            let held = reservation.state == ReservationState::Held && now < reservation.until;
            if held && confirmed.contains(&reservation.id) {
                reservation.state = ReservationState::Confirmed;
                events.push((reservation.clone(), ReservationChange::Confirmed));
            }
            if reservation.state != ReservationState::Ended && settled.contains(&reservation.id) {
                end(reservation, forget_at);
            }
        }
        all.retain(|known| known.state != ReservationState::Ended || now < known.until);
        events
    }

    pub(super) fn tell(&self, id: AdvertisementId, events: Vec<(Reservation, ReservationChange)>, now: UnixMs) {
        for (reservation, change) in events {
            let reservation = answer::reservation(&reservation, Vec::new(), now);
            self.events.tell(&ReservationEvent { advertisement_id: id, reservation, change });
        }
    }

    /// The store answered a question that was not asked: our bug.
    pub(super) fn broken(&self, asked: &'static str, outcome: &Outcome) -> Fault {
        tracing::error!(asked, ?outcome, "store answered something else");
        Fault::Internal
    }
}

fn end(reservation: &mut Reservation, forget_at: UnixMs) -> Reservation {
    reservation.state = ReservationState::Ended;
    reservation.until = forget_at;
    reservation.clone()
}
