//! Kinds of tokens over gRPC: types, keys limited to roles, several issuers, subjects, the limit of signatures per address,
//! and the limit of accounts per address.

use fireteam::auth::identity::Role;
use fireteam::auth::jwt_signing_key::{CallerTokenClaims, JwtSigningKey};
use fireteam::config::{CallRateOrOpenStreamsMax, DEFAULT_RATE_LIMITS, RateLimitRule, RateLimitSetting};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tonic_types::StatusExt;

use crate::support::generated_client;
use crate::support::generated_client::matchmaking_service_client::MatchmakingServiceClient;
use crate::support::generated_client::operator_service_client::OperatorServiceClient;
use crate::support::test_server::TestServer;
use crate::support::tokens::{ISSUER, start_authenticated_server, start_authenticated_server_with_config};

async fn channel_to(address: std::net::SocketAddr) -> Channel {
    Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap()
}

/// Asks for the configuration of a set with `token`, from the forwarded `address`.
async fn get_configuration(server: &TestServer, token: &str, address: &str) -> Result<(), Status> {
    let mut request = Request::new(generated_client::MatchmakingGetConfigurationRequest {
        matchmaking_set_id: Some(1),
        ..Default::default()
    });
    request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    request.metadata_mut().insert("x-forwarded-for", address.parse().unwrap());
    let mut client = MatchmakingServiceClient::new(channel_to(server.app.server.address).await);
    client.get_configuration(request).await.map(drop)
}

/// Reason of an error, or the name of the exceeded limit.
fn reason_of(result: Result<(), Status>) -> String {
    let status = match result {
        Ok(()) => return "admitted".into(),
        Err(status) => status,
    };
    let info = status.get_details_error_info().expect("a reason");
    info.metadata.get("limit").cloned().unwrap_or(info.reason)
}

const HOME: &str = "203.0.113.7";
const ELSEWHERE: &str = "203.0.113.8";

/// SEC-4: a token of another type does not authenticate, though a trusted key has signed it, and the metric says so.
#[tokio::test]
async fn token_of_another_type_is_refused() {
    let (server, issuer) = start_authenticated_server().await;
    let claims = issuer.claims(Role::Operator, "ana");
    for (typ, expected) in [
        ("JWT", "ROLE_NOT_ALLOWED"),
        ("at+jwt", "ROLE_NOT_ALLOWED"),
        ("match+jwt", "CREDENTIALS_REJECTED"),
        ("secevent+jwt", "CREDENTIALS_REJECTED"),
    ] {
        let token = issuer.key.sign_jwt_of_type(typ, &claims).unwrap();
        assert_eq!(reason_of(get_configuration(&server, &token, HOME).await), expected, "{typ}");
    }
    let metrics = server.app.metrics.render();
    assert!(metrics.contains("fireteam_auth_failures_total{reason=\"type\"} 2"), "{metrics}");
}

/// SEC-4: a subject with control or bidirectional characters does not authenticate: logs and consoles would show another
/// name.
#[tokio::test]
async fn token_with_a_misleading_subject_is_refused() {
    let (server, issuer) = start_authenticated_server().await;
    for subject in ["ana\u{202e}toor", "ana\u{2066}x", "ana\u{200f}", "ana\u{85}", "ana\u{2028}x"] {
        let token = issuer.sign_token(Role::Client, subject);
        let found = reason_of(get_configuration(&server, &token, HOME).await);
        assert_eq!(found, "CREDENTIALS_REJECTED", "{subject:?}");
    }
    let token = issuer.sign_token(Role::Client, "علی\u{200c}رضا");
    assert_eq!(reason_of(get_configuration(&server, &token, HOME).await), "admitted");
}

/// SEC-4: the key of the login service signs for players alone, and the studio's key for operators alone, each under its own
/// issuer. Reloaded keys keep their issuer and roles.
#[tokio::test]
async fn keys_of_two_issuers_sign_for_their_own_roles_only() {
    let folder = tempfile::tempdir().unwrap();
    let studio = JwtSigningKey::from_seed(&[8; 32]).unwrap();
    let file = folder.path().join("studio.json");
    std::fs::write(&file, studio.public_key_set()).unwrap();
    let studio_file = file.clone();
    let (mut server, issuer) = start_authenticated_server_with_config(move |config| {
        let auth = config.auth.as_mut().unwrap();
        auth.issuers[0].keys[0].roles = vec!["client"];
        let keys = vec![fireteam::config::VerifyingKeyFile { file: studio_file, roles: vec!["operator"] }];
        let (name, audience) = ("studio".to_owned(), "ops".to_owned());
        auth.issuers.push(fireteam::config::TokenIssuer { name, audience, keys });
    })
    .await;
    server.keep_folder(folder);
    let operator = OperatorServiceClient::new(channel_to(server.app.server.operator_address).await);
    let list = async |key: &JwtSigningKey, iss: &str, aud: &str, role: Role| {
        let base = issuer.claims(role, "ana");
        let claims = CallerTokenClaims { iss: iss.into(), aud: aud.into(), ..base };
        let mut request = Request::new(generated_client::ListRulesetsRequest {});
        let header = format!("Bearer {}", key.sign_jwt(&claims).unwrap());
        request.metadata_mut().insert("authorization", header.parse().unwrap());
        reason_of(operator.clone().list_rulesets(request).await.map(drop))
    };
    for round in 0..2 {
        assert_eq!(list(&studio, "studio", "ops", Role::Operator).await, "admitted", "{round}");
        assert_eq!(list(&issuer.key, ISSUER, "fireteam", Role::Client).await, "ROLE_NOT_ALLOWED", "{round}");
        for (key, iss, aud, role) in [
            (&issuer.key, ISSUER, "fireteam", Role::Operator),
            (&issuer.key, "studio", "ops", Role::Operator),
            (&issuer.key, ISSUER, "fireteam", Role::GameServer),
            (&studio, ISSUER, "fireteam", Role::Operator),
            (&studio, ISSUER, "fireteam", Role::Client),
            (&studio, "studio", "ops", Role::Client),
            (&studio, "studio", "fireteam", Role::Operator),
        ] {
            assert_eq!(list(key, iss, aud, role).await, "CREDENTIALS_REJECTED", "{iss} {aud} {role:?}");
            server.clock.advance_ms(2_000);
        }
        let authenticator = server.app.authenticator.as_ref().unwrap();
        assert_eq!(authenticator.key_files().len(), 2);
        authenticator.reload().unwrap();
    }
    std::fs::write(&file, "no key").unwrap();
    assert!(server.app.authenticator.as_ref().unwrap().reload().is_err());
    assert_eq!(list(&studio, "studio", "ops", Role::Operator).await, "admitted", "the old keys stay");
}

/// SEC-4, SEC-11: an address that sends tokens with a wrong signature is refused before more of them are verified. Valid
/// tokens cost nothing, known ones are accepted meanwhile, and other addresses are not affected.
#[tokio::test]
async fn signatures_are_charged_to_the_address_before_they_are_verified() {
    let (server, issuer) = start_authenticated_server().await;
    let known = issuer.sign_token(Role::Client, "known");
    get_configuration(&server, &known, HOME).await.expect("a valid token");
    let mut reasons = Vec::new();
    for number in 0..230 {
        let token = issuer.sign_token(Role::Client, &format!("forged {number}"));
        let (signed, _) = token.rsplit_once('.').unwrap();
        let forged = format!("{signed}.{}", "A".repeat(86));
        reasons.push(reason_of(get_configuration(&server, &forged, HOME).await));
    }
    let count = |reason: &str| reasons.iter().filter(|found| *found == reason).count();
    let counted = ["CREDENTIALS_REJECTED", "anonymous.auth_failure", "anonymous.verification"].map(count);
    assert_eq!(counted, [10, 190, 30], "{reasons:?}");
    let metrics = server.app.metrics.render();
    assert!(metrics.contains("fireteam_auth_failures_total{reason=\"signature\"} 200"), "{metrics}");
    get_configuration(&server, &known, HOME).await.expect("a known token needs no verification");
    for number in 0..230 {
        let token = issuer.sign_token(Role::Client, &format!("player {number}"));
        assert_eq!(reason_of(get_configuration(&server, &token, ELSEWHERE).await), "admitted", "{number}");
        server.clock.advance_ms(if number % 100 == 99 { 10_000 } else { 0 });
    }
    let fresh = issuer.sign_token(Role::Client, "fresh");
    server.clock.advance_ms(10_000);
    get_configuration(&server, &fresh, HOME).await.expect("the address may send new tokens again");
}

/// SEC-11: accounts at one address share a limit beside their own. Other addresses and game servers are not affected.
#[tokio::test]
async fn many_accounts_of_one_address_share_a_limit() {
    let (server, issuer) = start_authenticated_server_with_config(|config| {
        let known = DEFAULT_RATE_LIMITS.iter().find(|rule| rule.setting_name() == "client_address.search");
        let allowance = CallRateOrOpenStreamsMax::Calls { per_second: 1.0, burst: 5, per_5_min: 300 };
        let rule = RateLimitRule { allowance, ..*known.expect("a default rate limit") };
        config.rate_limits = RateLimitSetting::Overrides(vec![rule]);
    })
    .await;
    let search = async |role, name: String, address: &str| {
        reason_of(get_configuration(&server, &issuer.sign_token(role, &name), address).await)
    };
    for number in 0..5 {
        assert_eq!(search(Role::Client, format!("account {number}"), HOME).await, "admitted");
    }
    assert_eq!(search(Role::Client, "account 5".into(), HOME).await, "client_address.search");
    assert_eq!(search(Role::Client, "account 0".into(), HOME).await, "client_address.search");
    assert_eq!(search(Role::Client, "account 6".into(), ELSEWHERE).await, "admitted");
    assert_eq!(search(Role::GameServer, "eu-1".into(), HOME).await, "admitted");
    for number in 0..5 {
        let name = format!("six {number}");
        assert_eq!(search(Role::Client, name, &format!("2001:db8:0:{number:x}::1")).await, "admitted");
    }
    assert_eq!(search(Role::Client, "six 5".into(), "2001:db8:0:ff::1").await, "client_address.search");
    assert_eq!(search(Role::Client, "six 6".into(), "2001:db8:0:100::1").await, "admitted");
    server.clock.advance_ms(1_000);
    assert_eq!(search(Role::Client, "account 7".into(), HOME).await, "admitted");
    let metrics = server.app.metrics.render();
    let line = "fireteam_rate_limited_total{role=\"client_address\",limit=\"search\"} 3";
    assert!(metrics.contains(line), "{metrics}");
}
