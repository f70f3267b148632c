//! Lies of a client about itself and about others, over the wire: each is refused, ignored, or decides nothing.
//! `claims_table.rs` lists all claims.

use fireteam::auth::identity::Role;
use fireteam::config::RulesetSource;
use fireteam_client::{Client, Code, Error, Ticket, pb};
use pb::{ConsentUse, MatchEndReason, ReportState, TicketState};

use crate::rating::results_and_leaderboards::{rank, rated_duel, rating};
use crate::support::party_site::{PartySite, pairs_ruleset, reason, wait_for_state};
use crate::support::queue_server::{
    QueuedParty, SET_ID, duel_ruleset, enter_request, servers_on_each_store, start_queue_server, wait_until,
};
use crate::support::ruleset_dir::RulesetDirectory;
use crate::support::test_server::{TestServer, advertise_request, party_session};
use crate::support::tokens::start_authenticated_server_with_config;

/// Default of `ReportWindowMs`.
const WINDOW_MS: u64 = 5 * 60 * 1000;

/// A player hosts. The host is not lost within the report window.
const PEER: &str = r#"<Hosting Mode="peer" HostLossMs="3600000"/>"#;

/// Fields that a refused call names.
fn fields(error: &Error) -> Vec<&str> {
    assert_eq!(error.code(), Some(Code::InvalidArgument), "{error}");
    error.fields().iter().map(|problem| problem.field.as_str()).collect()
}

/// A duel between a player and one who claims an open NAT, and therefore hosts it. The player has no watch, so that the server hears
/// of it in calls alone.
struct SelfMadeHost {
    honest: Ticket,
    liar: Ticket,
    /// The match, as the liar sees it.
    found: pb::MatchStatus,
}

impl SelfMadeHost {
    async fn start(server: &TestServer, [honest, liar]: [&str; 2]) -> Self {
        server.clock.advance_ms(1);
        let honest = server.client().await.enter_queue(enter_request(SET_ID, &[(honest, 20.0)])).await.expect("enter");
        server.clock.advance_ms(1);
        let mut request = enter_request(SET_ID, &[(liar, 20.0)]);
        request.session_composition.as_mut().expect("a party").nat_type = Some(1);
        let mut liar = QueuedParty::enter_with_request(server, request).await;
        let found = liar.wait_for_state(TicketState::Matched).await.found_match.expect("a match");
        // What follows is later than the start of the match.
        server.clock.advance_ms(10);
        match found.assignment.clone().and_then(|it| it.host) {
            Some(pb::assignment::Host::PeerHost(host)) => assert!(host.is_own, "who claims an open NAT hosts"),
            other => panic!("a player hosts: {other:?}"),
        }
        Self { honest, liar: liar.ticket, found }
    }

    /// A report that the liar's team has `place`, and the other the other place.
    fn report(&self, reporter: &Ticket, place: i32) -> pb::ReportResultRequest {
        pb::ReportResultRequest {
            match_id: self.found.match_id.clone(),
            team_ranks: vec![rank(self.found.team, place), rank(1 - self.found.team, 3 - place)],
            ticket_token: reporter.reference().ticket_token,
            ..Default::default()
        }
    }

    /// Key of the honest player.
    fn honest_key(&self) -> String {
        let own = &self.found.own_players[0].player_key;
        self.found.players.iter().find(|player| player.player_key != *own).expect("an opponent").player_key.clone()
    }
}

async fn ratings(client: &Client, users: [&str; 2]) -> [f64; 2] {
    [rating(client, users[0]).await, rating(client, users[1]).await]
}

/// SEC-6: a player who claims an open NAT becomes the host of the match. Its report alone is no result: an operator decides if the
/// opponent was not heard, and the opponent's word is against it otherwise.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn self_made_host_that_reports_alone_gains_no_rating() {
    for (server, _database) in servers_on_each_store("self_made_host", &rated_duel(PEER)).await {
        let client = server.client().await;
        let duel = SelfMadeHost::start(&server, ["ann", "bob"]).await;
        let answer = client.report_result(duel.report(&duel.liar, 1)).await.expect("report");
        assert_eq!((answer.rated, answer.state()), (false, ReportState::Waiting));
        assert_eq!(ratings(&client, ["ann", "bob"]).await, [1500.0, 1500.0]);
        server.clock.advance_ms(WINDOW_MS);
        let own = pb::QueueHeartbeatRequest { tickets: vec![duel.liar.reference()], ..Default::default() };
        let mut state = ReportState::Unspecified;
        wait_until("the window has ended", async || {
            let status = client.heartbeat_tickets(own.clone()).await.expect("heartbeat").statuses.remove(0);
            let reports = status.found_match.and_then(|found| found.reports);
            state = reports.map_or(ReportState::Unspecified, |reports| reports.state());
            !matches!(state, ReportState::Unspecified | ReportState::Waiting)
        })
        .await;
        assert_eq!(state, ReportState::Held, "an operator decides");
        assert_eq!(ratings(&client, ["ann", "bob"]).await, [1500.0, 1500.0]);

        let duel = SelfMadeHost::start(&server, ["cid", "dan"]).await;
        client.report_result(duel.report(&duel.liar, 1)).await.expect("report");
        let answer = client.report_result(duel.report(&duel.honest, 2)).await.expect("report");
        assert_eq!((answer.rated, answer.state()), (false, ReportState::Disputed));
        assert_eq!(ratings(&client, ["cid", "dan"]).await, [1500.0, 1500.0]);
    }
}

/// SEC-6: where a disconnect makes a match unrated, the host that lost cannot call its opponent disconnected: more than half of the
/// sides must name the player.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opponent_is_not_disconnected_by_the_word_of_the_loser() {
    let ignoring = rated_duel(PEER).replace("<Rating ", r#"<Rating OnDisconnect="ignore" "#);
    for (server, _database) in servers_on_each_store("not_disconnected", &ignoring).await {
        let client = server.client().await;
        let duel = SelfMadeHost::start(&server, ["ann", "bob"]).await;
        let mut lie = duel.report(&duel.liar, 2);
        lie.disconnected_player_keys = vec![duel.honest_key()];
        assert_eq!(client.report_result(lie).await.expect("report").state(), ReportState::Waiting);
        let answer = client.report_result(duel.report(&duel.honest, 2)).await.expect("report");
        assert_eq!((answer.rated, answer.state()), (true, ReportState::Settled));
        assert_eq!(ratings(&client, ["ann", "bob"]).await, [1516.0, 1484.0]);
    }
}

/// SEC-6: who does not host cannot call a match failed, and who hosts cannot after the first minute: it counts as played.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_failure_of_a_peer_host_counts_as_played() {
    let server = start_queue_server(&[&rated_duel(PEER)]).await;
    let mut duel = SelfMadeHost::start(&server, ["ann", "bob"]).await;
    let id = duel.found.match_id.clone();
    let refused = duel.honest.end_match(&id, true).await.expect_err("ann is not the host");
    assert_eq!(reason(&refused), "NOT_OWNER");
    server.clock.advance_ms(60_000);
    let outcome = duel.liar.end_match(&id, true).await.expect("the host ends the match");
    assert_eq!(outcome, MatchEndReason::Played);
    let ended = wait_for_state(&mut duel.honest, TicketState::Ended).await;
    assert_eq!(ended.end_reason(), pb::TicketEndReason::Played);
}

/// SEC-5: a player reports and gives feedback for its own seat alone: not for its opponents, nor for the others of its ticket, nor
/// with the token of another player.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reports_and_feedback_for_other_players_are_refused() {
    let rated = format!(r#"{PEER}<Rating System="elo"/>"#);
    let site = PartySite::on_sqlite(&pairs_ruleset(&rated)).await;
    let mut opponents = site.enter_opponents().await;
    // The opponents have waited longest, and one of them hosts.
    site.clock.advance_ms(1);
    let mut pair = site.enter_pair("ana", "ben", true).await;
    wait_for_state(&mut opponents, TicketState::Matched).await;
    let found = wait_for_state(&mut pair, TicketState::Matched).await.found_match.expect("a match");
    let own: Vec<&str> = found.own_players.iter().map(|player| &*player.player_key).collect();
    let opponent = found.players.iter().find(|player| !own.contains(&&*player.player_key)).expect("an opponent");
    let token = pair.reference().ticket_token;
    let report = |key: &str| pb::ReportResultRequest {
        match_id: found.match_id.clone(),
        team_ranks: vec![rank(found.team, 1), rank(1 - found.team, 2)],
        ticket_token: token.clone(),
        player_key: key.to_owned(),
        ..Default::default()
    };
    let feedback = |key: &str| pb::SubmitFeedbackRequest {
        match_id: found.match_id.clone(),
        ticket_token: token.clone(),
        player_key: key.to_owned(),
        stars: 1,
    };
    let (ana, eve) = (site.player("ana").await, site.player("eve").await);
    let error = ana.report_result(report(&opponent.player_key)).await.expect_err("an opponent");
    assert_eq!(fields(&error), ["player_key"], "{error}");
    let error = ana.submit_feedback(feedback(&opponent.player_key)).await.expect_err("an opponent");
    assert_eq!(fields(&error), ["player_key"], "{error}");
    for (client, key) in [(&ana, own[1]), (&eve, own[0])] {
        let refused = client.report_result(report(key)).await.expect_err("another player");
        assert_eq!(reason(&refused), "NOT_OWNER");
        let refused = client.submit_feedback(feedback(key)).await.expect_err("another player");
        assert_eq!(reason(&refused), "NOT_OWNER");
    }
    ana.submit_feedback(feedback(own[0])).await.expect("its own");
    assert_eq!(ana.report_result(report(own[0])).await.expect("its own").state(), ReportState::Waiting);
    site.shut_down().await;
}

/// SEC-6: a player's client says of its own user only that it is connected: others would close a gate, or open it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connected_users_of_others_are_refused() {
    let site = PartySite::on_sqlite(&pairs_ruleset("")).await;
    let connected = |users: &[&str]| pb::QueueHeartbeatRequest {
        connected_user_ids: users.iter().map(|&user| user.to_owned()).collect(),
        connected_matchmaking_set_ids: vec![SET_ID],
        ..Default::default()
    };
    let eve = site.player("eve").await;
    eve.heartbeat_tickets(connected(&["eve"])).await.expect("its own user");
    for others in [&["ann"][..], &["eve", "ann"]] {
        let refused = eve.heartbeat_tickets(connected(others)).await.expect_err("another user");
        assert_eq!((refused.code(), reason(&refused)), (Some(Code::PermissionDenied), "NOT_OWNER"));
    }
    site.backend().await.heartbeat_tickets(connected(&["ann", "bob"])).await.expect("a game's backend");
    site.shut_down().await;
}

/// SEC-5: a host that names the reservation of another session as confirmed or joined changes nothing there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reservations_of_another_session_cannot_be_confirmed_or_ended() {
    let site = PartySite::on_sqlite(&pairs_ruleset("")).await;
    let session = |name: &str| pb::MatchmakingUpdateAdvertisementRequest {
        matchmaking_set_id: Some(SET_ID),
        ..advertise_request(&[(name, 20.0)], 8)
    };
    let mut hosted = site.player("zoe").await.advertise(session("zoe")).await.expect("advertise");
    let token = site.consent("ben", "ana", false, ConsentUse::Search).await;
    let mut party = party_session(&[("ana", 20.0), ("ben", 20.0)]);
    party.players[1].consent_token = token;
    let mut searching = site.player("ana").await.new_search(SET_ID, party);
    searching.search().await.expect("search");
    let held = searching.reserve(hosted.id()).await.expect("reserve").id;
    let eve = site.player("eve").await;
    let own = eve.advertise(session("eve")).await.expect("advertise");
    let naming = |confirmed: bool| pb::MatchmakingUpdateAdvertisementRequest {
        advertisement_id: own.id().to_owned(),
        advertisement_token: own.token().to_vec(),
        confirmed_reservation_ids: confirmed.then(|| held.clone()).into_iter().collect(),
        joined_reservation_ids: (!confirmed).then(|| held.clone()).into_iter().collect(),
        ..Default::default()
    };
    for confirmed in [true, false] {
        let answer = eve.update_advertisement(naming(confirmed)).await.expect("no effect");
        assert_eq!(answer.reservations, []);
    }
    let left = hosted.heartbeat().await.expect("heartbeat").reservations;
    let [reservation] = &left[..] else { panic!("one reservation: {left:?}") };
    assert_eq!((&reservation.reservation_id, reservation.seats), (&held, 2));
    assert!(reservation.expires_in_ms > 0, "not confirmed");
    site.shut_down().await;
}

/// SEC-5: the idempotency key of another caller leads to nothing of that caller: it is another request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idempotency_key_of_another_caller_is_another_request() {
    let site = PartySite::on_sqlite(&pairs_ruleset("")).await;
    let key = "a key that another caller knows";
    let (mut advertisements, mut tickets) = (Vec::new(), Vec::new());
    for name in ["ana", "eve"] {
        let client = site.player(name).await;
        let advertise = pb::MatchmakingUpdateAdvertisementRequest {
            matchmaking_set_id: Some(SET_ID),
            idempotency_key: key.to_owned(),
            ..advertise_request(&[(name, 20.0)], 8)
        };
        let created = client.update_advertisement(advertise).await.expect("advertise");
        assert!(created.created, "{name}");
        advertisements.push(created.advertisement_id);
        let enter = pb::QueueEnterRequest { idempotency_key: key.to_owned(), ..enter_request(SET_ID, &[(name, 20.0)]) };
        tickets.push(client.enter_queue(enter).await.expect("enter").id().to_owned());
    }
    assert_ne!(tickets[0], tickets[1]);
    assert_ne!(advertisements[0], advertisements[1]);
    let mut reservations = Vec::new();
    for name in ["cid", "dan"] {
        let client = site.player(name).await;
        let party = party_session(&[(name, 20.0)]);
        let found = client.new_search(SET_ID, party.clone()).search().await.expect("search");
        let reserve = pb::MatchmakingReserveRequest {
            advertisement_id: advertisements[0].clone(),
            idempotency_key: key.to_owned(),
            search_token: found.search_token,
            session_composition: Some(party),
            ..Default::default()
        };
        let held = client.reserve(reserve).await.expect("reserve").reservation.expect("seats");
        reservations.push(held.reservation_id);
    }
    assert_ne!(reservations[0], reservations[1]);
    site.shut_down().await;
}

/// SEC-6: party sizes that do not add up to the players are refused in each request that has a party.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn party_sizes_other_than_the_players_are_refused() {
    let server = start_queue_server(&[&pairs_ruleset("")]).await;
    let client = server.client().await;
    for sizes in [&[1][..], &[1, 2], &[64]] {
        let mut party = party_session(&[("ann", 20.0), ("bob", 20.0)]);
        party.party_size_composition = sizes.to_vec();
        let path = ["session_composition.party_size_composition"];
        let search = pb::MatchmakingSearchRequest {
            session_composition: Some(party.clone()),
            matchmaking_set_id: Some(SET_ID),
            ..Default::default()
        };
        let error = client.search(search).await.expect_err("refused");
        assert_eq!(fields(&error), path, "{sizes:?}");
        let advertise = pb::MatchmakingUpdateAdvertisementRequest {
            matchmaking_set_id: Some(SET_ID),
            session_composition: Some(party.clone()),
            ..Default::default()
        };
        let error = client.update_advertisement(advertise).await.expect_err("refused");
        assert_eq!(fields(&error), path, "{sizes:?}");
        let enter = pb::QueueEnterRequest { session_composition: Some(party), ..enter_request(SET_ID, &[]) };
        let error = client.enter_queue(enter).await.expect_err("refused");
        assert_eq!(fields(&error), path, "{sizes:?}");
    }
}

/// SEC-6: a queue ignores the place, the open seats and the progress of the game that a party states.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queue_ignores_place_seats_and_progress_that_a_party_states() {
    let server = start_queue_server(&[&duel_ruleset("")]).await;
    let mut stated = enter_request(SET_ID, &[("ann", 20.0)]);
    let session = stated.session_composition.as_mut().expect("a party");
    session.locality_info =
        Some(pb::LocalityData { latitude_degrees: Some(47.6), longitude_degrees: Some(-122.3), ..Default::default() });
    session.max_allowed_join_reservation_count = Some(1_000);
    session.game_in_progress = Some(true);
    let mut ann = QueuedParty::enter_with_request(&server, stated).await;
    assert_eq!(ann.ticket.ignored_fields, ["session_composition.locality_info"]);
    let mut bob = QueuedParty::enter(&server, SET_ID, &[("bob", 20.0)]).await;
    let found = ann.wait_for_state(TicketState::Matched).await.found_match.expect("a match");
    assert_eq!(bob.wait_for_state(TicketState::Matched).await.found_match.expect("a match").match_id, found.match_id);
    assert_eq!(found.player_count, 2);
}

/// SEC-5: a reply names a proposal of the own ticket; that to the proposal of others is refused and declines nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reply_to_the_proposal_of_others_is_refused() {
    let server = start_queue_server(&[&duel_ruleset(r#"<ReadyCheck TimeoutMs="20000"/>"#)]).await;
    let mut matches = Vec::new();
    for (names, skill) in [(["ann", "bob"], 10.0), (["cid", "dan"], 40.0)] {
        let mut one = QueuedParty::enter(&server, SET_ID, &[(names[0], skill)]).await;
        let other = QueuedParty::enter(&server, SET_ID, &[(names[1], skill)]).await;
        let found = one.wait_for_state(TicketState::Proposed).await.found_match.expect("a match");
        matches.push((one, other, found.match_id));
    }
    let (mut cid, _dan, _) = matches.pop().expect("two matches");
    let (mut ann, _bob, id) = matches.pop().expect("two matches");
    for accept in [true, false] {
        let refused = cid.ticket.respond_to_ready_check(&id, accept).await.expect_err("the proposal of others");
        assert_eq!(reason(&refused), "NOT_OWNER");
    }
    let status = ann.current_status().await;
    assert_eq!(status.state(), TicketState::Proposed);
    assert_eq!(status.found_match.expect("a match").accepted_count, 0);
}

/// SEC-6: NAT type, big parties, progress and skill that a player's client states have no effect where the ruleset does not trust
/// it with them. Those that a game server states have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn untrusted_values_of_a_party_are_listed_and_ignored() {
    let number =
        |name: &str| format!(r#"<Attribute Name="{name}" Type="number" Min="0" Max="50" Trust="game_server"/>"#);
    let soft = |name: &str| format!(r#"<SoftFilter Attribute="{name}" Weight="1"/>"#);
    let names = ["skill", "nat_type", "big_party_count"];
    let ruleset = format!(
        r#"<Ruleset Name="Trust" SetId="1"><Attributes>{}<Attribute Name="game_in_progress" Type="bool" Trust="game_server"/></Attributes>
  <HardFilters><Equal Attribute="game_in_progress"/></HardFilters><SoftFilters>{}</SoftFilters></Ruleset>"#,
        names.map(number).concat(),
        names.map(soft).concat()
    );
    let rulesets = RulesetDirectory::with_files(&[("trust.xml", &ruleset)]);
    let directory = rulesets.path().to_owned();
    let (server, issuer) =
        start_authenticated_server_with_config(|config| config.rulesets = RulesetSource::Directory(directory)).await;
    let backend = issuer.client_with_token(&server, Role::GameServer, "eu-1").await;
    let claimed = |user: &str| pb::SessionCompositionData {
        nat_type: Some(3),
        big_party_count: Some(9),
        game_in_progress: Some(true),
        ..party_session(&[(user, 50.0)])
    };
    let mut hosted = advertise_request(&[], 4);
    hosted.session_composition =
        Some(pb::SessionCompositionData { max_allowed_join_reservation_count: Some(4), ..claimed("host") });
    backend.update_advertisement(hosted).await.expect("advertise");
    let mut nothing_said = claimed("eve");
    (nothing_said.nat_type, nothing_said.big_party_count) = (None, None);
    (nothing_said.game_in_progress, nothing_said.players[0].skill) = (None, None);
    let search = async |client: &Client, session| client.new_search(1, session).search().await.expect("search");
    let eve = issuer.client_with_token(&server, Role::Client, "eve").await;
    let (mut lying, honest) = (search(&eve, claimed("eve")).await, search(&eve, nothing_said).await);
    assert_eq!((&lying.candidates, &lying.refusals), (&honest.candidates, &honest.refusals));
    lying.ignored_fields.sort();
    let ignored = ["big_party_count", "game_in_progress", "nat_type", "players[0].skill"];
    assert_eq!(lying.ignored_fields, ignored.map(|field| format!("session_composition.{field}")));
    let other = issuer.client_with_token(&server, Role::GameServer, "eu-2").await;
    let trusted = search(&other, claimed("eve")).await;
    assert_eq!(trusted.candidates.len(), 1);
    assert_ne!((&trusted.candidates, &trusted.refusals), (&honest.candidates, &honest.refusals));
}
