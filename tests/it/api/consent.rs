//! Party consent: a player's client acts for its own user, and for others who have consented.

use fireteam::auth::identity::Role;
use fireteam::config::{RateLimitSetting, RulesetSource};
use fireteam_client::{Client, Code, Error, pb};

use crate::support::queue_server::wait_until;
use crate::support::ruleset_dir::RulesetDirectory;
use crate::support::test_server::{TestServer, advertise_request, party_session};
use crate::support::tokens::{TokenIssuer, start_authenticated_server, start_authenticated_server_with_config};

const RULESET_XML: &str = "<Ruleset Name=\"ranked\" SetId=\"1\"><Party Consent=\"required\"/></Ruleset>";

/// Starts a server whose only ruleset requires consent.
async fn start_consent_server() -> (TestServer, TokenIssuer, RulesetDirectory) {
    let rulesets = RulesetDirectory::with_files(&[("ranked.xml", RULESET_XML)]);
    let directory = rulesets.path().to_owned();
    let (server, issuer) = start_authenticated_server_with_config(|config| {
        config.rulesets = RulesetSource::Directory(directory);
        config.rate_limits = RateLimitSetting::Off;
    })
    .await;
    (server, issuer, rulesets)
}

/// Consent to be in the party of `leader`, in set 1.
fn consent_to(leader: &str, r#use: pb::ConsentUse) -> pb::MatchmakingGrantConsentRequest {
    pb::MatchmakingGrantConsentRequest {
        leader_user_id: leader.to_owned(),
        matchmaking_set_id: Some(1),
        r#use: r#use.into(),
        may_answer: false,
    }
}

async fn grant_consent(member: &Client, leader: &str, r#use: pb::ConsentUse) -> Vec<u8> {
    let answer = member.grant_party_consent(consent_to(leader, r#use)).await.expect("consent");
    assert_eq!(answer.expires_in_ms, 300_000);
    answer.consent_token
}

/// Party of `ana` and `others`, each with a consent token or an empty one.
fn party_with(others: &[(&str, &[u8])]) -> pb::SessionCompositionData {
    let mut session = party_session(&[("ana", 0.0)]);
    session.players.extend(others.iter().map(|(user, token)| pb::PlayerData {
        user_id: (*user).to_owned(),
        consent_token: token.to_vec(),
        ..Default::default()
    }));
    session
}

fn search_request(session: pb::SessionCompositionData) -> pb::MatchmakingSearchRequest {
    pb::MatchmakingSearchRequest {
        session_composition: Some(session),
        matchmaking_set_id: Some(1),
        ..Default::default()
    }
}

fn create_request(session: pb::SessionCompositionData) -> pb::MatchmakingUpdateAdvertisementRequest {
    pb::MatchmakingUpdateAdvertisementRequest { session_composition: Some(session), ..advertise_request(&[], 4) }
}

/// Fields that the error names.
fn error_fields(error: &Error) -> Vec<&str> {
    assert_eq!(error.code(), Some(Code::InvalidArgument), "{error}");
    error.fields().iter().map(|problem| problem.field.as_str()).collect()
}

/// SEC-6: a player's client must be a member of its own party in every request. A game server acts for all players.
#[tokio::test]
async fn client_requests_must_include_the_callers_own_user() {
    let (server, issuer) = start_authenticated_server().await;
    let eve = issuer.client_with_token(&server, Role::Client, "eve").await;
    let players = ["session_composition.players"];
    assert_eq!(error_fields(&eve.search(search_request(party_session(&[("ana", 0.0)]))).await.unwrap_err()), players);
    let sizes = pb::SessionCompositionData { party_size_composition: vec![2], ..Default::default() };
    assert_eq!(error_fields(&eve.search(search_request(sizes.clone())).await.unwrap_err()), players);
    assert_eq!(
        error_fields(&eve.advertise(create_request(party_session(&[("ana", 0.0)]))).await.unwrap_err()),
        players
    );
    let envelope = pb::MatchmakingCoreRequest {
        request_type: Some(pb::MatchmakingCoreRequestType::Search.into()),
        search_request: Some(search_request(party_session(&[("ana", 0.0)]))),
        ..Default::default()
    };
    let error = eve.send_core_request(envelope).await.unwrap_err();
    assert_eq!(error_fields(&error), ["search_request.session_composition.players"]);

    let token = eve.search(search_request(party_session(&[("eve", 0.0)]))).await.expect("own user").search_token;
    let reserve = pb::MatchmakingReserveRequest {
        advertisement_id: "0".repeat(32),
        players: party_session(&[("ana", 0.0)]).players,
        search_token: token,
        ..Default::default()
    };
    assert_eq!(error_fields(&eve.reserve(reserve).await.unwrap_err()), ["players"]);

    let game_server = issuer.client_with_token(&server, Role::GameServer, "eu-1").await;
    game_server
        .search(search_request(party_session(&[("ana", 0.0)])))
        .await
        .expect("a game server acts for all players");
    game_server.search(search_request(sizes)).await.expect("a game server acts for all players");
    // A ruleset that says nothing about consent requires it.
    let error = eve.search(search_request(party_session(&[("eve", 0.0), ("ana", 0.0)]))).await.unwrap_err();
    assert_eq!(error_fields(&error), ["session_composition.players[1].consent_token"]);
}

/// SEC-6: a party of n needs the consent of n - 1 members, each for this leader and not expired.
#[tokio::test]
async fn party_members_need_a_valid_consent_token() {
    let (server, issuer, _book) = start_consent_server().await;
    let ana = issuer.client_with_token(&server, Role::Client, "ana").await;
    let ben = issuer.client_with_token(&server, Role::Client, "ben").await;
    let search = pb::ConsentUse::Search;
    let (valid, for_eve) = (grant_consent(&ben, "ana", search).await, grant_consent(&ben, "eve", search).await);
    let own = grant_consent(&ana, "ana", search).await;

    let path = ["session_composition.players[1].consent_token"];
    let for_queue = grant_consent(&ben, "ana", pb::ConsentUse::Queue).await;
    let in_set_2 = pb::MatchmakingGrantConsentRequest { matchmaking_set_id: Some(2), ..consent_to("ana", search) };
    let in_set_2 = ben.grant_party_consent(in_set_2).await.expect("consent").consent_token;
    for token in [&b""[..], &for_eve, &own, b"noise", &for_queue, &in_set_2] {
        assert_eq!(error_fields(&ana.search(search_request(party_with(&[("ben", token)]))).await.unwrap_err()), path);
        assert_eq!(
            error_fields(&ana.advertise(create_request(party_with(&[("ben", token)]))).await.unwrap_err()),
            path
        );
    }
    let error =
        ana.search(search_request(party_with(&[("ben", &valid), ("cid", &valid), ("dan", b"")]))).await.unwrap_err();
    let both = [2, 3].map(|at| format!("session_composition.players[{at}].consent_token"));
    assert_eq!(error_fields(&error), both);
    let twice = ana.search(search_request(party_with(&[("ben", &valid), ("ben", &valid)]))).await.unwrap_err();
    assert!(error_fields(&twice).contains(&"session_composition.players[2].user_id"), "{twice}");
    let eve = issuer.client_with_token(&server, Role::Client, "eve").await;
    let mut from_eve = party_with(&[("ben", &valid)]);
    from_eve.players[0].user_id = "eve".into();
    assert_eq!(error_fields(&eve.search(search_request(from_eve)).await.unwrap_err()), path, "the consent is for ana");

    ana.search(search_request(party_with(&[]))).await.expect("party of one");
    ana.search(search_request(party_with(&[("ben", &valid)]))).await.expect("party with consent");
    issuer
        .client_with_token(&server, Role::GameServer, "eu-1")
        .await
        .search(search_request(party_with(&[("ben", b"")])))
        .await
        .expect("a game server");

    server.clock.advance_ms(299_999);
    ana.search(search_request(party_with(&[("ben", &valid)]))).await.expect("consent is still valid");
    server.clock.advance_ms(1);
    assert_eq!(
        error_fields(&ana.search(search_request(party_with(&[("ben", &valid)]))).await.unwrap_err()),
        path,
        "consent has expired"
    );
}

/// SEC-6: reservations need the same consent. Players with a reservation need no second consent.
#[tokio::test]
async fn reserved_players_need_no_second_consent() {
    let (server, issuer, _book) = start_consent_server().await;
    let game_server = issuer.client_with_token(&server, Role::GameServer, "eu-1").await;
    let ana = issuer.client_with_token(&server, Role::Client, "ana").await;
    let mut hosted = advertise_request(&[("zoe", 0.0)], 4);
    let zoe = issuer.client_with_token(&server, Role::Client, "zoe").await;
    let advertised = zoe.advertise(hosted.clone()).await.expect("advertise");

    let ben = issuer.client_with_token(&server, Role::Client, "ben").await;
    let valid = grant_consent(&ben, "ana", pb::ConsentUse::Search).await;
    let search_token = ana.search(search_request(party_with(&[("ben", &valid)]))).await.expect("search").search_token;
    let reserve = |players: Vec<pb::PlayerData>| pb::MatchmakingReserveRequest {
        advertisement_id: advertised.id().into(),
        players,
        search_token: search_token.clone(),
        ..Default::default()
    };
    let error = ana.reserve(reserve(party_with(&[("ben", b"")]).players)).await.unwrap_err();
    assert_eq!(error_fields(&error), ["players[1].consent_token"]);
    let held =
        ana.reserve(reserve(party_with(&[("ben", &valid)]).players)).await.expect("reserve").reservation.unwrap();

    hosted.advertisement_id = advertised.id().into();
    hosted.advertisement_token = advertised.token().into();
    hosted.joined_reservation_ids = vec![held.reservation_id];
    let update_with = |users: &[(&str, f64)]| pb::MatchmakingUpdateAdvertisementRequest {
        session_composition: advertise_request(users, 2).session_composition,
        ..hosted.clone()
    };
    let error = zoe.update_advertisement(update_with(&[("zoe", 0.0), ("cid", 0.0)])).await.unwrap_err();
    assert_eq!(error_fields(&error), ["session_composition.players[1].consent_token"], "cid has no reservation");
    let all_players = [("zoe", 0.0), ("ana", 0.0), ("ben", 0.0)];
    zoe.update_advertisement(update_with(&all_players)).await.expect("they have a reservation");
    zoe.update_advertisement(update_with(&all_players)).await.expect("and are known afterwards");
    drop(game_server);
}

/// SEC-6: entering a queue needs the consent of every member and the caller's own user. Skill stated by a client is
/// ignored; skill stated by a game server counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queue_enter_requires_consent_and_ignores_untrusted_skill() {
    let queue = r#"<Ruleset Name="ranked" SetId="1"><Party Consent="required"/>
      <Attributes><Attribute Name="skill" Type="number" Min="0" Max="50"/></Attributes>
      <Teams Count="2" Size="2"/><Queue PassIntervalMs="10"><RatingWindow Start="2" Max="2"/></Queue></Ruleset>"#;
    let rulesets = RulesetDirectory::with_files(&[("ranked.xml", queue)]);
    let directory = rulesets.path().to_owned();
    let (server, issuer) =
        start_authenticated_server_with_config(|config| config.rulesets = RulesetSource::Directory(directory)).await;
    let ana = issuer.client_with_token(&server, Role::Client, "ana").await;
    let ben = issuer.client_with_token(&server, Role::Client, "ben").await;
    let enter = |session: pb::SessionCompositionData| pb::QueueEnterRequest {
        session_composition: Some(session),
        matchmaking_set_id: Some(1),
        ..Default::default()
    };
    let eve = issuer.client_with_token(&server, Role::Client, "eve").await;
    assert_eq!(
        error_fields(&eve.enter_queue(enter(party_session(&[("ana", 0.0)]))).await.unwrap_err()),
        ["session_composition.players"]
    );
    let queue = pb::ConsentUse::Queue;
    let (valid, for_eve) = (grant_consent(&ben, "ana", queue).await, grant_consent(&ben, "eve", queue).await);
    for token in [&b""[..], &for_eve] {
        let error = ana.enter_queue(enter(party_with(&[("ben", token)]))).await.unwrap_err();
        assert_eq!(error_fields(&error), ["session_composition.players[1].consent_token"]);
    }
    let mut session = party_with(&[("ben", &valid)]);
    session.players.iter_mut().for_each(|player| player.skill = Some(50.0));
    let mut claimed = ana.enter_queue(enter(session)).await.expect("party with consent");
    let ignored = [0, 1].map(|at| format!("session_composition.players[{at}].skill"));
    assert_eq!(claimed.ignored_fields, ignored);

    let game_server = issuer.client_with_token(&server, Role::GameServer, "eu-1").await;
    let mut strong = game_server
        .enter_queue(enter(party_session(&[("joe", 50.0), ("kim", 50.0)])))
        .await
        .expect("the skill of a game server is trusted");
    assert_eq!(strong.ignored_fields, [] as [String; 0]);
    let mut weak = game_server
        .enter_queue(enter(party_session(&[("liv", 0.0), ("max", 0.0)])))
        .await
        .expect("the skill of a game server is trusted");
    wait_until("the claimed skill of 50 is ignored", async || {
        claimed.heartbeat().await.expect("heartbeat").state() == pb::TicketState::Matched
    })
    .await;
    assert_eq!(strong.heartbeat().await.expect("heartbeat").state(), pb::TicketState::Waiting);
    let match_id = claimed.status.found_match.take().expect("a match").match_id;
    assert_eq!(weak.heartbeat().await.expect("heartbeat").found_match.as_ref().expect("a match").match_id, match_id);
}

/// SEC-6: only game servers advertise game servers, and only clients grant consent.
#[tokio::test]
async fn game_server_and_client_calls_require_their_role() {
    let (server, issuer) = start_authenticated_server().await;
    let as_game_server = pb::MatchmakingUpdateAdvertisementRequest {
        kind: pb::AdvertisementKind::GameServer.into(),
        ..advertise_request(&[("ana", 0.0)], 4)
    };
    let error = issuer
        .client_with_token(&server, Role::Client, "ana")
        .await
        .advertise(as_game_server.clone())
        .await
        .unwrap_err();
    let reason = error.as_server_error().and_then(|status| status.reason.as_deref());
    assert_eq!((error.code(), reason), (Some(Code::PermissionDenied), Some("GAME_SERVER_ROLE_REQUIRED")));
    let game_server = issuer.client_with_token(&server, Role::GameServer, "eu-1").await;
    game_server.advertise(as_game_server.clone()).await.expect("a game server");
    let error = game_server.grant_party_consent(consent_to("ana", pb::ConsentUse::Queue)).await.unwrap_err();
    assert_eq!(error.code(), Some(Code::PermissionDenied), "{error}");

    let without_auth = TestServer::start().await;
    without_auth.client().await.advertise(as_game_server).await.expect("any caller without authentication");
    let client = without_auth.client().await;
    let grant =
        client.grant_party_consent(consent_to("ana", pb::ConsentUse::Queue)).await.expect("no consent is needed");
    assert_eq!((grant.consent_token.len(), grant.expires_in_ms), (0, 0));
    client.search(search_request(party_session(&[("eve", 0.0), ("ana", 0.0)]))).await.expect("consent is assumed");
    let error = client.grant_party_consent(pb::MatchmakingGrantConsentRequest::default()).await.unwrap_err();
    assert_eq!(error_fields(&error), ["leader_user_id", "use", "matchmaking_set_id"]);
    let error = client.revoke_party_consent(b"").await.unwrap_err();
    assert_eq!(error_fields(&error), ["consent_token"]);
}
