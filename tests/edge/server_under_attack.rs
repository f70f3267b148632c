//! The server under attack, in a process of its own: its memory, its CPU time, and the latency of honest calls.

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

/// A server process.
pub(crate) struct ServerUnderAttack {
    child: Child,
    pub(crate) address: SocketAddr,
    authority: Option<CertificateAuthority>,
    log: Arc<Mutex<String>>,
    _folder: Option<tempfile::TempDir>,
}

impl ServerUnderAttack {
    /// Starts fireteam.
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self::spawn(fireteam_command(folder.path(), &serve_arguments(LISTEN)), None, Some(folder))
    }

    /// Starts fireteam with further arguments; `settings` may write files into its folder.
    pub(crate) fn start_with(settings: impl FnOnce(&Path) -> Vec<String>) -> Self {
        Self::start_at(LISTEN, settings)
    }

    /// The same with a client port at the address `listen`.
    pub(crate) fn start_at(listen: &str, settings: impl FnOnce(&Path) -> Vec<String>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = fireteam_command(folder.path(), &serve_arguments(listen));
        command.args(settings(folder.path()));
        Self::spawn(command, None, Some(folder))
    }

    /// Starts fireteam with TLS.
    pub(crate) fn start_with_tls() -> Self {
        let authority = CertificateAuthority::new("test CA");
        let mut server = Self::start_with(|folder| {
            write_server_certificate(folder, &authority.server_certificate());
            ["--tls-certificate", "server.pem", "--tls-key", "server.key"].map(str::to_owned).into()
        });
        server.authority = Some(authority);
        server
    }

    /// Starts fireteam with a limit of `descriptors` open files.
    pub(crate) fn start_with_descriptors(descriptors: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let inside = fireteam_command(folder.path(), &serve_arguments(LISTEN));
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", &format!("ulimit -n {descriptors}; exec \"$0\" \"$@\"")]);
        shell.arg(inside.get_program()).args(inside.get_args()).current_dir(folder.path());
        Self::spawn(shell, None, Some(folder))
    }

    /// Starts `command`, which prints its address to standard error as `listen=`.
    pub(crate) fn spawn(
        mut command: Command,
        authority: Option<CertificateAuthority>,
        folder: Option<tempfile::TempDir>,
    ) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the process starts");
        let mut lines = BufReader::new(child.stderr.take().expect("piped"));
        let mut before = String::new();
        let address = loop {
            let mut line = String::new();
            if lines.read_line(&mut line).expect("text") == 0 {
                panic!("it does not serve:\n{before}");
            }
            if let Some(address) = line.split_whitespace().find_map(|word| word.strip_prefix("listen=")) {
                break address.parse().expect("an address");
            }
            before.push_str(&line);
        };
        let log = Arc::new(Mutex::new(String::new()));
        let log_writer = log.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = lines.read(&mut buffer) {
                log_writer.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..read]));
            }
        });
        Self { child, address, authority, log, _folder: folder }
    }

    /// Standard error since it started to listen.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Resident memory, MiB.
    pub(crate) fn resident_mib(&self) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("the process runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
        line.trim().trim_end_matches(" kB").parse::<f64>().expect("a number") / 1024.0
    }

    /// CPU time so far.
    pub(crate) fn cpu_time(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).expect("the process runs");
        let fields: Vec<&str> = stat.rsplit(')').next().expect("fields").split_whitespace().collect();
        // Fields 14 and 15 (user and system time), in hundredths of a second; two fields are before the parenthesis.
        let hundredths: u64 = fields[11..13].iter().map(|it| it.parse::<u64>().expect("a number")).sum();
        Duration::from_millis(10 * hundredths)
    }

    /// A TCP connection from the loopback address `address`.
    pub(crate) async fn connect_from(&self, address: &str) -> std::io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(SocketAddr::new(address.parse().expect("an address"), 0))?;
        socket.connect(self.address).await
    }

    /// An honest client.
    pub(crate) async fn client(&self) -> HealthClient<Channel> {
        connect(self.endpoint()).await
    }

    /// Makes honest calls on a thread of their own, so that attackers in this process do not delay them: for a short time before
    /// `ready` is sent, for `duration` during the attack, and for a short time after `over` is received. Returns the latencies
    /// before and after, and those during the attack.
    pub(crate) fn honest_calls(
        &self,
        ready: oneshot::Sender<()>,
        over: oneshot::Receiver<()>,
        duration: Duration,
    ) -> JoinHandle<(Latencies, Result<Latencies, String>)> {
        let endpoint = self.endpoint();
        tokio::task::spawn_blocking(move || {
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let mut client = connect(endpoint).await;
                let moment = (duration / 6).max(Duration::from_millis(150));
                let before = Latencies::measure(&mut client, Instant::now() + moment).await;
                let before = before.expect("calls before the attack are answered");
                ready.send(()).expect("the receiver is open");
                let during = Latencies::measure(&mut client, Instant::now() + duration).await;
                over.await.expect("the process ends");
                let after = Latencies::measure(&mut client, Instant::now() + moment).await;
                (before.and(after.expect("calls after the attack are answered")), during)
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
    HealthClient::new(channel.expect("in time").expect("an honest client can connect"))
}

/// Address of the client port, with a free port number.
const LISTEN: &str = "127.0.0.1:0";

/// Arguments of fireteam with a client port at the address `listen`.
fn serve_arguments(listen: &str) -> Vec<&str> {
    let fixed = ["serve", "--operator-listen", "127.0.0.1:0", "--store", "memory:", "--rulesets", "bundled:"];
    fixed.into_iter().chain(["--listen", listen]).collect()
}

impl Drop for ServerUnderAttack {
    fn drop(&mut self) {
        // The process may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Latencies of calls, sorted.
#[derive(Debug)]
pub(crate) struct Latencies(Vec<Duration>);

impl Latencies {
    /// Makes calls one after another until `end`; each must be answered.
    async fn measure(client: &mut HealthClient<Channel>, end: Instant) -> Result<Self, String> {
        let mut taken = Vec::new();
        while Instant::now() < end || taken.is_empty() {
            let started = Instant::now();
            client
                .check(HealthCheckRequest::default())
                .await
                .map_err(|error| format!("a call was not answered: {error}"))?;
            taken.push(started.elapsed());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(Self::of(taken))
    }

    /// Sorts the latencies.
    pub(crate) fn of(mut taken: Vec<Duration>) -> Self {
        taken.sort_unstable();
        Self(taken)
    }

    fn and(self, other: Self) -> Self {
        Self::all(vec![self, other])
    }

    /// Latencies of several measurements together.
    pub(crate) fn all(times: Vec<Self>) -> Self {
        Self::of(times.into_iter().flat_map(|it| it.0).collect())
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// The latency that `percent` per cent of the calls do not exceed.
    pub(crate) fn percentile(&self, percent: usize) -> Duration {
        self.0[(self.0.len() * percent / 100).min(self.0.len() - 1)]
    }
}
