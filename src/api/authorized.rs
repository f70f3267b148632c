//! The way of players' calls to the queues and to what came of their matches: nothing is reached without a caller whom the check
//! has let in, and who has paid.

use std::sync::Arc;

use tonic::{Request, Response, Status};

use crate::api::authorization::{AuthorizedCaller, ClientOrGameServer};
use crate::api::client_address::ClientAddressResolver;
use crate::api::convert::EntryPoint;
use crate::api::matchmaking_handler::{acquire_stream_permit, charge_rate_limit};
use crate::api::status::Rejection;
use crate::auth::policy::RateLimitKind;
use crate::auth::rate_limit::{RateLimits, StreamPermit};
use crate::engine::error::EngineError;
use crate::engine::queues::QueueEngine;

/// What a call answers.
pub(super) type ServiceResult<T> = Result<Response<T>, Status>;

/// The queues, behind the check and the quotas.
#[derive(Clone, Debug)]
pub(super) struct AuthorizedQueues {
    queues: QueueEngine,
    address_resolver: ClientAddressResolver,
    rate_limits: Option<Arc<RateLimits>>,
}

impl AuthorizedQueues {
    pub(super) fn new(queues: QueueEngine, callers: ClientAddressResolver, quotas: Option<Arc<RateLimits>>) -> Self {
        Self { queues, address_resolver: callers, rate_limits: quotas }
    }

    /// The request, and the caller as which the check has let it in; charged, before anything is looked at.
    pub(super) fn charged_request<T>(
        &self,
        request: Request<T>,
        kind: RateLimitKind,
        cost: impl Fn(&T) -> usize,
    ) -> Result<(AuthorizedCaller<ClientOrGameServer>, T), Status> {
        let (metadata, extensions, wire) = request.into_parts();
        let caller = AuthorizedCaller::from_request(&self.address_resolver, metadata.as_ref(), &extensions)?;
        let cost = u32::try_from(cost(&wire)).unwrap_or(u32::MAX).max(1);
        charge_rate_limit(self.rate_limits.as_deref(), &caller, kind, cost)?;
        Ok((caller, wire))
    }

    /// A place for one more stream of a caller.
    pub(super) fn acquire_stream_permit(
        &self,
        caller: &AuthorizedCaller<ClientOrGameServer>,
    ) -> Result<Option<StreamPermit>, Rejection> {
        acquire_stream_permit(self.rate_limits.as_deref(), caller)
    }

    /// The queues, for a caller.
    pub(super) fn queues(&self, _: &AuthorizedCaller<ClientOrGameServer>) -> &QueueEngine {
        &self.queues
    }
}

/// What the caller is told of a refusal.
pub(super) fn rejection_from(fault: EngineError) -> Rejection {
    EntryPoint::default().rejection_from(fault)
}
