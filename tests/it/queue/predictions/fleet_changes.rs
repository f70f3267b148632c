//! Changes of the fleet of beacons while tickets wait: the queue, in which nothing else changes, runs another pass.

use super::*;

/// Duels within 100 ms, in a queue that nothing but a change wakes.
fn resting_ruleset(pass_interval_ms: u32) -> RulesetDirectory {
    let text = ruleset_text(2, r#"Source="predicted""#, WITHIN_100_MS);
    let queue = format!(r#"PassIntervalMs="{pass_interval_ms}" TicketTtlMs="3600000""#);
    RulesetDirectory::with_files(&[("predicted.xml", &text.replace(r#"PassIntervalMs="10""#, &queue))])
}

/// Two players of different networks, who wait until a pass has refused them.
async fn refused_pair(site: Site<'_>, fleet: &mut Fleet) -> [QueuedParty; 2] {
    fleet.announce(&site.fleet_caller().await).await;
    let [anns, bobs] = [fleet.token(&site, ANN, 0, 25).await, fleet.token(&site, BOB, 1, 25).await];
    let mut pair = [site.enter(ANN, anns).await, site.enter(BOB, bobs).await];
    for party in &mut pair {
        site.wait_for_refusing_pass(party).await;
    }
    pair
}

/// Waits until the two are matched, and returns the source of the round trip between them.
async fn source_when_matched(site: Site<'_>, mut pair: [QueuedParty; 2]) -> wire::RoundTripSource {
    let statuses = join_all(pair.iter_mut().map(|party| party.wait_for_state(TicketState::Matched))).await;
    let match_id = statuses[0].found_match.as_ref().expect("a match").match_id.clone();
    site.found_match(&match_id).await.worst_pair.expect("a pair").round_trip.expect("a round trip").source()
}

/// S0-23, LAT-2: the fleet dies between enter and match. Without it distance decides, by which the two are near enough.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queue_runs_a_pass_when_its_beacons_die() {
    let (folder, clock) = (resting_ruleset(10), Arc::new(TestClock::new()));
    let issuer = TokenIssuer::new(&*clock);
    let server = start_server(&folder, &clock, &issuer, None).await;
    let site = Site { server: &server, issuer: &issuer };
    let pair = refused_pair(site, &mut Fleet::new()).await;
    clock.advance_ms(60_000);
    assert_eq!(source_when_matched(site, pair).await, wire::RoundTripSource::Distance);
}

/// S0-23: a beacon joins, and with it the round trips between the others are taken again, which have become shorter. The next pass
/// waits for the interval of the ruleset, and no longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queue_runs_a_pass_when_a_beacon_joins() {
    let (folder, clock) = (resting_ruleset(1_500), Arc::new(TestClock::new()));
    let issuer = TokenIssuer::new(&*clock);
    let server = start_server(&folder, &clock, &issuer, None).await;
    let (site, mut fleet) = (Site { server: &server, issuer: &issuer }, Fleet::new());
    let pair = refused_pair(site, &mut fleet).await;
    fleet.between_networks_ms = 20.0;
    fleet.beacons.push(Fleet::beacon(BEACONS + 1));
    fleet.announce(&site.fleet_caller().await).await;
    assert_eq!(source_when_matched(site, pair).await, wire::RoundTripSource::Predicted);
}
