//! When passes are run: as far apart as the ruleset says, not while nothing has changed, again as soon as something
//! has; and by new rules as soon as there are any.

use fireteam_client::pb;
use pb::TicketState;
use tonic::transport::Channel;

use crate::support::generated_client;
use crate::support::generated_client::operator_service_client::OperatorServiceClient;
use crate::support::queue_server::{
    QueuedParty, SET_ID, duel_ruleset, enter_request, operator_client, start_queue_server, wait_until,
};
use crate::support::ruleset_dir::{OperatorClient, RulesetDirectory};

/// Another queue beside `SET`.
const OTHER: u32 = 12;

/// The same rules for that queue.
fn other(rules: &str) -> String {
    rules.replace(&format!("SetId=\"{SET_ID}\""), &format!("SetId=\"{OTHER}\""))
}

/// Passes of a set's queue so far.
async fn passes(operator: &mut OperatorServiceClient<Channel>, set: u32) -> u64 {
    let asked = operator.get_statistics(generated_client::GetStatisticsRequest {}).await.expect("statistics");
    let queues = asked.into_inner().queues;
    queues.iter().find(|queue| queue.matchmaking_set_id == set).map_or(0, |queue| queue.passes)
}

/// S0-17, S2-5: whoever comes between two passes waits for the next, however well somebody suits; other queues go their
/// own pace.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn passes_are_as_far_apart_as_the_ruleset_says() {
    let slow = duel_ruleset("").replace("PassIntervalMs=\"10\"", "PassIntervalMs=\"60000\"");
    let house = start_queue_server(&[&slow, &other(&duel_ruleset(""))]).await;
    let mut operator = operator_client(&house).await;
    let mut ann = QueuedParty::enter(&house, SET_ID, &[("ann", 20.0)]).await;
    wait_until("the first pass", async || passes(&mut operator, SET_ID).await == 1).await;
    let mut bob = QueuedParty::enter(&house, SET_ID, &[("bob", 20.0)]).await;
    for pair in [["cid", "dan"], ["eve", "fay"]] {
        let mut first = QueuedParty::enter(&house, OTHER, &[(pair[0], 20.0)]).await;
        let _second = QueuedParty::enter(&house, OTHER, &[(pair[1], 20.0)]).await;
        first.wait_for_state(TicketState::Matched).await;
    }
    assert_eq!(passes(&mut operator, SET_ID).await, 1);
    for waiting in [&mut ann, &mut bob] {
        assert_eq!(waiting.current_status().await.state(), TicketState::Waiting);
    }
}

/// S0-23: a pass that found nothing is not repeated while nothing changes, unless the ruleset says so: then it is, all
/// the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_tried_while_nothing_changes() {
    let restless = duel_ruleset("")
        .replace("<Queue PassIntervalMs=\"10\">", "<Queue PassIntervalMs=\"10\"><Gate SkipUnchanged=\"false\"/>");
    let house = start_queue_server(&[&duel_ruleset(""), &other(&restless)]).await;
    let mut operator = operator_client(&house).await;
    // Connected before she waits: how many are is something that changes, too.
    let said = pb::QueueHeartbeatRequest { connected_user_ids: vec!["ann".to_owned()], ..Default::default() };
    house.client().await.heartbeat(said).await.expect("heartbeat");
    let _ann = QueuedParty::enter(&house, SET_ID, &[("ann", 20.0)]).await;
    // In a population of its own, whose crowd is none of hers.
    let mut elsewhere = enter_request(OTHER, &[("bob", 20.0)]);
    elsewhere.session_composition.as_mut().expect("a party").silo_id = Some(2);
    let _bob = QueuedParty::enter_with_request(&house, elsewhere).await;
    wait_until("the only pass", async || passes(&mut operator, SET_ID).await == 1).await;
    let before = passes(&mut operator, OTHER).await;
    wait_until("fifty passes of the other", async || before + 50 <= passes(&mut operator, OTHER).await).await;
    assert_eq!(passes(&mut operator, SET_ID).await, 1);
}

/// S0-24, B-2: somebody who comes, ranges that grow, somebody who goes, and new rules: each has the queue looked at
/// once more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_wakes_when_something_changes() {
    let widening = |max: u32| {
        let window = format!("<RatingWindow Start=\"0\" Step=\"1\" StepEveryMs=\"1000\" Max=\"{max}\"/>");
        duel_ruleset("").replace("<RatingWindow Start=\"2\" Max=\"2\"/>", &window)
    };
    let book = RulesetDirectory::with_files(&[("duel.xml", &widening(1))]);
    let house = book.start_server().await;
    let mut operator = operator_client(&house).await;
    let everybody = ["ann", "bob", "cid"].map(str::to_owned).to_vec();
    let said = pb::QueueHeartbeatRequest { connected_user_ids: everybody, ..Default::default() };
    house.client().await.heartbeat(said).await.expect("heartbeat");
    let mut ann = QueuedParty::enter(&house, SET_ID, &[("ann", 20.0)]).await;
    wait_until("the first pass", async || passes(&mut operator, SET_ID).await == 1).await;
    let mut bob = QueuedParty::enter(&house, SET_ID, &[("bob", 22.0)]).await;
    wait_until("somebody came", async || passes(&mut operator, SET_ID).await == 2).await;
    house.clock.advance_ms(1_000);
    wait_until("ranges grew", async || passes(&mut operator, SET_ID).await == 3).await;
    let mut cid = QueuedParty::enter(&house, SET_ID, &[("cid", 40.0)]).await;
    wait_until("somebody else came", async || passes(&mut operator, SET_ID).await == 4).await;
    assert!(cid.ticket.leave().await.expect("leave"));
    wait_until("somebody left", async || passes(&mut operator, SET_ID).await == 5).await;
    assert_eq!(ann.current_status().await.state(), TicketState::Waiting, "her range goes no further than one");
    house.clock.advance_ms(1_000);
    book.write_file("duel.xml", &widening(2));
    OperatorClient::connect(&house).await.reload_rulesets().await;
    let met = ann.wait_for_state(TicketState::Matched).await.found_match.expect("a match");
    assert_eq!(bob.wait_for_state(TicketState::Matched).await.found_match.expect("a match").match_id, met.match_id);
}

/// Rules for `size` a team, that ask for this quality.
fn teams(size: u32, quality: &str) -> String {
    format!(
        r#"<Ruleset Name="Alike" SetId="{SET_ID}">
  <Attributes><Attribute Name="skill" Type="number" Min="0" Max="50" Trust="client"/></Attributes>
  <Teams Count="2" Size="{size}"/>
  <Queue PassIntervalMs="10"><Quality>{quality}</Quality></Queue>
</Ruleset>"#
    )
}

fn alike(percent: u32) -> String {
    format!(r#"<AverageSimilarity RatingSpan="50" RequiredPercent="{percent}"/>"#)
}

/// S2-13, S4-3: how large teams are, how alike their players must be, and by rating or by category, may be changed
/// while players wait: those who wait are matched by the new rules.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_is_matched_by_the_rules_as_they_are_now() {
    let category = r#"<CategorySimilarity Categories="2" CategoryWidth="100" RequiredPercent="99"/>"#;
    for (rules, players) in [(teams(1, &alike(85)), 2), (teams(2, &alike(60)), 4), (teams(1, category), 2)] {
        let book = RulesetDirectory::with_files(&[("alike.xml", &teams(1, &alike(95)))]);
        let house = book.start_server().await;
        let mut all = Vec::new();
        for (name, skill) in [("ann", 10.0), ("bob", 20.0), ("cid", 30.0), ("dan", 40.0)] {
            all.push(QueuedParty::enter(&house, SET_ID, &[(name, skill)]).await);
            house.clock.advance_ms(1);
        }
        wait_until("none is like another", async || all[0].current_status().await.blocking_rule == "quality").await;
        book.write_file("alike.xml", &rules);
        let change = OperatorClient::connect(&house).await.reload_rulesets().await.changes.remove(0);
        for waiting in &mut all {
            let play = waiting.wait_for_state(TicketState::Matched).await.found_match.expect("a match");
            assert_eq!((play.player_count, Some(play.service_configuration_hash)), (players, change.current_hash));
        }
    }
}
