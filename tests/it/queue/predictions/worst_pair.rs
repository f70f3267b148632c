//! Worst pair of a match: operators learn the two tickets, the round trip with its interval, and its source; players a bound in steps.

use super::*;

/// Two servers of a set, or one that both names stand for.
type Sites<'s> = [Site<'s>; 2];

/// Matches ann and cai, who are of one network, with bob of another. Returns what operators see of the match.
async fn match_of_two_networks(sites: Sites<'_>) -> wire::GetMatchResponse {
    let [one, two] = sites;
    let mut fleet = Fleet::new();
    for site in sites {
        fleet.announce(&site.fleet_caller().await).await;
    }
    let tokens =
        [fleet.token(&one, ANN, 0, 25).await, fleet.token(&one, BOB, 1, 25).await, fleet.token(&one, CAI, 0, 25).await];
    let [anns, bobs, cais] = tokens;
    let mut parties = [one.enter(ANN, anns).await, two.enter(BOB, bobs).await, one.enter(CAI, cais).await];
    let statuses = join_all(parties.iter_mut().map(|party| party.wait_for_state(TicketState::Matched))).await;
    let found: Vec<&pb::MatchStatus> = statuses.iter().filter_map(|status| status.found_match.as_ref()).collect();
    let bound_ms = found[0].worst_round_trip_ms.expect("a bound");
    assert!(found.iter().all(|it| it.worst_round_trip_ms == Some(bound_ms)), "{found:?}");

    let told = one.found_match(&found[0].match_id).await;
    let worst = told.worst_pair.clone().expect("a pair");
    assert!(worst.ticket_ids.len() == 2 && worst.ticket_ids.iter().any(|id| id == parties[1].ticket.id()), "{worst:?}");
    let round_trip = worst.round_trip.expect("a round trip");
    let (round_trip_ms, low_ms, high_ms) =
        (round_trip.round_trip_ms, round_trip.low_ms.unwrap(), round_trip.high_ms.unwrap());
    assert!(150.0 < round_trip_ms && low_ms < round_trip_ms && round_trip_ms < high_ms, "{worst:?}");
    assert_eq!(round_trip.source(), wire::RoundTripSource::Predicted);
    let bound_ms = f64::from(bound_ms);
    assert!(high_ms <= bound_ms && bound_ms < high_ms + 25.0 && bound_ms % 25.0 == 0.0, "{bound_ms} of {worst:?}");
    told
}

/// LAT-1: operators see the worst pair, also after a restart, and players a bound.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worst_pair_of_a_match_is_a_bound_in_steps_for_its_players() {
    let (folder, clock) =
        (ruleset(3, r#"Source="predicted""#, r#"<Hosting Mode="none"/>"#), Arc::new(TestClock::new()));
    let issuer = TokenIssuer::new(&*clock);
    let store = StoreTarget::Sqlite(folder.path().join("store.db"));
    let server = start_server(&folder, &clock, &issuer, Some(store)).await;
    let told = match_of_two_networks([Site { server: &server, issuer: &issuer }; 2]).await;
    let server = server.restart().await;
    let site = Site { server: &server, issuer: &issuer };
    assert_eq!(site.found_match(&told.match_id).await.worst_pair, told.worst_pair);
}

/// LAT-1, R9: servers that share a store tell the same pair, also the one that did not make the match.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worst_pair_is_the_same_at_each_server() {
    let Some(database) = create_test_database("worst_pair").await else { return };
    let (folder, clock) =
        (ruleset(3, r#"Source="predicted""#, r#"<Hosting Mode="none"/>"#), Arc::new(TestClock::new()));
    let issuer = TokenIssuer::new(&*clock);
    let configure = |config: &mut Config| configure_site(config, &folder, &issuer);
    let (one, two) = servers_on_one_postgres(&database.url, &clock, configure).await;
    let sites = [Site { server: &one, issuer: &issuer }, Site { server: &two, issuer: &issuer }];
    let told = match_of_two_networks(sites).await;
    assert_eq!(sites[1].found_match(&told.match_id).await.worst_pair, told.worst_pair);
}

/// LAT-1: a round trip that is unknown is worse than any: players learn no bound. Without predictions there is none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worst_pair_may_be_unknown_or_not_estimated() {
    /// No place is known for this address.
    const LOU: (&str, &str, f64) = ("lou", "198.19.0.7", 0.0);
    for (source, is_estimated) in [("predicted", true), ("distance", false)] {
        let latency = format!(r#"Source="{source}""#);
        let (folder, clock) = (ruleset(3, &latency, r#"<Hosting Mode="none"/>"#), Arc::new(TestClock::new()));
        let issuer = TokenIssuer::new(&*clock);
        let server = start_server(&folder, &clock, &issuer, None).await;
        let site = Site { server: &server, issuer: &issuer };
        let mut parties = Vec::new();
        for player in [ANN, EVE, LOU] {
            parties.push(site.enter(player, Vec::new()).await);
        }
        let lous = parties[2].ticket.id().to_owned();
        let found = parties[0].wait_for_state(TicketState::Matched).await.found_match.expect("a match");
        assert_eq!(found.worst_round_trip_ms, None);
        let worst = site.found_match(&found.match_id).await.worst_pair;
        assert_eq!(worst.is_some(), is_estimated, "{source}");
        if let Some(worst) = worst {
            assert!(worst.ticket_ids.len() == 2 && worst.ticket_ids.contains(&lous), "{worst:?}");
            assert_eq!(worst.round_trip, None);
        }
    }
}
