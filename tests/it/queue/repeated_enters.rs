//! Enter with the idempotency key of an earlier Enter: the same request returns its ticket, also if something has changed on the server
//! meanwhile, and another request is refused.

use fireteam::config::StoreTarget;
use fireteam_client::{Client, Code, Error, RetryPolicy, pb};
use pb::attribute_value::Value;

use crate::store::replicas::Replicas;
use crate::support::database::create_test_database;
use crate::support::generated_client::{ImportRatingsRequest, RatingRow};
use crate::support::queue_server::{SET_ID, enter_request, operator_client, servers_on_each_store};
use crate::support::ruleset_dir::{OperatorClient, RulesetDirectory};

const OTHER_SET: u32 = SET_ID + 1;
const KEY: &str = "sixteen letters or more";

/// A duel with attributes, ratings and parties of up to two.
fn rules(set: u32, attributes: &str) -> String {
    format!(
        r#"<Ruleset Name="Pairs {set}" SetId="{set}">
  <Attributes><Attribute Name="skill" Type="number"/><Attribute Name="nat_type" Type="number"/>{attributes}</Attributes>
  <Teams Count="2" Size="2"/>
  <Queue PassIntervalMs="10"/>
  <Rating System="elo"/>
</Ruleset>"#
    )
}

const ATTRIBUTES: &str = r#"<Attribute Name="mode" Type="string"/><Attribute Name="level" Type="number"/>"#;

fn value(value: Value) -> pb::AttributeValue {
    pb::AttributeValue { value: Some(value) }
}

fn request() -> pb::QueueEnterRequest {
    let mut request = pb::QueueEnterRequest {
        idempotency_key: KEY.into(),
        blocked_user_ids: vec!["eve".into(), "mallory".into()],
        ..enter_request(SET_ID, &[("ann", 20.0), ("bob", 30.0)])
    };
    let session = request.session_composition.as_mut().expect("a party");
    session.silo_id = Some(3);
    session.nat_type = Some(1);
    session.attributes.insert("mode".into(), value(Value::StringValue("duel".into())));
    session.attributes.insert("level".into(), value(Value::NumberValue(7.0)));
    session.region_latencies = vec![pb::RegionLatency { region: "eu-west".into(), round_trip_ms: 31.0 }];
    request
}

fn changed(change: impl FnOnce(&mut pb::SessionCompositionData)) -> pb::QueueEnterRequest {
    let mut request = request();
    change(request.session_composition.as_mut().expect("a party"));
    request
}

fn reason(error: &Error) -> &str {
    error.as_server_error().and_then(|failure| failure.reason.as_deref()).unwrap_or_default()
}

async fn enter(client: &Client, request: pb::QueueEnterRequest) -> Result<String, Error> {
    client.clone().with_retry_policy(RetryPolicy::NEVER).enter_queue(request).await.map(|ticket| ticket.id().to_owned())
}

/// Each thing that Enter asks for is compared: the set, the silo, the players and what they state, the attributes, and whom the
/// party does not want to meet. A refused call changes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_enter_with_another_payload_is_refused() {
    let set = |id: u32| rules(id, ATTRIBUTES);
    let directory = RulesetDirectory::with_files(&[("one.xml", &set(SET_ID)), ("other.xml", &set(OTHER_SET))]);
    let server = directory.start_server().await;
    let client = server.client().await;
    let id = enter(&client, request()).await.expect("enter");
    let others = [
        ("set", pb::QueueEnterRequest { matchmaking_set_id: Some(OTHER_SET), ..request() }),
        ("blocks", pb::QueueEnterRequest { blocked_user_ids: vec!["eve".into()], ..request() }),
        ("silo", changed(|session| session.silo_id = Some(4))),
        ("no silo", changed(|session| session.silo_id = None)),
        ("attribute", changed(|it| drop(it.attributes.insert("level".into(), value(Value::NumberValue(8.0)))))),
        ("missing attribute", changed(|session| drop(session.attributes.remove("mode")))),
        ("skill", changed(|session| session.players[1].skill = Some(31.0))),
        ("client", changed(|session| session.players[0].player_id = "console".into())),
        ("players", changed(|session| drop(session.players.pop()))),
        ("NAT type", changed(|session| session.nat_type = Some(2))),
        ("progress", changed(|session| session.game_in_progress = Some(true))),
        ("big parties", changed(|session| session.big_party_count = Some(1))),
    ];
    for (difference, other) in others {
        let error = enter(&client, other).await.expect_err(difference);
        assert_eq!(
            (error.code(), reason(&error)),
            (Some(Code::AlreadyExists), "IDEMPOTENCY_KEY_REUSED"),
            "{difference}"
        );
    }
    // The order says nothing, and what a client measures or renews differs from call to call.
    let same = [
        changed(|session| session.players.reverse()),
        changed(|session| session.region_latencies[0].round_trip_ms = 35.0),
        changed(|session| session.region_latencies.clear()),
        pb::QueueEnterRequest { blocked_user_ids: vec!["mallory".into(), "eve".into(), "eve".into()], ..request() },
    ];
    for repeated in same {
        assert_eq!(enter(&client, repeated).await.expect("the same request"), id);
    }
    // The key of another caller's ticket is another request: here, a key of its own.
    let fresh = pb::QueueEnterRequest { idempotency_key: "another key of sixteen".into(), ..request() };
    assert_eq!(reason(&enter(&client, fresh).await.expect_err("ann and bob wait already")), "ALREADY_QUEUED");
}

/// The answer of an Enter is lost. Then ratings change, the ruleset loses an attribute, later its queue, and at last the server
/// restarts: the repeated request returns the ticket each time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_enter_returns_its_ticket_after_changes() {
    let directory = RulesetDirectory::with_files(&[("one.xml", &rules(SET_ID, ATTRIBUTES))]);
    let store = directory.path().join("store.db");
    let server = directory.start_server_with_config(|config| config.store = StoreTarget::Sqlite(store)).await;
    let client = server.client().await;
    let hash = client.get_configuration(configuration_request()).await.expect("a ruleset").service_configuration_hash;
    let request = pb::QueueEnterRequest { service_configuration_hash: Some(hash), ..request() };
    let id = enter(&client, request.clone()).await.expect("enter");
    let rating = RatingRow { user_id: "ann".into(), rating: Some(1_900.0), ..Default::default() };
    let import = ImportRatingsRequest { matchmaking_set_id: Some(SET_ID), ratings: vec![rating] };
    operator_client(&server).await.import_ratings(import).await.expect("import");
    assert_eq!(enter(&client, request.clone()).await.expect("after a change of the rating"), id);
    let queueless = rules(SET_ID, "").replace(r#"<Queue PassIntervalMs="10"/>"#, "");
    for (change, text) in [("an attribute is gone", rules(SET_ID, "")), ("the queue is gone", queueless)] {
        directory.write_file("one.xml", &text);
        let report = OperatorClient::connect(&server).await.reload_rulesets().await;
        assert!(report.problems.is_empty(), "{report:?}");
        assert_eq!(enter(&client, request.clone()).await.expect(change), id);
        let other = pb::QueueEnterRequest { blocked_user_ids: Vec::new(), ..request.clone() };
        assert_eq!(reason(&enter(&client, other).await.expect_err(change)), "IDEMPOTENCY_KEY_REUSED");
    }
    let server = server.restart().await;
    assert_eq!(enter(&server.client().await, request).await.expect("after a restart"), id);
}

fn configuration_request() -> pb::MatchmakingGetConfigurationRequest {
    pb::MatchmakingGetConfigurationRequest { matchmaking_set_id: Some(SET_ID), service_configuration_hash: None }
}

/// The same on each store after a restart: the digest is stored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_enter_is_compared_after_a_restart() {
    for (server, _database) in servers_on_each_store("repeated_enter_after_restart", &rules(SET_ID, ATTRIBUTES)).await {
        let id = enter(&server.client().await, request()).await.expect("enter");
        let server = server.restart().await;
        let client = server.client().await;
        let other = changed(|session| session.nat_type = Some(3));
        assert_eq!(reason(&enter(&client, other).await.expect_err("another NAT type")), "IDEMPOTENCY_KEY_REUSED");
        assert_eq!(enter(&client, request()).await.expect("the same request"), id);
    }
}

/// Two servers on one store: the other one has not seen the first answer, and compares as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_enter_is_compared_at_another_server() {
    let Some(database) = create_test_database("repeated_enter_at_another_server").await else { return };
    let directory = RulesetDirectory::with_files(&[("one.xml", &rules(SET_ID, ATTRIBUTES))]);
    let path = directory.path().display().to_string();
    let replicas = Replicas::start(&database, 2, &["--rulesets", &path]);
    let [here, there] = [replicas.servers[0].client().await, replicas.servers[1].client().await];
    let id = enter(&here, request()).await.expect("enter");
    let other = changed(|session| session.nat_type = Some(3));
    assert_eq!(reason(&enter(&there, other).await.expect_err("another NAT type")), "IDEMPOTENCY_KEY_REUSED");
    assert_eq!(enter(&there, request()).await.expect("the same request"), id);
}
