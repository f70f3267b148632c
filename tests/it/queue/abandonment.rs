//! Matches that players abandon: each counts once, when the player leaves.

use fireteam_client::pb;
use pb::TicketState;

use crate::queue::operator_actions::Site;
use crate::support::generated_client::ExplainRequest;
use crate::support::queue_server::{QueuedParty, duel_ruleset, operator_client, wait_until};

fn ruleset() -> String {
    duel_ruleset(r#"<Rating System="elo"/>"#).replace(
        r#"<RatingWindow Start="2" Max="2"/>"#,
        r#"<RatingWindow Start="1000" Max="1000"/><Satisfaction AbandonedPercent="50" MinMatches="1" Widen="2.5"/>"#,
    )
}

/// Two players in a match, and the match as the second one sees it.
async fn duel(site: &Site, names: [&str; 2]) -> (QueuedParty, QueuedParty, pb::MatchStatus) {
    let mut ann = site.enter(names[0]).await;
    let mut bob = site.enter(names[1]).await;
    ann.wait_for_state(TicketState::Matched).await;
    let found = bob.wait_for_state(TicketState::Matched).await.found_match.expect("a match");
    (ann, bob, found)
}

/// Reports a match as won by the reporter's team; the other player has disconnected, if `has_disconnected`.
async fn report(reporter: &QueuedParty, found: &pb::MatchStatus, has_disconnected: bool) {
    let own = &found.own_players[0].player_key;
    let others = found.players.iter().filter(|player| player.player_key != *own && has_disconnected);
    let rank = |team| pb::TeamRank { team, rank: if team == found.team { 1 } else { 2 } };
    let request = pb::ReportResultRequest {
        match_id: found.match_id.clone(),
        team_ranks: vec![rank(0), rank(1)],
        disconnected_player_keys: others.map(|player| player.player_key.clone()).collect(),
        ticket_token: reporter.ticket.reference().ticket_token,
        ..Default::default()
    };
    reporter.client.report_result(request).await.expect("report");
}

/// A match counts as abandoned when its player leaves, before any result: in the store, and in the rules of each server. The
/// result does not count it again. A player who has disconnected without leaving counts with the result.
async fn abandoned_match_counts_once_when_the_player_leaves(site: &Site) {
    let (mut ann, mut bob, found) = duel(site, ["ann", "bob"]).await;
    report(&bob, &found, false).await;
    ann.wait_for_end().await;
    bob.wait_for_end().await;
    let (mut ann, mut bob, found) = duel(site, ["ann", "bob"]).await;
    assert_eq!(site.stored_abandoned_matches("ann").await, 0);
    assert!(ann.ticket.leave().await.expect("leave"));
    assert_eq!(site.stored_abandoned_matches("ann").await, 1, "counted without a result");
    assert!(ann.ticket.leave().await.expect("leave"), "leave is idempotent");
    let mut waiting = site.enter("ann").await;
    let request = ExplainRequest { ticket_id: waiting.ticket.id().to_owned(), max_nearest: None, search: None };
    for server in &site.servers {
        let mut operator = operator_client(server).await;
        wait_until("the rules of each server know it", async || {
            operator.explain(request.clone()).await.is_ok_and(|it| it.into_inner().range_factor == Some(2.5))
        })
        .await;
    }
    assert!(waiting.ticket.leave().await.expect("leave"));
    report(&bob, &found, true).await;
    bob.wait_for_end().await;
    assert_eq!(site.stored_abandoned_matches("ann").await, 1, "the result does not count it again");

    let (_, cid, found) = duel(site, ["dan", "cid"]).await;
    report(&cid, &found, true).await;
    assert_eq!(site.stored_abandoned_matches("dan").await, 1, "who disconnects counts with the result");

    // Without any result, when all have left.
    let (mut eve, mut fay, _) = duel(site, ["eve", "fay"]).await;
    assert!(eve.ticket.leave().await.expect("leave"));
    assert!(fay.ticket.leave().await.expect("leave"));
    for user in ["eve", "fay"] {
        assert_eq!(site.stored_abandoned_matches(user).await, 1, "{user}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn abandoned_match_counts_once_on_sqlite() {
    abandoned_match_counts_once_when_the_player_leaves(&Site::on_sqlite(&ruleset()).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn abandoned_match_counts_once_on_postgres() {
    let Some(site) = Site::on_postgres("abandoned_match_counts_once_on_postgres", &ruleset()).await else { return };
    abandoned_match_counts_once_when_the_player_leaves(&site).await;
}
