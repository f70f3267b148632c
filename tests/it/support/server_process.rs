//! The fireteam binary as a child process: started with flags in a directory, awaited by its log lines, ended by its
//! process id.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use fireteam_client::Client;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

/// Time limit of a wait, also on a busy machine.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Binary of this build.
const FIRETEAM: &str = env!("CARGO_BIN_EXE_fireteam");

/// A running server process. Killed on drop.
pub(crate) struct ServerProcess {
    child: Child,
    pub(crate) log: Arc<StderrLog>,
    /// Address of the client port.
    pub(crate) address: SocketAddr,
    /// Address of the operator port.
    pub(crate) operator_address: SocketAddr,
    /// Time from the start of the process to its log line `server started`.
    pub(crate) started_in: Duration,
}

/// Result of a process that has exited.
pub(crate) struct ProcessExit {
    /// Exit code; `None` after a signal.
    pub(crate) exit_code: Option<i32>,
    /// Complete standard error.
    pub(crate) log: String,
    /// Time until the exit.
    pub(crate) duration: Duration,
}

/// Command that runs the binary in `folder`, without the `FIRETEAM_` variables of this environment.
pub(crate) fn fireteam_command(folder: &Path, arguments: &[&str]) -> Command {
    command_of(Path::new(FIRETEAM), folder, arguments)
}

/// Command that runs a program as `fireteam_command` does.
fn command_of(program: &Path, folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("FIRETEAM_")) {
        command.env_remove(name);
    }
    command.current_dir(folder).args(arguments).stdin(Stdio::null());
    command
}

/// Arguments for free ports.
const FREE_PORTS: [&str; 4] = ["--listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0"];

/// Spawns `serve` of a program with `arguments` only.
fn spawn_serve(
    program: &Path,
    folder: &Path,
    arguments: &[&str],
    settings: &[(&str, &str)],
) -> (Child, Arc<StderrLog>, Instant) {
    let started_at = Instant::now();
    let mut command = command_of(program, folder, &["serve"]);
    command.envs(settings.iter().copied());
    let mut child =
        command.args(arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the binary starts");
    let log = StderrLog::capture(child.stderr.take().expect("piped"));
    (child, log, started_at)
}

/// Starts a server that is expected to refuse, and waits for its exit.
pub(crate) fn run_until_exit(folder: &Path, arguments: &[&str]) -> ProcessExit {
    ServerProcess::run_until_exit_with(folder, arguments, &[])
}

impl ServerProcess {
    /// Starts a server in `folder` on free ports and waits until it serves. The store is a SQLite file there unless
    /// `arguments` say otherwise.
    pub(crate) fn start(folder: &Path, arguments: &[&str]) -> Self {
        Self::start_with(folder, arguments, &[])
    }

    /// Starts a server with `settings` as environment variables and waits until it serves.
    pub(crate) fn start_with(folder: &Path, arguments: &[&str], settings: &[(&str, &str)]) -> Self {
        Self::start_program(Path::new(FIRETEAM), folder, arguments, settings)
    }

    /// Starts a server whose `arguments` give the addresses of both ports, and waits until it serves.
    pub(crate) fn start_without_ports(folder: &Path, arguments: &[&str]) -> Self {
        Self::wait_until_serving(spawn_serve(Path::new(FIRETEAM), folder, arguments, &[]))
    }

    /// Starts a server that is expected to refuse, with `settings` as environment variables, and waits for its exit.
    pub(crate) fn run_until_exit_with(folder: &Path, arguments: &[&str], settings: &[(&str, &str)]) -> ProcessExit {
        let arguments = [&FREE_PORTS, arguments].concat();
        let (child, log, started_at) = spawn_serve(Path::new(FIRETEAM), folder, &arguments, settings);
        collect_exit(child, &log, started_at)
    }

    /// Starts a server of another build, as `start_with` does.
    pub(crate) fn start_program(program: &Path, folder: &Path, arguments: &[&str], settings: &[(&str, &str)]) -> Self {
        Self::wait_until_serving(spawn_serve(program, folder, &[&FREE_PORTS, arguments].concat(), settings))
    }

    /// Starts a server as `start` does, that receives an error, and no signal, when a file reaches its size limit.
    pub(crate) fn start_ignoring_file_size_signal(folder: &Path, arguments: &[&str]) -> Self {
        let started_at = Instant::now();
        let mut command = Command::new("sh");
        command.args(["-c", r#"trap '' XFSZ; exec "$0" "$@""#, FIRETEAM, "serve"]);
        command.args(FREE_PORTS).args(arguments);
        command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("a shell");
        let log = StderrLog::capture(child.stderr.take().expect("piped"));
        Self::wait_until_serving((child, log, started_at))
    }

    /// Limits the size of the files that the process writes, bytes; `None` for no limit. Returns whether the system can.
    pub(crate) fn limit_file_size(&self, bytes: Option<u64>) -> bool {
        let limit = bytes.map_or_else(|| "unlimited".to_owned(), |bytes| bytes.to_string());
        let arguments = [format!("--pid={}", self.child.id()), format!("--fsize={limit}:unlimited")];
        Command::new("prlimit").args(arguments).status().is_ok_and(|status| status.success())
    }

    fn wait_until_serving((child, log, started_at): (Child, Arc<StderrLog>, Instant)) -> Self {
        let Some(line) = log.wait_for_lines("server started listen=", 1).pop() else {
            panic!("the server exited before serving:\n{}", collect_exit(child, &log, started_at).log);
        };
        let started_in = started_at.elapsed();
        let field = |key: &str| line.split_whitespace().find_map(|word| word.strip_prefix(key)?.parse().ok());
        let address = field("listen=").expect("the log line has listen=");
        let operator_address = field("operator_listen=").expect("the log line has operator_listen=");
        Self { child, log, address, operator_address, started_in }
    }

    /// Client of the server.
    pub(crate) async fn client(&self) -> Client {
        Client::connect(format!("http://{}", self.address)).await.expect("connect")
    }

    /// Client with a forwarded address; the server must trust loopback as a proxy.
    pub(crate) async fn client_from(&self, address: &str) -> Client {
        self.client().await.with_metadata("x-forwarded-for", address).expect("a header")
    }

    /// Client of the operator service.
    pub(crate) async fn operator_client(
        &self,
    ) -> crate::support::generated_client::operator_service_client::OperatorServiceClient<tonic::transport::Channel>
    {
        let uri = format!("http://{}", self.operator_address);
        let channel = tonic::transport::Endpoint::from_shared(uri).unwrap().connect().await.expect("connect");
        crate::support::generated_client::operator_service_client::OperatorServiceClient::new(channel)
    }

    /// Response to an HTTP GET on the operator port, with its headers.
    pub(crate) async fn operator_page(&self, path: &str) -> String {
        let mut socket = tokio::net::TcpStream::connect(self.operator_address).await.expect("connect");
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        socket.write_all(request.as_bytes()).await.expect("write the request");
        let mut response = Vec::new();
        let read = tokio::time::timeout(TEST_TIMEOUT, socket.read_to_end(&mut response)).await;
        read.expect("a response in time").expect("a response");
        String::from_utf8(response).expect("UTF-8")
    }

    /// Sends SIGKILL and waits for the exit.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("kill the process");
        self.child.wait().expect("wait for the exit");
    }

    /// Sends SIGTERM without waiting.
    pub(crate) fn terminate(&self) {
        self.signal("TERM");
    }

    /// Sends a signal by name without waiting.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("sh").args(["-c", &format!("kill -{name} {}", self.child.id())]).status();
        assert!(sent.expect("a shell").success());
    }

    /// Waits until the process exits by itself. `duration` counts from this call.
    pub(crate) fn wait_for_exit(mut self) -> ProcessExit {
        let (started_at, log) = (Instant::now(), self.log.clone());
        assert!(log.wait_for_end(), "the process did not exit:\n{}", log.text());
        let status = self.child.wait().expect("wait for the exit");
        ProcessExit { exit_code: status.code(), log: log.text(), duration: started_at.elapsed() }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // The process may have exited already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn collect_exit(mut child: Child, log: &StderrLog, started_at: Instant) -> ProcessExit {
    let is_closed = log.wait_for_end();
    if !is_closed {
        drop(child.kill());
    }
    let status = child.wait().expect("wait for the exit");
    assert!(is_closed, "the process neither serves nor exits:\n{}", log.text());
    ProcessExit { exit_code: status.code(), log: log.text(), duration: started_at.elapsed() }
}

/// Standard error of a process, line by line, as it is written.
#[derive(Default)]
pub(crate) struct StderrLog {
    state: Mutex<LogState>,
    changed: Condvar,
}

#[derive(Default)]
struct LogState {
    lines: Vec<String>,
    is_closed: bool,
}

impl StderrLog {
    pub(crate) fn capture(stderr: ChildStderr) -> Arc<Self> {
        let log = Arc::new(Self::default());
        let reader_log = log.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                reader_log.state.lock().unwrap().lines.push(line);
                reader_log.changed.notify_all();
            }
            reader_log.state.lock().unwrap().is_closed = true;
            reader_log.changed.notify_all();
        });
        log
    }

    /// Waits for `count` lines that contain `text` and returns them. Returns fewer if the process exits or the time
    /// limit passes.
    pub(crate) fn wait_for_lines(&self, text: &str, count: usize) -> Vec<String> {
        let matching = |state: &LogState| -> Vec<String> {
            state.lines.iter().filter(|line| line.contains(text)).cloned().collect()
        };
        let state = self.state.lock().unwrap();
        let is_waiting = |state: &mut LogState| !state.is_closed && matching(state).len() < count;
        let (state, _) = self.changed.wait_timeout_while(state, TEST_TIMEOUT, is_waiting).unwrap();
        matching(&state)
    }

    /// Waits until standard error is closed; false if the time limit passes first.
    fn wait_for_end(&self) -> bool {
        let state = self.state.lock().unwrap();
        self.changed.wait_timeout_while(state, TEST_TIMEOUT, |state| !state.is_closed).unwrap().0.is_closed
    }

    /// All lines so far.
    pub(crate) fn text(&self) -> String {
        self.state.lock().unwrap().lines.join("\n")
    }
}
