//! A player with an identity who publishes a session and reserves a seat again and again, each time at a random server. It repeats
//! a call until it knows the outcome, so that it knows the order of what it made.

use std::sync::Arc;
use std::time::Duration;

use fireteam_client::{Client, pb};

use crate::cluster::Cluster;
use crate::history::{CallOutcome, call_outcome};
use crate::identities::Identities;
use crate::load_client::LONG_TTL_MS;
use crate::report::TestRng;
use crate::support::party::{advertise_request, party_session};
use crate::support::server_process::TEST_TIMEOUT;

/// Seats of each session: enough for all players.
const SEATS: i32 = 64;

/// Pause before a call is repeated.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// One player.
pub(crate) struct LimitedOwner {
    pub(crate) name: String,
    number: usize,
    cluster: Arc<Cluster>,
    identities: Arc<Identities>,
    rng: TestRng,
    /// Published sessions, each of which took the place of the one before.
    pub(crate) published: Vec<pb::MatchmakingUpdateAdvertisementResponse>,
    /// Keys of their creation.
    keys: Vec<String>,
    /// Advertisement and id of reservations, each of which took the place of the one before.
    pub(crate) reserved: Vec<(String, String)>,
    /// Calls for sessions that had been replaced.
    pub(crate) late_calls: usize,
    calls_made: usize,
    /// A call whose outcome is not known yet.
    open_call: Option<OpenCall>,
    pub(crate) violations: Vec<String>,
}

/// Call that is repeated until its outcome is known.
#[derive(Clone)]
enum OpenCall {
    Publish(String),
    Reserve(Box<pb::MatchmakingReserveRequest>),
}

/// Session of one player.
pub(crate) fn session_of(name: &str) -> pb::SessionCompositionData {
    party_session(&[(name, 0.0)])
}

impl LimitedOwner {
    pub(crate) fn new(number: usize, cluster: Arc<Cluster>, identities: Arc<Identities>, rng: TestRng) -> Self {
        Self {
            name: format!("owner {number}"),
            number,
            cluster,
            identities,
            rng,
            published: Vec::new(),
            keys: Vec::new(),
            reserved: Vec::new(),
            late_calls: 0,
            calls_made: 0,
            open_call: None,
            violations: Vec::new(),
        }
    }

    /// Id of the session that was published last.
    pub(crate) fn newest_advertisement(&self) -> Option<&str> {
        Some(&self.published.last()?.advertisement_id)
    }

    /// Advertisement and id of the reservation that was made last.
    pub(crate) fn newest_reservation(&self) -> Option<(&str, &str)> {
        self.reserved.last().map(|(advertisement, reservation)| (&**advertisement, &**reservation))
    }

    /// The player's client at a random server; `None` while that is down.
    fn client(&self) -> Option<Client> {
        let client = self.cluster.client(self.rng.below(self.cluster.len()), self.number)?;
        Some(self.identities.client_of(&client, &self.name))
    }

    /// Makes one call, or repeats one.
    pub(crate) async fn step(&mut self) {
        let Some(client) = self.client() else { return tokio::task::yield_now().await };
        match self.open_call.take() {
            Some(OpenCall::Publish(key)) => self.publish(&client, key).await,
            Some(OpenCall::Reserve(request)) => self.reserve(&client, request).await,
            None if self.published.is_empty() || self.rng.chance(0.3) => {
                self.calls_made += 1;
                let key = format!("session {:06} of {}", self.calls_made, self.name);
                self.publish(&client, key).await;
            }
            None if self.published.len() > 1 && self.rng.chance(0.3) => self.call_late(&client).await,
            None => self.search_and_reserve(&client).await,
        }
    }

    /// Repeats the open call until its outcome is known. All servers must be running.
    pub(crate) async fn resolve_open_call(&mut self) {
        let resolve = async {
            while self.open_call.is_some() {
                self.step().await;
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, resolve).await.expect("the outcome is known in time");
    }

    /// Makes one more reservation: an earlier one may have been refused at one server after it was made at another.
    pub(crate) async fn reserve_once_more(&mut self) {
        let before = self.reserved.len();
        let reserve = async {
            while self.reserved.len() == before {
                let client = self.client().expect("all servers are running");
                self.search_and_reserve(&client).await;
                self.resolve_open_call().await;
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, reserve).await.expect("a reservation in time");
    }

    fn publish_request(&self, key: &str) -> pb::MatchmakingUpdateAdvertisementRequest {
        pb::MatchmakingUpdateAdvertisementRequest {
            time_to_live_ms: Some(LONG_TTL_MS),
            idempotency_key: key.to_owned(),
            ..advertise_request(&[(&self.name, 0.0)], SEATS)
        }
    }

    async fn publish(&mut self, client: &Client, key: String) {
        let answer = client.update_advertisement(self.publish_request(&key)).await;
        match (call_outcome(&answer), answer) {
            (_, Ok(answer)) if !answer.not_yet_durable => {
                self.keys.push(key);
                self.published.push(answer);
            }
            (CallOutcome::Rejected, Err(error)) => {
                self.violations.push(format!("refused: {key}, the newest session of its owner: {error}"));
            }
            _ => {
                self.open_call = Some(OpenCall::Publish(key));
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
        }
    }

    /// A retry of the creation, or an update, of a session that a newer one has replaced. It must be refused.
    async fn call_late(&mut self, client: &Client) {
        let at = self.rng.below(self.published.len() - 1);
        let mut request = self.publish_request(&self.keys[at]);
        if self.rng.chance(0.5) {
            let replaced = &self.published[at];
            request.idempotency_key.clear();
            request.advertisement_id = replaced.advertisement_id.clone();
            request.advertisement_token = replaced.advertisement_token.clone();
        }
        match client.update_advertisement(request).await {
            Ok(answer) if !answer.not_yet_durable => {
                self.violations.push(format!("returned: {} lives again", answer.advertisement_id));
            }
            answer => self.late_calls += usize::from(call_outcome(&answer) == CallOutcome::Rejected),
        }
    }

    async fn search_and_reserve(&mut self, client: &Client) {
        let Ok(found) = client.new_search(1, session_of(&self.name)).search().await else { return };
        if found.candidates.is_empty() {
            return;
        }
        let candidate = &found.candidates[self.rng.below(found.candidates.len())];
        self.calls_made += 1;
        let request = pb::MatchmakingReserveRequest {
            advertisement_id: candidate.advertisement_id.clone(),
            idempotency_key: format!("seat {:06} of {}", self.calls_made, self.name),
            hold_for_ms: Some(LONG_TTL_MS),
            search_token: found.search_token,
            session_composition: Some(session_of(&self.name)),
            ..Default::default()
        };
        self.reserve(client, Box::new(request)).await;
    }

    async fn reserve(&mut self, client: &Client, request: Box<pb::MatchmakingReserveRequest>) {
        let answer = client.reserve((*request).clone()).await;
        match (call_outcome(&answer), answer) {
            (_, Ok(answer)) => {
                let reservation = answer.reservation.map(|held| held.reservation_id).unwrap_or_default();
                self.reserved.push((request.advertisement_id, reservation));
            }
            // The session was replaced meanwhile. The older reservation stays.
            (CallOutcome::Rejected, Err(_)) => {}
            _ => {
                self.open_call = Some(OpenCall::Reserve(request));
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
        }
    }
}
