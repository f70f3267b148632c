//! Rulesets swapped under a running server: old hashes by old rules, new by new, the pool untouched, mistakes without
//! effect.

use fireteam_client::{Client, Code, pb};

use crate::support::test_server::{TestServer, advertise_request, party_session};
use crate::support::generated_client;
use crate::support::ruleset_dir::{OperatorClient, RulesetDirectory};

/// A set whose only rule is how far skills may be apart, and whatever `more` says.
fn ruleset_xml(set: u32, limit: f64, more: &str) -> String {
    format!(
        r#"<Ruleset Name="set {set}" SetId="{set}">
             <Attributes><Attribute Name="skill" Type="number" Min="-1000" Max="1000" Trust="client"/></Attributes>
             <HardFilters>{more}<Within Attribute="skill" Limit="{limit}"/></HardFilters>
             <SoftFilters><SoftFilter Attribute="skill" Weight="1"/></SoftFilters>
           </Ruleset>"#
    )
}

/// One search by a party of skill 0, by the rules of `hash`.
async fn search(
    client: &Client,
    set: u32,
    hash: Option<u32>,
) -> Result<pb::MatchmakingSearchResponse, fireteam_client::Error> {
    let mut searching = client.search_session(set, party_session(&[("guest", 0.0)]));
    searching.request_mut().service_configuration_hash = hash;
    searching.search().await
}

async fn candidate_count(client: &Client, hash: Option<u32>) -> usize {
    search(client, 1, hash).await.expect("search").candidates.len()
}

async fn current_hash(client: &Client, set: u32) -> u32 {
    search(client, set, None).await.expect("search").service_configuration_hash
}

/// Lets time pass for rulesets as the server's timer would.
async fn advance_and_purge_rulesets(house: &TestServer, ms: u64) {
    house.clock.advance_ms(ms);
    house.app.engine.purge_retired_rulesets().await.expect("forget");
}

/// S1-11, S1-37, R19: after the swap a search that names the old hash goes by the old rules and one that names none by
/// the new; the pool is what it was; the old hash is known for as long as it was promised, and then the current one is
/// named.
#[tokio::test]
async fn ruleset_reload_keeps_the_pool_and_the_old_hash_until_retention_ends() {
    let book = RulesetDirectory::with_files(&[("one.xml", &ruleset_xml(1, 100.0, ""))]);
    let house = book.start_server_with_config(|config| config.ruleset_retention_s = 60).await;
    let (client, mut operator) = (house.client().await, OperatorClient::connect(&house).await);
    let old = current_hash(&client, 1).await;
    let keep = |skill: f64, name: &str| pb::MatchmakingUpdateAdvertisementRequest {
        time_to_live_ms: Some(600_000),
        ..advertise_request(&[(name, skill)], 5)
    };
    let mut near = client.advertise(keep(50.0, "near")).await.expect("advertise");
    client.advertise(keep(200.0, "far")).await.expect("advertise");
    assert_eq!(candidate_count(&client, None).await, 1);
    let mut before = client.search_session(1, party_session(&[("before", 0.0)]));
    before.search().await.expect("search");

    book.write_file("one.xml", &ruleset_xml(1, 10.0, ""));
    let reloaded = operator.reload_rulesets().await;
    let [change] = &*reloaded.changes else { panic!("one change: {reloaded:?}") };
    let new = change.current_hash.expect("a new one");
    assert_eq!((change.matchmaking_set_id, change.previous_hash), (1, Some(old)));
    assert!(reloaded.problems.is_empty() && new != old);
    assert_eq!(current_hash(&client, 1).await, new);
    assert_eq!(
        [candidate_count(&client, None).await, candidate_count(&client, Some(new)).await, candidate_count(&client, Some(old)).await],
        [0, 0, 1]
    );

    // A search is judged wholly by its own rules: who was shown a session by the old ones gets its seats by the old
    // ones.
    before.reserve(near.id()).await.expect("reserve");
    let mut after = client.search_session(1, party_session(&[("after", 0.0)]));
    after.search().await.expect("search");
    let error = after.reserve(near.id()).await.expect_err("40 points too many by the new rules");
    assert_eq!(error.server_error().expect("a status").metadata["rule"], "skill", "{error}");
    // And a report without a hash goes by the rules of its search.
    let measured = vec![(near.id().to_owned(), Some(20.0))];
    let report = before.report_latency(pb::LatencyPhase::Quick, measured.clone()).await.expect("report");
    assert_eq!(report.candidates.len(), 1);
    assert!(after.report_latency(pb::LatencyPhase::Quick, measured).await.expect("report").candidates.is_empty());

    let listed: Vec<_> = operator.list_rulesets().await.iter().map(|it| (it.service_configuration_hash, it.state())).collect();
    assert_eq!(listed, [(new, generated_client::RulesetState::Current), (old, generated_client::RulesetState::Retired)]);
    advance_and_purge_rulesets(&house, 59_999).await;
    assert_eq!(candidate_count(&client, Some(old)).await, 1, "not before its time");
    advance_and_purge_rulesets(&house, 1).await;
    let error = search(&client, 1, Some(old)).await.expect_err("forgotten");
    assert_eq!(error.code(), Some(Code::FailedPrecondition));
    assert_eq!(error.server_error().expect("a status").metadata["current_hash"], new.to_string());
    let error = before.reserve(near.id()).await.expect_err("its rules are gone");
    assert_eq!(error.server_error().and_then(|it| it.reason.as_deref()), Some("STALE_CONFIGURATION"), "{error}");
    assert_eq!(operator.list_rulesets().await.len(), 1);
    near.heartbeat().await.expect("an advertisement outlives the rules that it was published under");

    book.write_file("one.xml", &ruleset_xml(1, 300.0, ""));
    operator.reload_rulesets().await;
    assert_eq!(candidate_count(&client, None).await, 2, "nobody was lost on the way");
}

/// S1-37: a change of spelling is no change: the hash is the same, and nothing is retired.
#[tokio::test]
async fn ruleset_reload_of_an_equivalent_file_changes_nothing() {
    let book = RulesetDirectory::with_files(&[("one.xml", &ruleset_xml(1, 100.0, ""))]);
    let house = book.start_server().await;
    let (client, mut operator) = (house.client().await, OperatorClient::connect(&house).await);
    let respelt = format!("<!-- the same -->\n{}", ruleset_xml(1, 100.0, "")).replace('"', "'");
    book.write_file("one.xml", &respelt);
    assert_eq!(operator.reload_rulesets().await, generated_client::ReloadRulesetsResponse::default());
    assert_eq!(operator.list_rulesets().await.len(), 1);
    let get = pb::MatchmakingGetConfigurationRequest { matchmaking_set_id: Some(1), ..Default::default() };
    assert_eq!(client.get_configuration(get).await.expect("get").ruleset_xml, respelt, "the file as it is now");
}

/// S1-37: with `<SameRuleset/>` a swap does part the pool, until hosts have said their sessions again.
#[tokio::test]
async fn same_ruleset_filter_splits_the_pool_after_a_reload() {
    let same = "<SameRuleset Name=\"same\"/>";
    let book = RulesetDirectory::with_files(&[("one.xml", &ruleset_xml(1, 100.0, same))]);
    let house = book.start_server().await;
    let (client, mut operator) = (house.client().await, OperatorClient::connect(&house).await);
    let mut advertised = client.advertise(advertise_request(&[("host", 50.0)], 5)).await.expect("advertise");
    let old = current_hash(&client, 1).await;
    assert_eq!(candidate_count(&client, None).await, 1);
    book.write_file("one.xml", &ruleset_xml(1, 101.0, same));
    operator.reload_rulesets().await;
    let found = search(&client, 1, None).await.expect("search");
    assert!(found.candidates.is_empty());
    assert_eq!((&*found.refusals[0].rule, found.refusals[0].count), ("same", 1));
    assert_eq!(candidate_count(&client, Some(old)).await, 1, "whoever has the old file still meets it");
    advertised.heartbeat().await.expect("a heartbeat says nothing about rules");
    assert_eq!(candidate_count(&client, None).await, 0);
    advertised.update(advertise_request(&[("host", 50.0)], 5)).await.expect("update");
    assert_eq!([candidate_count(&client, None).await, candidate_count(&client, Some(old)).await], [1, 0]);
}

/// S1-38: a directory with a mistake in one file changes nothing of any: the problem has its place, the metric and the
/// list say so, the old rules go on; mended, all is taken at once.
#[tokio::test]
async fn ruleset_reload_with_one_invalid_file_changes_nothing() {
    let book = RulesetDirectory::with_files(&[("one.xml", &ruleset_xml(1, 100.0, "")), ("two.xml", &ruleset_xml(2, 100.0, ""))]);
    let house = book.start_server().await;
    let (client, mut operator) = (house.client().await, OperatorClient::connect(&house).await);
    let before = [current_hash(&client, 1).await, current_hash(&client, 2).await];
    book.write_file("one.xml", &ruleset_xml(1, 50.0, ""));
    book.write_file("two.xml", &ruleset_xml(2, 50.0, "<Eqal Attribute=\"skill\"/>"));
    let refused = operator.reload_rulesets().await;
    assert!(refused.changes.is_empty());
    let [problem] = &*refused.problems else { panic!("one problem: {refused:?}") };
    assert!(problem.file_name.ends_with("two.xml") && (problem.line, problem.column) == (3, 28), "{problem:?}");
    assert!(problem.message.contains("Equal"), "says what would be right: {problem:?}");
    assert_eq!([current_hash(&client, 1).await, current_hash(&client, 2).await], before);
    let listed = operator.list_rulesets().await;
    let problems: Vec<usize> = listed.iter().map(|it| it.problems.len()).collect();
    assert_eq!(problems, [0, 1], "{listed:?}");
    let metrics = house.app.metrics.render();
    assert!(metrics.contains("fireteam_rulesets_rejected 1"), "{metrics}");

    book.write_file("two.xml", &ruleset_xml(2, 50.0, ""));
    assert_eq!(operator.reload_rulesets().await.changes.len(), 2);
    assert!(operator.list_rulesets().await.iter().all(|it| it.problems.is_empty()));
    assert!(house.app.metrics.render().contains("fireteam_rulesets_rejected 0"));
}

/// S1-37: a ruleset whose file is taken away is searched by its hash while that is known; its advertisements live on,
/// by heartbeats, and are there when the file comes back.
#[tokio::test]
async fn removed_ruleset_keeps_its_advertisements_until_it_returns() {
    let book = RulesetDirectory::with_files(&[("one.xml", &ruleset_xml(1, 100.0, "")), ("two.xml", &ruleset_xml(2, 100.0, ""))]);
    let house = book.start_server_with_config(|config| config.ruleset_retention_s = 60).await;
    let (client, mut operator) = (house.client().await, OperatorClient::connect(&house).await);
    let old = current_hash(&client, 1).await;
    let request =
        pb::MatchmakingUpdateAdvertisementRequest { time_to_live_ms: Some(90_000), ..advertise_request(&[("host", 50.0)], 5) };
    let mut advertised = client.advertise(request).await.expect("advertise");
    let mut early = client.search_session(1, party_session(&[("early", 0.0)]));
    early.search().await.expect("search");

    book.remove_file("one.xml");
    let change = operator.reload_rulesets().await.changes;
    assert_eq!(change, [generated_client::RulesetChange { matchmaking_set_id: 1, previous_hash: Some(old), current_hash: None }]);
    assert_eq!(search(&client, 1, None).await.expect_err("no rules").code(), Some(Code::NotFound));
    assert_eq!(candidate_count(&client, Some(old)).await, 1, "old hashes stay resolvable");
    let listed: Vec<_> = operator.list_rulesets().await.iter().map(|it| (it.matchmaking_set_id, it.state())).collect();
    assert_eq!(listed, [(1, generated_client::RulesetState::Retired), (2, generated_client::RulesetState::Current)]);
    early.reserve(advertised.id()).await.expect("seats by the rules that the search went by");
    advertised.heartbeat().await.expect("heartbeat");

    advance_and_purge_rulesets(&house, 60_000).await;
    for hash in [None, Some(old)] {
        assert_eq!(search(&client, 1, hash).await.expect_err("no rules").code(), Some(Code::NotFound));
    }
    let answer = advertised.heartbeat().await.expect("what is advertised is still there");
    assert_eq!(answer.next_expansion_in_ms, None);

    book.write_file("one.xml", &ruleset_xml(1, 99.0, ""));
    assert_eq!(operator.reload_rulesets().await.changes.len(), 1);
    assert_eq!(candidate_count(&client, None).await, 1);
}

/// Rulesets that change hands many times at once end in one that is searched by, with every advertisement in its view.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_ruleset_reloads_keep_every_advertisement() {
    let book = RulesetDirectory::with_files(&[("one.xml", &ruleset_xml(1, 100.0, ""))]);
    let house = book.start_server_with_config(|config| config.ruleset_retention_s = 1).await;
    let client = house.client().await;
    let request =
        pb::MatchmakingUpdateAdvertisementRequest { time_to_live_ms: Some(600_000), ..advertise_request(&[("host", 5.0)], 5) };
    client.advertise(request).await.expect("advertise");
    for round in 1..=8_u32 {
        book.write_file("one.xml", &ruleset_xml(1, f64::from(100 + round), ""));
        let mut reloads = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let mut operator = OperatorClient::connect(&house).await;
            reloads.spawn(async move { operator.reload_rulesets().await });
        }
        advance_and_purge_rulesets(&house, 1_000).await;
        let changes: usize = reloads.join_all().await.iter().map(|it| it.changes.len()).sum();
        assert_eq!(changes, 1, "each change is somebody's");
        assert_eq!(candidate_count(&client, None).await, 1, "round {round}");
    }
}

/// `CheckRuleset` says what loading would say, and loads nothing.
#[tokio::test]
async fn check_ruleset_reports_problems_without_loading() {
    let book = RulesetDirectory::with_files(&[("one.xml", &ruleset_xml(1, 100.0, ""))]);
    let house = book.start_server().await;
    let mut operator = OperatorClient::connect(&house).await;
    let mut check = async |ruleset_xml: String| {
        let request = generated_client::CheckRulesetRequest { file_name: "mine.xml".into(), ruleset_xml };
        operator.0.check_ruleset(request).await.expect("check").into_inner()
    };
    let sound = check(ruleset_xml(1, 5.0, "")).await;
    assert!(sound.problems.is_empty() && sound.service_configuration_hash.is_some());
    let wrong = check(ruleset_xml(1, -5.0, "<Equal/>")).await;
    assert_eq!((wrong.problems.len(), wrong.service_configuration_hash), (2, None), "{wrong:?}");
    assert!(wrong.problems.iter().all(|it| it.file_name == "mine.xml" && it.line == 3), "{wrong:?}");
    let before = current_hash(&house.client().await, 1).await;
    assert_ne!(sound.service_configuration_hash, Some(before));
    assert_eq!(operator.list_rulesets().await.len(), 1);
}
