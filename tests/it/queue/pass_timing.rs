//! Timing of passes: at the ruleset's interval, only after a change, and with a new ruleset at once.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fireteam::rules::parse_ruleset;
use fireteam_client::{Client, pb};
use pb::TicketState;
use tokio::time::{Instant, timeout};
use tonic::transport::Channel;

use crate::support::faulty_engine::{serve, start_engine};
use crate::support::faulty_store::FaultyStore;

use crate::support::generated_client;
use crate::support::generated_client::operator_service_client::OperatorServiceClient;
use crate::support::queue_server::{
    QueuedParty, SET_ID, duel_ruleset, enter_request, operator_client, start_queue_server, wait_until,
};
use crate::support::ruleset_dir::{OperatorClient, RulesetDirectory};
use crate::support::scripted_server::TEST_TIMEOUT;
use crate::support::test_server::TestClock;

/// A second queue beside `SET_ID`.
const OTHER: u32 = 12;

/// Attributes of a queue with passes on change.
const ON_CHANGE: &str = r#"Pass="on_change" GatherMs="5""#;

/// Rules of duels with passes on change, and otherwise one a minute.
fn duels_on_change(gather_ms: u32) -> String {
    let passes = format!("PassIntervalMs=\"60000\" Pass=\"on_change\" GatherMs=\"{gather_ms}\"");
    duel_ruleset("").replace("PassIntervalMs=\"10\"", &passes)
}

/// The same rules for that queue.
fn for_other_queue(rules: &str) -> String {
    rules.replace(&format!("SetId=\"{SET_ID}\""), &format!("SetId=\"{OTHER}\""))
}

/// Number of passes of a set's queue.
async fn passes(operator: &mut OperatorServiceClient<Channel>, set: u32) -> u64 {
    let response =
        operator.get_statistics(generated_client::GetStatisticsRequest::default()).await.expect("statistics");
    let queues = response.into_inner().queues;
    queues.iter().find(|queue| queue.matchmaking_set_id == set).map_or(0, |queue| queue.passes)
}

/// S0-17, S2-5: a ticket that enters between passes waits for the next pass; queues have separate intervals.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pass_interval_of_the_ruleset_is_kept() {
    let slow = duel_ruleset("").replace("PassIntervalMs=\"10\"", "PassIntervalMs=\"60000\"");
    let server = start_queue_server(&[&slow, &for_other_queue(&duel_ruleset(""))]).await;
    let mut operator = operator_client(&server).await;
    let mut ann = QueuedParty::enter(&server, SET_ID, &[("ann", 20.0)]).await;
    wait_until("the first pass", async || passes(&mut operator, SET_ID).await == 1).await;
    let mut bob = QueuedParty::enter(&server, SET_ID, &[("bob", 20.0)]).await;
    for pair in [["cid", "dan"], ["eve", "fay"]] {
        let mut first = QueuedParty::enter(&server, OTHER, &[(pair[0], 20.0)]).await;
        let _second = QueuedParty::enter(&server, OTHER, &[(pair[1], 20.0)]).await;
        first.wait_for_state(TicketState::Matched).await;
    }
    assert_eq!(passes(&mut operator, SET_ID).await, 1);
    for waiting in [&mut ann, &mut bob] {
        assert_eq!(waiting.current_status().await.state(), TicketState::Waiting);
    }
}

/// A change causes a pass before the interval ends, in each queue with passes on change and in no other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pass_on_change_does_not_wait_for_the_interval() {
    let slow = duel_ruleset("").replace("PassIntervalMs=\"10\"", "PassIntervalMs=\"60000\"");
    let server = start_queue_server(&[&slow, &for_other_queue(&duels_on_change(5))]).await;
    let mut operator = operator_client(&server).await;
    let mut ann = QueuedParty::enter(&server, SET_ID, &[("ann", 20.0)]).await;
    wait_until("the first pass", async || passes(&mut operator, SET_ID).await == 1).await;
    let _bob = QueuedParty::enter(&server, SET_ID, &[("bob", 20.0)]).await;
    for pair in [["cid", "dan"], ["eve", "fay"], ["gil", "hal"]] {
        let mut first = QueuedParty::enter(&server, OTHER, &[(pair[0], 20.0)]).await;
        let _second = QueuedParty::enter(&server, OTHER, &[(pair[1], 20.0)]).await;
        first.wait_for_state_before_the_next_minute(TicketState::Matched).await;
    }
    assert_eq!(ann.current_status().await.state(), TicketState::Waiting, "one pass a minute");
}

/// The tickets that enter within `GatherMs` of the first change are evaluated in one pass.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pass_on_change_gathers_tickets() {
    const GATHER_MS: u32 = 300;
    let server = start_queue_server(&[&duels_on_change(GATHER_MS)]).await;
    let mut operator = operator_client(&server).await;
    let begun = Instant::now();
    let mut parties = Vec::new();
    for number in 0..20 {
        parties.push(QueuedParty::enter(&server, SET_ID, &[(&format!("player {number}"), 20.0)]).await);
    }
    for party in &mut parties {
        party.wait_for_state_before_the_next_minute(TicketState::Matched).await;
    }
    let gathered = begun.elapsed().as_millis() / u128::from(GATHER_MS);
    assert!(begun.elapsed().as_millis() >= u128::from(GATHER_MS), "no pass before the tickets are gathered");
    let passes = passes(&mut operator, SET_ID).await;
    assert!(u128::from(passes) <= gathered + 1, "{passes} passes in {:?}", begun.elapsed());
}

/// A new ruleset with passes on change is used at once, though the former interval has not ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pass_on_change_follows_a_new_ruleset() {
    let slow = duel_ruleset("").replace("PassIntervalMs=\"10\"", "PassIntervalMs=\"60000\"");
    let directory = RulesetDirectory::with_files(&[("duel.xml", &slow)]);
    let server = directory.start_server().await;
    let mut operator = operator_client(&server).await;
    let mut ann = QueuedParty::enter(&server, SET_ID, &[("ann", 20.0)]).await;
    wait_until("the first pass", async || passes(&mut operator, SET_ID).await == 1).await;
    let _bob = QueuedParty::enter(&server, SET_ID, &[("bob", 22.0)]).await;
    assert_eq!(ann.current_status().await.state(), TicketState::Waiting);
    directory.write_file("duel.xml", &duels_on_change(5));
    OperatorClient::connect(&server).await.reload_rulesets().await;
    ann.wait_for_state_before_the_next_minute(TicketState::Matched).await;
}

/// A match that the store could not take is proposed again soon after the outage, though nothing has changed in the queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pass_on_change_is_repeated_after_an_outage() {
    let (store, clock) = (Arc::new(FaultyStore::default()), Arc::new(TestClock::new()));
    let rules = Arc::new(parse_ruleset("duel.xml", &duels_on_change(5)).expect("a ruleset"));
    let engine = Arc::new(start_engine(&store, vec![("duel.xml".into(), rules)], &clock).await);
    let server = serve(&engine, &clock).await;
    let client = Client::connect(format!("http://{}", server.address)).await.expect("connect");
    let mut ann = QueuedParty::enter_with_client(client.clone(), enter_request(SET_ID, &[("ann", 20.0)])).await;
    store.pause_queue_batches();
    let bob = tokio::spawn(async move { client.enter_queue(enter_request(SET_ID, &[("bob", 20.0)])).await });
    store.wait_for_paused_batch().await;
    // The next batch is the match, which fails; the one after it is the match again.
    store.release_batch_and_wait_for_next().await;
    store.queues_unavailable.store(true, Ordering::SeqCst);
    let repeated = store.release_batch_and_wait_for_next();
    timeout(TEST_TIMEOUT, repeated).await.expect("long before the interval ends");
    store.queues_unavailable.store(false, Ordering::SeqCst);
    store.resume_queue_batches();
    ann.wait_for_state(TicketState::Matched).await;
    bob.await.expect("no panic").expect("entered");
}

/// A new ruleset is evaluated when the interval ends, though the queue has not changed since the last pass.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pass_under_a_new_ruleset_follows_the_interval() {
    let rules = |width: u32| {
        let rules = duel_ruleset("").replace("PassIntervalMs=\"10\"", "PassIntervalMs=\"1500\"");
        rules.replace(
            "<RatingWindow Start=\"2\" Max=\"2\"/>",
            &format!("<RatingWindow Start=\"{width}\" Max=\"{width}\"/>"),
        )
    };
    let directory = RulesetDirectory::with_files(&[("duel.xml", &rules(2))]);
    let server = directory.start_server().await;
    let mut operator = operator_client(&server).await;
    let mut ann = QueuedParty::enter(&server, SET_ID, &[("ann", 20.0)]).await;
    wait_until("the first pass", async || passes(&mut operator, SET_ID).await == 1).await;
    let _bob = QueuedParty::enter(&server, SET_ID, &[("bob", 30.0)]).await;
    wait_until("the second pass", async || passes(&mut operator, SET_ID).await == 2).await;
    directory.write_file("duel.xml", &rules(10));
    OperatorClient::connect(&server).await.reload_rulesets().await;
    ann.wait_for_state(TicketState::Matched).await;
}

/// S0-23: after a pass without matches, the next pass runs only after a change, unless `SkipUnchanged` is false.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pass_is_skipped_while_nothing_changes() {
    let always = duel_ruleset("")
        .replace("<Queue PassIntervalMs=\"10\">", "<Queue PassIntervalMs=\"10\"><Gate SkipUnchanged=\"false\"/>");
    let server = start_queue_server(&[&duel_ruleset(""), &for_other_queue(&always)]).await;
    let mut operator = operator_client(&server).await;
    // Reported before ann enters: a new number of connected users is a change too.
    let heartbeat = pb::QueueHeartbeatRequest { connected_user_ids: vec!["ann".to_owned()], ..Default::default() };
    server.client().await.heartbeat_tickets(heartbeat).await.expect("heartbeat");
    let _ann = QueuedParty::enter(&server, SET_ID, &[("ann", 20.0)]).await;
    // In another silo, so that its users do not count as ann's.
    let mut in_other_silo = enter_request(OTHER, &[("bob", 20.0)]);
    in_other_silo.session_composition.as_mut().expect("a party").silo_id = Some(2);
    let _bob = QueuedParty::enter_with_request(&server, in_other_silo).await;
    wait_until("the only pass", async || passes(&mut operator, SET_ID).await == 1).await;
    let before = passes(&mut operator, OTHER).await;
    wait_until("fifty passes of the other", async || before + 50 <= passes(&mut operator, OTHER).await).await;
    assert_eq!(passes(&mut operator, SET_ID).await, 1);
}

/// S0-24, B-2: a new ticket, a wider range, a leave, and a new ruleset each cause one more pass.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pass_runs_after_each_kind_of_change() {
    each_change_causes_a_pass("").await;
}

/// The same with passes on change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pass_on_change_runs_after_each_kind_of_change() {
    each_change_causes_a_pass(ON_CHANGE).await;
}

async fn each_change_causes_a_pass(pass_trigger: &str) {
    let widening = |max: u32| {
        let window = format!("<RatingWindow Start=\"0\" Step=\"1\" StepEveryMs=\"1000\" Max=\"{max}\"/>");
        let rules = duel_ruleset("").replace("<RatingWindow Start=\"2\" Max=\"2\"/>", &window);
        rules.replace("<Queue ", &format!("<Queue {pass_trigger} "))
    };
    let directory = RulesetDirectory::with_files(&[("duel.xml", &widening(1))]);
    let server = directory.start_server().await;
    let mut operator = operator_client(&server).await;
    let connected = ["ann", "bob", "cid"].map(str::to_owned).to_vec();
    let heartbeat = pb::QueueHeartbeatRequest { connected_user_ids: connected, ..Default::default() };
    server.client().await.heartbeat_tickets(heartbeat).await.expect("heartbeat");
    let mut ann = QueuedParty::enter(&server, SET_ID, &[("ann", 20.0)]).await;
    wait_until("the first pass", async || passes(&mut operator, SET_ID).await == 1).await;
    let mut bob = QueuedParty::enter(&server, SET_ID, &[("bob", 22.0)]).await;
    wait_until("a ticket entered", async || passes(&mut operator, SET_ID).await == 2).await;
    server.clock.advance_ms(1_000);
    wait_until("ranges grew", async || passes(&mut operator, SET_ID).await == 3).await;
    let mut cid = QueuedParty::enter(&server, SET_ID, &[("cid", 40.0)]).await;
    wait_until("another ticket entered", async || passes(&mut operator, SET_ID).await == 4).await;
    assert!(cid.ticket.leave().await.expect("leave"));
    wait_until("a ticket left", async || passes(&mut operator, SET_ID).await == 5).await;
    assert_eq!(ann.current_status().await.state(), TicketState::Waiting, "ann's range is limited to one");
    server.clock.advance_ms(1_000);
    directory.write_file("duel.xml", &widening(2));
    OperatorClient::connect(&server).await.reload_rulesets().await;
    let found = ann.wait_for_state(TicketState::Matched).await.found_match.expect("a match");
    assert_eq!(bob.wait_for_state(TicketState::Matched).await.found_match.expect("a match").match_id, found.match_id);
}

/// Rules with `size` players a team and this quality.
fn teams(size: u32, quality: &str, selection: &str) -> String {
    format!(
        r#"<Ruleset Name="Alike" SetId="{SET_ID}">
  <Attributes><Attribute Name="skill" Type="number" Min="0" Max="50" Trust="client"/></Attributes>
  <Teams Count="2" Size="{size}"/>
  <Queue PassIntervalMs="10"><Quality>{quality}</Quality><Selection Mode="{selection}"/></Queue>
</Ruleset>"#
    )
}

fn similarity(percent: u32) -> String {
    format!(r#"<AverageSimilarity RatingSpan="50" RequiredPercent="{percent}"/>"#)
}

/// S2-13, S4-3, S4-16: team size, required similarity and its kind may change while tickets wait; the new ruleset applies to
/// them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pass_uses_the_reloaded_ruleset_for_waiting_tickets() {
    let category = r#"<CategorySimilarity Categories="2" CategoryWidth="100" RequiredPercent="99"/>"#;
    let changes = [(1, similarity(85)), (2, similarity(60)), (1, category.to_owned())];
    let changes = changes.iter().flat_map(|change| ["nearest", "first_window"].map(|selection| (change, selection)));
    for ((size, quality), selection) in changes {
        let (rules, players) = (teams(*size, quality, selection), 2 * size);
        let directory = RulesetDirectory::with_files(&[("alike.xml", &teams(1, &similarity(95), selection))]);
        let server = directory.start_server().await;
        let mut all = Vec::new();
        for (name, skill) in [("ann", 10.0), ("bob", 20.0), ("cid", 30.0), ("dan", 40.0)] {
            all.push(QueuedParty::enter(&server, SET_ID, &[(name, skill)]).await);
            server.clock.advance_ms(1);
        }
        wait_until("no two are similar enough", async || all[0].current_status().await.blocking_rule == "quality")
            .await;
        directory.write_file("alike.xml", &rules);
        let change = OperatorClient::connect(&server).await.reload_rulesets().await.changes.remove(0);
        for waiting in &mut all {
            let found = waiting.wait_for_state(TicketState::Matched).await.found_match.expect("a match");
            assert_eq!((found.player_count, Some(found.service_configuration_hash)), (players, change.current_hash));
        }
    }
}
