//! R12: a SQLite file of the previous release is opened by this version, by the previous release again, and by this version once
//! more. `.ci/previous-release` builds the previous release; the variable `PREVIOUS_RELEASE` names its binary.

use std::path::{Path, PathBuf};

use fireteam_client::Client;

use crate::rating::results_and_leaderboards::{rated_duel, rating};
use crate::security::restored_backups::{export, play, publish, stored_results};
use crate::support::generated_client as wire;
use crate::support::server_process::ServerProcess;

/// Matches and sessions that each version adds.
const ADDED_EACH: usize = 12;

/// Changes that servers have acknowledged so far.
#[derive(Default)]
struct Acknowledged {
    hosts: Vec<String>,
    results: Vec<String>,
    users: Vec<String>,
}

impl Acknowledged {
    async fn add(&mut self, client: &Client, by: &str) {
        for number in 0..ADDED_EACH {
            let host = format!("host-{by}-{number}");
            publish(client, &host).await.expect("publish");
            self.hosts.push(host);
            let users = [format!("ann-{by}-{number}"), format!("bob-{by}-{number}")];
            self.results.push(play(client, [&users[0], &users[1]]).await.expect("a match"));
            self.users.extend(users);
        }
    }

    async fn ratings(&self, client: &Client) -> Vec<f64> {
        let mut ratings = Vec::new();
        for user in &self.users {
            ratings.push(rating(client, user).await);
        }
        ratings
    }
}

/// Stops a server, which has to end without an error.
fn stop(server: ServerProcess) {
    server.terminate();
    let exit = server.wait_for_exit();
    assert_eq!(exit.exit_code, Some(0), "{}", exit.log);
    assert!(!exit.log.contains("corrupt") && !exit.log.contains("panicked"), "{}", exit.log);
}

/// This version has everything, and memory equals the store.
async fn assert_all_there(server: &ServerProcess, acknowledged: &Acknowledged, ratings: &[f64]) {
    let mut operator = server.operator_client().await;
    for host in &acknowledged.hosts {
        assert_eq!(export(&mut operator, host).await.advertisements.len(), 1, "{host}");
    }
    let stored = stored_results(&mut operator).await;
    assert!(acknowledged.results.iter().all(|id| stored.contains(id)), "{stored:?}");
    assert_eq!(acknowledged.ratings(&server.client().await).await, ratings);
    let check = operator.check_consistency(wire::CheckConsistencyRequest::default()).await.expect("a check");
    let check = check.into_inner();
    assert!(check.complete && check.difference_count == 0, "{check:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upgraded_file_of_the_previous_release_keeps_everything_both_ways() {
    let previous = std::env::var_os("PREVIOUS_RELEASE").map(PathBuf::from).filter(|path| path.is_file());
    let Some(previous) = previous else {
        println!(
            "SKIPPED: PREVIOUS_RELEASE names no binary; the upgrade of a file was NOT tried. See .ci/previous-release"
        );
        return;
    };
    let site = tempfile::tempdir().unwrap();
    let folder = site.path();
    std::fs::create_dir(folder.join("rules")).unwrap();
    std::fs::write(folder.join("rules/duel.xml"), rated_duel("")).unwrap();
    let start = |program: Option<&Path>| match program {
        Some(program) => ServerProcess::start_program(program, folder, &["--rulesets", "rules"], &[]),
        None => ServerProcess::start(folder, &["--rulesets", "rules"]),
    };
    let mut acknowledged = Acknowledged::default();
    let server = start(Some(&previous));
    acknowledged.add(&server.client().await, "previous").await;
    let ratings = acknowledged.ratings(&server.client().await).await;
    assert!(ratings.iter().any(|rating| *rating != 1500.0), "{ratings:?}");
    stop(server);

    let server = start(None);
    assert_all_there(&server, &acknowledged, &ratings).await;
    acknowledged.add(&server.client().await, "this").await;
    let ratings = acknowledged.ratings(&server.client().await).await;
    stop(server);

    let server = start(Some(&previous));
    assert!(server.log.text().contains("newer schema of the database accepted"), "{}", server.log.text());
    assert_eq!(acknowledged.ratings(&server.client().await).await, ratings, "the previous release reads them");
    acknowledged.add(&server.client().await, "rolled-back").await;
    let ratings = acknowledged.ratings(&server.client().await).await;
    stop(server);

    let server = start(None);
    assert_all_there(&server, &acknowledged, &ratings).await;
    stop(server);
}
