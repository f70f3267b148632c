//! Changes of the fleet of beacons while tickets wait: the queue, in which nothing else changes, runs another pass. With one server, with
//! two on one Postgres, and after a restart.

use super::*;

type Player = (&'static str, &'static str, f64);

/// Duels within 100 ms, in a queue that nothing but a change wakes.
fn resting_ruleset(pass_interval_ms: u32) -> RulesetDirectory {
    let text = ruleset_text(2, r#"Source="predicted""#, WITHIN_100_MS);
    let queue = format!(r#"PassIntervalMs="{pass_interval_ms}" TicketTtlMs="3600000""#);
    RulesetDirectory::with_files(&[("predicted.xml", &text.replace(r#"PassIntervalMs="10""#, &queue))])
}

/// Change of the fleet that lets two players meet whom it has kept apart.
#[derive(Clone, Copy, Debug)]
enum Change {
    /// Without the fleet, distance decides, by which the two are near enough.
    Death,
    /// A beacon joins, and with it the round trips between the others are taken again, which have become shorter.
    Arrival,
}

impl Change {
    /// Makes the change; beacons announce themselves at this server.
    async fn make(self, site: Site<'_>, fleet: &mut Fleet) {
        match self {
            Self::Death => site.server.clock.advance_ms(60_000),
            Self::Arrival => {
                fleet.between_networks_ms = 20.0;
                fleet.beacons.push(Fleet::beacon(BEACONS + 1));
                fleet.announce(&site.fleet_caller().await).await;
            }
        }
    }

    /// Source of the round trip between the two afterwards.
    fn source(self) -> wire::RoundTripSource {
        match self {
            Self::Death => wire::RoundTripSource::Distance,
            Self::Arrival => wire::RoundTripSource::Predicted,
        }
    }
}

/// Tickets of two players of different networks.
struct Pair([(Player, pb::TicketReference); 2]);

impl Pair {
    /// Enters ann at one server and bob at the other; both names may stand for one server.
    async fn enter([one, two]: [Site<'_>; 2], fleet: &mut Fleet) -> Self {
        fleet.announce(&one.fleet_caller().await).await;
        let at_two = LatencyCaller::new(two.server, two.issuer, Role::Client, BOB.0, BOB.1).await;
        let is_known = async || at_two.beacons().await.beacons.len() == BEACONS as usize;
        wait_until("the other server knows the beacons", is_known).await;
        let [anns, bobs] = [fleet.token(&one, ANN, 0, 25).await, fleet.token(&two, BOB, 1, 25).await];
        let ann = one.enter(ANN, anns).await.ticket.reference();
        Self([(ANN, ann), (BOB, two.enter(BOB, bobs).await.ticket.reference())])
    }

    /// Waits until a pass has refused the two for their round trip, as the server tells that runs the passes.
    async fn wait_for_refusing_pass(&self, sites: &[Site<'_>]) {
        wait_until("a pass refuses the pair", async || {
            for site in sites {
                let statuses = join_all(self.0.iter().map(|(player, ticket)| site.beat(*player, ticket, &[]))).await;
                if statuses.iter().all(|status| status.blocking_rule == "latency") {
                    return true;
                }
            }
            false
        })
        .await;
    }

    /// Waits until the two are matched, and returns the source of the round trip between them.
    async fn source_when_matched(&self, site: Site<'_>) -> wire::RoundTripSource {
        let mut matches = Vec::new();
        for (player, ticket) in &self.0 {
            wait_until("the two are matched", async || {
                let status = site.beat(*player, ticket, &[]).await;
                matches.extend(status.found_match.iter().map(|found| found.match_id.clone()));
                status.state() == TicketState::Matched
            })
            .await;
        }
        assert_eq!(matches.first(), matches.last());
        let found = site.found_match(&matches[0]).await;
        found.worst_pair.expect("a pair").round_trip.expect("a round trip").source()
    }
}

/// S0-23: a change of the fleet runs a pass at a server of its own. With an interval of the ruleset of 1.5 s, the pass waits for that, and
/// no longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queue_runs_a_pass_when_its_fleet_changes() {
    for (change, pass_interval_ms) in [(Change::Death, 10), (Change::Arrival, 1_500)] {
        let (folder, clock) = (resting_ruleset(pass_interval_ms), Arc::new(TestClock::new()));
        let issuer = TokenIssuer::new(&*clock);
        let server = start_server(&folder, &clock, &issuer, None).await;
        let (site, mut fleet) = (Site { server: &server, issuer: &issuer }, Fleet::new());
        let pair = Pair::enter([site; 2], &mut fleet).await;
        pair.wait_for_refusing_pass(&[site]).await;
        change.make(site, &mut fleet).await;
        assert_eq!(pair.source_when_matched(site).await, change.source(), "{change:?}");
    }
}

/// S0-23, R9: the same with two servers on one Postgres, where the beacons announce themselves at one: the one that runs the queue learns it,
/// and both tell the same match.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queue_of_two_servers_runs_a_pass_when_its_fleet_changes() {
    for change in [Change::Death, Change::Arrival] {
        let Some(database) = create_test_database("fleet_changes").await else { return };
        let (folder, clock) = (resting_ruleset(10), Arc::new(TestClock::new()));
        let issuer = TokenIssuer::new(&*clock);
        let configure = |config: &mut Config| configure_site(config, &folder, &issuer);
        let (one, two) = servers_on_one_postgres(&database.url, &clock, configure).await;
        let sites = [Site { server: &one, issuer: &issuer }, Site { server: &two, issuer: &issuer }];
        let mut fleet = Fleet::new();
        let pair = Pair::enter(sites, &mut fleet).await;
        pair.wait_for_refusing_pass(&sites).await;
        change.make(sites[0], &mut fleet).await;
        for site in sites {
            assert_eq!(pair.source_when_matched(site).await, change.source(), "{change:?}");
        }
    }
}

/// S0-23, R8: beacons are in the store: after a restart the queue is judged by them again, until the fleet changes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queue_runs_a_pass_when_its_fleet_changes_after_a_restart() {
    for change in [Change::Death, Change::Arrival] {
        let (folder, clock) = (resting_ruleset(10), Arc::new(TestClock::new()));
        let issuer = TokenIssuer::new(&*clock);
        let store = StoreTarget::Sqlite(folder.path().join("store.db"));
        let server = start_server(&folder, &clock, &issuer, Some(store)).await;
        let mut fleet = Fleet::new();
        let pair = Pair::enter([Site { server: &server, issuer: &issuer }; 2], &mut fleet).await;
        let server = server.restart().await;
        let site = Site { server: &server, issuer: &issuer };
        pair.wait_for_refusing_pass(&[site]).await;
        change.make(site, &mut fleet).await;
        assert_eq!(pair.source_when_matched(site).await, change.source(), "{change:?}");
    }
}
