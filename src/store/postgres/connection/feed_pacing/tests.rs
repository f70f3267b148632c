//! Simulation of servers that commit and read without polls: each change is read within a pause.

use proptest::prelude::*;

use super::*;

/// Step of the simulated time.
const STEP: Duration = Duration::from_millis(1);

/// Time from a commit until each other server has read it: a pause and a step.
const READ_WITHIN: Duration = Duration::from_millis(11);

/// Simulated server.
#[derive(Default)]
struct Server {
    last_change: Option<Instant>,
    last_read: Option<EndedRead>,
    /// Next read that is not a poll.
    next_read: Option<Instant>,
    /// End of the running commit, and whether it notifies.
    commit: Option<(Instant, bool)>,
    /// Number of changes in the log that it has read or made.
    read_count: usize,
}

impl Server {
    fn plan_read(&mut self, now: Instant) {
        let next = next_read_at(self.last_read, self.last_change, now, now);
        self.next_read = (!next.is_poll).then_some(next.at);
    }
}

/// Servers, and the changes that they have committed, with their servers and times.
struct Simulation {
    servers: Vec<Server>,
    log: Vec<(usize, Instant)>,
    notified: Vec<bool>,
    notifications: usize,
    reads: usize,
    slowest: Duration,
}

impl Simulation {
    fn new(servers: usize, start: Instant) -> Self {
        let first_read = EndedRead { ended_at: start, duration: Duration::ZERO, result: ReadResult::NoChanges };
        let server = || Server { last_read: Some(first_read), ..Server::default() };
        Self {
            servers: (0..servers).map(|_| server()).collect(),
            log: Vec::new(),
            notified: vec![false; servers],
            notifications: 0,
            reads: 0,
            slowest: Duration::ZERO,
        }
    }

    fn begin_commit(&mut self, at: usize, now: Instant, takes: Duration) {
        let server = &mut self.servers[at];
        if server.commit.is_none() {
            server.commit = Some((now + takes, is_older_than(server.last_change, QUIET_TIME, now)));
        }
    }

    /// Ends commits and performs reads that are due at `now`.
    fn step(&mut self, now: Instant) {
        for at in 0..self.servers.len() {
            let server = &mut self.servers[at];
            let Some((_, notifies)) = server.commit.take_if(|(end, _)| *end <= now) else { continue };
            self.log.push((at, now));
            if notifies || is_older_than(server.last_change, QUIET_TIME, now) {
                self.notifications += 1;
                self.notified.fill(true);
            }
            server.last_change = Some(now);
            if server.next_read.is_none() {
                server.plan_read(now);
            }
        }
        for at in 0..self.servers.len() {
            let server = &mut self.servers[at];
            if !std::mem::take(&mut self.notified[at]) && server.next_read.is_none_or(|due| now < due) {
                continue;
            }
            self.reads += 1;
            let mut result = ReadResult::NoChanges;
            for (_, committed_at) in self.log[server.read_count..].iter().filter(|(by, _)| *by != at) {
                result = ReadResult::Changes;
                self.slowest = self.slowest.max(now.duration_since(*committed_at));
            }
            server.read_count = self.log.len();
            if result == ReadResult::Changes {
                server.last_change = Some(now);
            }
            server.last_read = Some(EndedRead { ended_at: now, duration: STEP, result });
            server.plan_read(now);
        }
    }
}

/// A commit: its server, the time since the one before, and its duration, milliseconds.
fn commits() -> impl Strategy<Value = (usize, Vec<(usize, u64, u64)>)> {
    let gap_ms = prop_oneof![0..8_u64, 0..40_u64, 0..300_u64];
    (2..6_usize, prop::collection::vec((0..6_usize, gap_ms, 0..60_u64), 1..120))
}

proptest! {
    /// R9: each change is read within a pause, without polls, for any times of commits, also of some that take longer than
    /// the quiet time.
    #[test]
    fn changes_are_read_within_a_pause_without_polls((servers, commits) in commits()) {
        let mut now = Instant::now();
        let mut simulation = Simulation::new(servers, now);
        for (at, gap_ms, takes_ms) in commits {
            let until = now + Duration::from_millis(gap_ms);
            while now < until {
                now += STEP;
                simulation.step(now);
            }
            simulation.begin_commit(at % servers, now, Duration::from_millis(takes_ms));
        }
        for _ in 0..1_000 {
            now += STEP;
            simulation.step(now);
        }
        prop_assert!(simulation.slowest <= READ_WITHIN, "{:?}", simulation.slowest);
        prop_assert!(simulation.servers.iter().all(|server| server.read_count == simulation.log.len()));
        prop_assert!(simulation.servers.iter().all(|server| server.next_read.is_none()), "reads end when changes end");
    }
}

/// Notifications and reads of two servers, of which one commits every `interval_ms` for ten seconds.
fn cost_of_commits(interval_ms: u64) -> (usize, usize) {
    let mut now = Instant::now();
    let mut simulation = Simulation::new(2, now);
    for ms in 0..10_000 {
        if ms % interval_ms == 0 {
            simulation.begin_commit(0, now, Duration::from_millis(1));
        }
        now += STEP;
        simulation.step(now);
    }
    (simulation.notifications, simulation.reads)
}

#[test]
fn commits_in_quick_succession_notify_once() {
    let (notifications, reads) = cost_of_commits(5);
    assert_eq!(notifications, 1);
    // Two servers, each 100 to 200 times a second.
    assert!((2_000..=4_000).contains(&reads), "{reads}");
}

#[test]
fn rare_commits_notify_each_and_reads_stop_in_between() {
    let (notifications, reads) = cost_of_commits(1_000);
    assert_eq!(notifications, 10);
    assert!(reads <= 10 * 2 * 12, "{reads}");
}

#[test]
fn quiet_database_is_only_polled() {
    let now = Instant::now();
    let read = EndedRead { ended_at: now, duration: STEP, result: ReadResult::NoChanges };
    let next = next_read_at(Some(read), None, now, now);
    assert!(next.is_poll && next.at == now + POLL_INTERVAL);
    let failed = EndedRead { result: ReadResult::Failed, ..read };
    assert!(
        next_read_at(Some(failed), Some(now), now, now).at == now + POLL_INTERVAL,
        "a failed read is not repeated at once"
    );
}

#[test]
fn slow_reads_have_long_pauses() {
    let now = Instant::now();
    let read = |ms| EndedRead { ended_at: now, duration: Duration::from_millis(ms), result: ReadResult::Changes };
    let pause = |ms| next_read_at(Some(read(ms)), Some(now), now, now).at.duration_since(now);
    assert_eq!((pause(1), pause(20)), (PAUSE_AFTER_CHANGES, Duration::from_millis(40)));
    assert_eq!(pause(2_000), POLL_INTERVAL);
}
