//! Identity in a TLS client certificate: a subject alternative name `fireteam://game_server/<id>`,
//! `fireteam://operator/<id>` or `fireteam://viewer/<id>`. TLS has already verified the certificate.

use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

use crate::auth::identity::{Identity, Role};
use crate::auth::jwt::SUBJECT_BYTES_MAX;

/// Issuer name of identities that come from certificates. No issuer of tokens may use it.
pub const TLS_ISSUER: &str = "tls";

/// Prefix of the URIs that carry an identity; other subject alternative names are ignored.
const URI_PREFIX: &str = "fireteam://";

/// Identity that the certificate `der` names; `None` if it has no `fireteam://` URI, an invalid one, or several.
pub(super) fn identity_from_certificate(der: &[u8]) -> Option<Identity> {
    let (rest, certificate) = X509Certificate::from_der(der).ok()?;
    if !rest.is_empty() {
        return None;
    }
    let names = &certificate.subject_alternative_name().ok()??.value.general_names;
    let mut identity_uris = names.iter().filter_map(|name| match name {
        GeneralName::URI(uri) => uri.strip_prefix(URI_PREFIX),
        _ => None,
    });
    let (role, id) = identity_uris.next()?.split_once('/')?;
    if identity_uris.next().is_some() {
        return None;
    }
    // A client authenticates with its player's token, never with a certificate.
    let role = Role::from_name(role).filter(|role| *role != Role::Client)?;
    is_valid_id(id).then(|| Identity::new(TLS_ISSUER, id, role, &[], None))
}

/// Checks that an id consists of unreserved URI characters (RFC 3986, section 2.3), which need no percent encoding.
fn is_valid_id(id: &str) -> bool {
    let is_unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    (1..=SUBJECT_BYTES_MAX).contains(&id.len()) && id.bytes().all(is_unreserved)
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
    fn client_certificate_names_a_game_server_an_operator_or_a_viewer() {
        let check = |uri: &str, role, id: &str| {
            let found = identity_with_uris(&["https://elsewhere.example/", uri]).expect(uri);
            assert_eq!((found.role, &*found.subject, &*found.issuer, found.expires_at), (role, id, "tls", None));
        };
        check("fireteam://game_server/eu-1", Role::GameServer, "eu-1");
        check("fireteam://operator/ana.b_c~d", Role::Operator, "ana.b_c~d");
        check("fireteam://viewer/wall-1", Role::Viewer, "wall-1");
    }

    /// SEC-4: a certificate with any other name gives no identity.
    #[test]
    fn client_certificate_with_any_other_name_is_rejected() {
        let too_long = format!("fireteam://game_server/{}", "a".repeat(SUBJECT_BYTES_MAX + 1));
        for uris in [
            &[][..],
            &["fireteam://client/ana"],
            &["fireteam://admin/ana"],
            &["fireteam://game_server/"],
            &["fireteam://game_server"],
            &["fireteam://game_server/a/b"],
            &["fireteam://game_server/a?b"],
            &["fireteam://game_server/%61"],
            &["FIRETEAM://game_server/a"],
            &["mm://game_server/a"],
            &["fireteam://game_server/a", "fireteam://operator/a"],
            &["fireteam://game_server/a", "fireteam://game_server/a"],
            &[&too_long],
        ] {
            assert!(identity_with_uris(uris).is_none(), "{uris:?}");
        }
        assert!(identity_from_certificate(b"").is_none());
        assert!(identity_from_certificate(&[0x30; 64]).is_none());
    }
}
