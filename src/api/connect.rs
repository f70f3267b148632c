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

use crate::api::authorization::{AuthorizedCaller, ClientOrGameServer, token_expired_rejection};
use crate::api::convert::{EntryPoint, to_proto};
use crate::api::drain::Drain;
use crate::api::envelope::{AcceptedEnvelope, EnvelopeHeader, SubResponse};
use crate::api::matchmaking_handler::MatchmakingHandler;
use crate::api::pb;
use crate::api::pb::ErrorReason;
use crate::api::pb::matchmaking_connect_response::Message;
use crate::api::status::Rejection;
use crate::auth::rate_limit::StreamPermit;
use crate::domain::id::AdvertisementId;
use crate::engine::ReservationListener;
use crate::engine::command::ReservationEvent;

/// Requests that one connection may have unanswered; past that, it is not read from.
pub const IN_FLIGHT_REQUESTS_MAX: usize = 256;

/// Requests that are read in a row before anything else is looked at: enough that the looking costs each of them little.
const CONSECUTIVE_READS_MAX: u8 = 16;

/// Events that wait for a slow client, before the connection is ended.
pub const BUFFERED_EVENTS_MAX: usize = 64;

/// Advertisements that one connection hears of. A host of more opens another connection.
pub const SUBSCRIPTIONS_MAX: usize = 4_096;

/// The answers of one connection.
#[derive(Debug)]
pub struct ConnectResponses {
    handler: MatchmakingHandler,
    caller: AuthorizedCaller<ClientOrGameServer>,
    /// None when the client has said all that it wanted.
    requests: Option<Streaming<pb::ConnectRequest>>,
    pending_responses: FuturesUnordered<AcceptedEnvelope>,
    event_listener: ReservationListener,
    reservation_events: mpsc::Receiver<ReservationEvent>,
    subscriptions: BTreeSet<AdvertisementId>,
    event_overflow: Pin<Box<WaitForCancellationFutureOwned>>,
    draining: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Requests read since there was last nothing else to say.
    consecutive_reads: u8,
    /// When the caller's proof is no longer good; none when it has no end of its own.
    token_expiry: Option<Pin<Box<Sleep>>>,
    /// Why no more is read; what was taken is still answered.
    close_reason: Option<CloseReason>,
    ended: bool,
    /// Its place among its caller's streams, until it has ended.
    stream_permit: Option<StreamPermit>,
}

/// Why a conversation comes to its end.
#[derive(Clone, Copy, Debug)]
enum CloseReason {
    /// The server is going away.
    Draining,
    /// The caller's token is no longer good.
    TokenExpired,
}

type ConnectItem = Result<pb::ConnectResponse, Status>;

impl ConnectResponses {
    /// A conversation with `caller`, which ends when `drain` begins or the caller's proof is no longer good.
    pub fn new(
        handler: MatchmakingHandler,
        caller: AuthorizedCaller<ClientOrGameServer>,
        inbound: Streaming<pb::ConnectRequest>,
        drain: &Drain,
    ) -> Self {
        let (sender, events) = mpsc::channel(BUFFERED_EVENTS_MAX);
        let overflowed = CancellationToken::new();
        Self {
            handler,
            token_expiry: caller.valid_for().map(|good_for| Box::pin(tokio::time::sleep(good_for))),
            caller,
            requests: Some(inbound),
            pending_responses: FuturesUnordered::new(),
            event_listener: ReservationListener { event_sender: sender, overflow: overflowed.clone() },
            reservation_events: events,
            subscriptions: BTreeSet::new(),
            event_overflow: Box::pin(overflowed.cancelled_owned()),
            draining: Box::pin(drain.stream_cancellation().clone().cancelled_owned()),
            consecutive_reads: 0,
            close_reason: None,
            ended: false,
            stream_permit: None,
        }
    }

    /// Holds `place` until it ends.
    pub fn with_stream_permit(self, place: Option<StreamPermit>) -> Self {
        Self { stream_permit: place, ..self }
    }

    fn accept_request(&mut self, request: pb::ConnectRequest) -> AcceptedEnvelope {
        let core = request.core.unwrap_or_default();
        if core.request_nonce.is_none() {
            let mut problems = EntryPoint::default().field_errors();
            problems.add("request_nonce", "is missing: on a connection it says which answer belongs to which request");
            let echo = EnvelopeHeader::from_request(&core);
            return match problems.into_result(()) {
                Err(rejection) => AcceptedEnvelope::rejected(echo, rejection),
                Ok(()) => self.handler.accept_envelope(&self.caller, core),
            };
        }
        self.handler.accept_envelope(&self.caller, core)
    }

    /// An answer in its envelope. Whoever has updated an advertisement hears of it from now on.
    fn wrap_response(&mut self, echo: EnvelopeHeader, answer: Result<SubResponse, Rejection>) -> ConnectItem {
        let answer = answer.map(|answer| self.update_subscriptions(answer));
        let core = match answer {
            Err(rejection) => echo.wrap_error(rejection),
            Ok(answer) => echo.wrap_response(answer),
        };
        Ok(pb::ConnectResponse { message: Some(Message::Core(core)) })
    }

    /// Subscribes to what was updated. Seats may have been taken since the update was answered and before anybody
    /// listened, so the answer gets the reservations as they are after that.
    fn update_subscriptions(&mut self, mut answer: SubResponse) -> SubResponse {
        match &mut answer {
            SubResponse::Update(update) => {
                let room = self.subscriptions.len() < SUBSCRIPTIONS_MAX;
                let is_new = room && self.subscriptions.insert(update.id);
                if is_new || update.created && self.subscriptions.contains(&update.id) {
                    update.reservations = self.handler.subscribe(&self.caller, update.id, &self.event_listener);
                }
            }
            SubResponse::Delete(id) => drop(self.subscriptions.remove(id)),
            SubResponse::Search(_) | SubResponse::Configuration(_) => {}
        }
        answer
    }

    fn end_with_error(&mut self, rejection: Rejection) -> Poll<Option<ConnectItem>> {
        self.ended = true;
        self.stream_permit = None;
        Poll::Ready(Some(Err(rejection.into_status())))
    }

    /// Reads a request, if there is one and room for it: its answer, or none when that takes a while.
    fn poll_requests(&mut self, cx: &mut Context<'_>) -> Poll<Option<ConnectItem>> {
        let Some(inbound) = self.requests.as_mut().filter(|_| self.close_reason.is_none()) else {
            return Poll::Pending;
        };
        if IN_FLIGHT_REQUESTS_MAX <= self.pending_responses.len() {
            return Poll::Pending;
        }
        match ready!(Pin::new(inbound).poll_next(cx)) {
            Some(Ok(request)) => {
                let mut taken = self.accept_request(request);
                if let Some(answer) = taken.take_ready_response() {
                    return Poll::Ready(Some(self.wrap_response(taken.header, answer)));
                }
                self.pending_responses.push(taken);
            }
            Some(Err(status)) => {
                self.ended = true;
                self.stream_permit = None;
                return Poll::Ready(Some(Err(status)));
            }
            None => self.requests = None,
        }
        Poll::Ready(None)
    }

    /// What is there to say without reading a request.
    fn poll_responses(&mut self, cx: &mut Context<'_>) -> Poll<Option<ConnectItem>> {
        if let Poll::Ready(Some((echo, answer))) = Pin::new(&mut self.pending_responses).poll_next(cx) {
            return Poll::Ready(Some(self.wrap_response(echo, answer)));
        }
        if let Poll::Ready(Some(event)) = self.reservation_events.poll_recv(cx) {
            let event = to_proto::reservation_event(event);
            return Poll::Ready(Some(Ok(pb::ConnectResponse { message: Some(Message::Reservation(event)) })));
        }
        if self.event_overflow.as_mut().poll(cx).is_ready() {
            let text = "the connection fell behind its events; reconnect and update every advertisement to hear all";
            return self.end_with_error(Rejection::new(
                Code::ResourceExhausted,
                ErrorReason::EventBufferOverflow,
                text,
            ));
        }
        if self.close_reason.is_none() {
            let run_out = self.token_expiry.as_mut().is_some_and(|run_out| run_out.as_mut().poll(cx).is_ready());
            let draining = self.draining.as_mut().poll(cx).is_ready();
            self.close_reason =
                run_out.then_some(CloseReason::TokenExpired).or(draining.then_some(CloseReason::Draining));
        }
        match self.close_reason.filter(|_| self.pending_responses.is_empty()) {
            Some(CloseReason::Draining) => self.end_with_error(Rejection::draining()),
            Some(CloseReason::TokenExpired) => self.end_with_error(token_expired_rejection()),
            None => Poll::Pending,
        }
    }
}

impl Stream for ConnectResponses {
    type Item = ConnectItem;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let mut dry = false;
        while !this.ended {
            if this.consecutive_reads < CONSECUTIVE_READS_MAX {
                match this.poll_requests(cx) {
                    Poll::Ready(said) => {
                        this.consecutive_reads += 1;
                        if said.is_some() { return Poll::Ready(said) } else { continue }
                    }
                    Poll::Pending => dry = true,
                }
            }
            // Until there is nothing left to say, nothing more is read.
            this.consecutive_reads = CONSECUTIVE_READS_MAX;
            if let Poll::Ready(said) = this.poll_responses(cx) {
                return Poll::Ready(said);
            }
            this.consecutive_reads = 0;
            this.ended = this.requests.is_none() && this.pending_responses.is_empty();
            if dry && !this.ended {
                return Poll::Pending;
            }
        }
        // Free before anybody hears that it is over.
        this.stream_permit = None;
        Poll::Ready(None)
    }
}
