//! What the documents say, told one by one.

use crate::domain::advertisement::{Advertisement, Kind};
use crate::domain::attribute::{Origin, Value};
use crate::domain::facts::Facts;
use crate::domain::filter::Refusal;
use crate::domain::id::{AdvertisementId, RulesetHash, SetId, SiloId};
use crate::domain::queue::backfill::OpenSession;
use crate::domain::queue::dice::Dice;
use crate::domain::queue::gate::Crowd;
use crate::domain::queue::tests::world::{GAUSS, NOW, WINDOW, World, number_of, ticket_id, user};
use crate::domain::ruleset::queue::{
    Avoid, AvoidHow, AvoidWhom, CombineBounds, Quality, Regions, Satisfaction, Selection, SelectionMode, StartWith,
    WaitBonus, Window, WindowClock, WindowRule,
};
use crate::domain::session::{Player, RegionLatency, Session};
use crate::domain::time::UnixMs;

/// A moment at which a tick of 20 s falls.
const TICK: u64 = NOW.0 / 20_000 * 20_000;

/// S0-8, S0-9, S0-11, B-3: Pawn20 waits from before the first tick, Grunt17 comes after it; they meet in the fourth
/// cycle when each must cover the other, in the third when half or nothing is asked.
#[test]
fn pawn_and_grunt_meet_when_the_walk_says() {
    for (reciprocal_percent, met_in) in [(100.0, 4), (50.0, 3), (0.0, 3)] {
        let mut world = World::plain();
        world.queue().window = Some(Window { reciprocal_percent, ..WINDOW });
        world.now = UnixMs(TICK - 5_000);
        world.enters(&[20.2], 0);
        assert!(world.matches().is_empty(), "alone");
        world.now = UnixMs(TICK + 1_000);
        assert!(world.matches().is_empty());
        world.enters(&[16.7], 0);
        for cycle in 1..=4 {
            world.now = UnixMs(TICK + (cycle - 1) * 20_000 + 1_000);
            assert_eq!(world.matches().len(), usize::from(met_in <= cycle), "cycle {cycle} at {reciprocal_percent} %");
        }
    }
}

/// B-4: with one tick for all a newcomer may widen at once; with a clock of his own he waits a whole step.
#[test]
fn the_clock_that_widens_is_the_queues_or_the_tickets() {
    for (clock, wanted) in [(WindowClock::Queue, 1), (WindowClock::Ticket, 0)] {
        let mut world = World::plain();
        world.queue().window = Some(Window { clock, ..WINDOW });
        world.now = UnixMs(TICK + 1);
        world.enters(&[1.0], 10);
        world.enters(&[2.0], 10);
        assert_eq!(world.matches().len(), wanted);
        let report = world.pass().report;
        let grows = if wanted == 0 { Some(UnixMs(TICK + 1 - 10 + 20_000)) } else { None };
        assert_eq!(report.next_change, grows, "whoever is left wakes when his range grows");
    }
}

/// S0-15: a bound in buckets, as a share of the rating, or the tighter or wider of both.
#[test]
fn ranges_end_where_they_are_bound() {
    let widest = |max, max_percent, combine| {
        let mut world = World::plain();
        world.queue().window = Some(Window { max, max_percent, combine, ..WINDOW });
        world.enters(&[20.0], 10_000_000);
        world.pass().report.widest_range
    };
    assert_eq!(widest(Some(10), None, CombineBounds::Smaller), 10);
    assert_eq!(widest(None, Some(25.0), CombineBounds::Smaller), 5);
    assert_eq!(widest(Some(10), Some(25.0), CombineBounds::Smaller), 5);
    assert_eq!(widest(Some(10), Some(25.0), CombineBounds::Larger), 10);
    assert!(400 < widest(None, None, CombineBounds::Smaller));
}

/// D-3: the deployed rule asks that ranges share a bucket, not that each covers the other.
#[test]
fn ranges_that_overlap_suffice_where_the_ruleset_says_so() {
    for (rule, wanted) in [(WindowRule::Contain, 0), (WindowRule::Overlap, 1)] {
        let mut world = World::plain();
        world.queue().window = Some(Window { rule, start: 2, step: 0, ..WINDOW });
        world.enters(&[10.0], 0);
        world.enters(&[14.0], 0);
        assert_eq!(world.matches().len(), wanted);
    }
}

/// S1-97: who has lost often looks further, its bounds included; the other side must reach as well, as far as the ruleset asks.
#[test]
fn a_frustrated_player_looks_further() {
    for (widen, reciprocal_percent, wanted) in [(1.0, 0.0, 0), (2.0, 0.0, 1), (2.0, 50.0, 1), (2.0, 100.0, 0)] {
        let mut world = World::plain();
        world.queue().window = Some(Window { start: 2, step: 0, max: Some(2), reciprocal_percent, ..WINDOW });
        world.queue().satisfaction = Some(Satisfaction { widen, ..Satisfaction::default() });
        world.enters(&[10.0], 0);
        // Every third that enters is frustrated, from the second on.
        world.enters(&[14.0], 0);
        assert_eq!(world.matches().len(), wanted, "{widen} times as far, {reciprocal_percent} % back");
    }
}

/// S0-6: a range has both its ends in it and nothing beyond; a range of none is one's own bucket.
#[test]
fn a_range_covers_both_its_ends() {
    for range in [0, 1, 4] {
        for (distance, side) in (0..=6_u32).flat_map(|distance| [(distance, -1.0), (distance, 1.0)]) {
            let mut world = World::plain();
            world.queue().window = Some(Window { start: range, step: 0, ..WINDOW });
            world.enters(&[20.0], 0);
            world.enters(&[20.0 + side * f64::from(distance)], 0);
            let meet = usize::from(distance <= range);
            assert_eq!(world.matches().len(), meet, "{distance} buckets, range {range}, side {side}");
        }
    }
}

/// S0-5, S0-25: a bucket has users and parties in it alike, a party by its best; and nobody of the next one.
#[test]
fn users_and_parties_share_a_bucket() {
    let mut world = World::plain();
    world.sizes(&[2, 2]);
    world.queue().window = Some(WINDOW);
    world.enters(&[3.0, 20.4], 0);
    world.enters(&[21.0], 0);
    world.enters(&[19.6], 0);
    assert!(world.matches().is_empty(), "three of this bucket, and one of the next");
    world.enters(&[20.0], 0);
    assert_eq!(world.matches(), [[0, 2, 3]]);
}

/// S1-97: whose window lies lower meets easier opponents and no harder ones; the other side goes by its own range.
#[test]
fn a_frustrated_player_looks_further_down() {
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
        let mut world = World::plain();
        world.queue().window = Some(Window { start: 2, step: 0, max: Some(2), reciprocal_percent, ..WINDOW });
        world.queue().satisfaction = Some(Satisfaction { shift_down: 1.4, ..Satisfaction::default() });
        world.enters(&[theirs], 0);
        // Every third that enters is frustrated, from the second on. 10.4 less 1.4 is 9.
        world.enters(&[10.4], 0);
        assert_eq!(world.matches().len(), wanted, "{theirs} at {reciprocal_percent} %");
        assert_eq!(world.pass().report.widest_range, 3, "from 10 down to 7");
    }
}

/// S0-12: the nearest is taken; of two equally near, who has waited longer.
#[test]
fn the_nearest_comes_first_and_then_the_longest_wait() {
    let mut world = World::plain();
    world.enters(&[10.0], 90_000);
    world.enters(&[12.0], 10_000);
    world.enters(&[8.0], 20_000);
    world.enters(&[13.0], 80_000);
    assert_eq!(world.matches()[0], [0, 2]);
    world.enters(&[11.0], 0);
    assert_eq!(world.matches()[0], [0, 4]);
}

/// S0-26: a party is in the bucket of its best member, or of their mean.
#[test]
fn a_partys_rating_is_what_the_ruleset_makes_of_it() {
    use crate::domain::attribute::Reduction;
    for (reduction, bucket) in [(Reduction::Max, 20), (Reduction::Mean, 15)] {
        let mut world = World::plain();
        world.sizes(&[2, 2]);
        world.queue().party_rating = reduction;
        world.queue().window = Some(WINDOW);
        world.enters(&[20.0, 10.0], 0);
        assert_eq!(world.entrants()[0].bucket, bucket);
    }
}

/// S0-23, S2-7, S2-12: a pass that is not worth running says why, and makes nothing.
#[test]
fn a_closed_gate_makes_nothing() {
    let mut world = World::plain();
    world.enters(&[1.0], 0);
    world.enters(&[1.0], 0);
    world.queue().gate.min_waiting_percent = 10.0;
    world.crowd = Crowd { connected_players: 21, running_matches: 0 };
    let outcome = world.pass();
    assert!(outcome.proposals.is_empty() && outcome.report.closed.is_some());
    assert!(outcome.report.left.iter().all(|it| it.refusal == Refusal::Gate));
    world.crowd.connected_players = 20;
    assert_eq!(world.matches().len(), 1);
    world.queue().gate.max_parallel_matches = Some(1);
    for number in 0..4 {
        world.enters(&[f64::from(number)], 0);
    }
    assert_eq!((world.matches().len(), world.pass().report.at_capacity), (1, true));
}

/// S2-6, S2-9: partners are drawn in proportion to quality; whoever is below the threshold is never drawn.
#[test]
fn partners_are_drawn_as_often_as_they_are_good() {
    let mut world = World::plain();
    world.queue().quality = GAUSS;
    world.queue().selection.mode = SelectionMode::WeightedSample;
    for (place, waited_ms) in [(100.0, 9_000), (90.0, 3), (118.0, 2), (125.0, 1)] {
        world.enters(&[0.0], waited_ms);
        *world.places.last_mut().unwrap() = Some(place);
    }
    let mut drawn = [0_u32; 4];
    for seed in 0..4_000 {
        world.seed = Dice(seed).next();
        let first = &world.matches()[0];
        drawn[first[1] as usize] += 1;
    }
    // exp(-100 / 800) and exp(-324 / 800): 0.8825 and 0.6670; 25 places are too far.
    assert_eq!(drawn[3], 0);
    let share = f64::from(drawn[1]) / 4_000.0;
    assert!((share - 0.5696).abs() < 0.03, "{drawn:?}");
}

/// S2-8, S2-11: any two are matched after four minutes of combined waiting; and the pass knows when.
#[test]
fn waiting_brings_anybody_together() {
    let mut world = World::plain();
    world.queue().quality = GAUSS;
    world.queue().wait_bonus = Some(WaitBonus { per_minute: 0.1, free_minutes: 1.0 });
    for place in [0.0, 5_000.0] {
        world.enters(&[place], 119_000);
        *world.places.last_mut().unwrap() = Some(place);
    }
    let outcome = world.pass();
    assert!(outcome.proposals.is_empty());
    let at = outcome.report.next_change.unwrap();
    assert!((120_000 - 119_000..=120_002 - 119_000).contains(&at.since(NOW)), "{at:?}");
    world.now = at;
    assert_eq!(world.matches(), [[0, 1]]);
}

/// S2-1, B-28: a user with two clients waits twice. What the one has waited brings the other nobody, neither while it
/// is there nor when it has gone; and the two never meet.
#[test]
fn a_second_clients_wait_is_its_own() {
    let mut world = World::plain();
    world.queue().quality = GAUSS;
    world.queue().wait_bonus = Some(WaitBonus { per_minute: 0.1, free_minutes: 1.0 });
    for (waited_ms, place) in [(250_000, 0.0), (0, 0.0), (0, 5_000.0)] {
        world.enters(&[0.0], waited_ms);
        *world.places.last_mut().unwrap() = Some(place);
    }
    std::sync::Arc::make_mut(&mut world.tickets[1]).session.players[0].user = user(0, 0);
    assert_eq!(world.matches(), [[0, 2]], "not with itself, though it is next to itself");
    world.tickets.remove(0);
    world.places.remove(0);
    assert!(world.matches().is_empty(), "nobody here has waited");
}

/// S2-13: nobody has a right to the first team.
#[test]
fn who_is_in_the_first_team_is_drawn() {
    let mut world = World::plain();
    world.queue().quality = GAUSS;
    world.queue().selection.mode = SelectionMode::WeightedSample;
    for waited_ms in [9_000, 0] {
        world.enters(&[0.0], waited_ms);
        *world.places.last_mut().unwrap() = Some(1.0);
    }
    let mut first = 0;
    for seed in 0..1_000 {
        world.seed = Dice(seed).next();
        first += u32::from(number_of(world.pass().proposals[0].teams[0][0].ticket) == 0);
    }
    // Four standard deviations of a thousand coins.
    assert!((437..=563).contains(&first), "{first}");
}

/// S3-8: the three ways in which a region may count.
#[test]
fn regions_count_in_three_ways() {
    let mut world = World::plain();
    let trips = |it: &[(&str, f32)]| -> Box<[RegionLatency]> {
        it.iter().map(|(region, ms)| RegionLatency { region: (*region).into(), round_trip_ms: *ms }).collect()
    };
    let sessions = [
        ("eu", trips(&[("eu", 30.0), ("us", 100.0)])),
        ("us", trips(&[("eu", 100.0), ("us", 20.0)])),
        ("eu", trips(&[("eu", 50.0)])),
    ];
    for (number, (named, regions)) in sessions.into_iter().enumerate() {
        world.enters(&[number as f64], 100 - number as u64);
        let ticket = std::sync::Arc::make_mut(world.tickets.last_mut().unwrap());
        ticket.session.regions = regions;
        ticket.session.attributes = vec![("region".into(), Value::Text(named.into()))];
    }
    let region = |world: &World| world.pass().proposals.first().and_then(|it| it.region.clone());
    assert_eq!((world.matches(), region(&world)), (vec![vec![0, 1]], None), "nearest, wherever");
    world.queue().regions = Some(Regions::Separate { attribute: 2 });
    assert_eq!((world.matches(), region(&world).as_deref()), (vec![vec![0, 2]], Some("eu")));
    use crate::domain::expansion::{Expansion, Step};
    use crate::domain::measure::Measure;
    let steps = [(0, 60.0), (20_000, 100.0)].map(|(start_ms, value)| Step { start_ms, value });
    world.ruleset.expansions = [Expansion::new("e", Measure::Latency, steps.to_vec()).unwrap()].into();
    world.queue().regions = Some(Regions::Stage { expansion: 0 });
    assert_eq!((world.matches(), region(&world).as_deref()), (vec![vec![0, 2]], Some("eu")), "within 60 ms");
    assert_eq!(world.pass().report.next_change, Some(NOW.after(19_901)));
    world.now = NOW.after(20_000);
    assert_eq!((world.matches(), region(&world).as_deref()), (vec![vec![0, 1]], Some("eu")), "100 ms, eu before us");
    world.queue().regions = Some(Regions::Quality { weight: 1.0, span_ms: 100.0 });
    world.queue().quality = Quality::AverageSimilarity { rating_span: 100.0, required_percent: 50.0 };
    let outcome = world.pass();
    assert_eq!(outcome.proposals.len(), 1);
    let found = (&outcome.proposals[0].region, outcome.proposals[0].quality);
    assert_eq!(found.0.as_deref(), Some("eu"));
    assert!((found.1 - (1.0 - 0.01 - 0.4)).abs() < 1e-6, "{found:?}");
}

/// S1-96, S2-13: nobody meets himself, nor whom he has blocked, nor lately met.
#[test]
fn some_do_not_meet() {
    let mut world = World::plain();
    world.queue().avoid = [Avoid { whom: AvoidWhom::Blocked, how: AvoidHow::Never }].into();
    world.enters(&[1.0], 3);
    world.enters(&[1.0], 2);
    std::sync::Arc::make_mut(&mut world.tickets[1]).blocked = vec![user(0, 0)];
    let outcome = world.pass();
    assert!(outcome.proposals.is_empty());
    assert!(outcome.report.left.iter().all(|it| it.refusal == Refusal::Avoid), "{:?}", outcome.report);
    let twin = &mut std::sync::Arc::make_mut(&mut world.tickets[1]);
    (twin.blocked, twin.session.players[0].user) = (Vec::new(), user(0, 0));
    assert_eq!(world.pass().report.left[0].refusal, Refusal::Own);
}

/// S4-5, S4-6: the challenge's lobby; the first window from the top that is alike enough.
#[test]
fn the_first_window_that_is_alike_enough_is_the_match() {
    let lobby = [2650.0, 2380.0, 2140.0, 2118.0, 1907.0, 1886.0, 1871.0, 1852.0, 1500.0, 1490.0, 1480.0, 400.0];
    let first = |team: u16, required_percent| {
        let mut world = World::plain();
        world.sizes(&[team, team]);
        world.queue().quality = Quality::AverageSimilarity { rating_span: 2900.0, required_percent };
        world.queue().selection = Selection {
            mode: SelectionMode::BestWindow,
            start_with: StartWith::HighestRated,
            look_at: 256,
            exact_up_to: 0,
        };
        for rating in lobby {
            world.enters(&[rating], 0);
        }
        world.matches().into_iter().next()
    };
    assert_eq!(first(1, 95.0), Some(vec![0, 1]));
    assert_eq!(first(2, 95.0), Some(vec![2, 3, 4, 5]));
    assert_eq!(first(3, 95.0), None);
    assert_eq!(first(3, 90.0), Some(vec![2, 3, 4, 5, 6, 7]));
    assert_eq!(first(5, 85.0), None);
}

/// Parties of like size first, others when there are not enough.
#[test]
fn like_parties_come_first_where_the_ruleset_likes_that() {
    for (like_parties_first, wanted) in [(false, vec![0, 1, 2]), (true, vec![0, 3])] {
        let mut world = World::plain();
        world.sizes(&[2, 2]);
        world.queue().like_parties_first = like_parties_first;
        world.enters(&[10.0, 10.0], 9);
        world.enters(&[10.0], 3);
        world.enters(&[10.0], 2);
        world.enters(&[30.0, 30.0], 1);
        assert_eq!(world.matches()[0], wanted);
    }
}

/// Sessions with open seats are filled before new matches begin, whole parties only, by the same rules.
#[test]
fn open_seats_are_filled_first() {
    let mut world = World::plain();
    world.sizes(&[2, 2]);
    world.queue().backfill = true;
    world.enters(&[10.0, 10.0], 9);
    world.enters(&[10.0], 8);
    world.enters(&[10.0], 7);
    let session = Session {
        silo: SiloId(1),
        party_sizes: vec![1],
        players: vec![Player { user: user(99, 0), player: user(99, 0), skill: Some(10.0) }],
        join_seats: 3,
        origin: Origin::Server,
        ..Session::default()
    };
    let facts = Facts::of(&world.ruleset, &session);
    let advertisement = Advertisement {
        id: AdvertisementId::from_bytes([7; 16]),
        set_id: SetId(1),
        kind: Kind::Session,
        subject: None,
        since: UnixMs(NOW.0 - 1_000),
        hash: RulesetHash(1),
        session,
        allowed: Vec::new(),
        connect_data: Vec::new(),
    };
    world.sessions = vec![OpenSession {
        advertisement: advertisement.into(),
        facts,
        expires: NOW.after(1_000),
        open_seats: 3,
        open_by_team: Some([1, 2].into()),
        ratings: [10.0].into(),
        place: None,
    }];
    let outcome = world.pass();
    assert_eq!(outcome.proposals.len(), 1);
    let filled = &outcome.proposals[0];
    assert_eq!(filled.backfills, Some(AdvertisementId::from_bytes([7; 16])));
    let numbers: Vec<Vec<u64>> =
        filled.teams.iter().map(|team| team.iter().map(|it| number_of(it.ticket)).collect()).collect();
    assert_eq!(numbers, [vec![1], vec![0]]);
    assert_eq!(outcome.report.left[0].ticket, ticket_id(2));
}
