//! Long-lived stream: many requests in flight, responses matched by nonce, reservation events pushed by the server.
//!
//! One task reads the stream; callers write to it through a bounded channel. When the stream ends, all waiting and all
//! later callers receive the reason as an error.

mod advertise;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;
use tonic::{Code, Request, Status, Streaming};

use crate::error::{Error, ServerError};
use crate::pb;
use crate::pb::matchmaking_connect_response::Message;
use crate::pb::matchmaking_service_client::MatchmakingServiceClient;
use crate::random::ensure_idempotency_key;

/// Maximum number of requests in flight; further callers wait.
const IN_FLIGHT_MAX: usize = 64;
/// Maximum number of unread reservation events; one more ends the stream.
const EVENTS_MAX: usize = 256;

/// A stream to the server. Clones share it; dropping the last one ends the stream.
#[derive(Clone, Debug)]
pub struct MatchmakingStream {
    shared: Arc<StreamShared>,
}

#[derive(Debug)]
struct StreamShared {
    outbox: mpsc::Sender<pb::MatchmakingConnectRequest>,
    permits: Arc<Semaphore>,
    next_nonce: AtomicU64,
    response_timeout: Duration,
    response_waiters: Arc<ResponseWaiters>,
    reader: AbortHandle,
}

impl Drop for StreamShared {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// Callers waiting for a response, by nonce, and the reason why the stream ended.
///
/// A std mutex: it is held for a lookup only, never across an await.
#[derive(Debug, Default)]
struct ResponseWaiters(Mutex<ResponseWaitersInner>);

#[derive(Debug, Default)]
struct ResponseWaitersInner {
    waiters: HashMap<u64, oneshot::Sender<Result<pb::MatchmakingCoreResponse, Error>>>,
    end_reason: Option<Error>,
}

impl ResponseWaiters {
    fn lock(&self) -> MutexGuard<'_, ResponseWaitersInner> {
        // No code under the lock can panic, so a poisoned lock has consistent state.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails all waiting callers with `reason` and stores it for later callers.
    fn fail_all_pending(&self, reason: Error) {
        let mut state = self.lock();
        for (_, waiter) in state.waiters.drain() {
            // Sending fails if the caller has stopped waiting.
            let _ = waiter.send(Err(reason.clone()));
        }
        state.end_reason.get_or_insert(reason);
    }
}

/// Event for the host of an advertisement.
#[derive(Clone, Debug, PartialEq)]
pub enum HostEvent {
    /// A reservation was made, confirmed or ended.
    Reservation(pb::ReservationEvent),
    /// A match has taken seats, has changed or has ended. A [`crate::MatchHost`] confirms it.
    Match(Box<pb::HostedMatch>),
}

/// Events of all advertisements that were updated on the connection.
#[derive(Debug)]
pub struct HostEvents {
    inbox: mpsc::Receiver<HostEvent>,
    response_waiters: Arc<ResponseWaiters>,
}

impl HostEvents {
    /// Waits for the next reservation event, and discards events of matches.
    pub async fn next_reservation_event(&mut self) -> Result<pb::ReservationEvent, Error> {
        loop {
            if let HostEvent::Reservation(event) = self.next_host_event().await? {
                return Ok(event);
            }
        }
    }

    /// Waits for the next event. An error means that the stream has ended; no event follows it.
    ///
    /// Dropping `HostEvents` leaves the stream open; events are then discarded.
    pub async fn next_host_event(&mut self) -> Result<HostEvent, Error> {
        match self.inbox.recv().await {
            Some(event) => Ok(event),
            None => Err(self.response_waiters.lock().end_reason.clone().unwrap_or(Error::StreamEnded(None))),
        }
    }
}

/// Response to a request in flight. Dropping it does not cancel the request.
#[derive(Debug)]
pub struct PendingResponse {
    nonce: u64,
    inbox: oneshot::Receiver<Result<pb::MatchmakingCoreResponse, Error>>,
    response_timeout: Duration,
    response_waiters: Arc<ResponseWaiters>,
    _permit: OwnedSemaphorePermit,
}

impl PendingResponse {
    /// Waits for the response, at most as long as the client's deadline.
    pub async fn wait(mut self) -> Result<pb::MatchmakingCoreResponse, Error> {
        match tokio::time::timeout(self.response_timeout, &mut self.inbox).await {
            Ok(Ok(response)) => response,
            Ok(Err(_)) => Err(Error::StreamEnded(None)),
            Err(_) => {
                Err(Error::from(Status::new(Code::DeadlineExceeded, "no response within the deadline; send it again")))
            }
        }
    }
}

impl Drop for PendingResponse {
    fn drop(&mut self) {
        self.response_waiters.lock().waiters.remove(&self.nonce);
    }
}

/// Opens a stream and starts the task that reads it.
pub(crate) async fn open_core_stream(
    mut stub: MatchmakingServiceClient<Channel>,
    metadata: MetadataMap,
    deadline: Duration,
) -> Result<(MatchmakingStream, HostEvents), Error> {
    let (outbox, requests) = mpsc::channel(IN_FLIGHT_MAX);
    let mut request = Request::new(ReceiverStream::new(requests));
    *request.metadata_mut() = metadata;
    let responses = match tokio::time::timeout(deadline, stub.connect(request)).await {
        Ok(result) => result?.into_inner(),
        Err(_) => {
            let status = Status::new(Code::DeadlineExceeded, "stream did not open within the deadline; open it again");
            return Err(Error::from(status));
        }
    };

    let (events, inbox) = mpsc::channel(EVENTS_MAX);
    let pending = Arc::new(ResponseWaiters::default());
    let reader = tokio::spawn(dispatch_stream_messages(responses, events, pending.clone())).abort_handle();
    let shared = StreamShared {
        outbox,
        permits: Arc::new(Semaphore::new(IN_FLIGHT_MAX)),
        next_nonce: AtomicU64::new(1),
        response_timeout: deadline,
        response_waiters: pending.clone(),
        reader,
    };
    Ok((MatchmakingStream { shared: Arc::new(shared) }, HostEvents { inbox, response_waiters: pending }))
}

/// Reads the stream until it ends; delivers responses to their callers and queues reservation events.
async fn dispatch_stream_messages(
    mut responses: Streaming<pb::MatchmakingConnectResponse>,
    events: mpsc::Sender<HostEvent>,
    pending: Arc<ResponseWaiters>,
) {
    let end_reason = loop {
        match responses.message().await {
            Ok(Some(response)) => {
                let event = match response.message {
                    Some(Message::Core(core)) => {
                        deliver_response(core, &pending);
                        continue;
                    }
                    Some(Message::Reservation(event)) => HostEvent::Reservation(event),
                    Some(Message::HostedMatch(hosted)) => HostEvent::Match(Box::new(hosted)),
                    // A newer server may send messages that this client does not know.
                    None => continue,
                };
                if let Err(mpsc::error::TrySendError::Full(_)) = events.try_send(event) {
                    break Error::EventBufferOverflow;
                }
            }
            Ok(None) => break Error::StreamEnded(None),
            Err(status) => break Error::StreamEnded(Some(Box::new(ServerError::from(&status)))),
        }
    };
    // The reason is stored before `events` closes, so that a reader of the closed channel finds it.
    pending.fail_all_pending(end_reason);
}

fn deliver_response(mut core: pb::MatchmakingCoreResponse, pending: &ResponseWaiters) {
    let nonce = core.request_nonce.unwrap_or_default();
    let Some(waiter) = pending.lock().waiters.remove(&nonce) else { return };
    let result = match core.error.take() {
        Some(error) => Err(Error::from_request_error(error)),
        None => Ok(core),
    };
    // Sending fails if the caller has stopped waiting.
    let _ = waiter.send(result);
}

impl MatchmakingStream {
    /// Sends a core request and returns without waiting for the response. The client sets the nonce.
    ///
    /// Requests are sent in the order of these calls. The server applies requests for one advertisement in that order.
    pub async fn send(&self, mut core: pb::MatchmakingCoreRequest) -> Result<PendingResponse, Error> {
        let shared = &self.shared;
        let end_reason = || shared.response_waiters.lock().end_reason.clone().unwrap_or(Error::StreamEnded(None));
        let permit = shared.permits.clone().acquire_owned().await.map_err(|_| end_reason())?;
        let nonce = shared.next_nonce.fetch_add(1, Ordering::Relaxed);
        core.request_nonce = Some(nonce);

        let (waiter, inbox) = oneshot::channel();
        {
            let mut state = shared.response_waiters.lock();
            if let Some(reason) = &state.end_reason {
                return Err(reason.clone());
            }
            state.waiters.insert(nonce, waiter);
        }
        let pending = shared.response_waiters.clone();
        let response = PendingResponse {
            nonce,
            inbox,
            response_timeout: shared.response_timeout,
            response_waiters: pending,
            _permit: permit,
        };
        shared.outbox.send(pb::MatchmakingConnectRequest { core: Some(core) }).await.map_err(|_| end_reason())?;
        Ok(response)
    }

    /// Sends a core request and waits for the response, in which the answer has the name `field`.
    async fn call<Answer>(
        &self,
        core: pb::MatchmakingCoreRequest,
        field: &'static str,
        take_answer: impl FnOnce(pb::MatchmakingCoreResponse) -> Option<Answer>,
    ) -> Result<Answer, Error> {
        take_answer(self.send(core).await?.wait().await?).ok_or(Error::MissingField(field))
    }

    /// Searches once.
    pub async fn search(&self, request: pb::MatchmakingSearchRequest) -> Result<pb::MatchmakingSearchResponse, Error> {
        let mut core = empty_core_envelope(pb::MatchmakingCoreRequestType::Search);
        core.search_request = Some(request);
        self.call(core, "search_response", |response| response.search_response).await
    }

    /// Publishes or replaces an advertisement, or extends its TTL. This connection then receives its reservation events.
    pub async fn update_advertisement(
        &self,
        mut request: pb::MatchmakingUpdateAdvertisementRequest,
    ) -> Result<pb::MatchmakingUpdateAdvertisementResponse, Error> {
        ensure_idempotency_key(&mut request);
        let mut core = empty_core_envelope(pb::MatchmakingCoreRequestType::UpdateAdvertisement);
        core.update_advertisement_request = Some(request);
        self.call(core, "update_advertisement_response", |response| response.update_advertisement_response).await
    }

    /// Deletes an advertisement. Succeeds if it is already deleted.
    pub async fn delete_advertisement(
        &self,
        request: pb::MatchmakingDeleteAdvertisementRequest,
    ) -> Result<pb::MatchmakingDeleteAdvertisementResponse, Error> {
        let mut core = empty_core_envelope(pb::MatchmakingCoreRequestType::DeleteAdvertisement);
        core.delete_advertisement_request = Some(request);
        self.call(core, "delete_advertisement_response", |response| response.delete_advertisement_response).await
    }

    /// Fetches the ruleset of a set.
    pub async fn get_configuration(
        &self,
        request: pb::MatchmakingGetConfigurationRequest,
    ) -> Result<pb::MatchmakingGetConfigurationResponse, Error> {
        let mut core = empty_core_envelope(pb::MatchmakingCoreRequestType::GetConfiguration);
        core.get_configuration_request = Some(request);
        self.call(core, "get_configuration_response", |response| response.get_configuration_response).await
    }
}

fn empty_core_envelope(kind: pb::MatchmakingCoreRequestType) -> pb::MatchmakingCoreRequest {
    pb::MatchmakingCoreRequest { request_type: Some(kind.into()), ..Default::default() }
}
