//! Every way in which a token must not be taken, and the few in which it must.

use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};

use super::*;
use crate::auth::issuing::IssuingKey;
use crate::auth::keys;

const NOW: UnixMs = UnixMs(1_700_000_000_000);
const NOW_S: u64 = NOW.0 / 1000;

fn auth() -> JwtSettings {
    JwtSettings { keys: Vec::new(), issuer: "game".into(), audience: "fireteam".into() }
}

fn issuer() -> IssuingKey {
    IssuingKey::of_seed(&[7; 32]).unwrap()
}

fn known() -> Vec<VerifyingKey> {
    keys::parse(issuer().jwks().as_bytes()).unwrap()
}

fn good() -> Value {
    json!({ "iss": "game", "sub": "ana", "aud": "fireteam", "iat": NOW_S, "exp": NOW_S + 3_600 })
}

/// What becomes of a good token with `change`.
fn with(change: Value) -> Result<Identity, Refused> {
    let mut claims = good();
    for (name, value) in change.as_object().unwrap() {
        claims[name] = value.clone();
    }
    verify(&issuer().sign(&claims).unwrap(), &known(), &auth(), NOW)
}

#[test]
fn a_token_says_who_and_what() {
    let plain = with(json!({})).unwrap();
    assert_eq!((&*plain.issuer, &*plain.subject, plain.role, plain.scopes.len()), ("game", "ana", Role::Client, 0));
    assert_eq!(plain.until, Some(NOW.plus_ms(3_600_000)));
    let more = json!({ "role": "operator", "scope": "a  b", "aud": ["x", "fireteam"], "exp": NOW_S as f64 + 1.5 });
    let more = with(more).unwrap();
    assert_eq!((more.role, more.scopes.len()), (Role::Operator, 2));
    assert_eq!(more.until, Some(NOW.plus_ms(1_500)));
    assert_eq!(with(json!({ "role": "server", "iat": null })).unwrap().role, Role::Server);
}

/// SEC-4: each claim that is wrong or missing, and why it was refused.
#[test]
fn every_claim_is_looked_at() {
    let check = |change: Value, wanted: Refused| assert_eq!(with(change.clone()).unwrap_err(), wanted, "{change}");
    for wrong in [json!(null), json!("other"), json!("")] {
        check(json!({ "iss": wrong }), Refused::Issuer);
        check(json!({ "aud": wrong }), Refused::Audience);
    }
    check(json!({ "aud": ["other"] }), Refused::Audience);
    check(json!({ "aud": vec!["fireteam"; 17] }), Refused::Audience);
    for wrong in [json!(null), json!(""), json!("a\nb"), json!("a".repeat(257))] {
        check(json!({ "sub": wrong }), Refused::Subject);
    }
    check(json!({ "role": "root" }), Refused::Role);
    check(json!({ "scope": "a ".repeat(17) }), Refused::Role);
    for wrong in [json!(null), json!(-1), json!(1e300)] {
        check(json!({ "exp": wrong }), Refused::Malformed);
    }
    check(json!({ "exp": "soon" }), Refused::Malformed);
    check(json!({ "sub": 5 }), Refused::Malformed);
    check(json!({ "nbf": NOW_S + 31 }), Refused::NotYet);
    check(json!({ "iat": NOW_S + 31 }), Refused::NotYet);
    check(json!({ "exp": NOW_S + 24 * 3_600 + 1 }), Refused::LivesTooLong);
    check(json!({ "exp": NOW_S + 24 * 3_600 + 1, "iat": null }), Refused::LivesTooLong);
    check(json!({ "iat": NOW_S - 90_000, "exp": NOW_S }), Refused::LivesTooLong);
    check(json!({ "iat": NOW_S - 60, "exp": NOW_S - 30 }), Refused::Expired);
    check(json!({ "iat": NOW_S - 60, "exp": NOW_S - 30, "aud": "other" }), Refused::Audience);
}

/// Clocks differ a little: half a minute is borne with, at both ends.
#[test]
fn clocks_may_differ_by_half_a_minute() {
    assert!(with(json!({ "nbf": NOW_S + 30, "iat": NOW_S + 30 })).is_ok());
    assert!(with(json!({ "iat": NOW_S - 60, "exp": NOW_S - 29 })).is_ok());
}

/// SEC-4: the algorithm is the key's. Nothing in a header chooses another, least of all the public key as a secret.
#[test]
fn a_header_chooses_nothing() {
    let check = |token: &str, wanted: Refused| {
        assert_eq!(verify(token, &known(), &auth(), NOW).unwrap_err(), wanted, "{token}");
    };
    let body = |header: &str| {
        use base64::Engine as _;
        let encode = |text: &str| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text);
        format!("{}.{}", encode(header), encode(&good().to_string()))
    };
    for none in ["none", "None", "NONE", ""] {
        check(&format!("{}.", body(&format!(r#"{{"alg":"{none}"}}"#))), Refused::Malformed);
    }
    for secret in [issuer().public_pem(), issuer().jwks()] {
        for kid in [None, Some(issuer().name())] {
            let header = Header { kid, ..Header::new(Algorithm::HS256) };
            let forged = encode(&header, &good(), &EncodingKey::from_secret(secret.as_bytes())).unwrap();
            check(&forged, Refused::Algorithm);
        }
    }
    let signature = issuer().sign(&good()).unwrap().rsplit_once('.').unwrap().1.to_owned();
    check(&format!("{}.{signature}", body(r#"{"alg":"EdDSA","crit":["exp"]}"#)), Refused::Malformed);
    check(&format!("{}.{signature}", body(r#"{"alg":"EdDSA"}"#)), Refused::Signature);
    let named = Header { kid: Some("other".into()), ..Header::new(Algorithm::EdDSA) };
    let key = EncodingKey::from_ed_der(
        x509_parser::pem::Pem::iter_from_buffer(issuer().private_pem().as_bytes())
            .next()
            .unwrap()
            .unwrap()
            .contents
            .as_slice(),
    );
    check(&encode(&named, &good(), &key).unwrap(), Refused::UnknownKey);
    let stranger = IssuingKey::of_seed(&[8; 32]).unwrap();
    check(&stranger.sign(&good()).unwrap(), Refused::UnknownKey);
    check(&encode(&Header::new(Algorithm::EdDSA), &good(), &key).unwrap().replace('.', ".."), Refused::Malformed);
}

/// SEC-4: no flipped bit and no cut of a token is taken.
#[test]
fn a_token_cannot_be_changed() {
    let (token, keys) = (issuer().sign(&good()).unwrap(), known());
    assert!(verify(&token, &keys, &auth(), NOW).is_ok());
    for at in 0..token.len() {
        let mut forged = token.clone().into_bytes();
        forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
        let forged = String::from_utf8(forged).unwrap();
        // The last letter of a part has bits that mean nothing; whatever decodes to the same bytes is the same token.
        if let Ok(identity) = verify(&forged, &keys, &auth(), NOW) {
            assert!(token[at + 1..].starts_with('.') || at + 1 == token.len(), "{at}");
            assert_eq!(&*identity.subject, "ana");
        }
        assert!(verify(&token[..at], &keys, &auth(), NOW).is_err(), "cut to {at}");
    }
    let long = format!("{token}{}", "A".repeat(JWT_BYTES_MAX));
    assert_eq!(verify(&long, &keys, &auth(), NOW).unwrap_err(), Refused::TooLarge);
}

/// The three algorithms, by keys as PEM files have them.
#[test]
fn keys_of_three_kinds_verify() {
    use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256, RsaKeySize};
    let curve = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let rsa = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap();
    let pem = [issuer().public_pem(), curve.public_key_pem(), rsa.public_key_pem()].concat();
    let keys = keys::parse(pem.as_bytes()).unwrap();
    assert_eq!(keys.len(), 3);
    let by_curve = EncodingKey::from_ec_pem(curve.serialize_pem().as_bytes()).unwrap();
    let by_rsa = EncodingKey::from_rsa_pem(rsa.serialize_pem().as_bytes()).unwrap();
    for (algorithm, key) in [(Algorithm::ES256, &by_curve), (Algorithm::RS256, &by_rsa)] {
        let token = encode(&Header::new(algorithm), &good(), key).unwrap();
        assert!(verify(&token, &keys, &auth(), NOW).is_ok(), "{algorithm:?}");
        assert_eq!(verify(&token, &known(), &auth(), NOW).unwrap_err(), Refused::Algorithm);
    }
    assert!(verify(&issuer().sign(&good()).unwrap(), &keys, &auth(), NOW).is_ok());
    // The same key, another algorithm of its family.
    let other = encode(&Header::new(Algorithm::RS512), &good(), &by_rsa).unwrap();
    assert_eq!(verify(&other, &keys, &auth(), NOW).unwrap_err(), Refused::Algorithm);
}
