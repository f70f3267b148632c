//! Players' credentials, as a game server sees them that has the key set and nothing else.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use fireteam::auth::issuing_key::{CallerTokenClaims, IssuingKey};
use fireteam::auth::match_credential::{
    MATCH_CREDENTIAL_ISSUER, MATCH_CREDENTIAL_JWT_TYPE, MATCH_CREDENTIAL_TTL_MS, MatchCredential, MatchCredentialKeys,
    load_or_create_match_keys,
};
use fireteam::domain::id::{AdvertisementId, MatchId, ReservationId, UserKey};
use fireteam::domain::lifecycle::Assignment;
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
    user: String,
    pub(crate) team: u16,
    server: Option<String>,
    host: Option<String>,
}

/// A game server: a key set, its own name, and the serials that it has seen.
pub(crate) struct CredentialVerifier {
    keys: JwkSet,
    audience: String,
    used_ids: BTreeSet<String>,
}

impl CredentialVerifier {
    pub(crate) fn new(jwks: &str, me: impl ToString) -> Self {
        Self { keys: serde_json::from_str(jwks).unwrap(), audience: me.to_string(), used_ids: BTreeSet::new() }
    }

    /// As docs/OPERATING.md says it.
    pub(crate) fn verify(&mut self, token: &str, now: UnixMs) -> Result<MatchCredentialClaims, &'static str> {
        let header = decode_header(token).map_err(|_| "malformed")?;
        if header.typ.as_deref() != Some(MATCH_CREDENTIAL_JWT_TYPE) {
            return Err("another kind of token");
        }
        let key = header.kid.and_then(|kid| self.keys.find(&kid)).ok_or("unknown key")?;
        let mut asks = Validation::new(Algorithm::EdDSA);
        asks.set_issuer(&[MATCH_CREDENTIAL_ISSUER]);
        asks.set_audience(&[&self.audience]);
        // By the time that the test says it is.
        asks.validate_exp = false;
        let claims =
            decode::<MatchCredentialClaims>(token, &DecodingKey::from_jwk(key).unwrap(), &asks).map_err(|_| "not for me")?.claims;
        if claims.exp <= now.0 / 1000 {
            return Err("expired");
        }
        if !self.used_ids.insert(claims.jti.clone()) {
            return Err("seen before");
        }
        Ok(claims)
    }
}

fn issuing_key(seed: u8) -> IssuingKey {
    IssuingKey::from_seed(&[seed; 32]).unwrap()
}

fn game_server_assignment(n: u8) -> Assignment {
    let (advertisement, reservation) = (AdvertisementId::from_bytes([n; 16]), ReservationId::from_bytes([n; 16]));
    Assignment::GameServer { advertisement, reservation, connect_data: Vec::new() }
}

fn credential(place: &Assignment) -> MatchCredential<'_> {
    let (user, player) = (UserKey::from_name("ana"), UserKey::from_name("ana's console"));
    MatchCredential {
        match_id: MatchId::from_bytes([1; 16]),
        user_key: user,
        player_key: player,
        team: 1,
        assignment: place,
    }
}

fn signed_credential(keys: &MatchCredentialKeys, place: &Assignment, serial: u8) -> String {
    keys.sign_credential(&credential(place), [serial; 16], NOW).unwrap()
}

/// SEC-21: what a game server learns with the key set alone.
#[test]
fn match_credential_is_verified_with_the_key_set_alone() {
    let (keys, here) = (MatchCredentialKeys::new(issuing_key(1), None), game_server_assignment(7));
    let mut game = CredentialVerifier::new(keys.public_key_set(), "07".repeat(16));
    let claims = game.verify(&signed_credential(&keys, &here, 1), NOW).unwrap();
    let expected = MatchCredentialClaims {
        sub: UserKey::from_name("ana's console").to_string(),
        jti: "01".repeat(16),
        exp: NOW.plus_ms(MATCH_CREDENTIAL_TTL_MS).0 / 1000,
        match_id: "01".repeat(16),
        user: UserKey::from_name("ana").to_string(),
        team: 1,
        server: Some("07".repeat(16)),
        host: None,
    };
    assert_eq!(claims, expected);
    let last = UnixMs(NOW.plus_ms(MATCH_CREDENTIAL_TTL_MS).0 - 1_000);
    assert!(game.verify(&signed_credential(&keys, &here, 2), last).is_ok(), "to the last second");
}

/// SEC-21: forged, replayed, another server's, too old, or another kind of token: none is let in.
#[test]
fn match_credential_forged_replayed_or_for_another_server_is_refused() {
    let (keys, here) = (MatchCredentialKeys::new(issuing_key(1), None), game_server_assignment(7));
    let mut game = CredentialVerifier::new(keys.public_key_set(), "07".repeat(16));
    let good = signed_credential(&keys, &here, 1);
    assert_eq!(game.verify(&signed_credential(&MatchCredentialKeys::new(issuing_key(2), None), &here, 2), NOW), Err("unknown key"));
    assert_eq!(game.verify(&signed_credential(&keys, &game_server_assignment(8), 2), NOW), Err("not for me"));
    assert_eq!(game.verify(&good, NOW.plus_ms(MATCH_CREDENTIAL_TTL_MS)), Err("expired"));
    let caller = issuing_key(1)
        .sign_jwt(&CallerTokenClaims {
            iss: MATCH_CREDENTIAL_ISSUER.into(),
            aud: "07".repeat(16),
            ..CallerTokenClaims::default()
        })
        .unwrap();
    assert_eq!(game.verify(&caller, NOW), Err("another kind of token"));
    // Every part changed by one character: header, claims, signature.
    for at in (0..good.len()).step_by(7) {
        let mut forged = good.clone().into_bytes();
        forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
        let forged = String::from_utf8(forged).unwrap();
        assert!(forged == good || game.verify(&forged, NOW).is_err(), "at {at}");
    }
    assert!(game.verify(&good, NOW).is_ok(), "and the real one is good all the while");
    assert_eq!(game.verify(&good, NOW), Err("seen before"));
}

#[test]
fn match_credential_without_a_server_names_the_host_or_the_match() {
    let keys = MatchCredentialKeys::new(issuing_key(1), None);
    let host = UserKey::from_name("bo's console");
    let at_bo = CredentialVerifier::new(keys.public_key_set(), host)
        .verify(&signed_credential(&keys, &Assignment::PeerHost { host }, 1), NOW)
        .unwrap();
    assert_eq!((at_bo.server, at_bo.host), (None, Some(host.to_string())));
    let mut anywhere = CredentialVerifier::new(keys.public_key_set(), "01".repeat(16));
    let claims = anywhere.verify(&signed_credential(&keys, &Assignment::Unhosted, 2), NOW).unwrap();
    assert_eq!((claims.server, claims.host), (None, None));
}

fn write_private_file(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    #[cfg(unix)]
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
}

/// SEC-21: after a rotation the new key signs, and what the one before has signed is still good.
#[test]
fn match_key_rotation_signs_with_the_first_key_and_publishes_both() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("match.pem");
    let before = load_or_create_match_keys(&path, &[1; 32]).unwrap();
    let (old, here) = (signed_credential(&before, &game_server_assignment(7), 1), game_server_assignment(7));
    write_private_file(&path, &(issuing_key(2).private_key_pem() + &fs::read_to_string(&path).unwrap()));
    let after = load_or_create_match_keys(&path, &[9; 32]).unwrap();
    let new = signed_credential(&after, &here, 2);
    let mut game = CredentialVerifier::new(after.public_key_set(), "07".repeat(16));
    assert!(game.verify(&old, NOW).is_ok() && game.verify(&new, NOW).is_ok());
    assert_eq!(CredentialVerifier::new(before.public_key_set(), "07".repeat(16)).verify(&new, NOW), Err("unknown key"));
    assert!(!after.public_key_set().contains(r#""d""#), "public halves alone: {}", after.public_key_set());

    write_private_file(&path, &[issuing_key(3), issuing_key(2), issuing_key(1)].map(|key| key.private_key_pem()).concat());
    assert!(load_or_create_match_keys(&path, &[9; 32]).is_err(), "three keys");
}

/// SEC-15: the file is made once, for its owner's eyes; what is no key is refused, left alone and not shown.
#[test]
fn match_key_file_is_created_once_and_invalid_content_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("match.pem");
    let made = load_or_create_match_keys(&path, &[1; 32]).unwrap();
    assert_eq!(load_or_create_match_keys(&path, &[2; 32]).unwrap().public_key_set(), made.public_key_set());
    assert!(!format!("{made:?}").contains("MC4C"), "{made:?}");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(load_or_create_match_keys(&path, &[2; 32]).unwrap_err().to_string().contains("chmod 600"));
    }
    for bad in ["", "secret", &issuing_key(1).public_key_pem(), &(issuing_key(1).private_key_pem() + &issuing_key(2).public_key_pem())] {
        write_private_file(&path, bad);
        let said = load_or_create_match_keys(&path, &[2; 32]).unwrap_err().to_string();
        assert!(said.contains("Ed25519 private keys in PEM") && !said.contains("secret"), "{said}");
        assert_eq!(fs::read_to_string(&path).unwrap(), bad);
    }
}

/// The body of a page of the operator's port.
pub(crate) async fn operator_page(house: &TestServer, path: &str) -> (String, String) {
    let mut socket = TcpStream::connect(house.app.server.operator_address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_lowercase(), body.to_owned())
}

/// SEC-21: the key set of a server is on its operator's port, and is the same after it has started anew.
#[tokio::test]
async fn jwks_page_shows_the_keys_of_the_file() {
    let house = TestServer::start().await;
    let (head, body) = operator_page(&house, "/.well-known/jwks.json").await;
    assert!(head.starts_with("http/1.1 200") && head.contains("application/jwk-set+json"), "{head}");
    let keys = load_or_create_match_keys(&house.folder.path().join("match-key.pem"), &[9; 32]).unwrap();
    assert_eq!(body, keys.public_key_set());
    let mut game = CredentialVerifier::new(&body, "07".repeat(16));
    assert!(game.verify(&signed_credential(&keys, &game_server_assignment(7), 1), NOW).is_ok());
    let house = house.restart().await;
    assert_eq!(operator_page(&house, "/.well-known/jwks.json").await.1, body);
}
