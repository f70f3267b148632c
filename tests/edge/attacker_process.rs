//! Attackers in a process of their own, which gives way to everybody: what they do is not to be taken for what is done by whom they
//! attack, and elsewhere they would have a machine of their own.

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use tokio::time::Instant;

use crate::attack::Attack;
use crate::connection_outcome::Fate;
use crate::report::scale;
use crate::server_under_attack::Victim;

/// Set in the process that is to attack: whom, with how many connections, for how many milliseconds, and how.
const ATTACKS: &str = "EDGE_ATTACKS";

/// What comes before the fate on standard output.
const TOLD: &str = "fate=";

/// Where others are at work too: as nice as can be, and no more, for whoever never gets a turn notices too late that he is closed.
const IN_TURN: [&str; 3] = ["nice", "-n", "19"];

/// In the long form, for a machine that does nothing else: whenever nobody else has anything to do. However nice, whoever has a turn
/// keeps it for three milliseconds, which is longer than an honest call takes and would be told of the server.
const WHEN_IDLE: [&str; 3] = ["chrt", "--idle", "0"];

/// Runs the test of that name in a process of its own, which gives way to everybody, with `what` in the variable `key`. What
/// it says after `told`.
pub(crate) async fn told_by(test: &'static str, key: &'static str, what: String, told: &'static str) -> String {
    let child = tokio::task::spawn_blocking(move || {
        let give_way = if scale() == 1 { IN_TURN } else { WHEN_IDLE };
        let mut command = Command::new(give_way[0]);
        command.args(&give_way[1..]).arg(std::env::current_exe().expect("this test"));
        command.args(["--exact", test, "--nocapture"]);
        command.env(key, what).stdin(Stdio::null()).output().expect("it starts")
    });
    let output = child.await.expect("it ends");
    let said = String::from_utf8_lossy(&output.stdout);
    let line = said.lines().find_map(|line| line.strip_prefix(told));
    line.unwrap_or_else(|| panic!("{said}\n{}", String::from_utf8_lossy(&output.stderr))).to_owned()
}

/// Attacks `target` from a process of its own, and waits for it.
pub(crate) async fn run(attack: Attack, target: SocketAddr, connections: usize, long: Duration) -> Fate {
    let what = format!("{target} {connections} {} {}", long.as_millis(), attack.name);
    Fate::of_told(&told_by("attacker_process::attackers_tell_of_their_fate", ATTACKS, what, TOLD).await)
}

/// In the test itself, attackers are started and heard; in the process that this starts, it is they.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attackers_tell_of_their_fate() {
    let Some(what) = std::env::var_os(ATTACKS) else {
        let victim = Victim::start();
        let fate = run(Attack::named("PING flood"), victim.address, 2, Duration::from_secs(1)).await;
        assert!(0 < fate.closed, "{fate:?}");
        assert_eq!(Fate::of_told(&fate.told()), fate);
        return;
    };
    let what = what.to_str().expect("text");
    let mut words = what.splitn(4, ' ');
    let mut next = || words.next().expect("four words");
    let (target, connections, ms) = (next().parse().expect("an address"), next(), next());
    let (connections, ms) = (connections.parse().expect("a number"), ms.parse().expect("milliseconds"));
    let fate = Attack::named(next()).run(target, connections, Instant::now() + Duration::from_millis(ms)).await;
    println!("\n{TOLD}{}", fate.told());
}
