//! One of many clients that compete for the same seats: it searches, reserves, releases, publishes and deletes, each time at
//! a random server, and records each outcome in the call history.

use std::sync::Arc;

use fireteam_client::{Client, Error, pb};

use crate::cluster::Cluster;
use crate::history::{CallOutcome, History, Operation, call_outcome};
use crate::report::TestRng;
use crate::support::party::{advertise_request, party_session};

/// Seats of each session: few, so that most are usually taken.
pub(crate) const SEATS: u32 = 6;

/// Number of silos; the clients of a silo compete with each other.
pub(crate) const SILOS: usize = 4;

/// TTL longer than any test, so that nothing expires by itself.
pub(crate) const LONG_TTL_MS: u64 = 600_000;

/// Attempts of a call whose outcome is unknown, each at a random server.
const ATTEMPTS: usize = 3;

/// One client, with a session of its own and reservations in the sessions of others.
pub(crate) struct LoadClient {
    number: usize,
    cluster: Arc<Cluster>,
    history: History,
    rng: TestRng,
    /// Number of unique names used so far.
    names_used: u64,
    session: Option<pb::MatchmakingUpdateAdvertisementResponse>,
    /// Idempotency key and text of a publication whose outcome is unknown: the client repeats it instead of starting another.
    creating: Option<(String, u64)>,
    /// A session whose deletion has an unknown outcome: the client deletes it again.
    deleting: Option<pb::MatchmakingUpdateAdvertisementResponse>,
    reservations: Vec<(String, pb::Reservation)>,
}

impl LoadClient {
    pub(crate) fn new(number: usize, cluster: Arc<Cluster>, history: History, rng: TestRng) -> Self {
        Self {
            number,
            cluster,
            history,
            rng,
            names_used: 0,
            session: None,
            creating: None,
            deleting: None,
            reservations: Vec::new(),
        }
    }

    /// A random server that is running.
    fn server(&self) -> Option<Client> {
        let first = self.rng.below(self.cluster.len());
        let all = (0..self.cluster.len()).map(|more| (first + more) % self.cluster.len());
        all.filter_map(|at| self.cluster.client(at, self.number)).next()
    }

    /// Performs one random operation. Yields when no server is running.
    pub(crate) async fn step(&mut self) {
        if self.server().is_none() {
            return tokio::task::yield_now().await;
        }
        if self.deleting.is_some() {
            return self.delete().await;
        }
        if self.session.is_none() || self.rng.chance(0.05) {
            return self.publish().await;
        }
        if self.rng.chance(0.01) {
            return self.delete().await;
        }
        if !self.reservations.is_empty() && (12 < self.reservations.len() || self.rng.chance(0.45)) {
            return self.release_seats().await;
        }
        self.reserve_seats().await;
    }

    fn name(&mut self, what: &str) -> String {
        self.names_used += 1;
        format!("{what} {:05} of client {:04}", self.names_used, self.number)
    }

    fn silo(&self) -> u64 {
        (self.number % SILOS) as u64 + 1
    }

    /// Makes a call, and repeats it at a random server while the outcome is unknown. Records each attempt.
    async fn call<Request: Clone, T>(
        &mut self,
        operation: &Operation,
        request: Request,
        send: impl AsyncFn(Client, Request) -> Result<T, Error>,
        on_success: impl Fn(&T) -> (Operation, CallOutcome),
    ) -> Option<T> {
        for _ in 0..ATTEMPTS {
            let server = self.server()?;
            let start = self.history.now();
            let answer = send(server, request.clone()).await;
            let (operation, outcome) = match &answer {
                Ok(answer) => on_success(answer),
                Err(_) => (operation.clone(), call_outcome(&answer)),
            };
            self.history.add(self.number, operation, start, outcome);
            match answer {
                Ok(answer) => return Some(answer),
                Err(_) if outcome == CallOutcome::Rejected => return None,
                Err(_) => {}
            }
        }
        None
    }

    async fn reserve_seats(&mut self) {
        let (user, friend) = (self.name("guest"), self.name("friend"));
        let both = self.rng.chance(0.3);
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
            return self.release_seats().await;
        }
        let advertisement = found.candidates[self.rng.below(found.candidates.len())].advertisement_id.clone();
        let request = pb::MatchmakingReserveRequest {
            advertisement_id: advertisement.clone(),
            idempotency_key: user.clone(),
            hold_for_ms: Some(LONG_TTL_MS),
            search_token: found.search_token,
            session_composition: Some(session),
            ..Default::default()
        };
        let seats = 1 + u32::from(both);
        let operation = |reservation: String| Operation::Reserve {
            user: user.clone(),
            advertisement: advertisement.clone(),
            seats,
            reservation,
        };
        let on_success = |answer: &pb::MatchmakingReserveResponse| {
            let reservation = answer.reservation.as_ref().map(|it| it.reservation_id.clone());
            (operation(reservation.unwrap_or_default()), CallOutcome::Succeeded)
        };
        let answer = self
            .call(&operation(String::new()), request, async |it, request| it.reserve(request).await, on_success)
            .await;
        if let Some(reservation) = answer.and_then(|it| it.reservation) {
            self.reservations.push((user, reservation));
        }
    }

    async fn release_seats(&mut self) {
        if self.reservations.is_empty() {
            return;
        }
        let (user, reservation) = self.reservations.swap_remove(self.rng.below(self.reservations.len()));
        let operation = Operation::Release { user };
        let request = pb::MatchmakingReleaseRequest {
            reservation_id: reservation.reservation_id,
            reservation_token: reservation.reservation_token,
            ..Default::default()
        };
        self.call(
            &operation,
            request,
            async |it, request| it.release(request).await,
            |_| (operation.clone(), CallOutcome::Succeeded),
        )
        .await;
    }

    /// Publishes a new session, or the existing one with another text.
    pub(crate) async fn publish(&mut self) {
        let (key, word) = match self.creating.take() {
            Some(again) => again,
            None => (self.name("session"), self.names_used),
        };
        let mut request = pb::MatchmakingUpdateAdvertisementRequest {
            time_to_live_ms: Some(LONG_TTL_MS),
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
        let operation = |advertisement: String| Operation::Publish { key: key.clone(), advertisement, word };
        let before = operation(request.advertisement_id.clone());
        let on_success = |answer: &pb::MatchmakingUpdateAdvertisementResponse| {
            // A change that is not yet durable is in one server's memory, and may be lost with it.
            let outcome = if answer.not_yet_durable { CallOutcome::Unknown } else { CallOutcome::Succeeded };
            (operation(answer.advertisement_id.clone()), outcome)
        };
        let answer =
            self.call(&before, request, async |it, request| it.update_advertisement(request).await, on_success).await;
        if answer.is_none() && self.session.is_none() {
            self.creating = Some((key, word));
        }
        self.session = answer.or(self.session.take());
    }

    async fn delete(&mut self) {
        let Some(session) = self.deleting.take().or_else(|| self.session.take()) else { return };
        self.deleting = Some(session.clone());
        let operation = Operation::Delete { advertisement: session.advertisement_id.clone() };
        let request = pb::MatchmakingDeleteAdvertisementRequest {
            advertisement_id: session.advertisement_id,
            advertisement_token: session.advertisement_token,
        };
        let deleted = self
            .call(
                &operation,
                request,
                async |it, request| it.delete_advertisement(request).await,
                |_| (operation.clone(), CallOutcome::Succeeded),
            )
            .await;
        if deleted.is_some() {
            self.deleting = None;
        }
    }
}
