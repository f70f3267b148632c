//! Match credentials, verified by the verifier of the Rust client, which game servers use.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use fireteam::auth::jwt_signing_key::JwtSigningKey;
use fireteam::auth::match_credential::{
    CredentialHost, MATCH_CREDENTIAL_JWT_TYPE, MATCH_CREDENTIAL_TTL_MS, MatchCredentialContent, MatchCredentialKeys,
    load_or_create_match_keys,
};
use fireteam::domain::id::{AdvertisementId, MatchId, UserKey};
use fireteam::domain::time::UnixMs;
use fireteam_client::{AdmittedPlayer, CredentialError, CredentialVerifier};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::test_server::TestServer;

const NOW: UnixMs = UnixMs(1_800_000_000_000);

/// A time of the server's clock, as a game server reads it.
pub(crate) fn system_time(now: UnixMs) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(now.0)
}

/// Verifier of a game server.
fn verifier(jwks: &str, audience: impl ToString) -> CredentialVerifier {
    CredentialVerifier::new(jwks, audience.to_string()).unwrap()
}

fn jwt_signing_key(seed: u8) -> JwtSigningKey {
    JwtSigningKey::from_seed(&[seed; 32]).unwrap()
}

fn game_server(n: u8) -> CredentialHost {
    CredentialHost::GameServer {
        advertisement: AdvertisementId::from_bytes([n; 16]),
        user_key: UserKey::from_name("ana's public key"),
    }
}

fn credential(host: CredentialHost) -> MatchCredentialContent {
    let (match_id, player_key) = (MatchId::from_bytes([1; 16]), UserKey::from_name("ana in this match"));
    MatchCredentialContent { match_id, player_key, team: 1, host }
}

fn signed_credential(keys: &MatchCredentialKeys, host: CredentialHost, serial: u8) -> String {
    keys.sign_credential(&credential(host), [serial; 16], NOW).unwrap()
}

/// Claims of a good credential for the game server 07….
fn good_claims() -> Value {
    let now_s = NOW.0 / 1000;
    json!({
        "iss": "fireteam", "aud": "07".repeat(16), "sub": "02".repeat(16), "jti": "03".repeat(16), "iat": now_s,
        "exp": now_s + 300, "match": "01".repeat(16), "user": "04".repeat(16), "team": 1,
    })
}

/// SEC-21: what a game server reads from a credential with the key set alone.
#[test]
fn match_credential_is_verified_with_the_key_set_alone() {
    let (keys, assignment) = (MatchCredentialKeys::new(jwt_signing_key(1), None), game_server(7));
    let mut verifier = verifier(keys.public_key_set(), "07".repeat(16));
    let player = verifier.verify(&signed_credential(&keys, assignment, 1), system_time(NOW)).unwrap();
    let expected = AdmittedPlayer {
        match_id: "01".repeat(16),
        player_key: UserKey::from_name("ana in this match").to_string(),
        user_key: Some(UserKey::from_name("ana's public key").to_string()),
        team: 1,
        credential_expires_at_s: NOW.plus_ms(MATCH_CREDENTIAL_TTL_MS).0 / 1000,
    };
    assert_eq!(player, expected);
    let last = system_time(UnixMs(NOW.plus_ms(MATCH_CREDENTIAL_TTL_MS).0 - 1_000));
    assert!(verifier.verify(&signed_credential(&keys, assignment, 2), last).is_ok(), "valid until the last second");
}

/// SEC-21: a credential that is forged, replayed, expired, for another server, or of another token type is refused, and
/// the good one beside them is accepted once.
#[test]
fn match_credential_forged_replayed_or_for_another_server_is_refused() {
    let (keys, assignment) = (MatchCredentialKeys::new(jwt_signing_key(1), None), game_server(7));
    let mut verifier = verifier(keys.public_key_set(), "07".repeat(16));
    let mut attempts = 0;
    let mut check = |credential: &str, at: UnixMs, expected: CredentialError| {
        attempts += 1;
        assert_eq!(verifier.verify(credential, system_time(at)), Err(expected), "{credential}");
    };
    let good = signed_credential(&keys, assignment, 1);
    let by_other_key = signed_credential(&MatchCredentialKeys::new(jwt_signing_key(2), None), assignment, 2);
    check(&by_other_key, NOW, CredentialError::UnknownKey);
    for host in (0..=255).filter(|host| *host != 7) {
        let elsewhere = signed_credential(&keys, game_server(host), 2);
        check(&elsewhere, NOW, CredentialError::WrongAudience);
    }
    let host = UserKey::from_name("ben in this match");
    check(&signed_credential(&keys, CredentialHost::Player(host), 2), NOW, CredentialError::WrongAudience);
    check(&signed_credential(&keys, CredentialHost::None, 2), NOW, CredentialError::WrongAudience);
    for ms in [0, 1_000, 60_000, 86_400_000, u64::from(u32::MAX) * 1_000] {
        check(&good, NOW.plus_ms(MATCH_CREDENTIAL_TTL_MS + ms), CredentialError::Expired);
    }
    check(&good, UnixMs(NOW.0 - 60_000), CredentialError::InvalidTimes);
    // A token of a caller, signed with the match key, and of any other type.
    for typ in ["JWT", "at+jwt", "MATCH+JWT", "", "application/match+jwt"] {
        let token = jwt_signing_key(1).sign_jwt_of_type(typ, &good_claims()).unwrap();
        check(&token, NOW, CredentialError::WrongType);
    }
    let other = |change: Value| {
        let mut claims = good_claims();
        for (name, value) in change.as_object().unwrap() {
            claims[name] = value.clone();
        }
        jwt_signing_key(1).sign_jwt_of_type(MATCH_CREDENTIAL_JWT_TYPE, &claims).unwrap()
    };
    check(&other(json!({ "iss": "the-game" })), NOW, CredentialError::WrongIssuer);
    check(&other(json!({ "exp": NOW.0 / 1000 + 601 })), NOW, CredentialError::InvalidTimes);
    check(&other(json!({ "exp": 5 })), NOW, CredentialError::InvalidTimes);
    for wrong in
        [json!({ "aud": ["07".repeat(16)] }), json!({ "jti": null }), json!({ "team": -1 }), json!({ "exp": 0.5 })]
    {
        check(&other(wrong), NOW, CredentialError::Malformed);
    }
    // The public key as the secret of an HMAC, and no signature at all.
    for secret in [jwt_signing_key(1).public_key_pem(), keys.public_key_set().to_owned()] {
        let header = Header {
            kid: Some(jwt_signing_key(1).key_id().to_owned()),
            typ: Some(MATCH_CREDENTIAL_JWT_TYPE.into()),
            ..Header::new(Algorithm::HS256)
        };
        let forged = encode(&header, &good_claims(), &EncodingKey::from_secret(secret.as_bytes())).unwrap();
        check(&forged, NOW, CredentialError::Malformed);
    }
    let unsigned = good.rsplit_once('.').unwrap().0;
    check(&format!("{unsigned}."), NOW, CredentialError::BadSignature);
    check(unsigned, NOW, CredentialError::Malformed);
    for malformed in ["", ".", "..", "a.b.c", &"a".repeat(10_000), &format!("{good}."), &format!("{good}=")] {
        attempts += 1;
        assert!(verifier.verify(malformed, system_time(NOW)).is_err(), "{malformed}");
    }
    assert!(verifier.verify(&good, system_time(NOW)).is_ok(), "the original is still valid");
    for ms in 0..300 {
        attempts += 1;
        let again = verifier.verify(&good, system_time(NOW.plus_ms(ms * 1_000)));
        assert_eq!(again, Err(CredentialError::UsedBefore), "{ms}");
    }
    println!("{attempts} forged, replayed, expired or foreign credentials: all refused");
}

proptest! {
    /// SEC-21: no changed byte, cut or exchanged part of a credential is accepted.
    #[test]
    fn match_credential_with_any_change_is_refused(
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<prop::sample::Index>(),
        serial in 2_u8..9,
    ) {
        let (keys, assignment) = (MatchCredentialKeys::new(jwt_signing_key(1), None), game_server(7));
        let mut verifier = verifier(keys.public_key_set(), "07".repeat(16));
        let (good, second) = (signed_credential(&keys, assignment, 1), signed_credential(&keys, assignment, serial));
        let mut changed = good.clone().into_bytes();
        changed[at.index(good.len())] = byte;
        let changed = String::from_utf8_lossy(&changed).into_owned();
        let (signed, _) = good.rsplit_once('.').unwrap();
        let exchanged = format!("{signed}.{}", second.rsplit_once('.').unwrap().1);
        for forged in [&*changed, &good[..cut.index(good.len())], &exchanged] {
            prop_assert!(forged == good || verifier.verify(forged, system_time(NOW)).is_err(), "{forged}");
        }
        prop_assert!(verifier.verify(&good, system_time(NOW)).is_ok());
    }
}

/// SEC-21: a verifier remembers a bounded number of credentials, refuses more until some expire, and none is accepted twice.
#[test]
fn match_credential_verifier_remembers_a_bounded_number() {
    let (keys, assignment) = (MatchCredentialKeys::new(jwt_signing_key(1), None), game_server(7));
    let mut verifier = verifier(keys.public_key_set(), "07".repeat(16)).with_remembered_max(3);
    let credentials: Vec<String> = (0..5).map(|serial| signed_credential(&keys, assignment, serial)).collect();
    for credential in &credentials[..3] {
        assert!(verifier.verify(credential, system_time(NOW)).is_ok());
    }
    assert_eq!(verifier.verify(&credentials[3], system_time(NOW)), Err(CredentialError::TooManyCredentials));
    assert_eq!(verifier.verify(&credentials[0], system_time(NOW)), Err(CredentialError::UsedBefore));
    let later = NOW.plus_ms(MATCH_CREDENTIAL_TTL_MS);
    let new = keys.sign_credential(&credential(assignment), [9; 16], later).unwrap();
    assert!(verifier.verify(&new, system_time(later)).is_ok(), "expired ones are forgotten");
    assert_eq!(verifier.verify(&credentials[0], system_time(later)), Err(CredentialError::Expired));
    assert!(verifier.replace_keys("{}").is_err() && verifier.replace_keys("{\"keys\":[]}").is_err());
    verifier
        .replace_keys(MatchCredentialKeys::new(jwt_signing_key(2), Some(&jwt_signing_key(1))).public_key_set())
        .unwrap();
    assert_eq!(verifier.verify(&new, system_time(later)), Err(CredentialError::UsedBefore), "also after a rotation");
}

#[test]
fn match_credential_without_a_server_is_for_the_host_or_the_match() {
    let keys = MatchCredentialKeys::new(jwt_signing_key(1), None);
    let host = UserKey::from_name("ben in this match");
    let at_host = signed_credential(&keys, CredentialHost::Player(host), 1);
    assert!(verifier(keys.public_key_set(), host).verify(&at_host, system_time(NOW)).is_ok());
    let unhosted = signed_credential(&keys, CredentialHost::None, 2);
    assert!(verifier(keys.public_key_set(), "01".repeat(16)).verify(&unhosted, system_time(NOW)).is_ok());
}

fn write_private_file(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    #[cfg(unix)]
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
}

/// SEC-21: after a key rotation the new key signs, and credentials of the previous key stay valid.
#[test]
fn match_key_rotation_signs_with_the_first_key_and_publishes_both() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("match.pem");
    let before = load_or_create_match_keys(&path, &[1; 32]).unwrap();
    let (old, assignment) = (signed_credential(&before, game_server(7), 1), game_server(7));
    write_private_file(&path, &(jwt_signing_key(2).private_key_pem() + &fs::read_to_string(&path).unwrap()));
    let after = load_or_create_match_keys(&path, &[9; 32]).unwrap();
    let new = signed_credential(&after, assignment, 2);
    let mut current = verifier(after.public_key_set(), "07".repeat(16));
    assert!(current.verify(&old, system_time(NOW)).is_ok() && current.verify(&new, system_time(NOW)).is_ok());
    assert_eq!(
        verifier(before.public_key_set(), "07".repeat(16)).verify(&new, system_time(NOW)),
        Err(CredentialError::UnknownKey)
    );
    assert!(!after.public_key_set().contains(r#""d""#), "public keys only: {}", after.public_key_set());

    write_private_file(
        &path,
        &[jwt_signing_key(3), jwt_signing_key(2), jwt_signing_key(1)].map(|key| key.private_key_pem()).concat(),
    );
    assert!(load_or_create_match_keys(&path, &[9; 32]).is_err(), "three keys");
}

/// SEC-15: the key file is created once, readable by its owner only. Invalid content is refused, not changed and not
/// printed.
#[test]
fn match_key_file_is_created_once_and_invalid_content_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("match.pem");
    let created = load_or_create_match_keys(&path, &[1; 32]).unwrap();
    assert_eq!(load_or_create_match_keys(&path, &[2; 32]).unwrap().public_key_set(), created.public_key_set());
    assert!(!format!("{created:?}").contains("MC4C"), "{created:?}");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(load_or_create_match_keys(&path, &[2; 32]).unwrap_err().to_string().contains("chmod 600"));
    }
    for invalid in [
        "",
        "secret",
        &jwt_signing_key(1).public_key_pem(),
        &(jwt_signing_key(1).private_key_pem() + &jwt_signing_key(2).public_key_pem()),
    ] {
        write_private_file(&path, invalid);
        let error = load_or_create_match_keys(&path, &[2; 32]).unwrap_err().to_string();
        assert!(error.contains("Ed25519 private keys in PEM") && !error.contains("secret"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), invalid);
    }
}

/// Head and body of a page of the operator port.
pub(crate) async fn operator_page(server: &TestServer, path: &str) -> (String, String) {
    let mut socket = TcpStream::connect(server.app.server.operator_address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_lowercase(), body.to_owned())
}

/// SEC-21: the key set is on the operator port, and is the same after a restart.
#[tokio::test]
async fn jwks_page_shows_the_keys_of_the_file() {
    let server = TestServer::start().await;
    let (head, body) = operator_page(&server, "/.well-known/jwks.json").await;
    assert!(head.starts_with("http/1.1 200") && head.contains("application/jwk-set+json"), "{head}");
    let keys = load_or_create_match_keys(&server.folder.path().join("match-key.pem"), &[9; 32]).unwrap();
    assert_eq!(body, keys.public_key_set());
    let credential = signed_credential(&keys, game_server(7), 1);
    assert!(verifier(&body, "07".repeat(16)).verify(&credential, system_time(NOW)).is_ok());
    let server = server.restart().await;
    assert_eq!(operator_page(&server, "/.well-known/jwks.json").await.1, body);
}
