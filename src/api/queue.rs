//! Queue service: enter, leave, watch, heartbeat, ready check and end of match.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::stream::unfold;
use tokio::time::{Instant, Sleep};
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use crate::api::authorized::{AuthorizedQueues, ServiceResult, rejection_of_engine_error};
use crate::api::client_address::ClientAddressResolver;
use crate::api::convert::{RequestReader, hosting, queue as to_proto};
use crate::api::pb;
use crate::api::pb::queue_service_server::QueueService;
use crate::auth::policy::RateLimitKind;
use crate::auth::rate_limit::{RateLimits, StreamPermit};
use crate::domain::id::TicketId;
use crate::engine::queues::{QueueEngine, TicketWatch};

/// Implementation of the Queue service.
#[derive(Clone, Debug)]
pub struct QueueApi {
    authorized: AuthorizedQueues,
}

/// Stream of ticket status updates.
pub type TicketUpdates = Pin<Box<dyn Stream<Item = Result<pb::QueueWatchResponse, Status>> + Send>>;

impl QueueApi {
    /// Creates the service over `queues`. Without rate limits, calls are not charged.
    pub fn new(
        queues: QueueEngine,
        address_resolver: ClientAddressResolver,
        rate_limits: Option<Arc<RateLimits>>,
    ) -> Self {
        Self { authorized: AuthorizedQueues::new(queues, address_resolver, rate_limits) }
    }
}

#[tonic::async_trait]
impl QueueService for QueueApi {
    async fn enter(&self, request: Request<pb::QueueEnterRequest>) -> ServiceResult<pb::QueueEnterResponse> {
        let (caller, message) = self.authorized.split_and_charge_request(request, RateLimitKind::Update, |_| 1)?;
        let enter = RequestReader::default().enter_command(caller.engine_caller(), message)?;
        let answer = self
            .authorized
            .queue_engine_for_authorized(&caller)
            .enter_queue(caller.engine_caller(), enter)
            .await
            .map_err(rejection_of_engine_error)?;
        Ok(Response::new(to_proto::enter_response(answer)))
    }

    async fn leave(&self, request: Request<pb::QueueLeaveRequest>) -> ServiceResult<pb::QueueLeaveResponse> {
        let (caller, message) = self.authorized.split_and_charge_request(request, RateLimitKind::Update, |_| 1)?;
        let leave = RequestReader::default().leave_command(message)?;
        let answer = self
            .authorized
            .queue_engine_for_authorized(&caller)
            .leave_queue(caller.engine_caller(), &leave)
            .await
            .map_err(rejection_of_engine_error)?;
        Ok(Response::new(to_proto::leave_response(answer)))
    }

    async fn mine(&self, request: Request<pb::QueueMineRequest>) -> ServiceResult<pb::QueueMineResponse> {
        let (caller, _) = self.authorized.split_and_charge_request(request, RateLimitKind::Search, |_| 1)?;
        let own = self
            .authorized
            .queue_engine_for_authorized(&caller)
            .own_tickets(caller.engine_caller())
            .await
            .map_err(rejection_of_engine_error)?;
        Ok(Response::new(to_proto::own_tickets_and_cooldowns_response(own)))
    }

    type WatchStream = TicketUpdates;

    async fn watch(&self, request: Request<pb::QueueWatchRequest>) -> ServiceResult<TicketUpdates> {
        let (caller, message) = self.authorized.split_and_charge_request(request, RateLimitKind::Search, |_| 1)?;
        let (tickets, latency_token) = RequestReader::default().tickets_to_watch(message)?;
        let stream_permit = self.authorized.acquire_stream_permit(&caller)?;
        let queues = self.authorized.queue_engine_for_authorized(&caller);
        let watch = queues.watch_tickets(caller.engine_caller(), &tickets).map_err(rejection_of_engine_error)?;
        queues
            .renew_vectors(caller.engine_caller(), &tickets, &latency_token)
            .await
            .map_err(rejection_of_engine_error)?;
        Ok(Response::new(ticket_updates_with_heartbeats(watch, stream_permit)))
    }

    async fn heartbeat(
        &self,
        request: Request<pb::QueueHeartbeatRequest>,
    ) -> ServiceResult<pb::QueueHeartbeatResponse> {
        let (caller, message) =
            self.authorized
                .split_and_charge_request(request, RateLimitKind::Heartbeat, |message| message.tickets.len())?;
        let heartbeat = RequestReader::default().heartbeat_command(message)?;
        let ids: Vec<TicketId> = heartbeat.tickets.iter().map(|ticket| ticket.id).collect();
        let (statuses, expires_in_ms) = self
            .authorized
            .queue_engine_for_authorized(&caller)
            .heartbeat_tickets(caller.engine_caller(), heartbeat)
            .await
            .map_err(rejection_of_engine_error)?;
        let statuses = ids
            .into_iter()
            .zip(statuses)
            .map(|(id, status)| status.map_or_else(|| unknown_ticket_status(id), to_proto::ticket_status));
        Ok(Response::new(pb::QueueHeartbeatResponse {
            statuses: statuses.collect(),
            expires_in_ms: expires_in_ms.into(),
        }))
    }

    async fn host_heartbeat(
        &self,
        request: Request<pb::QueueHostHeartbeatRequest>,
    ) -> ServiceResult<pb::QueueHostHeartbeatResponse> {
        let (caller, message) = self.authorized.split_and_charge_unexpected_host_heartbeat(request)?;
        let heartbeat = RequestReader::default().host_heartbeat_command(message)?;
        let answer = self
            .authorized
            .queue_engine_for_authorized(&caller)
            .host_heartbeat(caller.engine_caller(), heartbeat)
            .await
            .map_err(rejection_of_engine_error)?;
        Ok(Response::new(hosting::host_heartbeat_response(answer)))
    }

    async fn respond(&self, request: Request<pb::QueueRespondRequest>) -> ServiceResult<pb::QueueRespondResponse> {
        let (caller, message) = self.authorized.split_and_charge_request(request, RateLimitKind::Update, |_| 1)?;
        let respond = RequestReader::default().respond_command(message)?;
        let status = self
            .authorized
            .queue_engine_for_authorized(&caller)
            .respond_to_ready_check(caller.engine_caller(), respond)
            .await
            .map_err(rejection_of_engine_error)?;
        Ok(Response::new(pb::QueueRespondResponse { status: Some(to_proto::ticket_status(status)) }))
    }

    async fn end_match(&self, request: Request<pb::QueueEndMatchRequest>) -> ServiceResult<pb::QueueEndMatchResponse> {
        let (caller, message) = self.authorized.split_and_charge_request(request, RateLimitKind::Update, |_| 1)?;
        let end = RequestReader::default().end_match_command(message)?;
        let end_reason = self
            .authorized
            .queue_engine_for_authorized(&caller)
            .end_match(caller.engine_caller(), end)
            .await
            .map_err(rejection_of_engine_error)?;
        Ok(Response::new(pb::QueueEndMatchResponse { end_reason: to_proto::match_end_reason(end_reason).into() }))
    }
}

/// Status of a ticket that is no longer stored: it ended long ago.
fn unknown_ticket_status(id: TicketId) -> pb::TicketStatus {
    let state = pb::TicketState::Ended.into();
    pb::TicketStatus { ticket_id: id.to_string(), state, ..pb::TicketStatus::default() }
}

/// State of a watch stream.
struct WatchState {
    watch: TicketWatch,
    heartbeat_timer: Pin<Box<Sleep>>,
    /// Permit for this stream in the caller's stream limit; released when the stream ends.
    _stream_permit: Option<StreamPermit>,
}

/// Streams the updates of `watch` and sends heartbeats for its tickets meanwhile.
fn ticket_updates_with_heartbeats(watch: TicketWatch, stream_permit: Option<StreamPermit>) -> TicketUpdates {
    let state = WatchState {
        watch,
        heartbeat_timer: Box::pin(tokio::time::sleep_until(Instant::now())),
        _stream_permit: stream_permit,
    };
    Box::pin(unfold(state, |mut state| async move {
        loop {
            tokio::select! {
                biased;
                status = state.watch.next_status() => {
                    let update = pb::QueueWatchResponse { status: Some(to_proto::ticket_status(status?)) };
                    return Some((Ok(update), state));
                }
                () = &mut state.heartbeat_timer => {
                    let next_ms = state.watch.heartbeat_tickets().await;
                    let next = std::time::Duration::from_millis(u64::from(next_ms.max(100)));
                    state.heartbeat_timer.as_mut().reset(Instant::now() + next);
                }
            }
        }
    }))
}
