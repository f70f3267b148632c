//! Limits on open silos: per caller and in all, over tickets and advertisements; who is exempt.

use fireteam::auth::identity::Role;
use fireteam::config::RateLimitSetting;
use fireteam_client::{Client, Code, Error, Ticket, pb};

use crate::store::replicas::Replicas;
use crate::support::database::create_test_database;
use crate::support::queue_server::{
    SET_ID, duel_ruleset, enter_request, start_queue_server, start_queue_server_with_config,
};
use crate::support::test_server::party_session;
use crate::support::tokens::TokenIssuer;

/// Session of `user` in `silo`.
fn session_in_silo(user: &str, silo: u64) -> pb::SessionCompositionData {
    pb::SessionCompositionData { silo_id: Some(silo), ..party_session(&[(user, 20.0)]) }
}

/// Request of `user` to enter in `silo`.
fn enter_in_silo(user: &str, silo: u64) -> pb::QueueEnterRequest {
    pb::QueueEnterRequest {
        session_composition: Some(session_in_silo(user, silo)),
        idempotency_key: format!("ticket of {user} in silo {silo}"),
        ..enter_request(SET_ID, &[])
    }
}

/// Request of `user` to advertise a session in `silo`.
fn advertise_in_silo(user: &str, silo: u64) -> pb::MatchmakingUpdateAdvertisementRequest {
    let session = session_in_silo(user, silo);
    pb::MatchmakingUpdateAdvertisementRequest {
        matchmaking_set_id: Some(SET_ID),
        session_composition: Some(pb::SessionCompositionData {
            max_allowed_join_reservation_count: Some(1),
            ..session
        }),
        idempotency_key: format!("advertisement of {user} in silo {silo}"),
        ..Default::default()
    }
}

/// Enters a user of its own in `silo`.
async fn enter(client: &Client, silo: u64) -> Result<Ticket, Error> {
    client.enter_queue(enter_in_silo(&format!("user {silo}"), silo)).await
}

/// Advertises in `silo`.
async fn advertise(
    client: &Client,
    user: &str,
    silo: u64,
) -> Result<pb::MatchmakingUpdateAdvertisementResponse, Error> {
    client.update_advertisement(advertise_in_silo(user, silo)).await
}

/// Asserts that a call was refused by the limit of `scope`, with the field, the limit and the remedy.
#[track_caller]
fn assert_too_many_silos<T: std::fmt::Debug>(result: Result<T, Error>, scope: &str, limit: u32) {
    let error = result.expect_err("one silo too many");
    assert_eq!(error.code(), Some(Code::ResourceExhausted), "{error}");
    let details = error.as_server_error().expect("details");
    assert_eq!(details.reason.as_deref(), Some("TOO_MANY_SILOS"));
    let metadata = |key: &str| details.reason_metadata.get(key).cloned().unwrap_or_default();
    assert_eq!(metadata("field"), "session_composition.silo_id");
    assert_eq!((metadata("scope").as_str(), metadata("limit")), (scope, limit.to_string()));
    assert!(details.message.contains("silo_id") && details.message.contains(&limit.to_string()), "{}", details.message);
}

/// SEC-11: an anonymous address opens eight silos, counted over tickets and advertisements. Open silos stay usable, a
/// repeated call is not refused, and a silo that closes makes room.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silo_limit_of_an_anonymous_caller_counts_tickets_and_advertisements() {
    let server = start_queue_server(&[&duel_ruleset("")]).await;
    let client = server.client().await;
    let mut tickets = Vec::new();
    for silo in 1..=4 {
        tickets.push(enter(&client, silo).await.expect("a ticket"));
    }
    let mut advertised = Vec::new();
    for silo in 5..=8 {
        advertised.push(advertise(&client, "host", silo).await.expect("an advertisement"));
    }
    assert_too_many_silos(enter(&client, 9).await, "caller", 8);
    assert_too_many_silos(advertise(&client, "host", 9).await, "caller", 8);

    assert_eq!(enter(&client, 1).await.expect("the same ticket again").id(), tickets[0].id());
    let repeated = advertise(&client, "host", 5).await.expect("the same advertisement again");
    assert_eq!((repeated.created, &repeated.advertisement_id), (false, &advertised[0].advertisement_id));
    client.enter_queue(enter_in_silo("guest", 8)).await.expect("an open silo may be entered");

    assert!(tickets[0].leave().await.expect("leave"));
    enter(&client, 9).await.expect("silo 1 is closed");
    assert_too_many_silos(enter(&client, 10).await, "caller", 8);
    let ended = enter(&client, 1).await.expect("a repeated call for a ticket that has ended");
    assert_eq!(ended.status.state(), pb::TicketState::Ended);
}

/// SEC-11: an advertisement that moves opens a silo too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silo_limit_applies_to_an_advertisement_that_moves() {
    let server = start_queue_server_with_config(&[&duel_ruleset("")], |config| config.max_silos_per_user = 2).await;
    let client = server.client().await;
    let first = advertise(&client, "host", 1).await.expect("an advertisement");
    advertise(&client, "host", 2).await.expect("an advertisement");
    let moved_to = |silo: u64| pb::MatchmakingUpdateAdvertisementRequest {
        advertisement_id: first.advertisement_id.clone(),
        advertisement_token: first.advertisement_token.clone(),
        session_composition: Some(session_in_silo("host", silo)),
        ..Default::default()
    };
    assert_too_many_silos(client.update_advertisement(moved_to(3)).await, "caller", 2);
    client.update_advertisement(moved_to(2)).await.expect("an open silo");
    client.update_advertisement(moved_to(3)).await.expect("silo 1 is closed");
}

/// SEC-11: the limit per caller counts identities, and exempts game servers; the limit in all applies to all callers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silo_limits_apply_per_identity_and_in_all() {
    let folder = tempfile::tempdir().expect("a folder");
    let issuer = TokenIssuer::new(&crate::support::test_server::TestClock::new());
    let auth = issuer.write_jwt_settings(folder.path());
    let server = start_queue_server_with_config(&[&duel_ruleset("")], |config| {
        config.auth = Some(auth);
        config.rate_limits = RateLimitSetting::Off;
        (config.max_silos, config.max_silos_per_user) = (20, 8);
        config.max_advertisements_per_client = 100;
    })
    .await;
    let ann = issuer.client_with_token(&server, Role::Client, "ann").await;
    let bob = issuer.client_with_token(&server, Role::Client, "bob").await;
    let backend = issuer.client_with_token(&server, Role::GameServer, "backend").await;
    for silo in 1..=8 {
        advertise(&ann, "ann", silo).await.expect("ann's silo");
    }
    assert_too_many_silos(advertise(&ann, "ann", 9).await, "caller", 8);
    advertise(&bob, "bob", 9).await.expect("bob has an identity of its own");
    advertise(&ann, "ann", 9).await.expect("an open silo");
    for silo in 10..=20 {
        enter(&backend, silo).await.expect("a game server enters players of all silos");
    }
    assert_too_many_silos(enter(&backend, 21).await, "server", 20);
    assert_too_many_silos(advertise(&bob, "bob", 21).await, "server", 20);
    advertise(&bob, "bob", 20).await.expect("an open silo");
}

/// SEC-11: calls at the same time open no more silos than one after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silo_limit_holds_for_simultaneous_calls() {
    let server = start_queue_server(&[&duel_ruleset("")]).await;
    let client = server.client().await;
    let calls = (1..=64).map(|silo| {
        let client = client.clone();
        tokio::spawn(async move { enter(&client, silo).await.is_ok() })
    });
    let mut entered = 0;
    for call in calls.collect::<Vec<_>>() {
        entered += u32::from(call.await.expect("a task"));
    }
    assert_eq!(entered, 8);
}

/// SEC-11: silos that the operator names are never refused. The limits hold in the memory of each server, which has the
/// tickets of all servers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silo_limit_exempts_named_silos_and_sees_other_servers() {
    let Some(database) = create_test_database("silo_limit_exempts_named_silos_and_sees_other_servers").await else {
        return;
    };
    let rules = tempfile::tempdir().expect("a folder");
    std::fs::write(rules.path().join("duel.xml"), duel_ruleset("")).expect("rules");
    let rules_path = rules.path().display().to_string();
    let limits = ["--rulesets", &rules_path, "--max-silos", "4", "--max-silos-per-user", "4"];
    let named = Replicas::start(&database, 1, &[&limits[..], &["--silos", "1,2,3,4,5"]].concat());
    for silo in 1..=5 {
        enter(&named.servers[0].client().await, silo).await.expect("a named silo");
    }
    let other = Replicas::start(&database, 1, &limits);
    assert_too_many_silos(enter(&other.servers[0].client().await, 6).await, "server", 4);
    enter(&other.servers[0].client().await, 5).await.expect_err("the user already waits there");
    let guest = enter_in_silo("guest", 5);
    other.servers[0].client().await.enter_queue(guest).await.expect("a silo that another server opened");
}
