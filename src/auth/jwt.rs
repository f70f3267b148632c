//! Verification of callers' tokens: JWTs (RFC 7519) from a configured issuer, signed with a configured key.
//!
//! Follows RFC 8725: the key decides the algorithm, not the token, the audience and one of a few types are required, and a
//! key signs for its own issuer and roles only. Header fields that refer to other keys or documents are ignored.

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Header, Validation, decode, decode_header};
use serde::Deserialize;

use crate::auth::credential_error::CredentialError;
use crate::auth::identity::{CLOCK_LEEWAY_MS, CallerRoleSet, Identity, Role};
use crate::auth::verifying_keys::TokenPublicKey;
use crate::config::TokenIssuer;
use crate::domain::time::UnixMs;

/// Maximum length of a token, bytes.
pub const JWT_BYTES_MAX: usize = 4 * 1024;
/// Maximum lifetime of a token, milliseconds: a stolen token is usable until it expires.
pub const JWT_LIFETIME_MS_MAX: u64 = 24 * 60 * 60 * 1000;
/// Maximum length of a subject, bytes.
pub const SUBJECT_BYTES_MAX: usize = 256;
/// Maximum number of scopes in a token.
pub const SCOPES_MAX: usize = 16;
/// Accepted `typ` headers, without the prefix `application/` that they may have. No `typ` is accepted too.
const CALLER_JWT_TYPES: [&str; 2] = ["JWT", "at+jwt"];
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

/// Verifies `token` and returns its identity: one of `keys` signed it for its issuer, a role of the key and our audience,
/// and it is valid at `now`.
pub(super) fn verify_jwt(
    token: &str,
    keys: &[TokenPublicKey],
    issuers: &[TokenIssuer],
    now: UnixMs,
) -> Result<Identity, CredentialError> {
    if token.len() > JWT_BYTES_MAX {
        return Err(CredentialError::TooLarge);
    }
    let (claims, key) = verify_signature(token, keys)?;
    let issuer = issuers.get(key.issuer_index).ok_or(CredentialError::UnknownKey)?;
    identity_from_claims(claims, issuer, key.roles, now)
}

/// Number of signatures to verify at most for `token`.
pub(super) fn signatures_to_verify_max(token: &str, keys: &[TokenPublicKey]) -> u32 {
    let Ok(header) = decode_header(token) else { return 0 };
    let matching = keys.iter().filter(|key| matches_kid(key, &header) && key.algorithm == header.alg).count();
    u32::try_from(matching).unwrap_or(u32::MAX)
}

fn matches_kid(key: &TokenPublicKey, header: &Header) -> bool {
    match (&key.key_id, &header.kid) {
        (Some(key_id), Some(kid)) => **key_id == **kid,
        (None, _) | (_, None) => true,
    }
}

/// Whether a token of this `typ` may authenticate a caller. Types are media types, so their case does not matter
/// (RFC 7515, section 4.1.9).
fn is_caller_token_type(typ: Option<&str>) -> bool {
    const MEDIA_TYPE_PREFIX: &str = "application/";
    typ.is_none_or(|typ| {
        let has_prefix =
            typ.get(..MEDIA_TYPE_PREFIX.len()).is_some_and(|start| start.eq_ignore_ascii_case(MEDIA_TYPE_PREFIX));
        let name = if has_prefix { &typ[MEDIA_TYPE_PREFIX.len()..] } else { typ };
        CALLER_JWT_TYPES.iter().any(|accepted| accepted.eq_ignore_ascii_case(name))
    })
}

/// Returns the claims of `token` and the key that signed it, if it is one of `keys`.
fn verify_signature<'a>(
    token: &str,
    keys: &'a [TokenPublicKey],
) -> Result<(JwtClaims, &'a TokenPublicKey), CredentialError> {
    let header = decode_header(token).map_err(|_| CredentialError::Malformed)?;
    // `crit` lists extensions that a verifier must support; none is supported.
    if header.crit.is_some() {
        return Err(CredentialError::Malformed);
    }
    if !is_caller_token_type(header.typ.as_deref()) {
        return Err(CredentialError::WrongType);
    }
    let mut failure = CredentialError::UnknownKey;
    for key in keys.iter().filter(|key| matches_kid(key, &header)) {
        if key.algorithm != header.alg {
            failure = match failure {
                CredentialError::UnknownKey => CredentialError::AlgorithmNotAllowed,
                earlier => earlier,
            };
            continue;
        }
        match decode::<JwtClaims>(token, &key.decoding_key, &signature_only_validation(key)) {
            Ok(data) => return Ok((data.claims, key)),
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
fn identity_from_claims(
    claims: JwtClaims,
    issuer: &TokenIssuer,
    roles: CallerRoleSet,
    now: UnixMs,
) -> Result<Identity, CredentialError> {
    if claims.iss.as_deref() != Some(&issuer.name) {
        return Err(CredentialError::WrongIssuer);
    }
    if !claims.aud.is_some_and(|aud| aud.contains(&issuer.audience)) {
        return Err(CredentialError::WrongAudience);
    }
    let subject = claims.sub.filter(|subject| is_valid_subject(subject)).ok_or(CredentialError::InvalidSubject)?;
    let role = match claims.role.as_deref() {
        None => Role::Client,
        Some(name) => Role::from_name(name).ok_or(CredentialError::InvalidRole)?,
    };
    if !roles.contains(role) {
        return Err(CredentialError::RoleNotOfKey);
    }
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
    let identity = Identity::new(&issuer.name, &subject, role, &scopes, Some(expires_at));
    if identity.accepted_until().is_some_and(|end| end <= now) {
        return Err(CredentialError::Expired);
    }
    Ok(identity)
}

/// Checks that a subject is 1 to `SUBJECT_BYTES_MAX` bytes that show as what they are: without control characters, so that
/// it fits into one log line, and without characters that change the direction of the text around them.
pub(super) fn is_valid_subject(text: &str) -> bool {
    let is_misleading = |character: char| character.is_control() || is_bidirectional_control(character);
    (1..=SUBJECT_BYTES_MAX).contains(&text.len()) && !text.chars().any(is_misleading)
}

/// Whether a character has the Unicode property `Bidi_Control`, or separates lines or paragraphs.
fn is_bidirectional_control(character: char) -> bool {
    matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    )
}

/// Converts a `NumericDate` (RFC 7519, section 2), which may have a fraction; `None` if negative or too large.
fn numeric_date_to_unix_ms(seconds: f64) -> Option<UnixMs> {
    (0.0..=NUMERIC_DATE_MAX_S).contains(&seconds).then_some(UnixMs((seconds * 1000.0) as u64))
}

#[cfg(test)]
mod tests;
