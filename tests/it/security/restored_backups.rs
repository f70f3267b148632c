//! Backups: what was acknowledged before a backup is in it, and a user who was erased after it is nowhere after its restoration.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use fireteam::domain::id::UserKey;
use fireteam_client::{Client, pb};

use crate::rating::results_and_leaderboards::{rank, rated_duel};
use crate::security::erasure::{collect_files, key_patterns, named_in, table_texts};
use crate::support::database::PostgresCluster;
use crate::support::generated_client as wire;
use crate::support::queue_server::{SET_ID, enter_request, wait_until};
use crate::support::server_process::{ServerProcess, fireteam_command, run_until_exit};
use crate::support::test_server::advertise_request;

/// User who is erased after the backup.
const VICTIM: &str = "canary-restored-51d0";

/// Acknowledged changes that a backup has to have before it is taken.
const CHANGES_BEFORE_BACKUP: usize = 40;

const RULES: [&str; 2] = ["--rulesets", "rules"];

/// Changes that a server has acknowledged.
#[derive(Clone, Default)]
struct Acknowledged {
    /// Users whose session was published.
    hosts: Arc<Mutex<Vec<String>>>,
    /// Matches whose result was stored.
    results: Arc<Mutex<Vec<String>>>,
}

impl Acknowledged {
    fn hosts(&self) -> Vec<String> {
        self.hosts.lock().unwrap().clone()
    }

    fn results(&self) -> Vec<String> {
        self.results.lock().unwrap().clone()
    }

    fn count(&self) -> usize {
        self.hosts().len() + self.results().len()
    }

    async fn wait_for(&self, count: usize) {
        wait_until("changes are acknowledged", async || self.count() >= count).await;
    }
}

/// Calls that go on until they are stopped or the server is killed.
struct Load {
    stop: Arc<AtomicBool>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Load {
    async fn start(server: &ServerProcess, acknowledged: &Acknowledged) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut tasks = Vec::new();
        for worker in 0..2 {
            let (client, done, ended) = (server.client().await, acknowledged.clone(), stop.clone());
            tasks.push(tokio::spawn(async move {
                for number in 0.. {
                    let host = format!("host-{worker}-{number}");
                    if ended.load(Ordering::Relaxed) || publish(&client, &host).await.is_err() {
                        return;
                    }
                    done.hosts.lock().unwrap().push(host);
                }
            }));
        }
        let (client, done, ended) = (server.client().await, acknowledged.clone(), stop.clone());
        tasks.push(tokio::spawn(async move {
            for number in 0.. {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                let users = [format!("ann-{number}"), format!("bob-{number}")];
                let Ok(id) = play(&client, [&users[0], &users[1]]).await else { return };
                done.results.lock().unwrap().push(id);
            }
        }));
        Self { stop, tasks }
    }

    async fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.expect("a caller");
        }
    }
}

/// Publishes a session that lives longer than the test.
pub(crate) async fn publish(client: &Client, host: &str) -> Result<(), fireteam_client::Error> {
    let request = pb::MatchmakingUpdateAdvertisementRequest {
        matchmaking_set_id: Some(SET_ID),
        time_to_live_ms: Some(600_000),
        ..advertise_request(&[(host, 20.0)], 4)
    };
    client.advertise(request).await.map(drop)
}

/// Plays a match, reports its result, and returns its id.
pub(crate) async fn play(client: &Client, users: [&str; 2]) -> Result<String, fireteam_client::Error> {
    let first = client.enter_queue(enter_request(SET_ID, &[(users[0], 20.0)])).await?;
    let second = client.enter_queue(enter_request(SET_ID, &[(users[1], 20.0)])).await?;
    let mut updates = first.watch();
    let found = loop {
        let Some(status) = updates.next().await? else { panic!("the ticket ended") };
        if status.state() == pb::TicketState::Matched {
            break status.found_match.expect("a match");
        }
    };
    let report = pb::ReportResultRequest {
        match_id: found.match_id.clone(),
        team_ranks: vec![rank(found.team, 2), rank(1 - found.team, 1)],
        ticket_token: second.reference().ticket_token,
        ..Default::default()
    };
    client.report_result(report).await?;
    Ok(found.match_id)
}

type OperatorClient = wire::operator_service_client::OperatorServiceClient<tonic::transport::Channel>;

pub(crate) async fn export(operator: &mut OperatorClient, user: &str) -> wire::ExportUserResponse {
    let request = wire::ExportUserRequest { user_id: user.to_owned(), ..Default::default() };
    operator.export_user(request).await.expect("an export").into_inner()
}

async fn erase(operator: &mut OperatorClient, user: &str) {
    let request =
        wire::EraseUserRequest { user_id: user.to_owned(), reason: "request 4713".into(), ..Default::default() };
    operator.erase_user(request).await.expect("erase");
}

/// Ids of all matches with a result.
pub(crate) async fn stored_results(operator: &mut OperatorClient) -> Vec<String> {
    let (mut ids, mut page_token) = (Vec::new(), Vec::new());
    loop {
        let request = wire::ExportMatchesRequest { page_token, ..Default::default() };
        let page = operator.export_matches(request).await.expect("matches").into_inner();
        ids.extend(page.matches.into_iter().map(|finished| finished.match_id));
        page_token = page.next_page_token;
        if !page.has_more {
            return ids;
        }
    }
}

fn patterns() -> Vec<(String, Vec<u8>)> {
    let mut patterns = vec![("the account".to_owned(), VICTIM.as_bytes().to_vec())];
    patterns.extend(key_patterns("the digest of the account", UserKey::from_name(VICTIM)));
    patterns
}

fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut outputs = Vec::new();
    collect_files(folder, &mut outputs);
    outputs
}

/// Waits for the cleanup after an erasure, which needs a moment without a reader, and on Postgres half a minute.
async fn wait_until_nothing_is_named(mut read: impl AsyncFnMut() -> Vec<(String, Vec<u8>)>) {
    wait_until("the user is named nowhere", async || named_in(&read().await, &patterns()).is_empty()).await;
}

fn new_site() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("rules")).expect("a folder");
    std::fs::write(folder.path().join("rules/duel.xml"), rated_duel("")).expect("a ruleset");
    folder
}

fn run(folder: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = fireteam_command(folder, arguments).output().expect("the binary runs");
    (status.code(), String::from_utf8(stdout).unwrap() + &String::from_utf8(stderr).unwrap())
}

/// Everything acknowledged is there, the user is not, and memory equals the store.
async fn assert_restored(server: &ServerProcess, hosts: &[String], results: &[String]) {
    let mut operator = server.operator_client().await;
    for host in hosts {
        assert_eq!(export(&mut operator, host).await.advertisements.len(), 1, "{host}");
    }
    let stored = stored_results(&mut operator).await;
    let missing: Vec<&String> = results.iter().filter(|id| !stored.contains(id)).collect();
    assert!(missing.is_empty(), "{missing:?} of {}", results.len());
    let victim = export(&mut operator, VICTIM).await;
    assert!(
        victim.ratings.is_empty() && victim.matches.is_empty() && victim.advertisements.is_empty(),
        "the user is erased: {victim:?}"
    );
    let check = operator.check_consistency(wire::CheckConsistencyRequest::default()).await.expect("a check");
    let check = check.into_inner();
    assert!(check.complete && check.difference_count == 0, "{check:?}");
    assert!(check.advertisements >= hosts.len() as u64, "{check:?}");
}

/// SEC-17: a backup under load has everything that was acknowledged before it. After its restoration, the user who was erased
/// since is erased again before the server serves, and no file names the user.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backup_under_load_is_restored_without_the_user_who_was_erased_since() {
    let (site, copies) = (new_site(), tempfile::tempdir().unwrap());
    let folder = site.path();
    let server = ServerProcess::start(folder, &RULES);
    let client = server.client().await;
    play(&client, [VICTIM, "cid"]).await.expect("a match");
    publish(&client, VICTIM).await.expect("publish");
    let acknowledged = Acknowledged::default();
    let load = Load::start(&server, &acknowledged).await;
    acknowledged.wait_for(CHANGES_BEFORE_BACKUP).await;
    let (hosts, results) = (acknowledged.hosts(), acknowledged.results());
    assert!(!hosts.is_empty() && !results.is_empty());
    let backup = copies.path().join("monday.db");
    let backup_text = backup.to_str().unwrap();
    let (code, output) = run(folder, &["backup", "--to", backup_text]);
    assert_eq!(code, Some(0), "{output}");
    for copy in ["monday.db", "monday.token-key", "monday.match-key.pem", "monday.user-key"] {
        assert!(output.contains(copy) && copies.path().join(copy).exists(), "{copy}: {output}");
    }
    assert_eq!(std::fs::read_dir(copies.path()).unwrap().count(), 4, "no draft is left");
    acknowledged.wait_for(acknowledged.count() + 10).await;
    load.stop().await;
    let mut operator = server.operator_client().await;
    erase(&mut operator, VICTIM).await;
    server.kill();
    assert!(!named_in(&files(copies.path()), &patterns()).is_empty(), "the backup names the user");

    let (code, output) = run(folder, &["restore", "--from", backup_text]);
    assert_eq!(code, Some(1), "{output}");
    assert!(output.contains("fireteam.db exists") && output.contains("--force"), "{output}");
    let (code, output) = run(folder, &["restore", "--from", backup_text, "--force"]);
    assert_eq!(code, Some(0), "{output}");
    assert!(output.contains("users to erase again at the next start, before it serves: 1"), "{output}");
    let server = ServerProcess::start(folder, &RULES);
    assert_eq!(server.log.wait_for_lines("they were repeated", 1).len(), 1);
    // Before a call names the user, which gives the user a new name for logs.
    wait_until_nothing_is_named(async || files(folder)).await;
    assert_restored(&server, &hosts, &results).await;
    server.terminate();
    server.wait_for_exit();

    let server = ServerProcess::start(folder, &RULES);
    assert!(!server.log.text().contains("they were repeated"), "once is enough");
    let erasures = std::fs::read_to_string(folder.join("fireteam.erasures")).unwrap();
    assert_eq!(erasures.lines().count(), 2, "a header and one erasure: {erasures}");
}

/// SEC-17: a user who comes back after the erasure, and before the backup, stays after the restoration.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backup_keeps_a_user_who_came_back_after_the_erasure() {
    let (site, copies) = (new_site(), tempfile::tempdir().unwrap());
    let folder = site.path();
    let server = ServerProcess::start(folder, &RULES);
    let client = server.client().await;
    publish(&client, "ann").await.expect("publish");
    erase(&mut server.operator_client().await, "ann").await;
    publish(&client, "ann").await.expect("publish");
    let backup = copies.path().join("b.db");
    let (code, output) = run(folder, &["backup", "--to", backup.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{output}");
    server.kill();
    // Another machine: only the backup and a copy of the erasure log are there.
    let other = new_site();
    let log = folder.join("fireteam.erasures");
    let arguments = ["restore", "--from", backup.to_str().unwrap(), "--erasures", log.to_str().unwrap()];
    let (code, output) = run(other.path(), &arguments);
    assert_eq!(code, Some(0), "{output}");
    assert!(output.contains("before it serves: 0"), "{output}");
    assert!(output.contains("fireteam.user-key: restored"), "{output}");
    let server = ServerProcess::start(other.path(), &RULES);
    assert_eq!(export(&mut server.operator_client().await, "ann").await.advertisements.len(), 1);
}

/// Refusals name the file and what to do, and change nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backup_and_restore_refuse_with_the_remedy() {
    let site = new_site();
    let folder = site.path();
    let server = ServerProcess::start(folder, &RULES);
    let ok = run(folder, &["backup", "--to", "copy.db", "--without-keys"]);
    assert_eq!(ok.0, Some(0), "{}", ok.1);
    assert!(!folder.join("copy.user-key").exists());
    let bytes = std::fs::read(folder.join("copy.db")).unwrap();
    std::fs::write(folder.join("text.db"), "not a database, but longer than a header of a hundred bytes. ".repeat(40))
        .unwrap();
    let mut damaged = bytes.clone();
    damaged[4 * 1024..12 * 1024].fill(0x5a);
    std::fs::write(folder.join("damaged.db"), damaged).unwrap();
    let empty = fireteam_command(folder, &["restore", "--from", "copy.db"]).env("FIRETEAM_STORE", "memory:").output();
    assert_eq!(empty.unwrap().status.code(), Some(2));
    for (arguments, code, remedy) in [
        (&["backup", "--to", "copy.db"][..], 1, "copy.db exists; move it away, or name another"),
        (&["backup", "--to", "fireteam.db"], 1, "exists"),
        (&["backup", "--to", "no/such/folder.db"], 1, "write no/such/folder"),
        (
            &["backup", "--to", "new.db", "--store", "sqlite:other.db"],
            1,
            "other.db does not exist; name the server's file",
        ),
        (&["backup", "--to", "new.db", "--store", "sqlite:text.db"], 3, "text.db is damaged"),
        (
            &["backup", "--to", "new.db", "--store", "postgres:///x", "--token-key-file", "a", "--match-key-file", "b"],
            2,
            "pg_basebackup",
        ),
        (&["restore", "--from", "copy.db"], 3, "fireteam.db is in use by another server"),
        (&["restore", "--from", "gone.db", "--store", "sqlite:new.db"], 1, "gone.db does not exist; name a backup"),
        (&["restore", "--from", "damaged.db", "--store", "sqlite:new.db"], 3, "damaged"),
        (
            &["restore", "--from", "copy.db", "--store", "sqlite:new.db", "--erasures", "gone"],
            1,
            "gone: the file is missing",
        ),
    ] {
        let (actual, output) = run(folder, arguments);
        assert_eq!(actual, Some(code), "{arguments:?}: {output}");
        assert!(output.contains(remedy) && output.lines().count() == 1, "{arguments:?}: {output}");
        assert!(!folder.join("new.db").exists(), "{arguments:?}");
    }
    let left: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(!left.iter().any(|path| path.to_string_lossy().contains("draft")), "{left:?}");
    drop(server);

    // Another user key than that of the backup.
    let other = new_site();
    assert_eq!(run(folder, &["backup", "--to", "whole.db"]).0, Some(0));
    std::fs::write(other.path().join("fireteam.user-key"), "5e".repeat(32)).unwrap();
    let from = folder.join("whole.db");
    let (code, output) = run(other.path(), &["restore", "--from", from.to_str().unwrap()]);
    assert_eq!(code, Some(1), "{output}");
    assert!(output.contains("another user key") && !other.path().join("fireteam.db").exists(), "{output}");
}

/// A server does not start on an erasure log that it cannot use.
#[test]
fn erasure_log_that_cannot_be_used_ends_the_start() {
    let site = new_site();
    let folder = site.path();
    ServerProcess::start(folder, &RULES).kill();
    let log = folder.join("fireteam.erasures");
    let good = std::fs::read_to_string(&log).unwrap();
    std::fs::write(&log, format!("{good}1 2\n")).unwrap();
    let exit = run_until_exit(folder, &RULES);
    assert_eq!(exit.exit_code, Some(3), "{}", exit.log);
    assert!(exit.log.contains("fireteam.erasures:2: not a line of an erasure log"), "{}", exit.log);
    std::fs::write(&log, &good).unwrap();
    std::fs::write(folder.join("other-key"), "5e".repeat(32) + "\n").unwrap();
    Command::new("chmod").args(["600", "other-key"]).current_dir(folder).status().unwrap();
    let exit = run_until_exit(folder, &[&RULES[..], &["--user-key-file", "other-key"]].concat());
    assert_eq!(exit.exit_code, Some(3), "{}", exit.log);
    assert!(exit.log.contains("another user key") && exit.log.contains("--user-key-file"), "{}", exit.log);
    drop(ServerProcess::start(folder, &RULES));
}

/// The commands of docs/BACKUP.md for Postgres, as the page shows them.
fn documented_commands(heading: &str) -> String {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/BACKUP.md")).unwrap();
    let (_, section) = page.split_once(&format!("\n### {heading}\n")).expect("the heading");
    let (_, block) = section.split_once("```sh\n").expect("a block");
    block.split_once("```").expect("its end").0.to_owned()
}

/// SEC-17: the documented base backup of a Postgres, taken under load and restored by the documented commands, has everything that
/// was acknowledged before it, and not the user who was erased since.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_backup_under_load_is_restored_without_the_user_who_was_erased_since() {
    let Some(cluster) = PostgresCluster::start("postgres_backup_under_load") else { return };
    let database = cluster.create_database("fireteam").await;
    let site = new_site();
    let folder = site.path();
    let keys = ["--token-key-file", "a.token-key", "--match-key-file", "a.match-key.pem"];
    let arguments = |url| [&RULES[..], &keys, &["--erasure-log-file", "a.erasures", "--store", url]].concat();
    let server = ServerProcess::start(folder, &arguments(&database.url));
    let client = server.client().await;
    play(&client, [VICTIM, "cid"]).await.expect("a match");
    publish(&client, VICTIM).await.expect("publish");
    let acknowledged = Acknowledged::default();
    let load = Load::start(&server, &acknowledged).await;
    acknowledged.wait_for(CHANGES_BEFORE_BACKUP).await;
    let (hosts, results) = (acknowledged.hosts(), acknowledged.results());
    cluster.run_shell(&documented_commands("Take a base backup"));
    acknowledged.wait_for(acknowledged.count() + 10).await;
    load.stop().await;
    erase(&mut server.operator_client().await, VICTIM).await;
    server.kill();

    cluster.send_command("halt");
    cluster.run_shell(&documented_commands("Restore a base backup"));
    cluster.send_command("start");
    let server = ServerProcess::start(folder, &arguments(&database.url));
    assert_eq!(server.log.wait_for_lines("they were repeated", 1).len(), 1, "{}", server.log.text());
    wait_until_nothing_is_named(async || table_texts(&mut database.connect().await).await).await;
    assert_restored(&server, &hosts, &results).await;
    // The restored database goes on: memory follows its further changes.
    publish(&server.client().await, "zoe").await.expect("publish");
    assert_restored(&server, &["zoe".to_owned()], &results).await;
    drop(server);
    cluster.run_shell("rm -rf backup data.replaced");
}
