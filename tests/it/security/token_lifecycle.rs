//! Tokens and keys over time: streams that end with their token, key reload, and the keygen and token commands.

use std::path::Path;
use std::process::Output;

use fireteam::auth::identity::Role;
use fireteam::auth::jwt_signing_key::JwtSigningKey;
use fireteam_client::{Client, Code, Error, TokenSource};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::server_process::{ServerProcess, TEST_TIMEOUT, fireteam_command};
use crate::support::test_server::{advertise_request, party_session};
use crate::support::tokens::{AUDIENCE, ISSUER, start_authenticated_server};

/// SEC-4: a stream ends when its token and the clock tolerance have expired; the error says what to do.
#[tokio::test]
async fn stream_ends_when_its_token_expires() {
    let (server, issuer) = start_authenticated_server().await;
    let mut claims = issuer.claims(Role::Client, "ana");
    // Expired, and within the clock tolerance for one more second.
    (claims.iat, claims.exp) = (claims.iat - 60, claims.iat - 29);
    let token = issuer.key.sign_jwt(&claims).unwrap();
    let client = server.client().await.with_token_source(TokenSource::fixed(&token).unwrap());
    let (connection, mut events) = client.open_stream().await.expect("open");
    connection.advertise(advertise_request(&[("ana", 0.0)], 2)).await.expect("the token is still valid");
    let end = tokio::time::timeout(TEST_TIMEOUT, events.next_reservation_event())
        .await
        .expect("in time")
        .expect_err("the stream ends with an error");
    assert_eq!(end.code(), Some(Code::Unauthenticated), "{end}");
    assert!(end.to_string().contains("connect again with a new token"), "{end}");

    let (valid_stream, _events) =
        issuer.client_with_token(&server, Role::Client, "ana").await.open_stream().await.expect("open");
    valid_stream.search(search_request()).await.expect("a stream with a valid token continues");
    server.clock.advance_ms(3_600_000 + 30_000);
    let error =
        issuer.client_with_token(&server, Role::Client, "ana").await.search(search_request()).await.unwrap_err();
    assert_eq!(error.code(), Some(Code::Unauthenticated), "{error}");
}

fn search_request() -> fireteam_client::pb::MatchmakingSearchRequest {
    fireteam_client::pb::MatchmakingSearchRequest {
        session_composition: Some(party_session(&[("ana", 0.0)])),
        matchmaking_set_id: Some(1),
        ..Default::default()
    }
}

/// SEC-4: after a reload of the keys, cached tokens of the old keys are rejected. After a failed reload the old keys
/// stay.
#[tokio::test]
async fn auth_key_reload_invalidates_old_tokens() {
    let (server, issuer) = start_authenticated_server().await;
    let client = issuer.client_with_token(&server, Role::Client, "ana").await;
    client.search(search_request()).await.expect("a valid token");
    let authenticator = server.app.authenticator.as_ref().unwrap();
    let file = &authenticator.key_files()[0];
    std::fs::write(file, "no key").unwrap();
    assert!(authenticator.reload().is_err());
    client.search(search_request()).await.expect("the old keys stay");
    std::fs::write(file, JwtSigningKey::from_seed(&[8; 32]).unwrap().public_key_set()).unwrap();
    authenticator.reload().unwrap();
    assert_eq!(client.search(search_request()).await.unwrap_err().code(), Some(Code::Unauthenticated));
    std::fs::write(file, issuer.key.public_key_set()).unwrap();
    authenticator.reload().unwrap();
    client.search(search_request()).await.expect("valid with the old key again");
}

pub(crate) async fn http_get(address: std::net::SocketAddr, path: &str, header: &str) -> String {
    let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{header}connection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    socket.read_to_string(&mut response).await.unwrap();
    response
}

/// SEC-4: health pages need no token; metrics need the operator role.
#[tokio::test]
async fn operator_pages_require_the_right_role() {
    let folder = tempfile::tempdir().unwrap();
    let issuer = crate::support::tokens::TokenIssuer::new(&crate::support::test_server::TestClock::new());
    let auth = issuer.write_jwt_settings(folder.path());
    let on_all_interfaces = |config: &mut fireteam::config::Config| {
        config.auth = Some(auth);
        config.operator_listen = "0.0.0.0:0".parse().unwrap();
    };
    let server = crate::support::test_server::TestServer::start_with_config(on_all_interfaces).await;
    let at = std::net::SocketAddr::from(([127, 0, 0, 1], server.app.server.operator_address.port()));
    let header_of = |role| format!("authorization: {}\r\n", issuer.authorization_header(role, "ana"));
    for (path, header, expected) in [
        ("/healthz", String::new(), "200"),
        ("/readyz", String::new(), "200"),
        ("/.well-known/jwks.json", String::new(), "200"),
        ("/metrics", String::new(), "401"),
        ("/metrics", "authorization: Bearer x\r\n".into(), "401"),
        ("/metrics", header_of(Role::Client), "403"),
        ("/metrics", header_of(Role::GameServer), "403"),
        ("/metrics", header_of(Role::Operator), "200"),
    ] {
        let response = http_get(at, path, &header).await;
        assert!(response.starts_with(&format!("HTTP/1.1 {expected}")), "{path} {header}: {response}");
        assert_eq!(response.contains("# EOF"), path == "/metrics" && expected == "200", "{path} {header}");
    }
    let (server_on_loopback, _) = start_authenticated_server().await;
    let response = http_get(server_on_loopback.app.server.operator_address, "/metrics", "").await;
    assert!(response.starts_with("HTTP/1.1 200"), "loopback needs no token for metrics: {response}");
}

fn run_command(folder: &Path, arguments: &[&str]) -> Output {
    fireteam_command(folder, arguments).output().expect("run the command")
}

/// SEC-4, SEC-15: the commands create keys and tokens that a server accepts. The server reloads a replaced key file by
/// itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keygen_and_token_commands_work_with_the_server() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["one", "two"] {
        let output = run_command(folder.path(), &["keygen", "--out", name]);
        assert!(output.status.success(), "{output:?}");
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
    let search_with = async |token: &str| -> Result<(), Error> {
        let client: Client = process.client().await.with_token_source(TokenSource::fixed(token)?);
        client.search(search_request()).await.map(drop)
    };
    let (old, new) = (token("one.key.pem", "client", &["--ttl", "10m"]), token("two.key.pem", "client", &[]));
    search_with(&old).await.expect("a token of the first key");
    assert_eq!(search_with(&new).await.unwrap_err().code(), Some(Code::Unauthenticated));
    let operator = token("one.key.pem", "operator", &["--scope", "rulesets drain"]);
    assert_eq!(search_with(&operator).await.unwrap_err().code(), Some(Code::PermissionDenied));

    std::fs::copy(folder.path().join("two.pub.pem"), folder.path().join("keys.new")).unwrap();
    std::fs::rename(folder.path().join("keys.new"), folder.path().join("keys")).unwrap();
    process.log.wait_for_lines("auth keys reloaded", 1);
    search_with(&new).await.expect("a token of the replaced key");
    assert_eq!(search_with(&old).await.unwrap_err().code(), Some(Code::Unauthenticated));

    for invalid_key in [&["--key", "two.pub.pem"][..], &["--key", "absent"]] {
        let arguments = [&["token", "--issuer", ISSUER, "--subject", "ana"], invalid_key].concat();
        let refused = run_command(folder.path(), &arguments);
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    }
    let again = run_command(folder.path(), &["keygen", "--out", "one"]);
    assert_eq!(again.status.code(), Some(1), "a key in use is not replaced: {again:?}");
    process.terminate();
    let log = process.wait_for_exit().log;
    assert!(!log.contains(&old) && !log.contains(&new), "no token reaches the log");
}
