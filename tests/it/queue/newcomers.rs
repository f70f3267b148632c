//! Passes over windows examine what newcomers may change, beside many parties that wait. On SQLite and on Postgres.

use fireteam::domain::id::SetId;
use fireteam_client::{Client, Ticket, pb};
use pb::TicketState;

use crate::support::party_site::wait_for_state;
use crate::support::queue_server::{SET_ID, enter_request, servers_on_each_store, wait_until};
use crate::support::test_server::TestServer;

/// Duels of the first two neighbours in the list of ratings that suit each other in taste.
fn ruleset() -> String {
    format!(
        r#"<Ruleset Name="Neighbours" SetId="{SET_ID}">
  <Attributes>
    <Attribute Name="skill" Type="number" Min="0" Max="3000" Trust="client"/>
    <Attribute Name="taste" Type="number" Min="0" Max="20" Trust="client"/>
  </Attributes>
  <SoftFilters><SoftFilter Attribute="taste" Weight="1" Mode="difference"/></SoftFilters>
  <Teams Count="2" Size="1"/>
  <Queue PassIntervalMs="10">
    <Quality><SoftScore MaxScore="0.3"/></Quality>
    <Selection Mode="first_window" StartWith="highest_rated" MaxCandidates="8"/>
  </Queue>
</Ruleset>"#
    )
}

async fn enter(client: &Client, name: &str, skill: f64, taste: f64) -> Ticket {
    let mut request = enter_request(SET_ID, &[(name, skill)]);
    let session = request.session_composition.as_mut().expect("a session");
    let value = pb::AttributeValue { value: Some(pb::attribute_value::Value::NumberValue(taste)) };
    session.attributes.insert("taste".to_owned(), value);
    client.enter_queue(request).await.expect("enter")
}

/// Returns when a pass has kept a ticket of several waiting, or matched it.
async fn wait_for_pass(ticket: &mut Ticket) {
    wait_until("a pass has examined the ticket", async || {
        let status = ticket.heartbeat().await.expect("heartbeat");
        status.state() != TicketState::Waiting || !["", "no_candidates"].contains(&status.blocking_rule.as_str())
    })
    .await;
}

fn pairs_evaluated(server: &TestServer) -> u64 {
    let metrics = &server.app.metrics;
    metrics.pass_pairs_evaluated.get_or_create(&metrics.set_label(SetId(SET_ID))).get()
}

/// S4-16: a newcomer costs the windows around it, beside sixty who do not match. It is matched as in a pass over all. When the
/// last ticket between two others leaves, they meet: that pass examines all windows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pass_examines_only_the_windows_of_newcomers() {
    for (server, _database) in servers_on_each_store("newcomers", &ruleset()).await {
        let client = server.client().await;
        // Neighbours differ in taste, and so do those beside any one of them. Those beside any two have the same.
        let mut tickets = Vec::new();
        for number in 0..60_u32 {
            let taste = f64::from(number % 3) * 10.0;
            tickets.push(enter(&client, &format!("player {number}"), f64::from(number) * 50.0, taste).await);
        }
        for ticket in &mut tickets {
            wait_for_pass(ticket).await;
        }
        // Suits neither 29, whose taste is 20, nor 30, whose taste is 0. Without a match no other pass follows.
        let before = pairs_evaluated(&server);
        let mut unsuited = enter(&client, "unsuited", 1_475.0, 10.0).await;
        wait_for_pass(&mut unsuited).await;
        let cost = pairs_evaluated(&server) - before;
        assert!((1..=12).contains(&cost), "{cost} pairs: the windows of the newcomer");
        assert_eq!(unsuited.status.state(), TicketState::Waiting);
        assert!(unsuited.leave().await.expect("leave"));
        // Suits 29.
        let mut newcomer = enter(&client, "newcomer", 1_475.0, 16.0).await;
        for ticket in [&mut newcomer, &mut tickets[29]] {
            wait_for_state(ticket, TicketState::Matched).await;
        }

        // Two have gone between 27 and 30.
        let before = pairs_evaluated(&server);
        assert!(tickets[28].leave().await.expect("leave"));
        for number in [27, 30] {
            wait_for_state(&mut tickets[number], TicketState::Matched).await;
        }
        let cost = pairs_evaluated(&server) - before;
        assert!(25 <= cost, "{cost} pairs: all windows, from the highest down");
        for number in [0, 26, 31, 59] {
            assert_eq!(tickets[number].heartbeat().await.expect("heartbeat").state(), TicketState::Waiting);
        }
        server.app.shutdown().await;
    }
}

/// Duels of tickets whose tastes differ by at most five. All have the same rating.
fn nearest_ruleset() -> String {
    format!(
        r#"<Ruleset Name="Nearest" SetId="{SET_ID}">
  <Attributes>
    <Attribute Name="skill" Type="number" Min="0" Max="3000" Trust="client"/>
    <Attribute Name="taste" Type="number" Min="0" Max="1000" Trust="client"/>
  </Attributes>
  <HardFilters><Within Name="taste" Expansion="taste"/></HardFilters>
  <ExpansionConfigs>
    <ExpansionConfig Name="taste" Type="taste"><Expansion ExpansionDurationMs="-1" Value="5"/></ExpansionConfig>
  </ExpansionConfigs>
  <Teams Count="2" Size="1"/>
  <Queue PassIntervalMs="10"/>
</Ruleset>"#
    )
}

/// S4-16: in the mode `nearest`, a newcomer is compared once with each of sixty who do not suit each other, and hardly any of them with
/// others again: not when it enters, nor when it leaves. Who suits is matched.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pass_compares_newcomers_alone_with_those_who_wait() {
    for (server, _database) in servers_on_each_store("nearest", &nearest_ruleset()).await {
        let client = server.client().await;
        let mut tickets = Vec::new();
        for number in 0..60_u32 {
            tickets.push(enter(&client, &format!("player {number}"), 1_000.0, f64::from(number) * 10.0).await);
        }
        for ticket in &mut tickets {
            wait_for_pass(ticket).await;
        }
        let before = pairs_evaluated(&server);
        let mut unsuited = enter(&client, "unsuited", 1_000.0, 1_000.0).await;
        wait_for_pass(&mut unsuited).await;
        let cost = pairs_evaluated(&server) - before;
        assert!(
            (60..=1_000).contains(&cost),
            "{cost} pairs, of 3,700 in a pass over all: each of the others with the newcomer, and its own search"
        );
        let before = pairs_evaluated(&server);
        assert!(unsuited.leave().await.expect("leave"));
        // A pass has run when this one is matched.
        let mut suited = enter(&client, "suited", 1_000.0, 11.0).await;
        for ticket in [&mut suited, &mut tickets[1]] {
            wait_for_state(ticket, TicketState::Matched).await;
        }
        let cost = pairs_evaluated(&server) - before;
        assert!(cost <= 1_000, "{cost} pairs, of 3,700 in a pass over all");
        for number in [0, 2, 3, 59] {
            assert_eq!(tickets[number].heartbeat().await.expect("heartbeat").state(), TicketState::Waiting);
        }
        server.app.shutdown().await;
    }
}
