//! Key files that load, and key files that are rejected, by reason.

use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384};

use super::*;
use crate::auth::jwt_signing_key::JwtSigningKey;

fn jwt_signing_key(seed: u8) -> JwtSigningKey {
    JwtSigningKey::from_seed(&[seed; 32]).unwrap()
}

fn jwks_text(keys: &[&str]) -> String {
    format!("{{\"keys\":[{}]}}", keys.join(","))
}

const ED25519_JWK: &str =
    r#"{"kty":"OKP","crv":"Ed25519","kid":"a","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#;

#[test]
fn jwks_yields_the_signature_keys_and_skips_the_others() {
    let others = [
        ED25519_JWK,
        r#"{"kty":"RSA","use":"enc","n":"AQAB","e":"AQAB"}"#,
        r#"{"kty":"RSA","alg":"PS256","n":"AQAB","e":"AQAB"}"#,
        r#"{"kty":"EC","crv":"P-384","x":"AQAB","y":"AQAB"}"#,
        r#"{"kty":"OKP","crv":"X25519","x":"AQAB","of_later_times":{"a":1}}"#,
    ];
    let keys = parse_key_file(jwks_text(&others).as_bytes()).unwrap();
    assert_eq!(keys.len(), 1);
    assert_eq!((keys[0].key_id.as_deref(), keys[0].algorithm), (Some("a"), Algorithm::EdDSA));
}

/// SEC-4: a private key, a secret or a damaged key is rejected, and the error says why.
#[test]
fn key_file_without_public_keys_is_rejected_with_a_reason() {
    let check = |bytes: &[u8], expected: &str| {
        let problem = parse_key_file(bytes).unwrap_err();
        assert!(problem.contains(expected), "{problem:?} does not contain {expected:?}");
    };
    let curve = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap();
    check(curve.public_key_pem().as_bytes(), "not on P-256");
    check(jwt_signing_key(1).private_key_pem().as_bytes(), "contains a private key");
    check(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "a PEM block that is no public key");
    check(b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "cannot be parsed");
    check(b"", "contains no key");
    check(b"hello", "contains no key");
    check(b"{\"keys\":[", "is not a JWKS");
    check(b"{\"keys\":[]}", "contains no key");
    check(jwks_text(&[r#"{"kty":"oct","k":"AQAB"}"#]).as_bytes(), "keys[0] is secret");
    check(jwks_text(&[&ED25519_JWK.replace("\"kid\"", "\"d\":\"AQAB\",\"kid\"")]).as_bytes(), "keys[0] is secret");
    check(jwks_text(&[&ED25519_JWK.replace("11qY", "")]).as_bytes(), "wrong length");
    check(jwks_text(&[&ED25519_JWK.replace("11qY", "????")]).as_bytes(), "not in base64url");
    check(jwks_text(&[r#"{"kty":"OKP","crv":"Ed25519"}"#]).as_bytes(), "lacks the member `x`");
    check(jwks_text(&[r#"{"kty":"RSA","n":"AQAB","e":"AQAB"}"#]).as_bytes(), "RSA key of 17 bits");
    check(jwks_text(&[&ED25519_JWK.replace("\"a\"", "\"\"")]).as_bytes(), "`kid`");
    check(&vec![b' '; PUBLIC_KEY_FILE_BYTES_MAX as usize + 1], "larger than");
}

/// Issuer with these files, for all roles.
fn issuer_with(files: &[PathBuf]) -> TokenIssuer {
    crate::config::JwtSettings::of_one_issuer("game", "fireteam", files).issuers.remove(0)
}

fn read_key_files(files: &[PathBuf]) -> Result<Vec<TokenPublicKey>, VerifyingKeysError> {
    read_keys_of_all_issuers(&[issuer_with(files)])
}

/// Each key has the issuer and the roles of its file. Two issuers may use the same `kid`.
#[test]
fn keys_have_the_issuer_and_the_roles_of_their_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys.json");
    std::fs::write(&file, jwt_signing_key(1).public_key_set()).unwrap();
    let limited = VerifyingKeyFile { file: file.clone(), roles: vec!["client", "operator"] };
    let second = TokenIssuer { keys: vec![limited], ..issuer_with(&[]) };
    let keys = read_keys_of_all_issuers(&[issuer_with(&[file]), second]).unwrap();
    let roles = |index: usize| Role::ALL.map(|role| keys[index].roles.contains(role));
    assert_eq!((keys[0].issuer_index, roles(0)), (0, [true; 4]));
    assert_eq!((keys[1].issuer_index, roles(1)), (1, [true, false, true, false]));
}

#[test]
fn key_files_load_together_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let file = folder.path().join(name);
        std::fs::write(&file, text).unwrap();
        file
    };
    let one = write("one.json", &jwt_signing_key(1).public_key_set());
    let two = write("two.pem", &(jwt_signing_key(2).public_key_pem() + &jwt_signing_key(3).public_key_pem()));
    assert_eq!(read_key_files(&[one.clone(), two.clone()]).unwrap().len(), 3);
    let absent = folder.path().join("absent");
    assert!(matches!(read_key_files(&[one.clone(), absent]), Err(VerifyingKeysError::Io { .. })));
    let broken = write("broken", "?");
    let error = read_key_files(&[one.clone(), broken]).unwrap_err().to_string();
    assert!(error.contains("broken: contains no key"), "{error}");
    assert!(
        matches!(read_key_files(&[one.clone(), one]), Err(VerifyingKeysError::DuplicateKeyId(_))),
        "a `kid` names one key"
    );
    let many: String =
        (0..=VERIFYING_KEYS_TOTAL_MAX as u8).map(|seed| jwt_signing_key(seed).public_key_pem()).collect();
    let many = write("many.pem", &many);
    assert!(
        matches!(read_key_files(&[many]), Err(VerifyingKeysError::TooManyKeys(count)) if count == VERIFYING_KEYS_TOTAL_MAX + 1)
    );
}

#[test]
fn p256_key_is_the_same_from_jwks_and_from_pem() {
    use base64::Engine as _;
    let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let point = pair.public_key_raw();
    let text = |bytes: &[u8]| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes);
    let (x, y) = (text(&point[1..33]), text(&point[33..]));
    let jwk = format!(r#"{{"kty":"EC","crv":"P-256","alg":"ES256","x":"{x}","y":"{y}"}}"#);
    let (of_set, of_pem) = (
        parse_key_file(jwks_text(&[&jwk]).as_bytes()).unwrap(),
        parse_key_file(pair.public_key_pem().as_bytes()).unwrap(),
    );
    assert_eq!(of_set[0].decoding_key.as_bytes(), of_pem[0].decoding_key.as_bytes());
}
