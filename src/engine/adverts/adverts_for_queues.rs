//! Access of the queues to advertisements: finds game servers and open sessions, reserves and releases seats.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use crate::domain::advertisement::{Advertisement, AdvertisementKind};
use crate::domain::attribute_values::AttributeValues;
use crate::domain::filter::Searcher;
use crate::domain::filter::explain::{SearchExplanation, explain_search};
use crate::domain::id::{AdvertisementId, MatchId, ReservationId, SetId, SiloId, UserKey};
use crate::domain::index::{SearchHit, SearchQuery, SearchResult};
use crate::domain::locality::Locality;
use crate::domain::probe_result::ProbeResults;
use crate::domain::ruleset::queue::QueueSpec;
use crate::domain::ruleset::{Ruleset, SearchLimits};
use crate::domain::time::UnixMs;
use crate::engine::adverts::advert_set::{AdvertRecord, candidate_from_record};
use crate::engine::adverts::advert_state::AdvertState;
use crate::engine::adverts::avoided_advert_ids::AvoidedAdvertIds;
use crate::engine::adverts::writer_command::{AdvertWriterCommand, EraseAdvertUser, ExtendAdvertTtl, ReserveSeats};
use crate::engine::beacons::party_floors::PartyPredictor;
use crate::engine::command::ReserveAnswer;
use crate::engine::error::EngineError;
use crate::engine::hosted_match::{HostedMatch, HostedMatchState};
use crate::engine::party_avoidance::PartyAvoidance;
use crate::engine::searching_party::SearchingParty;
use crate::engine::user_advert::ExportedAdvert;
use crate::engine::writer_inbox::wait_for_commit;
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
    pub(crate) last_beat_at_without_stream: Option<UnixMs>,
}

/// Session with open seats, and the seats that are reserved in it.
#[derive(Clone, Debug)]
pub(crate) struct BackfillSession {
    pub(crate) advertisement: Arc<Advertisement>,
    pub(crate) attribute_values: AttributeValues,
    pub(crate) expires_at: UnixMs,
    /// Seats that are neither taken nor reserved.
    pub(crate) open_seats: u16,
    /// Users whom its players have in their durable block lists, sorted.
    pub(crate) users_blocked_by_players: Vec<UserKey>,
    pub(crate) reservations: Vec<UnjoinedReservation>,
}

/// Seats reserved for guests who have not joined yet.
#[derive(Clone, Debug)]
pub(crate) struct UnjoinedReservation {
    pub(crate) id: ReservationId,
    pub(crate) seats: u16,
    /// Users whom they are for.
    pub(crate) users: Vec<UserKey>,
}

impl UnjoinedReservation {
    fn from_reservation(reservation: &Reservation) -> Self {
        Self { id: reservation.id, seats: reservation.seats, users: reservation.users.clone() }
    }
}

/// Part of the advertisements that queues may use. It also works while the server drains, so that matches can end.
#[derive(Clone, Debug)]
pub(crate) struct AdvertsForQueues {
    state: Arc<AdvertState>,
    writer: mpsc::Sender<AdvertWriterCommand>,
}

impl AdvertsForQueues {
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
        let set = set.lock_for_read();
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
                last_beat_at_without_stream: set
                    .get(id)
                    .map(last_beat_at)
                    .filter(|_| !self.state.host_events.has_listener(id)),
                advertisement: Arc::clone(&entry.advertisement),
                open_seats: entry.open_seats,
                score: hit.score,
            }
        };
        result.hits.iter().map(to_server).collect()
    }

    /// Calls `visit` with the set, kind and place of each advertisement. Locks one set at a time.
    pub(crate) fn for_each_kind_and_place(&self, mut visit: impl FnMut(SetId, AdvertisementKind, Option<Locality>)) {
        for (set_id, set) in self.state.advert_sets.all_sets() {
            for record in set.lock_for_read().records() {
                visit(set_id, record.advertisement.kind, record.advertisement.session.locality);
            }
        }
    }

    /// Sessions of a set and silo with open seats, oldest first.
    pub(crate) fn find_backfill_sessions(
        &self,
        set_id: SetId,
        silo: SiloId,
        ruleset: &Ruleset,
        now: UnixMs,
    ) -> Vec<BackfillSession> {
        let Some(set) = self.state.advert_sets.get(set_id) else { return Vec::new() };
        let uses_blocks = ruleset.queue.as_ref().is_some_and(QueueSpec::avoids_blocked_users);
        let block_lists = uses_blocks.then(|| self.state.common.block_lists.read());
        let set = set.lock_for_read();
        let is_open = |record: &&AdvertRecord| {
            is_session_of_silo(record, silo) && now < record.expires_at && record.open_seats() > 0
        };
        let mut records: Vec<&AdvertRecord> = set.records().filter(is_open).collect();
        records.sort_unstable_by_key(|record| (record.advertisement.advertised_since, record.advertisement.id));
        let party_values = &self.state.common.party_values;
        let to_open_session = |record: &AdvertRecord| {
            let session = &record.advertisement.session;
            let users = session.players.iter().map(|player| player.user);
            BackfillSession {
                attribute_values: party_values.attribute_values(ruleset, session),
                advertisement: Arc::clone(&record.advertisement),
                expires_at: record.expires_at,
                open_seats: record.open_seats(),
                users_blocked_by_players: block_lists
                    .as_ref()
                    .map_or_else(Vec::new, |lists| lists.users_blocked_by(users)),
                reservations: record.unended_reservations().map(UnjoinedReservation::from_reservation).collect(),
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
        wait_for_commit(answer).await
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
    pub(crate) fn confirm_seats_and_extend_advert(
        &self,
        advertisement: AdvertisementId,
        set_id: SetId,
        reservation: ReservationId,
    ) {
        let extend = ExtendAdvertTtl {
            id: advertisement,
            token_to_return: None,
            set_id,
            ttl_ms: None,
            confirmed_reservations: vec![reservation],
            joined_reservations: Vec::new(),
            create_digest: None,
            ignored_fields: Vec::new(),
        };
        let (reply, _answer) = oneshot::channel();
        let in_flight = self.state.in_flight_changes.begin_change(advertisement);
        // Do not wait for the advertisement writer: with a full inbox, the host confirms the reservation itself.
        let _ = self.writer.try_send(AdvertWriterCommand::ExtendTtl(Box::new(extend), reply, in_flight));
    }

    /// Releases the seat of a user in a reservation: the user plays no later match of the session. If the inbox is full, the user
    /// stays in its roster.
    pub(crate) fn release_seat_of(
        &self,
        user: UserKey,
        (advertisement, set_id): (AdvertisementId, SetId),
        reservation: ReservationId,
    ) {
        let (reply, _answer) = oneshot::channel();
        let in_flight = self.state.in_flight_changes.begin_change(advertisement);
        let command = AdvertWriterCommand::ReleaseSeat(user, reservation, advertisement, set_id, reply, in_flight);
        let _ = self.writer.try_send(command);
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
    pub(crate) fn remove_hosted_match_and_notify(
        &self,
        advertisement: AdvertisementId,
        id: MatchId,
        state: HostedMatchState,
    ) {
        self.state.host_events.remove_hosted_match_and_notify(advertisement, id, state);
    }

    /// Matches that an advertisement hosts or must confirm.
    pub(crate) fn hosted_match_ids(&self, advertisement: AdvertisementId) -> Vec<MatchId> {
        self.state.host_events.hosted_match_ids(advertisement)
    }

    /// Asks the host of an advertisement for its next heartbeat, if the advertisement exists or hosts matches. Returns its
    /// matches.
    pub(crate) fn schedule_beat_and_list_matches(
        &self,
        advertisement: AdvertisementId,
        set_id: SetId,
        interval_ms: u64,
        now: UnixMs,
    ) -> Vec<MatchId> {
        let hosted = self.state.host_events.hosted_match_ids(advertisement);
        if hosted.is_empty() && !self.is_advert_in_memory(advertisement, set_id) {
            return hosted;
        }
        self.state.host_events.schedule_beat_and_list_matches(advertisement, interval_ms, now)
    }

    /// Whether a heartbeat that the host of an advertisement was asked for is due. It is then taken.
    pub(crate) fn consume_expected_beat(&self, advertisement: AdvertisementId, now: UnixMs) -> bool {
        self.state.host_events.consume_expected_beat(advertisement, now)
    }

    /// Caller that published an advertisement; `None` without identity, or if it is not in memory.
    pub(crate) fn publisher_of(&self, id: AdvertisementId, set_id: SetId) -> Option<UserKey> {
        self.state.advert_sets.get(set_id)?.lock_for_read().get(id)?.advertisement.publisher
    }

    /// Advertisement with the reservations of a user; `None` if it is not in memory.
    pub(crate) fn advert_with_reservations_of(&self, id: AdvertisementId, user: UserKey) -> Option<ExportedAdvert> {
        let sets = self.state.advert_sets.all_sets();
        sets.iter().find_map(|(_, set)| {
            let set = set.lock_for_read();
            let record = set.get(id)?;
            let is_of_user = |held: &&Reservation| held.users.binary_search(&user).is_ok() || held.is_made_by(user);
            Some(ExportedAdvert {
                advertisement: Arc::clone(&record.advertisement),
                expires_at: record.expires_at,
                user_reservations: record.reservations.iter().filter(is_of_user).cloned().collect(),
            })
        })
    }

    /// Deletes the advertised sessions in memory in which `user` is alone, and those of `callers`; durable when it returns.
    pub(crate) async fn delete_sessions_of_erased_user(
        &self,
        user: UserKey,
        callers: &[UserKey],
    ) -> Result<(), EngineError> {
        let mut ids = Vec::new();
        for (set_id, set) in self.state.advert_sets.all_sets() {
            let records = set.lock_for_read();
            let is_own = |record: &&AdvertRecord| {
                let players = &record.advertisement.session.players;
                let is_alone = !players.is_empty() && players.iter().all(|player| player.user == user);
                is_alone || record.advertisement.publisher.is_some_and(|publisher| callers.contains(&publisher))
            };
            ids.extend(records.records().filter(is_own).map(|record| (record.advertisement.id, set_id)));
        }
        for (id, set_id) in ids {
            self.delete_from_set(id, set_id).await?;
        }
        Ok(())
    }

    /// Deletes an advertisement of any server; durable when it returns.
    pub(crate) async fn delete_by_id(&self, id: AdvertisementId) -> Result<(), EngineError> {
        self.delete_from_set(id, self.set_of(id)).await
    }

    async fn delete_from_set(&self, id: AdvertisementId, set_id: SetId) -> Result<(), EngineError> {
        let (reply, answer) = oneshot::channel();
        let in_flight = self.state.in_flight_changes.begin_change(id);
        let command = AdvertWriterCommand::Delete(id, set_id, reply, in_flight);
        self.writer.send(command).await.map_err(|_| EngineError::Draining)?;
        wait_for_commit(answer).await
    }

    /// Set of an advertisement in memory. One that is not there has none: the store finds it by its id.
    fn set_of(&self, id: AdvertisementId) -> SetId {
        let sets = self.state.advert_sets.all_sets();
        let found = sets.iter().find(|(_, set)| set.lock_for_read().get(id).is_some());
        found.map_or_else(SetId::default, |(set_id, _)| *set_id)
    }

    /// Erases a user from an advertisement and its reservations; durable when it returns. Returns whether they named the
    /// user.
    pub(crate) async fn erase_from_advertisement(
        &self,
        advertisement_id: AdvertisementId,
        user: UserKey,
        seed: [u8; 16],
    ) -> Result<bool, EngineError> {
        let set_id = self.set_of(advertisement_id);
        let erase = EraseAdvertUser { advertisement_id, set_id, user, seed };
        let (reply, answer) = oneshot::channel();
        let in_flight = self.state.in_flight_changes.begin_change(advertisement_id);
        let command = AdvertWriterCommand::EraseUser(Box::new(erase), reply, in_flight);
        self.writer.send(command).await.map_err(|_| EngineError::Draining)?;
        wait_for_commit(answer).await
    }

    /// Whether an advertisement is in memory.
    pub(crate) fn is_advert_in_memory(&self, id: AdvertisementId, set_id: SetId) -> bool {
        self.state.advert_sets.get(set_id).is_some_and(|set| set.lock_for_read().get(id).is_some())
    }

    /// Explains a search of `party` at age `searching_for_ms`. Evaluates every session of the silo, so it may block
    /// for long.
    pub(crate) fn explain_search_results(
        &self,
        ruleset: &Ruleset,
        party: &SearchingParty,
        searching_for_ms: u64,
        max_listed: usize,
    ) -> SearchExplanation {
        let SearchingParty { checked, predictor } = party;
        let now = self.state.common.clock.now();
        let Some(set) = self.state.advert_sets.get(ruleset.set_id) else { return SearchExplanation::default() };
        let silo = checked.session.silo;
        let avoidance = PartyAvoidance::new(&self.state.common, ruleset, silo, &checked.users, now);
        // Copy the records, so that the locks are not held while a million rows are evaluated.
        let (records, avoided) = {
            let set = set.lock_for_read();
            let records: Vec<_> = set.records().filter(|record| is_session_of_silo(record, silo)).cloned().collect();
            let index = set.index_of_ruleset(ruleset.hash);
            let avoided =
                index.zip(avoidance).map(|(index, avoidance)| AvoidedAdvertIds::in_set(&set, index, &avoidance));
            (records, avoided.unwrap_or_default())
        };
        let searcher = checked.searcher(
            &[],
            avoided.view(),
            ProbeResults::default(),
            predictor.as_ref().map(PartyPredictor::as_search_predictor),
            searching_for_ms,
        );
        let values: Vec<AttributeValues> = records
            .iter()
            .map(|record| self.state.common.party_values.attribute_values(ruleset, &record.advertisement.session))
            .collect();
        let rows = records.iter().zip(&values).map(|(record, values)| candidate_from_record(record, values));
        explain_search(ruleset, &searcher, rows, max_listed, now)
    }
}

fn is_session_of_silo(record: &AdvertRecord, silo: SiloId) -> bool {
    let advertisement = &record.advertisement;
    advertisement.kind == AdvertisementKind::Session && advertisement.session.silo == silo
}
