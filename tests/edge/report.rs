//! Parts that all tests here share: exclusive use of the machine, a scale, a table of measurements, and a list of violations.

use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};

use crate::connection_outcome::ConnectionOutcome;
use crate::server_under_attack::Latencies;

/// Columns of a row.
const HEAD: &str = "| attack | connections closed | GOAWAY | longest open | open at the end | memory, MiB | p50 quiet, ms | p50 | p50 elsewhere | p99 quiet | p99 | p99 elsewhere | calls |";

/// Measurements and violations of one running test. Tests run one at a time, because each needs the whole machine.
pub(crate) struct Report {
    lines: Vec<String>,
    violations: Vec<String>,
    _turn: MutexGuard<'static, ()>,
}

/// The variable `SCALE`, 1 by default; 30 is the long form.
pub(crate) fn scale() -> usize {
    std::env::var_os("SCALE").map_or(1, |it| it.to_str().and_then(|it| it.parse().ok()).expect("a whole number"))
}

/// Whether an attack is selected: the variable `ATTACK` is part of its name, or is not set.
pub(crate) fn is_wanted(name: &str) -> bool {
    std::env::var_os("ATTACK").is_none_or(|part| name.contains(&*part.to_string_lossy()))
}

/// `short` multiplied by `SCALE`, at most 30 s.
pub(crate) fn attack_duration(short: Duration) -> Duration {
    (short * u32::try_from(scale()).expect("a small number")).min(Duration::from_secs(30))
}

/// Number of attacking connections.
pub(crate) fn connections() -> usize {
    (2 * scale()).min(50)
}

impl Report {
    /// Waits until no other test runs.
    pub(crate) async fn start(name: &str) -> Self {
        static TURN: Mutex<()> = Mutex::const_new(());
        let turn = TURN.lock().await;
        let lines = vec![format!("{name}, SCALE={}", scale())];
        Self { lines, violations: Vec::new(), _turn: turn }
    }

    /// Adds a row: the connections of an attack, the additional memory, and the latencies of honest calls when quiet, during the
    /// attack, and while another process was attacked.
    pub(crate) fn row(
        &mut self,
        name: &str,
        outcome: &ConnectionOutcome,
        growth_mib: f64,
        calls: [Option<&Latencies>; 3],
    ) {
        if !self.lines.iter().any(|line| line == HEAD) {
            self.lines.extend([HEAD.to_owned(), "|-".repeat(13) + "|"]);
        }
        let ms = |percent| {
            let of = |it: &Latencies| format!("{:.1}", it.percentile(percent).as_secs_f64() * 1e3);
            calls.map(|it| it.map_or("".into(), of)).join(" | ")
        };
        let longest = if outcome.closed == 0 { "".into() } else { format!("{:.2} s", outcome.longest.as_secs_f64()) };
        self.lines.push(format!(
            "| {name} | {} | {} | {longest} | {} | +{growth_mib:.1} | {} | {} | {} |",
            outcome.closed,
            outcome.goaways,
            outcome.open.len(),
            ms(50),
            ms(99),
            calls[1].map_or(0, Latencies::count),
        ));
    }

    /// Adds a line.
    pub(crate) fn note(&mut self, what: String) {
        self.lines.push(what);
    }

    /// Adds a violation of a requirement. The test fails when it finishes.
    pub(crate) fn violation(&mut self, what: String) {
        self.violations.push(what);
    }

    /// Prints all lines, and fails if there were violations.
    #[track_caller]
    pub(crate) fn finish(self) {
        println!("{}", self.lines.join("\n"));
        assert!(self.violations.is_empty(), "\n{}\n", self.violations.join("\n"));
    }
}
