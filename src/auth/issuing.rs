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
const SPKI_HEAD: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// Why a key cannot sign. What the file holds is never shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("is no Ed25519 private key in PEM (PKCS #8): `fireteam keygen` makes one")]
pub struct NoIssuingKey;

/// An Ed25519 key that signs callers' tokens.
pub struct IssuingKey {
    pkcs8: Vec<u8>,
    public: Vec<u8>,
}

/// What a token says.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Issued {
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
    pub fn of_seed(seed: &[u8; 32]) -> Result<Self, NoIssuingKey> {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).map_err(|_| NoIssuingKey)?;
        let pkcs8 = pair.to_pkcs8v1().map_err(|_| NoIssuingKey)?;
        Ok(Self { pkcs8: pkcs8.as_ref().to_vec(), public: pair.public_key().as_ref().to_vec() })
    }

    /// The key in a PEM file; the first where there are several.
    pub fn of_pem(pem: &[u8]) -> Result<Self, NoIssuingKey> {
        let block = Pem::iter_from_buffer(pem).next().ok_or(NoIssuingKey)?.map_err(|_| NoIssuingKey)?;
        Self::of_pkcs8(block.contents)
    }

    /// All keys in a PEM file, in order; at least one.
    pub fn all_of_pem(pem: &[u8]) -> Result<Vec<Self>, NoIssuingKey> {
        let blocks = Pem::iter_from_buffer(pem).map(|block| Self::of_pkcs8(block.map_err(|_| NoIssuingKey)?.contents));
        blocks
            .collect::<Result<Vec<Self>, _>>()
            .and_then(|keys| if keys.is_empty() { Err(NoIssuingKey) } else { Ok(keys) })
    }

    fn of_pkcs8(pkcs8: Vec<u8>) -> Result<Self, NoIssuingKey> {
        let pair = Ed25519KeyPair::from_pkcs8(&pkcs8).map_err(|_| NoIssuingKey)?;
        Ok(Self { public: pair.public_key().as_ref().to_vec(), pkcs8 })
    }

    /// The key itself, PEM: whoever reads it can be anybody.
    pub fn private_pem(&self) -> String {
        pem("PRIVATE KEY", &self.pkcs8)
    }

    /// The public half, PEM.
    pub fn public_pem(&self) -> String {
        pem("PUBLIC KEY", &[&SPKI_HEAD[..], &self.public].concat())
    }

    /// The public half as a key set.
    pub fn jwks(&self) -> String {
        key_set([self])
    }

    /// The `kid`: the key's thumbprint (RFC 7638; RFC 8037, appendix A.3).
    pub fn name(&self) -> String {
        let x = URL_SAFE_NO_PAD.encode(&self.public);
        let members = format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}"#);
        URL_SAFE_NO_PAD.encode(Sha256::digest(members))
    }

    /// A token that says `issued`.
    pub fn sign(&self, issued: &impl Serialize) -> Result<String, NoIssuingKey> {
        self.sign_as("JWT", issued)
    }

    /// The same, of a type of its own, so that it is never taken for another.
    pub fn sign_as(&self, kind: &str, issued: &impl Serialize) -> Result<String, NoIssuingKey> {
        let header = Header { kid: Some(self.name()), typ: Some(kind.to_owned()), ..Header::new(Algorithm::EdDSA) };
        encode(&header, issued, &EncodingKey::from_ed_der(&self.pkcs8)).map_err(|_| NoIssuingKey)
    }
}

/// The public halves of these keys as one key set.
pub fn key_set<'a>(keys: impl IntoIterator<Item = &'a IssuingKey>) -> String {
    let one = |key: &IssuingKey| {
        let (name, x) = (key.name(), URL_SAFE_NO_PAD.encode(&key.public));
        format!(r#"{{"kty":"OKP","crv":"Ed25519","alg":"EdDSA","use":"sig","kid":"{name}","x":"{x}"}}"#)
    };
    let keys: Vec<String> = keys.into_iter().map(one).collect();
    format!("{{\"keys\":[{}]}}\n", keys.join(","))
}

impl fmt::Debug for IssuingKey {
    /// Never shows the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IssuingKey").field("name", &self.name()).finish_non_exhaustive()
    }
}

/// One block; what is in it is short enough for one line of 64 characters.
fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<&str> = text.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The key pair of RFC 8037, appendix A: seed, public key and thumbprint are printed there.
    #[test]
    fn the_keys_of_the_rfc_come_out() {
        let seed = URL_SAFE_NO_PAD.decode("nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A").unwrap();
        let key = IssuingKey::of_seed(&seed.try_into().unwrap()).unwrap();
        assert!(key.jwks().contains("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"), "{}", key.jwks());
        assert_eq!(key.name(), "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k");
    }

    #[test]
    fn a_key_comes_back_from_its_file_and_is_not_shown() {
        let key = IssuingKey::of_seed(&[7; 32]).unwrap();
        let again = IssuingKey::of_pem(key.private_pem().as_bytes()).unwrap();
        assert_eq!((again.public_pem(), again.name()), (key.public_pem(), key.name()));
        let shown = format!("{key:?}");
        assert!(shown.len() < 80 && shown.starts_with("IssuingKey { name: "), "{shown}");
        assert!(IssuingKey::of_pem(key.public_pem().as_bytes()).is_err());
        assert!(IssuingKey::of_pem(b"").is_err());
    }
}
