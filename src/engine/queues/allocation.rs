//! Allocation: reserves seats for a match on a game server, or in a session that it backfills.

use std::sync::Arc;

use crate::domain::advertisement::AdvertisementKind;
use crate::domain::attribute::{AttributeValue, ShortString, SourceField, ValueOrigin};
use crate::domain::attribute_values::AttributeValues;
use crate::domain::filter::{AdvertsOfAvoidedPlayers, Searcher};
use crate::domain::id::{AdvertisementId, UserKey};
use crate::domain::latency::LatencyEndpoint;
use crate::domain::latency::round_trip_estimate::EstimateEnd;
use crate::domain::lifecycle::{Assignment, Match, MatchTicket};
use crate::domain::locality::Locality;
use crate::domain::player_standing;
use crate::domain::probe_result::ProbeResults;
use crate::domain::queue::placement::{MatchToPlace, PlacementProblem, ServerCandidate, rank_servers};
use crate::domain::queue::ticket::{PlayerRating, Ticket};
use crate::domain::queue::ticket_vector::TicketBeaconVector;
use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::queue::RegionUse;
use crate::domain::ruleset::teams::MatchesOfferedToAllocators;
use crate::domain::session::{Player, RegionLatency, Session};
use crate::domain::time::UnixMs;
use crate::engine::adverts::writer_command::ReserveSeats;
use crate::engine::error::EngineError;
use crate::engine::joining_ticket::JoiningTicket;
use crate::engine::queues::queue_predictions::VectorCompleter;
use crate::engine::queues::shared_state::SharedState;

/// Maximum servers tried per allocation. Each may have been taken since the search.
const GAME_SERVERS_TRIED_MAX: usize = 4;

/// Search for a host of one match.
#[derive(Debug)]
pub(crate) struct HostFinder<'a> {
    state: &'a SharedState,
    match_: &'a Match,
    ruleset: &'a Arc<Ruleset>,
    match_session: MatchSession,
    tickets: Vec<Arc<Ticket>>,
    now: UnixMs,
}

impl<'a> HostFinder<'a> {
    /// Search for the players of `match_`, as they are now.
    pub(crate) fn new(state: &'a SharedState, match_: &'a Match, ruleset: &'a Arc<Ruleset>) -> Self {
        let tickets: Vec<Arc<Ticket>> = {
            let cache = state.cache.read();
            let ticket = |match_ticket: &MatchTicket| Some(Arc::clone(&cache.ticket(match_ticket.ticket_id)?.ticket));
            match_.tickets.iter().filter_map(ticket).collect()
        };
        let players = MatchSession::from_tickets(&tickets, match_, ruleset);
        Self { state, match_, ruleset, match_session: players, tickets, now: state.common.clock.now() }
    }

    /// Whether an advertised game server may host the match.
    pub(crate) fn has_advertised_server(&self) -> bool {
        self.rank_game_servers().is_ok()
    }

    /// Attributes that all parties have in common.
    pub(crate) fn shared_attributes(&self) -> &[(ShortString, AttributeValue)] {
        &self.match_session.session.attributes
    }

    /// Number of players.
    pub(crate) fn player_count(&self) -> u16 {
        self.match_session.session.player_count()
    }

    /// Region that the players agreed on, if any.
    pub(crate) fn region(&self) -> Option<&str> {
        self.match_.region.as_deref().or_else(|| shared_region(self.ruleset, &self.match_session.session))
    }

    /// Reserves seats for the match. If no server is available now, returns the reason.
    pub(crate) async fn reserve_host(&self) -> Result<Assignment, PlacementProblem> {
        let (kind, candidates) = match self.match_.backfilled_session {
            Some(id) => (AdvertisementKind::Session, vec![id]),
            None => (AdvertisementKind::GameServer, self.rank_game_servers()?),
        };
        for id in candidates.into_iter().take(GAME_SERVERS_TRIED_MAX) {
            match self.reserve_seats(id, kind).await {
                Ok(assignment) => return Ok(assignment),
                Err(error) => {
                    let match_id = self.match_.id;
                    tracing::debug!(?error, advertisement = %id, %match_id, "game server seats rejected");
                }
            }
        }
        Err(PlacementProblem::NoServer)
    }

    /// Game servers that may host the match, in the order in which to try them.
    fn rank_game_servers(&self) -> Result<Vec<AdvertisementId>, PlacementProblem> {
        let players = &self.match_session;
        let servers =
            self.state.adverts.find_game_servers(self.ruleset, players.searcher(), players.session.silo, self.now);
        let confirm_ms = u64::from(self.ruleset.hosting.confirm_ms);
        let predictions = VectorCompleter::of_ruleset(&self.state.common, self.ruleset, self.now);
        let predictions = predictions.as_ref();
        let server_vectors: Vec<Option<TicketBeaconVector>> =
            servers.iter().map(|server| predictions?.complete_session_vector(&server.advertisement.session)).collect();
        let candidates: Vec<ServerCandidate<'_>> = servers
            .iter()
            .zip(&server_vectors)
            .map(|(server, vector)| ServerCandidate {
                id: server.advertisement.id,
                session: &server.advertisement.session,
                open_seats: server.open_seats,
                prediction_end: vector.as_ref().map(TicketBeaconVector::prediction_input),
                score: server.score,
                is_heartbeat_overdue: server
                    .last_beat_at_without_stream
                    .is_some_and(|at| confirm_ms < self.now.ms_since(at)),
            })
            .collect();
        let vectors: Vec<Option<TicketBeaconVector>> =
            self.tickets.iter().map(|ticket| self.vector_of(ticket, predictions)).collect();
        let parties: Vec<EstimateEnd<'_>> = self
            .tickets
            .iter()
            .zip(&vectors)
            .map(|(ticket, vector)| EstimateEnd {
                locality_and_region_latencies: LatencyEndpoint {
                    locality: ticket.session.locality,
                    region_latencies: &ticket.session.region_latencies,
                },
                prediction_end: vector.as_ref().map(TicketBeaconVector::prediction_input),
            })
            .collect();
        let to_place = MatchToPlace {
            id: self.match_.id,
            region: self.region(),
            parties: &parties,
            unconfirmed_servers: &self.match_.servers_that_did_not_confirm,
        };
        rank_servers(self.ruleset, &to_place, &candidates)
    }

    /// Vector of one of the tickets; `None` if the ruleset predicts nothing, or too few floors count.
    fn vector_of(&self, ticket: &Ticket, predictions: Option<&VectorCompleter>) -> Option<TicketBeaconVector> {
        let cache = self.state.cache.read();
        predictions?.complete_ticket_vector(ticket, &cache.ticket(ticket.id)?.seat_vectors)
    }

    async fn reserve_seats(
        &self,
        advertisement_id: AdvertisementId,
        kind: AdvertisementKind,
    ) -> Result<Assignment, EngineError> {
        let (common, match_, players) = (&self.state.common, self.match_, &self.match_session);
        let id = common.token_signer.derive_reservation_id(None, advertisement_id, &match_.id.to_string());
        let entered_at = match_.tickets.iter().map(|match_ticket| match_ticket.entered_at);
        let (party_values, scale) =
            (&common.party_values, common.party_values.rating_key_unless_first_scale(self.ruleset));
        let predictions = VectorCompleter::of_ruleset(common, self.ruleset, self.now);
        let guest = |ticket: &Arc<Ticket>| {
            let vector = self.vector_of(ticket, predictions.as_ref());
            let ticket = party_values.ticket_on_scale(scale, self.ruleset, Arc::clone(ticket));
            JoiningTicket {
                attribute_values: party_values.ticket_attribute_values(self.ruleset, &ticket),
                ticket,
                vector,
            }
        };
        let joins_session = kind == AdvertisementKind::Session;
        let command = ReserveSeats {
            reservation_id: id,
            advertisement_id,
            required_kind: kind,
            set_id: match_.set_id,
            silo: match_.silo,
            ruleset: Arc::clone(self.ruleset),
            session: players.session.clone(),
            attribute_values: players.attribute_values.clone(),
            users: players.users.clone(),
            subject: None,
            probes: Box::default(),
            predictor: None,
            searching_since: entered_at.min().unwrap_or(self.now),
            hold_ms: common.settings.max_reservation_ttl_ms,
            request_digest: *match_.id.as_bytes(),
            owner: None,
            is_of_search: false,
            measures: None,
            joining_tickets: joins_session.then(|| self.tickets.iter().map(guest).collect()),
        };
        let reserved = self.state.adverts.reserve_seats(command).await?;
        Ok(Assignment::GameServer {
            advertisement: advertisement_id,
            reservation: Some(id),
            connect_data: reserved.connect_data,
        })
    }
}

/// Whether only allocators place the match: it is not a backfill, and its ruleset offers each match.
pub(crate) fn is_placed_only_by_allocators(match_: &Match, ruleset: &Ruleset) -> bool {
    match_.backfilled_session.is_none() && ruleset.hosting.allocator_offers.mode == MatchesOfferedToAllocators::Always
}

/// Region that all parties have in common, if the ruleset partitions its queue by it.
fn shared_region<'a>(ruleset: &Ruleset, session: &'a Session) -> Option<&'a str> {
    let Some(RegionUse::Partition { attribute }) = ruleset.queue.as_ref()?.regions else { return None };
    match session.stated_attribute_value(&ruleset.attributes.get(attribute)?.name)? {
        AttributeValue::String(region) => Some(region),
        _ => None,
    }
}

/// All players of a match as one session that searches for a game server.
#[derive(Debug)]
struct MatchSession {
    session: Session,
    users: Vec<UserKey>,
    attribute_values: AttributeValues,
}

impl MatchSession {
    /// Keeps the attributes that all tickets share, so that servers can filter by game mode. One that the ruleset does not trust
    /// the caller of a ticket with is not one.
    fn from_tickets(tickets: &[Arc<Ticket>], match_: &Match, ruleset: &Ruleset) -> Self {
        let player_count: usize = match_.tickets.iter().map(|match_ticket| match_ticket.players.len()).sum();
        let mut users: Vec<UserKey> =
            match_.tickets.iter().flat_map(|match_ticket| &match_ticket.players).map(|player| player.user).collect();
        users.sort_unstable();
        let first_attributes = tickets.first().map_or(&[][..], |first| &first.session.attributes);
        let is_shared_by_all = |(name, value): &&(ShortString, AttributeValue)| {
            tickets.iter().all(|ticket| {
                ticket.session.stated_attribute_value(name) == Some(value)
                    && ruleset.trusts_attribute_from_origin(name, ticket.session.value_origin)
            })
        };
        let session = Session {
            silo: match_.silo,
            party_sizes: [u8::try_from(player_count).unwrap_or(u8::MAX)].into(),
            players: players_with_trusted_attributes(ruleset, tickets, &users),
            locality: Locality::midpoint(tickets.iter().filter_map(|ticket| ticket.session.locality)),
            region_latencies: mean_round_trips(tickets, match_.region.as_deref()),
            attributes: first_attributes.iter().filter(is_shared_by_all).cloned().collect(),
            value_origin: ValueOrigin::GameServer,
            ..Session::default()
        };
        let attribute_values =
            AttributeValues::from_session_and_ratings(ruleset, &session, &ratings_of(ruleset, tickets, &users));
        Self { attribute_values, session, users }
    }

    /// Searcher with an unlimited wait, so that expansions apply their widest limits: the players already agreed.
    fn searcher(&self) -> Searcher<'_> {
        Searcher {
            attribute_values: &self.attribute_values,
            locality: self.session.locality,
            region_latencies: &self.session.region_latencies,
            // Wishes are about other parties, not about game servers.
            wishes: &[],
            seats_needed: self.session.player_count(),
            users: &[],
            caller: None,
            excluded_ids: &[],
            avoided: AdvertsOfAvoidedPlayers::default(),
            probes: ProbeResults::default(),
            predictor: None,
            waited_ms: u64::MAX,
        }
    }
}

/// Players of the tickets who are among `users` (sorted), with the attributes that the ruleset trusts their callers with. None
/// if the ruleset has no attributes of players.
fn players_with_trusted_attributes(ruleset: &Ruleset, tickets: &[Arc<Ticket>], users: &[UserKey]) -> Vec<Player> {
    if !ruleset.attributes.iter().any(|attribute| matches!(attribute.source, SourceField::Players(_))) {
        return Vec::new();
    }
    let trusted = |ticket: &Arc<Ticket>| -> Vec<Player> {
        let is_trusted = |name: &str| ruleset.trusts_attribute_from_origin(name, ticket.session.value_origin);
        let present = ticket.session.players.iter().filter(|player| users.binary_search(&player.user).is_ok());
        let with_trusted = |player: &Player| {
            let mut details = player.details.clone();
            details.iter_mut().for_each(|details| details.attributes.retain(|(name, _)| is_trusted(name)));
            Player { details, ..Player::from_user(player.user) }
        };
        present.map(with_trusted).collect()
    };
    tickets.iter().flat_map(trusted).collect()
}

/// Known ratings of `users` (sorted), from their tickets.
fn ratings_of(ruleset: &Ruleset, tickets: &[Arc<Ticket>], users: &[UserKey]) -> Vec<PlayerRating> {
    let ticket_ratings = |ticket: &Arc<Ticket>| -> Vec<Option<PlayerRating>> {
        match ruleset.rating {
            Some(_) => ticket.player_ratings.iter().copied().map(Some).collect(),
            None => player_standing::session_ratings(ruleset, &ticket.session, None).collect(),
        }
    };
    let of_present_players = |ticket: &Arc<Ticket>| {
        let rated = ticket.session.players.iter().zip(ticket_ratings(ticket));
        let present = rated.filter(|(player, _)| users.binary_search(&player.user).is_ok());
        present.filter_map(|(_, rating)| rating).collect::<Vec<PlayerRating>>()
    };
    tickets.iter().flat_map(of_present_players).collect()
}

/// Mean round trip per region that all tickets measured. Limited to the match's region, if it has one.
fn mean_round_trips(tickets: &[Arc<Ticket>], region: Option<&str>) -> Box<[RegionLatency]> {
    let Some(first) = tickets.first() else { return Box::default() };
    let regions =
        first.session.region_latencies.iter().filter(|latency| region.is_none_or(|region| *latency.region == *region));
    let mean = |name: &str| {
        let round_trip_ms = |ticket: &Arc<Ticket>| {
            ticket
                .session
                .region_latencies
                .iter()
                .find(|latency| *latency.region == *name)
                .map(|latency| latency.round_trip_ms)
        };
        let round_trips_ms: Option<Vec<f32>> = tickets.iter().map(round_trip_ms).collect();
        round_trips_ms.map(|round_trips_ms| round_trips_ms.iter().sum::<f32>() / round_trips_ms.len() as f32)
    };
    regions
        .filter_map(|latency| {
            Some(RegionLatency { region: latency.region.clone(), round_trip_ms: mean(&latency.region)? })
        })
        .collect()
}
