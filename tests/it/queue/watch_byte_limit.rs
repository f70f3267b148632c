//! Watches of tickets beyond the byte limit of one stream, against a real server.

use fireteam_client::pb;
use pb::TicketState;

use crate::support::generated_client as wire;
use crate::support::queue_server::{QueuedParty, SET_ID, enter_request, operator_client, start_queue_server};

/// Bytes of statuses: more than one stream carries, which is 1 MiB.
const STATUS_BYTES: usize = 1024 * 1024 + 256 * 1024;

/// Most players of a ticket: the status of their match has a credential for each.
const PLAYERS: usize = 64;

fn ruleset() -> String {
    format!(
        r#"<Ruleset Name="Large" SetId="{SET_ID}">
  <Attributes><Attribute Name="skill" Type="number" Min="0" Max="50" Trust="client"/></Attributes>
  <Party Consent="assumed"/>
  <Teams Count="2" Size="{PLAYERS}"/>
  <Queue PassIntervalMs="10"/>
</Ruleset>"#
    )
}

fn party(name: &str) -> pb::QueueEnterRequest {
    let names: Vec<String> = (0..PLAYERS).map(|number| format!("{name} {number}")).collect();
    let players: Vec<(&str, f64)> = names.iter().map(|name| (&**name, 20.0)).collect();
    enter_request(SET_ID, &players)
}

/// The server ends a stream of more than 1 MiB. The watch goes on in another one, and misses none of the states in which the ticket stays:
/// it has each match once, and each return to the queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_goes_on_beyond_the_byte_limit_of_a_stream() {
    let server = start_queue_server(&[&ruleset()]).await;
    let mut operator = operator_client(&server).await;
    let mut ann = QueuedParty::enter_with_request(&server, party("ann")).await;
    let _bob = QueuedParty::enter_with_request(&server, party("bob")).await;
    let (mut status_bytes, mut matches) = (0, Vec::new());
    while status_bytes < STATUS_BYTES {
        let status = ann.wait_for_state(TicketState::Matched).await;
        status_bytes += prost::Message::encoded_len(&status);
        let match_id = status.found_match.expect("a match").match_id;
        let cancel = wire::CancelMatchRequest { match_id: match_id.clone(), reason: "another one".into() };
        operator.cancel_match(cancel).await.expect("cancelled");
        assert!(!matches.contains(&match_id), "each match comes once");
        matches.push(match_id);
    }
    let metrics = server.app.metrics.render();
    let ended = r#"fireteam_rpc_calls_total{method="watch",code="resource_exhausted"} 1"#;
    assert!(metrics.lines().any(|line| line == ended), "{} matches, {metrics}", matches.len());
}
