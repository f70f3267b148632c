//! Fuzz targets in each test run: the committed corpus, and thousands of random mutations of it. Unlike .ci/fuzz,
//! without coverage feedback.
//!
//! `UPDATE_GOLDEN=1 cargo test --test it fuzz_corpus` writes the seeds.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use fireteam::auth::jwt_signing_key::CallerTokenClaims;
use fireteam::auth::token::{
    AdvertisementClaim, BeaconRoundTrip, BeaconRoundTripSource, LatencyClaim, MeasuredSearchClaim, PacketCounts,
    ProbeRecord, RecordedFinding, ReservationClaim, SearchClaim, SearchMeasurements,
};
use fireteam::config::Config;
use fireteam::domain::advertisement::AdvertisementKind;
use fireteam::domain::id::{AdvertisementId, ReservationId, RulesetHash, SetId, SiloId, UserKey};
use fireteam::domain::time::UnixMs;
use fireteam_probe::{
    AddressPrefix, BeaconCookieKey, Challenge, EchoReply, EchoRequest, FleetKey, Hello, HostCookieKey, HostStateFlags,
    INVOLVED_BYTES_MAX, Involved, InvolvedReply, ReceiptClaims, ReturnedQuestionFields, Verdict,
};
use prost::Message;

use crate::support::generated_client as pb;
use crate::support::source_tree::repository_root;

#[path = "../../../fuzz/targets.rs"]
mod targets;

/// Mutations of each seed; fewer for a target that is a thousand times slower.
const MUTATIONS: u64 = 500;
const MUTATIONS_OF_FILES: u64 = 30;
/// Maximum size of an input, bytes; the fuzzer has the same limit.
const INPUT_BYTES_MAX: usize = 16 * 1024;
/// Maximum size of one target's corpus, bytes.
const CORPUS_BYTES_MAX: u64 = 64 * 1024;

/// Byte values that often cause errors.
const ODD: [u8; 8] = [0, 1, 0x7f, 0x80, 0xff, b'"', b'<', b'/'];

/// SplitMix64 (Steele, Lea and Flood, 2014).
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut it = self.0;
        it = (it ^ (it >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        it = (it ^ (it >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        it ^ (it >> 31)
    }

    fn below(&mut self, below: usize) -> usize {
        (self.next() % below.max(1) as u64) as usize
    }
}

/// A few small mutations of `seed`: bytes changed, removed, repeated, or replaced by another seed's.
fn mutated(seed: &[u8], other: &[u8], rng: &mut SplitMix64) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..1 + rng.below(3) {
        let at = rng.below(bytes.len());
        let end = (at + 1 + rng.below(8)).min(bytes.len());
        match rng.below(7) {
            _ if bytes.is_empty() => bytes.push(rng.next() as u8),
            0 => bytes[at] = rng.next() as u8,
            1 => bytes[at] ^= 1 << rng.below(8),
            2 => bytes[at] = ODD[rng.below(ODD.len())],
            3 => drop(bytes.drain(at..end)),
            4 => {
                let piece = bytes[at..end].to_vec();
                drop(bytes.splice(at..at, piece));
            }
            5 => bytes.truncate(at),
            _ => {
                let from = rng.below(other.len());
                let piece = other[from..(from + end - at).min(other.len())].to_vec();
                drop(bytes.splice(at..end, piece));
            }
        }
    }
    bytes.truncate(INPUT_BYTES_MAX);
    bytes
}

fn folder_of(target: &str) -> PathBuf {
    repository_root().join("fuzz/corpus").join(target)
}

/// The committed inputs of a target, sorted by name.
fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder_of(target)).unwrap_or_else(|error| panic!("the corpus of {target}: {error}"));
    let mut inputs: Vec<_> = entries
        .map(|entry| {
            let path = entry.unwrap().path();
            (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read(path).unwrap())
        })
        .collect();
    inputs.sort();
    inputs
}

fn run_target(name: &str, target: targets::Target, input: &[u8]) {
    if catch_unwind(AssertUnwindSafe(|| target(input))).is_err() {
        let hex: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
        panic!("{name} panicked on {} bytes: {hex}", input.len());
    }
}

/// SEC-3, SEC-18: no nearly valid input makes a parser panic.
#[test]
fn fuzz_mutations_do_not_panic() {
    for (name, target) in targets::TARGETS {
        let inputs = corpus(name);
        let mutations = if name == "localities" { MUTATIONS_OF_FILES } else { MUTATIONS };
        let mut rng = SplitMix64(0x5EED ^ name.len() as u64);
        let mut count = 0;
        for (_, input) in &inputs {
            run_target(name, target, input);
            for _ in 0..mutations {
                let other = &inputs[rng.below(inputs.len())].1;
                run_target(name, target, &mutated(input, other, &mut rng));
                count += 1;
            }
        }
        println!("{name}: {} inputs, {count} mutations", inputs.len());
        assert!(30 <= count);
    }
}

/// SEC-3: each target has the seeds that are generated here, and each corpus is within its size limit.
#[test]
fn fuzz_corpus_has_the_generated_seeds() {
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    for (target, name, bytes) in seeds() {
        let path = folder_of(target).join(name);
        if update {
            fs::create_dir_all(folder_of(target)).unwrap();
            fs::write(&path, &bytes).unwrap();
        }
        let stored = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        // A locality file contains its creation time.
        assert!(
            stored == bytes || target == "localities",
            "{target}/{name} has changed; write it with UPDATE_GOLDEN=1"
        );
    }
    for (target, _) in targets::TARGETS {
        let bytes: u64 = corpus(target).iter().map(|(_, input)| input.len() as u64).sum();
        assert!(0 < bytes && bytes <= CORPUS_BYTES_MAX, "{target}: {bytes} bytes");
    }
}

/// Mutations are neither all valid nor all invalid.
#[test]
fn fuzz_mutations_are_partly_valid() {
    let inputs = corpus("settings");
    let mut rng = SplitMix64(3);
    let accepted = (0..MUTATIONS)
        .filter(|_| {
            let bytes = mutated(&inputs[0].1, &inputs[0].1, &mut rng);
            std::str::from_utf8(&bytes).is_ok_and(|text| Config::from_toml("x".as_ref(), text).is_ok())
        })
        .count() as u64;
    assert!((5..MUTATIONS / 2).contains(&accepted), "{accepted} of {MUTATIONS}");
}

/// Target, file name, bytes.
#[expect(clippy::too_many_lines, reason = "one case after another")]
fn seeds() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let mut seeds = Vec::new();
    for (name, first, wire) in requests() {
        seeds.push(("requests", name, [&[first], &wire[..]].concat()));
    }
    for (name, text) in [
        ("everything", include_str!("../../golden/rulesets/everything.xml")),
        ("everything_else", include_str!("../../golden/rulesets/everything_else.xml")),
        ("queue", include_str!("../../golden/rulesets/queue.xml")),
        ("expansions", include_str!("../../golden/rulesets/expansions.xml")),
        ("mistakes", include_str!("../../golden/rulesets/ten_mistakes.xml")),
        ("printed", include_str!("../../golden/rulesets/as_printed.xml")),
    ] {
        seeds.push(("rulesets", name, text.into()));
    }
    let signer = targets::signer();
    let (set_id, since, used) = (SetId(1), UnixMs(1_700_000_000_000), UnixMs(1_700_000_060_000));
    let id = AdvertisementId::from_bytes([3; 16]);
    let subject = Some(UserKey::from_name("ana"));
    let claim = AdvertisementClaim {
        advertisement_id: id,
        set_id,
        kind: AdvertisementKind::Session,
        subject,
        advertised_since: since,
    };
    seeds.push(("tokens", "advertisement", signer.sign(&claim)));
    let claim = SearchClaim {
        set_id,
        ruleset_hash: RulesetHash(5),
        silo: SiloId(6),
        party_digest: [7; 16],
        started_at: since,
        last_issued_at: used,
    };
    seeds.push(("tokens", "search", signer.sign(&claim)));
    let packets = PacketCounts::new(10, 9);
    let record = |finding| ProbeRecord { id_prefix: [9; 8], finding, is_involved: true, reported_after_ms: 40_000 };
    let answered = RecordedFinding::new_answered(20.5, Some(3.0), packets);
    let findings = [answered, RecordedFinding::Silent, RecordedFinding::Incompatible];
    let probes = findings.map(record).to_vec();
    let measured = SearchMeasurements { involved_phase_may_start: true, probes };
    seeds.push(("tokens", "measured_search", signer.sign(&MeasuredSearchClaim { search: claim, measured })));
    let claim = LatencyClaim {
        subject,
        prefix: AddressPrefix::of([192, 0, 2, 77].into()),
        issued_at: since,
        entries: vec![BeaconRoundTrip::new(7, 20.5, BeaconRoundTripSource::Proven, 8_000)],
    };
    seeds.push(("tokens", "latency", signer.sign(&claim)));
    let claim = ReservationClaim {
        reservation_id: ReservationId::from_bytes([4; 16]),
        advertisement_id: id,
        set_id,
        subject: None,
    };
    seeds.push(("tokens", "reservation", signer.sign(&claim)));
    let issued = CallerTokenClaims {
        iss: "fuzz".into(),
        sub: "ana".into(),
        aud: "fuzz".into(),
        iat: 1_700_000_000,
        exp: 1_700_003_600,
        role: Some("operator".into()),
        scope: Some("a b".into()),
    };
    let token = targets::issuer().sign_jwt(&issued).unwrap();
    seeds.push(("credentials", "bearer", format!("Bearer {token}").into()));
    seeds.push(("credentials", "none", b"bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbmEifQ.".into()));
    for (name, bytes) in [
        ("one", &b"PROXY TCP4 203.0.113.9 192.0.2.1 12345 443\r\nPRI"[..]),
        ("unknown", b"PROXY UNKNOWN\r\n"),
        ("two", b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xcb\0\x71\x09\xc0\0\x02\x01\x30\x39\x01\xbb"),
        ("local", b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0PRI"),
    ] {
        seeds.push(("proxied", name, bytes.into()));
    }
    for (name, text) in [
        ("plain", "71.20.133.126, 10.0.0.2"),
        ("ports", "[2001:db8::1]:443, 192.0.2.1:80, 10.1.2.3"),
        ("several", "1.1.1.1\nunknown, _hidden\n::ffff:10.0.0.9, fd00::7"),
    ] {
        seeds.push(("forwarded", name, text.into()));
    }
    seeds.push(("localities", "four", locality_file()));
    seeds.push(("settings", "all", settings().into()));
    seeds.push((
        "settings",
        "wrong",
        "listen = \"0.0.0.0:1\"\nlisten_too = [1, 2]\nlocation_grid_degrees = nan\n".into(),
    ));
    seeds.extend(probe_packets().into_iter().map(|(name, packet)| ("probes", name, packet)));
    seeds
}

/// One packet of each type, of conversations that the target's host and beacon accept.
fn probe_packets() -> Vec<(&'static str, Vec<u8>)> {
    let (key, from) = (targets::probe_key(), (std::net::IpAddr::from([192, 0, 2, 77]), 50_123).into());
    let question =
        ReturnedQuestionFields { sequence: 1, nonce: [2; 8], advertisement_id_prefix: [0xa5; 8], stamp: [3; 8] };
    let cookie = HostCookieKey([0x77; 32]).cookie(from, &question, 0);
    let flags = HostStateFlags { full: true, asks_to_wait: false };
    let echo_reply = EchoReply { question, flags, wait_10ms: 0, held_10us: 5, cookie };
    let game_data = b"build 7";
    let involved = Involved { question, quick_reply_cookie: cookie, game_data };
    let involved_reply =
        InvolvedReply { question, wait_10ms: 0, held_10us: 5, verdict: Verdict::Incompatible, game_data };
    let (hello, beacon_id, sent_us) = (Hello { sequence: 1, nonce: [4; 8] }, 7, 1_000_000);
    let beacon_key = FleetKey([1; 32]).beacon_key(beacon_id);
    let cookie = BeaconCookieKey([0x55; 32]).cookie(from, &hello, beacon_id, sent_us);
    let challenge = Challenge { hello, beacon_id, key_id: beacon_key.key_id(), sent_us, cookie, wait_s: Some(30) };
    let receipt = ReceiptClaims {
        sequence: 1,
        beacon_id,
        key_id: beacon_key.key_id(),
        issued_unix_s: 1_700_000_000,
        round_trip_us: 23_456,
        prefix: AddressPrefix::of([192, 0, 2, 77].into()),
        binding: [6; 16],
    };
    vec![
        ("echo", EchoRequest(question).encode(&key).into()),
        ("echo_reply", echo_reply.encode(&key).into()),
        ("involved", involved.encode(&key).unwrap()),
        ("involved_reply", involved_reply.encode(&key, INVOLVED_BYTES_MAX).unwrap()),
        ("hello", hello.encode().into()),
        ("challenge", challenge.encode().into()),
        ("proof", challenge.proof([6; 16]).encode().into()),
        ("receipt", receipt.sign(&beacon_key).into()),
    ]
}

fn requests() -> Vec<(&'static str, u8, Vec<u8>)> {
    let token = vec![9; 64];
    let (id, key) = ("0123456789abcdef0123456789abcdef".to_owned(), "a key that is long enough".to_owned());
    let session = || {
        let session = crate::support::scripted_server::session_composition();
        let number = pb::AttributeValue { value: Some(pb::attribute_value::Value::NumberValue(4.5)) };
        pb::SessionCompositionData {
            silo_id: Some(7),
            nat_type: Some(2),
            party_size_composition: vec![1],
            max_allowed_join_reservation_count: Some(5),
            attributes: [("rank".to_owned(), number)].into(),
            region_latencies: vec![pb::RegionLatency { region: "eu".into(), round_trip_ms: 12.5 }],
            ..session
        }
    };
    let search = pb::MatchmakingSearchRequest {
        session_composition: Some(session()),
        matchmaking_set_id: Some(1),
        search_token: token.clone(),
        exclude_advertisement_ids: vec![id.clone()],
        ..Default::default()
    };
    let update = pb::MatchmakingUpdateAdvertisementRequest {
        session_composition: Some(session()),
        matchmaking_set_id: Some(1),
        connect_data: b"host:7777".to_vec(),
        time_to_live_ms: Some(30_000),
        ..Default::default()
    };
    let delete =
        pb::MatchmakingDeleteAdvertisementRequest { advertisement_id: id.clone(), advertisement_token: token.clone() };
    let configuration = pb::MatchmakingGetConfigurationRequest { matchmaking_set_id: Some(1), ..Default::default() };
    let reserve = pb::MatchmakingReserveRequest {
        advertisement_id: id.clone(),
        search_token: token.clone(),
        idempotency_key: key,
        session_composition: Some(session()),
        ..Default::default()
    };
    let release = pb::MatchmakingReleaseRequest { reservation_id: id, reservation_token: token, ..Default::default() };
    let report = pb::MatchmakingReportLatencyRequest {
        session_composition: Some(session()),
        matchmaking_set_id: Some(1),
        ..Default::default()
    };
    let core = pb::MatchmakingCoreRequest {
        request_type: Some(1),
        request_nonce: Some(3),
        search_request: Some(search.clone()),
        ..Default::default()
    };
    vec![
        ("search", 0, search.encode_to_vec()),
        ("update", 1, update.encode_to_vec()),
        ("update_by_server", 129, update.encode_to_vec()),
        ("delete", 2, delete.encode_to_vec()),
        ("configuration", 3, configuration.encode_to_vec()),
        ("reserve", 4, reserve.encode_to_vec()),
        ("release", 5, release.encode_to_vec()),
        ("report_latency", 6, report.encode_to_vec()),
        ("core", 7, core.encode_to_vec()),
    ]
}

/// Four networks with fictional cities.
fn locality_file() -> Vec<u8> {
    use mmdb_writer::{IpVersion, Value, Writer};
    let mut writer = Writer::builder("Fuzz-City").ip_version(IpVersion::V6).build();
    for (network, latitude) in
        [("71.20.0.0/16", 47.5), ("2001:db8::/32", -12.25), ("128.0.0.0/1", 0.0), ("2a00::/12", 89.0)]
    {
        let place = [("latitude", Value::Double(latitude)), ("longitude", Value::Double(-latitude))];
        let value = Value::map([("location", Value::map(place))]);
        writer.insert_value(network.parse::<ipnet::IpNet>().unwrap(), value).unwrap();
    }
    writer.to_bytes().unwrap()
}

/// Every setting, each different from its default.
fn settings() -> &'static str {
    r#"listen = "127.0.0.1:1"
operator_listen = "[::1]:2"
store = "postgres://me@db/a?sslmode=require"
silos = [1, 2]
max_silos = 64
max_silos_per_user = 2
max_advertisements_per_client = 2
max_advertisements_per_server = 3
max_reservations_per_client = 4
max_tickets_per_user = 5
max_staleness_s = 30
rulesets = "bundled:"
geoip_db = []
trusted_proxies = ["10.0.0.0/8", "fd00::/8"]
proxy_protocol = true
tls_certificate = "c.pem"
tls_key = "k.pem"
tls_client_ca = "ca.pem"
auth_keys = ["client+game_server=a.pem", "./b.pem"]
auth_issuer = "studio"
auth_audience = "game"
auth_issuers = ["https://ops.example fireteam operator=c.pem"]
rate_limits = ["client.search=0.5/3/90", "game_server.stream=9"]
audit_log_file = "audit.jsonl"
token_key_file = "keys"
match_key_file = "match.pem"
allow_client_locality = true
log_format = "json"
log_level = "info,fireteam=debug"
advertisement_ttl_s = 5
location_grid_degrees = 0.25
session_location_grid_degrees = 2.5
region_places = ["eu=50.1/8.7"]
"#
}
