//! Verifier of credentials: genuine ones are admitted once, and all others refused, each with its code.

use std::ffi::CString;
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fireteam_c::FtVerifier;
use fireteam_c::queue_types::FtAdmittedPlayer;
use fireteam_c::status::*;
use fireteam_c::verifier_exports::*;

use crate::functions::{c, text};

const NOW_S: u64 = 1_800_000_000;

/// Signing key of a server.
struct Signer {
    key: Ed25519KeyPair,
    kid: &'static str,
}

impl Signer {
    fn new(seed: u8, kid: &'static str) -> Self {
        Self { key: Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap(), kid }
    }

    fn key_set(&self) -> String {
        let x = URL_SAFE_NO_PAD.encode(self.key.public_key().as_ref());
        format!(r#"{{"keys":[{{"kty":"OKP","crv":"Ed25519","kid":"{}","x":"{x}"}}]}}"#, self.kid)
    }

    /// Credential of a player for a game server.
    fn sign(&self, typ: &str, audience: &str, serial: u64, user: &str) -> String {
        self.sign_as("fireteam", typ, audience, serial, user)
    }

    /// The same, with the name of an issuer.
    fn sign_as(&self, issuer: &str, typ: &str, audience: &str, serial: u64, user: &str) -> String {
        let header = format!(r#"{{"alg":"EdDSA","kid":"{}","typ":"{typ}"}}"#, self.kid);
        let claims = format!(
            r#"{{"iss":"{issuer}","aud":"{audience}","sub":"ada","jti":"{serial}","iat":{NOW_S},"exp":{},"match":"one","team":1{user}}}"#,
            NOW_S + 300
        );
        let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
        let signature = self.key.sign(signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
    }

    fn credential(&self, serial: u64) -> String {
        self.sign("match+jwt", "server", serial, "")
    }
}

/// Verifier that is freed at the end of the test.
struct Verifier(*mut FtVerifier);

impl Drop for Verifier {
    fn drop(&mut self) {
        assert_eq!(c!(ft_verifier_free(self.0)), 0);
    }
}

fn new_verifier(key_set: &str, audience: &str, remembered_max: usize) -> Result<Verifier, i32> {
    let (audience, mut made) = (CString::new(audience).unwrap(), null_mut());
    let (start, length) = (key_set.as_ptr(), key_set.len());
    match c!(ft_verifier_new(start, length, audience.as_ptr(), remembered_max, &mut made)) {
        0 => Ok(Verifier(made)),
        error => Err(error),
    }
}

impl Verifier {
    fn verify(&self, credential: &[u8], unix_s: u64) -> Result<FtAdmittedPlayer, i32> {
        let mut player = MaybeUninit::uninit();
        let (start, length) = (credential.as_ptr(), credential.len());
        match c!(ft_verifier_verify(self.0, start, length, unix_s, player.as_mut_ptr())) {
            0 => Ok(c!(player.assume_init())),
            error => Err(error),
        }
    }

    fn code(&self, credential: &str) -> i32 {
        self.verify(credential.as_bytes(), NOW_S).err().unwrap_or(0)
    }
}

/// A genuine credential admits its player once, also after a rotation of the keys.
#[test]
fn verifier_admits_a_player_once() {
    let (first, second) = (Signer::new(1, "first"), Signer::new(2, "second"));
    let verifier = new_verifier(&first.key_set(), "server", 0).unwrap();
    let credential = first.sign("match+jwt", "server", 1, r#","user":"ada's key""#);
    assert_eq!(verifier.code(&credential), FT_CREDENTIAL_MALFORMED, "no id of a fireteam server");
    let credential = first.sign("match+jwt", "server", 2, r#","user":"04""#);
    let player = verifier.verify(credential.as_bytes(), NOW_S).unwrap();
    assert_eq!((player.team, player.expires_at_s), (1, NOW_S + 300));
    assert_eq!((text(&player.match_id), text(&player.player_key)), ("one".into(), "ada".into()));
    assert_eq!(text(&player.user_key), "04");
    assert_eq!(text(&verifier.verify(first.credential(3).as_bytes(), NOW_S).unwrap().user_key), "");
    assert_eq!(verifier.code(&credential), FT_CREDENTIAL_USED_BEFORE);

    let by_second = second.credential(4);
    assert_eq!(verifier.code(&by_second), FT_CREDENTIAL_UNKNOWN_KEY);
    let replace = |keys: &str| c!(ft_verifier_replace_keys(verifier.0, keys.as_ptr(), keys.len()));
    assert_eq!((replace("{}"), replace("\u{0}")), (FT_ERROR_KEY_SET, FT_ERROR_KEY_SET));
    let both = format!(
        r#"{{"keys":[{},{}]}}"#,
        &first.key_set()[9..first.key_set().len() - 2],
        &second.key_set()[9..second.key_set().len() - 2]
    );
    assert_eq!(replace(&both), 0);
    assert_eq!((verifier.code(&by_second), verifier.code(&credential)), (0, FT_CREDENTIAL_USED_BEFORE));
}

/// Each kind of bad credential has its code, and the good one is still accepted after all of them.
#[test]
fn verifier_refuses_with_a_code() {
    let (signer, other) = (Signer::new(1, "key"), Signer::new(2, "key"));
    let verifier = new_verifier(&signer.key_set(), "server", 2).unwrap();
    let good = signer.credential(1);
    let code_at = |unix_s| verifier.verify(good.as_bytes(), unix_s).err();
    assert_eq!(verifier.code(&signer.sign("match+jwt", "another", 2, "")), FT_CREDENTIAL_WRONG_AUDIENCE);
    assert_eq!(verifier.code(&signer.sign("JWT", "server", 2, "")), FT_CREDENTIAL_WRONG_TYPE);
    assert_eq!(verifier.code(&other.credential(2)), FT_CREDENTIAL_BAD_SIGNATURE);
    let of_another_issuer = signer.sign_as("another", "match+jwt", "server", 2, "");
    assert_eq!(verifier.code(&of_another_issuer), FT_CREDENTIAL_WRONG_ISSUER);
    assert_eq!(code_at(NOW_S + 300), Some(FT_CREDENTIAL_EXPIRED));
    assert_eq!(code_at(NOW_S - 60), Some(FT_CREDENTIAL_INVALID_TIMES));
    assert_eq!(code_at(u64::MAX), Some(FT_ERROR_VALUE), "no time of this system");
    for malformed in [b"".as_slice(), b"a.b.c", b"\xff\xfe", &[b'a'; 5_000], &good.as_bytes()[1..]] {
        assert_eq!(verifier.verify(malformed, NOW_S).err(), Some(FT_CREDENTIAL_MALFORMED));
    }
    for at in 0..good.len() {
        let mut changed = good.clone().into_bytes();
        changed[at] ^= 1;
        assert!(verifier.verify(&changed, NOW_S).is_err(), "{at}");
    }
    assert_eq!(verifier.code(&good), 0);
    assert_eq!(
        (verifier.code(&signer.credential(2)), verifier.code(&signer.credential(3))),
        (0, FT_CREDENTIAL_TOO_MANY)
    );
}

#[test]
fn verifier_misuse_is_refused() {
    let keys = Signer::new(1, "key").key_set();
    let code = |keys: &str, audience: &str, max| new_verifier(keys, audience, max).err();
    assert_eq!((code(&keys, "", 0), code(&keys, "server", 1_048_577)), (Some(FT_ERROR_VALUE), Some(FT_ERROR_VALUE)));
    assert_eq!(code(&keys, &"s".repeat(65), 0), Some(FT_ERROR_LENGTH));
    assert_eq!(code(r#"{"keys":[]}"#, "server", 0), Some(FT_ERROR_KEY_SET));
    assert_eq!(code(&" ".repeat(65_537), "server", 0), Some(FT_ERROR_LENGTH));
    let mut made = null_mut();
    assert_eq!(c!(ft_verifier_new(null(), 9, c"server".as_ptr(), 0, &mut made)), FT_ERROR_NULL);
    assert_eq!(c!(ft_verifier_new(keys.as_ptr(), keys.len(), null(), 0, &mut made)), FT_ERROR_NULL);
    assert_eq!(c!(ft_verifier_new(keys.as_ptr(), keys.len(), c"server".as_ptr(), 0, null_mut())), FT_ERROR_NULL);
    assert_eq!(c!(ft_verifier_free(null_mut())), 0);
    let verifier = new_verifier(&keys, "server", 0).unwrap();
    let mut player = MaybeUninit::uninit();
    let credential = Signer::new(1, "key").credential(1);
    let (start, length) = (credential.as_ptr(), credential.len());
    assert_eq!(c!(ft_verifier_verify(verifier.0, null(), 9, NOW_S, player.as_mut_ptr())), FT_ERROR_NULL);
    assert_eq!(c!(ft_verifier_verify(verifier.0, start, length, NOW_S, null_mut())), FT_ERROR_NULL);
    assert_eq!(c!(ft_verifier_verify(null_mut(), start, length, NOW_S, player.as_mut_ptr())), FT_ERROR_NULL);
    assert_eq!(verifier.code(&credential), 0, "misuse has not used it");
    let debug = format!("{:?}", c!(&*verifier.0));
    assert!(debug.contains("used: 1") && !debug.contains(&keys), "{debug}");
}
