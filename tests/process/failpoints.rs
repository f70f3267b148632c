//! R25: servers with a fault planted in them. The test of that fault must fail.

use std::process::Command;
use std::sync::Mutex;

use tokio::time::Instant;

use crate::report::TestReport;

/// Each planted fault, with the test that must notice it; the slowest tests first.
const PLANTED: &[(&str, &str)] = &[
    ("ignore_host_loss", "match_life::no_player_is_locked_out_or_punished_when_something_else_breaks"),
    ("penalize_all_players", "match_life::no_player_is_locked_out_or_punished_when_something_else_breaks"),
    ("skip_confirmation", "match_life::no_player_is_locked_out_or_punished_when_something_else_breaks"),
    ("trust_first_report", "player_reports::matches_are_rated_only_if_both_sides_agree"),
    ("ignore_offer_rows", "allocation_offers::match_is_offered_to_one_allocator_at_a_time"),
    ("keep_replaced_rows", "owner_limits::owners_have_one_of_each_when_servers_are_killed"),
    ("leave_no_tombstone", "owner_limits::owners_have_one_of_each_when_servers_are_killed"),
    ("trust_memory_for_seats", "seats::seats_are_taken_once_when_servers_are_killed"),
    ("acknowledge_before_commit", "seats::seats_are_taken_once_when_servers_are_killed"),
    ("cancel_commit_with_client", "cancels::cancelled_calls_do_not_affect_other_clients"),
    ("commit_reservations_separately", "lost_answers::lost_answer_is_repeated_by_another_server"),
    ("skip_running_transactions", "feed::feed_delivers_updates_to_another_server"),
    ("skip_notifications", "feed_without_polls::changes_reach_other_servers_without_polls"),
    ("stop_reading_early", "feed_without_polls::changes_reach_other_servers_without_polls"),
    ("ignore_store_clock", "clock::clock_offset_does_not_change_ttls"),
    ("assume_not_committed", "lost_answers::lost_commit_outcome_is_resolved"),
    ("accept_partial_matches", "matches::players_are_matched_once_when_servers_are_killed"),
    ("drop_requeued_tickets", "matches::players_are_matched_once_when_servers_are_killed"),
    ("count_outages", "refused_players::outage_longer_than_every_deadline_penalizes_no_player"),
    ("enforce_deadlines_at_once", "refused_players::server_killed_just_before_a_deadline_penalizes_no_player"),
    ("skip_ticket_check", "matches::players_are_matched_once_when_servers_are_killed"),
    ("skip_receipt_liveness", RECEIPTS_TEST),
    ("skip_receipt_key_id", RECEIPTS_TEST),
    ("skip_receipt_mac", RECEIPTS_TEST),
    ("skip_receipt_binding", RECEIPTS_TEST),
    ("skip_receipt_age", RECEIPTS_TEST),
    ("skip_receipt_future", RECEIPTS_TEST),
    ("skip_receipt_range", RECEIPTS_TEST),
    ("skip_receipt_prefix", RECEIPTS_TEST),
    ("skip_token_subject", RECEIPTS_TEST),
    ("skip_token_prefix", RECEIPTS_TEST),
    ("cookie_without_address", RECEIPTS_TEST),
    ("cookie_without_port", RECEIPTS_TEST),
    ("cookie_without_nonce", RECEIPTS_TEST),
    ("cookie_without_sequence", RECEIPTS_TEST),
    ("cookie_without_time", RECEIPTS_TEST),
];

/// Test that takes a few seconds, and notices each fault in the checks of receipts and latency tokens.
const RECEIPTS_TEST: &str = "receipts::receipts_and_tokens_prove_nothing_but_what_a_beacon_measured";

/// Scale of one run of a test.
const SCALE: &str = "0.15";

/// Scale of one run of a test that kills servers at random.
const SCALE_OF_KILLS: &str = "0.3";

/// Runs in which a fault must be noticed. Together they are shorter than the test at its normal scale. Nearly all faults are
/// noticed in the first run; the effect of some depends on a race that a short run may not meet.
const RUNS_MAX: usize = 4;

/// Faults tried at the same time for each processor: their tests wait most of the time.
const AT_ONCE_PER_PROCESSOR: usize = 2;

/// Result of a planted fault.
enum Detection {
    /// The test failed, with this message.
    Noticed(String),
    /// The test passed, with this output.
    Survives(String),
    /// The test cannot run here.
    NotTried,
}

/// Runs `test` with the fail point `fault` on until it notices the fault.
fn plant(fault: &str, test: &str) -> Detection {
    let mut detection = run_with_fault(fault, test);
    for _ in 1..RUNS_MAX {
        if !matches!(detection, Detection::Survives(_)) {
            break;
        }
        println!("{fault} was not noticed in a short run of {test}");
        detection = run_with_fault(fault, test);
    }
    detection
}

/// Runs `test` once with the fail point `fault` on, in a process of its own.
fn run_with_fault(fault: &str, test: &str) -> Detection {
    let kills_at_random = ["matches::", "seats::"].iter().any(|module| test.starts_with(module));
    let scale = if kills_at_random { SCALE_OF_KILLS } else { SCALE };
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", test, "--nocapture"]).env("FAILPOINTS", format!("{fault}=return")).env("SCALE", scale);
    let output = command.env("RUST_BACKTRACE", "0").output().expect("the process runs");
    let printed = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let summary = printed.lines().find(|line| line.starts_with("| ")).unwrap_or_default();
    if printed.contains("SKIPPED") {
        return Detection::NotTried;
    }
    if output.status.success() || summary.is_empty() || summary.ends_with("| violations 0 |") {
        return Detection::Survives(printed);
    }
    let first = printed.lines().skip_while(|line| !line.contains(" violations, TEST_SEED=")).nth(1);
    Detection::Noticed(format!("{summary} {}", first.unwrap_or_default()))
}

/// R25: each planted fault must be noticed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_planted_fault_is_noticed() {
    let mut report = TestReport::start("failpoints").await;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let remaining = Mutex::new(PLANTED.iter());
    let detections = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE_PER_PROCESSOR * processors {
            scope.spawn(|| {
                loop {
                    let next = remaining.lock().expect("unpoisoned").next();
                    let Some((fault, test)) = next else { return };
                    let started_at = Instant::now();
                    let detection = plant(fault, test);
                    println!("{fault}: {:.0} s of {test}", started_at.elapsed().as_secs_f64());
                    detections.lock().expect("unpoisoned").push((fault, test, detection));
                }
            });
        }
    });
    for (fault, test, detection) in detections.into_inner().expect("unpoisoned") {
        match detection {
            Detection::Noticed(message) => {
                println!("{fault} is noticed: {message}");
                report.record("noticed", fault);
            }
            Detection::Survives(printed) => report.violation(format!("{fault} survives {test}:\n{printed}")),
            Detection::NotTried => eprintln!("SKIPPED: {fault} was NOT tried: {test} was skipped"),
        }
    }
    report.finish();
}
