//! SEC-1: attacks on HTTP/2, each on a fresh server, with somebody beside it who means well; and the same on the library's
//! own settings.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use crate::attack::{Attack, BAD_HEADERS, MANY_STREAMS, NO_PREFACE, PATIENT, QUICK, TLS_STALL};
use crate::connection_outcome::Fate;
use crate::report::{Report, connections, is_wanted, lasting, scale};
use crate::server_under_attack::{Latencies, Victim};
use crate::{attacker_process, control_process, library_defaults};

/// Memory that an attack may cost, MiB.
const GROWTH_MAX_MIB: f64 = 64.0;

/// When a call whose body does not come to its end has ended: after its 5 s.
const TRICKLE_MAX: Duration = Duration::from_secs(6);

/// What one attacker may cost an honest call when all take turns on two cores.
const TURN_MAX: Duration = Duration::from_millis(25);

/// Longest that an attacker may stay who does harm.
const STAY_MAX: Duration = Duration::from_secs(10);

/// What an attack came to.
struct Outcome {
    fate: Fate,
    growth_mib: f64,
    /// When it was quiet, before and after.
    before: Latencies,
    during: Result<Latencies, String>,
    /// While the same was done to somebody else; in the long form.
    elsewhere: Option<Latencies>,
}

/// How long calls to `victim` take while the same attackers are at work on the same cores, and attack somebody else.
async fn attack_elsewhere(victim: &Victim, attack: Attack, connections: usize, long: Duration) -> Latencies {
    // What does no harm is served, and serving it is work for the same cores.
    let other = if attack.is_closed { control_process::start() } else { Victim::start() };
    let (ready, begins) = oneshot::channel();
    let (ended, over) = oneshot::channel();
    let honest = victim.honest_calls(ready, over, long);
    begins.await.expect("others are served");
    attacker_process::run(attack, other.address, connections, long).await;
    ended.send(()).expect("somebody waits");
    let (_, during) = honest.await.unwrap();
    during.expect("nobody attacks it")
}

/// Attacks `victim` for `long`, and watches.
async fn attack(victim: &Victim, attack: Attack, connections: usize, long: Duration) -> Outcome {
    let elsewhere = match scale() {
        ..=1 => None,
        _ => Some(attack_elsewhere(victim, attack, connections, long).await),
    };
    let (ready, begins) = oneshot::channel();
    let (ended, over) = oneshot::channel();
    let honest = victim.honest_calls(ready, over, long);
    begins.await.expect("others are served");
    let weighed = victim.resident_mib();
    let end = Instant::now() + long;
    let heaviest = async {
        let mut heaviest = weighed;
        while Instant::now() < end {
            heaviest = victim.resident_mib().max(heaviest);
            sleep(Duration::from_millis(20)).await;
        }
        heaviest
    };
    let attackers = async {
        let fate = attacker_process::run(attack, victim.address, connections, long).await;
        // Whoever calls may have given up already, which is told otherwise.
        let _ = ended.send(());
        fate
    };
    let (heaviest, honest, fate) = tokio::join!(heaviest, honest, attackers);
    let (before, during) = honest.unwrap();
    Outcome { fate, growth_mib: heaviest - weighed, before, during, elsewhere }
}

/// Holds an outcome against what is promised.
fn judge(report: &mut Report, attack: Attack, outcome: &Outcome) {
    let Outcome { fate, growth_mib, before, during, elsewhere } = outcome;
    let mut say = |what: String| report.violated(format!("{}: {what}", attack.name));
    if GROWTH_MAX_MIB < *growth_mib {
        say(format!("{growth_mib:.0} MiB more"));
    }
    let stayed = fate.open.iter().chain([&fate.longest]).any(|stayed| STAY_MAX < *stayed);
    if attack.is_closed && (fate.closed == 0 || stayed) {
        say(format!("not closed in time: {fate:?}"));
    }
    match during {
        Err(why) => say(why.clone()),
        // Attackers and the one who means well share the machine with the server: this is no benchmark.
        Ok(during) if 10 * before.percentile(50) + TURN_MAX * (connections() as u32) < during.percentile(50) => {
            say(format!("others wait {:?}", during.percentile(50)));
        }
        Ok(during) => {
            let machine = elsewhere.as_ref().map(|it| it.percentile(99).max(before.percentile(99)));
            if machine.is_some_and(|machine| 2 * machine < during.percentile(99)) {
                say(format!("others wait {:?}, and {machine:?} when somebody else is attacked", during.percentile(99)));
            }
        }
    }
    report.row(attack.name, fate, *growth_mib, [Some(before), during.as_ref().ok(), elsewhere.as_ref()]);
}

/// SEC-1: whatever one says to the server, it costs little memory, others are served, and whoever does harm is closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attacks_on_http2_are_cheap_to_survive() {
    let mut report = Report::begin("the edge").await;
    for &kind in QUICK.iter().filter(|kind| is_wanted(kind.name)) {
        let victim = Victim::start();
        let outcome = attack(&victim, kind, connections(), lasting(Duration::from_millis(1_200))).await;
        judge(&mut report, kind, &outcome);
    }
    report.end();
}

/// SEC-1, F3: whoever waits is not waited for. A body that comes a byte at a time ends with its call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attackers_who_wait_are_sent_away() {
    let mut report = Report::begin("the edge, slowly").await;
    let long = lasting(Duration::from_millis(6_500)).min(Duration::from_secs(30));
    let slow = PATIENT.iter().map(|&kind| (kind, Victim::start())).chain([(TLS_STALL, Victim::start_with_tls())]);
    let outcomes: Vec<_> =
        slow.map(|(kind, victim)| async move { (kind, attack(&victim, kind, connections(), long).await) }).collect();
    for (kind, outcome) in futures_util::future::join_all(outcomes).await {
        let old = outcome.fate.open.iter().filter(|age| TRICKLE_MAX < **age).count();
        if kind.name == "trickled body" && (old == 0 || outcome.fate.answered < old) {
            report.violated(format!("a trickled body went on: {:?}", outcome.fate));
        }
        judge(&mut report, kind, &outcome);
    }
    report.end();
}

/// SEC-1, mutant M10: without our settings the same attacks do harm, so that they would be noticed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_librarys_own_settings_fare_worse() {
    let mut report = Report::begin("the library's own settings").await;

    let victim = library_defaults::start(false);
    let before = victim.resident_mib();
    let end = Instant::now() + STAY_MAX;
    let attackers = tokio::spawn(BAD_HEADERS.run(victim.address, 1, end));
    while victim.resident_mib() - before < 2.0 * GROWTH_MAX_MIB && Instant::now() < end {
        sleep(Duration::from_millis(20)).await;
    }
    attackers.abort();
    let growth = victim.resident_mib() - before;
    report.note(format!("bad HEADERS, one connection: {growth:.0} MiB more"));
    if growth < GROWTH_MAX_MIB {
        report.violated(format!("bad HEADERS cost {growth:.0} MiB and no more"));
    }
    drop(victim);

    let (ours, theirs) = (Victim::start(), library_defaults::start(false));
    let end = Instant::now() + Duration::from_millis(1_500);
    let run = |victim: &Victim| MANY_STREAMS.run(victim.address, 1, end);
    let (ours, theirs) = tokio::join!(run(&ours), run(&theirs));
    let ends = |fate: &Fate| format!("{} of {} connections ended", fate.goaways, fate.closed + fate.open.len());
    report.note(format!("20,000 streams: {} by us, {} by the library", ends(&ours), ends(&theirs)));
    if ours.goaways == 0 || 0 < theirs.goaways + theirs.resets {
        report.violated(format!("20,000 streams: {ours:?} and {theirs:?}"));
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
        report.violated(format!("the library closes those who wait: {silent:?} {stalled:?}"));
    }
    report.end();
}
