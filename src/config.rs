//! Server configuration: defaults, units and bounds; merged from a TOML file, `FIRETEAM_*` variables and flags.
//!
//! Flags override variables, variables override the file, the file overrides defaults. All invalid values are reported
//! at once, before anything is opened. A `Config` that exists is valid.

mod beacon;
mod error;
mod listen_address;
mod load;
mod postgres_url;
mod rate_limits;
pub mod raw;
mod region_places;
mod security;
mod validate;

use std::ops::RangeInclusive;
use std::path::PathBuf;

use ipnet::IpNet;

pub use beacon::{
    BEACON_PACKETS_PER_SECOND_RANGE, BeaconPlace, DEFAULT_BEACON_PACKETS_PER_SECOND, OwnBeacon, check_region_syntax,
    parse_announce_address,
};
pub use error::ConfigError;
pub use listen_address::ListenAddress;
pub use postgres_url::{PostgresUrl, StoreSetting, hide_words_that_may_be_urls};
pub use rate_limits::{CallRateOrOpenStreamsMax, DEFAULT_RATE_LIMITS, RateLimitRule, RateLimitSetting};
pub use region_places::RegionPlace;
pub use security::{JwtSettings, TlsFiles, TokenIssuer, VerifyingKeyFile};

/// Advertisement TTL, seconds: short enough to notice a crash, long enough for a heartbeat.
pub const ADVERTISEMENT_TTL_RANGE_S: RangeInclusive<u32> = 5..=600;
/// Reservation TTL, seconds: time for a party to join.
pub const RESERVATION_TTL_RANGE_S: RangeInclusive<u32> = 1..=120;
/// Time for which a replaced ruleset can be found by its hash, seconds.
pub const RULESET_RETENTION_RANGE_S: RangeInclusive<u32> = 0..=86_400;
/// Time for which the ruleset of a removed file stays in force, seconds.
pub const RULESET_REMOVAL_GRACE_RANGE_S: RangeInclusive<u32> = 0..=86_400;
/// Shutdown grace period, seconds. Kubernetes kills after 30.
pub const SHUTDOWN_GRACE_PERIOD_RANGE_S: RangeInclusive<u32> = 1..=25;
/// Store outage after which the server reports not ready, seconds.
pub const MAX_STALENESS_RANGE_S: RangeInclusive<u32> = 1..=3_600;
/// Time to wait at startup for the database, seconds. Longer than the recovery of most databases.
pub const STORE_WAIT_RANGE_S: RangeInclusive<u32> = 0..=600;
/// Size at which an audit log file is renamed, MiB.
pub const AUDIT_LOG_MAX_MIB_RANGE: RangeInclusive<u32> = 1..=4_096;
/// Renamed audit log files that are kept.
pub const AUDIT_LOG_MAX_FILES_RANGE: RangeInclusive<u32> = 1..=10_000;
/// Size of the log per minute, KiB.
pub const LOG_MAX_KIB_PER_MINUTE_RANGE: RangeInclusive<u32> = 64..=1_048_576;
/// Range of the share of calls that are traced.
pub const OTLP_SAMPLE_RATIO_RANGE: RangeInclusive<f64> = 0.0..=1.0;
/// Free space below which a disk is reported, MiB.
pub const DISK_FREE_WARNING_RANGE_MIB: RangeInclusive<u32> = 0..=1_048_576;
/// Maximum number of silos to name; serve all for more.
pub const LISTED_SILOS_MAX: usize = 256;
/// Maximum of open silos, in all and per user.
pub const MAX_OPEN_SILOS_RANGE: RangeInclusive<u32> = 1..=100_000;
/// Maximum live advertisements of one game server identity.
pub const MAX_ADVERTISEMENTS_PER_GAME_SERVER_RANGE: RangeInclusive<u32> = 1..=1_000_000;
/// Maximum live advertisements or reservations of one client, and waiting tickets of one user.
pub const MAX_LIVE_OBJECTS_PER_CLIENT_RANGE: RangeInclusive<u32> = 1..=100;
/// Grid size for rounding locations, degrees. A cell of more than 10 degrees covers a continent.
pub const LOCATION_GRID_RANGE_DEGREES: RangeInclusive<f64> = 0.0..=10.0;
/// Maximum accuracy radius of a geolocation record, kilometers; at most half the circumference of the Earth.
pub const GEOIP_MAX_ACCURACY_RADIUS_RANGE_KM: RangeInclusive<f64> = 0.0..=20_040.0;

/// Time for which ratings are kept after the last rated match, days.
pub const RATING_RETENTION_RANGE_DAYS: RangeInclusive<u32> = 30..=3_650;

/// Default geolocation file if it exists: the sample that the README's tour needs.
pub const DEFAULT_GEOIP_DB: &str = "data/dbip-tour.mmdb";

/// Server configuration. A value that exists is valid.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Address of the client port.
    pub listen: ListenAddress,
    /// Address of the operator port: metrics, health and the operator service.
    pub operator_listen: ListenAddress,
    /// Further names by which operators reach the operator port, lower case.
    pub operator_hosts: Vec<String>,
    /// Origins whose web pages may call the client port, as browsers write them, or `*` alone for all.
    pub cors_origins: Vec<String>,
    /// Database.
    pub store: StoreTarget,
    /// Time to wait at startup for a Postgres that cannot be reached, seconds, in `STORE_WAIT_RANGE_S`.
    pub store_wait_s: u32,
    /// Silos to load and serve; `None` for all.
    pub silos: Option<Vec<u64>>,
    /// Maximum silos with live tickets or advertisements, in `MAX_OPEN_SILOS_RANGE`. Silos that `silos` names are not limited.
    pub max_silos: u32,
    /// Maximum of those that one caller has opened, in `MAX_OPEN_SILOS_RANGE`. Game servers are exempt.
    pub max_silos_per_user: u32,
    /// Maximum live advertisements of a kind of one client, in `MAX_LIVE_OBJECTS_PER_CLIENT_RANGE`; a newer one replaces the oldest.
    pub max_advertisements_per_client: u32,
    /// Maximum live advertisements of a kind of one game server identity, in `MAX_ADVERTISEMENTS_PER_GAME_SERVER_RANGE`.
    pub max_advertisements_per_server: u32,
    /// Maximum live reservations of one client, in `MAX_LIVE_OBJECTS_PER_CLIENT_RANGE`; a newer one replaces the oldest.
    pub max_reservations_per_client: u32,
    /// Maximum waiting tickets of one user over all sets and silos, in `MAX_LIVE_OBJECTS_PER_CLIENT_RANGE`.
    pub max_tickets_per_user: u32,
    /// Store outage after which the server reports not ready, seconds, in `MAX_STALENESS_RANGE_S`.
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
    pub rate_limits: RateLimitSetting,
    /// Audit log of operator actions; `None` to write them to the log only.
    pub audit_log_file: Option<PathBuf>,
    /// Size at which the audit log file is renamed, MiB, in `AUDIT_LOG_MAX_MIB_RANGE`.
    pub audit_log_max_mib: u32,
    /// Renamed audit log files with operators' actions that are kept, in `AUDIT_LOG_MAX_FILES_RANGE`.
    pub audit_log_max_files: u32,
    /// File with the token keys. `None` with the memory store: a key is generated at startup and lost at shutdown.
    pub token_key_file: Option<PathBuf>,
    /// File with the keys that sign players' credentials for game servers. `None` with the memory store, as for
    /// `token_key_file`.
    pub match_key_file: Option<PathBuf>,
    /// File with the secret of the keys by which answers name users. `None` with the memory store, as for `token_key_file`.
    pub user_key_file: Option<PathBuf>,
    /// File of erasures; `None` to keep none.
    pub erasure_log_file: Option<PathBuf>,
    /// File with the keys of beacons' receipts. `None`: the server knows no beacons.
    pub beacon_fleet_key_file: Option<PathBuf>,
    /// When a receipt counts as measured at the caller's own network.
    pub receipt_prefix: ReceiptNetworkSetting,
    /// The least round trips of clients' connections count as round trips to the server's beacon.
    pub observe_tcp: bool,
    /// Beacon that this server runs itself; `None` for none.
    pub beacon: Option<OwnBeacon>,
    /// Time after the last rated match for which ratings are kept, days; `None` to keep them until the user is erased.
    pub rating_retention_days: Option<u32>,
    /// Folder for the inputs of passes that failed; `None` to discard them.
    pub pass_failure_dir: Option<PathBuf>,
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
    /// Maximum size of the log per minute, KiB, in `LOG_MAX_KIB_PER_MINUTE_RANGE`.
    pub log_max_kib_per_minute: u32,
    /// Collector of traces that speaks OTLP over gRPC, `http://HOST:PORT`; `None` for no traces.
    pub otlp_endpoint: Option<String>,
    /// Share of calls without a `traceparent` that are traced, in `OTLP_SAMPLE_RATIO_RANGE`.
    pub otlp_sample_ratio: f64,
    /// Free space below which a disk is reported, MiB, in `DISK_FREE_WARNING_RANGE_MIB`; 0 for never.
    pub disk_free_warning_mib: u32,
    /// Default advertisement TTL, seconds, in `ADVERTISEMENT_TTL_RANGE_S`. Clients may request any TTL in that range.
    pub advertisement_ttl_s: u32,
    /// Default reservation TTL, seconds, in `RESERVATION_TTL_RANGE_S`. Callers may request any TTL in that range.
    pub reservation_ttl_s: u32,
    /// Time for which a replaced ruleset can be found by its hash, seconds.
    pub ruleset_retention_s: u32,
    /// Time for which the ruleset of a removed file stays in force, seconds.
    pub ruleset_removal_grace_s: u32,
    /// Grid size for rounding locations, degrees; 0 for no rounding.
    pub location_grid_degrees: f64,
    /// Grid size for rounding the locations of advertised sessions and of parties in queues, degrees; 0 to use
    /// `location_grid_degrees`.
    pub session_location_grid_degrees: f64,
    /// Places of the regions that clients measure round trips to; at most 256.
    pub region_places: Vec<RegionPlace>,
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

/// When a receipt counts as measured at the caller's own network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReceiptNetworkSetting {
    /// The same /24 or /56.
    Strict,
    /// Also a network that is located at most 300 km away.
    #[default]
    Place,
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

impl Config {
    /// Whether callers must authenticate, by a token or a client certificate.
    pub fn requires_authentication(&self) -> bool {
        self.auth.is_some() || self.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some())
    }

    /// Missing protections of public addresses, as text for the log.
    pub fn security_warnings(&self) -> Vec<&'static str> {
        let exposed = !self.listen.is_loopback() || !self.operator_listen.is_loopback();
        let mut warnings = Vec::new();
        if exposed && self.tls.is_none() {
            warnings.push(
                "--insecure-allow-plaintext: calls are not encrypted; any host on the network path can read and \
                 change them",
            );
        }
        if !self.listen.is_loopback() && !self.requires_authentication() {
            warnings.push(
                "--insecure-allow-anonymous: clients are not authenticated; any client can impersonate any player",
            );
        }
        warnings
    }

    /// Rate limits in effect, one per name; `None` if there are none.
    pub fn effective_rate_limits(&self) -> Option<Vec<RateLimitRule>> {
        let overrides = match &self.rate_limits {
            RateLimitSetting::Off => return None,
            RateLimitSetting::Auto if !self.requires_authentication() && self.listen.is_loopback() => {
                return None;
            }
            RateLimitSetting::Auto => &[][..],
            RateLimitSetting::Overrides(rules) => rules,
        };
        let effective = |rule: &RateLimitRule| {
            *overrides.iter().find(|other| other.setting_name() == rule.setting_name()).unwrap_or(rule)
        };
        Some(DEFAULT_RATE_LIMITS.iter().map(effective).collect())
    }
}

#[cfg(test)]
mod tests;
