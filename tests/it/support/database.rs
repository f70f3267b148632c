//! Postgres for the tests: one cluster per test process in a temporary directory with a Unix socket, one database per
//! test. The cluster stops when the test process ends, also when it is killed.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};

use sqlx::{Connection, Executor, PgConnection};

/// Installation hint for a missing Postgres.
const INSTALL_HINT: &str = "install postgresql (Debian: apt-get install postgresql)";

/// A running Postgres cluster. Its supervisor stops it when this process closes its end of the pipe.
pub(crate) struct PostgresCluster {
    pub(crate) folder: PathBuf,
    supervisor: Mutex<(Child, BufReader<ChildStdout>)>,
}

/// Database of one test.
pub(crate) struct TestDatabase {
    pub(crate) url: String,
}

/// Creates an empty database. Returns `None` and prints a notice if Postgres is not installed; panics instead if
/// `REQUIRE_POSTGRES` is set.
pub(crate) async fn create_test_database(test: &str) -> Option<TestDatabase> {
    static CLUSTER: OnceLock<Option<PostgresCluster>> = OnceLock::new();
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let cluster = CLUSTER.get_or_init(|| PostgresCluster::start(test)).as_ref()?;
    Some(cluster.create_database(&format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed))).await)
}

impl TestDatabase {
    /// Opens a separate connection, to inspect or change rows.
    pub(crate) async fn connect(&self) -> PgConnection {
        PgConnection::connect(&self.url).await.expect("connect to the database")
    }
}

impl PostgresCluster {
    /// Starts a cluster for `test`. Returns `None` and prints a notice if Postgres is not installed.
    pub(crate) fn start(test: &str) -> Option<Self> {
        Self::start_with_tcp_addresses(test, "")
    }

    /// Starts a cluster that also listens on the TCP `addresses`.
    pub(crate) fn start_with_tcp_addresses(test: &str, addresses: &str) -> Option<Self> {
        let required = std::env::var_os("REQUIRE_POSTGRES").is_some();
        let Some(programs) = find_postgres_programs() else {
            assert!(!required, "REQUIRE_POSTGRES is set, but Postgres is not installed; {INSTALL_HINT}");
            eprintln!("SKIPPED: Postgres is not installed, {test} was NOT run; {INSTALL_HINT}");
            return None;
        };
        let folder = tempfile::Builder::new().prefix("ftpg").tempdir().expect("create a temporary directory").keep();
        let user = unprivileged_user();
        if let Some((uid, gid)) = user {
            chown(&folder, Some(uid), Some(gid)).expect("change the owner of the directory");
        }
        let data = folder.join("data");
        let mut initdb = command_as_user(programs.join("initdb"), user);
        initdb.args(["-U", "fireteam", "--auth=trust", "-E", "UTF8", "--locale=C", "--no-sync", "-D"]).arg(&data);
        let output =
            initdb.current_dir(&folder).stdout(Stdio::null()).stderr(Stdio::piped()).output().expect("initdb runs");
        assert!(output.status.success(), "initdb: {}", String::from_utf8_lossy(&output.stderr));
        let mut supervisor = spawn_supervisor(&programs.join("postgres"), &folder, addresses, user);
        let responses = BufReader::new(supervisor.stdout.take().expect("piped"));
        let cluster = Self { folder, supervisor: Mutex::new((supervisor, responses)) };
        cluster.send_command("start");
        Some(cluster)
    }

    /// Creates an empty database.
    pub(crate) async fn create_database(&self, name: &str) -> TestDatabase {
        let mut connection = PgConnection::connect(&self.url("postgres")).await.expect("connect to the cluster");
        connection.execute(sqlx::AssertSqlSafe(format!("create database {name}"))).await.expect("create the database");
        connection.close().await.expect("close");
        TestDatabase { url: self.url(name) }
    }

    /// Sends the supervisor a command and waits until it is done: `halt` (immediate shutdown), `start`, `pause`
    /// (SIGSTOP to all processes) or `resume`. After `start`, the cluster accepts connections.
    pub(crate) fn send_command(&self, command: &str) {
        self.send_command_only(command);
        if command == "start" {
            self.wait_until_ready();
        }
    }

    /// Sends a command as `send_command` does. After `start`, the cluster may not accept connections yet.
    pub(crate) fn send_command_only(&self, command: &str) {
        let mut supervisor = self.supervisor.lock().expect("the lock is not poisoned");
        writeln!(supervisor.0.stdin.as_mut().expect("piped"), "{command}").expect("write to the supervisor");
        let mut response = String::new();
        supervisor.1.read_line(&mut response).expect("read from the supervisor");
        assert_eq!(response.trim(), command);
    }

    /// Runs shell commands in the cluster's folder as its user. The environment names the cluster, as for the programs of Postgres.
    pub(crate) fn run_shell(&self, commands: &str) {
        let postgres = find_postgres_programs().expect("Postgres is installed").join("postgres");
        // The folder of the others too, if this is a link.
        let postgres = postgres.canonicalize().expect("a program");
        let mut path = postgres.parent().expect("a folder").as_os_str().to_owned();
        path.push(":/usr/local/bin:/usr/bin:/bin");
        let mut shell = command_as_user("sh".into(), unprivileged_user());
        shell.args(["-euc", commands]).current_dir(&self.folder).env("PATH", path);
        shell.env("PGHOST", &self.folder).env("PGUSER", "fireteam").env("PGDATA", self.folder.join("data"));
        let output = shell.stdin(Stdio::null()).output().expect("a shell");
        assert!(output.status.success(), "{commands}\n{}", String::from_utf8_lossy(&output.stderr));
    }

    /// URL of a database of the cluster.
    pub(crate) fn url(&self, database: &str) -> String {
        format!("postgres:///{database}?host={}&user=fireteam", self.folder.display())
    }

    /// Waits until the cluster accepts connections: `postmaster.pid` then contains `ready`.
    fn wait_until_ready(&self) {
        let file = self.folder.join("data/postmaster.pid");
        for _ in 0..1_200 {
            let pid_file = std::fs::read_to_string(&file).unwrap_or_default();
            if pid_file.lines().nth(7).is_some_and(|line| line.trim() == "ready") {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        panic!("Postgres did not start:\n{log}");
    }
}

/// Spawns a shell that supervises Postgres: it executes commands from its standard input. At the end of the input it
/// stops Postgres and deletes the files.
fn spawn_supervisor(postgres: &Path, folder: &Path, addresses: &str, user: Option<(u32, u32)>) -> Child {
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
    let mut shell = command_as_user("sh".into(), user);
    shell.args(["-c", script]).arg(postgres).arg(folder).arg(addresses).current_dir(folder);
    // A separate process group, so that an interrupt from the keyboard leaves it time to clean up.
    shell.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    shell.spawn().expect("sh runs")
}

fn command_as_user(program: PathBuf, user: Option<(u32, u32)>) -> Command {
    let mut command = Command::new(program);
    if let Some((uid, gid)) = user {
        command.uid(uid).gid(gid);
    }
    command
}

/// User and group id for Postgres if this process runs as root. Postgres refuses to run as root.
fn unprivileged_user() -> Option<(u32, u32)> {
    let root = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").expect("proc")) == 0;
    if !root {
        return None;
    }
    let users = std::fs::read_to_string("/etc/passwd").expect("users");
    let ids = |column: usize, value: &str| {
        let line = users.lines().find(|line| line.split(':').nth(column) == Some(value))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    // 65534: the id of the unprivileged user that every Linux distribution has.
    Some(ids(0, "postgres").or_else(|| ids(2, "65534")).expect("an unprivileged user"))
}

/// Directory of the Postgres programs: on the path, or where Debian installs them.
fn find_postgres_programs() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let mut versions: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .map(|entries| entries.filter_map(|entry| Some(entry.ok()?.path().join("bin"))).collect())
        .unwrap_or_default();
    versions.sort();
    folders.extend(versions.into_iter().rev());
    folders.into_iter().find(|folder| folder.join("initdb").exists() && folder.join("postgres").exists())
}
