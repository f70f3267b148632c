//! From settings as written to a configuration that is valid, and back for printing.

use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use crate::config::raw::RawSettings;
use crate::config::{
    ADVERTISEMENT_TTL_S, Config, ConfigError, DEFAULT_GEOIP_DB, GEOIP_MAX_ACCURACY_RADIUS_KM, LOCATION_GRID_DEGREES,
    LogFormat, MAX_STALENESS_S, PostgresUrl, RESERVATION_TTL_S, RULESET_RETENTION_S, RulesetSource,
    SHUTDOWN_GRACE_PERIOD_S, SILOS_MAX, StoreTarget,
};
use crate::domain::locality::DEFAULT_LOCATION_GRID_DEGREES;
use crate::domain::location_privacy::DEFAULT_SESSION_GRID_DEGREES;

const BUNDLED_SCHEME: &str = "bundled:";
const MEMORY_SCHEME: &str = "memory:";
const SQLITE_SCHEME: &str = "sqlite:";
/// How the names of key files end that are made beside a SQLite file.
const TOKEN_KEY_FILE_EXTENSION: &str = "token-key";
const MATCH_KEY_FILE_EXTENSION: &str = "match-key.pem";

/// Fills in defaults and checks every value; all mistakes at once. `exists` says which paths there are.
pub(super) fn validate_settings(
    settings: RawSettings,
    exists: impl Fn(&Path) -> bool,
) -> Result<Config, Vec<ConfigError>> {
    let mut problems = ConfigErrors(Vec::new());
    let store = problems.parse_store(settings.store.as_deref().unwrap_or("sqlite:fireteam.db"));
    let tls = problems.check_tls(settings.tls_certificate, settings.tls_key, settings.tls_client_ca);
    let auth = problems.check_auth(settings.auth_keys, settings.auth_issuer, settings.auth_audience);
    let quotas = problems.parse_rate_limits(settings.quotas);
    let token_key_file = settings.token_key_file.or_else(|| default_key_file(&store, TOKEN_KEY_FILE_EXTENSION));
    let match_key_file = settings.match_key_file.or_else(|| default_key_file(&store, MATCH_KEY_FILE_EXTENSION));
    let cell_degrees = settings.cell_degrees.unwrap_or(DEFAULT_LOCATION_GRID_DEGREES);
    let session_cell_degrees = settings.session_cell_degrees.unwrap_or(DEFAULT_SESSION_GRID_DEGREES);
    let config = Config {
        listen: settings.listen.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 50051))),
        operator_listen: settings.operator_listen.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 50052))),
        silos: problems.check_silos(settings.silos, &store),
        max_staleness_s: problems.check_range(
            "max_staleness_s",
            settings.max_staleness_s.unwrap_or(300),
            MAX_STALENESS_S,
        ),
        store,
        rulesets: match settings.rulesets {
            Some(path) if path.as_os_str() == BUNDLED_SCHEME => RulesetSource::Bundled,
            Some(path) => RulesetSource::Directory(path),
            None if exists(Path::new("rulesets")) => RulesetSource::Directory("rulesets".into()),
            None => RulesetSource::Bundled,
        },
        geoip_db_files: settings
            .locality_db
            .unwrap_or_else(|| Some(PathBuf::from(DEFAULT_GEOIP_DB)).filter(|file| exists(file)).into_iter().collect()),
        trusted_proxies: settings.trusted_proxies.unwrap_or_default(),
        proxy_protocol: settings.proxy_protocol.unwrap_or(false),
        tls,
        auth,
        quotas,
        audit_file: settings.audit_file,
        token_key_file,
        match_key_file,
        allow_client_locality: settings.allow_client_locality.unwrap_or(false),
        allow_search_overrides: settings.allow_search_overrides.unwrap_or(false),
        insecure_allow_plaintext: settings.insecure_allow_plaintext.unwrap_or(false),
        insecure_allow_anonymous: settings.insecure_allow_anonymous.unwrap_or(false),
        log_format: settings.log_format.unwrap_or(LogFormat::Text),
        log_level: settings.log_level.unwrap_or_else(|| "info".into()),
        time_to_live_s: problems.check_range(
            "time_to_live_s",
            settings.time_to_live_s.unwrap_or(90),
            ADVERTISEMENT_TTL_S,
        ),
        reservation_hold_s: problems.check_range(
            "reservation_hold_s",
            settings.reservation_hold_s.unwrap_or(30),
            RESERVATION_TTL_S,
        ),
        keep_retired_rulesets_s: problems.check_range(
            "keep_retired_rulesets_s",
            settings.keep_retired_rulesets_s.unwrap_or(600),
            RULESET_RETENTION_S,
        ),
        cell_degrees: problems.check_range("cell_degrees", cell_degrees, LOCATION_GRID_DEGREES),
        session_cell_degrees: problems.check_range("session_cell_degrees", session_cell_degrees, LOCATION_GRID_DEGREES),
        max_accuracy_radius_km: problems.check_range(
            "max_accuracy_radius_km",
            settings.max_accuracy_radius_km.unwrap_or(500.0),
            GEOIP_MAX_ACCURACY_RADIUS_KM,
        ),
        shutdown_deadline_s: problems.check_range(
            "shutdown_deadline_s",
            settings.shutdown_deadline_s.unwrap_or(10),
            SHUTDOWN_GRACE_PERIOD_S,
        ),
    };
    problems.require_shared_key_files(&config);
    problems.check_trusted_proxies(&config);
    problems.check_proxy_protocol(&config);
    problems.check_ports_differ(&config);
    problems.check_public_addresses(&config);
    if problems.0.is_empty() { Ok(config) } else { Err(problems.0) }
}

/// The settings that make `config`, every one of them said.
pub(super) fn to_raw_settings(config: &Config) -> RawSettings {
    RawSettings {
        listen: Some(config.listen),
        operator_listen: Some(config.operator_listen),
        store: Some(match &config.store {
            StoreTarget::Memory => MEMORY_SCHEME.into(),
            StoreTarget::Sqlite(path) => format!("{SQLITE_SCHEME}{}", path.display()),
            StoreTarget::Postgres(url) => url.to_string(),
        }),
        silos: config.silos.clone(),
        max_staleness_s: Some(config.max_staleness_s),
        rulesets: Some(match &config.rulesets {
            RulesetSource::Bundled => BUNDLED_SCHEME.into(),
            RulesetSource::Directory(path) => path.clone(),
        }),
        locality_db: Some(config.geoip_db_files.clone()),
        trusted_proxies: Some(config.trusted_proxies.clone()),
        tls_certificate: config.tls.as_ref().map(|tls| tls.certificate.clone()),
        tls_key: config.tls.as_ref().map(|tls| tls.key.clone()),
        tls_client_ca: config.tls.as_ref().and_then(|tls| tls.client_ca.clone()),
        proxy_protocol: Some(config.proxy_protocol),
        auth_keys: config.auth.as_ref().map(|auth| auth.keys.clone()),
        auth_issuer: config.auth.as_ref().map(|auth| auth.issuer.clone()),
        auth_audience: config.auth.as_ref().map(|auth| auth.audience.clone()),
        quotas: config.quotas.to_settings(),
        audit_file: config.audit_file.clone(),
        token_key_file: config.token_key_file.clone(),
        match_key_file: config.match_key_file.clone(),
        allow_client_locality: Some(config.allow_client_locality),
        allow_search_overrides: Some(config.allow_search_overrides),
        insecure_allow_plaintext: Some(config.insecure_allow_plaintext),
        insecure_allow_anonymous: Some(config.insecure_allow_anonymous),
        log_format: Some(config.log_format),
        log_level: Some(config.log_level.clone()),
        time_to_live_s: Some(config.time_to_live_s),
        reservation_hold_s: Some(config.reservation_hold_s),
        keep_retired_rulesets_s: Some(config.keep_retired_rulesets_s),
        cell_degrees: Some(config.cell_degrees),
        session_cell_degrees: Some(config.session_cell_degrees),
        max_accuracy_radius_km: Some(config.max_accuracy_radius_km),
        shutdown_deadline_s: Some(config.shutdown_deadline_s),
    }
}

/// The key file that belongs to a store: `fireteam.token-key` beside `fireteam.db`, never in it.
fn default_key_file(store: &StoreTarget, ending: &str) -> Option<PathBuf> {
    match store {
        StoreTarget::Memory | StoreTarget::Postgres(_) => None,
        StoreTarget::Sqlite(path) => Some(path.with_extension(ending)),
    }
}

pub(super) struct ConfigErrors(pub(super) Vec<ConfigError>);

impl ConfigErrors {
    pub(super) fn add_invalid_value(&mut self, key: &'static str, what: String) {
        self.0.push(ConfigError::InvalidValue { key, what });
    }

    /// Where `text` points; anything at all, and a problem, when nowhere.
    fn parse_store(&mut self, text: &str) -> StoreTarget {
        match text.strip_prefix(SQLITE_SCHEME) {
            Some(path) if !path.is_empty() => return StoreTarget::Sqlite(path.into()),
            Some(_) | None if text == MEMORY_SCHEME => {}
            Some(_) | None => match PostgresUrl::parse(text) {
                Some(url) => return StoreTarget::Postgres(url),
                None => {
                    let what = format!("`{text}` is no store: use sqlite:PATH, postgres://HOST/DATABASE or memory:");
                    self.add_invalid_value("store", what);
                }
            },
        }
        StoreTarget::Memory
    }

    /// A server with a store of its own has everything in it, and whoever asks it for anything else is lost.
    fn check_silos(&mut self, silos: Option<Vec<u64>>, store: &StoreTarget) -> Option<Vec<u64>> {
        match &silos {
            Some(silos) if silos.is_empty() || SILOS_MAX < silos.len() => {
                self.add_invalid_value("silos", format!("name 1 to {SILOS_MAX}, or leave it out for all"));
            }
            Some(_) if !matches!(store, StoreTarget::Postgres(_)) => {
                self.add_invalid_value(
                    "silos",
                    "only with a postgres: store, whose servers share the silos out".into(),
                );
            }
            _ => {}
        }
        silos
    }

    /// A token that one server signs must open on all others, and on the same one after it has started anew; and of what any of them
    /// signs for game servers, one key set must tell.
    fn require_shared_key_files(&mut self, config: &Config) {
        if !matches!(config.store, StoreTarget::Postgres(_)) {
            return;
        }
        let files = [("token_key_file", &config.token_key_file), ("match_key_file", &config.match_key_file)];
        for (key, _) in files.into_iter().filter(|(_, file)| file.is_none()) {
            let what = "required with a postgres: store: name one file, the same for all servers that share it";
            self.add_invalid_value(key, what.into());
        }
    }

    /// NaN is in no range.
    fn check_range<N: PartialOrd + Display>(&mut self, key: &'static str, value: N, range: RangeInclusive<N>) -> N {
        if !range.contains(&value) {
            self.add_invalid_value(key, format!("{value} is out of range: use {} to {}", range.start(), range.end()));
        }
        value
    }

    /// Two doors cannot share a port; port 0 is a free one, another each time.
    fn check_ports_differ(&mut self, config: &Config) {
        if config.listen == config.operator_listen && config.listen.port() != 0 {
            let what = format!("{} is where players' calls come in: use another port", config.listen);
            self.add_invalid_value("operator_listen", what);
        }
    }
}
