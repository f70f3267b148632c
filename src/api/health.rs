//! What tools ask first: is it serving (grpc.health.v1), and what does it serve (reflection, v1 and v1alpha).

use tonic::server::NamedService;
use tonic::service::RoutesBuilder;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};

use crate::api::matchmaking::MatchmakingApi;
use crate::api::pb;
use crate::api::pb::matchmaking_service_server::MatchmakingServiceServer;

/// The names under which health is asked: the server as a whole, and its service.
const HEALTH_SERVICE_NAMES: [&str; 2] = ["", <MatchmakingServiceServer<MatchmakingApi> as NamedService>::NAME];

/// What the server says of its health.
#[derive(Clone, Debug, Default)]
pub struct HealthState {
    reporter: HealthReporter,
}

impl HealthState {
    /// Not serving yet.
    pub async fn not_serving() -> Self {
        let health = Self::default();
        health.set_serving(false).await;
        health
    }

    /// Says, under every name, whether clients should be sent here.
    pub async fn set_serving(&self, serving: bool) {
        let status = if serving { ServingStatus::Serving } else { ServingStatus::NotServing };
        for name in HEALTH_SERVICE_NAMES {
            self.reporter.set_service_status(name, status).await;
        }
    }

    /// Adds the health service.
    pub(super) fn add_health_service(&self, routes: &mut RoutesBuilder) {
        routes.add_service(HealthServer::new(HealthService::from_health_reporter(self.reporter.clone())));
    }
}

/// Adds reflection of `descriptors`, of health, and of the details that errors carry.
pub(super) fn add_reflection_services(
    descriptors: &'static [u8],
    routes: &mut RoutesBuilder,
) -> Result<(), tonic_reflection::server::Error> {
    let builder = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(descriptors)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
    };
    routes.add_service(builder().build_v1()?);
    routes.add_service(builder().build_v1alpha()?);
    Ok(())
}

/// What reflection says of the port that players use.
pub(super) const CLIENT_PORT_DESCRIPTORS: &[u8] = pb::MATCHMAKING_DESCRIPTORS;

/// What reflection says of the operator's port.
pub(super) const OPERATOR_PORT_DESCRIPTORS: &[u8] = pb::OPERATOR_DESCRIPTORS;
