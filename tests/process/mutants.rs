//! R25: servers with a fault planted in them. The chapter that is there to notice it must fail, each time.

use std::process::Command;

use crate::figures::Chapter;

/// Each planted fault, with the chapter that must notice.
const PLANTED: &[(&str, &str)] = &[
    ("trust_the_index", "seats::seats_are_taken_once_whoever_dies"),
    ("acknowledge_before_commit", "seats::seats_are_taken_once_whoever_dies"),
    ("transaction_in_the_handler", "cancels::who_gives_up_harms_nobody"),
    ("reservation_in_a_transaction_of_its_own", "lost_acks::a_lost_answer_is_given_again"),
    ("feed_by_the_last_seen", "feed::what_is_changed_here_is_found_there"),
    ("expiry_by_the_local_clock", "clock::a_wrong_clock_changes_nothing"),
    ("settle_by_guessing", "lost_acks::a_lost_commit_is_found_out_about"),
];

/// How much of a chapter is enough to notice.
const SCALE: &str = "0.15";

/// R25: a fault that nobody notices is a hole in the suite.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_planted_fault_is_noticed() {
    let mut chapter = Chapter::begin("mutants").await;
    let own = std::env::current_exe().expect("this program");
    for (mutant, story) in PLANTED {
        let mut again = Command::new(&own);
        again.args(["--exact", story, "--nocapture"]).env("MUTANT", mutant).env("SCALE", SCALE);
        let output = again.env("RUST_BACKTRACE", "0").output().expect("it runs");
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let figures = said.lines().find(|line| line.starts_with("| ")).unwrap_or_default();
        if said.contains("SKIPPED") {
            eprintln!("SKIPPED: {mutant} was NOT tried: {story} was skipped");
        } else if output.status.success() || figures.is_empty() || figures.ends_with("| violations 0 |") {
            chapter.violated(format!("{mutant} survives {story}:\n{said}"));
        } else {
            let first = said.lines().skip_while(|line| !line.contains(" violations, TEST_SEED=")).nth(1);
            println!("{mutant} is noticed: {figures} {}", first.unwrap_or_default());
            chapter.figure("noticed", mutant);
        }
    }
    chapter.end();
}
