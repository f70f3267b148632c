//! Measurement of another beacon, as a client does it: hello, challenge, proof, receipt.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use fireteam_probe::{Challenge, FIXED_PACKET_BYTES, Hello, Receipt};
use tokio::net::UdpSocket;

use crate::beacon::registry::PeerBeacon;
use crate::clock::Clock;

/// Conversations of one measurement.
const CONVERSATIONS: u16 = 3;

/// Time in which an answer counts.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// Pause in seconds that stands for an hour.
const WAIT_AN_HOUR: u16 = 65_535;

/// Measured beacon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Measured {
    /// Least round trip, microseconds; `None` if no conversation came to its end.
    pub(super) floor_us: Option<u32>,
    /// Time for which the beacon asked to be left alone.
    pub(super) pause: Duration,
}

/// Measures a beacon with three conversations, one after another. A beacon that does not answer has no round trip.
pub(super) async fn measure(peer: PeerBeacon, clock: &dyn Clock) -> Measured {
    let mut measured = Measured::default();
    let Ok(socket) = connected_socket(peer.endpoint).await else { return measured };
    for sequence in 1..=CONVERSATIONS {
        let random = clock.random_bytes();
        let hello = Hello { sequence, nonce: *random.first_chunk().unwrap_or(&[0; 8]) };
        let conversation = Conversation { socket: &socket, clock, hello, peer_id: peer.id };
        let Some((challenge, to_challenge_us)) = conversation.challenge().await else { continue };
        measured.pause = pause_of(challenge.wait_s);
        if !measured.pause.is_zero() {
            break;
        }
        let Some(to_proof_us) = conversation.receipt(&challenge, clock.random_bytes()).await else { continue };
        // The longer of both: a beacon that signs a shorter one than the packets take gains nothing.
        let round_trip_us = to_challenge_us.max(to_proof_us);
        measured.floor_us = Some(measured.floor_us.map_or(round_trip_us, |floor_us| floor_us.min(round_trip_us)));
    }
    measured
}

/// Socket that receives packets of this endpoint only.
async fn connected_socket(endpoint: SocketAddr) -> std::io::Result<UdpSocket> {
    let any: IpAddr = match endpoint {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(endpoint).await?;
    Ok(socket)
}

fn pause_of(wait_s: Option<u16>) -> Duration {
    match wait_s {
        None => Duration::ZERO,
        Some(WAIT_AN_HOUR) => Duration::from_secs(3_600),
        Some(wait_s) => Duration::from_secs(wait_s.into()),
    }
}

/// One conversation.
struct Conversation<'a> {
    socket: &'a UdpSocket,
    clock: &'a dyn Clock,
    hello: Hello,
    peer_id: u32,
}

impl Conversation<'_> {
    /// Challenge of the beacon, and the time that it took by the own clock, microseconds.
    async fn challenge(&self) -> Option<(Challenge, u32)> {
        let sent_us = self.clock.monotonic_us();
        self.socket.send(&self.hello.encode()).await.ok()?;
        let is_answer = |packet: &[u8]| {
            Challenge::decode(packet).ok().filter(|it| it.hello == self.hello && it.beacon_id == self.peer_id)
        };
        let (challenge, arrived_us) = self.receive(is_answer).await?;
        Some((challenge, u32::try_from(arrived_us.saturating_sub(sent_us)).ok()?))
    }

    /// Round trip of the receipt for the challenge, microseconds. The binding is a random one: the receipt is of use to no player, and
    /// only an answer to this very proof has it.
    async fn receipt(&self, challenge: &Challenge, binding: [u8; 16]) -> Option<u32> {
        self.socket.send(&challenge.proof(binding).encode()).await.ok()?;
        let is_answer = |packet: &[u8]| {
            let claims = Receipt::decode(packet).ok()?.claims;
            Some(claims).filter(|claims| claims.binding == binding && claims.beacon_id == self.peer_id)
        };
        let (claims, _) = self.receive(is_answer).await?;
        Some(claims.round_trip_us)
    }

    /// First answer that `read` takes, and the time of its arrival. `None` if none comes in time.
    async fn receive<T>(&self, read: impl Fn(&[u8]) -> Option<T>) -> Option<(T, u64)> {
        let receiving = async {
            let mut packet = [0; FIXED_PACKET_BYTES + 1];
            loop {
                let length = self.socket.recv(&mut packet).await.ok()?;
                let arrived_us = self.clock.monotonic_us();
                if let Some(answer) = read(&packet[..length]) {
                    return Some((answer, arrived_us));
                }
            }
        };
        tokio::time::timeout(ANSWER_TIMEOUT, receiving).await.ok().flatten()
    }
}

#[cfg(test)]
mod tests;
