//! A party's own limits of regions apply to the round trips that it measured; others are matched with it by coarse ones, also
//! after a restart, and for tickets of an earlier version.

use std::sync::Arc;

use fireteam::config::StoreTarget;
use fireteam::domain::id::{SetId, TicketId, UserKey};
use fireteam::domain::locality::Locality;
use fireteam::domain::queue::seat_vectors::SeatBeaconVectors;
use fireteam::domain::queue::ticket::{PlayerRating, Ticket};
use fireteam::domain::session::{Player, RegionLatency, Session};
use fireteam::domain::time::UnixMs;
use fireteam::store::Store;
use fireteam::store::queues::{QueueStore, QueueWrite};
use fireteam::store::sqlite::SqliteStore;
use fireteam_client::pb;
use pb::TicketState;

use crate::support::queue_server::{
    QueuedParty, SET_ID, enter_request, servers_on_each_store, start_queue_server_with_config, wait_until,
};

/// A 1v1 queue of players who share a region within `limit_ms`.
fn ruleset_with_limit(limit_ms: u32) -> String {
    format!(
        r#"<Ruleset Name="Reach" SetId="{SET_ID}">
  <Attributes><Attribute Name="skill" Type="number" Min="0" Max="50" Trust="client"/></Attributes>
  <ExpansionConfigs><ExpansionConfig Name="reach" Type="latency">
    <Expansion ExpansionDurationMs="-1" Value="{limit_ms}"/></ExpansionConfig></ExpansionConfigs>
  <Teams Count="2" Size="1"/>
  <Queue PassIntervalMs="10"><Regions Mode="filter" Expansion="reach"/><RatingWindow Start="2" Max="2"/></Queue>
</Ruleset>"#
    )
}

fn request_near(name: &str, round_trip_ms: f32) -> pb::QueueEnterRequest {
    let mut request = enter_request(SET_ID, &[(name, 20.0)]);
    let session = request.session_composition.as_mut().unwrap();
    session.region_latencies = vec![pb::RegionLatency { region: "eu".into(), round_trip_ms }];
    request
}

/// S3-8, SEC-9: 88 ms are within 90, although others see 100; 86 ms are not within 80, although others see 75. The same after a
/// restart, on each store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_limit_of_regions_is_exact_also_after_a_restart() {
    for (limit_ms, measured_ms, fits) in [(90, 88.0, true), (80, 86.0, false)] {
        let test = format!("own_limit_{limit_ms}");
        for (server, database) in servers_on_each_store(&test, &ruleset_with_limit(limit_ms)).await {
            let waiting = QueuedParty::enter_with_request(&server, request_near("ann", measured_ms)).await;
            let reference = waiting.ticket.reference();
            drop(waiting);
            let server = server.restart().await;
            let mut bob = QueuedParty::enter_with_request(&server, request_near("bob", 20.0)).await;
            wait_until("a pass has judged both", async || {
                let status = bob.current_status().await;
                status.state() != TicketState::Waiting || status.blocking_rule == "region"
            })
            .await;
            assert_eq!(bob.current_status().await.state() == TicketState::Matched, fits, "{limit_ms}");
            let heartbeat = pb::QueueHeartbeatRequest { tickets: vec![reference], ..Default::default() };
            let ann = server.client().await.heartbeat_tickets(heartbeat).await.expect("heartbeat");
            assert_eq!(ann.statuses[0].state() == TicketState::Matched, fits, "{limit_ms}");
            drop((server, database));
        }
    }
}

/// Ticket of one player as a server of an earlier version stored it: exact.
fn ticket_of_an_earlier_version(entered_at: UnixMs, place: Locality) -> Ticket {
    let user = UserKey::from_name("ann");
    Ticket {
        id: TicketId::from_bytes([7; 16]),
        set_id: SetId(SET_ID),
        subject: None,
        entered_at,
        session: Session {
            party_sizes: [1].into(),
            players: vec![Player::from_user(user)],
            locality: Some(place),
            region_latencies: vec![RegionLatency { region: "eu".into(), round_trip_ms: 61.0 }].into(),
            ..Session::default()
        },
        exact_round_trips_ms: None,
        player_ratings: vec![PlayerRating::default()],
        rating_digest_key: None,
        blocked_users: Vec::new(),
        self_answering_users: Vec::new(),
        excludes_other_tickets: true,
    }
}

/// SEC-9: a ticket that an earlier version stored with a finer place and exact round trips is matched by coarse ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ticket_of_an_earlier_version_is_matched_by_its_cell() {
    let xml = format!(
        r#"<Ruleset Name="Near" SetId="{SET_ID}">
  <SoftFilters><SoftFilter Attribute="distance" Weight="1000"/></SoftFilters>
  <Teams Count="2" Size="1"/>
  <Queue PassIntervalMs="10"><Regions Mode="quality" Weight="600" SpanMs="600"/>
    <Quality><SoftScore MaxScore="1000"/></Quality></Queue>
</Ruleset>"#
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("earlier.db");
    let entered_at = UnixMs(1_700_000_010_000);
    // 1 degree north of the center of the cell of the attacker.
    let place = Locality::from_degrees(2.5, 1.5).unwrap();
    let store = SqliteStore::open(&path).await.expect("a new database");
    let write = QueueWrite::EnterQueue {
        ticket: Arc::new(ticket_of_an_earlier_version(entered_at, place)),
        seat_vectors: SeatBeaconVectors::default(),
        expires_at: entered_at.plus_ms(600_000),
        request_digest: [1; 16],
        caller_user: None,
        consents: Vec::new(),
        max_tickets_per_user: None,
        now: entered_at,
    };
    store.commit_queues(&[write]).await.expect("entered");
    store.close().await;

    let server = start_queue_server_with_config(&[&xml], |config| {
        config.store = StoreTarget::Sqlite(path);
        config.allow_client_locality = true;
    })
    .await;
    let mut request = enter_request(SET_ID, &[("bob", 0.0)]);
    let session = request.session_composition.as_mut().unwrap();
    session.players[0].skill = None;
    session.locality_info =
        Some(pb::LocalityData { latitude_degrees: Some(0.3), longitude_degrees: Some(0.3), ..Default::default() });
    session.region_latencies = vec![pb::RegionLatency { region: "eu".into(), round_trip_ms: 0.0 }];
    let mut bob = QueuedParty::enter_with_request(&server, request).await;
    let found = bob.wait_for_state(TicketState::Matched).await.found_match.expect("a match");
    assert_eq!(found.quality, -25.0, "no distance, and the mean of 0 and 50 ms");
}
