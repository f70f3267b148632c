//! A server under attack, in a process of its own: what it weighs, how hard it works, and whether others are served.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::support::certs::{CertificateAuthority, write_server_certificate};
use crate::support::server_process::{TEST_TIMEOUT, fireteam_command};

/// A process that serves.
pub(crate) struct Victim {
    child: Child,
    pub(crate) address: SocketAddr,
    authority: Option<CertificateAuthority>,
    said: Arc<Mutex<String>>,
    _folder: Option<tempfile::TempDir>,
}

impl Victim {
    /// The real server.
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self::spawn(fireteam_command(folder.path(), &SERVE), None, Some(folder))
    }

    /// The real server with more settings, whose files are put into its folder.
    pub(crate) fn start_with(settings: impl FnOnce(&Path) -> Vec<String>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = fireteam_command(folder.path(), &SERVE);
        command.args(settings(folder.path()));
        Self::spawn(command, None, Some(folder))
    }

    /// The real server, with TLS.
    pub(crate) fn start_with_tls() -> Self {
        let authority = CertificateAuthority::new("house");
        let mut server = Self::start_with(|folder| {
            write_server_certificate(folder, &authority.server_certificate());
            ["--tls-certificate", "server.pem", "--tls-key", "server.key"].map(str::to_owned).into()
        });
        server.authority = Some(authority);
        server
    }

    /// The real server, which may have `descriptors` files and connections open.
    pub(crate) fn start_with_descriptors(descriptors: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let inside = fireteam_command(folder.path(), &SERVE);
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", &format!("ulimit -n {descriptors}; exec \"$0\" \"$@\"")]);
        shell.arg(inside.get_program()).args(inside.get_args()).current_dir(folder.path());
        Self::spawn(shell, None, Some(folder))
    }

    /// What `command` starts, which says on standard error where it listens.
    pub(crate) fn spawn(
        mut command: Command,
        authority: Option<CertificateAuthority>,
        folder: Option<tempfile::TempDir>,
    ) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let mut lines = BufReader::new(child.stderr.take().expect("piped"));
        let mut before = String::new();
        let address = loop {
            let mut line = String::new();
            if lines.read_line(&mut line).expect("text") == 0 {
                panic!("it does not serve:\n{before}");
            }
            if let Some(told) = line.split_whitespace().find_map(|word| word.strip_prefix("listen=")) {
                break told.parse().expect("an address");
            }
            before.push_str(&line);
        };
        let said = Arc::new(Mutex::new(String::new()));
        let noted = said.clone();
        std::thread::spawn(move || {
            let mut some = [0; 4096];
            while let Ok(read @ 1..) = lines.read(&mut some) {
                noted.lock().unwrap().push_str(&String::from_utf8_lossy(&some[..read]));
            }
        });
        Self { child, address, authority, said, _folder: folder }
    }

    /// What it has said since it serves.
    pub(crate) fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    /// Resident memory, MiB.
    pub(crate) fn resident_mib(&self) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
        line.trim().trim_end_matches(" kB").parse::<f64>().expect("a number") / 1024.0
    }

    /// Processor time so far.
    pub(crate) fn busy(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).expect("it runs");
        let fields: Vec<&str> = stat.rsplit(')').next().expect("fields").split_whitespace().collect();
        // The 14th and 15th field of all; two are before the parenthesis. In hundredths of a second.
        let hundredths: u64 = fields[11..13].iter().map(|it| it.parse::<u64>().expect("a number")).sum();
        Duration::from_millis(10 * hundredths)
    }

    /// A bare connection from `address`, one of loopback's many.
    pub(crate) async fn connect_from(&self, address: &str) -> std::io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(SocketAddr::new(address.parse().expect("an address"), 0))?;
        socket.connect(self.address).await
    }

    /// Somebody who means well.
    pub(crate) async fn client(&self) -> HealthClient<Channel> {
        connect(self.endpoint()).await
    }

    /// Somebody who means well, on a thread of his own: what attackers do in this process must not make him wait. Calls
    /// for a moment, says so to `ready`, then for `long` beside whatever happens, and when that is `over` for a moment again.
    /// How long calls took when it was quiet, before and after, and when it was not.
    pub(crate) fn honest_calls(
        &self,
        ready: oneshot::Sender<()>,
        over: oneshot::Receiver<()>,
        long: Duration,
    ) -> JoinHandle<(Latencies, Result<Latencies, String>)> {
        let endpoint = self.endpoint();
        tokio::task::spawn_blocking(move || {
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let mut client = connect(endpoint).await;
                let moment = (long / 6).max(Duration::from_millis(150));
                let before = Latencies::measure(&mut client, Instant::now() + moment).await;
                let before = before.expect("nobody is in the way yet");
                ready.send(()).expect("somebody waits");
                let during = Latencies::measure(&mut client, Instant::now() + long).await;
                over.await.expect("it ends");
                let after = Latencies::measure(&mut client, Instant::now() + moment).await;
                (before.and(after.expect("nobody is in the way any more")), during)
            })
        })
    }

    fn endpoint(&self) -> Endpoint {
        let scheme = if self.authority.is_some() { "https" } else { "http" };
        let mut endpoint = Endpoint::from_shared(format!("{scheme}://{}", self.address)).unwrap();
        if let Some(authority) = &self.authority {
            let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&authority.pem));
            endpoint = endpoint.tls_config(tls.domain_name("localhost")).unwrap();
        }
        endpoint.timeout(TEST_TIMEOUT)
    }
}

async fn connect(endpoint: Endpoint) -> HealthClient<Channel> {
    let channel = tokio::time::timeout(TEST_TIMEOUT, endpoint.connect()).await;
    HealthClient::new(channel.expect("in time").expect("others can connect"))
}

/// What the real server is told, besides.
const SERVE: [&str; 9] = [
    "serve",
    "--listen",
    "127.0.0.1:0",
    "--operator-listen",
    "127.0.0.1:0",
    "--store",
    "memory:",
    "--rulesets",
    "bundled:",
];

impl Drop for Victim {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// How long calls took, in order.
#[derive(Debug)]
pub(crate) struct Latencies(Vec<Duration>);

impl Latencies {
    /// Calls one after another until `end`; every one must be answered.
    async fn measure(client: &mut HealthClient<Channel>, end: Instant) -> Result<Self, String> {
        let mut taken = Vec::new();
        while Instant::now() < end || taken.is_empty() {
            let begun = Instant::now();
            client
                .check(HealthCheckRequest::default())
                .await
                .map_err(|why| format!("a call was not answered: {why}"))?;
            taken.push(begun.elapsed());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(Self::of(taken))
    }

    /// Those that were measured.
    pub(crate) fn of(mut taken: Vec<Duration>) -> Self {
        taken.sort_unstable();
        Self(taken)
    }

    fn and(self, other: Self) -> Self {
        Self::all(vec![self, other])
    }

    /// Those of several times, together.
    pub(crate) fn all(times: Vec<Self>) -> Self {
        Self::of(times.into_iter().flat_map(|it| it.0).collect())
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// The one that `percent` of them are no slower than.
    pub(crate) fn percentile(&self, percent: usize) -> Duration {
        self.0[(self.0.len() * percent / 100).min(self.0.len() - 1)]
    }
}
