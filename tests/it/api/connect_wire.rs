//! The Connect stream: requests in order, answers in any order, flow control, events, and end of stream.

use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Streaming};

use fireteam::api::connect::{BUFFERED_EVENTS_MAX, IN_FLIGHT_REQUESTS_MAX};
use fireteam::engine::HostEvent;

use crate::support::generated_client::matchmaking_connect_response::Message;
use crate::support::generated_client::{self, MatchmakingCoreRequestType as Type};
use crate::support::scripted_engine::{PENDING_UPDATE_TTL_MS, advertisement_id, reservation_event, update_answer};
use crate::support::scripted_server::{ScriptedServer, TEST_TIMEOUT, publish_request, search_request};

struct ConnectStream {
    requests: mpsc::Sender<generated_client::MatchmakingConnectRequest>,
    responses: Streaming<generated_client::MatchmakingConnectResponse>,
}

impl ConnectStream {
    async fn open(server: &ScriptedServer) -> Self {
        let (to, requests) = mpsc::channel(1_024);
        let from = server.matchmaking_client().await.connect(ReceiverStream::new(requests)).await.unwrap().into_inner();
        Self { requests: to, responses: from }
    }

    async fn send(&self, core: generated_client::MatchmakingCoreRequest) {
        self.requests.send(generated_client::MatchmakingConnectRequest { core: Some(core) }).await.unwrap();
    }

    async fn next_message(&mut self) -> Message {
        let message = tokio::time::timeout(TEST_TIMEOUT, self.responses.next()).await.expect("a message in time");
        message.unwrap().unwrap().message.unwrap()
    }

    async fn next_core_response(&mut self) -> generated_client::MatchmakingCoreResponse {
        match self.next_message().await {
            Message::Core(core) => core,
            other => panic!("unexpected event {other:?}"),
        }
    }

    /// Reads until the end of the stream and returns its status.
    async fn end_status(&mut self) -> tonic::Status {
        loop {
            match tokio::time::timeout(TEST_TIMEOUT, self.responses.next()).await.expect("the end in time") {
                Some(Ok(_)) => {}
                Some(Err(status)) => return status,
                None => return tonic::Status::ok(""),
            }
        }
    }
}

fn update_envelope(nonce: u64, time_to_live_ms: u64) -> generated_client::MatchmakingCoreRequest {
    let update = generated_client::MatchmakingUpdateAdvertisementRequest {
        time_to_live_ms: Some(time_to_live_ms),
        ..publish_request()
    };
    generated_client::MatchmakingCoreRequest {
        request_type: Some(Type::UpdateAdvertisement.into()),
        request_nonce: Some(nonce),
        update_advertisement_request: Some(update),
        ..Default::default()
    }
}

fn search_envelope(nonce: u64) -> generated_client::MatchmakingCoreRequest {
    generated_client::MatchmakingCoreRequest {
        request_type: Some(Type::Search.into()),
        request_nonce: Some(nonce),
        search_request: Some(search_request()),
        ..Default::default()
    }
}

/// Waits until `count` updates are pending in the engine.
async fn wait_for_pending_updates(server: &ScriptedServer, count: usize) {
    let arrived = async {
        while server.engine.pending_updates.lock().unwrap().len() < count {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, arrived).await.expect("the updates arrive in time");
}

/// S1-16: answers arrive when they are ready, each with its request's nonce. The engine receives the requests in the
/// order sent.
#[tokio::test]
async fn connect_answers_out_of_order_by_nonce() {
    let server = ScriptedServer::start().await;
    let mut stream = ConnectStream::open(&server).await;
    for nonce in 1..=3 {
        stream.send(update_envelope(nonce, PENDING_UPDATE_TTL_MS)).await;
    }
    stream.send(search_envelope(4)).await;
    assert_eq!(stream.next_core_response().await.request_nonce, Some(4), "a search does not wait for pending updates");
    let mut waiting = std::mem::take(&mut *server.engine.pending_updates.lock().unwrap());
    assert_eq!(waiting.iter().map(|(nonce, _)| *nonce).collect::<Vec<_>>(), [1, 2, 3]);
    for nonce_to_answer in [3, 1, 2] {
        let at = waiting.iter().position(|(nonce, _)| *nonce == nonce_to_answer).unwrap();
        waiting.remove(at).1.send(Ok(update_answer(advertisement_id(nonce_to_answer as u8), true))).unwrap();
        assert_eq!(stream.next_core_response().await.request_nonce, Some(nonce_to_answer));
    }
}

#[tokio::test]
async fn connect_stream_continues_after_a_request_error() {
    let server = ScriptedServer::start().await;
    let mut stream = ConnectStream::open(&server).await;
    stream.send(generated_client::MatchmakingCoreRequest { request_nonce: None, ..search_envelope(1) }).await;
    let error = stream.next_core_response().await.error.unwrap();
    assert_eq!((error.code, &*error.field), (Code::InvalidArgument.into(), "request_nonce"));
    let mut not_owned = update_envelope(2, 1);
    not_owned.update_advertisement_request.as_mut().unwrap().advertisement_id = "ab".repeat(16);
    stream.send(not_owned).await;
    let error = stream.next_core_response().await.error.unwrap();
    assert_eq!(error.code, i32::from(Code::PermissionDenied));
    stream.send(search_envelope(3)).await;
    assert!(stream.next_core_response().await.search_response.is_some());
}

/// At most 256 requests are in flight: the server reads the next one after an answer.
#[tokio::test]
async fn connect_stops_reading_at_the_in_flight_limit() {
    let server = ScriptedServer::start().await;
    let mut stream = ConnectStream::open(&server).await;
    for nonce in 0..=IN_FLIGHT_REQUESTS_MAX as u64 {
        stream.send(update_envelope(nonce, PENDING_UPDATE_TTL_MS)).await;
    }
    wait_for_pending_updates(&server, IN_FLIGHT_REQUESTS_MAX).await;
    // A request on another connection gives the surplus request time to arrive, if it were read.
    server.matchmaking_client().await.search(search_request()).await.unwrap();
    assert_eq!(server.engine.pending_updates.lock().unwrap().len(), IN_FLIGHT_REQUESTS_MAX);
    let (nonce, first) = server.engine.pending_updates.lock().unwrap().remove(0);
    first.send(Ok(update_answer(advertisement_id(1), true))).unwrap();
    assert_eq!(stream.next_core_response().await.request_nonce, Some(nonce));
    wait_for_pending_updates(&server, IN_FLIGHT_REQUESTS_MAX).await;
}

/// The stream that updates an advertisement receives its reservation events, each once.
#[tokio::test]
async fn reservation_events_are_pushed_to_the_host_once() {
    let server = ScriptedServer::start().await;
    let mut stream = ConnectStream::open(&server).await;
    for nonce in 1..=2 {
        let mut heartbeat = update_envelope(nonce, 1);
        let update = heartbeat.update_advertisement_request.as_mut().unwrap();
        (update.advertisement_id, update.advertisement_token) = ("aa".repeat(16), vec![1]);
        stream.send(heartbeat).await;
        assert!(stream.next_core_response().await.update_advertisement_response.is_some());
    }
    let (advertisement_id_of_event, listener) = {
        let listeners = server.engine.listeners.lock().unwrap();
        assert_eq!(listeners.len(), 1, "a second update does not subscribe again");
        listeners[0].clone()
    };
    assert_eq!(advertisement_id_of_event, advertisement_id(0xAA));
    listener.event_sender.send(HostEvent::Reservation(reservation_event(advertisement_id_of_event))).await.unwrap();
    match stream.next_message().await {
        Message::Reservation(event) => {
            assert_eq!(event.advertisement_id, "aa".repeat(16));
            assert_eq!(event.state(), generated_client::ReservationState::Held);
            assert_eq!(event.reservation.unwrap().seats, 2);
        }
        other => panic!("unexpected message {other:?}"),
    }
}

/// Reservations made between the engine's answer and the subscription are in the update response: none is lost.
#[tokio::test]
async fn reservations_made_before_subscribe_are_in_the_update_response() {
    let server = ScriptedServer::start().await;
    server.engine.reservations_at_subscribe.lock().unwrap().push(reservation_event(advertisement_id(0xAA)).reservation);
    let mut stream = ConnectStream::open(&server).await;
    stream.send(update_envelope(1, 1)).await;
    let answer = stream.next_core_response().await.update_advertisement_response.unwrap();
    assert_eq!(answer.reservations.iter().map(|reservation| reservation.seats).collect::<Vec<_>>(), [2]);
}

#[tokio::test]
async fn event_buffer_overflow_ends_the_stream() {
    let server = ScriptedServer::start().await;
    let mut stream = ConnectStream::open(&server).await;
    stream.send(update_envelope(1, 1)).await;
    stream.next_core_response().await;
    let listener = server.engine.listeners.lock().unwrap()[0].1.clone();
    assert_eq!(listener.event_sender.max_capacity(), BUFFERED_EVENTS_MAX);
    listener.overflow.cancel();
    let status = stream.end_status().await;
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("reconnect"), "{status:?}");
}

#[tokio::test]
async fn half_closed_stream_receives_its_pending_answers() {
    let server = ScriptedServer::start().await;
    let ConnectStream { requests: to, responses: from } = ConnectStream::open(&server).await;
    let mut stream = ConnectStream { requests: to.clone(), responses: from };
    stream.send(update_envelope(1, PENDING_UPDATE_TTL_MS)).await;
    wait_for_pending_updates(&server, 1).await;
    drop(to);
    stream.requests = mpsc::channel(1).0;
    let (_, waiting) = server.engine.pending_updates.lock().unwrap().remove(0);
    waiting.send(Ok(update_answer(advertisement_id(1), true))).unwrap();
    assert!(stream.next_core_response().await.update_advertisement_response.is_some());
    assert_eq!(stream.end_status().await.code(), Code::Ok);
}

/// G2: a deadline ends a stream with DEADLINE_EXCEEDED.
#[tokio::test]
async fn connect_stream_ends_at_its_deadline() {
    let server = ScriptedServer::start().await;
    let (_to, requests) = mpsc::channel::<generated_client::MatchmakingConnectRequest>(1);
    let mut request = tonic::Request::new(ReceiverStream::new(requests));
    request.metadata_mut().insert("grpc-timeout", "50m".parse().unwrap());
    let from = server.matchmaking_client().await.connect(request).await.unwrap().into_inner();
    let mut stream = ConnectStream { requests: mpsc::channel(1).0, responses: from };
    let status = stream.end_status().await;
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
}

/// R20: a panic ends its stream with INTERNAL; other streams continue.
#[tokio::test]
async fn panic_ends_one_stream_with_internal() {
    let server = ScriptedServer::start().await;
    let mut stream = ConnectStream::open(&server).await;
    let mut request = search_envelope(1);
    let composition = request.search_request.as_mut().unwrap().session_composition.as_mut().unwrap();
    composition.silo_id = Some(crate::support::scripted_engine::PANIC_SILO);
    stream.send(request).await;
    assert_eq!(stream.end_status().await.code(), Code::Internal);
    let mut other = ConnectStream::open(&server).await;
    other.send(search_envelope(2)).await;
    assert!(other.next_core_response().await.search_response.is_some());
}
