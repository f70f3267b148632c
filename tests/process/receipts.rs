//! Receipts and latency tokens against a real server with a beacon: all that a client could alter, forge or borrow, over UDP and gRPC.

use std::net::{SocketAddr, UdpSocket};

use fireteam::auth::identity::Role;
use fireteam::auth::key_file::create_secret_file;
use fireteam_client::pb::latency_service_client::LatencyServiceClient;
use fireteam_client::{Client, RetryPolicy, pb};
use fireteam_probe::{
    AddressPrefix, Challenge, ChallengeProof, FIXED_PACKET_BYTES, FleetKey, Hello, Receipt, ReceiptClaims,
};
use pb::ReceiptVerdict as Verdict;
use tonic::transport::{Channel, Endpoint};

use crate::cluster::{Cluster, client};
use crate::identities::Identities;
use crate::report::{TestReport, until};
use crate::support::party::party_session;
use crate::support::server_process::TEST_TIMEOUT;

const SET: u32 = 1;
const BEACON_ID: u32 = 7;
const FLEET_KEY: [u8; 32] = [9; 32];
/// Type of a receipt packet, and the position of the type.
const TYPE_AT: usize = 4;
const RECEIPT: u8 = 0x14;
const RULESET: &str = r#"<Ruleset Name="receipts" SetId="1">
  <Attributes><Attribute Name="skill" Type="number" Min="-1000" Max="1000" Trust="client"/></Attributes>
  <SoftFilters><SoftFilter Attribute="latency" Weight="1" Min="0" Max="1000"/></SoftFilters>
</Ruleset>"#;

/// A player who calls the latency service.
struct Player {
    stub: LatencyServiceClient<Channel>,
    authorization: String,
}

impl Player {
    async fn connect(server: SocketAddr, identities: &Identities, name: &str) -> Self {
        let channel = Endpoint::from_shared(format!("http://{server}")).expect("an address").connect_lazy();
        let authorization = format!("Bearer {}", identities.token(Role::Client, name));
        Self { stub: LatencyServiceClient::new(channel), authorization }
    }

    fn request<Message>(&self, message: Message) -> tonic::Request<Message> {
        let mut request = tonic::Request::new(message);
        request.metadata_mut().insert("authorization", self.authorization.parse().expect("a header"));
        request
    }

    async fn beacons(&self) -> pb::GetBeaconsResponse {
        let request = self.request(pb::GetBeaconsRequest {});
        self.stub.clone().get_beacons(request).await.expect("a list").into_inner()
    }

    async fn report(&self, receipts: Vec<Vec<u8>>) -> pb::ReportTripsResponse {
        let request = self.request(pb::ReportTripsRequest { receipts, claims: Vec::new() });
        self.stub.clone().report_trips(request).await.expect("an answer").into_inner()
    }
}

/// Socket of a client with the beacon, and the sequence number of its next hello.
struct BeaconSocket {
    socket: UdpSocket,
    sequence: u16,
}

impl BeaconSocket {
    fn bind(address: SocketAddr, beacon: SocketAddr) -> Self {
        let socket = UdpSocket::bind(address).expect("a free port");
        socket.connect(beacon).expect("an address");
        socket.set_read_timeout(Some(TEST_TIMEOUT)).expect("a timeout");
        Self { socket, sequence: 0 }
    }

    fn address(&self) -> SocketAddr {
        self.socket.local_addr().expect("an address")
    }

    fn receive(&self) -> [u8; FIXED_PACKET_BYTES] {
        let mut packet = [0; FIXED_PACKET_BYTES];
        assert_eq!(self.socket.recv(&mut packet).expect("an answer"), FIXED_PACKET_BYTES);
        packet
    }

    fn challenge(&mut self) -> Challenge {
        self.sequence += 1;
        self.socket.send(&Hello { sequence: self.sequence, nonce: [3; 8] }.encode()).expect("sent");
        Challenge::decode(&self.receive()).expect("a challenge")
    }

    fn receipt(&mut self, binding: [u8; 16]) -> [u8; FIXED_PACKET_BYTES] {
        let proof = self.challenge().proof(binding);
        self.socket.send(&proof.encode()).expect("sent");
        self.receive()
    }

    /// Whether the beacon answers a proof. A hello follows it, whose answer comes next.
    fn is_answered(&mut self, proof: &ChallengeProof) -> bool {
        self.socket.send(&proof.encode()).expect("sent");
        self.sequence += 1;
        self.socket.send(&Hello { sequence: self.sequence, nonce: [3; 8] }.encode()).expect("sent");
        let is_answered = self.receive()[TYPE_AT] == RECEIPT;
        if is_answered {
            self.receive();
        }
        is_answered
    }
}

/// Proofs that no client may use get no receipt: altered ones, and those of another port or address.
fn check_proofs(report: &mut TestReport, beacon: SocketAddr, binding: [u8; 16]) {
    let loopback = |last: u8, port: u16| SocketAddr::from(([127, 0, 0, last], port));
    let mut own = BeaconSocket::bind(loopback(1, 0), beacon);
    let mut other_port = BeaconSocket::bind(loopback(1, 0), beacon);
    let mut other_address = BeaconSocket::bind(loopback(2, own.address().port()), beacon);
    let genuine = own.challenge().proof(binding);
    let ChallengeProof { hello, challenge_sent_us: sent_us, .. } = genuine;
    let altered = [
        ("a later time", ChallengeProof { challenge_sent_us: sent_us + 1, ..genuine }),
        ("another nonce", ChallengeProof { hello: Hello { nonce: [4; 8], ..hello }, ..genuine }),
        (
            "another sequence number",
            ChallengeProof { hello: Hello { sequence: hello.sequence + 1, ..hello }, ..genuine },
        ),
        ("another beacon", ChallengeProof { beacon_id: BEACON_ID + 1, ..genuine }),
        ("another cookie", ChallengeProof { cookie: [1; 16], ..genuine }),
    ];
    let mut answered: Vec<&str> =
        altered.iter().filter(|(_, proof)| own.is_answered(proof)).map(|(name, _)| *name).collect();
    answered.extend(other_port.is_answered(&genuine).then_some("another port"));
    answered.extend(other_address.is_answered(&genuine).then_some("another address"));
    report.violations(answered.iter().map(|name| format!("a proof with {name} got a receipt")).collect());
    assert!(own.is_answered(&genuine), "the unaltered one gets a receipt");
}

/// Receipts that prove nothing, each with the verdict that it gets. All are signed as a beacon would, but for the one of another code.
fn worthless_receipts(genuine: &ReceiptClaims, foreign_binding: [u8; 16]) -> Vec<(&'static str, Vec<u8>, Verdict)> {
    let key = FleetKey(FLEET_KEY).beacon_key(BEACON_ID);
    let claims = ReceiptClaims { round_trip_us: 1, ..*genuine };
    let signed = |claims: ReceiptClaims| claims.sign(&key).to_vec();
    let mut other_code = signed(claims);
    other_code[FIXED_PACKET_BYTES - 1] ^= 1;
    let dead = ReceiptClaims { beacon_id: 9, key_id: FleetKey(FLEET_KEY).beacon_key(9).key_id(), ..claims };
    let issued = claims.issued_unix_s;
    vec![
        ("dead beacon", dead.sign(&FleetKey(FLEET_KEY).beacon_key(9)).to_vec(), Verdict::UnknownBeacon),
        ("unknown key", signed(ReceiptClaims { key_id: [1; 4], ..claims }), Verdict::UnknownKey),
        ("other code", other_code, Verdict::BadMac),
        ("other user", signed(ReceiptClaims { binding: foreign_binding, ..claims }), Verdict::ForeignBinding),
        ("too old", signed(ReceiptClaims { issued_unix_s: issued - 700, ..claims }), Verdict::Stale),
        ("too early", signed(ReceiptClaims { issued_unix_s: issued + 60, ..claims }), Verdict::Future),
        ("no time", signed(ReceiptClaims { round_trip_us: 0, ..claims }), Verdict::OutOfRange),
        ("too long", signed(ReceiptClaims { round_trip_us: 2_000_001, ..claims }), Verdict::OutOfRange),
        (
            "other network",
            signed(ReceiptClaims { prefix: AddressPrefix::V4([203, 0, 113]), ..claims }),
            Verdict::ForeignPrefix,
        ),
        ("no receipt", vec![0; FIXED_PACKET_BYTES], Verdict::Malformed),
    ]
}

/// Paths of ignored fields of a search with a latency token.
async fn ignored_fields(client: &Client, name: &str, token: &[u8]) -> Vec<String> {
    let mut session = party_session(&[(name, 0.0)]);
    session.latency_token = token.to_vec();
    client.new_search(SET, session).search().await.expect("a search").ignored_fields
}

/// LAT-5, SEC-6, SEC-8: a beacon gives no receipt for a proof that is altered or from elsewhere. A server takes none that is forged, old, another
/// user's or of another network, and no latency token of another user or from another network.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receipts_and_tokens_prove_nothing_but_what_a_beacon_measured() {
    let mut report = TestReport::start("receipts, SQLite").await;
    let (identities, folder) = (Identities::create(), tempfile::tempdir().expect("a folder"));
    let key_file = folder.path().join("fleet-key");
    create_secret_file(&key_file, FLEET_KEY).expect("a file");
    let key_file = key_file.display().to_string();
    let mut arguments = identities.arguments();
    let beacon_arguments = ["--beacon-fleet-key-file", &key_file, "--beacon-listen", "127.0.0.1:0", "--beacon-id", "7"];
    let site = ["--beacon-region", "eu", "--beacon-place", "50.1/8.7", "--beacon-announce-address", "127.0.0.1"];
    arguments.extend(beacon_arguments.iter().chain(&site).map(|it| (*it).to_owned()));
    let arguments: Vec<&str> = arguments.iter().map(|argument| &**argument).collect();
    let cluster = Cluster::start_with_ruleset_and("sqlite:fireteam.db", 1, RULESET, &arguments);
    let server = cluster.address(0).expect("a server");
    let ada = Player::connect(server, &identities, "ada").await;
    let bob = Player::connect(server, &identities, "bob").await;
    let mut list = pb::GetBeaconsResponse::default();
    until("the beacon is listed", async || {
        list = ada.beacons().await;
        !list.beacons.is_empty()
    })
    .await;
    let binding: [u8; 16] = (&*list.binding).try_into().expect("16 bytes");
    let foreign_binding: [u8; 16] = (&*bob.beacons().await.binding).try_into().expect("16 bytes");
    let port = u16::try_from(list.beacons[0].port).expect("a port");
    let beacon = SocketAddr::from(([127, 0, 0, 1], port));

    check_proofs(&mut report, beacon, binding);
    let genuine = BeaconSocket::bind(([127, 0, 0, 1], 0).into(), beacon).receipt(binding);
    let claims = Receipt::decode(&genuine).expect("a receipt").claims;
    let worthless = worthless_receipts(&claims, foreign_binding);
    let receipts = [genuine.to_vec()].into_iter().chain(worthless.iter().map(|(_, receipt, _)| receipt.clone()));
    let answer = ada.report(receipts.collect()).await;
    let expected = [("genuine", Verdict::Proven)].into_iter().chain(worthless.iter().map(|it| (it.0, it.2)));
    for ((name, expected), verdict) in expected.zip(answer.verdicts()) {
        if verdict != expected {
            report.violation(format!("{name}: {verdict:?} instead of {expected:?}"));
        }
    }
    let least_ms = claims.round_trip_us as f32 / 1_000.0;
    if !matches!(&*answer.regions, [region] if region.region == "eu" && least_ms <= region.round_trip_ms) {
        report.violation(format!("less than the genuine receipt's {least_ms} ms: {:?}", answer.regions));
    }

    let token = &answer.latency_token;
    let own = identities.client_of(&client(&server.to_string()), "ada");
    assert_eq!(ignored_fields(&own, "ada", token).await, [""; 0], "her own");
    let elsewhere = Endpoint::from_shared(format!("http://{server}")).expect("an address");
    let elsewhere = elsewhere.local_address(Some([127, 0, 9, 1].into())).connect().await.expect("connect");
    let elsewhere = Client::from_channel(elsewhere).with_retry_policy(RetryPolicy::NEVER);
    let bobs = identities.client_of(&client(&server.to_string()), "bob");
    for (what, client, name) in
        [("another user", &bobs, "bob"), ("another network", &identities.client_of(&elsewhere, "ada"), "ada")]
    {
        if ignored_fields(client, name, token).await != ["session_composition.latency_token"] {
            report.violation(format!("the token counts for {what}"));
        }
    }
    report.record("verdicts", answer.verdicts.len());
    report.finish();
}
