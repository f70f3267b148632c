//! Server-side ratings in searches: filters, scores, reservations and explanations use the same rating as queues, and a
//! changed rating reaches live advertisements on every server.

use fireteam_client::{Client, pb};

use crate::store::replicas::Replicas;
use crate::support::database::create_test_database;
use crate::support::generated_client::{self, ImportRatingsRequest, RatingRow};
use crate::support::queue_server::{
    QueuedParty, SET_ID, advertise_host, duel_ruleset, enter_request, game_server_advertisement, operator_client,
    servers_on_each_store, start_queue_server, wait_until,
};
use crate::support::ruleset_dir::{OperatorClient, RulesetDirectory};
use crate::support::test_server::{TestServer, advertise_request, party_session};

/// Addresses of players in two cities.
const SEATTLE: &str = "71.20.133.126";
const LOS_ANGELES: &str = "151.220.31.64";

/// The shipped file, with the server's ratings instead of the skill that clients state.
fn control_with_server_ratings() -> String {
    let shipped = include_str!("../../../rulesets/destiny_control_6v6.xml");
    let changed = shipped
        .replace(r#"PartyAggregation="mean" Trust="client"/>"#, r#"PartyAggregation="mean" Trust="game_server"/>"#);
    assert_ne!(changed, shipped, "the file has the attribute");
    changed
}

fn rating_row(user: &str, rating: f64) -> RatingRow {
    RatingRow { user_id: user.into(), rating: Some(rating), deviation: Some(30.0), volatility: None, matches: 30 }
}

async fn import(server: &TestServer, ratings: &[(&str, f64)]) {
    let ratings = ratings.iter().map(|&(user, rating)| rating_row(user, rating)).collect();
    let request = ImportRatingsRequest { matchmaking_set_id: Some(1), ratings };
    operator_client(server).await.import_ratings(request).await.expect("import");
}

/// Names of the found hosts, best first, and the refusals by skill.
async fn search(client: &Client, user: &str, stated: f64) -> (Vec<String>, u32) {
    search_set(client, 1, user, stated).await
}

async fn search_set(client: &Client, set: u32, user: &str, stated: f64) -> (Vec<String>, u32) {
    let mut searching = client.new_search(set, party_session(&[(user, stated)]));
    let found = searching.search().await.expect("search");
    let refused = found.refusals.iter().filter(|refusal| refusal.rule == "skill").map(|refusal| refusal.count).sum();
    (found.candidates.into_iter().map(|candidate| candidate.advertisement_id).collect(), refused)
}

/// Hosts near the searcher's rating come first, those beyond the limit are refused, and what clients state is ignored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn search_uses_the_servers_ratings_of_hosts_and_searchers() {
    let directory = RulesetDirectory::with_files(&[("control.xml", &control_with_server_ratings())]);
    let server = directory.start_server().await;
    let client = server.client().await;
    import(&server, &[("low", -900.0), ("mid", -800.0), ("high", 900.0), ("guest", -890.0), ("expert", 890.0)]).await;
    let mut ids = Vec::new();
    for host in ["low", "mid", "high", "newcomer"] {
        // Each states the same skill.
        let advertised = client.advertise(advertise_request(&[(host, 890.0)], 5)).await.expect("advertise");
        ids.push(advertised.id().to_owned());
    }
    assert_eq!(search(&client, "guest", 890.0).await, (vec![ids[0].clone(), ids[1].clone()], 2));
    assert_eq!(search(&client, "expert", -890.0).await, (vec![ids[2].clone()], 3));
    assert_eq!(search(&client, "stranger", 0.0).await, (vec![ids[3].clone()], 3), "newcomers have the initial rating");
    let mut searching = client.new_search(1, party_session(&[("guest", 890.0)]));
    let found = searching.search().await.expect("search");
    assert_eq!(found.ignored_fields, ["session_composition.players[0].skill"]);
    assert_eq!(found.candidates[0].terms[0].value, 0.002, "40 % of 10 of 2,000 points, rounded");

    // An explanation gives the same, and a reservation is refused by the same rule.
    let searched = generated_client::ExplainSearch {
        matchmaking_set_id: Some(1),
        session_composition: Some(generated_client::SessionCompositionData {
            party_size_composition: vec![1],
            players: vec![generated_client::PlayerData { user_id: "guest".into(), ..Default::default() }],
            ..Default::default()
        }),
        ..Default::default()
    };
    let request = generated_client::ExplainRequest { search: Some(searched), ..Default::default() };
    let explained = operator_client(&server).await.explain(request).await.expect("explain").into_inner();
    assert_eq!((explained.compatible, explained.candidates), (2, 4), "{explained:?}");
    let error = searching.reserve(&ids[2]).await.expect_err("refused");
    assert!(error.to_string().contains("skill"), "{error}");
    searching.reserve(&ids[0]).await.expect("reserve");
}

/// S1-69: the ideal session is near, and has an equal chance of winning. Of hosts near and far, even and uneven, the near and even one
/// is first and the far and uneven one last, with the same stated skill; a host who is too far or too strong is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nearest_and_most_even_host_is_the_first() {
    let rules = control_with_server_ratings();
    for (server, _database) in servers_on_each_store("nearest_and_most_even_host_is_the_first", &rules).await {
        import(&server, &[("guest", 0.0), ("even", 0.0), ("uneven", 140.0), ("strong", 900.0)]).await;
        let near = server.client_from(SEATTLE).await;
        let far = server.client_from(LOS_ANGELES).await;
        let mut ids = Vec::new();
        for (client, host) in [(&near, "even"), (&near, "uneven"), (&far, "even"), (&far, "uneven"), (&near, "strong")]
        {
            let request = advertise_request(&[(host, 0.0)], 5);
            ids.push(client.advertise(request).await.expect("advertise").id().to_owned());
        }
        let mut searching = near.new_search(1, party_session(&[("guest", 0.0)]));
        let candidates = searching.search().await.expect("search").candidates;
        let found: Vec<&str> = candidates.iter().map(|candidate| &*candidate.advertisement_id).collect();
        assert_eq!(found.len(), 4, "the strong host is refused: {candidates:?}");
        assert_eq!((found[0], found[3]), (&*ids[0], &*ids[3]), "{candidates:?}");
        let scores: Vec<f64> = candidates.iter().map(|candidate| candidate.score).collect();
        assert!(scores[0] < scores[1] && scores[2] < scores[3], "{scores:?}");
    }
}

/// A changed rating reaches advertisements that are live. After a restart they have it at once. On each store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_rating_reaches_live_advertisements() {
    let rules = control_with_server_ratings();
    for (server, _database) in servers_on_each_store("changed_rating_reaches_live_advertisements", &rules).await {
        let client = server.client().await;
        import(&server, &[("host", -900.0), ("guest", 890.0)]).await;
        let advertised = client.advertise(advertise_request(&[("host", 0.0)], 5)).await.expect("advertise");
        let id = advertised.id().to_owned();
        assert_eq!(search(&client, "guest", 0.0).await, (Vec::new(), 1));
        import(&server, &[("host", 800.0)]).await;
        wait_until("the search finds the host", async || search(&client, "guest", 0.0).await.0 == [id.clone()]).await;
        assert_eq!(difference_count_of(&server).await, 0, "indexes agree with memory and store");
        let server = server.restart().await;
        assert_eq!(search(&server.client().await, "guest", 0.0).await, (vec![id], 0));
    }
}

/// Two sets of one rating pool: a rating imported into one reaches the other's advertisements. A file that stops trusting
/// clients applies to live advertisements.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_rating_and_trust_reach_live_advertisements_of_other_sets() {
    let pooled = control_with_server_ratings().replace("<Rating ", r#"<Rating Pool="control" "#);
    let trusting = pooled.replace(r#"Trust="game_server"/>"#, r#"Trust="client"/>"#);
    let other = trusting.replace(r#"SetId="1""#, r#"SetId="2""#);
    let directory = RulesetDirectory::with_files(&[("control.xml", &pooled), ("other.xml", &other)]);
    let server = directory.start_server().await;
    let client = server.client().await;
    import(&server, &[("host", -900.0), ("guest", 890.0)]).await;
    let mut request = advertise_request(&[("host", 880.0)], 5);
    request.matchmaking_set_id = Some(2);
    let id = client.advertise(request).await.expect("advertise").id().to_owned();
    assert_eq!(search_set(&client, 2, "guest", 890.0).await, (vec![id.clone()], 0), "as stated");
    directory.write_file("other.xml", &other.replace(r#"Trust="client"/>"#, r#"Trust="game_server"/>"#));
    assert_eq!(OperatorClient::connect(&server).await.reload_rulesets().await.problems, []);
    assert_eq!(search_set(&client, 2, "guest", 890.0).await, (Vec::new(), 1), "by the server's ratings");
    import(&server, &[("host", 800.0)]).await;
    let is_found = async || search_set(&client, 2, "guest", 890.0).await.0 == [id.clone()];
    wait_until("the import reaches the other set", is_found).await;
}

/// A match is placed on the game server whose range of skills has the ratings of its players.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn match_goes_to_the_game_server_for_its_ratings() {
    let hosted =
        format!(r#"<Hosting Mode="game_server" AllocationTimeoutMs="600000"/>{}"#, r#"<Rating System="elo"/>"#);
    let rules = duel_ruleset(&hosted)
        .replace(r#"Trust="client"/>"#, r#"Trust="game_server"/>"#)
        .replace(r#"<RatingWindow Start="2" Max="2"/>"#, r#"<RatingWindow Start="1000" Max="1000"/>"#);
    let server = start_queue_server(&[&rules]).await;
    let rows = ["ann", "bob"].map(|user| rating_row(user, 1_800.0)).to_vec();
    let request = ImportRatingsRequest { matchmaking_set_id: Some(SET_ID), ratings: rows };
    operator_client(&server).await.import_ratings(request).await.expect("import");
    for (name, min, max) in [("beginners", None, Some(1_700.0)), ("experts", Some(1_700.0), None)] {
        let mut request = game_server_advertisement(name.as_bytes());
        request.allowed_ranges = vec![pb::AllowedRange { attribute: "skill".into(), min, max }];
        advertise_host(&server, request).await;
    }
    let mut ann = QueuedParty::enter(&server, SET_ID, &[("ann", 20.0)]).await;
    let _bob = QueuedParty::enter(&server, SET_ID, &[("bob", 20.0)]).await;
    let assignment = ann.wait_for_state(pb::TicketState::Matched).await.found_match.expect("a match").assignment;
    let Some(pb::assignment::Host::GameServer(host)) = assignment.and_then(|assignment| assignment.host) else {
        panic!("a game server hosts")
    };
    assert_eq!(host.connect_data, b"experts");
}

/// Newcomers are kept apart from others by matches played or by the deviation of their rating, through both doors.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn newcomers_are_kept_apart_in_searches_and_queues() {
    let attributes = [("matches_played", 20), ("rating_deviation", 100)];
    for (attribute, limit) in attributes {
        let declared = format!(r#"<Attribute Name="{attribute}" Type="number" PartyAggregation="max"/></Attributes>"#);
        let filter = format!(r#"<Within Name="newcomers" Attribute="{attribute}" Limit="{limit}"/></HardFilters>"#);
        let rules = control_with_server_ratings()
            .replace("</Attributes>", &declared)
            .replace("</HardFilters>", &filter)
            .replace(r#"<Teams Count="2" Size="6" ExactUpToSize="6"/>"#, r#"<Teams Count="2" Size="1"/>"#)
            .replace(r#"Backfill="true""#, r#"Backfill="false""#);
        // Players of a duel have no teammates.
        let rules: String = rules.lines().filter(|line| !line.contains("recent_teammates")).collect();
        let directory = RulesetDirectory::with_files(&[("control.xml", &rules)]);
        let server = directory.start_server().await;
        let client = server.client().await;
        // All have the initial rating, so only experience differs.
        import(&server, &[("veteran", 0.0), ("regular", 0.0)]).await;
        let advertised = client.advertise(advertise_request(&[("veteran", 0.0)], 5)).await.expect("advertise");
        let found = search_refusals(&client, "newcomer").await;
        assert_eq!(found, (Vec::new(), ["newcomers".to_owned()].to_vec()), "{attribute}");
        assert_eq!(search_refusals(&client, "regular").await.0, [advertised.id()], "{attribute}");

        let mut newcomer = QueuedParty::enter(&server, 1, &[("newcomer", 0.0)]).await;
        let mut veteran = QueuedParty::enter(&server, 1, &[("veteran", 0.0)]).await;
        let mut regular = QueuedParty::enter(&server, 1, &[("regular", 0.0)]).await;
        let found = veteran.wait_for_state(pb::TicketState::Matched).await.found_match.expect("a match");
        let other = regular.wait_for_state(pb::TicketState::Matched).await.found_match.expect("a match");
        assert_eq!(found.match_id, other.match_id, "{attribute}");
        assert_eq!(newcomer.current_status().await.state(), pb::TicketState::Waiting, "{attribute}");
        let mut attributes = enter_request(1, &[("liar", 0.0)]);
        let value = pb::AttributeValue { value: Some(pb::attribute_value::Value::NumberValue(50.0)) };
        attributes.session_composition.as_mut().expect("a party").attributes.insert(attribute.into(), value);
        let error = client.enter_queue(attributes).await.expect_err("the server counts it");
        assert!(error.to_string().contains("counted by the server"), "{error}");
    }
}

/// Ids of the found sessions, and the rules that refused others.
async fn search_refusals(client: &Client, user: &str) -> (Vec<String>, Vec<String>) {
    let mut searching = client.new_search(1, party_session(&[(user, 0.0)]));
    let found = searching.search().await.expect("search");
    let ids = found.candidates.into_iter().map(|candidate| candidate.advertisement_id).collect();
    (ids, found.refusals.into_iter().map(|refusal| refusal.rule).collect())
}

/// Number of differences that the consistency check finds.
async fn difference_count_of(server: &TestServer) -> u64 {
    let request = generated_client::CheckConsistencyRequest::default();
    operator_client(server).await.check_consistency(request).await.expect("check").into_inner().difference_count
}

/// Two servers on one store: a rating that one imports reaches the advertisements in the other's memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_rating_reaches_advertisements_at_the_other_server() {
    let Some(database) = create_test_database("changed_rating_reaches_the_other_server").await else { return };
    let rules = RulesetDirectory::with_files(&[("control.xml", &control_with_server_ratings())]);
    let replicas = Replicas::start(&database, 2, &["--rulesets", &rules.path().display().to_string()]);
    let servers = &replicas.servers;
    let clients = [servers[0].client().await, servers[1].client().await];
    let mut operator = servers[0].operator_client().await;
    let mut import = async |ratings: &[(&str, f64)]| {
        let ratings = ratings.iter().map(|&(user, rating)| rating_row(user, rating)).collect();
        let request = ImportRatingsRequest { matchmaking_set_id: Some(1), ratings };
        operator.import_ratings(request).await.expect("import");
    };
    import(&[("host", -900.0), ("guest", 890.0)]).await;
    let advertised = clients[1].advertise(advertise_request(&[("host", 0.0)], 5)).await.expect("advertise");
    let id = advertised.id().to_owned();
    for client in &clients {
        wait_until("both servers refuse the host", async || search(client, "guest", 0.0).await == (Vec::new(), 1))
            .await;
    }
    import(&[("host", 800.0)]).await;
    for client in &clients {
        wait_until("both servers find the host", async || search(client, "guest", 0.0).await.0 == [id.clone()]).await;
    }
}
