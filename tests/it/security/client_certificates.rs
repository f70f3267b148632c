//! Client certificates as identities, with the server process and real handshakes.

use fireteam::auth::identity::Role;
use fireteam::clock::SystemClock;
use tempfile::TempDir;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status};
use tonic_types::StatusExt;

use crate::support::certs::{CertificateAndKey, CertificateAuthority, write_private_file, write_server_certificate};
use crate::support::generated_client;
use crate::support::generated_client::matchmaking_service_client::MatchmakingServiceClient;
use crate::support::generated_client::operator_service_client::OperatorServiceClient;
use crate::support::scripted_server;
use crate::support::server_process::ServerProcess;
use crate::support::tokens::{AUDIENCE, ISSUER, TokenIssuer};

/// A server process that accepts client certificates and tokens, with both certificate authorities and the token
/// issuer.
struct MutualTlsServer {
    folder: TempDir,
    server: ServerProcess,
    server_ca: CertificateAuthority,
    client_ca: CertificateAuthority,
    token_issuer: TokenIssuer,
}

impl MutualTlsServer {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (server_ca, client_ca) = (CertificateAuthority::new("server"), CertificateAuthority::new("clients"));
        let token_issuer = TokenIssuer::new(&SystemClock::start());
        write_server_certificate(folder.path(), &server_ca.server_certificate());
        write_private_file(&folder.path().join("clients.pem"), &client_ca.pem);
        drop(token_issuer.write_jwt_settings(folder.path()));
        let flags = [
            &["--tls-certificate", "server.pem", "--tls-key", "server.key", "--tls-client-ca", "clients.pem"][..],
            &["--auth-keys", "jwks.json", "--auth-issuer", ISSUER, "--auth-audience", AUDIENCE],
            &["--audit-log-file", "audit.jsonl", "--store", "memory:"],
        ];
        let server = ServerProcess::start(folder.path(), &flags.concat());
        Self { folder, server, server_ca, client_ca, token_issuer }
    }

    /// New channel to either port, with an optional client certificate.
    async fn channel(&self, at: std::net::SocketAddr, certificate: Option<&CertificateAndKey>) -> Channel {
        let ca = Certificate::from_pem(&self.server_ca.pem);
        let mut tls = ClientTlsConfig::new().ca_certificate(ca).domain_name("localhost");
        if let Some(certificate) = certificate {
            tls = tls.identity(Identity::from_pem(&certificate.certificate, &certificate.key));
        }
        let endpoint = Endpoint::from_shared(format!("https://{at}")).unwrap().tls_config(tls).unwrap();
        endpoint.connect_lazy()
    }

    async fn matchmaking_client(&self, certificate: Option<&CertificateAndKey>) -> MatchmakingServiceClient<Channel> {
        MatchmakingServiceClient::new(self.channel(self.server.address, certificate).await)
    }

    async fn operator_client(&self, certificate: Option<&CertificateAndKey>) -> OperatorServiceClient<Channel> {
        OperatorServiceClient::new(self.channel(self.server.operator_address, certificate).await)
    }
}

/// Request that advertises the user ben. Only ben and game servers may send it.
fn publish_request_for_ben() -> generated_client::MatchmakingUpdateAdvertisementRequest {
    let player = generated_client::PlayerData { user_id: "ben".into(), skill: Some(1.0), ..Default::default() };
    let session = generated_client::SessionCompositionData {
        players: vec![player],
        max_allowed_join_reservation_count: Some(3),
        ..Default::default()
    };
    generated_client::MatchmakingUpdateAdvertisementRequest {
        session_composition: Some(session),
        matchmaking_set_id: Some(1),
        ..Default::default()
    }
}

fn error_reason(status: &Status) -> String {
    status.get_details_error_info().map(|info| info.reason).unwrap_or_default()
}

/// SEC-4, A2: the name in a certificate from a known CA identifies the caller on both ports. A game server acts for
/// other users, an operator makes operator calls, and neither may make the other's calls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificate_name_determines_the_role() {
    let server = MutualTlsServer::start();
    let (eu, ana) = (
        server.client_ca.client_certificate("fireteam://game_server/eu-1"),
        server.client_ca.client_certificate("fireteam://operator/ana"),
    );
    let made = server.matchmaking_client(Some(&eu)).await.update_advertisement(publish_request_for_ben()).await;
    assert!(made.unwrap().into_inner().created, "a game server acts for other users");
    let list = generated_client::ListRulesetsRequest {};
    server.operator_client(Some(&ana)).await.list_rulesets(list).await.expect("an operator call");
    for (role, error) in [
        ("game_server", server.operator_client(Some(&eu)).await.list_rulesets(list).await.unwrap_err()),
        (
            "operator",
            server.matchmaking_client(Some(&ana)).await.search(scripted_server::search_request()).await.unwrap_err(),
        ),
    ] {
        assert_eq!((error.code(), &*error_reason(&error)), (Code::PermissionDenied, "ROLE_NOT_ALLOWED"), "{role}");
        assert!(error.message().contains(role), "{error}");
    }
    let read = |name: &str| std::fs::read_to_string(server.folder.path().join(name)).unwrap();
    let audit = read("audit.jsonl") + &read("audit.rejected.jsonl");
    let lines: Vec<serde_json::Value> = audit.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let record = |at: usize| ["role", "subject", "issuer", "outcome"].map(|key| lines[at][key].as_str());
    assert_eq!(record(0), [Some("operator"), Some("ana"), Some("tls"), Some("OK")], "{audit}");
    assert_eq!(record(1), [Some("game_server"), None, None, Some("PERMISSION_DENIED")], "{audit}");
}

/// SEC-4: no certificate, a certificate with an unknown name, or one from an unknown CA gives no identity. A token
/// takes precedence over a certificate, valid or not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_or_untrusted_client_certificate_is_unauthenticated() {
    let server = MutualTlsServer::start();
    let search = async |certificate: Option<&CertificateAndKey>, header: Option<&str>| {
        let mut request = Request::new(generated_client::MatchmakingSearchRequest {
            matchmaking_set_id: Some(1),
            ..scripted_server::search_request()
        });
        if let Some(header) = header {
            request.metadata_mut().insert("authorization", header.parse().unwrap());
        }
        server.matchmaking_client(certificate).await.search(request).await
    };
    let unknown_name = server.client_ca.client_certificate("https://elsewhere.example/server/eu-1");
    for (certificate, expected) in [(None, "NO_CREDENTIALS"), (Some(&unknown_name), "CREDENTIALS_REJECTED")] {
        let error = search(certificate, None).await.unwrap_err();
        assert_eq!((error.code(), &*error_reason(&error)), (Code::Unauthenticated, expected));
    }
    // The handshake fails; the error has no details of the server.
    let forged = CertificateAuthority::new("clients").client_certificate("fireteam://operator/ana");
    let error = server
        .operator_client(Some(&forged))
        .await
        .list_rulesets(generated_client::ListRulesetsRequest {})
        .await
        .unwrap_err();
    assert!(error.metadata().is_empty() && error_reason(&error).is_empty(), "{error:?}");

    let eu = server.client_ca.client_certificate("fireteam://game_server/eu-1");
    let token = server.token_issuer.authorization_header(Role::Client, "ann");
    search(Some(&eu), Some(&token)).await.expect("the token's user searches over a game server's connection");
    let mut for_ben = Request::new(publish_request_for_ben());
    for_ben.metadata_mut().insert("authorization", token.parse().unwrap());
    let error = server.matchmaking_client(Some(&eu)).await.update_advertisement(for_ben).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument, "the token's user may not act for ben: {error}");
    let error = search(Some(&eu), Some("Bearer a.b.c")).await.unwrap_err();
    assert_eq!(error.code(), Code::Unauthenticated, "an invalid token is not ignored: {error}");
}

/// SEC-5: an advertisement belongs to the certificate's name: another connection or a renewed certificate may change
/// it, another name may not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advertisement_belongs_to_the_certificate_name() {
    let server = MutualTlsServer::start();
    let named = |uri: &str| server.client_ca.client_certificate(uri);
    let (first, renewed) = (named("fireteam://game_server/eu-1"), named("fireteam://game_server/eu-1"));
    let other = named("fireteam://game_server/eu-2");
    let made = server
        .matchmaking_client(Some(&first))
        .await
        .update_advertisement(publish_request_for_ben())
        .await
        .unwrap()
        .into_inner();
    let delete = generated_client::MatchmakingDeleteAdvertisementRequest {
        advertisement_id: made.advertisement_id,
        advertisement_token: made.advertisement_token,
    };
    let error = server.matchmaking_client(Some(&other)).await.delete_advertisement(delete.clone()).await.unwrap_err();
    assert_eq!(
        (error.code(), &*error_reason(&error)),
        (Code::PermissionDenied, "NOT_OWNER"),
        "the advertisement token does not help"
    );
    server
        .matchmaking_client(Some(&renewed))
        .await
        .delete_advertisement(delete)
        .await
        .expect("the same name may delete");
}
