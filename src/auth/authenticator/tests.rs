//! What is shown, what counts, and what keys that change leave behind.

use std::path::Path;

use super::*;
use crate::auth::identity::Role;
use crate::auth::issuing_key::{CallerTokenClaims, IssuingKey};
use crate::clock::ManualClock;

const START: UnixMs = UnixMs(1_700_000_000_000);

fn issuing_key(seed: u8) -> IssuingKey {
    IssuingKey::from_seed(&[seed; 32]).unwrap()
}

fn bearer_header(issuer: &IssuingKey, ttl: u64) -> String {
    let iat = START.0 / 1000;
    let (iss, sub, aud) = ("game".into(), "ana".into(), "fireteam".into());
    format!(
        "Bearer {}",
        issuer
            .sign_jwt(&CallerTokenClaims { iss, sub, aud, iat, exp: iat + ttl, ..CallerTokenClaims::default() })
            .unwrap()
    )
}

fn authenticator_for(file: &Path, clock: &Arc<ManualClock>) -> Authenticator {
    let auth = JwtSettings { keys: vec![file.into()], issuer: "game".into(), audience: "fireteam".into() };
    Authenticator::new(Some(auth), clock.clone()).unwrap()
}

/// A certificate that names a game server.
fn game_server_certificate() -> Vec<u8> {
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.subject_alt_names.push(rcgen::SanType::URI("fireteam://server/eu-1".try_into().unwrap()));
    params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().der().to_vec()
}

/// SEC-4: the header counts where there is one; a certificate does not make a bad token good.
#[test]
fn authentication_prefers_the_token_to_the_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys");
    std::fs::write(&file, issuing_key(1).public_key_set()).unwrap();
    let clock = Arc::new(ManualClock::new(START, 1));
    let authenticator = authenticator_for(&file, &clock);
    let (good, bad) = (bearer_header(&issuing_key(1), 60), bearer_header(&issuing_key(2), 60));
    let check = |header: Option<&str>, certificate: Option<&[u8]>, wanted: Result<Role, CredentialError>| {
        for _ in 0..2 {
            let found =
                authenticator.authenticate(header.map(str::as_bytes), certificate).map(|identity| identity.role);
            assert_eq!(found, wanted, "{header:?}");
        }
    };
    let server = game_server_certificate();
    check(Some(&good), None, Ok(Role::Client));
    check(Some(&good.replace("Bearer", "bEARER")), None, Ok(Role::Client));
    check(Some(&good), Some(&server), Ok(Role::Client));
    check(None, Some(&server), Ok(Role::GameServer));
    check(Some(&bad), Some(&server), Err(CredentialError::UnknownKey));
    check(Some("Basic YTpi"), Some(&server), Err(CredentialError::Malformed));
    for nothing in ["", "Bearer", "Bearer ", "Bearer a b", "Bearer\ta"] {
        check(Some(nothing), None, Err(CredentialError::Malformed));
    }
    check(Some(&format!("Bearer {}", "a".repeat(5_000))), None, Err(CredentialError::TooLarge));
    check(None, None, Err(CredentialError::Missing));
    check(None, Some(b"no certificate"), Err(CredentialError::InvalidCertificate));

    let certificates_alone = Authenticator::new(None, clock).unwrap();
    assert_eq!(
        certificates_alone.authenticate(Some(good.as_bytes()), Some(&server)).unwrap_err(),
        CredentialError::UnknownKey
    );
    assert!(certificates_alone.authenticate(None, Some(&server)).is_ok());
}

/// SEC-4: what was verified a moment ago is not believed beyond its end, nor after its key has gone.
#[test]
fn cached_proof_ends_with_its_token_and_with_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys");
    std::fs::write(&file, issuing_key(1).public_key_set()).unwrap();
    let clock = Arc::new(ManualClock::new(START, 1));
    let authenticator = authenticator_for(&file, &clock);
    let (short, long) = (bearer_header(&issuing_key(1), 10), bearer_header(&issuing_key(1), 3_600));
    let identify = |token: &str| authenticator.authenticate(Some(token.as_bytes()), None);
    assert_eq!(authenticator.identity_expires_in_ms(&identify(&short).unwrap()), Some(40_000));
    clock.advance_ms(39_999);
    assert!(identify(&short).is_ok(), "its end, and what clocks may differ by");
    clock.advance_ms(1);
    assert_eq!(identify(&short).unwrap_err(), CredentialError::Expired);

    assert!(identify(&long).is_ok());
    std::fs::write(&file, "nothing").unwrap();
    assert!(authenticator.reload().is_err());
    assert!(identify(&long).is_ok(), "with a bad file the old keys stay");
    std::fs::write(&file, issuing_key(2).public_key_set()).unwrap();
    authenticator.reload().unwrap();
    assert_eq!(identify(&long).unwrap_err(), CredentialError::UnknownKey);
    assert!(identify(&bearer_header(&issuing_key(2), 3_600)).is_ok());
    assert_eq!(format!("{authenticator:?}"), "Authenticator { keys: 1, .. }");
}
