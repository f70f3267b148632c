//! Predictions with two servers on one Postgres: round trips are renewed at one server and count at the other.

use super::*;

/// LAT-1, R9: round trips that are renewed at another server than where the ticket was entered count wherever the match is made: its
/// host and its region follow from them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn vectors_renewed_at_one_server_choose_host_and_region_at_another() {
    let Some(database) = create_test_database("renewed_vectors").await else { return };
    let limits = r#"<ExpansionConfigs><ExpansionConfig Name="reach" Type="latency">
    <Expansion ExpansionDurationMs="-1" Value="150"/>
  </ExpansionConfig></ExpansionConfigs>
  <Hosting Mode="peer"/>"#;
    let queue =
        r#"<Queue PassIntervalMs="10" TicketTtlMs="3600000"><Regions Mode="filter" Expansion="reach"/></Queue>"#;
    let text = ruleset_text(3, r#"Source="predicted""#, limits).replace(r#"<Queue PassIntervalMs="10"/>"#, queue);
    let (folder, clock) = (RulesetDirectory::with_files(&[("predicted.xml", &text)]), Arc::new(TestClock::new()));
    let issuer = TokenIssuer::new(&*clock);
    let configure = |config: &mut Config| configure_site(config, &folder, &issuer);
    let (one, two) = servers_on_one_postgres(&database.url, &clock, configure).await;
    let (one, two) = (Site { server: &one, issuer: &issuer }, Site { server: &two, issuer: &issuer });
    let mut fleet = Fleet::new();
    let pass_time = async |fleet: &Fleet, steps: u32| {
        for _ in 0..steps {
            clock.advance_ms(40_000);
            for site in [one, two] {
                fleet.announce(&site.fleet_caller().await).await;
            }
        }
    };
    pass_time(&fleet, 1).await;
    let [anns, bobs] = [fleet.token(&one, ANN, 0, 100).await, fleet.token(&two, BOB, 0, 100).await];
    let ann = one.enter(ANN, anns).await.ticket.reference();
    clock.advance_ms(10);
    let bob = two.enter(BOB, bobs).await.ticket.reference();
    pass_time(&fleet, 10).await;
    // Each at the other server.
    for (site, player, ticket) in [(two, ANN, &ann), (one, BOB, &bob)] {
        let renewed = fleet.token(&site, player, 0, 100).await;
        site.beat(player, ticket, &renewed).await;
    }
    // 800 s after they entered, 400 s after they measured again.
    pass_time(&fleet, 10).await;
    let cais = fleet.token(&two, CAI, 0, 25).await;
    let cai = two.enter(CAI, cais).await.ticket.reference();

    let is_host = async |site: Site<'_>, player: (&str, &'static str, f64), ticket: &pb::TicketReference| {
        let mut found = None;
        wait_until("a match", async || {
            let status = site.beat(player, ticket, &[]).await;
            found = status.found_match.clone().filter(|_| status.state() == TicketState::Matched);
            found.is_some()
        })
        .await;
        let found = found.expect("a match");
        assert_eq!(found.region, "even");
        let worst = site.found_match(&found.match_id).await.worst_pair.expect("a pair");
        assert_eq!(worst.round_trip.expect("a round trip").source(), wire::RoundTripSource::Predicted);
        match found.assignment.and_then(|assignment| assignment.host) {
            Some(pb::assignment::Host::PeerHost(peer)) => peer.is_own,
            other => panic!("a player hosts: {other:?}"),
        }
    };
    for site in [one, two] {
        assert!(is_host(site, CAI, &cai).await, "the player whose farthest opponent is nearest");
        assert!(!is_host(site, ANN, &ann).await && !is_host(site, BOB, &bob).await);
    }
}
