//! Goals PQ: one matchmaking pass of each kind over 10,000 and 100,000 tickets, and the cost of its matching.

use std::sync::Arc;

use fireteam::domain::attribute::{AttributeValue, NumberAggregation};
use fireteam::domain::expansion::Expansion;
use fireteam::domain::id::{SetId, TicketId, UserKey};
use fireteam::domain::matching::maximum_weight_matching;
use fireteam::domain::measure::Measure;
use fireteam::domain::queue::avoidance::PastMatches;
use fireteam::domain::queue::gate::GateCounts;
use fireteam::domain::queue::pass::{self, PassInput, PassOutcome};
use fireteam::domain::queue::prepared_ticket::PreparedTicket;
use fireteam::domain::queue::ticket::{PlayerRating, Ticket};
use fireteam::domain::ruleset::queue::{
    AvoidStrictness, AvoidTarget, AvoidanceRule, BucketRounding, Gate, GateRounding, MaxRangeCombination, PassTrigger,
    QualitySpec, QueueSpec, RatingGroup, RatingGroups, RatingWindow, SelectionMode, SelectionOrder, SelectionSpec,
    WaitBonus, WindowClock, WindowPairRule,
};
use fireteam::domain::ruleset::teams::{TeamOrderInMatch, TeamsSpec};
use fireteam::domain::ruleset::{HardFilter, HardMissingPolicy, HardRule, Ruleset};
use fireteam::domain::session::RegionLatency;
use fireteam::domain::time::UnixMs;
use fireteam::rules::bundled;

use crate::harness::{Timing, clock, compare, machine, report, time_all};
use crate::past_matches::past_match_log;
use crate::population::{NOW, PopulationKind, RuleOptions, ruleset, session};
use crate::split_mix64::SplitMix64;

/// Limit per ticket, microseconds (PQ2).
const PER_TICKET_US: f64 = 2.5;

/// Limit of an exact pass over a thousand tickets, milliseconds (PQ4).
const EXACT_MS: f64 = 50.0;

/// Limit on the cost of a quick pass, as a multiple of the optimum (PQ3).
const ABOVE_OPTIMUM: f64 = 1.05;

/// Tickets that block each other, users that each blocks, and the limit of a pass over them, milliseconds (PQ9).
const BLOCKING_TICKETS: u64 = 1_100;
const BLOCKED_USERS: usize = 1_000;
const BLOCKING_MS: f64 = 20.0;

/// Past matches that the log remembers (PQ8).
const REMEMBERED_MATCHES: u64 = 100_000;

pub(crate) fn run(wanted: &dyn Fn(&str) -> bool) {
    if wanted("PQ1") {
        by_rating();
    }
    if wanted("PQ2") {
        [1_000, 10_000, 100_000].into_iter().for_each(by_rating_and_place);
    }
    if wanted("PQ3") {
        beside_the_optimum();
    }
    if wanted("PQ4") {
        exactly();
    }
    if wanted("PQ6") {
        [10_000, 100_000].into_iter().for_each(passes);
    }
    if wanted("PQ7") {
        [10_000, 100_000].into_iter().for_each(systems);
    }
    if wanted("PQ8") {
        avoiding();
    }
    if wanted("PQ9") {
        blocking();
    }
}

/// Tickets and their ruleset.
struct WaitingQueue {
    ruleset: Ruleset,
    entrants: Vec<PreparedTicket>,
}

/// Regions to which players measure round trips.
const REGIONS: [&str; 5] = ["asia", "brazil", "eu", "us_east", "us_west"];

/// Each shipped ruleset, with mean and deviation of its players' ratings.
const RATINGS: [(&str, f64, f64); 5] = [
    ("challenge_5v5", 1_450.0, 400.0),
    ("comprl_ladder", 25.0, 6.0),
    ("destiny_control_6v6", 0.0, 350.0),
    ("openmatchmaking_leagues", 2_750.0, 700.0),
    ("teiserver_duel", 25.0, 8.0),
];

impl WaitingQueue {
    /// `count` tickets of one player: normally distributed ratings, locations uniform on the globe.
    fn new(ruleset: Ruleset, queue: QueueSpec, count: u64) -> Self {
        let mut ruleset = ruleset;
        ruleset.teams = Some(duel());
        ruleset.queue = Some(queue);
        let mut rng = SplitMix64(7);
        let ticket = |number: u64| {
            let session = session(&mut rng, PopulationKind::Uniform);
            let Some((_, AttributeValue::Number(rating))) = session.attributes.last() else { return None };
            let rated = PlayerRating { rating: *rating, deviation: 100.0 };
            let entered = UnixMs(NOW - rng.below(60_000));
            let id = TicketId::from_bytes((u128::from(rng.next()) << 64 | u128::from(number)).to_be_bytes());
            let (ratings, blocked) = (vec![rated], Vec::new());
            Some(Ticket {
                id,
                set_id: SetId(1),
                subject: None,
                entered_at: entered,
                session,
                player_ratings: ratings,
                exact_round_trips_ms: None,
                blocked_users: blocked,
                rating_digest_key: None,
                excludes_other_tickets: false,
                self_answering_users: Vec::new(),
            })
        };
        let tickets: Vec<Arc<Ticket>> = (0..count).filter_map(ticket).map(Arc::new).collect();
        let mut waiting = Self { entrants: Vec::new(), ruleset };
        waiting.enter(tickets);
        waiting
    }

    /// `count` tickets of one player for a shipped ruleset: ratings of its distribution, locations uniform on the globe, round
    /// trips to each region.
    fn of_system(ruleset: &Ruleset, mean: f64, deviation: f64, count: u64) -> Self {
        let mut rng = SplitMix64(7);
        let ticket = |number: u64| {
            let mut session = session(&mut rng, PopulationKind::Uniform);
            let rating = mean + deviation * rng.normal();
            session.attributes.clear();
            session.players[0].stated_skill = Some(rating);
            (session.nat_type, session.game_in_progress) = (Some(rng.below(3) as i32), Some(false));
            let trip =
                |region: &str| RegionLatency { region: region.into(), round_trip_ms: 20.0 + rng.below(180) as f32 };
            session.region_latencies = REGIONS.into_iter().map(trip).collect();
            let entered = UnixMs(NOW - rng.below(60_000));
            let id = TicketId::from_bytes((u128::from(rng.next()) << 64 | u128::from(number)).to_be_bytes());
            let (set_id, ratings, blocked) =
                (ruleset.set_id, vec![PlayerRating { rating, deviation: 100.0 }], Vec::new());
            Ticket {
                id,
                set_id,
                subject: None,
                entered_at: entered,
                session,
                player_ratings: ratings,
                exact_round_trips_ms: None,
                blocked_users: blocked,
                rating_digest_key: None,
                excludes_other_tickets: false,
                self_answering_users: Vec::new(),
            }
        };
        let tickets = (0..count).map(ticket).map(Arc::new).collect();
        let mut waiting = Self { entrants: Vec::new(), ruleset: ruleset.clone() };
        waiting.enter(tickets);
        waiting
    }

    fn enter(&mut self, tickets: Vec<Arc<Ticket>>) {
        let queue = self.ruleset.queue.as_ref().expect("a queue");
        let mut entrants: Vec<PreparedTicket> =
            tickets.into_iter().map(|ticket| PreparedTicket::new(&self.ruleset, queue, ticket, None)).collect();
        let mut order: Vec<usize> = (0..entrants.len()).collect();
        order.sort_by(|&one, &other| entrants[other].party_rating.total_cmp(&entrants[one].party_rating));
        for (place, at) in order.into_iter().enumerate() {
            // Ten users on the leaderboard for each that waits.
            entrants[at].leaderboard_position = Some(place as f64 * 10.0);
        }
        self.entrants = entrants;
    }

    /// Prepares the same tickets under other rules.
    fn under(&mut self, change: impl FnOnce(&mut QueueSpec, &mut TeamsSpec)) {
        let (queue, teams) = (self.ruleset.queue.as_mut(), self.ruleset.teams.as_mut());
        change(queue.expect("a queue"), teams.expect("teams"));
        let tickets = self.entrants.drain(..).map(|it| it.ticket).collect();
        self.enter(tickets);
    }

    fn pass(&self) -> PassOutcome {
        self.pass_with(&PastMatches::default())
    }

    fn pass_with(&self, past_matches: &PastMatches) -> PassOutcome {
        let entrants: Vec<&PreparedTicket> = self.entrants.iter().collect();
        pass::run_pass(&PassInput {
            ruleset: &self.ruleset,
            queue: self.ruleset.queue.as_ref().expect("a queue"),
            teams: self.ruleset.teams.as_ref().expect("teams"),
            tickets: &entrants,
            open_sessions: &[],
            past_matches,
            gate_counts: GateCounts::default(),
            now: UnixMs(NOW),
            rng_seed: 1,
            max_pair_checks: u64::MAX,
        })
    }

    fn time(&self) -> Timing {
        time_all(1, |_| drop(std::hint::black_box(self.pass())))
    }
}

fn duel() -> TeamsSpec {
    TeamsSpec {
        team_sizes: [1, 1].into(),
        max_party_size: 1,
        exact_up_to_team_size: 5,
        roles: Box::default(),
        order: TeamOrderInMatch::Split,
        offered_roles_attribute: None,
        bots: None,
    }
}

fn queue(mode: SelectionMode, quality: QualitySpec) -> QueueSpec {
    QueueSpec {
        pass_interval_ms: 250,
        pass_trigger: PassTrigger::Interval,
        party_rating: NumberAggregation::Max,
        allow_other_queues: true,
        prefer_same_party_size: false,
        backfill: false,
        ticket_ttl_ms: 60_000,
        gate: Gate {
            min_waiting_percent: 0.0,
            rounding: GateRounding::Up,
            max_concurrent_matches: None,
            skip_unchanged: true,
        },
        groups: None,
        regions: None,
        window: None,
        quality,
        selection: SelectionSpec {
            mode,
            start_with: SelectionOrder::HighestRated,
            max_candidates: 256,
            exact_up_to_tickets: 0,
            look: Default::default(),
        },
        wait_bonus: None,
        avoid: Box::default(),
        offer: None,
        frustrated_player_window: None,
    }
}

/// `|dr| / 2000 + miles / 5000`, and a mutual filter: ratings within 1,500 of each other.
fn rating_and_place() -> Ruleset {
    let mut ruleset = ruleset(RuleOptions { skill: 1.5, distance: 1.6, ..RuleOptions::default() });
    ruleset.expansions =
        [Expansion::constant("wide", Measure::AttributeDifference(0), 1_500.0).expect("a limit")].into();
    let rule = HardRule::Within { measure: Measure::AttributeDifference(0), expansion: 0, reciprocal_percent: 100.0 };
    ruleset.hard_filters = [HardFilter { name: "skill".into(), missing: HardMissingPolicy::Refuse, rule }].into();
    ruleset
}

const SCORE: QualitySpec = QualitySpec::SoftScore { max_score: 10.0 };

fn by_rating() {
    let waiting = WaitingQueue::new(
        ruleset(RuleOptions::default()),
        queue(SelectionMode::FirstWindow, QualitySpec::Any),
        100_000,
    );
    let keys: Vec<u64> = waiting.entrants.iter().map(|it| it.party_rating.to_bits()).collect();
    let sorted = || {
        let mut keys = keys.clone();
        time_all(1, |_| keys.sort_unstable())
    };
    compare("PQ1", "1v1 by rating, 100k, whole pass", "sort_unstable", || waiting.time(), sorted);
}

fn by_rating_and_place(count: u64) {
    let waiting = WaitingQueue::new(rating_and_place(), queue(SelectionMode::MaximumWeight, SCORE), count);
    let outcome = waiting.pass();
    assert_eq!(outcome.report.unmatched.len(), 0, "all are paired");
    let rounds = if count < 100_000 { 9 } else { 3 };
    let took: Vec<Timing> = (0..rounds).map(|_| waiting.time()).collect();
    let rounds: Vec<(f64, f64)> = took.iter().map(|it| (it.wall_us / count as f64, PER_TICKET_US)).collect();
    let cpu_us = took.iter().map(|it| it.cpu_us).sum::<f64>() / took.len() as f64 / count as f64;
    report("PQ2", &format!("rating and place, {count}, us a ticket"), "2.5 us", &rounds, cpu_us);
}

/// Sum of the costs of all matches.
fn cost(outcome: &PassOutcome) -> f64 {
    outcome.proposals.iter().map(|it| -it.quality).sum()
}

fn beside_the_optimum() {
    let mut waiting = WaitingQueue::new(rating_and_place(), queue(SelectionMode::MaximumWeight, SCORE), 1_000);
    let quick = cost(&waiting.pass());
    waiting.under(|queue, _| queue.selection.exact_up_to_tickets = 1_000);
    let exact = cost(&waiting.pass());
    let begin = clock();
    let optimum = optimum(&waiting, 1.0);
    let took_s = begin.elapsed().as_secs_f64();
    report(
        "PQ3",
        "8 nearest, greedy, exchanged, 1,000: cost",
        "1.05 x optimum",
        &[(quick, ABOVE_OPTIMUM * optimum)],
        0.0,
    );
    report("PQ4", "exact on 8 nearest, 1,000: cost", "optimum", &[(exact, optimum)], 0.0);
    println!("| PQ4 | exact_pass: the optimum on the complete graph, s | | {took_s:.2} | | 1 | | | | {} |", machine());
    beside_it(&mut waiting, "rating and place", optimum);
    let by_rating = ruleset(RuleOptions { skill: 1.5, ..RuleOptions::default() });
    let mut waiting = WaitingQueue::new(by_rating, queue(SelectionMode::MaximumWeight, SCORE), 1_000);
    let optimum = self::optimum(&waiting, 0.0);
    report(
        "PQ3",
        "rating alone, 8 nearest, greedy, exchanged, 1,000: cost",
        "optimum",
        &[(cost(&waiting.pass()), optimum)],
        0.0,
    );
    beside_it(&mut waiting, "rating alone", optimum);
}

/// Cost of each other selection mode on the same tickets.
fn beside_it(waiting: &mut WaitingQueue, costs: &str, optimum: f64) {
    let ways = [
        ("nearest, the longest wait first", SelectionMode::Nearest, SelectionOrder::LongestWaiting),
        ("nearest, the highest rated first", SelectionMode::Nearest, SelectionOrder::HighestRated),
        ("drawn", SelectionMode::WeightedSample, SelectionOrder::LongestWaiting),
        ("windows from the highest rated down", SelectionMode::FirstWindow, SelectionOrder::HighestRated),
    ];
    for (name, mode, start_with) in ways {
        waiting.under(|queue, _| (queue.selection.mode, queue.selection.start_with) = (mode, start_with));
        let outcome = waiting.pass();
        assert_eq!(outcome.report.unmatched.len(), 0, "all are paired");
        report("PQ3", &format!("{costs}, {name}, 1,000: cost"), "optimum", &[(cost(&outcome), optimum)], 0.0);
    }
}

/// The optimal sum of `|dr| / 2000` plus `distance_weight` times `miles / 5000` over all pairings.
fn optimum(waiting: &WaitingQueue, distance_weight: f64) -> f64 {
    let weigh = |one: &PreparedTicket, other: &PreparedTicket| {
        let number = |it: &PreparedTicket| it.attribute_values.number(0).expect("a rating");
        let (here, there) = one.ticket.session.locality.zip(other.ticket.session.locality).expect("locations");
        (number(one) - number(other)).abs() / 2_000.0 + distance_weight * here.chord_miles(there) / 5_000.0
    };
    let count = waiting.entrants.len();
    let pairs = (0..count).flat_map(|one| (one + 1..count).map(move |other| (one, other)));
    let edges: Vec<(u32, u32, i64)> = pairs
        .map(|(one, other)| {
            let weight = 10.0 - weigh(&waiting.entrants[one], &waiting.entrants[other]);
            (one as u32, other as u32, (weight * 1e8) as i64)
        })
        .collect();
    let partners = maximum_weight_matching(count, &edges);
    let couples = partners.iter().enumerate().filter_map(|(one, other)| Some((one, (*other)? as usize)));
    couples.map(|(one, other)| weigh(&waiting.entrants[one], &waiting.entrants[other])).sum::<f64>() / 2.0
}

fn exactly() {
    let mut waiting = WaitingQueue::new(rating_and_place(), queue(SelectionMode::MaximumWeight, SCORE), 1_000);
    waiting.under(|queue, _| queue.selection.exact_up_to_tickets = 1_000);
    let took: Vec<Timing> = (0..9).map(|_| waiting.time()).collect();
    let rounds: Vec<(f64, f64)> = took.iter().map(|it| (it.wall_us / 1e3, EXACT_MS)).collect();
    let cpu_us = took.iter().map(|it| it.cpu_us).sum::<f64>() / took.len() as f64;
    report("PQ4", "exact, 1,000, ms a pass", "50 ms", &rounds, cpu_us);
}

/// One pass under each of the five shipped rulesets.
fn systems(count: u64) {
    let rulesets = bundled::load_bundled().expect("the bundled rulesets are valid");
    for (path, ruleset) in &rulesets {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let Some(&(_, mean, deviation)) = RATINGS.iter().find(|it| it.0 == name) else { continue };
        measure("PQ7", &name, &WaitingQueue::of_system(ruleset, mean, deviation, count));
    }
}

/// A pass of the bundled 6v6 ruleset, with its past matches collected from the log, against the same pass without a past match.
/// Between passes as many as a tenth of the waiting users come, and as many leave.
fn avoiding() {
    let rulesets = bundled::load_bundled().expect("the bundled rulesets are valid");
    let found = rulesets.iter().find(|(path, _)| path.ends_with("destiny_control_6v6.xml"));
    let waiting = WaitingQueue::of_system(&found.expect("a bundled ruleset").1, 0.0, 350.0, 10_000);
    let waiting_users = || waiting.entrants.iter().flat_map(|it| it.users.iter().copied());
    let mut rng = SplitMix64(13);
    let absent = (0..190_000).map(|_| (u128::from(rng.next()) << 64 | u128::from(rng.next())).to_be_bytes());
    let absent: Vec<UserKey> = absent.map(UserKey::from_bytes).collect();
    let mut users: Vec<UserKey> = waiting_users().chain(absent.iter().copied()).collect();
    users.sort_unstable();
    let avoid = &waiting.ruleset.queue.as_ref().expect("a queue").avoid;
    let now = UnixMs(NOW);
    for team_size in [1, 6] {
        let mut log = past_match_log(&users, REMEMBERED_MATCHES, team_size, now);
        let mut passing_by = absent.chunks(1_000).cycle();
        let name = format!("6v6, {REMEMBERED_MATCHES} past matches of {}, 10k", 2 * team_size);
        let mut pass = || {
            let passing_by = passing_by.next().expect("a cycle").iter().copied();
            let past_matches = log.recent_meetings_among(waiting_users().chain(passing_by), avoid, now);
            drop(std::hint::black_box(waiting.pass_with(&past_matches)));
        };
        compare("PQ8", &name, "no past match", || time_all(1, |_| pass()), || waiting.time());
    }
}

/// Passes over tickets whose users block most of the others: each ticket against each other one.
fn blocking() {
    let kinds = [
        ("nearest", SelectionMode::Nearest, QualitySpec::Any, [1, 1], AvoidStrictness::Never),
        ("windows", SelectionMode::FirstWindow, QualitySpec::Any, [1, 1], AvoidStrictness::Never),
        ("drawn", SelectionMode::WeightedSample, QualitySpec::Any, [1, 1], AvoidStrictness::Never),
        ("maximum weight", SelectionMode::MaximumWeight, SCORE, [1, 1], AvoidStrictness::Never),
        ("5 v 5, nearest", SelectionMode::Nearest, QualitySpec::Any, [5, 5], AvoidStrictness::Never),
        ("5 v 5, nearest, in no team", SelectionMode::Nearest, QualitySpec::Any, [5, 5], AvoidStrictness::NotSameTeam),
    ];
    for (name, mode, quality, team_sizes, how) in kinds {
        let mut waiting = WaitingQueue::new(rating_and_place(), queue(mode, quality), BLOCKING_TICKETS);
        let users: Vec<UserKey> = waiting.entrants.iter().flat_map(|it| it.users.iter().copied()).collect();
        let tickets = waiting.entrants.drain(..).enumerate().map(|(number, entrant)| {
            let mut ticket = (*entrant.ticket).clone();
            let following = users.iter().cycle().skip(number + 1);
            ticket.blocked_users = following.take(BLOCKED_USERS).copied().collect();
            ticket.blocked_users.sort_unstable();
            Arc::new(ticket)
        });
        let tickets = tickets.collect();
        waiting.enter(tickets);
        waiting.under(|queue, teams| {
            queue.avoid = [AvoidanceRule { whom: AvoidTarget::Blocked, how }].into();
            teams.team_sizes = team_sizes.into();
        });
        let took: Vec<Timing> = (0..9).map(|_| waiting.time()).collect();
        let rounds: Vec<(f64, f64)> = took.iter().map(|it| (it.wall_us / 1e3, BLOCKING_MS)).collect();
        let cpu_us = took.iter().map(|it| it.cpu_us).sum::<f64>() / took.len() as f64;
        let name = format!("{name}, {BLOCKING_TICKETS} tickets that block {BLOCKED_USERS} of them each, ms a pass");
        report("PQ9", &name, "20 ms", &rounds, cpu_us);
    }
}

/// Times passes over `waiting` against a limit of 0.1 s for ten thousand tickets; the values are milliseconds.
fn measure(goal: &str, name: &str, waiting: &WaitingQueue) {
    let outcome = waiting.pass();
    let took: Vec<Timing> = (0..3).map(|_| waiting.time()).collect();
    let count = waiting.entrants.len();
    let rounds: Vec<(f64, f64)> = took.iter().map(|it| (it.wall_us / 1e3, count as f64 / 100.0)).collect();
    let cpu_us = took.iter().map(|it| it.cpu_us).sum::<f64>() / took.len() as f64;
    let made = outcome.proposals.len();
    report(goal, &format!("{name}, {count} tickets, {made} matches, ms a pass"), "limit", &rounds, cpu_us);
}

/// One pass of each kind.
fn passes(count: u64) {
    let mut waiting = WaitingQueue::new(rating_and_place(), queue(SelectionMode::Nearest, QualitySpec::Any), count);
    let window = RatingWindow {
        bucket_boundaries: None,
        bucket_width: 25.0,
        rounding: BucketRounding::Round,
        initial_half_width: 2,
        step: 1,
        step_every_ms: 5_000,
        max_half_width: Some(24),
        max_percent_of_rating: None,
        combine: MaxRangeCombination::Smaller,
        other_range_cover_percent: 100.0,
        clock: WindowClock::Queue,
        rule: WindowPairRule::Contain,
    };
    waiting.under(|queue, _| queue.window = Some(window));
    measure("PQ6", "buckets, nearest", &waiting);
    waiting.under(|queue, _| {
        queue.window = None;
        queue.quality = QualitySpec::LeaderboardGauss { sigma: 20.0, scale: 0.5, threshold: 0.3 };
        queue.wait_bonus = Some(WaitBonus { per_combined_minute: 0.1, free_combined_minutes: 1.0 });
        queue.selection.mode = SelectionMode::WeightedSample;
    });
    measure("PQ6", "leaderboard, drawn", &waiting);
    waiting.under(|queue, teams| {
        let group = |place: u32| {
            let from = 1_000.0 + 500.0 * f64::from(place);
            RatingGroup { name: place.to_string().into(), from, to: from + 500.0 }
        };
        (queue.quality, queue.wait_bonus) = (QualitySpec::Any, None);
        queue.groups = Some(RatingGroups {
            groups: (0..7).map(group).collect(),
            widen_every_ms: Some(30_000),
            max_extra_groups: 1,
        });
        queue.selection.mode = SelectionMode::Nearest;
        teams.team_sizes = [5, 5].into();
    });
    measure("PQ6", "groups, 5 v 5, nearest", &waiting);
    waiting.under(|queue, _| {
        queue.groups = None;
        queue.quality = QualitySpec::AverageSimilarity { rating_span: 2_900.0, required_percent: 95.0 };
        queue.selection.mode = SelectionMode::FirstWindow;
    });
    measure("PQ6", "similarity, 5 v 5, windows", &waiting);
    waiting.under(|queue, _| {
        queue.quality = QualitySpec::SoftScore { max_score: 0.5 };
        queue.selection.mode = SelectionMode::Nearest;
    });
    measure("PQ6", "soft score, 5 v 5, nearest", &waiting);
    waiting.under(|queue, _| {
        queue.quality = QualitySpec::AverageSimilarity { rating_span: 2_900.0, required_percent: 99.999 }
    });
    measure("PQ6", "no match is good enough, 5 v 5, nearest", &waiting);
}
