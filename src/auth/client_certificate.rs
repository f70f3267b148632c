//! Whom a client's certificate names: `fireteam://server/<id>` or `fireteam://operator/<id>` among its names. Whether the
//! certificate is genuine TLS has found out before.

use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

use crate::auth::identity::{Identity, Role};
use crate::auth::jwt::SUBJECT_BYTES_MAX;

/// Who vouches for certificates, as identities call it. No issuer of tokens may have this name.
pub const TLS_ISSUER: &str = "tls";

/// What our names begin with.
const URI_PREFIX: &str = "fireteam://";

/// Whom `der` names; nobody when it names nobody of ours, or several.
pub(super) fn identity_from_certificate(der: &[u8]) -> Option<Identity> {
    let (rest, certificate) = X509Certificate::from_der(der).ok()?;
    if !rest.is_empty() {
        return None;
    }
    let names = &certificate.subject_alternative_name().ok()??.value.general_names;
    let mut ours = names.iter().filter_map(|name| match name {
        GeneralName::URI(uri) => uri.strip_prefix(URI_PREFIX),
        _ => None,
    });
    let (role, id) = ours.next()?.split_once('/')?;
    if ours.next().is_some() {
        return None;
    }
    // A client is a player's program: who it is, its player's token says.
    let role = Role::from_name(role).filter(|role| *role != Role::Client)?;
    is_valid_id(id).then(|| Identity::new(TLS_ISSUER, id, role, &[], None))
}

/// Letters, digits and a few marks that mean the same however a URI is read.
fn is_valid_id(id: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    (1..=SUBJECT_BYTES_MAX).contains(&id.len()) && id.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, SanType};

    use super::*;

    fn identity_with_uris(uris: &[&str]) -> Option<Identity> {
        let mut params = CertificateParams::new(vec!["game.example".to_owned()]).unwrap();
        for uri in uris {
            params.subject_alt_names.push(SanType::URI((*uri).try_into().unwrap()));
        }
        identity_from_certificate(params.self_signed(&KeyPair::generate().unwrap()).unwrap().der())
    }

    #[test]
    fn client_certificate_names_a_game_server_or_an_operator() {
        let check = |uri: &str, role, id: &str| {
            let found = identity_with_uris(&["https://elsewhere.example/", uri]).expect(uri);
            assert_eq!((found.role, &*found.subject, &*found.issuer, found.expires_at), (role, id, "tls", None));
        };
        check("fireteam://server/eu-1", Role::GameServer, "eu-1");
        check("fireteam://operator/ana.b_c~d", Role::Operator, "ana.b_c~d");
    }

    /// SEC-4: whatever else a certificate says, it is nobody's.
    #[test]
    fn client_certificate_with_any_other_name_is_rejected() {
        let too_long = format!("fireteam://server/{}", "a".repeat(SUBJECT_BYTES_MAX + 1));
        for uris in [
            &[][..],
            &["fireteam://client/ana"],
            &["fireteam://admin/ana"],
            &["fireteam://server/"],
            &["fireteam://server"],
            &["fireteam://server/a/b"],
            &["fireteam://server/a?b"],
            &["fireteam://server/%61"],
            &["FIRETEAM://server/a"],
            &["mm://server/a"],
            &["fireteam://server/a", "fireteam://operator/a"],
            &["fireteam://server/a", "fireteam://server/a"],
            &[&too_long],
        ] {
            assert!(identity_with_uris(uris).is_none(), "{uris:?}");
        }
        assert!(identity_from_certificate(b"").is_none());
        assert!(identity_from_certificate(&[0x30; 64]).is_none());
    }
}
