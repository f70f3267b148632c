//! Tokens that must be rejected, by reason, and the tokens that must be accepted.

use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};

use super::*;
use crate::auth::jwt_signing_key::JwtSigningKey;
use crate::auth::verifying_keys;
use crate::config::JwtSettings;

const NOW: UnixMs = UnixMs(1_700_000_000_000);
const NOW_S: u64 = NOW.0 / 1000;

fn issuers() -> Vec<TokenIssuer> {
    JwtSettings::of_one_issuer("game", "fireteam", &[]).issuers
}

fn jwt_signing_key() -> JwtSigningKey {
    JwtSigningKey::from_seed(&[7; 32]).unwrap()
}

fn verifying_keys() -> Vec<TokenPublicKey> {
    verifying_keys::parse_key_file(jwt_signing_key().public_key_set().as_bytes()).unwrap()
}

fn valid_claims() -> Value {
    json!({ "iss": "game", "sub": "ana", "aud": "fireteam", "iat": NOW_S, "exp": NOW_S + 3_600 })
}

/// Verifies a token whose valid claims are overwritten by `change`.
fn verify_with_change(change: Value) -> Result<Identity, CredentialError> {
    let mut claims = valid_claims();
    for (name, value) in change.as_object().unwrap() {
        claims[name] = value.clone();
    }
    verify_jwt(&jwt_signing_key().sign_jwt(&claims).unwrap(), &verifying_keys(), &issuers(), NOW)
}

#[test]
fn jwt_gives_issuer_subject_role_and_scopes() {
    let client = verify_with_change(json!({})).unwrap();
    assert_eq!((&*client.issuer, &*client.subject, client.role, client.scopes.len()), ("game", "ana", Role::Client, 0));
    assert_eq!(client.expires_at, Some(NOW.plus_ms(3_600_000)));
    let claims = json!({ "role": "operator", "scope": "a  b", "aud": ["x", "fireteam"], "exp": NOW_S as f64 + 1.5 });
    let operator = verify_with_change(claims).unwrap();
    assert_eq!((operator.role, operator.scopes.len()), (Role::Operator, 2));
    assert_eq!(operator.expires_at, Some(NOW.plus_ms(1_500)));
    assert_eq!(verify_with_change(json!({ "role": "game_server", "iat": null })).unwrap().role, Role::GameServer);
}

/// SEC-4: each claim that is wrong or missing, with the error it causes.
#[test]
fn jwt_with_a_wrong_or_missing_claim_is_rejected() {
    let check = |change: Value, expected: CredentialError| {
        assert_eq!(verify_with_change(change.clone()).unwrap_err(), expected, "{change}");
    };
    for wrong in [json!(null), json!("other"), json!("")] {
        check(json!({ "iss": wrong }), CredentialError::WrongIssuer);
        check(json!({ "aud": wrong }), CredentialError::WrongAudience);
    }
    check(json!({ "aud": ["other"] }), CredentialError::WrongAudience);
    check(json!({ "aud": vec!["fireteam"; 17] }), CredentialError::WrongAudience);
    for wrong in [json!(null), json!(""), json!("a\nb"), json!("a".repeat(257))] {
        check(json!({ "sub": wrong }), CredentialError::InvalidSubject);
    }
    let misleading = "\u{0}\u{7f}\u{85}\u{61c}\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{202e}\u{2066}\u{2069}";
    for character in misleading.chars() {
        check(json!({ "sub": format!("ana{character}txt") }), CredentialError::InvalidSubject);
    }
    for name in ["Анна", "علی\u{200c}رضا", "अ\u{200d}", "👩\u{200d}🚀"] {
        assert!(verify_with_change(json!({ "sub": name })).is_ok(), "{name}");
    }
    check(json!({ "role": "root" }), CredentialError::InvalidRole);
    check(json!({ "scope": "a ".repeat(17) }), CredentialError::InvalidRole);
    for wrong in [json!(null), json!(-1), json!(1e300)] {
        check(json!({ "exp": wrong }), CredentialError::Malformed);
    }
    check(json!({ "exp": "soon" }), CredentialError::Malformed);
    check(json!({ "sub": 5 }), CredentialError::Malformed);
    check(json!({ "nbf": NOW_S + 31 }), CredentialError::NotYetValid);
    check(json!({ "iat": NOW_S + 31 }), CredentialError::NotYetValid);
    check(json!({ "exp": NOW_S + 24 * 3_600 + 1 }), CredentialError::LifetimeTooLong);
    check(json!({ "exp": NOW_S + 24 * 3_600 + 1, "iat": null }), CredentialError::LifetimeTooLong);
    check(json!({ "iat": NOW_S - 90_000, "exp": NOW_S }), CredentialError::LifetimeTooLong);
    check(json!({ "iat": NOW_S - 60, "exp": NOW_S - 30 }), CredentialError::Expired);
    check(json!({ "iat": NOW_S - 60, "exp": NOW_S - 30, "aud": "other" }), CredentialError::WrongAudience);
}

/// A clock skew of 30 seconds is tolerated before the start and after the end.
#[test]
fn jwt_times_allow_30_s_of_clock_leeway() {
    assert!(verify_with_change(json!({ "nbf": NOW_S + 30, "iat": NOW_S + 30 })).is_ok());
    assert!(verify_with_change(json!({ "iat": NOW_S - 60, "exp": NOW_S - 29 })).is_ok());
}

/// SEC-4: the key decides the algorithm. A header cannot choose another, nor use the public key as an HMAC secret.
#[test]
fn jwt_header_cannot_choose_algorithm_or_key() {
    let check = |token: &str, expected: CredentialError| {
        assert_eq!(verify_jwt(token, &verifying_keys(), &issuers(), NOW).unwrap_err(), expected, "{token}");
    };
    let body = |header: &str| {
        use base64::Engine as _;
        let encode = |text: &str| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text);
        format!("{}.{}", encode(header), encode(&valid_claims().to_string()))
    };
    for none in ["none", "None", "NONE", ""] {
        check(&format!("{}.", body(&format!(r#"{{"alg":"{none}"}}"#))), CredentialError::Malformed);
    }
    for secret in [jwt_signing_key().public_key_pem(), jwt_signing_key().public_key_set()] {
        for kid in [None, Some(jwt_signing_key().key_id().to_owned())] {
            let header = Header { kid, ..Header::new(Algorithm::HS256) };
            let forged = encode(&header, &valid_claims(), &EncodingKey::from_secret(secret.as_bytes())).unwrap();
            check(&forged, CredentialError::AlgorithmNotAllowed);
        }
    }
    let signature = jwt_signing_key().sign_jwt(&valid_claims()).unwrap().rsplit_once('.').unwrap().1.to_owned();
    check(&format!("{}.{signature}", body(r#"{"alg":"EdDSA","crit":["exp"]}"#)), CredentialError::Malformed);
    check(&format!("{}.{signature}", body(r#"{"alg":"EdDSA"}"#)), CredentialError::BadSignature);
    let named = Header { kid: Some("other".into()), ..Header::new(Algorithm::EdDSA) };
    let key = EncodingKey::from_ed_der(
        x509_parser::pem::Pem::iter_from_buffer(jwt_signing_key().private_key_pem().as_bytes())
            .next()
            .unwrap()
            .unwrap()
            .contents
            .as_slice(),
    );
    check(&encode(&named, &valid_claims(), &key).unwrap(), CredentialError::UnknownKey);
    let other_issuer = JwtSigningKey::from_seed(&[8; 32]).unwrap();
    check(&other_issuer.sign_jwt(&valid_claims()).unwrap(), CredentialError::UnknownKey);
    check(
        &encode(&Header::new(Algorithm::EdDSA), &valid_claims(), &key).unwrap().replace('.', ".."),
        CredentialError::Malformed,
    );
}

/// SEC-4: a token whose type is not that of a caller's token is rejected, also if a trusted key has signed it: a match
/// credential, an identity token, a security event.
#[test]
fn jwt_of_another_type_is_rejected() {
    let of_type = |typ: &str| {
        let token = jwt_signing_key().sign_jwt_of_type(typ, &valid_claims()).unwrap();
        verify_jwt(&token, &verifying_keys(), &issuers(), NOW).map(|_| ())
    };
    for accepted in ["JWT", "jwt", "at+jwt", "AT+JWT", "application/at+jwt", "Application/JWT"] {
        assert_eq!(of_type(accepted), Ok(()), "{accepted}");
    }
    for refused in ["match+jwt", "", "secevent+jwt", "dpop+jwt", "logout+jwt", "JWE", "application/", "at+jwt ", "é"] {
        assert_eq!(of_type(refused), Err(CredentialError::WrongType), "{refused}");
    }
    let without = Header { typ: None, ..Header::new(Algorithm::EdDSA) };
    let pem = jwt_signing_key().private_key_pem();
    let key = EncodingKey::from_ed_pem(pem.as_bytes()).unwrap();
    let token = encode(&without, &valid_claims(), &key).unwrap();
    assert!(verify_jwt(&token, &verifying_keys(), &issuers(), NOW).is_ok(), "no type");
}

/// SEC-4: a key signs for its own issuer, for the audience of that issuer, and for the roles that it is limited to.
#[test]
fn jwt_key_signs_for_its_issuer_and_roles_only() {
    let (players, operators) = (jwt_signing_key(), JwtSigningKey::from_seed(&[8; 32]).unwrap());
    let keys_of = |key: &JwtSigningKey, issuer_index, roles: &[Role]| TokenPublicKey {
        issuer_index,
        roles: CallerRoleSet::from_roles(roles),
        ..verifying_keys::parse_key_file(key.public_key_set().as_bytes()).unwrap().remove(0)
    };
    let keys = [keys_of(&players, 0, &[Role::Client]), keys_of(&operators, 1, &[Role::Operator, Role::GameServer])];
    let second = TokenIssuer { name: "studio".into(), audience: "ops".into(), keys: Vec::new() };
    let all = [issuers(), vec![second]].concat();
    let signed = |key: &JwtSigningKey, iss: &str, aud: &str, role: &str| {
        let mut claims = valid_claims();
        (claims["iss"], claims["aud"], claims["role"]) = (json!(iss), json!(aud), json!(role));
        verify_jwt(&key.sign_jwt(&claims).unwrap(), &keys, &all, NOW).map(|identity| identity.role)
    };
    let mut accepted = 0;
    for (key, own) in [(&players, ("game", "fireteam")), (&operators, ("studio", "ops"))] {
        for issuer in ["game", "studio", "tls"] {
            for audience in ["fireteam", "ops"] {
                for role in Role::ALL {
                    let found = signed(key, issuer, audience, role.as_str());
                    let may = if own.0 == "game" {
                        role == Role::Client
                    } else {
                        [Role::Operator, Role::GameServer].contains(&role)
                    };
                    let expected = match (issuer == own.0, audience == own.1, may) {
                        (false, _, _) => Err(CredentialError::WrongIssuer),
                        (true, false, _) => Err(CredentialError::WrongAudience),
                        (true, true, false) => Err(CredentialError::RoleNotOfKey),
                        (true, true, true) => Ok(role),
                    };
                    assert_eq!(found, expected, "{issuer} {audience} {role:?}");
                    accepted += u32::from(found.is_ok());
                }
            }
        }
    }
    assert_eq!(accepted, 3, "of 48");
}

/// The number of signatures that a token makes the server verify, which its address is charged for.
#[test]
fn signatures_to_verify_counts_the_keys_of_algorithm_and_kid() {
    let keys: Vec<TokenPublicKey> = [7, 8]
        .iter()
        .flat_map(|seed| {
            let key = JwtSigningKey::from_seed(&[*seed; 32]).unwrap();
            verifying_keys::parse_key_file(key.public_key_set().as_bytes()).unwrap()
        })
        .collect();
    let header = |kid: Option<String>, alg| {
        let header = Header { kid, ..Header::new(alg) };
        format!(
            "{}.e30.e30",
            jsonwebtoken::encode(&header, &json!({}), &EncodingKey::from_secret(b"x"))
                .map_or_else(|_| String::new(), |token| token.split('.').next().unwrap().to_owned(),)
        )
    };
    let count = |token: &str| signatures_to_verify_max(token, &keys);
    let good = jwt_signing_key().sign_jwt(&valid_claims()).unwrap();
    assert_eq!(count(&good), 1, "its `kid` names one key");
    assert_eq!(count(&header(None, Algorithm::HS256)), 0, "no key has the algorithm");
    assert_eq!((count(""), count("a.b.c"), count(&good.replace('.', ""))), (0, 0, 0), "no token");
}

/// SEC-4: a token with a changed byte or a missing end is rejected.
#[test]
fn jwt_with_a_changed_or_missing_byte_is_rejected() {
    let (token, keys) = (jwt_signing_key().sign_jwt(&valid_claims()).unwrap(), verifying_keys());
    assert!(verify_jwt(&token, &keys, &issuers(), NOW).is_ok());
    for at in 0..token.len() {
        let mut forged = token.clone().into_bytes();
        forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
        let forged = String::from_utf8(forged).unwrap();
        // The last letter of a part has unused bits; a part that decodes to the same bytes is the same token.
        if let Ok(identity) = verify_jwt(&forged, &keys, &issuers(), NOW) {
            assert!(token[at + 1..].starts_with('.') || at + 1 == token.len(), "{at}");
            assert_eq!(&*identity.subject, "ana");
        }
        assert!(verify_jwt(&token[..at], &keys, &issuers(), NOW).is_err(), "cut to {at}");
    }
    let long = format!("{token}{}", "A".repeat(JWT_BYTES_MAX));
    assert_eq!(verify_jwt(&long, &keys, &issuers(), NOW).unwrap_err(), CredentialError::TooLarge);
}

/// EdDSA, ES256 and RS256, each with a public key from PEM.
#[test]
fn jwt_verifies_with_ed25519_p256_and_rsa_keys() {
    use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256, RsaKeySize};
    let curve = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let rsa = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap();
    let pem = [jwt_signing_key().public_key_pem(), curve.public_key_pem(), rsa.public_key_pem()].concat();
    let keys = verifying_keys::parse_key_file(pem.as_bytes()).unwrap();
    assert_eq!(keys.len(), 3);
    let by_curve = EncodingKey::from_ec_pem(curve.serialize_pem().as_bytes()).unwrap();
    let by_rsa = EncodingKey::from_rsa_pem(rsa.serialize_pem().as_bytes()).unwrap();
    for (algorithm, key) in [(Algorithm::ES256, &by_curve), (Algorithm::RS256, &by_rsa)] {
        let token = encode(&Header::new(algorithm), &valid_claims(), key).unwrap();
        assert!(verify_jwt(&token, &keys, &issuers(), NOW).is_ok(), "{algorithm:?}");
        assert_eq!(
            verify_jwt(&token, &verifying_keys(), &issuers(), NOW).unwrap_err(),
            CredentialError::AlgorithmNotAllowed
        );
    }
    assert!(verify_jwt(&jwt_signing_key().sign_jwt(&valid_claims()).unwrap(), &keys, &issuers(), NOW).is_ok());
    // RS512 with the RS256 key: another algorithm of the same family.
    let other = encode(&Header::new(Algorithm::RS512), &valid_claims(), &by_rsa).unwrap();
    assert_eq!(verify_jwt(&other, &keys, &issuers(), NOW).unwrap_err(), CredentialError::AlgorithmNotAllowed);
}
