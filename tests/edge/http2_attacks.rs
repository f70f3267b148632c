//! SEC-1: HTTP/2 attacks, each on a new server with an honest client beside it, and the same attacks on the library's default
//! settings.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use crate::attack::{Attack, BAD_HEADERS, FAST_ATTACKS, MANY_STREAMS, NO_PREFACE, SLOW_ATTACKS, TLS_STALL};
use crate::connection_outcome::ConnectionOutcome;
use crate::report::{Report, attack_duration, connections, is_wanted, scale};
use crate::server_under_attack::{Latencies, ServerUnderAttack};
use crate::{attacker_process, control_process, library_defaults};

/// Limit on the additional memory during an attack, MiB.
const GROWTH_MAX_MIB: f64 = 64.0;

/// Time after which a call with an incomplete body has ended: its timeout is 5 s.
const TRICKLE_MAX: Duration = Duration::from_secs(6);

/// Limit on the latency that each attacker adds to the median honest call on two shared cores.
const ADDED_LATENCY_MAX: Duration = Duration::from_millis(25);

/// Longest age of a harmful connection.
const CONNECTION_AGE_MAX: Duration = Duration::from_secs(10);

/// Measurements of one attack.
struct AttackResult {
    outcome: ConnectionOutcome,
    growth_mib: f64,
    /// Latencies before and after the attack.
    before: Latencies,
    during: Result<Latencies, String>,
    /// Latencies while another process was attacked; long form only.
    elsewhere: Option<Latencies>,
}

/// Latencies of calls to `server` while the same attackers on the same cores attack another process.
async fn attack_elsewhere(
    server: &ServerUnderAttack,
    attack: Attack,
    connections: usize,
    duration: Duration,
) -> Latencies {
    // A harmless attack is served, and serving takes the same cores: its target is another server.
    let other = if attack.is_closed { control_process::start() } else { ServerUnderAttack::start() };
    let (ready, is_ready) = oneshot::channel();
    let (ended, over) = oneshot::channel();
    let honest = server.honest_calls(ready, over, duration);
    is_ready.await.expect("honest calls are answered");
    attacker_process::run(attack, other.address, connections, duration).await;
    ended.send(()).expect("the receiver is open");
    let (_, during) = honest.await.unwrap();
    during.expect("calls to a server without attackers are answered")
}

/// Attacks `server` for `duration` and measures.
async fn attack(server: &ServerUnderAttack, attack: Attack, connections: usize, duration: Duration) -> AttackResult {
    let elsewhere = match scale() {
        ..=1 => None,
        _ => Some(attack_elsewhere(server, attack, connections, duration).await),
    };
    let (ready, is_ready) = oneshot::channel();
    let (ended, over) = oneshot::channel();
    let honest = server.honest_calls(ready, over, duration);
    is_ready.await.expect("honest calls are answered");
    let initial_mib = server.resident_mib();
    let end = Instant::now() + duration;
    let peak_mib = async {
        let mut peak_mib = initial_mib;
        while Instant::now() < end {
            peak_mib = server.resident_mib().max(peak_mib);
            sleep(Duration::from_millis(20)).await;
        }
        peak_mib
    };
    let attackers = async {
        let outcome = attacker_process::run(attack, server.address, connections, duration).await;
        // The caller may have failed already; `during` has its error.
        let _ = ended.send(());
        outcome
    };
    let (peak_mib, honest, outcome) = tokio::join!(peak_mib, honest, attackers);
    let (before, during) = honest.unwrap();
    AttackResult { outcome, growth_mib: peak_mib - initial_mib, before, during, elsewhere }
}

/// Compares measurements with the limits.
fn check(report: &mut Report, attack: Attack, result: &AttackResult) {
    let AttackResult { outcome, growth_mib, before, during, elsewhere } = result;
    let mut violation = |what: String| report.violation(format!("{}: {what}", attack.name));
    if GROWTH_MAX_MIB < *growth_mib {
        violation(format!("{growth_mib:.0} MiB more"));
    }
    let too_old = outcome.open.iter().chain([&outcome.longest]).any(|age| CONNECTION_AGE_MAX < *age);
    if attack.is_closed && (outcome.closed == 0 || too_old) {
        violation(format!("not closed in time: {outcome:?}"));
    }
    match during {
        Err(error) => violation(error.clone()),
        // Attackers, honest client and server share the machine, so this limit is no benchmark.
        Ok(during)
            if 10 * before.percentile(50) + ADDED_LATENCY_MAX * (connections() as u32) < during.percentile(50) =>
        {
            violation(format!("the median honest call takes {:?}", during.percentile(50)));
        }
        Ok(during) => {
            let machine = elsewhere.as_ref().map(|it| it.percentile(99).max(before.percentile(99)));
            if machine.is_some_and(|machine| 2 * machine < during.percentile(99)) {
                violation(format!(
                    "the p99 of honest calls is {:?}, and {machine:?} while another process is attacked",
                    during.percentile(99)
                ));
            }
        }
    }
    report.row(attack.name, outcome, *growth_mib, [Some(before), during.as_ref().ok(), elsewhere.as_ref()]);
}

/// SEC-1: each attack costs little memory, honest calls are answered, and harmful connections are closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http2_attacks_cost_little_and_are_closed() {
    let mut report = Report::start("HTTP/2 attacks").await;
    for &kind in FAST_ATTACKS.iter().filter(|kind| is_wanted(kind.name)) {
        let server = ServerUnderAttack::start();
        let result = attack(&server, kind, connections(), attack_duration(Duration::from_millis(1_200))).await;
        check(&mut report, kind, &result);
    }
    report.finish();
}

/// SEC-1, F3: idle connections are closed by a timeout, and a call with a body that arrives byte by byte ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_connections_are_closed() {
    let mut report = Report::start("slow HTTP/2 attacks").await;
    let duration = attack_duration(Duration::from_millis(6_500)).min(Duration::from_secs(30));
    let servers = SLOW_ATTACKS
        .iter()
        .map(|&kind| (kind, ServerUnderAttack::start()))
        .chain([(TLS_STALL, ServerUnderAttack::start_with_tls())]);
    let results: Vec<_> = servers
        .map(|(kind, server)| async move { (kind, attack(&server, kind, connections(), duration).await) })
        .collect();
    for (kind, result) in futures_util::future::join_all(results).await {
        let old = result.outcome.open.iter().filter(|age| TRICKLE_MAX < **age).count();
        if kind.name == "trickled body" && (old == 0 || result.outcome.answered < old) {
            report.violation(format!("a call with a trickled body did not end: {:?}", result.outcome));
        }
        check(&mut report, kind, &result);
    }
    report.finish();
}

/// SEC-1: with the library's default settings the same attacks do harm, so the tests above can detect it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn library_defaults_are_worse_under_attack() {
    let mut report = Report::start("the library's default settings").await;

    let server = library_defaults::start(false);
    let before = server.resident_mib();
    let end = Instant::now() + CONNECTION_AGE_MAX;
    let attackers = tokio::spawn(BAD_HEADERS.run(server.address, 1, end));
    while server.resident_mib() - before < 2.0 * GROWTH_MAX_MIB && Instant::now() < end {
        sleep(Duration::from_millis(20)).await;
    }
    attackers.abort();
    let growth = server.resident_mib() - before;
    report.note(format!("bad HEADERS, one connection: {growth:.0} MiB more"));
    if growth < GROWTH_MAX_MIB {
        report.violation(format!("bad HEADERS cost only {growth:.0} MiB"));
    }
    drop(server);

    let (ours, theirs) = (ServerUnderAttack::start(), library_defaults::start(false));
    let end = Instant::now() + Duration::from_millis(1_500);
    let run = |server: &ServerUnderAttack| MANY_STREAMS.run(server.address, 1, end);
    let (ours, theirs) = tokio::join!(run(&ours), run(&theirs));
    let ends = |outcome: &ConnectionOutcome| {
        format!("{} of {} connections ended", outcome.goaways, outcome.closed + outcome.open.len())
    };
    report.note(format!("20,000 streams: {} by fireteam, {} by the library", ends(&ours), ends(&theirs)));
    if ours.goaways == 0 || 0 < theirs.goaways + theirs.resets {
        report.violation(format!("20,000 streams: {ours:?} and {theirs:?}"));
    }

    let (silent, stalled) = (library_defaults::start(false), library_defaults::start(true));
    let end = Instant::now() + Duration::from_secs(6);
    let (silent, stalled) =
        tokio::join!(NO_PREFACE.run(silent.address, 3, end), TLS_STALL.run(stalled.address, 3, end));
    report.note(format!(
        "after 6 s: {} without a preface open, {} in a handshake",
        silent.open.len(),
        stalled.open.len()
    ));
    if silent.open.len() < 3 || stalled.open.len() < 3 {
        report.violation(format!("the library closes idle connections: {silent:?} {stalled:?}"));
    }
    report.finish();
}
