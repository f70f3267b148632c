//! Attackers in a process of their own with low priority, so that their CPU use is not measured as the server's. Real
//! attackers have machines of their own.

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use tokio::time::Instant;

use crate::attack::Attack;
use crate::connection_outcome::ConnectionOutcome;
use crate::report::scale;
use crate::server_under_attack::ServerUnderAttack;

/// Variable set in the attacking process: target address, number of connections, milliseconds, and name of the attack.
const ATTACK_ARGS: &str = "EDGE_ATTACK";

/// Prefix of the connection outcome on standard output.
const OUTPUT_PREFIX: &str = "outcome=";

/// On a shared machine: low priority, but not idle, since a process that never runs would notice a closed connection too late.
const LOW_PRIORITY: [&str; 3] = ["nice", "-n", "19"];

/// For the long form, on an otherwise idle machine: runs only when the processor is idle. With `nice` alone a process may run
/// for three milliseconds, which is longer than an honest call takes and would be measured as the server's.
const IDLE_PRIORITY: [&str; 3] = ["chrt", "--idle", "0"];

/// Runs the test `test` in a process of its own with low priority, with `what` in the variable `key`. Returns its output
/// line after `prefix`.
pub(crate) async fn run_in_process(
    test: &'static str,
    key: &'static str,
    what: String,
    prefix: &'static str,
) -> String {
    let child = tokio::task::spawn_blocking(move || {
        let priority = if scale() == 1 { LOW_PRIORITY } else { IDLE_PRIORITY };
        let mut command = Command::new(priority[0]);
        command.args(&priority[1..]).arg(std::env::current_exe().expect("this test"));
        command.args(["--exact", test, "--nocapture"]);
        command.env(key, what).stdin(Stdio::null()).output().expect("the process starts")
    });
    let output = child.await.expect("the process ends");
    let stdout = String::from_utf8_lossy(&output.stdout);
    let line = stdout.lines().find_map(|line| line.strip_prefix(prefix));
    line.unwrap_or_else(|| panic!("{stdout}\n{}", String::from_utf8_lossy(&output.stderr))).to_owned()
}

/// Attacks `target` from a process of its own, and waits for its end.
pub(crate) async fn run(
    attack: Attack,
    target: SocketAddr,
    connections: usize,
    duration: Duration,
) -> ConnectionOutcome {
    let what = format!("{target} {connections} {} {}", duration.as_millis(), attack.name);
    ConnectionOutcome::from_line(
        &run_in_process(
            "attacker_process::attacker_process_reports_connection_outcomes",
            ATTACK_ARGS,
            what,
            OUTPUT_PREFIX,
        )
        .await,
    )
}

/// The test starts an attacking process and reads its output; in that process the same function runs the attack.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attacker_process_reports_connection_outcomes() {
    let Some(what) = std::env::var_os(ATTACK_ARGS) else {
        let server = ServerUnderAttack::start();
        let outcome = run(Attack::named("PING flood"), server.address, 2, Duration::from_secs(1)).await;
        assert!(0 < outcome.closed, "{outcome:?}");
        assert_eq!(ConnectionOutcome::from_line(&outcome.to_line()), outcome);
        return;
    };
    let what = what.to_str().expect("text");
    let mut words = what.splitn(4, ' ');
    let mut next = || words.next().expect("four words");
    let (target, connections, ms) = (next().parse().expect("an address"), next(), next());
    let (connections, ms) = (connections.parse().expect("a number"), ms.parse().expect("milliseconds"));
    let outcome = Attack::named(next()).run(target, connections, Instant::now() + Duration::from_millis(ms)).await;
    println!("\n{OUTPUT_PREFIX}{}", outcome.to_line());
}
