//! The stream: answers find their callers, events arrive, and everybody hears of the end.

use tonic::{Code, Status, Streaming};

use crate::connection::{Connection, Events};
use crate::error::Error;
use crate::pb;
use crate::pb::matchmaking_connect_response::Message;

use super::stand_in::{Pushes, Script};

type Questions = Streaming<pb::MatchmakingConnectRequest>;

async fn opened() -> (Connection, Events, Questions, Pushes) {
    let (script, client) = Script::default().play().await;
    let (connection, events) = client.open().await.unwrap();
    let (questions, pushes) = script.stream();
    (connection, events, questions, pushes)
}

async fn nonce(questions: &mut Questions) -> u64 {
    let core = questions.message().await.unwrap().unwrap().core.unwrap();
    core.request_nonce.expect("every envelope has a nonce")
}

fn answer(nonce: u64, evaluated: u32) -> Result<pb::MatchmakingConnectResponse, Status> {
    let found = pb::MatchmakingSearchResponse { evaluated, ..Default::default() };
    said(pb::MatchmakingCoreResponse { request_nonce: Some(nonce), search_response: Some(found), ..Default::default() })
}

fn said(core: pb::MatchmakingCoreResponse) -> Result<pb::MatchmakingConnectResponse, Status> {
    Ok(pb::MatchmakingConnectResponse { message: Some(Message::Core(core)) })
}

fn event(id: &str) -> Result<pb::MatchmakingConnectResponse, Status> {
    let event = pb::ReservationEvent { advertisement_id: id.to_owned(), ..Default::default() };
    Ok(pb::MatchmakingConnectResponse { message: Some(Message::Reservation(event)) })
}

#[tokio::test]
async fn answers_in_any_order_find_their_callers() {
    let (connection, _events, mut questions, pushes) = opened().await;
    let server = async {
        let asked = [nonce(&mut questions).await, nonce(&mut questions).await, nonce(&mut questions).await];
        for (place, evaluated) in [(2, 30), (0, 10), (1, 20)] {
            pushes.send(answer(asked[place], evaluated)).await.unwrap();
        }
    };
    let one = connection.search(Default::default());
    let two = connection.search(Default::default());
    let three = connection.search(Default::default());
    let (one, two, three, ()) = tokio::join!(one, two, three, server);
    assert_eq!([one.unwrap().evaluated, two.unwrap().evaluated, three.unwrap().evaluated], [10, 20, 30]);
}

#[tokio::test]
async fn a_refused_request_fails_alone() {
    let (connection, _events, mut questions, pushes) = opened().await;
    let server = async {
        let (bad, good) = (nonce(&mut questions).await, nonce(&mut questions).await);
        let refusal = pb::RequestError {
            code: Code::InvalidArgument as i32,
            message: "2 players, sizes add up to 3".into(),
            field: "search_request.session_composition.party_size_composition".into(),
            retry_after_ms: None,
            reason: pb::ErrorReason::InvalidRequest.into(),
        };
        let core = pb::MatchmakingCoreResponse { request_nonce: Some(bad), error: Some(refusal), ..Default::default() };
        pushes.send(said(core)).await.unwrap();
        pushes.send(answer(good, 1)).await.unwrap();
    };
    let (bad, good, ()) =
        tokio::join!(connection.search(Default::default()), connection.search(Default::default()), server);
    let error = bad.unwrap_err();
    assert_eq!(error.code(), Some(Code::InvalidArgument));
    assert_eq!(error.fields()[0].field, "search_request.session_composition.party_size_composition");
    assert_eq!(good.unwrap().evaluated, 1);
}

#[tokio::test]
async fn an_answer_nobody_waits_for_disturbs_nobody() {
    let (connection, _events, mut questions, pushes) = opened().await;
    let abandoned = connection.send(Default::default()).await.unwrap();
    drop(abandoned);
    let server = async {
        let (first, second) = (nonce(&mut questions).await, nonce(&mut questions).await);
        pushes.send(answer(first, 1)).await.unwrap();
        pushes.send(answer(77, 7)).await.unwrap();
        pushes.send(answer(second, 2)).await.unwrap();
    };
    let (found, ()) = tokio::join!(connection.search(Default::default()), server);
    assert_eq!(found.unwrap().evaluated, 2);
}

#[tokio::test]
async fn when_the_server_goes_everybody_hears_why() {
    let (connection, mut events, mut questions, pushes) = opened().await;
    let server = async {
        nonce(&mut questions).await;
        pushes.send(event("ad")).await.unwrap();
        pushes.send(Err(Status::unavailable("going away"))).await.unwrap();
    };
    let (waiting, ()) = tokio::join!(connection.search(Default::default()), server);
    let went_away = |error: Error| {
        assert!(matches!(&error, Error::Ended(Some(why)) if why.code == Code::Unavailable), "{error}");
    };
    went_away(waiting.unwrap_err());
    went_away(connection.search(Default::default()).await.unwrap_err());
    assert_eq!(events.next().await.unwrap().advertisement_id, "ad", "what arrived before the end is not lost");
    went_away(events.next().await.unwrap_err());
}

#[tokio::test]
async fn events_that_nobody_reads_end_the_stream_rather_than_get_lost() {
    let (connection, mut events, _questions, pushes) = opened().await;
    for _ in 0..257 {
        pushes.send(event("ad")).await.unwrap();
    }
    let end = connection.search(Default::default()).await.unwrap_err();
    assert!(matches!(end, Error::EventsOverflowed), "{end}");
    for _ in 0..256 {
        events.next().await.unwrap();
    }
    assert!(matches!(events.next().await, Err(Error::EventsOverflowed)));
}

#[tokio::test]
async fn a_client_that_wants_no_events_keeps_its_stream() {
    let (connection, events, mut questions, pushes) = opened().await;
    drop(events);
    for _ in 0..300 {
        pushes.send(event("ad")).await.unwrap();
    }
    let server = async { pushes.send(answer(nonce(&mut questions).await, 3)).await.unwrap() };
    let (found, ()) = tokio::join!(connection.search(Default::default()), server);
    assert_eq!(found.unwrap().evaluated, 3);
}

#[tokio::test]
async fn the_stream_ends_with_the_last_handle() {
    let (connection, _events, mut questions, _pushes) = opened().await;
    let copy = connection.clone();
    drop(connection);
    let sent = copy.send(Default::default()).await.unwrap();
    nonce(&mut questions).await;
    drop((copy, sent));
    assert!(!matches!(questions.message().await, Ok(Some(_))), "nothing more is asked");
}
