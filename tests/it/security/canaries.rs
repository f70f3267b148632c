//! Canaries: known addresses, places, names and proofs of identity go in everywhere, and must come out nowhere.

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

use crate::support::tokens::{AUDIENCE, TokenIssuer, ISSUER};
use crate::support::test_server::{advertise_request, party_session};
use crate::security::token_lifecycle::http_get;
use crate::support::certs::{CertificateAuthority, write_private_file, write_server_certificate};
use crate::support::generated_client;
use crate::support::generated_client::operator_service_client::OperatorServiceClient;
use crate::support::server_process::ServerProcess;
use crate::support::queue_server::enter_request;
use crate::security::tls::tls_connector;

/// Where the callers seem to be: address, degrees (data/README.md).
const CANARY_LOCATIONS: [(&str, f64, f64); 4] = [
    ("71.20.133.126", 47.4815, -122.246),
    ("151.220.31.64", 34.0549, -118.243),
    ("25.64.232.73", 51.5074, -0.1278),
    ("219.0.62.58", 35.6629, 139.761),
];
const CANARY_NAMES: [&str; 4] = ["canary-ana-5b1f", "canary-ben-77c2", "canary-cyd-0e9a", "canary-dan-41d8"];

/// The shipped set that two of them play each other in, by consent.
const RANKED_SET_ID: u32 = 3;

/// What must be nowhere, with what it is.
type CanaryPatterns = Vec<(String, Vec<u8>)>;

/// How `bytes` look in the midst of something that is in base64: one of three ways, by how many bytes come before.
fn base64_patterns(what: &str, bytes: &[u8]) -> CanaryPatterns {
    let encoded = |before: usize| {
        let text = URL_SAFE_NO_PAD.encode([&vec![0; before][..], bytes].concat());
        // Without the digits that other bytes have a part in.
        let (first, whole) = ([0, 2, 3][before], (before + bytes.len()) * 4 / 3);
        text.as_bytes()[first..whole].to_vec()
    };
    (0..3).map(|before| (format!("{what} in base64, after {before}"), encoded(before))).collect()
}

fn text_patterns(what: &str, text: &str) -> CanaryPatterns {
    let mut needles = vec![(what.to_owned(), text.as_bytes().to_vec())];
    needles.extend(base64_patterns(what, text.as_bytes()));
    needles
}

fn canary_patterns() -> CanaryPatterns {
    let mut needles: CanaryPatterns = CANARY_NAMES.iter().flat_map(|name| text_patterns(&format!("the name {name}"), name)).collect();
    for (address, latitude, longitude) in CANARY_LOCATIONS {
        let octets = address.parse::<Ipv4Addr>().unwrap().octets();
        needles.extend(text_patterns(&format!("{address} as text"), address));
        needles.push((format!("{address} packed"), octets.to_vec()));
        needles.push((format!("{address} packed backwards"), octets.iter().rev().copied().collect()));
        let hex: String = octets.iter().map(|it| format!("{it:02x}")).collect();
        needles.push((format!("{address} in hexadecimal"), hex.into_bytes()));
        for degrees in [latitude, longitude] {
            needles.push((format!("{degrees} as text"), format!("{degrees}").into_bytes()));
            for (kind, bytes) in [
                ("a double", degrees.to_le_bytes().to_vec()),
                ("a double, high byte first", degrees.to_be_bytes().to_vec()),
                ("a float", (degrees as f32).to_le_bytes().to_vec()),
                ("a float, high byte first", (degrees as f32).to_be_bytes().to_vec()),
            ] {
                needles.push((format!("{degrees} as {kind}"), bytes));
            }
        }
    }
    needles
}

/// What of `needles` is in `haystack`.
fn patterns_found_in(haystack: &[u8], needles: &CanaryPatterns) -> Vec<String> {
    let is_in = |needle: &[u8]| haystack.windows(needle.len()).any(|window| window == needle);
    needles.iter().filter(|(_, needle)| is_in(needle)).map(|(what, _)| what.clone()).collect()
}

/// What a server said.
type RecordedBytes = Arc<Mutex<Vec<u8>>>;

/// A go-between that passes everything on and keeps what the server says, read where it speaks TLS. Frames of data are not
/// compressed.
async fn start_recording_proxy(server: SocketAddr, tls: Option<TlsConnector>, tape: &RecordedBytes) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tape = tape.clone();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let socket = TcpStream::connect(server).await.unwrap();
            match &tls {
                None => forward_and_record(client, socket, tape.clone()),
                Some(tls) => {
                    let name = ServerName::try_from("localhost").unwrap();
                    forward_and_record(client, tls.connect(name, socket).await.unwrap(), tape.clone());
                }
            }
        }
    });
    address
}

fn forward_and_record(client: TcpStream, server: impl AsyncRead + AsyncWrite + Send + 'static, tape: RecordedBytes) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = tokio::io::split(server);
    tokio::spawn(async move {
        drop(tokio::io::copy(&mut from_client, &mut to_server).await);
        to_server.shutdown().await
    });
    tokio::spawn(async move {
        let mut some = [0; 8192];
        while let Ok(count @ 1..) = from_server.read(&mut some).await {
            tape.lock().unwrap().extend_from_slice(&some[..count]);
            if to_client.write_all(&some[..count]).await.is_err() {
                break;
            }
        }
    });
}

/// Two callers queue, are proposed to each other, play, and say what came of it. Returns the text of a refusal.
async fn run_queue_match(client: &Client, guest: &Client, name: &str) -> String {
    let other = format!("{name}-too");
    let mut here = client.enter(enter_request(RANKED_SET_ID, &[(name, 1_500.0)])).await.unwrap();
    let mut there = guest.enter(enter_request(RANKED_SET_ID, &[(&other, 1_500.0)])).await.unwrap();
    let mut news = here.watch();
    let id = loop {
        let status = news.next().await.unwrap().expect("it waits");
        if let Some(play) = status.found_match {
            break play.match_id;
        }
    };
    here.respond(&id, true).await.unwrap();
    let play = there.respond(&id, true).await.unwrap().found_match.clone().expect("a match");
    assert!(!play.own_players[0].credential.is_empty(), "it begins");
    there.submit_feedback(&id, 4).await.unwrap();
    let around = pb::GetLeaderboardRequest {
        matchmaking_set_id: Some(RANKED_SET_ID),
        around_user_id: name.to_owned(),
        ..Default::default()
    };
    // Where callers show who they are no player says who has won.
    let reported = here.report_result(&id, &[(0, 1), (1, 2)]).await;
    let entries = client.get_leaderboard(around).await.unwrap().entries;
    assert_eq!(entries.is_empty(), reported.is_err(), "whoever has a result is on it");
    here.report_result(&id, &[(0, 2), (1, 1)]).await.unwrap_err().to_string()
}

/// Two callers' whole life, mistakes included: `name` advertises, and `name` with `-too` comes along, who may be the same
/// client where nobody shows who they are. Returns the text of every refusal.
async fn run_all_calls(client: Client, guest: Client, name: &str) -> Vec<String> {
    let (connection, mut events) = client.open_stream().await.unwrap();
    let mine = pb::MatchmakingUpdateAdvertisementRequest {
        connect_data: b"by arrangement".to_vec(),
        ..advertise_request(&[(name, 0.0)], 3)
    };
    let mut advertised = connection.advertise(mine.clone()).await.unwrap();
    advertised.heartbeat().await.unwrap();
    let mut search = guest.search_session(1, party_session(&[(&format!("{name}-too"), 0.0)]));
    let found = search.search().await.unwrap();
    let own = found.candidates.iter().find(|it| it.advertisement_id == advertised.id());
    assert!(own.is_some(), "whoever looks from the same city finds it: {found:?}");
    let measured = found.candidates.iter().map(|it| (it.advertisement_id.clone(), Some(12.5)));
    search.report_latency(pb::LatencyPhase::Quick, measured).await.unwrap();
    let held = search.reserve(advertised.id()).await.unwrap();
    events.next().await.unwrap();
    held.release().await.unwrap();
    client.choose_action(1, 1).await.unwrap();
    let configuration = pb::MatchmakingGetConfigurationRequest { matchmaking_set_id: Some(1), ..Default::default() };
    client.get_configuration(configuration).await.unwrap();

    let mut refusals = vec![run_queue_match(&client, &guest, name).await];
    let stranger = party_session(&[(name, f64::NAN)]);
    refusals.push(client.search_session(1, stranger).search().await.unwrap_err().to_string());
    refusals.push(client.search_session(77, party_session(&[(name, 0.0)])).search().await.unwrap_err().to_string());
    let twice = party_session(&[(name, 0.0), (name, 0.0)]);
    refusals.extend(client.search_session(1, twice).search().await.err().map(|it| it.to_string()));
    let forged = pb::MatchmakingDeleteAdvertisementRequest {
        advertisement_id: advertised.id().into(),
        advertisement_token: b"forged".to_vec(),
    };
    refusals.push(client.delete_advertisement(forged).await.unwrap_err().to_string());
    refusals
}

/// Looks through what a server has left behind, and says how much that was.
fn assert_no_canary(places: &[(&str, &[u8])], needles: &CanaryPatterns) {
    for (where_, bytes) in places {
        println!("{where_}: {} bytes", bytes.len());
        assert!(300 < bytes.len(), "{where_}: there is something to look through");
        assert_eq!(patterns_found_in(bytes, needles), [] as [String; 0], "{where_}");
    }
}

/// The database with its log, as it lies in `folder` now.
fn database_bytes(folder: &Path) -> Vec<u8> {
    let files = ["fireteam.db", "fireteam.db-wal", "fireteam.db-shm"];
    files.iter().filter_map(|name| std::fs::read(folder.join(name)).ok()).flatten().collect()
}

const GEOIP_DATABASE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/dbip-tour.mmdb");
const VERBOSE_FLAGS: [&str; 6] = ["--trusted-proxies", "127.0.0.0/8", "--geoip-db", GEOIP_DATABASE, "--log-level", "debug"];

fn contains(bytes: &[u8], word: &[u8]) -> bool {
    bytes.windows(word.len()).any(|it| it == word)
}

/// SEC-9, in short: no byte of an answer, of the log at its most talkative, of the metrics, or of the database and its
/// log has anybody's address, place or name, whether they search or queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn canary_data_is_absent_from_responses_logs_metrics_and_database() {
    let folder = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(folder.path(), &VERBOSE_FLAGS);
    let tape = RecordedBytes::default();
    let address = start_recording_proxy(server.address, None, &tape).await;
    let mut said = String::new();
    for ((place, ..), name) in CANARY_LOCATIONS.iter().zip(CANARY_NAMES) {
        let client = Client::connect(format!("http://{address}")).await.unwrap();
        let client = client.with_metadata("x-forwarded-for", place).unwrap();
        said.extend(run_all_calls(client.clone(), client, name).await);
    }
    said.push_str(&server.operator_page("/metrics").await);
    server.terminate();
    let database = database_bytes(folder.path());
    let ended = server.wait_for_exit();
    let at_rest = std::fs::read(folder.path().join("fireteam.db")).unwrap();
    let answers = tape.lock().unwrap().clone();
    let places = [
        ("answers", &answers[..]),
        ("refusals and metrics", said.as_bytes()),
        ("log", ended.log.as_bytes()),
        ("open database", &database[..]),
        ("closed database", &at_rest[..]),
    ];
    assert_no_canary(&places, &canary_patterns());
    assert!(contains(&answers, b"by arrangement"), "the tap hears");
    assert!(contains(&at_rest, b"by arrangement"), "so does the file");
}

/// Whether whoever shows `header` is let in as an operator.
async fn is_operator_allowed(desk: SocketAddr, header: &str) -> bool {
    let channel = Endpoint::from_shared(format!("http://{desk}")).unwrap().connect().await.unwrap();
    let mut request = Request::new(generated_client::ListRulesetsRequest {});
    request.metadata_mut().insert("authorization", header.parse().unwrap());
    OperatorServiceClient::new(channel).list_rulesets(request).await.is_ok()
}

/// A talkative server that speaks TLS, asks for certificates, takes tokens and keeps an audit file.
fn start_authenticated_process(folder: &Path, house: &CertificateAuthority, clients: &CertificateAuthority, badges: &TokenIssuer) -> ServerProcess {
    write_server_certificate(folder, &house.server_certificate());
    write_private_file(&folder.join("clients.pem"), &clients.pem);
    drop(badges.write_jwt_settings(folder));
    let identified: [&[&str]; 3] = [
        &["--tls-certificate", "server.pem", "--tls-key", "server.key", "--tls-client-ca", "clients.pem"],
        &["--auth-keys", "jwks.json", "--auth-issuer", ISSUER, "--auth-audience", AUDIENCE],
        &["--audit-log-file", "audit.jsonl", "--rate-limits", "off", "--token-key-file", "token-key"],
    ];
    ServerProcess::start(folder, &[&VERBOSE_FLAGS[..], &identified.concat()].concat())
}

/// SEC-9, SEC-4, A8: the same where callers show who they are, over TLS: no byte has a token, a part of one, a certificate,
/// or the name, address or place of anybody but an operator; and an operator's name is in the audit and nowhere else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn canary_data_is_absent_with_authenticated_callers() {
    const OPERATOR: &str = "canary-operator-63aa";
    const GAME_SERVER: &str = "canary-game-server-19f4";
    let folder = tempfile::tempdir().unwrap();
    let (house, clients, badges) =
        (CertificateAuthority::new("house"), CertificateAuthority::new("clients"), TokenIssuer::new(&SystemClock::start()));
    let server = start_authenticated_process(folder.path(), &house, &clients, &badges);

    let mut needles = canary_patterns();
    let token_of = |needles: &mut CanaryPatterns, role, subject: &str| {
        let token = badges.sign_token(role, subject);
        for (at, part) in token.split('.').enumerate().skip(1) {
            needles.extend(text_patterns(&format!("part {at} of the token of {subject}"), part));
        }
        token
    };
    let tape = RecordedBytes::default();
    let address = start_recording_proxy(server.address, Some(tls_connector(&house, None)), &tape).await;
    let at = format!("http://{address}");
    let mut said = String::new();
    for ((place, ..), name) in CANARY_LOCATIONS.iter().zip(CANARY_NAMES) {
        let mut client = async |name: &str| {
            let token = token_of(&mut needles, Role::Client, name);
            let client = Client::connect(&*at).await.unwrap().with_metadata("x-forwarded-for", place).unwrap();
            client.with_token_source(TokenSource::fixed(&token).unwrap())
        };
        let (one, other) = (client(name).await, client(&format!("{name}-too")).await);
        said.extend(run_all_calls(one, other, name).await);
    }
    let worthless = TokenSource::fixed(&(token_of(&mut needles, Role::Client, CANARY_NAMES[0]) + "x")).unwrap();
    let refused =
        Client::connect(&*at).await.unwrap().with_token_source(worthless).choose_action(1, 1).await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::Unauthenticated));
    said.push_str(&refused.to_string());

    let papers = clients.client_certificate(&format!("fireteam://game_server/{GAME_SERVER}"));
    needles.extend(text_patterns("a game server's name", GAME_SERVER));
    let lines = papers.certificate.lines().filter(|line| !line.starts_with('-'));
    needles.extend(lines.map(|line| ("a certificate".to_owned(), line.as_bytes().to_vec())));
    let shown = start_recording_proxy(server.address, Some(tls_connector(&house, Some(&papers))), &tape).await;
    let game_server = Client::connect(format!("http://{shown}")).await.unwrap();
    game_server.advertise(advertise_request(&[(CANARY_NAMES[1], 0.0)], 3)).await.expect("a game server speaks for others");

    let desk = start_recording_proxy(server.operator_address, Some(tls_connector(&house, None)), &tape).await;
    for (role, subject) in [(Role::Operator, OPERATOR), (Role::Client, CANARY_NAMES[2])] {
        assert_eq!(is_operator_allowed(desk, &badges.authorization_header(role, subject)).await, role == Role::Operator);
    }
    drop(token_of(&mut needles, Role::Operator, OPERATOR));
    said.push_str(&http_get(desk, "/metrics", "").await);

    server.terminate();
    let database = database_bytes(folder.path());
    let log = server.wait_for_exit().log;
    let at_rest = std::fs::read(folder.path().join("fireteam.db")).unwrap();
    let (audit, log): (Vec<&str>, Vec<&str>) = log.lines().partition(|line| line.contains("fireteam::audit"));
    let (audit, log) = (audit.concat(), log.concat());
    let file = std::fs::read_to_string(folder.path().join("audit.jsonl")).unwrap();
    let answers = tape.lock().unwrap().clone();
    assert_no_canary(&[("audit in the log", audit.as_bytes()), ("audit file", file.as_bytes())], &needles);
    assert!(audit.contains(OPERATOR) && file.contains(OPERATOR) && file.contains(ISSUER), "{file}");
    needles.extend(text_patterns("an operator's name", OPERATOR));
    let places = [
        ("answers", &answers[..]),
        ("refusals and metrics", said.as_bytes()),
        ("log", log.as_bytes()),
        ("open database", &database[..]),
        ("closed database", &at_rest[..]),
    ];
    assert_no_canary(&places, &needles);
    assert!(contains(&answers, b"by arrangement"), "the tap hears what TLS hides");
    assert!(contains(&at_rest, b"by arrangement"), "so does the file");
}

/// The search for canaries finds them where they are.
#[test]
fn canary_search_finds_each_pattern() {
    let needles = canary_patterns();
    for (what, needle) in &needles {
        let haystack = [b"before ".as_slice(), needle, b" after"].concat();
        assert!(patterns_found_in(&haystack, &needles).contains(what), "{what}");
    }
    assert_eq!(patterns_found_in(b"71.20.133.127 and canary", &needles), [] as [String; 0]);
    for before in ["", "x", "xy", "xyz"] {
        let text = URL_SAFE_NO_PAD.encode(format!("{before}{}after", CANARY_NAMES[0]));
        assert_eq!(patterns_found_in(text.as_bytes(), &needles).len(), 1, "{before}");
    }
}
