//! Ended matches leave memory, and avoidance rules still know them; a restarted server as well.

use fireteam::config::StoreTarget;
use fireteam_client::Client;
use fireteam_client::pb::{self, TicketState};

use crate::security::match_credential::operator_page;
use crate::store::replicas::Replicas;
use crate::support::database::create_test_database;
use crate::support::queue_server::{QueuedParty, SET_ID, enter_request, wait_until};
use crate::support::ruleset_dir::{OperatorClient, RulesetDirectory};
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

/// Enters one player with a skill of 20, or of 40, which is out of reach of the others.
async fn enter(client: Client, user: &str, skill: f64) -> QueuedParty {
    QueuedParty::enter_with_client(client, enter_request(SET_ID, &[(user, skill)])).await
}

/// Waits until the status of both parties says that a rule keeps them apart.
async fn wait_until_apart(one: &mut QueuedParty, other: &mut QueuedParty) {
    wait_until("a rule keeps them apart", async || {
        one.current_status().await.blocking_rule == "avoid" && other.current_status().await.blocking_rule == "avoid"
    })
    .await;
}

/// Plays a match of two parties, and returns when it has ended.
async fn play(one: &mut QueuedParty, other: &mut QueuedParty) {
    let found = one.wait_for_state(TicketState::Matched).await.found_match.expect("a match");
    let same = other.wait_for_state(TicketState::Matched).await.found_match.expect("a match");
    assert_eq!(found.match_id, same.match_id);
    one.ticket.end_match(&found.match_id, false).await.expect("end");
    one.wait_for_end().await;
    other.wait_for_end().await;
}

/// Leaves with each party.
async fn leave(parties: &mut [&mut QueuedParty]) {
    for party in parties {
        assert!(party.ticket.leave().await.expect("leave"));
    }
}

/// S1-96: recent opponents stay apart while one waits on and others come, leave and return, and a changed ruleset counts at
/// once for who already waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn avoid_keeps_recent_opponents_apart_while_players_come_and_go() {
    let directory = RulesetDirectory::with_files(&[("duel.xml", RULES)]);
    let server = directory.start_server().await;
    let mut operator = OperatorClient::connect(&server).await;
    let (mut ann, mut bob) =
        (enter(server.client().await, "ann", 20.0).await, enter(server.client().await, "bob", 20.0).await);
    play(&mut ann, &mut bob).await;
    let mut ann = enter(server.client().await, "ann", 20.0).await;
    for round in 0..3 {
        let mut bob = enter(server.client().await, "bob", 20.0).await;
        wait_until_apart(&mut ann, &mut bob).await;
        leave(&mut [&mut bob]).await;
        let mut passing_by = enter(server.client().await, &format!("dan {round}"), 40.0).await;
        wait_until("a pass has seen both", async || {
            passing_by.current_status().await.blocking_rule == "window"
                && ann.current_status().await.blocking_rule == "window"
        })
        .await;
        leave(&mut [&mut passing_by]).await;
    }
    // They meet again under a shorter time, and that match counts as soon as the time is long again.
    server.clock.advance_ms(2_000);
    directory.write_file("duel.xml", &RULES.replace("86400000", "1000"));
    assert_eq!(operator.reload_rulesets().await.problems, []);
    let mut bob = enter(server.client().await, "bob", 20.0).await;
    play(&mut ann, &mut bob).await;
    server.clock.advance_ms(2_000);
    let mut ann = enter(server.client().await, "ann", 20.0).await;
    let mut eve = enter(server.client().await, "eve", 40.0).await;
    wait_until("a pass has seen ann", async || ann.current_status().await.blocking_rule == "window").await;
    directory.write_file("duel.xml", RULES);
    assert_eq!(operator.reload_rulesets().await.problems, []);
    let mut bob = enter(server.client().await, "bob", 20.0).await;
    wait_until_apart(&mut ann, &mut bob).await;
    leave(&mut [&mut ann, &mut bob, &mut eve]).await;
    server.app.shutdown().await;
}

/// S1-96: recent opponents stay apart on two servers, where either enters, leaves and returns at each of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn avoid_keeps_recent_opponents_apart_on_two_servers() {
    let Some(database) = create_test_database("avoid_keeps_recent_opponents_apart_on_two_servers").await else {
        return;
    };
    let directory = RulesetDirectory::with_files(&[("duel.xml", RULES)]);
    let replicas = Replicas::start(&database, 2, &["--rulesets", &directory.path().display().to_string()]);
    let [here, there] = &replicas.servers[..] else { unreachable!() };
    let (mut ann, mut bob) =
        (enter(here.client().await, "ann", 20.0).await, enter(there.client().await, "bob", 20.0).await);
    play(&mut ann, &mut bob).await;
    let mut ann = enter(there.client().await, "ann", 20.0).await;
    for (round, server) in [here, there, here].into_iter().enumerate() {
        let mut bob = enter(server.client().await, "bob", 20.0).await;
        // Two others enter after bob and are matched, so the pass that matched them saw bob and ann as well.
        let mut dan = enter(here.client().await, &format!("dan {round}"), 40.0).await;
        let mut eve = enter(there.client().await, &format!("eve {round}"), 40.0).await;
        play(&mut dan, &mut eve).await;
        for party in [&mut ann, &mut bob] {
            assert_eq!(party.current_status().await.state(), TicketState::Waiting, "round {round}");
        }
        leave(&mut [&mut bob]).await;
    }
    leave(&mut [&mut ann]).await;
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
