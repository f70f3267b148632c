//! What every chapter has: a turn, a scale, a table of figures, and a list of what was not kept.

use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};

use crate::connection_outcome::Fate;
use crate::server_under_attack::Latencies;

/// What the columns of a row are.
const HEAD: &str = "| attack | connections closed | told to go | longest stay | open at the end | memory, MiB | p50 quiet, ms | p50 | p50 elsewhere | p99 quiet | p99 | p99 elsewhere | calls |";

/// One chapter at work. The others wait for their turn: each wants the whole machine.
pub(crate) struct Report {
    lines: Vec<String>,
    violations: Vec<String>,
    _turn: MutexGuard<'static, ()>,
}

/// `SCALE`, 1 by default: 30 is the long form.
pub(crate) fn scale() -> usize {
    std::env::var_os("SCALE").map_or(1, |it| it.to_str().and_then(|it| it.parse().ok()).expect("a whole number"))
}

/// Whether an attack is to be tried: `ATTACK` is a part of its name, or not said.
pub(crate) fn is_wanted(name: &str) -> bool {
    std::env::var_os("ATTACK").is_none_or(|part| name.contains(&*part.to_string_lossy()))
}

/// So long, in the short form; 30 s at most.
pub(crate) fn lasting(short: Duration) -> Duration {
    (short * u32::try_from(scale()).expect("a small number")).min(Duration::from_secs(30))
}

/// Connections that attack at once.
pub(crate) fn connections() -> usize {
    (2 * scale()).min(50)
}

impl Report {
    /// Waits for its turn.
    pub(crate) async fn begin(name: &str) -> Self {
        static TURN: Mutex<()> = Mutex::const_new(());
        let turn = TURN.lock().await;
        let lines = vec![format!("{name}, SCALE={}", scale())];
        Self { lines, violations: Vec::new(), _turn: turn }
    }

    /// One attack's figures, and how long honest calls took: when it was quiet, beside it, and beside the same done to somebody
    /// else.
    pub(crate) fn row(&mut self, name: &str, fate: &Fate, growth_mib: f64, calls: [Option<&Latencies>; 3]) {
        if !self.lines.iter().any(|line| line == HEAD) {
            self.lines.extend([HEAD.to_owned(), "|-".repeat(13) + "|"]);
        }
        let ms = |percent| {
            let of = |it: &Latencies| format!("{:.1}", it.percentile(percent).as_secs_f64() * 1e3);
            calls.map(|it| it.map_or("".into(), of)).join(" | ")
        };
        let longest = if fate.closed == 0 { "".into() } else { format!("{:.2} s", fate.longest.as_secs_f64()) };
        self.lines.push(format!(
            "| {name} | {} | {} | {longest} | {} | +{growth_mib:.1} | {} | {} | {} |",
            fate.closed,
            fate.goaways,
            fate.open.len(),
            ms(50),
            ms(99),
            calls[1].map_or(0, Latencies::count),
        ));
    }

    /// Something worth a line.
    pub(crate) fn note(&mut self, what: String) {
        self.lines.push(what);
    }

    /// Something that was promised has not been kept.
    pub(crate) fn violated(&mut self, what: String) {
        self.violations.push(what);
    }

    /// Prints the figures, and fails if there were violations.
    #[track_caller]
    pub(crate) fn end(self) {
        println!("{}", self.lines.join("\n"));
        assert!(self.violations.is_empty(), "\n{}\n", self.violations.join("\n"));
    }
}
