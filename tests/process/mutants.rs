//! R25: servers with a fault planted in them. The chapter that is there to notice it must fail, each time.

use std::process::Command;
use std::sync::Mutex;

use tokio::time::Instant;

use crate::report::Chapter;

/// Each planted fault, with the chapter that must notice.
const PLANTED: &[(&str, &str)] = &[
    ("trust_the_index", "seats::seats_are_taken_once_whoever_dies"),
    ("acknowledge_before_commit", "seats::seats_are_taken_once_whoever_dies"),
    ("transaction_in_the_handler", "cancels::who_gives_up_harms_nobody"),
    ("reservation_in_a_transaction_of_its_own", "lost_answers::a_lost_answer_is_given_again"),
    ("feed_by_the_last_seen", "feed::what_is_changed_here_is_found_there"),
    ("expiry_by_the_local_clock", "clock::a_wrong_clock_changes_nothing"),
    ("settle_by_guessing", "lost_answers::a_lost_commit_is_found_out_about"),
    ("accept_partial_matches", "matches::players_are_matched_once_whoever_dies"),
    ("forget_requeue", "matches::players_are_matched_once_whoever_dies"),
    ("trust_the_lease", "matches::players_are_matched_once_whoever_dies"),
];

/// How much of a chapter is enough to notice.
const SCALE: &str = "0.15";

/// How many are tried side by side. More would get in each other's way.
const AT_ONCE: usize = 2;

/// What came of a planted fault.
enum Fate {
    /// The chapter failed for it, with these words.
    Noticed(String),
    /// It did not, and said this.
    Survives(String),
    /// The chapter cannot be told here.
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

/// R25: a fault that nobody notices is a hole in the suite.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_planted_fault_is_noticed() {
    let mut chapter = Chapter::begin("mutants").await;
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
                chapter.figure("noticed", mutant);
            }
            Fate::Survives(said) => chapter.violated(format!("{mutant} survives {story}:\n{said}")),
            Fate::NotTried => eprintln!("SKIPPED: {mutant} was NOT tried: {story} was skipped"),
        }
    }
    chapter.end();
}
