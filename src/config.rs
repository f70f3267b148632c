//! Server configuration: defaults, units and bounds; merged from a TOML file, `FIRETEAM_*` variables and flags.
//!
//! Flags override variables, variables override the file, the file overrides defaults. All invalid values are reported
//! at once, before anything is opened. A `Config` that exists is valid.

mod listen_address;
mod postgres_url;
mod rate_limits;
pub mod raw;
mod security;
mod validate;

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use thiserror::Error;

use raw::{RawSettings, ServeFlags};

pub use listen_address::ListenAddress;
pub use postgres_url::PostgresUrl;
pub use rate_limits::{AllowedRate, DEFAULT_RATE_LIMITS, RateLimitRule, RateLimitRules};
pub use security::{JwtSettings, TlsFiles};

/// Advertisement TTL, seconds: short enough to notice a crash, long enough for a heartbeat.
pub const ADVERTISEMENT_TTL_S: RangeInclusive<u32> = 5..=600;
/// Reservation TTL, seconds: time for a party to join.
pub const RESERVATION_TTL_S: RangeInclusive<u32> = 1..=120;
/// Time for which a replaced ruleset can be found by its hash, seconds.
pub const RULESET_RETENTION_S: RangeInclusive<u32> = 0..=86_400;
/// Shutdown grace period, seconds. Kubernetes kills after 30.
pub const SHUTDOWN_GRACE_PERIOD_S: RangeInclusive<u32> = 1..=25;
/// Store outage after which the server reports not ready, seconds.
pub const MAX_STALENESS_S: RangeInclusive<u32> = 1..=3_600;
/// Maximum number of silos to name; serve all for more.
pub const SILOS_MAX: usize = 256;
/// Grid size for rounding locations, degrees. A cell of more than 10 degrees covers a continent.
pub const LOCATION_GRID_DEGREES: RangeInclusive<f64> = 0.0..=10.0;
/// Maximum accuracy radius of a geolocation record, kilometers; at most half the circumference of the Earth.
pub const GEOIP_MAX_ACCURACY_RADIUS_KM: RangeInclusive<f64> = 0.0..=20_040.0;

/// Default geolocation file if it exists: the sample that the README's tour needs.
pub const DEFAULT_GEOIP_DB: &str = "data/dbip-tour.mmdb";

/// Server configuration. A value that exists is valid.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Address of the client port.
    pub listen: ListenAddress,
    /// Address of the operator port: metrics, health and the operator service.
    pub operator_listen: ListenAddress,
    /// Database.
    pub store: StoreTarget,
    /// Silos to load and serve; `None` for all.
    pub silos: Option<Vec<u64>>,
    /// Store outage after which the server reports not ready, seconds, in `MAX_STALENESS_S`.
    pub max_staleness_s: u32,
    /// Source of rulesets.
    pub rulesets: RulesetSource,
    /// Geolocation files in MaxMind format, searched in order. Empty: addresses have no location.
    pub geoip_db_files: Vec<PathBuf>,
    /// Networks whose `x-forwarded-for` is trusted.
    pub trusted_proxies: Vec<IpNet>,
    /// Whether the client port requires the PROXY protocol, from `trusted_proxies` only.
    pub proxy_protocol: bool,
    /// TLS files; `None` for plaintext.
    pub tls: Option<TlsFiles>,
    /// JWT verification. `None`: callers authenticate by a client certificate that `tls` verifies, or are anonymous.
    pub auth: Option<JwtSettings>,
    /// Rate limits of callers.
    pub rate_limits: RateLimitRules,
    /// Audit log of operator actions; `None` to write them to the log only.
    pub audit_log_file: Option<PathBuf>,
    /// File with the token keys. `None` with the memory store: a key is generated at startup and lost at shutdown.
    pub token_key_file: Option<PathBuf>,
    /// File with the keys that sign players' credentials for game servers. `None` with the memory store, as for
    /// `token_key_file`.
    pub match_key_file: Option<PathBuf>,
    /// Whether to use a client's own locality if its address has none.
    pub allow_client_locality: bool,
    /// Whether searches may override rules; for development.
    pub allow_search_overrides: bool,
    /// Whether to allow plaintext on public addresses.
    pub insecure_allow_plaintext: bool,
    /// Whether to allow anonymous callers on public addresses.
    pub insecure_allow_anonymous: bool,
    /// Format of log lines.
    pub log_format: LogFormat,
    /// Log level or filter directives.
    pub log_level: String,
    /// Default advertisement TTL, seconds, in `ADVERTISEMENT_TTL_S`. Clients may request any TTL in that range.
    pub advertisement_ttl_s: u32,
    /// Default reservation TTL, seconds, in `RESERVATION_TTL_S`. Callers may request any TTL in that range.
    pub reservation_ttl_s: u32,
    /// Time for which a replaced ruleset can be found by its hash, seconds.
    pub ruleset_retention_s: u32,
    /// Grid size for rounding locations, degrees; 0 for no rounding.
    pub location_grid_degrees: f64,
    /// Grid size for rounding the locations of advertised sessions, degrees; 0 to use `location_grid_degrees`.
    pub session_location_grid_degrees: f64,
    /// Maximum accuracy radius, kilometers; less accurate locations are ignored.
    pub geoip_max_accuracy_radius_km: f64,
    /// Shutdown grace period, seconds.
    pub shutdown_grace_period_s: u32,
}

/// Database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreTarget {
    /// `memory:`: lost at shutdown.
    Memory,
    /// `sqlite:PATH`: one file.
    Sqlite(PathBuf),
    /// `postgres://…`: a database shared by several servers.
    Postgres(PostgresUrl),
}

/// Source of rulesets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RulesetSource {
    /// Directory, watched for changes.
    Directory(PathBuf),
    /// `bundled:`: the bundled rulesets.
    Bundled,
}

/// Format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Text for people.
    Text,
    /// JSON: one object per line.
    Json,
}

/// Invalid configuration. Each message says how to fix it.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: cannot be read: {error}; check the path and its permissions", file.display())]
    UnreadableFile {
        /// File.
        file: PathBuf,
        /// I/O error.
        error: std::io::Error,
    },
    /// The file is not TOML, or a value has the wrong type.
    #[error("{}: {message}", file.display())]
    InvalidToml {
        /// File.
        file: PathBuf,
        /// Position and problem.
        message: String,
    },
    /// Unknown key.
    #[error("{origin}: unknown key `{key}`; {}", unknown_key_fix(suggestion.as_deref()))]
    UnknownKey {
        /// The file, or `environment`.
        origin: String,
        /// Key as written.
        key: String,
        /// Closest known key, if any.
        suggestion: Option<String>,
    },
    /// Invalid value.
    #[error("{key}: {message}")]
    InvalidValue {
        /// Setting.
        key: &'static str,
        /// Problem and fix.
        message: String,
    },
    /// Public address without TLS or authentication.
    #[error(
        "{key} = {address} can be reached from outside, and calls are not {}; or use a loopback address such as 127.0.0.1",
        missing.join(", and not ")
    )]
    InsecurePublicAddress {
        /// `listen` or `operator_listen`.
        key: &'static str,
        /// Address.
        address: ListenAddress,
        /// Missing protections, each with the flags that add it.
        missing: Vec<&'static str>,
    },
}

fn unknown_key_fix(suggestion: Option<&str>) -> String {
    suggestion.map_or("remove it".into(), |name| format!("did you mean `{name}`?"))
}

impl Config {
    /// Merges `flags`, which already include the variables, with the file that they name, and validates the result.
    /// `variables` are the names of all environment variables; unknown `FIRETEAM_*` names are errors.
    pub fn load(flags: ServeFlags, variables: impl Iterator<Item = String>) -> Result<Self, Vec<ConfigError>> {
        let mut errors = raw::unknown_variable_errors(variables);
        let from_file = match &flags.config {
            Some(file) => {
                raw::read_toml_file(file).map_err(|file_errors| errors.extend(file_errors)).unwrap_or_default()
            }
            None => RawSettings::default(),
        };
        match validate::validate_settings(flags.settings.with_fallback(from_file), Path::exists) {
            Ok(config) if errors.is_empty() => Ok(config),
            Ok(_) => Err(errors),
            Err(setting_errors) => {
                errors.extend(setting_errors);
                Err(errors)
            }
        }
    }

    /// Configuration from the text of a TOML file only. `name` is the file name in errors.
    pub fn from_toml(name: &Path, text: &str) -> Result<Self, Vec<ConfigError>> {
        validate::validate_settings(raw::parse_toml(name, text)?, Path::exists)
    }

    /// Complete configuration as TOML. It loads as the same configuration, except for a password in the store URL. It
    /// contains no secrets: keys are in separate files.
    ///
    /// Fails for a path that is not UTF-8.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(&validate::to_raw_settings(self))
    }
}

#[cfg(test)]
mod tests;
