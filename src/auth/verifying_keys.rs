//! The public keys of whoever signs callers' tokens: read from PEM and JWKS files, all of them or none.
//!
//! A key is good for one algorithm, which follows from what kind of key it is (RFC 8725, section 3.1); what a token's
//! header says of algorithms chooses nothing.

use std::fs::File;
use std::io::{self, Read};
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

/// Bytes of a key file at most.
pub const PUBLIC_KEY_FILE_BYTES_MAX: u64 = 64 * 1024;
/// Keys in all files together. A token that names no key is held against each of its kind, and strangers send as many
/// tokens as they like.
pub const VERIFYING_KEYS_MAX: usize = 16;
/// Bytes of a key's name.
const KEY_ID_BYTES_MAX: usize = 256;
/// An RSA key below this is too weak, one above it slow enough to be a burden; bits.
const RSA_KEY_BITS: std::ops::RangeInclusive<usize> = 2_048..=8_192;
/// Bytes of a point of P-256, not compressed.
const P256_POINT_BYTES: usize = 65;
/// Bytes of an Ed25519 key.
const ED25519_KEY_BYTES: usize = 32;

/// Why there are no keys. Each message is one line and says what would help; what a file holds is never shown.
#[derive(Debug, Error)]
pub enum VerifyingKeysError {
    /// A file could not be read.
    #[error("auth key file {}: {why}", file.display())]
    Io {
        /// Which.
        file: PathBuf,
        /// What the system said.
        #[source]
        why: io::Error,
    },
    /// A file holds something else than public keys.
    #[error("auth key file {}: {what}", file.display())]
    InvalidFile {
        /// Which.
        file: PathBuf,
        /// What is wrong and what would be right.
        what: String,
    },
    /// The files hold more keys than are kept.
    #[error("auth key files hold {0} keys: at most {VERIFYING_KEYS_MAX}")]
    TooManyKeys(usize),
    /// Two keys have one name, and a token that names it could mean either.
    #[error("auth key files hold two keys called `{0}`: give each a `kid` of its own")]
    DuplicateKeyId(Box<str>),
}

/// One public key.
#[derive(Clone, Debug)]
pub(super) struct VerifyingKey {
    /// Its `kid`; none for keys out of PEM files, which answer to any name.
    pub(super) key_id: Option<Box<str>>,
    /// The one algorithm that it is good for.
    pub(super) algorithm: Algorithm,
    /// The key.
    pub(super) decoding_key: DecodingKey,
}

/// The keys of all files. Blocks.
pub(super) fn read_key_files(files: &[PathBuf]) -> Result<Vec<VerifyingKey>, VerifyingKeysError> {
    let mut keys: Vec<VerifyingKey> = Vec::new();
    for file in files {
        keys.extend(read_key_file(file)?);
    }
    if VERIFYING_KEYS_MAX < keys.len() {
        return Err(VerifyingKeysError::TooManyKeys(keys.len()));
    }
    for (at, key) in keys.iter().enumerate() {
        if let Some(name) = key.key_id.as_ref().filter(|_| keys[..at].iter().any(|other| other.key_id == key.key_id)) {
            return Err(VerifyingKeysError::DuplicateKeyId(name.clone()));
        }
    }
    Ok(keys)
}

fn read_key_file(path: &Path) -> Result<Vec<VerifyingKey>, VerifyingKeysError> {
    let io_error = |why| VerifyingKeysError::Io { file: path.into(), why };
    let mut bytes = Vec::new();
    File::open(path)
        .map_err(io_error)?
        .take(PUBLIC_KEY_FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(io_error)?;
    parse_key_file(&bytes).map_err(|what| VerifyingKeysError::InvalidFile { file: path.into(), what })
}

/// The keys in a file's bytes, or what is wrong with it.
pub(super) fn parse_key_file(bytes: &[u8]) -> Result<Vec<VerifyingKey>, String> {
    if PUBLIC_KEY_FILE_BYTES_MAX < bytes.len() as u64 {
        return Err(format!("larger than {PUBLIC_KEY_FILE_BYTES_MAX} bytes"));
    }
    let keys = match bytes.trim_ascii_start().first() {
        Some(b'{') => keys_from_jwks(bytes)?,
        _ => keys_from_pem(bytes)?,
    };
    if keys.is_empty() {
        return Err("holds no key for EdDSA, ES256 or RS256: give public keys as PEM, or a JWKS".into());
    }
    Ok(keys)
}

fn keys_from_pem(bytes: &[u8]) -> Result<Vec<VerifyingKey>, String> {
    let mut keys = Vec::new();
    for block in Pem::iter_from_buffer(bytes).take(VERIFYING_KEYS_MAX + 1) {
        let block = block.map_err(|_| "is neither PEM nor a JWKS")?;
        if block.label.contains("PRIVATE KEY") {
            return Err("holds a private key: give the server the public one, and keep this one elsewhere".into());
        }
        if block.label != "PUBLIC KEY" {
            return Err(
                "holds something else than public keys: their blocks begin with -----BEGIN PUBLIC KEY-----".into()
            );
        }
        keys.push(key_from_spki(&block.contents)?);
    }
    Ok(keys)
}

/// A key as certificates hold them (RFC 5280, `SubjectPublicKeyInfo`).
fn key_from_spki(der: &[u8]) -> Result<VerifyingKey, String> {
    let broken = || "holds a public key that cannot be read".to_owned();
    let (_, spki) = SubjectPublicKeyInfo::from_der(der).map_err(|_| broken())?;
    let bytes: &[u8] = &spki.subject_public_key.data;
    let kind = &spki.algorithm.algorithm;
    if *kind == OID_SIG_ED25519 {
        return verifying_key_of_valid_size(None, Algorithm::EdDSA, DecodingKey::from_ed_der(bytes));
    }
    if *kind == OID_KEY_TYPE_EC_PUBLIC_KEY {
        let curve = spki.algorithm.parameters.as_ref().and_then(|it| it.as_oid().ok());
        if curve != Some(OID_EC_P256) {
            return Err("holds an elliptic curve key that is not of P-256".into());
        }
        return verifying_key_of_valid_size(None, Algorithm::ES256, DecodingKey::from_ec_der(bytes));
    }
    if *kind == OID_PKCS1_RSAENCRYPTION {
        let Ok(PublicKey::RSA(rsa)) = spki.parsed() else { return Err(broken()) };
        let key =
            DecodingKey::from_rsa_raw_components(strip_leading_zeros(rsa.modulus), strip_leading_zeros(rsa.exponent));
        return verifying_key_of_valid_size(None, Algorithm::RS256, key);
    }
    Err("holds a key of a kind that is not known: use Ed25519, P-256 or RSA".into())
}

/// A number without the zeros that keep it from being read as negative.
fn strip_leading_zeros(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    &number[zeros..]
}

/// A key set (RFC 7517, section 5).
#[derive(Deserialize)]
struct Jwks {
    keys: Vec<Jwk>,
}

/// What of a key is looked at.
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
    /// Only private keys have this.
    d: Option<IgnoredAny>,
    /// Only secrets have this.
    k: Option<IgnoredAny>,
}

fn keys_from_jwks(bytes: &[u8]) -> Result<Vec<VerifyingKey>, String> {
    let set: Jwks = serde_json::from_slice(bytes)
        .map_err(|why| format!("is no JWKS, {{\"keys\": […]}}: line {}, column {}", why.line(), why.column()))?;
    let keys = set.keys.into_iter().enumerate();
    let keys = keys.map(|(at, key)| key_from_jwk(key).map_err(|what| format!("keys[{at}] {what}")));
    keys.filter_map(Result::transpose).collect()
}

/// A key of a set; none for one that is of no use here, which is no mistake: issuers publish all that they have.
fn key_from_jwk(jwk: Jwk) -> Result<Option<VerifyingKey>, String> {
    if jwk.d.is_some() || jwk.k.is_some() || jwk.kty == "oct" {
        return Err("is secret: give the server public keys alone".into());
    }
    let algorithm = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
        ("OKP", Some("Ed25519")) => Algorithm::EdDSA,
        ("EC", Some("P-256")) => Algorithm::ES256,
        ("RSA", _) => Algorithm::RS256,
        _ => return Ok(None),
    };
    let name_of = |algorithm| match algorithm {
        Algorithm::EdDSA => ["EdDSA", "Ed25519"],
        Algorithm::ES256 => ["ES256"; 2],
        _ => ["RS256"; 2],
    };
    let other_use = jwk.usage.is_some_and(|usage| usage != "sig");
    if other_use || jwk.alg.is_some_and(|alg| !name_of(algorithm).contains(&alg.as_str())) {
        return Ok(None);
    }
    let name = jwk.kid.map(String::into_boxed_str);
    if name.as_ref().is_some_and(|name| name.is_empty() || KEY_ID_BYTES_MAX < name.len()) {
        return Err(format!("has a `kid` that is not 1 to {KEY_ID_BYTES_MAX} bytes"));
    }
    let part = |part: Option<String>, called: &str| part.ok_or_else(|| format!("lacks `{called}`"));
    let key = match algorithm {
        Algorithm::EdDSA => DecodingKey::from_ed_components(&part(jwk.x, "x")?),
        Algorithm::ES256 => DecodingKey::from_ec_components(&part(jwk.x, "x")?, &part(jwk.y, "y")?),
        _ => DecodingKey::from_rsa_components(&part(jwk.n, "n")?, &part(jwk.e, "e")?),
    };
    let key = key.map_err(|_| "is not in base64url".to_owned())?;
    verifying_key_of_valid_size(name, algorithm, key).map(Some)
}

/// The key, if its size is what its kind has.
fn verifying_key_of_valid_size(
    name: Option<Box<str>>,
    algorithm: Algorithm,
    key: DecodingKey,
) -> Result<VerifyingKey, String> {
    let sound = match (key.kind(), algorithm) {
        (DecodingKeyKind::SecretOrDer(bytes), Algorithm::EdDSA) => bytes.len() == ED25519_KEY_BYTES,
        (DecodingKeyKind::SecretOrDer(bytes), _) => bytes.len() == P256_POINT_BYTES && bytes[0] == 4,
        (DecodingKeyKind::RsaModulusExponent { n, e }, _) => {
            let n = strip_leading_zeros(n);
            let bits = n.len() * 8 - n.first().map_or(0, |first| first.leading_zeros() as usize);
            if !RSA_KEY_BITS.contains(&bits) {
                return Err(format!(
                    "holds an RSA key of {bits} bits: use {} to {}",
                    RSA_KEY_BITS.start(),
                    RSA_KEY_BITS.end()
                ));
            }
            !e.is_empty()
        }
    };
    if sound {
        Ok(VerifyingKey { key_id: name, algorithm, decoding_key: key })
    } else {
        Err("holds a key of the wrong length".into())
    }
}

#[cfg(test)]
mod tests;
