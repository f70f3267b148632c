//! Allocators are connected to several servers, refuse, stay silent and place matches, while servers are killed. A match is
//! offered to one allocator at a time, and is played at the place that was accepted.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fireteam_client::pb;
use pb::allocate_request::Message as Request;
use pb::allocate_response::Message as Response;
use pb::allocation_service_client::AllocationServiceClient;
use pb::{AnswerOutcome, HostedMatchState, TicketEndReason, TicketState};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;

use crate::cluster::Cluster;
use crate::random_servers::RandomServerClient;
use crate::report::{TestReport, TestRng, scaled};
use crate::support::database::PostgresCluster;
use crate::support::party::party_session;

const SERVERS: usize = 3;
const ALLOCATORS: usize = 6;
const PLAYERS: usize = 24;
const SET: u32 = 24;

/// Matches to end, and the time limit: a slow machine reaches fewer, and reports the number.
const MATCHES: usize = 150;
const TIME_MAX: Duration = Duration::from_secs(12);

/// Difference between the times at which two allocators receive what a server has sent.
const TRANSIT_MAX: Duration = Duration::from_millis(1_000);

const RULES: &str = r#"<Ruleset Name="Allocated" SetId="24">
  <Teams Count="2" Size="1"/>
  <Queue PassIntervalMs="20"/>
  <Hosting Mode="game_server" AllocationTimeoutMs="60000" ConfirmMs="3000" Allocate="always" OfferMs="2000"/>
</Ruleset>"#;

/// Offers of one match.
#[derive(Default)]
struct MatchOffers {
    /// Until when the last offer is open.
    open_until: Option<Instant>,
    /// Places with which the match's offers were answered.
    places: Vec<Vec<u8>>,
}

#[derive(Default)]
struct World {
    stop: AtomicBool,
    offers: Mutex<BTreeMap<String, MatchOffers>>,
    sent: AtomicUsize,
    refused: AtomicUsize,
    unanswered: AtomicUsize,
    placed: AtomicUsize,
    ended: AtomicUsize,
    violations: Mutex<Vec<String>>,
}

impl World {
    fn violation(&self, what: String) {
        self.violations.lock().expect("unpoisoned").push(what);
    }

    /// Records an offer. It must not arrive while another one of the match is open.
    fn record_offer(&self, offer: &pb::AllocationOffer) {
        self.sent.fetch_add(1, Ordering::SeqCst);
        let mut offers = self.offers.lock().expect("unpoisoned");
        let known = offers.entry(offer.match_id.clone()).or_default();
        let now = Instant::now();
        if known.open_until.is_some_and(|until| now + TRANSIT_MAX < until) {
            self.violation(format!("match {} is offered twice at a time", offer.match_id));
        }
        known.open_until = Some(now + Duration::from_millis(offer.answer_within_ms));
    }

    fn record_place(&self, match_id: &str, place: &[u8]) {
        let mut offers = self.offers.lock().expect("unpoisoned");
        offers.entry(match_id.to_owned()).or_default().places.push(place.to_vec());
    }

    fn close_offer(&self, match_id: &str) {
        if let Some(known) = self.offers.lock().expect("unpoisoned").get_mut(match_id) {
            known.open_until = None;
        }
    }
}

/// One allocator, which starts a game server for each match that it places.
struct Allocator {
    client: RandomServerClient,
    world: Arc<World>,
}

impl Allocator {
    /// Connects to its server again and again until the test stops.
    async fn run(self) {
        while !self.world.stop.load(Ordering::SeqCst) {
            // The stream ends when its server is killed.
            let _ = self.answer_offers().await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn answer_offers(&self) -> Option<()> {
        let address = self.client.cluster.address(self.client.number % SERVERS)?;
        let channel =
            tonic::transport::Endpoint::from_shared(format!("http://{address}")).ok()?.connect().await.ok()?;
        let (outbox, requests) = mpsc::channel(64);
        let send = async |message| outbox.send(pb::AllocateRequest { message: Some(message) }).await.ok();
        send(Request::Register(pb::AllocatorRegistration { max_open_offers: Some(16), ..Default::default() })).await?;
        let stream = AllocationServiceClient::new(channel).allocate(ReceiverStream::new(requests)).await.ok()?;
        let mut stream = stream.into_inner();
        let mut open = BTreeMap::new();
        while !self.world.stop.load(Ordering::SeqCst) {
            let message = tokio::time::timeout(Duration::from_secs(1), stream.message()).await;
            let Ok(message) = message else { continue };
            match message.ok()??.message? {
                Response::Registered(_) => {}
                Response::Offer(offer) => {
                    self.world.record_offer(&offer);
                    let token = offer.offer_token.clone();
                    match self.client.rng.below(100) {
                        0..15 => {
                            self.world.unanswered.fetch_add(1, Ordering::SeqCst);
                        }
                        15..35 => {
                            self.world.refused.fetch_add(1, Ordering::SeqCst);
                            self.world.close_offer(&offer.match_id);
                            let reason = "no capacity".to_owned();
                            send(Request::Refuse(pb::RefuseAnswer { offer_token: token, reason })).await?;
                        }
                        _ => {
                            let place = format!("place {}", offer.advertisement_id).into_bytes();
                            self.world.record_place(&offer.match_id, &place);
                            open.insert(token.clone(), offer);
                            let answer = pb::PlaceAnswer { offer_token: token, connect_data: place };
                            send(Request::Place(answer)).await?;
                        }
                    }
                }
                Response::Ack(ack) => {
                    let Some(offer) = open.remove(&ack.offer_token) else { continue };
                    // From now on, the match may need another place.
                    self.world.close_offer(&offer.match_id);
                    if ack.outcome() == AnswerOutcome::Accepted {
                        self.world.placed.fetch_add(1, Ordering::SeqCst);
                        self.start_game_server(offer);
                    }
                }
            }
        }
        Some(())
    }

    /// Starts a game server that confirms the match, and ends it.
    fn start_game_server(&self, offer: pb::AllocationOffer) {
        let seed = self.client.rng.below(usize::MAX);
        let client = RandomServerClient {
            cluster: Arc::clone(&self.client.cluster),
            number: self.client.number,
            rng: TestRng::of_seed(seed as u64),
        };
        let world = Arc::clone(&self.world);
        tokio::spawn(async move {
            loop {
                let beat = pb::HostedMatchBeat { match_id: offer.match_id.clone(), gives_up: false };
                let request = pb::QueueHostHeartbeatRequest {
                    advertisement_token: offer.host_token.clone(),
                    matches: vec![beat],
                };
                let send = async |server: fireteam_client::Client, request| server.host_heartbeat(request).await;
                let Some(answer) = client.call(&world.stop, request, send).await else { return };
                let hosted = answer.ok().and_then(|answer| answer.matches.into_iter().next());
                match hosted.map(|hosted| hosted.state()) {
                    Some(HostedMatchState::Playing) => break,
                    Some(HostedMatchState::Ended) => return,
                    _ => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            }
            let end = pb::QueueEndMatchRequest {
                match_id: offer.match_id.clone(),
                advertisement_token: offer.host_token.clone(),
                ..Default::default()
            };
            let send = async |server: fireteam_client::Client, end| server.end_match(end).await;
            match client.call(&world.stop, end, send).await {
                Some(Ok(_)) => {
                    world.ended.fetch_add(1, Ordering::SeqCst);
                }
                Some(Err(error)) => world.violation(format!("match {} cannot end: {error}", offer.match_id)),
                None => {}
            }
        });
    }
}

/// A player who enters again and again.
async fn play(client: RandomServerClient, world: Arc<World>) {
    for number in 0.. {
        let name = format!("player {:03}", client.number);
        let request = pb::QueueEnterRequest {
            session_composition: Some(party_session(&[(&name, 0.0)])),
            matchmaking_set_id: Some(SET),
            idempotency_key: format!("ticket {number:06} of {name}"),
            ..Default::default()
        };
        let entered =
            client.call(&world.stop, request, async |server, request| server.enter_queue(request).await).await;
        let Some(entered) = entered else { return };
        let Ok(ticket) = entered.map(|ticket| ticket.reference()) else {
            // The server has not read the end of the last match yet.
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        loop {
            let Some(status) = client.status(&world.stop, &ticket).await else { return };
            if status.state() == TicketState::Ended && status.end_reason() != TicketEndReason::Unspecified {
                break;
            }
            if let (TicketState::Matched, Some(found)) = (status.state(), &status.found_match) {
                let host = found.assignment.as_ref().and_then(|assignment| assignment.host.as_ref());
                let offers = world.offers.lock().expect("unpoisoned");
                let is_place = |connect_data: &Vec<u8>| {
                    offers.get(&found.match_id).is_some_and(|known| known.places.contains(connect_data))
                };
                let is_known = matches!(host, Some(pb::assignment::Host::GameServer(it)) if is_place(&it.connect_data));
                if !is_known {
                    world.violation(format!("match {} is not at a place of its offers", found.match_id));
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Allocation: one allocator at a time has an offer of a match, at any server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn match_is_offered_to_one_allocator_at_a_time() {
    let mut report = TestReport::start("allocation offers").await;
    let Some(postgres) = PostgresCluster::start("allocation_offers") else { return };
    let database = postgres.create_database("fireteam").await;
    let cluster = Arc::new(Cluster::start_with_ruleset(&database.url, SERVERS, RULES));
    let world = Arc::<World>::default();
    let mut tasks = Vec::new();
    for number in 0..ALLOCATORS {
        let allocator =
            Allocator { client: RandomServerClient::new(&cluster, number, &report), world: Arc::clone(&world) };
        tasks.push(tokio::spawn(allocator.run()));
    }
    for number in 0..PLAYERS {
        tasks.push(tokio::spawn(play(RandomServerClient::new(&cluster, 100 + number, &report), Arc::clone(&world))));
    }
    let faults = {
        let (cluster, world, rng) = (Arc::clone(&cluster), Arc::clone(&world), report.rng(1_000));
        tokio::task::spawn_blocking(move || cluster.kill_at_random(&rng, 800..2_000, &world.stop))
    };
    let started = Instant::now();
    while world.ended.load(Ordering::SeqCst) < scaled(MATCHES) && started.elapsed() < TIME_MAX {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    world.stop.store(true, Ordering::SeqCst);
    report.record("kills", faults.await.expect("the faults end"));
    for task in tasks {
        task.await.expect("the task ends");
    }
    let mut zero = Vec::new();
    for (name, count) in [
        ("offers", &world.sent),
        ("refused", &world.refused),
        ("unanswered", &world.unanswered),
        ("placed", &world.placed),
        ("ended", &world.ended),
    ] {
        let count = count.load(Ordering::SeqCst);
        report.record(name, count);
        zero.extend((count == 0).then_some(name));
    }
    report.violations(world.violations.lock().expect("unpoisoned").clone());
    drop(cluster);
    report.finish();
    assert!(zero.is_empty(), "{zero:?} did not happen: the test shows nothing");
}
