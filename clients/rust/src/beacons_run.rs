//! Measurement of beacons on a tokio runtime: makes the calls, sends the packets, and waits.

use tokio::net::UdpSocket;
use tokio::task::JoinSet;

use crate::datagrams::{self, DATAGRAM_BYTES_MAX};
use crate::error::Error;
use crate::matching::{CallError, CallId};
use crate::pb;
use crate::probe::beacons::{Beacons, BeaconsAnswer, BeaconsCall, BeaconsEvent, BeaconsRequest};
use crate::probe::is_probe;
use crate::random;
use crate::retrying_channel::RetryingChannel;
use crate::run_clock::RunClock;

/// Measurement of beacons within a loop of the runtime.
#[derive(Debug)]
pub(crate) struct BeaconsRun {
    channel: RetryingChannel,
    machine: Beacons,
    clock: RunClock,
    calls: JoinSet<(CallId, Result<BeaconsAnswer, CallError>)>,
}

impl BeaconsRun {
    /// Measurement that begins now.
    pub(crate) fn start(channel: RetryingChannel) -> Self {
        let (channel, beacons) = (channel.without_retries(), Beacons::new(random::bytes()));
        let mut run = Self { channel, machine: beacons, clock: RunClock::start(), calls: JoinSet::new() };
        run.handle(BeaconsEvent::Start);
        run
    }

    /// The state machine.
    pub(crate) fn beacons(&mut self) -> &mut Beacons {
        &mut self.machine
    }

    /// Takes an event that happened now.
    pub(crate) fn handle(&mut self, event: BeaconsEvent) {
        self.machine.handle(event, self.clock.now());
    }

    /// Counts a packet of another loop that was sent now.
    pub(crate) fn record_packet_of_other_loop(&mut self) {
        self.machine.record_packet_of_other_loop(self.clock.now());
    }

    /// Makes the calls and sends the packets that the state machine asks for. Returns the number of packets.
    pub(crate) async fn carry_out(&mut self, socket: &UdpSocket) -> u32 {
        while let Some(call) = self.machine.poll_call() {
            let channel = self.channel.clone();
            self.calls.spawn(async move { (call.id, make_call(&channel, call).await) });
        }
        let mut sent = 0;
        while let Some(transmit) = self.machine.poll_transmit() {
            datagrams::send(socket, transmit).await;
            sent += 1;
        }
        sent
    }

    /// Waits for the answer to a call, or until the state machine's timeout.
    pub(crate) async fn next_event(&mut self) -> BeaconsEvent {
        tokio::select! {
            Some(Ok((id, result))) = self.calls.join_next() => BeaconsEvent::Answer { id, result },
            () = self.clock.sleep_until(self.machine.poll_timeout()) => BeaconsEvent::Timeout,
        }
    }

    /// The same, and receives on the socket. Datagrams that are no probes are lost.
    pub(crate) async fn next_event_on(&mut self, socket: &UdpSocket) -> BeaconsEvent {
        let mut buffer = [0; DATAGRAM_BYTES_MAX];
        tokio::select! {
            event = self.next_event() => event,
            received = datagrams::receive(socket, &mut buffer) => match received {
                Some((packet, from)) if is_probe(packet) => BeaconsEvent::Datagram { from, packet: packet.to_vec() },
                _ => BeaconsEvent::Timeout,
            },
        }
    }
}

/// Measures beacons once. `None` if the server has none, or did not answer.
pub(crate) async fn measure_once(channel: RetryingChannel, socket: &UdpSocket) -> Option<pb::ReportTripsResponse> {
    let mut run = BeaconsRun::start(channel);
    while !run.machine.is_first_measurement_over() {
        run.carry_out(socket).await;
        let event = run.next_event_on(socket).await;
        run.handle(event);
    }
    run.machine.report_response().cloned()
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
