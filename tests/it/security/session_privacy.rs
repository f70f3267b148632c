//! Sessions as searchers see them: no connect data before they reserve, a probe endpoint of game servers only, and
//! with handles nothing by which two of them could compare.

use std::collections::BTreeSet;
use std::sync::Arc;

use fireteam::api::convert::RequestReader;
use fireteam::api::matchmaking_handler::MatchmakingHandler;
use fireteam::api::pb as server_pb;
use fireteam::auth::identity::Role;
use fireteam::config::{Config, PostgresUrl, RateLimitSetting, RulesetSource, StoreTarget};
use fireteam_client::{Client, Code, SearchSession, pb};
use prost::Message as _;

use crate::support::database::create_test_database;
use crate::support::queue_server::wait_until;
use crate::support::ruleset_dir::RulesetDirectory;
use crate::support::test_server::{TestClock, TestServer, party_session};
use crate::support::tokens::TokenIssuer;

/// Set whose searches tell ids.
const OPEN_SET: u32 = 1;
/// Set whose searches tell handles.
const SEALED_SET: u32 = 2;

/// Connect data that no searcher may see.
const CONNECT_DATA: &[u8] = b"canary of the host, 198.51.100.77:7777";

/// Key that a probe must know.
pub(crate) const PROBE_KEY: [u8; 16] = *b"key of the probe";

/// Ruleset of a set with one soft filter, and with `limits`.
pub(crate) fn ruleset(set_id: u32, limits: &str) -> String {
    format!(
        r#"<Ruleset Name="Set {set_id}" SetId="{set_id}">
  <Attributes><Attribute Name="skill" Type="number" Min="0" Max="50" Trust="client"/></Attributes>
  <SoftFilters><SoftFilter Attribute="skill" Weight="100%"/></SoftFilters>
  {limits}
</Ruleset>"#
    )
}

fn rulesets() -> RulesetDirectory {
    let sealed = ruleset(SEALED_SET, r#"<Limits Handles="per_searcher"/>"#);
    RulesetDirectory::with_files(&[("open.xml", &ruleset(OPEN_SET, "")), ("sealed.xml", &sealed)])
}

/// Server with these rulesets and authentication, without rate limits.
pub(crate) fn configure(config: &mut Config, folder: &RulesetDirectory, issuer: &TokenIssuer) {
    config.rulesets = RulesetSource::Directory(folder.path().to_owned());
    config.auth = Some(issuer.write_jwt_settings(folder.path()));
    config.rate_limits = RateLimitSetting::Off;
    config.token_key_file = Some(folder.path().join("token-key"));
}

/// Two servers on one Postgres, each with this configuration.
pub(crate) async fn servers_on_one_postgres(
    url: &str,
    clock: &Arc<TestClock>,
    configure: impl Fn(&mut Config),
) -> (TestServer, TestServer) {
    let start = async || {
        TestServer::start_on_clock(Arc::clone(clock), |config| {
            configure(config);
            config.store = StoreTarget::Postgres(PostgresUrl::parse(url).expect("a URL"));
        })
        .await
    };
    (start().await, start().await)
}

fn advertise(set: u32, user: &str) -> pb::MatchmakingUpdateAdvertisementRequest {
    let mut session = party_session(&[(user, 20.0)]);
    session.max_allowed_join_reservation_count = Some(4);
    pb::MatchmakingUpdateAdvertisementRequest {
        matchmaking_set_id: Some(set),
        session_composition: Some(session),
        connect_data: CONNECT_DATA.to_vec(),
        probe: Some(pb::ProbeEndpoint { port: 7_000, probe_key: PROBE_KEY.to_vec(), ..Default::default() }),
        ..Default::default()
    }
}

fn searching(client: &Client, set: u32, user: &str) -> SearchSession {
    client.new_search(set, party_session(&[(user, 20.0)]))
}

fn contains(bytes: &[u8], canary: &[u8]) -> bool {
    bytes.windows(canary.len()).any(|window| window == canary)
}

/// Failure 10: searches had the `connect_data` of every candidate, without a reservation. The whole answers are read as bytes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connect_data_is_told_on_reserve_only() {
    let (folder, issuer) = (rulesets(), TokenIssuer::new(&TestClock::new()));
    let server = TestServer::start_with_config(|config| configure(config, &folder, &issuer)).await;
    let host = issuer.client_with_token(&server, Role::GameServer, "host").await;
    let published = host.update_advertisement(advertise(OPEN_SET, "owner")).await.expect("published");
    let guest = issuer.client_with_token(&server, Role::Client, "guest").await;

    let caller = issuer.authorized_caller(&server, Role::Client, "guest");
    let handler = MatchmakingHandler::new(server.app.engine.clone());
    let session = || {
        let bytes = party_session(&[("guest", 20.0)]).encode_to_vec();
        Some(server_pb::SessionCompositionData::decode(&*bytes).expect("a session"))
    };
    let search = server_pb::SearchRequest {
        matchmaking_set_id: Some(OPEN_SET),
        session_composition: session(),
        ..Default::default()
    };
    let answer = handler.search(RequestReader::default(), &caller, search).expect("a search").encode_to_vec();
    assert!(contains(&answer, published.advertisement_id.as_bytes()), "the session is found");
    assert!(!contains(&answer, CONNECT_DATA), "its connect data is not told");

    let mut search = searching(&guest, OPEN_SET, "guest");
    let found = search.search().await.expect("a search");
    let report = server_pb::ReportLatencyRequest {
        matchmaking_set_id: Some(OPEN_SET),
        search_token: found.search_token.clone(),
        phase: server_pb::LatencyPhase::Quick.into(),
        measurements: vec![server_pb::LatencyMeasurement {
            advertisement_id: published.advertisement_id.clone(),
            round_trip_ms: Some(20.0),
            ..Default::default()
        }],
        session_composition: session(),
        ..Default::default()
    };
    let answer = handler.report_latency(&caller, report).expect("a report").encode_to_vec();
    assert!(contains(&answer, published.advertisement_id.as_bytes()), "the session is ranked");
    assert!(!contains(&answer, CONNECT_DATA), "its connect data is not told");
    let reserved = search.reserve(&published.advertisement_id).await.expect("a seat");
    assert_eq!(reserved.connect_data, CONNECT_DATA);
}

/// SEC-6: searches show a game server's endpoint with its session, after a restart too; that of a player's own machine never,
/// also if the player claims that a game server hosts it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probe_endpoint_is_told_of_game_servers_only() {
    let (folder, issuer) = (rulesets(), TokenIssuer::new(&TestClock::new()));
    let store = StoreTarget::Sqlite(folder.path().join("store.db"));
    let server = TestServer::start_with_config(|config| {
        configure(config, &folder, &issuer);
        config.store = store;
    })
    .await;
    let fleet = issuer.client_with_token(&server, Role::GameServer, "fleet").await;
    let fleet = fleet.with_metadata("x-forwarded-for", "203.0.113.9").expect("a header");
    let hosted = fleet.update_advertisement(advertise(OPEN_SET, "owner")).await.expect("published").advertisement_id;
    let player = issuer.client_with_token(&server, Role::Client, "player").await;
    let mut hosted_by_a_player = advertise(OPEN_SET, "player");
    hosted_by_a_player.probe.as_mut().expect("an endpoint").hosted = true;
    let own = player.update_advertisement(hosted_by_a_player).await.expect("published").advertisement_id;
    let expected =
        pb::ProbeEndpoint { address: vec![203, 0, 113, 9], port: 7_000, probe_key: PROBE_KEY.to_vec(), hosted: true };
    let check = async |server: &TestServer| {
        let guest = issuer.client_with_token(server, Role::Client, "guest").await;
        let found = searching(&guest, OPEN_SET, "guest").search().await.expect("a search").candidates;
        let probe = |id: &str| found.iter().find(|it| it.advertisement_id == id).expect("found").probe.clone();
        assert_eq!((probe(&hosted), probe(&own)), (Some(expected.clone()), None));
    };
    check(&server).await;
    check(&server.restart().await).await;
}

/// The other server on one Postgres tells it too. Rows are replaced and heartbeats keep it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probe_endpoint_is_told_by_the_other_server() {
    let Some(database) = create_test_database("probe_endpoint_is_told_by_the_other_server").await else { return };
    let (folder, clock) = (rulesets(), Arc::new(TestClock::new()));
    let issuer = TokenIssuer::new(&*clock);
    let (here, there) =
        servers_on_one_postgres(&database.url, &clock, |config| configure(config, &folder, &issuer)).await;
    let fleet = issuer.client_with_token(&here, Role::GameServer, "fleet").await;
    fleet.update_advertisement(advertise(OPEN_SET, "owner")).await.expect("published");
    let guest = issuer.client_with_token(&there, Role::Client, "guest").await;
    wait_until("the other server tells the endpoint", async || {
        let found = searching(&guest, OPEN_SET, "guest").search().await.expect("a search").candidates;
        found.iter().any(|it| it.probe.as_ref().is_some_and(|probe| probe.hosted && probe.port == 7_000))
    })
    .await;
}

/// An endpoint that names another machine is refused: searchers would send there. So is one that no probe can use.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_probe_endpoint_is_refused() {
    let (folder, issuer) = (rulesets(), TokenIssuer::new(&TestClock::new()));
    let server = TestServer::start_with_config(|config| configure(config, &folder, &issuer)).await;
    let fleet = issuer.client_with_token(&server, Role::GameServer, "fleet").await;
    let valid = pb::ProbeEndpoint { port: 7_000, probe_key: PROBE_KEY.to_vec(), ..Default::default() };
    let cases = [
        ("probe.address", pb::ProbeEndpoint { address: vec![198, 51, 100, 7], ..valid.clone() }),
        ("probe.address", pb::ProbeEndpoint { address: vec![7; 16], ..valid.clone() }),
        ("probe.address", pb::ProbeEndpoint { address: vec![127, 0, 0], ..valid.clone() }),
        ("probe.port", pb::ProbeEndpoint { port: 0, ..valid.clone() }),
        ("probe.port", pb::ProbeEndpoint { port: 65_536, ..valid.clone() }),
        ("probe.probe_key", pb::ProbeEndpoint { probe_key: vec![1; 15], ..valid.clone() }),
        ("probe.probe_key", pb::ProbeEndpoint { probe_key: vec![1; 33], ..valid.clone() }),
    ];
    for (field, probe) in cases {
        let request = pb::MatchmakingUpdateAdvertisementRequest { probe: Some(probe), ..advertise(OPEN_SET, "owner") };
        let error = fleet.update_advertisement(request).await.expect_err("refused");
        assert_eq!((error.code(), &*error.fields()[0].field), (Some(Code::InvalidArgument), field), "{error}");
    }
    let address = vec![127, 0, 0, 1];
    let request = pb::MatchmakingUpdateAdvertisementRequest {
        probe: Some(pb::ProbeEndpoint { address, ..valid.clone() }),
        ..advertise(OPEN_SET, "owner")
    };
    let published = fleet.update_advertisement(request).await.expect("the caller's own address");
    let heartbeat = pb::MatchmakingUpdateAdvertisementRequest {
        advertisement_id: published.advertisement_id,
        advertisement_token: published.advertisement_token,
        probe: Some(valid),
        ..Default::default()
    };
    let error = fleet.update_advertisement(heartbeat).await.expect_err("not in a heartbeat");
    assert_eq!(error.fields()[0].field, "probe");
}

/// SEC-12: with handles two searchers cannot correlate one advertisement. A handle works for its party in Reserve,
/// ReportLatency and exclusions for ten minutes; ids and others' handles do not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handles_of_two_searchers_cannot_be_compared() {
    let (folder, issuer) = (rulesets(), TokenIssuer::new(&TestClock::new()));
    let server = TestServer::start_with_config(|config| configure(config, &folder, &issuer)).await;
    let fleet = issuer.client_with_token(&server, Role::GameServer, "fleet").await;
    let mut ids = BTreeSet::new();
    for number in 0..3 {
        let request = advertise(SEALED_SET, &format!("owner {number}"));
        ids.insert(fleet.update_advertisement(request).await.expect("published").advertisement_id);
    }
    let (ada, bob) = (
        issuer.client_with_token(&server, Role::Client, "ada").await,
        issuer.client_with_token(&server, Role::Client, "bob").await,
    );
    let (mut by_ada, mut by_bob) = (searching(&ada, SEALED_SET, "ada"), searching(&bob, SEALED_SET, "bob"));
    let handles = |found: &pb::MatchmakingSearchResponse| -> BTreeSet<String> {
        assert!(found.candidates.iter().all(|it| it.probe.is_none()), "a key or an address would tell them apart");
        found.candidates.iter().map(|it| it.advertisement_id.clone()).collect()
    };
    let of_ada = handles(&by_ada.search().await.expect("a search"));
    let of_bob = handles(&by_bob.search().await.expect("a search"));
    assert_eq!((of_ada.len(), of_bob.len()), (3, 3));
    assert!(of_ada.is_disjoint(&ids) && of_bob.is_disjoint(&ids) && of_ada.is_disjoint(&of_bob));
    assert_eq!(handles(&by_ada.search().await.expect("a search")), of_ada, "within ten minutes");

    let one = of_ada.first().expect("a handle").clone();
    let measured = of_ada.iter().map(|handle| (handle.clone(), Some(20.0)));
    let ranked = by_ada.report_latency(pb::LatencyPhase::Quick, measured).await.expect("a report");
    assert_eq!(ranked.candidates.iter().map(|it| it.advertisement_id.clone()).collect::<BTreeSet<_>>(), of_ada);
    by_ada.exclude(&one);
    let rest = handles(&by_ada.search().await.expect("a search"));
    assert_eq!(rest.len(), 2);
    assert!(rest.is_subset(&of_ada) && !rest.contains(&one));

    for stranger in [ids.first().expect("an id"), of_bob.first().expect("a handle")] {
        let error = by_ada.reserve(stranger).await.expect_err("not told to this party");
        assert_eq!(error.code(), Some(Code::NotFound), "{error}");
    }
    assert_eq!(by_ada.reserve(&one).await.expect("a seat").connect_data, CONNECT_DATA);

    for _ in 0..20 {
        server.clock.advance_ms(30_000);
        by_bob.search().await.expect("a search");
    }
    assert!(handles(&by_bob.search().await.expect("a search")).is_disjoint(&of_bob), "another ten minutes");
}
