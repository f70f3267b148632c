//! Match credentials: a player presents one to the game server as signed proof of its match, its team and the assigned
//! host.
//!
//! A credential is a JWT (RFC 7519) signed with Ed25519. A game server verifies it offline with the key set that the
//! operator port serves; docs/OPERATING.md lists the other checks. These keys never verify callers' tokens.

use std::path::Path;

use serde::Serialize;

use crate::auth::jwt_signing_key::{InvalidJwtSigningKey, JwtSigningKey, encode_public_key_set};
use crate::auth::key_file::{KeyFileError, read_or_create_private_file};
use crate::domain::id::{AdvertisementId, MatchId, UserKey};
use crate::domain::time::UnixMs;

/// The `iss` claim of every match credential.
pub const MATCH_CREDENTIAL_ISSUER: &str = "fireteam";
/// The `typ` header of every match credential. No caller's token has it.
pub const MATCH_CREDENTIAL_JWT_TYPE: &str = "match+jwt";
/// Lifetime of a match credential, milliseconds: long enough to join, too short to be worth stealing. Clients can get
/// another one while the match runs.
pub const MATCH_CREDENTIAL_TTL_MS: u64 = 5 * 60 * 1000;
/// Keys in a file: the signing key and the previous one.
const MATCH_KEYS_PER_FILE_MAX: usize = 2;

/// Contents of a match credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatchCredentialContent {
    /// Match id.
    pub match_id: MatchId,
    /// The player's key within this match, the `sub` claim.
    pub player_key: UserKey,
    /// Index of the player's team in the match.
    pub team: u16,
    /// The assigned host; the credential is valid there only.
    pub host: CredentialHost,
}

/// Host for which a credential is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CredentialHost {
    /// Game server, which recognizes a user in several matches.
    GameServer {
        /// Advertisement of the game server.
        advertisement: AdvertisementId,
        /// Public key of the user for game servers.
        user_key: UserKey,
    },
    /// Player of the match with this player key. Other players do not learn a key that is the same in two matches.
    Player(UserKey),
    /// The match has no host.
    None,
}

/// JWT claims of a match credential.
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
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    team: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
}

/// Signing key of match credentials, and the public key set that verifies them.
#[derive(Debug)]
pub struct MatchCredentialKeys {
    signing_key: JwtSigningKey,
    jwks: String,
}

impl MatchCredentialKeys {
    /// Signs with `current`; the key set also lists `previous`, for credentials that have not expired yet.
    pub fn new(current: JwtSigningKey, previous: Option<&JwtSigningKey>) -> Self {
        let jwks = encode_public_key_set(std::iter::once(&current).chain(previous));
        Self { signing_key: current, jwks }
    }

    /// Public keys as a JWKS (RFC 7517); a game server needs no other key to verify credentials.
    pub fn public_key_set(&self) -> &str {
        &self.jwks
    }

    /// Signs a credential that expires `MATCH_CREDENTIAL_TTL_MS` after `now`.
    ///
    /// `serial` is random and becomes the `jti` claim. A game server rejects a `jti` that it has already seen: a
    /// credential admits one player once.
    pub fn sign_credential(
        &self,
        credential: &MatchCredentialContent,
        serial: [u8; 16],
        now: UnixMs,
    ) -> Result<String, InvalidJwtSigningKey> {
        let (server, user, host) = match credential.host {
            CredentialHost::GameServer { advertisement, user_key } => {
                (Some(advertisement.to_string()), Some(user_key.to_string()), None)
            }
            CredentialHost::Player(player_key) => (None, None, Some(player_key.to_string())),
            CredentialHost::None => (None, None, None),
        };
        let claims = MatchCredentialClaims {
            iss: MATCH_CREDENTIAL_ISSUER,
            // The game server, the peer host, or the match if it has no host.
            aud: server.clone().or(host.clone()).unwrap_or_else(|| credential.match_id.to_string()),
            sub: credential.player_key.to_string(),
            // Uses the text form of ids only; it identifies no user.
            jti: UserKey::from_bytes(serial).to_string(),
            iat: now.0 / 1000,
            exp: now.plus_ms(MATCH_CREDENTIAL_TTL_MS).0 / 1000,
            match_id: credential.match_id.to_string(),
            user,
            team: credential.team,
            server,
            host,
        };
        self.signing_key.sign_jwt_of_type(MATCH_CREDENTIAL_JWT_TYPE, &claims)
    }
}

/// Loads the keys of a PEM file (PKCS #8): the first one signs, the second one, if any, is the previous key. If the file
/// does not exist, creates it with the key of `seed`, readable by its owner only.
///
/// To rotate: insert a new key at the top, remove the third, restart the server.
pub fn load_or_create_match_keys(path: &Path, seed: &[u8; 32]) -> Result<MatchCredentialKeys, KeyFileError> {
    let malformed = |_| KeyFileError::MalformedPem { file: path.into() };
    let new_key = JwtSigningKey::from_seed(seed).map_err(malformed)?;
    let Some(pem) = read_or_create_private_file(path, &new_key.private_key_pem())? else {
        return Ok(MatchCredentialKeys::new(new_key, None));
    };
    let mut keys = JwtSigningKey::all_from_pem(pem.as_bytes()).map_err(malformed)?;
    if keys.len() > MATCH_KEYS_PER_FILE_MAX {
        return Err(malformed(InvalidJwtSigningKey));
    }
    let previous = keys.drain(1..).next();
    match keys.pop() {
        Some(current) => Ok(MatchCredentialKeys::new(current, previous.as_ref())),
        None => Err(malformed(InvalidJwtSigningKey)),
    }
}
