//! Finds a match a place to be played: a game server that has advertised itself, or a session with open seats.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::domain::advertisement::AdvertisementKind;
use crate::domain::attribute::{AttributeValue, ValueOrigin};
use crate::domain::attribute_values::AttributeValues;
use crate::domain::filter::Searcher;
use crate::domain::id::{AdvertisementId, ReservationId, SetId, UserKey};
use crate::domain::index::{SearchQuery, SearchResult};
use crate::domain::lifecycle::{Assignment, Match};
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

/// Sessions with open seats that a pass may fill.
const BACKFILL_SESSIONS_MAX: usize = 1_000;

/// Servers that are tried for one match before it waits a moment: each may have been taken since it was looked up.
const SERVER_ATTEMPTS_MAX: usize = 4;

impl SharedState {
    /// Takes seats for a match that is to be played somewhere; none when there is nowhere now.
    pub(super) async fn allocate(&self, play: &Match, ruleset: &Arc<Ruleset>) -> Option<Assignment> {
        let now = self.core.clock.now();
        let tickets: Vec<Arc<Ticket>> = {
            let roster = self.cache.read();
            let ticket = |member: &crate::domain::lifecycle::MatchTicket| {
                Some(Arc::clone(&roster.ticket(member.ticket_id)?.ticket))
            };
            play.tickets.iter().filter_map(ticket).collect()
        };
        let players = MatchSession::from_tickets(&tickets, play, ruleset);
        let (kind, candidates) = match play.backfilled_session {
            Some(id) => (AdvertisementKind::Session, vec![id]),
            None => (AdvertisementKind::GameServer, self.rank_game_servers(&players, ruleset, now)),
        };
        for id in candidates.into_iter().take(SERVER_ATTEMPTS_MAX) {
            match self.reserve_seats(play, id, kind, &players, ruleset, now).await {
                Ok(place) => return Some(place),
                Err(fault) => {
                    tracing::debug!(?fault, advertisement = %id, play = %play.id, "a server is no longer free")
                }
            }
        }
        None
    }

    /// Gives seats back. Should that fail they lapse.
    pub(super) fn release_seats(&self, advertisement: AdvertisementId, set_id: SetId, reservation: ReservationId) {
        let (reply, _nobody) = oneshot::channel();
        let in_flight = self.core.in_flight_changes.begin(advertisement);
        // The writer of advertisements is never waited for by that of queues: a full inbox lets the seats lapse.
        let _ = self.advert_writer.try_send(AdvertWriterCommand::ReleaseReservation(
            reservation,
            advertisement,
            set_id,
            reply,
            in_flight,
        ));
    }

    /// Sessions of a queue with open seats, those that have been advertised longest first.
    pub(super) fn open_backfill_sessions(&self, key: QueueKey, ruleset: &Ruleset, now: UnixMs) -> Vec<OpenSession> {
        let Some(shelf) = self.core.advert_sets.get(key.set_id) else { return Vec::new() };
        let shelf = shelf.read();
        let fits = |record: &&AdvertRecord| {
            let advertisement = &record.advertisement;
            let is_of_queue =
                advertisement.kind == AdvertisementKind::Session && advertisement.session.silo == key.silo;
            is_of_queue && now < record.expires_at && 0 < record.open_seats()
        };
        let mut records: Vec<&AdvertRecord> = shelf.records().filter(fits).collect();
        records.sort_unstable_by_key(|record| (record.advertisement.advertised_since, record.advertisement.id));
        let open = |record: &AdvertRecord| {
            let session = &record.advertisement.session;
            let ratings: Option<Box<[f64]>> = session.players.iter().map(|player| player.stated_skill).collect();
            OpenSession {
                advertisement: Arc::clone(&record.advertisement),
                attribute_values: AttributeValues::from_session(ruleset, session),
                expires_at: record.expires_at,
                open_seats: record.open_seats(),
                open_seats_by_team: None,
                player_ratings: ratings.unwrap_or_default(),
                leaderboard_position: None,
            }
        };
        records.into_iter().take(BACKFILL_SESSIONS_MAX).map(open).collect()
    }

    /// Game servers with room for all, the best by the ruleset's soft filters first.
    fn rank_game_servers(&self, players: &MatchSession, ruleset: &Arc<Ruleset>, now: UnixMs) -> Vec<AdvertisementId> {
        let Some(shelf) = self.core.advert_sets.get(ruleset.set_id) else { return Vec::new() };
        let shelf = shelf.read();
        let Some(view) = shelf.index_of_ruleset(ruleset.hash) else { return Vec::new() };
        let query = SearchQuery {
            ruleset: view.ruleset(),
            searcher: players.searcher(),
            silo: players.session.silo,
            kind: AdvertisementKind::GameServer,
            limits: ruleset.search_limits,
            now,
        };
        let mut found = SearchResult::default();
        view.search(&query, &mut found);
        found.hits.iter().map(|hit| view.entry(hit.slot).advertisement.id).collect()
    }

    async fn reserve_seats(
        &self,
        play: &Match,
        advertisement_id: AdvertisementId,
        kind: AdvertisementKind,
        players: &MatchSession,
        ruleset: &Arc<Ruleset>,
        now: UnixMs,
    ) -> Result<Assignment, EngineError> {
        let id = self.core.token_signer.derive_reservation_id(None, advertisement_id, &play.id.to_string());
        let take = ReserveSeats {
            reservation_id: id,
            advertisement_id,
            required_kind: kind,
            set_id: play.set_id,
            silo: play.silo,
            ruleset: Arc::clone(ruleset),
            session: players.session.clone(),
            attribute_values: players.attribute_values.clone(),
            users: players.users.clone(),
            subject: None,
            searching_since: play.tickets.iter().map(|member| member.entered_at).min().unwrap_or(now),
            hold_ms: self.core.settings.max_hold_ms,
            request_digest: *play.id.as_bytes(),
        };
        let (reply, answer) = oneshot::channel();
        let in_flight = self.core.in_flight_changes.begin(advertisement_id);
        self.advert_writer
            .send(AdvertWriterCommand::ReserveSeats(Box::new(take), reply, in_flight))
            .await
            .map_err(|_| EngineError::Draining)?;
        let taken = answer.await.unwrap_or(Err(EngineError::Internal))?;
        Ok(Assignment::GameServer {
            advertisement: advertisement_id,
            reservation: id,
            connect_data: taken.connect_data,
        })
    }
}

/// The players of a match as one session that looks for a server.
#[derive(Debug)]
struct MatchSession {
    session: Session,
    users: Vec<UserKey>,
    attribute_values: AttributeValues,
}

impl MatchSession {
    /// What all say alike the session says too; so a server may ask for a mode, and one that asks for nothing is good for all.
    fn from_tickets(tickets: &[Arc<Ticket>], play: &Match, ruleset: &Ruleset) -> Self {
        let seats: usize = play.tickets.iter().map(|member| member.players.len()).sum();
        let mut users: Vec<UserKey> =
            play.tickets.iter().flat_map(|member| &member.players).map(|seat| seat.user).collect();
        users.sort_unstable();
        let said = tickets.first().map_or(&[][..], |first| &first.session.attributes);
        let by_all = |(name, value): &&(Box<str>, AttributeValue)| {
            tickets.iter().all(|ticket| ticket.session.attribute_value(name) == Some(value))
        };
        let session = Session {
            silo: play.silo,
            party_sizes: vec![u8::try_from(seats).unwrap_or(u8::MAX)],
            locality: Locality::midpoint(tickets.iter().filter_map(|ticket| ticket.session.locality)),
            region_latencies: mean_round_trips(tickets, play.region.as_deref()),
            attributes: said.iter().filter(by_all).cloned().collect(),
            origin: ValueOrigin::GameServer,
            ..Session::default()
        };
        Self { attribute_values: AttributeValues::from_session(ruleset, &session), session, users }
    }

    /// As long as it looks, limits no longer count: whoever is in the match has agreed to it.
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

/// The mean round trip of all to each region that all have measured; to the match's own region alone, where it has one.
fn mean_round_trips(tickets: &[Arc<Ticket>], region: Option<&str>) -> Box<[RegionLatency]> {
    let Some(first) = tickets.first() else { return Box::default() };
    let wanted = first.session.region_latencies.iter().filter(|it| region.is_none_or(|region| *it.region == *region));
    let mean = |name: &str| {
        let of = |ticket: &Arc<Ticket>| {
            ticket.session.region_latencies.iter().find(|it| *it.region == *name).map(|it| it.round_trip_ms)
        };
        let all: Option<Vec<f32>> = tickets.iter().map(of).collect();
        all.map(|all| all.iter().sum::<f32>() / all.len() as f32)
    };
    wanted
        .filter_map(|it| Some(RegionLatency { region: it.region.clone(), round_trip_ms: mean(&it.region)? }))
        .collect()
}
