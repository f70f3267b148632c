//! Certificates as identities, in the real server and by real handshakes: who shows which is let in as whom.

use fireteam::auth::identity::Role;
use fireteam::clock::SystemClock;
use tempfile::TempDir;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status};
use tonic_types::StatusExt;

use crate::badges::{AUDIENCE, Badges, ISSUER};
use crate::papers::{Authority, Papers, write, write_server};
use crate::plain;
use crate::plain::matchmaking_service_client::MatchmakingServiceClient;
use crate::plain::operator_service_client::OperatorServiceClient;
use crate::process::Process;
use crate::stage;

/// A server that asks for certificates and takes tokens, whoever signed its own, and whoever signs its callers'.
struct House {
    folder: TempDir,
    server: Process,
    authority: Authority,
    clients: Authority,
    badges: Badges,
}

impl House {
    fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (authority, clients) = (Authority::new("house"), Authority::new("clients"));
        let badges = Badges::new(&SystemClock::start());
        write_server(folder.path(), &authority.server());
        write(&folder.path().join("clients.pem"), &clients.pem);
        drop(badges.auth(folder.path()));
        let flags = [
            &["--tls-certificate", "server.pem", "--tls-key", "server.key", "--tls-client-ca", "clients.pem"][..],
            &["--auth-keys", "jwks.json", "--auth-issuer", ISSUER, "--auth-audience", AUDIENCE],
            &["--audit-file", "audit.jsonl", "--store", "memory:"],
        ];
        let server = Process::start(folder.path(), &flags.concat());
        Self { folder, server, authority, clients, badges }
    }

    /// A new connection to either port, on which `papers` are shown.
    async fn channel(&self, at: std::net::SocketAddr, papers: Option<&Papers>) -> Channel {
        let ca = Certificate::from_pem(&self.authority.pem);
        let mut tls = ClientTlsConfig::new().ca_certificate(ca).domain_name("localhost");
        if let Some(papers) = papers {
            tls = tls.identity(Identity::from_pem(&papers.certificate, &papers.key));
        }
        let endpoint = Endpoint::from_shared(format!("https://{at}")).unwrap().tls_config(tls).unwrap();
        endpoint.connect_lazy()
    }

    async fn player(&self, papers: Option<&Papers>) -> MatchmakingServiceClient<Channel> {
        MatchmakingServiceClient::new(self.channel(self.server.address, papers).await)
    }

    async fn operator(&self, papers: Option<&Papers>) -> OperatorServiceClient<Channel> {
        OperatorServiceClient::new(self.channel(self.server.operator_address, papers).await)
    }
}

/// An advertisement of ben, who is nobody's own but ben's.
fn publish_of_ben() -> plain::MatchmakingUpdateAdvertisementRequest {
    let player = plain::PlayerData { user_id: "ben".into(), skill: Some(1.0), ..Default::default() };
    let session = plain::SessionCompositionData {
        players: vec![player],
        max_allowed_join_reservation_count: Some(3),
        ..Default::default()
    };
    plain::MatchmakingUpdateAdvertisementRequest {
        session_composition: Some(session),
        matchmaking_set_id: Some(1),
        ..Default::default()
    }
}

fn reason(status: &Status) -> String {
    status.get_details_error_info().map(|info| info.reason).unwrap_or_default()
}

/// SEC-4, A2: the name in a certificate that a known authority has signed is who is calling, on both ports: a game server
/// speaks for players who are not itself, an operator operates, and neither does what the other may.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_is_a_role() {
    let house = House::open();
    let (eu, ana) = (house.clients.client("fireteam://server/eu-1"), house.clients.client("fireteam://operator/ana"));
    let made = house.player(Some(&eu)).await.update_advertisement(publish_of_ben()).await;
    assert!(made.unwrap().into_inner().created, "a game server states who plays on it");
    let list = plain::ListRulesetsRequest {};
    house.operator(Some(&ana)).await.list_rulesets(list).await.expect("an operator operates");
    for (role, refused) in [
        ("server", house.operator(Some(&eu)).await.list_rulesets(list).await.unwrap_err()),
        ("operator", house.player(Some(&ana)).await.search(stage::search()).await.unwrap_err()),
    ] {
        assert_eq!((refused.code(), &*reason(&refused)), (Code::PermissionDenied, "ROLE_NOT_ALLOWED"), "{role}");
        assert!(refused.message().contains(role), "{refused}");
    }
    let audit = std::fs::read_to_string(house.folder.path().join("audit.jsonl")).unwrap();
    let lines: Vec<serde_json::Value> = audit.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let who = |at: usize| ["role", "subject", "issuer", "outcome"].map(|key| lines[at][key].as_str());
    assert_eq!(who(0), [Some("operator"), Some("ana"), Some("tls"), Some("OK")], "{audit}");
    assert_eq!(who(1), [Some("server"), None, None, Some("PERMISSION_DENIED")], "{audit}");
}

/// SEC-4: no certificate, one that names nobody of ours, and one that a stranger has signed make nobody anybody; and a token
/// counts before a certificate, good or bad.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_shows_nothing_of_worth_is_nobody() {
    let house = House::open();
    let search = async |papers: Option<&Papers>, header: Option<&str>| {
        let mut request =
            Request::new(plain::MatchmakingSearchRequest { matchmaking_set_id: Some(1), ..stage::search() });
        if let Some(header) = header {
            request.metadata_mut().insert("authorization", header.parse().unwrap());
        }
        house.player(papers).await.search(request).await
    };
    let elsewhere = house.clients.client("https://elsewhere.example/server/eu-1");
    for (papers, expected) in [(None, "NO_CREDENTIALS"), (Some(&elsewhere), "CREDENTIALS_REJECTED")] {
        let refused = search(papers, None).await.unwrap_err();
        assert_eq!((refused.code(), &*reason(&refused)), (Code::Unauthenticated, expected));
    }
    // Not even a handshake: what the client says of that is its own.
    let forged = Authority::new("clients").client("fireteam://operator/ana");
    let refused = house.operator(Some(&forged)).await.list_rulesets(plain::ListRulesetsRequest {}).await.unwrap_err();
    assert!(refused.metadata().is_empty() && reason(&refused).is_empty(), "{refused:?}");

    let eu = house.clients.client("fireteam://server/eu-1");
    let token = house.badges.header(Role::Client, "ann");
    search(Some(&eu), Some(&token)).await.expect("ann searches over a game server's connection, for herself");
    let mut for_ben = Request::new(publish_of_ben());
    for_ben.metadata_mut().insert("authorization", token.parse().unwrap());
    let refused = house.player(Some(&eu)).await.update_advertisement(for_ben).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "and speaks for nobody else: {refused}");
    let refused = search(Some(&eu), Some("Bearer a.b.c")).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated, "who shows a token means it: {refused}");
}

/// SEC-5: what somebody has advertised over one connection is theirs over another, with a renewed certificate of the same
/// name, and nobody's with another name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_certificate_has_advertised_is_its_names() {
    let house = House::open();
    let named = |uri: &str| house.clients.client(uri);
    let (first, renewed) = (named("fireteam://server/eu-1"), named("fireteam://server/eu-1"));
    let other = named("fireteam://server/eu-2");
    let made = house.player(Some(&first)).await.update_advertisement(publish_of_ben()).await.unwrap().into_inner();
    let delete = plain::MatchmakingDeleteAdvertisementRequest {
        advertisement_id: made.advertisement_id,
        advertisement_token: made.advertisement_token,
    };
    let refused = house.player(Some(&other)).await.delete_advertisement(delete.clone()).await.unwrap_err();
    assert_eq!((refused.code(), &*reason(&refused)), (Code::PermissionDenied, "NOT_OWNER"), "its token is of no use");
    house.player(Some(&renewed)).await.delete_advertisement(delete).await.expect("it is its own");
}
