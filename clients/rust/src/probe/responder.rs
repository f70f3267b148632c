//! Answers to latency probes, for hosts and game servers: on a socket of its own, or on the game's.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fireteam_probe::{
    ArrivalAndAnswerTime, HostCookieKey, HostResponder, INVOLVED_BYTES_MAX, ProbeKey, Verdict, is_probe,
};
use tokio::net::UdpSocket;
use tokio::time::Instant;

use crate::pb;
use crate::random;

/// Judgement of the game on the data of an involved probe.
type ProberDataJudge = Box<dyn FnMut(&[u8], &mut Vec<u8>) -> Verdict + Send>;

/// Host that answers the probes of its advertisement, within limits: 20 packets a second from one network, 200 in all. Until
/// [`Responder::set_advertisement`] it is silent.
///
/// Publish [`Responder::probe_endpoint`] with the advertisement, then pass the advertisement's id. With a socket of its own, call
/// [`Responder::run`]. On the game's socket, pass each packet that [`is_probe`] recognizes to [`Responder::handle`], and send the answer.
pub struct Responder {
    key: [u8; 32],
    start: Instant,
    /// Held for one packet only, never across an await.
    responder: Mutex<ResponderWithJudge>,
}

struct ResponderWithJudge {
    responder: HostResponder,
    prober_data_judge: ProberDataJudge,
}

impl Default for Responder {
    fn default() -> Self {
        Self::new()
    }
}

impl Responder {
    /// Responder with keys of its own. All involved probes fit, until [`Responder::with_prober_data_judge`] sets another judgement.
    pub fn new() -> Self {
        let responder = HostResponder::new(HostCookieKey(random::bytes()));
        let host = ResponderWithJudge { responder, prober_data_judge: Box::new(|_, _| Verdict::Fits) };
        Self { key: random::bytes(), start: Instant::now(), responder: Mutex::new(host) }
    }

    /// Sets the judgement of the game on the data of involved probes, such as build and map. It may write data of its own for the
    /// answer, as long as the client's and 18 bytes more. It is asked at most 20 times a second.
    pub fn with_prober_data_judge(self, judge: impl FnMut(&[u8], &mut Vec<u8>) -> Verdict + Send + 'static) -> Self {
        self.lock_responder().prober_data_judge = Box::new(judge);
        self
    }

    /// Endpoint to publish with the advertisement, at this UDP port of the address that the server sees. Its key is this responder's:
    /// take a new responder for each advertisement.
    pub fn probe_endpoint(&self, port: u16) -> pb::ProbeEndpoint {
        pb::ProbeEndpoint { address: Vec::new(), port: port.into(), probe_key: self.key.to_vec(), hosted: false }
    }

    /// Answers the probes of this advertisement from now on. Returns false if the id is not 32 hexadecimal digits.
    pub fn set_advertisement(&self, advertisement_id: &str) -> bool {
        let id = u128::from_str_radix(advertisement_id, 16).ok().filter(|_| advertisement_id.len() == 32);
        let (Some(id), Some(key)) = (id, ProbeKey::new(&self.key)) else { return false };
        self.lock_responder().responder.set_advertisement(id.to_be_bytes(), key);
        true
    }

    /// Becomes silent.
    pub fn clear_advertisement(&self) {
        self.lock_responder().responder.clear_advertisement();
    }

    /// Says in answers whether the session has no open seat.
    pub fn set_full(&self, full: bool) {
        self.lock_responder().responder.set_full(full);
    }

    /// Answer to a packet, to be sent to its source; `None` for packets that are not answered.
    pub fn handle(&self, packet: &[u8], from: SocketAddr) -> Option<Vec<u8>> {
        if !is_probe(packet) {
            return None;
        }
        let arrived_us = u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX);
        let ResponderWithJudge { responder, prober_data_judge: on_involved } = &mut *self.lock_responder();
        responder.handle(packet, from, ArrivalAndAnswerTime { arrived_us, now_us: arrived_us }, on_involved)
    }

    /// Answers probes on a socket of their own until the socket fails.
    pub async fn run(&self, socket: &UdpSocket) -> io::Error {
        let mut packet = [0; INVOLVED_BYTES_MAX + 1];
        loop {
            let (length, from) = match socket.recv_from(&mut packet).await {
                Ok(received) => received,
                // Some systems tell here that a client's port was closed.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => continue,
                Err(error) => return error,
            };
            if let Some(answer) = packet.get(..length).and_then(|packet| self.handle(packet, from)) {
                // An answer that cannot be sent is lost, as any packet may be.
                let _ = socket.send_to(&answer, from).await;
            }
        }
    }

    fn lock_responder(&self) -> MutexGuard<'_, ResponderWithJudge> {
        // A panic of the game's judgement leaves the limits as they were.
        self.responder.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Responder {
    /// Prints no key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Responder").finish_non_exhaustive()
    }
}
