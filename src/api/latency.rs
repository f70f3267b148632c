//! Latency service: the beacons, and what their receipts are worth.

use std::sync::Arc;

use tonic::{Request, Response, Status};

use crate::api::authorization::{AuthorizedCaller, CallerKind, ClientOrGameServer, GameServerOnly};
use crate::api::authorized::{ServiceResult, rejection_of_engine_error};
use crate::api::client_address::ClientAddressResolver;
use crate::api::convert::{RequestReader, beacons};
use crate::api::matchmaking_handler::charge_rate_limit;
use crate::api::pb;
use crate::api::pb::latency_service_server::LatencyService;
use crate::auth::policy::RateLimitKind;
use crate::auth::rate_limit::RateLimits;
use crate::engine::beacons::BeaconEngine;

/// Implementation of the Latency service.
#[derive(Clone, Debug)]
pub(super) struct LatencyApi {
    beacons: BeaconEngine,
    address_resolver: ClientAddressResolver,
    rate_limits: Option<Arc<RateLimits>>,
}

impl LatencyApi {
    /// Creates the service over `beacons`. Without rate limits, calls are not charged.
    pub(super) fn new(
        beacons: BeaconEngine,
        address_resolver: ClientAddressResolver,
        rate_limits: Option<Arc<RateLimits>>,
    ) -> Self {
        Self { beacons, address_resolver, rate_limits }
    }

    /// Splits a request into its authorized caller and its message, and charges it.
    fn split_and_charge_request<K: CallerKind, T>(
        &self,
        request: Request<T>,
        kind: RateLimitKind,
    ) -> Result<(AuthorizedCaller<K>, T), Status> {
        let (metadata, extensions, message) = request.into_parts();
        let caller = AuthorizedCaller::from_checked_request(&self.address_resolver, metadata.as_ref(), &extensions)?;
        charge_rate_limit(self.rate_limits.as_deref(), &caller, kind, 1)?;
        Ok((caller, message))
    }
}

#[tonic::async_trait]
impl LatencyService for LatencyApi {
    async fn get_beacons(&self, request: Request<pb::GetBeaconsRequest>) -> ServiceResult<pb::GetBeaconsResponse> {
        let (caller, pb::GetBeaconsRequest {}) =
            self.split_and_charge_request::<ClientOrGameServer, _>(request, RateLimitKind::Search)?;
        Ok(Response::new(beacons::beacons_response(self.beacons.beacon_list(caller.engine_caller()))))
    }

    async fn report_trips(&self, request: Request<pb::ReportTripsRequest>) -> ServiceResult<pb::ReportTripsResponse> {
        let (caller, message) =
            self.split_and_charge_request::<ClientOrGameServer, _>(request, RateLimitKind::Search)?;
        let report = RequestReader::default().report_trips_command(message)?;
        let answer = self.beacons.report_trips(caller.engine_caller(), &report).map_err(rejection_of_engine_error)?;
        Ok(Response::new(beacons::report_trips_response(answer)))
    }

    async fn announce_beacon(
        &self,
        request: Request<pb::AnnounceBeaconRequest>,
    ) -> ServiceResult<pb::AnnounceBeaconResponse> {
        let (_, message) = self.split_and_charge_request::<GameServerOnly, _>(request, RateLimitKind::Update)?;
        let command = RequestReader::default().announce_beacon_command(message)?;
        self.beacons.announce_beacon(command).await.map_err(rejection_of_engine_error)?;
        Ok(Response::new(beacons::announce_beacon_response()))
    }
}
