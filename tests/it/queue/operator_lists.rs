//! Lists of waiting tickets and of matches, the life of a ticket in its explanation, and the result of a match.

use fireteam_client::{Code, pb};

use crate::support::generated_client as wire;
use crate::support::queue_server::{
    QueuedParty, SET_ID, enter_request, operator_client, servers_on_each_store, start_queue_server, wait_until,
};
use crate::support::test_server::TestServer;

/// A 1v1 queue with a limit of skill that widens from 5 to 15 after ten seconds, and with a ready check.
fn widening_ruleset() -> String {
    format!(
        r#"<Ruleset Name="Widening" SetId="{SET_ID}">
  <Attributes><Attribute Name="skill" Type="number" Min="0" Max="50" Trust="client"/></Attributes>
  <HardFilters><Within Name="near" Expansion="near"/></HardFilters>
  <ExpansionConfigs><ExpansionConfig Name="near" Type="skill">
    <Expansion ExpansionDurationMs="10000" Value="5"/><Expansion ExpansionDurationMs="-1" Value="15"/>
  </ExpansionConfig></ExpansionConfigs>
  <Teams Count="2" Size="1"/>
  <Queue PassIntervalMs="10"/>
  <ReadyCheck TimeoutMs="600000"/>
</Ruleset>"#
    )
}

async fn explain(server: &TestServer, ticket_id: &str) -> wire::ExplainResponse {
    let request = wire::ExplainRequest { ticket_id: ticket_id.to_owned(), ..Default::default() };
    operator_client(server).await.explain(request).await.expect("explain").into_inner()
}

/// The longest waits come first, with the rule and the nearest region of each; filters and `max_results` leave out the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn list_tickets_has_the_longest_waits_first() {
    for (server, _database) in servers_on_each_store("list_tickets", &widening_ruleset()).await {
        let mut operator = operator_client(&server).await;
        let mut request = enter_request(SET_ID, &[("ann", 10.0)]);
        let latency = |region: &str, round_trip_ms| pb::RegionLatency { region: region.into(), round_trip_ms };
        request.session_composition.as_mut().expect("a party").region_latencies =
            vec![latency("eu", 40.0), latency("us", 120.0)];
        let ann = QueuedParty::enter_with_request(&server, request).await;
        server.clock.advance_ms(2_000);
        let bob = QueuedParty::enter(&server, SET_ID, &[("bob", 40.0)]).await;
        let all = wire::ListTicketsRequest { matchmaking_set_id: Some(SET_ID), ..Default::default() };
        wait_until("a pass has run", async || {
            let list = operator_client(&server).await.list_tickets(all.clone()).await.expect("list").into_inner();
            list.tickets.len() == 2 && list.tickets.iter().all(|ticket| ticket.blocking_rule == "near")
        })
        .await;
        let list = operator.list_tickets(all.clone()).await.expect("list").into_inner();
        let rows: Vec<_> = list.tickets.iter().map(|it| (&*it.ticket_id, it.waited_ms, &*it.nearest_region)).collect();
        assert_eq!(rows, [(ann.ticket.id(), 2_000, "eu"), (bob.ticket.id(), 0, "")]);
        assert_eq!((list.truncated, list.read_tickets), (false, 2));

        for (request, expected) in [
            (wire::ListTicketsRequest { region: "eu".into(), ..all.clone() }, (1, false)),
            (wire::ListTicketsRequest { blocking_rule: "window".into(), ..all.clone() }, (0, false)),
            (wire::ListTicketsRequest { silo_id: Some(7), ..all.clone() }, (0, false)),
            (wire::ListTicketsRequest { max_results: Some(1), ..all.clone() }, (1, true)),
        ] {
            let list = operator.list_tickets(request.clone()).await.expect("list").into_inner();
            assert_eq!((list.tickets.len(), list.truncated), expected, "{request:?}");
        }
        for request in [
            wire::ListTicketsRequest::default(),
            wire::ListTicketsRequest { max_results: Some(0), ..all.clone() },
            wire::ListTicketsRequest { max_results: Some(201), ..all.clone() },
            wire::ListTicketsRequest { region: "x".repeat(10_000), ..all.clone() },
        ] {
            let refused = operator.list_tickets(request).await.expect_err("an invalid request");
            assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
        }
    }
}

/// A ticket that waits tells when it widens next and whom that lets in; afterwards its life has the widening.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_has_the_next_widening_and_then_the_widening_in_the_history() {
    let server =
        start_queue_server(&[&widening_ruleset().replace(r#"PassIntervalMs="10""#, r#"PassIntervalMs="60000""#)]).await;
    let ann = QueuedParty::enter(&server, SET_ID, &[("ann", 10.0)]).await;
    let _near = QueuedParty::enter(&server, SET_ID, &[("bob", 22.0)]).await;
    let _far = QueuedParty::enter(&server, SET_ID, &[("eve", 40.0)]).await;
    server.clock.advance_ms(4_000);
    let before = explain(&server, ann.ticket.id()).await;
    let next = before.next_widening.expect("a widening");
    let limits: Vec<_> = next.limits.iter().map(|it| (it.name.as_str(), it.value)).collect();
    assert_eq!((next.in_ms, limits), (6_000, vec![("near", 15.0)]));
    assert_eq!((next.compatible, next.newly_compatible, before.compatible), (1, 1, 0));
    let kinds: Vec<_> = before.history.iter().map(wire::TicketEvent::kind).collect();
    assert_eq!(kinds, [wire::TicketEventKind::Entered]);

    server.clock.advance_ms(6_000);
    let after = explain(&server, ann.ticket.id()).await;
    assert_eq!(after.next_widening, None);
    let kinds: Vec<_> = after.history.iter().map(wire::TicketEvent::kind).collect();
    assert_eq!(kinds, [wire::TicketEventKind::Entered, wire::TicketEventKind::Widened]);
    let (entered, widened) = (&after.history[0], &after.history[1]);
    assert_eq!(widened.at_unix_ms - entered.at_unix_ms, 10_000);
    assert_eq!((widened.limits[0].name.as_str(), widened.limits[0].value), ("near", 15.0));
}

/// A declined match is in the list of matches with its reason, and in the life of the ticket that waits again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn declined_match_is_listed_and_in_the_history_of_its_ticket() {
    for (server, _database) in servers_on_each_store("declined_match_is_listed", &widening_ruleset()).await {
        let mut operator = operator_client(&server).await;
        let mut ann = QueuedParty::enter(&server, SET_ID, &[("ann", 10.0)]).await;
        let mut bob = QueuedParty::enter(&server, SET_ID, &[("bob", 12.0)]).await;
        ann.wait_for_state(pb::TicketState::Proposed).await;
        let live = wire::ListMatchesRequest { only_live: true, ..Default::default() };
        let listed = operator.list_matches(live).await.expect("list").into_inner().matches;
        assert_eq!((listed.len(), listed[0].stage(), listed[0].players), (1, wire::MatchStage::ReadyCheck, 2));
        let match_id = bob.respond_to_match(false).await;
        ann.wait_for_state(pb::TicketState::Waiting).await;
        assert!(operator.list_matches(live).await.expect("list").into_inner().matches.is_empty());
        let all = wire::ListMatchesRequest { matchmaking_set_id: Some(SET_ID), ..Default::default() };
        let ended = operator.list_matches(all).await.expect("list").into_inner().matches;
        let reason = ended[0].end_reason();
        assert_eq!((&*ended[0].match_id, ended[0].stage()), (&*match_id, wire::MatchStage::Ended));
        assert_eq!(reason, wire::MatchEndReason::Declined);
        let of_other_set = wire::ListMatchesRequest { matchmaking_set_id: Some(SET_ID + 1), ..Default::default() };
        assert!(operator.list_matches(of_other_set).await.expect("list").into_inner().matches.is_empty());
        let invalid = wire::ListMatchesRequest { max_results: Some(0), ..Default::default() };
        let refused = operator.list_matches(invalid).await.expect_err("an invalid request");
        assert_eq!(refused.code(), Code::InvalidArgument);

        let explained = explain(&server, ann.ticket.id()).await;
        let event = explained.history.iter().find(|event| event.kind() == wire::TicketEventKind::Proposed);
        let event = event.expect("the proposal");
        assert_eq!((&*event.match_id, event.end_reason(), event.declined), (&*match_id, reason, 1));
    }
}

/// GetMatch has the result of a match with the ratings before and after.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn get_match_has_the_result_with_ratings() {
    let rated = widening_ruleset()
        .replace(r#"<ReadyCheck TimeoutMs="600000"/>"#, r#"<Rating System="elo"/>"#)
        .replace(r#"<HardFilters><Within Name="near" Expansion="near"/></HardFilters>"#, "");
    for (server, _database) in servers_on_each_store("get_match_has_the_result", &rated).await {
        let mut operator = operator_client(&server).await;
        let mut ann = QueuedParty::enter(&server, SET_ID, &[("ann", 10.0)]).await;
        let _bob = QueuedParty::enter(&server, SET_ID, &[("bob", 12.0)]).await;
        let status = ann.wait_for_state(pb::TicketState::Matched).await;
        let match_id = status.found_match.expect("a match").match_id;
        let get = wire::GetMatchRequest { match_id: match_id.clone() };
        let playing = operator.get_match(get.clone()).await.expect("get").into_inner();
        assert_eq!((playing.stage(), playing.result), (wire::MatchStage::Playing, None));
        let team_ranks = vec![wire::TeamRank { team: 0, rank: 1 }, wire::TeamRank { team: 1, rank: 2 }];
        let report = wire::ReportResultRequest { match_id, team_ranks, ..Default::default() };
        let report = wire::OperatorReportResultRequest { report: Some(report) };
        operator.report_result(report).await.expect("report");
        let ended = operator.get_match(get).await.expect("get").into_inner();
        let result = ended.result.expect("a result");
        assert_eq!((result.match_id, result.sides.len()), (ended.match_id, 2));
        let winner = &result.sides[0].players[0];
        let (before, after) = (winner.before.as_ref().unwrap().rating, winner.after.as_ref().unwrap().rating);
        assert!((before - after).abs() > 1.0, "{before} {after}");
    }
}
