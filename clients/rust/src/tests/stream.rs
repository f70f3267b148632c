//! The stream: answers find their callers, events arrive, and everybody hears of the end.

use tonic::{Code, Status, Streaming};

use crate::connection::{Connection, ReservationEvents};
use crate::error::Error;
use crate::pb;
use crate::pb::matchmaking_connect_response::Message;

use super::scripted_server::{ResponseSender, ServerScript};

type RequestStream = Streaming<pb::MatchmakingConnectRequest>;

async fn open_scripted_stream() -> (Connection, ReservationEvents, RequestStream, ResponseSender) {
    let (script, client) = ServerScript::default().start().await;
    let (connection, events) = client.open_stream().await.unwrap();
    let (questions, pushes) = script.latest_stream();
    (connection, events, questions, pushes)
}

async fn receive_nonce(questions: &mut RequestStream) -> u64 {
    let core = questions.message().await.unwrap().unwrap().core.unwrap();
    core.request_nonce.expect("every envelope has a nonce")
}

fn search_response(nonce: u64, evaluated: u32) -> Result<pb::MatchmakingConnectResponse, Status> {
    let found = pb::MatchmakingSearchResponse { evaluated, ..Default::default() };
    core_message(pb::MatchmakingCoreResponse {
        request_nonce: Some(nonce),
        search_response: Some(found),
        ..Default::default()
    })
}

fn core_message(core: pb::MatchmakingCoreResponse) -> Result<pb::MatchmakingConnectResponse, Status> {
    Ok(pb::MatchmakingConnectResponse { message: Some(Message::Core(core)) })
}

fn reservation_event(id: &str) -> Result<pb::MatchmakingConnectResponse, Status> {
    let event = pb::ReservationEvent { advertisement_id: id.to_owned(), ..Default::default() };
    Ok(pb::MatchmakingConnectResponse { message: Some(Message::Reservation(event)) })
}

#[tokio::test]
async fn stream_matches_responses_to_callers_by_nonce() {
    let (connection, _events, mut questions, pushes) = open_scripted_stream().await;
    let server = async {
        let asked = [
            receive_nonce(&mut questions).await,
            receive_nonce(&mut questions).await,
            receive_nonce(&mut questions).await,
        ];
        for (place, evaluated) in [(2, 30), (0, 10), (1, 20)] {
            pushes.send(search_response(asked[place], evaluated)).await.unwrap();
        }
    };
    let one = connection.search(Default::default());
    let two = connection.search(Default::default());
    let three = connection.search(Default::default());
    let (one, two, three, ()) = tokio::join!(one, two, three, server);
    assert_eq!([one.unwrap().evaluated, two.unwrap().evaluated, three.unwrap().evaluated], [10, 20, 30]);
}

#[tokio::test]
async fn stream_request_error_fails_one_request_only() {
    let (connection, _events, mut questions, pushes) = open_scripted_stream().await;
    let server = async {
        let (bad, good) = (receive_nonce(&mut questions).await, receive_nonce(&mut questions).await);
        let refusal = pb::RequestError {
            code: Code::InvalidArgument as i32,
            message: "2 players, sizes add up to 3".into(),
            field: "search_request.session_composition.party_size_composition".into(),
            retry_after_ms: None,
            reason: pb::ErrorReason::InvalidRequest.into(),
        };
        let core = pb::MatchmakingCoreResponse { request_nonce: Some(bad), error: Some(refusal), ..Default::default() };
        pushes.send(core_message(core)).await.unwrap();
        pushes.send(search_response(good, 1)).await.unwrap();
    };
    let (bad, good, ()) =
        tokio::join!(connection.search(Default::default()), connection.search(Default::default()), server);
    let error = bad.unwrap_err();
    assert_eq!(error.code(), Some(Code::InvalidArgument));
    assert_eq!(error.fields()[0].field, "search_request.session_composition.party_size_composition");
    assert_eq!(good.unwrap().evaluated, 1);
}

#[tokio::test]
async fn stream_ignores_the_response_to_an_abandoned_request() {
    let (connection, _events, mut questions, pushes) = open_scripted_stream().await;
    let abandoned = connection.send(Default::default()).await.unwrap();
    drop(abandoned);
    let server = async {
        let (first, second) = (receive_nonce(&mut questions).await, receive_nonce(&mut questions).await);
        pushes.send(search_response(first, 1)).await.unwrap();
        pushes.send(search_response(77, 7)).await.unwrap();
        pushes.send(search_response(second, 2)).await.unwrap();
    };
    let (found, ()) = tokio::join!(connection.search(Default::default()), server);
    assert_eq!(found.unwrap().evaluated, 2);
}

#[tokio::test]
async fn stream_end_is_reported_to_every_caller() {
    let (connection, mut events, mut questions, pushes) = open_scripted_stream().await;
    let server = async {
        receive_nonce(&mut questions).await;
        pushes.send(reservation_event("ad")).await.unwrap();
        pushes.send(Err(Status::unavailable("going away"))).await.unwrap();
    };
    let (waiting, ()) = tokio::join!(connection.search(Default::default()), server);
    let went_away = |error: Error| {
        assert!(matches!(&error, Error::StreamEnded(Some(why)) if why.code == Code::Unavailable), "{error}");
    };
    went_away(waiting.unwrap_err());
    went_away(connection.search(Default::default()).await.unwrap_err());
    assert_eq!(events.next().await.unwrap().advertisement_id, "ad", "what arrived before the end is not lost");
    went_away(events.next().await.unwrap_err());
}

#[tokio::test]
async fn stream_ends_when_the_event_buffer_overflows() {
    let (connection, mut events, _questions, pushes) = open_scripted_stream().await;
    for _ in 0..257 {
        pushes.send(reservation_event("ad")).await.unwrap();
    }
    let end = connection.search(Default::default()).await.unwrap_err();
    assert!(matches!(end, Error::EventBufferOverflow), "{end}");
    for _ in 0..256 {
        events.next().await.unwrap();
    }
    assert!(matches!(events.next().await, Err(Error::EventBufferOverflow)));
}

#[tokio::test]
async fn stream_stays_open_when_the_events_are_dropped() {
    let (connection, events, mut questions, pushes) = open_scripted_stream().await;
    drop(events);
    for _ in 0..300 {
        pushes.send(reservation_event("ad")).await.unwrap();
    }
    let server = async { pushes.send(search_response(receive_nonce(&mut questions).await, 3)).await.unwrap() };
    let (found, ()) = tokio::join!(connection.search(Default::default()), server);
    assert_eq!(found.unwrap().evaluated, 3);
}

#[tokio::test]
async fn stream_ends_with_the_last_connection_handle() {
    let (connection, _events, mut questions, _pushes) = open_scripted_stream().await;
    let copy = connection.clone();
    drop(connection);
    let sent = copy.send(Default::default()).await.unwrap();
    receive_nonce(&mut questions).await;
    drop((copy, sent));
    assert!(!matches!(questions.message().await, Ok(Some(_))), "nothing more is asked");
}
