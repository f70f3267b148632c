//! One caller with sessions of its own in a silo of its own: what it asks at random, and what was acknowledged.

use std::collections::{BTreeMap, BTreeSet};

use fireteam::clock::{Clock, ManualClock};
use fireteam_client::{Client, Code, Connection, Error, pb};

use tokio::sync::mpsc;

use crate::support::test_server::{advertise_request, party_session};

/// Seats of every session.
const SEATS: u32 = 8;
/// Sessions at once; a search shows 50.
const ALIVE_MAX: usize = 40;
/// Parties that take seats; fewer than there are, so that a session is always shown.
const GUESTS: usize = 6;
/// Longer than the test; what lapses by itself proves nothing.
const LONG_MS: u64 = 600_000;

/// What is known of one session.
#[derive(Clone, Debug, Default)]
struct Known {
    id: String,
    token: Vec<u8>,
    /// Published as connect data; another with each replacement.
    word: u32,
    /// Reservations by who sits there: a guest has one at a time.
    seats: BTreeMap<usize, pb::Reservation>,
    is_gone: bool,
}

impl Known {
    /// What a searcher sees: the word and the open seats; `None` when it is gone.
    fn seen(&self) -> Option<(u32, u32)> {
        (!self.is_gone).then(|| (self.word, SEATS - self.seats.len() as u32))
    }
}

/// One request. Sent twice it must have the effect of once.
#[derive(Clone, Debug)]
enum Asked {
    Create { word: u32 },
    Replace { at: usize, word: u32 },
    Delete { at: usize },
    Reserve { at: usize, guest: usize, word: u32 },
    Release { at: usize, guest: usize },
}

/// How a lane speaks to the server; another after each restart.
pub(crate) struct Voice {
    client: Client,
    /// Half of the lanes speak on a stream.
    stream: Option<Connection>,
    /// Of each guest.
    search_tokens: [Vec<u8>; GUESTS],
}

/// The caller and its history.
pub(crate) struct Lane {
    number: u64,
    dice: ManualClock,
    sessions: Vec<Known>,
    /// Sent, and perhaps not answered.
    asked: Option<Asked>,
    words: u32,
}

impl Lane {
    pub(crate) fn new(number: u64, dice: ManualClock) -> Self {
        Self { number, dice, sessions: Vec::new(), asked: None, words: 0 }
    }

    /// Finds its voice on a server that has just started.
    pub(crate) async fn speak(&self, client: Client) -> Voice {
        let client = client.with_retry_policy(fireteam_client::RetryPolicy::NEVER);
        let stream = match self.number % 2 {
            0 => Some(client.open_stream().await.expect("a stream").0),
            _ => None,
        };
        let mut voice = Voice { client, stream, search_tokens: Default::default() };
        for guest in 0..GUESTS {
            voice.search_tokens[guest] = self.search(&voice, guest).await.search_token;
        }
        voice
    }

    /// Asks for one thing after the other until the server does not answer any more. `acknowledged` hears
    /// of each answer.
    pub(crate) async fn live(&mut self, voice: &Voice, acknowledged: mpsc::Sender<()>) -> Error {
        loop {
            let asked = self.choose();
            self.asked = Some(asked.clone());
            if let Err(error) = self.ask(voice, asked).await {
                return error;
            }
            self.asked = None;
            // Nobody counts any more: the end is near.
            let _ = acknowledged.send(()).await;
        }
    }

    /// After a restart: everything acknowledged is there, nothing deleted is, and the one thing that was not answered has
    /// happened wholly or not at all. Asks for it again, and then there is no doubt left.
    pub(crate) async fn check(&mut self, voice: &Voice) {
        let mut found = self.look(voice).await;
        let unanswered = self.asked.take();
        for (at, known) in self.sessions.iter().enumerate() {
            let is = found.remove(&known.id).flatten();
            let might = unanswered.as_ref().map(|asked| self.after(at, asked)).unwrap_or(known.seen());
            assert!(
                is == known.seen() || is == might,
                "lane {}: {is:?} is neither {known:?} nor {might:?} ({unanswered:?})",
                self.number
            );
        }
        let strangers: Vec<u32> = found.values().flatten().map(|&(word, _)| word).collect();
        match &unanswered {
            Some(Asked::Create { word }) => assert!(strangers.is_empty() || strangers == [*word], "{strangers:?}"),
            _ => assert_eq!(strangers, [] as [u32; 0], "nobody made these"),
        }
        if let Some(asked) = unanswered {
            self.ask(voice, asked).await.expect("asking again succeeds");
        }
        let found = self.look(voice).await;
        let alive: Vec<&Known> = self.sessions.iter().filter(|it| !it.is_gone).collect();
        assert_eq!(found.len(), alive.len());
        alive.iter().for_each(|known| assert_eq!(found[&known.id], known.seen(), "{known:?}"));
        self.check_seats(voice).await;
        self.check_gone(voice).await;
    }

    /// What the host is told of its reservations is what their takers were told. Confirms them, so that none lapses.
    async fn check_seats(&self, voice: &Voice) {
        for known in self.sessions.iter().filter(|it| !it.is_gone) {
            let mut heartbeat = self.request(known, false);
            heartbeat.confirmed_reservation_ids = known.seats.values().map(|it| it.reservation_id.clone()).collect();
            let answer = voice.update(heartbeat).await.expect("a heartbeat");
            assert!(!answer.created);
            let ids =
                answer.reservations.iter().map(|it| (it.reservation_id.as_str(), it.seats)).collect::<BTreeSet<_>>();
            let taken = known.seats.values().map(|it| (it.reservation_id.as_str(), 1)).collect::<BTreeSet<_>>();
            assert_eq!(ids, taken);
        }
    }

    /// What was deleted last stays so, even for who still has the token.
    async fn check_gone(&self, voice: &Voice) {
        for known in self.sessions.iter().rev().filter(|it| it.is_gone).take(5) {
            let error = voice.update(self.request(known, true)).await.expect_err("it was deleted");
            assert_eq!(error.code(), Some(Code::FailedPrecondition), "{error}");
        }
    }

    fn choose(&mut self) -> Asked {
        let alive: Vec<usize> = (0..self.sessions.len()).filter(|&at| !self.sessions[at].is_gone).collect();
        let dice = self.dice.random_unit_f64();
        if alive.is_empty() || (dice < 0.25 && alive.len() < ALIVE_MAX) {
            self.words += 1;
            return Asked::Create { word: self.words };
        }
        let at = alive[(self.dice.random_unit_f64() * alive.len() as f64) as usize];
        let seats = &self.sessions[at].seats;
        match dice {
            ..0.35 => Asked::Delete { at },
            ..0.60 if let Some(guest) = (0..GUESTS).find(|guest| !seats.contains_key(guest)) => {
                self.words += 1;
                Asked::Reserve { at, guest, word: self.words }
            }
            ..0.75 if let Some(&guest) = seats.keys().next() => Asked::Release { at, guest },
            _ => {
                self.words += 1;
                Asked::Replace { at, word: self.words }
            }
        }
    }

    /// What a searcher sees of the session at `at` when `asked` has happened.
    fn after(&self, at: usize, asked: &Asked) -> Option<(u32, u32)> {
        let (word, open) = self.sessions[at].seen()?;
        match asked {
            Asked::Replace { at: of, word } if *of == at => Some((*word, open)),
            Asked::Delete { at: of } if *of == at => None,
            Asked::Reserve { at: of, .. } if *of == at => Some((word, open - 1)),
            Asked::Release { at: of, .. } if *of == at => Some((word, open + 1)),
            Asked::Create { .. } | Asked::Replace { .. } | Asked::Delete { .. } => Some((word, open)),
            Asked::Reserve { .. } | Asked::Release { .. } => Some((word, open)),
        }
    }

    /// Asks, and remembers what was answered.
    async fn ask(&mut self, voice: &Voice, asked: Asked) -> Result<(), Error> {
        match asked {
            Asked::Create { word } => {
                let mut known = Known { word, ..Known::default() };
                let answer = voice.update(self.request(&known, true)).await?;
                (known.id, known.token) = (answer.advertisement_id, answer.advertisement_token);
                self.sessions.push(known);
            }
            Asked::Replace { at, word } => {
                let known = Known { word, ..self.sessions[at].clone() };
                let answer = voice.update(self.request(&known, true)).await?;
                assert!(!answer.created, "it was there: {known:?}");
                self.sessions[at] = Known { token: answer.advertisement_token, ..known };
            }
            Asked::Delete { at } => {
                let known = &self.sessions[at];
                voice.delete(known.id.clone(), known.token.clone()).await?;
                self.sessions[at].is_gone = true;
            }
            Asked::Reserve { at, guest, word } => {
                let request = pb::MatchmakingReserveRequest {
                    advertisement_id: self.sessions[at].id.clone(),
                    idempotency_key: format!("a seat of lane {} {word:08}", self.number),
                    hold_for_ms: Some(LONG_MS),
                    search_token: voice.search_tokens[guest].clone(),
                    session_composition: Some(self.guest(guest)),
                    ..Default::default()
                };
                let answer = voice.client.reserve(request).await?;
                self.sessions[at].seats.insert(guest, answer.reservation.expect("a reservation"));
            }
            Asked::Release { at, guest } => {
                let held = self.sessions[at].seats[&guest].clone();
                let (reservation_id, reservation_token) = (held.reservation_id, held.reservation_token);
                voice.client.release(pb::MatchmakingReleaseRequest { reservation_id, reservation_token }).await?;
                self.sessions[at].seats.remove(&guest);
            }
        }
        Ok(())
    }

    /// An update about `known`, whole or a heartbeat.
    fn request(&self, known: &Known, is_whole: bool) -> pb::MatchmakingUpdateAdvertisementRequest {
        let mut request = pb::MatchmakingUpdateAdvertisementRequest {
            time_to_live_ms: Some(LONG_MS),
            connect_data: known.word.to_string().into_bytes(),
            ..advertise_request(&[(&format!("host of lane {}", self.number), 0.0)], SEATS as i32)
        };
        if let Some(session) = &mut request.session_composition {
            session.silo_id = Some(self.number);
        }
        if known.id.is_empty() {
            request.idempotency_key = format!("a session of lane {} {:08}", self.number, known.word);
        }
        if !is_whole {
            (request.session_composition, request.connect_data) = (None, Vec::new());
        }
        (request.advertisement_id, request.advertisement_token) = (known.id.clone(), known.token.clone());
        request
    }

    fn guest(&self, guest: usize) -> pb::SessionCompositionData {
        let session = party_session(&[(&format!("guest {guest} of lane {}", self.number), 0.0)]);
        pb::SessionCompositionData { silo_id: Some(self.number), ..session }
    }

    async fn search(&self, voice: &Voice, guest: usize) -> pb::MatchmakingSearchResponse {
        voice.client.search_session(1, self.guest(guest)).search().await.expect("a search")
    }

    /// All that a searcher sees in this lane's silo, by id.
    async fn look(&self, voice: &Voice) -> BTreeMap<String, Option<(u32, u32)>> {
        // Somebody who has no seat anywhere.
        let found = self.search(voice, GUESTS).await;
        let word = |it: &pb::Candidate| String::from_utf8(it.connect_data.clone()).unwrap().parse().unwrap();
        found.candidates.iter().map(|it| (it.advertisement_id.clone(), Some((word(it), it.open_seats)))).collect()
    }
}

impl Voice {
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
