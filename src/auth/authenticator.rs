//! Tells who is calling, from what they show: a token, or the certificate of their connection.

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::auth::certificate;
use crate::auth::identity::Identity;
use crate::auth::jwt;
use crate::auth::keys::{self, KeysError, VerifyingKey};
use crate::auth::refused::Refused;
use crate::auth::verified::{Verified, digest};
use crate::clock::Clock;
use crate::config::JwtSettings;
use crate::domain::time::UnixMs;

const TOKEN: u8 = 0;
const CERTIFICATE: u8 = 1;

/// Holds the keys, and what was verified with them a moment ago.
pub struct Authenticator {
    /// Whose tokens are taken; none: nobody's.
    auth: Option<JwtSettings>,
    ring: ArcSwap<Ring>,
    clock: Arc<dyn Clock>,
}

/// Keys, and what they have verified: they come and go together, so that nothing is believed on the word of a key that
/// is gone.
struct Ring {
    keys: Vec<VerifyingKey>,
    verified: Verified,
}

impl Ring {
    fn read(auth: Option<&JwtSettings>) -> Result<Self, KeysError> {
        let files = auth.map_or(&[][..], |auth| &auth.keys);
        Ok(Self { keys: keys::read(files)?, verified: Verified::default() })
    }
}

impl Authenticator {
    /// Reads the keys of `auth`. Blocks.
    pub fn new(auth: Option<JwtSettings>, clock: Arc<dyn Clock>) -> Result<Self, KeysError> {
        let ring = ArcSwap::from_pointee(Ring::read(auth.as_ref())?);
        Ok(Self { auth, ring, clock })
    }

    /// Reads the keys again; with a mistake in any file the old ones stay. Calls that are being looked at end with the
    /// keys that they began with. Blocks.
    pub fn reload(&self) -> Result<(), KeysError> {
        self.ring.store(Arc::new(Ring::read(self.auth.as_ref())?));
        Ok(())
    }

    /// The files that the keys are in.
    pub fn key_files(&self) -> &[PathBuf] {
        self.auth.as_ref().map_or(&[], |auth| &auth.keys)
    }

    /// Who shows `authorization`, a header's value, over a connection with that `certificate`. Where there are both the
    /// header counts, and when it is worth nothing, so is the certificate: whoever shows a token means it.
    pub fn identify(&self, authorization: Option<&[u8]>, certificate: Option<&[u8]>) -> Result<Arc<Identity>, Refused> {
        let (ring, now) = (self.ring.load(), self.clock.now());
        match (authorization, certificate) {
            (Some(header), _) => {
                let token = bearer(header).ok_or(Refused::Malformed)?;
                if jwt::JWT_BYTES_MAX < token.len() {
                    return Err(Refused::TooLarge);
                }
                let auth = self.auth.as_ref().ok_or(Refused::UnknownKey)?;
                kept(&ring.verified, (TOKEN, token.as_bytes()), now, || jwt::verify(token, &ring.keys, auth, now))
            }
            (None, Some(der)) => {
                kept(&ring.verified, (CERTIFICATE, der), now, || certificate::identity(der).ok_or(Refused::Certificate))
            }
            (None, None) => Err(Refused::Missing),
        }
    }

    /// How long an identity is still good, milliseconds; none: as long as its connection.
    pub fn good_for_ms(&self, identity: &Identity) -> Option<u64> {
        Some(identity.good_until()?.ms_since(self.clock.now()))
    }
}

/// What was verified a moment ago, or else what `verify` finds now.
fn kept(
    verified: &Verified,
    (kind, proof): (u8, &[u8]),
    now: UnixMs,
    verify: impl FnOnce() -> Result<Identity, Refused>,
) -> Result<Arc<Identity>, Refused> {
    let name = digest(kind, proof);
    if let Some(identity) = verified.get(&name, now) {
        return Ok(identity);
    }
    let identity = Arc::new(verify()?);
    verified.put(name, Arc::clone(&identity), now);
    Ok(identity)
}

/// The token of a header `Bearer <token>` (RFC 6750); the scheme's name is read in any case.
fn bearer(header: &[u8]) -> Option<&str> {
    let (scheme, token) = std::str::from_utf8(header).ok()?.split_once(' ')?;
    let token = token.trim_matches(' ');
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && !token.contains(' ')).then_some(token)
}

impl std::fmt::Debug for Authenticator {
    /// Shows neither keys nor whom they have vouched for.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authenticator").field("keys", &self.ring.load().keys.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
