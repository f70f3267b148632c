//! Sessions that a queue fills, judged by predicted round trips over the wire: limits, wishes of both sides, the score and
//! `MaxRoundTripMs`, at each server, until the vector ends.

use std::sync::Arc;

use fireteam::auth::identity::Role;
use fireteam::config::{Config, StoreTarget};
use fireteam_client::pb;
use pb::TicketState;

use crate::queue::predictions::{ANN, BEACONS, BOB, CAI, Fleet, Site, WITHIN_100_MS, configure_site};
use crate::security::beacon_receipts::LatencyCaller;
use crate::security::session_privacy::servers_on_one_postgres;
use crate::support::database::create_test_database;
use crate::support::queue_server::{QueuedParty, SET_ID, enter_request, wait_until};
use crate::support::ruleset_dir::RulesetDirectory;
use crate::support::test_server::{TestClock, TestServer, advertise_request, party_session};
use crate::support::tokens::TokenIssuer;

/// Rule that keeps a guest out of the session, beyond 100 ms.
#[derive(Clone, Copy, Debug)]
enum Limit {
    /// Limit of the ruleset.
    Expansion,
    /// Wish of the host.
    HostWish,
    /// Wish of the guest.
    GuestWish,
    /// Highest score of a match.
    MatchScore,
    /// `MaxRoundTripMs` of the ruleset.
    MaxRoundTrip,
}

const ALL_LIMITS: [Limit; 5] =
    [Limit::Expansion, Limit::HostWish, Limit::GuestWish, Limit::MatchScore, Limit::MaxRoundTrip];

impl Limit {
    fn ruleset(self, source: &str) -> RulesetDirectory {
        let limits = match self {
            Self::Expansion => WITHIN_100_MS,
            Self::HostWish | Self::GuestWish => r#"<Hosting Mode="none"/>"#,
            Self::MatchScore => {
                r#"<SoftFilters><SoftFilter Attribute="latency" Weight="1" Min="0" Max="1000"/></SoftFilters>
  <Hosting Mode="none"/>"#
            }
            Self::MaxRoundTrip => r#"<Hosting Mode="game_server" MaxRoundTripMs="100"/>"#,
        };
        let quality = match self {
            Self::MatchScore => r#"<Quality><SoftScore MaxScore="0.1"/></Quality>"#,
            _ => "",
        };
        let text = format!(
            r#"<Ruleset Name="Predicted backfill" SetId="{SET_ID}">
  <Attributes><Attribute Name="skill" Type="number" Min="0" Max="50" Trust="client"/></Attributes>
  {limits}
  <Latency Source="{source}" Wishes="true"/>
  <Teams Count="2" Size="1"/>
  <Queue PassIntervalMs="10" Backfill="true">{quality}</Queue>
</Ruleset>"#
        );
        RulesetDirectory::with_files(&[("backfill.xml", &text)])
    }

    /// Rule that a guest beyond the limit is refused by.
    fn rule(self) -> &'static str {
        match self {
            Self::Expansion => "latency",
            Self::HostWish => "other_wish:latency",
            Self::GuestWish => "wish:latency",
            Self::MatchScore => "quality",
            Self::MaxRoundTrip => "region",
        }
    }

    fn wishes_of_host(self) -> Vec<pb::Wish> {
        if matches!(self, Self::HostWish) { vec![wish_within_100_ms()] } else { Vec::new() }
    }

    fn wishes_of_guest(self) -> Vec<pb::Wish> {
        if matches!(self, Self::GuestWish) { vec![wish_within_100_ms()] } else { Vec::new() }
    }
}

fn wish_within_100_ms() -> pb::Wish {
    let accepted = Some(pb::AcceptedValues { max: Some(100.0), ..Default::default() });
    pb::Wish { attribute: "latency".into(), accepted, ..Default::default() }
}

/// Enters a guest, who is 25 ms from the beacons of a network.
async fn enter(
    site: &Site<'_>,
    fleet: &mut Fleet,
    limit: Limit,
    guest: (&str, &'static str, f64),
    network: u32,
) -> QueuedParty {
    let session = pb::SessionCompositionData {
        latency_token: fleet.token(site, guest, network, 25).await,
        wishes: limit.wishes_of_guest(),
        ..party_session(&[(guest.0, 20.0)])
    };
    let request = pb::QueueEnterRequest { session_composition: Some(session), ..enter_request(SET_ID, &[]) };
    QueuedParty::enter_with_client(site.client(guest).await, request).await
}

/// Session of cai with one open seat, 25 ms from the even beacons. Its host confirms matches.
async fn advertise(site: &Site<'_>, fleet: &mut Fleet, limit: Limit) -> pb::MatchmakingUpdateAdvertisementResponse {
    let client = site.client(CAI).await;
    let session = pb::SessionCompositionData {
        latency_token: fleet.token(site, CAI, 0, 25).await,
        max_allowed_join_reservation_count: Some(1),
        wishes: limit.wishes_of_host(),
        ..party_session(&[(CAI.0, 20.0)])
    };
    let request = pb::MatchmakingUpdateAdvertisementRequest {
        matchmaking_set_id: Some(SET_ID),
        session_composition: Some(session),
        time_to_live_ms: Some(600_000),
        ..advertise_request(&[], 1)
    };
    let advertised = client.update_advertisement(request).await.expect("published");
    site.server.keep_hosting(client, advertised.advertisement_token.clone());
    advertised
}

async fn wait_for_refusal(site: &Site<'_>, party: &QueuedParty, limit: Limit) {
    let mut rule = String::new();
    wait_until(&format!("the session refuses the guest by {limit:?}"), async || {
        rule = site.blocking_rule(party.ticket.id()).await;
        rule == limit.rule()
    })
    .await;
}

/// Bob is nearer to the session by distance, and beyond the limit by the predicted round trip. Ann is let in, who is beyond it by distance.
async fn check_guests(host: Site<'_>, players: Site<'_>, fleet: &mut Fleet, limit: Limit) {
    advertise(&host, fleet, limit).await;
    let mut bob = enter(&players, fleet, limit, BOB, 1).await;
    wait_for_refusal(&players, &bob, limit).await;
    let mut ann = enter(&players, fleet, limit, ANN, 0).await;
    ann.wait_for_state(TicketState::Matched).await;
    assert_eq!(bob.current_status().await.state(), TicketState::Waiting);
}

/// LAT-1: limits, wishes of both sides, the score of the match and `MaxRoundTripMs` compare the predicted round trip between a ticket
/// and a session, when the pass lets the guest in and when the seat is reserved. Without predictions distance decides.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backfill_compares_predicted_round_trips() {
    for limit in ALL_LIMITS {
        for source in ["predicted", "distance"] {
            let (folder, clock) = (limit.ruleset(source), Arc::new(TestClock::new()));
            let issuer = TokenIssuer::new(&*clock);
            let file = folder.path().join("store.db");
            let server = TestServer::start_on_clock(Arc::clone(&clock), |config| {
                configure_site(config, &folder, &issuer);
                config.store = StoreTarget::Sqlite(file);
            })
            .await;
            let (site, mut fleet) = (Site { server: &server, issuer: &issuer }, Fleet::without_regions());
            fleet.announce(&site.fleet_caller().await).await;
            if source == "predicted" {
                check_guests(site, site, &mut fleet, limit).await;
                continue;
            }
            advertise(&site, &mut fleet, limit).await;
            let ann = enter(&site, &mut fleet, limit, ANN, 0).await;
            wait_for_refusal(&site, &ann, limit).await;
            let mut bob = enter(&site, &mut fleet, limit, BOB, 1).await;
            bob.wait_for_state(TicketState::Matched).await;
        }
    }
}

/// LAT-1, R9: the same where the session is at another server than the tickets.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backfill_predicts_round_trips_to_sessions_of_another_server() {
    let Some(database) = create_test_database("predicted_backfill").await else { return };
    let (folder, clock) = (Limit::Expansion.ruleset("predicted"), Arc::new(TestClock::new()));
    let issuer = TokenIssuer::new(&*clock);
    let configure = |config: &mut Config| configure_site(config, &folder, &issuer);
    let (one, two) = servers_on_one_postgres(&database.url, &clock, configure).await;
    let (one, two) = (Site { server: &one, issuer: &issuer }, Site { server: &two, issuer: &issuer });
    let mut fleet = Fleet::without_regions();
    fleet.announce(&one.fleet_caller().await).await;
    let at_two = LatencyCaller::new(two.server, &issuer, Role::Client, BOB.0, BOB.1).await;
    // All of them: without one, a party has floors to too few.
    wait_until("the other server knows the beacons", async || at_two.beacons().await.beacons.len() == BEACONS as usize)
        .await;
    check_guests(one, two, &mut fleet, Limit::Expansion).await;
}

/// Ten minutes after the session's token distance decides, and a guest who has waited is let in. Heartbeats of the session do not
/// extend its vector.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backfill_uses_distance_when_the_vector_of_the_session_has_ended() {
    let limit = Limit::Expansion;
    let (folder, clock) = (limit.ruleset("predicted"), Arc::new(TestClock::new()));
    let issuer = TokenIssuer::new(&*clock);
    let server =
        TestServer::start_on_clock(Arc::clone(&clock), |config| configure_site(config, &folder, &issuer)).await;
    let (site, mut fleet) = (Site { server: &server, issuer: &issuer }, Fleet::without_regions());
    fleet.announce(&site.fleet_caller().await).await;
    let advertised = advertise(&site, &mut fleet, limit).await;
    let mut bob = enter(&site, &mut fleet, limit, BOB, 1).await;
    wait_for_refusal(&site, &bob, limit).await;
    let (host, ticket) = (site.client(CAI).await, bob.ticket.reference());
    let heartbeat = pb::MatchmakingUpdateAdvertisementRequest {
        advertisement_id: advertised.advertisement_id.clone(),
        advertisement_token: advertised.advertisement_token.clone(),
        ..Default::default()
    };
    for passed_s in (40..600).step_by(40) {
        clock.advance_ms(40_000);
        fleet.announce(&site.fleet_caller().await).await;
        host.update_advertisement(heartbeat.clone()).await.expect("a heartbeat");
        let renewed = if passed_s == 400 { fleet.token(&site, BOB, 1, 25).await } else { Vec::new() };
        site.beat(BOB, &ticket, &renewed).await;
    }
    wait_for_refusal(&site, &bob, limit).await;
    clock.advance_ms(40_000);
    bob.wait_for_state(TicketState::Matched).await;
}
