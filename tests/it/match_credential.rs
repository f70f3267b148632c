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

use crate::harness::House;

const NOW: UnixMs = UnixMs(1_800_000_000_000);

#[derive(Debug, Deserialize, PartialEq)]
pub(crate) struct Claims {
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
pub(crate) struct GameServer {
    keys: JwkSet,
    me: String,
    seen: BTreeSet<String>,
}

impl GameServer {
    pub(crate) fn new(jwks: &str, me: impl ToString) -> Self {
        Self { keys: serde_json::from_str(jwks).unwrap(), me: me.to_string(), seen: BTreeSet::new() }
    }

    /// As docs/OPERATING.md says it.
    pub(crate) fn admit(&mut self, token: &str, now: UnixMs) -> Result<Claims, &'static str> {
        let header = decode_header(token).map_err(|_| "malformed")?;
        if header.typ.as_deref() != Some(MATCH_CREDENTIAL_JWT_TYPE) {
            return Err("another kind of token");
        }
        let key = header.kid.and_then(|kid| self.keys.find(&kid)).ok_or("unknown key")?;
        let mut asks = Validation::new(Algorithm::EdDSA);
        asks.set_issuer(&[MATCH_CREDENTIAL_ISSUER]);
        asks.set_audience(&[&self.me]);
        // By the time that the test says it is.
        asks.validate_exp = false;
        let claims =
            decode::<Claims>(token, &DecodingKey::from_jwk(key).unwrap(), &asks).map_err(|_| "not for me")?.claims;
        if claims.exp <= now.0 / 1000 {
            return Err("expired");
        }
        if !self.seen.insert(claims.jti.clone()) {
            return Err("seen before");
        }
        Ok(claims)
    }
}

fn key(seed: u8) -> IssuingKey {
    IssuingKey::from_seed(&[seed; 32]).unwrap()
}

fn server(n: u8) -> Assignment {
    let (advertisement, reservation) = (AdvertisementId::from_bytes([n; 16]), ReservationId::from_bytes([n; 16]));
    Assignment::GameServer { advertisement, reservation, connect_data: Vec::new() }
}

fn says(place: &Assignment) -> MatchCredential<'_> {
    let (user, player) = (UserKey::from_name("ana"), UserKey::from_name("ana's console"));
    MatchCredential {
        match_id: MatchId::from_bytes([1; 16]),
        user_key: user,
        player_key: player,
        team: 1,
        assignment: place,
    }
}

fn signed(keys: &MatchCredentialKeys, place: &Assignment, serial: u8) -> String {
    keys.sign_credential(&says(place), [serial; 16], NOW).unwrap()
}

/// SEC-21: what a game server learns with the key set alone.
#[test]
fn a_game_server_verifies_a_credential_with_the_key_set_alone() {
    let (keys, here) = (MatchCredentialKeys::new(key(1), None), server(7));
    let mut game = GameServer::new(keys.public_key_set(), "07".repeat(16));
    let claims = game.admit(&signed(&keys, &here, 1), NOW).unwrap();
    let expected = Claims {
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
    assert!(game.admit(&signed(&keys, &here, 2), last).is_ok(), "to the last second");
}

/// SEC-21: forged, replayed, another server's, too old, or another kind of token: none is let in.
#[test]
fn what_is_forged_replayed_or_meant_for_another_server_is_refused() {
    let (keys, here) = (MatchCredentialKeys::new(key(1), None), server(7));
    let mut game = GameServer::new(keys.public_key_set(), "07".repeat(16));
    let good = signed(&keys, &here, 1);
    assert_eq!(game.admit(&signed(&MatchCredentialKeys::new(key(2), None), &here, 2), NOW), Err("unknown key"));
    assert_eq!(game.admit(&signed(&keys, &server(8), 2), NOW), Err("not for me"));
    assert_eq!(game.admit(&good, NOW.plus_ms(MATCH_CREDENTIAL_TTL_MS)), Err("expired"));
    let caller = key(1)
        .sign_jwt(&CallerTokenClaims {
            iss: MATCH_CREDENTIAL_ISSUER.into(),
            aud: "07".repeat(16),
            ..CallerTokenClaims::default()
        })
        .unwrap();
    assert_eq!(game.admit(&caller, NOW), Err("another kind of token"));
    // Every part changed by one character: header, claims, signature.
    for at in (0..good.len()).step_by(7) {
        let mut forged = good.clone().into_bytes();
        forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
        let forged = String::from_utf8(forged).unwrap();
        assert!(forged == good || game.admit(&forged, NOW).is_err(), "at {at}");
    }
    assert!(game.admit(&good, NOW).is_ok(), "and the real one is good all the while");
    assert_eq!(game.admit(&good, NOW), Err("seen before"));
}

#[test]
fn a_credential_for_a_match_without_a_server_names_the_host_or_the_match() {
    let keys = MatchCredentialKeys::new(key(1), None);
    let host = UserKey::from_name("bo's console");
    let at_bo = GameServer::new(keys.public_key_set(), host)
        .admit(&signed(&keys, &Assignment::PeerHost { host }, 1), NOW)
        .unwrap();
    assert_eq!((at_bo.server, at_bo.host), (None, Some(host.to_string())));
    let mut anywhere = GameServer::new(keys.public_key_set(), "01".repeat(16));
    let claims = anywhere.admit(&signed(&keys, &Assignment::Unhosted, 2), NOW).unwrap();
    assert_eq!((claims.server, claims.host), (None, None));
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    #[cfg(unix)]
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
}

/// SEC-21: after a rotation the new key signs, and what the one before has signed is still good.
#[test]
fn the_first_key_of_the_file_signs_and_the_second_is_still_shown() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("match.pem");
    let before = load_or_create_match_keys(&path, &[1; 32]).unwrap();
    let (old, here) = (signed(&before, &server(7), 1), server(7));
    write(&path, &(key(2).private_key_pem() + &fs::read_to_string(&path).unwrap()));
    let after = load_or_create_match_keys(&path, &[9; 32]).unwrap();
    let new = signed(&after, &here, 2);
    let mut game = GameServer::new(after.public_key_set(), "07".repeat(16));
    assert!(game.admit(&old, NOW).is_ok() && game.admit(&new, NOW).is_ok());
    assert_eq!(GameServer::new(before.public_key_set(), "07".repeat(16)).admit(&new, NOW), Err("unknown key"));
    assert!(!after.public_key_set().contains(r#""d""#), "public halves alone: {}", after.public_key_set());

    write(&path, &[key(3), key(2), key(1)].map(|key| key.private_key_pem()).concat());
    assert!(load_or_create_match_keys(&path, &[9; 32]).is_err(), "three keys");
}

/// SEC-15: the file is made once, for its owner's eyes; what is no key is refused, left alone and not shown.
#[test]
fn a_match_key_is_made_once_and_what_is_none_is_refused() {
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
    for bad in ["", "secret", &key(1).public_key_pem(), &(key(1).private_key_pem() + &key(2).public_key_pem())] {
        write(&path, bad);
        let said = load_or_create_match_keys(&path, &[2; 32]).unwrap_err().to_string();
        assert!(said.contains("Ed25519 private keys in PEM") && !said.contains("secret"), "{said}");
        assert_eq!(fs::read_to_string(&path).unwrap(), bad);
    }
}

/// The body of a page of the operator's port.
pub(crate) async fn page(house: &House, path: &str) -> (String, String) {
    let mut socket = TcpStream::connect(house.parts.server.operator_address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_lowercase(), body.to_owned())
}

/// SEC-21: the key set of a server is on its operator's port, and is the same after it has started anew.
#[tokio::test]
async fn the_operators_port_shows_the_keys_that_the_file_holds() {
    let house = House::open().await;
    let (head, body) = page(&house, "/.well-known/jwks.json").await;
    assert!(head.starts_with("http/1.1 200") && head.contains("application/jwk-set+json"), "{head}");
    let keys = load_or_create_match_keys(&house.folder.path().join("match-key.pem"), &[9; 32]).unwrap();
    assert_eq!(body, keys.public_key_set());
    let mut game = GameServer::new(&body, "07".repeat(16));
    assert!(game.admit(&signed(&keys, &server(7), 1), NOW).is_ok());
    let house = house.with_an_empty_store().await;
    assert_eq!(page(&house, "/.well-known/jwks.json").await.1, body);
}
