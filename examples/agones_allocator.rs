//! Example allocator for Agones: allocates a game server of a fleet for each offered match.
//!
//! `cargo run --example agones_allocator -- http://127.0.0.1:50051 http://127.0.0.1:8443 default my-fleet`
//!
//! The channel to Agones is plaintext here; `agones-allocator` uses mutual TLS unless that is switched off.

#[path = "allocators/agones.rs"]
mod agones;
#[path = "allocators/offer_loop.rs"]
mod offer_loop;

use std::sync::Arc;

use fireteam_client::pb;
use tonic::transport::Endpoint;

use agones::AgonesFleet;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [fireteam, agones, namespace, fleet] = &arguments[..] else {
        return Err("give the addresses of fireteam and agones-allocator, the namespace and the fleet".into());
    };
    let channel = Endpoint::from_shared(agones.clone())?.connect_lazy();
    let fleet = AgonesFleet { channel, namespace: namespace.clone(), fleet: fleet.clone() };
    let fireteam = Endpoint::from_shared(fireteam.clone())?.connect_lazy();
    let registration = pb::AllocatorRegistration { max_open_offers: Some(16), ..Default::default() };
    let token = authorization();
    offer_loop::serve_offers(fireteam, token, registration, Arc::new(fleet)).await;
    Ok(())
}

/// Value of the `authorization` header, if the server needs one.
#[expect(clippy::disallowed_methods, reason = "an example has no configuration file")]
fn authorization() -> Option<String> {
    std::env::var("FIRETEAM_AUTHORIZATION").ok()
}
