//! Every call of both ports, by everybody, good and bad: who is let in where. The calls come from the descriptors, so one
//! without a row of policy fails here, and so does one that lets in whom it should not.

use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use prost::Message;
use prost_types::FileDescriptorSet;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;
use tonic_types::StatusExt;

use fireteam::api::{pb, rpc_method};
use fireteam::auth::identity::Role;
use fireteam::auth::issuing_key::{CallerTokenClaims, IssuingKey};
use fireteam::auth::policy::AccessPolicy;
use fireteam::config::RateLimitRules;

use crate::support::tokens::{TokenIssuer, start_authenticated_server, start_authenticated_server_with_config};
use crate::support::scripted_server::TEST_TIMEOUT;

/// What somebody shows, and who that makes them, or the word that they are refused with.
struct TestCredential {
    label: &'static str,
    header: Option<String>,
    expected: Result<Role, &'static str>,
}

fn all_credentials(badges: &TokenIssuer) -> Vec<TestCredential> {
    let change = |change: &dyn Fn(&mut CallerTokenClaims)| {
        let mut issued = badges.claims(Role::GameServer, "eu-1");
        change(&mut issued);
        badges.key.sign_jwt(&issued).unwrap()
    };
    let (public, good) = (badges.key.public_key_pem(), badges.claims(Role::Operator, "ana"));
    let by = |header: Header| encode(&header, &good, &EncodingKey::from_secret(public.as_bytes())).unwrap();
    let hs256 = by(Header { kid: Some(badges.key.key_id()), ..Header::new(Algorithm::HS256) });
    let stranger = IssuingKey::from_seed(&[9; 32]).unwrap();
    let (_, rest) =
        badges.sign_token(Role::Operator, "ana").split_once('.').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    // {"alg":"none"}
    let none = format!("eyJhbGciOiJub25lIn0.{}.", rest.split_once('.').unwrap().0);
    let refused =
        |called, token: String, reason| TestCredential { label: called, header: Some(format!("Bearer {token}")), expected: Err(reason) };
    let known = |called, role, subject| TestCredential { label: called, header: Some(badges.authorization_header(role, subject)), expected: Ok(role) };
    vec![
        TestCredential { label: "nobody", header: None, expected: Err("NO_CREDENTIALS") },
        TestCredential { label: "basic", header: Some("Basic YTpi".into()), expected: Err("MALFORMED_CREDENTIALS") },
        refused("noise", "noise".into(), "MALFORMED_CREDENTIALS"),
        refused("expired", change(&|it| (it.iat, it.exp) = (it.iat - 120, it.iat - 60)), "CREDENTIALS_EXPIRED"),
        refused("wrong aud", change(&|it| it.aud = "elsewhere".into()), "CREDENTIALS_REJECTED"),
        refused("wrong iss", change(&|it| it.iss = "elsewhere".into()), "CREDENTIALS_REJECTED"),
        refused("unknown role", change(&|it| it.role = Some("root".into())), "CREDENTIALS_REJECTED"),
        refused("alg=none", none, "MALFORMED_CREDENTIALS"),
        refused("HS256 with the public key", hs256, "CREDENTIALS_REJECTED"),
        refused("unknown kid", stranger.sign_jwt(&good).unwrap(), "CREDENTIALS_REJECTED"),
        known("client", Role::Client, "ana"),
        known("other client", Role::Client, "ben"),
        known("server", Role::GameServer, "eu-1"),
        known("other server", Role::GameServer, "eu-2"),
        known("operator", Role::Operator, "ana"),
    ]
}

/// The paths of a descriptor set.
fn rpc_paths(descriptors: &[u8]) -> Vec<String> {
    let set = FileDescriptorSet::decode(descriptors).unwrap();
    let of_file = |file: &prost_types::FileDescriptorProto| {
        let path = |service: &prost_types::ServiceDescriptorProto| {
            let service_name = format!("{}.{}", file.package(), service.name());
            service.method.iter().map(|method| format!("/{service_name}/{}", method.name())).collect::<Vec<_>>()
        };
        file.service.iter().flat_map(path).collect::<Vec<_>>()
    };
    set.file.iter().flat_map(of_file).collect()
}

/// How one call ends that says nothing; none when it is answered, be it by a stream that goes on.
async fn call_status(channel: &Channel, path: &str, header: Option<&str>) -> Option<Status> {
    let mut grpc = tonic::client::Grpc::new(channel.clone());
    grpc.ready().await.unwrap();
    let mut request = Request::new(tokio_stream::once(()));
    if let Some(header) = header {
        request.metadata_mut().insert("authorization", header.parse().unwrap());
    }
    let path: PathAndQuery = path.parse().unwrap();
    let asked = async {
        let mut answers = match grpc.streaming(request, path, ProstCodec::<(), ()>::default()).await {
            Ok(response) => response.into_inner(),
            Err(status) => return Some(status),
        };
        answers.message().await.err()
    };
    tokio::time::timeout(TEST_TIMEOUT, asked).await.expect("an answer")
}

/// Judges one cell.
async fn check_access(channel: &Channel, path: &str, shown: &TestCredential) {
    let end = call_status(channel, path, shown.header.as_deref()).await;
    let (code, reason) = match &end {
        None => (Code::Ok, String::new()),
        Some(status) => (status.code(), status.get_details_error_info().map(|it| it.reason).unwrap_or_default()),
    };
    let cell = format!("{path} by {}: {code:?} {reason}", shown.label);
    let is_let_in = !matches!(code, Code::Unauthenticated | Code::PermissionDenied);
    match (rpc_method::method_of_path(path).access, shown.expected) {
        (AccessPolicy::Public, _) => assert!(is_let_in, "{cell}"),
        (AccessPolicy::RolesOnly(_), Err(wanted)) => {
            assert_eq!((code, &*reason), (Code::Unauthenticated, wanted), "{cell}")
        }
        (AccessPolicy::RolesOnly(roles), Ok(role)) if roles.contains(role) => assert!(is_let_in, "{cell}"),
        (AccessPolicy::RolesOnly(_), Ok(_)) => {
            assert_eq!((code, &*reason), (Code::PermissionDenied, "ROLE_NOT_ALLOWED"), "{cell}");
        }
    }
}

/// SEC-4: every call by everybody, asserted cell by cell, over real connections to both ports.
#[tokio::test]
async fn role_matrix_of_every_rpc_matches_the_policy() {
    // So many worthless proofs from one place are soon told nothing but that they are too many.
    let (house, badges) = start_authenticated_server_with_config(|config| config.rate_limits = RateLimitRules::Off).await;
    let everybody = all_credentials(&badges);
    let both = [
        tonic_health::pb::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET,
    ];
    let ports = [
        (house.app.server.address, pb::MATCHMAKING_DESCRIPTORS),
        (house.app.server.operator_address, pb::OPERATOR_DESCRIPTORS),
    ];
    let mut cells = 0;
    for (address, descriptors) in ports {
        let mut all: Vec<String> = both.iter().chain([&descriptors]).flat_map(|set| rpc_paths(set)).collect();
        // From a drained server nothing more is to be had.
        all.sort_by_key(|path| path.ends_with("/Drain"));
        assert!(8 <= all.len(), "{all:?}");
        for path in &all {
            assert!(rpc_method::is_known_path(path), "{path} has no row of policy");
            for shown in &everybody {
                // A connection of its own: streams that go on would use up the places of one.
                let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
                check_access(&channel, path, shown).await;
                cells += 1;
            }
        }
    }
    assert_eq!(cells % everybody.len(), 0);
    assert!(300 < cells, "{cells}");
    println!("{cells} cells: {} callers, each with every call of both ports", everybody.len());
}

/// SEC-4, SEC-19: what there is not is told only to those who have shown who they are.
#[tokio::test]
async fn unknown_rpc_without_credentials_is_unauthenticated() {
    let (house, badges) = start_authenticated_server().await;
    let at = format!("http://{}", house.app.server.address);
    let channel = Endpoint::from_shared(at).unwrap().connect().await.unwrap();
    for path in ["/fireteam.v1.MatchmakingService/Nothing", "/fireteam.v1.OperatorService/Drain", "/x/y"] {
        let stranger = call_status(&channel, path, None).await.unwrap();
        assert_eq!(stranger.code(), Code::Unauthenticated, "{path}");
        let operator = call_status(&channel, path, Some(&badges.authorization_header(Role::Operator, "ana"))).await.unwrap();
        assert_eq!(operator.code(), Code::Unimplemented, "{path}");
    }
    let metrics = house.app.metrics.render();
    assert!(metrics.contains("fireteam_auth_failures_total{reason=\"missing\"} 3"), "{metrics}");
}

/// SEC-4: a browser's call passes the same check.
#[tokio::test]
async fn grpc_web_calls_pass_the_same_authorization() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let (house, badges) = start_authenticated_server().await;
    let ask = async |content_type: &str, header: &str| {
        let mut socket = tokio::net::TcpStream::connect(house.app.server.address).await.unwrap();
        let head = format!(
            "POST /fireteam.v1.MatchmakingService/ChooseAction HTTP/1.1\r\nhost: x\r\ncontent-type: {content_type}\r\n\
             {header}content-length: 5\r\nconnection: close\r\n\r\n"
        );
        socket.write_all(head.as_bytes()).await.unwrap();
        socket.write_all(&[0; 5]).await.unwrap();
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).await.unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    };
    let web = "application/grpc-web+proto";
    let stranger = ask(web, "").await;
    assert!(stranger.contains("grpc-status: 16") || stranger.contains("grpc-status:16"), "{stranger}");
    let header = format!("authorization: {}\r\n", badges.authorization_header(Role::Client, "ana"));
    let known = ask(web, &header).await;
    assert!(known.contains("grpc-status: 3") || known.contains("grpc-status:3"), "an empty request: {known}");
    let disguised = ask("text/html", &header).await;
    assert!(!disguised.starts_with("HTTP/1.1 200"), "{disguised}");
}
