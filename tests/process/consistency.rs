//! Asks each server to compare its memory with the store, after all load has ended.

use std::time::Duration;

use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::support::generated_client::{CheckConsistencyRequest, CheckConsistencyResponse};

/// Time for pending changes, such as expiring holds, to end and reach all servers; far more than they need.
const SETTLED_WITHIN: Duration = Duration::from_secs(15);

/// R9: differences between the memory of each server and the store. No change is in progress, so everything is compared.
/// Servers may still write changes to the store that were not yet durable; the check waits for them.
pub(crate) async fn differences(cluster: &Cluster) -> Vec<String> {
    let mut violations = Vec::new();
    for at in 0..cluster.len() {
        let address = cluster.with(at, |server| server.operator_address);
        let started = Instant::now();
        let answer = loop {
            let answer = check_consistency(address).await;
            let settled = answer.as_ref().is_ok_and(|it| it.complete && it.not_yet_durable == 0);
            if settled || SETTLED_WITHIN < started.elapsed() {
                break answer;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        match answer {
            Ok(it) if it.difference_count == 0 && it.complete && it.not_yet_durable == 0 => {}
            it => violations.push(format!("consistency: server {at} differs from the store: {it:?}")),
        }
    }
    violations
}

async fn check_consistency(address: std::net::SocketAddr) -> Result<CheckConsistencyResponse, tonic::Status> {
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{address}")).expect("an address");
    let mut operator =
        crate::support::generated_client::operator_service_client::OperatorServiceClient::new(endpoint.connect_lazy());
    Ok(operator.check_consistency(CheckConsistencyRequest::default()).await?.into_inner())
}
