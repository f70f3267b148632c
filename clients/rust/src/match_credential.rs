//! Verifier of match credentials: a game server admits the players of its matches with it.

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::time::{Duration, SystemTime};

use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// The `iss` claim of every match credential.
const ISSUER: &str = "fireteam";
/// The `typ` header of every match credential. No other token of fireteam or of a login service has it.
const TOKEN_TYPE: &str = "match+jwt";
/// The only signature algorithm.
const ALGORITHM: &str = "EdDSA";
/// Maximum length of a credential, bytes.
const CREDENTIAL_BYTES_MAX: usize = 4 * 1024;
/// Maximum size of a key set, bytes.
const KEY_SET_BYTES_MAX: usize = 64 * 1024;
/// Maximum number of keys of a set: the signing key, the previous one, and room for those of a changed rotation.
const KEYS_MAX: usize = 16;
/// Maximum lifetime of a credential, seconds; the server's is five minutes.
const LIFETIME_S_MAX: u64 = 10 * 60;
/// Accepted difference between the clocks of server and game server for the start of a credential, seconds.
const CLOCK_LEEWAY_S: u64 = 30;
/// Length of an Ed25519 public key, bytes.
const ED25519_KEY_BYTES: usize = 32;

/// Default limit of remembered credentials: fifty players a second, each with a credential of its own.
pub const DEFAULT_REMEMBERED_CREDENTIALS_MAX: usize = 16_384;

/// Reason why a credential or a key set is refused. A player whose credential is refused must not be admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum CredentialError {
    /// The text is no credential, or is too long.
    #[error("the credential is malformed; send it as the server has given it")]
    Malformed,
    /// A token of another kind, such as a player's own token.
    #[error("the token is no match credential; send the credential of the match")]
    WrongType,
    /// No key of the set has the credential's `kid`.
    #[error("the key set has no key of the credential; fetch the key set again")]
    UnknownKey,
    /// The signature does not verify: the credential is forged.
    #[error("the credential is forged; get one from the server")]
    BadSignature,
    /// Another issuer.
    #[error("the credential is of another issuer; get one from the server")]
    WrongIssuer,
    /// For another game server, host or match.
    #[error("the credential is for another game server; connect to the assigned one")]
    WrongAudience,
    /// Not valid yet, or valid for too long.
    #[error("the credential's times are not valid; check the clocks")]
    InvalidTimes,
    /// Expired.
    #[error("the credential has expired; get a new one")]
    Expired,
    /// It has admitted a player before.
    #[error("the credential was used before; get a new one")]
    UsedBefore,
    /// As many credentials as the verifier remembers were used and have not expired.
    #[error("too many credentials are in use; try again in a minute")]
    TooManyCredentials,
    /// The key set cannot be read, or has no Ed25519 key.
    #[error("the key set is not valid; give the page /.well-known/jwks.json of the operator port")]
    InvalidKeySet,
}

/// A player that a match credential admits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmittedPlayer {
    /// Match id.
    pub match_id: String,
    /// The player's key in the match.
    pub player_key: String,
    /// The player's user key, if the credential names it.
    pub user_key: Option<String>,
    /// Index of the player's team in the match, from 0.
    pub team: u16,
    /// Expiry, seconds since the Unix epoch. An admitted player stays admitted after it.
    pub credential_expires_at_s: u64,
}

/// Verifies the credentials that players present to one game server, offline and each once.
///
/// ```no_run
/// use std::time::SystemTime;
///
/// # fn admit(key_set: &str, advertisement_id: &str, credential: &str) -> Result<(), fireteam_client::CredentialError> {
/// let mut verifier = fireteam_client::CredentialVerifier::new(key_set, advertisement_id)?;
/// let player = verifier.verify(credential, SystemTime::now())?;
/// println!("{} joins team {} of match {}", player.player_key, player.team, player.match_id);
/// # Ok(())
/// # }
/// ```
pub struct CredentialVerifier {
    keys: Vec<PublicKey>,
    audience: String,
    used: UsedCredentials,
}

struct PublicKey {
    kid: String,
    key: UnparsedPublicKey<Vec<u8>>,
}

/// Ids of used credentials, until they expire.
struct UsedCredentials {
    ids: HashSet<String>,
    by_expiry: BTreeSet<(u64, String)>,
    max: usize,
}

#[derive(Deserialize)]
struct JwtHeader {
    alg: String,
    kid: Option<String>,
    typ: Option<String>,
    crit: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    aud: String,
    sub: String,
    jti: String,
    iat: u64,
    exp: u64,
    #[serde(rename = "match")]
    match_id: String,
    user: Option<String>,
    team: u16,
}

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Jwk>,
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    crv: Option<String>,
    kid: Option<String>,
    x: Option<String>,
}

impl CredentialVerifier {
    /// Verifier with the keys of `key_set`, a JWKS: the page `/.well-known/jwks.json` of the server. It accepts credentials
    /// for `audience` only: the id of the game server's own advertisement, or the player key of a player who hosts, or the
    /// match id of a match without a host.
    pub fn new(key_set: &str, audience: impl Into<String>) -> Result<Self, CredentialError> {
        let used = UsedCredentials {
            ids: HashSet::new(),
            by_expiry: BTreeSet::new(),
            max: DEFAULT_REMEMBERED_CREDENTIALS_MAX,
        };
        Ok(Self { keys: parse_key_set(key_set)?, audience: audience.into(), used })
    }

    /// Remembers at most `max` credentials that have not expired. Above that, valid credentials are refused.
    pub fn with_remembered_max(mut self, max: usize) -> Self {
        self.used.max = max;
        self
    }

    /// Replaces the keys, after a rotation. Used credentials stay used. After an error the old keys stay.
    pub fn replace_keys(&mut self, key_set: &str) -> Result<(), CredentialError> {
        self.keys = parse_key_set(key_set)?;
        Ok(())
    }

    /// Admits the player of `credential`, if it is genuine, for this game server, valid at `now`, and used for the first
    /// time.
    pub fn verify(&mut self, credential: &str, now: SystemTime) -> Result<AdmittedPlayer, CredentialError> {
        let claims: Claims = self.verify_signature(credential)?;
        if claims.iss != ISSUER {
            return Err(CredentialError::WrongIssuer);
        }
        if claims.aud != self.audience {
            return Err(CredentialError::WrongAudience);
        }
        let now_s = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
        let lifetime_s = claims.exp.checked_sub(claims.iat).ok_or(CredentialError::InvalidTimes)?;
        if claims.iat > now_s + CLOCK_LEEWAY_S || lifetime_s > LIFETIME_S_MAX {
            return Err(CredentialError::InvalidTimes);
        }
        if claims.exp <= now_s {
            return Err(CredentialError::Expired);
        }
        self.used.use_once(claims.jti, claims.exp, now_s)?;
        Ok(AdmittedPlayer {
            match_id: claims.match_id,
            player_key: claims.sub,
            user_key: claims.user,
            team: claims.team,
            credential_expires_at_s: claims.exp,
        })
    }

    fn verify_signature(&self, credential: &str) -> Result<Claims, CredentialError> {
        if credential.len() > CREDENTIAL_BYTES_MAX {
            return Err(CredentialError::Malformed);
        }
        let (signed, signature) = credential.rsplit_once('.').ok_or(CredentialError::Malformed)?;
        let (header, claims) = signed.split_once('.').ok_or(CredentialError::Malformed)?;
        let header: JwtHeader = decode_part(header)?;
        if header.typ.as_deref() != Some(TOKEN_TYPE) {
            return Err(CredentialError::WrongType);
        }
        // `crit` lists extensions that a verifier must support; none is supported.
        if header.alg != ALGORITHM || header.crit.is_some() {
            return Err(CredentialError::Malformed);
        }
        let key = self.keys.iter().find(|key| header.kid.as_deref() == Some(&key.kid));
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| CredentialError::Malformed)?;
        let key = &key.ok_or(CredentialError::UnknownKey)?.key;
        key.verify(signed.as_bytes(), &signature).map_err(|_| CredentialError::BadSignature)?;
        decode_part(claims)
    }
}

impl UsedCredentials {
    /// Remembers a credential until it expires. Fails if it is remembered already, or if there is no room.
    fn use_once(&mut self, id: String, expires_at_s: u64, now_s: u64) -> Result<(), CredentialError> {
        while self.by_expiry.first().is_some_and(|(expires_at_s, _)| *expires_at_s <= now_s) {
            if let Some((_, expired)) = self.by_expiry.pop_first() {
                self.ids.remove(&expired);
            }
        }
        if self.ids.contains(&id) {
            return Err(CredentialError::UsedBefore);
        }
        if self.ids.len() >= self.max {
            return Err(CredentialError::TooManyCredentials);
        }
        self.ids.insert(id.clone());
        self.by_expiry.insert((expires_at_s, id));
        Ok(())
    }
}

fn decode_part<T: DeserializeOwned>(part: &str) -> Result<T, CredentialError> {
    let bytes = URL_SAFE_NO_PAD.decode(part).map_err(|_| CredentialError::Malformed)?;
    serde_json::from_slice(&bytes).map_err(|_| CredentialError::Malformed)
}

/// The Ed25519 keys of a JWKS (RFC 7517, RFC 8037). Other keys are skipped.
fn parse_key_set(text: &str) -> Result<Vec<PublicKey>, CredentialError> {
    if text.len() > KEY_SET_BYTES_MAX {
        return Err(CredentialError::InvalidKeySet);
    }
    let set: KeySet = serde_json::from_str(text).map_err(|_| CredentialError::InvalidKeySet)?;
    let keys: Vec<PublicKey> = set.keys.into_iter().filter_map(public_key).take(KEYS_MAX).collect();
    if keys.is_empty() { Err(CredentialError::InvalidKeySet) } else { Ok(keys) }
}

fn public_key(jwk: Jwk) -> Option<PublicKey> {
    let is_ed25519 = jwk.kty == "OKP" && jwk.crv.as_deref() == Some("Ed25519");
    let (kid, x) = (jwk.kid?, jwk.x.filter(|_| is_ed25519)?);
    let bytes = URL_SAFE_NO_PAD.decode(x).ok().filter(|bytes| bytes.len() == ED25519_KEY_BYTES)?;
    Some(PublicKey { kid, key: UnparsedPublicKey::new(&ED25519, bytes) })
}

impl fmt::Debug for CredentialVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CredentialVerifier")
            .field("keys", &self.keys.len())
            .field("audience", &self.audience)
            .field("used", &self.used.ids.len())
            .finish()
    }
}
