//! The way of players' calls to the queues and to what came of their matches: nothing is reached without a caller whom the check
//! has let in, and who has paid.

use std::sync::Arc;

use tonic::{Request, Response, Status};

use crate::api::admission::{Caller, Player};
use crate::api::caller::Callers;
use crate::api::convert::Door;
use crate::api::handler::{charge, place};
use crate::api::status::Rejection;
use crate::auth::policy::Charge;
use crate::auth::quota::{Place, Quotas};
use crate::engine::fault::Fault;
use crate::engine::queues::Queues;

/// What a call answers.
pub(super) type Answered<T> = Result<Response<T>, Status>;

/// The queues, behind the check and the quotas.
#[derive(Clone, Debug)]
pub(super) struct Reach {
    queues: Queues,
    callers: Callers,
    quotas: Option<Arc<Quotas>>,
}

impl Reach {
    pub(super) fn new(queues: Queues, callers: Callers, quotas: Option<Arc<Quotas>>) -> Self {
        Self { queues, callers, quotas }
    }

    /// The request, and the caller as which the check has let it in; charged, before anything is looked at.
    pub(super) fn open<T>(
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

    /// A place for one more stream of a caller.
    pub(super) fn open_stream(&self, caller: &Caller<Player>) -> Result<Option<Place>, Rejection> {
        place(self.quotas.as_deref(), caller)
    }

    /// The queues, for a caller.
    pub(super) fn queues(&self, _: &Caller<Player>) -> &Queues {
        &self.queues
    }
}

/// What the caller is told of a refusal.
pub(super) fn rejected(fault: Fault) -> Rejection {
    Door::default().rejection(fault)
}
