//! Connect stream: pipelined requests, executed in the order sent; responses in any order, matched by nonce;
//! events of reservations and hosted matches in between.
//!
//! The response stream drives the loop: it is polled when the client has room for more, and only then reads a request.
//! A client that stops reading is no longer read from. There is no extra task or channel.

use std::collections::{BTreeSet, VecDeque};
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
use crate::api::convert::{RequestReader, hosting, to_proto};
use crate::api::drain::Drain;
use crate::api::envelope::{EnvelopeHeader, PendingEnvelope, SubResponse};
use crate::api::matchmaking_handler::MatchmakingHandler;
use crate::api::pb;
use crate::api::pb::ErrorReason;
use crate::api::pb::matchmaking_connect_response::Message;
use crate::api::status::Rejection;
use crate::auth::rate_limit::StreamPermit;
use crate::domain::id::AdvertisementId;
use crate::engine::{HostEvent, HostEventSender, HostedMatch};

/// Unanswered requests per connection. At the limit, the server stops reading from the connection.
pub const IN_FLIGHT_REQUESTS_MAX: usize = 256;

/// Requests read in a row before responses and events are polled. Spreads the cost of polling over several requests.
const CONSECUTIVE_READS_MAX: u8 = 16;

/// Reservation events buffered for a slow client. When the buffer overflows, the connection ends.
pub const BUFFERED_EVENTS_MAX: usize = 64;

/// Advertisements whose reservation events one connection receives. A host with more opens another connection.
pub const SUBSCRIBED_ADVERTISEMENTS_MAX: usize = 4_096;

/// Response stream of one connection.
#[derive(Debug)]
pub struct ConnectResponses {
    handler: MatchmakingHandler,
    caller: AuthorizedCaller<ClientOrGameServer>,
    /// `None` after the client has closed its side.
    requests: Option<Streaming<pb::ConnectRequest>>,
    pending_responses: FuturesUnordered<PendingEnvelope>,
    event_listener: HostEventSender,
    host_events: mpsc::Receiver<HostEvent>,
    /// Matches of advertisements that this connection has just subscribed to.
    matches_to_send: VecDeque<HostedMatch>,
    subscriptions: BTreeSet<AdvertisementId>,
    event_overflow: Pin<Box<WaitForCancellationFutureOwned>>,
    draining: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Requests read since responses and events were last polled without a result.
    consecutive_reads: u8,
    /// Timer for the expiry of the caller's credentials; `None` if they do not expire.
    token_expiry: Option<Pin<Box<Sleep>>>,
    /// Reason to read no more requests. Requests already accepted are still answered.
    close_reason: Option<CloseReason>,
    ended: bool,
    /// Permit for this stream in the caller's stream limit; released when the stream ends.
    stream_permit: Option<StreamPermit>,
}

/// Reason why the server closes a connection.
#[derive(Clone, Copy, Debug)]
enum CloseReason {
    /// The server is draining.
    Draining,
    /// The caller's credentials have expired.
    TokenExpired,
}

type ConnectItem = Result<pb::ConnectResponse, Status>;

impl ConnectResponses {
    /// Creates the stream of `caller`. It ends when `drain` starts or the caller's credentials expire.
    pub fn new(
        handler: MatchmakingHandler,
        caller: AuthorizedCaller<ClientOrGameServer>,
        requests: Streaming<pb::ConnectRequest>,
        drain: &Drain,
    ) -> Self {
        let (event_sender, host_events) = mpsc::channel(BUFFERED_EVENTS_MAX);
        let overflow = CancellationToken::new();
        Self {
            handler,
            token_expiry: caller.valid_for().map(|valid_for| Box::pin(tokio::time::sleep(valid_for))),
            caller,
            requests: Some(requests),
            pending_responses: FuturesUnordered::new(),
            event_listener: HostEventSender { event_sender, overflow: overflow.clone() },
            host_events,
            matches_to_send: VecDeque::new(),
            subscriptions: BTreeSet::new(),
            event_overflow: Box::pin(overflow.cancelled_owned()),
            draining: Box::pin(drain.stream_cancellation().clone().cancelled_owned()),
            consecutive_reads: 0,
            close_reason: None,
            ended: false,
            stream_permit: None,
        }
    }

    /// Holds `stream_permit` until the stream ends.
    pub fn with_stream_permit(self, stream_permit: Option<StreamPermit>) -> Self {
        Self { stream_permit, ..self }
    }

    fn accept_request(&mut self, request: pb::ConnectRequest) -> PendingEnvelope {
        let envelope = request.core.unwrap_or_default();
        if envelope.request_nonce.is_none() {
            let mut errors = RequestReader::default().new_field_errors();
            errors.add("request_nonce", "is missing; choose a nonce, which the response repeats");
            let header = EnvelopeHeader::from_request(&envelope);
            return match errors.into_result(()) {
                Err(rejection) => PendingEnvelope::new_rejected(header, rejection),
                Ok(()) => PendingEnvelope::start(&self.handler, &self.caller, envelope),
            };
        }
        PendingEnvelope::start(&self.handler, &self.caller, envelope)
    }

    /// Wraps a response in its envelope. An update subscribes the connection to the advertisement's events.
    fn wrap_response(&mut self, header: EnvelopeHeader, response: Result<SubResponse, Rejection>) -> ConnectItem {
        let response = response.map(|response| self.update_subscriptions(response));
        let envelope = match response {
            Err(rejection) => header.wrap_error(rejection),
            Ok(response) => header.wrap_response(response),
        };
        Ok(pb::ConnectResponse { message: Some(Message::Core(envelope)) })
    }

    /// Subscribes to an updated advertisement. Seats may be taken between the update and the subscription, so the
    /// response lists the reservations as they are after subscribing.
    fn update_subscriptions(&mut self, mut response: SubResponse) -> SubResponse {
        match &mut response {
            SubResponse::Update(update) => {
                let has_room = self.subscriptions.len() < SUBSCRIBED_ADVERTISEMENTS_MAX;
                let is_new = has_room && self.subscriptions.insert(update.id);
                if is_new || update.is_new_advert && self.subscriptions.contains(&update.id) {
                    let (reservations, hosted_matches) =
                        self.handler.subscribe_host_to_advertisement(&self.caller, update.id, &self.event_listener);
                    update.reservations = reservations;
                    self.matches_to_send.extend(hosted_matches);
                }
            }
            SubResponse::Delete(id) => drop(self.subscriptions.remove(id)),
            SubResponse::Search(_) | SubResponse::Configuration(_) => {}
        }
        response
    }

    fn end_with_error(&mut self, rejection: Rejection) -> Poll<Option<ConnectItem>> {
        self.ended = true;
        self.stream_permit = None;
        Poll::Ready(Some(Err(rejection.into_status())))
    }

    /// Reads a request, if there is one and room for it. Returns its response, or `None` if that is not ready yet.
    fn poll_requests(&mut self, cx: &mut Context<'_>) -> Poll<Option<ConnectItem>> {
        let Some(requests) = self.requests.as_mut().filter(|_| self.close_reason.is_none()) else {
            return Poll::Pending;
        };
        if self.pending_responses.len() >= IN_FLIGHT_REQUESTS_MAX {
            return Poll::Pending;
        }
        match ready!(Pin::new(requests).poll_next(cx)) {
            Some(Ok(request)) => {
                let mut accepted = self.accept_request(request);
                if let Some(response) = accepted.take_ready_response() {
                    return Poll::Ready(Some(self.wrap_response(accepted.header, response)));
                }
                self.pending_responses.push(accepted);
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

    /// Returns the next response, event or final error, without reading a request.
    fn poll_responses(&mut self, cx: &mut Context<'_>) -> Poll<Option<ConnectItem>> {
        if let Poll::Ready(Some((header, response))) = Pin::new(&mut self.pending_responses).poll_next(cx) {
            return Poll::Ready(Some(self.wrap_response(header, response)));
        }
        if let Some(hosted) = self.matches_to_send.pop_front() {
            return Poll::Ready(Some(Ok(hosted_match_message(&hosted))));
        }
        if let Poll::Ready(Some(event)) = self.host_events.poll_recv(cx) {
            let message = match event {
                HostEvent::Reservation(event) => {
                    let event = to_proto::reservation_event(event);
                    pb::ConnectResponse { message: Some(Message::Reservation(event)) }
                }
                HostEvent::Match(hosted) => hosted_match_message(&hosted),
            };
            return Poll::Ready(Some(Ok(message)));
        }
        if self.event_overflow.as_mut().poll(cx).is_ready() {
            let text = "event buffer overflow; reconnect and update each advertisement to receive its reservations";
            return self.end_with_error(Rejection::new(
                Code::ResourceExhausted,
                ErrorReason::EventBufferOverflow,
                text,
            ));
        }
        if self.close_reason.is_none() {
            let is_expired = self.token_expiry.as_mut().is_some_and(|expiry| expiry.as_mut().poll(cx).is_ready());
            let is_draining = self.draining.as_mut().poll(cx).is_ready();
            self.close_reason =
                is_expired.then_some(CloseReason::TokenExpired).or(is_draining.then_some(CloseReason::Draining));
        }
        match self.close_reason.filter(|_| self.pending_responses.is_empty()) {
            Some(CloseReason::Draining) => self.end_with_error(Rejection::draining()),
            Some(CloseReason::TokenExpired) => self.end_with_error(token_expired_rejection()),
            None => Poll::Pending,
        }
    }
}

fn hosted_match_message(hosted: &HostedMatch) -> pb::ConnectResponse {
    pb::ConnectResponse { message: Some(Message::HostedMatch(hosting::hosted_match_response(hosted))) }
}

impl Stream for ConnectResponses {
    type Item = ConnectItem;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let mut no_request = false;
        while !this.ended {
            if this.consecutive_reads < CONSECUTIVE_READS_MAX {
                match this.poll_requests(cx) {
                    Poll::Ready(item) => {
                        this.consecutive_reads += 1;
                        if item.is_some() { return Poll::Ready(item) } else { continue }
                    }
                    Poll::Pending => no_request = true,
                }
            }
            // No request is read until responses and events are exhausted.
            this.consecutive_reads = CONSECUTIVE_READS_MAX;
            if let Poll::Ready(item) = this.poll_responses(cx) {
                return Poll::Ready(item);
            }
            this.consecutive_reads = 0;
            this.ended = this.requests.is_none() && this.pending_responses.is_empty();
            if no_request && !this.ended {
                return Poll::Pending;
            }
        }
        // The permit is released before the client receives the end of the stream.
        this.stream_permit = None;
        Poll::Ready(None)
    }
}
