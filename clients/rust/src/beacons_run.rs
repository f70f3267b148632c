//! Measurement of beacons on a tokio runtime: makes the calls, sends the packets, and waits.

use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::datagrams::{self, DATAGRAM_BYTES_MAX};
use crate::error::Error;
use crate::matching::{CallError, CallId, MonotonicTime};
use crate::pb;
use crate::probe::beacons::{Beacons, BeaconsAnswer, BeaconsCall, BeaconsEvent, BeaconsRequest};
use crate::probe::is_probe;
use crate::random;
use crate::retry::RetryPolicy;
use crate::retrying_channel::RetryingChannel;

/// Longest time for which a loop waits for its first token.
pub(crate) const FIRST_TOKEN_TIME_MAX: Duration = Duration::from_secs(4);

/// Measurement of beacons within a loop of the runtime.
#[derive(Debug)]
pub(crate) struct BeaconsRun {
    channel: RetryingChannel,
    beacons: Beacons,
    start: Instant,
    calls: JoinSet<(CallId, Result<BeaconsAnswer, CallError>)>,
}

impl BeaconsRun {
    /// Measurement that begins now.
    pub(crate) fn start(mut channel: RetryingChannel) -> Self {
        // The state machine repeats calls itself.
        channel.retry_policy = RetryPolicy::NEVER;
        let (beacons, start) = (Beacons::new(random::bytes()), Instant::now());
        let mut run = Self { channel, beacons, start, calls: JoinSet::new() };
        run.handle(BeaconsEvent::Start);
        run
    }

    /// The state machine.
    pub(crate) fn beacons(&mut self) -> &mut Beacons {
        &mut self.beacons
    }

    /// Takes an event that happened now.
    pub(crate) fn handle(&mut self, event: BeaconsEvent) {
        self.beacons.handle(event, self.now());
    }

    /// Counts a packet of another loop that was sent now.
    pub(crate) fn note_packet(&mut self) {
        self.beacons.record_packet_of_other_loop(self.now());
    }

    /// Makes the calls and sends the packets that the state machine asks for. Returns the number of packets.
    pub(crate) async fn carry_out(&mut self, socket: &UdpSocket) -> u32 {
        while let Some(call) = self.beacons.poll_call() {
            let channel = self.channel.clone();
            self.calls.spawn(async move { (call.id, make_call(&channel, call).await) });
        }
        let mut sent = 0;
        while let Some(transmit) = self.beacons.poll_transmit() {
            datagrams::send(socket, transmit).await;
            sent += 1;
        }
        sent
    }

    /// Waits for the answer to a call, or until the state machine's timeout.
    pub(crate) async fn next_event(&mut self) -> BeaconsEvent {
        let timeout = self.beacons.poll_timeout().map(|at| self.start + at.since(MonotonicTime::default()));
        tokio::select! {
            Some(Ok((id, result))) = self.calls.join_next() => BeaconsEvent::Answer { id, result },
            () = datagrams::sleep_until(timeout) => BeaconsEvent::Timeout,
        }
    }

    /// Runs until the first measurement is over. Datagrams that are no answers of beacons are lost.
    pub(crate) async fn settle(&mut self, socket: &UdpSocket) {
        let mut buffer = [0; DATAGRAM_BYTES_MAX];
        while !self.beacons.is_first_measurement_over() {
            self.carry_out(socket).await;
            let event = tokio::select! {
                event = self.next_event() => event,
                received = datagrams::receive(socket, &mut buffer) => match received {
                    Some((packet, from)) if is_probe(packet) => BeaconsEvent::Datagram { from, packet: packet.to_vec() },
                    _ => BeaconsEvent::Timeout,
                },
            };
            self.handle(event);
        }
    }

    fn now(&self) -> MonotonicTime {
        MonotonicTime::default() + self.start.elapsed()
    }
}

/// Measures beacons once. `None` if the server has none, or did not answer.
pub(crate) async fn measure_once(channel: RetryingChannel, socket: &UdpSocket) -> Option<pb::ReportTripsResponse> {
    let mut run = BeaconsRun::start(channel);
    run.settle(socket).await;
    run.beacons.report_response().cloned()
}

/// Makes a call.
async fn make_call(channel: &RetryingChannel, call: BeaconsCall) -> Result<BeaconsAnswer, CallError> {
    match call.request {
        BeaconsRequest::GetBeacons(request) => channel
            .call_latency(request, |mut stub, request| async move { stub.get_beacons(request).await })
            .await
            .map(BeaconsAnswer::GetBeacons),
        BeaconsRequest::ReportTrips(request) => channel
            .call_latency(request, |mut stub, request| async move { stub.report_trips(request).await })
            .await
            .map(BeaconsAnswer::ReportTrips),
    }
    .map_err(|error: Error| CallError::from(&error))
}
