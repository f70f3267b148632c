//! The example allocator for Agones, against a stand-in for its allocation service.

use std::sync::{Arc, Mutex};

use fireteam_client::pb;
use pb::{MatchEndReason, TicketState};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Endpoint, Server};
use tonic::{Request, Response, Status};

use crate::queue::allocation::offered_duel;
use crate::support::queue_server::{QueuedParty, SET_ID, start_queue_server, wait_until};

#[path = "../../../examples/allocators/agones.rs"]
mod agones;
#[path = "../../../examples/allocators/offer_loop.rs"]
mod offer_loop;

use agones::AgonesFleet;
use agones::wire::allocation_service_server::{AllocationService, AllocationServiceServer};
use agones::wire::{AllocationRequest, AllocationResponse, allocation_response::GameServerStatusPort};

/// Allocation service with game servers to give. Keeps the requests.
#[derive(Clone, Default)]
struct StandIn {
    requests: Arc<Mutex<Vec<AllocationRequest>>>,
}

#[tonic::async_trait]
impl AllocationService for StandIn {
    /// The first allocation fails, as in a fleet without ready game servers.
    async fn allocate(&self, request: Request<AllocationRequest>) -> Result<Response<AllocationResponse>, Status> {
        let mut requests = self.requests.lock().unwrap();
        requests.push(request.into_inner());
        if requests.len() == 1 {
            return Err(Status::resource_exhausted("there is no available GameServer to allocate"));
        }
        Ok(Response::new(AllocationResponse {
            game_server_name: format!("fleet-{}", requests.len()),
            ports: vec![GameServerStatusPort { name: "default".to_owned(), port: 7654 }],
            address: "198.51.100.9".to_owned(),
        }))
    }
}

/// The adapter allocates a game server of its fleet with match id and host token as annotations; a fleet without ready
/// servers refuses, and the match is offered again. With the token the game server ends the match.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agones_allocator_places_matches_on_its_fleet() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}", listener.local_addr().unwrap());
    let stand_in = StandIn::default();
    let service = AllocationServiceServer::new(stand_in.clone());
    let agones =
        tokio::spawn(Server::builder().add_service(service).serve_with_incoming(TcpListenerStream::new(listener)));

    let server = start_queue_server(&[&offered_duel("always")]).await;
    let channel = |uri: &str| Endpoint::from_shared(uri.to_owned()).unwrap().connect_lazy();
    let fleet = AgonesFleet { channel: channel(&uri), namespace: "games".to_owned(), fleet: "duels".to_owned() };
    let fireteam = channel(&format!("http://{}", server.app.server.address));
    let registration = pb::AllocatorRegistration { max_open_offers: Some(4), ..Default::default() };
    let adapter = tokio::spawn(offer_loop::serve_offers(fireteam, None, registration, Arc::new(fleet)));

    let mut ann = QueuedParty::enter(&server, SET_ID, &[("ann", 20.0)]).await;
    let mut bob = QueuedParty::enter(&server, SET_ID, &[("bob", 20.0)]).await;
    ann.wait_for_state(TicketState::Placing).await;
    wait_until("the match is offered again", async || {
        server.clock.advance_ms(100);
        stand_in.requests.lock().unwrap().len() == 2
    })
    .await;
    let allocated = stand_in.requests.lock().unwrap()[1].clone();
    assert_eq!(allocated.namespace, "games");
    assert_eq!(allocated.game_server_selectors[0].match_labels["agones.dev/fleet"], "duels");
    let annotations = allocated.metadata.expect("metadata").annotations;

    // The game server reads the annotations, and confirms the match.
    let token = annotations["fireteam.dev/host-token"].as_bytes().chunks(2);
    let token: Vec<u8> =
        token.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect();
    let match_id = annotations["fireteam.dev/match-id"].clone();
    wait_until("the game server confirms", async || {
        let matches = vec![pb::HostedMatchBeat { match_id: match_id.clone(), gives_up: false }];
        let request = pb::QueueHostHeartbeatRequest { advertisement_token: token.clone(), matches };
        let answer = bob.client.host_heartbeat(request).await.expect("a heartbeat");
        answer.matches[0].state() == pb::HostedMatchState::Playing
    })
    .await;
    let found = ann.wait_for_state(TicketState::Matched).await.found_match.expect("a match");
    assert_eq!(found.match_id, match_id);
    let Some(pb::assignment::Host::GameServer(host)) = found.assignment.expect("a host").host else {
        panic!("a game server");
    };
    assert_eq!(host.connect_data, b"198.51.100.9:7654");
    assert_eq!(host.advertisement_id, annotations["fireteam.dev/advertisement-id"]);
    let end = pb::QueueEndMatchRequest { match_id: found.match_id, advertisement_token: token, ..Default::default() };
    assert_eq!(bob.client.end_match(end).await.expect("end").end_reason(), MatchEndReason::Played);
    bob.wait_for_end().await;
    adapter.abort();
    agones.abort();
}
