//! Server killed and stopped while it counts: it loses at most what it counted since its last write, and nothing when it stops.

use std::path::Path;

use crate::statistics::{of_hour, refusals};
use crate::support::generated_client::MatchmakingDoor;
use crate::support::server_process::ServerProcess;
use crate::support::test_server::{advertise_request, party_session};

/// Sessions of set 1 with a rule on skill.
const RULES: &str = r#"<Ruleset Name="Rooms" SetId="1">
  <Attributes><Attribute Name="skill" Type="number" Min="0" Max="50" Trust="client"/></Attributes>
  <HardFilters><Within Name="near_skill" Attribute="skill" Limit="10"/></HardFilters>
</Ruleset>"#;

fn start(folder: &Path) -> ServerProcess {
    ServerProcess::start(folder, &["--rulesets", "rules"])
}

/// Searches that the rule refuses a session each.
async fn search(server: &ServerProcess, times: usize) {
    let client = server.client().await;
    for _ in 0..times {
        let found = client.new_search(1, party_session(&[("ann", 40.0)])).search().await.expect("search");
        assert_eq!(found.refusals.len(), 1, "{found:?}");
    }
}

/// Refusals that the store has, of an hour and the one before.
async fn counted(server: &ServerProcess) -> u64 {
    let mut operator = server.operator_client().await;
    let found = operator.get_statistics(of_hour()).await.expect("statistics").into_inner();
    refusals(&found, MatchmakingDoor::Search).iter().map(|(.., count)| count).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_server_keeps_the_counts_that_it_has_written() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("rules")).expect("a folder");
    std::fs::write(folder.path().join("rules/rooms.xml"), RULES).expect("rules");
    let server = start(folder.path());
    server.client().await.advertise(advertise_request(&[("host", 0.0)], 3)).await.expect("advertise");
    search(&server, 3).await;
    assert_eq!(counted(&server).await, 3, "the call writes what this server has counted");
    search(&server, 2).await;
    server.kill();
    let server = start(folder.path());
    let after_kill = counted(&server).await;
    assert!((3..=5).contains(&after_kill), "{after_kill}");
    search(&server, 2).await;
    server.terminate();
    server.wait_for_exit();
    assert_eq!(counted(&start(folder.path())).await, after_kill + 2, "a server that stops writes all");
}
