//! Privacy canaries: known addresses, coordinates, names and credentials are sent to the server and must not appear in
//! responses, logs, metrics or the database.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fireteam::auth::identity::Role;
use fireteam::clock::SystemClock;
use fireteam_client::{Client, Code, TokenSource, pb};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tonic::Request;
use tonic::transport::Endpoint;

use crate::security::tls::tls_connector;
use crate::security::token_lifecycle::http_get;
use crate::support::certs::{CertificateAuthority, write_private_file, write_server_certificate};
use crate::support::generated_client;
use crate::support::generated_client::operator_service_client::OperatorServiceClient;
use crate::support::queue_server::enter_request;
use crate::support::server_process::ServerProcess;
use crate::support::test_server::{advertise_request, party_session};
use crate::support::tokens::{AUDIENCE, ISSUER, TokenIssuer};

/// Locations of the callers: address and degrees (data/README.md).
pub(super) const CANARY_LOCATIONS: [(&str, f64, f64); 4] = [
    ("71.20.133.126", 47.4815, -122.246),
    ("151.220.31.64", 34.0549, -118.243),
    ("25.64.232.73", 51.5074, -0.1278),
    ("219.0.62.58", 35.6629, 139.761),
];
const CANARY_NAMES: [&str; 4] = ["canary-ana-5b1f", "canary-ben-77c2", "canary-cyd-0e9a", "canary-dan-41d8"];

/// Set id of the shipped ranked ruleset, in which two callers play each other.
const RANKED_SET_ID: u32 = 3;

/// Byte patterns that must not appear, with descriptions.
pub(super) type CanaryPatterns = Vec<(String, Vec<u8>)>;

/// Base64 encodings of `bytes` within other data: three variants, by the number of preceding bytes.
pub(super) fn base64_patterns(description: &str, bytes: &[u8]) -> CanaryPatterns {
    let encoded = |before: usize| {
        let text = URL_SAFE_NO_PAD.encode([&vec![0; before][..], bytes].concat());
        // Without the digits that also depend on neighboring bytes.
        let (first, end) = ([0, 2, 3][before], (before + bytes.len()) * 4 / 3);
        text.as_bytes()[first..end].to_vec()
    };
    (0..3).map(|before| (format!("{description} in base64, after {before}"), encoded(before))).collect()
}

pub(super) fn text_patterns(description: &str, text: &str) -> CanaryPatterns {
    let mut patterns = vec![(description.to_owned(), text.as_bytes().to_vec())];
    patterns.extend(base64_patterns(description, text.as_bytes()));
    patterns
}

fn canary_patterns() -> CanaryPatterns {
    let mut patterns: CanaryPatterns =
        CANARY_NAMES.iter().flat_map(|name| text_patterns(&format!("the name {name}"), name)).collect();
    for (address, latitude, longitude) in CANARY_LOCATIONS {
        let octets = address.parse::<Ipv4Addr>().unwrap().octets();
        patterns.extend(text_patterns(&format!("{address} as text"), address));
        patterns.push((format!("{address} packed"), octets.to_vec()));
        patterns.push((format!("{address} packed backwards"), octets.iter().rev().copied().collect()));
        let hex: String = octets.iter().map(|octet| format!("{octet:02x}")).collect();
        patterns.push((format!("{address} in hexadecimal"), hex.into_bytes()));
        for degrees in [latitude, longitude] {
            patterns.push((format!("{degrees} as text"), format!("{degrees}").into_bytes()));
            for (kind, bytes) in [
                ("a double", degrees.to_le_bytes().to_vec()),
                ("a double, high byte first", degrees.to_be_bytes().to_vec()),
                ("a float", (degrees as f32).to_le_bytes().to_vec()),
                ("a float, high byte first", (degrees as f32).to_be_bytes().to_vec()),
            ] {
                patterns.push((format!("{degrees} as {kind}"), bytes));
            }
        }
    }
    patterns
}

/// Descriptions of the patterns found in `haystack`, each of two bytes or more. One pass over it, for any number of patterns.
pub(super) fn patterns_found_in(haystack: &[u8], patterns: &CanaryPatterns) -> Vec<String> {
    let start = |bytes: &[u8]| usize::from(bytes[0]) << 8 | usize::from(bytes[1]);
    let mut by_start = vec![Vec::new(); 1 << 16];
    for (number, (_, pattern)) in patterns.iter().enumerate() {
        by_start[start(pattern)].push(number);
    }
    let mut is_found = vec![false; patterns.len()];
    for at in 0..haystack.len().saturating_sub(1) {
        for &number in &by_start[start(&haystack[at..])] {
            is_found[number] |= haystack[at..].starts_with(&patterns[number].1);
        }
    }
    patterns.iter().zip(is_found).filter(|(_, is_found)| *is_found).map(|((name, _), _)| name.clone()).collect()
}

/// Bytes that a server sent.
pub(super) type RecordedBytes = Arc<Mutex<Vec<u8>>>;

/// Starts a proxy that forwards connections and records the server's bytes, decrypted if the server uses TLS. Message
/// frames are not compressed.
pub(super) async fn start_recording_proxy(
    server: SocketAddr,
    tls: Option<TlsConnector>,
    recorded: &RecordedBytes,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let recorded = recorded.clone();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let socket = TcpStream::connect(server).await.unwrap();
            match &tls {
                None => forward_and_record(client, socket, recorded.clone()),
                Some(tls) => {
                    let name = ServerName::try_from("localhost").unwrap();
                    forward_and_record(client, tls.connect(name, socket).await.unwrap(), recorded.clone());
                }
            }
        }
    });
    address
}

fn forward_and_record(
    client: TcpStream,
    server: impl AsyncRead + AsyncWrite + Send + 'static,
    recorded: RecordedBytes,
) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = tokio::io::split(server);
    tokio::spawn(async move {
        drop(tokio::io::copy(&mut from_client, &mut to_server).await);
        to_server.shutdown().await
    });
    tokio::spawn(async move {
        let mut buffer = [0; 8192];
        while let Ok(count @ 1..) = from_server.read(&mut buffer).await {
            recorded.lock().unwrap().extend_from_slice(&buffer[..count]);
            if to_client.write_all(&buffer[..count]).await.is_err() {
                break;
            }
        }
    });
}

/// Two callers enter a queue, accept a match, and report the result. Returns the text of a rejected report.
async fn run_queue_match(client: &Client, guest: &Client, name: &str) -> String {
    let other = format!("{name}-too");
    let mut here = client.enter_queue(enter_request(RANKED_SET_ID, &[(name, 1_500.0)])).await.unwrap();
    let mut there = guest.enter_queue(enter_request(RANKED_SET_ID, &[(&other, 1_500.0)])).await.unwrap();
    let mut updates = here.watch();
    let id = loop {
        let status = updates.next().await.unwrap().expect("the ticket waits");
        if let Some(found_match) = status.found_match {
            break found_match.match_id;
        }
    };
    here.respond_to_ready_check(&id, true).await.unwrap();
    let found_match = there.respond_to_ready_check(&id, true).await.unwrap().found_match.clone().expect("a match");
    assert!(!found_match.own_players[0].credential.is_empty(), "the match starts");
    there.submit_feedback(&id, 4).await.unwrap();
    let around = pb::GetLeaderboardRequest {
        matchmaking_set_id: Some(RANKED_SET_ID),
        around_user_id: name.to_owned(),
        ..Default::default()
    };
    // With authentication, a player's client may not report results.
    let reported = here.report_result(&id, &[(0, 1), (1, 2)]).await;
    match client.get_leaderboard(around).await {
        Ok(page) => {
            assert_eq!(page.entries.is_empty(), reported.is_err(), "the leaderboard lists a user with a result")
        }
        Err(error) => assert_eq!(error.code(), Some(Code::PermissionDenied), "not public: {error}"),
    }
    here.report_result(&id, &[(0, 2), (1, 1)]).await.unwrap_err().to_string()
}

/// Makes every kind of call with two callers, `name` and `name` with `-too`, including invalid calls. Both may be the
/// same client without authentication. Returns the text of each error.
async fn run_all_calls(client: Client, guest: Client, name: &str) -> Vec<String> {
    let (connection, mut events) = client.open_stream().await.unwrap();
    let update = pb::MatchmakingUpdateAdvertisementRequest {
        connect_data: b"by arrangement".to_vec(),
        ..advertise_request(&[(name, 0.0)], 3)
    };
    let mut advertised = connection.advertise(update.clone()).await.unwrap();
    advertised.heartbeat().await.unwrap();
    let mut search = guest.new_search(1, party_session(&[(&format!("{name}-too"), 0.0)]));
    let found = search.search().await.unwrap();
    let own = found.candidates.iter().find(|candidate| candidate.advertisement_id == advertised.id());
    assert!(own.is_some(), "found from the same city: {found:?}");
    let measured = found.candidates.iter().map(|candidate| (candidate.advertisement_id.clone(), Some(12.5)));
    search.report_latency(pb::LatencyPhase::Quick, measured).await.unwrap();
    let held = search.reserve(advertised.id()).await.unwrap();
    events.next_reservation_event().await.unwrap();
    held.release().await.unwrap();
    client.choose_action(1, 1).await.unwrap();
    let configuration = pb::MatchmakingGetConfigurationRequest { matchmaking_set_id: Some(1), ..Default::default() };
    client.get_configuration(configuration).await.unwrap();

    let mut refusals = vec![run_queue_match(&client, &guest, name).await];
    let invalid = party_session(&[(name, f64::NAN)]);
    refusals.push(client.new_search(1, invalid).search().await.unwrap_err().to_string());
    refusals.push(client.new_search(77, party_session(&[(name, 0.0)])).search().await.unwrap_err().to_string());
    let twice = party_session(&[(name, 0.0), (name, 0.0)]);
    refusals.extend(client.new_search(1, twice).search().await.err().map(|error| error.to_string()));
    let forged = pb::MatchmakingDeleteAdvertisementRequest {
        advertisement_id: advertised.id().into(),
        advertisement_token: b"forged".to_vec(),
    };
    refusals.push(client.delete_advertisement(forged).await.unwrap_err().to_string());
    refusals
}

/// Asserts that no pattern is in the outputs of a server, and prints their sizes.
pub(super) fn assert_no_canary(outputs: &[(&str, &[u8])], patterns: &CanaryPatterns) {
    for (source, bytes) in outputs {
        println!("{source}: {} bytes", bytes.len());
        assert!(300 < bytes.len(), "{source}: too few bytes to search");
        assert_eq!(patterns_found_in(bytes, patterns), [] as [String; 0], "{source}");
    }
}

/// The database files in `folder`, with the WAL.
pub(super) fn database_bytes(folder: &Path) -> Vec<u8> {
    let files = ["fireteam.db", "fireteam.db-wal", "fireteam.db-shm"];
    files.iter().filter_map(|name| std::fs::read(folder.join(name)).ok()).flatten().collect()
}

const GEOIP_DATABASE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/dbip-tour.mmdb");
pub(super) const VERBOSE_FLAGS: [&str; 6] =
    ["--trusted-proxies", "127.0.0.0/8", "--geoip-db", GEOIP_DATABASE, "--log-level", "debug"];

pub(super) fn contains(bytes: &[u8], word: &[u8]) -> bool {
    bytes.windows(word.len()).any(|window| window == word)
}

/// SEC-9: responses, debug log, metrics and database contain no address, location or name of a caller, after searches
/// and queues.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn canary_data_is_absent_from_responses_logs_metrics_and_database() {
    let folder = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(folder.path(), &VERBOSE_FLAGS);
    let recorded = RecordedBytes::default();
    let address = start_recording_proxy(server.address, None, &recorded).await;
    let mut texts = String::new();
    for ((caller_address, ..), name) in CANARY_LOCATIONS.iter().zip(CANARY_NAMES) {
        let client = Client::connect(format!("http://{address}")).await.unwrap();
        let client = client.with_metadata("x-forwarded-for", caller_address).unwrap();
        texts.extend(run_all_calls(client.clone(), client, name).await);
    }
    texts.push_str(&server.operator_page("/metrics").await);
    server.terminate();
    let database = database_bytes(folder.path());
    let ended = server.wait_for_exit();
    let at_rest = std::fs::read(folder.path().join("fireteam.db")).unwrap();
    let answers = recorded.lock().unwrap().clone();
    let outputs = [
        ("answers", &answers[..]),
        ("refusals and metrics", texts.as_bytes()),
        ("log", ended.log.as_bytes()),
        ("open database", &database[..]),
        ("closed database", &at_rest[..]),
    ];
    assert_no_canary(&outputs, &canary_patterns());
    assert!(contains(&answers, b"by arrangement"), "the proxy records responses");
    assert!(contains(&at_rest, b"by arrangement"), "the file has the advertisement");
}

/// Whether an operator call with the authorization `header` succeeds.
async fn is_operator_allowed(operator_port: SocketAddr, header: &str) -> bool {
    let channel = Endpoint::from_shared(format!("http://{operator_port}")).unwrap().connect().await.unwrap();
    let mut request = Request::new(generated_client::ListRulesetsRequest {});
    request.metadata_mut().insert("authorization", header.parse().unwrap());
    OperatorServiceClient::new(channel).list_rulesets(request).await.is_ok()
}

/// Starts a server with debug log, TLS, client certificates, tokens and an audit log.
fn start_authenticated_process(
    folder: &Path,
    server_ca: &CertificateAuthority,
    client_ca: &CertificateAuthority,
    issuer: &TokenIssuer,
) -> ServerProcess {
    write_server_certificate(folder, &server_ca.server_certificate());
    write_private_file(&folder.join("clients.pem"), &client_ca.pem);
    drop(issuer.write_jwt_settings(folder));
    let identified: [&[&str]; 3] = [
        &["--tls-certificate", "server.pem", "--tls-key", "server.key", "--tls-client-ca", "clients.pem"],
        &["--auth-keys", "jwks.json", "--auth-issuer", ISSUER, "--auth-audience", AUDIENCE],
        &["--audit-log-file", "audit.jsonl", "--rate-limits", "off", "--token-key-file", "token-key"],
    ];
    ServerProcess::start(folder, &[&VERBOSE_FLAGS[..], &identified.concat()].concat())
}

/// SEC-9, SEC-4, A8: the same with authenticated callers over TLS: no output has a token, a part of one, a certificate,
/// or a caller's name, address or location. An operator's name is in the audit log only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::too_many_lines, reason = "one case after another")]
async fn canary_data_is_absent_with_authenticated_callers() {
    const OPERATOR: &str = "canary-operator-63aa";
    const GAME_SERVER: &str = "canary-game-server-19f4";
    let folder = tempfile::tempdir().unwrap();
    let (server_ca, client_ca, issuer) = (
        CertificateAuthority::new("server"),
        CertificateAuthority::new("clients"),
        TokenIssuer::new(&SystemClock::start()),
    );
    let server = start_authenticated_process(folder.path(), &server_ca, &client_ca, &issuer);

    let mut patterns = canary_patterns();
    let token_of = |patterns: &mut CanaryPatterns, role, subject: &str| {
        let token = issuer.sign_token(role, subject);
        for (at, part) in token.split('.').enumerate().skip(1) {
            patterns.extend(text_patterns(&format!("part {at} of the token of {subject}"), part));
        }
        token
    };
    let recorded = RecordedBytes::default();
    let address = start_recording_proxy(server.address, Some(tls_connector(&server_ca, None)), &recorded).await;
    let uri = format!("http://{address}");
    let mut texts = String::new();
    for ((caller_address, ..), name) in CANARY_LOCATIONS.iter().zip(CANARY_NAMES) {
        let mut client = async |name: &str| {
            let token = token_of(&mut patterns, Role::Client, name);
            let client =
                Client::connect(&*uri).await.unwrap().with_metadata("x-forwarded-for", caller_address).unwrap();
            client.with_token_source(TokenSource::fixed(&token).unwrap())
        };
        let (first, second) = (client(name).await, client(&format!("{name}-too")).await);
        texts.extend(run_all_calls(first, second, name).await);
    }
    let invalid_token = TokenSource::fixed(&(token_of(&mut patterns, Role::Client, CANARY_NAMES[0]) + "x")).unwrap();
    let refused =
        Client::connect(&*uri).await.unwrap().with_token_source(invalid_token).choose_action(1, 1).await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::Unauthenticated));
    texts.push_str(&refused.to_string());

    let certificate = client_ca.client_certificate(&format!("fireteam://game_server/{GAME_SERVER}"));
    patterns.extend(text_patterns("a game server's name", GAME_SERVER));
    let lines = certificate.certificate.lines().filter(|line| !line.starts_with('-'));
    patterns.extend(lines.map(|line| ("a certificate".to_owned(), line.as_bytes().to_vec())));
    let shown =
        start_recording_proxy(server.address, Some(tls_connector(&server_ca, Some(&certificate))), &recorded).await;
    let game_server = Client::connect(format!("http://{shown}")).await.unwrap();
    game_server
        .advertise(advertise_request(&[(CANARY_NAMES[1], 0.0)], 3))
        .await
        .expect("a game server acts for other users");

    let operator_port =
        start_recording_proxy(server.operator_address, Some(tls_connector(&server_ca, None)), &recorded).await;
    for (role, subject) in [(Role::Operator, OPERATOR), (Role::Client, CANARY_NAMES[2])] {
        assert_eq!(
            is_operator_allowed(operator_port, &issuer.authorization_header(role, subject)).await,
            role == Role::Operator
        );
    }
    drop(token_of(&mut patterns, Role::Operator, OPERATOR));
    texts.push_str(&http_get(operator_port, "/metrics", "").await);

    server.terminate();
    let database = database_bytes(folder.path());
    let log = server.wait_for_exit().log;
    let at_rest = std::fs::read(folder.path().join("fireteam.db")).unwrap();
    let (audit, log): (Vec<&str>, Vec<&str>) = log.lines().partition(|line| line.contains("fireteam::audit"));
    let (audit, log) = (audit.concat(), log.concat());
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let file = read("audit.jsonl") + &read("audit.rejected.jsonl");
    let answers = recorded.lock().unwrap().clone();
    assert_no_canary(&[("audit in the log", audit.as_bytes()), ("audit file", file.as_bytes())], &patterns);
    assert!(audit.contains(OPERATOR) && file.contains(OPERATOR) && file.contains(ISSUER), "{file}");
    patterns.extend(text_patterns("an operator's name", OPERATOR));
    let outputs = [
        ("answers", &answers[..]),
        ("refusals and metrics", texts.as_bytes()),
        ("log", log.as_bytes()),
        ("open database", &database[..]),
        ("closed database", &at_rest[..]),
    ];
    assert_no_canary(&outputs, &patterns);
    assert!(contains(&answers, b"by arrangement"), "the proxy records decrypted responses");
    assert!(contains(&at_rest, b"by arrangement"), "the file has the advertisement");
}

/// The search finds each pattern that is present.
#[test]
fn canary_search_finds_each_pattern() {
    let patterns = canary_patterns();
    for (description, pattern) in &patterns {
        let haystack = [b"before ".as_slice(), pattern, b" after"].concat();
        assert!(patterns_found_in(&haystack, &patterns).contains(description), "{description}");
    }
    assert_eq!(patterns_found_in(b"71.20.133.127 and canary", &patterns), [] as [String; 0]);
    for before in ["", "x", "xy", "xyz"] {
        let text = URL_SAFE_NO_PAD.encode(format!("{before}{}after", CANARY_NAMES[0]));
        assert_eq!(patterns_found_in(text.as_bytes(), &patterns).len(), 1, "{before}");
    }
}
