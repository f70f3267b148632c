//! Number of allocations of a search.

use fireteam::api::convert::RequestReader;
use fireteam::api::matchmaking_handler::MatchmakingHandler;
use fireteam::api::pb;

use prost::Message;

use crate::support::generated_client;
use crate::support::test_server::{TestServer, anonymous_caller};

fn session_composition(silo: u64, user: &str) -> pb::SessionCompositionData {
    pb::SessionCompositionData {
        silo_id: Some(silo),
        players: vec![pb::PlayerData { user_id: user.into(), skill: Some(10.0), ..Default::default() }],
        max_allowed_join_reservation_count: Some(4),
        ..Default::default()
    }
}

fn decoded_candidate_count(answer: &[u8]) -> usize {
    generated_client::MatchmakingSearchResponse::decode(answer).unwrap().candidates.len()
}

/// PR7: a search with fifty candidates makes as many allocations as one with a single candidate.
#[tokio::test]
async fn search_allocation_count_is_independent_of_candidates() {
    let server = TestServer::start().await;
    let (handler, caller) = (MatchmakingHandler::new(server.app.engine.clone()), anonymous_caller());
    let populations = [1, 10, 50];
    for silo in populations {
        for number in 0..silo {
            let wire = pb::UpdateAdvertisementRequest {
                matchmaking_set_id: Some(2),
                session_composition: Some(session_composition(silo, &format!("host {number} of {silo}"))),
                connect_data: vec![7; 16],
                ..Default::default()
            };
            handler.update_advertisement(RequestReader::default(), &caller, wire).unwrap().wait().await.unwrap();
        }
    }
    let search = |silo| {
        let wire = pb::SearchRequest {
            matchmaking_set_id: Some(2),
            session_composition: Some(session_composition(silo, "searcher")),
            ..Default::default()
        };
        let mut bytes = Vec::new();
        let counted = allocation_counter::measure(|| {
            let answer = handler.search(RequestReader::default(), &caller, wire).unwrap();
            bytes = answer.encode_to_vec();
        });
        (decoded_candidate_count(&bytes), counted.count_total)
    };
    // The first searches of a thread allocate its search buffers.
    let _ = populations.map(search);
    let counted = populations.map(|silo| {
        let (candidates, allocations) = search(silo);
        assert_eq!(candidates, silo as usize);
        allocations
    });
    assert_eq!(counted, [counted[0]; 3]);
    assert!(counted[0] <= 20, "{} allocations", counted[0]);
}
