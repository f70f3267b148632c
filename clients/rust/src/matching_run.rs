//! Search loop on a tokio runtime: makes the calls, sends and receives the probes, and waits.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;

use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::beacons_run::BeaconsRun;
use crate::datagrams::{self, DATAGRAM_BYTES_MAX};
use crate::error::Error;
use crate::latency_tokens::FIRST_TOKEN_TIME_MAX;
use crate::matching::{
    Answer, Call, CallError, CallId, ConnectTarget, EndReason, Event, HostedSession, Matching, MatchingOptions,
    MatchingState, MonotonicTime, Outcome, ProberDataJudge, Request,
};
use crate::pb;
use crate::probe::beacons::BeaconsEvent;
use crate::probe::is_probe;
use crate::random;
use crate::retrying_channel::RetryingChannel;
use crate::run_clock::RunClock;

/// Events of the game that may wait for the loop.
const EVENTS_MAX: usize = 64;

/// The game, as a search loop needs it.
pub trait MatchingGame {
    /// Connects to a host. Returns whether the party is in its session. The loop drops the future when its time is over.
    fn connect(&self, target: ConnectTarget) -> impl Future<Output = bool> + Send;

    /// News that need no answer: all outcomes but [`Outcome::Connect`] and [`Outcome::AbandonConnect`].
    fn notify(&self, outcome: &Outcome) {
        let _ = outcome;
    }

    /// Datagram on the socket that is no probe: one of the game, if it shares the socket.
    fn receive_datagram(&self, packet: &[u8], from: SocketAddr) {
        let _ = (packet, from);
    }
}

/// Result of [`MatchingRun::run`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// The party is in a session, as a guest or as its host.
    Joined,
    /// The loop has ended.
    Ended(EndReason),
}

/// Search loop of one party. Dropping it releases nothing: seats and advertisements expire. Use [`MatchingHandle::cancel`].
#[derive(Debug)]
pub struct MatchingRun {
    channel: RetryingChannel,
    matching: Matching,
    /// Measurement of beacons, from the first [`Self::run`] on.
    beacons: Option<BeaconsRun>,
    measures_beacons: bool,
    clock: RunClock,
    calls: JoinSet<(CallId, Result<Answer, CallError>)>,
    events: mpsc::Receiver<Event>,
    handle: MatchingHandle,
}

/// Sends events of the game to a loop, from any task. Events after the loop has been dropped are lost.
#[derive(Clone, Debug)]
pub struct MatchingHandle(mpsc::Sender<Event>);

impl MatchingHandle {
    /// The player does not want to play any longer, or leaves the session.
    pub async fn cancel(&self) {
        self.send(Event::Cancel).await;
    }

    /// The joined session lost its connection.
    pub async fn connection_lost(&self) {
        self.send(Event::ConnectionLost).await;
    }

    /// This client hosts a session from now on.
    pub async fn become_host(&self, hosting: HostedSession) {
        self.send(Event::BecomeHost(Box::new(hosting))).await;
    }

    /// Another client hosts the session from now on.
    pub async fn host_moved(&self) {
        self.send(Event::HostMoved).await;
    }

    /// The hosted session has other players or seats now. Name the reservations of the parties that have joined.
    pub async fn session_changed(&self, session: pb::SessionCompositionData, joined_reservation_ids: Vec<String>) {
        self.send(Event::SessionChanged { session: Box::new(session), joined_reservation_ids }).await;
    }

    /// A reservation of the hosted session changed, from [`HostEvents`](crate::HostEvents).
    pub async fn reservation_changed(&self, event: pb::ReservationEvent) {
        self.send(Event::ReservationChanged(event)).await;
    }

    async fn send(&self, event: Event) {
        // Sending fails if the loop was dropped, which has ended it.
        let _ = self.0.send(event).await;
    }
}

/// Attempt of the game to connect: the reservation, and whether it succeeded.
type Connecting<'game> = Pin<Box<dyn Future<Output = (String, bool)> + Send + 'game>>;

impl MatchingRun {
    pub(crate) fn new(channel: RetryingChannel, options: MatchingOptions) -> Self {
        let (sender, events) = mpsc::channel(EVENTS_MAX);
        Self {
            channel: channel.without_retries(),
            matching: Matching::new(options, random::bytes()),
            beacons: None,
            measures_beacons: false,
            clock: RunClock::start(),
            calls: JoinSet::new(),
            events,
            handle: MatchingHandle(sender),
        }
    }

    /// Sets the game's judgement on the data of involved probes, while this client hosts.
    pub fn with_prober_data_judge(mut self, judge: ProberDataJudge) -> Self {
        self.matching.set_prober_data_judge(judge);
        self
    }

    /// Measures beacons on the socket of [`Self::run`], and again before the proven round trips expire. The loop starts with the first
    /// token, or after 4 s without one, and sends the latest with its searches, reservations and advertisements.
    pub fn with_beacon_measurement(mut self) -> Self {
        self.measures_beacons = true;
        self
    }

    /// Handle for events of the game.
    pub fn handle(&self) -> MatchingHandle {
        self.handle.clone()
    }

    /// State.
    pub fn state(&self) -> MatchingState {
        self.matching.state()
    }

    /// Runs until the party is in a session, or the loop has ended. Probes are sent and answered on the socket.
    ///
    /// Called again in a session, it waits for an event of the [`MatchingHandle`], and runs until the party is in a session again or the
    /// loop has ended. A client that hosts calls it again, and so does one that wants its seats released when it leaves.
    pub async fn run<Game: MatchingGame + Sync>(&mut self, socket: &UdpSocket, game: &Game) -> RunEnd {
        let mut connecting: Option<Connecting<'_>> = None;
        let mut buffer = [0; DATAGRAM_BYTES_MAX];
        let mut ended = None;
        // A session in which the loop was before is no result.
        let mut was_joined = self.matching.state() == MatchingState::Joined;
        let mut starts_at = Some(self.latest_start());
        loop {
            self.carry_out_beacons(socket).await;
            if starts_at.is_some_and(|at| at <= self.clock.now() || self.has_settled_beacons()) {
                starts_at = None;
                self.matching.handle(Event::Start, self.clock.now());
            }
            while let Some(call) = self.matching.poll_call() {
                let channel = self.channel.clone();
                self.calls.spawn(async move { (call.id, make_call(&channel, call).await) });
            }
            while let Some(transmit) = self.matching.poll_transmit() {
                datagrams::send(socket, transmit).await;
                self.beacons.iter_mut().for_each(BeaconsRun::record_packet_of_other_loop);
            }
            while let Some(outcome) = self.matching.poll_outcome() {
                match outcome {
                    Outcome::Connect(target) => {
                        let id = target.reservation_id.clone();
                        connecting = Some(Box::pin(async move { (id, game.connect(target).await) }));
                    }
                    Outcome::AbandonConnect { .. } => connecting = None,
                    outcome => {
                        game.notify(&outcome);
                        if let Outcome::Ended(reason) = outcome {
                            ended = Some(reason);
                        }
                    }
                }
            }
            let is_joined = self.matching.state() == MatchingState::Joined;
            if let Some(reason) = ended {
                return RunEnd::Ended(reason);
            }
            if is_joined && !was_joined {
                return RunEnd::Joined;
            }
            was_joined = is_joined;
            let event = tokio::select! {
                event = self.next_event(starts_at) => event,
                (reservation_id, is_connected) = when_some(&mut connecting) => {
                    connecting = None;
                    RunInput::of_connect(reservation_id, is_connected)
                }
                received = datagrams::receive(socket, &mut buffer) => match received {
                    Some((packet, from)) if is_probe(packet) => RunInput::Datagram { from, packet: packet.to_vec() },
                    Some((packet, from)) => {
                        game.receive_datagram(packet, from);
                        continue;
                    }
                    None => RunInput::Matching(Event::Timeout),
                },
            };
            self.handle_event(event);
        }
    }

    /// Time at which the loop starts, unless beacons are measured sooner.
    fn latest_start(&mut self) -> MonotonicTime {
        if self.measures_beacons && self.beacons.is_none() {
            self.beacons = Some(BeaconsRun::start(self.channel.clone()));
        }
        let now = self.clock.now();
        if self.has_settled_beacons() { now } else { now + FIRST_TOKEN_TIME_MAX }
    }

    /// Whether the loop need not wait for beacons.
    fn has_settled_beacons(&mut self) -> bool {
        self.beacons.as_mut().is_none_or(|beacons| beacons.beacons().is_first_measurement_over())
    }

    /// Sends the packets to beacons, and passes on a new token.
    async fn carry_out_beacons(&mut self, socket: &UdpSocket) {
        let now = self.clock.now();
        let Some(beacons) = &mut self.beacons else { return };
        for _ in 0..beacons.carry_out(socket).await {
            self.matching.record_packet_of_other_loop(now);
        }
        if let Some(token) = beacons.beacons().poll_token() {
            self.matching.handle(Event::LatencyToken(token.into()), now);
        }
    }

    /// Waits for an answer, an event of the game, or a timeout.
    async fn next_event(&mut self, starts_at: Option<MonotonicTime>) -> RunInput {
        tokio::select! {
            Some(Ok((id, result))) = self.calls.join_next() => RunInput::Matching(Event::Answer { id, result }),
            Some(event) = self.events.recv() => RunInput::Matching(event),
            event = async {
                match &mut self.beacons {
                    Some(beacons) => beacons.next_event().await,
                    None => std::future::pending().await,
                }
            } => RunInput::Beacons(event),
            () = self.clock.sleep_until(self.matching.poll_timeout()) => RunInput::Matching(Event::Timeout),
            () = self.clock.sleep_until(starts_at) => RunInput::Matching(Event::Timeout),
        }
    }

    fn handle_event(&mut self, event: RunInput) {
        let now = self.clock.now();
        match (event, &mut self.beacons) {
            (RunInput::Matching(event), _) => self.matching.handle(event, now),
            (RunInput::Beacons(event), Some(beacons)) => beacons.handle(event),
            (RunInput::Beacons(_), None) => {}
            (RunInput::Datagram { from, packet }, beacons) => {
                if let Some(beacons) = beacons {
                    beacons.handle(BeaconsEvent::Datagram { from, packet: packet.clone() });
                }
                self.matching.handle(Event::Datagram { from, packet }, now);
            }
        }
    }
}

/// Event of the loop, of its measurement of beacons, or a datagram that may be for either.
enum RunInput {
    Matching(Event),
    Beacons(BeaconsEvent),
    Datagram { from: SocketAddr, packet: Vec<u8> },
}

impl RunInput {
    /// The game has connected, or could not.
    fn of_connect(reservation_id: String, is_connected: bool) -> Self {
        Self::Matching(if is_connected {
            Event::Connected { reservation_id }
        } else {
            Event::ConnectFailed { reservation_id }
        })
    }
}

/// Waits for a future, or for ever without one.
pub(crate) async fn when_some<Output>(
    future: &mut Option<Pin<Box<dyn Future<Output = Output> + Send + '_>>>,
) -> Output {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

/// Makes a call.
async fn make_call(channel: &RetryingChannel, call: Call) -> Result<Answer, CallError> {
    match call.request {
        Request::ChooseAction(request) => channel
            .call_matchmaking(request, |mut stub, request| async move { stub.choose_action(request).await })
            .await
            .map(Answer::ChooseAction),
        Request::GetConfiguration(request) => channel
            .call_matchmaking(request, |mut stub, request| async move { stub.get_configuration(request).await })
            .await
            .map(Answer::GetConfiguration),
        Request::Search(request) => channel
            .call_matchmaking(*request, |mut stub, request| async move { stub.search(request).await })
            .await
            .map(|found| Answer::Search(Box::new(found))),
        Request::ReportLatency(request) => channel
            .call_matchmaking(*request, |mut stub, request| async move { stub.report_latency(request).await })
            .await
            .map(|report| Answer::ReportLatency(Box::new(report))),
        Request::Reserve(request) => channel
            .call_matchmaking(*request, |mut stub, request| async move { stub.reserve(request).await })
            .await
            .map(|reserved| Answer::Reserve(Box::new(reserved))),
        Request::Release(request) => channel
            .call_matchmaking(request, |mut stub, request| async move { stub.release(request).await })
            .await
            .map(|_| Answer::Release),
        Request::UpdateAdvertisement(request) => channel
            .call_matchmaking(*request, |mut stub, request| async move { stub.update_advertisement(request).await })
            .await
            .map(|updated| Answer::UpdateAdvertisement(Box::new(updated))),
        Request::DeleteAdvertisement(request) => channel
            .call_matchmaking(request, |mut stub, request| async move { stub.delete_advertisement(request).await })
            .await
            .map(|_| Answer::DeleteAdvertisement),
    }
    .map_err(|error: Error| CallError::from(&error))
}
