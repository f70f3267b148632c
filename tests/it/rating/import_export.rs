//! `import-ratings` and `export-matches` against the operator port of a whole server.

use std::path::Path;
use std::process::{Command, Output};

use fireteam_client::pb;

use crate::support::queue_server::{QueuedParty, SET_ID, duel_ruleset, start_queue_server};
use crate::support::test_server::TestServer;

/// Runs the binary with the server's operator address.
pub(crate) async fn run(server: &TestServer, folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    let operator = format!("http://{}", server.app.server.operator_address);
    let mut command = Command::new(env!("CARGO_BIN_EXE_fireteam"));
    command.current_dir(folder).args(arguments).args(["--operator", &operator]);
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap();
    let Output { status, stdout, stderr } = output.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

/// Each row is imported or reported with its line number; the exit code is 1 if any row is invalid.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn import_ratings_imports_or_reports_each_row() {
    let server = start_queue_server(&[&duel_ruleset(r#"<Rating System="glicko"/>"#)]).await;
    let folder = tempfile::tempdir().unwrap();
    let good: String = (0..2_500).map(|n| format!("user-{n},{},{}\n", 1_000 + n, 30 + n % 7)).collect();
    std::fs::write(folder.path().join("good.csv"), format!("user_id,rating,deviation\n{good}")).unwrap();
    let set = SET_ID.to_string();
    let (code, out, err) = run(&server, folder.path(), &["import-ratings", "good.csv", "--set", &set]).await;
    assert_eq!((code, &*out), (0, "2500 imported, 0 of them as one win and one loss, 0 rows not imported\n"), "{err}");
    let client = server.client().await;
    let last = client.get_ratings(SET_ID, &["user-2499"]).await.unwrap().remove(0);
    assert_eq!(
        (last.rating.unwrap(), last.leaderboard_rank),
        (pb::RatingValue { rating: 3_499.0, deviation: 30.0 }, Some(1))
    );

    std::fs::write(folder.path().join("bad.csv"), "user_id,rating\nann,1700\nbob,x\n,1\ncid,1800\n").unwrap();
    let (code, out, err) = run(&server, folder.path(), &["import-ratings", "bad.csv", "--set", &set]).await;
    assert_eq!((code, &*out), (1, "2 imported, 0 of them as one win and one loss, 2 rows not imported\n"), "{err}");
    assert!(err.contains("bad.csv:3: rating is `x`") && err.contains("bad.csv:4: user_id is missing"), "{err}");
    assert_eq!(client.get_ratings(SET_ID, &["cid"]).await.unwrap()[0].rating.unwrap().rating, 1_800.0);

    let (code, out, err) = run(&server, folder.path(), &["import-ratings", "bad.csv", "--set", "99"]).await;
    assert_eq!((code, &*out), (1, "0 imported, 0 of them as one win and one loss, 4 rows not imported\n"), "{err}");
    assert!(err.contains("unknown matchmaking_set_id 99"), "{err}");
}

/// S4-4: win records become ratings by percentile; an invalid record counts as one win and one loss.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn import_ratings_by_percentile_uses_win_records() {
    let server = start_queue_server(&[&duel_ruleset(r#"<Rating System="elo" Initial="1036"/>"#)]).await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("w.csv"), "user_id,wins,losses\nann,3,1\nbob,-3,1\n").unwrap();
    let set = SET_ID.to_string();
    let arguments = ["import-ratings", "w.csv", "--set", &set];
    let (code, _, err) = run(&server, folder.path(), &arguments).await;
    assert!(code == 1 && err.contains("use --percentile"), "{err}");
    let (code, out, err) = run(&server, folder.path(), &[&arguments[..], &["--percentile"]].concat()).await;
    assert_eq!((code, &*out), (1, "2 imported, 1 of them as one win and one loss, 0 rows not imported\n"), "{err}");
    assert!(err.contains("w.csv:3: wins is `-3`"), "{err}");
    let ratings = server.client().await.get_ratings(SET_ID, &["ann", "bob"]).await.unwrap();
    let ratings: Vec<f64> = ratings.iter().map(|it| it.rating.as_ref().unwrap().rating).collect();
    assert_eq!(ratings, [1_550.0, 1_036.0]);
}

/// S1-98: expectations and results of matches are exported as JSON lines, or as CSV that `backtest` reads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn export_matches_writes_json_and_csv() {
    let server = start_queue_server(&[&duel_ruleset(r#"<Rating System="elo"/>"#)]).await;
    let mut ann = QueuedParty::enter(&server, SET_ID, &[("ann", 20.0)]).await;
    let _bob = QueuedParty::enter(&server, SET_ID, &[("bob", 20.0)]).await;
    let found = ann.wait_for_state(pb::TicketState::Matched).await.found_match.unwrap();
    ann.ticket.report_result(&found.match_id, &[(0, 1), (1, 2)]).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (code, out, err) = run(&server, folder.path(), &["export-matches"]).await;
    assert_eq!((code, &*err), (0, "1 matches exported\n"));
    let object: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(object["match_id"], found.match_id);
    assert_eq!((&object["sides"][0]["chance"], &object["sides"][0]["rank"]), (&0.5.into(), &1.into()));
    assert_eq!(object["sides"][1]["players"][0]["after"][0], 1_492.0);
    let arguments = ["export-matches", "--format", "csv", "--out", "m.csv", "--set", &SET_ID.to_string()];
    assert_eq!(run(&server, folder.path(), &arguments).await.0, 0);
    let csv = std::fs::read_to_string(folder.path().join("m.csv")).unwrap();
    let lines: Vec<&str> = csv.lines().collect();
    assert!(lines[0].starts_with("match_id,time,teams,ranks,") && lines[1].contains(",1;2,"), "{csv}");
    assert_eq!(lines.len(), 2);
    let nothing = run(&server, folder.path(), &["export-matches", "--set", "99"]).await;
    assert_eq!((nothing.0, &*nothing.1), (0, ""));
}
