//! How the server is set up: a TOML file, FIRETEAM_* variables and flags go in, one checked configuration comes out.
//!
//! Flags beat variables, variables beat the file, the file beats the defaults. Whatever cannot be right is said at once
//! and all together, before anything is opened; a configuration that exists is valid.

mod postgres_url;
mod rate_limits;
pub mod raw;
mod security;
mod validate;

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use thiserror::Error;

use raw::{RawSettings, ServeFlags};

pub use postgres_url::PostgresUrl;
pub use rate_limits::{AllowedRate, DEFAULT_RATE_LIMITS as QUOTA_DEFAULTS, RateLimitRule, RateLimitRules};
pub use security::{JwtSettings, TlsFiles};

/// How long an advertisement may be believed, seconds: short enough to notice a crash, long enough for a heartbeat.
pub const ADVERTISEMENT_TTL_S: RangeInclusive<u32> = 5..=600;
/// How long seats may be held for a party that has not come, seconds.
pub const RESERVATION_TTL_S: RangeInclusive<u32> = 1..=120;
/// How long a ruleset that was replaced may stay resolvable, seconds (S1-37).
pub const RULESET_RETENTION_S: RangeInclusive<u32> = 0..=86_400;
/// How long a shutdown may take, seconds; Kubernetes kills after 30.
pub const SHUTDOWN_GRACE_PERIOD_S: RangeInclusive<u32> = 1..=25;
/// How long the store may be out of reach before the server says that it is not ready, seconds.
pub const MAX_STALENESS_S: RangeInclusive<u32> = 1..=3_600;
/// Silos that a server can be told to serve; more are better served as all.
pub const SILOS_MAX: usize = 256;
/// A grid that places are snapped to, degrees. Beyond ten a cell is a continent.
pub const LOCATION_GRID_DEGREES: RangeInclusive<f64> = 0.0..=10.0;
/// The doubt about a place that is put up with, kilometres; half of Earth's girth at most.
pub const GEOIP_MAX_ACCURACY_RADIUS_KM: RangeInclusive<f64> = 0.0..=20_040.0;

/// Used for locality when nothing else is named and it is there: the piece of data that the tour needs.
pub const DEFAULT_GEOIP_DB: &str = "data/dbip-tour.mmdb";

/// Everything the server needs to know before it starts.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where players' calls come in.
    pub listen: SocketAddr,
    /// Where operators look in: metrics, health, the operator's service.
    pub operator_listen: SocketAddr,
    /// Where advertisements are kept.
    pub store: StoreTarget,
    /// The populations that are loaded and served; none for all.
    pub silos: Option<Vec<u64>>,
    /// How long the store may be out of reach before the server says that it is not ready, seconds.
    pub max_staleness_s: u32,
    /// Where the rules come from.
    pub rulesets: RulesetSource,
    /// MaxMind-format files, asked in order. Empty: nobody has a locality from an address.
    pub geoip_db_files: Vec<PathBuf>,
    /// Networks whose `x-forwarded-for` is believed.
    pub trusted_proxies: Vec<IpNet>,
    /// The client port takes connections that begin with the PROXY protocol alone, from `trusted_proxies`.
    pub proxy_protocol: bool,
    /// How connections are encrypted; none: they are not.
    pub tls: Option<TlsFiles>,
    /// Who vouches for callers; none: whoever has a certificate that `tls` knows, or else everyone is anonymous.
    pub auth: Option<JwtSettings>,
    /// How often callers may ask.
    pub quotas: RateLimitRules,
    /// Where what operators do is written down; none: in the log alone.
    pub audit_file: Option<PathBuf>,
    /// Where the token keys are; none with the memory store: a key is drawn at the start and dies with it.
    pub token_key_file: Option<PathBuf>,
    /// Where the keys are that sign players' credentials for game servers; none with the memory store, as above.
    pub match_key_file: Option<PathBuf>,
    /// Whether a locality that a client states is believed where its address gives none (B-37).
    pub allow_client_locality: bool,
    /// Whether searches may override the rules, for developers (S1-12).
    pub allow_search_overrides: bool,
    /// Plaintext on addresses that others can reach.
    pub insecure_allow_plaintext: bool,
    /// Anonymous callers on addresses that others can reach.
    pub insecure_allow_anonymous: bool,
    /// How log lines look.
    pub log_format: LogFormat,
    /// What is logged: a level or directives.
    pub log_level: String,
    /// How long an advertisement is believed that does not say, seconds, in `TIME_TO_LIVE_S`. Clients may ask for any in
    /// that range.
    pub time_to_live_s: u32,
    /// How long seats are held when the caller does not say, seconds, in `RESERVATION_HOLD_S`. Callers may ask for any in
    /// that range.
    pub reservation_hold_s: u32,
    /// How long a ruleset that was replaced stays resolvable, seconds.
    pub keep_retired_rulesets_s: u32,
    /// The grid that places are snapped to, degrees; 0 for none.
    pub cell_degrees: f64,
    /// The grid that the places of advertised sessions are snapped to, degrees; 0 for that of `cell_degrees`.
    pub session_cell_degrees: f64,
    /// A place that its file doubts by more than this is unknown, kilometres.
    pub max_accuracy_radius_km: f64,
    /// How long a shutdown may take, seconds.
    pub shutdown_deadline_s: u32,
}

/// Where advertisements are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreTarget {
    /// `memory:`: gone with the process.
    Memory,
    /// `sqlite:PATH`: one file.
    Sqlite(PathBuf),
    /// `postgres://…`: a database that several servers share.
    Postgres(PostgresUrl),
}

/// Where the rules come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RulesetSource {
    /// A directory, watched.
    Directory(PathBuf),
    /// `bundled:`: those that the program carries.
    Bundled,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// For machines: one object a line.
    Json,
}

/// Something in the configuration that cannot be right. Each message says what would be.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: cannot be read: {why}", file.display())]
    UnreadableFile {
        /// Which file.
        file: PathBuf,
        /// What the system said.
        #[source]
        why: std::io::Error,
    },
    /// The file is no TOML, or a value in it is of the wrong type.
    #[error("{}: {what}", file.display())]
    InvalidToml {
        /// Which file.
        file: PathBuf,
        /// Where and what.
        what: String,
    },
    /// A key that means nothing.
    #[error("{origin}: unknown key `{key}`{}", suggestion.as_ref().map(|it| format!(", did you mean `{it}`?")).unwrap_or_default())]
    UnknownKey {
        /// The file, or `environment`.
        origin: String,
        /// As written.
        key: String,
        /// The nearest that means something.
        suggestion: Option<String>,
    },
    /// A value that cannot be used.
    #[error("{key}: {what}")]
    InvalidValue {
        /// Which setting.
        key: &'static str,
        /// What is wrong and what would be right.
        what: String,
    },
    /// An address that others can reach, without what keeps strangers out.
    #[error(
        "{key} = {address} can be reached from outside, and calls are not {}: use a loopback address such as 127.0.0.1",
        missing.join(", and not ")
    )]
    InsecurePublicAddress {
        /// `listen` or `operator_listen`.
        key: &'static str,
        /// The address.
        address: SocketAddr,
        /// What is missing, each with the flags that would mend it.
        missing: Vec<&'static str>,
    },
}

impl Config {
    /// The configuration that `flags`, which the variables have already filled in, and the file that they name make.
    /// `variables` are the names of all variables of the environment: those that look like ours and are none are errors.
    pub fn load(flags: ServeFlags, variables: impl Iterator<Item = String>) -> Result<Self, Vec<ConfigError>> {
        let mut problems = raw::unknown_variable_errors(variables);
        let from_file = match &flags.config {
            Some(file) => raw::read_toml_file(file).map_err(|why| problems.extend(why)).unwrap_or_default(),
            None => RawSettings::default(),
        };
        match validate::validate_settings(flags.settings.with_fallback(from_file), Path::exists) {
            Ok(config) if problems.is_empty() => Ok(config),
            Ok(_) => Err(problems),
            Err(more) => {
                problems.extend(more);
                Err(problems)
            }
        }
    }

    /// The configuration that a file of this text makes by itself; problems call it `name`.
    pub fn from_toml(name: &Path, text: &str) -> Result<Self, Vec<ConfigError>> {
        validate::validate_settings(raw::parse_toml(name, text)?, Path::exists)
    }

    /// The whole configuration as TOML that loads again as the same one, but for a password in the store's URL. It holds no
    /// secret: keys are in files of their own, and only those files' names are here.
    /// Fails for a path that is not UTF-8, which TOML cannot hold.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(&validate::to_raw_settings(self))
    }
}

#[cfg(test)]
mod tests;
