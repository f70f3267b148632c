//! The real binary as a process: started with flags in a folder of its own, waited for by what it says, ended by its id.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use fireteam_client::Client;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

/// Longer than anything here takes on a busy machine; what takes longer hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A server that serves. Killed, if it still runs, when this is dropped.
pub(crate) struct Process {
    child: Child,
    pub(crate) log: Arc<Log>,
    /// Where clients come.
    pub(crate) address: SocketAddr,
    /// Where operators come.
    pub(crate) operator_address: SocketAddr,
    /// From the start of the process to the line that says that it serves.
    pub(crate) started_in: Duration,
}

/// How a process ended.
pub(crate) struct Ended {
    /// Its exit code; `None` when a signal ended it.
    pub(crate) code: Option<i32>,
    /// All that it said on standard error.
    pub(crate) log: String,
    /// How long that took.
    pub(crate) took: Duration,
}

/// The binary, in `folder`, with nothing of our environment's settings.
pub(crate) fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fireteam"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("FIRETEAM_")) {
        command.env_remove(name);
    }
    command.current_dir(folder).args(arguments).stdin(Stdio::null());
    command
}

/// `serve` on ports that are free, with `settings` for its environment.
fn serve(folder: &Path, arguments: &[&str], settings: &[(&str, &str)]) -> (Child, Arc<Log>, Instant) {
    let begun = Instant::now();
    let free = ["serve", "--listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0"];
    let mut command = command(folder, &free);
    command.envs(settings.iter().copied());
    let mut child = command.args(arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    let log = Log::listen(child.stderr.take().expect("piped"));
    (child, log, begun)
}

/// Starts a server that is expected to refuse, and waits until it has.
pub(crate) fn refused(folder: &Path, arguments: &[&str]) -> Ended {
    let (child, log, begun) = serve(folder, arguments, &[]);
    ended(child, &log, begun)
}

impl Process {
    /// Serving when this returns: on ports of its own, in `folder`, on a SQLite file there unless `arguments` differ.
    pub(crate) fn start(folder: &Path, arguments: &[&str]) -> Self {
        Self::start_with(folder, arguments, &[])
    }

    /// The same, with `settings` for its environment.
    pub(crate) fn start_with(folder: &Path, arguments: &[&str], settings: &[(&str, &str)]) -> Self {
        let (child, log, begun) = serve(folder, arguments, settings);
        let Some(line) = log.wait_for("serving listen=", 1).pop() else {
            panic!("it does not serve:\n{}", ended(child, &log, begun).log);
        };
        let started_in = begun.elapsed();
        let told = |key: &str| line.split_whitespace().find_map(|word| word.strip_prefix(key)?.parse().ok());
        let address = told("listen=").expect("it says where clients come");
        let operator_address = told("operator_listen=").expect("it says where operators come");
        Self { child, log, address, operator_address, started_in }
    }

    /// A client of it.
    pub(crate) async fn client(&self) -> Client {
        Client::connect(format!("http://{}", self.address)).await.expect("connect")
    }

    /// A client that seems to come from `address`; the server must trust loopback as a proxy.
    pub(crate) async fn client_from(&self, address: &str) -> Client {
        self.client().await.with_metadata("x-forwarded-for", address).expect("a header")
    }

    /// A stub for operators.
    pub(crate) async fn operator(
        &self,
    ) -> crate::plain::operator_service_client::OperatorServiceClient<tonic::transport::Channel> {
        let uri = format!("http://{}", self.operator_address);
        let channel = tonic::transport::Endpoint::from_shared(uri).unwrap().connect().await.expect("connect");
        crate::plain::operator_service_client::OperatorServiceClient::new(channel)
    }

    /// A page of the operator's port.
    pub(crate) async fn page(&self, path: &str) -> String {
        let mut socket = tokio::net::TcpStream::connect(self.operator_address).await.expect("connect");
        let request = format!("GET {path} HTTP/1.1\r\nhost: fireteam\r\nconnection: close\r\n\r\n");
        socket.write_all(request.as_bytes()).await.expect("ask");
        let mut answer = Vec::new();
        let read = tokio::time::timeout(PATIENCE, socket.read_to_end(&mut answer)).await;
        read.expect("an answer in time").expect("an answer");
        String::from_utf8(answer).expect("text")
    }

    /// SIGKILL. Whatever it was doing, it does no more.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it was ours");
        self.child.wait().expect("it ends");
    }

    /// SIGTERM, and no waiting.
    pub(crate) fn terminate(&self) {
        self.signal("TERM");
    }

    /// A signal by its name, and no waiting.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("sh").args(["-c", &format!("kill -{name} {}", self.child.id())]).status();
        assert!(sent.expect("a shell").success());
    }

    /// Waits until it has ended by itself. `took` counts from this call.
    pub(crate) fn end(mut self) -> Ended {
        let (begun, log) = (Instant::now(), self.log.clone());
        assert!(log.wait_for_end(), "it hangs:\n{}", log.text());
        let status = self.child.wait().expect("it ends");
        Ended { code: status.code(), log: log.text(), took: begun.elapsed() }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn ended(mut child: Child, log: &Log, begun: Instant) -> Ended {
    let over = log.wait_for_end();
    if !over {
        drop(child.kill());
    }
    let status = child.wait().expect("it ends");
    assert!(over, "it neither serves nor ends:\n{}", log.text());
    Ended { code: status.code(), log: log.text(), took: begun.elapsed() }
}

/// What a process says on standard error, line by line, as it says it.
#[derive(Default)]
pub(crate) struct Log {
    said: Mutex<Said>,
    news: Condvar,
}

#[derive(Default)]
struct Said {
    lines: Vec<String>,
    over: bool,
}

impl Log {
    pub(crate) fn listen(stderr: ChildStderr) -> Arc<Self> {
        let log = Arc::new(Self::default());
        let heard = log.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                heard.said.lock().unwrap().lines.push(line);
                heard.news.notify_all();
            }
            heard.said.lock().unwrap().over = true;
            heard.news.notify_all();
        });
        log
    }

    /// The lines that contain `what`, once there are `count`; fewer when the process has ended or takes too long.
    pub(crate) fn wait_for(&self, what: &str, count: usize) -> Vec<String> {
        let with = |said: &Said| -> Vec<String> { said.lines.iter().filter(|it| it.contains(what)).cloned().collect() };
        let said = self.said.lock().unwrap();
        let waits = |said: &mut Said| !said.over && with(said).len() < count;
        let (said, _) = self.news.wait_timeout_while(said, PATIENCE, waits).unwrap();
        with(&said)
    }

    /// Whether it has ended; waits for it a good while.
    fn wait_for_end(&self) -> bool {
        let said = self.said.lock().unwrap();
        self.news.wait_timeout_while(said, PATIENCE, |said| !said.over).unwrap().0.over
    }

    /// Everything so far.
    pub(crate) fn text(&self) -> String {
        self.said.lock().unwrap().lines.join("\n")
    }
}
