//! Pass scenarios from the requirements, one by one.

use crate::attribute::AttributeValue;
use crate::filter::Refusal;
use crate::queue::gate::GateCounts;
use crate::queue::rng::SplitMix64;
use crate::queue::tests::fixture::{GAUSS_QUALITY, NOW, QueueFixture, UNIT_WINDOW, ticket_number, user_key};
use crate::ruleset::queue::{
    AvoidStrictness, AvoidTarget, AvoidanceRule, FrustratedPlayerSpec, MaxRangeCombination, QualitySpec, RatingWindow,
    RegionUse, SelectionMode, SelectionOrder, SelectionSpec, WaitBonus, WindowClock, WindowPairRule,
};
use crate::session::RegionLatency;
use crate::time::UnixMs;

/// A time at which a 20 s step of the queue clock falls.
const TICK: u64 = NOW.0 / 20_000 * 20_000;

/// S0-8, S0-9, S0-11, B-3: Pawn20 enters before the first step, Grunt17 after it. They meet in the fourth cycle with
/// full reciprocity, in the third with 50 % or none.
#[test]
fn window_reciprocity_decides_the_cycle_in_which_two_tickets_meet() {
    for (reciprocal_percent, met_in) in [(100.0, 4), (50.0, 3), (0.0, 3)] {
        let mut fixture = QueueFixture::one_vs_one();
        fixture.queue_mut().window =
            Some(RatingWindow { other_range_cover_percent: reciprocal_percent, ..UNIT_WINDOW });
        fixture.now = UnixMs(TICK - 5_000);
        fixture.add_ticket(&[20.2], 0);
        assert!(fixture.matched_ticket_numbers().is_empty(), "a single ticket does not match");
        fixture.now = UnixMs(TICK + 1_000);
        assert!(fixture.matched_ticket_numbers().is_empty());
        fixture.add_ticket(&[16.7], 0);
        for cycle in 1..=4 {
            fixture.now = UnixMs(TICK + (cycle - 1) * 20_000 + 1_000);
            assert_eq!(
                fixture.matched_ticket_numbers().len(),
                usize::from(met_in <= cycle),
                "cycle {cycle} at {reciprocal_percent} %"
            );
        }
    }
}

/// B-4: with the queue clock a new ticket may widen at once; with its own clock it waits a whole step.
#[test]
fn window_widens_by_the_clock_of_the_queue_or_the_ticket() {
    for (clock, expected) in [(WindowClock::Queue, 1), (WindowClock::Ticket, 0)] {
        let mut fixture = QueueFixture::one_vs_one();
        fixture.queue_mut().window = Some(RatingWindow { clock, ..UNIT_WINDOW });
        fixture.now = UnixMs(TICK + 1);
        fixture.add_ticket(&[1.0], 10);
        fixture.add_ticket(&[2.0], 10);
        assert_eq!(fixture.matched_ticket_numbers().len(), expected);
        let report = fixture.run_pass().report;
        let expected_change = if expected == 0 { Some(UnixMs(TICK + 1 - 10 + 20_000)) } else { None };
        assert_eq!(report.next_change_at, expected_change, "the report has the time at which the range grows");
    }
}

/// S0-15: a bound in buckets, as a percentage of the rating, or the smaller or larger of both.
#[test]
fn window_range_stops_at_its_bounds() {
    let widest = |max, max_percent, combine| {
        let mut fixture = QueueFixture::one_vs_one();
        fixture.queue_mut().window =
            Some(RatingWindow { max_half_width: max, max_percent_of_rating: max_percent, combine, ..UNIT_WINDOW });
        fixture.add_ticket(&[20.0], 10_000_000);
        fixture.run_pass().report.max_window_reach
    };
    assert_eq!(widest(Some(10), None, MaxRangeCombination::Smaller), 10);
    assert_eq!(widest(None, Some(25.0), MaxRangeCombination::Smaller), 5);
    assert_eq!(widest(Some(10), Some(25.0), MaxRangeCombination::Smaller), 5);
    assert_eq!(widest(Some(10), Some(25.0), MaxRangeCombination::Larger), 10);
    assert!(widest(None, None, MaxRangeCombination::Smaller) > 400);
}

/// D-3: the overlap rule requires only that the ranges share a bucket.
#[test]
fn window_overlap_rule_matches_overlapping_ranges() {
    for (rule, expected) in [(WindowPairRule::Contain, 0), (WindowPairRule::Overlap, 1)] {
        let mut fixture = QueueFixture::one_vs_one();
        fixture.queue_mut().window = Some(RatingWindow { rule, initial_half_width: 2, step: 0, ..UNIT_WINDOW });
        fixture.add_ticket(&[10.0], 0);
        fixture.add_ticket(&[14.0], 0);
        assert_eq!(fixture.matched_ticket_numbers().len(), expected);
    }
}

/// S1-97: a user on a losing streak gets a wider range, beyond its bounds. The other side must still cover its
/// reciprocal share.
#[test]
fn satisfaction_widens_the_window_of_a_frustrated_player() {
    for (widen, reciprocal_percent, expected) in [(1.0, 0.0, 0), (2.0, 0.0, 1), (2.0, 50.0, 1), (2.0, 100.0, 0)] {
        let mut fixture = QueueFixture::one_vs_one();
        fixture.queue_mut().window = Some(RatingWindow {
            initial_half_width: 2,
            step: 0,
            max_half_width: Some(2),
            other_range_cover_percent: reciprocal_percent,
            ..UNIT_WINDOW
        });
        fixture.queue_mut().frustrated_player_window =
            Some(FrustratedPlayerSpec { window_widen_factor: widen, ..FrustratedPlayerSpec::default() });
        fixture.add_ticket(&[10.0], 0);
        // Every third ticket is frustrated, starting with the second.
        fixture.add_ticket(&[14.0], 0);
        assert_eq!(
            fixture.matched_ticket_numbers().len(),
            expected,
            "{widen} times as far, {reciprocal_percent} % back"
        );
    }
}

/// S0-6: a range includes both ends and nothing beyond. A range of 0 is the ticket's own bucket.
#[test]
fn window_range_includes_both_ends() {
    for range in [0, 1, 4] {
        for (distance, side) in (0..=6_u32).flat_map(|distance| [(distance, -1.0), (distance, 1.0)]) {
            let mut fixture = QueueFixture::one_vs_one();
            fixture.queue_mut().window = Some(RatingWindow { initial_half_width: range, step: 0, ..UNIT_WINDOW });
            fixture.add_ticket(&[20.0], 0);
            fixture.add_ticket(&[20.0 + side * f64::from(distance)], 0);
            let meet = usize::from(distance <= range);
            assert_eq!(fixture.matched_ticket_numbers().len(), meet, "{distance} buckets, range {range}, side {side}");
        }
    }
}

/// S0-5, S0-25: a bucket holds users and parties, a party by its best rating, and no ticket of the next bucket.
#[test]
fn window_bucket_holds_users_and_parties() {
    let mut fixture = QueueFixture::one_vs_one();
    fixture.set_team_sizes(&[2, 2]);
    fixture.queue_mut().window = Some(UNIT_WINDOW);
    fixture.add_ticket(&[3.0, 20.4], 0);
    fixture.add_ticket(&[21.0], 0);
    fixture.add_ticket(&[19.6], 0);
    assert!(fixture.matched_ticket_numbers().is_empty(), "only three players are in this bucket");
    fixture.add_ticket(&[20.0], 0);
    assert_eq!(fixture.matched_ticket_numbers(), [[0, 2, 3]]);
}

/// S1-97: a ticket with a lower window center meets weaker opponents and no stronger ones. The other side uses its own
/// range.
#[test]
fn satisfaction_shifts_the_window_of_a_frustrated_player_down() {
    for (rating, reciprocal_percent, expected) in [
        // Two buckets to either side of 9: from 7 to 11.
        (6.0, 0.0, 0),
        (7.0, 0.0, 1),
        (11.0, 0.0, 1),
        // The stronger ticket, by two, still looks two buckets down.
        (12.0, 0.0, 1),
        (13.0, 0.0, 0),
        (7.0, 50.0, 1),
        (7.0, 100.0, 0),
        (8.0, 100.0, 1),
        (12.0, 100.0, 0),
    ] {
        let mut fixture = QueueFixture::one_vs_one();
        fixture.queue_mut().window = Some(RatingWindow {
            initial_half_width: 2,
            step: 0,
            max_half_width: Some(2),
            other_range_cover_percent: reciprocal_percent,
            ..UNIT_WINDOW
        });
        fixture.queue_mut().frustrated_player_window =
            Some(FrustratedPlayerSpec { window_shift_down_points: 1.4, ..FrustratedPlayerSpec::default() });
        fixture.add_ticket(&[rating], 0);
        // Every third ticket is frustrated, starting with the second. 10.4 less 1.4 is 9.
        fixture.add_ticket(&[10.4], 0);
        assert_eq!(fixture.matched_ticket_numbers().len(), expected, "{rating} at {reciprocal_percent} %");
        assert_eq!(fixture.run_pass().report.max_window_reach, 3, "from 10 down to 7");
    }
}

/// S0-12: the nearest candidate is taken; of two equally near, the one that waited longer.
#[test]
fn nearest_selection_breaks_ties_by_longest_wait() {
    let mut fixture = QueueFixture::one_vs_one();
    fixture.add_ticket(&[10.0], 90_000);
    fixture.add_ticket(&[12.0], 10_000);
    fixture.add_ticket(&[8.0], 20_000);
    fixture.add_ticket(&[13.0], 80_000);
    assert_eq!(fixture.matched_ticket_numbers()[0], [0, 2]);
    fixture.add_ticket(&[11.0], 0);
    assert_eq!(fixture.matched_ticket_numbers()[0], [0, 4]);
}

/// S0-26: a party is in the bucket of its best player's rating, or of the mean.
#[test]
fn party_rating_follows_the_ruleset_reduction() {
    use crate::attribute::NumberAggregation;
    for (reduction, bucket) in [(NumberAggregation::Max, 20), (NumberAggregation::Mean, 15)] {
        let mut fixture = QueueFixture::one_vs_one();
        fixture.set_team_sizes(&[2, 2]);
        fixture.queue_mut().party_rating = reduction;
        fixture.queue_mut().window = Some(UNIT_WINDOW);
        fixture.add_ticket(&[20.0, 10.0], 0);
        assert_eq!(fixture.prepared_tickets()[0].rating_bucket, bucket);
    }
}

/// S0-23, S2-7, S2-12: a closed gate reports its reason, and no match is proposed.
#[test]
fn closed_gate_proposes_no_match() {
    let mut fixture = QueueFixture::one_vs_one();
    fixture.add_ticket(&[1.0], 0);
    fixture.add_ticket(&[1.0], 0);
    fixture.queue_mut().gate.min_waiting_percent = 10.0;
    fixture.gate_counts = GateCounts { connected_players: 21, active_matches: 0 };
    let outcome = fixture.run_pass();
    assert!(outcome.proposals.is_empty() && outcome.report.gate_reason.is_some());
    assert!(outcome.report.unmatched.iter().all(|it| it.refusal == Refusal::GateClosed));
    fixture.gate_counts.connected_players = 20;
    assert_eq!(fixture.matched_ticket_numbers().len(), 1);
    fixture.queue_mut().gate.max_concurrent_matches = Some(1);
    for number in 0..4 {
        fixture.add_ticket(&[f64::from(number)], 0);
    }
    assert_eq!((fixture.matched_ticket_numbers().len(), fixture.run_pass().report.match_limit_reached), (1, true));
}

/// S2-6, S2-9: partners are drawn in proportion to quality; candidates below the threshold are never drawn.
#[test]
fn weighted_sample_is_proportional_to_quality() {
    let mut fixture = QueueFixture::one_vs_one();
    fixture.queue_mut().quality = GAUSS_QUALITY;
    fixture.queue_mut().selection.mode = SelectionMode::WeightedSample;
    for (position, waited_ms) in [(100.0, 9_000), (90.0, 3), (118.0, 2), (125.0, 1)] {
        fixture.add_ticket(&[0.0], waited_ms);
        *fixture.leaderboard_positions.last_mut().unwrap() = Some(position);
    }
    let mut drawn = [0_u32; 4];
    for seed in 0..4_000 {
        fixture.rng_seed = SplitMix64(seed).next_u64();
        let first = &fixture.matched_ticket_numbers()[0];
        drawn[first[1] as usize] += 1;
    }
    // exp(-100 / 800) and exp(-324 / 800) are 0.8825 and 0.6670; 25 positions are too far.
    assert_eq!(drawn[3], 0);
    let share = f64::from(drawn[1]) / 4_000.0;
    assert!((share - 0.5696).abs() < 0.03, "{drawn:?}");
}

/// S2-8, S2-11: any two tickets match after four minutes of combined wait, and the report has that time.
#[test]
fn wait_bonus_matches_any_two_after_enough_waiting() {
    let mut fixture = QueueFixture::one_vs_one();
    fixture.queue_mut().quality = GAUSS_QUALITY;
    fixture.queue_mut().wait_bonus = Some(WaitBonus { per_combined_minute: 0.1, free_combined_minutes: 1.0 });
    for position in [0.0, 5_000.0] {
        fixture.add_ticket(&[position], 119_000);
        *fixture.leaderboard_positions.last_mut().unwrap() = Some(position);
    }
    let outcome = fixture.run_pass();
    assert!(outcome.proposals.is_empty());
    let at = outcome.report.next_change_at.unwrap();
    assert!((120_000 - 119_000..=120_002 - 119_000).contains(&at.ms_since(NOW)), "{at:?}");
    fixture.now = at;
    assert_eq!(fixture.matched_ticket_numbers(), [[0, 1]]);
}

/// S2-1, B-28: a user with two clients has two tickets. The wait of one ticket does not count for the other, also after
/// it has left. The two tickets never meet.
#[test]
fn wait_bonus_counts_each_client_of_a_user_separately() {
    let mut fixture = QueueFixture::one_vs_one();
    fixture.queue_mut().quality = GAUSS_QUALITY;
    fixture.queue_mut().wait_bonus = Some(WaitBonus { per_combined_minute: 0.1, free_combined_minutes: 1.0 });
    for (waited_ms, position) in [(250_000, 0.0), (0, 0.0), (0, 5_000.0)] {
        fixture.add_ticket(&[0.0], waited_ms);
        *fixture.leaderboard_positions.last_mut().unwrap() = Some(position);
    }
    std::sync::Arc::make_mut(&mut fixture.tickets[1]).session.players[0].user = user_key(0, 0);
    assert_eq!(fixture.matched_ticket_numbers(), [[0, 2]], "two tickets of one user never meet");
    fixture.tickets.remove(0);
    fixture.leaderboard_positions.remove(0);
    assert!(fixture.matched_ticket_numbers().is_empty(), "neither ticket has waited");
}

/// S2-13: each ticket is equally likely to be in the first team.
#[test]
fn weighted_sample_assigns_teams_at_random() {
    let mut fixture = QueueFixture::one_vs_one();
    fixture.queue_mut().quality = GAUSS_QUALITY;
    fixture.queue_mut().selection.mode = SelectionMode::WeightedSample;
    for waited_ms in [9_000, 0] {
        fixture.add_ticket(&[0.0], waited_ms);
        *fixture.leaderboard_positions.last_mut().unwrap() = Some(1.0);
    }
    let mut first = 0;
    for seed in 0..1_000 {
        fixture.rng_seed = SplitMix64(seed).next_u64();
        first += u32::from(ticket_number(fixture.run_pass().proposals[0].teams[0][0].ticket_id) == 0);
    }
    // Four standard deviations of a thousand coin flips.
    assert!((437..=563).contains(&first), "{first}");
}

/// S3-8: the three region modes.
#[test]
fn region_modes_partition_filter_and_quality() {
    let mut fixture = QueueFixture::one_vs_one();
    let trips = |it: &[(&str, f32)]| -> Box<[RegionLatency]> {
        it.iter().map(|(region, ms)| RegionLatency { region: (*region).into(), round_trip_ms: *ms }).collect()
    };
    let sessions = [
        ("eu", trips(&[("eu", 30.0), ("us", 100.0)])),
        ("us", trips(&[("eu", 100.0), ("us", 20.0)])),
        ("eu", trips(&[("eu", 50.0)])),
    ];
    for (number, (named, regions)) in sessions.into_iter().enumerate() {
        fixture.add_ticket(&[number as f64], 100 - number as u64);
        let ticket = std::sync::Arc::make_mut(fixture.tickets.last_mut().unwrap());
        ticket.session.region_latencies = regions;
        ticket.session.attributes = vec![("region".into(), AttributeValue::String(named.into()))];
    }
    let region = |fixture: &QueueFixture| fixture.run_pass().proposals.first().and_then(|it| it.region.clone());
    assert_eq!(
        (fixture.matched_ticket_numbers(), region(&fixture)),
        (vec![vec![0, 1]], None),
        "no region rule: the nearest"
    );
    fixture.queue_mut().regions = Some(RegionUse::Partition { attribute: 2 });
    assert_eq!((fixture.matched_ticket_numbers(), region(&fixture).as_deref()), (vec![vec![0, 2]], Some("eu")));
    use crate::expansion::{Expansion, ExpansionStep};
    use crate::measure::Measure;
    let steps = [(0, 60.0), (20_000, 100.0)].map(|(start_ms, value)| ExpansionStep { start_ms, limit: value });
    fixture.ruleset.expansions = [Expansion::new("e", Measure::Latency, steps.to_vec()).unwrap()].into();
    fixture.queue_mut().regions = Some(RegionUse::Filter { expansion: 0 });
    assert_eq!(
        (fixture.matched_ticket_numbers(), region(&fixture).as_deref()),
        (vec![vec![0, 2]], Some("eu")),
        "within 60 ms"
    );
    assert_eq!(fixture.run_pass().report.next_change_at, Some(NOW.plus_ms(19_901)));
    fixture.now = NOW.plus_ms(20_000);
    assert_eq!(
        (fixture.matched_ticket_numbers(), region(&fixture).as_deref()),
        (vec![vec![0, 1]], Some("eu")),
        "100 ms, eu before us"
    );
    fixture.queue_mut().regions = Some(RegionUse::Quality { weight: 1.0, span_ms: 100.0 });
    fixture.queue_mut().quality = QualitySpec::AverageSimilarity { rating_span: 100.0, required_percent: 50.0 };
    let outcome = fixture.run_pass();
    assert_eq!(outcome.proposals.len(), 1);
    let found = (&outcome.proposals[0].region, outcome.proposals[0].quality);
    assert_eq!(found.0.as_deref(), Some("eu"));
    assert!((found.1 - (1.0 - 0.01 - 0.4)).abs() < 1e-6, "{found:?}");
}

/// S1-96, S2-13: a user never meets themselves, a blocked user, or a recent opponent.
#[test]
fn avoid_rules_keep_blocked_and_same_users_apart() {
    let mut fixture = QueueFixture::one_vs_one();
    fixture.queue_mut().avoid = [AvoidanceRule { whom: AvoidTarget::Blocked, how: AvoidStrictness::Never }].into();
    fixture.add_ticket(&[1.0], 3);
    fixture.add_ticket(&[1.0], 2);
    std::sync::Arc::make_mut(&mut fixture.tickets[1]).blocked_users = vec![user_key(0, 0)];
    let outcome = fixture.run_pass();
    assert!(outcome.proposals.is_empty());
    assert!(outcome.report.unmatched.iter().all(|it| it.refusal == Refusal::AvoidedPlayer), "{:?}", outcome.report);
    let ticket = &mut std::sync::Arc::make_mut(&mut fixture.tickets[1]);
    (ticket.blocked_users, ticket.session.players[0].user) = (Vec::new(), user_key(0, 0));
    assert_eq!(fixture.run_pass().report.unmatched[0].refusal, Refusal::OwnSession);
}

/// S4-5, S4-6: the example lobby; the first window from the top that is similar enough.
#[test]
fn first_window_takes_the_first_similar_enough_window() {
    let lobby = [2650.0, 2380.0, 2140.0, 2118.0, 1907.0, 1886.0, 1871.0, 1852.0, 1500.0, 1490.0, 1480.0, 400.0];
    let first = |team: u16, required_percent| {
        let mut fixture = QueueFixture::one_vs_one();
        fixture.set_team_sizes(&[team, team]);
        fixture.queue_mut().quality = QualitySpec::AverageSimilarity { rating_span: 2900.0, required_percent };
        fixture.queue_mut().selection = SelectionSpec {
            mode: SelectionMode::FirstWindow,
            start_with: SelectionOrder::HighestRated,
            max_candidates: 256,
            exact_up_to_tickets: 0,
            look: Default::default(),
        };
        for rating in lobby {
            fixture.add_ticket(&[rating], 0);
        }
        fixture.matched_ticket_numbers().into_iter().next()
    };
    assert_eq!(first(1, 95.0), Some(vec![0, 1]));
    assert_eq!(first(2, 95.0), Some(vec![2, 3, 4, 5]));
    assert_eq!(first(3, 95.0), None);
    assert_eq!(first(3, 90.0), Some(vec![2, 3, 4, 5, 6, 7]));
    assert_eq!(first(5, 85.0), None);
}

/// Parties of the same size first, others if there are not enough.
#[test]
fn same_size_parties_match_first_when_preferred() {
    for (prefer_same_party_size, expected) in [(false, vec![0, 1, 2]), (true, vec![0, 3])] {
        let mut fixture = QueueFixture::one_vs_one();
        fixture.set_team_sizes(&[2, 2]);
        fixture.queue_mut().prefer_same_party_size = prefer_same_party_size;
        fixture.add_ticket(&[10.0, 10.0], 9);
        fixture.add_ticket(&[10.0], 3);
        fixture.add_ticket(&[10.0], 2);
        fixture.add_ticket(&[30.0, 30.0], 1);
        assert_eq!(fixture.matched_ticket_numbers()[0], expected);
    }
}
