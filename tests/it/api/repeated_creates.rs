//! Creation of an advertisement with the idempotency key of an earlier one: the same request returns the advertisement, also if something has
//! changed on the server meanwhile, and another request is refused.

use fireteam::config::StoreTarget;
use fireteam_client::{Client, Code, Error, RetryPolicy, pb};
use pb::attribute_value::Value;

use crate::store::replicas::{Replicas, found, until};
use crate::support::database::create_test_database;
use crate::support::queue_server::{SET_ID, servers_on_each_store};
use crate::support::ruleset_dir::{OperatorClient, RulesetDirectory};
use crate::support::test_server::{advertise_request, party_session};
use crate::wishes::fixture::skill_wish;

const OTHER_SET: u32 = SET_ID + 1;
const KEY: &str = "sixteen letters or more";

fn rules(set: u32, attributes: &str) -> String {
    format!(
        r#"<Ruleset Name="Open {set}" SetId="{set}">
  <Attributes><Attribute Name="skill" Type="number" Trust="client" Wishes="true"/>{attributes}</Attributes>
</Ruleset>"#
    )
}

const MODE: &str = r#"<Attribute Name="mode" Type="string"/>"#;

fn text(text: &str) -> pb::AttributeValue {
    pb::AttributeValue { value: Some(Value::StringValue(text.into())) }
}

fn request() -> pb::MatchmakingUpdateAdvertisementRequest {
    let mut request = pb::MatchmakingUpdateAdvertisementRequest {
        matchmaking_set_id: Some(SET_ID),
        idempotency_key: KEY.into(),
        connect_data: b"host:7777".to_vec(),
        time_to_live_ms: Some(30_000),
        allowed_ranges: vec![pb::AllowedRange { attribute: "skill".into(), min: Some(-50.0), max: Some(50.0) }],
        ..advertise_request(&[("hal", 20.0), ("hob", 30.0)], 5)
    };
    let session = request.session_composition.as_mut().expect("a session");
    session.silo_id = Some(3);
    session.attributes.insert("mode".into(), text("duel"));
    session.region_latencies = vec![pb::RegionLatency { region: "eu-west".into(), round_trip_ms: 31.0 }];
    request
}

fn changed(change: impl FnOnce(&mut pb::SessionCompositionData)) -> pb::MatchmakingUpdateAdvertisementRequest {
    let mut request = request();
    change(request.session_composition.as_mut().expect("a session"));
    request
}

/// Everything that a request may ask for, changed one by one.
fn other_requests() -> Vec<(&'static str, pb::MatchmakingUpdateAdvertisementRequest)> {
    let range = pb::AllowedRange { attribute: "skill".into(), min: Some(-50.0), max: None };
    vec![
        ("set", pb::MatchmakingUpdateAdvertisementRequest { matchmaking_set_id: Some(OTHER_SET), ..request() }),
        (
            "connect data",
            pb::MatchmakingUpdateAdvertisementRequest { connect_data: b"host:8888".to_vec(), ..request() },
        ),
        ("ranges", pb::MatchmakingUpdateAdvertisementRequest { allowed_ranges: vec![range], ..request() }),
        ("time to live", pb::MatchmakingUpdateAdvertisementRequest { time_to_live_ms: Some(31_000), ..request() }),
        (
            "kind",
            pb::MatchmakingUpdateAdvertisementRequest { kind: pb::AdvertisementKind::GameServer.into(), ..request() },
        ),
        ("silo", changed(|session| session.silo_id = Some(4))),
        ("attribute", changed(|session| drop(session.attributes.insert("mode".into(), text("race"))))),
        ("skill", changed(|session| session.players[1].skill = Some(31.0))),
        ("players", changed(|session| drop(session.players.pop()))),
        ("parties", changed(|session| session.party_size_composition = vec![1, 1])),
        ("NAT type", changed(|session| session.nat_type = Some(2))),
        ("wish", changed(|session| session.wishes = vec![skill_wish(0.0, 50.0)])),
        ("seats", changed(|session| session.max_allowed_join_reservation_count = Some(4))),
    ]
}

fn reason(error: &Error) -> &str {
    error.as_server_error().and_then(|failure| failure.reason.as_deref()).unwrap_or_default()
}

async fn create(
    client: &Client,
    request: pb::MatchmakingUpdateAdvertisementRequest,
) -> Result<pb::MatchmakingUpdateAdvertisementResponse, Error> {
    client.clone().with_retry_policy(RetryPolicy::NEVER).update_advertisement(request).await
}

async fn assert_refused(client: &Client, other: pb::MatchmakingUpdateAdvertisementRequest, difference: &str) {
    let error = create(client, other).await.expect_err(difference);
    assert_eq!((error.code(), reason(&error)), (Some(Code::AlreadyExists), "IDEMPOTENCY_KEY_REUSED"), "{difference}");
}

/// Each thing that a creation asks for is compared, on each store, also after an update and a restart. A refused call changes
/// nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_create_with_another_payload_is_refused() {
    let both = rules(SET_ID, MODE);
    for (server, _database) in servers_on_each_store("repeated_create_is_refused", &both).await {
        let client = server.client().await;
        let first = create(&client, request()).await.expect("create");
        for (difference, other) in other_requests().into_iter().filter(|(difference, _)| *difference != "set") {
            assert_refused(&client, other, difference).await;
        }
        let same = [
            changed(|session| session.region_latencies[0].round_trip_ms = 35.0),
            pb::MatchmakingUpdateAdvertisementRequest { service_configuration_hash: None, ..request() },
        ];
        for repeated in same {
            let again = create(&client, repeated).await.expect("the same request");
            assert_eq!((again.created, &again.advertisement_id), (false, &first.advertisement_id));
        }
        // The host updates it. A late repetition does not undo the update.
        let update = pb::MatchmakingUpdateAdvertisementRequest {
            advertisement_id: first.advertisement_id.clone(),
            advertisement_token: first.advertisement_token.clone(),
            idempotency_key: String::new(),
            ..changed(|session| session.max_allowed_join_reservation_count = Some(2))
        };
        client.update_advertisement(update).await.expect("update");
        let server = server.restart().await;
        let client = server.client().await;
        assert_eq!(create(&client, request()).await.expect("repeat").advertisement_id, first.advertisement_id);
        assert_refused(&client, changed(|session| session.silo_id = Some(4)), "silo, after a restart").await;
        let mut guest = party_session(&[("guest", 20.0)]);
        guest.silo_id = Some(3);
        let seen = client.new_search(SET_ID, guest).search().await.expect("search").candidates;
        assert_eq!(seen.iter().map(|it| it.open_seats).collect::<Vec<_>>(), [2]);
    }
}

/// A key of a caller is one key in all sets.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_create_in_another_set_is_refused() {
    let directory =
        RulesetDirectory::with_files(&[("one.xml", &rules(SET_ID, MODE)), ("other.xml", &rules(OTHER_SET, MODE))]);
    let server = directory.start_server().await;
    let client = server.client().await;
    let first = create(&client, request()).await.expect("create");
    for (difference, other) in other_requests() {
        assert_refused(&client, other, difference).await;
    }
    // Both at once: the store decides.
    let in_set = |set| pb::MatchmakingUpdateAdvertisementRequest {
        matchmaking_set_id: Some(set),
        idempotency_key: "a new key of sixteen".into(),
        ..request()
    };
    let (one, other) = tokio::join!(create(&client, in_set(SET_ID)), create(&client, in_set(OTHER_SET)));
    assert_eq!((one.is_ok(), other.is_ok()), (other.is_err(), one.is_err()), "{one:?} {other:?}");
    // A deleted advertisement stays deleted, and an expired one can be made again by any request.
    let delete = pb::MatchmakingDeleteAdvertisementRequest {
        advertisement_id: first.advertisement_id.clone(),
        advertisement_token: first.advertisement_token,
    };
    client.delete_advertisement(delete).await.expect("delete");
    assert_eq!(reason(&create(&client, request()).await.expect_err("deleted")), "ADVERTISEMENT_DELETED");
    server.clock.advance_ms(120_000);
    let mut late = in_set(if one.is_ok() { OTHER_SET } else { SET_ID });
    late.connect_data = b"host:9999".to_vec();
    assert!(create(&client, late).await.expect("the other one has expired").created);
}

/// The answer of a creation is lost. The ruleset loses an attribute that it names, and the server restarts: the repeated request
/// returns the advertisement each time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_create_returns_its_advertisement_after_changes() {
    let directory = RulesetDirectory::with_files(&[("one.xml", &rules(SET_ID, MODE))]);
    let store = directory.path().join("store.db");
    let server = directory.start_server_with_config(|config| config.store = StoreTarget::Sqlite(store)).await;
    let client = server.client().await;
    let first = create(&client, request()).await.expect("create");
    directory.write_file("one.xml", &rules(SET_ID, ""));
    OperatorClient::connect(&server).await.reload_rulesets().await;
    let again = create(&client, request()).await.expect("after a reload");
    assert_eq!(again.advertisement_id, first.advertisement_id);
    let server = server.restart().await;
    let again = create(&server.client().await, request()).await.expect("after a restart");
    assert_eq!(again.advertisement_id, first.advertisement_id);
    // The token of the repeated answer is good.
    let heartbeat = pb::MatchmakingUpdateAdvertisementRequest {
        advertisement_id: again.advertisement_id,
        advertisement_token: again.advertisement_token,
        ..Default::default()
    };
    server.client().await.update_advertisement(heartbeat).await.expect("a heartbeat");
}

/// Two servers on one store. The other one may not have seen the first request yet: then the store compares.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_create_is_compared_at_another_server() {
    let Some(database) = create_test_database("repeated_create_at_another_server").await else { return };
    let files = [("one.xml", &*rules(1, MODE)), ("other.xml", &*rules(OTHER_SET, MODE))];
    let directory = RulesetDirectory::with_files(&files);
    let path = directory.path().display().to_string();
    let replicas = Replicas::start(&database, 2, &["--rulesets", &path]);
    let [here, there] = [replicas.servers[0].client().await, replicas.servers[1].client().await];
    let in_set_one = |mut request: pb::MatchmakingUpdateAdvertisementRequest| {
        request.matchmaking_set_id = request.matchmaking_set_id.map(|set| if set == SET_ID { 1 } else { set });
        request.session_composition.as_mut().expect("a session").silo_id = None;
        request
    };
    let first = create(&here, in_set_one(request())).await.expect("create");
    let compare = async || {
        let others = other_requests().into_iter().filter(|(difference, _)| *difference != "silo");
        for (difference, other) in others {
            assert_refused(&there, in_set_one(other), difference).await;
        }
        let again = create(&there, in_set_one(request())).await.expect("the same request");
        assert_eq!((again.created, &again.advertisement_id), (false, &first.advertisement_id));
    };
    compare().await;
    until("the other server sees it", async || !found(&replicas.servers[1], "guest").await.is_empty()).await;
    compare().await;
}
