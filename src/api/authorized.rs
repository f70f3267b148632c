//! Queues and ratings behind authentication and rate limits: access needs an authorized caller whose call is charged.

use std::sync::Arc;

use tonic::{Request, Response, Status};

use crate::api::authorization::{AnyRole, AuthorizedCaller, CallerKind, ClientOrGameServer};
use crate::api::client_address::ClientAddressResolver;
use crate::api::convert::RequestReader;
use crate::api::matchmaking_handler::{acquire_stream_permit, charge_rate_limit, refund_call_asked_for_by_server};
use crate::api::pb;
use crate::api::status::Rejection;
use crate::auth::policy::RateLimitKind;
use crate::auth::rate_limit::{RateLimits, StreamPermit};
use crate::engine::error::EngineError;
use crate::engine::queues::QueueEngine;

/// Result of a service method.
pub(super) type ServiceResult<T> = Result<Response<T>, Status>;

/// Queues behind the role check and the rate limits.
#[derive(Clone, Debug)]
pub(super) struct AuthorizedQueues {
    queues: QueueEngine,
    address_resolver: ClientAddressResolver,
    rate_limits: Option<Arc<RateLimits>>,
}

impl AuthorizedQueues {
    pub(super) fn new(
        queues: QueueEngine,
        address_resolver: ClientAddressResolver,
        rate_limits: Option<Arc<RateLimits>>,
    ) -> Self {
        Self { queues, address_resolver, rate_limits }
    }

    /// Splits a request into its authorized caller and its message, and charges `cost`. Fails if the caller is not
    /// authorized or is over a limit. The charge comes first, so that an invalid request costs as much as a valid one.
    pub(super) fn split_and_charge_request<T>(
        &self,
        request: Request<T>,
        kind: RateLimitKind,
        cost: impl Fn(&T) -> usize,
    ) -> Result<(AuthorizedCaller<ClientOrGameServer>, T), Status> {
        self.split_and_charge(request, |_| kind, cost)
    }

    /// The same for a read of ratings, which operators may make too. It costs as much as `cost` searches, or for an operator
    /// as many of its own calls.
    pub(super) fn split_and_charge_rating_read<T>(
        &self,
        request: Request<T>,
        cost: impl Fn(&T) -> usize,
    ) -> Result<(AuthorizedCaller<AnyRole>, T), Status> {
        let reads_all =
            |caller: &AuthorizedCaller<AnyRole>| caller.identity().is_some_and(|identity| identity.role.may_read_all());
        let kind = |caller: &_| if reads_all(caller) { RateLimitKind::Operator } else { RateLimitKind::Search };
        self.split_and_charge(request, kind, cost)
    }

    fn split_and_charge<P: CallerKind, T>(
        &self,
        request: Request<T>,
        kind: impl Fn(&AuthorizedCaller<P>) -> RateLimitKind,
        cost: impl Fn(&T) -> usize,
    ) -> Result<(AuthorizedCaller<P>, T), Status> {
        let (metadata, extensions, message) = request.into_parts();
        let caller = AuthorizedCaller::from_checked_request(&self.address_resolver, metadata.as_ref(), &extensions)?;
        let cost = u32::try_from(cost(&message)).unwrap_or(u32::MAX).max(1);
        charge_rate_limit(self.rate_limits.as_deref(), &caller, kind(&caller), cost)?;
        Ok((caller, message))
    }

    /// Splits the heartbeat of a host into its authorized caller and its message. Charges it unless it was asked for and is
    /// due.
    pub(super) fn split_and_charge_unexpected_host_heartbeat(
        &self,
        request: Request<pb::QueueHostHeartbeatRequest>,
    ) -> Result<(AuthorizedCaller<ClientOrGameServer>, pb::QueueHostHeartbeatRequest), Status> {
        let (metadata, extensions, message) = request.into_parts();
        let caller = AuthorizedCaller::from_checked_request(&self.address_resolver, metadata.as_ref(), &extensions)?;
        if let Some(rate_limits) = self.rate_limits.as_deref() {
            if self.queues.take_uncharged_host_beat(caller.engine_caller(), &message.advertisement_token) {
                refund_call_asked_for_by_server(Some(rate_limits), &caller);
            } else {
                let cost = u32::try_from(message.matches.len()).unwrap_or(u32::MAX).max(1);
                charge_rate_limit(Some(rate_limits), &caller, RateLimitKind::Heartbeat, cost)?;
            }
        }
        Ok((caller, message))
    }

    /// Permit for one more stream of the caller; `None` without rate limits. Fails if the caller has too many streams.
    pub(super) fn acquire_stream_permit(
        &self,
        caller: &AuthorizedCaller<ClientOrGameServer>,
    ) -> Result<Option<StreamPermit>, Rejection> {
        acquire_stream_permit(self.rate_limits.as_deref(), caller)
    }

    /// The queues. The parameter proves that the caller is authorized.
    pub(super) fn queue_engine_for_authorized(&self, _: &AuthorizedCaller<ClientOrGameServer>) -> &QueueEngine {
        &self.queues
    }

    /// The queues, for reads of ratings. The parameter proves that the caller is authorized.
    pub(super) fn queue_engine_for_rating_reads(&self, _: &AuthorizedCaller<AnyRole>) -> &QueueEngine {
        &self.queues
    }
}

/// Converts an engine error of a call outside an envelope.
pub(super) fn rejection_of_engine_error(error: EngineError) -> Rejection {
    RequestReader::default().rejection_from(error)
}
