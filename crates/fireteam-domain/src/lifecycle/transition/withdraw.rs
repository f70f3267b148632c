//! Tickets that are withdrawn before play, and the end of their match.

use crate::id::TicketId;
use crate::lifecycle::event::{EventResult, Transition};
use crate::lifecycle::rules::LifecycleRules;
use crate::lifecycle::ticket_facts::TicketFacts;
use crate::lifecycle::transition::end::end_match;
use crate::lifecycle::{Match, MatchEndReason, TicketFate};
use crate::queue::ticket::TicketEndReason;
use crate::time::UnixMs;

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
    end_match_for_withdrawn_tickets(rules, current, &[ticket_id], reason, now)
}

/// Withdraws the tickets that were silent for longer than their TTL; `None` if there are none.
pub(super) fn end_match_if_tickets_expired(
    rules: &LifecycleRules,
    current: &Match,
    tickets: &dyn TicketFacts,
    now: UnixMs,
) -> Option<Transition> {
    let ids = current.tickets.iter().map(|ticket| ticket.ticket_id);
    let expired: Vec<TicketId> = ids.filter(|id| tickets.has_expired(*id)).collect();
    (!expired.is_empty())
        .then(|| end_match_for_withdrawn_tickets(rules, current, &expired, TicketEndReason::Expired, now))
}

/// Ends the match before play: `withdrawn` tickets end for `reason`, and the others wait again.
pub(super) fn end_match_for_withdrawn_tickets(
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
