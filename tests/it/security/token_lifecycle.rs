//! Tokens and keys over time: streams that end with their token, keys that change while serving, and the commands.

use std::path::Path;
use std::process::Output;

use fireteam::auth::identity::Role;
use fireteam::auth::issuing_key::IssuingKey;
use fireteam_client::{Client, Code, Error, TokenSource};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::tokens::{AUDIENCE, ISSUER, start_authenticated_server};
use crate::support::test_server::{advertise_request, party_session};
use crate::support::server_process::{TEST_TIMEOUT, ServerProcess, fireteam_command};

/// SEC-4: a stream outlives its token by what clocks may differ by, and says what to do.
#[tokio::test]
async fn stream_ends_when_its_token_expires() {
    let (house, badges) = start_authenticated_server().await;
    let mut issued = badges.claims(Role::Client, "ana");
    // Run out, and taken for one second more.
    (issued.iat, issued.exp) = (issued.iat - 60, issued.iat - 29);
    let token = badges.key.sign_jwt(&issued).unwrap();
    let client = house.client().await.with_token_source(TokenSource::fixed(&token).unwrap());
    let (connection, mut events) = client.open_stream().await.expect("open");
    connection.advertise(advertise_request(&[("ana", 0.0)], 2)).await.expect("the stream is good until then");
    let end = tokio::time::timeout(TEST_TIMEOUT, events.next()).await.expect("in time").expect_err("the end");
    assert_eq!(end.code(), Some(Code::Unauthenticated), "{end}");
    assert!(end.to_string().contains("connect again with a new token"), "{end}");

    let (lasting, _events) = badges.client_with_token(&house, Role::Client, "ana").await.open_stream().await.expect("open");
    lasting.search(search_request()).await.expect("a good token's stream goes on");
    house.clock.advance_ms(3_600_000 + 30_000);
    let error = badges.client_with_token(&house, Role::Client, "ana").await.search(search_request()).await.unwrap_err();
    assert_eq!(error.code(), Some(Code::Unauthenticated), "{error}");
}

fn search_request() -> fireteam_client::pb::MatchmakingSearchRequest {
    fireteam_client::pb::MatchmakingSearchRequest {
        session_composition: Some(party_session(&[("ana", 0.0)])),
        matchmaking_set_id: Some(1),
        ..Default::default()
    }
}

/// SEC-4: with other keys, what was remembered of the old ones is worth nothing; with a bad file the old ones stay.
#[tokio::test]
async fn auth_key_reload_invalidates_old_tokens() {
    let (house, badges) = start_authenticated_server().await;
    let client = badges.client_with_token(&house, Role::Client, "ana").await;
    client.search(search_request()).await.expect("known");
    let authenticator = house.app.authenticator.as_ref().unwrap();
    let file = &authenticator.key_files()[0];
    std::fs::write(file, "no key").unwrap();
    assert!(authenticator.reload().is_err());
    client.search(search_request()).await.expect("still known");
    std::fs::write(file, IssuingKey::from_seed(&[8; 32]).unwrap().public_key_set()).unwrap();
    authenticator.reload().unwrap();
    assert_eq!(client.search(search_request()).await.unwrap_err().code(), Some(Code::Unauthenticated));
    std::fs::write(file, badges.key.public_key_set()).unwrap();
    authenticator.reload().unwrap();
    client.search(search_request()).await.expect("known again");
}

pub(crate) async fn http_get(address: std::net::SocketAddr, path: &str, header: &str) -> String {
    let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n{header}connection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    answer
}

/// SEC-4: balancers ask for health and need no token; metrics are the operators'.
#[tokio::test]
async fn operator_pages_require_the_right_role() {
    let folder = tempfile::tempdir().unwrap();
    let badges = crate::support::tokens::TokenIssuer::new(&crate::support::test_server::TestClock::new());
    let auth = badges.write_jwt_settings(folder.path());
    let anywhere = |config: &mut fireteam::config::Config| {
        config.auth = Some(auth);
        config.operator_listen = "0.0.0.0:0".parse().unwrap();
    };
    let house = crate::support::test_server::TestServer::start_with_config(anywhere).await;
    let at = std::net::SocketAddr::from(([127, 0, 0, 1], house.app.server.operator_address.port()));
    let shown = |role| format!("authorization: {}\r\n", badges.authorization_header(role, "ana"));
    for (path, header, wanted) in [
        ("/healthz", String::new(), "200"),
        ("/readyz", String::new(), "200"),
        ("/.well-known/jwks.json", String::new(), "200"),
        ("/metrics", String::new(), "401"),
        ("/metrics", "authorization: Bearer x\r\n".into(), "401"),
        ("/metrics", shown(Role::Client), "403"),
        ("/metrics", shown(Role::GameServer), "403"),
        ("/metrics", shown(Role::Operator), "200"),
    ] {
        let answer = http_get(at, path, &header).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {wanted}")), "{path} {header}: {answer}");
        assert_eq!(answer.contains("# EOF"), path == "/metrics" && wanted == "200", "{path} {header}");
    }
    let (here, _) = start_authenticated_server().await;
    let answer = http_get(here.app.server.operator_address, "/metrics", "").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "whatever gathers metrics on this machine has no token: {answer}");
}

fn run_command(folder: &Path, arguments: &[&str]) -> Output {
    fireteam_command(folder, arguments).output().expect("it runs")
}

/// SEC-4, SEC-15: the commands make a key and tokens that a server takes; the server notices another key by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keygen_and_token_commands_work_with_the_server() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["one", "two"] {
        let made = run_command(folder.path(), &["keygen", "--out", name]);
        assert!(made.status.success(), "{made:?}");
    }
    let token = |key: &str, role: &str, more: &[&str]| {
        let arguments =
            [&["token", "--key", key, "--issuer", ISSUER, "--subject", "ana", "--role", role], more].concat();
        let signed = run_command(folder.path(), &arguments);
        assert!(signed.status.success(), "{signed:?}");
        String::from_utf8(signed.stdout).unwrap().trim().to_owned()
    };
    std::fs::copy(folder.path().join("one.jwks.json"), folder.path().join("keys")).unwrap();
    let settings = ["--auth-keys", "keys", "--auth-issuer", ISSUER, "--auth-audience", AUDIENCE, "--store", "memory:"];
    let process = ServerProcess::start(folder.path(), &settings);
    let shown = async |token: &str| -> Result<(), Error> {
        let client: Client = process.client().await.with_token_source(TokenSource::fixed(token)?);
        client.search(search_request()).await.map(drop)
    };
    let (old, new) = (token("one.key.pem", "client", &["--ttl", "10m"]), token("two.key.pem", "client", &[]));
    shown(&old).await.expect("the key that it was started with");
    assert_eq!(shown(&new).await.unwrap_err().code(), Some(Code::Unauthenticated));
    let operator = token("one.key.pem", "operator", &["--scope", "rulesets drain"]);
    assert_eq!(shown(&operator).await.unwrap_err().code(), Some(Code::PermissionDenied));

    std::fs::copy(folder.path().join("two.pub.pem"), folder.path().join("keys.new")).unwrap();
    std::fs::rename(folder.path().join("keys.new"), folder.path().join("keys")).unwrap();
    process.log.wait_for_lines("auth keys replaced", 1);
    shown(&new).await.expect("the key that it was given");
    assert_eq!(shown(&old).await.unwrap_err().code(), Some(Code::Unauthenticated));

    for wrong in [&["--key", "two.pub.pem"][..], &["--key", "absent"]] {
        let arguments = [&["token", "--issuer", ISSUER, "--subject", "ana"], wrong].concat();
        let refused = run_command(folder.path(), &arguments);
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    }
    let again = run_command(folder.path(), &["keygen", "--out", "one"]);
    assert_eq!(again.status.code(), Some(1), "a key in use is not replaced: {again:?}");
    process.terminate();
    let log = process.wait_for_exit().log;
    assert!(!log.contains(&old) && !log.contains(&new), "no token reaches the log");
}
