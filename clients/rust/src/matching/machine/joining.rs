//! Reserving seats and connecting, one candidate after the other.

use std::time::Duration;

use tonic::Code;

use crate::matching::call::{Answer, CallError, CallId, Request};
use crate::matching::machine::Matching;
use crate::matching::monotonic_time::MonotonicTime;
use crate::matching::outcome::{ConnectTarget, EndReason, Outcome};
use crate::matching::round::Round;
use crate::matching::stage::{JoinStep, ReservedSeats, Stage};
use crate::pb;

/// Time after which an order is too old to be followed.
const CANDIDATE_ORDER_AGE_MAX: Duration = Duration::from_secs(30);

impl Matching {
    /// Reserves seats with the candidates, in their order.
    pub(super) fn join(&mut self, round: Box<Round>, now: MonotonicTime) {
        self.reserve_next(round, now + CANDIDATE_ORDER_AGE_MAX, now);
    }

    fn reserve_next(&mut self, mut round: Box<Round>, until: MonotonicTime, now: MonotonicTime) {
        while let Some(advertisement_id) = round.pop_best().filter(|_| now < until) {
            if self.exclusions.contains(&advertisement_id, now) {
                continue;
            }
            let request = pb::MatchmakingReserveRequest {
                advertisement_id: advertisement_id.clone(),
                idempotency_key: self.effects.idempotency_key(),
                search_token: self.search_memory.token_unless_idle(now),
                session_composition: Some(self.party_with_latency_token()),
                matchmaking_set_id: Some(self.options.set_id),
                ..Default::default()
            };
            // Otherwise a release of an earlier attempt could end the new reservation.
            self.effects.calls.forget_unwanted(
                |_, call| matches!(call, Request::Release(release) if release.advertisement_id == advertisement_id),
            );
            let call = self.effects.call(Request::Reserve(Box::new(request)), now);
            self.stage = Stage::Joining { round, step: JoinStep::Reserving { call, advertisement_id }, until };
            return;
        }
        self.wait(0, now);
    }

    pub(super) fn on_reserved(&mut self, answer: pb::MatchmakingReserveResponse, now: MonotonicTime) {
        let Stage::Joining { round, step: JoinStep::Reserving { advertisement_id, .. }, until } =
            std::mem::replace(&mut self.stage, Stage::Idle)
        else {
            return;
        };
        let Some(reservation) = answer.reservation else {
            // The answer names no seats, so there is nothing to release.
            self.exclusions.add(&advertisement_id, now);
            return self.reserve_next(round, until, now);
        };
        let round_trip_ms = round.round_trip_from_server_ms(&advertisement_id);
        let seat = ReservedSeats { advertisement_id, reservation, connect_data: answer.connect_data, round_trip_ms };
        self.connect(round, seat, false, until, now);
    }

    fn connect(
        &mut self,
        round: Box<Round>,
        seat: ReservedSeats,
        again: bool,
        until: MonotonicTime,
        now: MonotonicTime,
    ) {
        let expires_in_ms = seat.reservation.expires_in_ms;
        let time = self.options.connect_timeout.max(Duration::from_millis(1));
        let time = if again || expires_in_ms == 0 { time } else { time.min(Duration::from_millis(expires_in_ms)) };
        self.effects.tell(Outcome::Connect(ConnectTarget {
            advertisement_id: seat.advertisement_id.clone(),
            reservation_id: seat.reservation.reservation_id.clone(),
            seats: seat.reservation.seats,
            connect_data: seat.connect_data.clone(),
            round_trip_ms: seat.round_trip_ms,
            is_reconnect: again,
        }));
        self.stage = Stage::Joining { round, step: JoinStep::Connecting { seat, until: now + time }, until };
    }

    pub(super) fn on_reserve_failed(&mut self, advertisement_id: &str, error: &CallError, now: MonotonicTime) {
        let Stage::Joining { round, until, .. } = std::mem::replace(&mut self.stage, Stage::Idle) else { return };
        if error.is_transient() {
            self.exclusions.add(advertisement_id, now);
            return self.wait(error.retry_after_ms.unwrap_or(0), now);
        }
        match error.code {
            Code::InvalidArgument => {
                // The token is of another server, or has expired.
                self.search_memory.forget_search();
                return self.wait(0, now);
            }
            Code::Unauthenticated | Code::Unimplemented => return self.end(EndReason::Failed(error.clone()), now),
            _ => {}
        }
        let can_measure = round.allows_probes()
            && self.needs_probe(&round, advertisement_id, now)
            && self.search_memory.probes_left() > 0;
        if error.reason == pb::ErrorReason::NotMeasured && can_measure {
            return self.probe_quickly_before_reserving(round, advertisement_id.to_owned(), now);
        }
        self.exclusions.add(advertisement_id, now);
        self.reserve_next(round, until, now);
    }

    pub(super) fn on_connected(&mut self, reservation_id: &str) {
        match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Joining { step: JoinStep::Connecting { seat, .. }, .. }
                if seat.reservation.reservation_id == reservation_id =>
            {
                self.effects.tell(Outcome::Joined {
                    advertisement_id: seat.advertisement_id.clone(),
                    reservation_id: reservation_id.to_owned(),
                });
                self.stage = Stage::JoinedAsGuest(Box::new(seat));
            }
            other => self.stage = other,
        }
    }

    /// The game could not connect, or not in time: releases the seats, and takes the next candidate.
    pub(super) fn on_connect_failed(&mut self, reservation_id: &str, now: MonotonicTime) {
        match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Joining { round, step: JoinStep::Connecting { seat, until: connect_until }, until }
                if seat.reservation.reservation_id == reservation_id =>
            {
                if connect_until <= now {
                    self.effects.tell(Outcome::AbandonConnect { reservation_id: reservation_id.to_owned() });
                }
                self.effects.release(&seat.reservation, now);
                self.exclusions.add(&seat.advertisement_id, now);
                self.reserve_next(round, until, now);
            }
            other => self.stage = other,
        }
    }

    /// The party connects again with the same reservation, which its host knows. If that fails, it leaves the session and searches.
    pub(super) fn on_connection_lost(&mut self, now: MonotonicTime) {
        match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::JoinedAsGuest(seat) => {
                self.redraw_wait_started_at = now;
                let round = Box::new(Round::new(&pb::MatchmakingSearchResponse::default()));
                self.connect(round, *seat, true, now + CANDIDATE_ORDER_AGE_MAX, now);
            }
            other => self.stage = other,
        }
    }

    /// Undoes what an answer did that no state waits for any longer.
    pub(super) fn on_stray_answer(&mut self, call: CallId, answer: Answer, now: MonotonicTime) {
        match answer {
            Answer::Reserve(answer) => {
                let held = self.stage.seat().map(|seat| &seat.reservation.reservation_id);
                if let Some(reservation) = answer.reservation
                    && held != Some(&reservation.reservation_id)
                {
                    self.effects.release(&reservation, now);
                }
            }
            Answer::UpdateAdvertisement(answer) => self.on_late_update_answer(call, &answer, now),
            _ => {}
        }
    }

    /// A reservation that failed without an answer may have been made. The server finds the player's own seat without its id.
    pub(super) fn release_unknown_seat(&mut self, request: &Request, error: &CallError, now: MonotonicTime) {
        if let Request::Reserve(reserve) = request
            && error.is_outcome_unknown()
        {
            let advertisement_id = reserve.advertisement_id.clone();
            let request = pb::MatchmakingReleaseRequest { advertisement_id, ..Default::default() };
            self.effects.call(Request::Release(request), now);
        }
    }
}
