//! Verification of callers' tokens: JWTs (RFC 7519) from the configured issuer, signed with a configured key.
//!
//! Follows RFC 8725: the key decides the algorithm, not the token, and the audience is required. Header fields that refer
//! to other keys or documents are ignored.

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Validation, decode, decode_header};
use serde::Deserialize;

use crate::auth::credential_error::CredentialError;
use crate::auth::identity::{CLOCK_LEEWAY_MS, Identity, Role};
use crate::auth::verifying_keys::TokenPublicKey;
use crate::config::JwtSettings;
use crate::domain::time::UnixMs;

/// Maximum length of a token, bytes.
pub const JWT_BYTES_MAX: usize = 4 * 1024;
/// Maximum lifetime of a token, milliseconds: a stolen token is usable until it expires.
pub const JWT_LIFETIME_MS_MAX: u64 = 24 * 60 * 60 * 1000;
/// Maximum length of a subject, bytes.
pub const SUBJECT_BYTES_MAX: usize = 256;
/// Maximum number of scopes in a token.
pub const SCOPES_MAX: usize = 16;
/// Maximum number of audiences in a token.
const AUDIENCES_MAX: usize = 16;
/// Latest time that a token may contain, seconds since the Unix epoch: the end of the year 9999.
const NUMERIC_DATE_MAX_S: f64 = 253_402_300_799.0;

/// Claims of a token. Absent and null are the same.
#[derive(Deserialize)]
struct JwtClaims {
    iss: Option<String>,
    aud: Option<Audience>,
    sub: Option<String>,
    exp: Option<f64>,
    nbf: Option<f64>,
    iat: Option<f64>,
    role: Option<String>,
    scope: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Several(Vec<String>),
}

impl Audience {
    fn contains(&self, expected: &str) -> bool {
        match self {
            Audience::One(audience) => audience == expected,
            Audience::Several(list) => list.len() <= AUDIENCES_MAX && list.iter().any(|audience| audience == expected),
        }
    }
}

/// Verifies `token` and returns its identity: one of `keys` signed it, for our audience, and it is valid at `now`.
pub(super) fn verify_jwt(
    token: &str,
    keys: &[TokenPublicKey],
    settings: &JwtSettings,
    now: UnixMs,
) -> Result<Identity, CredentialError> {
    if token.len() > JWT_BYTES_MAX {
        return Err(CredentialError::TooLarge);
    }
    let claims = verify_signature(token, keys)?;
    identity_from_claims(claims, settings, now)
}

/// Returns the claims of `token` if one of `keys` signed it.
fn verify_signature(token: &str, keys: &[TokenPublicKey]) -> Result<JwtClaims, CredentialError> {
    let header = decode_header(token).map_err(|_| CredentialError::Malformed)?;
    // `crit` lists extensions that a verifier must support; none is supported.
    if header.crit.is_some() {
        return Err(CredentialError::Malformed);
    }
    let matches_kid = |key: &&TokenPublicKey| match (&key.key_id, &header.kid) {
        (Some(key_id), Some(kid)) => **key_id == **kid,
        (None, _) | (_, None) => true,
    };
    let mut failure = CredentialError::UnknownKey;
    for key in keys.iter().filter(matches_kid) {
        if key.algorithm != header.alg {
            failure = match failure {
                CredentialError::UnknownKey => CredentialError::AlgorithmNotAllowed,
                earlier => earlier,
            };
            continue;
        }
        match decode::<JwtClaims>(token, &key.decoding_key, &signature_only_validation(key)) {
            Ok(data) => return Ok(data.claims),
            Err(error) if *error.kind() == ErrorKind::InvalidSignature => failure = CredentialError::BadSignature,
            Err(_) => return Err(CredentialError::Malformed),
        }
    }
    Err(failure)
}

/// Validation of the signature only: `identity_from_claims` checks the claims, with the server's own clock.
fn signature_only_validation(key: &TokenPublicKey) -> Validation {
    let mut validation = Validation::new(key.algorithm);
    validation.required_spec_claims.clear();
    validation.validate_exp = false;
    validation.validate_nbf = false;
    validation.validate_aud = false;
    validation
}

/// Checks verified claims and returns their identity.
///
/// Expiry is checked last: `Expired` means that the token was valid in every other respect.
fn identity_from_claims(claims: JwtClaims, settings: &JwtSettings, now: UnixMs) -> Result<Identity, CredentialError> {
    if claims.iss.as_deref() != Some(&settings.issuer) {
        return Err(CredentialError::WrongIssuer);
    }
    if !claims.aud.is_some_and(|aud| aud.contains(&settings.audience)) {
        return Err(CredentialError::WrongAudience);
    }
    let subject = claims.sub.filter(|subject| is_valid_subject(subject)).ok_or(CredentialError::InvalidSubject)?;
    let role = match claims.role.as_deref() {
        None => Role::Client,
        Some(name) => Role::from_name(name).ok_or(CredentialError::InvalidRole)?,
    };
    let scope = claims.scope.unwrap_or_default();
    let scopes: Vec<&str> = scope.split(' ').filter(|scope| !scope.is_empty()).take(SCOPES_MAX + 1).collect();
    if scopes.len() > SCOPES_MAX {
        return Err(CredentialError::InvalidRole);
    }
    let to_time = |date: Option<f64>| {
        date.map(|seconds| numeric_date_to_unix_ms(seconds).ok_or(CredentialError::Malformed)).transpose()
    };
    let (expires_at, not_before, issued_at) = (to_time(claims.exp)?, to_time(claims.nbf)?, to_time(claims.iat)?);
    let expires_at = expires_at.ok_or(CredentialError::Malformed)?;
    let latest_start = now.plus_ms(CLOCK_LEEWAY_MS);
    if not_before.is_some_and(|start| start > latest_start) || issued_at.is_some_and(|start| start > latest_start) {
        return Err(CredentialError::NotYetValid);
    }
    if expires_at.ms_since(issued_at.unwrap_or(now)) > JWT_LIFETIME_MS_MAX {
        return Err(CredentialError::LifetimeTooLong);
    }
    let identity = Identity::new(&settings.issuer, &subject, role, &scopes, Some(expires_at));
    if identity.accepted_until().is_some_and(|end| end <= now) {
        return Err(CredentialError::Expired);
    }
    Ok(identity)
}

/// Checks that a subject is 1 to `SUBJECT_BYTES_MAX` bytes without control characters, so that it fits into one log line.
pub(super) fn is_valid_subject(text: &str) -> bool {
    (1..=SUBJECT_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control)
}

/// Converts a `NumericDate` (RFC 7519, section 2), which may have a fraction; `None` if negative or too large.
fn numeric_date_to_unix_ms(seconds: f64) -> Option<UnixMs> {
    (0.0..=NUMERIC_DATE_MAX_S).contains(&seconds).then_some(UnixMs((seconds * 1000.0) as u64))
}

#[cfg(test)]
mod tests;
