//! Health (grpc.health.v1) and server reflection (v1 and v1alpha).

use tonic::service::RoutesBuilder;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};

use crate::api::pb;
use crate::api::pb::matchmaking_service_server;

/// Service names that the health service answers for: the whole server (empty name) and the Matchmaking service.
const HEALTH_SERVICE_NAMES: [&str; 2] = ["", matchmaking_service_server::SERVICE_NAME];

/// Serving status of the server, as the health service reports it.
#[derive(Clone, Debug, Default)]
pub struct HealthState {
    reporter: HealthReporter,
}

impl HealthState {
    /// Creates the state of a server that is starting: NOT_SERVING under each name.
    pub async fn new_not_serving() -> Self {
        let health = Self::default();
        health.set_serving_status(false).await;
        health
    }

    /// Sets SERVING or NOT_SERVING under each name.
    pub async fn set_serving_status(&self, serving: bool) {
        let status = if serving { ServingStatus::Serving } else { ServingStatus::NotServing };
        for name in HEALTH_SERVICE_NAMES {
            self.reporter.set_service_status(name, status).await;
        }
    }

    /// Adds the grpc.health.v1 service to `routes`.
    pub(super) fn add_health_service(&self, routes: &mut RoutesBuilder) {
        routes.add_service(HealthServer::new(HealthService::from_health_reporter(self.reporter.clone())));
    }
}

/// Adds reflection of `descriptors`, of the health service, and of the error detail messages.
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

/// Descriptors that reflection on the client port serves.
pub(super) const CLIENT_PORT_DESCRIPTORS: &[u8] = pb::CLIENT_PORT_SERVICE_DESCRIPTORS;

/// Descriptors that reflection on the operator port serves.
pub(super) const OPERATOR_PORT_DESCRIPTORS: &[u8] = pb::OPERATOR_DESCRIPTORS;
