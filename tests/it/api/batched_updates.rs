//! Many changes in one transaction: brought to memory in runs, they mean what they mean one by one.

use std::collections::BTreeMap;

use fireteam::api::convert::EntryPoint;
use fireteam::api::matchmaking_handler::MatchmakingHandler;
use fireteam::api::pb;
use fireteam::engine::error::EngineError;
use prost::Message;

use crate::support::test_server::{TestServer, anonymous_caller};
use crate::support::generated_client;

/// Hosts of the set that is searched, and of another that comes in between.
const HOST_COUNTS_BY_SET: [(u32, usize); 2] = [(2, 20), (1, 5)];

fn session_composition(user: &str) -> pb::SessionCompositionData {
    pb::SessionCompositionData {
        players: vec![pb::PlayerData { user_id: user.into(), skill: Some(10.0), ..Default::default() }],
        max_allowed_join_reservation_count: Some(4),
        ..Default::default()
    }
}

fn update_request(set: u32, host: usize, word: usize) -> pb::UpdateAdvertisementRequest {
    pb::UpdateAdvertisementRequest {
        matchmaking_set_id: Some(set),
        session_composition: Some(session_composition(&format!("host {host} of {set}"))),
        connect_data: word.to_string().into_bytes(),
        ..Default::default()
    }
}

/// S1-44, R4: nothing awaits between submitting the first and the last, so that the writer finds them all at once.
#[tokio::test]
async fn batched_changes_have_the_same_effect_as_single_changes() {
    let house = TestServer::start().await;
    let (handler, caller, door) =
        (MatchmakingHandler::new(house.app.engine.clone()), anonymous_caller(), EntryPoint::default());
    let mut hosts = Vec::new();
    for (set, count) in HOST_COUNTS_BY_SET {
        for host in 0..count {
            let answer = handler.update(door, &caller, update_request(set, host, 0)).unwrap().wait().await.unwrap();
            assert!(answer.created);
            hosts.push((set, host, answer.id, answer.advertisement_token));
        }
    }
    house.clock.advance_ms(1_000);

    let (mut said, mut updates, mut deletions) = (BTreeMap::new(), Vec::new(), Vec::new());
    for word in 1..=400 {
        // Fifty in a row about one set, in an order that comes back to the same host within a run.
        let number = if word / 50 % 4 == 3 { 20 + word % 5 } else { word * 7 % 20 };
        let (set, host, id, token) = hosts[number].clone();
        let (advertisement_id, advertisement_token) = (id.to_string(), token.clone());
        if word % 45 == 44 {
            let wire = pb::DeleteAdvertisementRequest { advertisement_id, advertisement_token };
            deletions.push(handler.delete(door, &caller, wire).unwrap().1);
            said.insert(number, None);
            continue;
        }
        let wire = pb::UpdateAdvertisementRequest { advertisement_id, advertisement_token, ..update_request(set, host, word) };
        let wanted = said.get(&number) != Some(&None);
        updates.push((handler.update(door, &caller, wire).unwrap(), wanted.then_some((id, token))));
        if wanted {
            said.insert(number, Some(word));
        }
    }
    for (submitted, wanted) in updates {
        match (submitted.wait().await, wanted) {
            (Ok(answer), Some((id, token))) => {
                assert_eq!((answer.id, answer.advertisement_token, answer.created), (id, token, false))
            }
            (Err(EngineError::AdvertisementDeleted), None) => {}
            (other, wanted) => panic!("{other:?} instead of {wanted:?}"),
        }
    }
    for submitted in deletions {
        submitted.wait().await.unwrap();
    }

    let wire = pb::SearchRequest {
        matchmaking_set_id: Some(HOST_COUNTS_BY_SET[0].0),
        session_composition: Some(session_composition("seeker")),
        ..Default::default()
    };
    let answer = handler.search(door, &caller, wire).unwrap().encode_to_vec();
    let found = generated_client::MatchmakingSearchResponse::decode(&*answer).unwrap().candidates;
    let mut found: Vec<_> = found.into_iter().map(|it| (it.advertisement_id, it.connect_data)).collect();
    found.sort();
    let living = said.iter().filter_map(|(&number, word)| Some((number, (*word)?))).filter(|(number, _)| *number < 20);
    let mut wanted: Vec<_> =
        living.map(|(number, word)| (hosts[number].2.to_string(), word.to_string().into_bytes())).collect();
    wanted.sort();
    assert!(1 < wanted.len() && wanted.len() < 20, "some live, some do not");
    assert_eq!(found, wanted);
}
