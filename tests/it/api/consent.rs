//! Who comes along: a player's game speaks for its own user, and for others who have said so.

use fireteam::auth::identity::Role;
use fireteam::config::RulesetSource;
use fireteam_client::{Client, Code, Error, pb};

use crate::support::tokens::{TokenIssuer, start_authenticated_server, start_authenticated_server_with_config};
use crate::support::test_server::{TestServer, advertise_request, party_session};
use crate::support::queue_server::wait_until;
use crate::support::ruleset_dir::RulesetDirectory;

const RULESET_XML: &str = "<Ruleset Name=\"ranked\" SetId=\"1\"><Party Consent=\"required\"/></Ruleset>";

/// A house whose only ruleset asks for consent.
async fn start_consent_server() -> (TestServer, TokenIssuer, RulesetDirectory) {
    let book = RulesetDirectory::with_files(&[("ranked.xml", RULESET_XML)]);
    let directory = book.path().to_owned();
    let (house, badges) = start_authenticated_server_with_config(|config| config.rulesets = RulesetSource::Directory(directory)).await;
    (house, badges, book)
}

async fn grant_consent(member: &Client, leader: &str) -> Vec<u8> {
    let answer = member.grant_consent(leader).await.expect("consent");
    assert_eq!(answer.expires_in_ms, 300_000);
    answer.consent_token
}

/// A party of `ana` and whoever else, each with a token or none.
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

/// The fields that a request was refused for.
fn error_fields(error: &Error) -> Vec<&str> {
    assert_eq!(error.code(), Some(Code::InvalidArgument), "{error}");
    error.fields().iter().map(|problem| problem.field.as_str()).collect()
}

/// SEC-6: a player's game is one of its own party, whatever it asks; a server's is nobody's.
#[tokio::test]
async fn client_requests_must_include_the_callers_own_user() {
    let (house, badges) = start_authenticated_server().await;
    let eve = badges.client_with_token(&house, Role::Client, "eve").await;
    let players = ["session_composition.players"];
    assert_eq!(error_fields(&eve.search(search_request(party_session(&[("ana", 0.0)]))).await.unwrap_err()), players);
    let sizes = pb::SessionCompositionData { party_size_composition: vec![2], ..Default::default() };
    assert_eq!(error_fields(&eve.search(search_request(sizes.clone())).await.unwrap_err()), players);
    assert_eq!(error_fields(&eve.advertise(create_request(party_session(&[("ana", 0.0)]))).await.unwrap_err()), players);
    let envelope = pb::MatchmakingCoreRequest {
        request_type: Some(pb::MatchmakingCoreRequestType::Search.into()),
        search_request: Some(search_request(party_session(&[("ana", 0.0)]))),
        ..Default::default()
    };
    let error = eve.core(envelope).await.unwrap_err();
    assert_eq!(error_fields(&error), ["search_request.session_composition.players"]);

    let token = eve.search(search_request(party_session(&[("eve", 0.0)]))).await.expect("her own").search_token;
    let reserve = pb::MatchmakingReserveRequest {
        advertisement_id: "0".repeat(32),
        players: party_session(&[("ana", 0.0)]).players,
        search_token: token,
        ..Default::default()
    };
    assert_eq!(error_fields(&eve.reserve(reserve).await.unwrap_err()), ["players"]);

    let server = badges.client_with_token(&house, Role::GameServer, "eu-1").await;
    server.search(search_request(party_session(&[("ana", 0.0)]))).await.expect("a server speaks for all");
    server.search(search_request(sizes)).await.expect("a server speaks for all");
    // Without a ruleset that asks, the leader is believed about the others.
    eve.search(search_request(party_session(&[("eve", 0.0), ("ana", 0.0)]))).await.expect("assumed");
}

/// SEC-6: a party of n needs the consent of n - 1, each for this leader, each not too long ago.
#[tokio::test]
async fn party_members_need_a_valid_consent_token() {
    let (house, badges, _book) = start_consent_server().await;
    let ana = badges.client_with_token(&house, Role::Client, "ana").await;
    let ben = badges.client_with_token(&house, Role::Client, "ben").await;
    let (ours, others) = (grant_consent(&ben, "ana").await, grant_consent(&ben, "eve").await);
    let own = grant_consent(&ana, "ana").await;

    let path = ["session_composition.players[1].consent_token"];
    for token in [&b""[..], &others, &own, b"noise"] {
        assert_eq!(error_fields(&ana.search(search_request(party_with(&[("ben", token)]))).await.unwrap_err()), path);
        assert_eq!(error_fields(&ana.advertise(create_request(party_with(&[("ben", token)]))).await.unwrap_err()), path);
    }
    let error = ana.search(search_request(party_with(&[("ben", &ours), ("cid", &ours), ("dan", b"")]))).await.unwrap_err();
    let both = [2, 3].map(|at| format!("session_composition.players[{at}].consent_token"));
    assert_eq!(error_fields(&error), both);
    let twice = ana.search(search_request(party_with(&[("ben", &ours), ("ben", &ours)]))).await.unwrap_err();
    assert!(error_fields(&twice).contains(&"session_composition.players[2].user_id"), "{twice}");
    let eve = badges.client_with_token(&house, Role::Client, "eve").await;
    let mut hers = party_with(&[("ben", &ours)]);
    hers.players[0].user_id = "eve".into();
    assert_eq!(error_fields(&eve.search(search_request(hers)).await.unwrap_err()), path, "it was given to ana");

    ana.search(search_request(party_with(&[]))).await.expect("alone");
    ana.search(search_request(party_with(&[("ben", &ours)]))).await.expect("together");
    badges
        .client_with_token(&house, Role::GameServer, "eu-1")
        .await
        .search(search_request(party_with(&[("ben", b"")])))
        .await
        .expect("a server");

    house.clock.advance_ms(299_999);
    ana.search(search_request(party_with(&[("ben", &ours)]))).await.expect("still");
    house.clock.advance_ms(1);
    assert_eq!(error_fields(&ana.search(search_request(party_with(&[("ben", &ours)]))).await.unwrap_err()), path, "no longer");
}

/// SEC-6: seats are taken with the same consent, and who came by a reservation has given theirs there.
#[tokio::test]
async fn reserved_players_need_no_second_consent() {
    let (house, badges, _book) = start_consent_server().await;
    let server = badges.client_with_token(&house, Role::GameServer, "eu-1").await;
    let ana = badges.client_with_token(&house, Role::Client, "ana").await;
    let mut hosted = advertise_request(&[("zoe", 0.0)], 4);
    let zoe = badges.client_with_token(&house, Role::Client, "zoe").await;
    let advertised = zoe.advertise(hosted.clone()).await.expect("advertise");

    let ours = grant_consent(&badges.client_with_token(&house, Role::Client, "ben").await, "ana").await;
    let search_token = ana.search(search_request(party_with(&[("ben", &ours)]))).await.expect("search").search_token;
    let reserve = |players: Vec<pb::PlayerData>| pb::MatchmakingReserveRequest {
        advertisement_id: advertised.id().into(),
        players,
        search_token: search_token.clone(),
        ..Default::default()
    };
    let error = ana.reserve(reserve(party_with(&[("ben", b"")]).players)).await.unwrap_err();
    assert_eq!(error_fields(&error), ["players[1].consent_token"]);
    let held = ana.reserve(reserve(party_with(&[("ben", &ours)]).players)).await.expect("reserve").reservation.unwrap();

    hosted.advertisement_id = advertised.id().into();
    hosted.advertisement_token = advertised.token().into();
    hosted.joined_reservation_ids = vec![held.reservation_id];
    let arrived = |users: &[(&str, f64)]| pb::MatchmakingUpdateAdvertisementRequest {
        session_composition: advertise_request(users, 2).session_composition,
        ..hosted.clone()
    };
    let error = zoe.update_advertisement(arrived(&[("zoe", 0.0), ("cid", 0.0)])).await.unwrap_err();
    assert_eq!(error_fields(&error), ["session_composition.players[1].consent_token"], "cid came by none");
    let everybody = [("zoe", 0.0), ("ana", 0.0), ("ben", 0.0)];
    zoe.update_advertisement(arrived(&everybody)).await.expect("they came by a reservation");
    zoe.update_advertisement(arrived(&everybody)).await.expect("and are known now");
    drop(server);
}

/// SEC-6: into a queue as well nobody is taken along who has not said so, nor is anybody entered by a stranger; and
/// what a player's game says of its skill is nothing, where a game server's counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queue_enter_requires_consent_and_ignores_untrusted_skill() {
    let queue = r#"<Ruleset Name="ranked" SetId="1"><Party Consent="required"/>
      <Attributes><Attribute Name="skill" Type="number" Min="0" Max="50"/></Attributes>
      <Teams Count="2" Size="2"/><Queue PassIntervalMs="10"><RatingWindow Start="2" Max="2"/></Queue></Ruleset>"#;
    let book = RulesetDirectory::with_files(&[("ranked.xml", queue)]);
    let directory = book.path().to_owned();
    let (house, badges) = start_authenticated_server_with_config(|config| config.rulesets = RulesetSource::Directory(directory)).await;
    let ana = badges.client_with_token(&house, Role::Client, "ana").await;
    let ben = badges.client_with_token(&house, Role::Client, "ben").await;
    let enter = |session: pb::SessionCompositionData| pb::QueueEnterRequest {
        session_composition: Some(session),
        matchmaking_set_id: Some(1),
        ..Default::default()
    };
    let eve = badges.client_with_token(&house, Role::Client, "eve").await;
    assert_eq!(error_fields(&eve.enter(enter(party_session(&[("ana", 0.0)]))).await.unwrap_err()), ["session_composition.players"]);
    let (ours, others) = (grant_consent(&ben, "ana").await, grant_consent(&ben, "eve").await);
    for token in [&b""[..], &others] {
        let error = ana.enter(enter(party_with(&[("ben", token)]))).await.unwrap_err();
        assert_eq!(error_fields(&error), ["session_composition.players[1].consent_token"]);
    }
    let mut session = party_with(&[("ben", &ours)]);
    session.players.iter_mut().for_each(|player| player.skill = Some(50.0));
    let mut claimed = ana.enter(enter(session)).await.expect("together");
    let ignored = [0, 1].map(|at| format!("session_composition.players[{at}].skill"));
    assert_eq!(claimed.ignored_fields, ignored);

    let server = badges.client_with_token(&house, Role::GameServer, "eu-1").await;
    let mut strong = server.enter(enter(party_session(&[("joe", 50.0), ("kim", 50.0)]))).await.expect("a server is believed");
    assert_eq!(strong.ignored_fields, [] as [String; 0]);
    let mut weak = server.enter(enter(party_session(&[("liv", 0.0), ("max", 0.0)]))).await.expect("a server is believed");
    wait_until("a claim of 50 is as good as none", async || {
        claimed.heartbeat().await.expect("heartbeat").state() == pb::TicketState::Matched
    })
    .await;
    assert_eq!(strong.heartbeat().await.expect("heartbeat").state(), pb::TicketState::Waiting);
    let met = claimed.status.found_match.take().expect("a match").match_id;
    assert_eq!(weak.heartbeat().await.expect("heartbeat").found_match.as_ref().expect("a match").match_id, met);
}

/// SEC-6: only game servers advertise as such, and only players come along with players.
#[tokio::test]
async fn game_server_and_client_calls_require_their_role() {
    let (house, badges) = start_authenticated_server().await;
    let as_server = pb::MatchmakingUpdateAdvertisementRequest {
        kind: pb::AdvertisementKind::GameServer.into(),
        ..advertise_request(&[("ana", 0.0)], 4)
    };
    let error = badges.client_with_token(&house, Role::Client, "ana").await.advertise(as_server.clone()).await.unwrap_err();
    let reason = error.server_error().and_then(|failure| failure.reason.as_deref());
    assert_eq!((error.code(), reason), (Some(Code::PermissionDenied), Some("GAME_SERVER_ROLE_REQUIRED")));
    let server = badges.client_with_token(&house, Role::GameServer, "eu-1").await;
    server.advertise(as_server.clone()).await.expect("a server");
    let error = server.grant_consent("ana").await.unwrap_err();
    assert_eq!(error.code(), Some(Code::PermissionDenied), "{error}");

    let open = TestServer::start().await;
    open.client().await.advertise(as_server).await.expect("anybody, where nobody shows who they are");
    let nothing = open.client().await.grant_consent("ana").await.expect("nothing is asked for");
    assert_eq!((nothing.consent_token.len(), nothing.expires_in_ms), (0, 0));
    let error = open.client().await.grant_consent("").await.unwrap_err();
    assert_eq!(error_fields(&error), ["leader_user_id"]);
}
