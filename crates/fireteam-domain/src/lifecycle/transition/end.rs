//! End of a match: fates of its tickets, users at fault, and seats to release.

use crate::id::UserKey;
use crate::lifecycle::event::{EventResult, MatchEffect, Transition};
use crate::lifecycle::rules::{ENDED_MATCH_RETENTION_MS, LifecycleRules};
use crate::lifecycle::{Assignment, Match, MatchEndReason, MatchPlayer, MatchStage, MatchTicket, TicketFate};
use crate::queue::ticket::TicketEndReason;
use crate::time::UnixMs;

pub(super) fn apply_end_report(
    rules: &LifecycleRules,
    current: &Match,
    reported_by: Option<UserKey>,
    now: UnixMs,
) -> Transition {
    let is_player = |user| current.tickets.iter().flat_map(|ticket| &ticket.players).any(|player| player.user == user);
    match current.stage {
        _ if reported_by.is_some_and(|user| !is_player(user)) => Transition::unchanged(EventResult::UnknownParticipant),
        MatchStage::Playing { .. } => {
            let mut heard = current.clone();
            let reporter = |ticket: &&MatchTicket| ticket.players.iter().any(|player| Some(player.user) == reported_by);
            if let Some(ticket) = current.tickets.iter().find(reporter) {
                heard.side_reports.add_ticket_heard_in_play(ticket.ticket_id);
            }
            end_match(rules, &heard, MatchEndReason::Played, now)
        }
        MatchStage::Ended { end_reason: MatchEndReason::Played, .. } => {
            Transition::unchanged(EventResult::AlreadyApplied)
        }
        MatchStage::ReadyCheck { .. }
        | MatchStage::Placing { .. }
        | MatchStage::Confirming { .. }
        | MatchStage::Ended { .. } => Transition::unchanged(EventResult::WrongStage),
    }
}

/// Ends the match: requeues or ends its tickets, and lists the users who declined. A ticket whose players have all left has
/// ended already.
pub(super) fn end_match(
    rules: &LifecycleRules,
    current: &Match,
    end_reason: MatchEndReason,
    now: UnixMs,
) -> Transition {
    let players = current.tickets.iter().flat_map(|ticket| &ticket.players);
    let declined = players.filter(|player| end_reason == MatchEndReason::Declined && player.accepted == Some(false));
    let penalized_users = declined.map(|player| player.user).collect();
    let was_playing = matches!(current.stage, MatchStage::Playing { .. });
    let is_in_match = |ticket: &&MatchTicket| ticket.players.iter().any(|player| player.left_at.is_none());
    let ticket_fates = current
        .tickets
        .iter()
        .filter(is_in_match)
        .map(|ticket| {
            (ticket.ticket_id, without_requeue_in_session_match(current, ticket_fate(ticket, end_reason, was_playing)))
        })
        .collect();
    let released = current.stage.assignment_since_confirming().filter(|_| current.stage.end_reason().is_none());
    let effects = released.and_then(reservation_release_effect).into_iter().collect();
    let (started_at, assignment) = match &current.stage {
        MatchStage::Playing { assignment, started_at, .. } => {
            // A match that its game server gave up does not count as played together. A cancelled one does, but it has
            // no results.
            let counts_as_met = end_reason != MatchEndReason::ServerFailed;
            let may_have_result = counts_as_met && end_reason != MatchEndReason::Cancelled;
            (counts_as_met.then_some(*started_at), may_have_result.then(|| assignment.clone()))
        }
        _ => (None, None),
    };
    let mut ended = current.clone();
    // Without its hosting player, a match has a result only if the others report it in time.
    if end_reason == MatchEndReason::HostLost && was_playing && matches!(assignment, Some(Assignment::PeerHost { .. }))
    {
        let window_ends_at = now.plus_ms(u64::from(rules.hosting.report_window_ms));
        ended.side_reports.window_ends_at.get_or_insert(window_ends_at);
    }
    let past_match_end = started_at.map_or(now, |started_at| started_at.plus_ms(rules.past_match_retention_ms));
    let purge_at = now.plus_ms(ENDED_MATCH_RETENTION_MS).max(past_match_end);
    Transition {
        ticket_fates,
        penalized_users,
        ..Transition::to_stage(&ended, MatchStage::Ended { end_reason, started_at, assignment, purge_at }, effects)
    }
}

/// Whether a player is the reason that the ready check failed. Whether that is a fault depends on more.
fn player_failed_ready_check(player: &MatchPlayer, end_reason: MatchEndReason) -> bool {
    match end_reason {
        MatchEndReason::Declined => player.accepted == Some(false),
        MatchEndReason::NotAcceptedInTime => player.accepted != Some(true),
        _ => false,
    }
}

fn ticket_fate(ticket: &MatchTicket, end_reason: MatchEndReason, was_playing: bool) -> TicketFate {
    let has_failed_player = ticket.players.iter().any(|player| player_failed_ready_check(player, end_reason));
    match end_reason {
        MatchEndReason::Played | MatchEndReason::TimedOut | MatchEndReason::Abandoned => {
            TicketFate::Ended(TicketEndReason::Played)
        }
        MatchEndReason::HostLost if was_playing => TicketFate::Ended(TicketEndReason::Played),
        MatchEndReason::Declined if has_failed_player => TicketFate::Ended(TicketEndReason::Declined),
        MatchEndReason::NotAcceptedInTime if has_failed_player => TicketFate::Ended(TicketEndReason::NotAcceptedInTime),
        // A party that has lost a player cannot wait again as it is.
        _ if ticket.players.iter().any(|player| player.left_at.is_some()) => TicketFate::Ended(TicketEndReason::Left),
        // Users are not at fault if a host failed, no server was found, or an operator cancelled.
        MatchEndReason::Declined
        | MatchEndReason::NotAcceptedInTime
        | MatchEndReason::NoServer
        | MatchEndReason::ServerFailed
        | MatchEndReason::HostLost
        | MatchEndReason::Cancelled => TicketFate::Requeued,
    }
}

/// Fate of a ticket of `current`: the tickets of a session's match never waited, so they do not wait again.
fn without_requeue_in_session_match(current: &Match, fate: TicketFate) -> TicketFate {
    match fate {
        TicketFate::Requeued if current.session_match_start_by_host.is_some() => {
            TicketFate::Ended(TicketEndReason::EndedByServer)
        }
        fate => fate,
    }
}

pub(super) fn reservation_release_effect(assignment: &Assignment) -> Option<MatchEffect> {
    match assignment {
        Assignment::GameServer { advertisement, reservation: Some(reservation), .. } => {
            Some(MatchEffect::ReleaseReservation { advertisement: *advertisement, reservation: *reservation })
        }
        Assignment::GameServer { reservation: None, .. } | Assignment::PeerHost { .. } | Assignment::Unhosted => None,
    }
}
