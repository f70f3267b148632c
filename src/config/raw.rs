//! Settings as people write them: in a file, in the environment, on the command line. Nothing here is checked yet.
//!
//! One struct serves all three, so a setting has one name: `--time-to-live-s`, `FIRETEAM_TIME_TO_LIVE_S` and
//! `time_to_live_s` are the same. The lists of known keys and variables are read off the flags.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::{Arg, Args, Command};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::config::{ConfigError, LogFormat};
use crate::domain::ruleset::spelling::closest_name;

/// Bytes in a configuration file at most.
const CONFIG_FILE_BYTES_MAX: u64 = 64 * 1024;
/// Variables with our prefix that others set. Kubernetes gives every pod the addresses of a service called `fireteam`;
/// `FIRETEAM_SHARED_DATA` tells the tests where measured data is.
const IGNORED_VARIABLE_PREFIXES: [&str; 3] = ["FIRETEAM_SERVICE_", "FIRETEAM_PORT", "FIRETEAM_SHARED_DATA"];

/// What `serve` takes.
#[derive(Clone, Debug, Default, Args)]
pub struct ServeFlags {
    /// Read settings from this TOML file; keys are the flags' names with `_` for `-`.
    #[arg(long, env = "FIRETEAM_CONFIG", value_name = "FILE.toml")]
    pub config: Option<PathBuf>,
    /// Print the settings in effect, as TOML, and exit.
    #[arg(long)]
    pub print_config: bool,
    /// All else.
    #[command(flatten)]
    pub settings: RawSettings,
}

/// Every setting, each absent when not given.
#[derive(Clone, Debug, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawSettings {
    /// Where players' calls come in [default: 127.0.0.1:50051].
    #[arg(long, env = "FIRETEAM_LISTEN", value_name = "ADDRESS")]
    pub listen: Option<SocketAddr>,
    /// Where operators look in [default: 127.0.0.1:50052].
    #[arg(long, env = "FIRETEAM_OPERATOR_LISTEN", value_name = "ADDRESS")]
    pub operator_listen: Option<SocketAddr>,
    /// Where advertisements are kept: `sqlite:PATH`, `postgres://…` for several servers, or `memory:` [default: sqlite:fireteam.db].
    #[arg(long, env = "FIRETEAM_STORE", value_name = "STORE")]
    pub store: Option<String>,
    /// Load and serve these silos alone; with a `postgres:` store [default: all].
    #[arg(long, env = "FIRETEAM_SILOS", value_name = "ID", num_args = 1.., value_delimiter = ',')]
    pub silos: Option<Vec<u64>>,
    /// Be out of service when the store has been out of reach for so long, seconds, 1 to 3600 [default: 300].
    #[arg(long, env = "FIRETEAM_MAX_STALENESS_S", value_name = "SECONDS")]
    pub max_staleness_s: Option<u32>,
    /// A directory of rulesets, watched, or `bundled:` [default: `rulesets` where it exists, else `bundled:`].
    #[arg(long, env = "FIRETEAM_RULESETS", value_name = "DIR")]
    pub rulesets: Option<PathBuf>,
    /// MaxMind-format city files, asked in order [default: data/dbip-tour.mmdb where it exists].
    #[arg(long, env = "FIRETEAM_LOCALITY_DB", value_name = "FILE", num_args = 1.., value_delimiter = ',')]
    pub locality_db: Option<Vec<PathBuf>>,
    /// Networks whose `x-forwarded-for` is believed [default: none].
    #[arg(long, env = "FIRETEAM_TRUSTED_PROXIES", value_name = "CIDR", num_args = 1.., value_delimiter = ',')]
    pub trusted_proxies: Option<Vec<IpNet>>,
    /// Certificate chain of the server, PEM; both ports then speak TLS alone [default: none, plaintext].
    #[arg(long, env = "FIRETEAM_TLS_CERTIFICATE", value_name = "FILE")]
    pub tls_certificate: Option<PathBuf>,
    /// The certificate's private key, PEM.
    #[arg(long, env = "FIRETEAM_TLS_KEY", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// Certificates whose holders may sign clients' certificates, PEM; a client's certificate is then its identity [default: none].
    #[arg(long, env = "FIRETEAM_TLS_CLIENT_CA", value_name = "FILE")]
    pub tls_client_ca: Option<PathBuf>,
    /// Require the PROXY protocol on the client port, from trusted proxies alone.
    #[arg(long, env = "FIRETEAM_PROXY_PROTOCOL", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub proxy_protocol: Option<bool>,
    /// Public keys of whoever signs callers' tokens, PEM or JWKS; every call then needs an identity [default: none, anonymous].
    #[arg(long, env = "FIRETEAM_AUTH_KEYS", value_name = "FILE", num_args = 1.., value_delimiter = ',')]
    pub auth_keys: Option<Vec<PathBuf>>,
    /// What tokens must say of who signed them: their `iss`.
    #[arg(long, env = "FIRETEAM_AUTH_ISSUER", value_name = "TEXT")]
    pub auth_issuer: Option<String>,
    /// What tokens must say of whom they are for: their `aud` [default: fireteam].
    #[arg(long, env = "FIRETEAM_AUTH_AUDIENCE", value_name = "TEXT")]
    pub auth_audience: Option<String>,
    /// How often callers may ask: `ROLE.CHARGE=PER_SECOND/BURST/PER_5_MIN` or `ROLE.stream=AT_ONCE` for each that is not
    /// to be as it is, or `off` [default: docs/OPERATING.md has the table; off for anonymous callers on loopback].
    #[arg(long, env = "FIRETEAM_QUOTAS", value_name = "QUOTA", num_args = 1.., value_delimiter = ',')]
    pub quotas: Option<Vec<String>>,
    /// Append to this file what operators do and what they are refused, one JSON object a line [default: the log alone].
    #[arg(long, env = "FIRETEAM_AUDIT_FILE", value_name = "FILE")]
    pub audit_file: Option<PathBuf>,
    /// Where the keys are that sign tokens; made when absent [default: beside the SQLite file; required with `postgres:`, the same on every server].
    #[arg(long, env = "FIRETEAM_TOKEN_KEY_FILE", value_name = "FILE")]
    pub token_key_file: Option<PathBuf>,
    /// Where the keys are that sign players' credentials for game servers, PEM; made when absent [default: beside the SQLite file; required with `postgres:`, the same on every server].
    #[arg(long, env = "FIRETEAM_MATCH_KEY_FILE", value_name = "FILE")]
    pub match_key_file: Option<PathBuf>,
    /// Believe a client's own locality where its address gives none.
    #[arg(long, env = "FIRETEAM_ALLOW_CLIENT_LOCALITY", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub allow_client_locality: Option<bool>,
    /// Let searches override the rules; for development.
    #[arg(long, env = "FIRETEAM_ALLOW_SEARCH_OVERRIDES", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub allow_search_overrides: Option<bool>,
    /// Serve plaintext on addresses that others can reach.
    #[arg(long, env = "FIRETEAM_INSECURE_ALLOW_PLAINTEXT", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub insecure_allow_plaintext: Option<bool>,
    /// Serve anonymous callers on addresses that others can reach.
    #[arg(long, env = "FIRETEAM_INSECURE_ALLOW_ANONYMOUS", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub insecure_allow_anonymous: Option<bool>,
    /// How log lines look [default: text].
    #[arg(long, env = "FIRETEAM_LOG_FORMAT", value_name = "FORMAT", value_enum)]
    pub log_format: Option<LogFormat>,
    /// What is logged: error, warn, info, debug, trace, or directives [default: info].
    #[arg(long, env = "FIRETEAM_LOG_LEVEL", value_name = "LEVEL")]
    pub log_level: Option<String>,
    /// How long an advertisement is believed that does not say, seconds, 5 to 600 [default: 90].
    #[arg(long, env = "FIRETEAM_TIME_TO_LIVE_S", value_name = "SECONDS")]
    pub time_to_live_s: Option<u32>,
    /// How long seats are held when nobody says, seconds, 1 to 120 [default: 30].
    #[arg(long, env = "FIRETEAM_RESERVATION_HOLD_S", value_name = "SECONDS")]
    pub reservation_hold_s: Option<u32>,
    /// How long a replaced ruleset stays resolvable, seconds [default: 600].
    #[arg(long, env = "FIRETEAM_KEEP_RETIRED_RULESETS_S", value_name = "SECONDS")]
    pub keep_retired_rulesets_s: Option<u32>,
    /// Snap places to a grid of this size, degrees; 0 for none [default: 1].
    #[arg(long, env = "FIRETEAM_CELL_DEGREES", value_name = "DEGREES")]
    pub cell_degrees: Option<f64>,
    /// Let others find sessions by places on a grid of this size, degrees, so that nobody can find out where a player is; 0
    /// for that of --cell-degrees [default: 3].
    #[arg(long, env = "FIRETEAM_SESSION_CELL_DEGREES", value_name = "DEGREES")]
    pub session_cell_degrees: Option<f64>,
    /// Treat places that their file doubts by more than this as unknown, kilometres [default: 500].
    #[arg(long, env = "FIRETEAM_MAX_ACCURACY_RADIUS_KM", value_name = "KM")]
    pub max_accuracy_radius_km: Option<f64>,
    /// How long a shutdown may take, seconds, 1 to 25 [default: 10].
    #[arg(long, env = "FIRETEAM_SHUTDOWN_DEADLINE_S", value_name = "SECONDS")]
    pub shutdown_deadline_s: Option<u32>,
}

/// What clients and examples show; a shell that has it set may start a server too.
const CLIENT_TOKEN_VARIABLE: &str = "FIRETEAM_TOKEN";

impl RawSettings {
    /// These settings, and where they say nothing, those of `under`.
    pub fn with_fallback(self, under: RawSettings) -> RawSettings {
        RawSettings {
            listen: self.listen.or(under.listen),
            operator_listen: self.operator_listen.or(under.operator_listen),
            store: self.store.or(under.store),
            silos: self.silos.or(under.silos),
            max_staleness_s: self.max_staleness_s.or(under.max_staleness_s),
            rulesets: self.rulesets.or(under.rulesets),
            locality_db: self.locality_db.or(under.locality_db),
            trusted_proxies: self.trusted_proxies.or(under.trusted_proxies),
            tls_certificate: self.tls_certificate.or(under.tls_certificate),
            tls_key: self.tls_key.or(under.tls_key),
            tls_client_ca: self.tls_client_ca.or(under.tls_client_ca),
            proxy_protocol: self.proxy_protocol.or(under.proxy_protocol),
            auth_keys: self.auth_keys.or(under.auth_keys),
            auth_issuer: self.auth_issuer.or(under.auth_issuer),
            auth_audience: self.auth_audience.or(under.auth_audience),
            quotas: self.quotas.or(under.quotas),
            audit_file: self.audit_file.or(under.audit_file),
            token_key_file: self.token_key_file.or(under.token_key_file),
            match_key_file: self.match_key_file.or(under.match_key_file),
            allow_client_locality: self.allow_client_locality.or(under.allow_client_locality),
            allow_search_overrides: self.allow_search_overrides.or(under.allow_search_overrides),
            insecure_allow_plaintext: self.insecure_allow_plaintext.or(under.insecure_allow_plaintext),
            insecure_allow_anonymous: self.insecure_allow_anonymous.or(under.insecure_allow_anonymous),
            log_format: self.log_format.or(under.log_format),
            log_level: self.log_level.or(under.log_level),
            time_to_live_s: self.time_to_live_s.or(under.time_to_live_s),
            reservation_hold_s: self.reservation_hold_s.or(under.reservation_hold_s),
            keep_retired_rulesets_s: self.keep_retired_rulesets_s.or(under.keep_retired_rulesets_s),
            cell_degrees: self.cell_degrees.or(under.cell_degrees),
            session_cell_degrees: self.session_cell_degrees.or(under.session_cell_degrees),
            max_accuracy_radius_km: self.max_accuracy_radius_km.or(under.max_accuracy_radius_km),
            shutdown_deadline_s: self.shutdown_deadline_s.or(under.shutdown_deadline_s),
        }
    }
}

/// The settings of a TOML file; every unknown key at once.
pub(super) fn read_toml_file(file: &Path) -> Result<RawSettings, Vec<ConfigError>> {
    let unreadable = |why| vec![ConfigError::UnreadableFile { file: file.into(), why }];
    let syntax = |what: String| vec![ConfigError::InvalidToml { file: file.into(), what }];
    if CONFIG_FILE_BYTES_MAX < std::fs::metadata(file).map_err(unreadable)?.len() {
        return Err(syntax(format!("larger than {CONFIG_FILE_BYTES_MAX} bytes")));
    }
    parse_toml(file, &std::fs::read_to_string(file).map_err(unreadable)?)
}

/// The settings that a file of this text has.
pub(super) fn parse_toml(file: &Path, text: &str) -> Result<RawSettings, Vec<ConfigError>> {
    let syntax = |what: String| vec![ConfigError::InvalidToml { file: file.into(), what }];
    let table: toml::Table = text.parse().map_err(|why: toml::de::Error| syntax(why.to_string()))?;
    let known: Vec<String> =
        RawSettings::augment_args(Command::new("")).get_arguments().map(|it| it.get_id().to_string()).collect();
    let unknown: Vec<ConfigError> = table
        .keys()
        .filter(|key| !known.contains(key))
        .map(|key| unknown_key_error(file.display().to_string(), key, &known))
        .collect();
    if !unknown.is_empty() {
        return Err(unknown);
    }
    toml::from_str(text).map_err(|why| syntax(why.to_string()))
}

/// Every variable that begins like ours and is none.
pub(super) fn unknown_variable_errors(variables: impl Iterator<Item = String>) -> Vec<ConfigError> {
    let command = ServeFlags::augment_args(Command::new(""));
    let name = |argument: &Arg| argument.get_env().and_then(|it| it.to_str()).map(str::to_owned);
    let known: Vec<String> = command.get_arguments().filter_map(name).collect();
    variables
        .filter(|it| it.starts_with("FIRETEAM_") && it != CLIENT_TOKEN_VARIABLE && !known.contains(it))
        .filter(|it| !IGNORED_VARIABLE_PREFIXES.iter().any(|foreign| it.starts_with(foreign)))
        .map(|it| unknown_key_error("environment".into(), &it, &known))
        .collect()
}

/// Suggests the nearest known key if it is near enough to be meant.
fn unknown_key_error(origin: String, key: &str, known: &[String]) -> ConfigError {
    let suggestion = closest_name(key, known.iter().map(String::as_str)).map(str::to_owned);
    ConfigError::UnknownKey { origin, key: key.chars().filter(|it| !it.is_control()).take(64).collect(), suggestion }
}
