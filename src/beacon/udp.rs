//! UDP loop of a beacon: one thread, one `recv` and one `send` per packet. Nothing is logged or allocated per packet.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fireteam_probe::{BeaconCookieKey, BeaconKey, BeaconResponder, FIXED_PACKET_BYTES};

use crate::clock::Clock;
use crate::supervisor::TaskSupervisor;
use crate::telemetry::label::TaskLabel;
use crate::telemetry::metric::beacon_packets::BeaconPacketCounters;

/// Time after which the cookie key is replaced, microseconds. The one before stays good for as long again.
const COOKIE_KEY_LIFETIME_US: u64 = 60_000_000;

/// Longest wait for a packet; a stop and a new cookie key are noticed then.
const RECEIVE_TIMEOUT: Duration = Duration::from_millis(100);

/// Receive buffer, bytes: about 50 ms of packets at the default limit. The system may give less.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;

/// Pause after an error of the socket, and before a restart after a panic.
const ERROR_PAUSE: Duration = Duration::from_millis(100);

/// Beacon with its socket.
pub struct BeaconUdp {
    socket: UdpSocket,
    responder: BeaconResponder,
    clock: Arc<dyn Clock>,
    counters: BeaconPacketCounters,
    /// Time of the next cookie key, by the monotonic clock.
    rotate_at_us: u64,
    /// Whether the last receive failed, so that the log has one line for many failures.
    is_failing: bool,
}

impl BeaconUdp {
    /// Binds the first of `addresses` that is free. Answers at most `packets_per_second` packets, 1 to 1000000.
    pub fn bind(
        addresses: &[SocketAddr],
        beacon_id: u32,
        key: BeaconKey,
        packets_per_second: u32,
        clock: Arc<dyn Clock>,
        counters: BeaconPacketCounters,
    ) -> io::Result<Self> {
        let socket = UdpSocket::bind(addresses)?;
        socket.set_read_timeout(Some(RECEIVE_TIMEOUT))?;
        if let Err(error) = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER_BYTES) {
            tracing::debug!(%error, "failed to enlarge the receive buffer of the beacon");
        }
        let cookie_key = BeaconCookieKey(clock.random_key());
        let responder = BeaconResponder::new(beacon_id, key, cookie_key, packets_per_second);
        let rotate_at_us = clock.monotonic_us().saturating_add(COOKIE_KEY_LIFETIME_US);
        Ok(Self { socket, responder, clock, counters, rotate_at_us, is_failing: false })
    }

    /// Address of the socket, with the port that the system chose for port 0.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Waits for one packet, 100 ms at most, and answers it. Returns whether an answer was sent; fails if no packet came.
    pub fn answer_next(&mut self) -> io::Result<bool> {
        // One byte more than a packet has: the excess of a longer one is cut off, and must still show.
        let mut packet = [0; FIXED_PACKET_BYTES + 1];
        let received = self.socket.recv_from(&mut packet);
        let unix_s = u32::try_from(self.clock.now().0 / 1_000).unwrap_or(u32::MAX);
        // A challenge carries this time under its cookie, so nothing but the cookie comes between this line and the sending.
        let now_us = self.clock.monotonic_us();
        if self.rotate_at_us <= now_us {
            self.responder.rotate_cookie_key(BeaconCookieKey(self.clock.random_key()));
            self.rotate_at_us = now_us.saturating_add(COOKIE_KEY_LIFETIME_US);
        }
        let (length, from) = received?;
        let answer = self.responder.handle(&packet[..length], from, now_us, unix_s);
        let is_sent = answer.is_some_and(|answer| self.socket.send_to(&answer, from).is_ok());
        if is_sent {
            self.counters.answered.inc()
        } else {
            self.counters.dropped.inc()
        };
        Ok(is_sent)
    }

    /// Answers packets until `stop` is set.
    fn run(&mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            match self.answer_next() {
                Ok(_) => self.is_failing = false,
                Err(error) if is_no_packet(&error) => {}
                Err(error) => {
                    if !self.is_failing {
                        tracing::warn!(%error, "receiving packets for the beacon failed");
                    }
                    self.is_failing = true;
                    thread::sleep(ERROR_PAUSE);
                }
            }
        }
    }

    /// Answers packets on a thread of its own. After a panic, which is in the log, it goes on.
    pub fn spawn(mut self, supervisor: &TaskSupervisor) -> io::Result<BeaconThread> {
        let (stop, supervisor) = (Arc::new(AtomicBool::new(false)), supervisor.clone());
        let stop_of_thread = Arc::clone(&stop);
        let run = move || {
            while supervisor.catch_blocking(TaskLabel::OwnBeacon, || self.run(&stop_of_thread)).is_err() {
                thread::sleep(ERROR_PAUSE);
            }
        };
        let thread = thread::Builder::new().name("beacon".into()).spawn(run)?;
        Ok(BeaconThread { stop, thread: Some(thread) })
    }
}

impl std::fmt::Debug for BeaconUdp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BeaconUdp").field("responder", &self.responder).finish_non_exhaustive()
    }
}

/// Whether a receive ended because no packet came in time, or because of a signal.
fn is_no_packet(error: &io::Error) -> bool {
    use io::ErrorKind;
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// Thread that answers packets. Dropping it stops it, within 100 ms.
#[derive(Debug)]
pub struct BeaconThread {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for BeaconThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // A panic of the thread is in the log.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests;
