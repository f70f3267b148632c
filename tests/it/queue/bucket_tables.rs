//! Rating windows whose buckets have different widths.

use fireteam_client::pb::TicketState;

use crate::support::queue_server::{QueuedParty, SET_ID, start_queue_server};

/// Duels by buckets from `table`, with the own bucket at first and one more after 20 s.
fn table_ruleset(window: &str) -> String {
    format!(
        r#"<Ruleset Name="Ranks" SetId="{SET_ID}">
  <Attributes><Attribute Name="skill" Type="number" Min="0" Max="50" Trust="client"/></Attributes>
  <Teams Count="2" Size="1"/>
  <Queue PassIntervalMs="10"><RatingWindow {window}/></Queue>
</Ruleset>"#
    )
}

const RANKS: &str = r#"Buckets="10 30 31" Start="0" Max="1" Clock="ticket""#;

/// S0-13: the bucket function is a table. Two players of one wide rank meet at once, also 18 points apart; two of neighboring ranks
/// meet one step later, also 0.2 points apart; a rank further they never do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranks_of_different_widths_are_the_buckets() {
    let server = start_queue_server(&[&table_ruleset(RANKS)]).await;
    let enter = async |name: &str, skill: f64| QueuedParty::enter(&server, SET_ID, &[(name, skill)]).await;
    let mut wide = [enter("ana", 11.0).await, enter("ben", 29.0).await];
    for party in &mut wide {
        party.wait_for_state(TicketState::Matched).await;
    }
    let mut low = enter("cid", 29.9).await;
    // The bound belongs to the bucket above it.
    let mut high = enter("dan", 30.0).await;
    let mut probe = [enter("fay", 31.0).await, enter("gil", 50.0).await];
    for party in &mut probe {
        party.wait_for_state(TicketState::Matched).await;
    }
    for party in [&mut low, &mut high] {
        assert_eq!(party.current_status().await.state(), TicketState::Waiting);
    }
    server.clock.advance_ms(20_000);
    low.wait_for_state(TicketState::Matched).await;
    high.wait_for_state(TicketState::Matched).await;
    let mut far = enter("eve", 9.9).await;
    let mut highest = enter("hal", 30.5).await;
    server.clock.advance_ms(40_000);
    let mut probe = [enter("ida", 40.0).await, enter("jon", 41.0).await];
    for party in &mut probe {
        party.wait_for_state(TicketState::Matched).await;
    }
    for party in [&mut far, &mut highest] {
        assert_eq!(party.current_status().await.state(), TicketState::Waiting, "two ranks apart");
    }
}

/// A table that is not ascending, or beside a width, is a problem of the file with its remedy.
#[test]
fn tables_that_are_no_tables_are_refused() {
    let problems = |window: &str| match fireteam::rules::parse_ruleset("ranks.xml", &table_ruleset(window)) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.iter().map(ToString::to_string).collect(),
    };
    assert_eq!(problems(RANKS), Vec::<String>::new());
    for table in ["", "30 10", "10 10", "ten", "NaN", "1e13"] {
        let found = problems(&format!(r#"Buckets="{table}""#));
        assert_eq!(found.len(), 1, "{table}: {found:?}");
        assert!(found[0].contains("1 to 64 ratings in ascending order"), "{table}: {found:?}");
    }
    let many: Vec<String> = (0..65).map(|bound| bound.to_string()).collect();
    assert_eq!(problems(&format!(r#"Buckets="{}""#, many.join(" "))).len(), 1);
    for beside in [r#"BucketWidth="2""#, r#"Rounding="floor""#, r#"MaxPercent="10""#] {
        let found = problems(&format!("{RANKS} {beside}"));
        assert!(found.len() == 1 && found[0].contains("`Buckets` lists buckets of any width"), "{beside}: {found:?}");
    }
}
