//! Conversion of the life of a waiting ticket: its entry, widenings and proposed matches, and the next widening.

use std::sync::Arc;

use crate::api::convert::queue::match_end_reason;
use crate::api::pb;
use crate::domain::lifecycle::Match;
use crate::domain::queue::explain::{NextWidening, WidenedLimit, Widening};
use crate::domain::ruleset::Ruleset;
use crate::engine::queues::command::ExplainTicketAnswer;

/// Events of a ticket, oldest first.
pub(super) fn ticket_history(answer: &ExplainTicketAnswer) -> Vec<pb::TicketEvent> {
    let entered = pb::TicketEvent {
        at_unix_ms: answer.entered_at.0,
        kind: pb::TicketEventKind::Entered.into(),
        ..pb::TicketEvent::default()
    };
    let widened = |widening: &Widening| pb::TicketEvent {
        at_unix_ms: widening.at.0,
        kind: pb::TicketEventKind::Widened.into(),
        limits: widened_limits(&answer.ruleset, widening),
        ..pb::TicketEvent::default()
    };
    let mut events: Vec<pb::TicketEvent> = vec![entered];
    events.extend(answer.explanation.past_widenings.iter().map(widened));
    events.extend(answer.proposed_matches.iter().map(proposed));
    events.sort_by_key(|event| event.at_unix_ms);
    events
}

fn proposed(found: &Arc<Match>) -> pb::TicketEvent {
    let players = found.tickets.iter().flat_map(|ticket| &ticket.players);
    let declined = players.filter(|player| player.accepted == Some(false)).count();
    pb::TicketEvent {
        at_unix_ms: found.proposed_at.0,
        kind: pb::TicketEventKind::Proposed.into(),
        match_id: found.id.to_string(),
        end_reason: match_end_reason(found.stage.end_reason()).into(),
        declined: u32::try_from(declined).unwrap_or(u32::MAX),
        ..pb::TicketEvent::default()
    }
}

/// Converts the next widening of a ticket.
pub(super) fn next_widening(answer: &ExplainTicketAnswer) -> Option<pb::NextWidening> {
    let NextWidening { widening, compatible_count, newly_compatible_count } =
        answer.explanation.next_widening.as_ref()?;
    Some(pb::NextWidening {
        in_ms: widening.at.ms_since(answer.read_at),
        limits: widened_limits(&answer.ruleset, widening),
        compatible: *compatible_count,
        newly_compatible: *newly_compatible_count,
    })
}

fn widened_limits(ruleset: &Ruleset, widening: &Widening) -> Vec<pb::ExplainLimit> {
    let limit = |limit: &WidenedLimit| match *limit {
        WidenedLimit::Expansion { expansion, limit } => {
            let name = ruleset.expansions.get(expansion).map_or_else(String::new, |it| it.name.to_string());
            pb::ExplainLimit { name, value: limit }
        }
        WidenedLimit::Window { range } => pb::ExplainLimit { name: "window".to_owned(), value: range.into() },
        WidenedLimit::Groups { extra_groups } => {
            pb::ExplainLimit { name: "group".to_owned(), value: extra_groups.into() }
        }
    };
    widening.limits.iter().map(limit).collect()
}
