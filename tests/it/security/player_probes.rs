//! Probe endpoints of players' own machines: told only where ruleset and host both want it, and only to searchers for whom the
//! session is among the best after the quick phase.

use std::sync::Arc;

use fireteam::auth::identity::Role;
use fireteam::config::StoreTarget;
use fireteam_client::{Client, Code, SearchSession, pb};

use crate::security::session_privacy::{PROBE_KEY, configure, ruleset, servers_on_one_postgres};
use crate::support::database::create_test_database;
use crate::support::queue_server::wait_until;
use crate::support::ruleset_dir::RulesetDirectory;
use crate::support::test_server::{TestClock, TestServer, party_session};
use crate::support::tokens::TokenIssuer;

/// Set whose ruleset lets the best two be probed.
const PROBED_SET: u32 = 1;
/// Set whose ruleset does not.
const SILENT_SET: u32 = 2;
/// Set that lets players be probed, and tells handles.
const SEALED_SET: u32 = 3;

/// Set that lets players be probed, and keeps blocked players apart.
const AVOIDING_SET: u32 = 4;

fn rulesets() -> RulesetDirectory {
    let probed = r#"<Latency ProbePlayers="involved" InvolvedProbe="2"/>"#;
    let files = [
        ("probed.xml", ruleset(PROBED_SET, probed)),
        ("silent.xml", ruleset(SILENT_SET, "")),
        ("avoiding.xml", ruleset(AVOIDING_SET, &format!(r#"{probed}<Avoid Whom="blocked" How="never"/>"#))),
        ("sealed.xml", ruleset(SEALED_SET, &format!(r#"{probed}<Limits Handles="per_searcher"/>"#))),
    ];
    let files: Vec<(&str, &str)> = files.iter().map(|(name, xml)| (*name, &**xml)).collect();
    RulesetDirectory::with_files(&files)
}

/// Advertises a session of a player with this skill at the address 203.0.113.`place`. Returns its id.
async fn advertise(client: &Client, set: u32, user: &str, (skill, place): (f64, u8), publishes: bool) -> String {
    let mut session = party_session(&[(user, skill)]);
    session.max_allowed_join_reservation_count = Some(4);
    // A claim of the client about who hosts is ignored.
    let probe = pb::ProbeEndpoint { port: 7_000, probe_key: PROBE_KEY.to_vec(), hosted: true, ..Default::default() };
    let client = client.clone().with_metadata("x-forwarded-for", &format!("203.0.113.{place}")).expect("a header");
    let request = pb::MatchmakingUpdateAdvertisementRequest {
        matchmaking_set_id: Some(set),
        session_composition: Some(session),
        probe: publishes.then_some(probe),
        ..Default::default()
    };
    let answer = client.update_advertisement(request).await.expect("published");
    let is_ignored = answer.ignored_fields.iter().any(|field| field == "probe");
    let is_game_server = user == "owner";
    assert_eq!(is_ignored, publishes && set == SILENT_SET && !is_game_server, "{:?}", answer.ignored_fields);
    answer.advertisement_id
}

/// Hosts of one set: three players who publish an endpoint, nearest in skill to a searcher of 20 first; one who does not, as
/// near as the second; and a game server.
struct Hosts {
    players: [String; 3],
    private: String,
    server: String,
}

impl Hosts {
    async fn advertise(server: &TestServer, issuer: &TokenIssuer, set: u32) -> Self {
        let player = async |name: &str, place: (f64, u8), publishes: bool| {
            let user = format!("{name} {set}");
            let client = issuer.client_with_token(server, Role::Client, &user).await;
            advertise(&client, set, &user, place, publishes).await
        };
        let fleet = issuer.client_with_token(server, Role::GameServer, "fleet").await;
        Self {
            players: [
                player("ann", (21.0, 1), true).await,
                player("bob", (23.0, 2), true).await,
                player("cyd", (40.0, 3), true).await,
            ],
            private: player("dan", (22.0, 4), false).await,
            server: advertise(&fleet, set, "owner", (50.0, 9), true).await,
        }
    }
}

fn searching(client: &Client, set: u32) -> SearchSession {
    client.new_search(set, party_session(&[("guest", 20.0)]))
}

fn ids(candidates: &[pb::Candidate]) -> Vec<&str> {
    candidates.iter().map(|candidate| &*candidate.advertisement_id).collect()
}

/// The endpoint of a player's machine at 203.0.113.`place`.
fn endpoint(id: &str, place: u8) -> pb::CandidateProbe {
    let probe = pb::ProbeEndpoint {
        address: vec![203, 0, 113, place],
        port: 7_000,
        probe_key: PROBE_KEY.to_vec(),
        hosted: false,
    };
    pb::CandidateProbe { advertisement_id: id.to_owned(), probe: Some(probe) }
}

/// SEC-6, SEC-9: Search tells no endpoint of a player's machine. After the quick phase searchers receive the endpoints of those among
/// the best two whose hosts published one; unprobed players stay, and those who could answer and did not are dropped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_of_the_best_players_are_told_after_the_quick_phase() {
    let (folder, issuer) = (rulesets(), TokenIssuer::new(&TestClock::new()));
    let store = StoreTarget::Sqlite(folder.path().join("store.db"));
    let server = TestServer::start_with_config(|config| {
        configure(config, &folder, &issuer);
        config.store = store;
    })
    .await;
    let hosts = Hosts::advertise(&server, &issuer, PROBED_SET).await;
    let [ann, bob, cyd] = &hosts.players;
    let check = async |server: &TestServer| {
        let guest = issuer.client_with_token(server, Role::Client, "guest").await;
        let mut search = searching(&guest, PROBED_SET);
        let found = search.search().await.expect("a search").candidates;
        assert_eq!(found.len(), 5);
        let with_endpoint = found.iter().filter(|candidate| candidate.probe.is_some());
        assert_eq!(with_endpoint.map(|it| &*it.advertisement_id).collect::<Vec<_>>(), [&*hosts.server]);

        // The private host was reached in another way, by the game's own relay for example.
        let measured =
            [(ann, None), (bob, None), (cyd, None), (&hosts.private, Some(30.0)), (&hosts.server, Some(20.0))];
        let measured = measured.map(|(id, ms)| (id.clone(), ms));
        let quick = search.report_latency(pb::LatencyPhase::Quick, measured).await.expect("ranked");
        assert_eq!(ids(&quick.candidates), [ann, &hosts.private, bob, cyd, &*hosts.server]);
        assert_eq!(
            quick.probes,
            [endpoint(ann, 1)],
            "the second best has published none, the third is not among the best"
        );
        assert!(quick.involved_phase_may_start, "both that could be probed have answered");

        let involved = [(ann.clone(), Some(15.0)), (hosts.private.clone(), Some(30.0)), (bob.clone(), None)];
        let involved = search.report_latency(pb::LatencyPhase::Involved, involved).await.expect("ranked");
        assert_eq!(ids(&involved.candidates), [ann, &*hosts.private]);
        assert_eq!(involved.probes, []);

        // Without an answer of those that could be probed, they are dropped. Another search: in this one, bob is silent.
        let mut search = searching(&guest, PROBED_SET);
        search.search().await.expect("a search");
        let silent =
            [(ann.clone(), None), (bob.clone(), None), (hosts.private.clone(), None), (hosts.server.clone(), None)];
        let quick = search.report_latency(pb::LatencyPhase::Quick, silent).await.expect("ranked");
        assert_eq!(ids(&quick.candidates), [ann, bob]);
        assert_eq!(quick.probes, [endpoint(ann, 1), endpoint(bob, 2)]);
        assert!(!quick.involved_phase_may_start);
    };
    check(&server).await;
    check(&server.restart().await).await;
}

/// Without the ruleset's word searchers receive no endpoint of a player, and none with handles: they would be comparable.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_of_players_are_not_told_without_the_ruleset_or_with_handles() {
    let (folder, issuer) = (rulesets(), TokenIssuer::new(&TestClock::new()));
    let server = TestServer::start_with_config(|config| configure(config, &folder, &issuer)).await;
    for set in [SILENT_SET, SEALED_SET] {
        Hosts::advertise(&server, &issuer, set).await;
        let guest = issuer.client_with_token(&server, Role::Client, "guest").await;
        let mut search = searching(&guest, set);
        let found = search.search().await.expect("a search").candidates;
        assert_eq!(found.iter().filter(|candidate| candidate.probe.is_some()).count(), usize::from(set == SILENT_SET));
        let measured = ids(&found).into_iter().map(|id| (id.to_owned(), Some(20.0))).collect::<Vec<_>>();
        let quick = search.report_latency(pb::LatencyPhase::Quick, measured).await.expect("ranked");
        assert_eq!((quick.candidates.len(), quick.probes.len()), (5, 0), "set {set}");
        let unmeasured = ids(&found).into_iter().map(|id| (id.to_owned(), None)).collect::<Vec<_>>();
        let quick = search.report_latency(pb::LatencyPhase::Quick, unmeasured).await.expect("ranked");
        let kept = if set == SILENT_SET { 0 } else { 3 };
        assert_eq!(quick.candidates.len(), kept, "set {set}: those that no probe can reach stay");
    }
}

/// Claims of a client: an address of another machine is refused, and a searcher learns nothing of a session that refuses it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_of_players_cannot_name_others_or_be_asked_for() {
    let (folder, issuer) = (rulesets(), TokenIssuer::new(&TestClock::new()));
    let server = TestServer::start_with_config(|config| configure(config, &folder, &issuer)).await;
    let ann = issuer.client_with_token(&server, Role::Client, "ann").await;
    let probe =
        pb::ProbeEndpoint { address: vec![198, 51, 100, 7], port: 7_000, probe_key: PROBE_KEY.to_vec(), hosted: false };
    let request = pb::MatchmakingUpdateAdvertisementRequest {
        matchmaking_set_id: Some(PROBED_SET),
        session_composition: Some(party_session(&[("ann", 20.0)])),
        probe: Some(probe),
        ..Default::default()
    };
    let error = ann.update_advertisement(request).await.expect_err("another machine's address");
    assert_eq!((error.code(), &*error.fields()[0].field), (Some(Code::InvalidArgument), "probe.address"), "{error}");

    // A full session, one in another silo, and a game server that waits for a match: searchers that they refuse learn nothing by their ids.
    let mut full = party_session(&[("ann", 20.0)]);
    full.max_allowed_join_reservation_count = Some(0);
    let mut elsewhere = party_session(&[("ann", 20.0)]);
    (elsewhere.silo_id, elsewhere.max_allowed_join_reservation_count) = (Some(7), Some(4));
    let game_server = issuer.client_with_token(&server, Role::GameServer, "fleet").await;
    let mut waiting = party_session(&[("owner", 20.0)]);
    waiting.max_allowed_join_reservation_count = Some(4);
    let kind = pb::AdvertisementKind::GameServer;
    let all = [(&ann, full, None), (&ann, elsewhere, None), (&game_server, waiting, Some(kind))];
    for (host, session, kind) in all {
        let request = pb::MatchmakingUpdateAdvertisementRequest {
            matchmaking_set_id: Some(PROBED_SET),
            session_composition: Some(session),
            probe: Some(pb::ProbeEndpoint { port: 7_000, probe_key: PROBE_KEY.to_vec(), ..Default::default() }),
            kind: kind.unwrap_or_default().into(),
            ..Default::default()
        };
        let id = host.update_advertisement(request).await.expect("published").advertisement_id;
        let guest = issuer.client_with_token(&server, Role::Client, "guest").await;
        let mut search = searching(&guest, PROBED_SET);
        search.search().await.expect("a search");
        for measured in [Some(0.0), None] {
            let quick = search.report_latency(pb::LatencyPhase::Quick, [(id.clone(), measured)]).await.expect("ranked");
            assert_eq!((quick.candidates.len(), quick.probes.len()), (0, 0));
        }
    }
}

/// The other server on one Postgres tells the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_of_players_are_told_by_the_other_server() {
    let Some(database) = create_test_database("endpoints_of_players_are_told_by_the_other_server").await else {
        return;
    };
    let (folder, clock) = (rulesets(), Arc::new(TestClock::new()));
    let issuer = TokenIssuer::new(&*clock);
    let (here, there) =
        servers_on_one_postgres(&database.url, &clock, |config| configure(config, &folder, &issuer)).await;
    let ann = issuer.client_with_token(&here, Role::Client, "ann").await;
    let id = advertise(&ann, PROBED_SET, "ann", (20.0, 1), true).await;
    let guest = issuer.client_with_token(&there, Role::Client, "guest").await;
    wait_until("the other server tells the endpoint", async || {
        let mut search = searching(&guest, PROBED_SET);
        let found = search.search().await.expect("a search").candidates;
        assert!(found.iter().all(|candidate| candidate.probe.is_none()));
        let quick = search.report_latency(pb::LatencyPhase::Quick, [(id.clone(), None)]).await.expect("ranked");
        quick.probes == [endpoint(&id, 1)]
    })
    .await;
}

/// A host who has blocked the searcher is neither ranked nor are its endpoint or its place known, also if the searcher names its id.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_of_players_who_avoid_the_searcher_are_not_told() {
    let (folder, issuer) = (rulesets(), TokenIssuer::new(&TestClock::new()));
    let server = TestServer::start_with_config(|config| configure(config, &folder, &issuer)).await;
    let ann = issuer.client_with_token(&server, Role::Client, "ann").await;
    let id = advertise(&ann, AVOIDING_SET, "ann", (20.0, 1), true).await;
    let guest = issuer.client_with_token(&server, Role::Client, "guest").await;
    let mut search = searching(&guest, AVOIDING_SET);
    search.search().await.expect("a search");
    let mut probes = Vec::new();
    for blocked in [Vec::new(), vec!["guest".to_owned()]] {
        let block = pb::MatchmakingUpdateBlockListRequest { add_user_ids: blocked, ..Default::default() };
        ann.update_block_list(block).await.expect("a change");
        let quick = search.report_latency(pb::LatencyPhase::Quick, [(id.clone(), None)]).await.expect("ranked");
        probes.push((quick.candidates.len(), quick.probes));
    }
    assert_eq!(probes, [(1, vec![endpoint(&id, 1)]), (0, Vec::new())]);
}
