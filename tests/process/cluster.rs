//! Several servers on one Postgres, each in a slot in which it can be killed, paused and started again.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, RwLock};
use std::time::Duration;

use fireteam_client::{Client, RetryPolicy};
use tonic::transport::Endpoint;

use crate::report::TestRng;
use crate::support::server_process::ServerProcess;

/// Connections to each server. Clients share them, because a server limits concurrent calls per connection.
const CONNECTIONS: usize = 4;

/// Client timeout of a call.
const DEADLINE: Duration = Duration::from_secs(4);

/// Servers on one database, with the same keys.
pub(crate) struct Cluster {
    folder: tempfile::TempDir,
    arguments: Vec<String>,
    settings: Vec<(String, String)>,
    slots: Vec<ServerSlot>,
}

#[derive(Default)]
struct ServerSlot {
    server: Mutex<Option<ServerProcess>>,
    clients: RwLock<Vec<Client>>,
}

impl Cluster {
    /// `count` empty slots. `url` is the database of each server.
    pub(crate) fn new(url: &str, count: usize) -> Self {
        Self::new_with(url, count, &[])
    }

    /// `count` empty slots, whose servers get `more` arguments.
    pub(crate) fn new_with(url: &str, count: usize, more: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let key = folder.path().join("token-key").display().to_string();
        let match_key = folder.path().join("match-key.pem").display().to_string();
        let keys = ["--token-key-file", &key, "--match-key-file", &match_key];
        let arguments = [&["--store", url, "--trusted-proxies", "127.0.0.0/8"], &keys[..], more].concat();
        let arguments = arguments.into_iter().map(str::to_owned).collect();
        let fail_points = std::env::var_os("FAILPOINTS").and_then(|value| value.into_string().ok());
        let settings = fail_points.map(|points| ("FAILPOINTS".to_owned(), points)).into_iter().collect();
        Self { folder, arguments, settings, slots: (0..count).map(|_| ServerSlot::default()).collect() }
    }

    /// `count` empty slots, whose servers have one ruleset.
    pub(crate) fn new_with_ruleset(url: &str, count: usize, ruleset: &str) -> Self {
        Self::new_with_ruleset_and(url, count, ruleset, &[])
    }

    /// The same, whose servers get `more` arguments.
    fn new_with_ruleset_and(url: &str, count: usize, ruleset: &str, more: &[&str]) -> Self {
        let mut cluster = Self::new_with(url, count, more);
        let rules = cluster.folder.path().join("rules");
        std::fs::create_dir(&rules).expect("a folder");
        std::fs::write(rules.join("rules.xml"), ruleset).expect("a ruleset");
        cluster.arguments.extend(["--rulesets".to_owned(), rules.display().to_string()]);
        cluster
    }

    /// `count` servers with one ruleset, all serving.
    pub(crate) fn start_with_ruleset(url: &str, count: usize, ruleset: &str) -> Self {
        Self::new_with_ruleset(url, count, ruleset).filled()
    }

    /// The same, each with `more` arguments.
    pub(crate) fn start_with_ruleset_and(url: &str, count: usize, ruleset: &str, more: &[&str]) -> Self {
        Self::new_with_ruleset_and(url, count, ruleset, more).filled()
    }

    /// `count` servers, all serving.
    pub(crate) fn start(url: &str, count: usize) -> Self {
        Self::start_with(url, count, &[])
    }

    /// The same, each with `more` arguments.
    pub(crate) fn start_with(url: &str, count: usize, more: &[&str]) -> Self {
        Self::new_with(url, count, more).filled()
    }

    /// The cluster, with a server in each slot.
    fn filled(self) -> Self {
        std::thread::scope(|scope| {
            let runtime = tokio::runtime::Handle::current();
            for at in 0..self.len() {
                let (cluster, runtime) = (&self, runtime.clone());
                scope.spawn(move || {
                    let _context = runtime.enter();
                    cluster.fill(at, None, &[]);
                });
            }
        });
        self
    }

    /// Number of slots.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Starts a server in slot `at`, with its own address of the database if `url` is given. It serves when this returns.
    /// Blocking; must be called within a runtime.
    pub(crate) fn fill(&self, at: usize, url: Option<&str>, settings: &[(&str, &str)]) {
        self.fill_with(at, url, |folder, arguments, own| {
            ServerProcess::start_with(folder, arguments, &[own, settings].concat())
        });
    }

    /// Starts a server of another build in slot `at`, as `fill` does.
    pub(crate) fn fill_with_program(&self, at: usize, program: &Path) {
        self.fill_with(at, None, |folder, arguments, own| {
            ServerProcess::start_program(program, folder, arguments, own)
        });
    }

    fn fill_with(
        &self,
        at: usize,
        url: Option<&str>,
        start: impl FnOnce(&Path, &[&str], &[(&str, &str)]) -> ServerProcess,
    ) {
        let mut arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        if let Some(url) = url {
            arguments[1] = url;
        }
        let settings: Vec<(&str, &str)> = self.settings.iter().map(|(name, value)| (&**name, &**value)).collect();
        let server = start(self.folder.path(), &arguments, &settings);
        let clients = (0..CONNECTIONS).map(|_| client(&server.address.to_string())).collect();
        *self.slots[at].clients.write().expect("unpoisoned") = clients;
        *self.slots[at].server.lock().expect("unpoisoned") = Some(server);
    }

    /// Kills the server with SIGKILL; the slot stays empty until the next `fill`.
    pub(crate) fn kill(&self, at: usize) {
        self.slots[at].clients.write().expect("unpoisoned").clear();
        let server = self.slots[at].server.lock().expect("unpoisoned").take();
        server.expect("a server is running").kill();
    }

    /// Kills a server and starts it again, with pauses of `pause_ms` milliseconds, until stopped. Returns the number of kills.
    /// Blocking; must be called within a runtime.
    pub(crate) fn kill_at_random(&self, rng: &TestRng, pause_ms: Range<usize>, stop: &AtomicBool) -> usize {
        let mut kills = 0;
        while !stop.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis((pause_ms.start + rng.below(pause_ms.len())) as u64));
            let at = rng.below(self.len());
            self.kill(at);
            kills += 1;
            self.fill(at, None, &[]);
        }
        kills
    }

    /// Calls `what` with the server in slot `at`.
    pub(crate) fn with<T>(&self, at: usize, what: impl FnOnce(&ServerProcess) -> T) -> T {
        what(self.slots[at].server.lock().expect("unpoisoned").as_ref().expect("a server is running"))
    }

    /// Address of the server in slot `at`. `None` while the slot is empty.
    pub(crate) fn address(&self, at: usize) -> Option<std::net::SocketAddr> {
        self.slots[at].server.lock().expect("unpoisoned").as_ref().map(|server| server.address)
    }

    /// The connection to the server in slot `at` that client `number` shares with others. `None` while the slot is empty.
    pub(crate) fn client(&self, at: usize, number: usize) -> Option<Client> {
        self.slots[at].clients.read().expect("unpoisoned").get(number % CONNECTIONS).cloned()
    }
}

/// A client without retries, on a connection of its own.
pub(crate) fn client(address: &str) -> Client {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    let channel = endpoint.tcp_nodelay(true).connect_timeout(DEADLINE).connect_lazy();
    Client::from_channel(channel).with_retry_policy(RetryPolicy::NEVER).with_attempt_deadline(DEADLINE)
}
