//! Somebody in the middle who loses answers: between clients and a server, or between a server and Postgres.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;

/// What is done to the next commit that passes, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// It arrives, and its answer is lost.
    Answer,
    /// It is lost itself.
    Commit,
    /// Its sender is cut off at once; it arrives a moment later.
    Late,
}

/// How late a late commit is.
const LATE: Duration = Duration::from_millis(150);

/// A commit as the server sends it: a simple query of its own; and what it sends when it takes a transaction back.
pub(crate) const COMMIT: &[u8] = b"Q\0\0\0\x0bcommit\0";
pub(crate) const ROLLBACK: &[u8] = b"Q\0\0\0\x0drollback\0";

/// The begin of a transaction. What is executed outside of one is committed with it: a commit as well.
const BEGIN: &[u8] = b"Q\0\0\0\x0abegin\0";

/// How whatever is executed ends: execute, close, sync.
const EXECUTED: &[u8] = b"E\0\0\0\x09\0\0\0\0\0C\0\0\0\x06P\0S\0\0\0\x04";

/// What a connection that changes something calls itself.
const CHANGES: &[u8] = b"fireteam adverts";

/// Stands between a server and Postgres.
pub(crate) struct StoreProxy {
    next: Arc<Mutex<Option<Loss>>>,
    lost: Arc<AtomicUsize>,
    silence: watch::Sender<Silence>,
    folder: tempfile::TempDir,
}

/// Where Postgres is, behind a proxy.
#[derive(Clone, Debug)]
pub(crate) enum Behind {
    /// In this folder, by its socket.
    Folder(PathBuf),
    /// At this address.
    Address(&'static str),
}

/// Postgres' socket, in whichever folder, and its port.
const SOCKET: &str = ".s.PGSQL.5432";
const PORT: u16 = 5432;

/// When nothing passes any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Silence {
    /// Never.
    No,
    /// From the next time on that this is said.
    At(&'static [u8]),
    /// Now.
    Now,
}

impl StoreProxy {
    /// On a socket in a folder of its own.
    pub(crate) fn listen(behind: Behind) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let listener = UnixListener::bind(folder.path().join(SOCKET)).expect("a socket");
        let proxy =
            Self { next: Arc::default(), lost: Arc::default(), silence: watch::Sender::new(Silence::No), folder };
        let silence = proxy.silence.clone();
        let (next, lost) = (Arc::clone(&proxy.next), Arc::clone(&proxy.lost));
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let (next, lost, silence) = (Arc::clone(&next), Arc::clone(&lost), silence.clone());
                let behind = behind.clone();
                tokio::spawn(async move {
                    match behind {
                        Behind::Folder(folder) => {
                            let Ok(far) = UnixStream::connect(folder.join(SOCKET)).await else { return };
                            pass(near, far, next, lost, silence).await;
                        }
                        Behind::Address(address) => {
                            let Ok(far) = TcpStream::connect((address, PORT)).await else { return };
                            pass(near, far, next, lost, silence).await;
                        }
                    }
                });
            }
        });
        proxy
    }

    /// Where the database `name` is for whoever goes through here.
    pub(crate) fn url(&self, name: &str) -> String {
        format!("postgres:///{name}?host={}&user=fireteam", self.folder.path().display())
    }

    /// Arms it.
    pub(crate) fn lose_next(&self, loss: Loss) {
        *self.next.lock().expect("unpoisoned") = Some(loss);
    }

    /// From the next `word` on nothing passes, and nobody is told; nor on any new connection.
    pub(crate) fn fall_silent_at(&self, word: &'static [u8]) {
        self.silence.send_replace(Silence::At(word));
    }

    /// Everything passes again, also what was said meanwhile.
    pub(crate) fn speak(&self) {
        self.silence.send_replace(Silence::No);
    }

    /// Disarms it; whether nothing had been lost yet.
    pub(crate) fn disarm(&self) -> bool {
        self.next.lock().expect("unpoisoned").take().is_some()
    }

    /// Commits that something was done to.
    pub(crate) fn lost(&self) -> usize {
        self.lost.load(Ordering::SeqCst)
    }
}

/// One connection, until either side ends it or something is lost.
async fn pass(
    near: UnixStream,
    far: impl AsyncRead + AsyncWrite + Send + 'static,
    next: Arc<Mutex<Option<Loss>>>,
    lost: Arc<AtomicUsize>,
    silence: watch::Sender<Silence>,
) {
    let (mut near_in, mut near_out) = near.into_split();
    let (mut far_in, mut far_out) = tokio::io::split(far);
    let answers = tokio::spawn(async move { tokio::io::copy(&mut far_in, &mut near_out).await.map(drop) });
    let mut buffer = vec![0; 64 * 1024];
    let (mut changes, mut begun) = (false, false);
    while let Ok(count @ 1..) = near_in.read(&mut buffer).await {
        let said = &buffer[..count];
        silence.send_if_modified(|silence| match *silence {
            Silence::At(word) if said.ends_with(word) => {
                *silence = Silence::Now;
                true
            }
            Silence::At(_) | Silence::No | Silence::Now => false,
        });
        if silence.subscribe().wait_for(|silence| *silence != Silence::Now).await.is_err() {
            return;
        }
        changes |= said.windows(CHANGES.len()).any(|word| word == CHANGES);
        begun = (begun || said.ends_with(BEGIN)) && ![COMMIT, ROLLBACK].iter().any(|word| said.ends_with(word));
        let commits = said.ends_with(COMMIT) || (changes && !begun && said.ends_with(EXECUTED));
        let loss = commits.then(|| next.lock().expect("unpoisoned").take()).flatten();
        let Some(loss) = loss else {
            if far_out.write_all(said).await.is_err() {
                break;
            }
            continue;
        };
        lost.fetch_add(1, Ordering::SeqCst);
        // Nothing comes back from here on; with its half gone and the other half dropped, the sender is cut off.
        answers.abort();
        let _ = answers.await;
        match loss {
            Loss::Commit => {}
            Loss::Answer => {
                let _ = far_out.write_all(said).await;
                // Postgres reads what has been sent before it notices that nobody is there any more.
                let _ = far_out.shutdown().await;
            }
            Loss::Late => {
                drop(near_in);
                tokio::time::sleep(LATE).await;
                let _ = far_out.write_all(said).await;
                let _ = far_out.shutdown().await;
            }
        }
        return;
    }
    answers.abort();
}

/// Stands between clients and a server, and loses the answer to each connection's last call.
pub(crate) struct ClientProxy {
    pub(crate) address: String,
    armed: watch::Sender<bool>,
    pub(crate) lost: Arc<AtomicUsize>,
}

impl ClientProxy {
    /// On a port of its own, before `server`.
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
                    let asking = tokio::spawn(forward(near_in, far_out));
                    if answers(far_in, near_out, &is_armed).await {
                        lost.fetch_add(1, Ordering::SeqCst);
                    }
                    asking.abort();
                });
            }
        });
        proxy
    }

    /// Whether answers are lost from now on.
    pub(crate) fn arm(&self, armed: bool) {
        self.armed.send_replace(armed);
    }
}

async fn forward(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) {
    let _ = tokio::io::copy(&mut from, &mut to).await;
}

/// Passes frames on to the client. Once armed, the first one that begins an answer is lost and everything ends: `true`.
async fn answers(
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
