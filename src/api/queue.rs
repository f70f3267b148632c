//! The Queue service: parties wait, and hear what becomes of them.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::stream::unfold;
use tokio::time::{Instant, Sleep};
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use crate::api::caller::Callers;
use crate::api::convert::{Door, queue as out};
use crate::api::pb;
use crate::api::pb::queue_service_server::QueueService;
use crate::api::reach::{Answered, Reach, rejected};
use crate::auth::policy::Charge;
use crate::auth::quota::{Place, Quotas};
use crate::domain::id::TicketId;
use crate::engine::queues::{Queues, Watch};

/// The service.
#[derive(Clone, Debug)]
pub struct QueueApi {
    reach: Reach,
}

/// News of tickets, one after the other.
pub type News = Pin<Box<dyn Stream<Item = Result<pb::QueueWatchResponse, Status>> + Send>>;

impl QueueApi {
    /// A service over `queues`.
    pub fn new(queues: Queues, callers: Callers, quotas: Option<Arc<Quotas>>) -> Self {
        Self { reach: Reach::new(queues, callers, quotas) }
    }
}

#[tonic::async_trait]
impl QueueService for QueueApi {
    async fn enter(&self, request: Request<pb::QueueEnterRequest>) -> Answered<pb::QueueEnterResponse> {
        let (caller, wire) = self.reach.open(request, Charge::Update, |_| 1)?;
        let enter = Door::default().enter(caller.asking(), wire)?;
        let answer = self.reach.queues(&caller).enter(caller.asking(), enter).await.map_err(rejected)?;
        Ok(Response::new(out::enter_response(answer)))
    }

    async fn leave(&self, request: Request<pb::QueueLeaveRequest>) -> Answered<pb::QueueLeaveResponse> {
        let (caller, wire) = self.reach.open(request, Charge::Update, |_| 1)?;
        let ticket = Door::default().leave(wire)?;
        let answer = self.reach.queues(&caller).leave(caller.asking(), &ticket).await.map_err(rejected)?;
        Ok(Response::new(out::leave_response(answer)))
    }

    type WatchStream = News;

    async fn watch(&self, request: Request<pb::QueueWatchRequest>) -> Answered<News> {
        let (caller, wire) = self.reach.open(request, Charge::Search, |_| 1)?;
        let tickets = Door::default().watch(wire)?;
        let place = self.reach.open_stream(&caller)?;
        let watch = self.reach.queues(&caller).watch(caller.asking(), &tickets).map_err(rejected)?;
        Ok(Response::new(news(watch, place)))
    }

    async fn heartbeat(&self, request: Request<pb::QueueHeartbeatRequest>) -> Answered<pb::QueueHeartbeatResponse> {
        let (caller, wire) = self.reach.open(request, Charge::Heartbeat, |wire| wire.tickets.len())?;
        let beat = Door::default().heartbeat(wire)?;
        let ids: Vec<TicketId> = beat.tickets.iter().map(|ticket| ticket.id).collect();
        let answer = self.reach.queues(&caller).heartbeat(caller.asking(), beat).await.map_err(rejected)?;
        let statuses =
            ids.into_iter().zip(answer.0).map(|(id, status)| status.map_or_else(|| unknown(id), out::status));
        Ok(Response::new(pb::QueueHeartbeatResponse { statuses: statuses.collect(), expires_in_ms: answer.1 }))
    }

    async fn respond(&self, request: Request<pb::QueueRespondRequest>) -> Answered<pb::QueueRespondResponse> {
        let (caller, wire) = self.reach.open(request, Charge::Update, |_| 1)?;
        let respond = Door::default().respond(wire)?;
        let status = self.reach.queues(&caller).respond(caller.asking(), respond).await.map_err(rejected)?;
        Ok(Response::new(pb::QueueRespondResponse { status: Some(out::status(status)) }))
    }

    async fn end_match(&self, request: Request<pb::QueueEndMatchRequest>) -> Answered<pb::QueueEndMatchResponse> {
        let (caller, wire) = self.reach.open(request, Charge::Update, |_| 1)?;
        let end = Door::default().end_match(wire)?;
        let outcome = self.reach.queues(&caller).end_match(caller.asking(), end).await.map_err(rejected)?;
        Ok(Response::new(pb::QueueEndMatchResponse { end_reason: out::outcome(outcome).into() }))
    }
}

/// A ticket that nobody knows any more: long over.
fn unknown(id: TicketId) -> pb::TicketStatus {
    let state = pb::TicketState::Ended.into();
    pb::TicketStatus { ticket_id: id.to_string(), state, ..pb::TicketStatus::default() }
}

/// A watch and what it needs to go on.
struct Watching {
    watch: Watch,
    beat: Pin<Box<Sleep>>,
    /// Its place among its caller's streams, until it has ended.
    _place: Option<Place>,
}

/// Tells whatever `watch` has to tell, and keeps its tickets alive meanwhile.
fn news(watch: Watch, place: Option<Place>) -> News {
    let begun = Watching { watch, beat: Box::pin(tokio::time::sleep_until(Instant::now())), _place: place };
    Box::pin(unfold(begun, |mut watching| async move {
        loop {
            tokio::select! {
                biased;
                status = watching.watch.next() => {
                    let told = pb::QueueWatchResponse { status: Some(out::status(status?)) };
                    return Some((Ok(told), watching));
                }
                () = &mut watching.beat => {
                    let again_ms = watching.watch.keep_alive().await;
                    let again = std::time::Duration::from_millis(u64::from(again_ms.max(100)));
                    watching.beat.as_mut().reset(Instant::now() + again);
                }
            }
        }
    }))
}
