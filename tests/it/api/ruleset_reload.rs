//! Ruleset reload of a running server: old hashes use the old rules, the pool of advertisements stays, invalid files
//! change nothing.

use fireteam_client::{Client, Code, pb};

use crate::support::generated_client;
use crate::support::ruleset_dir::{OperatorClient, RulesetDirectory};
use crate::support::test_server::{TestServer, advertise_request, party_session};

/// Ruleset XML of a set with a skill limit and the hard filters in `more`.
fn ruleset_xml(set: u32, limit: f64, more: &str) -> String {
    format!(
        r#"<Ruleset Name="set {set}" SetId="{set}">
             <Attributes><Attribute Name="skill" Type="number" Min="-1000" Max="1000" Trust="client"/></Attributes>
             <HardFilters>{more}<Within Attribute="skill" Limit="{limit}"/></HardFilters>
             <SoftFilters><SoftFilter Attribute="skill" Weight="1"/></SoftFilters>
           </Ruleset>"#
    )
}

/// Searches with skill 0 and the ruleset `hash`.
async fn search(
    client: &Client,
    set: u32,
    hash: Option<u32>,
) -> Result<pb::MatchmakingSearchResponse, fireteam_client::Error> {
    let mut searching = client.new_search(set, party_session(&[("guest", 0.0)]));
    searching.request_mut().service_configuration_hash = hash;
    searching.search().await
}

async fn candidate_count(client: &Client, hash: Option<u32>) -> usize {
    search(client, 1, hash).await.expect("search").candidates.len()
}

async fn current_hash(client: &Client, set: u32) -> u32 {
    search(client, set, None).await.expect("search").service_configuration_hash
}

/// Advances the clock and purges retired rulesets, as the server's timer does.
async fn advance_and_purge_rulesets(server: &TestServer, ms: u64) {
    server.clock.advance_ms(ms);
    server.app.engine.purge_retired_rulesets().await.expect("purge");
}

/// S1-11, S1-37, R19: after a reload, a search with the old hash uses the old rules and one without a hash the new
/// rules. The pool is unchanged. The old hash is known until its retention ends; then the error names the current hash.
#[tokio::test]
async fn ruleset_reload_keeps_the_pool_and_the_old_hash_until_retention_ends() {
    let directory = RulesetDirectory::with_files(&[("one.xml", &ruleset_xml(1, 100.0, ""))]);
    let server = directory.start_server_with_config(|config| config.ruleset_retention_s = 60).await;
    let (client, mut operator) = (server.client().await, OperatorClient::connect(&server).await);
    let old = current_hash(&client, 1).await;
    let request = |skill: f64, name: &str| pb::MatchmakingUpdateAdvertisementRequest {
        time_to_live_ms: Some(600_000),
        ..advertise_request(&[(name, skill)], 5)
    };
    let mut near = client.advertise(request(50.0, "near")).await.expect("advertise");
    client.advertise(request(200.0, "far")).await.expect("advertise");
    assert_eq!(candidate_count(&client, None).await, 1);
    let mut before = client.new_search(1, party_session(&[("before", 0.0)]));
    before.search().await.expect("search");

    directory.write_file("one.xml", &ruleset_xml(1, 10.0, ""));
    let reloaded = operator.reload_rulesets().await;
    let [change] = &*reloaded.changes else { panic!("one change: {reloaded:?}") };
    let new = change.current_hash.expect("a new hash");
    assert_eq!((change.matchmaking_set_id, change.previous_hash), (1, Some(old)));
    assert!(reloaded.problems.is_empty() && new != old);
    assert_eq!(current_hash(&client, 1).await, new);
    assert_eq!(
        [
            candidate_count(&client, None).await,
            candidate_count(&client, Some(new)).await,
            candidate_count(&client, Some(old)).await
        ],
        [0, 0, 1]
    );

    // A search uses its own rules throughout: a session found by the old rules is reserved by the old rules.
    before.reserve(near.id()).await.expect("reserve");
    let mut after = client.new_search(1, party_session(&[("after", 0.0)]));
    after.search().await.expect("search");
    let error = after.reserve(near.id()).await.expect_err("40 points above the new limit");
    assert_eq!(error.as_server_error().expect("a status").reason_metadata["rule"], "skill", "{error}");
    // A latency report without a hash uses the rules of its search.
    let measured = vec![(near.id().to_owned(), Some(20.0))];
    let report = before.report_latency(pb::LatencyPhase::Quick, measured.clone()).await.expect("report");
    assert_eq!(report.candidates.len(), 1);
    assert!(after.report_latency(pb::LatencyPhase::Quick, measured).await.expect("report").candidates.is_empty());

    let listed: Vec<_> = operator
        .list_rulesets()
        .await
        .iter()
        .map(|status| (status.service_configuration_hash, status.state()))
        .collect();
    assert_eq!(
        listed,
        [(new, generated_client::RulesetState::Current), (old, generated_client::RulesetState::Retired)]
    );
    advance_and_purge_rulesets(&server, 59_999).await;
    assert_eq!(candidate_count(&client, Some(old)).await, 1, "before the retention ends");
    advance_and_purge_rulesets(&server, 1).await;
    let error = search(&client, 1, Some(old)).await.expect_err("purged hash");
    assert_eq!(error.code(), Some(Code::FailedPrecondition));
    assert_eq!(error.as_server_error().expect("a status").reason_metadata["current_hash"], new.to_string());
    let error = before.reserve(near.id()).await.expect_err("the ruleset of the search was purged");
    assert_eq!(
        error.as_server_error().and_then(|status| status.reason.as_deref()),
        Some("STALE_CONFIGURATION"),
        "{error}"
    );
    assert_eq!(operator.list_rulesets().await.len(), 1);
    near.heartbeat().await.expect("an advertisement outlives its ruleset");

    directory.write_file("one.xml", &ruleset_xml(1, 300.0, ""));
    operator.reload_rulesets().await;
    assert_eq!(candidate_count(&client, None).await, 2, "no advertisement was lost");
}

/// S1-37: a reformatted file is not a change: the hash is the same, and no ruleset is retired.
#[tokio::test]
async fn ruleset_reload_of_an_equivalent_file_changes_nothing() {
    let directory = RulesetDirectory::with_files(&[("one.xml", &ruleset_xml(1, 100.0, ""))]);
    let server = directory.start_server().await;
    let (client, mut operator) = (server.client().await, OperatorClient::connect(&server).await);
    let reformatted = ruleset_xml(1, 100.0, "").replace('"', "'");
    directory.write_file("one.xml", &format!("<!-- the same -->\n{reformatted}"));
    assert_eq!(operator.reload_rulesets().await, generated_client::ReloadRulesetsResponse::default());
    assert_eq!(operator.list_rulesets().await.len(), 1);
    let get = pb::MatchmakingGetConfigurationRequest { matchmaking_set_id: Some(1), ..Default::default() };
    assert_eq!(
        client.get_configuration(get).await.expect("get").ruleset_xml,
        reformatted,
        "the current file, without comments"
    );
}

/// S1-37: with `<SameRuleset/>` a reload splits the pool until hosts send full updates.
#[tokio::test]
async fn same_ruleset_filter_splits_the_pool_after_a_reload() {
    let same = "<SameRuleset Name=\"same\"/>";
    let directory = RulesetDirectory::with_files(&[("one.xml", &ruleset_xml(1, 100.0, same))]);
    let server = directory.start_server().await;
    let (client, mut operator) = (server.client().await, OperatorClient::connect(&server).await);
    let mut advertised = client.advertise(advertise_request(&[("host", 50.0)], 5)).await.expect("advertise");
    let old = current_hash(&client, 1).await;
    assert_eq!(candidate_count(&client, None).await, 1);
    directory.write_file("one.xml", &ruleset_xml(1, 101.0, same));
    operator.reload_rulesets().await;
    let found = search(&client, 1, None).await.expect("search");
    assert!(found.candidates.is_empty());
    assert_eq!((&*found.refusals[0].rule, found.refusals[0].count), ("same", 1));
    assert_eq!(candidate_count(&client, Some(old)).await, 1, "found with the old hash");
    advertised.heartbeat().await.expect("a heartbeat does not change the ruleset");
    assert_eq!(candidate_count(&client, None).await, 0);
    advertised.replace_published(advertise_request(&[("host", 50.0)], 5)).await.expect("update");
    assert_eq!([candidate_count(&client, None).await, candidate_count(&client, Some(old)).await], [1, 0]);
}

/// S1-38: an invalid file rejects the whole directory. The problem has its position, the metric and the list report it,
/// and the old rules stay. After the correction all files are loaded at once.
#[tokio::test]
async fn ruleset_reload_with_one_invalid_file_changes_nothing() {
    let directory = RulesetDirectory::with_files(&[
        ("one.xml", &ruleset_xml(1, 100.0, "")),
        ("two.xml", &ruleset_xml(2, 100.0, "")),
    ]);
    let server = directory.start_server().await;
    let (client, mut operator) = (server.client().await, OperatorClient::connect(&server).await);
    let before = [current_hash(&client, 1).await, current_hash(&client, 2).await];
    directory.write_file("one.xml", &ruleset_xml(1, 50.0, ""));
    directory.write_file("two.xml", &ruleset_xml(2, 50.0, "<Eqal Attribute=\"skill\"/>"));
    let refused = operator.reload_rulesets().await;
    assert!(refused.changes.is_empty());
    let [problem] = &*refused.problems else { panic!("one problem: {refused:?}") };
    assert!(problem.file_name.ends_with("two.xml") && (problem.line, problem.column) == (3, 28), "{problem:?}");
    assert!(problem.message.contains("Equal"), "the message suggests the right element: {problem:?}");
    assert_eq!([current_hash(&client, 1).await, current_hash(&client, 2).await], before);
    let listed = operator.list_rulesets().await;
    let problems: Vec<usize> = listed.iter().map(|status| status.problems.len()).collect();
    assert_eq!(problems, [0, 1], "{listed:?}");
    let metrics = server.app.metrics.render();
    assert!(metrics.contains("fireteam_rulesets_rejected 1"), "{metrics}");

    directory.write_file("two.xml", &ruleset_xml(2, 50.0, ""));
    assert_eq!(operator.reload_rulesets().await.changes.len(), 2);
    assert!(operator.list_rulesets().await.iter().all(|status| status.problems.is_empty()));
    assert!(server.app.metrics.render().contains("fireteam_rulesets_rejected 0"));
}

/// S1-37: without a grace period, a ruleset whose file was removed is searched by its hash until retention ends. Its advertisements live on by
/// heartbeats, and are found when the file returns.
#[tokio::test]
async fn removed_ruleset_keeps_its_advertisements_until_it_returns() {
    let directory = RulesetDirectory::with_files(&[
        ("one.xml", &ruleset_xml(1, 100.0, "")),
        ("two.xml", &ruleset_xml(2, 100.0, "")),
    ]);
    let server = directory
        .start_server_with_config(|config| (config.ruleset_retention_s, config.ruleset_removal_grace_s) = (60, 0))
        .await;
    let (client, mut operator) = (server.client().await, OperatorClient::connect(&server).await);
    let old = current_hash(&client, 1).await;
    let request = pb::MatchmakingUpdateAdvertisementRequest {
        time_to_live_ms: Some(90_000),
        ..advertise_request(&[("host", 50.0)], 5)
    };
    let mut advertised = client.advertise(request).await.expect("advertise");
    let mut early = client.new_search(1, party_session(&[("early", 0.0)]));
    early.search().await.expect("search");

    directory.remove_file("one.xml");
    let change = operator.reload_rulesets().await.changes;
    assert_eq!(
        change,
        [generated_client::RulesetChange {
            matchmaking_set_id: 1,
            previous_hash: Some(old),
            current_hash: None,
            rating_change: String::new(),
        }]
    );
    assert_eq!(search(&client, 1, None).await.expect_err("no ruleset").code(), Some(Code::NotFound));
    assert_eq!(candidate_count(&client, Some(old)).await, 1, "the old hash is still known");
    let listed: Vec<_> =
        operator.list_rulesets().await.iter().map(|status| (status.matchmaking_set_id, status.state())).collect();
    assert_eq!(listed, [(1, generated_client::RulesetState::Retired), (2, generated_client::RulesetState::Current)]);
    early.reserve(advertised.id()).await.expect("reserve by the rules of the search");
    advertised.heartbeat().await.expect("heartbeat");

    advance_and_purge_rulesets(&server, 60_000).await;
    for hash in [None, Some(old)] {
        assert_eq!(search(&client, 1, hash).await.expect_err("no ruleset").code(), Some(Code::NotFound));
    }
    let answer = advertised.heartbeat().await.expect("the advertisement still exists");
    assert_eq!(answer.next_expansion_in_ms, None);

    directory.write_file("one.xml", &ruleset_xml(1, 99.0, ""));
    assert_eq!(operator.reload_rulesets().await.changes.len(), 1);
    assert_eq!(candidate_count(&client, None).await, 1);
}

/// Concurrent reloads end with one current ruleset, and every advertisement is found by it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_ruleset_reloads_keep_every_advertisement() {
    let directory = RulesetDirectory::with_files(&[("one.xml", &ruleset_xml(1, 100.0, ""))]);
    let server = directory.start_server_with_config(|config| config.ruleset_retention_s = 1).await;
    let client = server.client().await;
    let request = pb::MatchmakingUpdateAdvertisementRequest {
        time_to_live_ms: Some(600_000),
        ..advertise_request(&[("host", 5.0)], 5)
    };
    client.advertise(request).await.expect("advertise");
    for round in 1..=8_u32 {
        directory.write_file("one.xml", &ruleset_xml(1, f64::from(100 + round), ""));
        let mut reloads = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let mut operator = OperatorClient::connect(&server).await;
            reloads.spawn(async move { operator.reload_rulesets().await });
        }
        advance_and_purge_rulesets(&server, 1_000).await;
        let changes: usize = reloads.join_all().await.iter().map(|response| response.changes.len()).sum();
        assert_eq!(changes, 1, "one reload reports the change");
        assert_eq!(candidate_count(&client, None).await, 1, "round {round}");
    }
}

/// `CheckRuleset` reports what a load would report, and loads nothing.
#[tokio::test]
async fn check_ruleset_reports_problems_without_loading() {
    let directory = RulesetDirectory::with_files(&[("one.xml", &ruleset_xml(1, 100.0, ""))]);
    let server = directory.start_server().await;
    let mut operator = OperatorClient::connect(&server).await;
    let mut check = async |ruleset_xml: String| {
        let request = generated_client::CheckRulesetRequest { file_name: "mine.xml".into(), ruleset_xml };
        operator.0.check_ruleset(request).await.expect("check").into_inner()
    };
    let valid = check(ruleset_xml(1, 5.0, "")).await;
    assert!(valid.problems.is_empty() && valid.service_configuration_hash.is_some());
    let invalid = check(ruleset_xml(1, -5.0, "<Equal/>")).await;
    assert_eq!((invalid.problems.len(), invalid.service_configuration_hash), (2, None), "{invalid:?}");
    assert!(invalid.problems.iter().all(|problem| problem.file_name == "mine.xml" && problem.line == 3), "{invalid:?}");
    let before = current_hash(&server.client().await, 1).await;
    assert_ne!(valid.service_configuration_hash, Some(before));
    assert_eq!(operator.list_rulesets().await.len(), 1);
}
