//! Canaries: known addresses, places and names go in everywhere, and must come out nowhere.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex};

use fireteam_client::{Client, pb};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::harness::{host, party};
use crate::process::Process;

/// Where the callers seem to be: address, degrees (data/README.md).
const CANARIES: [(&str, f64, f64); 4] = [
    ("71.20.133.126", 47.4815, -122.246),
    ("151.220.31.64", 34.0549, -118.243),
    ("25.64.232.73", 51.5074, -0.1278),
    ("219.0.62.58", 35.6629, 139.761),
];
const NAMES: [&str; 4] = ["canary-ana-5b1f", "canary-ben-77c2", "canary-cyd-0e9a", "canary-dan-41d8"];

/// What must be nowhere, with what it is.
fn needles() -> Vec<(String, Vec<u8>)> {
    let mut needles: Vec<(String, Vec<u8>)> =
        NAMES.iter().map(|name| (format!("the name {name}"), name.as_bytes().to_vec())).collect();
    for (address, latitude, longitude) in CANARIES {
        let octets = address.parse::<Ipv4Addr>().unwrap().octets();
        needles.push((format!("{address} as text"), address.as_bytes().to_vec()));
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

/// What of the canaries is in `haystack`.
fn seen_in(haystack: &[u8]) -> Vec<String> {
    let is_in = |needle: &[u8]| haystack.windows(needle.len()).any(|window| window == needle);
    needles().into_iter().filter(|(_, needle)| is_in(needle)).map(|(what, _)| what).collect()
}

/// A go-between that passes everything on and keeps what the server says. Frames of data are not compressed.
async fn tapped(server: SocketAddr) -> (SocketAddr, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let kept = Arc::new(Mutex::new(Vec::new()));
    let tape = kept.clone();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_server, mut to_server) = TcpStream::connect(server).await.unwrap().into_split();
            tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
            let tape = tape.clone();
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
    });
    (address, kept)
}

/// One caller's whole life, mistakes included. Returns the text of every refusal.
async fn whole_life(client: Client, name: &str) -> Vec<String> {
    let (connection, mut events) = client.open().await.unwrap();
    let mine = pb::MatchmakingUpdateAdvertisementRequest {
        connect_data: b"by arrangement".to_vec(),
        ..host(&[(name, 0.0)], 3)
    };
    let mut advertised = connection.advertise(mine.clone()).await.unwrap();
    advertised.heartbeat().await.unwrap();
    let mut search = client.searching(1, party(&[(&format!("{name}-too"), 0.0)]));
    let found = search.search().await.unwrap();
    let own = found.candidates.iter().find(|it| it.advertisement_id == advertised.id());
    assert!(own.is_some(), "whoever looks from the same city finds it: {found:?}");
    let measured = found.candidates.iter().map(|it| (it.advertisement_id.clone(), Some(12.5)));
    search.report_latency(pb::LatencyPhase::Quick, measured).await.unwrap();
    let held = search.reserve(advertised.id()).await.unwrap();
    events.next().await.unwrap();
    held.release().await.unwrap();
    client.choose_role(1, 1).await.unwrap();
    let configuration = pb::MatchmakingGetConfigurationRequest { matchmaking_set_id: Some(1), ..Default::default() };
    client.get_configuration(configuration).await.unwrap();

    let mut refusals = Vec::new();
    let stranger = party(&[(name, f64::NAN)]);
    refusals.push(client.searching(1, stranger).search().await.unwrap_err().to_string());
    refusals.push(client.searching(77, party(&[(name, 0.0)])).search().await.unwrap_err().to_string());
    let twice = party(&[(name, 0.0), (name, 0.0)]);
    refusals.extend(client.searching(1, twice).search().await.err().map(|it| it.to_string()));
    let forged = pb::MatchmakingDeleteAdvertisementRequest {
        advertisement_id: advertised.id().into(),
        advertisement_token: b"forged".to_vec(),
    };
    refusals.push(client.delete_advertisement(forged).await.unwrap_err().to_string());
    refusals
}

/// SEC-9, in short: no byte of an answer, of the log at its most talkative, of the metrics, or of the database and its
/// log has anybody's address, place or name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_canary_is_seen_anywhere() {
    let folder = tempfile::tempdir().unwrap();
    let places = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/dbip-tour.mmdb");
    let places = places.to_str().unwrap();
    let talkative = ["--trusted-proxies", "127.0.0.0/8", "--locality-db", places, "--log-level", "debug"];
    let server = Process::start(folder.path(), &talkative);
    let (address, tape) = tapped(server.address).await;
    let mut said = String::new();
    for ((place, ..), name) in CANARIES.iter().zip(NAMES) {
        let client = Client::connect(format!("http://{address}")).await.unwrap();
        let client = client.with_metadata("x-forwarded-for", place).unwrap();
        for refusal in whole_life(client, name).await {
            said.push_str(&refusal);
        }
    }
    said.push_str(&server.page("/metrics").await);
    server.terminate();
    let database: Vec<u8> = ["fireteam.db", "fireteam.db-wal", "fireteam.db-shm"]
        .iter()
        .filter_map(|name| std::fs::read(folder.path().join(name)).ok())
        .flatten()
        .collect();
    let ended = server.end();
    let at_rest = std::fs::read(folder.path().join("fireteam.db")).unwrap();
    let answers = tape.lock().unwrap().clone();
    for (where_, bytes) in [
        ("answers", &answers[..]),
        ("refusals and metrics", said.as_bytes()),
        ("log", ended.log.as_bytes()),
        ("open database", &database[..]),
        ("closed database", &at_rest[..]),
    ] {
        println!("{where_}: {} bytes", bytes.len());
        assert!(500 < bytes.len(), "{where_}: there is something to look through");
        assert_eq!(seen_in(bytes), [] as [String; 0], "{where_}");
    }
    let contains = |bytes: &[u8], word: &[u8]| bytes.windows(word.len()).any(|it| it == word);
    assert!(contains(&answers, b"by arrangement"), "the tap hears");
    assert!(contains(&at_rest, b"by arrangement"), "so does the file");
}

/// The search for canaries finds them where they are.
#[test]
fn a_canary_that_is_there_is_seen() {
    for (what, needle) in needles() {
        let haystack = [b"before ".as_slice(), &needle, b" after"].concat();
        assert!(seen_in(&haystack).contains(&what), "{what}");
    }
    assert_eq!(seen_in(b"71.20.133.127 and canary"), [] as [String; 0]);
}
