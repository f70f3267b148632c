//! Access of the queues to advertisements: finds game servers and open sessions, reserves and releases seats.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use crate::domain::advertisement::{Advertisement, AdvertisementKind};
use crate::domain::attribute_values::AttributeValues;
use crate::domain::filter::Searcher;
use crate::domain::filter::explain::{SearchExplanation, explain_search};
use crate::domain::id::{AdvertisementId, MatchId, ReservationId, SetId, SiloId, UserKey};
use crate::domain::index::{SearchHit, SearchQuery, SearchResult};
use crate::domain::queue::backfill::OpenSession;
use crate::domain::ruleset::{Ruleset, SearchLimits};
use crate::domain::time::UnixMs;
use crate::engine::adverts::advert_set::{AdvertRecord, candidate_from_record};
use crate::engine::adverts::advert_state::AdvertState;
use crate::engine::adverts::writer_command::{AdvertWriterCommand, EraseAdvertUser, ExtendAdvertTtl, ReserveSeats};
use crate::engine::checked_session::CheckedSession;
use crate::engine::command::ReserveAnswer;
use crate::engine::error::EngineError;
use crate::engine::hosted_match::{HostedMatch, HostedMatchState};
use crate::engine::user_advert::UserAdvert;
use crate::store::Reservation;

/// Maximum open sessions that a pass may backfill.
const BACKFILL_SESSIONS_MAX: usize = 1_000;

/// Maximum game servers from which one is chosen for a match.
const GAME_SERVERS_MAX: u32 = 1_000;

/// Game server with open seats.
#[derive(Clone, Debug)]
pub(crate) struct OpenGameServer {
    pub(crate) advertisement: Arc<Advertisement>,
    /// Seats that are neither taken nor reserved.
    pub(crate) open_seats: u16,
    /// Score of the search; lower is better.
    pub(crate) score: f64,
    /// Last heartbeat of a server without a stream here; `None` with one.
    pub(crate) last_beat_at: Option<UnixMs>,
}

/// Part of the advertisements that queues may use. It also works while the server drains, so that matches can end.
#[derive(Clone, Debug)]
pub(crate) struct AdvertHandle {
    state: Arc<AdvertState>,
    writer: mpsc::Sender<AdvertWriterCommand>,
}

impl AdvertHandle {
    /// Handle of running advertisements.
    pub(crate) fn new(state: Arc<AdvertState>, writer: mpsc::Sender<AdvertWriterCommand>) -> Self {
        Self { state, writer }
    }

    /// Game servers with enough open seats that the ruleset admits, best score first.
    pub(crate) fn find_game_servers(
        &self,
        ruleset: &Ruleset,
        searcher: Searcher<'_>,
        silo: SiloId,
        now: UnixMs,
    ) -> Vec<OpenGameServer> {
        let Some(set) = self.state.advert_sets.get(ruleset.set_id) else { return Vec::new() };
        let set = set.read();
        let Some(index) = set.index_of_ruleset(ruleset.hash) else { return Vec::new() };
        let query = SearchQuery {
            ruleset: index.ruleset(),
            searcher,
            silo,
            kind: AdvertisementKind::GameServer,
            limits: SearchLimits { max_results: GAME_SERVERS_MAX, ..ruleset.search_limits },
            now,
        };
        let mut result = SearchResult::default();
        index.search(&query, &mut result);
        let to_server = |hit: &SearchHit| {
            let entry = index.entry(hit.slot);
            let id = entry.advertisement.id;
            let last_beat_at = |record: &AdvertRecord| UnixMs(record.expires_at.0.saturating_sub(record.ttl_ms.into()));
            OpenGameServer {
                last_beat_at: set.get(id).map(last_beat_at).filter(|_| !self.state.host_events.has_listener(id)),
                advertisement: Arc::clone(&entry.advertisement),
                open_seats: entry.open_seats,
                score: hit.score,
            }
        };
        result.hits.iter().map(to_server).collect()
    }

    /// Sessions of a set and silo with open seats, oldest first.
    pub(crate) fn open_backfill_sessions(
        &self,
        set_id: SetId,
        silo: SiloId,
        ruleset: &Ruleset,
        now: UnixMs,
    ) -> Vec<OpenSession> {
        let Some(set) = self.state.advert_sets.get(set_id) else { return Vec::new() };
        let set = set.read();
        let is_open = |record: &&AdvertRecord| {
            is_session_of_silo(record, silo) && now < record.expires_at && record.open_seats() > 0
        };
        let mut records: Vec<&AdvertRecord> = set.records().filter(is_open).collect();
        records.sort_unstable_by_key(|record| (record.advertisement.advertised_since, record.advertisement.id));
        let party_values = &self.state.common.party_values;
        let to_open_session = |record: &AdvertRecord| {
            let session = &record.advertisement.session;
            OpenSession {
                advertisement: Arc::clone(&record.advertisement),
                attribute_values: party_values.attribute_values(ruleset, session),
                expires_at: record.expires_at,
                open_seats: record.open_seats(),
                open_seats_by_team: None,
                player_ratings: party_values.known_player_ratings(ruleset, session).unwrap_or_default(),
                leaderboard_position: None,
            }
        };
        records.into_iter().take(BACKFILL_SESSIONS_MAX).map(to_open_session).collect()
    }

    /// Reserves seats; durable when it returns. Dropping the future does not cancel a submitted reservation.
    pub(crate) async fn reserve_seats(&self, reserve: ReserveSeats) -> Result<ReserveAnswer, EngineError> {
        let (reply, answer) = oneshot::channel();
        let in_flight = self.state.in_flight_changes.begin_change(reserve.advertisement_id);
        self.writer
            .send(AdvertWriterCommand::ReserveSeats(Box::new(reserve), reply, in_flight))
            .await
            .map_err(|_| EngineError::Draining)?;
        answer.await.unwrap_or(Err(EngineError::Internal))
    }

    /// Releases a reservation. If the release fails, the hold expires.
    pub(crate) fn release_seats(&self, advertisement: AdvertisementId, set_id: SetId, reservation: ReservationId) {
        let (reply, _answer) = oneshot::channel();
        let in_flight = self.state.in_flight_changes.begin_change(advertisement);
        // Do not wait for the advertisement writer: with a full inbox, the hold expires instead.
        let _ = self.writer.try_send(AdvertWriterCommand::ReleaseReservation(
            reservation,
            advertisement,
            set_id,
            reply,
            in_flight,
        ));
    }

    /// Confirms a reservation and extends its advertisement, because its host was heard. Without the advertisement, nothing
    /// changes.
    pub(crate) fn confirm_seats(&self, advertisement: AdvertisementId, set_id: SetId, reservation: ReservationId) {
        let extend = ExtendAdvertTtl {
            id: advertisement,
            owner_token: None,
            set_id,
            ttl_ms: None,
            confirmed_reservations: vec![reservation],
            joined_reservations: Vec::new(),
        };
        let (reply, _answer) = oneshot::channel();
        let in_flight = self.state.in_flight_changes.begin_change(advertisement);
        // Do not wait for the advertisement writer: with a full inbox, the host confirms the reservation itself.
        let _ = self.writer.try_send(AdvertWriterCommand::ExtendTtl(Box::new(extend), reply, in_flight));
    }

    /// Whether a connection of this server is subscribed to the events of an advertisement.
    pub(crate) fn has_listener(&self, id: AdvertisementId) -> bool {
        self.state.host_events.has_listener(id)
    }

    /// Records a match of an advertisement for its host, and sends it the change.
    pub(crate) fn set_hosted_match(&self, advertisement: AdvertisementId, hosted: HostedMatch, now: UnixMs) {
        self.state.host_events.set_hosted_match(advertisement, hosted, now);
    }

    /// Removes a match of an advertisement, and sends its host the reason.
    pub(crate) fn remove_hosted_match(&self, advertisement: AdvertisementId, id: MatchId, state: HostedMatchState) {
        self.state.host_events.remove_hosted_match(advertisement, id, state);
    }

    /// Matches that an advertisement hosts or must confirm.
    pub(crate) fn hosted_match_ids(&self, advertisement: AdvertisementId) -> Vec<MatchId> {
        self.state.host_events.hosted_match_ids(advertisement)
    }

    /// Asks the host of an advertisement for its next heartbeat, if the advertisement exists or hosts matches. Returns its
    /// matches.
    pub(crate) fn ask_for_beat(
        &self,
        advertisement: AdvertisementId,
        set_id: SetId,
        interval_ms: u64,
        now: UnixMs,
    ) -> Vec<MatchId> {
        let hosted = self.state.host_events.hosted_match_ids(advertisement);
        if hosted.is_empty() && !self.is_advertised(advertisement, set_id) {
            return hosted;
        }
        self.state.host_events.ask_for_beat(advertisement, interval_ms, now)
    }

    /// Whether a heartbeat that the host of an advertisement was asked for is due. It is then taken.
    pub(crate) fn take_due_beat(&self, advertisement: AdvertisementId, now: UnixMs) -> bool {
        self.state.host_events.take_due_beat(advertisement, now)
    }

    /// Caller that published an advertisement; `None` without identity, or if it is not in memory.
    pub(crate) fn publisher_of(&self, id: AdvertisementId, set_id: SetId) -> Option<UserKey> {
        self.state.advert_sets.get(set_id)?.read().get(id)?.advertisement.publisher
    }

    /// Advertisement with the reservations of a user; `None` if it is not in memory.
    pub(crate) fn advert_of_user(&self, id: AdvertisementId, user: UserKey) -> Option<UserAdvert> {
        let sets = self.state.advert_sets.all_sets();
        sets.iter().find_map(|(_, set)| {
            let set = set.read();
            let record = set.get(id)?;
            let is_of_user = |held: &&Reservation| held.users.binary_search(&user).is_ok() || held.is_made_by(user);
            Some(UserAdvert {
                advertisement: Arc::clone(&record.advertisement),
                expires_at: record.expires_at,
                reservations: record.reservations.iter().filter(is_of_user).cloned().collect(),
            })
        })
    }

    /// Deletes the advertised sessions in which `user` is alone; durable when it returns.
    pub(crate) async fn delete_sessions_of(&self, user: UserKey) -> Result<(), EngineError> {
        let mut ids = Vec::new();
        for (set_id, set) in self.state.advert_sets.all_sets() {
            let records = set.read();
            let is_alone = |record: &&AdvertRecord| {
                let players = &record.advertisement.session.players;
                !players.is_empty() && players.iter().all(|player| player.user == user)
            };
            ids.extend(records.records().filter(is_alone).map(|record| (record.advertisement.id, set_id)));
        }
        for (id, set_id) in ids {
            let (reply, answer) = oneshot::channel();
            let in_flight = self.state.in_flight_changes.begin_change(id);
            let command = AdvertWriterCommand::Delete(id, set_id, reply, in_flight);
            self.writer.send(command).await.map_err(|_| EngineError::Draining)?;
            answer.await.unwrap_or(Err(EngineError::Internal))?;
        }
        Ok(())
    }

    /// Erases a user from an advertisement and its reservations; durable when it returns. Returns whether they named the
    /// user.
    pub(crate) async fn erase_from_advertisement(
        &self,
        advertisement_id: AdvertisementId,
        user: UserKey,
        seed: [u8; 16],
    ) -> Result<bool, EngineError> {
        let sets = self.state.advert_sets.all_sets();
        let found = sets.iter().find(|(_, set)| set.read().get(advertisement_id).is_some());
        let set_id = found.map_or_else(SetId::default, |(set_id, _)| *set_id);
        let erase = EraseAdvertUser { advertisement_id, set_id, user, seed };
        let (reply, answer) = oneshot::channel();
        let in_flight = self.state.in_flight_changes.begin_change(advertisement_id);
        let command = AdvertWriterCommand::EraseUser(Box::new(erase), reply, in_flight);
        self.writer.send(command).await.map_err(|_| EngineError::Draining)?;
        answer.await.unwrap_or(Err(EngineError::Internal))
    }

    /// Whether an advertisement is in memory.
    pub(crate) fn is_advertised(&self, id: AdvertisementId, set_id: SetId) -> bool {
        self.state.advert_sets.get(set_id).is_some_and(|set| set.read().get(id).is_some())
    }

    /// Explains a search of `checked` at age `searching_for_ms`. Evaluates every session of the silo, so it may block
    /// for long.
    pub(crate) fn explain_search(
        &self,
        ruleset: &Ruleset,
        checked: &CheckedSession,
        searching_for_ms: u64,
        max_near_misses: usize,
    ) -> SearchExplanation {
        let now = self.state.common.clock.now();
        let searcher = checked.searcher(&[], searching_for_ms);
        let Some(set) = self.state.advert_sets.get(ruleset.set_id) else { return SearchExplanation::default() };
        // Copy the records, so that the lock is not held while a million rows are evaluated.
        let records: Vec<AdvertRecord> = {
            let set = set.read();
            set.records().filter(|record| is_session_of_silo(record, checked.session.silo)).cloned().collect()
        };
        let values: Vec<AttributeValues> = records
            .iter()
            .map(|record| self.state.common.party_values.attribute_values(ruleset, &record.advertisement.session))
            .collect();
        let rows = records.iter().zip(&values).map(|(record, values)| candidate_from_record(record, values));
        explain_search(ruleset, &searcher, rows, max_near_misses, now)
    }
}

fn is_session_of_silo(record: &AdvertRecord, silo: SiloId) -> bool {
    let advertisement = &record.advertisement;
    advertisement.kind == AdvertisementKind::Session && advertisement.session.silo == silo
}
