//! The long-lived connection: order in, any order out, back-pressure, news, and how it ends.

use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Streaming};

use fireteam::api::connect::{BUFFERED_EVENTS_MAX, IN_FLIGHT_REQUESTS_MAX};

use crate::support::generated_client::matchmaking_connect_response::Message as Said;
use crate::support::generated_client::{self, MatchmakingCoreRequestType as Type};
use crate::support::scripted_engine::{PENDING_UPDATE_TTL_MS, reservation_event, advertisement_id, update_answer};
use crate::support::scripted_server::{TEST_TIMEOUT, ScriptedServer, publish_request, search_request};

struct ConnectStream {
    requests: mpsc::Sender<generated_client::MatchmakingConnectRequest>,
    responses: Streaming<generated_client::MatchmakingConnectResponse>,
}

impl ConnectStream {
    async fn open(house: &ScriptedServer) -> Self {
        let (to, requests) = mpsc::channel(1_024);
        let from = house.matchmaking_client().await.connect(ReceiverStream::new(requests)).await.unwrap().into_inner();
        Self { requests: to, responses: from }
    }

    async fn send(&self, core: generated_client::MatchmakingCoreRequest) {
        self.requests.send(generated_client::MatchmakingConnectRequest { core: Some(core) }).await.unwrap();
    }

    async fn next_message(&mut self) -> Said {
        let said = tokio::time::timeout(TEST_TIMEOUT, self.responses.next()).await.expect("an answer");
        said.unwrap().unwrap().message.unwrap()
    }

    async fn next_core_response(&mut self) -> generated_client::MatchmakingCoreResponse {
        match self.next_message().await {
            Said::Core(core) => core,
            Said::Reservation(event) => panic!("nobody asked for {event:?}"),
        }
    }

    /// The status that the stream ends with.
    async fn end_status(&mut self) -> tonic::Status {
        loop {
            match tokio::time::timeout(TEST_TIMEOUT, self.responses.next()).await.expect("an end") {
                Some(Ok(_)) => {}
                Some(Err(status)) => return status,
                None => return tonic::Status::ok(""),
            }
        }
    }
}

fn update_envelope(nonce: u64, time_to_live_ms: u64) -> generated_client::MatchmakingCoreRequest {
    let update = generated_client::MatchmakingUpdateAdvertisementRequest { time_to_live_ms: Some(time_to_live_ms), ..publish_request() };
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

/// Waits for `count` updates to be with the matchmaker.
async fn wait_for_pending_updates(house: &ScriptedServer, count: usize) {
    let arrived = async {
        while house.engine.pending_updates.lock().unwrap().len() < count {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, arrived).await.expect("the updates arrive");
}

/// S1-16: answers come when they are ready, each with its request's nonce; the engine is asked in the order sent.
#[tokio::test]
async fn connect_answers_out_of_order_by_nonce() {
    let house = ScriptedServer::start().await;
    let mut talk = ConnectStream::open(&house).await;
    for nonce in 1..=3 {
        talk.send(update_envelope(nonce, PENDING_UPDATE_TTL_MS)).await;
    }
    talk.send(search_envelope(4)).await;
    assert_eq!(talk.next_core_response().await.request_nonce, Some(4), "a search does not wait for the store");
    let mut waiting = std::mem::take(&mut *house.engine.pending_updates.lock().unwrap());
    assert_eq!(waiting.iter().map(|(nonce, _)| *nonce).collect::<Vec<_>>(), [1, 2, 3]);
    for wanted in [3, 1, 2] {
        let at = waiting.iter().position(|(nonce, _)| *nonce == wanted).unwrap();
        waiting.remove(at).1.send(Ok(update_answer(advertisement_id(wanted as u8), true))).unwrap();
        assert_eq!(talk.next_core_response().await.request_nonce, Some(wanted));
    }
}

#[tokio::test]
async fn connect_stream_continues_after_a_request_error() {
    let house = ScriptedServer::start().await;
    let mut talk = ConnectStream::open(&house).await;
    talk.send(generated_client::MatchmakingCoreRequest { request_nonce: None, ..search_envelope(1) }).await;
    let refusal = talk.next_core_response().await.error.unwrap();
    assert_eq!((refusal.code, &*refusal.field), (Code::InvalidArgument.into(), "request_nonce"));
    let mut stolen = update_envelope(2, 1);
    stolen.update_advertisement_request.as_mut().unwrap().advertisement_id = "ab".repeat(16);
    talk.send(stolen).await;
    let refusal = talk.next_core_response().await.error.unwrap();
    assert_eq!(refusal.code, i32::from(Code::PermissionDenied));
    talk.send(search_envelope(3)).await;
    assert!(talk.next_core_response().await.search_response.is_some());
}

/// At most 256 unanswered: the next is read when one of them is answered.
#[tokio::test]
async fn connect_stops_reading_at_the_in_flight_limit() {
    let house = ScriptedServer::start().await;
    let mut talk = ConnectStream::open(&house).await;
    for nonce in 0..=IN_FLIGHT_REQUESTS_MAX as u64 {
        talk.send(update_envelope(nonce, PENDING_UPDATE_TTL_MS)).await;
    }
    wait_for_pending_updates(&house, IN_FLIGHT_REQUESTS_MAX).await;
    // Time for the one too many to come, if it were read: as long as another connection takes to be served.
    house.matchmaking_client().await.search(search_request()).await.unwrap();
    assert_eq!(house.engine.pending_updates.lock().unwrap().len(), IN_FLIGHT_REQUESTS_MAX);
    let (nonce, first) = house.engine.pending_updates.lock().unwrap().remove(0);
    first.send(Ok(update_answer(advertisement_id(1), true))).unwrap();
    assert_eq!(talk.next_core_response().await.request_nonce, Some(nonce));
    wait_for_pending_updates(&house, IN_FLIGHT_REQUESTS_MAX).await;
}

/// Whoever updates an advertisement hears of its seats on the same connection, once for each event.
#[tokio::test]
async fn reservation_events_are_pushed_to_the_host_once() {
    let house = ScriptedServer::start().await;
    let mut talk = ConnectStream::open(&house).await;
    for nonce in 1..=2 {
        let mut heartbeat = update_envelope(nonce, 1);
        let update = heartbeat.update_advertisement_request.as_mut().unwrap();
        (update.advertisement_id, update.advertisement_token) = ("aa".repeat(16), vec![1]);
        talk.send(heartbeat).await;
        assert!(talk.next_core_response().await.update_advertisement_response.is_some());
    }
    let (heard, listener) = {
        let listeners = house.engine.listeners.lock().unwrap();
        assert_eq!(listeners.len(), 1, "a second update does not subscribe again");
        listeners[0].clone()
    };
    assert_eq!(heard, advertisement_id(0xAA));
    listener.event_sender.send(reservation_event(heard)).await.unwrap();
    match talk.next_message().await {
        Said::Reservation(event) => {
            assert_eq!(event.advertisement_id, "aa".repeat(16));
            assert_eq!(event.state(), generated_client::ReservationState::Held);
            assert_eq!(event.reservation.unwrap().seats, 2);
        }
        Said::Core(core) => panic!("unasked answer {core:?}"),
    }
}

/// Seats taken between an update's answer and the moment when the connection listens are in that answer: nothing is
/// lost between the two.
#[tokio::test]
async fn reservations_made_before_subscribe_are_in_the_update_response() {
    let house = ScriptedServer::start().await;
    house.engine.reservations_at_subscribe.lock().unwrap().push(reservation_event(advertisement_id(0xAA)).reservation);
    let mut talk = ConnectStream::open(&house).await;
    talk.send(update_envelope(1, 1)).await;
    let answer = talk.next_core_response().await.update_advertisement_response.unwrap();
    assert_eq!(answer.reservations.iter().map(|it| it.seats).collect::<Vec<_>>(), [2]);
}

#[tokio::test]
async fn event_buffer_overflow_ends_the_stream() {
    let house = ScriptedServer::start().await;
    let mut talk = ConnectStream::open(&house).await;
    talk.send(update_envelope(1, 1)).await;
    talk.next_core_response().await;
    let listener = house.engine.listeners.lock().unwrap()[0].1.clone();
    assert_eq!(listener.event_sender.max_capacity(), BUFFERED_EVENTS_MAX);
    listener.overflow.cancel();
    let status = talk.end_status().await;
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("reconnect"), "{status:?}");
}

#[tokio::test]
async fn half_closed_stream_receives_its_pending_answers() {
    let house = ScriptedServer::start().await;
    let ConnectStream { requests: to, responses: from } = ConnectStream::open(&house).await;
    let mut talk = ConnectStream { requests: to.clone(), responses: from };
    talk.send(update_envelope(1, PENDING_UPDATE_TTL_MS)).await;
    wait_for_pending_updates(&house, 1).await;
    drop(to);
    talk.requests = mpsc::channel(1).0;
    let (_, waiting) = house.engine.pending_updates.lock().unwrap().remove(0);
    waiting.send(Ok(update_answer(advertisement_id(1), true))).unwrap();
    assert!(talk.next_core_response().await.update_advertisement_response.is_some());
    assert_eq!(talk.end_status().await.code(), Code::Ok);
}

/// G2: a deadline ends a stream too, with the status that says so.
#[tokio::test]
async fn connect_stream_ends_at_its_deadline() {
    let house = ScriptedServer::start().await;
    let (_to, requests) = mpsc::channel::<generated_client::MatchmakingConnectRequest>(1);
    let mut request = tonic::Request::new(ReceiverStream::new(requests));
    request.metadata_mut().insert("grpc-timeout", "50m".parse().unwrap());
    let from = house.matchmaking_client().await.connect(request).await.unwrap().into_inner();
    let mut talk = ConnectStream { requests: mpsc::channel(1).0, responses: from };
    let status = talk.end_status().await;
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
}

/// R20: a panic in the middle of a conversation is that conversation's end, with a status; others go on.
#[tokio::test]
async fn panic_ends_one_stream_with_internal() {
    let house = ScriptedServer::start().await;
    let mut talk = ConnectStream::open(&house).await;
    let mut request = search_envelope(1);
    let composition = request.search_request.as_mut().unwrap().session_composition.as_mut().unwrap();
    composition.silo_id = Some(crate::support::scripted_engine::PANIC_SILO);
    talk.send(request).await;
    assert_eq!(talk.end_status().await.code(), Code::Internal);
    let mut other = ConnectStream::open(&house).await;
    other.send(search_envelope(2)).await;
    assert!(other.next_core_response().await.search_response.is_some());
}
