//! Ended matches leave memory, and avoidance rules still know them; a restarted server as well.

use fireteam::config::StoreTarget;
use fireteam_client::pb::{self, TicketState};

use crate::security::match_credential::operator_page;
use crate::support::queue_server::{QueuedParty, SET_ID, wait_until};
use crate::support::test_server::TestServer;

/// Ruleset whose players do not meet again for a day, with teams of one.
const RULES: &str = r#"<Ruleset Name="Duel" SetId="11">
  <Attributes><Attribute Name="skill" Type="number" Min="0" Max="50" Trust="client"/></Attributes>
  <Teams Count="2" Size="1"/>
  <Queue PassIntervalMs="10" TicketTtlMs="600000"><RatingWindow Start="2" Max="2"/>
    <Avoid Whom="recent_opponents" How="never" RecentMs="86400000"/></Queue>
  <Hosting Mode="none"/>
</Ruleset>"#;

const HOUR_MS: u64 = 3_600_000;

async fn matches_in_memory(server: &TestServer) -> String {
    let (_, text) = operator_page(server, "/metrics").await;
    text.lines().find_map(|line| line.strip_prefix("fireteam_matches ")).expect("the metric").to_owned()
}

/// Ann and bob enter and do not meet; with a third player, one of them is matched.
async fn assert_apart(server: &TestServer) {
    let mut ann = QueuedParty::enter(server, SET_ID, &[("ann", 20.0)]).await;
    let mut bob = QueuedParty::enter(server, SET_ID, &[("bob", 20.0)]).await;
    wait_until("a rule keeps them apart", async || {
        ann.current_status().await.blocking_rule == "avoid" && bob.current_status().await.blocking_rule == "avoid"
    })
    .await;
    for party in [&mut ann, &mut bob] {
        assert_eq!(party.current_status().await.state(), TicketState::Waiting);
        assert!(party.ticket.leave().await.expect("leave"));
    }
}

/// S1-96: an ended match leaves memory an hour after its end. Its players still avoid each other, also after a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn avoid_knows_matches_that_have_left_memory() {
    let (rules, store) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(rules.path().join("duel.xml"), RULES).unwrap();
    let server = TestServer::start_with_config(|config| {
        config.rulesets = fireteam::config::RulesetSource::Directory(rules.path().to_owned());
        config.store = StoreTarget::Sqlite(store.path().join("a.db"));
    })
    .await;
    let mut ann = QueuedParty::enter(&server, SET_ID, &[("ann", 20.0)]).await;
    let mut bob = QueuedParty::enter(&server, SET_ID, &[("bob", 20.0)]).await;
    let id = ann.wait_for_state(TicketState::Matched).await.found_match.expect("a match").match_id;
    bob.wait_for_state(TicketState::Matched).await;
    let ended = ann.ticket.end_match(&id, false).await.expect("end");
    assert_eq!(ended, pb::MatchEndReason::Played);
    drop((ann, bob));
    assert_apart(&server).await;
    // The lease task notes the end in one of its purges, and removes the match in one that is an hour later.
    server.app.engine.purge_ended_from_memory();
    server.clock.advance_ms(HOUR_MS);
    server.app.engine.purge_ended_from_memory();
    wait_until("the match has left memory", async || matches_in_memory(&server).await == "0").await;
    assert_apart(&server).await;

    let server = server.restart().await;
    assert_apart(&server).await;
    server.app.shutdown().await;
}
