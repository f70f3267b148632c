//! Servers that share a Postgres, each with a place in which it is killed, paused and started again.

use std::sync::{Mutex, RwLock};
use std::time::Duration;

use fireteam_client::{Client, RetryPolicy};
use tonic::transport::Endpoint;

use crate::support::server_process::ServerProcess;

/// Connections to each server, which its clients share: a server takes so many calls at once on each.
const CONNECTIONS: usize = 4;

/// What clients wait for an answer.
const DEADLINE: Duration = Duration::from_secs(4);

/// Servers on one database, with one key.
pub(crate) struct Fleet {
    folder: tempfile::TempDir,
    arguments: Vec<String>,
    settings: Vec<(String, String)>,
    places: Vec<Place>,
}

#[derive(Default)]
struct Place {
    server: Mutex<Option<ServerProcess>>,
    clients: RwLock<Vec<Client>>,
}

impl Fleet {
    /// `count` places, all empty. Each server gets its store by what `url` says.
    pub(crate) fn new(url: &str, count: usize) -> Self {
        Self::new_with(url, count, &[])
    }

    fn new_with(url: &str, count: usize, more: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let key = folder.path().join("token-key").display().to_string();
        let match_key = folder.path().join("match-key.pem").display().to_string();
        let keys = ["--token-key-file", &key, "--match-key-file", &match_key];
        let arguments = [&["--store", url, "--trusted-proxies", "127.0.0.0/8"], &keys[..], more].concat();
        let arguments = arguments.into_iter().map(str::to_owned).collect();
        let mutant = std::env::var_os("MUTANT").and_then(|it| it.into_string().ok());
        let settings = mutant.map(|name| ("MUTANT".to_owned(), name)).into_iter().collect();
        Self { folder, arguments, settings, places: (0..count).map(|_| Place::default()).collect() }
    }

    /// `count` servers, all of them serving.
    pub(crate) fn start(url: &str, count: usize) -> Self {
        Self::start_with(url, count, &[])
    }

    /// The same, each with `more` arguments.
    pub(crate) fn start_with(url: &str, count: usize, more: &[&str]) -> Self {
        let fleet = Self::new_with(url, count, more);
        std::thread::scope(|scope| {
            let runtime = tokio::runtime::Handle::current();
            for at in 0..count {
                let (fleet, runtime) = (&fleet, runtime.clone());
                scope.spawn(move || {
                    let _context = runtime.enter();
                    fleet.fill(at, None, &[]);
                });
            }
        });
        fleet
    }

    /// How many places there are.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Starts a server at `at`, on another store than the others' address for it if `url` says so; serving when this
    /// returns. Within a runtime, and blocking.
    pub(crate) fn fill(&self, at: usize, url: Option<&str>, settings: &[(&str, &str)]) {
        let mut arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        if let Some(url) = url {
            arguments[1] = url;
        }
        let mut all: Vec<(&str, &str)> = self.settings.iter().map(|(name, value)| (&**name, &**value)).collect();
        all.extend(settings);
        let server = ServerProcess::start_with(self.folder.path(), &arguments, &all);
        let clients = (0..CONNECTIONS).map(|_| client(&server.address.to_string())).collect();
        *self.places[at].clients.write().expect("unpoisoned") = clients;
        *self.places[at].server.lock().expect("unpoisoned") = Some(server);
    }

    /// SIGKILL, and nobody there until it is filled again.
    pub(crate) fn kill(&self, at: usize) {
        self.places[at].clients.write().expect("unpoisoned").clear();
        let server = self.places[at].server.lock().expect("unpoisoned").take();
        server.expect("somebody is there").kill();
    }

    /// Does something with the server at `at`.
    pub(crate) fn with<T>(&self, at: usize, what: impl FnOnce(&ServerProcess) -> T) -> T {
        what(self.places[at].server.lock().expect("unpoisoned").as_ref().expect("somebody is there"))
    }

    /// A way to the server at `at` that client `number` shares with some others, while one is there.
    pub(crate) fn client(&self, at: usize, number: usize) -> Option<Client> {
        self.places[at].clients.read().expect("unpoisoned").get(number % CONNECTIONS).cloned()
    }
}

/// A client that asks once, with a connection of its own.
pub(crate) fn client(address: &str) -> Client {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    let channel = endpoint.tcp_nodelay(true).connect_timeout(DEADLINE).connect_lazy();
    Client::from_channel(channel).with_retry_policy(RetryPolicy::NEVER).with_deadline(DEADLINE)
}
