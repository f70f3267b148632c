//! Raw settings from a TOML file, environment variables and flags; not yet validated.
//!
//! One struct serves all three, so each setting has one name: `--advertisement-ttl-s`, `FIRETEAM_ADVERTISEMENT_TTL_S`
//! and `advertisement_ttl_s` are the same setting. The lists of known keys and
//! variables are derived from the flags.

use std::path::{Path, PathBuf};

use clap::{Arg, Args, Command};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::config::postgres_url::{StoreSetting, hide_words_that_may_be_urls};
use crate::config::{ConfigError, ListenAddress, LogFormat, ReceiptNetworkSetting};
use crate::domain::ruleset::spelling::closest_name;
use crate::files;

/// Maximum size of a configuration file, bytes.
const CONFIG_FILE_BYTES_MAX: u64 = 64 * 1024;
/// `FIRETEAM_` variables that are not settings. Kubernetes sets addresses of a service named `fireteam` in each pod;
/// `FIRETEAM_SHARED_DATA` gives tests the location of measured data.
const IGNORED_VARIABLE_PREFIXES: [&str; 3] = ["FIRETEAM_SERVICE_", "FIRETEAM_PORT", "FIRETEAM_SHARED_DATA"];

/// Flags of `fireteam serve`.
#[derive(Clone, Debug, Default, Args)]
pub struct ServeFlags {
    /// Configuration file, TOML; keys are flag names with `_` instead of `-`.
    #[arg(long, env = "FIRETEAM_CONFIG", value_name = "FILE.toml")]
    pub config: Option<PathBuf>,
    /// Print the effective configuration as TOML and exit.
    #[arg(long)]
    pub print_config: bool,
    /// All other settings.
    #[command(flatten)]
    pub settings: RawSettings,
}

/// All settings; each is `None` if not given.
#[derive(Clone, Debug, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawSettings {
    /// Address of the client port, `HOST:PORT` [default: 127.0.0.1:50051].
    #[arg(long, env = "FIRETEAM_LISTEN", value_name = "ADDRESS")]
    pub listen: Option<ListenAddress>,
    /// Address of the operator port, `HOST:PORT` [default: 127.0.0.1:50052].
    #[arg(long, env = "FIRETEAM_OPERATOR_LISTEN", value_name = "ADDRESS")]
    pub operator_listen: Option<ListenAddress>,
    /// Names by which operators reach the operator port, besides its addresses, `localhost` and the name in --operator-listen [default: none].
    #[arg(long, env = "FIRETEAM_OPERATOR_HOSTS", value_name = "NAME", num_args = 1.., value_delimiter = ',')]
    pub operator_hosts: Option<Vec<String>>,
    /// Origins whose web pages may call the client port, such as `https://game.example`, at most 64; `*` for all [default: none].
    #[arg(long, env = "FIRETEAM_CORS_ORIGINS", value_name = "ORIGIN", num_args = 1.., value_delimiter = ',')]
    pub cors_origins: Option<Vec<String>>,
    /// Database: `sqlite:PATH`, `postgres://…` for several servers, or `memory:` [default: sqlite:fireteam.db].
    #[arg(long, env = "FIRETEAM_STORE", value_name = "STORE", hide_env_values = true)]
    pub store: Option<StoreSetting>,
    /// Time to wait at startup for a `postgres:` store that cannot be reached, seconds, 0 to 600 [default: 30].
    #[arg(long, env = "FIRETEAM_STORE_WAIT_S", value_name = "SECONDS")]
    pub store_wait_s: Option<u32>,
    /// Silos to load and serve, ids; requires a `postgres:` store [default: all].
    #[arg(long, env = "FIRETEAM_SILOS", value_name = "ID", num_args = 1.., value_delimiter = ',')]
    pub silos: Option<Vec<u64>>,
    /// Maximum silos with live tickets or advertisements, number, 1 to 100000; not for --silos [default: 1024].
    #[arg(long, env = "FIRETEAM_MAX_SILOS", value_name = "COUNT")]
    pub max_silos: Option<u32>,
    /// Maximum silos that one user, or one anonymous address, has opened, number, 1 to 100000; not for --silos and game servers [default: 8].
    #[arg(long, env = "FIRETEAM_MAX_SILOS_PER_USER", value_name = "COUNT")]
    pub max_silos_per_user: Option<u32>,
    /// Maximum live advertisements of a kind of one client, number, 1 to 100; a newer one replaces the oldest [default: 1].
    #[arg(long, env = "FIRETEAM_MAX_ADVERTISEMENTS_PER_CLIENT", value_name = "COUNT")]
    pub max_advertisements_per_client: Option<u32>,
    /// Maximum live advertisements of a kind of one game server identity, number, 1 to 1000000 [default: 1000].
    #[arg(long, env = "FIRETEAM_MAX_ADVERTISEMENTS_PER_SERVER", value_name = "COUNT")]
    pub max_advertisements_per_server: Option<u32>,
    /// Maximum live reservations of one client, number, 1 to 100; a newer one replaces the oldest [default: 1].
    #[arg(long, env = "FIRETEAM_MAX_RESERVATIONS_PER_CLIENT", value_name = "COUNT")]
    pub max_reservations_per_client: Option<u32>,
    /// Maximum waiting tickets of one user over all sets and silos, number, 1 to 100 [default: 4].
    #[arg(long, env = "FIRETEAM_MAX_TICKETS_PER_USER", value_name = "COUNT")]
    pub max_tickets_per_user: Option<u32>,
    /// Store outage after which the server reports not ready, seconds, 1 to 3600 [default: 300].
    #[arg(long, env = "FIRETEAM_MAX_STALENESS_S", value_name = "SECONDS")]
    pub max_staleness_s: Option<u32>,
    /// Ruleset directory, watched for changes, or `bundled:` [default: `rulesets` if it exists, else `bundled:`].
    #[arg(long, env = "FIRETEAM_RULESETS", value_name = "DIR")]
    pub rulesets: Option<PathBuf>,
    /// City files in MaxMind format, searched in order [default: data/dbip-tour.mmdb if it exists].
    #[arg(long, env = "FIRETEAM_GEOIP_DB", value_name = "FILE", num_args = 1.., value_delimiter = ',')]
    pub geoip_db: Option<Vec<PathBuf>>,
    /// Networks whose `x-forwarded-for` is trusted, CIDR [default: none].
    #[arg(long, env = "FIRETEAM_TRUSTED_PROXIES", value_name = "CIDR", num_args = 1.., value_delimiter = ',')]
    pub trusted_proxies: Option<Vec<IpNet>>,
    /// Certificate chain of the server, PEM file; enables TLS on both ports [default: none].
    #[arg(long, env = "FIRETEAM_TLS_CERTIFICATE", value_name = "FILE")]
    pub tls_certificate: Option<PathBuf>,
    /// Private key of the server certificate, PEM file.
    #[arg(long, env = "FIRETEAM_TLS_KEY", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// CA certificates for verifying client certificates, PEM file; enables mTLS [default: none].
    #[arg(long, env = "FIRETEAM_TLS_CLIENT_CA", value_name = "FILE")]
    pub tls_client_ca: Option<PathBuf>,
    /// Require the PROXY protocol on the client port, from trusted proxies only [default: false].
    #[arg(long, env = "FIRETEAM_PROXY_PROTOCOL", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub proxy_protocol: Option<bool>,
    /// Public keys for verifying callers' JWTs, PEM or JWKS, `[ROLE+ROLE=]FILE` to limit them to roles; if set, every call must be authenticated [default: none].
    #[arg(long, env = "FIRETEAM_AUTH_KEYS", value_name = "FILE", num_args = 1.., value_delimiter = ',')]
    pub auth_keys: Option<Vec<PathBuf>>,
    /// Required `iss` claim of JWTs; required with --auth-keys.
    #[arg(long, env = "FIRETEAM_AUTH_ISSUER", value_name = "TEXT")]
    pub auth_issuer: Option<String>,
    /// Required `aud` claim of JWTs [default: fireteam].
    #[arg(long, env = "FIRETEAM_AUTH_AUDIENCE", value_name = "TEXT")]
    pub auth_audience: Option<String>,
    /// Further issuers of JWTs, `"ISSUER AUDIENCE [ROLE+ROLE=]FILE"`, each with keys of its own; only one issuer may sign for `client` [default: none].
    #[arg(long, env = "FIRETEAM_AUTH_ISSUERS", value_name = "ISSUER", num_args = 1.., value_delimiter = ',')]
    pub auth_issuers: Option<Vec<String>>,
    /// Rate limits that differ from the default, `ROLE.LIMIT=PER_SECOND/BURST/PER_5_MIN` or `ROLE.stream=COUNT`, or `off` [default: see docs/OPERATING.md; off for anonymous callers on loopback].
    #[arg(long, env = "FIRETEAM_RATE_LIMITS", value_name = "RATE_LIMIT", num_args = 1.., value_delimiter = ',')]
    pub rate_limits: Option<Vec<String>>,
    /// Audit log of operator calls, one JSON object per line, appended [default: the log only].
    #[arg(long, env = "FIRETEAM_AUDIT_LOG_FILE", value_name = "FILE")]
    pub audit_log_file: Option<PathBuf>,
    /// Size at which the audit log file is renamed and a new one begins, MiB, 1 to 4096 [default: 64].
    #[arg(long, env = "FIRETEAM_AUDIT_LOG_MAX_MIB", value_name = "MIB")]
    pub audit_log_max_mib: Option<u32>,
    /// Renamed audit log files with operators' actions that are kept, number, 1 to 10000 [default: 100].
    #[arg(long, env = "FIRETEAM_AUDIT_LOG_MAX_FILES", value_name = "COUNT")]
    pub audit_log_max_files: Option<u32>,
    /// Keys that sign tokens, created if missing [default: beside the SQLite file; required with `postgres:`, the same on all servers].
    #[arg(long, env = "FIRETEAM_TOKEN_KEY_FILE", value_name = "FILE")]
    pub token_key_file: Option<PathBuf>,
    /// Keys that sign players' credentials for game servers, PEM file, created if missing [default: beside the SQLite file; required with `postgres:`, the same on all servers].
    #[arg(long, env = "FIRETEAM_MATCH_KEY_FILE", value_name = "FILE")]
    pub match_key_file: Option<PathBuf>,
    /// Secret of the keys by which answers name users, created if missing [default: beside the token keys; the same on all servers].
    #[arg(long, env = "FIRETEAM_USER_KEY_FILE", value_name = "FILE")]
    pub user_key_file: Option<PathBuf>,
    /// File of erasures of users, which are repeated on a store restored from a backup, created if missing; one for each server [default: beside the SQLite file; none with `postgres:`].
    #[arg(long, env = "FIRETEAM_ERASURE_LOG_FILE", value_name = "FILE")]
    pub erasure_log_file: Option<PathBuf>,
    /// Keys of beacons' receipts, created if missing, the same on all servers; without them the server knows no beacons [default: none].
    #[arg(long, env = "FIRETEAM_BEACON_FLEET_KEY_FILE", value_name = "FILE")]
    pub beacon_fleet_key_file: Option<PathBuf>,
    /// When a receipt counts as measured at the caller's own network: `strict` for the same /24 or /56, `place` also for one that is located at most 300 km away [default: place].
    #[arg(long, env = "FIRETEAM_RECEIPT_PREFIX", value_name = "RULE", value_enum)]
    pub receipt_prefix: Option<ReceiptNetworkSetting>,
    /// UDP address of the server's own beacon, `HOST:PORT`; needs the other beacon settings [default: no beacon].
    #[arg(long, env = "FIRETEAM_BEACON_LISTEN", value_name = "ADDRESS")]
    pub beacon_listen: Option<ListenAddress>,
    /// Id of the server's own beacon, number, 1 to 4294967295; for ever: a beacon that moves gets a new one.
    #[arg(long, env = "FIRETEAM_BEACON_ID", value_name = "ID")]
    pub beacon_id: Option<u32>,
    /// Region of the game that the server's own beacon stands for, 1 to 64 bytes [default: none].
    #[arg(long, env = "FIRETEAM_BEACON_REGION", value_name = "NAME")]
    pub beacon_region: Option<String>,
    /// Place of the server's own beacon, `LATITUDE/LONGITUDE` in degrees, -90 to 90 and -180 to 180.
    #[arg(long, env = "FIRETEAM_BEACON_PLACE", value_name = "PLACE", allow_hyphen_values = true)]
    pub beacon_place: Option<String>,
    /// IP address at which clients reach the server's own beacon.
    #[arg(long, env = "FIRETEAM_BEACON_ANNOUNCE_ADDRESS", value_name = "IP")]
    pub beacon_announce_address: Option<String>,
    /// Maximum packets that the server's own beacon answers, of all senders together, number per second, 100 to 1000000 [default: 50000].
    #[arg(long, env = "FIRETEAM_BEACON_PACKETS_PER_SECOND", value_name = "COUNT")]
    pub beacon_packets_per_second: Option<u32>,
    /// Use the least round trip of clients' own connections as round trip to the server's beacon, where no receipt is better; with --beacon-listen only [default: true].
    #[arg(long, env = "FIRETEAM_OBSERVE_TCP", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub observe_tcp: Option<bool>,
    /// Time after a user's last rated match for which ratings are kept, days, 30 to 3650 [default: until the user is erased].
    #[arg(long, env = "FIRETEAM_RATING_RETENTION_DAYS", value_name = "DAYS")]
    pub rating_retention_days: Option<u32>,
    /// Folder for the inputs of passes that failed because of an error in the server, created if needed; at most 16 files of at most 64 MiB [default: none].
    #[arg(long, env = "FIRETEAM_PASS_FAILURE_DIR", value_name = "DIRECTORY")]
    pub pass_failure_dir: Option<PathBuf>,
    /// Use a client's own locality if its address has none [default: false].
    #[arg(long, env = "FIRETEAM_ALLOW_CLIENT_LOCALITY", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub allow_client_locality: Option<bool>,
    /// Allow searches to override rules; for development [default: false].
    #[arg(long, env = "FIRETEAM_ALLOW_SEARCH_OVERRIDES", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub allow_search_overrides: Option<bool>,
    /// Allow plaintext on public addresses [default: false].
    #[arg(long, env = "FIRETEAM_INSECURE_ALLOW_PLAINTEXT", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub insecure_allow_plaintext: Option<bool>,
    /// Allow anonymous callers on public addresses [default: false].
    #[arg(long, env = "FIRETEAM_INSECURE_ALLOW_ANONYMOUS", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub insecure_allow_anonymous: Option<bool>,
    /// Format of log lines [default: text].
    #[arg(long, env = "FIRETEAM_LOG_FORMAT", value_name = "FORMAT", value_enum)]
    pub log_format: Option<LogFormat>,
    /// Log level or filter directives: error, warn, info, debug, trace [default: info].
    #[arg(long, env = "FIRETEAM_LOG_LEVEL", value_name = "LEVEL")]
    pub log_level: Option<String>,
    /// Maximum size of the log per minute, KiB, 64 to 1048576; not for audit records and the levels debug and trace [default: 768].
    #[arg(long, env = "FIRETEAM_LOG_MAX_KIB_PER_MINUTE", value_name = "KIB")]
    pub log_max_kib_per_minute: Option<u32>,
    /// Collector of traces that speaks OTLP over gRPC, http://HOST:PORT [default: none].
    #[arg(long, env = "FIRETEAM_OTLP_ENDPOINT", value_name = "URL")]
    pub otlp_endpoint: Option<String>,
    /// Share of calls without a traceparent that are traced, 0 to 1 [default: 0.01].
    #[arg(long, env = "FIRETEAM_OTLP_SAMPLE_RATIO", value_name = "SHARE")]
    pub otlp_sample_ratio: Option<f64>,
    /// Free space below which a disk that the server writes to is reported, MiB, 0 to 1048576; 0 for never [default: 512].
    #[arg(long, env = "FIRETEAM_DISK_FREE_WARNING_MIB", value_name = "MIB")]
    pub disk_free_warning_mib: Option<u32>,
    /// Default advertisement TTL, seconds, 5 to 600 [default: 90].
    #[arg(long, env = "FIRETEAM_ADVERTISEMENT_TTL_S", value_name = "SECONDS")]
    pub advertisement_ttl_s: Option<u32>,
    /// Default reservation TTL, seconds, 1 to 120 [default: 30].
    #[arg(long, env = "FIRETEAM_RESERVATION_TTL_S", value_name = "SECONDS")]
    pub reservation_ttl_s: Option<u32>,
    /// Time for which replaced rulesets are kept, seconds, 0 to 86400 [default: 600].
    #[arg(long, env = "FIRETEAM_RULESET_RETENTION_S", value_name = "SECONDS")]
    pub ruleset_retention_s: Option<u32>,
    /// Time for which the ruleset of a removed file stays in force for waiting tickets, seconds, 0 to 86400 [default: 600].
    #[arg(long, env = "FIRETEAM_RULESET_REMOVAL_GRACE_S", value_name = "SECONDS")]
    pub ruleset_removal_grace_s: Option<u32>,
    /// Grid size for rounding locations, degrees, 0 to 10; 0 for no rounding [default: 1].
    #[arg(long, env = "FIRETEAM_LOCATION_GRID_DEGREES", value_name = "DEGREES")]
    pub location_grid_degrees: Option<f64>,
    /// Grid size for rounding the locations of advertised sessions and of parties in queues, degrees, 0 to 10; 0 to use --location-grid-degrees [default: 3].
    #[arg(long, env = "FIRETEAM_SESSION_LOCATION_GRID_DEGREES", value_name = "DEGREES")]
    pub session_location_grid_degrees: Option<f64>,
    /// Places of the regions that clients measure, `NAME=LATITUDE/LONGITUDE` in degrees; others then know round trips only as from the center of a grid cell [default: none].
    #[arg(long, env = "FIRETEAM_REGION_PLACES", value_name = "PLACE", num_args = 1.., value_delimiter = ',')]
    pub region_places: Option<Vec<String>>,
    /// Maximum accuracy radius of a location, kilometers, 0 to 20040; less accurate locations are ignored [default: 500].
    #[arg(long, env = "FIRETEAM_GEOIP_MAX_ACCURACY_RADIUS_KM", value_name = "KM")]
    pub geoip_max_accuracy_radius_km: Option<f64>,
    /// Shutdown grace period, seconds, 1 to 25 [default: 10].
    #[arg(long, env = "FIRETEAM_SHUTDOWN_GRACE_PERIOD_S", value_name = "SECONDS")]
    pub shutdown_grace_period_s: Option<u32>,
}

/// Token of clients and examples. It may be set in a shell that also starts a server.
const CLIENT_TOKEN_VARIABLE: &str = "FIRETEAM_TOKEN";

/// Settings with the value of `$first` in each field, or of `$second` if it has none.
macro_rules! first_of_each {
    ($first:ident, $second:ident, { $($field:ident),+ $(,)? }) => {
        RawSettings { $($field: $first.$field.or($second.$field)),+ }
    };
}

impl RawSettings {
    /// These settings, with missing values taken from `fallback`.
    pub fn with_fallback(self, fallback: RawSettings) -> RawSettings {
        first_of_each!(self, fallback, {
            listen, operator_listen, operator_hosts, cors_origins, store, store_wait_s, silos, max_silos,
            max_silos_per_user, max_advertisements_per_client, max_advertisements_per_server,
            max_reservations_per_client, max_tickets_per_user, max_staleness_s, rulesets, geoip_db, trusted_proxies,
            tls_certificate, tls_key, tls_client_ca, proxy_protocol, auth_keys, auth_issuer, auth_audience,
            auth_issuers, rate_limits, audit_log_file, audit_log_max_mib, audit_log_max_files, token_key_file,
            match_key_file, user_key_file, erasure_log_file, beacon_fleet_key_file, receipt_prefix, observe_tcp,
            beacon_listen, beacon_id, beacon_region, beacon_place, beacon_announce_address, beacon_packets_per_second,
            rating_retention_days, pass_failure_dir, allow_client_locality, allow_search_overrides,
            insecure_allow_plaintext, insecure_allow_anonymous, log_format, log_level, log_max_kib_per_minute,
            otlp_endpoint, otlp_sample_ratio, disk_free_warning_mib, advertisement_ttl_s, reservation_ttl_s,
            ruleset_retention_s, ruleset_removal_grace_s, location_grid_degrees, session_location_grid_degrees,
            region_places, geoip_max_accuracy_radius_km, shutdown_grace_period_s,
        })
    }
}

/// Reads the settings of a TOML file. Returns all unknown keys.
pub(super) fn read_toml_file(file: &Path) -> Result<RawSettings, Vec<ConfigError>> {
    let io_error = |error| vec![ConfigError::UnreadableFile { file: file.into(), error }];
    let toml_error = |message: String| vec![ConfigError::InvalidToml { file: file.into(), message }];
    let bytes = files::read_file_start(file, CONFIG_FILE_BYTES_MAX + 1).map_err(io_error)?;
    if bytes.len() as u64 > CONFIG_FILE_BYTES_MAX {
        return Err(toml_error(format!("the file is larger than {CONFIG_FILE_BYTES_MAX} bytes; shorten it")));
    }
    let text = String::from_utf8(bytes).map_err(|_| toml_error("the file is not UTF-8; save it as UTF-8".into()))?;
    parse_toml(file, &text)
}

/// Parses settings from TOML. Returns all unknown keys. `file` is the file name in errors.
pub(super) fn parse_toml(file: &Path, text: &str) -> Result<RawSettings, Vec<ConfigError>> {
    let toml_error = |message: String| vec![ConfigError::InvalidToml { file: file.into(), message }];
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| toml_error(toml_problem(&error, text)))?;
    let known: Vec<String> = RawSettings::augment_args(Command::new(""))
        .get_arguments()
        .map(|argument| argument.get_id().to_string())
        .collect();
    let unknown: Vec<ConfigError> = table
        .keys()
        .filter(|key| !known.contains(key))
        .map(|key| unknown_key_error(file.display().to_string(), key, &known))
        .collect();
    if !unknown.is_empty() {
        return Err(unknown);
    }
    toml::from_str(text).map_err(|error| toml_error(toml_problem(&error, text)))
}

/// Position and problem of a TOML error, without the line, which may contain a password.
fn toml_problem(error: &toml::de::Error, text: &str) -> String {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    format!(
        "TOML parse error at line {line}, column {column}: {}",
        hide_words_that_may_be_urls(error.message().trim_end())
    )
}

/// Errors for `FIRETEAM_*` variables that are not settings.
pub(super) fn unknown_variable_errors(variables: impl Iterator<Item = String>) -> Vec<ConfigError> {
    let command = ServeFlags::augment_args(Command::new(""));
    let name = |argument: &Arg| argument.get_env().and_then(|variable| variable.to_str()).map(str::to_owned);
    let known: Vec<String> = command.get_arguments().filter_map(name).collect();
    variables
        .filter(|variable| {
            variable.starts_with("FIRETEAM_") && variable != CLIENT_TOKEN_VARIABLE && !known.contains(variable)
        })
        .filter(|variable| !IGNORED_VARIABLE_PREFIXES.iter().any(|prefix| variable.starts_with(prefix)))
        .map(|variable| unknown_key_error("environment".into(), &variable, &known))
        .collect()
}

/// Error for an unknown key, with the closest known key if any.
fn unknown_key_error(origin: String, key: &str, known: &[String]) -> ConfigError {
    let suggestion = closest_name(key, known.iter().map(String::as_str)).map(str::to_owned);
    ConfigError::UnknownKey {
        origin,
        key: key.chars().filter(|character| !character.is_control()).take(64).collect(),
        suggestion,
    }
}
