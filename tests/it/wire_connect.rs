//! The long-lived connection: order in, any order out, back-pressure, news, and how it ends.

use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Streaming};

use fireteam::api::connect::{BUFFERED_EVENTS_MAX, IN_FLIGHT_REQUESTS_MAX};

use crate::plain::matchmaking_connect_response::Message as Said;
use crate::plain::{self, MatchmakingCoreRequestType as Type};
use crate::scripted::{WAITS_MS, event, id, updated};
use crate::stage::{PATIENCE, Stage, publish, search};

struct Talk {
    to: mpsc::Sender<plain::MatchmakingConnectRequest>,
    from: Streaming<plain::MatchmakingConnectResponse>,
}

impl Talk {
    async fn open(house: &Stage) -> Self {
        let (to, requests) = mpsc::channel(1_024);
        let from = house.client().await.connect(ReceiverStream::new(requests)).await.unwrap().into_inner();
        Self { to, from }
    }

    async fn say(&self, core: plain::MatchmakingCoreRequest) {
        self.to.send(plain::MatchmakingConnectRequest { core: Some(core) }).await.unwrap();
    }

    async fn hear(&mut self) -> Said {
        let said = tokio::time::timeout(PATIENCE, self.from.next()).await.expect("an answer");
        said.unwrap().unwrap().message.unwrap()
    }

    async fn hear_core(&mut self) -> plain::MatchmakingCoreResponse {
        match self.hear().await {
            Said::Core(core) => core,
            Said::Reservation(event) => panic!("nobody asked for {event:?}"),
        }
    }

    /// The status that the stream ends with.
    async fn end(&mut self) -> tonic::Status {
        loop {
            match tokio::time::timeout(PATIENCE, self.from.next()).await.expect("an end") {
                Some(Ok(_)) => {}
                Some(Err(status)) => return status,
                None => return tonic::Status::ok(""),
            }
        }
    }
}

fn updating(nonce: u64, time_to_live_ms: u32) -> plain::MatchmakingCoreRequest {
    let update = plain::MatchmakingUpdateAdvertisementRequest { time_to_live_ms: Some(time_to_live_ms), ..publish() };
    plain::MatchmakingCoreRequest {
        request_type: Some(Type::UpdateAdvertisement.into()),
        request_nonce: Some(nonce),
        update_advertisement_request: Some(update),
        ..Default::default()
    }
}

fn searching(nonce: u64) -> plain::MatchmakingCoreRequest {
    plain::MatchmakingCoreRequest {
        request_type: Some(Type::Search.into()),
        request_nonce: Some(nonce),
        search_request: Some(search()),
        ..Default::default()
    }
}

/// Waits for `count` updates to be with the matchmaker.
async fn submitted(house: &Stage, count: usize) {
    let arrived = async {
        while house.matchmaker.waiting.lock().unwrap().len() < count {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, arrived).await.expect("the updates arrive");
}

/// S1-16: answers come when they are ready, each with its request's nonce; the engine is asked in the order sent.
#[tokio::test]
async fn answers_come_in_any_order_by_nonce() {
    let house = Stage::open().await;
    let mut talk = Talk::open(&house).await;
    for nonce in 1..=3 {
        talk.say(updating(nonce, WAITS_MS)).await;
    }
    talk.say(searching(4)).await;
    assert_eq!(talk.hear_core().await.request_nonce, Some(4), "a search does not wait for the store");
    let mut waiting = std::mem::take(&mut *house.matchmaker.waiting.lock().unwrap());
    assert_eq!(waiting.iter().map(|(nonce, _)| *nonce).collect::<Vec<_>>(), [1, 2, 3]);
    for wanted in [3, 1, 2] {
        let at = waiting.iter().position(|(nonce, _)| *nonce == wanted).unwrap();
        waiting.remove(at).1.send(Ok(updated(id(wanted as u8), true))).unwrap();
        assert_eq!(talk.hear_core().await.request_nonce, Some(wanted));
    }
}

#[tokio::test]
async fn a_refusal_does_not_end_the_stream() {
    let house = Stage::open().await;
    let mut talk = Talk::open(&house).await;
    talk.say(plain::MatchmakingCoreRequest { request_nonce: None, ..searching(1) }).await;
    let refusal = talk.hear_core().await.error.unwrap();
    assert_eq!((refusal.code, &*refusal.field), (Code::InvalidArgument.into(), "request_nonce"));
    let mut stolen = updating(2, 1);
    stolen.update_advertisement_request.as_mut().unwrap().advertisement_id = "ab".repeat(16);
    talk.say(stolen).await;
    let refusal = talk.hear_core().await.error.unwrap();
    assert_eq!(refusal.code, i32::from(Code::PermissionDenied));
    talk.say(searching(3)).await;
    assert!(talk.hear_core().await.search_response.is_some());
}

/// At most 256 unanswered: the next is read when one of them is answered.
#[tokio::test]
async fn a_connection_with_too_much_in_flight_is_not_read_from() {
    let house = Stage::open().await;
    let mut talk = Talk::open(&house).await;
    for nonce in 0..=IN_FLIGHT_REQUESTS_MAX as u64 {
        talk.say(updating(nonce, WAITS_MS)).await;
    }
    submitted(&house, IN_FLIGHT_REQUESTS_MAX).await;
    // Time for the one too many to come, if it were read: as long as another connection takes to be served.
    house.client().await.search(search()).await.unwrap();
    assert_eq!(house.matchmaker.waiting.lock().unwrap().len(), IN_FLIGHT_REQUESTS_MAX);
    let (nonce, first) = house.matchmaker.waiting.lock().unwrap().remove(0);
    first.send(Ok(updated(id(1), true))).unwrap();
    assert_eq!(talk.hear_core().await.request_nonce, Some(nonce));
    submitted(&house, IN_FLIGHT_REQUESTS_MAX).await;
}

/// Whoever updates an advertisement hears of its seats on the same connection, once for each event.
#[tokio::test]
async fn news_of_seats_is_pushed_to_the_host() {
    let house = Stage::open().await;
    let mut talk = Talk::open(&house).await;
    for nonce in 1..=2 {
        let mut heartbeat = updating(nonce, 1);
        let update = heartbeat.update_advertisement_request.as_mut().unwrap();
        (update.advertisement_id, update.advertisement_token) = ("aa".repeat(16), vec![1]);
        talk.say(heartbeat).await;
        assert!(talk.hear_core().await.update_advertisement_response.is_some());
    }
    let (heard, listener) = {
        let listeners = house.matchmaker.listeners.lock().unwrap();
        assert_eq!(listeners.len(), 1, "a second update does not subscribe again");
        listeners[0].clone()
    };
    assert_eq!(heard, id(0xAA));
    listener.event_sender.send(event(heard)).await.unwrap();
    match talk.hear().await {
        Said::Reservation(event) => {
            assert_eq!(event.advertisement_id, "aa".repeat(16));
            assert_eq!(event.state(), plain::ReservationState::Held);
            assert_eq!(event.reservation.unwrap().seats, 2);
        }
        Said::Core(core) => panic!("unasked answer {core:?}"),
    }
}

/// Seats taken between an update's answer and the moment when the connection listens are in that answer: nothing is
/// lost between the two.
#[tokio::test]
async fn what_is_taken_before_anybody_listens_is_in_the_answer() {
    let house = Stage::open().await;
    house.matchmaker.taken_meanwhile.lock().unwrap().push(event(id(0xAA)).reservation);
    let mut talk = Talk::open(&house).await;
    talk.say(updating(1, 1)).await;
    let answer = talk.hear_core().await.update_advertisement_response.unwrap();
    assert_eq!(answer.reservations.iter().map(|it| it.seats).collect::<Vec<_>>(), [2]);
}

#[tokio::test]
async fn a_host_that_falls_behind_is_told_to_reconnect() {
    let house = Stage::open().await;
    let mut talk = Talk::open(&house).await;
    talk.say(updating(1, 1)).await;
    talk.hear_core().await;
    let listener = house.matchmaker.listeners.lock().unwrap()[0].1.clone();
    assert_eq!(listener.event_sender.max_capacity(), BUFFERED_EVENTS_MAX);
    listener.overflow.cancel();
    let status = talk.end().await;
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("reconnect"), "{status:?}");
}

#[tokio::test]
async fn a_client_that_has_said_all_is_answered_to_the_end() {
    let house = Stage::open().await;
    let Talk { to, from } = Talk::open(&house).await;
    let mut talk = Talk { to: to.clone(), from };
    talk.say(updating(1, WAITS_MS)).await;
    submitted(&house, 1).await;
    drop(to);
    talk.to = mpsc::channel(1).0;
    let (_, waiting) = house.matchmaker.waiting.lock().unwrap().remove(0);
    waiting.send(Ok(updated(id(1), true))).unwrap();
    assert!(talk.hear_core().await.update_advertisement_response.is_some());
    assert_eq!(talk.end().await.code(), Code::Ok);
}

/// G2: a deadline ends a stream too, with the status that says so.
#[tokio::test]
async fn a_connection_ends_at_its_deadline() {
    let house = Stage::open().await;
    let (_to, requests) = mpsc::channel::<plain::MatchmakingConnectRequest>(1);
    let mut request = tonic::Request::new(ReceiverStream::new(requests));
    request.metadata_mut().insert("grpc-timeout", "50m".parse().unwrap());
    let from = house.client().await.connect(request).await.unwrap().into_inner();
    let mut talk = Talk { to: mpsc::channel(1).0, from };
    let status = talk.end().await;
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
}

/// R20: a panic in the middle of a conversation is that conversation's end, with a status; others go on.
#[tokio::test]
async fn a_panic_ends_one_connection_with_a_status() {
    let house = Stage::open().await;
    let mut talk = Talk::open(&house).await;
    let mut request = searching(1);
    let composition = request.search_request.as_mut().unwrap().session_composition.as_mut().unwrap();
    composition.silo_id = Some(crate::scripted::PANICS_SILO);
    talk.say(request).await;
    assert_eq!(talk.end().await.code(), Code::Internal);
    let mut other = Talk::open(&house).await;
    other.say(searching(2)).await;
    assert!(other.hear_core().await.search_response.is_some());
}
