//! What the documents say, told one by one.

use crate::advertisement::{Advertisement, AdvertisementKind};
use crate::attribute::{AttributeValue, ValueOrigin};
use crate::attribute_values::AttributeValues;
use crate::filter::Refusal;
use crate::id::{AdvertisementId, RulesetHash, SetId, SiloId};
use crate::queue::backfill::OpenSession;
use crate::queue::gate::QueueCounts;
use crate::queue::rng::SplitMix64;
use crate::queue::tests::fixture::{GAUSS_QUALITY, NOW, QueueFixture, UNIT_WINDOW, ticket_id, ticket_number, user_key};
use crate::ruleset::queue::{
    AvoidStrictness, AvoidTarget, AvoidanceRule, QualitySpec, RatingWindow, RegionMode, SatisfactionSpec,
    SelectionMode, SelectionOrder, SelectionSpec, WaitBonus, WindowBoundChoice, WindowClock, WindowMatchRule,
};
use crate::session::{Player, RegionLatency, Session};
use crate::time::UnixMs;

/// A moment at which a tick of 20 s falls.
const TICK: u64 = NOW.0 / 20_000 * 20_000;

/// S0-8, S0-9, S0-11, B-3: Pawn20 waits from before the first tick, Grunt17 comes after it; they meet in the fourth
/// cycle when each must cover the other, in the third when half or nothing is asked.
#[test]
fn window_reciprocity_decides_the_cycle_in_which_two_tickets_meet() {
    for (reciprocal_percent, met_in) in [(100.0, 4), (50.0, 3), (0.0, 3)] {
        let mut world = QueueFixture::one_vs_one();
        world.queue_mut().window = Some(RatingWindow { reciprocal_percent, ..UNIT_WINDOW });
        world.now = UnixMs(TICK - 5_000);
        world.add_ticket(&[20.2], 0);
        assert!(world.matched_ticket_numbers().is_empty(), "alone");
        world.now = UnixMs(TICK + 1_000);
        assert!(world.matched_ticket_numbers().is_empty());
        world.add_ticket(&[16.7], 0);
        for cycle in 1..=4 {
            world.now = UnixMs(TICK + (cycle - 1) * 20_000 + 1_000);
            assert_eq!(
                world.matched_ticket_numbers().len(),
                usize::from(met_in <= cycle),
                "cycle {cycle} at {reciprocal_percent} %"
            );
        }
    }
}

/// B-4: with one tick for all a newcomer may widen at once; with a clock of his own he waits a whole step.
#[test]
fn window_widens_by_the_clock_of_the_queue_or_the_ticket() {
    for (clock, wanted) in [(WindowClock::Queue, 1), (WindowClock::Ticket, 0)] {
        let mut world = QueueFixture::one_vs_one();
        world.queue_mut().window = Some(RatingWindow { clock, ..UNIT_WINDOW });
        world.now = UnixMs(TICK + 1);
        world.add_ticket(&[1.0], 10);
        world.add_ticket(&[2.0], 10);
        assert_eq!(world.matched_ticket_numbers().len(), wanted);
        let report = world.run_pass().report;
        let grows = if wanted == 0 { Some(UnixMs(TICK + 1 - 10 + 20_000)) } else { None };
        assert_eq!(report.next_change_at, grows, "whoever is left wakes when his range grows");
    }
}

/// S0-15: a bound in buckets, as a share of the rating, or the tighter or wider of both.
#[test]
fn window_range_stops_at_its_bounds() {
    let widest = |max, max_percent, combine| {
        let mut world = QueueFixture::one_vs_one();
        world.queue_mut().window = Some(RatingWindow { max, max_percent, combine, ..UNIT_WINDOW });
        world.add_ticket(&[20.0], 10_000_000);
        world.run_pass().report.max_window_reach
    };
    assert_eq!(widest(Some(10), None, WindowBoundChoice::Smaller), 10);
    assert_eq!(widest(None, Some(25.0), WindowBoundChoice::Smaller), 5);
    assert_eq!(widest(Some(10), Some(25.0), WindowBoundChoice::Smaller), 5);
    assert_eq!(widest(Some(10), Some(25.0), WindowBoundChoice::Larger), 10);
    assert!(400 < widest(None, None, WindowBoundChoice::Smaller));
}

/// D-3: the deployed rule asks that ranges share a bucket, not that each covers the other.
#[test]
fn window_overlap_rule_matches_overlapping_ranges() {
    for (rule, wanted) in [(WindowMatchRule::Contain, 0), (WindowMatchRule::Overlap, 1)] {
        let mut world = QueueFixture::one_vs_one();
        world.queue_mut().window = Some(RatingWindow { rule, start: 2, step: 0, ..UNIT_WINDOW });
        world.add_ticket(&[10.0], 0);
        world.add_ticket(&[14.0], 0);
        assert_eq!(world.matched_ticket_numbers().len(), wanted);
    }
}

/// S1-97: who has lost often looks further, its bounds included; the other side must reach as well, as far as the ruleset asks.
#[test]
fn satisfaction_widens_the_window_of_a_frustrated_player() {
    for (widen, reciprocal_percent, wanted) in [(1.0, 0.0, 0), (2.0, 0.0, 1), (2.0, 50.0, 1), (2.0, 100.0, 0)] {
        let mut world = QueueFixture::one_vs_one();
        world.queue_mut().window =
            Some(RatingWindow { start: 2, step: 0, max: Some(2), reciprocal_percent, ..UNIT_WINDOW });
        world.queue_mut().satisfaction = Some(SatisfactionSpec { widen, ..SatisfactionSpec::default() });
        world.add_ticket(&[10.0], 0);
        // Every third that enters is frustrated, from the second on.
        world.add_ticket(&[14.0], 0);
        assert_eq!(world.matched_ticket_numbers().len(), wanted, "{widen} times as far, {reciprocal_percent} % back");
    }
}

/// S0-6: a range has both its ends in it and nothing beyond; a range of none is one's own bucket.
#[test]
fn window_range_includes_both_ends() {
    for range in [0, 1, 4] {
        for (distance, side) in (0..=6_u32).flat_map(|distance| [(distance, -1.0), (distance, 1.0)]) {
            let mut world = QueueFixture::one_vs_one();
            world.queue_mut().window = Some(RatingWindow { start: range, step: 0, ..UNIT_WINDOW });
            world.add_ticket(&[20.0], 0);
            world.add_ticket(&[20.0 + side * f64::from(distance)], 0);
            let meet = usize::from(distance <= range);
            assert_eq!(world.matched_ticket_numbers().len(), meet, "{distance} buckets, range {range}, side {side}");
        }
    }
}

/// S0-5, S0-25: a bucket has users and parties in it alike, a party by its best; and nobody of the next one.
#[test]
fn window_bucket_holds_users_and_parties() {
    let mut world = QueueFixture::one_vs_one();
    world.set_team_sizes(&[2, 2]);
    world.queue_mut().window = Some(UNIT_WINDOW);
    world.add_ticket(&[3.0, 20.4], 0);
    world.add_ticket(&[21.0], 0);
    world.add_ticket(&[19.6], 0);
    assert!(world.matched_ticket_numbers().is_empty(), "three of this bucket, and one of the next");
    world.add_ticket(&[20.0], 0);
    assert_eq!(world.matched_ticket_numbers(), [[0, 2, 3]]);
}

/// S1-97: whose window lies lower meets easier opponents and no harder ones; the other side goes by its own range.
#[test]
fn satisfaction_shifts_the_window_of_a_frustrated_player_down() {
    for (theirs, reciprocal_percent, wanted) in [
        // Two buckets to either side of 9: from 7 to 11.
        (6.0, 0.0, 0),
        (7.0, 0.0, 1),
        (11.0, 0.0, 1),
        // Who is stronger by two still looks two down.
        (12.0, 0.0, 1),
        (13.0, 0.0, 0),
        (7.0, 50.0, 1),
        (7.0, 100.0, 0),
        (8.0, 100.0, 1),
        (12.0, 100.0, 0),
    ] {
        let mut world = QueueFixture::one_vs_one();
        world.queue_mut().window =
            Some(RatingWindow { start: 2, step: 0, max: Some(2), reciprocal_percent, ..UNIT_WINDOW });
        world.queue_mut().satisfaction = Some(SatisfactionSpec { shift_down: 1.4, ..SatisfactionSpec::default() });
        world.add_ticket(&[theirs], 0);
        // Every third that enters is frustrated, from the second on. 10.4 less 1.4 is 9.
        world.add_ticket(&[10.4], 0);
        assert_eq!(world.matched_ticket_numbers().len(), wanted, "{theirs} at {reciprocal_percent} %");
        assert_eq!(world.run_pass().report.max_window_reach, 3, "from 10 down to 7");
    }
}

/// S0-12: the nearest is taken; of two equally near, who has waited longer.
#[test]
fn nearest_selection_breaks_ties_by_longest_wait() {
    let mut world = QueueFixture::one_vs_one();
    world.add_ticket(&[10.0], 90_000);
    world.add_ticket(&[12.0], 10_000);
    world.add_ticket(&[8.0], 20_000);
    world.add_ticket(&[13.0], 80_000);
    assert_eq!(world.matched_ticket_numbers()[0], [0, 2]);
    world.add_ticket(&[11.0], 0);
    assert_eq!(world.matched_ticket_numbers()[0], [0, 4]);
}

/// S0-26: a party is in the bucket of its best member, or of their mean.
#[test]
fn party_rating_follows_the_ruleset_reduction() {
    use crate::attribute::PartyAggregation;
    for (reduction, bucket) in [(PartyAggregation::Max, 20), (PartyAggregation::Mean, 15)] {
        let mut world = QueueFixture::one_vs_one();
        world.set_team_sizes(&[2, 2]);
        world.queue_mut().party_rating = reduction;
        world.queue_mut().window = Some(UNIT_WINDOW);
        world.add_ticket(&[20.0, 10.0], 0);
        assert_eq!(world.prepared_tickets()[0].rating_bucket, bucket);
    }
}

/// S0-23, S2-7, S2-12: a pass that is not worth running says why, and makes nothing.
#[test]
fn closed_gate_proposes_no_match() {
    let mut world = QueueFixture::one_vs_one();
    world.add_ticket(&[1.0], 0);
    world.add_ticket(&[1.0], 0);
    world.queue_mut().gate.min_waiting_percent = 10.0;
    world.queue_counts = QueueCounts { connected_players: 21, active_matches: 0 };
    let outcome = world.run_pass();
    assert!(outcome.proposals.is_empty() && outcome.report.gate_reason.is_some());
    assert!(outcome.report.unmatched.iter().all(|it| it.refusal == Refusal::GateClosed));
    world.queue_counts.connected_players = 20;
    assert_eq!(world.matched_ticket_numbers().len(), 1);
    world.queue_mut().gate.max_parallel_matches = Some(1);
    for number in 0..4 {
        world.add_ticket(&[f64::from(number)], 0);
    }
    assert_eq!((world.matched_ticket_numbers().len(), world.run_pass().report.match_limit_reached), (1, true));
}

/// S2-6, S2-9: partners are drawn in proportion to quality; whoever is below the threshold is never drawn.
#[test]
fn weighted_sample_is_proportional_to_quality() {
    let mut world = QueueFixture::one_vs_one();
    world.queue_mut().quality = GAUSS_QUALITY;
    world.queue_mut().selection.mode = SelectionMode::WeightedSample;
    for (place, waited_ms) in [(100.0, 9_000), (90.0, 3), (118.0, 2), (125.0, 1)] {
        world.add_ticket(&[0.0], waited_ms);
        *world.leaderboard_positions.last_mut().unwrap() = Some(place);
    }
    let mut drawn = [0_u32; 4];
    for seed in 0..4_000 {
        world.rng_seed = SplitMix64(seed).next_u64();
        let first = &world.matched_ticket_numbers()[0];
        drawn[first[1] as usize] += 1;
    }
    // exp(-100 / 800) and exp(-324 / 800): 0.8825 and 0.6670; 25 places are too far.
    assert_eq!(drawn[3], 0);
    let share = f64::from(drawn[1]) / 4_000.0;
    assert!((share - 0.5696).abs() < 0.03, "{drawn:?}");
}

/// S2-8, S2-11: any two are matched after four minutes of combined waiting; and the pass knows when.
#[test]
fn wait_bonus_matches_any_two_after_enough_waiting() {
    let mut world = QueueFixture::one_vs_one();
    world.queue_mut().quality = GAUSS_QUALITY;
    world.queue_mut().wait_bonus = Some(WaitBonus { per_minute: 0.1, free_minutes: 1.0 });
    for place in [0.0, 5_000.0] {
        world.add_ticket(&[place], 119_000);
        *world.leaderboard_positions.last_mut().unwrap() = Some(place);
    }
    let outcome = world.run_pass();
    assert!(outcome.proposals.is_empty());
    let at = outcome.report.next_change_at.unwrap();
    assert!((120_000 - 119_000..=120_002 - 119_000).contains(&at.ms_since(NOW)), "{at:?}");
    world.now = at;
    assert_eq!(world.matched_ticket_numbers(), [[0, 1]]);
}

/// S2-1, B-28: a user with two clients waits twice. What the one has waited brings the other nobody, neither while it
/// is there nor when it has gone; and the two never meet.
#[test]
fn wait_bonus_counts_each_client_of_a_user_separately() {
    let mut world = QueueFixture::one_vs_one();
    world.queue_mut().quality = GAUSS_QUALITY;
    world.queue_mut().wait_bonus = Some(WaitBonus { per_minute: 0.1, free_minutes: 1.0 });
    for (waited_ms, place) in [(250_000, 0.0), (0, 0.0), (0, 5_000.0)] {
        world.add_ticket(&[0.0], waited_ms);
        *world.leaderboard_positions.last_mut().unwrap() = Some(place);
    }
    std::sync::Arc::make_mut(&mut world.tickets[1]).session.players[0].user = user_key(0, 0);
    assert_eq!(world.matched_ticket_numbers(), [[0, 2]], "not with itself, though it is next to itself");
    world.tickets.remove(0);
    world.leaderboard_positions.remove(0);
    assert!(world.matched_ticket_numbers().is_empty(), "nobody here has waited");
}

/// S2-13: nobody has a right to the first team.
#[test]
fn weighted_sample_assigns_teams_at_random() {
    let mut world = QueueFixture::one_vs_one();
    world.queue_mut().quality = GAUSS_QUALITY;
    world.queue_mut().selection.mode = SelectionMode::WeightedSample;
    for waited_ms in [9_000, 0] {
        world.add_ticket(&[0.0], waited_ms);
        *world.leaderboard_positions.last_mut().unwrap() = Some(1.0);
    }
    let mut first = 0;
    for seed in 0..1_000 {
        world.rng_seed = SplitMix64(seed).next_u64();
        first += u32::from(ticket_number(world.run_pass().proposals[0].teams[0][0].ticket_id) == 0);
    }
    // Four standard deviations of a thousand coins.
    assert!((437..=563).contains(&first), "{first}");
}

/// S3-8: the three ways in which a region may count.
#[test]
fn region_modes_partition_filter_and_quality() {
    let mut world = QueueFixture::one_vs_one();
    let trips = |it: &[(&str, f32)]| -> Box<[RegionLatency]> {
        it.iter().map(|(region, ms)| RegionLatency { region: (*region).into(), round_trip_ms: *ms }).collect()
    };
    let sessions = [
        ("eu", trips(&[("eu", 30.0), ("us", 100.0)])),
        ("us", trips(&[("eu", 100.0), ("us", 20.0)])),
        ("eu", trips(&[("eu", 50.0)])),
    ];
    for (number, (named, regions)) in sessions.into_iter().enumerate() {
        world.add_ticket(&[number as f64], 100 - number as u64);
        let ticket = std::sync::Arc::make_mut(world.tickets.last_mut().unwrap());
        ticket.session.region_latencies = regions;
        ticket.session.attributes = vec![("region".into(), AttributeValue::String(named.into()))];
    }
    let region = |world: &QueueFixture| world.run_pass().proposals.first().and_then(|it| it.region.clone());
    assert_eq!((world.matched_ticket_numbers(), region(&world)), (vec![vec![0, 1]], None), "nearest, wherever");
    world.queue_mut().regions = Some(RegionMode::Separate { attribute: 2 });
    assert_eq!((world.matched_ticket_numbers(), region(&world).as_deref()), (vec![vec![0, 2]], Some("eu")));
    use crate::expansion::{Expansion, ExpansionStep};
    use crate::measure::Measure;
    let steps = [(0, 60.0), (20_000, 100.0)].map(|(start_ms, value)| ExpansionStep { start_ms, limit: value });
    world.ruleset.expansions = [Expansion::new("e", Measure::Latency, steps.to_vec()).unwrap()].into();
    world.queue_mut().regions = Some(RegionMode::Stage { expansion: 0 });
    assert_eq!(
        (world.matched_ticket_numbers(), region(&world).as_deref()),
        (vec![vec![0, 2]], Some("eu")),
        "within 60 ms"
    );
    assert_eq!(world.run_pass().report.next_change_at, Some(NOW.plus_ms(19_901)));
    world.now = NOW.plus_ms(20_000);
    assert_eq!(
        (world.matched_ticket_numbers(), region(&world).as_deref()),
        (vec![vec![0, 1]], Some("eu")),
        "100 ms, eu before us"
    );
    world.queue_mut().regions = Some(RegionMode::Quality { weight: 1.0, span_ms: 100.0 });
    world.queue_mut().quality = QualitySpec::AverageSimilarity { rating_span: 100.0, required_percent: 50.0 };
    let outcome = world.run_pass();
    assert_eq!(outcome.proposals.len(), 1);
    let found = (&outcome.proposals[0].region, outcome.proposals[0].quality);
    assert_eq!(found.0.as_deref(), Some("eu"));
    assert!((found.1 - (1.0 - 0.01 - 0.4)).abs() < 1e-6, "{found:?}");
}

/// S1-96, S2-13: nobody meets himself, nor whom he has blocked, nor lately met.
#[test]
fn avoid_rules_keep_blocked_and_same_users_apart() {
    let mut world = QueueFixture::one_vs_one();
    world.queue_mut().avoid = [AvoidanceRule { whom: AvoidTarget::Blocked, how: AvoidStrictness::Never }].into();
    world.add_ticket(&[1.0], 3);
    world.add_ticket(&[1.0], 2);
    std::sync::Arc::make_mut(&mut world.tickets[1]).blocked_users = vec![user_key(0, 0)];
    let outcome = world.run_pass();
    assert!(outcome.proposals.is_empty());
    assert!(outcome.report.unmatched.iter().all(|it| it.refusal == Refusal::AvoidedPlayer), "{:?}", outcome.report);
    let twin = &mut std::sync::Arc::make_mut(&mut world.tickets[1]);
    (twin.blocked_users, twin.session.players[0].user) = (Vec::new(), user_key(0, 0));
    assert_eq!(world.run_pass().report.unmatched[0].refusal, Refusal::OwnSession);
}

/// S4-5, S4-6: the challenge's lobby; the first window from the top that is alike enough.
#[test]
fn first_window_takes_the_first_similar_enough_window() {
    let lobby = [2650.0, 2380.0, 2140.0, 2118.0, 1907.0, 1886.0, 1871.0, 1852.0, 1500.0, 1490.0, 1480.0, 400.0];
    let first = |team: u16, required_percent| {
        let mut world = QueueFixture::one_vs_one();
        world.set_team_sizes(&[team, team]);
        world.queue_mut().quality = QualitySpec::AverageSimilarity { rating_span: 2900.0, required_percent };
        world.queue_mut().selection = SelectionSpec {
            mode: SelectionMode::BestWindow,
            start_with: SelectionOrder::HighestRated,
            look_at: 256,
            exact_up_to: 0,
        };
        for rating in lobby {
            world.add_ticket(&[rating], 0);
        }
        world.matched_ticket_numbers().into_iter().next()
    };
    assert_eq!(first(1, 95.0), Some(vec![0, 1]));
    assert_eq!(first(2, 95.0), Some(vec![2, 3, 4, 5]));
    assert_eq!(first(3, 95.0), None);
    assert_eq!(first(3, 90.0), Some(vec![2, 3, 4, 5, 6, 7]));
    assert_eq!(first(5, 85.0), None);
}

/// Parties of like size first, others when there are not enough.
#[test]
fn same_size_parties_match_first_when_preferred() {
    for (like_parties_first, wanted) in [(false, vec![0, 1, 2]), (true, vec![0, 3])] {
        let mut world = QueueFixture::one_vs_one();
        world.set_team_sizes(&[2, 2]);
        world.queue_mut().like_parties_first = like_parties_first;
        world.add_ticket(&[10.0, 10.0], 9);
        world.add_ticket(&[10.0], 3);
        world.add_ticket(&[10.0], 2);
        world.add_ticket(&[30.0, 30.0], 1);
        assert_eq!(world.matched_ticket_numbers()[0], wanted);
    }
}

/// Sessions with open seats are filled before new matches begin, whole parties only, by the same rules.
#[test]
fn backfill_runs_before_new_matches() {
    let mut world = QueueFixture::one_vs_one();
    world.set_team_sizes(&[2, 2]);
    world.queue_mut().backfill = true;
    world.add_ticket(&[10.0, 10.0], 9);
    world.add_ticket(&[10.0], 8);
    world.add_ticket(&[10.0], 7);
    let session = Session {
        silo: SiloId(1),
        party_sizes: vec![1],
        players: vec![Player { user: user_key(99, 0), client_key: user_key(99, 0), stated_skill: Some(10.0) }],
        join_seats: 3,
        origin: ValueOrigin::GameServer,
        ..Session::default()
    };
    let facts = AttributeValues::from_session(&world.ruleset, &session);
    let advertisement = Advertisement {
        id: AdvertisementId::from_bytes([7; 16]),
        set_id: SetId(1),
        kind: AdvertisementKind::Session,
        publisher: None,
        advertised_since: UnixMs(NOW.0 - 1_000),
        ruleset_hash: RulesetHash(1),
        session,
        allowed_ranges: Vec::new(),
        connect_data: Vec::new(),
    };
    world.open_sessions = vec![OpenSession {
        advertisement: advertisement.into(),
        attribute_values: facts,
        expires_at: NOW.plus_ms(1_000),
        open_seats: 3,
        open_seats_by_team: Some([1, 2].into()),
        player_ratings: [10.0].into(),
        leaderboard_position: None,
    }];
    let outcome = world.run_pass();
    assert_eq!(outcome.proposals.len(), 1);
    let filled = &outcome.proposals[0];
    assert_eq!(filled.backfilled_session, Some(AdvertisementId::from_bytes([7; 16])));
    let numbers: Vec<Vec<u64>> =
        filled.teams.iter().map(|team| team.iter().map(|it| ticket_number(it.ticket_id)).collect()).collect();
    assert_eq!(numbers, [vec![1], vec![0]]);
    assert_eq!(outcome.report.unmatched[0].ticket_id, ticket_id(2));
}
