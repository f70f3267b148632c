//! Many changes in one transaction: the engine applies them to memory in batches, with the same result as one by one.

use std::collections::BTreeMap;

use fireteam::api::convert::RequestReader;
use fireteam::api::matchmaking_handler::MatchmakingHandler;
use fireteam::api::pb;
use fireteam::engine::error::EngineError;
use prost::Message;

use crate::support::generated_client;
use crate::support::test_server::{TestServer, anonymous_caller};

/// Hosts per set: the searched set, and another one in between.
const HOST_COUNTS_BY_SET: [(u32, usize); 2] = [(2, 20), (1, 5)];

fn session_composition(user: &str, seats: usize) -> pb::SessionCompositionData {
    pb::SessionCompositionData {
        players: vec![pb::PlayerData { user_id: user.into(), skill: Some(10.0), ..Default::default() }],
        max_allowed_join_reservation_count: Some(seats as i32),
        ..Default::default()
    }
}

/// Update of a host. Searches show `word` as the number of open seats.
fn update_request(set: u32, host: usize, word: usize) -> pb::UpdateAdvertisementRequest {
    pb::UpdateAdvertisementRequest {
        matchmaking_set_id: Some(set),
        session_composition: Some(session_composition(&format!("host {host} of {set}"), 1 + word)),
        ..Default::default()
    }
}

/// S1-44, R4: no await between the first and the last submission, so the writer receives all changes in one batch.
#[tokio::test]
async fn batched_changes_have_the_same_effect_as_single_changes() {
    let server = TestServer::start().await;
    let (handler, caller, entry_point) =
        (MatchmakingHandler::new(server.app.engine.clone()), anonymous_caller(), RequestReader::default());
    let mut hosts = Vec::new();
    for (set, count) in HOST_COUNTS_BY_SET {
        for host in 0..count {
            let answer = handler
                .update_advertisement(entry_point, &caller, update_request(set, host, 0))
                .unwrap()
                .wait()
                .await
                .unwrap();
            assert!(answer.is_new_advert);
            hosts.push((set, host, answer.id, answer.advertisement_token));
        }
    }
    server.clock.advance_ms(1_000);

    let (mut last_value, mut updates, mut deletions) = (BTreeMap::new(), Vec::new(), Vec::new());
    for word in 1..=400 {
        // Fifty changes in a row about one set, in an order that returns to the same host within a batch.
        let number = if word / 50 % 4 == 3 { 20 + word % 5 } else { word * 7 % 20 };
        let (set, host, id, token) = hosts[number].clone();
        let (advertisement_id, advertisement_token) = (id.to_string(), token.clone());
        if word % 45 == 44 {
            let wire = pb::DeleteAdvertisementRequest { advertisement_id, advertisement_token };
            deletions.push(handler.delete_advertisement(entry_point, &caller, wire).unwrap().1);
            last_value.insert(number, None);
            continue;
        }
        let wire =
            pb::UpdateAdvertisementRequest { advertisement_id, advertisement_token, ..update_request(set, host, word) };
        let expected = last_value.get(&number) != Some(&None);
        updates
            .push((handler.update_advertisement(entry_point, &caller, wire).unwrap(), expected.then_some((id, token))));
        if expected {
            last_value.insert(number, Some(word));
        }
    }
    for (pending, expected) in updates {
        match (pending.wait().await, expected) {
            (Ok(answer), Some((id, token))) => {
                assert_eq!((answer.id, answer.advertisement_token, answer.is_new_advert), (id, token, false))
            }
            (Err(EngineError::AdvertisementDeleted), None) => {}
            (other, expected) => panic!("{other:?} instead of {expected:?}"),
        }
    }
    for pending in deletions {
        pending.wait().await.unwrap();
    }

    let wire = pb::SearchRequest {
        matchmaking_set_id: Some(HOST_COUNTS_BY_SET[0].0),
        session_composition: Some(session_composition("searcher", 0)),
        ..Default::default()
    };
    let answer = handler.search(entry_point, &caller, wire).unwrap().encode_to_vec();
    let found = generated_client::MatchmakingSearchResponse::decode(&*answer).unwrap().candidates;
    let mut found: Vec<_> =
        found.into_iter().map(|candidate| (candidate.advertisement_id, candidate.open_seats as usize)).collect();
    found.sort();
    let alive =
        last_value.iter().filter_map(|(&number, word)| Some((number, (*word)?))).filter(|(number, _)| *number < 20);
    let mut expected: Vec<_> = alive.map(|(number, word)| (hosts[number].2.to_string(), 1 + word)).collect();
    expected.sort();
    assert!(1 < expected.len() && expected.len() < 20, "some hosts are deleted, some are not");
    assert_eq!(found, expected);
}
