//! Latency tokens in the queue loop: entered with the ticket, and renewed while it waits.

use super::*;

/// A latency token is entered with the ticket. The repeated Enter of a restored loop is the same: its watch has the later token.
#[test]
fn latency_token_is_entered_with_the_ticket() {
    let mut queueing =
        Queueing::new(pb::QueueEnterRequest { matchmaking_set_id: Some(7), ..Default::default() }, [3; 32]);
    queueing.handle(QueueEvent::LatencyToken(b"first".to_vec().into()), MonotonicTime::default());
    let mut scene = Scene::of(queueing);
    let saved = scene.queueing.saved_bytes();
    scene.handle(QueueEvent::LatencyToken(b"late".to_vec().into()));
    let QueueRequest::Enter(enter) = &scene.calls[0].request else { panic!("{:?}", scene.calls) };
    assert_eq!(enter.session_composition.as_ref().unwrap().latency_token, b"first");
    assert!(!scene.queueing.is_entered());
    scene.answer(Ok(entered()));
    assert!(scene.queueing.is_entered());
    assert_eq!((scene.calls.len(), scene.watches[0].latency_token.as_slice()), (1, b"late".as_slice()));

    let mut restored = Queueing::from_saved_bytes(&saved, [4; 32]).unwrap();
    restored.handle(QueueEvent::LatencyToken(b"later".to_vec().into()), MonotonicTime::default());
    let mut repeated = Scene::of(restored);
    assert_eq!(repeated.calls[0].request, scene.calls[0].request);
    repeated.answer(Ok(entered()));
    assert_eq!(repeated.watches[0].latency_token, b"later");
}

/// Without a token of the loop, that of the request stays.
#[test]
fn latency_token_of_the_request_is_kept_without_another() {
    let session = pb::SessionCompositionData { latency_token: b"own".to_vec(), ..Default::default() };
    let request = pb::QueueEnterRequest { session_composition: Some(session), ..Default::default() };
    let mut queueing = Queueing::new(request.clone(), [3; 32]);
    queueing.handle(QueueEvent::LatencyToken(Vec::new().into()), MonotonicTime::default());
    let scene = Scene::of(queueing);
    let QueueRequest::Enter(enter) = &scene.calls[0].request else { panic!("{:?}", scene.calls) };
    assert_eq!(enter.session_composition, request.session_composition);
}

/// Tokens of the heartbeats that were asked for.
fn renewals(scene: &Scene) -> Vec<&[u8]> {
    let heartbeats = scene.calls.iter().filter_map(|call| match &call.request {
        QueueRequest::Heartbeat(heartbeat) => Some(&*heartbeat.latency_token),
        _ => None,
    });
    heartbeats.collect()
}

/// A waiting ticket's round trips are renewed with each new token, one call at a time. A call that fails is repeated.
#[test]
fn waiting_ticket_renews_its_round_trips() {
    let mut scene = Scene::waiting();
    scene.handle(QueueEvent::LatencyToken(b"one".to_vec().into()));
    let QueueRequest::Heartbeat(heartbeat) = &scene.calls.last().unwrap().request else { panic!("{:?}", scene.calls) };
    assert_eq!(heartbeat.tickets[0].ticket_token, b"secret token");
    scene.handle(QueueEvent::LatencyToken(b"two".to_vec().into()));
    assert_eq!(renewals(&scene), [b"one"], "one at a time");
    scene.answer(Err(error(Code::Unavailable, pb::ErrorReason::StoreUnavailable)));
    scene.pass(Duration::from_secs(1));
    assert_eq!(renewals(&scene), [b"one", b"one"]);
    scene.answer(Ok(QueueAnswer::Heartbeat(Default::default())));
    assert_eq!(renewals(&scene), [b"one", b"one", b"two"]);
    scene.answer(Ok(QueueAnswer::Heartbeat(Default::default())));
    for token in [b"two".as_slice(), b""] {
        scene.handle(QueueEvent::LatencyToken(token.to_vec().into()));
    }
    assert_eq!(renewals(&scene).len(), 3, "neither the same token again nor an expired one");
    scene.status(pb::TicketState::Proposed);
    scene.handle(QueueEvent::LatencyToken(b"three".to_vec().into()));
    assert_eq!(renewals(&scene).last(), Some(&b"three".as_slice()), "the match may fall through");
    assert_eq!(scene.queueing.state(), QueueingState::Watching);
}

/// A token that comes while no watch is open goes with the next watch; one that comes in a match, when the match has fallen through.
#[test]
fn latency_token_waits_for_the_watch_and_for_the_end_of_a_match() {
    let mut scene = Scene::waiting();
    scene.handle(outage());
    scene.handle(QueueEvent::LatencyToken(b"one".to_vec().into()));
    scene.pass(Duration::from_secs(6));
    assert_eq!((renewals(&scene).len(), scene.watches.len()), (0, 2));
    assert_eq!(scene.watches[1].latency_token, b"one");

    let mut scene = Scene::playing();
    assert!(!scene.queueing.needs_latency_token());
    scene.handle(QueueEvent::LatencyToken(b"one".to_vec().into()));
    scene.handle(QueueEvent::LatencyToken(b"two".to_vec().into()));
    assert_eq!(renewals(&scene).len(), 0);
    scene.status(pb::TicketState::Waiting);
    assert!(scene.queueing.needs_latency_token());
    assert_eq!(renewals(&scene), [b"two"]);
    scene.handle(QueueEvent::Cancel);
    scene.answer(Ok(QueueAnswer::Leave(Box::default())));
    assert_eq!(scene.end(), Some(&QueueEnd::Cancelled), "the renewal is not awaited");
}

/// A renewal that fails with all its attempts is sent again half a minute later, or when the server asks for it, with the latest token. One
/// that the server refuses is not.
#[test]
fn failed_renewal_goes_on_later() {
    let mut scene = Scene::waiting();
    scene.handle(QueueEvent::LatencyToken(b"one".to_vec().into()));
    let attempts = 20;
    for _ in 0..attempts {
        scene.answer(Err(error(Code::Unavailable, pb::ErrorReason::StoreUnavailable)));
        let next_attempt = scene.now + Duration::from_secs(6);
        while scene.now < next_attempt && renewals(&scene).len() < attempts {
            scene.status(pb::TicketState::Waiting);
            scene.pass(Duration::from_millis(500));
        }
    }
    assert_eq!(renewals(&scene).len(), attempts);
    for seconds in [29, 1] {
        assert_eq!(renewals(&scene).len(), attempts, "not yet");
        scene.pass(Duration::from_secs(seconds));
        scene.status(pb::TicketState::Waiting);
    }
    assert_eq!(renewals(&scene).len(), attempts + 1);

    let limited =
        CallError { retry_after_ms: Some(45_000), ..error(Code::ResourceExhausted, pb::ErrorReason::RateLimited) };
    scene.answer(Err(limited));
    for milliseconds in [20_000, 20_000, 4_999] {
        scene.pass(Duration::from_millis(milliseconds));
        scene.status(pb::TicketState::Waiting);
    }
    assert_eq!(renewals(&scene).len(), attempts + 1, "the server asks for a longer pause");
    scene.pass(Duration::from_millis(1));
    assert_eq!(renewals(&scene).len(), attempts + 2);
    scene.handle(QueueEvent::LatencyToken(b"two".to_vec().into()));
    scene.answer(Err(error(Code::NotFound, pb::ErrorReason::Unspecified)));
    assert_eq!(renewals(&scene).last(), Some(&b"two".as_slice()), "a newer token does not wait");
    scene.answer(Err(error(Code::InvalidArgument, pb::ErrorReason::Unspecified)));
    for _ in 0..20 {
        scene.pass(Duration::from_secs(20));
        scene.status(pb::TicketState::Waiting);
    }
    assert_eq!(renewals(&scene).len(), attempts + 3, "the same token is refused again");
}
