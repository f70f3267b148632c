//! Host of a match: it is found, confirms, is heard during play, fails, or is lost.

use crate::id::{AdvertisementId, TicketId, UserKey};
use crate::lifecycle::deadline::{effective_placing_deadline, effective_times_out_at};
use crate::lifecycle::event::{EventResult, MatchEffect, Transition};
use crate::lifecycle::rules::LifecycleRules;
use crate::lifecycle::ticket_facts::TicketFacts;
use crate::lifecycle::transition::end::{end_match, reservation_release_effect};
use crate::lifecycle::transition::session_match::penalizes_leavers;
use crate::lifecycle::transition::withdraw::end_match_if_tickets_expired;
use crate::lifecycle::{Assignment, Match, MatchEndReason, MatchStage, MatchTicket, TicketFate};
use crate::order::ordered_bits;
use crate::queue::ticket::TicketEndReason;
use crate::ruleset::teams::HostingMode;
use crate::time::UnixMs;

/// All players have accepted: looks for a host, names one of the players, or starts play if no host is needed.
pub(super) fn begin_placement_or_play(
    rules: &LifecycleRules,
    current: &Match,
    tickets: &dyn TicketFacts,
    now: UnixMs,
) -> Transition {
    let assignment = match rules.hosting.mode {
        // A backfill is played in the existing session.
        _ if current.backfilled_session.is_some() => None,
        HostingMode::GameServer => None,
        HostingMode::Peer => choose_peer_host(&current.tickets, tickets).map(|host| Assignment::PeerHost { host }),
        HostingMode::None => Some(Assignment::Unhosted),
    };
    match assignment {
        Some(assignment) => {
            let deadline = now.plus_ms(u64::from(rules.hosting.confirm_ms));
            begin_confirmation_or_play(rules, current, assignment, deadline, tickets, now)
        }
        None => {
            let deadline = now.plus_ms(u64::from(rules.hosting.allocation_timeout_ms));
            end_match_if_tickets_expired(rules, current, tickets, now).unwrap_or_else(|| {
                Transition::to_stage(current, MatchStage::Placing { deadline }, vec![MatchEffect::FindServer])
            })
        }
    }
}

/// Player who hosts the match: open NAT first, then the shortest round trip to the farthest other party, then longest wait, then
/// lowest client key. A round trip that is unknown is longer than any other.
fn choose_peer_host(match_tickets: &[MatchTicket], tickets: &dyn TicketFacts) -> Option<UserKey> {
    let farthest_ms = |host: TicketId| {
        let others = match_tickets.iter().map(|ticket| ticket.ticket_id).filter(|other| *other != host);
        let round_trips_ms = others.map(|other| tickets.high_round_trip_ms(host, other).unwrap_or(f64::INFINITY));
        round_trips_ms.fold(0.0, f64::max)
    };
    let candidates = match_tickets.iter().flat_map(|ticket| {
        let id = ticket.ticket_id;
        let rank = (!tickets.has_open_nat(id), ordered_bits(farthest_ms(id)), ticket.entered_at);
        ticket.players.iter().map(move |player| (rank, player.client))
    });
    candidates.min().map(|(_, player)| player)
}

/// Names the host and waits for its confirmation until `deadline` at most. Without confirmation, play starts.
fn begin_confirmation_or_play(
    rules: &LifecycleRules,
    current: &Match,
    assignment: Assignment,
    deadline: UnixMs,
    tickets: &dyn TicketFacts,
    now: UnixMs,
) -> Transition {
    if !rules.hosts_confirm || assignment == Assignment::Unhosted {
        return start_play(rules, current, assignment, tickets, now);
    }
    let latest = effective_placing_deadline(rules, deadline, tickets.outages());
    let confirm_by = now.plus_ms(u64::from(rules.hosting.confirm_ms)).min(latest);
    Transition::to_stage(current, MatchStage::Confirming { assignment, confirm_by, deadline }, Vec::new())
}

/// Starts play, unless a ticket is silent: then it is withdrawn, and the others return to the queue.
fn start_play(
    rules: &LifecycleRules,
    current: &Match,
    assignment: Assignment,
    tickets: &dyn TicketFacts,
    now: UnixMs,
) -> Transition {
    if let Some(withdrawal) = end_match_if_tickets_expired(rules, current, tickets, now) {
        // The stage does not have the reservation of this assignment yet.
        let effects = reservation_release_effect(&assignment).into_iter().chain(withdrawal.effects.clone()).collect();
        return Transition { effects: deduplicated_effects(effects), ..withdrawal };
    }
    let host_lost_at = match &assignment {
        Assignment::Unhosted => None,
        _ if !rules.hosts_confirm => None,
        _ => Some(now.plus_ms(u64::from(rules.hosting.host_loss_ms))),
    };
    let times_out_at = now.plus_ms(rules.hosting.max_match_ms);
    let stage = MatchStage::Playing { assignment, started_at: now, times_out_at, host_lost_at };
    Transition::to_stage(current, stage, vec![MatchEffect::StartPlay])
}

fn deduplicated_effects(mut effects: Vec<MatchEffect>) -> Vec<MatchEffect> {
    effects.dedup();
    effects
}

/// Applies a found game server. Its seats are released if the match is over or has another game server.
pub(super) fn apply_server_found(
    rules: &LifecycleRules,
    current: &Match,
    found: Assignment,
    tickets: &dyn TicketFacts,
    now: UnixMs,
) -> Transition {
    match &current.stage {
        MatchStage::Placing { deadline } => begin_confirmation_or_play(rules, current, found, *deadline, tickets, now),
        stage if stage.assignment_since_confirming() == Some(&found) && stage.end_reason().is_none() => {
            Transition::unchanged(EventResult::AlreadyApplied)
        }
        _ => {
            let effects = reservation_release_effect(&found).into_iter().collect();
            Transition { effects, ..Transition::unchanged(EventResult::WrongStage) }
        }
    }
}

/// Applies a sign of life of the host: a confirmation, or a heartbeat during play. Without another one, the host is
/// lost at `lost_at`.
pub(super) fn apply_host_heard(
    rules: &LifecycleRules,
    current: &Match,
    lost_at: UnixMs,
    tickets: &dyn TicketFacts,
    now: UnixMs,
) -> Transition {
    match &current.stage {
        MatchStage::Confirming { assignment, .. } => start_play(rules, current, assignment.clone(), tickets, now),
        MatchStage::Playing { host_lost_at: Some(before), .. } if *before >= lost_at => {
            Transition::unchanged(EventResult::AlreadyApplied)
        }
        MatchStage::Playing { assignment, started_at, times_out_at, host_lost_at: Some(_) } => {
            let stage = MatchStage::Playing {
                assignment: assignment.clone(),
                started_at: *started_at,
                times_out_at: *times_out_at,
                host_lost_at: Some(lost_at),
            };
            Transition::to_stage(current, stage, Vec::new())
        }
        MatchStage::ReadyCheck { .. }
        | MatchStage::Placing { .. }
        | MatchStage::Playing { host_lost_at: None, .. }
        | MatchStage::Ended { .. } => Transition::unchanged(EventResult::WrongStage),
    }
}

/// The host gives the match up. Before it has confirmed, the next server is sought.
pub(super) fn apply_host_gave_up(
    rules: &LifecycleRules,
    current: &Match,
    host: &Assignment,
    tickets: &dyn TicketFacts,
    now: UnixMs,
) -> Transition {
    match &current.stage {
        MatchStage::Confirming { assignment, .. } if assignment == host => {
            host_not_confirmed(rules, current, tickets, now)
        }
        MatchStage::Playing { assignment, .. } if assignment == host => {
            end_match(rules, current, MatchEndReason::ServerFailed, now)
        }
        MatchStage::ReadyCheck { .. }
        | MatchStage::Placing { .. }
        | MatchStage::Confirming { .. }
        | MatchStage::Playing { .. }
        | MatchStage::Ended { .. } => Transition::unchanged(EventResult::WrongStage),
    }
}

/// The deadline of a stage with a host has passed: it did not confirm, it was lost, or the match timed out.
pub(super) fn apply_hosted_stage_deadline(
    rules: &LifecycleRules,
    current: &Match,
    tickets: &dyn TicketFacts,
    now: UnixMs,
) -> Transition {
    let is_timed_out = effective_times_out_at(&current.stage, tickets.outages()).is_some_and(|end| end <= now);
    match &current.stage {
        MatchStage::Confirming { .. } => host_not_confirmed(rules, current, tickets, now),
        MatchStage::Playing { .. } if is_timed_out => end_match(rules, current, MatchEndReason::TimedOut, now),
        MatchStage::Playing { assignment, .. } => end_match_for_lost_host(rules, current, assignment, now),
        _ => Transition::unchanged(EventResult::WrongStage),
    }
}

/// The named host did not confirm. Another game server is sought in the time that is left. A session that was to be
/// filled, and a peer host, have no replacement: the match ends, and all its players wait again.
fn host_not_confirmed(rules: &LifecycleRules, current: &Match, tickets: &dyn TicketFacts, now: UnixMs) -> Transition {
    let MatchStage::Confirming { assignment, deadline, .. } = &current.stage else {
        return Transition::unchanged(EventResult::WrongStage);
    };
    let server: Option<AdvertisementId> = match assignment {
        Assignment::GameServer { advertisement, .. } => Some(*advertisement),
        Assignment::PeerHost { .. } | Assignment::Unhosted => None,
    };
    match server.filter(|_| current.backfilled_session.is_none()) {
        None if matches!(assignment, Assignment::PeerHost { .. }) => {
            end_match(rules, current, MatchEndReason::HostLost, now)
        }
        None => end_match(rules, current, MatchEndReason::NoServer, now),
        Some(_) if effective_placing_deadline(rules, *deadline, tickets.outages()) <= now => {
            end_match(rules, current, MatchEndReason::NoServer, now)
        }
        Some(server) => {
            let mut updated = current.clone();
            updated.servers_that_did_not_confirm.push(server);
            let effects = reservation_release_effect(assignment).into_iter().chain([MatchEffect::FindServer]).collect();
            Transition::to_stage(&updated, MatchStage::Placing { deadline: *deadline }, effects)
        }
    }
}

/// The host is lost during play. A player who hosts counts as having left.
fn end_match_for_lost_host(
    rules: &LifecycleRules,
    current: &Match,
    assignment: &Assignment,
    now: UnixMs,
) -> Transition {
    let Assignment::PeerHost { host } = assignment else {
        return end_match(rules, current, MatchEndReason::HostLost, now);
    };
    let (updated, left) = with_host_left(current, *host, now);
    let penalized_users = if penalizes_leavers(rules, current) { left } else { Vec::new() };
    let transition = end_match(rules, &updated, MatchEndReason::HostLost, now);
    let mut ticket_fates = transition.ticket_fates;
    let was_in_match = |ticket: &&MatchTicket| ticket.players.iter().any(|player| player.left_at.is_none());
    for ticket in current.tickets.iter().filter(was_in_match) {
        if ticket_fates.iter().all(|(id, _)| *id != ticket.ticket_id) {
            ticket_fates.push((ticket.ticket_id, TicketFate::Ended(TicketEndReason::Left)));
        }
    }
    Transition { penalized_users, ticket_fates, ..transition }
}

/// The match with its hosting player marked as left, and that user.
fn with_host_left(current: &Match, host: UserKey, now: UnixMs) -> (Match, Vec<UserKey>) {
    let mut updated = current.clone();
    let mut left = Vec::new();
    for player in updated.tickets.iter_mut().flat_map(|ticket| &mut ticket.players) {
        if player.client == host && player.left_at.is_none() {
            player.left_at = Some(now);
            left.push(player.user);
        }
    }
    (updated, left)
}
