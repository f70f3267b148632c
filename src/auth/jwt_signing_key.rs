//! Ed25519 issuing keys, and signing of callers' tokens with them: for operators and tests.
//!
//! The server itself signs no callers' tokens. Its own tokens are in `token`; match credentials, signed with a key of this
//! kind, are in `match_credential`.

use std::fmt;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, Header};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use thiserror::Error;
use x509_parser::pem::Pem;

/// DER bytes before the 32 bytes of an Ed25519 key in a `SubjectPublicKeyInfo` (RFC 8410, section 4).
const ED25519_SPKI_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// Unusable signing key. The message never contains the file's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("not an Ed25519 private key in PEM (PKCS #8); create one with `fireteam keygen`")]
pub struct InvalidJwtSigningKey;

/// Ed25519 private key that signs callers' tokens or match credentials.
///
/// The key pair is decoded once. `jsonwebtoken::encode` decodes the key for each token, which takes as long as signing.
pub struct JwtSigningKey {
    key_pair: Ed25519KeyPair,
    key_id: String,
}

/// Claims of a caller's token.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CallerTokenClaims {
    /// Issuer.
    pub iss: String,
    /// Subject: the player, game server or operator.
    pub sub: String,
    /// Audience: the deployment that accepts the token.
    pub aud: String,
    /// Time of issue, seconds since the Unix epoch.
    pub iat: u64,
    /// Expiry, seconds since the Unix epoch.
    pub exp: u64,
    /// Role name; `client` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Scopes beyond the role, separated by spaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
}

impl JwtSigningKey {
    /// Derives a key from a random seed.
    pub fn from_seed(seed: &[u8; 32]) -> Result<Self, InvalidJwtSigningKey> {
        Ed25519KeyPair::from_seed_unchecked(seed).map(Self::from_key_pair).map_err(|_| InvalidJwtSigningKey)
    }

    fn from_key_pair(key_pair: Ed25519KeyPair) -> Self {
        let key_id = key_thumbprint(key_pair.public_key().as_ref());
        Self { key_pair, key_id }
    }

    /// Parses the first key of a PEM file.
    pub fn first_from_pem(pem: &[u8]) -> Result<Self, InvalidJwtSigningKey> {
        let block = Pem::iter_from_buffer(pem).next().ok_or(InvalidJwtSigningKey)?.map_err(|_| InvalidJwtSigningKey)?;
        Self::from_pkcs8(&block.contents)
    }

    /// Parses all keys of a PEM file, in order; an error if there is none.
    pub fn all_from_pem(pem: &[u8]) -> Result<Vec<Self>, InvalidJwtSigningKey> {
        let blocks = Pem::iter_from_buffer(pem)
            .map(|block| Self::from_pkcs8(&block.map_err(|_| InvalidJwtSigningKey)?.contents));
        blocks
            .collect::<Result<Vec<Self>, _>>()
            .and_then(|keys| if keys.is_empty() { Err(InvalidJwtSigningKey) } else { Ok(keys) })
    }

    fn from_pkcs8(pkcs8: &[u8]) -> Result<Self, InvalidJwtSigningKey> {
        Ed25519KeyPair::from_pkcs8(pkcs8).map(Self::from_key_pair).map_err(|_| InvalidJwtSigningKey)
    }

    fn public_key(&self) -> &[u8] {
        self.key_pair.public_key().as_ref()
    }

    /// The private key, PEM. Secret: its reader can sign a token for any identity.
    pub fn private_key_pem(&self) -> String {
        let pkcs8 = self.key_pair.to_pkcs8v1().expect("a decoded key can be encoded");
        encode_pem("PRIVATE KEY", pkcs8.as_ref())
    }

    /// The public key, PEM.
    pub fn public_key_pem(&self) -> String {
        encode_pem("PUBLIC KEY", &[&ED25519_SPKI_PREFIX[..], self.public_key()].concat())
    }

    /// The public key as a JWKS.
    pub fn public_key_set(&self) -> String {
        encode_public_key_set([self])
    }

    /// The `kid`: JWK thumbprint of the public key (RFC 7638; RFC 8037, appendix A.3).
    pub fn key_id(&self) -> &str {
        &self.key_id
    }

    /// Signs `claims` as a JWT of type `JWT`.
    pub fn sign_jwt(&self, claims: &impl Serialize) -> Result<String, InvalidJwtSigningKey> {
        self.sign_jwt_of_type("JWT", claims)
    }

    /// Signs `claims` as a JWT with the header `typ: <kind>`, so that a verifier can tell kinds of tokens apart.
    pub fn sign_jwt_of_type(&self, kind: &str, claims: &impl Serialize) -> Result<String, InvalidJwtSigningKey> {
        let header =
            Header { kid: Some(self.key_id.clone()), typ: Some(kind.to_owned()), ..Header::new(Algorithm::EdDSA) };
        // JWS compact serialization (RFC 7515, section 7.1).
        let mut token = format!("{}.{}", encode_part(&header)?, encode_part(claims)?);
        let signature = self.key_pair.sign(token.as_bytes());
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(signature.as_ref(), &mut token);
        Ok(token)
    }
}

/// JSON in base64url, as a JWT has its header and claims.
fn encode_part(part: &impl Serialize) -> Result<String, InvalidJwtSigningKey> {
    serde_json::to_vec(part).map(|json| URL_SAFE_NO_PAD.encode(json)).map_err(|_| InvalidJwtSigningKey)
}

/// JWK thumbprint of a public key (RFC 7638).
fn key_thumbprint(public_key: &[u8]) -> String {
    let x = URL_SAFE_NO_PAD.encode(public_key);
    let members = format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}"#);
    URL_SAFE_NO_PAD.encode(Sha256::digest(members))
}

/// Encodes the public keys of `keys` as a JWKS (RFC 7517).
pub fn encode_public_key_set<'a>(keys: impl IntoIterator<Item = &'a JwtSigningKey>) -> String {
    let jwk = |key: &JwtSigningKey| {
        let (kid, x) = (key.key_id(), URL_SAFE_NO_PAD.encode(key.public_key()));
        format!(r#"{{"kty":"OKP","crv":"Ed25519","alg":"EdDSA","use":"sig","kid":"{kid}","x":"{x}"}}"#)
    };
    let keys: Vec<String> = keys.into_iter().map(jwk).collect();
    format!("{{\"keys\":[{}]}}\n", keys.join(","))
}

impl fmt::Debug for JwtSigningKey {
    /// Prints the key id, never the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JwtSigningKey").field("key_id", &self.key_id()).finish_non_exhaustive()
    }
}

/// Encodes `der` as one PEM block with lines of 64 characters.
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
        let key = JwtSigningKey::from_seed(&seed.try_into().unwrap()).unwrap();
        assert!(
            key.public_key_set().contains("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"),
            "{}",
            key.public_key_set()
        );
        assert_eq!(key.key_id(), "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k");
    }

    #[test]
    fn issuing_key_round_trips_through_pem_and_debug_hides_it() {
        let key = JwtSigningKey::from_seed(&[7; 32]).unwrap();
        let reloaded = JwtSigningKey::first_from_pem(key.private_key_pem().as_bytes()).unwrap();
        assert_eq!((reloaded.public_key_pem(), reloaded.key_id()), (key.public_key_pem(), key.key_id()));
        let debug = format!("{key:?}");
        assert!(debug.len() < 80 && debug.starts_with("JwtSigningKey { key_id: "), "{debug}");
        assert!(JwtSigningKey::first_from_pem(key.public_key_pem().as_bytes()).is_err());
        assert!(JwtSigningKey::first_from_pem(b"").is_err());
    }
}
