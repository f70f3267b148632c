//! Hosts of the scenario: each answers probes on a socket of its own behind a delay line, and advertises from an address of its own.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use fireteam::auth::identity::Role;
use fireteam_client::probe::Responder;
use fireteam_client::{Client, RetryPolicy, pb};
use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tonic::transport::Endpoint;

use crate::identities::Identities;
use crate::measured_latency::host_namespace::HostNamespace;
use crate::support::delay_line::{DelayLine, Direction, Path};
use crate::support::party::party_session;

/// Matchmaking set of the scenario.
pub(crate) const SET: u32 = 1;
/// TTL of the advertisements, longer than a test takes.
const TIME_TO_LIVE_MS: u64 = 300_000;
/// Type bytes of the packets of clients, and their position.
const TYPE_AT: usize = 4;
const ECHO: u8 = 1;
const INVOLVED: u8 = 3;

/// Name of a host, its path, and the round trip to the region that it states, from which the server estimates.
#[derive(Clone, Copy)]
pub(crate) struct HostPlan {
    pub(crate) name: &'static str,
    pub(crate) path: Path,
    pub(crate) stated_ms: f32,
}

/// Running host. It answers until it is dropped.
pub(crate) struct Host {
    pub(crate) plan: HostPlan,
    pub(crate) advertisement_id: String,
    line: DelayLine,
    _answers: JoinSet<()>,
}

/// Packets at the delay line of a host.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PacketCounts {
    pub(crate) quick: usize,
    pub(crate) involved: usize,
    /// Packets of the client that the host received.
    pub(crate) received: usize,
    /// Answers that the host sent.
    pub(crate) answers: usize,
    /// Answers that the client received.
    pub(crate) delivered: usize,
}

impl PacketCounts {
    /// Packets that the client sent.
    pub(crate) fn sent(&self) -> usize {
        self.quick + self.involved
    }
}

/// Session with a stated round trip to the region.
pub(crate) fn located_session(user: &str, stated_ms: f32) -> pb::SessionCompositionData {
    let mut session = party_session(&[(user, 0.0)]);
    session.region_latencies = vec![pb::RegionLatency { region: "frankfurt".into(), round_trip_ms: stated_ms }];
    session
}

impl Host {
    /// Starts a host at `address`, which publishes its endpoint at `server` in this role.
    pub(crate) async fn start(
        plan: HostPlan,
        (address, seed): (IpAddr, u64),
        (server, identities, role): (SocketAddr, &Identities, Role),
    ) -> Self {
        let socket = UdpSocket::bind((address, 0)).await.expect("a free port");
        let line = DelayLine::start(address, socket.local_addr().expect("an address"), plan.path, seed).await;
        Self::advertise(plan, (address, socket, line), (server, identities, role)).await
    }

    /// The same in a network namespace, which the delay line alone joins to that of this process.
    pub(crate) async fn start_in(
        namespace: HostNamespace,
        plan: HostPlan,
        (address, seed): (IpAddr, u64),
        (server, identities, role): (SocketAddr, &Identities, Role),
    ) -> Self {
        let namespace = Arc::new(namespace);
        let inside = Ipv4Addr::LOCALHOST.into();
        let socket = UdpSocket::from_std(namespace.bind(inside).expect("a free port")).expect("a socket");
        let host = socket.local_addr().expect("an address");
        let bind = move |address| UdpSocket::from_std(namespace.bind(address)?);
        let line = DelayLine::start_with(address, (host, Arc::new(bind)), plan.path, seed).await;
        Self::advertise(plan, (address, socket, line), (server, identities, role)).await
    }

    async fn advertise(
        plan: HostPlan,
        (address, socket, line): (IpAddr, UdpSocket, DelayLine),
        (server, identities, role): (SocketAddr, &Identities, Role),
    ) -> Self {
        let responder = Responder::new();
        let mut session = located_session(plan.name, plan.stated_ms);
        session.max_allowed_join_reservation_count = Some(8);
        let request = pb::MatchmakingUpdateAdvertisementRequest {
            matchmaking_set_id: Some(SET),
            time_to_live_ms: Some(TIME_TO_LIVE_MS),
            connect_data: plan.name.into(),
            session_composition: Some(session),
            // The server adds the address of this connection.
            probe: Some(responder.probe_endpoint(line.address().port())),
            ..Default::default()
        };
        let endpoint = Endpoint::from_shared(format!("http://{server}")).expect("an address");
        let channel = endpoint.local_address(Some(address)).connect().await.expect("connect");
        let client = Client::from_channel(channel).with_retry_policy(RetryPolicy::NEVER);
        let client = identities.client_as(&client, role, plan.name).with_attempt_deadline(Duration::from_secs(20));
        let answer = client.update_advertisement(request).await.expect("published");
        assert_eq!(answer.ignored_fields, [""; 0], "{}", plan.name);
        assert!(responder.set_advertisement(&answer.advertisement_id));
        let mut answers = JoinSet::new();
        answers.spawn(async move {
            let error = responder.run(&socket).await;
            panic!("the host's socket failed: {error}");
        });
        Self { plan, advertisement_id: answer.advertisement_id, line, _answers: answers }
    }

    /// Counts of the packets so far. Fails if the host has sent more than it received, or more bytes.
    pub(crate) fn packets(&self) -> PacketCounts {
        let mut counts = PacketCounts::default();
        let (mut bytes_received, mut bytes_sent) = (0, 0);
        for packet in self.line.packets() {
            match (packet.direction, packet.bytes.get(TYPE_AT)) {
                (Direction::ToHost, Some(&ECHO)) => counts.quick += 1,
                (Direction::ToHost, Some(&INVOLVED)) => counts.involved += 1,
                (Direction::ToHost, other) => panic!("a packet of type {other:?} to {}", self.plan.name),
                (Direction::ToClient, _) => {
                    counts.answers += 1;
                    counts.delivered += usize::from(!packet.is_lost);
                    bytes_sent += packet.bytes.len();
                }
            }
            if packet.direction == Direction::ToHost && !packet.is_lost {
                counts.received += 1;
                bytes_received += packet.bytes.len();
            }
        }
        assert!(counts.answers <= counts.received && bytes_sent <= bytes_received, "{counts:?}");
        counts
    }
}
