//! Players who leave a match, and tickets that are withdrawn from it.

use crate::id::{TicketId, UserKey};
use crate::lifecycle::event::{EventResult, Transition};
use crate::lifecycle::rules::LifecycleRules;
use crate::lifecycle::transition::end::end_match;
use crate::lifecycle::transition::session_match::penalizes_leavers;
use crate::lifecycle::transition::withdraw::end_match_for_withdrawn_tickets;
use crate::lifecycle::{Assignment, Match, MatchEndReason, MatchStage, TicketFate};
use crate::queue::ticket::TicketEndReason;
use crate::time::UnixMs;

/// Players leave; no users: all players of the ticket.
///
/// Before play, this ends the match like a decline: the ticket ends, and the others wait again. During play, the users
/// are free at once, and the match goes on without them; it ends when no player is left, or if the player who hosts leaves.
pub(super) fn apply_leave(
    rules: &LifecycleRules,
    current: &Match,
    (ticket_id, users): (TicketId, &[UserKey]),
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
            let penalized_users =
                if is_leaving_before_play_penalized(rules, current, now) { leaving } else { Vec::new() };
            Transition {
                penalized_users,
                ..end_match_for_withdrawn_tickets(rules, current, &[ticket_id], TicketEndReason::Left, now)
            }
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
    let is_host_leaving = is_peer_host_among(current, ticket_id, &leaving);
    let mut updated = current.clone();
    for player in updated.tickets[index].players.iter_mut().filter(|player| leaving.contains(&player.user)) {
        player.left_at = Some(now);
    }
    let has_players_left = updated.present_players().next().is_some();
    let has_ticket_left = updated.tickets[index].players.iter().all(|player| player.left_at.is_some());
    let penalized_users = if penalizes_leavers(rules, current) { leaving } else { Vec::new() };
    let transition = match (has_players_left, is_host_leaving) {
        (false, _) => end_match(rules, &updated, MatchEndReason::Abandoned, now),
        (true, true) => end_match(rules, &updated, MatchEndReason::HostLost, now),
        (true, false) => {
            let stage = updated.stage.clone();
            Transition::to_stage(&updated, stage, Vec::new())
        }
    };
    let mut ticket_fates = transition.ticket_fates;
    if has_ticket_left {
        ticket_fates.push((ticket_id, TicketFate::Ended(TicketEndReason::Left)));
    }
    Transition { penalized_users, ticket_fates, ..transition }
}

/// Whether leaving before play counts as a failed ready check. Not without a ready check, and not once half of the wait
/// for a game server has passed. Outages count for that: players wait through them too.
fn is_leaving_before_play_penalized(rules: &LifecycleRules, current: &Match, now: UnixMs) -> bool {
    let half_wait_ms = u64::from(rules.hosting.allocation_timeout_ms) / 2;
    let is_early = match current.stage {
        MatchStage::Placing { deadline } | MatchStage::Confirming { deadline, .. } => {
            now.plus_ms(half_wait_ms) < deadline
        }
        MatchStage::ReadyCheck { .. } | MatchStage::Playing { .. } | MatchStage::Ended { .. } => true,
    };
    rules.ready_check_ms.is_some() && is_early
}

/// Whether `users` of the ticket include the player who hosts.
fn is_peer_host_among(current: &Match, ticket_id: TicketId, users: &[UserKey]) -> bool {
    let Some(Assignment::PeerHost { host }) = current.stage.assignment_in_play() else { return false };
    let ticket = current.tickets.iter().find(|ticket| ticket.ticket_id == ticket_id);
    ticket.is_some_and(|ticket| {
        ticket.players.iter().any(|player| player.client == *host && users.contains(&player.user))
    })
}
