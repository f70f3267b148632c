//! Authentication and role check, without a network.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{Extensions, HeaderMap};
use tonic::Code;

use fireteam::api::authorization::{AuthError, AuthorizedCaller, Authorizer, ClientOrGameServer, OperatorOnly};
use fireteam::api::client_address::{ClientAddressResolver, ConnectionPeer};
use fireteam::auth::authenticator::Authenticator;
use fireteam::auth::credential_error::CredentialError;
use fireteam::auth::identity::Role;
use fireteam::auth::policy::{
    ALL_AUTHENTICATED, AccessPolicy, CLIENTS_AND_GAME_SERVERS, OPERATORS_AND_VIEWERS, OPERATORS_ONLY,
};
use fireteam::domain::attribute::ValueOrigin;
use fireteam::domain::id::UserKey;

use crate::support::test_server::TestClock;
use crate::support::tokens::TokenIssuer;

/// Authorizer that trusts `issuer`.
fn authorizer_for(issuer: &TokenIssuer) -> Authorizer {
    let folder = tempfile::tempdir().unwrap();
    let auth = issuer.write_jwt_settings(folder.path());
    let clock = Arc::new(TestClock::new());
    Authorizer::new(Some(Arc::new(Authenticator::new(Some(auth), clock).unwrap())))
}

fn token_headers(issuer: &TokenIssuer, role: Role) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, issuer.authorization_header(role, "ana").parse().unwrap());
    headers
}

fn extensions_from(address: &str) -> Extensions {
    let address: IpAddr = address.parse().unwrap();
    let mut extensions = Extensions::new();
    extensions.insert(ConnectionPeer::new(address, 1));
    extensions
}

fn address_resolver() -> ClientAddressResolver {
    ClientAddressResolver::new(Arc::new(|peer, _| peer))
}

/// SEC-4: each role is admitted to its own calls only.
#[test]
fn authorization_admits_each_role_only_where_allowed() {
    let (issuer, extensions) = (TokenIssuer::new(&TestClock::new()), Extensions::new());
    let authorizer = authorizer_for(&issuer);
    let all =
        [AccessPolicy::Public, CLIENTS_AND_GAME_SERVERS, OPERATORS_ONLY, OPERATORS_AND_VIEWERS, ALL_AUTHENTICATED];
    let check = |role: Role, expected: [bool; 5]| {
        let is_admitted =
            all.map(|access| authorizer.authorize(access, &token_headers(&issuer, role), &extensions).is_ok());
        assert_eq!(is_admitted, expected, "{role:?}");
    };
    check(Role::Client, [true, true, false, false, true]);
    check(Role::GameServer, [true, true, false, false, true]);
    check(Role::Operator, [true, false, true, true, true]);
    check(Role::Viewer, [true, false, false, true, true]);
    let without_token = all.map(|access| authorizer.authorize(access, &HeaderMap::new(), &extensions).map(|_| ()));
    let missing = Err(AuthError::Unauthenticated(CredentialError::Missing));
    assert_eq!(without_token, [Ok(()), missing, missing, missing, missing]);
    let mut twice = token_headers(&issuer, Role::Client);
    twice.append(AUTHORIZATION, issuer.authorization_header(Role::Client, "ana").parse().unwrap());
    assert_eq!(
        authorizer.authorize(CLIENTS_AND_GAME_SERVERS, &twice, &extensions).unwrap_err(),
        AuthError::Unauthenticated(CredentialError::Malformed)
    );
}

/// SEC-4: a request that skipped the check has no authorized caller, nor has one that was checked for another kind of
/// caller.
#[test]
fn authorized_caller_requires_the_authorization_check() {
    let issuer = TokenIssuer::new(&TestClock::new());
    let (authorizer, headers, mut extensions) =
        (authorizer_for(&issuer), token_headers(&issuer, Role::Client), Extensions::new());
    let refused =
        AuthorizedCaller::<ClientOrGameServer>::from_checked_request(&address_resolver(), &headers, &extensions)
            .unwrap_err();
    assert_eq!(refused.code, Code::Unauthenticated);
    for access in [AccessPolicy::Public, ALL_AUTHENTICATED] {
        extensions.insert(authorizer.authorize(access, &headers, &Extensions::new()).unwrap());
        assert!(
            AuthorizedCaller::<ClientOrGameServer>::from_checked_request(&address_resolver(), &headers, &extensions)
                .is_err(),
            "{access:?}"
        );
    }
    extensions.insert(authorizer.authorize(CLIENTS_AND_GAME_SERVERS, &headers, &Extensions::new()).unwrap());
    assert!(
        AuthorizedCaller::<OperatorOnly>::from_checked_request(&address_resolver(), &headers, &extensions).is_err()
    );
    let caller =
        AuthorizedCaller::<ClientOrGameServer>::from_checked_request(&address_resolver(), &headers, &extensions)
            .unwrap();
    let identity = caller.identity().unwrap();
    assert_eq!(
        (caller.engine_caller().subject, caller.engine_caller().user),
        (Some(identity.caller_key), Some(UserKey::from_name("ana")))
    );
    assert_eq!(caller.engine_caller().program_kind, ValueOrigin::Client);
    let end = Duration::from_secs(3_600 + 30);
    let valid_for = caller.valid_for().expect("a token expires");
    assert!(
        end - Duration::from_secs(1) < valid_for && valid_for <= end,
        "expiry plus the clock tolerance: {valid_for:?}"
    );
}

/// SEC-6: a game server's values have the origin game server, and it has no user.
#[test]
fn game_server_caller_has_a_trusted_origin_and_no_user() {
    let issuer = TokenIssuer::new(&TestClock::new());
    let (authorizer, headers, mut extensions) =
        (authorizer_for(&issuer), token_headers(&issuer, Role::GameServer), Extensions::new());
    extensions.insert(authorizer.authorize(CLIENTS_AND_GAME_SERVERS, &headers, &Extensions::new()).unwrap());
    let caller =
        AuthorizedCaller::<ClientOrGameServer>::from_checked_request(&address_resolver(), &headers, &extensions)
            .unwrap();
    assert_eq!((caller.engine_caller().program_kind, caller.engine_caller().user), (ValueOrigin::GameServer, None));
}

/// SEC-4: metrics need the operator role, except for loopback callers of a loopback port.
#[test]
fn metrics_are_allowed_for_operators_and_loopback() {
    let check = |authorizer: &Authorizer, port: &str, headers: &HeaderMap, peer: &str, expected: bool| {
        let port: IpAddr = port.parse().unwrap();
        assert_eq!(
            authorizer.authorize_metrics(port, headers, &extensions_from(peer)).is_ok(),
            expected,
            "{port} from {peer}"
        );
    };
    let issuer = TokenIssuer::new(&TestClock::new());
    let (authorizer, no_headers) = (authorizer_for(&issuer), HeaderMap::new());
    check(&authorizer, "127.0.0.1", &no_headers, "127.0.0.1", true);
    check(&authorizer, "::1", &no_headers, "::ffff:127.0.0.1", true);
    check(&authorizer, "0.0.0.0", &no_headers, "127.0.0.1", false);
    check(&authorizer, "10.0.0.1", &no_headers, "10.0.0.2", false);
    check(&authorizer, "10.0.0.1", &token_headers(&issuer, Role::GameServer), "10.0.0.2", false);
    check(&authorizer, "10.0.0.1", &token_headers(&issuer, Role::Operator), "10.0.0.2", true);
    check(&Authorizer::default(), "10.0.0.1", &no_headers, "10.0.0.2", true);
}

/// SEC-4: a client certificate authenticates like a token, except for the client role. An invalid token is refused also
/// with a valid certificate.
#[test]
fn client_certificate_authenticates_its_role() {
    let issuer = TokenIssuer::new(&TestClock::new());
    let authorizer = authorizer_for(&issuer);
    let named = |uri: &str| {
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.subject_alt_names.push(rcgen::SanType::URI(uri.try_into().unwrap()));
        let der = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().der().to_vec();
        let mut extensions = Extensions::new();
        let address = "10.0.0.1".parse().unwrap();
        extensions.insert(ConnectionPeer { certificate: Some(der.into()), ..ConnectionPeer::new(address, 1) });
        extensions
    };
    let no_headers = HeaderMap::new();
    let mut server = named("fireteam://game_server/eu-1");
    let auth_context = authorizer.authorize(CLIENTS_AND_GAME_SERVERS, &no_headers, &server).unwrap();
    assert_eq!(auth_context.valid_for(), None, "valid as long as the connection");
    server.insert(auth_context);
    let caller =
        AuthorizedCaller::<ClientOrGameServer>::from_checked_request(&address_resolver(), &no_headers, &server)
            .unwrap();
    assert_eq!((caller.engine_caller().program_kind, caller.engine_caller().user), (ValueOrigin::GameServer, None));
    assert_eq!(
        authorizer.authorize(OPERATORS_ONLY, &no_headers, &server).unwrap_err(),
        AuthError::RoleNotAllowed(Role::GameServer)
    );
    assert!(authorizer.authorize(OPERATORS_ONLY, &no_headers, &named("fireteam://operator/ana")).is_ok());
    let invalid = AuthError::Unauthenticated(CredentialError::InvalidCertificate);
    assert_eq!(
        authorizer.authorize(CLIENTS_AND_GAME_SERVERS, &no_headers, &named("fireteam://client/ana")).unwrap_err(),
        invalid
    );

    let mut bad = HeaderMap::new();
    bad.insert(AUTHORIZATION, "Bearer x".parse().unwrap());
    assert_eq!(
        authorizer.authorize(CLIENTS_AND_GAME_SERVERS, &bad, &server).unwrap_err(),
        AuthError::Unauthenticated(CredentialError::Malformed)
    );
    let token = token_headers(&issuer, Role::Client);
    assert_eq!(
        authorizer.authorize(CLIENTS_AND_GAME_SERVERS, &token, &server).unwrap().identity().unwrap().role,
        Role::Client
    );
}
