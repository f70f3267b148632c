//! Allocation on demand: offers of matches to allocators, their answers, and places as hosts.

use std::collections::BTreeSet;

use fireteam::auth::identity::Role;
use fireteam::config::{PostgresUrl, RulesetSource, StoreTarget};
use fireteam_client::{Client, Ticket, pb};
use pb::allocate_request::Message as Request;
use pb::{AnswerOutcome, MatchEndReason, TicketState};
use tonic::Code;

use crate::store::replicas::Replicas;
use crate::support::allocator::{TestAllocator, any_match, host_heartbeat};
use crate::support::database::{TestDatabase, create_test_database};
use crate::support::queue_server::{
    QueuedParty, SET_ID, advertise_host, duel_ruleset, enter_request, game_server_advertisement, start_queue_server,
    wait_until,
};
use crate::support::server_process::ServerProcess;
use crate::support::test_server::TestServer;
use crate::support::tokens::{ISSUER, TokenIssuer, start_authenticated_server_with_config};

/// A 1v1 queue whose matches are offered for five seconds.
pub(crate) fn offered_duel(allocate: &str) -> String {
    let hosting = r#"Mode="game_server" AllocationTimeoutMs="600000""#;
    duel_ruleset(&format!(r#"<Hosting {hosting} Allocate="{allocate}" OfferMs="5000"/>"#))
}

/// A server on each durable store, with its folder or database.
struct DurableServers {
    servers: Vec<TestServer>,
    _database: Option<TestDatabase>,
}

impl DurableServers {
    async fn start(test: &str, ruleset: &str) -> Self {
        let database = create_test_database(test).await;
        let mut stores = vec![None];
        stores.extend(database.as_ref().map(|database| PostgresUrl::parse(&database.url)));
        let mut servers = Vec::new();
        for postgres in stores {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("duel.xml"), ruleset).unwrap();
            let path = folder.path().to_owned();
            let mut server = TestServer::start_with_config(move |config| {
                let sqlite = StoreTarget::Sqlite(path.join("store.db"));
                config.store = postgres.map_or(sqlite, StoreTarget::Postgres);
                config.rulesets = RulesetSource::Directory(path);
            })
            .await;
            server.keep_folder(folder);
            servers.push(server);
        }
        Self { servers, _database: database }
    }
}

async fn allocator(server: &TestServer) -> TestAllocator {
    TestAllocator::connect(server.app.server.address, any_match(1)).await
}

/// Two players who wait for a place.
async fn two_players(server: &TestServer, round: &str) -> (QueuedParty, QueuedParty) {
    let (ann, bob) = (format!("ann {round}"), format!("bob {round}"));
    let ann = QueuedParty::enter(server, SET_ID, &[(&ann, 20.0)]).await;
    let bob = QueuedParty::enter(server, SET_ID, &[(&bob, 20.0)]).await;
    (ann, bob)
}

/// Connect data of the place of the ticket's match.
async fn place_of(waiting: &mut QueuedParty) -> String {
    let found = waiting.wait_for_state(TicketState::Matched).await.found_match.expect("a match");
    match found.assignment.and_then(|assignment| assignment.host) {
        Some(pb::assignment::Host::GameServer(server)) => String::from_utf8(server.connect_data).expect("a place"),
        other => panic!("no game server: {other:?}"),
    }
}

/// Ends the match with the host token of its offer.
async fn end_match(client: &Client, offer: &pb::AllocationOffer) -> MatchEndReason {
    let end = pb::QueueEndMatchRequest {
        match_id: offer.match_id.clone(),
        advertisement_token: offer.host_token.clone(),
        ..Default::default()
    };
    client.end_match(end).await.expect("end").end_reason()
}

/// An offer names the match; the players get its place; the started game server ends the match with its token. A
/// repeated answer gets the same acknowledgement, also after the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn allocation_offer_is_placed_and_its_host_ends_the_match() {
    let test = "allocation_offer_is_placed_and_its_host_ends_the_match";
    for server in DurableServers::start(test, &offered_duel("always")).await.servers {
        let mut allocator = allocator(&server).await;
        let (mut ann, mut bob) = two_players(&server, "").await;
        let offer = allocator.next_offer().await;
        assert_eq!((offer.matchmaking_set_id, offer.seats, offer.answer_within_ms), (SET_ID, 2, 5_000));
        assert_eq!(offer.attributes.keys().collect::<Vec<_>>(), Vec::<&String>::new());
        let placing = ann.wait_for_state(TicketState::Placing).await;
        assert_eq!(placing.found_match.expect("a match").match_id, offer.match_id);
        for _ in 0..2 {
            assert_eq!(allocator.place(&offer, "203.0.113.7:7777").await, AnswerOutcome::Accepted);
        }
        assert_eq!(place_of(&mut ann).await, "203.0.113.7:7777");
        assert_eq!(place_of(&mut bob).await, "203.0.113.7:7777");
        assert_eq!(end_match(&ann.client, &offer).await, MatchEndReason::Played);
        bob.wait_for_end().await;
        assert_eq!(allocator.place(&offer, "203.0.113.7:7777").await, AnswerOutcome::Accepted);
    }
}

/// A refused match goes to the next allocator at once, and when all have refused it, to the first again after a pause.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn allocation_refusal_goes_to_the_next_allocator() {
    let test = "allocation_refusal_goes_to_the_next_allocator";
    for server in DurableServers::start(test, &offered_duel("always")).await.servers {
        let (mut first, mut second) = (allocator(&server).await, allocator(&server).await);
        let (mut ann, _bob) = two_players(&server, "").await;
        let refused = first.next_offer().await;
        assert_eq!(first.refuse(&refused).await, AnswerOutcome::Accepted);
        let refused_again = second.next_offer().await;
        assert_eq!(refused_again.match_id, refused.match_id);
        assert_ne!(refused_again.advertisement_id, refused.advertisement_id);
        assert_eq!(second.refuse(&refused_again).await, AnswerOutcome::Accepted);
        assert_eq!(first.refuse(&refused).await, AnswerOutcome::Accepted, "a repeated refusal");
        server.clock.advance_ms(1_000);
        let offer = first.next_offer().await;
        assert_eq!(offer.match_id, refused.match_id);
        assert_eq!(second.place(&refused_again, "late").await, AnswerOutcome::NotWanted);
        assert_eq!(first.place(&offer, "in time").await, AnswerOutcome::Accepted);
        assert_eq!(place_of(&mut ann).await, "in time");
    }
}

/// An offer that is not answered within `OfferMs` goes to the next allocator; the late place is not wanted, each time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn allocation_late_place_is_not_wanted() {
    let test = "allocation_late_place_is_not_wanted";
    for server in DurableServers::start(test, &offered_duel("always")).await.servers {
        let (mut first, mut second) = (allocator(&server).await, allocator(&server).await);
        let (mut ann, _bob) = two_players(&server, "").await;
        let late = first.next_offer().await;
        server.clock.advance_ms(5_000);
        let offer = second.next_offer().await;
        assert_eq!(offer.match_id, late.match_id);
        for _ in 0..2 {
            assert_eq!(first.place(&late, "late").await, AnswerOutcome::NotWanted);
        }
        assert_eq!(second.place(&offer, "in time").await, AnswerOutcome::Accepted);
        assert_eq!(first.place(&late, "late").await, AnswerOutcome::NotWanted);
        assert_eq!(place_of(&mut ann).await, "in time");
        let reported = ann.client.end_match(pb::QueueEndMatchRequest {
            match_id: late.match_id.clone(),
            advertisement_token: late.host_token.clone(),
            ..Default::default()
        });
        let refused = reported.await.expect_err("the match is not on the late place");
        assert_eq!(refused.code(), Some(Code::PermissionDenied), "{refused}");
    }
}

/// A match that has ended meanwhile wants no place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn allocation_of_a_cancelled_match_is_not_wanted() {
    let test = "allocation_of_a_cancelled_match_is_not_wanted";
    for server in DurableServers::start(test, &offered_duel("always")).await.servers {
        let mut allocator = allocator(&server).await;
        let (mut ann, mut bob) = two_players(&server, "").await;
        let offer = allocator.next_offer().await;
        assert!(ann.ticket.leave().await.expect("leave"));
        bob.wait_for_state(TicketState::Waiting).await;
        assert_eq!(allocator.place(&offer, "too late").await, AnswerOutcome::NotWanted);
    }
}

/// An allocator hears only of matches of its sets and regions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn allocation_offers_follow_sets_and_regions() {
    let attributes = r#"Trust="client"/><Attribute Name="region" Type="string" Trust="client"/>"#;
    let regions = r#"PassIntervalMs="10"><Regions Mode="partition" Attribute="region"/>"#;
    let by_region = offered_duel("always")
        .replacen(r#"Trust="client"/>"#, attributes, 1)
        .replace(r#"PassIntervalMs="10">"#, regions);
    let other_set = offered_duel("always").replace(&format!("SetId=\"{SET_ID}\""), "SetId=\"12\"");
    let server = start_queue_server(&[&by_region, &other_set]).await;
    let register = async |set: u32, region: &str| {
        let regions = if region.is_empty() { Vec::new() } else { vec![region.to_owned()] };
        let registration = pb::AllocatorRegistration { matchmaking_set_ids: vec![set], regions, ..any_match(8) };
        TestAllocator::connect(server.app.server.address, registration).await
    };
    let (mut eu, mut us, mut other) =
        (register(SET_ID, "eu").await, register(SET_ID, "us").await, register(12, "").await);
    let mut parties = Vec::new();
    for (number, region) in ["eu", "us", "us"].into_iter().enumerate() {
        for name in ["ann", "bob"] {
            let name = format!("{name} {number}");
            let mut request = enter_request(SET_ID, &[(&name, 20.0)]);
            let session = request.session_composition.as_mut().expect("a party");
            let value = pb::attribute_value::Value::StringValue(region.to_owned());
            session.attributes.insert("region".to_owned(), pb::AttributeValue { value: Some(value) });
            parties.push(QueuedParty::enter_with_request(&server, request).await);
        }
    }
    for name in ["cid", "dan"] {
        parties.push(QueuedParty::enter(&server, 12, &[(name, 20.0)]).await);
    }
    let offer = other.next_offer().await;
    assert_eq!((offer.matchmaking_set_id, &*offer.region), (12, ""));
    for region in ["eu", "us", "us"] {
        let allocator = if region == "eu" { &mut eu } else { &mut us };
        let offer = allocator.next_offer().await;
        assert_eq!((offer.matchmaking_set_id, &*offer.region), (SET_ID, region));
        assert!(offer.attributes.contains_key("region"), "{offer:?}");
        assert_eq!(allocator.place(&offer, region).await, AnswerOutcome::Accepted);
    }
    for (waiting, region) in parties.iter_mut().zip(["eu", "eu", "us", "us", "us", "us"]) {
        assert_eq!(place_of(waiting).await, region);
    }
}

/// With `fallback`, an advertised game server is taken first; a match without one is offered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn allocation_fallback_prefers_advertised_servers() {
    let test = "allocation_fallback_prefers_advertised_servers";
    for server in DurableServers::start(test, &offered_duel("fallback")).await.servers {
        let mut allocator = allocator(&server).await;
        advertise_host(&server, game_server_advertisement(b"advertised")).await;
        let (mut ann, mut bob) = two_players(&server, "first").await;
        assert_eq!(place_of(&mut ann).await, "advertised");
        assert_eq!(place_of(&mut bob).await, "advertised");
        let (mut cid, mut dan) = two_players(&server, "second").await;
        let second = cid.wait_for_state(TicketState::Placing).await.found_match.expect("a match");
        dan.wait_for_state(TicketState::Placing).await;
        server.clock.advance_ms(500);
        let offer = allocator.next_offer().await;
        assert_eq!(offer.match_id, second.match_id, "the first match was never offered");
        advertise_host(&server, game_server_advertisement(b"another")).await;
        assert_eq!(place_of(&mut cid).await, "another");
        assert_eq!(allocator.place(&offer, "too late").await, AnswerOutcome::NotWanted);
    }
}

/// Offers in flight are limited to what the allocator registered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn allocation_offers_are_limited_per_allocator() {
    let server = start_queue_server(&[&offered_duel("always")]).await;
    let mut allocator = TestAllocator::connect(server.app.server.address, any_match(2)).await;
    let mut parties = Vec::new();
    for round in ["first", "second", "third"] {
        let (ann, bob) = two_players(&server, round).await;
        parties.extend([ann, bob]);
    }
    for waiting in &mut parties {
        waiting.wait_for_state(TicketState::Placing).await;
    }
    let (first, second) = (allocator.next_offer().await, allocator.next_offer().await);
    let sent = || {
        let metrics = &server.app.metrics;
        metrics.allocation_offers.get_or_create(&fireteam::telemetry::label::OfferEvent::Sent).get()
    };
    assert_eq!(sent(), 2, "the third match waits");
    assert_eq!(allocator.place(&first, "a").await, AnswerOutcome::Accepted);
    let third = allocator.next_offer().await;
    assert_eq!(allocator.place(&second, "b").await, AnswerOutcome::Accepted);
    assert_eq!(allocator.place(&third, "c").await, AnswerOutcome::Accepted);
    let mut places = BTreeSet::new();
    for waiting in &mut parties {
        places.insert(place_of(waiting).await);
    }
    assert_eq!(places.len(), 3);
}

/// Only callers in the role of game servers are offered matches, and an offer is answered by its allocator alone. The
/// game server may have another identity, which the allocator names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn allocation_is_for_game_servers_and_its_tokens_for_their_owners() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("duel.xml"), offered_duel("always")).unwrap();
    let rulesets = RulesetSource::Directory(folder.path().to_owned());
    let (server, issuer) = start_authenticated_server_with_config(|config| config.rulesets = rulesets).await;
    let address = server.app.server.address;
    let header = |issuer: &TokenIssuer, role, name: &str| issuer.authorization_header(role, name);
    let client = TestAllocator::open(address, Some(&header(&issuer, Role::Client, "ann"))).await;
    assert_eq!(client.err().expect("refused").code(), Code::PermissionDenied);

    let registration = pb::AllocatorRegistration {
        host_identity: Some(pb::HostIdentity { issuer: ISSUER.to_owned(), subject: "pod".to_owned() }),
        ..any_match(1)
    };
    let own = header(&issuer, Role::GameServer, "allocator");
    let mut allocator = TestAllocator::try_connect(address, Some(&own), registration).await.expect("registered");
    let mut tickets = Vec::new();
    for name in ["ann", "bob"] {
        let client = issuer.client_with_token(&server, Role::Client, name).await;
        tickets.push(client.enter_queue(enter_request(SET_ID, &[(name, 20.0)])).await.expect("enter"));
    }
    let offer = allocator.next_offer().await;
    let stranger = header(&issuer, Role::GameServer, "stranger");
    let narrow = pb::AllocatorRegistration { matchmaking_set_ids: vec![99], ..any_match(1) };
    let mut stranger = TestAllocator::try_connect(address, Some(&stranger), narrow).await.expect("registered");
    let place = pb::PlaceAnswer { offer_token: offer.offer_token.clone(), connect_data: b"stolen".to_vec() };
    stranger.send(Request::Place(place)).await;
    assert_eq!(stranger.next_response().await.expect_err("not its offer").code(), Code::PermissionDenied);

    assert_eq!(allocator.place(&offer, "pod:7777").await, AnswerOutcome::Accepted);
    let allocator_client = issuer.client_with_token(&server, Role::GameServer, "allocator").await;
    let end = pb::QueueEndMatchRequest {
        match_id: offer.match_id.clone(),
        advertisement_token: offer.host_token.clone(),
        ..Default::default()
    };
    let refused = allocator_client.end_match(end).await.expect_err("the token is the pod's");
    assert_eq!(refused.code(), Some(Code::PermissionDenied), "{refused}");
    let beat = allocator_client.host_heartbeat(host_heartbeat(&offer)).await.expect_err("the token is the pod's");
    assert_eq!(beat.code(), Some(Code::PermissionDenied), "{beat}");
    let pod = issuer.client_with_token(&server, Role::GameServer, "pod").await;
    let confirmed = pod.host_heartbeat(host_heartbeat(&offer)).await.expect("confirm");
    assert_eq!(confirmed.matches[0].state(), pb::HostedMatchState::Playing);
    assert_eq!(end_match(&pod, &offer).await, MatchEndReason::Played);
}

/// Messages that are wrong end the stream with an error that names the field.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn allocation_messages_that_are_wrong_name_the_field() {
    let server = start_queue_server(&[&offered_duel("always")]).await;
    let address = server.app.server.address;
    let refuse =
        |token: &[u8]| Request::Refuse(pb::RefuseAnswer { offer_token: token.to_vec(), reason: String::new() });
    let register = Request::Register;
    let wrong_registrations = [
        ("register", refuse(b"x")),
        ("max_open_offers", register(any_match(0))),
        ("max_open_offers", register(any_match(65))),
        ("regions[0]", register(pb::AllocatorRegistration { regions: vec![String::new()], ..Default::default() })),
        ("host_identity.subject", {
            let host_identity = Some(pb::HostIdentity { issuer: "x".to_owned(), subject: String::new() });
            register(pb::AllocatorRegistration { host_identity, ..Default::default() })
        }),
    ];
    for (field, message) in wrong_registrations {
        let mut allocator = TestAllocator::open(address, None).await.expect("open");
        allocator.send(message).await;
        let error = allocator.next_response().await.expect_err(field);
        assert_eq!(error.code(), Code::InvalidArgument, "{error}");
        assert!(error.message().contains(field), "{field}: {error}");
    }
    let place = |token: &[u8], data: &[u8]| {
        Request::Place(pb::PlaceAnswer { offer_token: token.to_vec(), connect_data: data.to_vec() })
    };
    let wrong_answers = [
        (Code::InvalidArgument, "register", register(any_match(1))),
        (Code::InvalidArgument, "place.connect_data", place(b"x", b"")),
        (Code::InvalidArgument, "place.connect_data", place(b"x", &[0; 513])),
        (Code::InvalidArgument, "refuse.offer_token", refuse(b"")),
        (Code::PermissionDenied, "", refuse(b"forged")),
    ];
    for (code, field, message) in wrong_answers {
        let mut allocator = TestAllocator::connect(address, any_match(1)).await;
        allocator.send(message).await;
        let error = allocator.next_response().await.expect_err(field);
        assert_eq!(error.code(), code, "{error}");
        assert!(error.message().contains(field), "{field}: {error}");
    }
}

async fn enter_at(server: &ServerProcess, name: &str) -> (Client, Ticket) {
    let client = server.client().await;
    let ticket = client.enter_queue(enter_request(SET_ID, &[(name, 20.0)])).await.expect("enter");
    (client, ticket)
}

async fn wait_for_place((client, ticket): &(Client, Ticket)) {
    wait_until("the match has a place", async || {
        let request = pb::QueueHeartbeatRequest { tickets: vec![ticket.reference()], ..Default::default() };
        client.heartbeat_tickets(request).await.expect("heartbeat").statuses[0].state() == TicketState::Matched
    })
    .await;
}

/// Two servers on one database with a ruleset folder.
async fn two_servers(test: &str, offer_ms: u32) -> Option<(TestDatabase, Replicas, tempfile::TempDir)> {
    let database = create_test_database(test).await?;
    let folder = tempfile::tempdir().unwrap();
    let ruleset = offered_duel("always").replace("5000", &offer_ms.to_string());
    std::fs::write(folder.path().join("duel.xml"), ruleset).unwrap();
    let replicas = Replicas::start(&database, 2, &["--rulesets", &folder.path().display().to_string()]);
    Some((database, replicas, folder))
}

/// An allocator gets the matches of all servers, also if another server runs the queue, and each match is offered once although
/// both servers have allocators.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn allocation_reaches_allocators_of_every_server_once() {
    let test = "allocation_reaches_allocators_of_every_server_once";
    let Some((_database, replicas, _folder)) = two_servers(test, 60_000).await else { return };
    let [here, there] = &replicas.servers[..] else { panic!("two servers") };
    for (round, server) in [here, there].into_iter().enumerate() {
        let mut allocator = TestAllocator::connect(server.address, any_match(1)).await;
        let ann = enter_at(here, &format!("ann {round}")).await;
        let bob = enter_at(there, &format!("bob {round}")).await;
        let offer = allocator.next_offer().await;
        assert_eq!(allocator.place(&offer, "a place").await, AnswerOutcome::Accepted);
        wait_for_place(&ann).await;
        wait_for_place(&bob).await;
    }
    let mut allocators = [
        TestAllocator::connect(here.address, any_match(64)).await,
        TestAllocator::connect(there.address, any_match(64)).await,
    ];
    let mut parties = Vec::new();
    for number in 0..20 {
        parties.push(enter_at(here, &format!("cid {number}")).await);
        parties.push(enter_at(there, &format!("dan {number}")).await);
    }
    let mut offered = BTreeSet::new();
    let [first, second] = &mut allocators;
    while offered.len() < 20 {
        let (offer, is_first) = tokio::select! {
            offer = first.next_offer() => (offer, true),
            offer = second.next_offer() => (offer, false),
        };
        assert!(offered.insert(offer.match_id.clone()), "offered twice");
        let allocator = if is_first { &mut *first } else { &mut *second };
        assert_eq!(allocator.place(&offer, "a place").await, AnswerOutcome::Accepted);
    }
    for party in &parties {
        wait_for_place(party).await;
    }
}

/// The server with an open offer is killed: the allocator answers at the other server, and the match has that place. An
/// offer of a killed server that is never answered goes to the next allocator.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn allocation_offer_survives_the_server_that_made_it() {
    let test = "allocation_offer_survives_the_server_that_made_it";
    for is_answered in [true, false] {
        let offer_ms = if is_answered { 60_000 } else { 2_000 };
        let Some((_database, mut replicas, _folder)) = two_servers(test, offer_ms).await else { return };
        let there = replicas.servers.pop().expect("two servers");
        let here = &replicas.servers[0];
        let mut allocator = TestAllocator::connect(there.address, any_match(1)).await;
        let ann = enter_at(here, "ann").await;
        let bob = enter_at(here, "bob").await;
        let offer = allocator.next_offer().await;
        there.kill();
        let mut allocator = TestAllocator::connect(here.address, any_match(1)).await;
        if is_answered {
            assert_eq!(allocator.place(&offer, "a place").await, AnswerOutcome::Accepted);
        } else {
            let again = allocator.next_offer().await;
            assert_eq!(again.match_id, offer.match_id);
            assert_eq!(allocator.place(&offer, "late").await, AnswerOutcome::NotWanted);
            assert_eq!(allocator.place(&again, "a place").await, AnswerOutcome::Accepted);
        }
        wait_for_place(&ann).await;
        wait_for_place(&bob).await;
    }
}

/// A server that restarts on its file keeps the offer: the answer is accepted on the next stream.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn allocation_offer_survives_a_restart() {
    let test = "allocation_offer_survives_a_restart";
    for server in DurableServers::start(test, &offered_duel("always")).await.servers {
        let mut before = allocator(&server).await;
        let (ann, bob) = two_players(&server, "").await;
        let offer = before.next_offer().await;
        let ticket = ann.ticket.reference();
        drop((ann, bob, before));
        let server = server.restart().await;
        let mut after = allocator(&server).await;
        assert_eq!(after.place(&offer, "a place").await, AnswerOutcome::Accepted);
        let heartbeat = pb::QueueHeartbeatRequest { tickets: vec![ticket], ..Default::default() };
        let statuses = server.client().await.heartbeat_tickets(heartbeat).await.expect("heartbeat").statuses;
        assert_eq!(statuses[0].state(), TicketState::Matched);
    }
}
