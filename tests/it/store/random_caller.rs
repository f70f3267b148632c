//! Caller that sends random requests about its own sessions in its own silo, and compares the server with the answers.

use std::collections::{BTreeMap, BTreeSet};

use fireteam::clock::{Clock, ManualClock};
use fireteam_client::{Client, Code, Error, MatchmakingStream, pb};

use tokio::sync::mpsc;

use crate::support::test_server::{advertise_request, party_session};

/// Seats of every session.
const SEATS: u32 = 8;
/// Sessions at a time; a search shows 50.
const ALIVE_MAX: usize = 40;
/// Parties that reserve seats; fewer than the seats, so that a session is always shown.
const GUESTS: usize = 6;
/// TTL and hold, longer than the test, so that nothing expires.
const LONG_MS: u64 = 600_000;

/// Seats that a session offers for each count of its number, so that a search shows the number.
const SEATS_PER_NUMBER: u32 = 8;

/// Number as a search shows it.
fn shown(number: u32) -> u32 {
    number % 100
}

/// Acknowledged state of one session.
#[derive(Clone, Debug, Default)]
struct KnownSession {
    id: String,
    token: Vec<u8>,
    /// Published as part of the seats; different after each replacement.
    number: u32,
    /// Reservations by guest; a guest has at most one.
    seats: BTreeMap<usize, pb::Reservation>,
    is_deleted: bool,
}

impl KnownSession {
    /// Number and open seats as a search shows them; `None` if deleted.
    fn search_view(&self) -> Option<(u32, u32)> {
        (!self.is_deleted).then(|| (shown(self.number), SEATS - self.seats.len() as u32))
    }
}

/// One request. A repeated request has no further effect.
#[derive(Clone, Debug)]
enum RandomRequest {
    Create { number: u32 },
    Replace { at: usize, number: u32 },
    Delete { at: usize },
    Reserve { at: usize, guest: usize, number: u32 },
    Release { at: usize, guest: usize },
}

/// Connection of a caller to the server; a new one after each restart.
pub(crate) struct CallerConnection {
    client: Client,
    /// Every second caller uses a stream.
    stream: Option<MatchmakingStream>,
    /// One per guest.
    search_tokens: [Vec<u8>; GUESTS],
}

/// Random caller and its history.
pub(crate) struct RandomCaller {
    caller_number: u64,
    rng: ManualClock,
    sessions: Vec<KnownSession>,
    /// Sent, and possibly not answered.
    unanswered_request: Option<RandomRequest>,
    last_number: u32,
}

impl RandomCaller {
    pub(crate) fn new(caller_number: u64, rng: ManualClock) -> Self {
        Self { caller_number, rng, sessions: Vec::new(), unanswered_request: None, last_number: 0 }
    }

    /// Connects to a server that has just started.
    pub(crate) async fn connect(&self, client: Client) -> CallerConnection {
        let client = client.with_retry_policy(fireteam_client::RetryPolicy::NEVER);
        let stream = match self.caller_number % 2 {
            0 => Some(client.open_stream().await.expect("a stream").0),
            _ => None,
        };
        let mut connection = CallerConnection { client, stream, search_tokens: Default::default() };
        for guest in 0..GUESTS {
            connection.search_tokens[guest] = self.search(&connection, guest).await.search_token;
        }
        connection
    }

    /// Sends one request after another until the server stops answering. `acknowledged` receives a message per answer.
    pub(crate) async fn run_until_error(
        &mut self,
        connection: &CallerConnection,
        acknowledged: mpsc::Sender<()>,
    ) -> Error {
        loop {
            let request = self.choose();
            self.unanswered_request = Some(request.clone());
            if let Err(error) = self.send(connection, request).await {
                return error;
            }
            self.unanswered_request = None;
            // The receiver is gone when the server is about to be killed.
            let _ = acknowledged.send(()).await;
        }
    }

    /// After a restart: acknowledged sessions exist, deleted ones do not, and the unanswered request happened wholly or
    /// not at all. Sends it again; then the state is certain.
    pub(crate) async fn check(&mut self, connection: &CallerConnection) {
        let mut results = self.search_all(connection).await;
        let unanswered = self.unanswered_request.take();
        for (at, known) in self.sessions.iter().enumerate() {
            let found = results.remove(&known.id).flatten();
            let expected =
                unanswered.as_ref().map(|request| self.expected_after(at, request)).unwrap_or(known.search_view());
            assert!(
                found == known.search_view() || found == expected,
                "caller {}: {found:?} is neither {known:?} nor {expected:?} ({unanswered:?})",
                self.caller_number
            );
        }
        let unknown: Vec<u32> = results.values().flatten().map(|&(number, _)| number).collect();
        match &unanswered {
            Some(RandomRequest::Create { number }) => {
                assert!(unknown.is_empty() || unknown == [shown(*number)], "{unknown:?}")
            }
            _ => assert_eq!(unknown, [] as [u32; 0], "sessions that no request made"),
        }
        if let Some(request) = unanswered {
            self.send(connection, request).await.expect("the repeated request succeeds");
        }
        let found = self.search_all(connection).await;
        let alive: Vec<&KnownSession> = self.sessions.iter().filter(|it| !it.is_deleted).collect();
        assert_eq!(found.len(), alive.len());
        alive.iter().for_each(|known| assert_eq!(found[&known.id], known.search_view(), "{known:?}"));
        self.check_seats(connection).await;
        self.check_gone(connection).await;
    }

    /// Compares the host's reservations with the acknowledged ones. Confirms them, so that none expires.
    async fn check_seats(&self, connection: &CallerConnection) {
        for known in self.sessions.iter().filter(|it| !it.is_deleted) {
            let mut heartbeat = self.request(known, false);
            heartbeat.confirmed_reservation_ids = known.seats.values().map(|it| it.reservation_id.clone()).collect();
            let answer = connection.update(heartbeat).await.expect("a heartbeat");
            assert!(!answer.created);
            let ids =
                answer.reservations.iter().map(|it| (it.reservation_id.as_str(), it.seats)).collect::<BTreeSet<_>>();
            let taken = known.seats.values().map(|it| (it.reservation_id.as_str(), 1)).collect::<BTreeSet<_>>();
            assert_eq!(ids, taken);
        }
    }

    /// The last deleted sessions stay deleted, also for a holder of the token.
    async fn check_gone(&self, connection: &CallerConnection) {
        for known in self.sessions.iter().rev().filter(|it| it.is_deleted).take(5) {
            let error = connection.update(self.request(known, true)).await.expect_err("deleted sessions are refused");
            assert_eq!(error.code(), Some(Code::FailedPrecondition), "{error}");
        }
    }

    fn choose(&mut self) -> RandomRequest {
        let alive: Vec<usize> = (0..self.sessions.len()).filter(|&at| !self.sessions[at].is_deleted).collect();
        let rng = self.rng.random_unit_f64();
        if alive.is_empty() || (rng < 0.25 && alive.len() < ALIVE_MAX) {
            self.last_number += 1;
            return RandomRequest::Create { number: self.last_number };
        }
        let at = alive[(self.rng.random_unit_f64() * alive.len() as f64) as usize];
        let seats = &self.sessions[at].seats;
        match rng {
            ..0.35 => RandomRequest::Delete { at },
            ..0.60 if let Some(guest) = (0..GUESTS).find(|guest| !seats.contains_key(guest)) => {
                self.last_number += 1;
                RandomRequest::Reserve { at, guest, number: self.last_number }
            }
            ..0.75 if let Some(&guest) = seats.keys().next() => RandomRequest::Release { at, guest },
            _ => {
                self.last_number += 1;
                RandomRequest::Replace { at, number: self.last_number }
            }
        }
    }

    /// Expected search result for the session at `at` if `request` has happened.
    fn expected_after(&self, at: usize, request: &RandomRequest) -> Option<(u32, u32)> {
        let (number, open) = self.sessions[at].search_view()?;
        match request {
            RandomRequest::Replace { at: of, number } if *of == at => Some((shown(*number), open)),
            RandomRequest::Delete { at: of } if *of == at => None,
            RandomRequest::Reserve { at: of, .. } if *of == at => Some((number, open - 1)),
            RandomRequest::Release { at: of, .. } if *of == at => Some((number, open + 1)),
            RandomRequest::Create { .. } | RandomRequest::Replace { .. } | RandomRequest::Delete { .. } => {
                Some((number, open))
            }
            RandomRequest::Reserve { .. } | RandomRequest::Release { .. } => Some((number, open)),
        }
    }

    /// Sends a request and stores its answer.
    async fn send(&mut self, connection: &CallerConnection, request: RandomRequest) -> Result<(), Error> {
        match request {
            RandomRequest::Create { number } => {
                let mut known = KnownSession { number, ..KnownSession::default() };
                let answer = connection.update(self.request(&known, true)).await?;
                (known.id, known.token) = (answer.advertisement_id, answer.advertisement_token);
                self.sessions.push(known);
            }
            RandomRequest::Replace { at, number } => {
                let known = KnownSession { number, ..self.sessions[at].clone() };
                let answer = connection.update(self.request(&known, true)).await?;
                assert!(!answer.created, "the session existed: {known:?}");
                self.sessions[at] = KnownSession { token: answer.advertisement_token, ..known };
            }
            RandomRequest::Delete { at } => {
                let known = &self.sessions[at];
                connection.delete(known.id.clone(), known.token.clone()).await?;
                self.sessions[at].is_deleted = true;
            }
            RandomRequest::Reserve { at, guest, number } => {
                let request = pb::MatchmakingReserveRequest {
                    advertisement_id: self.sessions[at].id.clone(),
                    idempotency_key: format!("a seat of caller {} {number:08}", self.caller_number),
                    hold_for_ms: Some(LONG_MS),
                    search_token: connection.search_tokens[guest].clone(),
                    session_composition: Some(self.guest(guest)),
                    ..Default::default()
                };
                let answer = connection.client.reserve(request).await?;
                self.sessions[at].seats.insert(guest, answer.reservation.expect("a reservation"));
            }
            RandomRequest::Release { at, guest } => {
                let held = self.sessions[at].seats[&guest].clone();
                let (reservation_id, reservation_token) = (held.reservation_id, held.reservation_token);
                connection
                    .client
                    .release(pb::MatchmakingReleaseRequest { reservation_id, reservation_token, ..Default::default() })
                    .await?;
                self.sessions[at].seats.remove(&guest);
            }
        }
        Ok(())
    }

    /// An update of `known`: whole, or a heartbeat.
    fn request(&self, known: &KnownSession, is_whole: bool) -> pb::MatchmakingUpdateAdvertisementRequest {
        let mut request = pb::MatchmakingUpdateAdvertisementRequest {
            time_to_live_ms: Some(LONG_MS),
            ..advertise_request(
                &[(&format!("host of caller {}", self.caller_number), 0.0)],
                (SEATS + SEATS_PER_NUMBER * shown(known.number)) as i32,
            )
        };
        if let Some(session) = &mut request.session_composition {
            session.silo_id = Some(self.caller_number);
        }
        if known.id.is_empty() {
            request.idempotency_key = format!("a session of caller {} {:08}", self.caller_number, known.number);
        }
        if !is_whole {
            (request.session_composition, request.connect_data) = (None, Vec::new());
        }
        (request.advertisement_id, request.advertisement_token) = (known.id.clone(), known.token.clone());
        request
    }

    fn guest(&self, guest: usize) -> pb::SessionCompositionData {
        let session = party_session(&[(&format!("guest {guest} of caller {}", self.caller_number), 0.0)]);
        pb::SessionCompositionData { silo_id: Some(self.caller_number), ..session }
    }

    async fn search(&self, connection: &CallerConnection, guest: usize) -> pb::MatchmakingSearchResponse {
        connection.client.new_search(1, self.guest(guest)).search().await.expect("a search")
    }

    /// All search results in this caller's silo, by id.
    async fn search_all(&self, connection: &CallerConnection) -> BTreeMap<String, Option<(u32, u32)>> {
        // A party without a seat.
        let found = self.search(connection, GUESTS).await;
        // `SEATS` itself is a remainder, so count from one seat less.
        let number = |open: u32| (open.saturating_sub(1) / SEATS_PER_NUMBER, (open - 1) % SEATS_PER_NUMBER + 1);
        found.candidates.iter().map(|it| (it.advertisement_id.clone(), Some(number(it.open_seats)))).collect()
    }
}

impl CallerConnection {
    async fn update(
        &self,
        request: pb::MatchmakingUpdateAdvertisementRequest,
    ) -> Result<pb::MatchmakingUpdateAdvertisementResponse, Error> {
        match &self.stream {
            Some(stream) => stream.update_advertisement(request).await,
            None => self.client.update_advertisement(request).await,
        }
    }

    async fn delete(&self, advertisement_id: String, advertisement_token: Vec<u8>) -> Result<(), Error> {
        let request = pb::MatchmakingDeleteAdvertisementRequest { advertisement_id, advertisement_token };
        match &self.stream {
            Some(stream) => stream.delete_advertisement(request).await.map(drop),
            None => self.client.delete_advertisement(request).await.map(drop),
        }
    }
}
