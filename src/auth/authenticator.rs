//! Authentication of callers by JWT or by TLS client certificate.

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::auth::client_certificate;
use crate::auth::credential_error::CredentialError;
use crate::auth::identity::{Identity, Role, caller_key_of};
use crate::auth::jwt;
use crate::auth::verified_credential_cache::{VerifiedCredentialCache, credential_digest};
use crate::auth::verifying_keys::{self, TokenPublicKey, VerifyingKeysError};
use crate::clock::Clock;
use crate::config::{JwtSettings, TokenIssuer};
use crate::domain::id::UserKey;
use crate::domain::time::UnixMs;

const PROOF_KIND_JWT: u8 = 0;
const PROOF_KIND_CERTIFICATE: u8 = 1;

/// Verifies callers' tokens and certificates; caches proofs that were verified recently.
pub struct Authenticator {
    /// Issuers, each with audience and keys. Empty rejects every token.
    issuers: Vec<TokenIssuer>,
    /// Key files of all issuers.
    key_files: Vec<PathBuf>,
    key_ring: ArcSwap<KeyRing>,
    clock: Arc<dyn Clock>,
}

/// Verifying keys with the cache of proofs that they verified. Both are replaced together: a removed key leaves no
/// cached proof behind.
struct KeyRing {
    verifying_keys: Vec<TokenPublicKey>,
    verified_credential_cache: VerifiedCredentialCache,
}

impl KeyRing {
    fn load(issuers: &[TokenIssuer]) -> Result<Self, VerifyingKeysError> {
        Ok(Self {
            verifying_keys: verifying_keys::read_keys_of_all_issuers(issuers)?,
            verified_credential_cache: VerifiedCredentialCache::default(),
        })
    }
}

impl Authenticator {
    /// Loads the key files of `jwt_settings`. Blocks.
    pub fn new(jwt_settings: Option<JwtSettings>, clock: Arc<dyn Clock>) -> Result<Self, VerifyingKeysError> {
        let issuers = jwt_settings.map_or_else(Vec::new, |settings| settings.issuers);
        let key_files = issuers.iter().flat_map(|issuer| &issuer.keys).map(|keys| keys.file.clone()).collect();
        let key_ring = ArcSwap::from_pointee(KeyRing::load(&issuers)?);
        Ok(Self { issuers, key_files, key_ring, clock })
    }

    /// Reloads the key files; after an error in any file the old keys stay. Calls in progress finish with the keys that
    /// they started with. Blocks.
    pub fn reload(&self) -> Result<(), VerifyingKeysError> {
        self.key_ring.store(Arc::new(KeyRing::load(&self.issuers)?));
        Ok(())
    }

    /// Paths of the key files.
    pub fn key_files(&self) -> &[PathBuf] {
        &self.key_files
    }

    /// Keys of a player's account as a caller, one for each issuer.
    pub fn caller_keys_of_user_per_issuer(&self, user_id: &str) -> Vec<UserKey> {
        self.issuers.iter().map(|issuer| caller_key_of(&issuer.name, Role::Client, user_id)).collect()
    }

    /// Identity of a proof that was verified recently, as `authenticate` returns it; `None` if it has to be verified.
    pub fn cached_identity(&self, authorization: Option<&[u8]>, certificate: Option<&[u8]>) -> Option<Arc<Identity>> {
        let (kind, proof) = match (authorization, certificate) {
            (Some(header), _) => (PROOF_KIND_JWT, parse_bearer_token(header)?.as_bytes()),
            (None, Some(der)) => (PROOF_KIND_CERTIFICATE, der),
            (None, None) => return None,
        };
        let is_short = kind == PROOF_KIND_CERTIFICATE || proof.len() <= jwt::JWT_BYTES_MAX;
        is_short
            .then(|| {
                self.key_ring.load().verified_credential_cache.get(&credential_digest(kind, proof), self.clock.now())
            })
            .flatten()
    }

    /// Number of signatures to verify at most for the token in `authorization`; 0 if it is refused without.
    pub fn signatures_to_verify_max(&self, authorization: &[u8]) -> u32 {
        let token = parse_bearer_token(authorization).filter(|token| token.len() <= jwt::JWT_BYTES_MAX);
        token.map_or(0, |token| jwt::signatures_to_verify_max(token, &self.key_ring.load().verifying_keys))
    }

    /// Identity of the caller that sent the header value `authorization` on a connection with this client `certificate`
    /// (DER).
    ///
    /// The header takes precedence: an invalid token is an error even when the certificate is valid.
    pub fn authenticate(
        &self,
        authorization: Option<&[u8]>,
        certificate: Option<&[u8]>,
    ) -> Result<Arc<Identity>, CredentialError> {
        let (key_ring, now) = (self.key_ring.load(), self.clock.now());
        match (authorization, certificate) {
            (Some(header), _) => {
                let token = parse_bearer_token(header).ok_or(CredentialError::Malformed)?;
                if token.len() > jwt::JWT_BYTES_MAX {
                    return Err(CredentialError::TooLarge);
                }
                if self.issuers.is_empty() {
                    return Err(CredentialError::UnknownKey);
                }
                cached_or_verify(&key_ring.verified_credential_cache, (PROOF_KIND_JWT, token.as_bytes()), now, || {
                    jwt::verify_jwt(token, &key_ring.verifying_keys, &self.issuers, now)
                })
            }
            (None, Some(der)) => {
                cached_or_verify(&key_ring.verified_credential_cache, (PROOF_KIND_CERTIFICATE, der), now, || {
                    client_certificate::identity_from_certificate(der).ok_or(CredentialError::InvalidCertificate)
                })
            }
            (None, None) => Err(CredentialError::Missing),
        }
    }

    /// Milliseconds until the identity expires, clock leeway included; `None` if it lasts as long as its connection.
    pub fn identity_expires_in_ms(&self, identity: &Identity) -> Option<u64> {
        Some(identity.accepted_until()?.ms_since(self.clock.now()))
    }
}

/// Returns the cached identity of a proof, or verifies the proof and caches the result.
fn cached_or_verify(
    verified_credential_cache: &VerifiedCredentialCache,
    (kind, proof): (u8, &[u8]),
    now: UnixMs,
    verify: impl FnOnce() -> Result<Identity, CredentialError>,
) -> Result<Arc<Identity>, CredentialError> {
    let digest = credential_digest(kind, proof);
    if let Some(identity) = verified_credential_cache.get(&digest, now) {
        return Ok(identity);
    }
    let identity = Arc::new(verify()?);
    verified_credential_cache.insert(digest, Arc::clone(&identity), now);
    Ok(identity)
}

/// The token of a header `Bearer <token>` (RFC 6750); the scheme name is case-insensitive.
fn parse_bearer_token(header: &[u8]) -> Option<&str> {
    let (scheme, token) = std::str::from_utf8(header).ok()?.split_once(' ')?;
    let token = token.trim_matches(' ');
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && !token.contains(' ')).then_some(token)
}

impl std::fmt::Debug for Authenticator {
    /// Prints the number of keys; neither keys nor identities.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authenticator")
            .field("keys", &self.key_ring.load().verifying_keys.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
