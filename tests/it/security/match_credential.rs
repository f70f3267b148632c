//! Match credentials, verified as a verifier server does, with the key set only.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use fireteam::auth::issuing_key::{CallerTokenClaims, IssuingKey};
use fireteam::auth::match_credential::{
    CredentialHost, MATCH_CREDENTIAL_ISSUER, MATCH_CREDENTIAL_JWT_TYPE, MATCH_CREDENTIAL_TTL_MS, MatchCredential,
    MatchCredentialKeys, load_or_create_match_keys,
};
use fireteam::domain::id::{AdvertisementId, MatchId, UserKey};
use fireteam::domain::time::UnixMs;
use jsonwebtoken::jwk::JwkSet;
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::test_server::TestServer;

const NOW: UnixMs = UnixMs(1_800_000_000_000);

#[derive(Debug, Deserialize, PartialEq)]
pub(crate) struct MatchCredentialClaims {
    pub(crate) sub: String,
    jti: String,
    exp: u64,
    #[serde(rename = "match")]
    pub(crate) match_id: String,
    user: Option<String>,
    pub(crate) team: u16,
    server: Option<String>,
    host: Option<String>,
}

/// Verifier of a verifier server: the key set, its own audience, and the ids already used.
pub(crate) struct CredentialVerifier {
    keys: JwkSet,
    audience: String,
    used_ids: BTreeSet<String>,
}

impl CredentialVerifier {
    pub(crate) fn new(jwks: &str, audience: impl ToString) -> Self {
        Self { keys: serde_json::from_str(jwks).unwrap(), audience: audience.to_string(), used_ids: BTreeSet::new() }
    }

    /// Verification as described in docs/OPERATING.md.
    pub(crate) fn verify(&mut self, token: &str, now: UnixMs) -> Result<MatchCredentialClaims, &'static str> {
        let header = decode_header(token).map_err(|_| "malformed")?;
        if header.typ.as_deref() != Some(MATCH_CREDENTIAL_JWT_TYPE) {
            return Err("another token type");
        }
        let key = header.kid.and_then(|kid| self.keys.find(&kid)).ok_or("unknown key")?;
        let mut validation = Validation::new(Algorithm::EdDSA);
        validation.set_issuer(&[MATCH_CREDENTIAL_ISSUER]);
        validation.set_audience(&[&self.audience]);
        // Expiry is checked below, with the test's time.
        validation.validate_exp = false;
        let claims = decode::<MatchCredentialClaims>(token, &DecodingKey::from_jwk(key).unwrap(), &validation)
            .map_err(|_| "another audience")?
            .claims;
        if claims.exp <= now.0 / 1000 {
            return Err("expired");
        }
        if !self.used_ids.insert(claims.jti.clone()) {
            return Err("used before");
        }
        Ok(claims)
    }
}

fn issuing_key(seed: u8) -> IssuingKey {
    IssuingKey::from_seed(&[seed; 32]).unwrap()
}

fn game_server(n: u8) -> CredentialHost {
    CredentialHost::GameServer {
        advertisement: AdvertisementId::from_bytes([n; 16]),
        user_key: UserKey::from_name("ana's public key"),
    }
}

fn signed_credential(keys: &MatchCredentialKeys, host: CredentialHost, serial: u8) -> String {
    let (match_id, player_key) = (MatchId::from_bytes([1; 16]), UserKey::from_name("ana in this match"));
    keys.sign_credential(&MatchCredential { match_id, player_key, team: 1, host }, [serial; 16], NOW).unwrap()
}

/// SEC-21: the claims that a verifier server reads with the key set alone.
#[test]
fn match_credential_is_verified_with_the_key_set_alone() {
    let (keys, assignment) = (MatchCredentialKeys::new(issuing_key(1), None), game_server(7));
    let mut verifier = CredentialVerifier::new(keys.public_key_set(), "07".repeat(16));
    let claims = verifier.verify(&signed_credential(&keys, assignment, 1), NOW).unwrap();
    let expected = MatchCredentialClaims {
        sub: UserKey::from_name("ana in this match").to_string(),
        jti: "01".repeat(16),
        exp: NOW.plus_ms(MATCH_CREDENTIAL_TTL_MS).0 / 1000,
        match_id: "01".repeat(16),
        user: Some(UserKey::from_name("ana's public key").to_string()),
        team: 1,
        server: Some("07".repeat(16)),
        host: None,
    };
    assert_eq!(claims, expected);
    let last = UnixMs(NOW.plus_ms(MATCH_CREDENTIAL_TTL_MS).0 - 1_000);
    assert!(verifier.verify(&signed_credential(&keys, assignment, 2), last).is_ok(), "valid until the last second");
}

/// SEC-21: a credential that is forged, replayed, expired, for another server, or of another token type is refused.
#[test]
fn match_credential_forged_replayed_or_for_another_server_is_refused() {
    let (keys, assignment) = (MatchCredentialKeys::new(issuing_key(1), None), game_server(7));
    let mut verifier = CredentialVerifier::new(keys.public_key_set(), "07".repeat(16));
    let good = signed_credential(&keys, assignment, 1);
    assert_eq!(
        verifier.verify(&signed_credential(&MatchCredentialKeys::new(issuing_key(2), None), assignment, 2), NOW),
        Err("unknown key")
    );
    assert_eq!(verifier.verify(&signed_credential(&keys, game_server(8), 2), NOW), Err("another audience"));
    assert_eq!(verifier.verify(&good, NOW.plus_ms(MATCH_CREDENTIAL_TTL_MS)), Err("expired"));
    let caller = issuing_key(1)
        .sign_jwt(&CallerTokenClaims {
            iss: MATCH_CREDENTIAL_ISSUER.into(),
            aud: "07".repeat(16),
            ..CallerTokenClaims::default()
        })
        .unwrap();
    assert_eq!(verifier.verify(&caller, NOW), Err("another token type"));
    // One character changed in each part: header, claims, signature.
    for at in (0..good.len()).step_by(7) {
        let mut forged = good.clone().into_bytes();
        forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
        let forged = String::from_utf8(forged).unwrap();
        assert!(forged == good || verifier.verify(&forged, NOW).is_err(), "at {at}");
    }
    assert!(verifier.verify(&good, NOW).is_ok(), "the original is still valid");
    assert_eq!(verifier.verify(&good, NOW), Err("used before"));
}

#[test]
fn match_credential_without_a_server_names_the_host_or_the_match() {
    let keys = MatchCredentialKeys::new(issuing_key(1), None);
    let host = UserKey::from_name("ben in this match");
    let peer = CredentialVerifier::new(keys.public_key_set(), host)
        .verify(&signed_credential(&keys, CredentialHost::Player(host), 1), NOW)
        .unwrap();
    assert_eq!((peer.server, peer.user, peer.host), (None, None, Some(host.to_string())));
    let mut unhosted = CredentialVerifier::new(keys.public_key_set(), "01".repeat(16));
    let claims = unhosted.verify(&signed_credential(&keys, CredentialHost::None, 2), NOW).unwrap();
    assert_eq!((claims.server, claims.user, claims.host), (None, None, None));
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
    write_private_file(&path, &(issuing_key(2).private_key_pem() + &fs::read_to_string(&path).unwrap()));
    let after = load_or_create_match_keys(&path, &[9; 32]).unwrap();
    let new = signed_credential(&after, assignment, 2);
    let mut verifier = CredentialVerifier::new(after.public_key_set(), "07".repeat(16));
    assert!(verifier.verify(&old, NOW).is_ok() && verifier.verify(&new, NOW).is_ok());
    assert_eq!(CredentialVerifier::new(before.public_key_set(), "07".repeat(16)).verify(&new, NOW), Err("unknown key"));
    assert!(!after.public_key_set().contains(r#""d""#), "public keys only: {}", after.public_key_set());

    write_private_file(
        &path,
        &[issuing_key(3), issuing_key(2), issuing_key(1)].map(|key| key.private_key_pem()).concat(),
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
        &issuing_key(1).public_key_pem(),
        &(issuing_key(1).private_key_pem() + &issuing_key(2).public_key_pem()),
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
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
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
    let mut verifier = CredentialVerifier::new(&body, "07".repeat(16));
    assert!(verifier.verify(&signed_credential(&keys, game_server(7), 1), NOW).is_ok());
    let server = server.restart().await;
    assert_eq!(operator_page(&server, "/.well-known/jwks.json").await.1, body);
}
