//! The Queue service: parties wait, and hear what becomes of them.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::stream::unfold;
use tokio::time::{Instant, Sleep};
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use crate::api::authorized::{AuthorizedQueues, ServiceResult, rejection_from};
use crate::api::client_address::ClientAddressResolver;
use crate::api::convert::{EntryPoint, queue as out};
use crate::api::pb;
use crate::api::pb::queue_service_server::QueueService;
use crate::auth::policy::RateLimitKind;
use crate::auth::rate_limit::{RateLimits, StreamPermit};
use crate::domain::id::TicketId;
use crate::engine::queues::{QueueEngine, TicketWatch};

/// The service.
#[derive(Clone, Debug)]
pub struct QueueApi {
    authorized: AuthorizedQueues,
}

/// News of tickets, one after the other.
pub type TicketUpdates = Pin<Box<dyn Stream<Item = Result<pb::QueueWatchResponse, Status>> + Send>>;

impl QueueApi {
    /// A service over `queues`.
    pub fn new(queues: QueueEngine, callers: ClientAddressResolver, quotas: Option<Arc<RateLimits>>) -> Self {
        Self { authorized: AuthorizedQueues::new(queues, callers, quotas) }
    }
}

#[tonic::async_trait]
impl QueueService for QueueApi {
    async fn enter(&self, request: Request<pb::QueueEnterRequest>) -> ServiceResult<pb::QueueEnterResponse> {
        let (caller, wire) = self.authorized.charged_request(request, RateLimitKind::Update, |_| 1)?;
        let enter = EntryPoint::default().enter_command(caller.engine_caller(), wire)?;
        let answer =
            self.authorized.queues(&caller).enter_queue(caller.engine_caller(), enter).await.map_err(rejection_from)?;
        Ok(Response::new(out::enter_response(answer)))
    }

    async fn leave(&self, request: Request<pb::QueueLeaveRequest>) -> ServiceResult<pb::QueueLeaveResponse> {
        let (caller, wire) = self.authorized.charged_request(request, RateLimitKind::Update, |_| 1)?;
        let ticket = EntryPoint::default().ticket_to_leave(wire)?;
        let answer = self
            .authorized
            .queues(&caller)
            .leave_queue(caller.engine_caller(), &ticket)
            .await
            .map_err(rejection_from)?;
        Ok(Response::new(out::leave_response(answer)))
    }

    type WatchStream = TicketUpdates;

    async fn watch(&self, request: Request<pb::QueueWatchRequest>) -> ServiceResult<TicketUpdates> {
        let (caller, wire) = self.authorized.charged_request(request, RateLimitKind::Search, |_| 1)?;
        let tickets = EntryPoint::default().tickets_to_watch(wire)?;
        let place = self.authorized.acquire_stream_permit(&caller)?;
        let watch =
            self.authorized.queues(&caller).watch_tickets(caller.engine_caller(), &tickets).map_err(rejection_from)?;
        Ok(Response::new(ticket_updates(watch, place)))
    }

    async fn heartbeat(
        &self,
        request: Request<pb::QueueHeartbeatRequest>,
    ) -> ServiceResult<pb::QueueHeartbeatResponse> {
        let (caller, wire) =
            self.authorized.charged_request(request, RateLimitKind::Heartbeat, |wire| wire.tickets.len())?;
        let beat = EntryPoint::default().heartbeat_command(wire)?;
        let ids: Vec<TicketId> = beat.tickets.iter().map(|ticket| ticket.id).collect();
        let answer = self
            .authorized
            .queues(&caller)
            .heartbeat_tickets(caller.engine_caller(), beat)
            .await
            .map_err(rejection_from)?;
        let statuses = ids
            .into_iter()
            .zip(answer.0)
            .map(|(id, status)| status.map_or_else(|| unknown_ticket_status(id), out::ticket_status));
        Ok(Response::new(pb::QueueHeartbeatResponse { statuses: statuses.collect(), expires_in_ms: answer.1 }))
    }

    async fn respond(&self, request: Request<pb::QueueRespondRequest>) -> ServiceResult<pb::QueueRespondResponse> {
        let (caller, wire) = self.authorized.charged_request(request, RateLimitKind::Update, |_| 1)?;
        let respond = EntryPoint::default().respond_command(wire)?;
        let status = self
            .authorized
            .queues(&caller)
            .respond_to_ready_check(caller.engine_caller(), respond)
            .await
            .map_err(rejection_from)?;
        Ok(Response::new(pb::QueueRespondResponse { status: Some(out::ticket_status(status)) }))
    }

    async fn end_match(&self, request: Request<pb::QueueEndMatchRequest>) -> ServiceResult<pb::QueueEndMatchResponse> {
        let (caller, wire) = self.authorized.charged_request(request, RateLimitKind::Update, |_| 1)?;
        let end = EntryPoint::default().end_match_command(wire)?;
        let outcome =
            self.authorized.queues(&caller).end_match(caller.engine_caller(), end).await.map_err(rejection_from)?;
        Ok(Response::new(pb::QueueEndMatchResponse { end_reason: out::match_end_reason(outcome).into() }))
    }
}

/// A ticket that nobody knows any more: long over.
fn unknown_ticket_status(id: TicketId) -> pb::TicketStatus {
    let state = pb::TicketState::Ended.into();
    pb::TicketStatus { ticket_id: id.to_string(), state, ..pb::TicketStatus::default() }
}

/// A watch and what it needs to go on.
struct WatchState {
    watch: TicketWatch,
    heartbeat_timer: Pin<Box<Sleep>>,
    /// Its place among its caller's streams, until it has ended.
    _stream_permit: Option<StreamPermit>,
}

/// Tells whatever `watch` has to tell, and keeps its tickets alive meanwhile.
fn ticket_updates(watch: TicketWatch, place: Option<StreamPermit>) -> TicketUpdates {
    let begun = WatchState {
        watch,
        heartbeat_timer: Box::pin(tokio::time::sleep_until(Instant::now())),
        _stream_permit: place,
    };
    Box::pin(unfold(begun, |mut watching| async move {
        loop {
            tokio::select! {
                biased;
                status = watching.watch.next_status() => {
                    let told = pb::QueueWatchResponse { status: Some(out::ticket_status(status?)) };
                    return Some((Ok(told), watching));
                }
                () = &mut watching.heartbeat_timer => {
                    let again_ms = watching.watch.heartbeat_tickets().await;
                    let again = std::time::Duration::from_millis(u64::from(again_ms.max(100)));
                    watching.heartbeat_timer.as_mut().reset(Instant::now() + again);
                }
            }
        }
    }))
}
