//! Role matrix: every RPC of both ports with every kind of credential. The RPCs come from the descriptors, so an RPC
//! without an access policy, or with a wrong one, fails here.

use std::collections::BTreeSet;

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
use fireteam::auth::jwt_signing_key::{CallerTokenClaims, JwtSigningKey};
use fireteam::auth::policy::AccessPolicy;
use fireteam::config::RateLimitSetting;

use crate::support::scripted_server::TEST_TIMEOUT;
use crate::support::tokens::{TokenIssuer, start_authenticated_server, start_authenticated_server_with_config};

/// A credential, and its role or the expected error reason.
struct TestCredential {
    label: &'static str,
    header: Option<String>,
    expected: Result<Role, &'static str>,
}

fn all_credentials(issuer: &TokenIssuer) -> Vec<TestCredential> {
    let change = |change: &dyn Fn(&mut CallerTokenClaims)| {
        let mut issued = issuer.claims(Role::GameServer, "eu-1");
        change(&mut issued);
        issuer.key.sign_jwt(&issued).unwrap()
    };
    let (public, good) = (issuer.key.public_key_pem(), issuer.claims(Role::Operator, "ana"));
    let by = |header: Header| encode(&header, &good, &EncodingKey::from_secret(public.as_bytes())).unwrap();
    let hs256 = by(Header { kid: Some(issuer.key.key_id().to_owned()), ..Header::new(Algorithm::HS256) });
    let unknown_key = JwtSigningKey::from_seed(&[9; 32]).unwrap();
    let (_, rest) =
        issuer.sign_token(Role::Operator, "ana").split_once('.').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    // {"alg":"none"}
    let none = format!("eyJhbGciOiJub25lIn0.{}.", rest.split_once('.').unwrap().0);
    let refused = |called, token: String, reason| TestCredential {
        label: called,
        header: Some(format!("Bearer {token}")),
        expected: Err(reason),
    };
    let accepted = |called, role, subject| TestCredential {
        label: called,
        header: Some(issuer.authorization_header(role, subject)),
        expected: Ok(role),
    };
    vec![
        TestCredential { label: "no credentials", header: None, expected: Err("NO_CREDENTIALS") },
        TestCredential { label: "basic", header: Some("Basic YTpi".into()), expected: Err("MALFORMED_CREDENTIALS") },
        refused("noise", "noise".into(), "MALFORMED_CREDENTIALS"),
        refused(
            "expired",
            change(&|claims| (claims.iat, claims.exp) = (claims.iat - 120, claims.iat - 60)),
            "CREDENTIALS_EXPIRED",
        ),
        refused("wrong aud", change(&|claims| claims.aud = "elsewhere".into()), "CREDENTIALS_REJECTED"),
        refused("wrong iss", change(&|claims| claims.iss = "elsewhere".into()), "CREDENTIALS_REJECTED"),
        refused("unknown role", change(&|claims| claims.role = Some("root".into())), "CREDENTIALS_REJECTED"),
        refused("alg=none", none, "MALFORMED_CREDENTIALS"),
        refused("HS256 with the public key", hs256, "CREDENTIALS_REJECTED"),
        refused("unknown kid", unknown_key.sign_jwt(&good).unwrap(), "CREDENTIALS_REJECTED"),
        accepted("client", Role::Client, "ana"),
        accepted("other client", Role::Client, "ben"),
        accepted("server", Role::GameServer, "eu-1"),
        accepted("other server", Role::GameServer, "eu-2"),
        accepted("operator", Role::Operator, "ana"),
        accepted("viewer", Role::Viewer, "ben"),
    ]
}

/// RPC paths of a descriptor set.
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

/// Status of a call with an empty request; `None` if it succeeds, also for a stream that stays open.
async fn call_status(channel: &Channel, path: &str, header: Option<&str>) -> Option<Status> {
    let mut grpc = tonic::client::Grpc::new(channel.clone());
    grpc.ready().await.unwrap();
    let mut request = Request::new(tokio_stream::once(()));
    if let Some(header) = header {
        request.metadata_mut().insert("authorization", header.parse().unwrap());
    }
    let path: PathAndQuery = path.parse().unwrap();
    let call = async {
        let mut answers = match grpc.streaming(request, path, ProstCodec::<(), ()>::default()).await {
            Ok(response) => response.into_inner(),
            Err(status) => return Some(status),
        };
        answers.message().await.err()
    };
    tokio::time::timeout(TEST_TIMEOUT, call).await.expect("a response in time")
}

/// Checks one RPC with one credential. Returns whether the caller is admitted.
async fn check_access(channel: &Channel, path: &str, credential: &TestCredential) -> bool {
    let end = call_status(channel, path, credential.header.as_deref()).await;
    let (code, reason) = match &end {
        None => (Code::Ok, String::new()),
        Some(status) => (status.code(), status.get_details_error_info().map(|info| info.reason).unwrap_or_default()),
    };
    let cell = format!("{path} by {}: {code:?} {reason}", credential.label);
    let is_admitted = !matches!(code, Code::Unauthenticated | Code::PermissionDenied);
    match (rpc_method::method_of_path(path).access, credential.expected) {
        (AccessPolicy::Public, _) => assert!(is_admitted, "{cell}"),
        (AccessPolicy::RolesOnly(_), Err(expected)) => {
            assert_eq!((code, &*reason), (Code::Unauthenticated, expected), "{cell}")
        }
        (AccessPolicy::RolesOnly(roles), Ok(role)) if roles.contains(role) => assert!(is_admitted, "{cell}"),
        (AccessPolicy::RolesOnly(_), Ok(_)) => {
            assert_eq!((code, &*reason), (Code::PermissionDenied, "ROLE_NOT_ALLOWED"), "{cell}");
        }
    }
    is_admitted
}

/// SEC-4: every RPC with every credential, over real connections to both ports.
#[tokio::test]
async fn role_matrix_of_every_rpc_matches_the_policy() {
    // Rate limits are off: that many invalid credentials would exceed them.
    let (server, issuer) =
        start_authenticated_server_with_config(|config| config.rate_limits = RateLimitSetting::Off).await;
    let credentials = all_credentials(&issuer);
    let both = [
        tonic_health::pb::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET,
    ];
    let ports = [
        (server.app.server.address, pb::CLIENT_PORT_SERVICE_DESCRIPTORS),
        (server.app.server.operator_address, pb::OPERATOR_DESCRIPTORS),
    ];
    let (mut cells, mut calls_of_operators, mut calls_of_viewers) = (0, BTreeSet::new(), BTreeSet::new());
    for (address, descriptors) in ports {
        let mut all: Vec<String> = both.iter().chain([&descriptors]).flat_map(|set| rpc_paths(set)).collect();
        // Drain comes last: a drained server refuses calls.
        all.sort_by_key(|path| path.ends_with("/Drain"));
        assert!(8 <= all.len(), "{all:?}");
        for path in &all {
            assert!(rpc_method::is_known_path(path), "{path} has no access policy");
            for credential in &credentials {
                // A connection per call: streams that stay open would use up the streams of one connection.
                let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
                let is_admitted = check_access(&channel, path, credential).await;
                let is_on_client_port = address == server.app.server.address;
                if is_admitted && is_on_client_port && credential.expected == Ok(Role::Operator) {
                    calls_of_operators.insert(path.clone());
                }
                if is_admitted && credential.expected == Ok(Role::Viewer) {
                    calls_of_viewers.insert(path.clone());
                }
                cells += 1;
            }
        }
    }
    assert_eq!(cells % credentials.len(), 0);
    assert!(300 < cells, "{cells}");
    // On the client port an operator only reads ratings; health and reflection are for all.
    calls_of_operators.retain(|path| path.starts_with("/fireteam."));
    let reads = ["GetLeaderboard", "GetRatingHistory", "GetRatings", "PredictOutcome"];
    let rating_reads = reads.map(|name| format!("/fireteam.v1.RatingService/{name}"));
    assert!(calls_of_operators.iter().eq(&rating_reads));
    // A viewer makes the same reads there, and on the operator port only calls that change nothing.
    calls_of_viewers.retain(|path| path.starts_with("/fireteam."));
    let views = "CheckConsistency CheckRuleset Explain GetMatch GetPlayer GetRuleset GetStatistics ListMatches ListRulesets \
                 ListTickets TryRuleset WatchOverview";
    let views = views.split_whitespace().map(|name| format!("/fireteam.v1.OperatorService/{name}"));
    assert!(calls_of_viewers.into_iter().eq(views.chain(rating_reads)));
    println!("{cells} cells: {} callers, each with every call of both ports", credentials.len());
}

/// SEC-4, SEC-19: only authenticated callers learn that an RPC does not exist.
#[tokio::test]
async fn unknown_rpc_without_credentials_is_unauthenticated() {
    let (server, issuer) = start_authenticated_server().await;
    let uri = format!("http://{}", server.app.server.address);
    let channel = Endpoint::from_shared(uri).unwrap().connect().await.unwrap();
    for path in ["/fireteam.v1.MatchmakingService/Nothing", "/fireteam.v1.OperatorService/Drain", "/x/y"] {
        let anonymous = call_status(&channel, path, None).await.unwrap();
        assert_eq!(anonymous.code(), Code::Unauthenticated, "{path}");
        let operator =
            call_status(&channel, path, Some(&issuer.authorization_header(Role::Operator, "ana"))).await.unwrap();
        assert_eq!(operator.code(), Code::Unimplemented, "{path}");
    }
    let metrics = server.app.metrics.render();
    assert!(metrics.contains("fireteam_auth_failures_total{reason=\"missing\"} 3"), "{metrics}");
}

/// SEC-4: a gRPC-Web call passes the same check.
#[tokio::test]
async fn grpc_web_calls_pass_the_same_authorization() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let (server, issuer) = start_authenticated_server().await;
    let post = async |content_type: &str, header: &str| {
        let mut socket = tokio::net::TcpStream::connect(server.app.server.address).await.unwrap();
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
    let without_token = post(web, "").await;
    assert!(without_token.contains("grpc-status: 16") || without_token.contains("grpc-status:16"), "{without_token}");
    let header = format!("authorization: {}\r\n", issuer.authorization_header(Role::Client, "ana"));
    let with_token = post(web, &header).await;
    assert!(
        with_token.contains("grpc-status: 3") || with_token.contains("grpc-status:3"),
        "an empty request: {with_token}"
    );
    let other_content_type = post("text/html", &header).await;
    assert!(!other_content_type.starts_with("HTTP/1.1 200"), "{other_content_type}");
}
