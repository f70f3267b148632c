//! Reference implementation of a pass for tests: evaluates every pair and every pairing. Slow, and used to verify the
//! fast steps.

use std::collections::BTreeMap;

use crate::filter::{SessionView, WaitingSession, admit_queue_parties};
use crate::id::TicketId;
use crate::queue::avoidance::{self, AvoidanceSide};
use crate::queue::pass::{PassInput, PassOutcome};
use crate::queue::prepared_ticket::PreparedTicket;
use crate::queue::quality::{self, PartyQualityInput, QualityVerdict};
use crate::queue::ticket::PlayerRating;
use crate::ruleset::queue::{
    AvoidStrictness, AvoidTarget, MaxRangeCombination, QualitySpec, RatingWindow, RegionUse, SelectionOrder,
    WindowClock, WindowPairRule,
};

fn waiting_session<'a>(input: &PassInput<'_>, prepared: &'a PreparedTicket) -> WaitingSession<'a> {
    let session = &prepared.ticket.session;
    let view = SessionView {
        attribute_values: &prepared.attribute_values,
        locality: session.locality,
        region_latencies: &session.region_latencies,
        wishes: session.wishes(),
        prediction_end: prepared.as_prediction_end(input.now),
    };
    WaitingSession { session: view, waited_ms: input.now.ms_since(prepared.ticket.entered_at) }
}

fn avoidance_side(prepared: &PreparedTicket) -> AvoidanceSide<'_> {
    AvoidanceSide { users: &prepared.users, blocked_users: &prepared.blocked_users }
}

/// Whether two tickets may meet, rule by rule.
pub(super) fn pair_may_meet(input: &PassInput<'_>, one: &PreparedTicket, other: &PreparedTicket) -> bool {
    let no_common_user = !one.users.iter().any(|user| other.users.contains(user));
    let filters_pass =
        admit_queue_parties(input.ruleset, &waiting_session(input, one), &waiting_session(input, other)).is_ok();
    let rules_pass =
        no_common_user && filters_pass && groups_may_meet(input, one, other) && windows_may_meet(input, one, other);
    rules_pass && regions_may_meet(input, &[one, other]) && !is_avoided(input, one, other, AvoidStrictness::Never)
}

pub(super) fn groups_may_meet(input: &PassInput<'_>, one: &PreparedTicket, other: &PreparedTicket) -> bool {
    let Some(groups) = &input.queue.groups else { return true };
    let last = groups.groups.len() - 1;
    let group_of = |prepared: &PreparedTicket| {
        groups.groups.iter().position(|group| prepared.party_rating < group.to).unwrap_or(last)
    };
    let distance = group_of(one).abs_diff(group_of(other)) as u64;
    let extra = |prepared: &PreparedTicket| {
        let every_ms = groups.widen_every_ms?;
        Some((input.now.ms_since(prepared.ticket.entered_at) / every_ms).min(groups.max_extra_groups.into()))
    };
    distance <= extra(one).unwrap_or(0) && distance <= extra(other).unwrap_or(0)
}

pub(super) fn windows_may_meet(input: &PassInput<'_>, one: &PreparedTicket, other: &PreparedTicket) -> bool {
    let Some(window) = &input.queue.window else { return true };
    let bucket = |prepared: &PreparedTicket| bucket_of_rating(window, prepared.party_rating) as i64;
    let range = |prepared: &PreparedTicket| {
        let (now, entered_at, every_ms) = (input.now.0, prepared.ticket.entered_at.0, window.step_every_ms);
        let steps = match window.clock {
            WindowClock::Queue => (entered_at + 1..=now).filter(|at| at % every_ms == 0).count() as u64,
            WindowClock::Ticket => (now - entered_at) / every_ms,
        };
        let grown = u64::from(window.initial_half_width) + u64::from(window.step) * steps;
        let share = window
            .max_percent_of_rating
            .map(|percent| (prepared.party_rating * percent / 100.0 / window.bucket_width).floor() as u64);
        let bounds: Vec<u64> = window.max_half_width.map(u64::from).into_iter().chain(share).collect();
        let bound = match window.combine {
            MaxRangeCombination::Smaller => bounds.iter().min(),
            MaxRangeCombination::Larger => bounds.iter().max(),
        };
        let range = bound.map_or(grown, |bound| grown.min(*bound)) as f64;
        let factor = input
            .queue
            .frustrated_player_window
            .map_or(1.0, |spec| if prepared.frustrated { spec.window_widen_factor } else { 1.0 });
        (range * factor).round()
    };
    let center = |prepared: &PreparedTicket| {
        let points = input
            .queue
            .frustrated_player_window
            .map_or(0.0, |spec| if prepared.frustrated { spec.window_shift_down_points } else { 0.0 });
        bucket_of_rating(window, prepared.party_rating - points) as i64
    };
    let (ours, theirs) = (range(one), range(other));
    // Each side measures the distance from the center of its own window.
    let distance = |one: &PreparedTicket, other: &PreparedTicket| center(one).abs_diff(bucket(other)) as f64;
    let (there, back, share) = (distance(one, other), distance(other, one), window.other_range_cover_percent / 100.0);
    match window.rule {
        WindowPairRule::Contain => {
            (there <= ours && share * back <= theirs) || (back <= theirs && share * there <= ours)
        }
        WindowPairRule::Overlap => center(one).abs_diff(center(other)) as f64 <= ours + theirs,
    }
}

fn bucket_of_rating(window: &RatingWindow, rating: f64) -> f64 {
    match &window.bucket_boundaries {
        Some(bounds) => bounds.iter().filter(|bound| **bound <= rating).count() as f64,
        None => (rating / window.bucket_width).round(),
    }
}

/// Whether the tickets have a region in common, where the rule requires one.
fn regions_may_meet(input: &PassInput<'_>, members: &[&PreparedTicket]) -> bool {
    match input.queue.regions {
        None | Some(RegionUse::Quality { .. }) => true,
        Some(RegionUse::Partition { attribute }) => {
            let named_region = members[0].attribute_values.get(attribute);
            named_region.is_some()
                && members.iter().all(|prepared| prepared.attribute_values.get(attribute) == named_region)
        }
        Some(RegionUse::Filter { expansion }) => {
            let measured: Vec<&&PreparedTicket> =
                members.iter().filter(|prepared| !prepared.ticket.session.region_latencies.is_empty()).collect();
            let within_limit = |prepared: &PreparedTicket, region: &str| {
                let limit = input.ruleset.expansions[expansion]
                    .limit_at(input.now.ms_since(prepared.ticket.entered_at))
                    * prepared.attribute_values.limit_factor();
                let latencies = &prepared.ticket.session.region_latencies;
                latencies.iter().enumerate().any(|(index, latency)| {
                    &*latency.region == region
                        && f64::from(prepared.ticket.measured_round_trip_to_region_ms(index)) <= limit
                })
            };
            measured.is_empty()
                || ["asia", "eu", "us"]
                    .iter()
                    .any(|region| measured.iter().all(|prepared| within_limit(prepared, region)))
        }
    }
}

pub(super) fn is_avoided(
    input: &PassInput<'_>,
    one: &PreparedTicket,
    other: &PreparedTicket,
    how: AvoidStrictness,
) -> bool {
    let blocks =
        |one: &PreparedTicket, other: &PreparedTicket| one.blocked_users.iter().any(|user| other.users.contains(user));
    let recently_met = |same_team, recent_ms| {
        let pairs = one.users.iter().flat_map(|one| other.users.iter().map(move |other| (*one, *other)));
        let last = pairs.filter_map(|(one, other)| input.past_matches.last_started_at(one, other, same_team)).max();
        last.is_some_and(|last| input.now.ms_since(last) < recent_ms)
    };
    input.queue.avoid.iter().filter(|rule| rule.how == how).any(|rule| match rule.whom {
        AvoidTarget::Blocked => blocks(one, other) || blocks(other, one),
        AvoidTarget::RecentOpponents { recent_ms } => recently_met(false, recent_ms),
        AvoidTarget::RecentTeammates { recent_ms } => recently_met(true, recent_ms),
    })
}

/// Quality of a match with these teams.
pub(super) fn match_quality(input: &PassInput<'_>, teams: &[Vec<&PreparedTicket>]) -> QualityVerdict {
    let all: Vec<&PreparedTicket> = teams.iter().flatten().copied().collect();
    let with_teams =
        teams.iter().zip(0_u16..).flat_map(|(team, index)| team.iter().map(move |prepared| (*prepared, index)));
    let entry = |(prepared, team): (&PreparedTicket, u16)| (prepared.ticket.id, team);
    let team_by_ticket: BTreeMap<TicketId, u16> = with_teams.map(entry).collect();
    let members: Vec<PartyQualityInput<'_>> = all
        .iter()
        .map(|prepared| {
            let WaitingSession { session, waited_ms } = waiting_session(input, prepared);
            let team = team_by_ticket[&prepared.ticket.id];
            PartyQualityInput {
                session,
                matching_ratings: &prepared.matching_ratings,
                player_ratings: &prepared.ticket.player_ratings,
                leaderboard_position: prepared.leaderboard_position,
                waited_ms,
                team,
            }
        })
        .collect();
    let costs = avoidance_cost(input, &all) + region_cost(input, &all);
    quality::evaluate_quality(input.ruleset, &input.queue.quality, input.queue.wait_bonus.as_ref(), &members, costs)
}

/// Draw probability of the teams: the product of their performance densities, relative to its maximum; the lowest over
/// all pairs of teams (S2-4).
fn draw_probability(beta: f64, teams: &[Vec<&PreparedTicket>]) -> f64 {
    let density = |difference: f64, variance: f64| (-difference * difference / variance / 2.0).exp() / variance.sqrt();
    let sum = |team: &[&PreparedTicket], of: fn(&PlayerRating) -> f64| {
        team.iter().flat_map(|it| &it.ticket.player_ratings).map(of).sum::<f64>()
    };
    let mut lowest: f64 = 1.0;
    for (index, one) in teams.iter().enumerate() {
        for other in &teams[index + 1..] {
            let difference = sum(one, |it| it.rating) - sum(other, |it| it.rating);
            let game_variance = [one, other].map(|team| sum(team, |_| 1.0)).iter().sum::<f64>() * beta * beta;
            let rating_variance = [one, other].map(|team| sum(team, |it| it.deviation.powi(2))).iter().sum::<f64>();
            lowest = lowest.min(density(difference, game_variance + rating_variance) / density(0.0, game_variance));
        }
    }
    lowest
}

fn avoidance_cost(input: &PassInput<'_>, all: &[&PreparedTicket]) -> f64 {
    let max_cost = |rule| {
        let pairs = all.iter().flat_map(|one| all.iter().map(move |other| (*one, *other)));
        let distinct = pairs.filter(|(one, other)| one.ticket.id < other.ticket.id);
        let cost = |(one, other)| {
            avoidance::avoidance_rule_cost(
                rule,
                input.past_matches,
                avoidance_side(one),
                avoidance_side(other),
                input.now,
            )
        };
        distinct.map(cost).fold(0.0, f64::max)
    };
    input.queue.avoid.iter().map(max_cost).sum()
}

fn region_cost(input: &PassInput<'_>, all: &[&PreparedTicket]) -> f64 {
    let Some(RegionUse::Quality { weight, span_ms }) = input.queue.regions else { return 0.0 };
    let round_trip = |it: &PreparedTicket, region: &str| {
        it.ticket
            .session
            .region_latencies
            .iter()
            .find(|round_trip| &*round_trip.region == region)
            .map(|round_trip| f64::from(round_trip.round_trip_ms))
    };
    let measured: Vec<&&PreparedTicket> =
        all.iter().filter(|it| !it.ticket.session.region_latencies.is_empty()).collect();
    let mean = |region: &&str| {
        let round_trips: Option<Vec<f64>> = measured.iter().map(|it| round_trip(it, region)).collect();
        round_trips
            .filter(|it| !it.is_empty())
            .map(|it| it.iter().sum::<f64>() + span_ms * (all.len() - it.len()) as f64)
    };
    let best = ["asia", "eu", "us"].iter().filter_map(mean).min_by(f64::total_cmp);
    weight * best.map_or(1.0, |best| (best / all.len() as f64 / span_ms).min(1.0))
}

/// Quality of a match of two tickets, if it passes all rules.
fn two_ticket_quality(input: &PassInput<'_>, one: &PreparedTicket, other: &PreparedTicket) -> Option<QualityVerdict> {
    let fits = pair_may_meet(input, one, other);
    Some(match_quality(input, &[vec![one], vec![other]])).filter(|quality| fits && quality.passes)
}

fn seniority_key(prepared: &PreparedTicket) -> (u64, TicketId) {
    (prepared.ticket.entered_at.0, prepared.ticket.id)
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
            let bucket = |prepared: &PreparedTicket| bucket_of_rating(window, prepared.party_rating);
            (bucket(one) - bucket(other)).abs()
        }
        None => (one.party_rating - other.party_rating).abs(),
    }
}

/// 1v1 matches, each ticket in turn with the nearest candidate; ties by seniority (S0-12).
pub(super) fn nearest_pairs(input: &PassInput<'_>) -> Vec<[TicketId; 2]> {
    let (order, mut taken, mut pairs) = (serving_order(input), Vec::new(), Vec::new());
    for one in &order {
        let free = order
            .iter()
            .filter(|candidate| candidate.ticket.id != one.ticket.id && !taken.contains(&candidate.ticket.id));
        let suitable = free.filter(|other| two_ticket_quality(input, one, other).is_some());
        let key = |candidate: &&&PreparedTicket| {
            (crate::order::ordered_bits(key_distance(input, one, candidate)), seniority_key(candidate))
        };
        let Some(other) = suitable.min_by_key(key).filter(|_| !taken.contains(&one.ticket.id)) else { continue };
        taken.extend([one.ticket.id, other.ticket.id]);
        pairs.push([one.ticket.id, other.ticket.id]);
    }
    pairs
}

/// 1v1 matches from the highest rating down, each with the first suitable ticket below (S4-5).
pub(super) fn first_window_pairs(input: &PassInput<'_>) -> Vec<[TicketId; 2]> {
    let mut order = serving_order(input);
    let mut pairs = Vec::new();
    while !order.is_empty() {
        let one = order.remove(0);
        let first = order.iter().position(|other| pair_may_meet(input, one, other));
        // A window is judged as a whole: if the first neighbor fails the quality, the window fails.
        if let Some(first) = first.filter(|&first| two_ticket_quality(input, one, order[first]).is_some()) {
            pairs.push([one.ticket.id, order.remove(first).ticket.id]);
        }
    }
    pairs
}

/// Maximum total weight over all pairings.
pub(super) fn best_total_weight(input: &PassInput<'_>, unpaired: &[&PreparedTicket]) -> f64 {
    let Some((one, rest)) = unpaired.split_first() else { return 0.0 };
    let mut best = best_total_weight(input, rest);
    for (index, other) in rest.iter().enumerate() {
        if let Some(weight) = pair_weight(input, one, other) {
            let others: Vec<&PreparedTicket> = rest[..index].iter().chain(&rest[index + 1..]).copied().collect();
            best = best.max(weight + best_total_weight(input, &others));
        }
    }
    best
}

/// Weight of a pair that passes all rules.
pub(super) fn pair_weight(input: &PassInput<'_>, one: &PreparedTicket, other: &PreparedTicket) -> Option<f64> {
    let quality = two_ticket_quality(input, one, other)?;
    Some(match input.queue.quality {
        QualitySpec::Any => 1.0 / (1.0 + key_distance(input, one, other)),
        _ => quality::selection_weight(&input.queue.quality, quality.quality),
    })
}

/// Checks all guarantees of a pass: tickets of a match may all meet, teams are full and parties whole. No ticket is in
/// two matches, the quality passes, and each ticket is matched or listed as unmatched.
pub(super) fn assert_outcome_is_valid(input: &PassInput<'_>, outcome: &PassOutcome) {
    let by_id: BTreeMap<TicketId, &PreparedTicket> = input.tickets.iter().map(|it| (it.ticket.id, *it)).collect();
    let mut listed: Vec<TicketId> = Vec::new();
    for proposal in &outcome.proposals {
        let teams: Vec<Vec<&PreparedTicket>> =
            proposal.teams.iter().map(|team| team.iter().map(|it| by_id[&it.ticket_id]).collect()).collect();
        let sizes: Vec<u16> = teams.iter().map(|team| team.iter().map(|it| it.player_count).sum()).collect();
        assert_eq!(sizes, &input.teams.team_sizes[..], "teams are not full");
        let all: Vec<&PreparedTicket> = teams.iter().flatten().copied().collect();
        for (index, one) in all.iter().enumerate() {
            for other in &all[index + 1..] {
                assert!(pair_may_meet(input, one, other), "{:?} and {:?}", one.ticket.id, other.ticket.id);
            }
        }
        for team in &teams {
            for (index, one) in team.iter().enumerate() {
                let is_forbidden =
                    |other: &&PreparedTicket| is_avoided(input, one, other, AvoidStrictness::NotSameTeam);
                assert!(
                    !team[index + 1..].iter().any(is_forbidden),
                    "two tickets of one team must be in different teams"
                );
            }
        }
        assert!(regions_may_meet(input, &all), "the tickets have no common region");
        let quality = match_quality(input, &teams);
        assert!(quality.passes, "the quality does not pass");
        if let QualitySpec::DrawProbability { threshold } = input.queue.quality {
            let beta = input.ruleset.rating.and_then(|spec| spec.system.beta()).expect("the rating system has a beta");
            let all_waited_ms: u64 = all.iter().map(|it| input.now.ms_since(it.ticket.entered_at)).sum();
            let bonus =
                input.queue.wait_bonus.as_ref().map_or(0.0, |rule| quality::bonus_for_waiting(rule, all_waited_ms));
            let expected =
                draw_probability(beta, &teams) + bonus - avoidance_cost(input, &all) - region_cost(input, &all);
            assert!(
                (expected - quality.quality).abs() < 1e-9 && threshold <= expected + 1e-9,
                "{expected} {quality:?}"
            );
        }
        let expected_quality = if input.queue.quality == QualitySpec::Any { 0.0 } else { quality.quality };
        assert!((expected_quality - proposal.quality).abs() < 1e-9, "{expected_quality} {}", proposal.quality);
        listed.extend(all.iter().map(|it| it.ticket.id));
    }
    let report = &outcome.report;
    assert_eq!(
        (listed.len(), input.tickets.len()),
        (report.proposed_ticket_count as usize, report.ticket_count as usize)
    );
    listed.extend(report.unmatched.iter().map(|it| it.ticket_id));
    listed.sort_unstable();
    let all: Vec<TicketId> = by_id.keys().copied().collect();
    assert_eq!(listed, all, "a ticket is missing or listed twice");
}
