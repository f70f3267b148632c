//! Allocation: reserves seats for a match on a game server, or in a session that it backfills.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::domain::advertisement::AdvertisementKind;
use crate::domain::attribute::{AttributeValue, ValueOrigin};
use crate::domain::attribute_values::AttributeValues;
use crate::domain::filter::Searcher;
use crate::domain::id::{AdvertisementId, ReservationId, SetId, UserKey};
use crate::domain::index::{SearchQuery, SearchResult};
use crate::domain::lifecycle::{Assignment, Match, MatchTicket};
use crate::domain::locality::Locality;
use crate::domain::queue::backfill::OpenSession;
use crate::domain::queue::ticket::Ticket;
use crate::domain::ruleset::Ruleset;
use crate::domain::session::{RegionLatency, Session};
use crate::domain::time::UnixMs;
use crate::engine::adverts::advert_set::AdvertRecord;
use crate::engine::adverts::writer_command::{AdvertWriterCommand, ReserveSeats};
use crate::engine::error::EngineError;
use crate::engine::queues::shared_state::SharedState;
use crate::store::queues::QueueKey;

/// Maximum open sessions that a pass may backfill.
const BACKFILL_SESSIONS_MAX: usize = 1_000;

/// Maximum servers tried per allocation. Each may have been taken since the search.
const SERVER_ATTEMPTS_MAX: usize = 4;

impl SharedState {
    /// Reserves seats for a match; `None` if no server is available now.
    pub(crate) async fn allocate(&self, match_: &Match, ruleset: &Arc<Ruleset>) -> Option<Assignment> {
        let now = self.core.clock.now();
        let tickets: Vec<Arc<Ticket>> = {
            let cache = self.cache.read();
            let ticket = |match_ticket: &MatchTicket| Some(Arc::clone(&cache.ticket(match_ticket.ticket_id)?.ticket));
            match_.tickets.iter().filter_map(ticket).collect()
        };
        let players = MatchSession::from_tickets(&tickets, match_, ruleset);
        let (kind, candidates) = match match_.backfilled_session {
            Some(id) => (AdvertisementKind::Session, vec![id]),
            None => (AdvertisementKind::GameServer, self.rank_game_servers(&players, ruleset, now)),
        };
        for id in candidates.into_iter().take(SERVER_ATTEMPTS_MAX) {
            match self.reserve_seats(match_, id, kind, &players, ruleset, now).await {
                Ok(assignment) => return Some(assignment),
                Err(error) => {
                    tracing::debug!(?error, advertisement = %id, match_id = %match_.id, "game server seats rejected")
                }
            }
        }
        None
    }

    /// Releases a reservation. If the release fails, the hold expires.
    pub(crate) fn release_seats(&self, advertisement: AdvertisementId, set_id: SetId, reservation: ReservationId) {
        let (reply, _answer) = oneshot::channel();
        let in_flight = self.core.in_flight_changes.begin_change(advertisement);
        // Do not wait for the advertisement writer: with a full inbox, the hold expires instead.
        let _ = self.advert_writer.try_send(AdvertWriterCommand::ReleaseReservation(
            reservation,
            advertisement,
            set_id,
            reply,
            in_flight,
        ));
    }

    /// Sessions of a queue with open seats, oldest first.
    pub(crate) fn open_backfill_sessions(&self, key: QueueKey, ruleset: &Ruleset, now: UnixMs) -> Vec<OpenSession> {
        let Some(set) = self.core.advert_sets.get(key.set_id) else { return Vec::new() };
        let set = set.read();
        let is_open = |record: &&AdvertRecord| {
            let advertisement = &record.advertisement;
            let is_in_queue =
                advertisement.kind == AdvertisementKind::Session && advertisement.session.silo == key.silo;
            is_in_queue && now < record.expires_at && record.open_seats() > 0
        };
        let mut records: Vec<&AdvertRecord> = set.records().filter(is_open).collect();
        records.sort_unstable_by_key(|record| (record.advertisement.advertised_since, record.advertisement.id));
        let to_open_session = |record: &AdvertRecord| {
            let session = &record.advertisement.session;
            let player_ratings: Option<Box<[f64]>> = session.players.iter().map(|player| player.stated_skill).collect();
            OpenSession {
                advertisement: Arc::clone(&record.advertisement),
                attribute_values: AttributeValues::from_session(ruleset, session),
                expires_at: record.expires_at,
                open_seats: record.open_seats(),
                open_seats_by_team: None,
                player_ratings: player_ratings.unwrap_or_default(),
                leaderboard_position: None,
            }
        };
        records.into_iter().take(BACKFILL_SESSIONS_MAX).map(to_open_session).collect()
    }

    /// Game servers with enough open seats, best score first.
    fn rank_game_servers(&self, players: &MatchSession, ruleset: &Arc<Ruleset>, now: UnixMs) -> Vec<AdvertisementId> {
        let Some(set) = self.core.advert_sets.get(ruleset.set_id) else { return Vec::new() };
        let set = set.read();
        let Some(index) = set.index_of_ruleset(ruleset.hash) else { return Vec::new() };
        let query = SearchQuery {
            ruleset: index.ruleset(),
            searcher: players.searcher(),
            silo: players.session.silo,
            kind: AdvertisementKind::GameServer,
            limits: ruleset.search_limits,
            now,
        };
        let mut result = SearchResult::default();
        index.search(&query, &mut result);
        result.hits.iter().map(|hit| index.entry(hit.slot).advertisement.id).collect()
    }

    async fn reserve_seats(
        &self,
        match_: &Match,
        advertisement_id: AdvertisementId,
        kind: AdvertisementKind,
        players: &MatchSession,
        ruleset: &Arc<Ruleset>,
        now: UnixMs,
    ) -> Result<Assignment, EngineError> {
        let id = self.core.token_signer.derive_reservation_id(None, advertisement_id, &match_.id.to_string());
        let command = ReserveSeats {
            reservation_id: id,
            advertisement_id,
            required_kind: kind,
            set_id: match_.set_id,
            silo: match_.silo,
            ruleset: Arc::clone(ruleset),
            session: players.session.clone(),
            attribute_values: players.attribute_values.clone(),
            users: players.users.clone(),
            subject: None,
            searching_since: match_.tickets.iter().map(|match_ticket| match_ticket.entered_at).min().unwrap_or(now),
            hold_ms: self.core.settings.max_hold_ms,
            request_digest: *match_.id.as_bytes(),
        };
        let (reply, answer) = oneshot::channel();
        let in_flight = self.core.in_flight_changes.begin_change(advertisement_id);
        self.advert_writer
            .send(AdvertWriterCommand::ReserveSeats(Box::new(command), reply, in_flight))
            .await
            .map_err(|_| EngineError::Draining)?;
        let reserved = answer.await.unwrap_or(Err(EngineError::Internal))?;
        Ok(Assignment::GameServer {
            advertisement: advertisement_id,
            reservation: id,
            connect_data: reserved.connect_data,
        })
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
    /// Keeps the attributes that all tickets share, so that servers can filter by game mode.
    fn from_tickets(tickets: &[Arc<Ticket>], match_: &Match, ruleset: &Ruleset) -> Self {
        let player_count: usize = match_.tickets.iter().map(|match_ticket| match_ticket.players.len()).sum();
        let mut users: Vec<UserKey> =
            match_.tickets.iter().flat_map(|match_ticket| &match_ticket.players).map(|player| player.user).collect();
        users.sort_unstable();
        let first_attributes = tickets.first().map_or(&[][..], |first| &first.session.attributes);
        let is_shared_by_all = |(name, value): &&(Box<str>, AttributeValue)| {
            tickets.iter().all(|ticket| ticket.session.attribute_value(name) == Some(value))
        };
        let session = Session {
            silo: match_.silo,
            party_sizes: vec![u8::try_from(player_count).unwrap_or(u8::MAX)],
            locality: Locality::midpoint(tickets.iter().filter_map(|ticket| ticket.session.locality)),
            region_latencies: mean_round_trips(tickets, match_.region.as_deref()),
            attributes: first_attributes.iter().filter(is_shared_by_all).cloned().collect(),
            origin: ValueOrigin::GameServer,
            ..Session::default()
        };
        Self { attribute_values: AttributeValues::from_session(ruleset, &session), session, users }
    }

    /// Searcher with an unlimited wait, so that expansions apply their widest limits: the players already agreed.
    fn searcher(&self) -> Searcher<'_> {
        Searcher {
            attribute_values: &self.attribute_values,
            locality: self.session.locality,
            region_latencies: &self.session.region_latencies,
            seats_needed: self.session.player_count(),
            users: &[],
            caller: None,
            excluded_ids: &[],
            waited_ms: u64::MAX,
        }
    }
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
