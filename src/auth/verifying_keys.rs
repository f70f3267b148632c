//! Public keys that verify callers' tokens, from PEM and JWKS files: all files load, or none.
//!
//! A key has one algorithm, which follows from the key type (RFC 8725, section 3.1). The algorithm in a token's header
//! chooses nothing.

use std::io;
use std::path::{Path, PathBuf};

use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};
use serde::Deserialize;
use serde::de::IgnoredAny;
use thiserror::Error;
use x509_parser::oid_registry::{OID_EC_P256, OID_KEY_TYPE_EC_PUBLIC_KEY, OID_PKCS1_RSAENCRYPTION, OID_SIG_ED25519};
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

use crate::auth::identity::{CallerRoleSet, Role};
use crate::config::{TokenIssuer, VerifyingKeyFile};
use crate::files::read_file_start;

/// Maximum size of a key file, bytes.
pub const PUBLIC_KEY_FILE_BYTES_MAX: u64 = 64 * 1024;
/// Maximum number of keys in all files together. A token without `kid` is tried against each key of its algorithm, and
/// anonymous callers can send any number of tokens.
pub const VERIFYING_KEYS_TOTAL_MAX: usize = 16;
/// Maximum length of a `kid`, bytes.
const KEY_ID_BYTES_MAX: usize = 256;
/// Accepted sizes of an RSA key, bits: a smaller key is too weak, a larger one too slow.
const RSA_KEY_BITS: std::ops::RangeInclusive<usize> = 2_048..=8_192;
/// Length of an uncompressed P-256 point, bytes.
const P256_POINT_BYTES: usize = 65;
/// Length of an Ed25519 public key, bytes.
const ED25519_KEY_BYTES: usize = 32;

/// Failure to load the key files. Each message is one line and never contains a file's content.
#[derive(Debug, Error)]
pub enum VerifyingKeysError {
    /// A file could not be read.
    #[error("auth key file {}: {error}; check path and permissions", file.display())]
    Io {
        /// Path of the key file.
        file: PathBuf,
        /// Error of the operating system.
        error: io::Error,
    },
    /// A file does not contain usable public keys.
    #[error("auth key file {}: {problem}", file.display())]
    InvalidFile {
        /// Path of the key file.
        file: PathBuf,
        /// The problem and its remedy.
        problem: String,
    },
    /// The files contain more than `VERIFYING_KEYS_TOTAL_MAX` keys.
    #[error("auth key files contain {0} keys; give at most {VERIFYING_KEYS_TOTAL_MAX}")]
    TooManyKeys(usize),
    /// Two keys of an issuer have the same `kid`, so a token with that `kid` would be ambiguous.
    #[error(
        "auth key files contain two keys with the `kid` `{0}`; give each key its own `kid`, or name all roles of a file at once"
    )]
    DuplicateKeyId(Box<str>),
}

/// Public key that verifies tokens.
#[derive(Clone, Debug)]
pub(super) struct TokenPublicKey {
    /// Index of the issuer whose tokens the key signs.
    pub(super) issuer_index: usize,
    /// Roles of the tokens that the key signs.
    pub(super) roles: CallerRoleSet,
    /// The `kid`; `None` for keys from PEM files, which match any `kid`.
    pub(super) key_id: Option<Box<str>>,
    /// The only algorithm that the key verifies.
    pub(super) algorithm: Algorithm,
    /// The key in the form that the JWT library takes.
    pub(super) decoding_key: DecodingKey,
}

/// Loads the keys of all files of all issuers. Blocks.
pub(super) fn read_keys_of_all_issuers(issuers: &[TokenIssuer]) -> Result<Vec<TokenPublicKey>, VerifyingKeysError> {
    let mut keys: Vec<TokenPublicKey> = Vec::new();
    for (issuer_index, issuer) in issuers.iter().enumerate() {
        for VerifyingKeyFile { file, roles } in &issuer.keys {
            let roles = roles.iter().filter_map(|name| Role::from_name(name)).collect::<Vec<_>>();
            let roles = CallerRoleSet::from_roles(if roles.is_empty() { &Role::ALL } else { &roles });
            keys.extend(read_key_file(file)?.into_iter().map(|key| TokenPublicKey { issuer_index, roles, ..key }));
        }
    }
    if keys.len() > VERIFYING_KEYS_TOTAL_MAX {
        return Err(VerifyingKeysError::TooManyKeys(keys.len()));
    }
    for (index, key) in keys.iter().enumerate() {
        let same =
            |earlier: &TokenPublicKey| (earlier.issuer_index, &earlier.key_id) == (key.issuer_index, &key.key_id);
        let is_duplicate = keys[..index].iter().any(same);
        if let Some(key_id) = key.key_id.as_ref().filter(|_| is_duplicate) {
            return Err(VerifyingKeysError::DuplicateKeyId(key_id.clone()));
        }
    }
    Ok(keys)
}

fn read_key_file(path: &Path) -> Result<Vec<TokenPublicKey>, VerifyingKeysError> {
    let io_error = |error| VerifyingKeysError::Io { file: path.into(), error };
    let bytes = read_file_start(path, PUBLIC_KEY_FILE_BYTES_MAX + 1).map_err(io_error)?;
    parse_key_file(&bytes).map_err(|problem| VerifyingKeysError::InvalidFile { file: path.into(), problem })
}

/// Parses a PEM or JWKS file; on failure returns the problem and its remedy. The keys are of the first issuer, for all roles.
pub(super) fn parse_key_file(bytes: &[u8]) -> Result<Vec<TokenPublicKey>, String> {
    if bytes.len() as u64 > PUBLIC_KEY_FILE_BYTES_MAX {
        return Err(format!("is larger than {PUBLIC_KEY_FILE_BYTES_MAX} bytes; remove keys that are not in use"));
    }
    let keys = match bytes.trim_ascii_start().first() {
        Some(b'{') => keys_from_jwks(bytes)?,
        _ => keys_from_pem(bytes)?,
    };
    if keys.is_empty() {
        return Err("contains no key for EdDSA, ES256 or RS256; give public keys as PEM, or a JWKS".into());
    }
    Ok(keys)
}

fn keys_from_pem(bytes: &[u8]) -> Result<Vec<TokenPublicKey>, String> {
    let mut keys = Vec::new();
    for block in Pem::iter_from_buffer(bytes).take(VERIFYING_KEYS_TOTAL_MAX + 1) {
        let block = block.map_err(|_| "is neither PEM nor a JWKS; give public keys in one of these formats")?;
        if block.label.contains("PRIVATE KEY") {
            return Err(
                "contains a private key; give the server the public key and keep the private key elsewhere".into()
            );
        }
        if block.label != "PUBLIC KEY" {
            return Err(
                "contains a PEM block that is no public key; give blocks that begin with -----BEGIN PUBLIC KEY-----"
                    .into(),
            );
        }
        keys.push(key_from_spki(&block.contents)?);
    }
    Ok(keys)
}

/// Parses a key in the form that certificates use (RFC 5280, `SubjectPublicKeyInfo`).
fn key_from_spki(der: &[u8]) -> Result<TokenPublicKey, String> {
    let unparsable = || "contains a public key that cannot be parsed; export the key again".to_owned();
    let (_, spki) = SubjectPublicKeyInfo::from_der(der).map_err(|_| unparsable())?;
    let bytes: &[u8] = &spki.subject_public_key.data;
    let kind = &spki.algorithm.algorithm;
    if *kind == OID_SIG_ED25519 {
        return verifying_key_of_valid_size(None, Algorithm::EdDSA, DecodingKey::from_ed_der(bytes));
    }
    if *kind == OID_KEY_TYPE_EC_PUBLIC_KEY {
        let curve = spki.algorithm.parameters.as_ref().and_then(|parameters| parameters.as_oid().ok());
        if curve != Some(OID_EC_P256) {
            return Err("contains an elliptic curve key that is not on P-256; use a P-256 key".into());
        }
        return verifying_key_of_valid_size(None, Algorithm::ES256, DecodingKey::from_ec_der(bytes));
    }
    if *kind == OID_PKCS1_RSAENCRYPTION {
        let Ok(PublicKey::RSA(rsa)) = spki.parsed() else { return Err(unparsable()) };
        let key =
            DecodingKey::from_rsa_raw_components(strip_leading_zeros(rsa.modulus), strip_leading_zeros(rsa.exponent));
        return verifying_key_of_valid_size(None, Algorithm::RS256, key);
    }
    Err("contains a key of an unsupported type; use Ed25519, P-256 or RSA".into())
}

/// A big-endian number without the leading zeros that DER adds to keep it positive.
fn strip_leading_zeros(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    &number[zeros..]
}

/// JSON Web Key Set (RFC 7517, section 5).
#[derive(Deserialize)]
struct Jwks {
    keys: Vec<Jwk>,
}

/// JSON Web Key: the members that are read (RFC 7517, section 4; RFC 7518, section 6).
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    crv: Option<String>,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    x: Option<String>,
    y: Option<String>,
    n: Option<String>,
    e: Option<String>,
    /// Private key; present in private keys only.
    d: Option<IgnoredAny>,
    /// Symmetric key; present in secrets only.
    k: Option<IgnoredAny>,
}

fn keys_from_jwks(bytes: &[u8]) -> Result<Vec<TokenPublicKey>, String> {
    let set: Jwks = serde_json::from_slice(bytes).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        format!("is not a JWKS (line {line}, column {column}); give {{\"keys\": […]}}")
    })?;
    let keys = set.keys.into_iter().enumerate();
    let keys = keys.map(|(index, jwk)| key_from_jwk(jwk).map_err(|problem| format!("keys[{index}] {problem}")));
    keys.filter_map(Result::transpose).collect()
}

/// Parses one key of a JWKS; `None` for a key with another use or algorithm, since issuers publish all their keys.
fn key_from_jwk(jwk: Jwk) -> Result<Option<TokenPublicKey>, String> {
    if jwk.d.is_some() || jwk.k.is_some() || jwk.kty == "oct" {
        return Err("is secret; give the server public keys only".into());
    }
    let algorithm = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
        ("OKP", Some("Ed25519")) => Algorithm::EdDSA,
        ("EC", Some("P-256")) => Algorithm::ES256,
        ("RSA", _) => Algorithm::RS256,
        _ => return Ok(None),
    };
    let alg_names = |algorithm| match algorithm {
        Algorithm::EdDSA => ["EdDSA", "Ed25519"],
        Algorithm::ES256 => ["ES256"; 2],
        _ => ["RS256"; 2],
    };
    let has_other_use = jwk.usage.is_some_and(|usage| usage != "sig");
    if has_other_use || jwk.alg.is_some_and(|alg| !alg_names(algorithm).contains(&alg.as_str())) {
        return Ok(None);
    }
    let key_id = jwk.kid.map(String::into_boxed_str);
    if key_id.as_ref().is_some_and(|kid| kid.is_empty() || kid.len() > KEY_ID_BYTES_MAX) {
        return Err(format!("has a `kid` that is not 1 to {KEY_ID_BYTES_MAX} bytes; give a `kid` of that length"));
    }
    let required =
        |value: Option<String>, name: &str| value.ok_or_else(|| format!("lacks the member `{name}`; add it"));
    let key = match algorithm {
        Algorithm::EdDSA => DecodingKey::from_ed_components(&required(jwk.x, "x")?),
        Algorithm::ES256 => DecodingKey::from_ec_components(&required(jwk.x, "x")?, &required(jwk.y, "y")?),
        _ => DecodingKey::from_rsa_components(&required(jwk.n, "n")?, &required(jwk.e, "e")?),
    };
    let key = key.map_err(|_| "is not in base64url; encode the key as RFC 7518 says".to_owned())?;
    verifying_key_of_valid_size(key_id, algorithm, key).map(Some)
}

/// Builds the key after checking that its size fits its algorithm.
fn verifying_key_of_valid_size(
    key_id: Option<Box<str>>,
    algorithm: Algorithm,
    decoding_key: DecodingKey,
) -> Result<TokenPublicKey, String> {
    let has_valid_size = match (decoding_key.kind(), algorithm) {
        (DecodingKeyKind::SecretOrDer(bytes), Algorithm::EdDSA) => bytes.len() == ED25519_KEY_BYTES,
        (DecodingKeyKind::SecretOrDer(bytes), _) => bytes.len() == P256_POINT_BYTES && bytes[0] == 4,
        (DecodingKeyKind::RsaModulusExponent { n, e }, _) => {
            let n = strip_leading_zeros(n);
            let bits = n.len() * 8 - n.first().map_or(0, |first| first.leading_zeros() as usize);
            if !RSA_KEY_BITS.contains(&bits) {
                let (min, max) = (RSA_KEY_BITS.start(), RSA_KEY_BITS.end());
                return Err(format!("contains an RSA key of {bits} bits; use {min} to {max} bits"));
            }
            !e.is_empty()
        }
    };
    if has_valid_size {
        let roles = CallerRoleSet::from_roles(&Role::ALL);
        Ok(TokenPublicKey { issuer_index: 0, roles, key_id, algorithm, decoding_key })
    } else {
        Err("contains a key of the wrong length; export the key again".into())
    }
}

#[cfg(test)]
mod tests;
