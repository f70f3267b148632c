//! Starts game servers through the allocation service of Agones.

use fireteam_client::pb;
use tonic::transport::Channel;

use self::wire::allocation_service_client::AllocationServiceClient;
use super::offer_loop::ServerStarter;

/// Messages and stubs generated from `agones.proto`.
pub(crate) mod wire {
    #![expect(unreachable_pub, reason = "generated")]
    #![cfg_attr(test, expect(clippy::allow_attributes, reason = "generated server stubs"))]

    include!(concat!(env!("OUT_DIR"), "/agones/allocation.rs"));
}

/// Allocates game servers of one fleet.
pub(crate) struct AgonesFleet {
    /// Channel to `agones-allocator`.
    pub(crate) channel: Channel,
    /// Kubernetes namespace of the fleet.
    pub(crate) namespace: String,
    /// Name of the fleet.
    pub(crate) fleet: String,
}

impl ServerStarter for AgonesFleet {
    /// The game server reads match id and token from its annotations, through the SDK of Agones.
    async fn start(&self, offer: pb::AllocationOffer) -> Result<Vec<u8>, String> {
        let token: String = offer.host_token.iter().map(|byte| format!("{byte:02x}")).collect();
        let annotations = [
            ("fireteam.dev/match-id", offer.match_id),
            ("fireteam.dev/advertisement-id", offer.advertisement_id),
            ("fireteam.dev/host-token", token),
        ];
        let fleet = [("agones.dev/fleet".to_owned(), self.fleet.clone())];
        let request = wire::AllocationRequest {
            namespace: self.namespace.clone(),
            metadata: Some(wire::MetaPatch {
                annotations: annotations.map(|(name, value)| (name.to_owned(), value)).into(),
                ..Default::default()
            }),
            game_server_selectors: vec![wire::GameServerSelector { match_labels: fleet.into() }],
        };
        let response = AllocationServiceClient::new(self.channel.clone()).allocate(request).await;
        let server = response.map_err(|status| status.message().to_owned())?.into_inner();
        let port = server.ports.first().ok_or("the game server has no port")?.port;
        println!("match is on game server {}", server.game_server_name);
        Ok(format!("{}:{port}", server.address).into_bytes())
    }

    /// Agones has no call to give an allocated game server back. The game server shuts itself down: its heartbeat for the
    /// match is refused (docs/OPERATING.md).
    async fn stop(&self, _offer_token: &[u8]) {
        println!("a place is not wanted; its game server shuts itself down");
    }
}
