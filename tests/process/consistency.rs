//! Asks each server whether it believes what is stored, when all is quiet again.

use std::time::Duration;

use tokio::time::Instant;

use crate::cluster::Fleet;
use crate::support::generated_client::{CheckConsistencyRequest, CheckConsistencyResponse};

/// What clients left behind, such as holds that lapse, is over and heard of well within this.
const SETTLED_WITHIN: Duration = Duration::from_secs(15);

/// R9: differences between the memory of each server and the store. Nothing is on its way any more, so all of it is compared;
/// the servers may still be telling the store of what was pending.
pub(crate) async fn differences(fleet: &Fleet) -> Vec<String> {
    let mut wrong = Vec::new();
    for at in 0..fleet.len() {
        let address = fleet.with(at, |server| server.operator_address);
        let begun = Instant::now();
        let told = loop {
            let told = ask(address).await;
            let settled = told.as_ref().is_ok_and(|told| told.complete && told.not_yet_durable == 0);
            if settled || SETTLED_WITHIN < begun.elapsed() {
                break told;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        match told {
            Ok(told) if told.difference_count == 0 && told.complete && told.not_yet_durable == 0 => {}
            told => wrong.push(format!("audit: server {at} is not what is stored: {told:?}")),
        }
    }
    wrong
}

async fn ask(address: std::net::SocketAddr) -> Result<CheckConsistencyResponse, tonic::Status> {
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{address}")).expect("an address");
    let mut operator =
        crate::support::generated_client::operator_service_client::OperatorServiceClient::new(endpoint.connect_lazy());
    Ok(operator.check_consistency(CheckConsistencyRequest::default()).await?.into_inner())
}
