//! Own session that is open to others: heartbeats, reservations of others, and answers to their probes.

mod guests;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use fireteam_probe::{ArrivalAndAnswerTime, HostCookieKey, HostResponder, ProbeKey, Verdict};

use crate::matching::advertising::guests::Guests;
use crate::matching::call::{CallError, CallId, Request};
use crate::matching::effects::Effects;
use crate::matching::monotonic_time::MonotonicTime;
use crate::matching::options::{HostedSession, MatchingOptions, with_latency_token};
use crate::matching::outcome::{AdvertisedSession, Outcome, Transmit};
use crate::matching::round::id_bytes_from_hex;
use crate::pb;

/// Shortest and longest time between two heartbeats.
const HEARTBEAT_INTERVAL_RANGE: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(60)];
/// Time after which a failed update is sent again, beyond the attempts of the call itself.
const UPDATE_RETRY_PAUSE_MIN: Duration = Duration::from_secs(1);
/// Most reservations in one update.
const RESERVATIONS_PER_UPDATE_MAX: usize = 256;

/// Advertisement of the own session.
pub(super) struct Advertising {
    hosted_session: HostedSession,
    /// Hash that the client sends with the session; `None` after the server called it stale.
    service_configuration_hash: Option<u32>,
    /// Latency token of the client; empty for none.
    latency_token: Vec<u8>,
    id: String,
    token: Vec<u8>,
    idempotency_key: String,
    probe_key: [u8; 32],
    responder: HostResponder,
    guests: Guests,
    update: Option<UpdateUnderway>,
    /// The session is to be published as a whole with the next update.
    is_publication_due: bool,
    is_published: bool,
    is_full_told: bool,
    next_update_at: MonotonicTime,
    /// The last update failed: the next one waits for its time, also with news.
    has_last_update_failed: bool,
    /// Calls that create the advertisement, by one idempotency key.
    create_calls: Vec<CallId>,
    /// Time since which no party was coming. `None`: the session stays open, for example because guests have joined.
    alone_since: Option<MonotonicTime>,
}

/// Update whose answer is awaited.
struct UpdateUnderway {
    call: CallId,
    started_at: MonotonicTime,
    is_create: bool,
    is_publication: bool,
    confirmed: Vec<String>,
    joined: Vec<String>,
}

/// Reason for which the session is not advertised any longer.
#[derive(Debug, PartialEq)]
pub(super) enum AdvertisingEnd {
    /// No open seat is left.
    Full,
    /// No party came.
    Alone,
    /// The server refuses the session.
    Refused(CallError),
}

impl Advertising {
    /// Advertisement that the next [`Self::poll`] publishes. `is_drawn`: it ends if no party comes.
    pub(super) fn new(
        hosting: HostedSession,
        options: &MatchingOptions,
        is_drawn: bool,
        effects: &mut Effects,
        now: MonotonicTime,
    ) -> Self {
        Self {
            hosted_session: hosting,
            service_configuration_hash: options.service_configuration_hash,
            latency_token: Vec::new(),
            id: String::new(),
            token: Vec::new(),
            idempotency_key: effects.idempotency_key(),
            probe_key: effects.random_bytes(),
            responder: HostResponder::new(HostCookieKey(effects.random_bytes())),
            guests: Guests::default(),
            update: None,
            is_publication_due: true,
            is_published: false,
            is_full_told: false,
            next_update_at: now,
            has_last_update_failed: false,
            create_calls: Vec::new(),
            alone_since: is_drawn.then_some(now),
        }
    }

    /// Call whose answer is awaited.
    pub(super) fn awaited_call(&self) -> Option<CallId> {
        self.update.as_ref().map(|update| update.call)
    }

    /// Advertisement id; empty before the server has told it.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Session as the game described it last.
    pub(super) fn hosted_session(&self) -> &HostedSession {
        &self.hosted_session
    }

    /// Takes the answer to an earlier update, which came late. Returns whether it is about this advertisement: by its id, or since the call
    /// was to create it.
    pub(super) fn take_late_update_answer(
        &mut self,
        call: CallId,
        answer: &pb::MatchmakingUpdateAdvertisementResponse,
    ) -> bool {
        if !self.is_published && self.create_calls.contains(&call) {
            // The next attempt says the rest; until then these are for its deletion.
            self.id.clone_from(&answer.advertisement_id);
            self.token.clone_from(&answer.advertisement_token);
        }
        self.id == answer.advertisement_id
    }

    /// Whether a party is coming or has joined.
    pub(super) fn has_guests(&self) -> bool {
        self.alone_since.is_none() || self.guests.is_any_coming()
    }

    /// Sends the update that is due. Returns the reason if the session is not advertised any longer.
    pub(super) fn send_due_update(
        &mut self,
        options: &MatchingOptions,
        effects: &mut Effects,
        now: MonotonicTime,
    ) -> Option<AdvertisingEnd> {
        if self.alone_until(options).is_some_and(|until| until <= now) {
            return Some(AdvertisingEnd::Alone);
        }
        if self.update.is_none() && (self.next_update_at <= now || self.has_news()) {
            self.send_update(options.set_id, effects, now);
        }
        None
    }

    /// Time of the next update, or at which the session counts as alone.
    pub(super) fn next_timeout(&self, options: &MatchingOptions) -> Option<MonotonicTime> {
        let update_at = self.update.is_none().then_some(self.next_update_at);
        [update_at, self.alone_until(options)].into_iter().flatten().min()
    }

    /// Takes the answer to an update. Returns the reason if the session is not advertised any longer.
    pub(super) fn take_update_answer(
        &mut self,
        answer: &pb::MatchmakingUpdateAdvertisementResponse,
        effects: &mut Effects,
        now: MonotonicTime,
    ) -> Option<AdvertisingEnd> {
        let update = self.update.take()?;
        let is_new = !self.is_published || self.id != answer.advertisement_id;
        self.id.clone_from(&answer.advertisement_id);
        self.token.clone_from(&answer.advertisement_token);
        self.is_published = true;
        self.has_last_update_failed = false;
        if let (Some(id), Some(key)) = (id_bytes_from_hex(&self.id), ProbeKey::new(&self.probe_key))
            && is_new
            && self.hosted_session.probe_port.is_some()
        {
            self.responder.set_advertisement(id, key);
        }
        if is_new {
            effects.tell(Outcome::Advertised(AdvertisedSession {
                advertisement_id: self.id.clone(),
                advertisement_token: self.token.clone(),
            }));
        }
        self.guests.settle(&update.confirmed, &update.joined);
        self.guests.apply_reservation_list(&answer.reservations, update.started_at, effects, now);
        self.note_guests(now);
        let until_expiry = Duration::from_millis(answer.expires_in_ms) / 3;
        let until_beat = answer.next_beat_in_ms.map_or(until_expiry, |ms| until_expiry.min(Duration::from_millis(ms)));
        let [least, most] = HEARTBEAT_INTERVAL_RANGE;
        self.next_update_at = now + until_beat.clamp(least, most);
        self.end_if_full(effects)
    }

    /// Takes the failure of an update. Returns the reason if the session is not advertised any longer.
    pub(super) fn take_update_failure(
        &mut self,
        error: CallError,
        effects: &mut Effects,
        now: MonotonicTime,
    ) -> Option<AdvertisingEnd> {
        let update = self.update.take()?;
        let is_first = !std::mem::replace(&mut self.has_last_update_failed, true);
        let retry_after = error.retry_after_ms.map_or(UPDATE_RETRY_PAUSE_MIN, Duration::from_millis);
        self.next_update_at = now + retry_after.clamp(UPDATE_RETRY_PAUSE_MIN, Duration::from_secs(60));
        self.is_publication_due |= update.is_publication;
        match error.reason {
            // The next update names none of them; those that still have seats are in its answer.
            pb::ErrorReason::ReservationNotFound | pb::ErrorReason::ReservationEnded => {
                self.guests.forget(&update.confirmed);
                return None;
            }
            pb::ErrorReason::StaleConfiguration => self.service_configuration_hash = None,
            pb::ErrorReason::AdvertisementNotFound => {}
            pb::ErrorReason::AdvertisementDeleted => {
                self.id.clear();
                self.token.clear();
                self.is_published = false;
                self.idempotency_key = effects.idempotency_key();
                self.create_calls.clear();
            }
            _ if error.is_transient() || error.is_outcome_unknown() => {
                self.guests.restore_joined(update.joined);
                return None;
            }
            _ => return Some(AdvertisingEnd::Refused(error)),
        }
        self.guests.restore_joined(update.joined);
        self.is_publication_due = true;
        if is_first {
            self.next_update_at = now;
        }
        None
    }

    /// Takes a change of a reservation, from a stream.
    pub(super) fn apply_reservation_event(
        &mut self,
        event: &pb::ReservationEvent,
        effects: &mut Effects,
        now: MonotonicTime,
    ) {
        let Some(reservation) = event.reservation.as_ref().filter(|_| event.advertisement_id == self.id) else {
            return;
        };
        self.guests.apply_reservation_event(reservation, event.state(), effects, now);
        self.note_guests(now);
    }

    /// Takes the session as it is now, and the reservations of the parties that have joined.
    pub(super) fn change_session(&mut self, session: pb::SessionCompositionData, joined: Vec<String>) {
        self.hosted_session.session = session;
        self.is_publication_due = true;
        if !joined.is_empty() {
            self.alone_since = None;
        }
        self.guests.join(joined);
        self.is_full_told &= self.hosted_session.open_seats() == 0;
    }

    /// Takes a latency token. The round trips of an advertisement expire with the one that it was published with, so a new one is published.
    pub(super) fn renew_latency_token(&mut self, token: Vec<u8>) {
        self.is_publication_due |= !token.is_empty() && token != self.latency_token;
        self.latency_token = token;
    }

    /// Answers a probe. `judge` is the game, for involved ones.
    pub(super) fn handle_probe(
        &mut self,
        packet: &[u8],
        from: SocketAddr,
        judge: impl FnOnce(&[u8], &mut Vec<u8>) -> Verdict,
        effects: &mut Effects,
        now: MonotonicTime,
    ) {
        self.responder.set_full(self.hosted_session.open_seats() <= self.guests.seats_coming());
        let time = ArrivalAndAnswerTime { arrived_us: now.as_micros(), now_us: now.as_micros() };
        if let Some(packet) = self.responder.handle(packet, from, time, judge) {
            effects.transmits.push_back(Transmit { to: from, packet });
        }
    }

    /// Deletes the advertisement. A create whose answer is still awaited is deleted when it arrives.
    pub(super) fn withdraw(self, effects: &mut Effects, now: MonotonicTime) {
        if let Some(update) = self.update.filter(|update| !update.is_create) {
            effects.calls.forget_unwanted(|id, _| id == update.call);
        }
        if !self.id.is_empty() {
            effects.delete(&self.id, &self.token, now);
        }
        if self.is_published {
            effects.tell(Outcome::Withdrawn);
        }
    }

    /// Whether the game or a guest's reservation needs an update before the next heartbeat.
    fn has_news(&self) -> bool {
        self.is_published
            && !self.has_last_update_failed
            && (self.is_publication_due || self.guests.has_changes_to_send())
    }

    fn alone_until(&self, options: &MatchingOptions) -> Option<MonotonicTime> {
        let since = self.alone_since.filter(|_| !self.guests.is_any_coming())?;
        Some(since + options.redraw_after)
    }

    /// The time alone starts again when the last party that was coming is gone.
    fn note_guests(&mut self, now: MonotonicTime) {
        if self.alone_since.is_some() && self.guests.is_any_coming() {
            self.alone_since = Some(now);
        }
    }

    fn end_if_full(&mut self, effects: &mut Effects) -> Option<AdvertisingEnd> {
        if self.hosted_session.open_seats() > 0 || self.is_publication_due {
            return None;
        }
        if !std::mem::replace(&mut self.is_full_told, true) {
            effects.tell(Outcome::SessionFull);
        }
        (!self.hosted_session.keep_when_full).then_some(AdvertisingEnd::Full)
    }

    fn send_update(&mut self, set_id: u32, effects: &mut Effects, now: MonotonicTime) {
        let confirmed = self.guests.to_confirm(RESERVATIONS_PER_UPDATE_MAX);
        let publishes = std::mem::take(&mut self.is_publication_due);
        // Reservations end with the update that names their players.
        let joined = if publishes && self.is_published {
            self.guests.take_joined(RESERVATIONS_PER_UPDATE_MAX)
        } else {
            Vec::new()
        };
        let mut request = pb::MatchmakingUpdateAdvertisementRequest {
            advertisement_id: self.id.clone(),
            advertisement_token: self.token.clone(),
            matchmaking_set_id: Some(set_id),
            confirmed_reservation_ids: confirmed.clone(),
            joined_reservation_ids: joined.clone(),
            ..Default::default()
        };
        let is_create = !self.is_published;
        if is_create {
            request.idempotency_key.clone_from(&self.idempotency_key);
            request.kind = self.hosted_session.advertised_kind().into();
        }
        if publishes || is_create {
            request.session_composition = Some(with_latency_token(&self.hosted_session.session, &self.latency_token));
            request.service_configuration_hash = self.service_configuration_hash;
            request.time_to_live_ms =
                self.hosted_session.time_to_live.map(|ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
            request.connect_data.clone_from(&self.hosted_session.connect_data);
            request.allowed_ranges.clone_from(&self.hosted_session.allowed_ranges);
            request.probe = self.probe_endpoint();
        }
        let call = effects.call(Request::UpdateAdvertisement(Box::new(request)), now);
        if is_create {
            self.create_calls.push(call);
        }
        self.update =
            Some(UpdateUnderway { call, started_at: now, is_create, is_publication: publishes, confirmed, joined });
    }

    fn probe_endpoint(&self) -> Option<pb::ProbeEndpoint> {
        let port = self.hosted_session.probe_port?;
        let address = match self.hosted_session.probe_address {
            None => Vec::new(),
            Some(IpAddr::V4(address)) => address.octets().to_vec(),
            Some(IpAddr::V6(address)) => address.octets().to_vec(),
        };
        Some(pb::ProbeEndpoint { address, port: port.into(), probe_key: self.probe_key.to_vec(), hosted: false })
    }
}

impl fmt::Debug for Advertising {
    /// Prints no token and no key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Advertising")
            .field("hosted_session", &self.hosted_session)
            .field("id", &self.id)
            .field("guests", &self.guests)
            .finish_non_exhaustive()
    }
}
