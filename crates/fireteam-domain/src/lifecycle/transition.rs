//! Transitions of the match state machine: applies an event to a match and returns the next match and the effects.
//!
//! | stage | continues when | ends when |
//! |---|---|---|
//! | ready check | all accepted: placement or play starts | declined, left, not accepted in time, cancelled |
//! | placing | a host was found: it must confirm | no game server in time, left, cancelled |
//! | confirming | the host confirms: play starts; it does not: placing, with another server | no time left, peer host silent, left, cancelled |
//! | playing | a player leaves, the host is heard | end reported, timed out, host lost, all left, game server failed, cancelled |
//!
//! If a match was not played, tickets that are not at fault return to the queue with their original wait time. A
//! transition that ends a match sets the new state of all its tickets whose players have not all left. During play, a
//! ticket whose last player leaves ends at once. So a ticket is always in exactly one state. An event that does not
//! apply to the stage changes nothing.
//!
//! A match of a searched session begins in play (`session_match.rs`), and none of its tickets ever waits.

mod end;
mod host;
mod leave;
pub mod report;
pub mod session_match;
mod withdraw;

use crate::id::{TicketId, UserKey};
use crate::lifecycle::deadline::{effective_deadline, is_start_delayed_too_long_by_outages};
use crate::lifecycle::event::{EventResult, MatchEvent, NewMatch, Transition};
use crate::lifecycle::rules::LifecycleRules;
use crate::lifecycle::side_reports::SideReports;
use crate::lifecycle::ticket_facts::TicketFacts;
use crate::lifecycle::transition::end::{apply_end_report, end_match};
use crate::lifecycle::transition::host::{
    apply_host_gave_up, apply_host_heard, apply_hosted_stage_deadline, apply_server_found, begin_placement_or_play,
};
use crate::lifecycle::transition::leave::apply_leave;
use crate::lifecycle::transition::withdraw::{apply_withdrawal, end_match_if_tickets_expired};
use crate::lifecycle::{Match, MatchEndReason, MatchPlayer, MatchStage};
use crate::time::UnixMs;

/// Creates a match with version 1. The result is always `Changed`.
///
/// It starts in its ready check. Without a ready check it starts in placement, or in play if no host must be found.
pub fn create_match(rules: &LifecycleRules, new_match: NewMatch, tickets: &dyn TicketFacts, now: UnixMs) -> Transition {
    let NewMatch {
        id,
        set_id,
        silo,
        ruleset_hash,
        tickets: match_tickets,
        quality,
        region,
        backfilled_session,
        chosen_values: chosen,
        bots_by_team,
        worst_pair,
    } = new_match;
    let draft = Match {
        id,
        set_id,
        silo,
        ruleset_hash,
        proposed_at: now,
        version: 0,
        // Placeholder: replaced below by the first stage.
        stage: MatchStage::Placing { deadline: now },
        tickets: match_tickets,
        quality,
        region,
        backfilled_session,
        chosen_values: chosen,
        bots_by_team,
        worst_pair,
        session_match_start_by_host: None,
        servers_that_did_not_confirm: Vec::new(),
        side_reports: SideReports::default(),
        kept_skills_of_erased_users: Vec::new(),
    };
    match rules.ready_check_ms {
        Some(ms) => {
            Transition::to_stage(&draft, MatchStage::ReadyCheck { deadline: now.plus_ms(u64::from(ms)) }, Vec::new())
        }
        None => begin_placement_or_play(rules, &draft, tickets, now),
    }
}

/// Applies `event`, which happens at `now`, to `current`. The caller orders concurrent events.
pub fn apply_event(
    rules: &LifecycleRules,
    current: &Match,
    event: MatchEvent,
    tickets: &dyn TicketFacts,
    now: UnixMs,
) -> Transition {
    match event {
        MatchEvent::Responded { ticket_id, users, accepted, answered_by } => {
            let transition = apply_response(rules, current, (ticket_id, &users, accepted), tickets, now);
            transition.with_penalty_moved_to(answered_by)
        }
        MatchEvent::DeadlinePassed => apply_deadline(rules, current, tickets, now),
        MatchEvent::ServerFound(assignment) => apply_server_found(rules, current, assignment, tickets, now),
        MatchEvent::HostHeard { lost_at } => apply_host_heard(rules, current, lost_at, tickets, now),
        MatchEvent::ServerFailed { host } => apply_host_gave_up(rules, current, &host, tickets, now),
        MatchEvent::EndReported { reported_by } => apply_end_report(rules, current, reported_by, now),
        MatchEvent::Cancelled => match current.stage {
            MatchStage::Ended { end_reason: MatchEndReason::Cancelled, .. } => {
                Transition::unchanged(EventResult::AlreadyApplied)
            }
            MatchStage::Ended { .. } => Transition::unchanged(EventResult::WrongStage),
            _ => end_match(rules, current, MatchEndReason::Cancelled, now),
        },
        MatchEvent::TicketWithdrawn { ticket_id, reason } => apply_withdrawal(rules, current, ticket_id, reason, now),
        MatchEvent::PlayersLeft { ticket_id, users, left_by } => {
            apply_leave(rules, current, (ticket_id, &users), now).with_penalty_moved_to(left_by)
        }
    }
}

/// Applies responses to the ready check. One decline ends the match, and the last acceptance moves it on. A player may
/// change an acceptance to a decline, but not the reverse.
fn apply_response(
    rules: &LifecycleRules,
    current: &Match,
    (ticket_id, users, accepted): (TicketId, &[UserKey], bool),
    tickets: &dyn TicketFacts,
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
        MatchStage::ReadyCheck { .. } if is_deadline_over(rules, current, tickets, now) => {
            return Transition::unchanged(EventResult::TooLate);
        }
        MatchStage::ReadyCheck { .. } => {}
        MatchStage::Placing { .. }
        | MatchStage::Confirming { .. }
        | MatchStage::Playing { .. }
        | MatchStage::Ended { .. } => {
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
        return begin_placement_or_play(rules, &updated, tickets, now);
    }
    let stage = updated.stage.clone();
    Transition::to_stage(&updated, stage, Vec::new())
}

/// Users who did not accept although they had the chance to answer, in the order of the match's players. None if an outage
/// interrupted the ready check: their clients may not have found a server again before it ended.
fn users_who_ignored_ready_check(current: &Match, tickets: &dyn TicketFacts, now: UnixMs) -> Vec<UserKey> {
    if tickets.outages().has_interrupted(current.proposed_at, now) {
        return Vec::new();
    }
    let players = current.tickets.iter().flat_map(|ticket| ticket.players.iter().map(move |player| (ticket, player)));
    let silent = players.filter(|(ticket, player)| {
        player.accepted != Some(true) && tickets.has_acknowledged_ready_check(ticket.ticket_id, player.user)
    });
    silent.map(|(_, player)| player.user).collect()
}

/// Whether the deadline of the stage has passed and is enforced.
fn is_deadline_over(rules: &LifecycleRules, current: &Match, tickets: &dyn TicketFacts, now: UnixMs) -> bool {
    let enforced_until = tickets.deadlines_enforced_until(now);
    effective_deadline(Some(rules), current, tickets.outages()).is_some_and(|deadline| deadline <= enforced_until)
}

/// Applies the deadline of the stage. Before it, tickets that were silent for longer than their TTL are withdrawn.
fn apply_deadline(rules: &LifecycleRules, current: &Match, tickets: &dyn TicketFacts, now: UnixMs) -> Transition {
    if is_start_delayed_too_long_by_outages(current, tickets.outages(), now) {
        return end_match(rules, current, MatchEndReason::Cancelled, now);
    }
    if !is_deadline_over(rules, current, tickets, now) && current.stage.end_reason().is_none() {
        let withdrawal =
            current.stage.is_before_play().then(|| end_match_if_tickets_expired(rules, current, tickets, now));
        return withdrawal.flatten().unwrap_or_else(|| Transition::unchanged(EventResult::TooEarly));
    }
    match current.stage {
        MatchStage::ReadyCheck { .. } => Transition {
            penalized_users: users_who_ignored_ready_check(current, tickets, now),
            ..end_match(rules, current, MatchEndReason::NotAcceptedInTime, now)
        },
        MatchStage::Placing { .. } => end_match(rules, current, MatchEndReason::NoServer, now),
        MatchStage::Confirming { .. } | MatchStage::Playing { .. } => {
            apply_hosted_stage_deadline(rules, current, tickets, now)
        }
        MatchStage::Ended { .. } => Transition::unchanged(EventResult::WrongStage),
    }
}

#[cfg(test)]
mod tests;
