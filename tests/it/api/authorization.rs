//! The check without a network: who is let in as what.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{Extensions, HeaderMap};
use tonic::Code;

use fireteam::api::authorization::{AuthError, AuthorizedCaller, Authorizer, ClientOrGameServer, Operator};
use fireteam::api::client_address::{ClientAddressResolver, ConnectionPeer};
use fireteam::auth::authenticator::Authenticator;
use fireteam::auth::credential_error::CredentialError;
use fireteam::auth::identity::Role;
use fireteam::auth::policy::{ALL_AUTHENTICATED, AccessPolicy, CLIENTS_AND_GAME_SERVERS, OPERATORS_ONLY};
use fireteam::domain::attribute::ValueOrigin;
use fireteam::domain::id::UserKey;

use crate::support::tokens::TokenIssuer;
use crate::support::test_server::TestClock;

/// A keeper who knows the issuer of `badges`.
fn authorizer_for(badges: &TokenIssuer) -> Authorizer {
    let folder = tempfile::tempdir().unwrap();
    let auth = badges.write_jwt_settings(folder.path());
    let clock = Arc::new(TestClock::new());
    Authorizer::new(Some(Arc::new(Authenticator::new(Some(auth), clock).unwrap())))
}

fn token_headers(badges: &TokenIssuer, role: Role) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, badges.authorization_header(role, "ana").parse().unwrap());
    headers
}

fn extensions_from(address: &str) -> Extensions {
    let address: IpAddr = address.parse().unwrap();
    let mut extensions = Extensions::new();
    let streams = Arc::new(AtomicU32::new(0));
    extensions.insert(ConnectionPeer { address, open_streams: streams, streams_max: 1, certificate: None });
    extensions
}

fn address_resolver() -> ClientAddressResolver {
    ClientAddressResolver::new(Arc::new(|peer, _| peer))
}

/// SEC-4: each role is let in where it belongs and nowhere else.
#[test]
fn authorization_admits_each_role_only_where_allowed() {
    let (badges, extensions) = (TokenIssuer::new(&TestClock::new()), Extensions::new());
    let keeper = authorizer_for(&badges);
    let all = [AccessPolicy::Public, CLIENTS_AND_GAME_SERVERS, OPERATORS_ONLY, ALL_AUTHENTICATED];
    let check = |role: Role, wanted: [bool; 4]| {
        let admitted = all.map(|access| keeper.authorize(access, &token_headers(&badges, role), &extensions).is_ok());
        assert_eq!(admitted, wanted, "{role:?}");
    };
    check(Role::Client, [true, true, false, true]);
    check(Role::GameServer, [true, true, false, true]);
    check(Role::Operator, [true, false, true, true]);
    let nobody = all.map(|access| keeper.authorize(access, &HeaderMap::new(), &extensions).map(|_| ()));
    let missing = Err(AuthError::Unauthenticated(CredentialError::Missing));
    assert_eq!(nobody, [Ok(()), missing, missing, missing]);
    let mut twice = token_headers(&badges, Role::Client);
    twice.append(AUTHORIZATION, badges.authorization_header(Role::Client, "ana").parse().unwrap());
    assert_eq!(
        keeper.authorize(CLIENTS_AND_GAME_SERVERS, &twice, &extensions).unwrap_err(),
        AuthError::Unauthenticated(CredentialError::Malformed)
    );
}

/// SEC-4: a request that has come past the check is nobody's, and so is one that was let in as something else.
#[test]
fn authorized_caller_requires_the_authorization_check() {
    let badges = TokenIssuer::new(&TestClock::new());
    let (keeper, headers, mut extensions) = (authorizer_for(&badges), token_headers(&badges, Role::Client), Extensions::new());
    let refused = AuthorizedCaller::<ClientOrGameServer>::from_request(&address_resolver(), &headers, &extensions).unwrap_err();
    assert_eq!(refused.code, Code::Unauthenticated);
    for access in [AccessPolicy::Public, ALL_AUTHENTICATED] {
        extensions.insert(keeper.authorize(access, &headers, &Extensions::new()).unwrap());
        assert!(
            AuthorizedCaller::<ClientOrGameServer>::from_request(&address_resolver(), &headers, &extensions).is_err(),
            "{access:?}"
        );
    }
    extensions.insert(keeper.authorize(CLIENTS_AND_GAME_SERVERS, &headers, &Extensions::new()).unwrap());
    assert!(AuthorizedCaller::<Operator>::from_request(&address_resolver(), &headers, &extensions).is_err());
    let caller = AuthorizedCaller::<ClientOrGameServer>::from_request(&address_resolver(), &headers, &extensions).unwrap();
    let identity = caller.identity().unwrap();
    assert_eq!(
        (caller.engine_caller().subject, caller.engine_caller().user),
        (Some(identity.caller_key), Some(UserKey::from_name("ana")))
    );
    assert_eq!(caller.engine_caller().origin, ValueOrigin::Client);
    let end = Duration::from_secs(3_600 + 30);
    let good_for = caller.valid_for().expect("a token ends");
    assert!(
        end - Duration::from_secs(1) < good_for && good_for <= end,
        "its end, and what clocks differ by: {good_for:?}"
    );
}

/// SEC-6: a game server is believed where the ruleset believes servers, and plays for nobody.
#[test]
fn game_server_caller_has_a_trusted_origin_and_no_user() {
    let badges = TokenIssuer::new(&TestClock::new());
    let (keeper, headers, mut extensions) = (authorizer_for(&badges), token_headers(&badges, Role::GameServer), Extensions::new());
    extensions.insert(keeper.authorize(CLIENTS_AND_GAME_SERVERS, &headers, &Extensions::new()).unwrap());
    let caller = AuthorizedCaller::<ClientOrGameServer>::from_request(&address_resolver(), &headers, &extensions).unwrap();
    assert_eq!((caller.engine_caller().origin, caller.engine_caller().user), (ValueOrigin::GameServer, None));
}

/// SEC-4: metrics are the operators', but for whoever is on the machine of a port that no other machine reaches.
#[test]
fn metrics_are_allowed_for_operators_and_loopback() {
    let check = |keeper: &Authorizer, port: &str, headers: &HeaderMap, peer: &str, wanted: bool| {
        let port: IpAddr = port.parse().unwrap();
        assert_eq!(keeper.authorize_metrics(port, headers, &extensions_from(peer)).is_ok(), wanted, "{port} from {peer}");
    };
    let badges = TokenIssuer::new(&TestClock::new());
    let (locked, nobody) = (authorizer_for(&badges), HeaderMap::new());
    check(&locked, "127.0.0.1", &nobody, "127.0.0.1", true);
    check(&locked, "::1", &nobody, "::ffff:127.0.0.1", true);
    check(&locked, "0.0.0.0", &nobody, "127.0.0.1", false);
    check(&locked, "10.0.0.1", &nobody, "10.0.0.2", false);
    check(&locked, "10.0.0.1", &token_headers(&badges, Role::GameServer), "10.0.0.2", false);
    check(&locked, "10.0.0.1", &token_headers(&badges, Role::Operator), "10.0.0.2", true);
    check(&Authorizer::default(), "10.0.0.1", &nobody, "10.0.0.2", true);
}

/// SEC-4: the certificate of a connection is as good as a token, but for who it cannot be, and not beside a bad one.
#[test]
fn client_certificate_authenticates_its_role() {
    let badges = TokenIssuer::new(&TestClock::new());
    let keeper = authorizer_for(&badges);
    let named = |uri: &str| {
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.subject_alt_names.push(rcgen::SanType::URI(uri.try_into().unwrap()));
        let der = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().der().to_vec();
        let mut extensions = Extensions::new();
        let (address, streams) = ("10.0.0.1".parse().unwrap(), Arc::new(AtomicU32::new(0)));
        extensions.insert(ConnectionPeer {
            address,
            open_streams: streams,
            streams_max: 1,
            certificate: Some(der.into()),
        });
        extensions
    };
    let nothing = HeaderMap::new();
    let mut server = named("fireteam://game_server/eu-1");
    let admitted = keeper.authorize(CLIENTS_AND_GAME_SERVERS, &nothing, &server).unwrap();
    assert_eq!(admitted.valid_for(), None, "it ends with its connection");
    server.insert(admitted);
    let caller = AuthorizedCaller::<ClientOrGameServer>::from_request(&address_resolver(), &nothing, &server).unwrap();
    assert_eq!((caller.engine_caller().origin, caller.engine_caller().user), (ValueOrigin::GameServer, None));
    assert_eq!(
        keeper.authorize(OPERATORS_ONLY, &nothing, &server).unwrap_err(),
        AuthError::RoleNotAllowed(Role::GameServer)
    );
    assert!(keeper.authorize(OPERATORS_ONLY, &nothing, &named("fireteam://operator/ana")).is_ok());
    let nobody = AuthError::Unauthenticated(CredentialError::InvalidCertificate);
    assert_eq!(
        keeper.authorize(CLIENTS_AND_GAME_SERVERS, &nothing, &named("fireteam://client/ana")).unwrap_err(),
        nobody
    );

    let mut bad = HeaderMap::new();
    bad.insert(AUTHORIZATION, "Bearer x".parse().unwrap());
    assert_eq!(
        keeper.authorize(CLIENTS_AND_GAME_SERVERS, &bad, &server).unwrap_err(),
        AuthError::Unauthenticated(CredentialError::Malformed)
    );
    let token = token_headers(&badges, Role::Client);
    assert_eq!(
        keeper.authorize(CLIENTS_AND_GAME_SERVERS, &token, &server).unwrap().identity().unwrap().role,
        Role::Client
    );
}
