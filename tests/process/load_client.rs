//! A client among many that fight for the same seats: it searches, takes, gives back, publishes and withdraws, each time
//! at a server drawn by chance, and notes what it was told.

use std::sync::Arc;

use fireteam_client::{Client, Error, pb};

use crate::cluster::Fleet;
use crate::history::{Asked, History, Outcome, outcome};
use crate::report::Dice;
use crate::support::party::{advertise_request, party_session};

/// Seats of every session: few, so that most of them are taken most of the time.
pub(crate) const SEATS: u32 = 6;

/// Populations; each is fought over by its own clients.
pub(crate) const SILOS: usize = 4;

/// Longer than any chapter; what lapses by itself proves nothing.
pub(crate) const LONG_MS: u64 = 600_000;

/// How often a call whose fate is unknown is made again, elsewhere.
const ATTEMPTS: usize = 3;

/// One client, with a session of its own and seats in others'.
pub(crate) struct Rival {
    number: usize,
    fleet: Arc<Fleet>,
    history: History,
    dice: Dice,
    /// Drawn so far, for names.
    drawn: u64,
    session: Option<pb::MatchmakingUpdateAdvertisementResponse>,
    /// The name and word of a session that may or may not have been made: it is asked for again, not for another.
    making: Option<(String, u64)>,
    /// A session that may or may not have been withdrawn: it is withdrawn again.
    leaving: Option<pb::MatchmakingUpdateAdvertisementResponse>,
    seats: Vec<(String, pb::Reservation)>,
}

impl Rival {
    pub(crate) fn new(number: usize, fleet: Arc<Fleet>, history: History, dice: Dice) -> Self {
        Self { number, fleet, history, dice, drawn: 0, session: None, making: None, leaving: None, seats: Vec::new() }
    }

    /// Whoever is there, by chance.
    fn server(&self) -> Option<Client> {
        let first = self.dice.below(self.fleet.len());
        let all = (0..self.fleet.len()).map(|more| (first + more) % self.fleet.len());
        all.filter_map(|at| self.fleet.client(at, self.number)).next()
    }

    /// One thing or another. Gives way when nobody is there to ask.
    pub(crate) async fn act(&mut self) {
        if self.server().is_none() {
            return tokio::task::yield_now().await;
        }
        if self.leaving.is_some() {
            return self.withdraw().await;
        }
        if self.session.is_none() || self.dice.chance(0.05) {
            return self.publish().await;
        }
        if self.dice.chance(0.01) {
            return self.withdraw().await;
        }
        if !self.seats.is_empty() && (12 < self.seats.len() || self.dice.chance(0.45)) {
            return self.give_back().await;
        }
        self.take().await;
    }

    fn name(&mut self, what: &str) -> String {
        self.drawn += 1;
        format!("{what} {:05} of client {:04}", self.drawn, self.number)
    }

    fn silo(&self) -> u64 {
        (self.number % SILOS) as u64 + 1
    }

    /// Makes a call, and makes it again elsewhere while nobody knows what became of it. Notes each time.
    async fn ask<Request: Clone, T>(
        &mut self,
        what: &Asked,
        request: Request,
        call: impl AsyncFn(Client, Request) -> Result<T, Error>,
        known: impl Fn(&T) -> (Asked, Outcome),
    ) -> Option<T> {
        for _ in 0..ATTEMPTS {
            let server = self.server()?;
            let start = self.history.now();
            let answer = call(server, request.clone()).await;
            let (asked, outcome) = match &answer {
                Ok(answer) => known(answer),
                Err(_) => (what.clone(), outcome(&answer)),
            };
            self.history.note(self.number, asked, start, outcome);
            match answer {
                Ok(answer) => return Some(answer),
                Err(_) if outcome == Outcome::Refused => return None,
                Err(_) => {}
            }
        }
        None
    }

    async fn take(&mut self) {
        let (user, friend) = (self.name("guest"), self.name("friend"));
        let both = self.dice.chance(0.3);
        let all = [(&*user, 0.0), (&*friend, 0.0)];
        let mut session = party_session(if both { &all } else { &all[..1] });
        session.silo_id = Some(self.silo());
        let Some(server) = self.server() else { return };
        let search = pb::MatchmakingSearchRequest {
            session_composition: Some(session.clone()),
            matchmaking_set_id: Some(1),
            ..Default::default()
        };
        let Ok(found) = server.search(search).await else { return };
        if found.candidates.is_empty() {
            return self.give_back().await;
        }
        let advertisement = found.candidates[self.dice.below(found.candidates.len())].advertisement_id.clone();
        let request = pb::MatchmakingReserveRequest {
            advertisement_id: advertisement.clone(),
            idempotency_key: user.clone(),
            hold_for_ms: Some(LONG_MS),
            search_token: found.search_token,
            session_composition: Some(session),
            ..Default::default()
        };
        let seats = 1 + u32::from(both);
        let asked = |reservation: String| Asked::Reserve {
            user: user.clone(),
            advertisement: advertisement.clone(),
            seats,
            reservation,
        };
        let known = |answer: &pb::MatchmakingReserveResponse| {
            let reservation = answer.reservation.as_ref().map(|it| it.reservation_id.clone());
            (asked(reservation.unwrap_or_default()), Outcome::Done)
        };
        let answer =
            self.ask(&asked(String::new()), request, async |it, request| it.reserve(request).await, known).await;
        if let Some(reservation) = answer.and_then(|it| it.reservation) {
            self.seats.push((user, reservation));
        }
    }

    async fn give_back(&mut self) {
        if self.seats.is_empty() {
            return;
        }
        let (user, held) = self.seats.swap_remove(self.dice.below(self.seats.len()));
        let asked = Asked::Release { user };
        let request = pb::MatchmakingReleaseRequest {
            reservation_id: held.reservation_id,
            reservation_token: held.reservation_token,
        };
        self.ask(&asked, request, async |it, request| it.release(request).await, |_| (asked.clone(), Outcome::Done))
            .await;
    }

    /// Makes a session, or publishes it again with another word.
    pub(crate) async fn publish(&mut self) {
        let (key, word) = match self.making.take() {
            Some(again) => again,
            None => (self.name("session"), self.drawn),
        };
        let mut request = pb::MatchmakingUpdateAdvertisementRequest {
            time_to_live_ms: Some(LONG_MS),
            connect_data: word.to_string().into_bytes(),
            ..advertise_request(&[(&format!("host {}", self.number), 0.0)], SEATS as i32)
        };
        if let Some(session) = &mut request.session_composition {
            session.silo_id = Some(self.silo());
        }
        match &self.session {
            Some(known) => {
                request.advertisement_id = known.advertisement_id.clone();
                request.advertisement_token = known.advertisement_token.clone();
            }
            None => request.idempotency_key = key.clone(),
        }
        let asked = |advertisement: String| Asked::Publish { key: key.clone(), advertisement, word };
        let before = asked(request.advertisement_id.clone());
        let known = |answer: &pb::MatchmakingUpdateAdvertisementResponse| {
            // What is pending is in one server's memory, and may go with it.
            let outcome = if answer.not_yet_durable { Outcome::Unknown } else { Outcome::Done };
            (asked(answer.advertisement_id.clone()), outcome)
        };
        let answer =
            self.ask(&before, request, async |it, request| it.update_advertisement(request).await, known).await;
        if answer.is_none() && self.session.is_none() {
            self.making = Some((key, word));
        }
        self.session = answer.or(self.session.take());
    }

    async fn withdraw(&mut self) {
        let Some(session) = self.leaving.take().or_else(|| self.session.take()) else { return };
        self.leaving = Some(session.clone());
        let asked = Asked::Delete { advertisement: session.advertisement_id.clone() };
        let request = pb::MatchmakingDeleteAdvertisementRequest {
            advertisement_id: session.advertisement_id,
            advertisement_token: session.advertisement_token,
        };
        let gone = self
            .ask(
                &asked,
                request,
                async |it, request| it.delete_advertisement(request).await,
                |_| (asked.clone(), Outcome::Done),
            )
            .await;
        if gone.is_some() {
            self.leaving = None;
        }
    }
}
