//! Draw, searches and waits.

use std::time::Duration;

use tonic::Code;

use crate::matching::tests::server::failure;
use crate::matching::tests::world::{World, hosting, id, party, plan};
use crate::matching::{EndReason, Event, MatchingOptions, MatchingState, Outcome, Request};
use crate::pb;

/// Without a latency plan, as from a server before it, there are no probes, and the server's order decides.
#[test]
fn search_without_a_plan_joins_in_the_servers_order() {
    let mut world = World::new(3, None);
    world.server.sessions[0].refuses = Some(pb::ErrorReason::SeatsTaken);
    world.start();
    world.run_to(MatchingState::Joined);
    assert_eq!(world.reserved(), [id(0), id(1)]);
    assert!(world.packets.is_empty() && world.reports().is_empty());
    use MatchingState::{Joined, Joining, Searching};
    assert_eq!(world.states, [Searching, Joining, Joined]);
}

/// Rounds go on with the token of the last answer, when the limits have relaxed: after 0.5 to 5 s, a fifth more or less.
#[test]
fn search_is_repeated_when_its_limits_relax() {
    for (next_expansion_in_ms, range_ms) in
        [(Some(1), 400..=600), (Some(2_000), 1_600..=2_400), (Some(60_000), 4_000..=6_000), (None, 4_000..=6_000)]
    {
        let mut world = World::new(0, None);
        world.server.next_expansion_in_ms = next_expansion_in_ms;
        world.start();
        world.run_for(Duration::from_secs(20));
        let searches = world.searches();
        assert_eq!(searches[0].1.search_token, b"");
        assert_eq!(searches[2].1.search_token, b"token 2");
        let mut waits: Vec<u64> = searches.windows(2).map(|pair| (pair[1].0 - pair[0].0) / 1_000 - 20).collect();
        assert!(waits.iter().all(|ms| range_ms.contains(ms)), "{next_expansion_in_ms:?}: {waits:?}");
        waits.dedup();
        assert!(waits.len() > 1, "the waits differ");
    }
}

/// After 30 s of rounds without a join the action is drawn again; the search goes on with its token.
#[test]
fn search_is_followed_by_another_draw_after_30_s() {
    let options = MatchingOptions { hosting: Some(hosting(3)), ..MatchingOptions::new(7, party()) };
    let mut world = World::with_options(options, 0, None);
    world.start();
    world.run_for(Duration::from_secs(70));
    let draws = world.requests.iter().filter(|(_, request)| matches!(request, Request::ChooseAction(_)));
    let draws: Vec<u64> = draws.map(|(at_us, _)| *at_us / 1_000_000).collect();
    assert_eq!(draws.len(), 3);
    assert!(draws.windows(2).all(|pair| (30..=33).contains(&(pair[1] - pair[0]))), "{draws:?}");
    assert!(world.searches().iter().skip(1).all(|(_, search)| !search.search_token.is_empty()));
}

/// A search that was not repeated for 50 s is a new one, since the server forgets it after 60 s.
#[test]
fn search_after_a_long_pause_is_a_new_one() {
    let options = MatchingOptions {
        hosting: Some(hosting(3)),
        redraw_after: Duration::from_secs(55),
        ..MatchingOptions::new(7, party())
    };
    let mut world = World::with_options(options, 0, None);
    world.start();
    world.run_for(Duration::from_secs(50));
    world.server.advertises = true;
    world.run_to(MatchingState::Advertising);
    world.server.advertises = false;
    let before = world.searches().len();
    world.run_to(MatchingState::Waiting);
    assert_eq!(world.searches()[before].1.search_token, b"");
}

/// A stale ruleset is fetched, and the search begins again with it. A server that goes on calling it stale is not flooded.
#[test]
fn search_with_a_stale_ruleset_begins_again() {
    let options = MatchingOptions { service_configuration_hash: Some(9), ..MatchingOptions::new(7, party()) };
    let mut world = World::with_options(options.clone(), 1, None);
    world.start();
    world.run_to(MatchingState::Joined);
    let hashes: Vec<_> = world.searches().iter().map(|(_, search)| search.service_configuration_hash).collect();
    assert_eq!(hashes, [Some(9), Some(1)]);

    let mut world = World::with_options(options, 1, None);
    let stale = Err(failure(Code::FailedPrecondition, pb::ErrorReason::StaleConfiguration));
    let configuration = || Ok(crate::matching::Answer::GetConfiguration(Default::default()));
    world.scripted = (0..3).flat_map(|_| [stale.clone(), configuration()]).chain([stale.clone()]).collect();
    world.start();
    world.run_to(MatchingState::Waiting);
    assert_eq!(world.searches().len(), 4);
}

/// UNAVAILABLE is repeated with growing pauses, and then the loop waits for its next round. Final failures end it.
#[test]
fn search_that_fails_is_repeated_unless_it_can_never_succeed() {
    let mut world = World::new(1, None);
    let unavailable = || Err(failure(Code::Unavailable, pb::ErrorReason::StoreUnavailable));
    world.scripted = (0..4).map(|_| unavailable()).collect();
    world.start();
    world.run_to(MatchingState::Waiting);
    let times: Vec<u64> = world.searches().iter().map(|(at_us, _)| *at_us / 1_000).collect();
    let pauses: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0] - 20).collect();
    assert!(pauses.len() == 3 && pauses[0] >= 100 && pauses[1] >= 200 && pauses[2] >= 400, "{pauses:?}");
    world.run_to(MatchingState::Joined);

    for (code, reason) in [
        (Code::InvalidArgument, pb::ErrorReason::InvalidRequest),
        (Code::Unauthenticated, pb::ErrorReason::CredentialsExpired),
        (Code::NotFound, pb::ErrorReason::UnknownMatchmakingSet),
        (Code::FailedPrecondition, pb::ErrorReason::SetRetired),
    ] {
        let mut world = World::new(1, None);
        world.scripted.push_back(Err(failure(code, reason)));
        world.start();
        world.run_to(MatchingState::Ended);
        assert_eq!(world.outcomes, [Outcome::Ended(EndReason::Failed(failure(code, reason)))]);
    }
}

/// A server may ask for a longer pause. A token that another server does not know is dropped, once.
#[test]
fn search_obeys_the_servers_delay_and_drops_unknown_tokens() {
    let mut world = World::new(0, None);
    let limited = failure(Code::ResourceExhausted, pb::ErrorReason::RateLimited);
    let invalid = failure(Code::InvalidArgument, pb::ErrorReason::InvalidRequest);
    world.start();
    world.run_to(MatchingState::Waiting);
    world.scripted.push_back(Err(crate::matching::CallError { retry_after_ms: Some(20_000), ..limited }));
    world.run_to(MatchingState::Searching);
    world.run_to(MatchingState::Waiting);
    let before = world.searches().len();
    world.scripted.push_back(Err(invalid));
    world.run_to(MatchingState::Searching);
    world.run_to(MatchingState::Waiting);
    let searches = world.searches();
    assert!(20_000_000 <= searches[before].0 - searches[before - 1].0);
    assert_eq!(searches[before + 1].1.search_token, b"");
}

/// Calls that are never answered count as failed, and answers of another kind too: no state waits for them.
#[test]
fn search_goes_on_without_answers() {
    let mut world = World::new(0, plan_of_8());
    world.start();
    let Some((_, Request::Search(_))) = world.requests.first() else { panic!("a search") };
    world.scripted.push_back(Ok(crate::matching::Answer::Release));
    world.run_to(MatchingState::Waiting);
    world.run_to(MatchingState::Searching);
    world.run_to(MatchingState::Waiting);

    let mut world = World::new(1, None);
    world.matching.handle(Event::Start, crate::matching::MonotonicTime::from_micros(world.now_us));
    while world.matching.poll_call().is_some() {}
    world.run_to(MatchingState::Joined);
    assert_eq!(world.searches().len(), 1, "the second attempt");
}

fn plan_of_8() -> Option<pb::LatencyPlan> {
    Some(plan(8, 0))
}

/// A loop with a limit ends without a session; one without a limit goes on.
#[test]
fn search_gives_up_after_its_limit() {
    let options = MatchingOptions { give_up_after: Some(Duration::from_secs(40)), ..MatchingOptions::new(7, party()) };
    let mut world = World::with_options(options, 0, None);
    world.start();
    world.run_for(Duration::from_secs(39));
    assert_ne!(world.state(), MatchingState::Ended);
    world.run_for(Duration::from_secs(2));
    assert_eq!(world.outcomes, [Outcome::Ended(EndReason::GaveUp)]);

    let mut world = World::new(0, None);
    world.start();
    world.run_for(Duration::from_secs(3_600));
    assert!(world.outcomes.is_empty());
    world.handle(Event::Cancel);
    assert_eq!(world.outcomes, [Outcome::Ended(EndReason::Cancelled)]);
    world.handle(Event::Cancel);
    world.start();
    assert_eq!((world.outcomes.len(), world.state()), (1, MatchingState::Ended));
}
