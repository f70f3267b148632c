//! A whole server on port 0 with its own store and a clock turned by hand, driven through the Rust client.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fireteam::api::authorization::{AuthorizedCaller, Authorizer, ClientOrGameServer};
use fireteam::api::client_address::ClientAddressResolver;
use fireteam::auth::policy::CLIENTS_AND_GAME_SERVERS;
use fireteam::clock::Clock;
use fireteam::config::{Config, RateLimitRules, RulesetSource, StoreTarget};
use fireteam::domain::time::UnixMs;
use fireteam::domain::{locality, location_privacy};
use fireteam::server::startup::{self, start_app};
use fireteam_client::Client;

#[path = "../common/party.rs"]
mod party;

pub(crate) use party::{host, party};

/// A running server and what a test may do to it. Everything of it is gone when this is dropped.
pub(crate) struct House {
    /// The server's time and dice.
    pub(crate) clock: Arc<HandClock>,
    /// Its parts.
    pub(crate) parts: startup::App,
    config: Config,
    /// Holds the token key, and whatever else a test puts there.
    pub(crate) folder: tempfile::TempDir,
    kept: Vec<tempfile::TempDir>,
}

impl House {
    /// Bundled rulesets, nothing on disk but the token key.
    pub(crate) async fn open() -> Self {
        Self::open_with(|_| {}).await
    }

    /// The same, with a configuration changed by `change`.
    pub(crate) async fn open_with(change: impl FnOnce(&mut Config)) -> Self {
        let folder = tempfile::tempdir().expect("a folder of its own");
        let free = "127.0.0.1:0".parse().expect("an address");
        let mut config = Config {
            listen: free,
            operator_listen: free,
            store: StoreTarget::Memory,
            silos: None,
            max_staleness_s: 300,
            rulesets: RulesetSource::Bundled,
            geoip_db_files: vec![concat!(env!("CARGO_MANIFEST_DIR"), "/data/dbip-tour.mmdb").into()],
            trusted_proxies: vec!["127.0.0.0/8".parse().expect("a network")],
            proxy_protocol: false,
            tls: None,
            auth: None,
            quotas: RateLimitRules::Auto,
            audit_file: None,
            token_key_file: Some(folder.path().join("token-key")),
            match_key_file: Some(folder.path().join("match-key.pem")),
            allow_client_locality: false,
            allow_search_overrides: false,
            insecure_allow_plaintext: false,
            insecure_allow_anonymous: false,
            log_format: fireteam::config::LogFormat::Text,
            log_level: "info".into(),
            time_to_live_s: 90,
            reservation_hold_s: 30,
            keep_retired_rulesets_s: 600,
            cell_degrees: locality::DEFAULT_LOCATION_GRID_DEGREES,
            session_cell_degrees: location_privacy::DEFAULT_SESSION_GRID_DEGREES,
            max_accuracy_radius_km: 500.0,
            shutdown_deadline_s: 10,
        };
        change(&mut config);
        let clock = Arc::new(HandClock::new());
        let parts = start_app(&config, clock.clone()).await.expect("the server starts");
        Self { clock, parts, config, folder, kept: Vec::new() }
    }

    /// Keeps what the configuration points to for as long as the house stands.
    pub(crate) fn keep(&mut self, folder: tempfile::TempDir) {
        self.kept.push(folder);
    }

    /// The same server after its store was lost: the same key, the same time, nothing else.
    pub(crate) async fn with_an_empty_store(self) -> Self {
        let Self { clock, parts, config, folder, kept } = self;
        parts.shutdown().await;
        let parts = start_app(&config, clock.clone()).await.expect("the server starts again");
        Self { clock, parts, config, folder, kept }
    }

    /// A client whose packets come from this machine, which is nowhere.
    pub(crate) async fn client(&self) -> Client {
        Client::connect(format!("http://{}", self.parts.server.address)).await.expect("connect")
    }

    /// A client as if its packets came from `address`.
    pub(crate) async fn client_from(&self, address: &str) -> Client {
        self.client().await.with_metadata("x-forwarded-for", address).expect("a header")
    }

    /// Lets the sweep see the time as it is now, and waits until the writer has done what it asked for.
    pub(crate) async fn sweep(&self) {
        self.parts.engine.sweep_expired().await;
    }
}

/// A player who has shown nothing, where nobody has to.
pub(crate) fn anonymous() -> AuthorizedCaller<ClientOrGameServer> {
    let (headers, mut extensions) = (http::HeaderMap::new(), http::Extensions::new());
    let admitted =
        Authorizer::default().authorize(CLIENTS_AND_GAME_SERVERS, &headers, &extensions).expect("everybody is let in");
    extensions.insert(admitted);
    AuthorizedCaller::from_request(&ClientAddressResolver::new(Arc::new(|peer, _| peer)), &headers, &extensions)
        .expect("a player")
}

/// Time and chance in a test's hands: time stands still until turned, dice fall as told, bytes are a count.
#[derive(Debug)]
pub(crate) struct HandClock {
    now_ms: AtomicU64,
    dice: AtomicU64,
    drawn: AtomicU64,
}

impl HandClock {
    /// A clock at a moment that is no round number, so that a forgotten zero shows.
    pub(crate) fn new() -> Self {
        let half = 0.5_f64.to_bits();
        Self { now_ms: AtomicU64::new(1_700_000_012_345), dice: AtomicU64::new(half), drawn: AtomicU64::new(0) }
    }

    /// Lets `ms` pass.
    pub(crate) fn turn(&self, ms: u64) {
        self.now_ms.fetch_add(ms, Ordering::SeqCst);
    }

    /// What the dice show from now on; in [0, 1).
    pub(crate) fn load_dice(&self, shown: f64) {
        assert!((0.0..1.0).contains(&shown));
        self.dice.store(shown.to_bits(), Ordering::SeqCst);
    }
}

impl Clock for HandClock {
    fn now(&self) -> UnixMs {
        UnixMs(self.now_ms.load(Ordering::SeqCst))
    }

    fn random_unit_f64(&self) -> f64 {
        f64::from_bits(self.dice.load(Ordering::SeqCst))
    }

    /// Never the same twice, which is all that a test needs of them.
    fn random_bytes(&self) -> [u8; 16] {
        let drawn = self.drawn.fetch_add(1, Ordering::SeqCst) + 1;
        u128::from(drawn).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835).to_be_bytes()
    }
}

#[test]
fn the_clock_moves_only_when_turned() {
    let clock = HandClock::new();
    let before = clock.now();
    assert_eq!(clock.now(), before);
    clock.turn(250);
    assert_eq!(clock.now().ms_since(before), 250);
    clock.load_dice(0.99);
    assert_eq!(clock.random_unit_f64(), 0.99);
    assert_ne!(clock.random_bytes(), clock.random_bytes());
}
