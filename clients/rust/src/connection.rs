//! The long-lived connection: many requests in flight, answers matched by nonce, reservation events pushed.
//!
//! One task reads the stream; callers write to it through a bounded channel. When the stream ends, for whatever reason,
//! every waiting caller hears of it, and so does everyone who comes later.

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

use crate::advertisement::{Advertisement, UpdateChannel};
use crate::client::ensure_idempotency_key;
use crate::error::{Error, ServerError};
use crate::pb;
use crate::pb::matchmaking_connect_response::Message;
use crate::pb::matchmaking_service_client::MatchmakingServiceClient;

/// Requests sent and not yet answered; a caller beyond that waits its turn.
const IN_FLIGHT_MAX: usize = 64;
/// Reservation events that have arrived and not been read; one more ends the stream.
const EVENTS_MAX: usize = 256;

/// A stream to the server. Clones share it; when the last one goes, the stream ends.
#[derive(Clone, Debug)]
pub struct Connection {
    shared: Arc<ConnectionShared>,
}

#[derive(Debug)]
struct ConnectionShared {
    outbox: mpsc::Sender<pb::MatchmakingConnectRequest>,
    permits: Arc<Semaphore>,
    next_nonce: AtomicU64,
    deadline: Duration,
    pending: Arc<PendingRequests>,
    reader: AbortHandle,
}

impl Drop for ConnectionShared {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// Who waits for which nonce, and whether there is any point in waiting. A std mutex: it is held for a look-up, never
/// across an await.
#[derive(Debug, Default)]
struct PendingRequests(Mutex<PendingState>);

#[derive(Debug, Default)]
struct PendingState {
    waiters: HashMap<u64, oneshot::Sender<Result<pb::MatchmakingCoreResponse, Error>>>,
    end_reason: Option<Error>,
}

impl PendingRequests {
    fn state(&self) -> MutexGuard<'_, PendingState> {
        // Nothing that can panic happens under the lock, so a poisoned one is as good as any.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end_all(&self, why: Error) {
        let mut state = self.state();
        for (_, caller) in state.waiters.drain() {
            // A caller that has stopped waiting does not need to hear.
            let _ = caller.send(Err(why.clone()));
        }
        state.end_reason.get_or_insert(why);
    }
}

/// Reservation events of every advertisement that the connection has updated.
#[derive(Debug)]
pub struct ReservationEvents {
    inbox: mpsc::Receiver<pb::ReservationEvent>,
    pending: Arc<PendingRequests>,
}

impl ReservationEvents {
    /// The next event. An error says that the stream has ended and why; there are no more events after it. Dropping
    /// `Events` is fine: events are then discarded as they come.
    pub async fn next(&mut self) -> Result<pb::ReservationEvent, Error> {
        match self.inbox.recv().await {
            Some(event) => Ok(event),
            None => Err(self.pending.state().end_reason.clone().unwrap_or(Error::StreamEnded(None))),
        }
    }
}

/// An answer that is on its way. Dropping it does not recall the request.
#[derive(Debug)]
pub struct PendingResponse {
    nonce: u64,
    inbox: oneshot::Receiver<Result<pb::MatchmakingCoreResponse, Error>>,
    deadline: Duration,
    pending: Arc<PendingRequests>,
    _permit: OwnedSemaphorePermit,
}

impl PendingResponse {
    /// Waits for the answer.
    pub async fn wait(mut self) -> Result<pb::MatchmakingCoreResponse, Error> {
        match tokio::time::timeout(self.deadline, &mut self.inbox).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(Error::StreamEnded(None)),
            Err(_) => Err(Error::from(Status::new(Code::DeadlineExceeded, "no answer on the connection in time"))),
        }
    }
}

impl Drop for PendingResponse {
    fn drop(&mut self) {
        self.pending.state().waiters.remove(&self.nonce);
    }
}

pub(crate) async fn open_connection(
    mut stub: MatchmakingServiceClient<Channel>,
    metadata: MetadataMap,
    deadline: Duration,
) -> Result<(Connection, ReservationEvents), Error> {
    let (outbox, requests) = mpsc::channel(IN_FLIGHT_MAX);
    let mut request = Request::new(ReceiverStream::new(requests));
    *request.metadata_mut() = metadata;
    let answers = match tokio::time::timeout(deadline, stub.connect(request)).await {
        Ok(opened) => opened?.into_inner(),
        Err(_) => return Err(Error::from(Status::new(Code::DeadlineExceeded, "the stream did not open in time"))),
    };

    let (events, inbox) = mpsc::channel(EVENTS_MAX);
    let waiting = Arc::new(PendingRequests::default());
    let reader = tokio::spawn(read_responses(answers, events, waiting.clone())).abort_handle();
    let shared = ConnectionShared {
        outbox,
        permits: Arc::new(Semaphore::new(IN_FLIGHT_MAX)),
        next_nonce: AtomicU64::new(1),
        deadline,
        pending: waiting.clone(),
        reader,
    };
    Ok((Connection { shared: Arc::new(shared) }, ReservationEvents { inbox, pending: waiting }))
}

/// Hands out what arrives until nothing does.
async fn read_responses(
    mut answers: Streaming<pb::MatchmakingConnectResponse>,
    events: mpsc::Sender<pb::ReservationEvent>,
    waiting: Arc<PendingRequests>,
) {
    let why = loop {
        match answers.message().await {
            Ok(Some(answer)) => match answer.message {
                Some(Message::Core(core)) => deliver_response(core, &waiting),
                Some(Message::Reservation(event)) => {
                    if let Err(mpsc::error::TrySendError::Full(_)) = events.try_send(event) {
                        break Error::EventBufferOverflow;
                    }
                }
                // A server newer than this client may push what this client does not know.
                None => {}
            },
            Ok(None) => break Error::StreamEnded(None),
            Err(status) => break Error::StreamEnded(Some(Box::new(ServerError::from(&status)))),
        }
    };
    // The reason is written down before `events` closes, so that whoever sees it closed finds the reason.
    waiting.end_all(why);
}

fn deliver_response(mut core: pb::MatchmakingCoreResponse, waiting: &PendingRequests) {
    let nonce = core.request_nonce.unwrap_or_default();
    let Some(caller) = waiting.state().waiters.remove(&nonce) else { return };
    let answer = match core.error.take() {
        Some(refusal) => Err(Error::from_request_error(refusal)),
        None => Ok(core),
    };
    // A caller that has stopped waiting does not need to hear.
    let _ = caller.send(answer);
}

impl Connection {
    /// Publishes a session; the handle's updates travel on this connection, and [`Events`] tells of its reservations.
    pub async fn advertise(&self, request: pb::MatchmakingUpdateAdvertisementRequest) -> Result<Advertisement, Error> {
        Advertisement::publish(UpdateChannel::Stream(self.clone()), request).await
    }

    /// Sends an envelope and returns before it is answered. Envelopes go out in the order of these calls, and the
    /// server applies those about one advertisement in that order. Its nonce is chosen here.
    pub async fn send(&self, mut core: pb::MatchmakingCoreRequest) -> Result<PendingResponse, Error> {
        let shared = &self.shared;
        let ended = || shared.pending.state().end_reason.clone().unwrap_or(Error::StreamEnded(None));
        let place = shared.permits.clone().acquire_owned().await.map_err(|_| ended())?;
        let nonce = shared.next_nonce.fetch_add(1, Ordering::Relaxed);
        core.request_nonce = Some(nonce);

        let (caller, inbox) = oneshot::channel();
        {
            let mut state = shared.pending.state();
            if let Some(why) = &state.end_reason {
                return Err(why.clone());
            }
            state.waiters.insert(nonce, caller);
        }
        let waiting = shared.pending.clone();
        let answer = PendingResponse { nonce, inbox, deadline: shared.deadline, pending: waiting, _permit: place };
        shared.outbox.send(pb::MatchmakingConnectRequest { core: Some(core) }).await.map_err(|_| ended())?;
        Ok(answer)
    }

    /// Searches once.
    pub async fn search(&self, request: pb::MatchmakingSearchRequest) -> Result<pb::MatchmakingSearchResponse, Error> {
        let mut core = core_request(pb::MatchmakingCoreRequestType::Search);
        core.search_request = Some(request);
        self.send(core).await?.wait().await?.search_response.ok_or(Error::MissingField("search_response"))
    }

    /// Publishes, replaces or keeps alive, and has this connection hear of the advertisement's reservations.
    pub async fn update_advertisement(
        &self,
        mut request: pb::MatchmakingUpdateAdvertisementRequest,
    ) -> Result<pb::MatchmakingUpdateAdvertisementResponse, Error> {
        ensure_idempotency_key(&mut request);
        let mut core = core_request(pb::MatchmakingCoreRequestType::UpdateAdvertisement);
        core.update_advertisement_request = Some(request);
        let answer = self.send(core).await?.wait().await?;
        answer.update_advertisement_response.ok_or(Error::MissingField("update_advertisement_response"))
    }

    /// Withdraws an advertisement; one that is gone already is a success.
    pub async fn delete_advertisement(
        &self,
        request: pb::MatchmakingDeleteAdvertisementRequest,
    ) -> Result<pb::MatchmakingDeleteAdvertisementResponse, Error> {
        let mut core = core_request(pb::MatchmakingCoreRequestType::DeleteAdvertisement);
        core.delete_advertisement_request = Some(request);
        let answer = self.send(core).await?.wait().await?;
        answer.delete_advertisement_response.ok_or(Error::MissingField("delete_advertisement_response"))
    }

    /// Fetches the ruleset of a set.
    pub async fn get_configuration(
        &self,
        request: pb::MatchmakingGetConfigurationRequest,
    ) -> Result<pb::MatchmakingGetConfigurationResponse, Error> {
        let mut core = core_request(pb::MatchmakingCoreRequestType::GetConfiguration);
        core.get_configuration_request = Some(request);
        let answer = self.send(core).await?.wait().await?;
        answer.get_configuration_response.ok_or(Error::MissingField("get_configuration_response"))
    }
}

fn core_request(kind: pb::MatchmakingCoreRequestType) -> pb::MatchmakingCoreRequest {
    pb::MatchmakingCoreRequest { request_type: Some(kind.into()), ..Default::default() }
}
