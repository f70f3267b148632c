//! Validation of security settings: TLS, JWT verification, trusted proxies, and protections that public addresses require.

use std::path::PathBuf;

use crate::config::Config;
use crate::config::error::ConfigError;
use crate::config::security::{JwtSettings, TlsFiles, TokenIssuer, VerifyingKeyFile};
use crate::config::validate::ConfigErrors;

/// Maximum number of key files. An issuer has one, or two during key rotation.
const AUTH_KEY_FILES_MAX: usize = 16;
/// Maximum length of the issuer and audience names, bytes.
const AUTH_NAME_BYTES_MAX: usize = 256;
/// Maximum number of names of the operator port.
const OPERATOR_HOSTS_MAX: usize = 32;
/// Limit of origins whose pages may call.
const CORS_ORIGINS_MAX: usize = 64;
/// Limit of an origin, bytes: a host name, its scheme and port.
const ORIGIN_BYTES_MAX: usize = 280;
/// Maximum length of a host name, bytes (RFC 1035).
const HOST_NAME_BYTES_MAX: usize = 253;

impl ConfigErrors {
    /// Requires both a certificate and its key, or neither.
    pub(super) fn require_certificate_with_key(
        &mut self,
        certificate: Option<PathBuf>,
        key: Option<PathBuf>,
        client_ca: Option<PathBuf>,
    ) -> Option<TlsFiles> {
        match (certificate, key) {
            (Some(certificate), Some(key)) => return Some(TlsFiles { certificate, key, client_ca }),
            (Some(_), None) => {
                self.add_invalid_value("tls_key", "required with tls_certificate; name its private key".into())
            }
            (None, Some(_)) => {
                self.add_invalid_value("tls_certificate", "required with tls_key; name its certificate".into())
            }
            (None, None) if client_ca.is_some() => {
                self.add_invalid_value(
                    "tls_client_ca",
                    "needs tls_certificate and tls_key; set them, or remove it".into(),
                );
            }
            (None, None) => {}
        }
        None
    }

    /// Requires both keys and an issuer, or neither. The default audience is `fireteam`.
    pub(super) fn check_auth(
        &mut self,
        keys: Option<Vec<PathBuf>>,
        issuer: Option<String>,
        audience: Option<String>,
        further: Option<Vec<String>>,
    ) -> Option<JwtSettings> {
        let keys = keys.unwrap_or_default();
        if keys.is_empty() {
            let further_are_set = further.is_some_and(|further| !further.is_empty());
            for (key, is_set) in [
                ("auth_issuer", issuer.is_some()),
                ("auth_audience", audience.is_some()),
                ("auth_issuers", further_are_set),
            ] {
                if is_set {
                    self.add_invalid_value(key, "needs auth_keys; name the file with the issuer's public keys".into());
                }
            }
            return None;
        }
        let Some(name) = issuer else {
            self.add_invalid_value("auth_issuer", "required with auth_keys; give the `iss` claim of the tokens".into());
            return None;
        };
        let audience = audience.unwrap_or_else(|| "fireteam".into());
        self.check_auth_name("auth_audience", &audience);
        let keys = keys.into_iter().filter_map(|entry| self.parse_verifying_key_file("auth_keys", entry)).collect();
        let mut issuers = vec![TokenIssuer { name, audience, keys }];
        for entry in further.unwrap_or_default() {
            self.add_further_issuer(&mut issuers, &entry);
        }
        self.check_issuers(&issuers);
        Some(JwtSettings { issuers })
    }

    fn parse_verifying_key_file(&mut self, key: &'static str, entry: PathBuf) -> Option<VerifyingKeyFile> {
        VerifyingKeyFile::parse(entry).map_err(|message| self.add_invalid_value(key, message)).ok()
    }

    /// Parses `ISSUER AUDIENCE [ROLE+ROLE=]FILE`. Several entries of one issuer name several files.
    fn add_further_issuer(&mut self, issuers: &mut Vec<TokenIssuer>, entry: &str) {
        let mut words = entry.trim().splitn(3, ' ').map(str::trim);
        let (Some(name), Some(audience), Some(keys)) = (words.next(), words.next(), words.next()) else {
            let message = format!("`{entry}` is not an issuer; write \"ISSUER AUDIENCE [ROLE+ROLE=]FILE\"");
            return self.add_invalid_value("auth_issuers", message);
        };
        self.check_auth_name("auth_issuers", audience);
        let Some(keys) = self.parse_verifying_key_file("auth_issuers", keys.into()) else { return };
        match issuers.iter_mut().find(|issuer| issuer.name == name) {
            Some(known) if known.audience == audience => known.keys.push(keys),
            Some(_) => {
                let message = format!("`{name}` has two audiences; give an issuer one");
                self.add_invalid_value("auth_issuers", message);
            }
            None => issuers.push(TokenIssuer { name: name.into(), audience: audience.into(), keys: vec![keys] }),
        }
    }

    /// Limits the number of files, reserves the name of client certificates, and requires that one issuer alone signs for
    /// players: an account is the subject of a token, for any issuer.
    fn check_issuers(&mut self, issuers: &[TokenIssuer]) {
        let files: usize = issuers.iter().map(|issuer| issuer.keys.len()).sum();
        if files > AUTH_KEY_FILES_MAX {
            self.add_invalid_value(
                "auth_keys",
                format!("{files} files are too many; give at most {AUTH_KEY_FILES_MAX}"),
            );
        }
        for (index, issuer) in issuers.iter().enumerate() {
            let key = if index == 0 { "auth_issuer" } else { "auth_issuers" };
            if issuer.name == "tls" {
                let message = "`tls` is reserved for client certificates; use the issuer's own name";
                self.add_invalid_value(key, message.into());
            }
            self.check_auth_name(key, &issuer.name);
        }
        let of_players: Vec<&str> =
            issuers.iter().filter(|issuer| issuer.signs_for_role("client")).map(|issuer| &*issuer.name).collect();
        if let [first, second, ..] = *of_players {
            let message = format!(
                "`{first}` and `{second}` both sign for `client`, so one could sign for the players of the other; limit \
                 the keys of all issuers but one, such as operator=FILE"
            );
            self.add_invalid_value("auth_issuers", message);
        }
    }

    fn check_auth_name(&mut self, key: &'static str, name: &str) {
        if name.is_empty() || name.len() > AUTH_NAME_BYTES_MAX || name.chars().any(char::is_control) {
            self.add_invalid_value(
                key,
                format!("not valid; give 1 to {AUTH_NAME_BYTES_MAX} bytes without control characters"),
            );
        }
    }

    /// Checks the names of the operator port, and converts them to lower case.
    pub(super) fn check_operator_hosts(&mut self, hosts: Vec<String>) -> Vec<String> {
        if hosts.len() > OPERATOR_HOSTS_MAX {
            let message = format!("{} names are too many; give at most {OPERATOR_HOSTS_MAX}", hosts.len());
            self.add_invalid_value("operator_hosts", message);
        }
        let is_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        for host in &hosts {
            if host.is_empty() || host.len() > HOST_NAME_BYTES_MAX || !host.bytes().all(is_name_byte) {
                let message = "contains a text that is not a host name; give names without scheme and port";
                self.add_invalid_value("operator_hosts", message.into());
            }
        }
        hosts.into_iter().map(|host| host.to_ascii_lowercase()).collect()
    }

    /// Checks the origins whose pages may call, and converts them to lower case, as browsers send them.
    pub(super) fn check_cors_origins(&mut self, origins: Vec<String>) -> Vec<String> {
        const KEY: &str = "cors_origins";
        if origins.len() > CORS_ORIGINS_MAX {
            self.add_invalid_value(
                KEY,
                format!("{} origins are too many; give at most {CORS_ORIGINS_MAX}", origins.len()),
            );
        }
        let (has_wildcard, count) = (origins.iter().any(|origin| origin == "*"), origins.len());
        if has_wildcard && count > 1 {
            self.add_invalid_value(KEY, "`*` allows all origins; give it alone, or give the origins only".into());
        }
        for origin in origins.iter().filter(|origin| *origin != "*" && !is_origin(origin)) {
            let message = format!(
                "`{}` is no origin; give scheme and host, and a port that is not the default one, such as https://game.example:8443",
                start_of(origin)
            );
            self.add_invalid_value(KEY, message);
        }
        origins.into_iter().map(|origin| origin.to_ascii_lowercase()).collect()
    }

    /// Rejects networks that contain all addresses, because any caller could then choose its address. Rejects
    /// IPv4-mapped IPv6 networks, which would contain no address: addresses are compared in canonical form.
    pub(super) fn check_trusted_proxies(&mut self, config: &Config) {
        for network in &config.trusted_proxies {
            if network.prefix_len() == 0 {
                let message = format!("{network} contains all addresses; name the networks of your proxies");
                self.add_invalid_value("trusted_proxies", message);
            }
            let network_address = network.network();
            if network_address != network_address.to_canonical() {
                let message = format!(
                    "{network} is an IPv4-mapped IPv6 network; write it as IPv4, {}/…",
                    network_address.to_canonical()
                );
                self.add_invalid_value("trusted_proxies", message);
            }
        }
    }

    /// Requires `trusted_proxies` with the PROXY protocol, because any sender can forge its header.
    pub(super) fn check_proxy_protocol(&mut self, config: &Config) {
        if config.proxy_protocol && config.trusted_proxies.is_empty() {
            self.add_invalid_value("proxy_protocol", "needs trusted_proxies; name the networks of your proxies".into());
        }
    }

    /// Requires TLS and authentication on public addresses, or a flag that allows each exception. Operators must always
    /// authenticate.
    pub(super) fn check_public_addresses(&mut self, config: &Config) {
        let plaintext = config.tls.is_none();
        let mut tls_ends_at_balancer = false;
        for (key, address, allow_anonymous) in [
            ("listen", &config.listen, config.insecure_allow_anonymous),
            ("operator_listen", &config.operator_listen, false),
        ] {
            if address.is_loopback() {
                continue;
            }
            tls_ends_at_balancer |= plaintext && config.insecure_allow_plaintext;
            let mut missing = Vec::new();
            if plaintext && !config.insecure_allow_plaintext {
                missing.push(MISSING_TLS_TEXT);
            }
            if !config.requires_authentication() && !allow_anonymous {
                missing.push(if key == "listen" { MISSING_CLIENT_AUTH_TEXT } else { MISSING_OPERATOR_AUTH_TEXT });
            }
            if !missing.is_empty() {
                self.0.push(ConfigError::InsecurePublicAddress { key, address: address.clone(), missing });
            }
        }
        if tls_ends_at_balancer && config.trusted_proxies.is_empty() {
            let message = "required with --insecure-allow-plaintext on a public address; name the networks of \
                        the load balancer that ends TLS, with --trusted-proxies CIDR";
            self.add_invalid_value("trusted_proxies", message.into());
        }
    }
}

/// Whether a text is an origin as browsers write it: scheme, host, and perhaps a port.
fn is_origin(text: &str) -> bool {
    let Some((scheme, authority)) = text.split_once("://") else { return false };
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    let is_name = !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    let address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let is_host = is_name || address.is_some_and(|address| address.parse::<std::net::Ipv6Addr>().is_ok());
    let is_port = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|number| number.to_string() == port));
    // A browser leaves the default port out, so an origin with it would match nothing.
    let is_default_port =
        matches!((scheme.to_ascii_lowercase().as_str(), port), ("http", Some("80")) | ("https", Some("443")));
    text.len() <= ORIGIN_BYTES_MAX && is_scheme && is_host && is_port && !is_default_port
}

/// Start of a text for an error.
fn start_of(text: &str) -> &str {
    &text[..text.floor_char_boundary(80)]
}

/// Missing protections and the flags that add them.
const MISSING_TLS_TEXT: &str = "encrypted (give --tls-certificate FILE and --tls-key FILE, or \
                            --insecure-allow-plaintext where a load balancer ends TLS)";
const MISSING_CLIENT_AUTH_TEXT: &str = "authenticated (give --auth-keys FILE and --auth-issuer TEXT, or --tls-client-ca \
                                    FILE, or --insecure-allow-anonymous where anonymous players are allowed)";
const MISSING_OPERATOR_AUTH_TEXT: &str = "authenticated, which operators always must be (give --auth-keys FILE and \
                                      --auth-issuer TEXT, or --tls-client-ca FILE)";
