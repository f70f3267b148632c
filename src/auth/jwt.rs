//! Callers' tokens: JWTs (RFC 7519), signed by the issuer that the server was told of, with a key that it was given.
//!
//! Everything that RFC 8725 warns of is refused: an algorithm is the key's and not the token's, whoever it is for must
//! be said, and nothing in the header leads anywhere else.

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Validation, decode, decode_header};
use serde::Deserialize;

use crate::auth::credential_error::CredentialError;
use crate::auth::identity::{CLOCK_LEEWAY_MS, Identity, Role};
use crate::auth::verifying_keys::VerifyingKey;
use crate::config::JwtSettings;
use crate::domain::time::UnixMs;

/// Bytes of a token at most.
pub const JWT_BYTES_MAX: usize = 4 * 1024;
/// How long a token may be good at most, milliseconds: what is stolen is of use until then.
pub const JWT_LIFETIME_MS_MAX: u64 = 24 * 60 * 60 * 1000;
/// Bytes of a subject.
pub const SUBJECT_BYTES_MAX: usize = 256;
/// Scopes in a token.
pub const SCOPES_MAX: usize = 16;
/// Audiences in a token.
const AUDIENCES_MAX: usize = 16;
/// No moment that a token may name lies beyond this: the year 9999, seconds.
const NUMERIC_DATE_MAX_S: f64 = 253_402_300_799.0;

/// What a token says. Absent and null are the same.
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
    fn contains(&self, wanted: &str) -> bool {
        match self {
            Audience::One(one) => one == wanted,
            Audience::Several(several) => several.len() <= AUDIENCES_MAX && several.iter().any(|one| one == wanted),
        }
    }
}

/// Whom `token` is about, if one of `keys` signed it for us and it is good now.
pub(super) fn verify_jwt(
    token: &str,
    keys: &[VerifyingKey],
    auth: &JwtSettings,
    now: UnixMs,
) -> Result<Identity, CredentialError> {
    if JWT_BYTES_MAX < token.len() {
        return Err(CredentialError::TooLarge);
    }
    let claims = verify_signature(token, keys)?;
    identity_from_claims(claims, auth, now)
}

/// What the token says, if one of the keys signed it.
fn verify_signature(token: &str, keys: &[VerifyingKey]) -> Result<JwtClaims, CredentialError> {
    let header = decode_header(token).map_err(|_| CredentialError::Malformed)?;
    // Extensions that must be understood, none of which is.
    if header.crit.is_some() {
        return Err(CredentialError::Malformed);
    }
    let named = |key: &&VerifyingKey| match (&key.key_id, &header.kid) {
        (Some(name), Some(kid)) => **name == **kid,
        (None, _) | (_, None) => true,
    };
    let mut refused = CredentialError::UnknownKey;
    for key in keys.iter().filter(named) {
        if key.algorithm != header.alg {
            refused = match refused {
                CredentialError::UnknownKey => CredentialError::AlgorithmNotAllowed,
                known => known,
            };
            continue;
        }
        match decode::<JwtClaims>(token, &key.decoding_key, &signature_only_validation(key)) {
            Ok(data) => return Ok(data.claims),
            Err(error) if *error.kind() == ErrorKind::InvalidSignature => refused = CredentialError::BadSignature,
            Err(_) => return Err(CredentialError::Malformed),
        }
    }
    Err(refused)
}

/// The library looks at the signature; what the token says is looked at here, by our own clock.
fn signature_only_validation(key: &VerifyingKey) -> Validation {
    let mut validation = Validation::new(key.algorithm);
    validation.required_spec_claims.clear();
    validation.validate_exp = false;
    validation.validate_nbf = false;
    validation.validate_aud = false;
    validation
}

/// Whom verified claims are about, if they are meant for us and good now. That they have run out is found last: who
/// hears it has a token that was good.
fn identity_from_claims(claims: JwtClaims, auth: &JwtSettings, now: UnixMs) -> Result<Identity, CredentialError> {
    if claims.iss.as_deref() != Some(&auth.issuer) {
        return Err(CredentialError::WrongIssuer);
    }
    if !claims.aud.is_some_and(|aud| aud.contains(&auth.audience)) {
        return Err(CredentialError::WrongAudience);
    }
    let subject = claims.sub.filter(|it| is_valid_subject(it)).ok_or(CredentialError::InvalidSubject)?;
    let role = match claims.role.as_deref() {
        None => Role::Client,
        Some(word) => Role::from_name(word).ok_or(CredentialError::InvalidRole)?,
    };
    let scope = claims.scope.unwrap_or_default();
    let scopes: Vec<&str> = scope.split(' ').filter(|it| !it.is_empty()).take(SCOPES_MAX + 1).collect();
    if SCOPES_MAX < scopes.len() {
        return Err(CredentialError::InvalidRole);
    }
    let moment = |seconds: Option<f64>| {
        seconds.map(|it| numeric_date_to_unix_ms(it).ok_or(CredentialError::Malformed)).transpose()
    };
    let (until, from, made) = (moment(claims.exp)?, moment(claims.nbf)?, moment(claims.iat)?);
    let until = until.ok_or(CredentialError::Malformed)?;
    let soon = now.plus_ms(CLOCK_LEEWAY_MS);
    if from.is_some_and(|from| soon < from) || made.is_some_and(|made| soon < made) {
        return Err(CredentialError::NotYetValid);
    }
    if JWT_LIFETIME_MS_MAX < until.ms_since(made.unwrap_or(now)) {
        return Err(CredentialError::LifetimeTooLong);
    }
    let identity = Identity::new(&auth.issuer, &subject, role, &scopes, Some(until));
    if identity.accepted_until().is_some_and(|end| end <= now) {
        return Err(CredentialError::Expired);
    }
    Ok(identity)
}

/// A name that can be written into one line of a log.
pub(super) fn is_valid_subject(text: &str) -> bool {
    (1..=SUBJECT_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control)
}

/// A `NumericDate`, which may have a fraction.
fn numeric_date_to_unix_ms(seconds: f64) -> Option<UnixMs> {
    (0.0..=NUMERIC_DATE_MAX_S).contains(&seconds).then_some(UnixMs((seconds * 1000.0) as u64))
}

#[cfg(test)]
mod tests;
