//! Queue loop on a runtime, against a scripted queue over TCP.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::{Notify, mpsc};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Code, Request, Response, Status};
use tonic_types::{ErrorDetails, StatusExt};

use crate::client::Client;
use crate::pb;
use crate::pb::latency_service_server::LatencyServiceServer;
use crate::pb::queue_service_server::{QueueService, QueueServiceServer};
use crate::queueing::{QueueEnd, QueueOutcome};
use crate::queueing_run::QueueGame;

use super::scripted_beacon::{LATENCY_TOKEN, ScriptedBeacon};

/// Longest time of a test.
const TEST_TIME: Duration = Duration::from_secs(30);

type WatchSender = mpsc::Sender<Result<pb::QueueWatchResponse, Status>>;

/// Queue of one ticket. Its first watch breaks; the second one tells the match, unless no match is found.
#[derive(Debug, Default)]
struct ScriptedQueue {
    finds_no_match: bool,
    heartbeats: Mutex<Vec<pb::QueueHeartbeatRequest>>,
    has_heartbeat: Notify,
    enters: Mutex<Vec<pb::QueueEnterRequest>>,
    responds: Mutex<Vec<pb::QueueRespondRequest>>,
    leaves: Mutex<Vec<pb::QueueLeaveRequest>>,
    watches: Mutex<Vec<(pb::QueueWatchRequest, WatchSender)>>,
}

fn status(state: pb::TicketState) -> pb::TicketStatus {
    let found = pb::MatchStatus { match_id: "match".into(), ..Default::default() };
    let end_reason =
        if state == pb::TicketState::Ended { pb::TicketEndReason::Played } else { pb::TicketEndReason::Unspecified };
    pb::TicketStatus {
        ticket_id: "ticket".into(),
        state: state.into(),
        found_match: (state != pb::TicketState::Waiting).then_some(found),
        end_reason: end_reason.into(),
        ..Default::default()
    }
}

fn update(state: pb::TicketState) -> Result<pb::QueueWatchResponse, Status> {
    Ok(pb::QueueWatchResponse { status: Some(status(state)) })
}

/// Server's side of the queue.
struct QueueServer(Arc<ScriptedQueue>);

#[tonic::async_trait]
impl QueueService for QueueServer {
    async fn enter(&self, request: Request<pb::QueueEnterRequest>) -> Result<Response<pb::QueueEnterResponse>, Status> {
        self.0.enters.lock().unwrap().push(request.into_inner());
        Ok(Response::new(pb::QueueEnterResponse {
            status: Some(status(pb::TicketState::Waiting)),
            ticket_token: b"mine".to_vec(),
            expires_in_ms: 3_600_000,
            ..Default::default()
        }))
    }

    async fn leave(&self, request: Request<pb::QueueLeaveRequest>) -> Result<Response<pb::QueueLeaveResponse>, Status> {
        self.0.leaves.lock().unwrap().push(request.into_inner());
        Ok(Response::new(Default::default()))
    }

    async fn mine(&self, _: Request<pb::QueueMineRequest>) -> Result<Response<pb::QueueMineResponse>, Status> {
        Ok(Response::new(Default::default()))
    }

    type WatchStream = ReceiverStream<Result<pb::QueueWatchResponse, Status>>;

    async fn watch(&self, request: Request<pb::QueueWatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let (sender, statuses) = mpsc::channel(16);
        let mut watches = self.0.watches.lock().unwrap();
        let first = match (self.0.finds_no_match, watches.is_empty()) {
            (true, _) => update(pb::TicketState::Waiting),
            (false, true) => Err(Status::unavailable("draining")),
            (false, false) => update(pb::TicketState::Proposed),
        };
        sender.try_send(first).map_err(|_| Status::internal("the stream is full"))?;
        watches.push((request.into_inner(), sender));
        Ok(Response::new(ReceiverStream::new(statuses)))
    }

    async fn heartbeat(
        &self,
        request: Request<pb::QueueHeartbeatRequest>,
    ) -> Result<Response<pb::QueueHeartbeatResponse>, Status> {
        self.0.heartbeats.lock().unwrap().push(request.into_inner());
        self.0.has_heartbeat.notify_one();
        let statuses = vec![status(pb::TicketState::Waiting)];
        Ok(Response::new(pb::QueueHeartbeatResponse { statuses, expires_in_ms: 3_600_000 }))
    }

    async fn respond(
        &self,
        request: Request<pb::QueueRespondRequest>,
    ) -> Result<Response<pb::QueueRespondResponse>, Status> {
        self.0.responds.lock().unwrap().push(request.into_inner());
        Ok(Response::new(pb::QueueRespondResponse { status: Some(status(pb::TicketState::Matched)) }))
    }

    async fn end_match(
        &self,
        _: Request<pb::QueueEndMatchRequest>,
    ) -> Result<Response<pb::QueueEndMatchResponse>, Status> {
        Ok(Response::new(Default::default()))
    }

    async fn host_heartbeat(
        &self,
        _: Request<pb::QueueHostHeartbeatRequest>,
    ) -> Result<Response<pb::QueueHostHeartbeatResponse>, Status> {
        Ok(Response::new(Default::default()))
    }
}

async fn start_queue(queue: ScriptedQueue, beacon: Arc<ScriptedBeacon>) -> (Arc<ScriptedQueue>, Client) {
    let queue = Arc::new(queue);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}", listener.local_addr().unwrap());
    let server = tonic::transport::Server::builder()
        .add_service(QueueServiceServer::new(QueueServer(queue.clone())))
        .add_service(LatencyServiceServer::from_arc(beacon));
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    (queue, Client::connect(uri).await.unwrap())
}

/// Players who accept and connect. Once connected, the server says that the match was played.
struct Players {
    queue: Arc<ScriptedQueue>,
    news: Mutex<Vec<QueueOutcome>>,
    has_news: Notify,
}

impl Players {
    fn new(queue: &Arc<ScriptedQueue>) -> Self {
        Self { queue: Arc::clone(queue), news: Mutex::default(), has_news: Notify::new() }
    }
}

impl QueueGame for Players {
    async fn answer_ready_check(&self, found: pb::MatchStatus) -> bool {
        found.match_id == "match"
    }

    async fn connect(&self, _: pb::MatchStatus) -> bool {
        let sender = self.queue.watches.lock().unwrap().last().map(|(_, sender)| sender.clone()).unwrap();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            sender.send(update(pb::TicketState::Ended)).await
        });
        true
    }

    fn notify(&self, outcome: &QueueOutcome) {
        self.news.lock().unwrap().push(outcome.clone());
        self.has_news.notify_one();
    }
}

/// The whole loop over TCP: beacons, enter, a watch that breaks, another one, the ready check, the match, and its end.
#[tokio::test]
async fn queueing_run_plays_a_match_through_an_outage() {
    let beacon = ScriptedBeacon::start(false).await;
    let (queue, client) = start_queue(ScriptedQueue::default(), beacon.clone()).await;
    let game = Players::new(&queue);
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let request = pb::QueueEnterRequest { matchmaking_set_id: Some(7), ..Default::default() };
    let mut run = client.queueing_run(request).with_beacon_measurement(socket);
    let mut saved = Vec::new();
    let end = tokio::time::timeout(TEST_TIME, run.run(&game, |bytes| saved.push(bytes.to_vec()))).await.unwrap();
    assert_eq!(end, QueueEnd::Ticket(pb::TicketEndReason::Played));
    assert_eq!((queue.enters.lock().unwrap().len(), queue.watches.lock().unwrap().len()), (1, 2));
    let session = queue.enters.lock().unwrap()[0].session_composition.clone();
    assert_eq!(session.unwrap().latency_token, LATENCY_TOKEN);
    let respond = queue.responds.lock().unwrap()[0].clone();
    assert_eq!((respond.accept, respond.ticket_token.as_slice()), (true, b"mine".as_slice()));
    assert_eq!(game.news.lock().unwrap().last(), Some(&QueueOutcome::Ended(end)));

    // The first saved bytes are those of the waiting ticket: another process goes on with them, without another enter.
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut restored = client.restored_queueing_run(&saved[0]).unwrap().with_beacon_measurement(socket);
    let handle = restored.handle();
    handle.cancel().await;
    let end = tokio::time::timeout(TEST_TIME, restored.run(&game, |_| ())).await.unwrap();
    assert_eq!((end, queue.enters.lock().unwrap().len()), (QueueEnd::Cancelled, 1));
    assert_eq!(queue.leaves.lock().unwrap()[0].ticket_token, b"mine");
    assert_eq!(beacon.reports.lock().unwrap().len(), 1, "neither in the match nor after the player cancelled");
}

/// Lets the time until beacons are measured again pass at once, for the timers of this runtime. It is less than the life of a token.
async fn pass_time_until_renewal() {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(511)).await;
    tokio::time::resume();
}

/// A ticket that waits is kept fresh: beacons are measured again, and the new token is sent with a heartbeat.
#[tokio::test]
async fn queueing_run_renews_the_round_trips_of_a_waiting_ticket() {
    let beacon = ScriptedBeacon::start(false).await;
    let script = ScriptedQueue { finds_no_match: true, ..Default::default() };
    let (queue, client) = start_queue(script, beacon.clone()).await;
    let game = Players::new(&queue);
    let request = pb::QueueEnterRequest { matchmaking_set_id: Some(7), ..Default::default() };
    let mut run = client.queueing_run(request).with_beacon_measurement(UdpSocket::bind("127.0.0.1:0").await.unwrap());
    let handle = run.handle();
    let watcher = async {
        // Of Enter, and of the watch: no call is underway.
        while game.news.lock().unwrap().len() < 2 {
            game.has_news.notified().await;
        }
        pass_time_until_renewal().await;
        queue.has_heartbeat.notified().await;
        handle.cancel().await;
    };
    let both = async { tokio::join!(run.run(&game, |_| ()), watcher) };
    let (end, ()) = tokio::time::timeout(TEST_TIME + Duration::from_secs(511), both).await.unwrap();
    assert_eq!(end, QueueEnd::Cancelled);
    let heartbeats = queue.heartbeats.lock().unwrap();
    let tokens: Vec<&[u8]> = heartbeats.iter().map(|heartbeat| &*heartbeat.latency_token).collect();
    assert_eq!(
        (tokens, heartbeats[0].tickets[0].ticket_token.as_slice()),
        (vec![b"proven+".as_slice()], b"mine".as_slice())
    );
}

/// The server ends a stream at its byte limit: the ticket's stream goes on in another one.
#[tokio::test]
async fn ticket_stream_goes_on_after_the_byte_limit_of_a_stream() {
    let beacon = ScriptedBeacon::start(false).await;
    let script = ScriptedQueue { finds_no_match: true, ..Default::default() };
    let (queue, client) = start_queue(script, beacon.clone()).await;
    let ticket = client.enter_queue(pb::QueueEnterRequest::default()).await.unwrap();
    let mut stream = ticket.watch();
    for number in 1..=3 {
        assert_eq!(stream.next().await.unwrap().unwrap().state(), pb::TicketState::Waiting);
        let (_, sender) = queue.watches.lock().unwrap().last().cloned().unwrap();
        assert_eq!(queue.watches.lock().unwrap().len(), number);
        let details = ErrorDetails::with_error_info("STREAM_LIMIT_REACHED", "fireteam", []);
        let limit = Status::with_error_details(Code::ResourceExhausted, "stream byte limit reached", details);
        sender.send(Err(limit)).await.unwrap();
    }
}

/// A ticket without a loop: its heartbeats have the latest token, and its stream sends each new one.
#[tokio::test]
async fn ticket_renews_its_round_trips_with_heartbeats() {
    let beacon = ScriptedBeacon::start(false).await;
    let script = ScriptedQueue { finds_no_match: true, ..Default::default() };
    let (queue, client) = start_queue(script, beacon.clone()).await;
    let mut tokens = client.latency_tokens(UdpSocket::bind("127.0.0.1:0").await.unwrap());
    assert_eq!(tokens.first().await, LATENCY_TOKEN);
    let mut ticket = client.enter_queue(pb::QueueEnterRequest::default()).await.unwrap();
    ticket.use_latency_tokens(tokens.clone());
    ticket.heartbeat().await.unwrap();
    pass_time_until_renewal().await;
    assert_eq!(tokens.wait_for_next_token().await, b"proven+");
    ticket.heartbeat().await.unwrap();

    let mut stream = ticket.watch();
    stream.next().await.unwrap();
    assert_eq!(queue.watches.lock().unwrap()[0].0.latency_token, b"proven+");
    pass_time_until_renewal().await;
    // The stream waits for a status, which does not come; two permits are of the heartbeats before.
    let beaten = async {
        while queue.heartbeats.lock().unwrap().len() < 3 {
            queue.has_heartbeat.notified().await;
        }
    };
    tokio::select! {
        status = stream.next() => panic!("{status:?}"),
        () = beaten => {}
    }
    let heartbeats = queue.heartbeats.lock().unwrap();
    let sent: Vec<&[u8]> = heartbeats.iter().map(|heartbeat| &*heartbeat.latency_token).collect();
    assert_eq!(sent, [LATENCY_TOKEN, b"proven+", b"proven++"]);
    let text = format!("{tokens:?} {ticket:?} {stream:?}");
    assert!(!text.contains(&format!("{LATENCY_TOKEN:?}")[1..20]), "{text}");
}
