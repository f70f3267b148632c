//! Tells who is calling, from what they show: a token, or the certificate of their connection.

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::auth::client_certificate;
use crate::auth::credential_error::CredentialError;
use crate::auth::identity::Identity;
use crate::auth::jwt;
use crate::auth::proof_cache::{ProofCache, proof_digest};
use crate::auth::verifying_keys::{self, VerifyingKey, VerifyingKeysError};
use crate::clock::Clock;
use crate::config::JwtSettings;
use crate::domain::time::UnixMs;

const PROOF_KIND_JWT: u8 = 0;
const PROOF_KIND_CERTIFICATE: u8 = 1;

/// Holds the keys, and what was verified with them a moment ago.
pub struct Authenticator {
    /// Whose tokens are taken; none: nobody's.
    jwt_settings: Option<JwtSettings>,
    key_ring: ArcSwap<KeyRing>,
    clock: Arc<dyn Clock>,
}

/// Keys, and what they have verified: they come and go together, so that nothing is believed on the word of a key that
/// is gone.
struct KeyRing {
    verifying_keys: Vec<VerifyingKey>,
    proof_cache: ProofCache,
}

impl KeyRing {
    fn load(auth: Option<&JwtSettings>) -> Result<Self, VerifyingKeysError> {
        let files = auth.map_or(&[][..], |auth| &auth.keys);
        Ok(Self { verifying_keys: verifying_keys::read_key_files(files)?, proof_cache: ProofCache::default() })
    }
}

impl Authenticator {
    /// Reads the keys of `auth`. Blocks.
    pub fn new(auth: Option<JwtSettings>, clock: Arc<dyn Clock>) -> Result<Self, VerifyingKeysError> {
        let ring = ArcSwap::from_pointee(KeyRing::load(auth.as_ref())?);
        Ok(Self { jwt_settings: auth, key_ring: ring, clock })
    }

    /// Reads the keys again; with a mistake in any file the old ones stay. Calls that are being looked at end with the
    /// keys that they began with. Blocks.
    pub fn reload(&self) -> Result<(), VerifyingKeysError> {
        self.key_ring.store(Arc::new(KeyRing::load(self.jwt_settings.as_ref())?));
        Ok(())
    }

    /// The files that the keys are in.
    pub fn key_files(&self) -> &[PathBuf] {
        self.jwt_settings.as_ref().map_or(&[], |auth| &auth.keys)
    }

    /// Who shows `authorization`, a header's value, over a connection with that `certificate`. Where there are both the
    /// header counts, and when it is worth nothing, so is the certificate: whoever shows a token means it.
    pub fn authenticate(
        &self,
        authorization: Option<&[u8]>,
        certificate: Option<&[u8]>,
    ) -> Result<Arc<Identity>, CredentialError> {
        let (ring, now) = (self.key_ring.load(), self.clock.now());
        match (authorization, certificate) {
            (Some(header), _) => {
                let token = parse_bearer_token(header).ok_or(CredentialError::Malformed)?;
                if jwt::JWT_BYTES_MAX < token.len() {
                    return Err(CredentialError::TooLarge);
                }
                let auth = self.jwt_settings.as_ref().ok_or(CredentialError::UnknownKey)?;
                cached_or_verify(&ring.proof_cache, (PROOF_KIND_JWT, token.as_bytes()), now, || {
                    jwt::verify_jwt(token, &ring.verifying_keys, auth, now)
                })
            }
            (None, Some(der)) => cached_or_verify(&ring.proof_cache, (PROOF_KIND_CERTIFICATE, der), now, || {
                client_certificate::identity_from_certificate(der).ok_or(CredentialError::InvalidCertificate)
            }),
            (None, None) => Err(CredentialError::Missing),
        }
    }

    /// How long an identity is still good, milliseconds; none: as long as its connection.
    pub fn identity_expires_in_ms(&self, identity: &Identity) -> Option<u64> {
        Some(identity.accepted_until()?.ms_since(self.clock.now()))
    }
}

/// What was verified a moment ago, or else what `verify` finds now.
fn cached_or_verify(
    verified: &ProofCache,
    (kind, proof): (u8, &[u8]),
    now: UnixMs,
    verify: impl FnOnce() -> Result<Identity, CredentialError>,
) -> Result<Arc<Identity>, CredentialError> {
    let name = proof_digest(kind, proof);
    if let Some(identity) = verified.get(&name, now) {
        return Ok(identity);
    }
    let identity = Arc::new(verify()?);
    verified.insert(name, Arc::clone(&identity), now);
    Ok(identity)
}

/// The token of a header `Bearer <token>` (RFC 6750); the scheme's name is read in any case.
fn parse_bearer_token(header: &[u8]) -> Option<&str> {
    let (scheme, token) = std::str::from_utf8(header).ok()?.split_once(' ')?;
    let token = token.trim_matches(' ');
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && !token.contains(' ')).then_some(token)
}

impl std::fmt::Debug for Authenticator {
    /// Shows neither keys nor whom they have vouched for.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authenticator")
            .field("keys", &self.key_ring.load().verifying_keys.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
