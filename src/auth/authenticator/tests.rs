//! Precedence of token and certificate, and expiry of cached proofs.

use std::path::Path;

use super::*;
use crate::auth::identity::Role;
use crate::auth::jwt_signing_key::{CallerTokenClaims, JwtSigningKey};
use crate::clock::ManualClock;

const START: UnixMs = UnixMs(1_700_000_000_000);

fn jwt_signing_key(seed: u8) -> JwtSigningKey {
    JwtSigningKey::from_seed(&[seed; 32]).unwrap()
}

fn bearer_header(jwt_signing_key: &JwtSigningKey, ttl_s: u64) -> String {
    let iat = START.0 / 1000;
    let (iss, sub, aud) = ("game".into(), "ana".into(), "fireteam".into());
    let claims = CallerTokenClaims { iss, sub, aud, iat, exp: iat + ttl_s, ..CallerTokenClaims::default() };
    format!("Bearer {}", jwt_signing_key.sign_jwt(&claims).unwrap())
}

fn authenticator_for(file: &Path, clock: &Arc<ManualClock>) -> Authenticator {
    let settings = JwtSettings::of_one_issuer("game", "fireteam", &[file.into()]);
    Authenticator::new(Some(settings), clock.clone()).unwrap()
}

/// A client certificate of a game server, DER.
fn game_server_certificate() -> Vec<u8> {
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.subject_alt_names.push(rcgen::SanType::URI("fireteam://game_server/eu-1".try_into().unwrap()));
    params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().der().to_vec()
}

/// SEC-4: a token takes precedence over a certificate; a valid certificate does not make up for a bad token.
#[test]
fn authentication_prefers_the_token_to_the_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys");
    std::fs::write(&file, jwt_signing_key(1).public_key_set()).unwrap();
    let clock = Arc::new(ManualClock::new(START, 1));
    let authenticator = authenticator_for(&file, &clock);
    let (good, bad) = (bearer_header(&jwt_signing_key(1), 60), bearer_header(&jwt_signing_key(2), 60));
    let check = |header: Option<&str>, certificate: Option<&[u8]>, expected: Result<Role, CredentialError>| {
        for _ in 0..2 {
            let found =
                authenticator.authenticate(header.map(str::as_bytes), certificate).map(|identity| identity.role);
            assert_eq!(found, expected, "{header:?}");
        }
    };
    let certificate = game_server_certificate();
    check(Some(&good), None, Ok(Role::Client));
    check(Some(&good.replace("Bearer", "bEARER")), None, Ok(Role::Client));
    check(Some(&good), Some(&certificate), Ok(Role::Client));
    check(None, Some(&certificate), Ok(Role::GameServer));
    check(Some(&bad), Some(&certificate), Err(CredentialError::UnknownKey));
    check(Some("Basic YTpi"), Some(&certificate), Err(CredentialError::Malformed));
    for malformed in ["", "Bearer", "Bearer ", "Bearer a b", "Bearer\ta"] {
        check(Some(malformed), None, Err(CredentialError::Malformed));
    }
    check(Some(&format!("Bearer {}", "a".repeat(5_000))), None, Err(CredentialError::TooLarge));
    check(None, None, Err(CredentialError::Missing));
    check(None, Some(b"no certificate"), Err(CredentialError::InvalidCertificate));

    let certificates_only = Authenticator::new(None, clock).unwrap();
    assert_eq!(
        certificates_only.authenticate(Some(good.as_bytes()), Some(&certificate)).unwrap_err(),
        CredentialError::UnknownKey
    );
    assert!(certificates_only.authenticate(None, Some(&certificate)).is_ok());
}

/// SEC-4: a cached proof is rejected after its token expires and after its key is removed.
#[test]
fn cached_proof_ends_with_its_token_and_with_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys");
    std::fs::write(&file, jwt_signing_key(1).public_key_set()).unwrap();
    let clock = Arc::new(ManualClock::new(START, 1));
    let authenticator = authenticator_for(&file, &clock);
    let (short, long) = (bearer_header(&jwt_signing_key(1), 10), bearer_header(&jwt_signing_key(1), 3_600));
    let identify = |token: &str| authenticator.authenticate(Some(token.as_bytes()), None);
    assert_eq!(authenticator.identity_expires_in_ms(&identify(&short).unwrap()), Some(40_000));
    clock.advance_ms(39_999);
    assert!(identify(&short).is_ok(), "accepted until its end plus the clock leeway");
    clock.advance_ms(1);
    assert_eq!(identify(&short).unwrap_err(), CredentialError::Expired);

    assert!(identify(&long).is_ok());
    std::fs::write(&file, "no key").unwrap();
    assert!(authenticator.reload().is_err());
    assert!(identify(&long).is_ok(), "the old keys stay when a file is invalid");
    std::fs::write(&file, jwt_signing_key(2).public_key_set()).unwrap();
    authenticator.reload().unwrap();
    assert_eq!(identify(&long).unwrap_err(), CredentialError::UnknownKey);
    assert!(identify(&bearer_header(&jwt_signing_key(2), 3_600)).is_ok());
    assert_eq!(format!("{authenticator:?}"), "Authenticator { keys: 1, .. }");
}
