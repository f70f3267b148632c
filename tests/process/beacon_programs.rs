//! Queue programs in C and C++ that prove their round trips: they measure beacons on the loopback interface, enter with their latency tokens, and
//! the operator's call shows that the match was made by predicted round trips.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use fireteam::auth::identity::Role;
use fireteam::clock::{Clock as _, SystemClock};
use fireteam_client::pb;
use fireteam_probe::{BeaconCookieKey, BeaconResponder, FIXED_PACKET_BYTES, FleetKey};
use pb::latency_service_client::LatencyServiceClient;
use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::identities::Identities;
use crate::programs::{Language, RunningProgram};
use crate::report::lock_machine;
use crate::support::generated_client as wire;
use crate::support::server_process::ServerProcess;

const SET: &str = "32";
const FLEET_KEY: [u8; 32] = [0x42; 32];
/// As many beacons as a prediction needs, and the least round trip to each.
const BEACONS: u32 = 12;
const DELAY: Duration = Duration::from_millis(15);
/// Round trip between two beacons, milliseconds.
const BETWEEN_BEACONS_MS: f32 = 10.0;

const RULESET: &str = r#"<Ruleset Name="Proven programs" SetId="32">
  <Latency Source="predicted"/>
  <Teams Count="2" Size="1"/>
  <Queue PassIntervalMs="50"/>
  <ReadyCheck TimeoutMs="60000"/>
  <Hosting Mode="none"/>
</Ruleset>"#;

/// Beacons at Frankfurt, and the calls that announce them. All end when it is dropped.
struct Fleet {
    announcements: Vec<pb::AnnounceBeaconRequest>,
    tasks: JoinSet<()>,
}

impl Fleet {
    async fn start() -> Self {
        let (mut announcements, mut tasks) = (Vec::new(), JoinSet::new());
        for id in 1..=BEACONS {
            let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a free port");
            let key = FleetKey(FLEET_KEY).beacon_key(id);
            announcements.push(announcement(id, &key.key_id(), socket.local_addr().expect("an address")));
            let responder = BeaconResponder::new(id, key, BeaconCookieKey([9; 32]), 50_000);
            tasks.spawn(answer_late(socket, responder));
        }
        Self { announcements, tasks }
    }

    /// Announces the beacons now, and every five seconds.
    async fn announce(&mut self, server: &ServerProcess, token: &str) {
        let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{}", server.address)).expect("a URI");
        let mut stub = LatencyServiceClient::new(endpoint.connect().await.expect("the server listens"));
        let (announcements, authorization) = (self.announcements.clone(), format!("Bearer {token}"));
        let (sender, announced) = tokio::sync::oneshot::channel();
        self.tasks.spawn(async move {
            let mut sender = Some(sender);
            loop {
                for announcement in &announcements {
                    let mut request = tonic::Request::new(announcement.clone());
                    request.metadata_mut().insert("authorization", authorization.parse().expect("a header"));
                    stub.announce_beacon(request).await.expect("announced");
                }
                // Only the first is awaited.
                sender.take().into_iter().for_each(|sender| sender.send(()).expect("awaited"));
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
        });
        announced.await.expect("announced");
    }
}

fn announcement(id: u32, key_id: &[u8; 4], endpoint: SocketAddr) -> pb::AnnounceBeaconRequest {
    let IpAddr::V4(address) = endpoint.ip() else { panic!("{endpoint}") };
    let beacon = pb::Beacon {
        id,
        address: address.octets().to_vec(),
        port: endpoint.port().into(),
        latitude: 50.1,
        longitude: 8.0 + f64::from(id) / 10.0,
        ..Default::default()
    };
    let others = (1..=BEACONS).filter(|other| *other != id);
    let trip = |beacon_id| pb::BeaconTrip { beacon_id, floor_ms: BETWEEN_BEACONS_MS, age_ms: 0 };
    pb::AnnounceBeaconRequest { beacon: Some(beacon), key_id: key_id.to_vec(), trips: others.map(trip).collect() }
}

/// Answers each packet as if it had arrived later.
async fn answer_late(socket: UdpSocket, mut responder: BeaconResponder) {
    let (start, clock) = (Instant::now(), SystemClock::start());
    let mut packet = [0; FIXED_PACKET_BYTES + 1];
    while let Ok((length, from)) = socket.recv_from(&mut packet).await {
        let unix_s = u32::try_from(clock.now().0 / 1_000).expect("before 2106");
        tokio::time::sleep(DELAY).await;
        let now_us = u64::try_from(start.elapsed().as_micros()).expect("a short time");
        if let Some(answer) = responder.handle(&packet[..length], from, now_us, unix_s) {
            socket.send_to(&answer, from).await.expect("sent");
        }
    }
}

fn start_server(folder: &Path, identities: &Identities) -> ServerProcess {
    std::fs::create_dir(folder.join("rules")).expect("a folder");
    std::fs::write(folder.join("rules/rules.xml"), RULESET).expect("a ruleset");
    let digits: String = FLEET_KEY.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut key = OpenOptions::new().write(true).create_new(true).mode(0o600).open(folder.join("fleet-key"));
    key.as_mut().expect("a new file").write_all(digits.as_bytes()).expect("written");
    let mut arguments = identities.arguments();
    let settings = ["--rulesets", "rules", "--beacon-fleet-key-file", "fleet-key", "--allow-client-locality"];
    arguments.extend(settings.map(str::to_owned));
    let arguments: Vec<&str> = arguments.iter().map(|argument| &**argument).collect();
    ServerProcess::start(folder, &arguments)
}

/// LAT-1: the tickets of a player in C and of one in C++ have vectors, by which the round trip between both is predicted. Each program has
/// measured before it entered, and its token is sent with the ticket.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_in_c_and_cpp_enter_a_queue_with_proven_round_trips() {
    let _machine = lock_machine().await;
    let Some(queue_in_c) = Language::C.compile("queue") else { return };
    let Some(queue) = Language::Cpp.compile("queue") else { return };
    let (identities, folder) = (Identities::create(), tempfile::tempdir().expect("a folder"));
    let server = start_server(folder.path(), &identities);
    let mut fleet = Fleet::start().await;
    fleet.announce(&server, &identities.token(Role::GameServer, "fleet")).await;

    let uri = format!("http://{}", server.address);
    let start = |program: &Path, name: &str, further: &[&str]| {
        let arguments = [&[&*uri, SET, name], further].concat();
        RunningProgram::start_with_token(program, &arguments, &identities.token(Role::Client, name))
    };
    let saved = folder.path().join("bob.saved");
    let mut ann = start(&queue_in_c, "ann", &["50.1", "8.7"]);
    let mut bob = start(&queue, "bob", &[saved.to_str().expect("UTF-8"), "48.9", "2.4"]);
    let mut match_ids = Vec::new();
    for player in [&mut ann, &mut bob] {
        player.wait_for("/fireteam.v1.LatencyService/ReportTrips: 0");
        player.wait_for("latency token of ");
        player.wait_for("/fireteam.v1.QueueService/Enter: 0");
        let ready = player.wait_for("ready check ");
        match_ids.push(ready.split_once(',').expect("a match id").0.to_owned());
    }
    assert_eq!(match_ids[0], match_ids[1]);

    let mut operator = server.operator_client().await;
    let mut request = tonic::Request::new(wire::GetMatchRequest { match_id: match_ids.remove(0) });
    let token = format!("Bearer {}", identities.token(Role::Operator, "ops"));
    request.metadata_mut().insert("authorization", token.parse().expect("a header"));
    let found = operator.get_match(request).await.expect("the match").into_inner();
    let worst = found.worst_pair.expect("a pair").round_trip.expect("a round trip");
    assert_eq!(worst.source(), wire::RoundTripSource::Predicted, "{worst:?}");
    assert!(worst.low_ms.is_some_and(|low| low < worst.round_trip_ms), "{worst:?}");
}
