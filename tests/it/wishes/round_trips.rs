//! Wishes for the round trip, and for values that the server keeps: a wish is judged by what rules see, not by what clients say.

use fireteam_client::{Client, pb};

use crate::support::queue_server::SET_ID;
use crate::support::ruleset_dir::{OperatorClient, RulesetDirectory};
use crate::wishes::fixture::{advertised, numbers, searched, skill_wish, wish, wishing_party};

const SEATTLE: &str = "71.20.133.126";
const LOS_ANGELES: &str = "151.220.31.64";

fn ruleset(latency: &str) -> String {
    format!(
        r#"<Ruleset Name="Rated" SetId="{SET_ID}">
  <Attributes><Attribute Name="skill" Type="number" Min="0" Max="3000" Wishes="true"/></Attributes>
  {latency}
  <Teams Count="2" Size="1"/>
  <Queue PassIntervalMs="10"/>
  <Rating System="elo"/>
</Ruleset>"#
    )
}

async fn count_and_rules(client: &Client, wishes: &[pb::Wish]) -> (usize, Vec<String>) {
    let (ids, refused) = searched(client, wishing_party("ana", 0.0, wishes)).await;
    (ids.len(), refused.into_iter().map(|(rule, ..)| rule).collect())
}

/// "At most 50 ms": judged by the round trip that the answer tells, in steps of 25 ms, so that a wish says nothing more about a place.
/// A host without a place is refused, unless the wish accepts the unknown. A ruleset that no longer allows it makes it invalid.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wish_for_a_round_trip_is_judged_in_steps() {
    let directory = RulesetDirectory::with_files(&[("rated.xml", &ruleset(r#"<Latency Wishes="true"/>"#))]);
    let server = directory.start_server().await;
    let at_most = |ms| wish("latency", numbers(None, Some(ms)));
    server.client_from(SEATTLE).await.advertise(advertised("hal", 0.0, &[])).await.expect("advertise");
    let client = server.client_from(LOS_ANGELES).await;
    assert_eq!(count_and_rules(&client, &[at_most(50.0)]).await, (1, vec![]), "50 ms, as the answer says");
    assert_eq!(count_and_rules(&client, &[at_most(49.9)]).await, (0, vec!["wish:latency".to_owned()]));
    server.client_from("127.0.0.1").await.advertise(advertised("hob", 0.0, &[at_most(1.0)])).await.expect("advertise");
    assert_eq!(count_and_rules(&client, &[at_most(50.0)]).await, (1, vec!["wish:latency".to_owned()]));
    let or_unknown = pb::Wish { accept_missing: true, ..at_most(50.0) };
    let (count, rules) = count_and_rules(&client, std::slice::from_ref(&or_unknown)).await;
    assert_eq!((count, rules.len()), (1, 1), "the host without a place has a wish of its own");
    directory.write_file("rated.xml", &ruleset(""));
    assert_eq!(OperatorClient::connect(&server).await.reload_rulesets().await.problems, []);
    assert_eq!(count_and_rules(&client, &[]).await, (2, vec![]), "the published wish is ignored");
    let error = client.new_search(SET_ID, wishing_party("ana", 0.0, &[or_unknown])).search().await;
    assert!(error.expect_err("refused").to_string().contains("allows no wishes"));
}

/// A wish for skill is judged by the server's rating of the other side. What clients state is ignored on both sides.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wish_for_skill_is_judged_by_the_servers_rating() {
    let directory = RulesetDirectory::with_files(&[("rated.xml", &ruleset(""))]);
    let server = directory.start_server().await;
    let client = server.client().await;
    client.advertise(advertised("hal", 100.0, &[skill_wish(1_400.0, 1_600.0)])).await.expect("advertise");
    assert_eq!(count_and_rules(&client, &[skill_wish(0.0, 200.0)]).await, (0, vec!["wish:skill".to_owned()]));
    assert_eq!(count_and_rules(&client, &[skill_wish(1_400.0, 1_600.0)]).await, (1, vec![]));
}
