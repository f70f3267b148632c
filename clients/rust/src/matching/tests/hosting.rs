//! Advertising: publish, heartbeats, guests, probes of others, and the ways out.

use std::time::Duration;

use fireteam_probe::{EchoReply, EchoRequest, ProbeKey, ReturnedQuestionFields};
use tonic::Code;

use crate::matching::round::id_bytes_from_hex;
use crate::matching::tests::server::failure;
use crate::matching::tests::world::{World, hosting, party};
use crate::matching::{EndReason, Event, HostedSession, MatchingOptions, MatchingState, Outcome, Request};
use crate::pb;

fn host_world(hosting: HostedSession) -> World {
    let options = MatchingOptions { hosting: Some(hosting), ..MatchingOptions::new(7, party()) };
    let mut world = World::with_options(options, 0, None);
    world.server.advertises = true;
    world.start();
    world.run_to(MatchingState::Advertising);
    world.run_for(Duration::from_millis(100));
    world
}

fn session(open_seats: i32) -> Box<pb::SessionCompositionData> {
    Box::new(hosting(open_seats).session)
}

fn advertised_id(world: &World) -> String {
    let ids = world.outcomes.iter().filter_map(|outcome| match outcome {
        Outcome::Advertised(advertised) => Some(advertised.advertisement_id.clone()),
        _ => None,
    });
    ids.collect::<Vec<_>>().pop().unwrap()
}

fn has_deleted(world: &World, id: &str) -> bool {
    world.requests.iter().any(|(_, request)| {
        matches!(request, Request::DeleteAdvertisement(delete) if delete.advertisement_id == id && !delete.advertisement_token.is_empty())
    })
}

/// The session is published with an endpoint and a key, and kept alive when the server says so.
#[test]
fn host_publishes_its_session_and_sends_heartbeats() {
    let mut world = host_world(hosting(3));
    world.run_for(Duration::from_secs(9));
    let updates = world.updates();
    let first = &updates[0];
    assert!(first.session_composition.is_some() && first.idempotency_key.len() == 32 && first.connect_data == b"here");
    let probe = first.probe.clone().unwrap();
    assert_eq!((probe.address.len(), probe.port, probe.probe_key.len()), (0, 4_000, 32));
    assert_eq!(first.kind(), pb::AdvertisementKind::Session);
    assert_eq!(updates.len(), 5, "every 2 s");
    for beat in &updates[1..] {
        assert!(beat.session_composition.is_none() && beat.probe.is_none() && beat.connect_data.is_empty());
        assert!(!beat.advertisement_token.is_empty() && beat.advertisement_id == advertised_id(&world));
    }
}

/// A game server does not search: a started loop ends at once, without a call.
#[test]
fn a_game_server_that_is_started_as_a_searcher_is_refused() {
    let hosting = HostedSession { kind: pb::AdvertisementKind::GameServer, ..hosting(3) };
    let options = MatchingOptions { hosting: Some(hosting.clone()), ..MatchingOptions::new(7, party()) };
    let mut world = World::with_options(options.clone(), 0, None);
    world.start();
    let Some(Outcome::Ended(EndReason::Failed(error))) = world.outcomes.last() else {
        panic!("{:?}", world.outcomes);
    };
    assert_eq!(error.code, Code::InvalidArgument);
    assert!(error.message.contains("BecomeHost"), "{}", error.message);
    assert_eq!((world.requests.len(), world.matching.state()), (0, MatchingState::Ended));

    let mut world = World::with_options(options, 0, None);
    world.handle(Event::BecomeHost(Box::new(hosting)));
    world.run_to(MatchingState::Advertising);
}

/// A new latency token is published with the session, which heartbeats do not repeat. An expired one changes nothing.
#[test]
fn host_publishes_a_new_latency_token() {
    let mut world = host_world(hosting(3));
    for token in [&b"first"[..], b"first", b"", b"second"] {
        world.handle(Event::LatencyToken(token.to_vec().into()));
        world.run_for(Duration::from_secs(5));
    }
    let updates = world.updates();
    let sessions = updates.iter().filter_map(|update| update.session_composition.as_ref());
    let tokens: Vec<&[u8]> = sessions.map(|session| &*session.latency_token).collect();
    assert_eq!(tokens, [&b""[..], b"first", b"second"]);
    assert!(
        world
            .updates()
            .iter()
            .all(|update| update.advertisement_id.is_empty() || !update.advertisement_token.is_empty())
    );
}

/// Probes of others are answered while the session is open, with the key of its advertisement.
#[test]
fn host_answers_probes() {
    let mut world = host_world(hosting(1));
    let key = ProbeKey::new(&world.updates()[0].probe.clone().unwrap().probe_key).unwrap();
    let id = id_bytes_from_hex(&advertised_id(&world)).unwrap();
    let question = ReturnedQuestionFields {
        sequence: 0,
        nonce: [1; 8],
        advertisement_id_prefix: id[..8].try_into().unwrap(),
        stamp: [0; 8],
    };
    let from = "203.0.113.5:9000".parse().unwrap();
    let ask = |world: &mut World| {
        let before = world.packets.len();
        world.handle(Event::Datagram { from, packet: EchoRequest(question).encode(&key).to_vec() });
        let sent = world.packets[before..].first().cloned();
        sent.map(|(_, to, packet)| (to, EchoReply::decode(&packet, &key).unwrap().flags.full))
    };
    assert_eq!(ask(&mut world), Some((from, false)));
    world.server.guests.insert("guest".into(), 15_000);
    world.run_for(Duration::from_secs(3));
    assert_eq!(ask(&mut world), Some((from, true)), "the last seat is reserved");
    world.handle(Event::Cancel);
    assert_eq!(ask(&mut world), None);
}

/// A party that reserves is confirmed at once, the game hears of it, and its seats are settled when it has joined.
#[test]
fn host_confirms_and_settles_its_guests() {
    let mut world = host_world(hosting(2));
    world.server.guests.insert("guest".into(), 15_000);
    world.run_for(Duration::from_secs(3));
    assert!(world.outcomes.contains(&Outcome::PartyComing { reservation_id: "guest".into(), seats: 1 }));
    assert_eq!(world.server.guests.get("guest"), Some(&0), "confirmed");
    world.handle(Event::SessionChanged { session: session(1), joined_reservation_ids: vec!["guest".into()] });
    world.run_for(Duration::from_secs(5));
    let joined: Vec<_> = world.updates().into_iter().filter(|it| !it.joined_reservation_ids.is_empty()).collect();
    assert_eq!(joined.len(), 1);
    let open = joined[0].session_composition.as_ref().unwrap().max_allowed_join_reservation_count;
    assert_eq!(open, Some(1), "in the update that lowers the seats");
    assert!(!world.outcomes.iter().any(|outcome| matches!(outcome, Outcome::PartyGone { .. })));
    assert_eq!(world.outcomes.iter().filter(|it| matches!(it, Outcome::PartyComing { .. })).count(), 1);
    world.run_for(Duration::from_secs(60));
    assert!(!world.outcomes.contains(&Outcome::Withdrawn), "guests are there: no other draw");
}

/// A party that the stream told while an update was underway is not gone because the answer lacks it, and one that joined meanwhile does
/// not come again because the answer has it.
#[test]
fn host_is_not_misled_by_an_update_underway() {
    let mut world = host_world(hosting(2));
    let id = advertised_id(&world);
    world.server.guests.insert("one".into(), 0);
    let count = world.updates().len();
    while world.updates().len() == count {
        world.step(u64::MAX);
    }
    let reservation =
        pb::Reservation { reservation_id: "two".into(), seats: 1, expires_in_ms: 9, ..Default::default() };
    let event = pb::ReservationEvent {
        advertisement_id: id,
        reservation: Some(reservation),
        state: pb::ReservationState::Held.into(),
    };
    world.now_us += 1;
    world.handle(Event::ReservationChanged(event));
    world.handle(Event::SessionChanged { session: session(1), joined_reservation_ids: vec!["one".into()] });
    world.server.guests.insert("two".into(), 9_000);
    world.run_for(Duration::from_secs(10));
    let told: Vec<_> = world.outcomes.iter().skip(1).cloned().collect();
    assert_eq!(told, [Outcome::PartyComing { reservation_id: "two".into(), seats: 1 }]);
}

/// A create whose first answer comes late, after the game cancelled or before: the advertisement is deleted in the end.
#[test]
fn cancel_deletes_an_advertisement_whose_create_was_answered_late() {
    let mut world = World::new(0, None);
    world.scripted = (0..4).map(|_| Err(failure(Code::Unavailable, pb::ErrorReason::Draining))).collect();
    world.handle(Event::BecomeHost(Box::new(hosting(1))));
    let (create, call) = (world.requests[0].1.clone(), world.call_ids[0]);
    while !world.scripted.is_empty() {
        world.step(u64::MAX);
    }
    world.run_for(Duration::from_millis(100));
    let result = world.server.answer(&create);
    world.scripted = (0..8).map(|_| Err(failure(Code::Unavailable, pb::ErrorReason::Draining))).collect();
    world.handle(Event::Answer { id: call, result });
    assert!(world.outcomes.is_empty() && world.server.adverts.len() == 1);
    world.handle(Event::Cancel);
    world.scripted.clear();
    world.run_for(Duration::from_secs(20));
    assert!(world.server.adverts.is_empty());
}

/// A guest that does not come is gone, by the list of the next heartbeat or by an event of the stream.
#[test]
fn host_hears_of_guests_that_do_not_come() {
    let mut world = host_world(hosting(2));
    world.server.guests.insert("one".into(), 15_000);
    world.run_for(Duration::from_secs(3));
    world.server.guests.clear();
    world.run_for(Duration::from_secs(3));
    let event = |state: pb::ReservationState, id: String| pb::ReservationEvent {
        advertisement_id: id,
        reservation: Some(pb::Reservation {
            reservation_id: "two".into(),
            seats: 1,
            expires_in_ms: 9,
            ..Default::default()
        }),
        state: state.into(),
    };
    let id = advertised_id(&world);
    world.server.guests.insert("two".into(), 15_000);
    world.handle(Event::ReservationChanged(event(pb::ReservationState::Held, "another".into())));
    world.handle(Event::ReservationChanged(event(pb::ReservationState::Held, id.clone())));
    world.server.guests.clear();
    world.handle(Event::ReservationChanged(event(pb::ReservationState::Expired, id)));
    let told: Vec<_> = world
        .outcomes
        .iter()
        .filter(|it| matches!(it, Outcome::PartyComing { .. } | Outcome::PartyGone { .. }))
        .cloned()
        .collect();
    let coming = |id: &str| Outcome::PartyComing { reservation_id: id.into(), seats: 1 };
    let gone = |id: &str| Outcome::PartyGone { reservation_id: id.into() };
    assert_eq!(told, [coming("one"), gone("one"), coming("two"), gone("two")]);
    world.run_for(Duration::from_secs(5));
    assert_eq!(world.state(), MatchingState::Advertising, "a confirmation of a lost reservation is no end");
}

/// 30 s without a guest: the advertisement is deleted, and the action is drawn again. A guest on its way starts the time again.
#[test]
fn host_that_stays_alone_draws_again() {
    let mut world = host_world(hosting(3));
    let id = advertised_id(&world);
    world.server.guests.insert("guest".into(), 15_000);
    world.run_for(Duration::from_secs(40));
    assert_eq!(world.state(), MatchingState::Advertising);
    world.server.guests.clear();
    world.server.advertises = false;
    world.run_for(Duration::from_secs(25));
    assert_eq!(world.state(), MatchingState::Advertising);
    world.run_to(MatchingState::Searching);
    assert!(has_deleted(&world, &id) && world.server.adverts.is_empty());
    assert!(world.outcomes.contains(&Outcome::Withdrawn));
    assert_eq!(world.searches()[0].1.exclude_advertisement_ids, [id], "the own session");
}

/// A full session is not advertised any longer, unless the game wants to keep it; a free seat opens it again.
#[test]
fn host_that_is_full_is_joined() {
    let mut world = host_world(hosting(1));
    let id = advertised_id(&world);
    world.handle(Event::SessionChanged { session: session(0), joined_reservation_ids: vec!["guest".into()] });
    world.run_to(MatchingState::Joined);
    assert!(has_deleted(&world, &id));
    assert!(world.outcomes.ends_with(&[Outcome::SessionFull, Outcome::Withdrawn]));
    world.handle(Event::SessionChanged { session: session(1), joined_reservation_ids: Vec::new() });
    world.run_for(Duration::from_secs(60));
    assert_eq!(world.state(), MatchingState::Advertising);
    assert_ne!(advertised_id(&world), id);

    let mut world = host_world(HostedSession { keep_when_full: true, ..hosting(1) });
    world.handle(Event::SessionChanged { session: session(0), joined_reservation_ids: vec!["guest".into()] });
    world.run_for(Duration::from_secs(60));
    assert_eq!(world.state(), MatchingState::Advertising);
    assert_eq!(world.outcomes.iter().filter(|it| **it == Outcome::SessionFull).count(), 1);
}

/// A game server is advertised as one, stays while it is full, and does not search when it is refused.
#[test]
fn game_server_is_advertised_and_never_searches() {
    let game_server = || HostedSession { kind: pb::AdvertisementKind::GameServer, keep_when_full: true, ..hosting(2) };
    let mut world = World::new(3, None);
    world.handle(Event::BecomeHost(Box::new(game_server())));
    world.run_to(MatchingState::Advertising);
    world.run_for(Duration::from_millis(100));
    assert_eq!(world.updates()[0].kind(), pb::AdvertisementKind::GameServer);
    assert_eq!(host_world(hosting(2)).updates()[0].kind(), pb::AdvertisementKind::Session);

    let mut world = World::new(3, None);
    let refusal = failure(Code::ResourceExhausted, pb::ErrorReason::TooManyAdvertisements);
    world.scripted.push_back(Err(refusal.clone()));
    world.handle(Event::BecomeHost(Box::new(game_server())));
    world.run_for(Duration::from_secs(60));
    assert_eq!(world.outcomes, [Outcome::Ended(EndReason::Failed(refusal))]);
}

/// Cancel deletes the advertisement, also one whose create is not answered yet.
#[test]
fn cancel_deletes_the_advertisement() {
    let mut world = host_world(hosting(1));
    world.handle(Event::Cancel);
    world.run_to(MatchingState::Ended);
    assert!(world.server.adverts.is_empty());

    let options = MatchingOptions { hosting: Some(hosting(1)), ..MatchingOptions::new(7, party()) };
    let mut world = World::with_options(options, 0, None);
    world.server.advertises = true;
    world.start();
    world.run_to(MatchingState::Advertising);
    assert!(world.outcomes.is_empty());
    world.handle(Event::Cancel);
    world.run_to(MatchingState::Ended);
    assert!(world.server.adverts.is_empty());
    assert_eq!(world.outcomes, [Outcome::Ended(EndReason::Cancelled)]);
}

/// An advertisement that the server lost is published again; one that was deleted is created again.
#[test]
fn host_publishes_again_after_a_loss() {
    let mut world = host_world(hosting(1));
    let id = advertised_id(&world);
    world.server.adverts.clear();
    world.run_for(Duration::from_secs(4));
    assert!(world.server.adverts.contains(&id));
    let full = world.updates().into_iter().filter(|update| update.session_composition.is_some());
    let full: Vec<_> = full.collect();
    assert_eq!((full.len(), full[1].advertisement_id.clone()), (2, id.clone()));
    world.scripted.push_back(Err(failure(Code::FailedPrecondition, pb::ErrorReason::AdvertisementDeleted)));
    world.run_for(Duration::from_secs(6));
    assert_ne!(advertised_id(&world), id);
    assert!(world.updates().last().is_some_and(|update| update.advertisement_id == advertised_id(&world)));

    let options = MatchingOptions {
        hosting: Some(hosting(1)),
        service_configuration_hash: Some(9),
        ..MatchingOptions::new(7, party())
    };
    let mut world = World::with_options(options, 0, None);
    world.server.advertises = true;
    world.start();
    world.run_to(MatchingState::Advertising);
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.server.adverts.len(), 1, "by the current ruleset");
}

/// Updates that fail for a while are repeated, a second apart, and lose no news.
#[test]
fn host_survives_an_outage() {
    let mut world = host_world(hosting(2));
    world.scripted = (0..8).map(|_| Err(failure(Code::Unavailable, pb::ErrorReason::StoreUnavailable))).collect();
    world.server.guests.insert("guest".into(), 0);
    world.handle(Event::SessionChanged { session: session(1), joined_reservation_ids: vec!["guest".into()] });
    world.run_for(Duration::from_secs(15));
    assert!(world.scripted.is_empty());
    assert!(world.server.guests.is_empty(), "settled after the outage");
    let times: Vec<u64> =
        world.requests.iter().filter(|it| matches!(it.1, Request::UpdateAdvertisement(_))).map(|it| it.0).collect();
    assert!(times[1..].windows(2).all(|pair| 100_000 <= pair[1] - pair[0]));
}

/// The server does not take the session: a drawn party searches, and a session with players ends with the reason.
#[test]
fn host_that_is_refused_searches() {
    let refusal = failure(Code::ResourceExhausted, pb::ErrorReason::TooManyAdvertisements);
    let options = MatchingOptions { hosting: Some(hosting(1)), ..MatchingOptions::new(7, party()) };
    let mut world = World::with_options(options, 0, None);
    world.server.advertises = true;
    let advertise = world.server.answer(&Request::ChooseAction(Default::default()));
    world.scripted.extend([advertise, Err(refusal.clone())]);
    world.start();
    world.run_to(MatchingState::Searching);

    let mut world = World::new(0, None);
    world.scripted.push_back(Err(refusal.clone()));
    world.handle(Event::BecomeHost(Box::new(hosting(1))));
    world.run_to(MatchingState::Ended);
    assert_eq!(world.outcomes, [Outcome::Ended(EndReason::Failed(refusal))]);
}

/// The host of the joined session left, and this client hosts from now on; later another one does.
#[test]
fn host_migration_opens_and_closes_the_session() {
    let mut world = World::new(1, None);
    world.start();
    world.run_to(MatchingState::Joined);
    world.handle(Event::BecomeHost(Box::new(hosting(2))));
    world.run_for(Duration::from_secs(60));
    assert_eq!(world.state(), MatchingState::Advertising, "guests are there: no other draw");
    assert!(world.server.held.is_empty(), "the seats of the old session");
    world.handle(Event::HostMoved);
    world.run_for(Duration::from_secs(1));
    assert_eq!((world.state(), world.server.adverts.len()), (MatchingState::Joined, 0));
    world.handle(Event::SessionChanged { session: session(2), joined_reservation_ids: Vec::new() });
    assert_eq!(world.state(), MatchingState::Joined, "another client hosts");
    world.handle(Event::Cancel);
    world.run_to(MatchingState::Ended);
}
