//! Reads of files that never end, as on a mount that does not answer. The fault is planted, because a hanging mount needs a
//! kernel module: each read blocks while a marker file exists.

use std::time::Duration;

use crate::support::generated_client;
use crate::support::server_process::ServerProcess;

/// Time limit of a shutdown. The grace period is 4 s here.
const SHUTDOWN_MAX: Duration = Duration::from_secs(12);

const RULESET: &str = r#"<Ruleset Name="Duel" SetId="11">
  <Attributes><Attribute Name="skill" Type="number" Min="0" Max="50" Trust="client"/></Attributes>
  <Teams Count="2" Size="1"/>
  <Queue PassIntervalMs="10"><RatingWindow Start="2" Max="2"/></Queue>
</Ruleset>"#;

/// A folder with one ruleset, and the setting that plants the fault.
fn folder_with_fault() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("rules")).expect("a folder");
    std::fs::write(folder.path().join("rules/duel.xml"), RULESET).expect("a ruleset");
    let fault = format!("hang_file_reads=return({})", folder.path().join("hang").display());
    (folder, fault)
}

const FLAGS: [&str; 6] = ["--store", "memory:", "--rulesets", "rules", "--shutdown-grace-period-s", "4"];

/// A reload of a folder that does not answer reports it, and the rulesets stay in force. SIGTERM ends the process while reads
/// hang.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reload_of_a_hanging_folder_times_out() {
    let (folder, fault) = folder_with_fault();
    let server = ServerProcess::start_with(folder.path(), &FLAGS, &[("FAILPOINTS", &fault)]);
    std::fs::write(folder.path().join("hang"), "").expect("the marker");
    let mut operator = server.operator_client().await;
    let reload = operator.reload_rulesets(generated_client::ReloadRulesetsRequest {});
    let report = reload.await.expect("a report, before the deadline of the call").into_inner();
    assert!(report.problems[0].message.contains("timed out reading rules"), "{report:?}");
    let listed = operator.list_rulesets(generated_client::ListRulesetsRequest {}).await.expect("list").into_inner();
    assert!(listed.rulesets.iter().any(|ruleset| ruleset.matchmaking_set_id == 11), "{listed:?}");
    server.terminate();
    let ended = server.wait_for_exit();
    assert_eq!(ended.exit_code, Some(0), "{}", ended.log);
    assert!(ended.duration < SHUTDOWN_MAX, "{:?}", ended.duration);
}

/// A start with files that do not answer ends with their name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn start_with_hanging_files_ends_with_their_name() {
    let (folder, fault) = folder_with_fault();
    std::fs::write(folder.path().join("hang"), "").expect("the marker");
    let ended = ServerProcess::run_until_exit_with(folder.path(), &FLAGS, &[("FAILPOINTS", &fault)]);
    assert_eq!(ended.exit_code, Some(1), "{}", ended.log);
    assert!(ended.log.contains("timed out reading rules"), "{}", ended.log);
}
