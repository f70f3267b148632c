//! Tokens of members' own seats, in tickets that others entered: each reports, gives feedback and ends a match for its seat alone.
//! On SQLite, and at another server on Postgres than where the party entered; after a restart.

use fireteam::domain::id::UserKey;
use fireteam_client::{Client, Error, Ticket, pb};
use pb::{MatchEndReason, ReportState, TicketState};

use crate::rating::results_and_leaderboards::rank;
use crate::support::party_site::{PartySite, on_each_store, pairs_ruleset, reason};
use crate::support::queue_server::wait_until;

/// A player hosts. The host is not lost within the report window.
const PEER: &str = r#"<Hosting Mode="peer" HostLossMs="3600000"/><Rating System="elo"/>"#;

/// A player with the token of a ticket or of a seat.
struct Holder {
    name: String,
    token: Vec<u8>,
    /// Id of the ticket.
    ticket_id: String,
    /// The match, as the holder sees it.
    found: pb::MatchStatus,
}

impl Holder {
    fn new(name: &str, ticket: &Ticket) -> Self {
        let pb::TicketReference { ticket_id, ticket_token, .. } = ticket.reference();
        let found = ticket.status.found_match.clone().expect("a match");
        Self { name: name.to_owned(), token: ticket_token, ticket_id, found }
    }

    fn report_of(&self, own_rank: i32, player_key: &str) -> pb::ReportResultRequest {
        pb::ReportResultRequest {
            match_id: self.found.match_id.clone(),
            team_ranks: vec![rank(self.found.team, own_rank), rank(1 - self.found.team, 3 - own_rank)],
            ticket_token: self.token.clone(),
            player_key: player_key.to_owned(),
            ..Default::default()
        }
    }

    /// Reports a rank of the own team, at the last server.
    async fn report(&self, site: &PartySite, own_rank: i32) -> Result<pb::ReportResultResponse, Error> {
        site.player_elsewhere(&self.name).await.report_result(self.report_of(own_rank, "")).await
    }

    fn feedback_of(&self, stars: u32, player_key: &str) -> pb::SubmitFeedbackRequest {
        pb::SubmitFeedbackRequest {
            match_id: self.found.match_id.clone(),
            ticket_token: self.token.clone(),
            player_key: player_key.to_owned(),
            stars,
        }
    }

    /// Gives feedback, at the last server.
    async fn give_feedback(&self, site: &PartySite, stars: u32) -> Result<pb::SubmitFeedbackResponse, Error> {
        site.player_elsewhere(&self.name).await.submit_feedback(self.feedback_of(stars, "")).await
    }

    fn end_of(&self, failed: bool) -> pb::QueueEndMatchRequest {
        pb::QueueEndMatchRequest {
            match_id: self.found.match_id.clone(),
            ticket_token: self.token.clone(),
            failed,
            ..Default::default()
        }
    }

    /// Ends the match, at the last server.
    async fn end_match(&self, site: &PartySite) -> Result<MatchEndReason, Error> {
        let ended = site.player_elsewhere(&self.name).await.end_match(self.end_of(false)).await;
        ended.map(|answer| answer.end_reason())
    }

    /// Status of the ticket, at the last server.
    async fn status(&self, site: &PartySite) -> pb::TicketStatus {
        let (ticket_id, ticket_token) = (self.ticket_id.clone(), self.token.clone());
        let ticket = pb::TicketReference { ticket_id, ticket_token, ..Default::default() };
        let request = pb::QueueHeartbeatRequest { tickets: vec![ticket], ..Default::default() };
        let client = site.player_elsewhere(&self.name).await;
        client.heartbeat_tickets(request).await.expect("heartbeat").statuses.remove(0)
    }

    /// Whether the status says that the holder hosts.
    async fn is_host(&self, site: &PartySite) -> bool {
        let assignment = self.status(site).await.found_match.and_then(|found| found.assignment);
        match assignment.and_then(|it| it.host) {
            Some(pb::assignment::Host::PeerHost(host)) => host.is_own,
            other => panic!("a player hosts: {other:?}"),
        }
    }

    /// Each call with this token is refused at both servers, for `name`, who is another player.
    async fn assert_refused_for(&self, site: &PartySite, name: &str) {
        for client in at_each_server(site, name).await {
            let report = client.report_result(self.report_of(1, "")).await.expect_err("report");
            let feedback = client.submit_feedback(self.feedback_of(1, "")).await.expect_err("feedback");
            let end = client.end_match(self.end_of(false)).await.expect_err("end");
            for error in [report, feedback, end] {
                assert_eq!(reason(&error), "NOT_OWNER", "{name}: {error}");
            }
        }
    }
}

/// A player's clients, one at each server.
async fn at_each_server(site: &PartySite, name: &str) -> [Client; 2] {
    [site.player(name).await, site.player_elsewhere(name).await]
}

/// The own seat of a player, found with Mine at the last server.
async fn seat(site: &PartySite, name: &str) -> Holder {
    let client = site.player_elsewhere(name).await;
    let mut own = None;
    wait_until("the seat has its match", async || {
        let (tickets, _) = client.own_tickets_and_cooldowns().await.expect("mine");
        own = tickets.into_iter().next().filter(|ticket| ticket.status.found_match.is_some());
        own.is_some()
    })
    .await;
    Holder::new(name, &own.expect("a seat"))
}

/// Two parties of a leader and a member each, in a match that is being played. Returns the leaders' tickets.
async fn match_of_pairs(site: &PartySite, pairs: [(&str, &str); 2], may_answer: bool) -> [Ticket; 2] {
    let mut first = site.enter_pair(pairs[0].0, pairs[0].1, may_answer).await;
    // Who has waited longer hosts.
    site.clock.advance_ms(1);
    let mut second = site.enter_pair(pairs[1].0, pairs[1].1, may_answer).await;
    let mut is_playing = [false; 2];
    wait_until("both parties play", async || {
        for (ticket, is_playing) in [&mut first, &mut second].into_iter().zip(&mut is_playing) {
            *is_playing = ticket.heartbeat().await.expect("heartbeat").state() == TicketState::Matched;
        }
        is_playing == [true; 2]
    })
    .await;
    // What follows is later than the start of the match.
    site.clock.advance_ms(10);
    [first, second]
}

/// A seat's report and feedback count for its player alone, and no other player uses its token.
async fn seat_reports_and_gives_feedback_for_itself(mut site: PartySite) {
    let tickets = match_of_pairs(&site, [("ana", "ben"), ("cid", "dan")], true).await;
    let found_before = seat(&site, "ben").await.found.match_id;
    site.restart_first().await;
    let (ana, cid) = (Holder::new("ana", &tickets[0]), Holder::new("cid", &tickets[1]));
    let (ben, dan) = (seat(&site, "ben").await, seat(&site, "dan").await);
    assert_eq!(ben.found.match_id, found_before);
    for stranger in ["ana", "dan", "eve"] {
        ben.assert_refused_for(&site, stranger).await;
    }
    let keys: Vec<&str> = ben.found.own_players.iter().map(|player| &*player.player_key).collect();
    for client in at_each_server(&site, "ben").await {
        let report = client.report_result(ben.report_of(1, keys[0])).await.expect_err("ana reports for herself");
        let feedback = client.submit_feedback(ben.feedback_of(1, keys[0])).await.expect_err("ana's feedback");
        assert_eq!((reason(&report), reason(&feedback)), ("NOT_OWNER", "NOT_OWNER"));
    }

    let first = ben.report(&site, 1).await.expect("its own report");
    assert_eq!((first.state(), first.already_reported), (ReportState::Waiting, false));
    assert_eq!(reason(&ben.report(&site, 2).await.expect_err("another report")), "ALREADY_REPORTED");
    assert!(ben.report(&site, 1).await.expect("the same report").already_reported);
    let leader = ana.report(&site, 2).await.expect("ben's report is not hers");
    assert_eq!((leader.state(), leader.already_reported), (ReportState::Waiting, false));
    let opponent = cid.report(&site, 2).await.expect("its own report");
    assert_eq!((opponent.state(), opponent.already_reported), (ReportState::Waiting, false));
    // Ana and ben say different things, so their side has no opinion, and there is no result yet.
    let last = dan.report(&site, 2).await.expect("cid's report is not his");
    assert_eq!((last.state(), last.already_reported), (ReportState::Waiting, false));

    ben.give_feedback(&site, 4).await.expect("its own feedback");
    ben.give_feedback(&site, 4).await.expect("the same feedback");
    assert_eq!(reason(&ben.give_feedback(&site, 3).await.expect_err("another feedback")), "FEEDBACK_ALREADY_GIVEN");
    ana.give_feedback(&site, 2).await.expect("ben's feedback is not hers");
    dan.give_feedback(&site, 1).await.expect("its own feedback");
    site.shut_down().await;
}

/// Reports of two seats of different sides are a result at once.
async fn seats_of_two_sides_settle_a_result(mut site: PartySite) {
    match_of_pairs(&site, [("ana", "ben"), ("cid", "dan")], false).await;
    let (ben, dan) = (seat(&site, "ben").await, seat(&site, "dan").await);
    site.restart_first().await;
    assert_eq!(ben.report(&site, 1).await.expect("report").state(), ReportState::Waiting);
    let settled = dan.report(&site, 2).await.expect("report");
    assert_eq!((settled.state(), settled.rated, settled.changes.len()), (ReportState::Settled, true, 2));
    ben.give_feedback(&site, 5).await.expect("after the end");
    site.shut_down().await;
}

/// Leader and member of a party whose member hosts: of two clients that are alike otherwise, the one with the lower key does.
fn leader_and_hosting_member<'a>(one: &'a str, other: &'a str) -> (&'a str, &'a str) {
    let client = |name: &str| {
        let user = UserKey::from_name(name);
        UserKey::of_client_of_user(user, user)
    };
    if client(one) < client(other) { (other, one) } else { (one, other) }
}

/// A player who hosts ends the match by its own seat. Its leader does not, unless the member let the leader answer.
async fn host_ends_the_match_by_its_seat(mut site: PartySite) {
    for (may_answer, names, others) in [(false, ["ana", "ben"], ("cid", "dan")), (true, ["eve", "fay"], ("gil", "hal"))]
    {
        let (leader, member) = leader_and_hosting_member(names[0], names[1]);
        let tickets = match_of_pairs(&site, [(leader, member), others], may_answer).await;
        site.restart_first().await;
        let (of_leader, of_others) = (Holder::new(leader, &tickets[0]), Holder::new(others.0, &tickets[1]));
        let (of_member, of_guest) = (seat(&site, member).await, seat(&site, others.1).await);
        assert!(of_member.is_host(&site).await && !of_guest.is_host(&site).await && !of_others.is_host(&site).await);
        assert_eq!(of_leader.is_host(&site).await, may_answer);
        of_member.assert_refused_for(&site, leader).await;
        for guest in [&of_others, &of_guest] {
            assert_eq!(reason(&guest.end_match(&site).await.expect_err("a guest")), "NOT_OWNER");
        }
        if may_answer {
            assert_eq!(of_leader.end_match(&site).await.expect("for the member"), MatchEndReason::Played);
        } else {
            assert_eq!(reason(&of_leader.end_match(&site).await.expect_err("the member hosts")), "NOT_OWNER");
        }
        assert_eq!(of_member.end_match(&site).await.expect("the host"), MatchEndReason::Played);
        wait_until("the guests are free", async || of_others.status(&site).await.state() == TicketState::Ended).await;
    }
    site.shut_down().await;
}

/// Without a host each seat ends the match, but not after its player has left: then the others go on.
async fn seat_that_has_left_ends_no_match(mut site: PartySite) {
    let tickets = match_of_pairs(&site, [("ana", "ben"), ("cid", "dan")], true).await;
    let ben = seat(&site, "ben").await;
    let (ticket_id, ticket_token) = (ben.ticket_id.clone(), ben.token.clone());
    let leave = pb::QueueLeaveRequest { ticket_id, ticket_token, user_ids: Vec::new() };
    let left = site.player_elsewhere("ben").await.leave_queue(leave).await.expect("leave").result;
    assert!(matches!(left, Some(pb::queue_leave_response::Result::Matched(_))), "ana still plays: {left:?}");
    site.restart_first().await;
    for client in at_each_server(&site, "ben").await {
        let error = client.end_match(ben.end_of(false)).await.expect_err("ben has left");
        assert_eq!(reason(&error), "NOT_OWNER", "{error}");
    }
    let (ana, dan) = (Holder::new("ana", &tickets[0]), seat(&site, "dan").await);
    assert_eq!(ana.status(&site).await.state(), TicketState::Matched, "the match goes on");
    for seat in [&ben, &dan] {
        let report = seat.report(&site, 1).await.expect_err("a match without a host is reported by a backend");
        assert_eq!(reason(&report), "NOT_OWNER");
    }
    dan.assert_refused_for(&site, "cid").await;
    assert_eq!(dan.end_match(&site).await.expect("a player"), MatchEndReason::Played);
    // Repeated calls have the same answer, also of the player who has left.
    for seat in [&dan, &ana, &ben] {
        assert_eq!(seat.end_match(&site).await.expect("it has ended"), MatchEndReason::Played);
    }
    dan.give_feedback(&site, 3).await.expect("its own feedback");
    site.shut_down().await;
}

on_each_store! {
    seat_reports_and_gives_feedback_for_itself, pairs_ruleset(PEER),
        seat_reports_and_gives_feedback_for_itself_on_sqlite, seat_reports_and_gives_feedback_for_itself_on_postgres;
    seats_of_two_sides_settle_a_result, pairs_ruleset(PEER),
        seats_of_two_sides_settle_a_result_on_sqlite, seats_of_two_sides_settle_a_result_on_postgres;
    host_ends_the_match_by_its_seat, pairs_ruleset(PEER),
        host_ends_the_match_by_its_seat_on_sqlite, host_ends_the_match_by_its_seat_on_postgres;
    seat_that_has_left_ends_no_match, pairs_ruleset(""),
        seat_that_has_left_ends_no_match_on_sqlite, seat_that_has_left_ends_no_match_on_postgres;
}
