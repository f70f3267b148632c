//! Servers in processes of their own, so that their CPU time and memory are separate from those of the clients.

use std::io::{BufRead, BufReader, Read as _};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;

use fireteam::auth::identity::Role;
use fireteam::auth::jwt_signing_key::{CallerTokenClaims, JwtSigningKey};
use fireteam::clock::{Clock as _, SystemClock};
use fireteam::config::{
    Config, JwtSettings, ListenAddress, LogFormat, PostgresUrl, RateLimitSetting, ReceiptNetworkSetting, RulesetSource,
    StoreTarget,
};
use fireteam::domain::id::SetId;
use fireteam::domain::locality::Locality;
use fireteam::domain::session::Session;
use fireteam::domain::{locality, location_privacy};
use fireteam::engine::Engine;
use fireteam::engine::command::{Caller, PublishOrHeartbeatAdvertCommand};
use fireteam::server::startup::start_app;

use tonic::metadata::AsciiMetadataValue;

use crate::population::client_session;
use crate::rpc::nearest::{PLACES_SERVER, places};
use crate::rpc::{echo, redis_matchmaker, redis_search};
use crate::split_mix64::SplitMix64;

/// Argument that makes this program a server.
pub(crate) const SERVE_ARGUMENT: &str = "--serve";

/// Ruleset with skill and distance and no hard filters, as in the index goals.
const RULESET: &str = r#"<Ruleset Name="bench" SetId="1">
  <Attributes>
    <Attribute Name="skill" Type="number" Min="0" Max="3000" Trust="client"/>
    <Attribute Name="mode" Type="string" Trust="client"/>
    <Attribute Name="playlist" Type="string" Trust="client"/>
  </Attributes>
  <SoftFilters>
    <SoftFilter Attribute="skill" Weight="60%"/>
    <SoftFilter Attribute="distance" Weight="40%"/>
  </SoftFilters>
  <Limits MaxResults="50" MaxEvaluated="10000000"/>
</Ruleset>
"#;

/// Matchmaking set of a queue: 1v1, similar skill, immediate passes.
pub(crate) const QUEUE_SET: u32 = 2;

const QUEUE_RULESET: &str = r#"<Ruleset Name="bench queue" SetId="2">
  <Attributes><Attribute Name="skill" Type="number" Min="0" Max="3000" Trust="client"/></Attributes>
  <Teams Count="2" Size="1"/>
  <Queue PassIntervalMs="10"><RatingWindow BucketWidth="100" Start="2" Max="2"/></Queue>
</Ruleset>
"#;

/// Matchmaking set of a queue of 1v1 without rules: the oldest two tickets are a match.
pub(crate) const DRIVE_SET: u32 = 3;

const DRIVE_RULESET: &str = r#"<Ruleset Name="bench drive" SetId="3">
  <Teams Count="2" Size="1"/>
  <Queue PassIntervalMs="10"/>
</Ruleset>
"#;

/// Matchmaking set of the same queue with passes on change.
pub(crate) const DRIVE_SET_ON_CHANGE: u32 = 4;

/// Matchmaking set of a queue of 1v1 whose tickets accept ratings within two points. They wait an hour without a heartbeat.
pub(crate) const WAITING_SET: u32 = 5;

const WAITING_RULESET: &str = r#"<Ruleset Name="bench waiting" SetId="5">
  <Attributes><Attribute Name="skill" Type="number" Min="0" Max="10000000" Trust="client"/></Attributes>
  <Teams Count="2" Size="1"/>
  <Queue TicketTtlMs="3600000"><RatingWindow BucketWidth="1" Start="2" Max="2"/></Queue>
</Ruleset>
"#;

/// Matchmaking set of searches by distance alone.
pub(crate) const DISTANCE_SET: u32 = 6;

const DISTANCE_RULESET: &str = r#"<Ruleset Name="bench distance" SetId="6">
  <SoftFilters><SoftFilter Attribute="distance" Weight="100%"/></SoftFilters>
  <Limits MaxResults="50" MaxEvaluated="10000000"/>
</Ruleset>
"#;

/// Name of a server that requires authentication.
pub(crate) const AUTHENTICATED: &str = "fireteam-authenticated";

fn issuer() -> JwtSigningKey {
    JwtSigningKey::from_seed(&[7; 32]).expect("a key")
}

/// `authorization` header of a game server for an `AUTHENTICATED` server.
pub(crate) fn header() -> AsciiMetadataValue {
    let iat = SystemClock::start().now().0 / 1000;
    let (iss, sub, aud) = ("bench".into(), "eu-1".into(), "bench".into());
    let issued = CallerTokenClaims {
        iss,
        sub,
        aud,
        iat,
        exp: iat + 3_600 * 12,
        role: Some(Role::GameServer.as_str().into()),
        scope: None,
    };
    let header = format!("Bearer {}", issuer().sign_jwt(&issued).expect("a token"));
    header.parse().expect("a header")
}

/// A server process; killed when dropped.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    process: std::process::Child,
    /// Address of gRPC.
    pub(crate) address: SocketAddr,
    /// Address of the TCP echo; equal to `address` for other servers.
    pub(crate) raw_address: SocketAddr,
}

impl ServerProcess {
    /// Starts `echo`, `fireteam-memory`, `fireteam-sqlite`, `fireteam-postgres` or `fireteam-authenticated` with this number of
    /// advertisements, and waits until it serves.
    pub(crate) fn start(what: &str, advertisements: u64) -> Self {
        Self::start_with(what, advertisements, &[])
    }

    /// Starts one of these with more arguments, or `redis-matchmaker` or `redis-search` with the address of Redis and a number.
    pub(crate) fn start_with(what: &str, advertisements: u64, more: &[&str]) -> Self {
        let program = std::env::current_exe().expect("the path of this program");
        let mut process = Command::new(program)
            .args(["--bench", SERVE_ARGUMENT, what, &advertisements.to_string()])
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server process starts");
        let mut line = String::new();
        let stdout = process.stdout.take().expect("stdout is piped");
        BufReader::new(stdout).read_line(&mut line).expect("the server says where it is");
        let mut addresses = line.split_whitespace().map(|it| it.parse().expect("an address"));
        let address = addresses.next().expect("the server started");
        Self { process, address, raw_address: addresses.next().unwrap_or(address) }
    }

    /// Processor time of all its threads, microseconds.
    pub(crate) fn cpu_us(&self) -> f64 {
        cpu_us_of(self.process.id())
    }

    /// Its resident memory, bytes.
    pub(crate) fn resident_bytes(&self) -> u64 {
        crate::harness::resident_bytes_of(&self.process.id().to_string())
    }
}

/// Processor time of all threads of a process, microseconds.
pub(crate) fn cpu_us_of(process: u32) -> f64 {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).expect("the server lives");
    let ns = |entry: std::io::Result<std::fs::DirEntry>| {
        let stat = std::fs::read_to_string(entry.ok()?.path().join("schedstat")).ok()?;
        stat.split_whitespace().next()?.parse::<u64>().ok()
    };
    threads.filter_map(ns).sum::<u64>() as f64 / 1e3
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Runs a server process until its parent closes its standard input.
pub(crate) fn serve(what: &str, advertisements: u64, more: &[String]) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let redis = || more[0].parse().expect("the address of Redis");
        let number = || more[1].parse().expect("a number");
        let _kept = match what {
            "echo" => {
                let (address, raw_address) = echo::serve().await;
                println!("{address} {raw_address}");
                None
            }
            "redis-matchmaker" => {
                println!("{}", redis_matchmaker::serve(redis(), std::time::Duration::from_millis(number())).await);
                None
            }
            "redis-search" => {
                println!("{}", redis_search::serve(redis(), number()).await);
                None
            }
            _ => Some(serve_fireteam(what, advertisements, more).await),
        };
        let ended = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
        drop(ended.await);
    });
}

/// Starts fireteam, fills it and prints its address. Returns what must be kept.
async fn serve_fireteam(what: &str, advertisements: u64, more: &[String]) -> (impl Sized, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let rules = folder.path().join("rules");
    std::fs::create_dir(&rules).expect("a folder");
    let on_change = DRIVE_RULESET.replace("SetId=\"3\"", &format!("SetId=\"{DRIVE_SET_ON_CHANGE}\""));
    let on_change = on_change.replace("<Queue ", "<Queue Pass=\"on_change\" GatherMs=\"3\" ");
    let files = [
        ("bench", RULESET),
        ("queue", QUEUE_RULESET),
        ("drive", DRIVE_RULESET),
        ("drive_on_change", &on_change),
        ("waiting", WAITING_RULESET),
        ("distance", DISTANCE_RULESET),
    ];
    for (name, text) in files {
        std::fs::write(rules.join(name).with_extension("xml"), text).expect("a file");
    }
    let store = match what {
        "fireteam-sqlite" => StoreTarget::Sqlite(folder.path().join("bench.db")),
        "fireteam-postgres" => {
            let url = crate::store_postgres::database().expect("a database");
            StoreTarget::Postgres(PostgresUrl::parse(&url).expect("an address"))
        }
        _ => StoreTarget::Memory,
    };
    let mut config = config(RulesetSource::Directory(rules), store);
    if what == AUTHENTICATED {
        let keys = folder.path().join("jwks.json");
        std::fs::write(&keys, issuer().public_key_set()).expect("a file");
        config.auth = Some(JwtSettings::of_one_issuer("bench", "bench", &[keys]));
    }
    if what == PLACES_SERVER {
        config.location_grid_degrees = 0.0;
        config.session_location_grid_degrees = 0.0;
    }
    let app = start_app(&config, Arc::new(SystemClock::start())).await.expect("the server starts");
    if what == PLACES_SERVER {
        let ids = fill_places(&app.engine, advertisements).await;
        std::fs::write(&more[0], ids.join("\n")).expect("a file of ids");
    } else {
        fill(&app.engine, advertisements).await;
    }
    println!("{}", app.server.address);
    (app, folder)
}

fn config(rulesets: RulesetSource, store: StoreTarget) -> Config {
    let free: ListenAddress = "127.0.0.1:0".parse().expect("an address");
    Config {
        listen: free.clone(),
        operator_listen: free,
        operator_hosts: Vec::new(),
        cors_origins: Vec::new(),
        store,
        store_wait_s: 0,
        silos: None,
        max_silos: 1_024,
        max_silos_per_user: 8,
        max_advertisements_per_client: 1,
        max_advertisements_per_server: 1_000,
        max_reservations_per_client: 1,
        max_tickets_per_user: 4,
        max_staleness_s: 300,
        rulesets,
        geoip_db_files: Vec::new(),
        trusted_proxies: Vec::new(),
        proxy_protocol: false,
        tls: None,
        auth: None,
        rate_limits: RateLimitSetting::Off,
        audit_log_file: None,
        token_key_file: None,
        match_key_file: None,
        audit_log_max_mib: 64,
        audit_log_max_files: 100,
        user_key_file: None,
        erasure_log_file: None,
        beacon_fleet_key_file: None,
        receipt_prefix: ReceiptNetworkSetting::Place,
        observe_tcp: false,
        beacon: None,
        rating_retention_days: None,
        pass_failure_dir: None,
        allow_client_locality: true,
        allow_search_overrides: true,
        insecure_allow_plaintext: false,
        insecure_allow_anonymous: false,
        log_format: LogFormat::Text,
        log_level: "warn".into(),
        log_max_kib_per_minute: 768,
        otlp_endpoint: None,
        otlp_sample_ratio: 0.01,
        disk_free_warning_mib: 512,
        advertisement_ttl_s: 600,
        reservation_ttl_s: 30,
        ruleset_retention_s: 600,
        ruleset_removal_grace_s: 600,
        location_grid_degrees: locality::DEFAULT_LOCATION_GRID_DEGREES,
        session_location_grid_degrees: location_privacy::DEFAULT_SESSION_GRID_DEGREES,
        region_places: Vec::new(),
        geoip_max_accuracy_radius_km: 500.0,
        shutdown_grace_period_s: 10,
    }
}

/// Publishes a population, in batches.
async fn fill(engine: &Engine, advertisements: u64) {
    let mut rng = SplitMix64(7);
    publish(engine, SetId(1), (0..advertisements).map(|_| client_session(&mut rng))).await;
}

/// Publishes sessions at the places of GEO. Returns their ids in the order of the places.
async fn fill_places(engine: &Engine, advertisements: u64) -> Vec<String> {
    let mut rng = SplitMix64(7);
    let sessions = places().take(advertisements as usize).map(|(latitude, longitude)| {
        let locality = Locality::from_degrees(latitude, longitude);
        Session { locality, attributes: Vec::new(), ..client_session(&mut rng) }
    });
    publish(engine, SetId(DISTANCE_SET), sessions).await
}

/// Publishes sessions in batches of 8,000. Returns their ids.
async fn publish(engine: &Engine, set_id: SetId, sessions: impl Iterator<Item = Session>) -> Vec<String> {
    let (mut ids, mut waiting, mut sessions) = (Vec::new(), Vec::new(), sessions.enumerate().peekable());
    while let Some((number, session)) = sessions.next() {
        let update = PublishOrHeartbeatAdvertCommand {
            session: Some(session),
            set_id: Some(set_id),
            idempotency_key: Some(format!("advertisement number {number:020}")),
            connect_data: vec![7; 16],
            ..PublishOrHeartbeatAdvertCommand::default()
        };
        waiting.push(engine.update_advertisement(&Caller::default(), update).expect("a good update"));
        if waiting.len() == 8_000 || sessions.peek().is_none() {
            for submitted in waiting.drain(..) {
                ids.push(submitted.wait().await.expect("it is stored").id.to_string());
            }
        }
    }
    ids
}
