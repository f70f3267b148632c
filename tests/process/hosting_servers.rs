//! Game servers of [`match_life`](crate::match_life): they confirm matches by unary calls, and some disappear at each stage.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fireteam_client::{Client, pb};
use pb::HostedMatchState;
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::match_life::{PLAY_MAX, SERVER_SET};
use crate::report::TestRng;

const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(200);
const TIME_TO_LIVE_MS: u64 = 10_000;

/// Counts over all game servers.
#[derive(Default)]
pub(crate) struct HostStatistics {
    pub(crate) confirmed: AtomicUsize,
    pub(crate) ended: AtomicUsize,
    pub(crate) gave_up: AtomicUsize,
    pub(crate) died_unconfirmed: AtomicUsize,
    pub(crate) died_in_play: AtomicUsize,
    /// Matches that a game server has named in a heartbeat, recorded before it is sent.
    pub(crate) named: Mutex<BTreeSet<String>>,
}

/// Plan of a game server for one match.
#[derive(Clone, Copy, PartialEq)]
enum Plan {
    Host,
    /// The advertisement is deleted when play has begun.
    HostWithoutAdvertisement,
    GiveUp,
    DieUnconfirmed,
    DieInPlay,
}

impl Plan {
    fn random(rng: &TestRng) -> Self {
        match rng.below(100) {
            0..4 => Self::GiveUp,
            4..8 => Self::DieUnconfirmed,
            8..13 => Self::DieInPlay,
            13..25 => Self::HostWithoutAdvertisement,
            _ => Self::Host,
        }
    }
}

/// Runs game server `number`, again and again, until stopped.
pub(crate) async fn run_game_server(
    number: usize,
    cluster: Arc<Cluster>,
    rng: TestRng,
    statistics: Arc<HostStatistics>,
    stop: &AtomicBool,
) {
    for incarnation in 0.. {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        let name = format!("game server {number:03}, process {incarnation:05}");
        let mut process = Process {
            number,
            cluster: Arc::clone(&cluster),
            rng: &rng,
            statistics: &statistics,
            matches: BTreeMap::new(),
        };
        process.run(name, stop).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// One process of a game server, until it disappears.
struct Process<'a> {
    number: usize,
    cluster: Arc<Cluster>,
    rng: &'a TestRng,
    statistics: &'a HostStatistics,
    /// Plan of each match, and the time at which play began.
    matches: BTreeMap<String, (Plan, Option<Instant>)>,
}

impl Process<'_> {
    fn server(&self) -> Option<Client> {
        let first = self.rng.below(self.cluster.len());
        (0..self.cluster.len()).find_map(|more| self.cluster.client((first + more) % self.cluster.len(), self.number))
    }

    async fn run(&mut self, name: String, stop: &AtomicBool) {
        let request = pb::MatchmakingUpdateAdvertisementRequest {
            matchmaking_set_id: Some(SERVER_SET),
            kind: pb::AdvertisementKind::GameServer.into(),
            time_to_live_ms: Some(TIME_TO_LIVE_MS),
            idempotency_key: name,
            connect_data: b"game:7777".to_vec(),
            session_composition: Some(pb::SessionCompositionData {
                party_size_composition: vec![1],
                max_allowed_join_reservation_count: Some(2),
                ..Default::default()
            }),
            ..Default::default()
        };
        let mut advertised = None;
        let mut is_deleted = false;
        while !stop.load(Ordering::SeqCst) {
            tokio::time::sleep(HEARTBEAT_INTERVAL).await;
            let Some(server) = self.server() else { continue };
            let (id, token): (String, Vec<u8>) = match &advertised {
                None => {
                    if let Ok(answer) = server.update_advertisement(request.clone()).await {
                        advertised = Some((answer.advertisement_id, answer.advertisement_token));
                    }
                    continue;
                }
                Some(known) => known.clone(),
            };
            if !is_deleted {
                let heartbeat = pb::MatchmakingUpdateAdvertisementRequest {
                    advertisement_id: id.clone(),
                    advertisement_token: token.clone(),
                    time_to_live_ms: Some(TIME_TO_LIVE_MS),
                    ..Default::default()
                };
                // An advertisement that is gone is replaced by a new process.
                match server.update_advertisement(heartbeat).await {
                    Ok(answer) if answer.created => return,
                    Err(error) if error.code() == Some(fireteam_client::Code::NotFound) => return,
                    _ => {}
                }
            }
            if !self.beat(&server, &token).await {
                return;
            }
            let wants_no_advertisement = self
                .matches
                .values()
                .any(|(plan, playing)| *plan == Plan::HostWithoutAdvertisement && playing.is_some());
            if wants_no_advertisement && !is_deleted {
                let delete =
                    pb::MatchmakingDeleteAdvertisementRequest { advertisement_id: id, advertisement_token: token };
                is_deleted = server.delete_advertisement(delete).await.is_ok();
            }
            if is_deleted && self.matches.is_empty() {
                return;
            }
        }
    }

    /// Sends one heartbeat for the matches, and ends those that have been played. False if the process disappears.
    async fn beat(&mut self, server: &Client, token: &[u8]) -> bool {
        self.statistics.named.lock().expect("unpoisoned").extend(self.matches.keys().cloned());
        let known = self.matches.iter().map(|(match_id, (plan, _))| pb::HostedMatchBeat {
            match_id: match_id.clone(),
            gives_up: *plan == Plan::GiveUp,
        });
        let request = pb::QueueHostHeartbeatRequest { advertisement_token: token.to_vec(), matches: known.collect() };
        let Ok(answer) = server.host_heartbeat(request).await else { return true };
        for hosted in answer.matches {
            let Some((plan, playing_since)) = self.matches.get_mut(&hosted.match_id) else { continue };
            match hosted.state() {
                HostedMatchState::Playing if playing_since.is_none() => {
                    *playing_since = Some(Instant::now());
                    self.statistics.confirmed.fetch_add(1, Ordering::SeqCst);
                    if *plan == Plan::DieInPlay {
                        self.statistics.died_in_play.fetch_add(1, Ordering::SeqCst);
                        return false;
                    }
                }
                HostedMatchState::NotHosted | HostedMatchState::Ended => {
                    if *plan == Plan::GiveUp {
                        self.statistics.gave_up.fetch_add(1, Ordering::SeqCst);
                    }
                    self.matches.remove(&hosted.match_id);
                }
                _ => {}
            }
        }
        for match_id in answer.hosted_match_ids {
            if self.matches.contains_key(&match_id) {
                continue;
            }
            let plan = Plan::random(self.rng);
            if plan == Plan::DieUnconfirmed {
                self.statistics.died_unconfirmed.fetch_add(1, Ordering::SeqCst);
                return false;
            }
            self.matches.insert(match_id, (plan, None));
        }
        let played: Vec<String> = self
            .matches
            .iter()
            .filter(|(_, (_, since))| since.is_some_and(|since| PLAY_MAX / 2 < since.elapsed()))
            .map(|(match_id, _)| match_id.clone())
            .collect();
        for match_id in played {
            let end = pb::QueueEndMatchRequest {
                match_id: match_id.clone(),
                advertisement_token: token.to_vec(),
                ..Default::default()
            };
            if server.end_match(end).await.is_ok() {
                self.statistics.ended.fetch_add(1, Ordering::SeqCst);
                self.matches.remove(&match_id);
            }
        }
        true
    }
}
