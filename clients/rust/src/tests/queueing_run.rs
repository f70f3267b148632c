//! Queue loop on a runtime, against a scripted queue over TCP.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status};

use crate::client::Client;
use crate::pb;
use crate::pb::latency_service_server::LatencyServiceServer;
use crate::pb::queue_service_server::{QueueService, QueueServiceServer};
use crate::queueing::{QueueEnd, QueueGameNotification};
use crate::queueing_run::QueueGame;

use super::scripted_beacon::{LATENCY_TOKEN, ScriptedBeacon};

/// Longest time of a test.
const TEST_TIME: Duration = Duration::from_secs(30);

type WatchSender = mpsc::Sender<Result<pb::QueueWatchResponse, Status>>;

/// Queue of one ticket. Its first watch breaks; the second one tells the match.
#[derive(Debug, Default)]
struct ScriptedQueue {
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
            expires_in_ms: 30_000,
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
        let first =
            if watches.is_empty() { Err(Status::unavailable("draining")) } else { update(pb::TicketState::Proposed) };
        sender.try_send(first).map_err(|_| Status::internal("the stream is full"))?;
        watches.push((request.into_inner(), sender));
        Ok(Response::new(ReceiverStream::new(statuses)))
    }

    async fn heartbeat(
        &self,
        _: Request<pb::QueueHeartbeatRequest>,
    ) -> Result<Response<pb::QueueHeartbeatResponse>, Status> {
        Ok(Response::new(Default::default()))
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

async fn start_queue(beacon: Arc<ScriptedBeacon>) -> (Arc<ScriptedQueue>, Client) {
    let queue = Arc::new(ScriptedQueue::default());
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
    news: Mutex<Vec<QueueGameNotification>>,
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

    fn notify(&self, outcome: &QueueGameNotification) {
        self.news.lock().unwrap().push(outcome.clone());
    }
}

/// The whole loop over TCP: beacons, enter, a watch that breaks, another one, the ready check, the match, and its end.
#[tokio::test]
async fn queueing_run_plays_a_match_through_an_outage() {
    let beacon = ScriptedBeacon::start(false).await;
    let (queue, client) = start_queue(beacon.clone()).await;
    let game = Players { queue: queue.clone(), news: Mutex::default() };
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
    assert_eq!(game.news.lock().unwrap().last(), Some(&QueueGameNotification::Ended(end)));

    // The first saved bytes are those of the waiting ticket: another process goes on with them, without another enter.
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut restored = client.restored_queueing_run(&saved[0]).unwrap().with_beacon_measurement(socket);
    let handle = restored.handle();
    handle.cancel().await;
    let end = tokio::time::timeout(TEST_TIME, restored.run(&game, |_| ())).await.unwrap();
    assert_eq!((end, queue.enters.lock().unwrap().len()), (QueueEnd::Cancelled, 1));
    assert_eq!(queue.leaves.lock().unwrap()[0].ticket_token, b"mine");
    assert_eq!(beacon.reports.lock().unwrap().len(), 1, "nothing is measured for a ticket that was entered");
}
