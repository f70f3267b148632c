//! Queue loop on a tokio runtime: makes the calls, watches the ticket, and asks the game.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::error::Error;
use crate::latency_tokens::{self, LatencyTokens};
use crate::matching::{CallError, CallId};
use crate::matching_run::when_some;
use crate::pb;
use crate::queueing::{
    QueueAnswer, QueueCall, QueueEnd, QueueEvent, QueueOutcome, QueueRequest, Queueing, QueueingState,
};
use crate::retrying_channel::RetryingChannel;
use crate::run_clock::RunClock;

/// Events of the game, and statuses, that may wait for the loop.
const EVENTS_MAX: usize = 64;

/// The game, as a queue loop needs it.
pub trait QueueGame {
    /// Asks the players whether they accept a match. Dropped when the ready check is over.
    fn answer_ready_check(&self, found: pb::MatchStatus) -> impl Future<Output = bool> + Send;

    /// Connects to the host of a match, as its `assignment` says. Returns whether the party is in.
    fn connect(&self, found: pb::MatchStatus) -> impl Future<Output = bool> + Send;

    /// News that need no answer: each status, and the end.
    fn notify(&self, outcome: &QueueOutcome) {
        let _ = outcome;
    }
}

/// Queue loop of one party. Dropping it leaves nothing: the ticket expires. Use [`QueueingHandle::cancel`].
#[derive(Debug)]
pub struct QueueingRun {
    channel: RetryingChannel,
    queueing: Queueing,
    clock: RunClock,
    calls: JoinSet<(CallId, Result<QueueAnswer, CallError>)>,
    watch: Option<OpenWatch>,
    game_events: mpsc::Receiver<QueueEvent>,
    handle: QueueingHandle,
    /// Socket on which beacons are measured while the ticket waits.
    beacon_socket: Option<Arc<UdpSocket>>,
    latency_tokens: Option<LatencyTokens>,
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
    pub(crate) fn new(channel: RetryingChannel, queueing: Queueing) -> Self {
        let (sender, events) = mpsc::channel(EVENTS_MAX);
        Self {
            channel: channel.without_retries(),
            queueing,
            clock: RunClock::start(),
            calls: JoinSet::new(),
            watch: None,
            game_events: events,
            handle: QueueingHandle(sender),
            beacon_socket: None,
            latency_tokens: None,
        }
    }

    /// Measures beacons on this socket while the ticket waits. The loop starts with the first token, or after 4 s without one, and renews
    /// the ticket's round trips before they expire. From the time that the game connects to a match on the loop leaves the socket
    /// alone; until then datagrams that are no answers of beacons are lost.
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
        self.measure_while_waiting();
        self.wait_for_first_token().await;
        self.queueing.handle(QueueEvent::Start, self.clock.now());
        loop {
            self.measure_while_waiting();
            while let Some(call) = self.queueing.poll_call() {
                let channel = self.channel.clone();
                self.calls.spawn(async move { (call.id, make_call(&channel, call).await) });
            }
            if let Some(request) = self.queueing.poll_watch() {
                self.watch = Some(open_watch(self.channel.clone(), request));
            }
            while let Some(outcome) = self.queueing.poll_outcome() {
                match outcome {
                    QueueOutcome::ReadyCheck(found) => {
                        let match_id = found.match_id.clone();
                        asking = Some(Box::pin(async move {
                            QueueEvent::Respond { match_id, accept: game.answer_ready_check(*found).await }
                        }));
                    }
                    QueueOutcome::Connect(found) => {
                        asking = Some(Box::pin(async move {
                            if game.connect(*found).await { QueueEvent::Connected } else { QueueEvent::ConnectFailed }
                        }));
                    }
                    outcome => {
                        saves(&self.queueing.saved_bytes());
                        game.notify(&outcome);
                        if let QueueOutcome::Ended(end) = outcome {
                            return end;
                        }
                    }
                }
            }
            let event = tokio::select! {
                Some(Ok((id, result))) = self.calls.join_next() => QueueEvent::Answer { id, result },
                Some(event) = self.game_events.recv() => event,
                event = next_of_watch(&mut self.watch) => event,
                token = latency_tokens::next_token_or_pending(&mut self.latency_tokens) => QueueEvent::LatencyToken(token.into()),
                event = when_some(&mut asking) => {
                    asking = None;
                    event
                }
                () = self.clock.sleep_until(self.queueing.poll_timeout()) => QueueEvent::Timeout,
            };
            self.queueing.handle(event, self.clock.now());
        }
    }

    /// Measures beacons while their round trips are of use.
    fn measure_while_waiting(&mut self) {
        let socket = self.beacon_socket.as_ref().filter(|_| self.queueing.needs_latency_token());
        match (socket, &self.latency_tokens) {
            (Some(socket), None) => {
                self.latency_tokens = Some(LatencyTokens::start(self.channel.clone(), Arc::clone(socket)));
            }
            (None, Some(_)) => self.latency_tokens = None,
            _ => {}
        }
    }

    /// Waits for the first token, unless the ticket was entered before. Events of the game end it: the player may cancel.
    async fn wait_for_first_token(&mut self) {
        let is_entered = self.queueing.is_entered();
        let Some(tokens) = self.latency_tokens.as_mut().filter(|_| !is_entered) else { return };
        let event = tokio::select! {
            token = tokens.first() => QueueEvent::LatencyToken(token.into()),
            Some(event) = self.game_events.recv() => event,
        };
        self.queueing.handle(event, self.clock.now());
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
        let end = match tokio::time::timeout(channel.attempt_timeout, channel.open_watch_stream_once(request)).await {
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
        QueueRequest::Heartbeat(request) => channel
            .call_queue(request, |mut stub, request| async move { stub.heartbeat(request).await })
            .await
            .map(QueueAnswer::Heartbeat),
    }
    .map_err(|error| CallError::from(&error))
}
