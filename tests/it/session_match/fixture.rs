//! Sessions with hosts and guests who find them by search, and the matches that the hosts begin.

use fireteam::auth::identity::Role;
use fireteam_client::{Client, Code, Error, Reservation, Ticket, pb};

use crate::rating::results_and_leaderboards::rank;
use crate::support::party_site::{PartySite, reason};
use crate::support::queue_server::{SET_ID, wait_until};
use crate::support::test_server::{advertise_request, party_session};

/// Rating of a newcomer.
pub(crate) const NEWCOMER: f64 = 1_500.0;

/// Default of `ReportWindowMs`.
pub(crate) const WINDOW_MS: u64 = 5 * 60 * 1000;

/// A set with ratings that only advertises and searches.
pub(crate) fn rooms_ruleset() -> String {
    rooms_with(r#"<Rating System="elo" K="32"/>"#)
}

/// The same with another rating system.
pub(crate) fn rooms_with(rating: &str) -> String {
    format!(
        r#"<Ruleset Name="Rooms" SetId="{SET_ID}">
  <Attributes><Attribute Name="skill" Type="number" Min="0" Max="5000" Trust="game_server"/></Attributes>
  {rating}
</Ruleset>"#
    )
}

/// Host of a session.
pub(crate) struct Host {
    pub(crate) client: Client,
    pub(crate) advertised: pb::MatchmakingUpdateAdvertisementResponse,
}

/// Team of a match: whether the host's own party is in it, and reservations.
pub(crate) fn team(host_party: bool, guests: &[&Reservation]) -> pb::SessionTeam {
    pb::SessionTeam { host_party, reservation_ids: guests.iter().map(|guest| guest.id.clone()).collect() }
}

impl Host {
    /// A player who advertises a session with eight seats.
    pub(crate) async fn player(site: &PartySite, name: &str) -> Self {
        Self::advertise(site.player(name).await, session_of(&[name])).await
    }

    /// A game server that advertises a session with eight seats.
    pub(crate) async fn game_server(site: &PartySite) -> Self {
        Self::game_server_with_seats(site, 8).await
    }

    /// A game server that advertises a session with this number of seats.
    pub(crate) async fn game_server_with_seats(site: &PartySite, seats: i32) -> Self {
        let mut request = session_of(&["eu-1"]);
        let session = request.session_composition.as_mut().expect("a session");
        (session.players, session.party_size_composition) = (Vec::new(), vec![1]);
        session.max_allowed_join_reservation_count = Some(seats);
        request.connect_data = b"127.0.0.1:7777".to_vec();
        let client = site.issuer.client_with_token(&site.servers[0], Role::GameServer, "eu-1").await;
        Self::advertise(client, request).await
    }

    pub(crate) async fn advertise(client: Client, request: pb::MatchmakingUpdateAdvertisementRequest) -> Self {
        let advertised = client.update_advertisement(request).await.expect("advertise");
        Self { client, advertised }
    }

    pub(crate) fn id(&self) -> &str {
        &self.advertised.advertisement_id
    }

    pub(crate) fn token(&self) -> Vec<u8> {
        self.advertised.advertisement_token.clone()
    }

    /// Heartbeat that confirms and ends reservations.
    pub(crate) async fn update(&self, confirmed: &[&Reservation], joined: &[&Reservation]) {
        let ids = |all: &[&Reservation]| all.iter().map(|one| one.id.clone()).collect();
        let request = pb::MatchmakingUpdateAdvertisementRequest {
            advertisement_id: self.id().to_owned(),
            advertisement_token: self.token(),
            confirmed_reservation_ids: ids(confirmed),
            joined_reservation_ids: ids(joined),
            ..Default::default()
        };
        self.client.update_advertisement(request).await.expect("update");
    }

    /// Parties join with their reservations: the host confirms them, and lists their players.
    pub(crate) async fn seat(&self, players: &[&str], joined: &[&Reservation]) {
        self.wait_for_reservations(joined).await;
        self.update(joined, &[]).await;
        let request = pb::MatchmakingUpdateAdvertisementRequest {
            advertisement_id: self.id().to_owned(),
            advertisement_token: self.token(),
            joined_reservation_ids: joined.iter().map(|one| one.id.clone()).collect(),
            idempotency_key: String::new(),
            ..session_of(players)
        };
        self.client.update_advertisement(request).await.expect("update");
    }

    /// Waits until the host's server knows these reservations.
    pub(crate) async fn wait_for_reservations(&self, made: &[&Reservation]) {
        let heartbeat = pb::MatchmakingUpdateAdvertisementRequest {
            advertisement_id: self.id().to_owned(),
            advertisement_token: self.token(),
            ..Default::default()
        };
        wait_until("the server of the host has the reservations", async || {
            let told = self.client.update_advertisement(heartbeat.clone()).await.expect("heartbeat").reservations;
            made.iter().all(|one| told.iter().any(|known| known.reservation_id == one.id))
        })
        .await;
    }

    pub(crate) fn start_request(&self, teams: &[pb::SessionTeam], key: &str) -> pb::MatchmakingStartMatchRequest {
        pb::MatchmakingStartMatchRequest {
            advertisement_id: self.id().to_owned(),
            advertisement_token: self.token(),
            idempotency_key: key.to_owned(),
            teams: teams.to_vec(),
            host_party: Vec::new(),
        }
    }

    pub(crate) async fn try_start(&self, teams: &[pb::SessionTeam]) -> Result<Started, Error> {
        let answer = self.client.start_match(self.start_request(teams, "")).await?;
        Ok(Started::new(answer))
    }

    pub(crate) async fn start(&self, teams: &[pb::SessionTeam]) -> Started {
        self.try_start(teams).await.expect("start")
    }
}

/// A match that a host has started.
#[derive(Clone, Debug)]
pub(crate) struct Started {
    pub(crate) answer: pb::MatchmakingStartMatchResponse,
    pub(crate) hosted: pb::HostedMatch,
}

impl Started {
    pub(crate) fn new(answer: pb::MatchmakingStartMatchResponse) -> Self {
        let hosted = answer.r#match.clone().expect("a match");
        Self { answer, hosted }
    }

    pub(crate) fn id(&self) -> &str {
        &self.hosted.match_id
    }
}

/// Session with these players, and eight open seats.
pub(crate) fn session_of(names: &[&str]) -> pb::MatchmakingUpdateAdvertisementRequest {
    let players: Vec<(&str, f64)> = names.iter().map(|name| (*name, 0.0)).collect();
    pb::MatchmakingUpdateAdvertisementRequest { matchmaking_set_id: Some(SET_ID), ..advertise_request(&players, 8) }
}

/// A player alone finds the session of `host` by search, at the last server, and reserves a seat.
pub(crate) async fn reserve(site: &PartySite, host: &Host, name: &str) -> Reservation {
    reserve_party(site, host, party_session(&[(name, 0.0)]), name).await
}

/// A party finds the session of `host` by search, at the last server, and reserves its seats.
pub(crate) async fn reserve_party(
    site: &PartySite,
    host: &Host,
    party: pb::SessionCompositionData,
    leader: &str,
) -> Reservation {
    let client = site.player_elsewhere(leader).await;
    let mut searching = client.new_search(SET_ID, party);
    wait_until("the search finds the session", async || {
        let found = searching.search().await.expect("search").candidates;
        found.iter().any(|candidate| candidate.advertisement_id == host.id())
    })
    .await;
    searching.reserve(host.id()).await.expect("reserve")
}

/// A pair of players, of whom the second has consented to the first's search.
pub(crate) async fn reserve_pair(site: &PartySite, host: &Host, leader: &str, member: &str) -> Reservation {
    let token = site.consent(member, leader, false, pb::ConsentUse::Search).await;
    let mut party = party_session(&[(leader, 0.0), (member, 0.0)]);
    party.players[1].consent_token = token;
    reserve_party(site, host, party, leader).await
}

/// Own ticket of a player in a match, found with Mine at the last server.
pub(crate) async fn own_ticket(site: &PartySite, name: &str, match_id: &str) -> Ticket {
    let client = site.player_elsewhere(name).await;
    let mut own = None;
    wait_until("the player finds the match", async || {
        let tickets = client.own_tickets_and_cooldowns().await.expect("mine").0;
        own = tickets.into_iter().find(|ticket| match_of(ticket) == match_id);
        own.is_some()
    })
    .await;
    own.expect("a ticket")
}

/// Id of the match in the status of a ticket.
pub(crate) fn match_of(ticket: &Ticket) -> &str {
    ticket.status.found_match.as_ref().map_or("", |found| &found.match_id)
}

/// Whether a player finds no match that is being played.
pub(crate) async fn has_no_match(client: &Client) -> bool {
    let tickets = client.own_tickets_and_cooldowns().await.expect("mine").0;
    tickets.iter().all(|ticket| ticket.status.state() != pb::TicketState::Matched)
}

/// Heartbeats of tickets, later than the start of their match.
pub(crate) async fn hear(site: &PartySite, tickets: &mut [&mut Ticket]) {
    site.clock.advance_ms(10);
    for ticket in tickets {
        ticket.heartbeat().await.expect("heartbeat");
    }
}

/// Ranks of two teams, of which `winner` is first.
pub(crate) fn win_of(winner: u32) -> [(u32, i32); 2] {
    [(winner, 1), (1 - winner, 2)]
}

/// The same ranks as a message.
pub(crate) fn ranks_of(winner: u32) -> Vec<pb::TeamRank> {
    win_of(winner).map(|(team, place)| rank(team, place)).to_vec()
}

/// Ratings of players, each read by its own client at the last server.
pub(crate) async fn ratings<const N: usize>(site: &PartySite, names: [&str; N]) -> [f64; N] {
    let mut all = [0.0; N];
    for (rating, name) in all.iter_mut().zip(names) {
        *rating = crate::rating::results_and_leaderboards::rating(&site.player_elsewhere(name).await, name).await;
    }
    all
}

/// Waits until the ratings of players, as the last server tells them, are these.
pub(crate) async fn wait_for_ratings<const N: usize>(site: &PartySite, names: [&str; N], expected: [f64; N]) {
    wait_until("the ratings reach the other server", async || ratings(site, names).await == expected).await;
}

/// Asserts that a call is refused for these fields.
pub(crate) fn assert_fields<T: std::fmt::Debug>(refused: Result<T, Error>, fields: &[&str]) {
    let error = refused.expect_err("refused");
    assert_eq!(error.code(), Some(Code::InvalidArgument), "{error}");
    let named: Vec<&str> = error.fields().iter().map(|problem| problem.field.as_str()).collect();
    assert_eq!(named, fields, "{error}");
}

/// Asserts that a call is refused for this reason.
pub(crate) fn assert_reason<T: std::fmt::Debug>(refused: Result<T, Error>, expected: &str) {
    let error = refused.expect_err("refused");
    assert_eq!(reason(&error), expected, "{error}");
}
