//! Reload of files while serving: rulesets and GeoIP files are used at once, invalid ones change nothing.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use mmdb_writer::{IpVersion, Value, Writer};
use tokio::time::Instant;

use crate::support::generated_client;
use crate::support::server_process::ServerProcess;
use crate::support::test_server::{advertise_request, party_session};

const REPOSITORY_ROOT: &str = env!("CARGO_MANIFEST_DIR");
const CONTROL_FILE: &str = "destiny_control_6v6.xml";
const SEATTLE: &str = "71.20.133.126";
const LOS_ANGELES: &str = "151.220.31.64";

/// The bundled Control ruleset with another first step of the skill expansion.
fn control_ruleset(first_step: u32) -> String {
    let text = fs::read_to_string(Path::new(REPOSITORY_ROOT).join("rulesets").join(CONTROL_FILE)).unwrap();
    let changed = text.replace("Value='150'", &format!("Value='{first_step}'"));
    assert!(first_step == 150 || changed != text);
    changed
}

/// Writes a new file, then renames it over `path`.
fn replace_file(path: &Path, content: impl AsRef<[u8]>) {
    let beside = path.with_extension("new");
    fs::write(&beside, content).unwrap();
    fs::rename(&beside, path).unwrap();
}

/// Current rulesets, as operators see them.
async fn current_rulesets(server: &ServerProcess) -> Vec<generated_client::RulesetStatus> {
    let answer = server.operator_client().await.list_rulesets(generated_client::ListRulesetsRequest {}).await.unwrap();
    let current = |status: &generated_client::RulesetStatus| status.state() == generated_client::RulesetState::Current;
    answer.into_inner().rulesets.into_iter().filter(current).collect()
}

async fn control_status(server: &ServerProcess) -> generated_client::RulesetStatus {
    current_rulesets(server)
        .await
        .into_iter()
        .find(|status| status.file_name == CONTROL_FILE)
        .expect("the Control ruleset is current")
}

/// Number of candidates for a searcher of skill 250.
async fn candidate_count(server: &ServerProcess) -> usize {
    let mut search = server.client().await.new_search(1, party_session(&[("guest", 250.0)]));
    search.search().await.unwrap().candidates.len()
}

/// A valid file is loaded without a call. A file with ten mistakes gives ten problems with positions, and the old
/// ruleset stays. The next valid file is loaded again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edited_ruleset_is_loaded_and_an_invalid_one_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let rulesets = folder.path().join("rulesets");
    fs::create_dir(&rulesets).unwrap();
    let file = rulesets.join(CONTROL_FILE);
    fs::write(&file, control_ruleset(150)).unwrap();
    let server = ServerProcess::start(folder.path(), &["--store", "memory:", "--rulesets", "rulesets"]);
    let first = control_status(&server).await;
    let _host = server.client().await.advertise(advertise_request(&[("host", 0.0)], 3)).await.unwrap();
    assert_eq!(candidate_count(&server).await, 0, "a difference of 250 is above the limit of 150");

    let started_at = Instant::now();
    replace_file(&file, control_ruleset(300));
    assert_eq!(server.log.wait_for_lines("ruleset changed", 1).len(), 1, "{}", server.log.text());
    println!("a replaced ruleset was loaded after {:?}", started_at.elapsed());
    let second = control_status(&server).await;
    assert_ne!(first.service_configuration_hash, second.service_configuration_hash);
    assert_eq!(candidate_count(&server).await, 1, "the advertisement is found with the new ruleset");

    let broken = fs::read_to_string(Path::new(REPOSITORY_ROOT).join("tests/golden/rulesets/ten_mistakes.xml")).unwrap();
    replace_file(&file, broken);
    let refusals = server.log.wait_for_lines("ruleset reload rejected", 10);
    assert_eq!(refusals.len(), 10, "{}", server.log.text());
    let kept = control_status(&server).await;
    assert_eq!(kept.service_configuration_hash, second.service_configuration_hash);
    assert_eq!(kept.problems.len(), 10);
    for (problem, line) in kept.problems.iter().zip(&refusals) {
        assert!(problem.file_name.ends_with(CONTROL_FILE) && 0 < problem.line && 0 < problem.column, "{problem:?}");
        let position = format!("{CONTROL_FILE}:{}:{}: ", problem.line, problem.column);
        assert!(line.contains(&position) && !problem.message.is_empty(), "{line}");
    }
    assert_eq!(candidate_count(&server).await, 1);

    replace_file(&file, control_ruleset(150));
    assert_eq!(server.log.wait_for_lines("ruleset changed", 2).len(), 2, "{}", server.log.text());
    let last = control_status(&server).await;
    assert_eq!((last.service_configuration_hash, last.problems.len()), (first.service_configuration_hash, 0));
    assert_eq!(candidate_count(&server).await, 0);
}

/// A8: an edit of the directory makes no call and is still in the audit log: the set, its hash before and after, and
/// the problems by file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edited_ruleset_folder_is_in_the_audit_log() {
    let folder = tempfile::tempdir().unwrap();
    let rulesets = folder.path().join("rulesets");
    fs::create_dir(&rulesets).unwrap();
    let file = rulesets.join(CONTROL_FILE);
    fs::write(&file, control_ruleset(150)).unwrap();
    let flags = ["--store", "memory:", "--rulesets", "rulesets", "--audit-log-file", "audit.jsonl"];
    let server = ServerProcess::start(folder.path(), &flags);
    let hash = async || control_status(&server).await.service_configuration_hash;
    let first = hash().await;
    replace_file(&file, control_ruleset(300));
    assert_eq!(server.log.wait_for_lines("rulesets edited", 1).len(), 1, "{}", server.log.text());
    let second = hash().await;
    replace_file(&file, "<Ruleset>");
    assert_eq!(server.log.wait_for_lines("rulesets edited", 2).len(), 2, "{}", server.log.text());
    assert_eq!(hash().await, second);
    let all = server.operator_page("/metrics").await;
    assert!(all.contains("fireteam_ruleset_loads_total{outcome=\"rejected\"} 1"), "{all}");
    server.terminate();
    assert_eq!(server.wait_for_exit().exit_code, Some(0));

    let text = fs::read_to_string(folder.path().join("audit.jsonl")).unwrap();
    let written: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let edits: Vec<_> = written.iter().filter(|record| record["role"] == "folder").collect();
    assert_eq!(edits.len(), 2, "{text}");
    assert_eq!(edits[0]["ruleset_changes"], serde_json::json!([{ "set_id": 1, "before": first, "after": second }]));
    assert_eq!((&edits[0]["action"], &edits[0]["outcome"]), (&"rulesets edited".into(), &"OK".into()));
    assert_eq!(
        (&edits[1]["ruleset_changes"], &edits[1]["outcome"]),
        (&serde_json::json!([]), &"INVALID_ARGUMENT".into())
    );
    let target = edits[1]["target"].as_str().unwrap();
    assert!(target.contains(" problems in ") && target.ends_with(CONTROL_FILE), "{text}");
    assert!(edits.iter().all(|record| record["subject"].is_null() && record["issuer"].is_null()), "{text}");
}

/// Layout of a mounted Kubernetes ConfigMap: the files are links into `..data`, a link that is replaced by rename.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replaced_config_map_is_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let rulesets = folder.path().join("rulesets");
    let generation = |name: &str, first_step| {
        fs::create_dir_all(rulesets.join(name)).unwrap();
        fs::write(rulesets.join(name).join(CONTROL_FILE), control_ruleset(first_step)).unwrap();
        symlink(name, rulesets.join("..data_tmp")).unwrap();
        fs::rename(rulesets.join("..data_tmp"), rulesets.join("..data")).unwrap();
    };
    generation("..2026_01", 150);
    symlink(format!("..data/{CONTROL_FILE}"), rulesets.join(CONTROL_FILE)).unwrap();
    let server = ServerProcess::start(folder.path(), &["--store", "memory:", "--rulesets", "rulesets"]);
    let before = control_status(&server).await;
    let started_at = Instant::now();
    generation("..2026_02", 300);
    fs::remove_dir_all(rulesets.join("..2026_01")).unwrap();
    assert_eq!(server.log.wait_for_lines("ruleset changed", 1).len(), 1, "{}", server.log.text());
    println!("a replaced ConfigMap was loaded after {:?}", started_at.elapsed());
    let after = current_rulesets(&server).await;
    assert_eq!(after.len(), 1, "one ruleset in spite of several links: {after:?}");
    assert_ne!(before.service_configuration_hash, after[0].service_configuration_hash);
}

/// GeoIP database in which one address has these coordinates.
fn geoip_database(address: &str, latitude: f64, longitude: f64) -> Vec<u8> {
    let mut writer = Writer::builder("Test-City").ip_version(IpVersion::V4).build();
    let degrees = Value::map([("latitude", Value::Double(latitude)), ("longitude", Value::Double(longitude))]);
    let network = format!("{address}/32").parse::<ipnet::IpNet>().unwrap();
    writer.insert_value(network, Value::map([("location", degrees)])).unwrap();
    writer.to_bytes().unwrap()
}

/// S1-26, R18: the GeoIP file is replaced by rename while serving. A truncated file is rejected, and the old one stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn geoip_file_is_replaced_while_serving() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("places.mmdb");
    let shipped = Path::new(REPOSITORY_ROOT).join("data/dbip-tour.mmdb");
    fs::copy(&shipped, &file).unwrap();
    let ours = folder.path().join("ours.mmdb");
    fs::write(&ours, geoip_database(SEATTLE, 34.5, -118.5)).unwrap();
    let flags = ["--store", "memory:", "--trusted-proxies", "127.0.0.0/8", "--geoip-db", "places.mmdb"];
    let server = ServerProcess::start(folder.path(), &flags);
    let _host = server.client_from(LOS_ANGELES).await.advertise(advertise_request(&[("host", 0.0)], 3)).await.unwrap();
    let miles = async || {
        let found =
            server.client_from(SEATTLE).await.new_search(1, party_session(&[("guest", 0.0)])).search().await.unwrap();
        found.candidates.first().and_then(|candidate| candidate.distance_miles)
    };
    let before = miles().await.expect("both locations are known");
    assert_eq!(before.round(), 932.0, "1,500 km, rounded to 500 km");

    let truncated = fs::read(&shipped).unwrap();
    replace_file(&file, &truncated[..truncated.len() / 2]);
    assert_eq!(server.log.wait_for_lines("geolocation databases reload failed", 1).len(), 1, "{}", server.log.text());
    assert_eq!(miles().await, Some(before), "the old file stays");

    fs::rename(&ours, &file).unwrap();
    assert_eq!(server.log.wait_for_lines("geolocation databases reloaded", 1).len(), 1, "{}", server.log.text());
    assert_eq!(miles().await, Some(0.0), "Seattle now has the location of the host");
}
