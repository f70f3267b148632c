//! Delay line: a UDP relay between clients and one host. Each packet is lost, or arrives after a delay and a random jitter. The seed
//! decides about the n-th packet of each direction, whenever it arrives. All packets are recorded.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Longest packet that is forwarded.
const PACKET_BYTES_MAX: usize = 2_048;

/// Direction of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    ToHost,
    ToClient,
}

/// Makes the sockets on the side of the host, at a free port of an address.
type BindSocket = Arc<dyn Fn(IpAddr) -> std::io::Result<UdpSocket> + Send + Sync>;

/// Behaviour of a path in each direction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    /// Least time of a packet.
    delay: Duration,
    /// Most time by which a packet may take longer, evenly distributed.
    jitter: Duration,
    /// Probability with which a packet is lost.
    loss: f64,
}

/// Packet that arrived at a delay line.
#[derive(Clone, Debug)]
pub(crate) struct RecordedPacket {
    pub(crate) direction: Direction,
    pub(crate) bytes: Vec<u8>,
    pub(crate) is_lost: bool,
}

/// Running relay to one host. It ends when it is dropped.
pub(crate) struct DelayLine {
    address: SocketAddr,
    packets: Arc<Mutex<Vec<RecordedPacket>>>,
    _relay: JoinSet<()>,
}

impl Path {
    /// Path of this least round trip without loss, the same in each direction. `jitter` is the most that a direction adds.
    pub(crate) fn of_round_trip(round_trip: Duration, jitter: Duration) -> Self {
        Self { delay: round_trip / 2, jitter, loss: 0.0 }
    }

    /// Path on which each direction loses packets with this probability.
    pub(crate) fn with_loss(self, loss: f64) -> Self {
        Self { loss, ..self }
    }

    /// Least round trip.
    pub(crate) fn round_trip(&self) -> Duration {
        2 * self.delay
    }
}

impl DelayLine {
    /// Starts a relay to `host` on a free port of `address`.
    pub(crate) async fn start(address: IpAddr, host: SocketAddr, path: Path, seed: u64) -> Self {
        let bind = |address| {
            let socket = std::net::UdpSocket::bind((address, 0))?;
            socket.set_nonblocking(true)?;
            UdpSocket::from_std(socket)
        };
        Self::start_with(address, (host, Arc::new(bind)), path, seed).await
    }

    /// The same, with sockets on the side of the host that `bind` makes.
    pub(crate) async fn start_with(
        address: IpAddr,
        (host, bind): (SocketAddr, BindSocket),
        path: Path,
        seed: u64,
    ) -> Self {
        let socket = UdpSocket::bind((address, 0)).await.expect("a free port");
        let address = socket.local_addr().expect("an address");
        let packets = Arc::default();
        let mut relay = JoinSet::new();
        relay.spawn(forward(Arc::new(socket), (host, bind), path, seed, Arc::clone(&packets)));
        Self { address, packets, _relay: relay }
    }

    /// Address at which clients reach the host.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Packets so far, in the order of their arrival.
    pub(crate) fn packets(&self) -> Vec<RecordedPacket> {
        self.packets.lock().expect("unpoisoned").clone()
    }
}

/// One direction: decides about each packet, and records it.
struct Lane {
    direction: Direction,
    path: Path,
    rng: Mutex<Pcg64Mcg>,
    packets: Arc<Mutex<Vec<RecordedPacket>>>,
}

impl Lane {
    fn new(direction: Direction, path: Path, seed: u64, packets: Arc<Mutex<Vec<RecordedPacket>>>) -> Arc<Self> {
        let rng = Mutex::new(Pcg64Mcg::seed_from_u64(seed ^ direction as u64));
        Arc::new(Self { direction, path, rng, packets })
    }

    /// Time at which a packet that arrives now goes on; `None` if it is lost.
    fn admit(&self, packet: &[u8]) -> Option<Instant> {
        let arrived_at = Instant::now();
        // Two random numbers for each packet, so that the path does not change which packets are lost.
        let (draw, more): (f64, f64) = self.rng.lock().expect("unpoisoned").random();
        let is_lost = draw < self.path.loss;
        let (direction, bytes) = (self.direction, packet.to_vec());
        self.packets.lock().expect("unpoisoned").push(RecordedPacket { direction, bytes, is_lost });
        (!is_lost).then(|| arrived_at + self.path.delay + self.path.jitter.mul_f64(more))
    }
}

/// Carries packets of clients to the host, from a socket for each client.
async fn forward(
    clients: Arc<UdpSocket>,
    (host, bind): (SocketAddr, BindSocket),
    path: Path,
    seed: u64,
    packets: Arc<Mutex<Vec<RecordedPacket>>>,
) {
    let to_host = Lane::new(Direction::ToHost, path, seed, Arc::clone(&packets));
    let to_client = Lane::new(Direction::ToClient, path, seed, packets);
    let mut sockets: BTreeMap<SocketAddr, Arc<UdpSocket>> = BTreeMap::new();
    let mut underway = JoinSet::new();
    let mut packet = [0; PACKET_BYTES_MAX];
    loop {
        while underway.try_join_next().is_some() {}
        // An error says that an earlier packet found its port closed.
        let Ok((length, client)) = clients.recv_from(&mut packet).await else { continue };
        let socket = match sockets.get(&client) {
            Some(socket) => Arc::clone(socket),
            None => {
                let socket = bind(host.ip()).expect("a free port");
                socket.connect(host).await.expect("an address");
                let socket = Arc::new(socket);
                sockets.insert(client, Arc::clone(&socket));
                underway.spawn(answer(Arc::clone(&socket), Arc::clone(&clients), client, Arc::clone(&to_client)));
                socket
            }
        };
        let packet = packet[..length].to_vec();
        if let Some(at) = to_host.admit(&packet) {
            underway.spawn(async move {
                tokio::time::sleep_until(at).await;
                // A host that has closed its port loses the packet.
                let _ = socket.send(&packet).await;
            });
        }
    }
}

/// Carries answers of the host to one client.
async fn answer(from_host: Arc<UdpSocket>, clients: Arc<UdpSocket>, client: SocketAddr, to_client: Arc<Lane>) {
    let mut underway = JoinSet::new();
    let mut packet = [0; PACKET_BYTES_MAX];
    loop {
        while underway.try_join_next().is_some() {}
        let Ok(length) = from_host.recv(&mut packet).await else { continue };
        let packet = packet[..length].to_vec();
        if let Some(at) = to_client.admit(&packet) {
            let clients = Arc::clone(&clients);
            underway.spawn(async move {
                tokio::time::sleep_until(at).await;
                let _ = clients.send_to(&packet, client).await;
            });
        }
    }
}
