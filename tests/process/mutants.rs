//! R25: servers with a fault planted in them. The test of that fault must fail, each time.

use std::process::Command;
use std::sync::Mutex;

use tokio::time::Instant;

use crate::report::TestReport;

/// Each planted fault, with the test that must notice it.
const PLANTED: &[(&str, &str)] = &[
    ("trust_the_index", "seats::seats_are_taken_once_when_servers_are_killed"),
    ("acknowledge_before_commit", "seats::seats_are_taken_once_when_servers_are_killed"),
    ("transaction_in_the_handler", "cancels::cancelled_calls_do_not_affect_other_clients"),
    ("reservation_in_a_transaction_of_its_own", "lost_answers::lost_answer_is_repeated_by_another_server"),
    ("feed_by_the_last_seen", "feed::feed_delivers_updates_to_another_server"),
    ("expiry_by_the_local_clock", "clock::clock_offset_does_not_change_ttls"),
    ("settle_by_guessing", "lost_answers::lost_commit_outcome_is_resolved"),
    ("accept_partial_matches", "matches::players_are_matched_once_when_servers_are_killed"),
    ("forget_requeue", "matches::players_are_matched_once_when_servers_are_killed"),
    ("trust_the_lease", "matches::players_are_matched_once_when_servers_are_killed"),
];

/// Scale of a test that is enough to notice its fault.
const SCALE: &str = "0.15";

/// Faults tried at the same time.
const AT_ONCE: usize = 2;

/// Result of a planted fault.
enum Fate {
    /// The test failed, with this message.
    Noticed(String),
    /// The test passed, with this output.
    Survives(String),
    /// The test cannot run here.
    NotTried,
}

/// Tells `story` with `mutant` planted, in a process of its own.
fn plant(mutant: &str, story: &str) -> Fate {
    let mut again = Command::new(std::env::current_exe().expect("this program"));
    again.args(["--exact", story, "--nocapture"]).env("MUTANT", mutant).env("SCALE", SCALE);
    let output = again.env("RUST_BACKTRACE", "0").output().expect("it runs");
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let figures = said.lines().find(|line| line.starts_with("| ")).unwrap_or_default();
    if said.contains("SKIPPED") {
        return Fate::NotTried;
    }
    if output.status.success() || figures.is_empty() || figures.ends_with("| violations 0 |") {
        return Fate::Survives(said);
    }
    let first = said.lines().skip_while(|line| !line.contains(" violations, TEST_SEED=")).nth(1);
    Fate::Noticed(format!("{figures} {}", first.unwrap_or_default()))
}

/// R25: each planted fault must be noticed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_planted_fault_is_noticed() {
    let mut report = TestReport::start("mutants").await;
    let left = Mutex::new(PLANTED.iter());
    let fates = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let next = left.lock().expect("unpoisoned").next();
                    let Some((mutant, story)) = next else { return };
                    let begun = Instant::now();
                    let fate = plant(mutant, story);
                    println!("{mutant}: {:.0} s of {story}", begun.elapsed().as_secs_f64());
                    fates.lock().expect("unpoisoned").push((mutant, story, fate));
                }
            });
        }
    });
    for (mutant, story, fate) in fates.into_inner().expect("unpoisoned") {
        match fate {
            Fate::Noticed(how) => {
                println!("{mutant} is noticed: {how}");
                report.record("noticed", mutant);
            }
            Fate::Survives(said) => report.violation(format!("{mutant} survives {story}:\n{said}")),
            Fate::NotTried => eprintln!("SKIPPED: {mutant} was NOT tried: {story} was skipped"),
        }
    }
    report.finish();
}
