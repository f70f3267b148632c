//! The same pass the obvious way: every pair asked, every pairing tried. Slow, and the judge of every fast step.

use std::collections::BTreeMap;

use crate::filter::{SessionView, WaitingSession, admit_mutually};
use crate::id::TicketId;
use crate::queue::avoidance::{self, AvoidanceSide};
use crate::queue::pass::{PassInput, PassOutcome};
use crate::queue::prepared_ticket::PreparedTicket;
use crate::queue::quality::{self, MatchQuality, QualityInput};
use crate::queue::ticket::PlayerRating;
use crate::ruleset::queue::{
    AvoidStrictness, AvoidTarget, QualitySpec, RegionMode, SelectionOrder, WindowBoundChoice, WindowClock,
    WindowMatchRule,
};

fn waiting_session<'a>(input: &PassInput<'_>, it: &'a PreparedTicket) -> WaitingSession<'a> {
    let session = &it.ticket.session;
    let seen = SessionView {
        attribute_values: &it.attribute_values,
        locality: session.locality,
        region_latencies: &session.region_latencies,
    };
    WaitingSession { session: seen, waited_ms: input.now.ms_since(it.ticket.entered_at) }
}

fn avoidance_side(it: &PreparedTicket) -> AvoidanceSide<'_> {
    AvoidanceSide { users: &it.users, blocked_users: &it.ticket.blocked_users }
}

/// Whether two may meet, rule by rule, as the documents have it.
pub(super) fn pair_may_meet(input: &PassInput<'_>, one: &PreparedTicket, other: &PreparedTicket) -> bool {
    let stranger = !one.users.iter().any(|user| other.users.contains(user));
    let filters = admit_mutually(input.ruleset, &waiting_session(input, one), &waiting_session(input, other)).is_ok();
    let fine = stranger && filters && groups_may_meet(input, one, other) && windows_may_meet(input, one, other);
    fine && regions_may_meet(input, &[one, other]) && !is_avoided(input, one, other, AvoidStrictness::Never)
}

fn groups_may_meet(input: &PassInput<'_>, one: &PreparedTicket, other: &PreparedTicket) -> bool {
    let Some(groups) = &input.queue.groups else { return true };
    let last = groups.groups.len() - 1;
    let of = |it: &PreparedTicket| groups.groups.iter().position(|group| it.party_rating < group.to).unwrap_or(last);
    let apart = of(one).abs_diff(of(other)) as u64;
    let reach = |it: &PreparedTicket| {
        let every_ms = groups.neighbour_every_ms?;
        Some((input.now.ms_since(it.ticket.entered_at) / every_ms).min(groups.max_neighbours.into()))
    };
    apart <= reach(one).unwrap_or(0) && apart <= reach(other).unwrap_or(0)
}

fn windows_may_meet(input: &PassInput<'_>, one: &PreparedTicket, other: &PreparedTicket) -> bool {
    let Some(window) = &input.queue.window else { return true };
    let bucket = |it: &PreparedTicket| (it.party_rating / window.bucket_width).round() as i64;
    let range = |it: &PreparedTicket| {
        let (now, entered, every_ms) = (input.now.0, it.ticket.entered_at.0, window.step_every_ms);
        let ticks = match window.clock {
            WindowClock::Queue => (entered + 1..=now).filter(|at| at % every_ms == 0).count() as u64,
            WindowClock::Ticket => (now - entered) / every_ms,
        };
        let grown = u64::from(window.start) + u64::from(window.step) * ticks;
        let share =
            window.max_percent.map(|it_is| (it.party_rating * it_is / 100.0 / window.bucket_width).floor() as u64);
        let bounds: Vec<u64> = window.max.map(u64::from).into_iter().chain(share).collect();
        let bound = match window.combine {
            WindowBoundChoice::Smaller => bounds.iter().min(),
            WindowBoundChoice::Larger => bounds.iter().max(),
        };
        let range = bound.map_or(grown, |bound| grown.min(*bound)) as f64;
        let factor = input.queue.satisfaction.map_or(1.0, |it_is| if it.frustrated { it_is.widen } else { 1.0 });
        (range * factor).round()
    };
    let middle = |it: &PreparedTicket| {
        let points = input.queue.satisfaction.map_or(0.0, |it_is| if it.frustrated { it_is.shift_down } else { 0.0 });
        ((it.party_rating - points) / window.bucket_width).round() as i64
    };
    let (mine, theirs) = (range(one), range(other));
    // Each side goes by how far the other is from the middle of where it looks.
    let from = |it: &PreparedTicket, other: &PreparedTicket| middle(it).abs_diff(bucket(other)) as f64;
    let (there, back, share) = (from(one, other), from(other, one), window.reciprocal_percent / 100.0);
    match window.rule {
        WindowMatchRule::Contain => {
            (there <= mine && share * back <= theirs) || (back <= theirs && share * there <= mine)
        }
        WindowMatchRule::Overlap => middle(one).abs_diff(middle(other)) as f64 <= mine + theirs,
    }
}

/// The regions in which all may play, where that is a matter of may.
fn regions_may_meet(input: &PassInput<'_>, members: &[&PreparedTicket]) -> bool {
    match input.queue.regions {
        None | Some(RegionMode::Quality { .. }) => true,
        Some(RegionMode::Separate { attribute }) => {
            let named = members[0].attribute_values.get(attribute);
            named.is_some() && members.iter().all(|it| it.attribute_values.get(attribute) == named)
        }
        Some(RegionMode::Stage { expansion }) => {
            let measured: Vec<&&PreparedTicket> =
                members.iter().filter(|it| !it.ticket.session.region_latencies.is_empty()).collect();
            let may = |it: &PreparedTicket, region: &str| {
                let limit = input.ruleset.expansions[expansion].limit_at(input.now.ms_since(it.ticket.entered_at));
                let trips = &it.ticket.session.region_latencies;
                trips.iter().any(|trip| &*trip.region == region && f64::from(trip.round_trip_ms) <= limit)
            };
            measured.is_empty() || ["asia", "eu", "us"].iter().any(|region| measured.iter().all(|it| may(it, region)))
        }
    }
}

fn is_avoided(input: &PassInput<'_>, one: &PreparedTicket, other: &PreparedTicket, how: AvoidStrictness) -> bool {
    let blocks = |one: &PreparedTicket, other: &PreparedTicket| {
        one.ticket.blocked_users.iter().any(|user| other.users.contains(user))
    };
    let met = |same_team, for_ms| {
        let pairs = one.users.iter().flat_map(|one| other.users.iter().map(move |other| (*one, *other)));
        let last = pairs.filter_map(|(one, other)| input.past_matches.last_started_at(one, other, same_team)).max();
        last.is_some_and(|last| input.now.ms_since(last) < for_ms)
    };
    input.queue.avoid.iter().filter(|rule| rule.how == how).any(|rule| match rule.whom {
        AvoidTarget::Blocked => blocks(one, other) || blocks(other, one),
        AvoidTarget::RecentOpponents { for_ms } => met(false, for_ms),
        AvoidTarget::RecentTeammates { for_ms } => met(true, for_ms),
    })
}

/// How good a match of these teams is.
pub(super) fn match_quality(input: &PassInput<'_>, teams: &[Vec<&PreparedTicket>]) -> MatchQuality {
    let all: Vec<&PreparedTicket> = teams.iter().flatten().copied().collect();
    let teamed = teams.iter().zip(0_u16..).flat_map(|(team, place)| team.iter().map(move |it| (*it, place)));
    let member = |(it, team): (&PreparedTicket, u16)| (it.ticket.id, team);
    let placed: BTreeMap<TicketId, u16> = teamed.map(member).collect();
    let members: Vec<QualityInput<'_>> = all
        .iter()
        .map(|it| {
            let WaitingSession { session: seen, waited_ms } = waiting_session(input, it);
            let team = placed[&it.ticket.id];
            QualityInput {
                session: seen,
                finite_ratings: &it.player_ratings,
                player_ratings: &it.ticket.player_ratings,
                leaderboard_position: it.leaderboard_position,
                waited_ms,
                team,
            }
        })
        .collect();
    let costs = avoidance_cost(input, &all) + region_cost(input, &all);
    quality::evaluate_quality(input.ruleset, &input.queue.quality, input.queue.wait_bonus.as_ref(), &members, costs)
}

/// The teams' draw as the documents have it: where two normal curves meet, in shares of where they meet at most; the least of all
/// pairs of teams (S2-4).
fn draw_probability(beta: f64, teams: &[Vec<&PreparedTicket>]) -> f64 {
    let density = |apart: f64, variance: f64| (-apart * apart / variance / 2.0).exp() / variance.sqrt();
    let sum = |team: &[&PreparedTicket], of: fn(&PlayerRating) -> f64| {
        team.iter().flat_map(|it| &it.ticket.player_ratings).map(of).sum::<f64>()
    };
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

fn avoidance_cost(input: &PassInput<'_>, all: &[&PreparedTicket]) -> f64 {
    let dearest = |rule| {
        let pairs = all.iter().flat_map(|one| all.iter().map(move |other| (*one, *other)));
        let strangers = pairs.filter(|(one, other)| one.ticket.id < other.ticket.id);
        let cost = |(one, other)| {
            avoidance::avoidance_cost(rule, input.past_matches, avoidance_side(one), avoidance_side(other), input.now)
        };
        strangers.map(cost).fold(0.0, f64::max)
    };
    input.queue.avoid.iter().map(dearest).sum()
}

fn region_cost(input: &PassInput<'_>, all: &[&PreparedTicket]) -> f64 {
    let Some(RegionMode::Quality { weight, span_ms }) = input.queue.regions else { return 0.0 };
    let trip = |it: &PreparedTicket, region: &str| {
        it.ticket
            .session
            .region_latencies
            .iter()
            .find(|trip| &*trip.region == region)
            .map(|trip| f64::from(trip.round_trip_ms))
    };
    let measured: Vec<&&PreparedTicket> =
        all.iter().filter(|it| !it.ticket.session.region_latencies.is_empty()).collect();
    let mean = |region: &&str| {
        let trips: Option<Vec<f64>> = measured.iter().map(|it| trip(it, region)).collect();
        trips.filter(|it| !it.is_empty()).map(|it| it.iter().sum::<f64>() + span_ms * (all.len() - it.len()) as f64)
    };
    let best = ["asia", "eu", "us"].iter().filter_map(mean).min_by(f64::total_cmp);
    weight * best.map_or(1.0, |best| (best / all.len() as f64 / span_ms).min(1.0))
}

/// Whether two make a match by themselves.
fn two_ticket_quality(input: &PassInput<'_>, one: &PreparedTicket, other: &PreparedTicket) -> Option<MatchQuality> {
    let fits = pair_may_meet(input, one, other);
    Some(match_quality(input, &[vec![one], vec![other]])).filter(|worth| fits && worth.passes)
}

fn seniority_key(it: &PreparedTicket) -> (u64, TicketId) {
    (it.ticket.entered_at.0, it.ticket.id)
}

fn serving_order<'a>(input: &PassInput<'a>) -> Vec<&'a PreparedTicket> {
    let mut order: Vec<&PreparedTicket> = input.tickets.to_vec();
    order.sort_by_key(|it| seniority_key(it));
    if input.queue.selection.start_with == SelectionOrder::HighestRated {
        order.sort_by(|one, other| other.party_rating.total_cmp(&one.party_rating));
    }
    order
}

fn key_distance(input: &PassInput<'_>, one: &PreparedTicket, other: &PreparedTicket) -> f64 {
    if let QualitySpec::LeaderboardGauss { .. } = input.queue.quality {
        let distance = (one.leaderboard_position.unwrap_or(f64::INFINITY)
            - other.leaderboard_position.unwrap_or(f64::INFINITY))
        .abs();
        return if distance.is_nan() { f64::INFINITY } else { distance };
    }
    match &input.queue.window {
        Some(window) => {
            let bucket = |it: &PreparedTicket| (it.party_rating / window.bucket_width).round();
            (bucket(one) - bucket(other)).abs()
        }
        None => (one.party_rating - other.party_rating).abs(),
    }
}

/// One against one, each in turn with the nearest of all who would do; ties by seniority (S0-12).
pub(super) fn nearest_pairs(input: &PassInput<'_>) -> Vec<[TicketId; 2]> {
    let (order, mut taken, mut made) = (serving_order(input), Vec::new(), Vec::new());
    for one in &order {
        let free = order.iter().filter(|it| it.ticket.id != one.ticket.id && !taken.contains(&it.ticket.id));
        let would_do = free.filter(|other| two_ticket_quality(input, one, other).is_some());
        let key =
            |it: &&&PreparedTicket| (super::pass_state::ordered_bits(key_distance(input, one, it)), seniority_key(it));
        let Some(other) = would_do.min_by_key(key).filter(|_| !taken.contains(&one.ticket.id)) else { continue };
        taken.extend([one.ticket.id, other.ticket.id]);
        made.push([one.ticket.id, other.ticket.id]);
    }
    made
}

/// One against one from the highest rated down, each with the first below who would do (S4-5).
pub(super) fn first_window_pairs(input: &PassInput<'_>) -> Vec<[TicketId; 2]> {
    let mut order = serving_order(input);
    let mut made = Vec::new();
    while !order.is_empty() {
        let one = order.remove(0);
        let first = order.iter().position(|other| pair_may_meet(input, one, other));
        // A window is judged as it is: a first neighbour who may be met and is no match ends it.
        if let Some(first) = first.filter(|&first| two_ticket_quality(input, one, order[first]).is_some()) {
            made.push([one.ticket.id, order.remove(first).ticket.id]);
        }
    }
    made
}

/// The greatest sum of weights that any pairing has.
pub(super) fn best_total_weight(input: &PassInput<'_>, free: &[&PreparedTicket]) -> f64 {
    let Some((one, rest)) = free.split_first() else { return 0.0 };
    let mut best = best_total_weight(input, rest);
    for (place, other) in rest.iter().enumerate() {
        if let Some(weight) = pair_weight(input, one, other) {
            let others: Vec<&PreparedTicket> = rest[..place].iter().chain(&rest[place + 1..]).copied().collect();
            best = best.max(weight + best_total_weight(input, &others));
        }
    }
    best
}

/// What a pair weighs, if it would do.
pub(super) fn pair_weight(input: &PassInput<'_>, one: &PreparedTicket, other: &PreparedTicket) -> Option<f64> {
    let worth = two_ticket_quality(input, one, other)?;
    Some(match input.queue.quality {
        QualitySpec::Any => 1.0 / (1.0 + key_distance(input, one, other)),
        _ => quality::selection_weight(&input.queue.quality, worth.quality),
    })
}

/// Every promise about what comes of a pass, whatever the ruleset: who meets may meet, each with each; parties are whole, teams
/// full, nobody is in two, matches are good enough, and everybody is accounted for.
pub(super) fn check_outcome(input: &PassInput<'_>, outcome: &PassOutcome) {
    let by_id: BTreeMap<TicketId, &PreparedTicket> = input.tickets.iter().map(|it| (it.ticket.id, *it)).collect();
    let mut placed: Vec<TicketId> = Vec::new();
    for proposal in &outcome.proposals {
        let teams: Vec<Vec<&PreparedTicket>> =
            proposal.teams.iter().map(|team| team.iter().map(|it| by_id[&it.ticket_id]).collect()).collect();
        let sizes: Vec<u16> = teams.iter().map(|team| team.iter().map(|it| it.player_count).sum()).collect();
        assert_eq!(sizes, &input.teams.team_sizes[..], "teams are full and parties whole");
        let all: Vec<&PreparedTicket> = teams.iter().flatten().copied().collect();
        for (place, one) in all.iter().enumerate() {
            for other in &all[place + 1..] {
                assert!(pair_may_meet(input, one, other), "{:?} and {:?}", one.ticket.id, other.ticket.id);
            }
        }
        for team in &teams {
            for (place, one) in team.iter().enumerate() {
                let apart = |other: &&PreparedTicket| is_avoided(input, one, other, AvoidStrictness::NotSameTeam);
                assert!(!team[place + 1..].iter().any(apart), "not in one team");
            }
        }
        assert!(regions_may_meet(input, &all), "a region in common");
        let worth = match_quality(input, &teams);
        assert!(worth.passes, "good enough");
        if let QualitySpec::DrawProbability { threshold } = input.queue.quality {
            let beta = input.ruleset.rating.and_then(|spec| spec.system.beta()).expect("a system with luck");
            let all_waited_ms: u64 = all.iter().map(|it| input.now.ms_since(it.ticket.entered_at)).sum();
            let added =
                input.queue.wait_bonus.as_ref().map_or(0.0, |rule| quality::bonus_for_waiting(rule, all_waited_ms));
            let wanted =
                draw_probability(beta, &teams) + added - avoidance_cost(input, &all) - region_cost(input, &all);
            assert!((wanted - worth.quality).abs() < 1e-9 && threshold <= wanted + 1e-9, "{wanted} {worth:?}");
        }
        let told = if input.queue.quality == QualitySpec::Any { 0.0 } else { worth.quality };
        assert!((told - proposal.quality).abs() < 1e-9, "{told} {}", proposal.quality);
        placed.extend(all.iter().map(|it| it.ticket.id));
    }
    let report = &outcome.report;
    assert_eq!((placed.len(), input.tickets.len()), (report.proposed_count as usize, report.ticket_count as usize));
    placed.extend(report.unmatched.iter().map(|it| it.ticket_id));
    placed.sort_unstable();
    let all: Vec<TicketId> = by_id.keys().copied().collect();
    assert_eq!(placed, all, "everybody once: in one match, or left with a reason");
}
