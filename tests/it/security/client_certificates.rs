//! Certificates as identities, in the real server and by real handshakes: who shows which is let in as whom.

use fireteam::auth::identity::Role;
use fireteam::clock::SystemClock;
use tempfile::TempDir;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status};
use tonic_types::StatusExt;

use crate::support::tokens::{AUDIENCE, TokenIssuer, ISSUER};
use crate::support::certs::{CertificateAuthority, CertificateAndKey, write_private_file, write_server_certificate};
use crate::support::generated_client;
use crate::support::generated_client::matchmaking_service_client::MatchmakingServiceClient;
use crate::support::generated_client::operator_service_client::OperatorServiceClient;
use crate::support::server_process::ServerProcess;
use crate::support::scripted_server;

/// A server that asks for certificates and takes tokens, whoever signed its own, and whoever signs its callers'.
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
        let (authority, clients) = (CertificateAuthority::new("house"), CertificateAuthority::new("clients"));
        let badges = TokenIssuer::new(&SystemClock::start());
        write_server_certificate(folder.path(), &authority.server_certificate());
        write_private_file(&folder.path().join("clients.pem"), &clients.pem);
        drop(badges.write_jwt_settings(folder.path()));
        let flags = [
            &["--tls-certificate", "server.pem", "--tls-key", "server.key", "--tls-client-ca", "clients.pem"][..],
            &["--auth-keys", "jwks.json", "--auth-issuer", ISSUER, "--auth-audience", AUDIENCE],
            &["--audit-log-file", "audit.jsonl", "--store", "memory:"],
        ];
        let server = ServerProcess::start(folder.path(), &flags.concat());
        Self { folder, server, server_ca: authority, client_ca: clients, token_issuer: badges }
    }

    /// A new connection to either port, on which `papers` are shown.
    async fn channel(&self, at: std::net::SocketAddr, papers: Option<&CertificateAndKey>) -> Channel {
        let ca = Certificate::from_pem(&self.server_ca.pem);
        let mut tls = ClientTlsConfig::new().ca_certificate(ca).domain_name("localhost");
        if let Some(papers) = papers {
            tls = tls.identity(Identity::from_pem(&papers.certificate, &papers.key));
        }
        let endpoint = Endpoint::from_shared(format!("https://{at}")).unwrap().tls_config(tls).unwrap();
        endpoint.connect_lazy()
    }

    async fn matchmaking_client(&self, papers: Option<&CertificateAndKey>) -> MatchmakingServiceClient<Channel> {
        MatchmakingServiceClient::new(self.channel(self.server.address, papers).await)
    }

    async fn operator_client(&self, papers: Option<&CertificateAndKey>) -> OperatorServiceClient<Channel> {
        OperatorServiceClient::new(self.channel(self.server.operator_address, papers).await)
    }
}

/// An advertisement of ben, who is nobody's own but ben's.
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

/// SEC-4, A2: the name in a certificate that a known authority has signed is who is calling, on both ports: a game server
/// speaks for players who are not itself, an operator operates, and neither does what the other may.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificate_name_determines_the_role() {
    let house = MutualTlsServer::start();
    let (eu, ana) = (house.client_ca.client_certificate("fireteam://game_server/eu-1"), house.client_ca.client_certificate("fireteam://operator/ana"));
    let made = house.matchmaking_client(Some(&eu)).await.update_advertisement(publish_request_for_ben()).await;
    assert!(made.unwrap().into_inner().created, "a game server states who plays on it");
    let list = generated_client::ListRulesetsRequest {};
    house.operator_client(Some(&ana)).await.list_rulesets(list).await.expect("an operator operates");
    for (role, refused) in [
        ("server", house.operator_client(Some(&eu)).await.list_rulesets(list).await.unwrap_err()),
        ("operator", house.matchmaking_client(Some(&ana)).await.search(scripted_server::search_request()).await.unwrap_err()),
    ] {
        assert_eq!((refused.code(), &*error_reason(&refused)), (Code::PermissionDenied, "ROLE_NOT_ALLOWED"), "{role}");
        assert!(refused.message().contains(role), "{refused}");
    }
    let audit = std::fs::read_to_string(house.folder.path().join("audit.jsonl")).unwrap();
    let lines: Vec<serde_json::Value> = audit.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let who = |at: usize| ["role", "subject", "issuer", "outcome"].map(|key| lines[at][key].as_str());
    assert_eq!(who(0), [Some("operator"), Some("ana"), Some("tls"), Some("OK")], "{audit}");
    assert_eq!(who(1), [Some("game_server"), None, None, Some("PERMISSION_DENIED")], "{audit}");
}

/// SEC-4: no certificate, one that names nobody of ours, and one that a stranger has signed make nobody anybody; and a token
/// counts before a certificate, good or bad.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_or_untrusted_client_certificate_is_unauthenticated() {
    let house = MutualTlsServer::start();
    let search = async |papers: Option<&CertificateAndKey>, header: Option<&str>| {
        let mut request =
            Request::new(generated_client::MatchmakingSearchRequest { matchmaking_set_id: Some(1), ..scripted_server::search_request() });
        if let Some(header) = header {
            request.metadata_mut().insert("authorization", header.parse().unwrap());
        }
        house.matchmaking_client(papers).await.search(request).await
    };
    let elsewhere = house.client_ca.client_certificate("https://elsewhere.example/server/eu-1");
    for (papers, expected) in [(None, "NO_CREDENTIALS"), (Some(&elsewhere), "CREDENTIALS_REJECTED")] {
        let refused = search(papers, None).await.unwrap_err();
        assert_eq!((refused.code(), &*error_reason(&refused)), (Code::Unauthenticated, expected));
    }
    // Not even a handshake: what the client says of that is its own.
    let forged = CertificateAuthority::new("clients").client_certificate("fireteam://operator/ana");
    let refused = house.operator_client(Some(&forged)).await.list_rulesets(generated_client::ListRulesetsRequest {}).await.unwrap_err();
    assert!(refused.metadata().is_empty() && error_reason(&refused).is_empty(), "{refused:?}");

    let eu = house.client_ca.client_certificate("fireteam://game_server/eu-1");
    let token = house.token_issuer.authorization_header(Role::Client, "ann");
    search(Some(&eu), Some(&token)).await.expect("ann searches over a game server's connection, for herself");
    let mut for_ben = Request::new(publish_request_for_ben());
    for_ben.metadata_mut().insert("authorization", token.parse().unwrap());
    let refused = house.matchmaking_client(Some(&eu)).await.update_advertisement(for_ben).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "and speaks for nobody else: {refused}");
    let refused = search(Some(&eu), Some("Bearer a.b.c")).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated, "who shows a token means it: {refused}");
}

/// SEC-5: what somebody has advertised over one connection is theirs over another, with a renewed certificate of the same
/// name, and nobody's with another name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advertisement_belongs_to_the_certificate_name() {
    let house = MutualTlsServer::start();
    let named = |uri: &str| house.client_ca.client_certificate(uri);
    let (first, renewed) = (named("fireteam://game_server/eu-1"), named("fireteam://game_server/eu-1"));
    let other = named("fireteam://game_server/eu-2");
    let made = house.matchmaking_client(Some(&first)).await.update_advertisement(publish_request_for_ben()).await.unwrap().into_inner();
    let delete = generated_client::MatchmakingDeleteAdvertisementRequest {
        advertisement_id: made.advertisement_id,
        advertisement_token: made.advertisement_token,
    };
    let refused = house.matchmaking_client(Some(&other)).await.delete_advertisement(delete.clone()).await.unwrap_err();
    assert_eq!((refused.code(), &*error_reason(&refused)), (Code::PermissionDenied, "NOT_OWNER"), "its token is of no use");
    house.matchmaking_client(Some(&renewed)).await.delete_advertisement(delete).await.expect("it is its own");
}
