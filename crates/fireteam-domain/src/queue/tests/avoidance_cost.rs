//! Cost of avoidance in a pass, measured: `cargo test --release -p fireteam-domain avoidance_cost -- --ignored --nocapture`.

use std::time::{Duration, Instant};

use crate::id::{MatchId, RulesetHash, SetId, SiloId, TicketId, UserKey};
use crate::lifecycle::{Assignment, Match, MatchPlayer, MatchStage, MatchTicket};
use crate::queue::avoidance::{PastMatch, PastMatches};
use crate::queue::pass::run_pass;
use crate::queue::past_match_log::PastMatchLog;
use crate::queue::rng::SplitMix64;
use crate::queue::tests::fixture::{NOW, QueueFixture, new_ticket};
use crate::ruleset::queue::{AvoidStrictness, AvoidTarget, AvoidanceRule};
use crate::time::UnixMs;

const PASSES: u32 = 15;

/// Random user of a population; keys are spread like digests.
fn user(number: u64) -> UserKey {
    let mut rng = SplitMix64(number);
    UserKey::from_bytes((u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64())).to_le_bytes())
}

fn fixture(tickets: u64, blocked: u64) -> QueueFixture {
    let mut rng = SplitMix64(5);
    let mut fixture = QueueFixture::one_vs_one();
    for number in 0..tickets {
        let rating = (rng.next_u64() % 30_000) as f64 / 1_000.0;
        let mut ticket = new_ticket(number, &[rating], UnixMs(NOW.0 - rng.next_u64() % 60_000));
        ticket.session.players[0].user = user(number);
        ticket.blocked_users = (0..blocked).map(|_| user(rng.next_u64())).collect();
        ticket.blocked_users.sort_unstable();
        fixture.tickets.push(ticket.into());
        fixture.leaderboard_positions.push(None);
    }
    fixture
}

#[expect(clippy::disallowed_methods, reason = "a measurement")]
fn median(mut run: impl FnMut()) -> Duration {
    let mut times: Vec<Duration> = (0..PASSES)
        .map(|_| {
            let started_at = Instant::now();
            run();
            started_at.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2]
}

fn pass_time(fixture: &QueueFixture) -> Duration {
    let prepared = fixture.prepared_tickets();
    median(|| drop(std::hint::black_box(fixture.with_input(&prepared, run_pass))))
}

/// Running match of the two users of a pair.
fn played_match(number: u64, pair: &PastMatch) -> Match {
    let ticket = |user: UserKey, team| MatchTicket {
        ticket_id: TicketId::from_bytes(u128::from(number).to_le_bytes()),
        entered_at: NOW,
        team,
        players: vec![MatchPlayer { user, client: user, role: None, accepted: None }],
    };
    let (assignment, times_out_at) = (Assignment::Unhosted, UnixMs(NOW.0 + 1));
    Match {
        id: MatchId::from_bytes((u128::from(number) * 0x9e37_79b9_7f4a_7c15).to_le_bytes()),
        set_id: SetId(1),
        silo: SiloId(1),
        ruleset_hash: RulesetHash(1),
        proposed_at: pair.started_at,
        version: 1,
        stage: MatchStage::Playing { assignment, started_at: pair.started_at, times_out_at },
        tickets: vec![ticket(pair.user, 0), ticket(pair.other_user, 1)],
        quality: 0.0,
        region: None,
        backfilled_session: None,
    }
}

fn rules(fixture: &mut QueueFixture, whom: AvoidTarget) {
    let queue = fixture.ruleset.queue.as_mut().expect("a queue");
    queue.avoid = [AvoidanceRule { whom, how: AvoidStrictness::Never }].into();
}

#[test]
#[ignore = "a measurement; it needs a release build"]
fn avoidance_cost_of_a_pass_with_many_past_matches() {
    for (tickets, population) in [(1_100, 1_100), (1_100, 20_000), (10_000, 10_000), (10_000, 100_000)] {
        let mut fixture = fixture(tickets, 0);
        let without_rule = pass_time(&fixture);
        rules(&mut fixture, AvoidTarget::RecentOpponents { recent_ms: 3_600_000 });
        let mut rng = SplitMix64(9);
        let past: Vec<PastMatch> = (0..100_000)
            .map(|_| PastMatch {
                user: user(rng.next_u64() % population),
                other_user: user(rng.next_u64() % population),
                same_team: false,
                started_at: UnixMs(NOW.0 - rng.next_u64() % 3_600_000),
            })
            .collect();
        let empty = pass_time(&fixture);
        let rebuild = median(|| drop(std::hint::black_box(PastMatches::latest_of(past.iter().copied()))));
        fixture.past_matches = PastMatches::latest_of(past.iter().copied());
        let with_matches = pass_time(&fixture);
        let mut log = PastMatchLog::default();
        past.iter().zip(0..).for_each(|(pair, number)| log.record(&played_match(number, pair)));
        let queue = fixture.ruleset.queue.as_ref().expect("a queue");
        let waiting = || fixture.tickets.iter().map(|ticket| ticket.session.players[0].user);
        let snapshot = median(|| drop(std::hint::black_box(log.past_matches_of(waiting(), &queue.avoid, NOW))));
        let snapshot_of_log = log.past_matches_of(waiting(), &queue.avoid, NOW);
        fixture.past_matches = snapshot_of_log;
        let with_matches = with_matches.min(pass_time(&fixture));
        println!(
            "snapshot of the log {snapshot:?}, {tickets} tickets, {population} users: no rule {without_rule:?}, no matches {empty:?}, 100,000 matches \
             {with_matches:?}, rebuild {rebuild:?}"
        );
    }
}

#[test]
#[ignore = "a measurement; it needs a release build"]
fn avoidance_cost_of_a_pass_with_many_blocked_users() {
    let mut fixture = fixture(1_100, 1_000);
    let without_rule = pass_time(&fixture);
    rules(&mut fixture, AvoidTarget::Blocked);
    println!("1,100 tickets that block 1,000 users: no rule {without_rule:?}, with the rule {:?}", pass_time(&fixture));
}
