//! Transitions of the match state machine: applies an event to a match and returns the next match and the effects.
//!
//! | stage | continues when | ends when |
//! |---|---|---|
//! | ready check | all accepted: placement or play starts | declined, left, not accepted in time, cancelled |
//! | placing | a game server was found: play starts | no game server in time, game server failed, left, cancelled |
//! | playing | | end reported, timed out, game server failed before play, cancelled |
//!
//! If a match was not played, tickets that are not at fault return to the queue with their original wait time. A
//! transition that ends a match sets the new state of all its tickets; no other transition sets any. So a ticket is
//! always in exactly one state. An event that does not apply to the stage changes nothing.

use crate::id::{TicketId, UserKey};
use crate::lifecycle::event::{EventResult, MatchEffect, MatchEvent, NewMatch, Transition};
use crate::lifecycle::rules::{ENDED_MATCH_RETENTION_MS, LifecycleRules};
use crate::lifecycle::{Assignment, Match, MatchEndReason, MatchPlayer, MatchStage, MatchTicket, TicketFate};
use crate::queue::ticket::TicketEndReason;
use crate::ruleset::teams::HostingMode;
use crate::time::UnixMs;

/// Creates a match with version 1. The result is always `Changed`.
///
/// It starts in its ready check. Without a ready check it starts in placement, or in play if no host must be found.
///
/// `open` returns whether the players of a ticket have an open NAT, as reported by their clients.
pub fn create_match(
    rules: &LifecycleRules,
    new_match: NewMatch,
    has_open_nat: &dyn Fn(TicketId) -> bool,
    now: UnixMs,
) -> Transition {
    let NewMatch { id, set_id, silo, ruleset_hash, tickets, quality, region, backfilled_session } = new_match;
    let (proposed_at, version) = (now, 0);
    // Placeholder: replaced below by the first stage.
    let stage = MatchStage::Placing { deadline: now };
    let draft = Match {
        id,
        set_id,
        silo,
        ruleset_hash,
        proposed_at,
        version,
        stage,
        tickets,
        quality,
        region,
        backfilled_session,
    };
    match rules.ready_check_ms {
        Some(ms) => transition_to(&draft, MatchStage::ReadyCheck { deadline: now.plus_ms(u64::from(ms)) }, Vec::new()),
        None => begin_placement(rules, &draft, has_open_nat, now),
    }
}

/// Applies `event`, which happens at `now`, to `play`. The caller orders concurrent events.
///
/// `open` is the same as for [`create_match`].
pub fn apply_event(
    rules: &LifecycleRules,
    current: &Match,
    event: MatchEvent,
    has_open_nat: &dyn Fn(TicketId) -> bool,
    now: UnixMs,
) -> Transition {
    match event {
        MatchEvent::Responded { ticket_id, users, accepted } => {
            apply_response(rules, current, (ticket_id, &users, accepted), has_open_nat, now)
        }
        MatchEvent::DeadlinePassed => apply_deadline(rules, current, now),
        MatchEvent::ServerFound(assignment) => apply_server_found(rules, current, assignment, now),
        MatchEvent::ServerFailed => match current.stage {
            MatchStage::Placing { .. } | MatchStage::Playing { .. } => {
                end_match(rules, current, MatchEndReason::ServerFailed, now)
            }
            MatchStage::ReadyCheck { .. } | MatchStage::Ended { .. } => Transition::unchanged(EventResult::WrongStage),
        },
        MatchEvent::EndReported { reported_by } => apply_end_report(rules, current, reported_by, now),
        MatchEvent::Cancelled => match current.stage {
            MatchStage::Ended { end_reason: MatchEndReason::Cancelled, .. } => {
                Transition::unchanged(EventResult::AlreadyApplied)
            }
            MatchStage::Ended { .. } => Transition::unchanged(EventResult::WrongStage),
            _ => end_match(rules, current, MatchEndReason::Cancelled, now),
        },
        MatchEvent::TicketWithdrawn { ticket_id, reason } => apply_withdrawal(rules, current, ticket_id, reason, now),
    }
}

/// Applies responses to the ready check. One decline ends the match, and the last acceptance moves it on. A player may
/// change an acceptance to a decline, but not the reverse.
fn apply_response(
    rules: &LifecycleRules,
    current: &Match,
    (ticket_id, users, accepted): (TicketId, &[UserKey], bool),
    has_open_nat: &dyn Fn(TicketId) -> bool,
    now: UnixMs,
) -> Transition {
    let Some(index) = current.tickets.iter().position(|ticket| ticket.ticket_id == ticket_id) else {
        return Transition::unchanged(EventResult::UnknownParticipant);
    };
    let responded = |player: &MatchPlayer| users.contains(&player.user);
    if users.is_empty()
        || !users.iter().all(|user| current.tickets[index].players.iter().any(|player| player.user == *user))
    {
        return Transition::unchanged(EventResult::UnknownParticipant);
    }
    if current.tickets[index]
        .players
        .iter()
        .filter(|player| responded(player))
        .all(|player| player.accepted == Some(accepted))
    {
        return Transition::unchanged(EventResult::AlreadyApplied);
    }
    match current.stage {
        MatchStage::ReadyCheck { deadline } if deadline <= now => return Transition::unchanged(EventResult::TooLate),
        MatchStage::ReadyCheck { .. } => {}
        MatchStage::Placing { .. } | MatchStage::Playing { .. } | MatchStage::Ended { .. } => {
            return Transition::unchanged(EventResult::WrongStage);
        }
    }
    let mut updated = current.clone();
    for player in updated.tickets[index].players.iter_mut().filter(|player| responded(player)) {
        // A decline is final.
        player.accepted = Some(accepted && player.accepted != Some(false));
    }
    let players = || updated.tickets.iter().flat_map(|ticket| &ticket.players);
    if players().any(|player| player.accepted == Some(false)) {
        return end_match(rules, &updated, MatchEndReason::Declined, now);
    }
    if players().all(|player| player.accepted == Some(true)) {
        return begin_placement(rules, &updated, has_open_nat, now);
    }
    let stage = updated.stage.clone();
    transition_to(&updated, stage, Vec::new())
}

/// All players have accepted: looks for a host, or starts play if there is one.
fn begin_placement(
    rules: &LifecycleRules,
    current: &Match,
    has_open_nat: &dyn Fn(TicketId) -> bool,
    now: UnixMs,
) -> Transition {
    let assignment = match rules.hosting.mode {
        // A backfill is played in the existing session.
        _ if current.backfilled_session.is_some() => None,
        HostingMode::GameServer => None,
        HostingMode::Peer => choose_host(&current.tickets, has_open_nat).map(|host| Assignment::PeerHost { host }),
        HostingMode::None => Some(Assignment::Unhosted),
    };
    match assignment {
        Some(assignment) => start_play(rules, current, assignment, now),
        None => {
            let deadline = now.plus_ms(u64::from(rules.hosting.allocation_timeout_ms));
            transition_to(current, MatchStage::Placing { deadline }, vec![MatchEffect::FindServer])
        }
    }
}

/// Player who hosts the match: open NAT first, then longest wait, then lowest client key.
fn choose_host(tickets: &[MatchTicket], has_open_nat: &dyn Fn(TicketId) -> bool) -> Option<UserKey> {
    let candidates = tickets.iter().flat_map(|ticket| {
        let rank = (!has_open_nat(ticket.ticket_id), ticket.entered_at);
        ticket.players.iter().map(move |player| (rank, player.client))
    });
    candidates.min().map(|(_, player)| player)
}

fn start_play(rules: &LifecycleRules, current: &Match, assignment: Assignment, now: UnixMs) -> Transition {
    let times_out_at = now.plus_ms(rules.hosting.max_match_ms);
    transition_to(
        current,
        MatchStage::Playing { assignment, started_at: now, times_out_at },
        vec![MatchEffect::StartPlay],
    )
}

fn apply_deadline(rules: &LifecycleRules, current: &Match, now: UnixMs) -> Transition {
    let (deadline, end_reason) = match current.stage {
        MatchStage::ReadyCheck { deadline } => (deadline, MatchEndReason::NotAcceptedInTime),
        MatchStage::Placing { deadline } => (deadline, MatchEndReason::NoServer),
        MatchStage::Playing { times_out_at, .. } => (times_out_at, MatchEndReason::TimedOut),
        MatchStage::Ended { .. } => return Transition::unchanged(EventResult::WrongStage),
    };
    match deadline <= now {
        true => end_match(rules, current, end_reason, now),
        false => Transition::unchanged(EventResult::TooEarly),
    }
}

/// Applies a found game server. Its seats are released if the match is over or has another game server.
fn apply_server_found(rules: &LifecycleRules, current: &Match, found: Assignment, now: UnixMs) -> Transition {
    match &current.stage {
        MatchStage::Placing { .. } => start_play(rules, current, found, now),
        MatchStage::Playing { assignment, .. } if *assignment == found => {
            Transition::unchanged(EventResult::AlreadyApplied)
        }
        MatchStage::ReadyCheck { .. } | MatchStage::Playing { .. } | MatchStage::Ended { .. } => {
            let effects = release_reservation(&found).into_iter().collect();
            Transition { effects, ..Transition::unchanged(EventResult::WrongStage) }
        }
    }
}

fn apply_end_report(rules: &LifecycleRules, current: &Match, reported_by: Option<UserKey>, now: UnixMs) -> Transition {
    let is_player = |user| current.tickets.iter().flat_map(|ticket| &ticket.players).any(|player| player.user == user);
    match current.stage {
        _ if reported_by.is_some_and(|user| !is_player(user)) => Transition::unchanged(EventResult::UnknownParticipant),
        MatchStage::Playing { .. } => end_match(rules, current, MatchEndReason::Played, now),
        MatchStage::Ended { end_reason: MatchEndReason::Played, .. } => {
            Transition::unchanged(EventResult::AlreadyApplied)
        }
        MatchStage::ReadyCheck { .. } | MatchStage::Placing { .. } | MatchStage::Ended { .. } => {
            Transition::unchanged(EventResult::WrongStage)
        }
    }
}

/// Applies the withdrawal of a ticket. A match that is being played goes on without it.
fn apply_withdrawal(
    rules: &LifecycleRules,
    current: &Match,
    ticket_id: TicketId,
    reason: TicketEndReason,
    now: UnixMs,
) -> Transition {
    let Some(ticket) = current.tickets.iter().find(|ticket| ticket.ticket_id == ticket_id) else {
        return Transition::unchanged(EventResult::UnknownParticipant);
    };
    if !matches!(current.stage, MatchStage::ReadyCheck { .. } | MatchStage::Placing { .. }) {
        return Transition::unchanged(EventResult::WrongStage);
    }
    let left = reason == TicketEndReason::Left;
    let penalized_users = ticket.players.iter().map(|player| player.user).filter(|_| left).collect();
    let fate = |ticket: &MatchTicket| match ticket.ticket_id == ticket_id {
        true => TicketFate::Ended(reason),
        false => TicketFate::Requeued,
    };
    let ticket_fates = current.tickets.iter().map(|ticket| (ticket.ticket_id, fate(ticket))).collect();
    let end_reason = if left { MatchEndReason::Declined } else { MatchEndReason::Cancelled };
    Transition { ticket_fates, penalized_users, ..end_match(rules, current, end_reason, now) }
}

/// Ends the match: requeues or ends its tickets, and lists the users at fault.
fn end_match(rules: &LifecycleRules, current: &Match, end_reason: MatchEndReason, now: UnixMs) -> Transition {
    let at_fault = |player: &&MatchPlayer| match end_reason {
        MatchEndReason::Declined => player.accepted == Some(false),
        MatchEndReason::NotAcceptedInTime => player.accepted != Some(true),
        _ => false,
    };
    let fate = |ticket: &MatchTicket| match end_reason {
        MatchEndReason::Played | MatchEndReason::TimedOut => TicketFate::Ended(TicketEndReason::Played),
        MatchEndReason::Declined if ticket.players.iter().any(|player| at_fault(&player)) => {
            TicketFate::Ended(TicketEndReason::Declined)
        }
        MatchEndReason::NotAcceptedInTime if ticket.players.iter().any(|player| at_fault(&player)) => {
            TicketFate::Ended(TicketEndReason::NotAcceptedInTime)
        }
        MatchEndReason::Declined | MatchEndReason::NotAcceptedInTime => TicketFate::Requeued,
        // Users are not at fault if a game server failed or an operator cancelled.
        MatchEndReason::NoServer | MatchEndReason::ServerFailed | MatchEndReason::Cancelled => TicketFate::Requeued,
    };
    let players = current.tickets.iter().flat_map(|ticket| &ticket.players);
    let penalized_users = players.filter(at_fault).map(|player| player.user).collect();
    let ticket_fates = current.tickets.iter().map(|ticket| (ticket.ticket_id, fate(ticket))).collect();
    let (started_at, assignment, effects) = match &current.stage {
        MatchStage::Playing { assignment, started_at, .. } => {
            // A match that its game server gave up does not count as played together. A cancelled one does, but it has
            // no results.
            let counts_as_met = end_reason != MatchEndReason::ServerFailed;
            let was_played = matches!(end_reason, MatchEndReason::Played | MatchEndReason::TimedOut);
            (
                counts_as_met.then_some(*started_at),
                was_played.then(|| assignment.clone()),
                release_reservation(assignment).into_iter().collect(),
            )
        }
        MatchStage::ReadyCheck { .. } | MatchStage::Placing { .. } | MatchStage::Ended { .. } => {
            (None, None, Vec::new())
        }
    };
    let past_match_end = started_at.map_or(now, |started_at| started_at.plus_ms(rules.past_match_retention_ms));
    let purge_at = now.plus_ms(ENDED_MATCH_RETENTION_MS).max(past_match_end);
    Transition {
        ticket_fates,
        penalized_users,
        ..transition_to(current, MatchStage::Ended { end_reason, started_at, assignment, purge_at }, effects)
    }
}

fn release_reservation(assignment: &Assignment) -> Option<MatchEffect> {
    match assignment {
        Assignment::GameServer { advertisement, reservation, .. } => {
            Some(MatchEffect::ReleaseReservation { advertisement: *advertisement, reservation: *reservation })
        }
        Assignment::PeerHost { .. } | Assignment::Unhosted => None,
    }
}

fn transition_to(current: &Match, stage: MatchStage, effects: Vec<MatchEffect>) -> Transition {
    let next = Match { version: current.version + 1, stage, ..current.clone() };
    Transition {
        result: EventResult::Changed,
        next_match: Some(next),
        ticket_fates: Vec::new(),
        penalized_users: Vec::new(),
        effects,
    }
}

#[cfg(test)]
mod tests;
