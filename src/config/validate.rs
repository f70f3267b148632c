//! Configuration validation: fills in defaults, checks ranges and combinations, and converts back for printing.

mod beacon;
mod rate_limits;
mod region_places;
mod security;

use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use http::Uri;
use http::uri::Scheme;

use crate::config::raw::RawSettings;
use crate::config::security::{TokenIssuer, VerifyingKeyFile};
use crate::config::{
    ADVERTISEMENT_TTL_RANGE_S, AUDIT_LOG_MAX_FILES_RANGE, AUDIT_LOG_MAX_MIB_RANGE, Config, ConfigError,
    DEFAULT_GEOIP_DB, DISK_FREE_WARNING_RANGE_MIB, GEOIP_MAX_ACCURACY_RADIUS_RANGE_KM, LISTED_SILOS_MAX,
    LOCATION_GRID_RANGE_DEGREES, LOG_MAX_KIB_PER_MINUTE_RANGE, LogFormat, MAX_ADVERTISEMENTS_PER_GAME_SERVER_RANGE,
    MAX_LIVE_OBJECTS_PER_CLIENT_RANGE, MAX_OPEN_SILOS_RANGE, MAX_STALENESS_RANGE_S, OTLP_SAMPLE_RATIO_RANGE,
    PostgresUrl, RATING_RETENTION_RANGE_DAYS, RESERVATION_TTL_RANGE_S, RULESET_REMOVAL_GRACE_RANGE_S,
    RULESET_RETENTION_RANGE_S, RulesetSource, SHUTDOWN_GRACE_PERIOD_RANGE_S, STORE_WAIT_RANGE_S, StoreSetting,
    StoreTarget,
};
use crate::domain::locality::DEFAULT_LOCATION_GRID_DEGREES;
use crate::domain::location_privacy::DEFAULT_SESSION_GRID_DEGREES;

const BUNDLED_SCHEME: &str = "bundled:";
const MEMORY_SCHEME: &str = "memory:";
const SQLITE_SCHEME: &str = "sqlite:";
/// File name extensions of the default key files beside a SQLite file.
const DEFAULT_TOKEN_KEY_FILE_EXTENSION: &str = "token-key";
const DEFAULT_MATCH_KEY_FILE_EXTENSION: &str = "match-key.pem";
const DEFAULT_ERASURE_LOG_FILE_EXTENSION: &str = "erasures";
/// The same, beside the token keys.
const DEFAULT_USER_KEY_FILE_EXTENSION: &str = "user-key";

/// Fills in defaults and checks all values. Returns all errors. `exists` tests whether a path exists.
#[expect(clippy::too_many_lines, reason = "one step for each setting")]
pub(super) fn validate_settings(
    settings: RawSettings,
    exists: impl Fn(&Path) -> bool,
) -> Result<Config, Vec<ConfigError>> {
    let mut errors = ConfigErrors(Vec::new());
    let beacon = errors.check_own_beacon(&settings);
    let store = settings.store.as_ref().map_or("sqlite:fireteam.db", |store| store.text_with_password());
    let store = errors.parse_store(store);
    let tls = errors.require_certificate_with_key(settings.tls_certificate, settings.tls_key, settings.tls_client_ca);
    let auth =
        errors.check_auth(settings.auth_keys, settings.auth_issuer, settings.auth_audience, settings.auth_issuers);
    let rate_limits = errors.parse_rate_limits(settings.rate_limits);
    let token_key_file = settings.token_key_file.or_else(|| default_key_file(&store, DEFAULT_TOKEN_KEY_FILE_EXTENSION));
    let match_key_file = settings.match_key_file.or_else(|| default_key_file(&store, DEFAULT_MATCH_KEY_FILE_EXTENSION));
    let erasure_log_file =
        settings.erasure_log_file.or_else(|| default_key_file(&store, DEFAULT_ERASURE_LOG_FILE_EXTENSION));
    let region_places = errors.parse_region_places(settings.region_places);
    let default_user_key_file = || Some(token_key_file.as_ref()?.with_extension(DEFAULT_USER_KEY_FILE_EXTENSION));
    let user_key_file = settings.user_key_file.or_else(default_user_key_file);
    let location_grid_degrees = settings.location_grid_degrees.unwrap_or(DEFAULT_LOCATION_GRID_DEGREES);
    let session_location_grid_degrees = settings.session_location_grid_degrees.unwrap_or(DEFAULT_SESSION_GRID_DEGREES);
    let config = Config {
        listen: settings.listen.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 50051)).into()),
        operator_listen: settings.operator_listen.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 50052)).into()),
        operator_hosts: errors.check_operator_hosts(settings.operator_hosts.unwrap_or_default()),
        cors_origins: errors.check_cors_origins(settings.cors_origins.unwrap_or_default()),
        silos: errors.check_silos(settings.silos, &store),
        max_silos: errors.check_range("max_silos", settings.max_silos.unwrap_or(1_024), MAX_OPEN_SILOS_RANGE),
        max_silos_per_user: errors.check_range(
            "max_silos_per_user",
            settings.max_silos_per_user.unwrap_or(8),
            MAX_OPEN_SILOS_RANGE,
        ),
        max_advertisements_per_client: errors.check_range(
            "max_advertisements_per_client",
            settings.max_advertisements_per_client.unwrap_or(1),
            MAX_LIVE_OBJECTS_PER_CLIENT_RANGE,
        ),
        max_advertisements_per_server: errors.check_range(
            "max_advertisements_per_server",
            settings.max_advertisements_per_server.unwrap_or(1_000),
            MAX_ADVERTISEMENTS_PER_GAME_SERVER_RANGE,
        ),
        max_reservations_per_client: errors.check_range(
            "max_reservations_per_client",
            settings.max_reservations_per_client.unwrap_or(1),
            MAX_LIVE_OBJECTS_PER_CLIENT_RANGE,
        ),
        max_tickets_per_user: errors.check_range(
            "max_tickets_per_user",
            settings.max_tickets_per_user.unwrap_or(4),
            MAX_LIVE_OBJECTS_PER_CLIENT_RANGE,
        ),
        max_staleness_s: errors.check_range(
            "max_staleness_s",
            settings.max_staleness_s.unwrap_or(300),
            MAX_STALENESS_RANGE_S,
        ),
        store,
        store_wait_s: errors.check_range("store_wait_s", settings.store_wait_s.unwrap_or(30), STORE_WAIT_RANGE_S),
        rulesets: match settings.rulesets {
            Some(path) if path.as_os_str() == BUNDLED_SCHEME => RulesetSource::Bundled,
            Some(path) => RulesetSource::Directory(path),
            None if exists(Path::new("rulesets")) => RulesetSource::Directory("rulesets".into()),
            None => RulesetSource::Bundled,
        },
        geoip_db_files: settings
            .geoip_db
            .unwrap_or_else(|| Some(PathBuf::from(DEFAULT_GEOIP_DB)).filter(|file| exists(file)).into_iter().collect()),
        trusted_proxies: settings.trusted_proxies.unwrap_or_default(),
        proxy_protocol: settings.proxy_protocol.unwrap_or(false),
        tls,
        auth,
        rate_limits,
        audit_log_file: settings.audit_log_file,
        audit_log_max_mib: errors.check_range(
            "audit_log_max_mib",
            settings.audit_log_max_mib.unwrap_or(64),
            AUDIT_LOG_MAX_MIB_RANGE,
        ),
        audit_log_max_files: errors.check_range(
            "audit_log_max_files",
            settings.audit_log_max_files.unwrap_or(100),
            AUDIT_LOG_MAX_FILES_RANGE,
        ),
        token_key_file,
        match_key_file,
        user_key_file,
        erasure_log_file,
        beacon_fleet_key_file: settings.beacon_fleet_key_file,
        receipt_prefix: settings.receipt_prefix.unwrap_or_default(),
        observe_tcp: settings.observe_tcp.unwrap_or(true),
        beacon,
        rating_retention_days: settings
            .rating_retention_days
            .map(|days| errors.check_range("rating_retention_days", days, RATING_RETENTION_RANGE_DAYS)),
        pass_failure_dir: settings.pass_failure_dir,
        allow_client_locality: settings.allow_client_locality.unwrap_or(false),
        allow_search_overrides: settings.allow_search_overrides.unwrap_or(false),
        insecure_allow_plaintext: settings.insecure_allow_plaintext.unwrap_or(false),
        insecure_allow_anonymous: settings.insecure_allow_anonymous.unwrap_or(false),
        log_format: settings.log_format.unwrap_or(LogFormat::Text),
        log_level: settings.log_level.unwrap_or_else(|| "info".into()),
        log_max_kib_per_minute: errors.check_range(
            "log_max_kib_per_minute",
            settings.log_max_kib_per_minute.unwrap_or(768),
            LOG_MAX_KIB_PER_MINUTE_RANGE,
        ),
        otlp_endpoint: errors.check_otlp_endpoint(settings.otlp_endpoint),
        otlp_sample_ratio: errors.check_range(
            "otlp_sample_ratio",
            settings.otlp_sample_ratio.unwrap_or(0.01),
            OTLP_SAMPLE_RATIO_RANGE,
        ),
        disk_free_warning_mib: errors.check_range(
            "disk_free_warning_mib",
            settings.disk_free_warning_mib.unwrap_or(512),
            DISK_FREE_WARNING_RANGE_MIB,
        ),
        advertisement_ttl_s: errors.check_range(
            "advertisement_ttl_s",
            settings.advertisement_ttl_s.unwrap_or(90),
            ADVERTISEMENT_TTL_RANGE_S,
        ),
        reservation_ttl_s: errors.check_range(
            "reservation_ttl_s",
            settings.reservation_ttl_s.unwrap_or(30),
            RESERVATION_TTL_RANGE_S,
        ),
        ruleset_retention_s: errors.check_range(
            "ruleset_retention_s",
            settings.ruleset_retention_s.unwrap_or(600),
            RULESET_RETENTION_RANGE_S,
        ),
        ruleset_removal_grace_s: errors.check_range(
            "ruleset_removal_grace_s",
            settings.ruleset_removal_grace_s.unwrap_or(600),
            RULESET_REMOVAL_GRACE_RANGE_S,
        ),
        location_grid_degrees: errors.check_range(
            "location_grid_degrees",
            location_grid_degrees,
            LOCATION_GRID_RANGE_DEGREES,
        ),
        session_location_grid_degrees: errors.check_range(
            "session_location_grid_degrees",
            session_location_grid_degrees,
            LOCATION_GRID_RANGE_DEGREES,
        ),
        region_places,
        geoip_max_accuracy_radius_km: errors.check_range(
            "geoip_max_accuracy_radius_km",
            settings.geoip_max_accuracy_radius_km.unwrap_or(500.0),
            GEOIP_MAX_ACCURACY_RADIUS_RANGE_KM,
        ),
        shutdown_grace_period_s: errors.check_range(
            "shutdown_grace_period_s",
            settings.shutdown_grace_period_s.unwrap_or(10),
            SHUTDOWN_GRACE_PERIOD_RANGE_S,
        ),
    };
    errors.require_shared_key_files(&config);
    errors.check_trusted_proxies(&config);
    errors.check_proxy_protocol(&config);
    errors.check_ports_differ(&config);
    errors.check_public_addresses(&config);
    if errors.0.is_empty() { Ok(config) } else { Err(errors.0) }
}

/// Text of a store, as in the configuration.
fn store_setting(store: &StoreTarget) -> StoreSetting {
    StoreSetting::from(match store {
        StoreTarget::Memory => MEMORY_SCHEME.into(),
        StoreTarget::Sqlite(path) => format!("{SQLITE_SCHEME}{}", path.display()),
        StoreTarget::Postgres(url) => url.to_string(),
    })
}

/// Settings that produce `config`, all of them explicit.
pub(super) fn to_raw_settings(config: &Config) -> RawSettings {
    let beacon = config.beacon.as_ref();
    RawSettings {
        listen: Some(config.listen.clone()),
        operator_listen: Some(config.operator_listen.clone()),
        operator_hosts: Some(config.operator_hosts.clone()).filter(|hosts| !hosts.is_empty()),
        cors_origins: Some(config.cors_origins.clone()).filter(|origins| !origins.is_empty()),
        store: Some(store_setting(&config.store)),
        store_wait_s: Some(config.store_wait_s),
        silos: config.silos.clone(),
        max_silos: Some(config.max_silos),
        max_silos_per_user: Some(config.max_silos_per_user),
        max_advertisements_per_client: Some(config.max_advertisements_per_client),
        max_advertisements_per_server: Some(config.max_advertisements_per_server),
        max_reservations_per_client: Some(config.max_reservations_per_client),
        max_tickets_per_user: Some(config.max_tickets_per_user),
        max_staleness_s: Some(config.max_staleness_s),
        rulesets: Some(match &config.rulesets {
            RulesetSource::Bundled => BUNDLED_SCHEME.into(),
            RulesetSource::Directory(path) => path.clone(),
        }),
        geoip_db: Some(config.geoip_db_files.clone()),
        trusted_proxies: Some(config.trusted_proxies.clone()),
        tls_certificate: config.tls.as_ref().map(|tls| tls.certificate.clone()),
        tls_key: config.tls.as_ref().map(|tls| tls.key.clone()),
        tls_client_ca: config.tls.as_ref().and_then(|tls| tls.client_ca.clone()),
        proxy_protocol: Some(config.proxy_protocol),
        auth_keys: first_issuer(config).map(|issuer| issuer.keys.iter().map(VerifyingKeyFile::to_setting).collect()),
        auth_issuer: first_issuer(config).map(|issuer| issuer.name.clone()),
        auth_audience: first_issuer(config).map(|issuer| issuer.audience.clone()),
        auth_issuers: further_issuers(config),
        rate_limits: config.rate_limits.to_written_rules(),
        audit_log_file: config.audit_log_file.clone(),
        audit_log_max_mib: Some(config.audit_log_max_mib),
        audit_log_max_files: Some(config.audit_log_max_files),
        token_key_file: config.token_key_file.clone(),
        match_key_file: config.match_key_file.clone(),
        user_key_file: config.user_key_file.clone(),
        erasure_log_file: config.erasure_log_file.clone(),
        beacon_fleet_key_file: config.beacon_fleet_key_file.clone(),
        receipt_prefix: Some(config.receipt_prefix),
        observe_tcp: Some(config.observe_tcp),
        beacon_listen: beacon.map(|beacon| beacon.listen.clone()),
        beacon_id: beacon.map(|beacon| beacon.id),
        beacon_region: beacon.map(|beacon| beacon.region.clone()).filter(|region| !region.is_empty()),
        beacon_place: beacon.map(|beacon| beacon.place.to_string()),
        beacon_announce_address: beacon.map(|beacon| beacon.announce_address.to_string()),
        beacon_packets_per_second: beacon.map(|beacon| beacon.packets_per_second),
        rating_retention_days: config.rating_retention_days,
        pass_failure_dir: config.pass_failure_dir.clone(),
        allow_client_locality: Some(config.allow_client_locality),
        allow_search_overrides: Some(config.allow_search_overrides),
        insecure_allow_plaintext: Some(config.insecure_allow_plaintext),
        insecure_allow_anonymous: Some(config.insecure_allow_anonymous),
        log_format: Some(config.log_format),
        log_level: Some(config.log_level.clone()),
        log_max_kib_per_minute: Some(config.log_max_kib_per_minute),
        otlp_endpoint: config.otlp_endpoint.clone(),
        otlp_sample_ratio: Some(config.otlp_sample_ratio),
        disk_free_warning_mib: Some(config.disk_free_warning_mib),
        advertisement_ttl_s: Some(config.advertisement_ttl_s),
        reservation_ttl_s: Some(config.reservation_ttl_s),
        ruleset_retention_s: Some(config.ruleset_retention_s),
        ruleset_removal_grace_s: Some(config.ruleset_removal_grace_s),
        location_grid_degrees: Some(config.location_grid_degrees),
        session_location_grid_degrees: Some(config.session_location_grid_degrees),
        region_places: Some(config.region_places.iter().map(ToString::to_string).collect())
            .filter(|places: &Vec<String>| !places.is_empty()),
        geoip_max_accuracy_radius_km: Some(config.geoip_max_accuracy_radius_km),
        shutdown_grace_period_s: Some(config.shutdown_grace_period_s),
    }
}

fn first_issuer(config: &Config) -> Option<&TokenIssuer> {
    config.auth.as_ref().and_then(|auth| auth.issuers.first())
}

/// `auth_issuers`, one entry per key file; `None` if there is one issuer.
fn further_issuers(config: &Config) -> Option<Vec<String>> {
    let further = config.auth.as_ref()?.issuers.get(1..)?;
    let entries = further.iter().flat_map(|issuer| {
        let entry =
            |keys: &VerifyingKeyFile| format!("{} {} {}", issuer.name, issuer.audience, keys.to_setting().display());
        issuer.keys.iter().map(entry)
    });
    Some(entries.collect::<Vec<_>>()).filter(|entries| !entries.is_empty())
}

/// Scheme of a URL with a mistake, before `:`; `None` if it does not look like one.
fn scheme_of(text: &str) -> Option<&str> {
    let (scheme, rest) = text.split_once(':')?;
    let is_word = (1..=16).contains(&scheme.len()) && scheme.bytes().all(|byte| byte.is_ascii_alphabetic());
    (is_word && rest.starts_with('/')).then_some(scheme)
}

/// Default key file, or erasure log, of a SQLite store: `fireteam.token-key` beside `fireteam.db`, never inside it.
fn default_key_file(store: &StoreTarget, ending: &str) -> Option<PathBuf> {
    match store {
        StoreTarget::Memory | StoreTarget::Postgres(_) => None,
        StoreTarget::Sqlite(path) => Some(path.with_extension(ending)),
    }
}

/// Configuration errors collected so far.
pub(super) struct ConfigErrors(pub(super) Vec<ConfigError>);

impl ConfigErrors {
    pub(super) fn add_invalid_value(&mut self, key: &'static str, message: String) {
        self.0.push(ConfigError::InvalidValue { key, message });
    }

    /// Parses a store URL. After reporting an error it returns `Memory`.
    fn parse_store(&mut self, text: &str) -> StoreTarget {
        match text.strip_prefix(SQLITE_SCHEME) {
            Some(path) if !path.is_empty() => return StoreTarget::Sqlite(path.into()),
            Some(_) | None if text == MEMORY_SCHEME => {}
            Some(_) | None => match PostgresUrl::parse(text) {
                Some(url) => return StoreTarget::Postgres(url),
                None => {
                    // The text may contain a password.
                    let start =
                        scheme_of(text).map(|scheme| format!(" that begins with `{scheme}:`")).unwrap_or_default();
                    let message =
                        format!("the text{start} is not a store; use sqlite:PATH, postgres://HOST/DATABASE or memory:");
                    self.add_invalid_value("store", message);
                }
            },
        }
        StoreTarget::Memory
    }

    /// Checks `silos`. Requires a shared store: a server with its own store must hold all silos, or requests for the
    /// others fail.
    fn check_silos(&mut self, silos: Option<Vec<u64>>, store: &StoreTarget) -> Option<Vec<u64>> {
        match &silos {
            Some(silos) if silos.is_empty() || silos.len() > LISTED_SILOS_MAX => {
                self.add_invalid_value(
                    "silos",
                    format!(
                        "{} silos are listed; name 1 to {LISTED_SILOS_MAX}, or omit the setting to serve all",
                        silos.len()
                    ),
                );
            }
            Some(_) if !matches!(store, StoreTarget::Postgres(_)) => {
                self.add_invalid_value(
                    "silos",
                    "only valid with a postgres: store; remove it, or use a shared store".into(),
                );
            }
            _ => {}
        }
        silos
    }

    /// Requires explicit key files for a shared store. Each server must accept tokens signed by any other server, and
    /// by itself before a restart. One key set must verify all credentials for game servers.
    fn require_shared_key_files(&mut self, config: &Config) {
        if !matches!(config.store, StoreTarget::Postgres(_)) {
            return;
        }
        let files = [("token_key_file", &config.token_key_file), ("match_key_file", &config.match_key_file)];
        for (key, _) in files.into_iter().filter(|(_, file)| file.is_none()) {
            let message = "required with a postgres: store; name a file with the same content on all servers";
            self.add_invalid_value(key, message.into());
        }
    }

    /// Checks that `value` is in `range` and returns it. NaN is in no range.
    fn check_range<N: PartialOrd + Display>(&mut self, key: &'static str, value: N, range: RangeInclusive<N>) -> N {
        if !range.contains(&value) {
            self.add_invalid_value(key, format!("{value} is out of range; use {} to {}", range.start(), range.end()));
        }
        value
    }

    /// Checks that the address of a collector is `http://HOST:PORT`.
    fn check_otlp_endpoint(&mut self, endpoint: Option<String>) -> Option<String> {
        let is_valid = |text: &str| {
            let Ok(url) = text.parse::<Uri>() else { return false };
            let has_host = url.authority().is_some_and(|it| !it.host().is_empty() && !it.as_str().contains('@'));
            let has_port = url.port_u16().is_some_and(|port| port != 0);
            url.scheme() == Some(&Scheme::HTTP) && has_host && has_port && url.path() == "/" && url.query().is_none()
        };
        if endpoint.as_deref().is_some_and(|text| !is_valid(text)) {
            let message = "not the address of a collector; use http://HOST:PORT, such as http://127.0.0.1:4317";
            self.add_invalid_value("otlp_endpoint", message.to_owned());
        }
        endpoint
    }

    /// Checks that the two ports differ. Port 0 means any free port.
    fn check_ports_differ(&mut self, config: &Config) {
        if config.listen.shares_address_with(&config.operator_listen) {
            let message = format!("{} is also the client address; use another port", config.listen);
            self.add_invalid_value("operator_listen", message);
        }
    }
}
