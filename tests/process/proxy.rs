//! Proxies that lose messages: between clients and a server, or between a server and Postgres.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;

/// Fault for the next commit that passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommitFault {
    /// Forwards the commit and loses its answer.
    LoseAnswer,
    /// Loses the commit.
    LoseCommit,
    /// Closes the sender's connection at once, and forwards the commit a moment later.
    DelayCommit,
}

/// Delay of a delayed commit.
const DELAY: Duration = Duration::from_millis(150);

/// `commit` and `rollback` as the server sends them: each a simple query in a message of its own.
pub(crate) const COMMIT: &[u8] = b"Q\0\0\0\x0bcommit\0";
pub(crate) const ROLLBACK: &[u8] = b"Q\0\0\0\x0drollback\0";

/// `begin` as the server sends it. A statement outside a transaction commits itself, so it counts as a commit.
const BEGIN: &[u8] = b"Q\0\0\0\x0abegin\0";

/// Last bytes of each executed statement: execute, close, sync.
const STATEMENT_END: &[u8] = b"E\0\0\0\x09\0\0\0\0\0C\0\0\0\x06P\0S\0\0\0\x04";

/// Table of servers' signs of life.
const ALIVE_TABLE: &[u8] = b"server_alive";

/// Application name of connections that write.
const WRITER_NAME: &[u8] = b"fireteam adverts";

/// Proxy between a server and Postgres.
pub(crate) struct StoreProxy {
    next: Arc<Mutex<Option<CommitFault>>>,
    lost: Arc<AtomicUsize>,
    hang: watch::Sender<Hang>,
    folder: tempfile::TempDir,
}

/// Address of the Postgres behind a proxy.
#[derive(Clone, Debug)]
pub(crate) enum PostgresAddress {
    /// Socket in this folder.
    Socket(PathBuf),
    /// TCP address.
    Tcp(&'static str),
}

/// Name of the Postgres socket in its folder, and its port.
const SOCKET: &str = ".s.PGSQL.5432";
const PORT: u16 = 5432;

/// When the proxy stops forwarding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hang {
    /// Never.
    Never,
    /// From the next message that ends with these bytes.
    AtNext(&'static [u8]),
    /// Now.
    Now,
}

impl StoreProxy {
    /// Listens on a socket in a temporary folder.
    pub(crate) fn listen(postgres: PostgresAddress) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let listener = UnixListener::bind(folder.path().join(SOCKET)).expect("a socket");
        let proxy = Self { next: Arc::default(), lost: Arc::default(), hang: watch::Sender::new(Hang::Never), folder };
        let hang = proxy.hang.clone();
        let (next, lost) = (Arc::clone(&proxy.next), Arc::clone(&proxy.lost));
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let (next, lost, hang) = (Arc::clone(&next), Arc::clone(&lost), hang.clone());
                let postgres = postgres.clone();
                tokio::spawn(async move {
                    match postgres {
                        PostgresAddress::Socket(folder) => {
                            let Ok(far) = UnixStream::connect(folder.join(SOCKET)).await else { return };
                            forward_connection(near, far, next, lost, hang).await;
                        }
                        PostgresAddress::Tcp(address) => {
                            let Ok(far) = TcpStream::connect((address, PORT)).await else { return };
                            forward_connection(near, far, next, lost, hang).await;
                        }
                    }
                });
            }
        });
        proxy
    }

    /// URL of the database `name` through this proxy.
    pub(crate) fn url(&self, name: &str) -> String {
        format!("postgres:///{name}?host={}&user=fireteam", self.folder.path().display())
    }

    /// Applies the fault to the next commit.
    pub(crate) fn inject_next(&self, fault: CommitFault) {
        *self.next.lock().expect("unpoisoned") = Some(fault);
    }

    /// Stops forwarding from the next `pattern` on, on all connections, without closing any.
    pub(crate) fn hang_at(&self, pattern: &'static [u8]) {
        self.hang.send_replace(Hang::AtNext(pattern));
    }

    /// Forwards again, including messages that were held back.
    pub(crate) fn resume(&self) {
        self.hang.send_replace(Hang::Never);
    }

    /// Removes the pending fault; true if no commit had passed since.
    pub(crate) fn disarm(&self) -> bool {
        self.next.lock().expect("unpoisoned").take().is_some()
    }

    /// Number of commits with an injected fault.
    pub(crate) fn lost(&self) -> usize {
        self.lost.load(Ordering::SeqCst)
    }
}

/// Forwards one connection until either side closes it or a fault is injected.
async fn forward_connection(
    near: UnixStream,
    far: impl AsyncRead + AsyncWrite + Send + 'static,
    next: Arc<Mutex<Option<CommitFault>>>,
    lost: Arc<AtomicUsize>,
    hang: watch::Sender<Hang>,
) {
    let (mut near_in, mut near_out) = near.into_split();
    let (mut far_in, mut far_out) = tokio::io::split(far);
    let answers = tokio::spawn(async move { tokio::io::copy(&mut far_in, &mut near_out).await.map(drop) });
    let mut buffer = vec![0; 64 * 1024];
    let (mut is_writer, mut in_transaction, mut has_leases) = (false, false, false);
    while let Ok(count @ 1..) = near_in.read(&mut buffer).await {
        let bytes = &buffer[..count];
        hang.send_if_modified(|hang| match *hang {
            Hang::AtNext(pattern) if bytes.ends_with(pattern) => {
                *hang = Hang::Now;
                true
            }
            Hang::AtNext(_) | Hang::Never | Hang::Now => false,
        });
        if hang.subscribe().wait_for(|hang| *hang != Hang::Now).await.is_err() {
            return;
        }
        is_writer |= bytes.windows(WRITER_NAME.len()).any(|pattern| pattern == WRITER_NAME);
        in_transaction = (in_transaction || bytes.ends_with(BEGIN))
            && ![COMMIT, ROLLBACK].iter().any(|pattern| bytes.ends_with(pattern));
        // The connection for leases and signs of life commits by itself every two seconds: not what a caller waits for.
        has_leases |= bytes.windows(ALIVE_TABLE.len()).any(|pattern| pattern == ALIVE_TABLE);
        let commits = bytes.ends_with(COMMIT) || (is_writer && !in_transaction && bytes.ends_with(STATEMENT_END));
        let fault = (commits && !has_leases).then(|| next.lock().expect("unpoisoned").take()).flatten();
        let Some(fault) = fault else {
            if far_out.write_all(bytes).await.is_err() {
                break;
            }
            continue;
        };
        lost.fetch_add(1, Ordering::SeqCst);
        // No answer is forwarded from here on. When both halves are dropped, the sender's connection is closed.
        answers.abort();
        let _ = answers.await;
        match fault {
            CommitFault::LoseCommit => {}
            CommitFault::LoseAnswer => {
                let _ = far_out.write_all(bytes).await;
                // Postgres reads all that has been sent before it notices the closed connection.
                let _ = far_out.shutdown().await;
            }
            CommitFault::DelayCommit => {
                drop(near_in);
                tokio::time::sleep(DELAY).await;
                let _ = far_out.write_all(bytes).await;
                let _ = far_out.shutdown().await;
            }
        }
        return;
    }
    answers.abort();
}

/// Proxy between clients and a server that loses the answer to the last call of each connection.
pub(crate) struct ClientProxy {
    pub(crate) address: String,
    armed: watch::Sender<bool>,
    pub(crate) lost: Arc<AtomicUsize>,
}

impl ClientProxy {
    /// Listens on a free port in front of `server`.
    pub(crate) async fn listen(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let (armed, is_armed) = watch::channel(false);
        let lost = Arc::new(AtomicUsize::new(0));
        let proxy = Self { address, armed, lost: Arc::clone(&lost) };
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let Ok(far) = TcpStream::connect(&server).await else { continue };
                let _ = near.set_nodelay(true);
                let _ = far.set_nodelay(true);
                let (is_armed, lost) = (is_armed.clone(), Arc::clone(&lost));
                tokio::spawn(async move {
                    let (near_in, near_out) = near.into_split();
                    let (far_in, far_out) = far.into_split();
                    let requests = tokio::spawn(forward(near_in, far_out));
                    if forward_answers(far_in, near_out, &is_armed).await {
                        lost.fetch_add(1, Ordering::SeqCst);
                    }
                    requests.abort();
                });
            }
        });
        proxy
    }

    /// Sets whether answers are lost from now on.
    pub(crate) fn arm(&self, armed: bool) {
        self.armed.send_replace(armed);
    }
}

async fn forward(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) {
    let _ = tokio::io::copy(&mut from, &mut to).await;
}

/// Forwards frames to the client. Once armed, it drops the first frame that begins an answer, and returns `true`.
async fn forward_answers(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    armed: &watch::Receiver<bool>,
) -> bool {
    const HEAD: usize = 9;
    const HEADERS: u8 = 1;
    loop {
        let mut frame = vec![0; HEAD];
        if from.read_exact(&mut frame).await.is_err() {
            return false;
        }
        let length = usize::from(frame[0]) << 16 | usize::from(frame[1]) << 8 | usize::from(frame[2]);
        if frame[3] == HEADERS && *armed.borrow() {
            return true;
        }
        frame.resize(HEAD + length, 0);
        if from.read_exact(&mut frame[HEAD..]).await.is_err() || to.write_all(&frame).await.is_err() {
            return false;
        }
    }
}
