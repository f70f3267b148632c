//! Callers' tokens: JWTs (RFC 7519), signed by the issuer that the server was told of, with a key that it was given.
//!
//! Everything that RFC 8725 warns of is refused: an algorithm is the key's and not the token's, whoever it is for must
//! be said, and nothing in the header leads anywhere else.

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Validation, decode, decode_header};
use serde::Deserialize;

use crate::auth::identity::{Identity, LEEWAY_MS, Role};
use crate::auth::keys::VerifyingKey;
use crate::auth::refused::Refused;
use crate::config::JwtSettings;
use crate::domain::time::UnixMs;

/// Bytes of a token at most.
pub const JWT_BYTES_MAX: usize = 4 * 1024;
/// How long a token may be good at most, milliseconds: what is stolen is of use until then.
pub const LIFETIME_MS_MAX: u64 = 24 * 60 * 60 * 1000;
/// Bytes of a subject.
pub const SUBJECT_BYTES_MAX: usize = 256;
/// Scopes in a token.
pub const SCOPES_MAX: usize = 16;
/// Audiences in a token.
const AUDIENCES_MAX: usize = 16;
/// No moment that a token may name lies beyond this: the year 9999, seconds.
const SECONDS_MAX: f64 = 253_402_300_799.0;

/// What a token says. Absent and null are the same.
#[derive(Deserialize)]
struct Claims {
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
    fn holds(&self, wanted: &str) -> bool {
        match self {
            Audience::One(one) => one == wanted,
            Audience::Several(several) => several.len() <= AUDIENCES_MAX && several.iter().any(|one| one == wanted),
        }
    }
}

/// Whom `token` is about, if one of `keys` signed it for us and it is good now.
pub(super) fn verify(token: &str, keys: &[VerifyingKey], auth: &JwtSettings, now: UnixMs) -> Result<Identity, Refused> {
    if JWT_BYTES_MAX < token.len() {
        return Err(Refused::TooLarge);
    }
    let claims = signed(token, keys)?;
    identity(claims, auth, now)
}

/// What the token says, if one of the keys signed it.
fn signed(token: &str, keys: &[VerifyingKey]) -> Result<Claims, Refused> {
    let header = decode_header(token).map_err(|_| Refused::Malformed)?;
    // Extensions that must be understood, none of which is.
    if header.crit.is_some() {
        return Err(Refused::Malformed);
    }
    let named = |key: &&VerifyingKey| match (&key.name, &header.kid) {
        (Some(name), Some(kid)) => **name == **kid,
        (None, _) | (_, None) => true,
    };
    let mut refused = Refused::UnknownKey;
    for key in keys.iter().filter(named) {
        if key.algorithm != header.alg {
            refused = match refused {
                Refused::UnknownKey => Refused::Algorithm,
                known => known,
            };
            continue;
        }
        match decode::<Claims>(token, &key.key, &signature_alone(key)) {
            Ok(data) => return Ok(data.claims),
            Err(error) if *error.kind() == ErrorKind::InvalidSignature => refused = Refused::Signature,
            Err(_) => return Err(Refused::Malformed),
        }
    }
    Err(refused)
}

/// The library looks at the signature; what the token says is looked at here, by our own clock.
fn signature_alone(key: &VerifyingKey) -> Validation {
    let mut validation = Validation::new(key.algorithm);
    validation.required_spec_claims.clear();
    validation.validate_exp = false;
    validation.validate_nbf = false;
    validation.validate_aud = false;
    validation
}

/// Whom verified claims are about, if they are meant for us and good now. That they have run out is found last: who
/// hears it has a token that was good.
fn identity(claims: Claims, auth: &JwtSettings, now: UnixMs) -> Result<Identity, Refused> {
    if claims.iss.as_deref() != Some(&auth.issuer) {
        return Err(Refused::Issuer);
    }
    if !claims.aud.is_some_and(|aud| aud.holds(&auth.audience)) {
        return Err(Refused::Audience);
    }
    let subject = claims.sub.filter(|it| is_name(it)).ok_or(Refused::Subject)?;
    let role = match claims.role.as_deref() {
        None => Role::Client,
        Some(word) => Role::of(word).ok_or(Refused::Role)?,
    };
    let scope = claims.scope.unwrap_or_default();
    let scopes: Vec<&str> = scope.split(' ').filter(|it| !it.is_empty()).take(SCOPES_MAX + 1).collect();
    if SCOPES_MAX < scopes.len() {
        return Err(Refused::Role);
    }
    let moment = |seconds: Option<f64>| seconds.map(|it| unix_ms(it).ok_or(Refused::Malformed)).transpose();
    let (until, from, made) = (moment(claims.exp)?, moment(claims.nbf)?, moment(claims.iat)?);
    let until = until.ok_or(Refused::Malformed)?;
    let soon = now.plus_ms(LEEWAY_MS);
    if from.is_some_and(|from| soon < from) || made.is_some_and(|made| soon < made) {
        return Err(Refused::NotYet);
    }
    if LIFETIME_MS_MAX < until.ms_since(made.unwrap_or(now)) {
        return Err(Refused::LivesTooLong);
    }
    let identity = Identity::new(&auth.issuer, &subject, role, &scopes, Some(until));
    if identity.good_until().is_some_and(|end| end <= now) {
        return Err(Refused::Expired);
    }
    Ok(identity)
}

/// A name that can be written into one line of a log.
pub(super) fn is_name(text: &str) -> bool {
    (1..=SUBJECT_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control)
}

/// A `NumericDate`, which may have a fraction.
fn unix_ms(seconds: f64) -> Option<UnixMs> {
    (0.0..=SECONDS_MAX).contains(&seconds).then_some(UnixMs((seconds * 1000.0) as u64))
}

#[cfg(test)]
mod tests;
