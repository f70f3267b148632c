//! Makes issuers' keys and signs callers' tokens with them: for operators and tests. The server itself signs none of
//! these; what it signs is in `token`, and with a key like these in `credential`.

use std::fmt;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use thiserror::Error;
use x509_parser::pem::Pem;

/// What stands before the 32 bytes of an Ed25519 key in a `SubjectPublicKeyInfo` (RFC 8410, section 4).
const ED25519_SPKI_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// Why a key cannot sign. What the file holds is never shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("is no Ed25519 private key in PEM (PKCS #8): `fireteam keygen` makes one")]
pub struct InvalidIssuingKey;

/// An Ed25519 key that signs callers' tokens.
pub struct IssuingKey {
    pkcs8: Vec<u8>,
    public_key: Vec<u8>,
}

/// What a token says.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CallerTokenClaims {
    /// Who vouches.
    pub iss: String,
    /// For whom.
    pub sub: String,
    /// Where it is good.
    pub aud: String,
    /// From when, seconds since the Unix epoch.
    pub iat: u64,
    /// Until when, seconds since the Unix epoch.
    pub exp: u64,
    /// What the holder runs; a player's game when not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// What the holder may do beyond that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
}

impl IssuingKey {
    /// The key that a seed of dice makes.
    pub fn from_seed(seed: &[u8; 32]) -> Result<Self, InvalidIssuingKey> {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).map_err(|_| InvalidIssuingKey)?;
        let pkcs8 = pair.to_pkcs8v1().map_err(|_| InvalidIssuingKey)?;
        Ok(Self { pkcs8: pkcs8.as_ref().to_vec(), public_key: pair.public_key().as_ref().to_vec() })
    }

    /// The key in a PEM file; the first where there are several.
    pub fn from_pem(pem: &[u8]) -> Result<Self, InvalidIssuingKey> {
        let block = Pem::iter_from_buffer(pem).next().ok_or(InvalidIssuingKey)?.map_err(|_| InvalidIssuingKey)?;
        Self::from_pkcs8(block.contents)
    }

    /// All keys in a PEM file, in order; at least one.
    pub fn all_from_pem(pem: &[u8]) -> Result<Vec<Self>, InvalidIssuingKey> {
        let blocks =
            Pem::iter_from_buffer(pem).map(|block| Self::from_pkcs8(block.map_err(|_| InvalidIssuingKey)?.contents));
        blocks
            .collect::<Result<Vec<Self>, _>>()
            .and_then(|keys| if keys.is_empty() { Err(InvalidIssuingKey) } else { Ok(keys) })
    }

    fn from_pkcs8(pkcs8: Vec<u8>) -> Result<Self, InvalidIssuingKey> {
        let pair = Ed25519KeyPair::from_pkcs8(&pkcs8).map_err(|_| InvalidIssuingKey)?;
        Ok(Self { public_key: pair.public_key().as_ref().to_vec(), pkcs8 })
    }

    /// The key itself, PEM: whoever reads it can be anybody.
    pub fn private_key_pem(&self) -> String {
        encode_pem("PRIVATE KEY", &self.pkcs8)
    }

    /// The public half, PEM.
    pub fn public_key_pem(&self) -> String {
        encode_pem("PUBLIC KEY", &[&ED25519_SPKI_PREFIX[..], &self.public_key].concat())
    }

    /// The public half as a key set.
    pub fn public_key_set(&self) -> String {
        encode_public_key_set([self])
    }

    /// The `kid`: the key's thumbprint (RFC 7638; RFC 8037, appendix A.3).
    pub fn key_id(&self) -> String {
        let x = URL_SAFE_NO_PAD.encode(&self.public_key);
        let members = format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}"#);
        URL_SAFE_NO_PAD.encode(Sha256::digest(members))
    }

    /// A token that says `issued`.
    pub fn sign_jwt(&self, issued: &impl Serialize) -> Result<String, InvalidIssuingKey> {
        self.sign_jwt_of_type("JWT", issued)
    }

    /// The same, of a type of its own, so that it is never taken for another.
    pub fn sign_jwt_of_type(&self, kind: &str, issued: &impl Serialize) -> Result<String, InvalidIssuingKey> {
        let header = Header { kid: Some(self.key_id()), typ: Some(kind.to_owned()), ..Header::new(Algorithm::EdDSA) };
        encode(&header, issued, &EncodingKey::from_ed_der(&self.pkcs8)).map_err(|_| InvalidIssuingKey)
    }
}

/// The public halves of these keys as one key set.
pub fn encode_public_key_set<'a>(keys: impl IntoIterator<Item = &'a IssuingKey>) -> String {
    let one = |key: &IssuingKey| {
        let (name, x) = (key.key_id(), URL_SAFE_NO_PAD.encode(&key.public_key));
        format!(r#"{{"kty":"OKP","crv":"Ed25519","alg":"EdDSA","use":"sig","kid":"{name}","x":"{x}"}}"#)
    };
    let keys: Vec<String> = keys.into_iter().map(one).collect();
    format!("{{\"keys\":[{}]}}\n", keys.join(","))
}

impl fmt::Debug for IssuingKey {
    /// Never shows the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IssuingKey").field("name", &self.key_id()).finish_non_exhaustive()
    }
}

/// One block; what is in it is short enough for one line of 64 characters.
fn encode_pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<&str> = text.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The key pair of RFC 8037, appendix A: seed, public key and thumbprint are printed there.
    #[test]
    fn issuing_key_matches_the_rfc_8037_example() {
        let seed = URL_SAFE_NO_PAD.decode("nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A").unwrap();
        let key = IssuingKey::from_seed(&seed.try_into().unwrap()).unwrap();
        assert!(
            key.public_key_set().contains("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"),
            "{}",
            key.public_key_set()
        );
        assert_eq!(key.key_id(), "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k");
    }

    #[test]
    fn issuing_key_round_trips_through_pem_and_debug_hides_it() {
        let key = IssuingKey::from_seed(&[7; 32]).unwrap();
        let again = IssuingKey::from_pem(key.private_key_pem().as_bytes()).unwrap();
        assert_eq!((again.public_key_pem(), again.key_id()), (key.public_key_pem(), key.key_id()));
        let shown = format!("{key:?}");
        assert!(shown.len() < 80 && shown.starts_with("IssuingKey { name: "), "{shown}");
        assert!(IssuingKey::from_pem(key.public_key_pem().as_bytes()).is_err());
        assert!(IssuingKey::from_pem(b"").is_err());
    }
}
