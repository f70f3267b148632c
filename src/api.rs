//! The gRPC services, server reflection, health, and the middleware in front of them.

mod allocation;
pub mod authorization;
mod authorized;
pub mod client_address;
pub mod connect;
pub mod connect_protocol;
pub mod consistency;
pub mod convert;
pub mod drain;
pub mod envelope;
pub mod health;
mod latency;
pub mod layer;
pub mod matchmaking;
pub mod matchmaking_engine;
pub mod matchmaking_handler;
pub mod operator;
pub mod pb;
pub mod queue;
pub mod rate_limits_and_audit;
pub mod ratings;
pub mod response_encoder;
pub mod rpc_method;
pub mod status;

use std::sync::Arc;

use tonic::Status;
use tonic::service::{Routes, RoutesBuilder};

use crate::auth::authenticator::Authenticator;
use crate::auth::rate_limit::RateLimits;
use crate::engine::beacons::BeaconEngine;
use crate::engine::error::EngineError;
use crate::engine::queues::QueueEngine;

use allocation::AllocationApi;
use client_address::ClientAddressResolver;
use consistency::ConsistencyChecker;
use drain::Drain;
use health::HealthState;
use latency::LatencyApi;
use matchmaking::MatchmakingApi;
use matchmaking_engine::MatchmakingEngine;
use matchmaking_handler::MatchmakingHandler;
use operator::{OperatorApi, RulesetAdmin};
use pb::allocation_service_server::AllocationServiceServer;
use pb::latency_service_server::LatencyServiceServer;
use pb::matchmaking_service_server::MatchmakingServiceServer;
use pb::operator_service_server::OperatorServiceServer;
use pb::queue_service_server::QueueServiceServer;
use pb::rating_service_server::RatingServiceServer;
use queue::QueueApi;
use ratings::RatingsApi;
use status::Rejection;

/// Size limit of a request message on the client port, bytes.
pub const CLIENT_PORT_REQUEST_BYTES_MAX: usize = 64 * 1024;

/// Size limit of an allocator's message, bytes: a registration with 64 sets and 32 regions.
pub const ALLOCATOR_MESSAGE_BYTES_MAX: usize = 8 * 1024;

/// Size limit of a response message on the client port, bytes: a ruleset file of 256 KiB and its envelope.
pub const CLIENT_PORT_RESPONSE_BYTES_MAX: usize = 260 * 1024;

/// Size limit of a response of the Queue service, bytes: the statuses of 256 tickets of one player each, in matches of 128.
pub const QUEUE_RESPONSE_MESSAGE_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Size limit of a request message on the operator port, bytes: a ruleset file of 256 KiB and its name.
pub const OPERATOR_REQUEST_MESSAGE_BYTES_MAX: usize = 260 * 1024;

/// Routes of the client port: Matchmaking, Latency, Queue, Rating and Allocation services, health, reflection.
///
/// Without `queues` the Queue, Rating and Allocation services are left out, without `beacons` the Latency service. Fails if the reflection descriptors cannot be decoded.
pub fn client_routes(
    engine: Arc<dyn MatchmakingEngine>,
    queues: Option<QueueEngine>,
    beacons: Option<BeaconEngine>,
    address_resolver: ClientAddressResolver,
    rate_limits: Arc<RateLimits>,
    health: &HealthState,
    drain: &Drain,
) -> Result<Routes, tonic_reflection::server::Error> {
    let handler = MatchmakingHandler::new(engine).with_rate_limits(rate_limits.clone());
    let service = MatchmakingApi::new(handler, address_resolver.clone(), drain.clone());
    let service = MatchmakingServiceServer::new(service)
        .max_decoding_message_size(CLIENT_PORT_REQUEST_BYTES_MAX)
        .max_encoding_message_size(CLIENT_PORT_RESPONSE_BYTES_MAX);
    let mut routes = RoutesBuilder::default();
    routes.add_service(service);
    if let Some(beacons) = beacons {
        let latency = LatencyApi::new(beacons, address_resolver.clone(), Some(rate_limits.clone()));
        routes.add_service(
            LatencyServiceServer::new(latency)
                .max_decoding_message_size(CLIENT_PORT_REQUEST_BYTES_MAX)
                .max_encoding_message_size(CLIENT_PORT_RESPONSE_BYTES_MAX),
        );
    }
    if let Some(queues) = queues {
        let ratings = RatingsApi::new(queues.clone(), address_resolver.clone(), Some(rate_limits.clone()));
        routes.add_service(
            RatingServiceServer::new(ratings)
                .max_decoding_message_size(CLIENT_PORT_REQUEST_BYTES_MAX)
                .max_encoding_message_size(CLIENT_PORT_RESPONSE_BYTES_MAX),
        );
        let allocation = AllocationApi::new(queues.clone(), address_resolver.clone(), Some(rate_limits.clone()));
        routes.add_service(
            AllocationServiceServer::new(allocation)
                .max_decoding_message_size(ALLOCATOR_MESSAGE_BYTES_MAX)
                .max_encoding_message_size(CLIENT_PORT_RESPONSE_BYTES_MAX),
        );
        let service = QueueServiceServer::new(QueueApi::new(queues, address_resolver, Some(rate_limits)))
            .max_decoding_message_size(CLIENT_PORT_REQUEST_BYTES_MAX)
            .max_encoding_message_size(QUEUE_RESPONSE_MESSAGE_BYTES_MAX);
        routes.add_service(service);
    }
    health.add_health_service(&mut routes);
    health::add_reflection_services(health::CLIENT_PORT_DESCRIPTORS, &mut routes)?;
    Ok(routes.routes())
}

/// Routes of the operator port: Operator service, health, reflection. Fails if the descriptors cannot be decoded.
pub fn operator_routes(
    rulesets: Arc<dyn RulesetAdmin>,
    consistency_checker: Arc<dyn ConsistencyChecker>,
    queues: Option<QueueEngine>,
    authenticator: Option<Arc<Authenticator>>,
    health: &HealthState,
    drain: &Drain,
) -> Result<Routes, tonic_reflection::server::Error> {
    let api = OperatorApi::new(rulesets, consistency_checker, queues, authenticator, drain.clone());
    let service = OperatorServiceServer::new(api).max_decoding_message_size(OPERATOR_REQUEST_MESSAGE_BYTES_MAX);
    let mut routes = RoutesBuilder::default();
    routes.add_service(service);
    health.add_health_service(&mut routes);
    health::add_reflection_services(health::OPERATOR_PORT_DESCRIPTORS, &mut routes)?;
    Ok(routes.routes())
}

/// Status of a call that failed because of a bug in the server.
fn internal_error_status() -> Status {
    Rejection::from(EngineError::Internal).into_status()
}
