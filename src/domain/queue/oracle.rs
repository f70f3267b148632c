//! The same pass the obvious way: every pair asked, every pairing tried. Slow, and the judge of every fast step.

use std::collections::BTreeMap;

use crate::domain::filter::{Seen, Waits, meet};
use crate::domain::id::TicketId;
use crate::domain::queue::avoid::{self, Wary};
use crate::domain::queue::entrant::Entrant;
use crate::domain::queue::pass::{PassInput, PassOutcome};
use crate::domain::queue::quality::{self, Member, Worth};
use crate::domain::queue::ticket::Rated;
use crate::domain::ruleset::queue::{
    AvoidHow, AvoidWhom, CombineBounds, Quality, Regions, StartWith, WindowClock, WindowRule,
};

fn waits<'a>(input: &PassInput<'_>, it: &'a Entrant) -> Waits<'a> {
    let session = &it.ticket.session;
    let seen = Seen { facts: &it.facts, locality: session.locality, regions: &session.regions };
    Waits { seen, waited_ms: input.now.since(it.ticket.entered) }
}

fn wary(it: &Entrant) -> Wary<'_> {
    Wary { users: &it.users, blocked: &it.ticket.blocked }
}

/// Whether two may meet, rule by rule, as the documents have it.
pub(super) fn may_meet(input: &PassInput<'_>, one: &Entrant, other: &Entrant) -> bool {
    let stranger = !one.users.iter().any(|user| other.users.contains(user));
    let filters = meet(input.ruleset, &waits(input, one), &waits(input, other)).is_ok();
    let fine = stranger && filters && groups(input, one, other) && windows(input, one, other);
    fine && regions(input, &[one, other]) && !avoided(input, one, other, AvoidHow::Never)
}

fn groups(input: &PassInput<'_>, one: &Entrant, other: &Entrant) -> bool {
    let Some(groups) = &input.queue.groups else { return true };
    let last = groups.groups.len() - 1;
    let of = |it: &Entrant| groups.groups.iter().position(|group| it.rating < group.to).unwrap_or(last);
    let apart = of(one).abs_diff(of(other)) as u64;
    let reach = |it: &Entrant| {
        let every_ms = groups.neighbour_every_ms?;
        Some((input.now.since(it.ticket.entered) / every_ms).min(groups.max_neighbours.into()))
    };
    apart <= reach(one).unwrap_or(0) && apart <= reach(other).unwrap_or(0)
}

fn windows(input: &PassInput<'_>, one: &Entrant, other: &Entrant) -> bool {
    let Some(window) = &input.queue.window else { return true };
    let bucket = |it: &Entrant| (it.rating / window.bucket_width).round() as i64;
    let range = |it: &Entrant| {
        let (now, entered, every_ms) = (input.now.0, it.ticket.entered.0, window.step_every_ms);
        let ticks = match window.clock {
            WindowClock::Queue => (entered + 1..=now).filter(|at| at % every_ms == 0).count() as u64,
            WindowClock::Ticket => (now - entered) / every_ms,
        };
        let grown = u64::from(window.start) + u64::from(window.step) * ticks;
        let share = window.max_percent.map(|it_is| (it.rating * it_is / 100.0 / window.bucket_width).floor() as u64);
        let bounds: Vec<u64> = window.max.map(u64::from).into_iter().chain(share).collect();
        let bound = match window.combine {
            CombineBounds::Smaller => bounds.iter().min(),
            CombineBounds::Larger => bounds.iter().max(),
        };
        let range = bound.map_or(grown, |bound| grown.min(*bound)) as f64;
        let factor = input.queue.satisfaction.map_or(1.0, |it_is| if it.frustrated { it_is.widen } else { 1.0 });
        (range * factor).round()
    };
    let middle = |it: &Entrant| {
        let points = input.queue.satisfaction.map_or(0.0, |it_is| if it.frustrated { it_is.shift_down } else { 0.0 });
        ((it.rating - points) / window.bucket_width).round() as i64
    };
    let (mine, theirs) = (range(one), range(other));
    // Each side goes by how far the other is from the middle of where it looks.
    let from = |it: &Entrant, other: &Entrant| middle(it).abs_diff(bucket(other)) as f64;
    let (there, back, share) = (from(one, other), from(other, one), window.reciprocal_percent / 100.0);
    match window.rule {
        WindowRule::Contain => (there <= mine && share * back <= theirs) || (back <= theirs && share * there <= mine),
        WindowRule::Overlap => middle(one).abs_diff(middle(other)) as f64 <= mine + theirs,
    }
}

/// The regions in which all may play, where that is a matter of may.
fn regions(input: &PassInput<'_>, members: &[&Entrant]) -> bool {
    match input.queue.regions {
        None | Some(Regions::Quality { .. }) => true,
        Some(Regions::Separate { attribute }) => {
            let named = members[0].facts.get(attribute);
            named.is_some() && members.iter().all(|it| it.facts.get(attribute) == named)
        }
        Some(Regions::Stage { expansion }) => {
            let measured: Vec<&&Entrant> = members.iter().filter(|it| !it.ticket.session.regions.is_empty()).collect();
            let may = |it: &Entrant, region: &str| {
                let limit = input.ruleset.expansions[expansion].limit_at(input.now.since(it.ticket.entered));
                let trips = &it.ticket.session.regions;
                trips.iter().any(|trip| &*trip.region == region && f64::from(trip.round_trip_ms) <= limit)
            };
            measured.is_empty() || ["asia", "eu", "us"].iter().any(|region| measured.iter().all(|it| may(it, region)))
        }
    }
}

fn avoided(input: &PassInput<'_>, one: &Entrant, other: &Entrant, how: AvoidHow) -> bool {
    let blocks = |one: &Entrant, other: &Entrant| one.ticket.blocked.iter().any(|user| other.users.contains(user));
    let met = |same_team, for_ms| {
        let pairs = one.users.iter().flat_map(|one| other.users.iter().map(move |other| (*one, *other)));
        let last = pairs.filter_map(|(one, other)| input.meetings.last(one, other, same_team)).max();
        last.is_some_and(|last| input.now.since(last) < for_ms)
    };
    input.queue.avoid.iter().filter(|rule| rule.how == how).any(|rule| match rule.whom {
        AvoidWhom::Blocked => blocks(one, other) || blocks(other, one),
        AvoidWhom::RecentOpponents { for_ms } => met(false, for_ms),
        AvoidWhom::RecentTeammates { for_ms } => met(true, for_ms),
    })
}

/// How good a match of these teams is.
pub(super) fn worth(input: &PassInput<'_>, teams: &[Vec<&Entrant>]) -> Worth {
    let all: Vec<&Entrant> = teams.iter().flatten().copied().collect();
    let teamed = teams.iter().zip(0_u16..).flat_map(|(team, place)| team.iter().map(move |it| (*it, place)));
    let member = |(it, team): (&Entrant, u16)| (it.ticket.id, team);
    let placed: BTreeMap<TicketId, u16> = teamed.map(member).collect();
    let members: Vec<Member<'_>> = all
        .iter()
        .map(|it| {
            let Waits { seen, waited_ms } = waits(input, it);
            let team = placed[&it.ticket.id];
            Member { seen, ratings: &it.ratings, rated: &it.ticket.ratings, place: it.place, waited_ms, team }
        })
        .collect();
    let costs = grudges(input, &all) + region_cost(input, &all);
    quality::judge(input.ruleset, &input.queue.quality, input.queue.wait_bonus.as_ref(), &members, costs)
}

/// The teams' draw as the documents have it: where two normal curves meet, in shares of where they meet at most; the least of all
/// pairs of teams (S2-4).
fn draw(beta: f64, teams: &[Vec<&Entrant>]) -> f64 {
    let density = |apart: f64, variance: f64| (-apart * apart / variance / 2.0).exp() / variance.sqrt();
    let sum =
        |team: &[&Entrant], of: fn(&Rated) -> f64| team.iter().flat_map(|it| &it.ticket.ratings).map(of).sum::<f64>();
    let mut least: f64 = 1.0;
    for (place, one) in teams.iter().enumerate() {
        for other in &teams[place + 1..] {
            let apart = sum(one, |it| it.rating) - sum(other, |it| it.rating);
            let luck = [one, other].map(|team| sum(team, |_| 1.0)).iter().sum::<f64>() * beta * beta;
            let unsure = [one, other].map(|team| sum(team, |it| it.deviation.powi(2))).iter().sum::<f64>();
            least = least.min(density(apart, luck + unsure) / density(0.0, luck));
        }
    }
    least
}

fn grudges(input: &PassInput<'_>, all: &[&Entrant]) -> f64 {
    let dearest = |rule| {
        let pairs = all.iter().flat_map(|one| all.iter().map(move |other| (*one, *other)));
        let strangers = pairs.filter(|(one, other)| one.ticket.id < other.ticket.id);
        let cost = |(one, other)| avoid::cost(rule, input.meetings, wary(one), wary(other), input.now);
        strangers.map(cost).fold(0.0, f64::max)
    };
    input.queue.avoid.iter().map(dearest).sum()
}

fn region_cost(input: &PassInput<'_>, all: &[&Entrant]) -> f64 {
    let Some(Regions::Quality { weight, span_ms }) = input.queue.regions else { return 0.0 };
    let trip = |it: &Entrant, region: &str| {
        it.ticket.session.regions.iter().find(|trip| &*trip.region == region).map(|trip| f64::from(trip.round_trip_ms))
    };
    let measured: Vec<&&Entrant> = all.iter().filter(|it| !it.ticket.session.regions.is_empty()).collect();
    let mean = |region: &&str| {
        let trips: Option<Vec<f64>> = measured.iter().map(|it| trip(it, region)).collect();
        trips.filter(|it| !it.is_empty()).map(|it| it.iter().sum::<f64>() + span_ms * (all.len() - it.len()) as f64)
    };
    let best = ["asia", "eu", "us"].iter().filter_map(mean).min_by(f64::total_cmp);
    weight * best.map_or(1.0, |best| (best / all.len() as f64 / span_ms).min(1.0))
}

/// Whether two make a match by themselves.
fn duel(input: &PassInput<'_>, one: &Entrant, other: &Entrant) -> Option<Worth> {
    let fits = may_meet(input, one, other);
    Some(worth(input, &[vec![one], vec![other]])).filter(|worth| fits && worth.passes)
}

fn senior(it: &Entrant) -> (u64, TicketId) {
    (it.ticket.entered.0, it.ticket.id)
}

fn served<'a>(input: &PassInput<'a>) -> Vec<&'a Entrant> {
    let mut order: Vec<&Entrant> = input.entrants.to_vec();
    order.sort_by_key(|it| senior(it));
    if input.queue.selection.start_with == StartWith::HighestRated {
        order.sort_by(|one, other| other.rating.total_cmp(&one.rating));
    }
    order
}

fn distance(input: &PassInput<'_>, one: &Entrant, other: &Entrant) -> f64 {
    if let Quality::LeaderboardGauss { .. } = input.queue.quality {
        let distance = (one.place.unwrap_or(f64::INFINITY) - other.place.unwrap_or(f64::INFINITY)).abs();
        return if distance.is_nan() { f64::INFINITY } else { distance };
    }
    match &input.queue.window {
        Some(window) => {
            let bucket = |it: &Entrant| (it.rating / window.bucket_width).round();
            (bucket(one) - bucket(other)).abs()
        }
        None => (one.rating - other.rating).abs(),
    }
}

/// One against one, each in turn with the nearest of all who would do; ties by seniority (S0-12).
pub(super) fn nearest(input: &PassInput<'_>) -> Vec<[TicketId; 2]> {
    let (order, mut taken, mut made) = (served(input), Vec::new(), Vec::new());
    for one in &order {
        let free = order.iter().filter(|it| it.ticket.id != one.ticket.id && !taken.contains(&it.ticket.id));
        let would_do = free.filter(|other| duel(input, one, other).is_some());
        let key = |it: &&&Entrant| (super::field::ordered_bits(distance(input, one, it)), senior(it));
        let Some(other) = would_do.min_by_key(key).filter(|_| !taken.contains(&one.ticket.id)) else { continue };
        taken.extend([one.ticket.id, other.ticket.id]);
        made.push([one.ticket.id, other.ticket.id]);
    }
    made
}

/// One against one from the highest rated down, each with the first below who would do (S4-5).
pub(super) fn windows_of_two(input: &PassInput<'_>) -> Vec<[TicketId; 2]> {
    let mut order = served(input);
    let mut made = Vec::new();
    while !order.is_empty() {
        let one = order.remove(0);
        let first = order.iter().position(|other| may_meet(input, one, other));
        // A window is judged as it is: a first neighbour who may be met and is no match ends it.
        if let Some(first) = first.filter(|&first| duel(input, one, order[first]).is_some()) {
            made.push([one.ticket.id, order.remove(first).ticket.id]);
        }
    }
    made
}

/// The greatest sum of weights that any pairing has.
pub(super) fn best_total(input: &PassInput<'_>, free: &[&Entrant]) -> f64 {
    let Some((one, rest)) = free.split_first() else { return 0.0 };
    let mut best = best_total(input, rest);
    for (place, other) in rest.iter().enumerate() {
        if let Some(weight) = weight(input, one, other) {
            let others: Vec<&Entrant> = rest[..place].iter().chain(&rest[place + 1..]).copied().collect();
            best = best.max(weight + best_total(input, &others));
        }
    }
    best
}

/// What a pair weighs, if it would do.
pub(super) fn weight(input: &PassInput<'_>, one: &Entrant, other: &Entrant) -> Option<f64> {
    let worth = duel(input, one, other)?;
    Some(match input.queue.quality {
        Quality::Any => 1.0 / (1.0 + distance(input, one, other)),
        _ => quality::weight(&input.queue.quality, worth.quality),
    })
}

/// Every promise about what comes of a pass, whatever the ruleset: who meets may meet, each with each; parties are whole, teams
/// full, nobody is in two, matches are good enough, and everybody is accounted for.
pub(super) fn check(input: &PassInput<'_>, outcome: &PassOutcome) {
    let by_id: BTreeMap<TicketId, &Entrant> = input.entrants.iter().map(|it| (it.ticket.id, *it)).collect();
    let mut placed: Vec<TicketId> = Vec::new();
    for proposal in &outcome.proposals {
        let teams: Vec<Vec<&Entrant>> =
            proposal.teams.iter().map(|team| team.iter().map(|it| by_id[&it.ticket]).collect()).collect();
        let sizes: Vec<u16> = teams.iter().map(|team| team.iter().map(|it| it.size).sum()).collect();
        assert_eq!(sizes, &input.teams.sizes[..], "teams are full and parties whole");
        let all: Vec<&Entrant> = teams.iter().flatten().copied().collect();
        for (place, one) in all.iter().enumerate() {
            for other in &all[place + 1..] {
                assert!(may_meet(input, one, other), "{:?} and {:?}", one.ticket.id, other.ticket.id);
            }
        }
        for team in &teams {
            for (place, one) in team.iter().enumerate() {
                let apart = |other: &&Entrant| avoided(input, one, other, AvoidHow::NotSameTeam);
                assert!(!team[place + 1..].iter().any(apart), "not in one team");
            }
        }
        assert!(regions(input, &all), "a region in common");
        let worth = worth(input, &teams);
        assert!(worth.passes, "good enough");
        if let Quality::DrawProbability { threshold } = input.queue.quality {
            let beta = input.ruleset.rating.and_then(|spec| spec.system.beta()).expect("a system with luck");
            let all_waited_ms: u64 = all.iter().map(|it| input.now.since(it.ticket.entered)).sum();
            let added = input.queue.wait_bonus.as_ref().map_or(0.0, |rule| quality::bonus(rule, all_waited_ms));
            let wanted = draw(beta, &teams) + added - grudges(input, &all) - region_cost(input, &all);
            assert!((wanted - worth.quality).abs() < 1e-9 && threshold <= wanted + 1e-9, "{wanted} {worth:?}");
        }
        let told = if input.queue.quality == Quality::Any { 0.0 } else { worth.quality };
        assert!((told - proposal.quality).abs() < 1e-9, "{told} {}", proposal.quality);
        placed.extend(all.iter().map(|it| it.ticket.id));
    }
    let report = &outcome.report;
    assert_eq!((placed.len(), input.entrants.len()), (report.placed as usize, report.tickets as usize));
    placed.extend(report.left.iter().map(|it| it.ticket));
    placed.sort_unstable();
    let all: Vec<TicketId> = by_id.keys().copied().collect();
    assert_eq!(placed, all, "everybody once: in one match, or left with a reason");
}
