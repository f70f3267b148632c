//! The stream: responses matched to callers, reservation events, and the end of the stream.

use tonic::{Code, Status, Streaming};
use tonic_types::{ErrorDetails, StatusExt};

use crate::error::Error;
use crate::matchmaking_stream::{HostEvents, MatchmakingStream};
use crate::pb;
use crate::pb::matchmaking_connect_response::Message;

use super::scripted_server::{ResponseSender, ServerScript};

type RequestStream = Streaming<pb::MatchmakingConnectRequest>;

async fn open_scripted_stream() -> (MatchmakingStream, HostEvents, RequestStream, ResponseSender) {
    let (script, client) = ServerScript::default().start().await;
    let (connection, events) = client.open_stream().await.unwrap();
    let (requests, responses) = script.latest_stream();
    (connection, events, requests, responses)
}

async fn receive_nonce(requests: &mut RequestStream) -> u64 {
    let core = requests.message().await.unwrap().unwrap().core.unwrap();
    core.request_nonce.expect("every core request has a nonce")
}

fn search_response(nonce: u64, evaluated: u32) -> Result<pb::MatchmakingConnectResponse, Status> {
    let response = pb::MatchmakingSearchResponse { evaluated, ..Default::default() };
    core_message(pb::MatchmakingCoreResponse {
        request_nonce: Some(nonce),
        search_response: Some(response),
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
    let (connection, _events, mut requests, responses) = open_scripted_stream().await;
    let server = async {
        let nonces = [
            receive_nonce(&mut requests).await,
            receive_nonce(&mut requests).await,
            receive_nonce(&mut requests).await,
        ];
        for (index, evaluated) in [(2, 30), (0, 10), (1, 20)] {
            responses.send(search_response(nonces[index], evaluated)).await.unwrap();
        }
    };
    let first = connection.search(Default::default());
    let second = connection.search(Default::default());
    let third = connection.search(Default::default());
    let (first, second, third, ()) = tokio::join!(first, second, third, server);
    assert_eq!([first.unwrap().evaluated, second.unwrap().evaluated, third.unwrap().evaluated], [10, 20, 30]);
}

#[tokio::test]
async fn stream_request_error_fails_one_request_only() {
    let (connection, _events, mut requests, responses) = open_scripted_stream().await;
    let server = async {
        let (bad, good) = (receive_nonce(&mut requests).await, receive_nonce(&mut requests).await);
        let error = pb::RequestError {
            code: Code::InvalidArgument as i32,
            message: "2 players, sizes add up to 3".into(),
            field: "search_request.session_composition.party_size_composition".into(),
            retry_after_ms: None,
            reason: pb::ErrorReason::InvalidRequest.into(),
        };
        let core = pb::MatchmakingCoreResponse { request_nonce: Some(bad), error: Some(error), ..Default::default() };
        responses.send(core_message(core)).await.unwrap();
        responses.send(search_response(good, 1)).await.unwrap();
    };
    let (bad, good, ()) =
        tokio::join!(connection.search(Default::default()), connection.search(Default::default()), server);
    let error = bad.unwrap_err();
    assert_eq!(error.code(), Some(Code::InvalidArgument));
    assert_eq!(error.fields()[0].field, "search_request.session_composition.party_size_composition");
    assert_eq!(error.as_server_error().unwrap().reason.as_deref(), Some("INVALID_REQUEST"));
    assert_eq!(good.unwrap().evaluated, 1);
}

#[tokio::test]
async fn stream_ignores_the_response_to_an_abandoned_request() {
    let (connection, _events, mut requests, responses) = open_scripted_stream().await;
    let abandoned = connection.send(Default::default()).await.unwrap();
    drop(abandoned);
    let server = async {
        let (first, second) = (receive_nonce(&mut requests).await, receive_nonce(&mut requests).await);
        responses.send(search_response(first, 1)).await.unwrap();
        responses.send(search_response(77, 7)).await.unwrap();
        responses.send(search_response(second, 2)).await.unwrap();
    };
    let (found, ()) = tokio::join!(connection.search(Default::default()), server);
    assert_eq!(found.unwrap().evaluated, 2);
}

#[tokio::test]
async fn stream_end_is_reported_to_every_caller() {
    let (connection, mut events, mut requests, responses) = open_scripted_stream().await;
    let server = async {
        receive_nonce(&mut requests).await;
        responses.send(reservation_event("ad")).await.unwrap();
        let details = ErrorDetails::with_error_info("DRAINING", "fireteam", [("grace_s".to_owned(), "10".to_owned())]);
        let status = Status::with_error_details(Code::Unavailable, "draining", details);
        responses.send(Err(status)).await.unwrap();
    };
    let (waiting, ()) = tokio::join!(connection.search(Default::default()), server);
    let assert_stream_ended = |error: Error| {
        let Error::StreamEnded(Some(end)) = &error else { panic!("{error}") };
        assert_eq!((end.code, end.reason.as_deref()), (Code::Unavailable, Some("DRAINING")), "{error}");
        assert_eq!(end.reason_metadata.get("grace_s").map(String::as_str), Some("10"));
    };
    assert_stream_ended(waiting.unwrap_err());
    assert_stream_ended(connection.search(Default::default()).await.unwrap_err());
    assert_eq!(
        events.next_reservation_event().await.unwrap().advertisement_id,
        "ad",
        "events before the end are not lost"
    );
    assert_stream_ended(events.next_reservation_event().await.unwrap_err());
}

#[tokio::test]
async fn stream_ends_when_the_event_buffer_overflows() {
    let (connection, mut events, _requests, responses) = open_scripted_stream().await;
    for _ in 0..257 {
        responses.send(reservation_event("ad")).await.unwrap();
    }
    let error = connection.search(Default::default()).await.unwrap_err();
    assert!(matches!(error, Error::EventBufferOverflow), "{error}");
    for _ in 0..256 {
        events.next_reservation_event().await.unwrap();
    }
    assert!(matches!(events.next_reservation_event().await, Err(Error::EventBufferOverflow)));
}

#[tokio::test]
async fn stream_stays_open_when_the_events_are_dropped() {
    let (connection, events, mut requests, responses) = open_scripted_stream().await;
    drop(events);
    for _ in 0..300 {
        responses.send(reservation_event("ad")).await.unwrap();
    }
    let server = async { responses.send(search_response(receive_nonce(&mut requests).await, 3)).await.unwrap() };
    let (found, ()) = tokio::join!(connection.search(Default::default()), server);
    assert_eq!(found.unwrap().evaluated, 3);
}

#[tokio::test]
async fn stream_ends_with_the_last_connection_handle() {
    let (connection, _events, mut requests, _responses) = open_scripted_stream().await;
    let clone = connection.clone();
    drop(connection);
    let pending = clone.send(Default::default()).await.unwrap();
    receive_nonce(&mut requests).await;
    drop((clone, pending));
    assert!(!matches!(requests.message().await, Ok(Some(_))), "no further request");
}
