//! Wishes while rules, sessions and reservations change: none refuses for a reason that is gone, and none is left out.

use fireteam_client::pb;
use pb::TicketState;

use crate::queue::hosted_matches::next_match;
use crate::support::party_site::{PartySite, on_each_store, reason};
use crate::support::queue_server::{QueuedParty, SET_ID, enter_request, start_queue_server, wait_until};
use crate::support::ruleset_dir::{OperatorClient, RulesetDirectory};
use crate::support::test_server::advertise_request;
use crate::wishes::fixture::{
    advertised, entering, searched, skill_wish, strings, wish, wishes_ruleset, wishing_party,
};

/// A wish that was published for an attribute of another type is ignored, as one that the ruleset no longer allows: it could never be met.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wish_for_an_attribute_that_changed_its_type_is_ignored() {
    let directory = RulesetDirectory::with_files(&[("wishes.xml", &wishes_ruleset(""))]);
    let server = directory.start_server().await;
    let client = server.client().await;
    let duels = [wish("mode", strings(&["duel"]))];
    client.advertise(advertised("hal", 20.0, &duels)).await.expect("advertise");
    let search = async || searched(&client, wishing_party("ana", 20.0, &[])).await.0.len();
    assert_eq!(search().await, 0, "ana states no mode");
    let mut ben = QueuedParty::enter_with_request(&server, entering("ben", 20.0, &duels)).await;
    let mut cyd = QueuedParty::enter_with_request(&server, entering("cyd", 20.0, &[])).await;
    wait_until("a pass has refused", async || cyd.current_status().await.blocking_rule == "other_wish:mode").await;
    let numbered = wishes_ruleset("").replace(r#"Name="mode" Type="string""#, r#"Name="mode" Type="number""#);
    directory.write_file("wishes.xml", &numbered);
    assert_eq!(OperatorClient::connect(&server).await.reload_rulesets().await.problems, []);
    assert_eq!(search().await, 1, "the published wish is about strings");
    ben.wait_for_state(TicketState::Matched).await;
    cyd.wait_for_state(TicketState::Matched).await;
}

/// Wishes and hard filters also judge a party that reserves again in a full session, where its new reservation takes the place of its own.
async fn reserving_again_in_a_full_session_is_judged(site: PartySite) {
    let host = site.player("hal").await;
    let mut request = advertised("hal", 20.0, &[]);
    let session = request.session_composition.as_mut().expect("a session");
    session.max_allowed_join_reservation_count = Some(1);
    let published = host.update_advertisement(request.clone()).await.expect("advertise");
    let id = published.advertisement_id.clone();
    let client = site.player_elsewhere("ana").await;
    let mut search = client.new_search(SET_ID, wishing_party("ana", 40.0, &[]));
    wait_until("the session is known", async || !search.search().await.expect("search").candidates.is_empty()).await;
    search.reserve(&id).await.expect("reserve");
    let own_wish = [skill_wish(0.0, 10.0)];
    search.request_mut().session_composition = Some(wishing_party("ana", 40.0, &own_wish));
    let refused = search.reserve(&id).await.expect_err("the own wish refuses the host");
    assert_eq!((reason(&refused), side(&refused)), ("REFUSED_BY_RULE", "searcher"), "{refused}");
    let session = request.session_composition.as_mut().expect("a session");
    session.wishes = own_wish.to_vec();
    let update = pb::MatchmakingUpdateAdvertisementRequest {
        advertisement_id: id.clone(),
        advertisement_token: published.advertisement_token.clone(),
        ..request
    };
    host.update_advertisement(update).await.expect("update");
    search.request_mut().session_composition = Some(wishing_party("ana", 40.0, &[]));
    wait_until("the wish of the host refuses", async || match search.reserve(&id).await {
        Ok(_) => false,
        Err(refused) => side(&refused) == "advertiser",
    })
    .await;
    site.shut_down().await;
}

fn side(error: &fireteam_client::Error) -> &str {
    error.as_server_error().and_then(|status| status.reason_metadata.get("side")).map_or("", String::as_str)
}

on_each_store! {
    reserving_again_in_a_full_session_is_judged, wishes_ruleset(""),
        reserving_again_in_a_full_session_is_judged_on_sqlite, reserving_again_in_a_full_session_is_judged_on_postgres;
}

/// The limit of a session that was advertised after the ticket entered grows last. The guest is asked for then, without another event.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guest_joins_when_the_limit_of_the_session_grows() {
    let ruleset = format!(
        r#"<Ruleset Name="Growing" SetId="{SET_ID}">
  <Attributes><Attribute Name="skill" Type="number" Min="0" Max="50" Trust="client"/></Attributes>
  <HardFilters><Within Name="skill" Expansion="skill_limit" ReciprocalPercent="100"/></HardFilters>
  <ExpansionConfigs>
    <ExpansionConfig Name="skill_limit" Type="skill">
      <Expansion ExpansionDurationMs="8000" Value="5"/>
      <Expansion ExpansionDurationMs="-1" Value="40"/>
    </ExpansionConfig>
  </ExpansionConfigs>
  <Teams Count="2" Size="1"/>
  <Queue PassIntervalMs="10" Backfill="true"/>
</Ruleset>"#
    );
    let server = start_queue_server(&[&ruleset]).await;
    let mut ana = QueuedParty::enter(&server, SET_ID, &[("ana", 40.0)]).await;
    server.clock.advance_ms(3_000);
    let (connection, mut events) = server.client().await.open_stream().await.expect("a stream");
    let request = pb::MatchmakingUpdateAdvertisementRequest {
        matchmaking_set_id: Some(SET_ID),
        time_to_live_ms: Some(600_000),
        ..advertise_request(&[("hal", 10.0)], 1)
    };
    connection.advertise(request).await.expect("advertise");
    wait_until("a pass has refused", async || ana.current_status().await.blocking_rule == "skill").await;
    // After the limit of the ticket has grown, a pass runs for another ticket; no event follows.
    server.clock.advance_ms(5_500);
    let mut ben = QueuedParty::enter_with_request(&server, enter_request(SET_ID, &[("ben", 49.0)])).await;
    wait_until("a pass has refused", async || !ben.current_status().await.blocking_rule.is_empty()).await;
    assert_eq!(ana.current_status().await.state(), TicketState::Waiting);
    server.clock.advance_ms(2_600);
    let asked = next_match(&mut events).await;
    assert!(asked.backfill && asked.parties.len() == 1, "{asked:?}");
}
