//! R9: servers whose feeds do not poll. A change is read only because of a notification, or because its reader still reads after
//! another change. So the test fails if a commit can be throttled without either.

use std::time::Duration;

use fireteam_client::pb;

use crate::cluster::Cluster;
use crate::feed::{found, named, seats};
use crate::report::{TestReport, TestRng, scaled};
use crate::support::database::create_test_database;
use crate::support::party::party_session;
use crate::support::server_process::TEST_TIMEOUT;

/// Servers on the database.
const SERVERS: usize = 3;

/// Sessions of each server.
const SESSIONS: usize = 4;

/// Rounds of updates, and of matches, at `SCALE=1`.
const ROUNDS: usize = 60;
const MATCHES: usize = 20;

/// Most updates in one round.
const UPDATES_MAX: usize = 6;

const RULESET: &str = r#"<Ruleset Name="Duel" SetId="1">
  <Attributes><Attribute Name="skill" Type="number" Min="0" Max="50" Trust="client"/></Attributes>
  <Teams Count="2" Size="1"/>
  <Queue PassIntervalMs="10"/>
</Ruleset>"#;

/// Servers whose feeds poll once an hour.
fn start_servers_without_polls(url: &str) -> Cluster {
    let cluster = Cluster::new_with_ruleset(url, SERVERS, RULESET);
    let mut faults = "slow_feed_polls=return".to_owned();
    if let Some(planted) = std::env::var_os("FAILPOINTS").and_then(|value| value.into_string().ok()) {
        faults = format!("{faults};{planted}");
    }
    tokio::task::block_in_place(|| {
        (0..SERVERS).for_each(|at| cluster.fill(at, None, &[("FAILPOINTS", &faults)]));
    });
    cluster
}

/// A pause of a random length: often shorter than the time in which readers still read, sometimes much longer.
async fn pause(rng: &TestRng) {
    let longest_ms = [3, 30, 300][rng.below(3)];
    tokio::time::sleep(Duration::from_millis(rng.below(longest_ms) as u64)).await;
}

/// R9: each of some updates in quick succession, at random servers, is found at all others.
async fn find_updates(report: &mut TestReport, cluster: &Cluster) {
    let rng = report.rng(1);
    let mut sessions = Vec::new();
    for number in 0..SERVERS * SESSIONS {
        let here = cluster.client(number / SESSIONS, 1).expect("a server is running");
        let made = here.update_advertisement(named(number, 0)).await.expect("advertise");
        sessions.push((made.advertisement_id, made.advertisement_token));
    }
    let (mut word, mut searches) = (0, 0);
    for _ in 0..scaled(ROUNDS) {
        pause(&rng).await;
        let first = rng.below(sessions.len());
        let mut updated = Vec::new();
        // Different sessions, so that each update can be found.
        for more in 0..=rng.below(UPDATES_MAX) {
            let number = (first + more * 5) % sessions.len();
            word += 1;
            let mut request = named(number, word);
            request.idempotency_key.clear();
            (request.advertisement_id, request.advertisement_token) = sessions[number].clone();
            let at = number / SESSIONS;
            cluster.client(at, 1).expect("a server is running").update_advertisement(request).await.expect("update");
            updated.push((at, word));
            tokio::time::sleep(Duration::from_millis(rng.below(30) as u64)).await;
        }
        for (here, word) in updated {
            for there in (0..SERVERS).filter(|there| *there != here) {
                searches += 1;
                if found(cluster, there, seats(word)).await.is_none() {
                    report.violation(format!("update {word} of server {here} is never found at server {there}"));
                    return;
                }
            }
        }
    }
    report.record("updates", word);
    report.record("found elsewhere", searches);
}

/// Two players enter at different servers; both are matched.
async fn match_players(cluster: &Cluster, number: usize, servers: [usize; 2]) -> Result<(), String> {
    for (player, at) in servers.into_iter().enumerate() {
        let request = pb::QueueEnterRequest {
            session_composition: Some(party_session(&[(&format!("player {number} {player}"), 20.0)])),
            matchmaking_set_id: Some(1),
            ..Default::default()
        };
        let ticket = cluster.client(at, 2).expect("a server is running").enter_queue(request).await.expect("enter");
        let mut statuses = ticket.watch();
        let is_matched = async {
            while let Some(status) = statuses.next().await.expect("a status") {
                if status.state() == pb::TicketState::Matched {
                    return;
                }
            }
        };
        // The first player waits for the second.
        if player == 1 && tokio::time::timeout(TEST_TIMEOUT / 6, is_matched).await.is_err() {
            return Err(format!("players {number} of servers {servers:?} are never matched"));
        }
    }
    Ok(())
}

/// R9: other servers read each change without polls, with at most one notification in a quiet time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_reach_other_servers_without_polls() {
    let mut report = TestReport::start("feed without polls").await;
    let Some(database) = create_test_database("changes_reach_other_servers_without_polls").await else { return };
    let cluster = start_servers_without_polls(&database.url);
    find_updates(&mut report, &cluster).await;
    let rng = report.rng(2);
    for number in 0..scaled(MATCHES) {
        if report.has_detected_fault() {
            break;
        }
        pause(&rng).await;
        let first = rng.below(SERVERS);
        let servers = [first, (first + 1 + rng.below(SERVERS - 1)) % SERVERS];
        report.violations(match_players(&cluster, number, servers).await.err().into_iter().collect());
    }
    report.record("matches", scaled(MATCHES));
    report.finish();
}
