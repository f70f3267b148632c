//! Comparison of a subject with its reference in alternating rounds, so that a noisy machine slows both; medians of the ratio.

use std::time::Instant;

use crate::goals::describe;

/// Rounds of each comparison.
pub(crate) const ROUNDS: usize = 9;

/// Time per operation of one side of a round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    /// Wall-clock time, microseconds: mean, or the quantile that the caller chose.
    pub(crate) wall_us: f64,
    /// CPU time of this thread, microseconds.
    pub(crate) cpu_us: f64,
}

/// Reads the clock; only benchmarks may.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
pub(crate) fn clock() -> Instant {
    Instant::now()
}

/// CPU time of this thread so far, nanoseconds; 0 where the system does not report it.
fn cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

/// Times `operations` calls of `run` together and returns the mean.
pub(crate) fn time_all(operations: usize, mut run: impl FnMut(usize)) -> Timing {
    let (begin, cpu) = (clock(), cpu_ns());
    (0..operations).for_each(&mut run);
    let per = operations as f64;
    Timing { wall_us: begin.elapsed().as_secs_f64() * 1e6 / per, cpu_us: (cpu_ns() - cpu) as f64 / 1e3 / per }
}

/// Times each call of `run` and returns the quantile `at`, in [0, 1].
pub(crate) fn quantile(operations: usize, at: f64, mut run: impl FnMut(usize)) -> Timing {
    let cpu = cpu_ns();
    let mut times: Vec<f64> = (0..operations)
        .map(|number| {
            let begin = clock();
            run(number);
            begin.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    let wall_us = quantile_of(&mut times, at);
    Timing { wall_us, cpu_us: (cpu_ns() - cpu) as f64 / 1e3 / operations as f64 }
}

/// The quantile `at`, in [0, 1], of `values`.
pub(crate) fn quantile_of(values: &mut [f64], at: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * at) as usize]
}

/// The median.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Prints the table head.
pub(crate) fn header() {
    println!(
        "| goal | subject | reference | ratio (median) | spread | n | subject us | reference us | cpu us per op | machine |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
}

/// Runs subject and reference alternately and prints the median of reference time / subject time: above 1 the subject is
/// faster.
pub(crate) fn compare(
    goal: &str,
    subject: &str,
    reference: &str,
    mut run_subject: impl FnMut() -> Timing,
    mut run_reference: impl FnMut() -> Timing,
) -> f64 {
    run_subject();
    run_reference();
    let rounds: Vec<(Timing, Timing)> = (0..ROUNDS).map(|_| (run_reference(), run_subject())).collect();
    let mut ratios: Vec<f64> = rounds.iter().map(|(reference, subject)| reference.wall_us / subject.wall_us).collect();
    ratios.sort_by(f64::total_cmp);
    let of = |pick: fn(&(Timing, Timing)) -> f64| median(rounds.iter().map(pick).collect());
    let subject = describe(goal, subject);
    println!(
        "| {goal} | {subject} | {reference} | {:.2} | {:.2}-{:.2} | {ROUNDS} | {:.2} | {:.2} | {:.2} | {} |",
        ratios[ROUNDS / 2],
        ratios[0],
        ratios[ROUNDS - 1],
        of(|round| round.1.wall_us),
        of(|round| round.0.wall_us),
        of(|round| round.1.cpu_us),
        machine(),
    );
    ratios[ROUNDS / 2]
}

/// Prints a row of rounds, each with the value of subject and reference, and the median of subject / reference.
pub(crate) fn report(goal: &str, subject: &str, reference: &str, rounds: &[(f64, f64)], cpu_us: f64) {
    let mut ratios: Vec<f64> = rounds.iter().map(|(subject, reference)| subject / reference).collect();
    ratios.sort_by(f64::total_cmp);
    let subject = describe(goal, subject);
    println!(
        "| {goal} | {subject} | {reference} | {:.2} | {:.2}-{:.2} | {} | {:.2} | {:.2} | {cpu_us:.2} | {} |",
        ratios[ratios.len() / 2],
        ratios[0],
        ratios[ratios.len() - 1],
        ratios.len(),
        median(rounds.iter().map(|round| round.0).collect()),
        median(rounds.iter().map(|round| round.1).collect()),
        machine(),
    );
}

/// Cores and architecture.
pub(crate) fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    format!("{cores} x {}", std::env::consts::ARCH)
}

/// Resident memory of this process, bytes.
pub(crate) fn resident_bytes() -> u64 {
    resident_bytes_of("self")
}

/// Resident memory of the process with this id, bytes.
pub(crate) fn resident_bytes_of(process: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}
