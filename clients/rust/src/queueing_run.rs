//! Queue loop on a tokio runtime: makes the calls, watches the ticket, and asks the game.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::beacons_run::{BeaconsRun, FIRST_TOKEN_TIME_MAX};
use crate::error::Error;
use crate::matching::{CallError, CallId, MonotonicTime};
use crate::pb;
use crate::queueing::{
    QueueAnswer, QueueCall, QueueEnd, QueueEvent, QueueGameNotification, QueueRequest, Queueing, QueueingState,
};
use crate::retry::RetryPolicy;
use crate::retrying_channel::RetryingChannel;

/// Events of the game, and statuses, that may wait for the loop.
const EVENTS_MAX: usize = 64;

/// The game, as a queue loop needs it.
pub trait QueueGame {
    /// Asks the players whether they accept a match. Dropped when the ready check is over.
    fn answer_ready_check(&self, found: pb::MatchStatus) -> impl Future<Output = bool> + Send;

    /// Connects to the host of a match, as its `assignment` says. Returns whether the party is in.
    fn connect(&self, found: pb::MatchStatus) -> impl Future<Output = bool> + Send;

    /// News that need no answer: each status, and the end.
    fn notify(&self, outcome: &QueueGameNotification) {
        let _ = outcome;
    }
}

/// Queue loop of one party. Dropping it leaves nothing: the ticket expires. Use [`QueueingHandle::cancel`].
#[derive(Debug)]
pub struct QueueingRun {
    channel: RetryingChannel,
    queueing: Queueing,
    start: Instant,
    calls: JoinSet<(CallId, Result<QueueAnswer, CallError>)>,
    watch: Option<OpenWatch>,
    events: mpsc::Receiver<QueueEvent>,
    handle: QueueingHandle,
    /// Socket on which beacons are measured before the ticket is entered.
    beacon_socket: Option<Arc<UdpSocket>>,
}

/// Task that watches the ticket, and what it received.
#[derive(Debug)]
struct OpenWatch {
    events: mpsc::Receiver<QueueEvent>,
    /// Aborts the task when it is dropped.
    _task: JoinSet<()>,
}

/// Sends events of the game to a queue loop, from any task.
#[derive(Clone, Debug)]
pub struct QueueingHandle(mpsc::Sender<QueueEvent>);

impl QueueingHandle {
    /// The player does not want to play any longer, or leaves the match.
    pub async fn cancel(&self) {
        self.send(QueueEvent::Cancel).await;
    }

    /// The match was played; team and rank, 1 for the best. Only where players report.
    pub async fn report_result(&self, ranks: &[(u32, i32)]) {
        let ranks = ranks.iter().map(|&(team, rank)| pb::TeamRank { team, rank });
        self.send(QueueEvent::Report(ranks.collect())).await;
    }

    async fn send(&self, event: QueueEvent) {
        // Sending fails if the loop was dropped, which has ended it.
        let _ = self.0.send(event).await;
    }
}

/// Question to the game: its answer becomes an event.
type GameReplyFuture<'game> = Pin<Box<dyn Future<Output = QueueEvent> + Send + 'game>>;

impl QueueingRun {
    pub(crate) fn new(mut channel: RetryingChannel, queueing: Queueing) -> Self {
        // The state machine repeats calls itself.
        channel.retry_policy = RetryPolicy::NEVER;
        let (sender, events) = mpsc::channel(EVENTS_MAX);
        let (start, calls, handle) = (Instant::now(), JoinSet::new(), QueueingHandle(sender));
        Self { channel, queueing, start, calls, watch: None, events, handle, beacon_socket: None }
    }

    /// Measures beacons on this socket before the ticket is entered, for at most 4 s. Its token goes into the ticket. Other datagrams that
    /// arrive meanwhile are lost.
    pub fn with_beacon_measurement(mut self, socket: impl Into<Arc<UdpSocket>>) -> Self {
        self.beacon_socket = Some(socket.into());
        self
    }

    /// Handle for events of the game.
    pub fn handle(&self) -> QueueingHandle {
        self.handle.clone()
    }

    /// State.
    pub fn state(&self) -> QueueingState {
        self.queueing.state()
    }

    /// Bytes for [`Client::restored_queueing_run`](crate::Client::restored_queueing_run). They contain the ticket's token: keep them secret.
    pub fn saved_bytes(&self) -> Vec<u8> {
        self.queueing.saved_bytes()
    }

    /// Runs until the ticket has ended. `saves` receives the bytes of [`Self::saved_bytes`] each time that they may have changed.
    pub async fn run<Game: QueueGame + Sync>(&mut self, game: &Game, mut saves: impl FnMut(&[u8])) -> QueueEnd {
        let mut asking: Option<GameReplyFuture<'_>> = None;
        self.measure_before_entering().await;
        self.queueing.handle(QueueEvent::Start, self.now());
        loop {
            while let Some(call) = self.queueing.poll_call() {
                let channel = self.channel.clone();
                self.calls.spawn(async move { (call.id, make_call(&channel, call).await) });
            }
            if let Some(request) = self.queueing.poll_watch() {
                self.watch = Some(open_watch(self.channel.clone(), request));
            }
            while let Some(outcome) = self.queueing.poll_outcome() {
                match outcome {
                    QueueGameNotification::ReadyCheck(found) => {
                        let match_id = found.match_id.clone();
                        asking = Some(Box::pin(async move {
                            QueueEvent::Respond { match_id, accept: game.answer_ready_check(*found).await }
                        }));
                    }
                    QueueGameNotification::Connect(found) => {
                        asking = Some(Box::pin(async move {
                            if game.connect(*found).await { QueueEvent::Connected } else { QueueEvent::ConnectFailed }
                        }));
                    }
                    outcome => {
                        saves(&self.queueing.saved_bytes());
                        game.notify(&outcome);
                        if let QueueGameNotification::Ended(end) = outcome {
                            return end;
                        }
                    }
                }
            }
            let timeout = self.queueing.poll_timeout().map(|at| self.start + at.since(MonotonicTime::default()));
            let event = tokio::select! {
                Some(Ok((id, result))) = self.calls.join_next() => QueueEvent::Answer { id, result },
                Some(event) = self.events.recv() => event,
                event = next_of_watch(&mut self.watch) => event,
                event = async { match &mut asking { Some(future) => future.await, None => std::future::pending().await } } => {
                    asking = None;
                    event
                }
                () = async { match timeout { Some(at) => tokio::time::sleep_until(at).await, None => std::future::pending().await } } => {
                    QueueEvent::Timeout
                }
            };
            self.queueing.handle(event, self.now());
        }
    }

    /// Measures beacons, unless the ticket was entered before. Events of the game end it: the player may cancel.
    async fn measure_before_entering(&mut self) {
        let Some(socket) = self.beacon_socket.take().filter(|_| !self.queueing.is_entered()) else { return };
        let mut beacons = BeaconsRun::start(self.channel.clone());
        tokio::select! {
            _ = tokio::time::timeout(FIRST_TOKEN_TIME_MAX, beacons.settle(&socket)) => {}
            Some(event) = self.events.recv() => self.queueing.handle(event, self.now()),
        }
        if let Some(token) = beacons.beacons().poll_token() {
            self.queueing.set_latency_token(token);
        }
    }

    fn now(&self) -> MonotonicTime {
        MonotonicTime::default() + self.start.elapsed()
    }
}

/// Next event of the watch, or none for ever.
async fn next_of_watch(watch: &mut Option<OpenWatch>) -> QueueEvent {
    let Some(open) = watch else { return std::future::pending().await };
    match open.events.recv().await {
        Some(event) => event,
        None => {
            *watch = None;
            QueueEvent::WatchEnded(None)
        }
    }
}

/// Opens a watch in a task of its own.
fn open_watch(channel: RetryingChannel, request: pb::QueueWatchRequest) -> OpenWatch {
    let (sender, events) = mpsc::channel(EVENTS_MAX);
    let mut task = JoinSet::new();
    task.spawn(async move {
        let end = match tokio::time::timeout(channel.deadline, channel.open_watch_stream_once(request)).await {
            Err(_) => Some(CallError::new_unanswered()),
            Ok(Err(error)) => Some(CallError::from(&error)),
            Ok(Ok(mut stream)) => loop {
                match stream.message().await {
                    Ok(None) => break None,
                    Err(status) => break Some(CallError::from(&Error::from(status))),
                    Ok(Some(update)) => {
                        if let Some(status) = update.status
                            && sender.send(QueueEvent::Status(Box::new(status))).await.is_err()
                        {
                            return;
                        }
                    }
                }
            },
        };
        // Sending fails if the loop has opened another watch.
        let _ = sender.send(QueueEvent::WatchEnded(end)).await;
    });
    OpenWatch { events, _task: task }
}

/// Makes a call.
async fn make_call(channel: &RetryingChannel, call: QueueCall) -> Result<QueueAnswer, CallError> {
    match call.request {
        QueueRequest::Enter(request) => channel
            .call_queue(*request, |mut stub, request| async move { stub.enter(request).await })
            .await
            .map(|entered| QueueAnswer::Enter(Box::new(entered))),
        QueueRequest::Respond(request) => channel
            .call_queue(request, |mut stub, request| async move { stub.respond(request).await })
            .await
            .map(|response| QueueAnswer::Respond(Box::new(response))),
        QueueRequest::Leave(request) => channel
            .call_queue(request, |mut stub, request| async move { stub.leave(request).await })
            .await
            .map(|left| QueueAnswer::Leave(Box::new(left))),
        QueueRequest::ReportResult(request) => channel
            .call_ratings(request, |mut stub, request| async move { stub.report_result(request).await })
            .await
            .map(|reported| QueueAnswer::ReportResult(Box::new(reported))),
    }
    .map_err(|error| CallError::from(&error))
}
