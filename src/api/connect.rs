//! One long-lived connection: requests are put to the engine in the order sent, answered in any order by nonce, and
//! news of reservations is pushed in between.
//!
//! The stream of answers is itself the loop: it is polled when the client has room for more, and reads a request only
//! then. A client that stops reading is therefore no longer read from, and no task or channel stands in between.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;
use tokio::time::Sleep;
use tokio_stream::Stream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::{Code, Status, Streaming};

use crate::api::pb::ErrorReason;
use crate::api::admission::{Caller, Player, run_out};
use crate::api::convert::{Door, out};
use crate::api::core::{Answer, Echo, Taken};
use crate::api::drain::Drain;
use crate::api::handler::Handler;
use crate::api::pb;
use crate::api::pb::matchmaking_connect_response::Message;
use crate::api::status::Rejection;
use crate::auth::quota::Place;
use crate::domain::id::AdvertisementId;
use crate::engine::Listener;
use crate::engine::command::ReservationEvent;

/// Requests that one connection may have unanswered; past that, it is not read from.
pub const IN_FLIGHT_MAX: usize = 256;

/// Requests that are read in a row before anything else is looked at: enough that the looking costs each of them little.
const IN_A_ROW_MAX: u8 = 16;

/// Events that wait for a slow client, before the connection is ended.
pub const EVENTS_MAX: usize = 64;

/// Advertisements that one connection hears of. A host of more opens another connection.
pub const SUBSCRIPTIONS_MAX: usize = 4_096;

/// The answers of one connection.
#[derive(Debug)]
pub struct Conversation {
    handler: Handler,
    caller: Caller<Player>,
    /// None when the client has said all that it wanted.
    inbound: Option<Streaming<pb::ConnectRequest>>,
    pending: FuturesUnordered<Taken>,
    listener: Listener,
    events: mpsc::Receiver<ReservationEvent>,
    subscribed: BTreeSet<AdvertisementId>,
    overflowed: Pin<Box<WaitForCancellationFutureOwned>>,
    draining: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Requests read since there was last nothing else to say.
    in_a_row: u8,
    /// When the caller's proof is no longer good; none when it has no end of its own.
    run_out: Option<Pin<Box<Sleep>>>,
    /// Why no more is read; what was taken is still answered.
    closing: Option<Closing>,
    ended: bool,
    /// Its place among its caller's streams, until it has ended.
    place: Option<Place>,
}

/// Why a conversation comes to its end.
#[derive(Clone, Copy, Debug)]
enum Closing {
    /// The server is going away.
    GoingAway,
    /// The caller's token is no longer good.
    RunOut,
}

type Item = Result<pb::ConnectResponse, Status>;

impl Conversation {
    /// A conversation with `caller`, which ends when `drain` begins or the caller's proof is no longer good.
    pub fn new(
        handler: Handler,
        caller: Caller<Player>,
        inbound: Streaming<pb::ConnectRequest>,
        drain: &Drain,
    ) -> Self {
        let (sender, events) = mpsc::channel(EVENTS_MAX);
        let overflowed = CancellationToken::new();
        Self {
            handler,
            run_out: caller.good_for().map(|good_for| Box::pin(tokio::time::sleep(good_for))),
            caller,
            inbound: Some(inbound),
            pending: FuturesUnordered::new(),
            listener: Listener { events: sender, overflowed: overflowed.clone() },
            events,
            subscribed: BTreeSet::new(),
            overflowed: Box::pin(overflowed.cancelled_owned()),
            draining: Box::pin(drain.token().clone().cancelled_owned()),
            in_a_row: 0,
            closing: None,
            ended: false,
            place: None,
        }
    }

    /// Holds `place` until it ends.
    pub fn in_place(self, place: Option<Place>) -> Self {
        Self { place, ..self }
    }

    fn take(&mut self, request: pb::ConnectRequest) -> Taken {
        let core = request.core.unwrap_or_default();
        if core.request_nonce.is_none() {
            let mut problems = Door::default().problems();
            problems.add("request_nonce", "is missing: on a connection it says which answer belongs to which request");
            let echo = Echo::of(&core);
            return match problems.finish(()) {
                Err(rejection) => Taken::refused(echo, rejection),
                Ok(()) => self.handler.take(&self.caller, core),
            };
        }
        self.handler.take(&self.caller, core)
    }

    /// An answer in its envelope. Whoever has updated an advertisement hears of it from now on.
    fn answer(&mut self, echo: Echo, answer: Result<Answer, Rejection>) -> Item {
        let answer = answer.map(|answer| self.listen(answer));
        let core = match answer {
            Err(rejection) => echo.around_refusal(rejection),
            Ok(answer) => echo.around(answer),
        };
        Ok(pb::ConnectResponse { message: Some(Message::Core(core)) })
    }

    /// Subscribes to what was updated. Seats may have been taken since the update was answered and before anybody
    /// listened, so the answer gets the reservations as they are after that.
    fn listen(&mut self, mut answer: Answer) -> Answer {
        match &mut answer {
            Answer::Update(update) => {
                let room = self.subscribed.len() < SUBSCRIPTIONS_MAX;
                let is_new = room && self.subscribed.insert(update.id);
                if is_new || update.created && self.subscribed.contains(&update.id) {
                    update.reservations = self.handler.subscribe(&self.caller, update.id, &self.listener);
                }
            }
            Answer::Delete(id) => drop(self.subscribed.remove(id)),
            Answer::Search(_) | Answer::Configuration(_) => {}
        }
        answer
    }

    fn end(&mut self, rejection: Rejection) -> Poll<Option<Item>> {
        self.ended = true;
        self.place = None;
        Poll::Ready(Some(Err(rejection.into_status())))
    }

    /// Reads a request, if there is one and room for it: its answer, or none when that takes a while.
    fn poll_inbound(&mut self, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        let Some(inbound) = self.inbound.as_mut().filter(|_| self.closing.is_none()) else { return Poll::Pending };
        if IN_FLIGHT_MAX <= self.pending.len() {
            return Poll::Pending;
        }
        match ready!(Pin::new(inbound).poll_next(cx)) {
            Some(Ok(request)) => {
                let mut taken = self.take(request);
                if let Some(answer) = taken.now() {
                    return Poll::Ready(Some(self.answer(taken.echo, answer)));
                }
                self.pending.push(taken);
            }
            Some(Err(status)) => {
                self.ended = true;
                self.place = None;
                return Poll::Ready(Some(Err(status)));
            }
            None => self.inbound = None,
        }
        Poll::Ready(None)
    }

    /// What is there to say without reading a request.
    fn poll_outbound(&mut self, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        if let Poll::Ready(Some((echo, answer))) = Pin::new(&mut self.pending).poll_next(cx) {
            return Poll::Ready(Some(self.answer(echo, answer)));
        }
        if let Poll::Ready(Some(event)) = self.events.poll_recv(cx) {
            let event = out::reservation_event(event);
            return Poll::Ready(Some(Ok(pb::ConnectResponse { message: Some(Message::Reservation(event)) })));
        }
        if self.overflowed.as_mut().poll(cx).is_ready() {
            let text = "the connection fell behind its events; reconnect and update every advertisement to hear all";
            return self.end(Rejection::new(Code::ResourceExhausted, ErrorReason::EventBufferOverflow, text));
        }
        if self.closing.is_none() {
            let run_out = self.run_out.as_mut().is_some_and(|run_out| run_out.as_mut().poll(cx).is_ready());
            let draining = self.draining.as_mut().poll(cx).is_ready();
            self.closing = run_out.then_some(Closing::RunOut).or(draining.then_some(Closing::GoingAway));
        }
        match self.closing.filter(|_| self.pending.is_empty()) {
            Some(Closing::GoingAway) => self.end(Rejection::going_away()),
            Some(Closing::RunOut) => self.end(run_out()),
            None => Poll::Pending,
        }
    }
}

impl Stream for Conversation {
    type Item = Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let mut dry = false;
        while !this.ended {
            if this.in_a_row < IN_A_ROW_MAX {
                match this.poll_inbound(cx) {
                    Poll::Ready(said) => {
                        this.in_a_row += 1;
                        if said.is_some() { return Poll::Ready(said) } else { continue }
                    }
                    Poll::Pending => dry = true,
                }
            }
            // Until there is nothing left to say, nothing more is read.
            this.in_a_row = IN_A_ROW_MAX;
            if let Poll::Ready(said) = this.poll_outbound(cx) {
                return Poll::Ready(said);
            }
            this.in_a_row = 0;
            this.ended = this.inbound.is_none() && this.pending.is_empty();
            if dry && !this.ended {
                return Poll::Pending;
            }
        }
        // Free before anybody hears that it is over.
        this.place = None;
        Poll::Ready(None)
    }
}
