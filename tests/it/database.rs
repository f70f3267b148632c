//! A real Postgres for the tests: one cluster for the run, in a folder of its own, on a socket there; a database for
//! each test. It ends with the test process, however that ends.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};

use sqlx::{Connection, Executor, PgConnection};

/// How to get one where there is none.
const REMEDY: &str = "install postgresql (Debian: apt-get install postgresql)";

/// The cluster, and what keeps it running: it stops when this process's end of the pipe is closed.
pub(crate) struct Cluster {
    pub(crate) folder: PathBuf,
    keeper: Mutex<(Child, BufReader<ChildStdout>)>,
}

/// A database of one test's own.
pub(crate) struct Database {
    pub(crate) url: String,
}

/// A new, empty database. `None` where there is no Postgres, which is said; an error where one is required
/// (`REQUIRE_POSTGRES=1`).
pub(crate) async fn database(test: &str) -> Option<Database> {
    static CLUSTER: OnceLock<Option<Cluster>> = OnceLock::new();
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let cluster = CLUSTER.get_or_init(|| Cluster::start(test)).as_ref()?;
    Some(cluster.database(&format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed))).await)
}

impl Database {
    /// A connection of the test's own, to look and to meddle.
    pub(crate) async fn connect(&self) -> PgConnection {
        PgConnection::connect(&self.url).await.expect("connect")
    }
}

impl Cluster {
    /// Started, for `test`. `None` where there is no Postgres, which is said.
    pub(crate) fn start(test: &str) -> Option<Self> {
        Self::start_on(test, "")
    }

    /// The same, listening on `addresses` as well as on its socket.
    pub(crate) fn start_on(test: &str, addresses: &str) -> Option<Self> {
        let required = std::env::var_os("REQUIRE_POSTGRES").is_some();
        let Some(programs) = programs() else {
            assert!(!required, "REQUIRE_POSTGRES is set and there is none: {REMEDY}");
            eprintln!("SKIPPED: no Postgres: {test} was NOT run; {REMEDY}");
            return None;
        };
        let folder = tempfile::Builder::new().prefix("ftpg").tempdir().expect("a folder").keep();
        let user = unprivileged();
        if let Some((uid, gid)) = user {
            chown(&folder, Some(uid), Some(gid)).expect("give the folder away");
        }
        let data = folder.join("data");
        let mut initdb = as_user(programs.join("initdb"), user);
        initdb.args(["-U", "fireteam", "--auth=trust", "-E", "UTF8", "--locale=C", "--no-sync", "-D"]).arg(&data);
        let made =
            initdb.current_dir(&folder).stdout(Stdio::null()).stderr(Stdio::piped()).output().expect("initdb runs");
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        let mut keeper = keeper(&programs.join("postgres"), &folder, addresses, user);
        let answers = BufReader::new(keeper.stdout.take().expect("piped"));
        let cluster = Self { folder, keeper: Mutex::new((keeper, answers)) };
        cluster.order("start");
        Some(cluster)
    }

    /// A new, empty database.
    pub(crate) async fn database(&self, name: &str) -> Database {
        let mut connection = PgConnection::connect(&self.url("postgres")).await.expect("the cluster answers");
        connection.execute(sqlx::AssertSqlSafe(format!("create database {name}"))).await.expect("a database");
        connection.close().await.expect("close");
        Database { url: self.url(name) }
    }

    /// Has the keeper `halt` it at once, `start` it again, `pause` all of its processes or `resume` them. Done when this
    /// returns; after `start`, it takes connections.
    pub(crate) fn order(&self, what: &str) {
        let mut keeper = self.keeper.lock().expect("nobody panics here");
        writeln!(keeper.0.stdin.as_mut().expect("piped"), "{what}").expect("the keeper listens");
        let mut answer = String::new();
        keeper.1.read_line(&mut answer).expect("the keeper answers");
        assert_eq!(answer.trim(), what);
        drop(keeper);
        if what == "start" {
            self.wait();
        }
    }

    fn url(&self, database: &str) -> String {
        format!("postgres:///{database}?host={}&user=fireteam", self.folder.display())
    }

    /// Until it takes connections: the last thing that a start does is to write that into its file.
    fn wait(&self) {
        let file = self.folder.join("data/postmaster.pid");
        for _ in 0..1_200 {
            let told = std::fs::read_to_string(&file).unwrap_or_default();
            if told.lines().nth(7).is_some_and(|line| line.trim() == "ready") {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        panic!("Postgres does not start:\n{log}");
    }
}

/// A shell that starts the server when it is told to, obeys until nobody holds the other end of its standard input, stops it and clears up.
fn keeper(postgres: &Path, folder: &Path, addresses: &str, user: Option<(u32, u32)>) -> Child {
    let script = r#"
        start() {
            "$0" -D "$1/data" -c "listen_addresses=$2" -c "unix_socket_directories=$1" -c max_connections=200 \
                 -c fsync=off -c full_page_writes=off -c shared_buffers=64MB >>"$1/log" 2>&1 &
            server=$!
        }
        while read -r word; do
            case $word in
                start) start "$@" ;;
                halt) kill -QUIT $server; wait $server ;;
                pause) kill -STOP $server; kill -STOP $(cat /proc/$server/task/$server/children) ;;
                resume) kill -CONT $(cat /proc/$server/task/$server/children) $server ;;
            esac
            echo "$word"
        done 2>/dev/null
        kill -CONT $(cat /proc/$server/task/$server/children) $server 2>/dev/null
        kill -INT $server; wait; cd /; rm -rf "$1/data" "$1"/.s* "$1/log"; rmdir "$1" 2>/dev/null"#;
    let mut shell = as_user("sh".into(), user);
    shell.args(["-c", script]).arg(postgres).arg(folder).arg(addresses).current_dir(folder);
    // Of its own group, so that an interrupt from the keyboard leaves it time to clear up.
    shell.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    shell.spawn().expect("sh runs")
}

fn as_user(program: PathBuf, user: Option<(u32, u32)>) -> Command {
    let mut command = Command::new(program);
    if let Some((uid, gid)) = user {
        command.uid(uid).gid(gid);
    }
    command
}

/// Who runs Postgres when this runs as root, which it refuses to be run by.
fn unprivileged() -> Option<(u32, u32)> {
    let root = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").expect("proc")) == 0;
    if !root {
        return None;
    }
    let users = std::fs::read_to_string("/etc/passwd").expect("users");
    let ids = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    Some(ids("postgres").or_else(|| ids("nobody")).expect("an unprivileged user"))
}

/// The folder with the server's programs: on the path, or where Debian puts them.
fn programs() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let mut versions: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .map(|entries| entries.filter_map(|entry| Some(entry.ok()?.path().join("bin"))).collect())
        .unwrap_or_default();
    versions.sort();
    folders.extend(versions.into_iter().rev());
    folders.into_iter().find(|folder| folder.join("initdb").exists() && folder.join("postgres").exists())
}
