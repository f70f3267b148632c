//! What a player shows a game server: signed proof of the match that it is in, of its team, and of where that is
//! played.
//!
//! A credential is a JWT (RFC 7519) signed with Ed25519. A game server verifies it offline, with nothing but the key
//! set that the operator's port shows; docs/OPERATING.md says what else it has to look at. The key is none that
//! callers' tokens are verified with.

use std::path::Path;

use serde::Serialize;

use crate::auth::issuing_key::{InvalidIssuingKey, IssuingKey, encode_public_key_set};
use crate::auth::key_file::{KeyFileError, read_or_create_private_file};
use crate::domain::id::{MatchId, UserKey};
use crate::domain::lifecycle::Assignment;
use crate::domain::time::UnixMs;

/// Who vouches: the `iss` of every credential.
pub const MATCH_CREDENTIAL_ISSUER: &str = "fireteam";
/// What it is: the `typ` of its header, which no token of a caller has.
pub const MATCH_CREDENTIAL_JWT_TYPE: &str = "match+jwt";
/// How long a credential is good: long enough to join, too short to be worth stealing, milliseconds. Another can be had
/// as long as the match is played.
pub const MATCH_CREDENTIAL_TTL_MS: u64 = 5 * 60 * 1000;
/// Keys in a file: the one that signs, and the one before it.
const MATCH_KEYS_PER_FILE_MAX: usize = 2;

/// What a credential says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MatchCredential<'a> {
    /// The match.
    pub match_id: MatchId,
    /// The account.
    pub user_key: UserKey,
    /// The connected client who may join.
    pub player_key: UserKey,
    /// Its team: a place in the teams of the match.
    pub team: u16,
    /// Where it is good, and nowhere else.
    pub assignment: &'a Assignment,
}

/// The same, as it is written.
#[derive(Serialize)]
struct MatchCredentialClaims {
    iss: &'static str,
    aud: String,
    sub: String,
    jti: String,
    iat: u64,
    exp: u64,
    #[serde(rename = "match")]
    match_id: String,
    user: String,
    team: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
}

/// The keys that sign credentials, or have signed some that may still be good.
#[derive(Debug)]
pub struct MatchCredentialKeys {
    signing_key: IssuingKey,
    jwks: String,
}

impl MatchCredentialKeys {
    /// `current` signs; the public half of `previous` is shown as long as what it signed may be good.
    pub fn new(current: IssuingKey, previous: Option<&IssuingKey>) -> Self {
        let jwks = encode_public_key_set(std::iter::once(&current).chain(previous));
        Self { signing_key: current, jwks }
    }

    /// The public halves as a key set (RFC 7517): all that a game server needs.
    pub fn public_key_set(&self) -> &str {
        &self.jwks
    }

    /// A credential that is good for `GOOD_FOR_MS` from `now`. `serial` are dice: whoever admits players refuses a
    /// serial that it has seen, so that nobody joins by what another has shown.
    pub fn sign_credential(
        &self,
        says: &MatchCredential<'_>,
        serial: [u8; 16],
        now: UnixMs,
    ) -> Result<String, InvalidIssuingKey> {
        let (server, host) = match says.assignment {
            Assignment::GameServer { advertisement, .. } => (Some(advertisement.to_string()), None),
            Assignment::PeerHost { host } => (None, Some(host.to_string())),
            Assignment::Unhosted => (None, None),
        };
        let claims = MatchCredentialClaims {
            iss: MATCH_CREDENTIAL_ISSUER,
            // For whom: the server, the host, or whoever plays the match.
            aud: server.clone().or(host.clone()).unwrap_or_else(|| says.match_id.to_string()),
            sub: says.player_key.to_string(),
            // Written as ids are; it names nobody.
            jti: UserKey::from_bytes(serial).to_string(),
            iat: now.0 / 1000,
            exp: now.plus_ms(MATCH_CREDENTIAL_TTL_MS).0 / 1000,
            match_id: says.match_id.to_string(),
            user: says.user_key.to_string(),
            team: says.team,
            server,
            host,
        };
        self.signing_key.sign_jwt_of_type(MATCH_CREDENTIAL_JWT_TYPE, &claims)
    }
}

/// Reads the keys of a PEM file (PKCS #8): the first signs, the second, if any, is the one before it. When there is no
/// such file, one is made with the key of `seed` in it, readable by its owner alone.
///
/// To rotate: put a new key in front, drop the third, start anew.
pub fn load_or_create_match_keys(path: &Path, seed: &[u8; 32]) -> Result<MatchCredentialKeys, KeyFileError> {
    let no_pem = |_| KeyFileError::MalformedPem { file: path.into() };
    let fresh = IssuingKey::from_seed(seed).map_err(no_pem)?;
    let Some(pem) = read_or_create_private_file(path, &fresh.private_key_pem())? else {
        return Ok(MatchCredentialKeys::new(fresh, None));
    };
    let mut keys = IssuingKey::all_from_pem(pem.as_bytes()).map_err(no_pem)?;
    if MATCH_KEYS_PER_FILE_MAX < keys.len() {
        return Err(no_pem(InvalidIssuingKey));
    }
    let previous = keys.drain(1..).next();
    match keys.pop() {
        Some(current) => Ok(MatchCredentialKeys::new(current, previous.as_ref())),
        None => Err(no_pem(InvalidIssuingKey)),
    }
}
