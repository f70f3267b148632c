//! The Queue service: parties wait, and hear what becomes of them.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::stream::unfold;
use tokio::time::{Instant, Sleep};
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use crate::api::admission::{Caller, Player};
use crate::api::caller::Callers;
use crate::api::convert::{Door, queue as out};
use crate::api::handler::{charge, place};
use crate::api::pb;
use crate::api::pb::queue_server::Queue;
use crate::api::status::Rejection;
use crate::auth::policy::Charge;
use crate::auth::quota::{Place, Quotas};
use crate::domain::id::TicketId;
use crate::engine::queues::Watch;

/// The service.
#[derive(Clone, Debug)]
pub struct QueueService {
    reach: reach::Reach,
    callers: Callers,
    quotas: Option<Arc<Quotas>>,
}

/// What callers who have passed the check reach, and nobody else.
mod reach {
    use crate::api::admission::{Caller, Player};
    use crate::engine::queues::Queues;

    /// The queues.
    #[derive(Clone, Debug)]
    pub(super) struct Reach(Queues);

    impl Reach {
        pub(super) fn new(queues: Queues) -> Self {
            Self(queues)
        }

        pub(super) fn queues(&self, _: &Caller<Player>) -> &Queues {
            &self.0
        }
    }
}

/// News of tickets, one after the other.
pub type News = Pin<Box<dyn Stream<Item = Result<pb::QueueWatchResponse, Status>> + Send>>;

type Answered<T> = Result<Response<T>, Status>;

impl QueueService {
    /// A service over `queues`.
    pub fn new(queues: crate::engine::queues::Queues, callers: Callers, quotas: Option<Arc<Quotas>>) -> Self {
        Self { reach: reach::Reach::new(queues), callers, quotas }
    }

    /// The request, and the caller as which the check has let it in; charged, before anything is looked at.
    fn open<T>(
        &self,
        request: Request<T>,
        kind: Charge,
        cost: impl Fn(&T) -> usize,
    ) -> Result<(Caller<Player>, T), Status> {
        let (metadata, extensions, wire) = request.into_parts();
        let caller = Caller::of(&self.callers, metadata.as_ref(), &extensions)?;
        let cost = u32::try_from(cost(&wire)).unwrap_or(u32::MAX).max(1);
        charge(self.quotas.as_deref(), &caller, kind, cost)?;
        Ok((caller, wire))
    }
}

fn rejected(fault: crate::engine::fault::Fault) -> Rejection {
    Door::default().rejection(fault)
}

#[tonic::async_trait]
impl Queue for QueueService {
    async fn enter(&self, request: Request<pb::QueueEnterRequest>) -> Answered<pb::QueueEnterResponse> {
        let (caller, wire) = self.open(request, Charge::Update, |_| 1)?;
        let enter = Door::default().enter(caller.asking(), wire)?;
        let answer = self.reach.queues(&caller).enter(caller.asking(), enter).await.map_err(rejected)?;
        Ok(Response::new(out::enter_response(answer)))
    }

    async fn leave(&self, request: Request<pb::QueueLeaveRequest>) -> Answered<pb::QueueLeaveResponse> {
        let (caller, wire) = self.open(request, Charge::Update, |_| 1)?;
        let ticket = Door::default().leave(wire)?;
        let answer = self.reach.queues(&caller).leave(caller.asking(), &ticket).await.map_err(rejected)?;
        Ok(Response::new(out::leave_response(answer)))
    }

    type WatchStream = News;

    async fn watch(&self, request: Request<pb::QueueWatchRequest>) -> Answered<News> {
        let (caller, wire) = self.open(request, Charge::Search, |_| 1)?;
        let tickets = Door::default().watch(wire)?;
        let place = place(self.quotas.as_deref(), &caller)?;
        let watch = self.reach.queues(&caller).watch(caller.asking(), &tickets).map_err(rejected)?;
        Ok(Response::new(news(watch, place)))
    }

    async fn heartbeat(&self, request: Request<pb::QueueHeartbeatRequest>) -> Answered<pb::QueueHeartbeatResponse> {
        let (caller, wire) = self.open(request, Charge::Heartbeat, |wire| wire.tickets.len())?;
        let beat = Door::default().heartbeat(wire)?;
        let ids: Vec<TicketId> = beat.tickets.iter().map(|ticket| ticket.id).collect();
        let answer = self.reach.queues(&caller).heartbeat(caller.asking(), beat).await.map_err(rejected)?;
        let statuses =
            ids.into_iter().zip(answer.0).map(|(id, status)| status.map_or_else(|| unknown(id), out::status));
        Ok(Response::new(pb::QueueHeartbeatResponse { statuses: statuses.collect(), expires_in_ms: answer.1 }))
    }

    async fn respond(&self, request: Request<pb::QueueRespondRequest>) -> Answered<pb::QueueRespondResponse> {
        let (caller, wire) = self.open(request, Charge::Update, |_| 1)?;
        let respond = Door::default().respond(wire)?;
        let status = self.reach.queues(&caller).respond(caller.asking(), respond).await.map_err(rejected)?;
        Ok(Response::new(pb::QueueRespondResponse { status: Some(out::status(status)) }))
    }

    async fn end_match(&self, request: Request<pb::QueueEndMatchRequest>) -> Answered<pb::QueueEndMatchResponse> {
        let (caller, wire) = self.open(request, Charge::Update, |_| 1)?;
        let end = Door::default().end_match(wire)?;
        let outcome = self.reach.queues(&caller).end_match(caller.asking(), end).await.map_err(rejected)?;
        Ok(Response::new(pb::QueueEndMatchResponse { outcome: out::outcome(outcome).into() }))
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
