//! What keeps strangers out: certificates, the keys of whoever vouches for callers, and which addresses may be served
//! without.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::config::validate::ConfigErrors;
use crate::config::{Config, ConfigError};

/// Key files at most; an issuer has one, or two while it changes keys.
const AUTH_KEY_FILES_MAX: usize = 16;
/// Bytes of an issuer's or an audience's name.
const AUTH_NAME_BYTES_MAX: usize = 256;

/// How connections are encrypted. The files are read again when they change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate and those between it and one that clients know, PEM.
    pub certificate: PathBuf,
    /// The certificate's private key, PEM.
    pub key: PathBuf,
    /// Certificates whose holders sign clients' certificates; none: clients' certificates are not asked for.
    pub client_ca: Option<PathBuf>,
}

/// Who vouches for callers. The files are read again when they change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtSettings {
    /// Public keys, PEM or JWKS.
    pub keys: Vec<PathBuf>,
    /// What a token's `iss` must be.
    pub issuer: String,
    /// What a token's `aud` must hold.
    pub audience: String,
}

impl Config {
    /// Whether callers must show who they are: by a token or by a certificate.
    pub fn requires_authentication(&self) -> bool {
        self.auth.is_some() || self.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some())
    }

    /// What the configuration leaves open on an address that others can reach, in words for the log.
    pub fn security_warnings(&self) -> Vec<&'static str> {
        let exposed = !is_loopback(self.listen) || !is_loopback(self.operator_listen);
        let mut risks = Vec::new();
        if exposed && self.tls.is_none() {
            risks.push(
                "--insecure-allow-plaintext: whoever is between a client and this server reads and changes its calls",
            );
        }
        if !is_loopback(self.listen) && !self.requires_authentication() {
            risks.push("--insecure-allow-anonymous: whoever reaches the client port may play as anybody");
        }
        risks
    }
}

impl ConfigErrors {
    /// A certificate and its key, or neither.
    pub(super) fn check_tls(
        &mut self,
        certificate: Option<PathBuf>,
        key: Option<PathBuf>,
        client_ca: Option<PathBuf>,
    ) -> Option<TlsFiles> {
        match (certificate, key) {
            (Some(certificate), Some(key)) => return Some(TlsFiles { certificate, key, client_ca }),
            (Some(_), None) => {
                self.add_invalid_value("tls_key", "required with tls_certificate: name its private key".into())
            }
            (None, Some(_)) => {
                self.add_invalid_value("tls_certificate", "required with tls_key: name its certificate".into())
            }
            (None, None) if client_ca.is_some() => {
                self.add_invalid_value(
                    "tls_client_ca",
                    "needs tls_certificate and tls_key: without TLS nobody shows one".into(),
                );
            }
            (None, None) => {}
        }
        None
    }

    /// Keys and whose they are, or neither.
    pub(super) fn check_auth(
        &mut self,
        keys: Option<Vec<PathBuf>>,
        issuer: Option<String>,
        audience: Option<String>,
    ) -> Option<JwtSettings> {
        let keys = keys.unwrap_or_default();
        if keys.is_empty() {
            for (key, given) in [("auth_issuer", issuer.is_some()), ("auth_audience", audience.is_some())] {
                if given {
                    self.add_invalid_value(key, "needs auth_keys: name the file with the issuer's public keys".into());
                }
            }
            return None;
        }
        if AUTH_KEY_FILES_MAX < keys.len() {
            self.add_invalid_value(
                "auth_keys",
                format!("{} files are too many: at most {AUTH_KEY_FILES_MAX}", keys.len()),
            );
        }
        let Some(issuer) = issuer else {
            self.add_invalid_value("auth_issuer", "required with auth_keys: what tokens say in `iss`".into());
            return None;
        };
        let audience = audience.unwrap_or_else(|| "fireteam".into());
        // Who shows a certificate is called `tls`'s; nobody else may vouch under that name.
        if issuer == "tls" {
            self.add_invalid_value(
                "auth_issuer",
                "`tls` is what certificates are filed under: use the issuer's own name".into(),
            );
        }
        for (key, name) in [("auth_issuer", &issuer), ("auth_audience", &audience)] {
            if name.is_empty() || AUTH_NAME_BYTES_MAX < name.len() || name.chars().any(char::is_control) {
                self.add_invalid_value(
                    key,
                    format!("must be 1 to {AUTH_NAME_BYTES_MAX} bytes without control characters"),
                );
            }
        }
        Some(JwtSettings { keys, issuer, audience })
    }

    /// SEC-7: a network that holds everybody would let anybody choose an address, and one in IPv6 clothes would hold
    /// nobody, because addresses are compared in canonical form.
    pub(super) fn check_trusted_proxies(&mut self, config: &Config) {
        for network in &config.trusted_proxies {
            if network.prefix_len() == 0 {
                let what = format!("{network} would believe anybody: name the networks that your proxies are in");
                self.add_invalid_value("trusted_proxies", what);
            }
            let bare = network.network();
            if bare != bare.to_canonical() {
                let what = format!("{network} is IPv4 in IPv6 clothes: write it as IPv4, {}/…", bare.to_canonical());
                self.add_invalid_value("trusted_proxies", what);
            }
        }
    }

    /// A header that anybody may write is worth nothing.
    pub(super) fn check_proxy_protocol(&mut self, config: &Config) {
        if config.proxy_protocol && config.trusted_proxies.is_empty() {
            self.add_invalid_value(
                "proxy_protocol",
                "needs trusted_proxies: name the networks that your proxies are in".into(),
            );
        }
    }

    /// SEC-15: what others can reach is encrypted and authenticated, or somebody has said in so many words that it is not.
    /// What operators may do is never for everybody.
    pub(super) fn check_public_addresses(&mut self, config: &Config) {
        let plain = config.tls.is_none();
        let mut behind_a_balancer = false;
        for (key, address, anyone_may) in [
            ("listen", config.listen, config.insecure_allow_anonymous),
            ("operator_listen", config.operator_listen, false),
        ] {
            if is_loopback(address) {
                continue;
            }
            behind_a_balancer |= plain && config.insecure_allow_plaintext;
            let mut missing = Vec::new();
            if plain && !config.insecure_allow_plaintext {
                missing.push(TLS_REQUIRED);
            }
            if !config.requires_authentication() && !anyone_may {
                missing.push(if key == "listen" { CLIENT_AUTH_REQUIRED } else { OPERATOR_AUTH_REQUIRED });
            }
            if !missing.is_empty() {
                self.0.push(ConfigError::InsecurePublicAddress { key, address, missing });
            }
        }
        if behind_a_balancer && config.trusted_proxies.is_empty() {
            let what = "required with --insecure-allow-plaintext on an address that others can reach: name the networks of \
                        the balancer that ends TLS, with --trusted-proxies CIDR";
            self.add_invalid_value("trusted_proxies", what.into());
        }
    }
}

/// What is missing and what would mend it.
const TLS_REQUIRED: &str = "encrypted (give --tls-certificate FILE and --tls-key FILE, or --insecure-allow-plaintext where \
                             a balancer ends TLS)";
const CLIENT_AUTH_REQUIRED: &str = "authenticated (give --auth-keys FILE and --auth-issuer TEXT, or --tls-client-ca FILE, or \
                                 --insecure-allow-anonymous where strangers may play)";
const OPERATOR_AUTH_REQUIRED: &str = "authenticated, which operators always must be (give --auth-keys FILE and --auth-issuer TEXT, or --tls-client-ca FILE)";

fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}
