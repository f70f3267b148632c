//! Ownership: no caller changes, ends or confirms an advertisement or reservation of another, and all errors are the
//! same.

use fireteam::api::convert::RequestReader;
use fireteam::api::matchmaking_handler::MatchmakingHandler;
use fireteam::api::status::Rejection;
use fireteam::api::{authorization, pb};
use fireteam::auth::identity::Role;
use fireteam::config::StoreTarget;
use fireteam::domain::id::AdvertisementId;
use fireteam_client::Code;
use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestRunner};
use prost::Message;

use crate::support::generated_client;
use crate::support::test_server::{TestServer, advertise_request, party_session};
use crate::support::tokens::{TokenIssuer, start_authenticated_server, start_authenticated_server_with_config};

type TestCaller = authorization::AuthorizedCaller<authorization::ClientOrGameServer>;

/// Number of callers, each with an advertisement and with a reservation in the next caller's advertisement.
const OWNERS: usize = 12;
/// Number of random attempts.
const ATTEMPTS: u32 = 10_000;

struct Owner {
    caller: TestCaller,
    id: String,
    token: Vec<u8>,
    reservation_id: String,
    reservation_token: Vec<u8>,
}

fn role_of_owner(number: usize) -> Role {
    if number % 3 == 2 { Role::GameServer } else { Role::Client }
}

/// Converts between the client's and the server's type of a message.
fn transcode<M: Message + Default>(message: impl Message) -> M {
    M::decode(message.encode_to_vec().as_slice()).unwrap()
}

async fn create_owners(server: &TestServer, issuer: &TokenIssuer, handler: &MatchmakingHandler) -> Vec<Owner> {
    let mut owners = Vec::new();
    for number in 0..OWNERS {
        let name = format!("owner {number}");
        let caller = issuer.authorized_caller(server, role_of_owner(number), &name);
        let wire = transcode(advertise_request(&[(&name, 0.0)], 8));
        let created =
            handler.update_advertisement(RequestReader::default(), &caller, wire).unwrap().wait().await.unwrap();
        owners.push(Owner {
            caller,
            id: created.id.to_string(),
            token: created.advertisement_token,
            reservation_id: String::new(),
            reservation_token: Vec::new(),
        });
    }
    for number in 0..OWNERS {
        let composition: pb::SessionCompositionData = transcode(party_session(&[(&format!("owner {number}"), 0.0)]));
        let (caller, next) = (owners[number].caller.clone(), owners[(number + 1) % OWNERS].id.clone());
        let search = pb::SearchRequest {
            matchmaking_set_id: Some(1),
            session_composition: Some(composition.clone()),
            ..Default::default()
        };
        let found = handler.search(RequestReader::default(), &caller, search).unwrap().encode_to_vec();
        let found = generated_client::MatchmakingSearchResponse::decode(found.as_slice()).unwrap();
        let reserve = pb::ReserveRequest {
            advertisement_id: next,
            idempotency_key: "a key of sixteen".into(),
            search_token: found.search_token,
            session_composition: Some(composition),
            ..Default::default()
        };
        let held = handler.reserve(&caller, reserve).await.unwrap().reservation.unwrap();
        owners[number].reservation_id = held.reservation_id;
        owners[number].reservation_token = held.reservation_token;
    }
    owners
}

#[derive(Clone, Copy, Debug)]
enum OwnerOperation {
    Heartbeat,
    Replace,
    Confirm,
    Delete,
    Release,
}

#[derive(Clone, Debug)]
struct Attempt {
    operation: OwnerOperation,
    attacker: usize,
    victim: usize,
    /// 0: the victim's token; 1: the attacker's; 2: random; 3: the victim's with one bit flipped.
    token_choice: u8,
    /// 0: the victim's id; otherwise an unused one.
    id_choice: u8,
    noise: [u8; 16],
    bit: usize,
}

fn any_attempt() -> impl Strategy<Value = Attempt> {
    let verb = prop_oneof![
        Just(OwnerOperation::Heartbeat),
        Just(OwnerOperation::Replace),
        Just(OwnerOperation::Confirm),
        Just(OwnerOperation::Delete),
        Just(OwnerOperation::Release)
    ];
    let others = (0..OWNERS, 1..OWNERS).prop_map(|(attacker, by)| (attacker, (attacker + by) % OWNERS));
    (verb, others, 0..4_u8, 0..4_u8, any::<[u8; 16]>(), 0..500_usize).prop_map(
        |(verb, (attacker, victim), token, id, noise, bit)| Attempt {
            operation: verb,
            attacker,
            victim,
            token_choice: token,
            id_choice: id,
            noise,
            bit,
        },
    )
}

/// Makes the attempt and returns its error.
fn attempt_error(handler: &MatchmakingHandler, owners: &[Owner], attempt: &Attempt) -> Option<Rejection> {
    let Attempt { attacker, victim, .. } = *attempt;
    let (attacker, victim, entry_point) = (&owners[attacker], &owners[victim], RequestReader::default());
    let is_release = matches!(attempt.operation, OwnerOperation::Release);
    let pick = |owner: &Owner| if is_release { owner.reservation_token.clone() } else { owner.token.clone() };
    let token = match attempt.token_choice {
        0 => pick(victim),
        1 => pick(attacker),
        2 => attempt.noise.repeat(4),
        _ => {
            let mut token = pick(victim);
            let bit = attempt.bit % (token.len() * 8);
            token[bit / 8] ^= 1 << (bit % 8);
            token
        }
    };
    let real = if is_release { victim.reservation_id.clone() } else { victim.id.clone() };
    let id = if attempt.id_choice == 0 { real } else { AdvertisementId::from_bytes(attempt.noise).to_string() };
    let mut update = pb::UpdateAdvertisementRequest {
        advertisement_id: id.clone(),
        advertisement_token: token.clone(),
        ..Default::default()
    };
    let outcome = match attempt.operation {
        OwnerOperation::Heartbeat => handler.update_advertisement(entry_point, &attacker.caller, update).map(drop),
        OwnerOperation::Replace => {
            update.session_composition =
                transcode::<pb::UpdateAdvertisementRequest>(advertise_request(&[("attacker", 0.0)], 1))
                    .session_composition;
            handler.update_advertisement(entry_point, &attacker.caller, update).map(drop)
        }
        OwnerOperation::Confirm => {
            // Confirms the attacker's reservation in the victim's advertisement.
            update.confirmed_reservation_ids = vec![attacker.reservation_id.clone()];
            handler.update_advertisement(entry_point, &attacker.caller, update).map(drop)
        }
        OwnerOperation::Delete => {
            let wire = pb::DeleteAdvertisementRequest { advertisement_id: id, advertisement_token: token };
            handler.delete_advertisement(entry_point, &attacker.caller, wire).map(drop)
        }
        OwnerOperation::Release => {
            let wire = pb::ReleaseRequest { reservation_id: id, reservation_token: token, ..Default::default() };
            futures_util::FutureExt::now_or_never(handler.release(&attacker.caller, wire))?.map(drop)
        }
    };
    outcome.err()
}

/// SEC-5: ten thousand attempts on other callers' objects: none succeeds, and all get the same error, whether the
/// object exists or not.
#[tokio::test]
async fn advertisement_calls_by_another_caller_are_refused_alike() {
    let (server, issuer) = start_authenticated_server().await;
    let handler = MatchmakingHandler::new(server.app.engine.clone());
    let owners = create_owners(&server, &issuer, &handler).await;
    let config = ProptestConfig { cases: ATTEMPTS, failure_persistence: None, ..ProptestConfig::default() };
    let absent = Attempt {
        operation: OwnerOperation::Delete,
        attacker: 0,
        victim: 1,
        token_choice: 2,
        id_choice: 1,
        noise: [1; 16],
        bit: 0,
    };
    let expected_error = attempt_error(&handler, &owners, &absent).expect("the advertisement does not exist");
    assert_eq!(
        (expected_error.code, expected_error.reason),
        (tonic::Code::PermissionDenied, pb::ErrorReason::NotOwner)
    );
    TestRunner::new(config)
        .run(&any_attempt(), |attempt| match attempt_error(&handler, &owners, &attempt) {
            Some(answer) if answer == expected_error => Ok(()),
            other => Err(TestCaseError::fail(format!("{attempt:?}: {other:?}"))),
        })
        .unwrap();

    for (number, owner) in owners.iter().enumerate() {
        let heartbeat = pb::UpdateAdvertisementRequest {
            advertisement_id: owner.id.clone(),
            advertisement_token: owner.token.clone(),
            ..Default::default()
        };
        let answer = handler
            .update_advertisement(RequestReader::default(), &owner.caller, heartbeat)
            .unwrap()
            .wait()
            .await
            .unwrap();
        let [held] = answer.reservations.as_slice() else { panic!("{number}: {:?}", answer.reservations) };
        assert_eq!(held.id.to_string(), owners[(number + OWNERS - 1) % OWNERS].reservation_id);
        assert!(held.expires_in_ms.is_some(), "{number}: only the host confirms");
    }
    for owner in &owners {
        let release = pb::ReleaseRequest {
            reservation_id: owner.reservation_id.clone(),
            reservation_token: owner.reservation_token.clone(),
            ..Default::default()
        };
        handler.release(&owner.caller, release).await.expect("release by its owner");
    }
}

/// SEC-5: the same over gRPC; the same name with another role is another caller.
#[tokio::test]
async fn advertisement_token_is_useless_to_another_caller() {
    let (server, issuer) = start_authenticated_server().await;
    let ana = issuer.client_with_token(&server, Role::Client, "ana").await;
    let mut advertised = ana.advertise(advertise_request(&[("ana", 0.0)], 3)).await.expect("advertise");
    let ben = issuer.client_with_token(&server, Role::Client, "ben").await;
    let search_token = ben.new_search(1, party_session(&[("ben", 0.0)])).search().await.expect("search").search_token;
    let reserve = fireteam_client::pb::MatchmakingReserveRequest {
        advertisement_id: advertised.id().into(),
        search_token,
        session_composition: Some(party_session(&[("ben", 0.0)])),
        ..Default::default()
    };
    let reserved = ben.reserve(reserve).await.expect("reserve").reservation.expect("a reservation");
    let delete = fireteam_client::pb::MatchmakingDeleteAdvertisementRequest {
        advertisement_id: advertised.id().into(),
        advertisement_token: advertised.token().into(),
    };
    let release = fireteam_client::pb::MatchmakingReleaseRequest {
        reservation_id: reserved.reservation_id.clone(),
        reservation_token: reserved.reservation_token.clone(),
        ..Default::default()
    };
    for (role, name) in [(Role::Client, "eve"), (Role::GameServer, "ana"), (Role::GameServer, "ben")] {
        let attacker = issuer.client_with_token(&server, role, name).await;
        let error = attacker.delete_advertisement(delete.clone()).await.expect_err("another owner");
        assert_eq!(error.code(), Some(Code::PermissionDenied), "{error}");
        let other = attacker.release(release.clone()).await.expect_err("another owner");
        assert_eq!(other.to_string(), error.to_string(), "the same error");
    }
    assert_eq!(advertised.heartbeat().await.expect("the advertisement still exists").reservations.len(), 1);
    ben.release(release).await.expect("release by its owner");
}

/// SEC-5, S1-44: an advertisement loaded from the store, or recreated by its token, keeps its owner.
#[tokio::test]
async fn recreated_advertisement_keeps_its_owner() {
    let folder = tempfile::tempdir().unwrap();
    for store in [StoreTarget::Memory, StoreTarget::Sqlite(folder.path().join("kept.db"))] {
        let is_lost = store == StoreTarget::Memory;
        let (server, issuer) = start_authenticated_server_with_config(|config| config.store = store).await;
        let ana = issuer.client_with_token(&server, Role::Client, "ana").await;
        let advertised = ana.advertise(advertise_request(&[("ana", 0.0)], 3)).await.expect("advertise");
        let (id, token) = (advertised.id().to_owned(), advertised.token().to_owned());
        let server = server.restart().await;
        let update_with = |players: &[(&str, f64)]| fireteam_client::pb::MatchmakingUpdateAdvertisementRequest {
            advertisement_id: id.clone(),
            advertisement_token: token.clone(),
            ..advertise_request(players, 3)
        };
        let eve = issuer.client_with_token(&server, Role::Client, "eve").await;
        let error = eve.update_advertisement(update_with(&[("eve", 0.0)])).await.expect_err("another owner");
        assert_eq!(error.code(), Some(Code::PermissionDenied), "{error}");
        let ana = issuer.client_with_token(&server, Role::Client, "ana").await;
        let answer = ana.update_advertisement(update_with(&[("ana", 0.0)])).await.expect("update by its owner");
        assert_eq!(answer.created, is_lost);
        let delete = fireteam_client::pb::MatchmakingDeleteAdvertisementRequest {
            advertisement_id: id.clone(),
            advertisement_token: answer.advertisement_token,
        };
        let refused = eve.delete_advertisement(delete.clone()).await.expect_err("another owner");
        assert_eq!(refused.to_string(), error.to_string(), "the same error");
        ana.delete_advertisement(delete).await.expect("delete by its owner");
        server.app.shutdown().await;
    }
}
