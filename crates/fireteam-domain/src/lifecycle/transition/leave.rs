//! Players who leave a match, and tickets that are withdrawn from it.

use crate::id::{TicketId, UserKey};
use crate::lifecycle::event::{EventResult, Transition};
use crate::lifecycle::rules::LifecycleRules;
use crate::lifecycle::transition::end::end_match;
use crate::lifecycle::transition::host::include_peer_host;
use crate::lifecycle::transition::{TicketFacts, transition_to};
use crate::lifecycle::{Match, MatchEndReason, MatchStage, TicketFate};
use crate::queue::ticket::TicketEndReason;
use crate::time::UnixMs;

/// Players leave; no users: all players of the ticket.
///
/// Before play, this ends the match like a decline: the ticket ends, and the others wait again. During play, the users
/// are free at once, and the match goes on without them; it ends when nobody is left, or if the player who hosts leaves.
pub(super) fn apply_leave(
    rules: &LifecycleRules,
    current: &Match,
    ticket_id: TicketId,
    users: &[UserKey],
    now: UnixMs,
) -> Transition {
    let Some(index) = current.tickets.iter().position(|ticket| ticket.ticket_id == ticket_id) else {
        return Transition::unchanged(EventResult::UnknownParticipant);
    };
    let players = &current.tickets[index].players;
    if !users.iter().all(|user| players.iter().any(|player| player.user == *user)) {
        return Transition::unchanged(EventResult::UnknownParticipant);
    }
    let is_leaving = |user: UserKey| users.is_empty() || users.contains(&user);
    let leaving: Vec<UserKey> = players
        .iter()
        .filter(|player| is_leaving(player.user) && player.left_at.is_none())
        .map(|player| player.user)
        .collect();
    match current.stage {
        MatchStage::Ended { .. } => Transition::unchanged(EventResult::WrongStage),
        _ if leaving.is_empty() => Transition::unchanged(EventResult::AlreadyApplied),
        MatchStage::ReadyCheck { .. } | MatchStage::Placing { .. } | MatchStage::Confirming { .. } => {
            let penalized_users = if is_leaving_penalized(rules, current, now) { leaving } else { Vec::new() };
            Transition { penalized_users, ..withdraw(rules, current, &[ticket_id], TicketEndReason::Left, now) }
        }
        MatchStage::Playing { .. } => leave_during_play(rules, current, (ticket_id, index), leaving, now),
    }
}

fn leave_during_play(
    rules: &LifecycleRules,
    current: &Match,
    (ticket_id, index): (TicketId, usize),
    leaving: Vec<UserKey>,
    now: UnixMs,
) -> Transition {
    let is_host_leaving = include_peer_host(current, ticket_id, &leaving);
    let mut updated = current.clone();
    for player in updated.tickets[index].players.iter_mut().filter(|player| leaving.contains(&player.user)) {
        player.left_at = Some(now);
    }
    let is_anybody_left = updated.present_players().next().is_some();
    let has_ticket_left = updated.tickets[index].players.iter().all(|player| player.left_at.is_some());
    let penalized_users = if rules.ready_check_ms.is_some() { leaving } else { Vec::new() };
    let transition = match (is_anybody_left, is_host_leaving) {
        (false, _) => end_match(rules, &updated, MatchEndReason::Abandoned, now),
        (true, true) => end_match(rules, &updated, MatchEndReason::HostLost, now),
        (true, false) => {
            let stage = updated.stage.clone();
            transition_to(&updated, stage, Vec::new())
        }
    };
    let mut ticket_fates = transition.ticket_fates;
    if has_ticket_left {
        ticket_fates.push((ticket_id, TicketFate::Ended(TicketEndReason::Left)));
    }
    Transition { penalized_users, ticket_fates, ..transition }
}

/// Whether leaving before play counts as a failed ready check. Not without a ready check, and not once half of the wait
/// for a game server has passed.
fn is_leaving_penalized(rules: &LifecycleRules, current: &Match, now: UnixMs) -> bool {
    let half_wait_ms = u64::from(rules.hosting.allocation_timeout_ms) / 2;
    let is_early = match current.stage {
        MatchStage::Placing { deadline } | MatchStage::Confirming { deadline, .. } => {
            now.plus_ms(half_wait_ms) < deadline
        }
        MatchStage::ReadyCheck { .. } | MatchStage::Playing { .. } | MatchStage::Ended { .. } => true,
    };
    rules.ready_check_ms.is_some() && is_early
}

/// Applies the withdrawal of a ticket before play. A match that is being played goes on.
pub(super) fn apply_withdrawal(
    rules: &LifecycleRules,
    current: &Match,
    ticket_id: TicketId,
    reason: TicketEndReason,
    now: UnixMs,
) -> Transition {
    if !current.tickets.iter().any(|ticket| ticket.ticket_id == ticket_id) {
        return Transition::unchanged(EventResult::UnknownParticipant);
    }
    if !current.stage.is_before_play() {
        return Transition::unchanged(EventResult::WrongStage);
    }
    withdraw(rules, current, &[ticket_id], reason, now)
}

/// Withdraws the tickets that were silent for longer than their TTL; `None` if there are none.
pub(super) fn withdraw_expired_tickets(
    rules: &LifecycleRules,
    current: &Match,
    tickets: &dyn TicketFacts,
    now: UnixMs,
) -> Option<Transition> {
    let ids = current.tickets.iter().map(|ticket| ticket.ticket_id);
    let expired: Vec<TicketId> = ids.filter(|id| tickets.has_expired(*id)).collect();
    (!expired.is_empty()).then(|| withdraw(rules, current, &expired, TicketEndReason::Expired, now))
}

/// Ends the match before play: `withdrawn` tickets end for `reason`, and the others wait again.
fn withdraw(
    rules: &LifecycleRules,
    current: &Match,
    withdrawn: &[TicketId],
    reason: TicketEndReason,
    now: UnixMs,
) -> Transition {
    let fate = |id: TicketId| match withdrawn.contains(&id) {
        true => TicketFate::Ended(reason),
        false => TicketFate::Requeued,
    };
    let ticket_fates = current.tickets.iter().map(|ticket| (ticket.ticket_id, fate(ticket.ticket_id))).collect();
    let end_reason = if reason == TicketEndReason::Left { MatchEndReason::Declined } else { MatchEndReason::Cancelled };
    Transition { ticket_fates, penalized_users: Vec::new(), ..end_match(rules, current, end_reason, now) }
}
