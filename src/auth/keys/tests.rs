//! Files that hold keys, and every way in which one holds none.

use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384};

use super::*;
use crate::auth::issuing::IssuingKey;

fn issuer(seed: u8) -> IssuingKey {
    IssuingKey::of_seed(&[seed; 32]).unwrap()
}

fn set(keys: &[&str]) -> String {
    format!("{{\"keys\":[{}]}}", keys.join(","))
}

const ED: &str = r#"{"kty":"OKP","crv":"Ed25519","kid":"a","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#;

#[test]
fn a_set_gives_the_keys_that_are_of_use() {
    let others = [
        ED,
        r#"{"kty":"RSA","use":"enc","n":"AQAB","e":"AQAB"}"#,
        r#"{"kty":"RSA","alg":"PS256","n":"AQAB","e":"AQAB"}"#,
        r#"{"kty":"EC","crv":"P-384","x":"AQAB","y":"AQAB"}"#,
        r#"{"kty":"OKP","crv":"X25519","x":"AQAB","of_later_times":{"a":1}}"#,
    ];
    let keys = parse(set(&others).as_bytes()).unwrap();
    assert_eq!(keys.len(), 1);
    assert_eq!((keys[0].name.as_deref(), keys[0].algorithm), (Some("a"), Algorithm::EdDSA));
}

/// SEC-4: nothing that is no public key, and nothing that should not be here at all, is taken for one.
#[test]
fn what_is_no_public_key_is_said_so() {
    let check = |bytes: &[u8], wanted: &str| {
        let what = parse(bytes).unwrap_err();
        assert!(what.contains(wanted), "{what:?} should say {wanted:?}");
    };
    let curve = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap();
    check(curve.public_key_pem().as_bytes(), "not of P-256");
    check(issuer(1).private_pem().as_bytes(), "holds a private key");
    check(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "something else than public keys");
    check(b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "cannot be read");
    check(b"", "holds no key");
    check(b"hello", "holds no key");
    check(b"{\"keys\":[", "is no JWKS");
    check(b"{\"keys\":[]}", "holds no key");
    check(set(&[r#"{"kty":"oct","k":"AQAB"}"#]).as_bytes(), "keys[0] is secret");
    check(set(&[&ED.replace("\"kid\"", "\"d\":\"AQAB\",\"kid\"")]).as_bytes(), "keys[0] is secret");
    check(set(&[&ED.replace("11qY", "")]).as_bytes(), "wrong length");
    check(set(&[&ED.replace("11qY", "????")]).as_bytes(), "not in base64url");
    check(set(&[r#"{"kty":"OKP","crv":"Ed25519"}"#]).as_bytes(), "lacks `x`");
    check(set(&[r#"{"kty":"RSA","n":"AQAB","e":"AQAB"}"#]).as_bytes(), "RSA key of 17 bits");
    check(set(&[&ED.replace("\"a\"", "\"\"")]).as_bytes(), "`kid`");
    check(&vec![b' '; KEY_FILE_BYTES_MAX as usize + 1], "larger than");
}

#[test]
fn files_are_read_all_or_none() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let file = folder.path().join(name);
        std::fs::write(&file, text).unwrap();
        file
    };
    let one = write("one.json", &issuer(1).jwks());
    let two = write("two.pem", &(issuer(2).public_pem() + &issuer(3).public_pem()));
    assert_eq!(read(&[one.clone(), two.clone()]).unwrap().len(), 3);
    let absent = folder.path().join("absent");
    assert!(matches!(read(&[one.clone(), absent]), Err(KeysError::Io { .. })));
    let broken = write("broken", "?");
    let error = read(&[one.clone(), broken]).unwrap_err().to_string();
    assert!(error.contains("broken: holds no key"), "{error}");
    assert!(matches!(read(&[one.clone(), one]), Err(KeysError::SameName(_))), "a name means one key");
    let many: String = (0..=KEYS_MAX as u8).map(|seed| issuer(seed).public_pem()).collect();
    let many = write("many.pem", &many);
    assert!(matches!(read(&[many]), Err(KeysError::TooMany(count)) if count == KEYS_MAX + 1));
}

#[test]
fn a_point_of_the_curve_is_read_from_a_set_as_from_pem() {
    use base64::Engine as _;
    let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let point = pair.public_key_raw();
    let text = |bytes: &[u8]| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes);
    let (x, y) = (text(&point[1..33]), text(&point[33..]));
    let jwk = format!(r#"{{"kty":"EC","crv":"P-256","alg":"ES256","x":"{x}","y":"{y}"}}"#);
    let (of_set, of_pem) = (parse(set(&[&jwk]).as_bytes()).unwrap(), parse(pair.public_key_pem().as_bytes()).unwrap());
    assert_eq!(of_set[0].key.as_bytes(), of_pem[0].key.as_bytes());
}
