//! A complete server on free ports with its own store and a manual clock, used through the Rust client.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fireteam::api::authorization::{AuthorizedCaller, Authorizer, ClientOrGameServer};
use fireteam::api::client_address::ClientAddressResolver;
use fireteam::auth::policy::CLIENTS_AND_GAME_SERVERS;
use fireteam::clock::{Clock, SystemClock};
use fireteam::config::{Config, ListenAddress, RateLimitSetting, ReceiptNetworkSetting, RulesetSource, StoreTarget};
use fireteam::domain::time::UnixMs;
use fireteam::domain::{locality, location_privacy};
use fireteam::server::startup::{self, start_app};
use fireteam_client::{Client, MatchHost};

use crate::support::certs::write_private_file;

#[path = "../../common/party.rs"]
mod party;

pub(crate) use party::{advertise_request, party_session};

/// Interval at which the game servers of tests look for matches. The server's clock does not move meanwhile.
const HOST_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A running server. Its files are deleted on drop.
pub(crate) struct TestServer {
    /// The server's clock and source of randomness.
    pub(crate) clock: Arc<TestClock>,
    /// The running application.
    pub(crate) app: startup::App,
    config: Config,
    /// Directory of the token key and of the test's files.
    pub(crate) folder: tempfile::TempDir,
    temporary_folders: Vec<tempfile::TempDir>,
    /// Game servers that confirm their matches, until the server stops.
    hosts: std::sync::Mutex<tokio::task::JoinSet<()>>,
}

impl TestServer {
    /// Starts a server with the bundled rulesets and a memory store.
    pub(crate) async fn start() -> Self {
        Self::start_with_config(|_| {}).await
    }

    /// Starts a server with a configuration changed by `change`.
    pub(crate) async fn start_with_config(change: impl FnOnce(&mut Config)) -> Self {
        Self::start_on_clock(Arc::new(TestClock::new()), change).await
    }

    /// Starts a server on `clock`. Servers that share a store must share the clock, so that their random ids differ.
    pub(crate) async fn start_on_clock(clock: Arc<TestClock>, change: impl FnOnce(&mut Config)) -> Self {
        let folder = tempfile::tempdir().expect("create a temporary directory");
        let any_port: ListenAddress = "127.0.0.1:0".parse().expect("valid address");
        let mut config = Config {
            listen: any_port.clone(),
            operator_listen: any_port,
            operator_hosts: Vec::new(),
            cors_origins: Vec::new(),
            store: StoreTarget::Memory,
            store_wait_s: 0,
            silos: None,
            max_silos: 1_024,
            max_silos_per_user: 8,
            max_advertisements_per_client: 1,
            max_advertisements_per_server: 1_000,
            max_reservations_per_client: 1,
            max_tickets_per_user: 4,
            max_staleness_s: 300,
            rulesets: RulesetSource::Bundled,
            geoip_db_files: vec![concat!(env!("CARGO_MANIFEST_DIR"), "/data/dbip-tour.mmdb").into()],
            trusted_proxies: vec!["127.0.0.0/8".parse().expect("valid network")],
            proxy_protocol: false,
            tls: None,
            auth: None,
            rate_limits: RateLimitSetting::Auto,
            audit_log_file: None,
            token_key_file: Some(folder.path().join("token-key")),
            match_key_file: Some(folder.path().join("match-key.pem")),
            audit_log_max_mib: 64,
            audit_log_max_files: 100,
            user_key_file: None,
            erasure_log_file: None,
            beacon_fleet_key_file: None,
            receipt_prefix: ReceiptNetworkSetting::Place,
            observe_tcp: true,
            beacon: None,
            rating_retention_days: None,
            pass_failure_dir: None,
            allow_client_locality: false,
            allow_search_overrides: false,
            insecure_allow_plaintext: false,
            insecure_allow_anonymous: false,
            log_format: fireteam::config::LogFormat::Text,
            log_level: "info".into(),
            log_max_kib_per_minute: 768,
            otlp_endpoint: None,
            otlp_sample_ratio: 0.01,
            disk_free_warning_mib: 512,
            advertisement_ttl_s: 90,
            reservation_ttl_s: 30,
            ruleset_retention_s: 600,
            ruleset_removal_grace_s: 600,
            location_grid_degrees: locality::DEFAULT_LOCATION_GRID_DEGREES,
            session_location_grid_degrees: location_privacy::DEFAULT_SESSION_GRID_DEGREES,
            region_places: Vec::new(),
            geoip_max_accuracy_radius_km: 500.0,
            shutdown_grace_period_s: 10,
        };
        change(&mut config);
        let default_file = default_user_key_file(&config, folder.path());
        config.user_key_file = config.user_key_file.or(default_file);
        let parts = start_app(&config, clock.clone()).await.expect("the server starts");
        Self { clock, app: parts, config, folder, temporary_folders: Vec::new(), hosts: std::sync::Mutex::default() }
    }

    /// Keeps a temporary directory, to which the configuration points, until the server is dropped.
    pub(crate) fn keep_folder(&mut self, folder: tempfile::TempDir) {
        self.temporary_folders.push(folder);
    }

    /// Stops the server. A server that is only dropped goes on with its tasks.
    pub(crate) async fn shut_down(self) {
        self.app.shutdown().await;
    }

    /// Restarts the server with the same keys and clock. A memory store is empty afterwards.
    pub(crate) async fn restart(self) -> Self {
        self.restart_after(0).await
    }

    /// Restarts the server like `restart`, `down_ms` milliseconds of its clock after it has stopped.
    pub(crate) async fn restart_after(self, down_ms: u64) -> Self {
        let Self { clock, app: parts, config, folder, temporary_folders: kept, hosts } = self;
        drop(hosts);
        parts.shutdown().await;
        clock.advance_ms(down_ms);
        let parts = start_app(&config, clock.clone()).await.expect("the server starts again");
        Self { clock, app: parts, config, folder, temporary_folders: kept, hosts: std::sync::Mutex::default() }
    }

    /// Runs a game server until this server stops: it confirms each match of the advertisement with this token, and keeps
    /// it alive.
    pub(crate) fn keep_hosting(&self, client: Client, advertisement_token: Vec<u8>) {
        let mut host = MatchHost::from_advertisement_token(client, advertisement_token);
        self.hosts.lock().unwrap().spawn(async move {
            loop {
                // Fails while the test takes the store or the server away.
                let _ = host.heartbeat().await;
                tokio::time::sleep(HOST_POLL_INTERVAL).await;
            }
        });
    }

    /// Client from loopback, which has no location.
    pub(crate) async fn client(&self) -> Client {
        Client::connect(format!("http://{}", self.app.server.address)).await.expect("connect")
    }

    /// Client with the forwarded address `address`.
    pub(crate) async fn client_from(&self, address: &str) -> Client {
        self.client().await.with_metadata("x-forwarded-for", address).expect("valid header")
    }

    /// Expires what is due at the current time and waits until it is written.
    pub(crate) async fn sweep_expired_adverts_and_wait(&self) {
        self.app.engine.sweep_expired_adverts_and_wait().await;
    }
}

/// Caller without credentials, on a server without authentication.
pub(crate) fn anonymous_caller() -> AuthorizedCaller<ClientOrGameServer> {
    let (headers, mut extensions) = (http::HeaderMap::new(), http::Extensions::new());
    let auth_context =
        Authorizer::default().authorize(CLIENTS_AND_GAME_SERVERS, &headers, &extensions).expect("no authentication");
    extensions.insert(auth_context);
    AuthorizedCaller::from_checked_request(&ClientAddressResolver::new(Arc::new(|peer, _| peer)), &headers, &extensions)
        .expect("authorized as a client")
}

/// Manual clock with preset randomness: time stands still until advanced, random numbers are preset, random bytes are a
/// counter. Only the monotonic time, by which a beacon measures, passes.
#[derive(Debug)]
pub(crate) struct TestClock {
    now_ms: AtomicU64,
    random_unit_bits: AtomicU64,
    random_bytes_count: AtomicU64,
    /// Number of the next random numbers whose request panics.
    panics_left: AtomicU64,
    system: SystemClock,
}

impl TestClock {
    /// Starts at a time that is not a round number, so that a factor of 1,000 too many or too few shows.
    pub(crate) fn new() -> Self {
        static CLOCKS: AtomicU64 = AtomicU64::new(0);
        let half = 0.5_f64.to_bits();
        Self {
            now_ms: AtomicU64::new(1_700_000_012_345),
            random_unit_bits: AtomicU64::new(half),
            // Servers that share a database draw their ids from it.
            random_bytes_count: AtomicU64::new(CLOCKS.fetch_add(1, Ordering::SeqCst) << 32),
            panics_left: AtomicU64::new(0),
            system: SystemClock::start(),
        }
    }

    /// Advances the clock, milliseconds.
    pub(crate) fn advance_ms(&self, ms: u64) {
        self.now_ms.fetch_add(ms, Ordering::SeqCst);
    }

    /// Makes the next `count` requests of a random number panic. A pass requests one for its seed.
    pub(crate) fn panic_in_random_numbers(&self, count: u64) {
        self.panics_left.store(count, Ordering::SeqCst);
    }

    /// Sets all following random numbers, in [0, 1).
    pub(crate) fn set_random_unit(&self, value: f64) {
        assert!((0.0..1.0).contains(&value));
        self.random_unit_bits.store(value.to_bits(), Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now(&self) -> UnixMs {
        UnixMs(self.now_ms.load(Ordering::SeqCst))
    }

    fn monotonic_us(&self) -> u64 {
        self.system.monotonic_us()
    }

    fn random_unit_f64(&self) -> f64 {
        let taken = self.panics_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        assert!(taken.is_err(), "planted panic in a random number");
        f64::from_bits(self.random_unit_bits.load(Ordering::SeqCst))
    }

    /// Unique per call; tests need no more.
    fn random_bytes(&self) -> [u8; 16] {
        let drawn = self.random_bytes_count.fetch_add(1, Ordering::SeqCst) + 1;
        u128::from(drawn).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835).to_be_bytes()
    }
}

#[test]
fn test_clock_moves_only_when_advanced() {
    let clock = TestClock::new();
    let before = clock.now();
    assert_eq!(clock.now(), before);
    clock.advance_ms(250);
    assert_eq!(clock.now().ms_since(before), 250);
    clock.set_random_unit(0.99);
    assert_eq!(clock.random_unit_f64(), 0.99);
    assert_ne!(clock.random_bytes(), clock.random_bytes());
}

/// User key file of a server whose configuration has none. Servers of one database must name users alike.
fn default_user_key_file(config: &Config, folder: &Path) -> Option<PathBuf> {
    match &config.store {
        StoreTarget::Postgres(_) => {
            let shared = folder.join("shared-user-key");
            write_private_file(&shared, &"5e".repeat(32));
            Some(shared)
        }
        StoreTarget::Memory | StoreTarget::Sqlite(_) => {
            config.token_key_file.as_ref().map(|file| file.with_extension("user-key"))
        }
    }
}
