//! Conversion of lists of waiting tickets and of matches.

use std::sync::Arc;

use crate::api::convert::operator::lookup::match_stage;
use crate::api::convert::queue::match_end_reason;
use crate::api::convert::{FieldErrors, RequestReader, field_checks};
use crate::api::pb;
use crate::api::status::Rejection;
use crate::domain::id::{SetId, SiloId};
use crate::domain::lifecycle::Match;
use crate::engine::queues::listing::{ListedTicket, MatchList, MatchListQuery, TicketList, TicketListQuery};

/// Default of `max_results`.
const RESULTS_DEFAULT: u32 = 50;
/// Limit of `max_results`.
const RESULTS_MAX: u32 = 200;

/// Reads which tickets to list.
pub(crate) fn list_tickets_query(wire: pb::ListTicketsRequest) -> Result<TicketListQuery, Rejection> {
    let mut problems = RequestReader::default().new_field_errors();
    if wire.matchmaking_set_id.is_none() {
        problems.add("matchmaking_set_id", "is missing; set it to the SetId of a loaded ruleset");
    }
    field_checks::check_text_len(&wire.region, "region", &mut problems);
    field_checks::check_text_len(&wire.blocking_rule, "blocking_rule", &mut problems);
    let max = checked_max_results(wire.max_results, &mut problems);
    problems.into_result(TicketListQuery {
        set_id: SetId(wire.matchmaking_set_id.unwrap_or_default()),
        silo: wire.silo_id.map(SiloId),
        region: wire.region,
        blocking_rule: wire.blocking_rule,
        max,
    })
}

/// Reads which matches to list.
pub(crate) fn list_matches_query(wire: &pb::ListMatchesRequest) -> Result<MatchListQuery, Rejection> {
    let mut problems = RequestReader::default().new_field_errors();
    let max = checked_max_results(wire.max_results, &mut problems);
    let set_id = wire.matchmaking_set_id.map(SetId);
    problems.into_result(MatchListQuery { set_id, only_live: wire.only_live, max })
}

fn checked_max_results(max_results: Option<u32>, problems: &mut FieldErrors) -> usize {
    let max = max_results.unwrap_or(RESULTS_DEFAULT);
    if !(1..=RESULTS_MAX).contains(&max) {
        problems.add("max_results", format!("is {max}; must be from 1 to {RESULTS_MAX}"));
    }
    max as usize
}

/// Converts a list of tickets.
pub(crate) fn list_tickets_response(list: TicketList) -> pb::ListTicketsResponse {
    let ticket = |ticket: ListedTicket| pb::WaitingTicket {
        ticket_id: ticket.id.to_string(),
        silo_id: ticket.silo.0,
        waited_ms: ticket.waited_ms,
        party_size: ticket.player_count.into(),
        nearest_region: ticket.nearest_region.map(Into::into).unwrap_or_default(),
        blocking_rule: ticket.blocking_rule.as_deref().unwrap_or_default().to_owned(),
    };
    pb::ListTicketsResponse {
        tickets: list.tickets.into_iter().map(ticket).collect(),
        truncated: list.is_truncated,
        read_tickets: u32::try_from(list.read_count).unwrap_or(u32::MAX),
    }
}

/// Converts a list of matches.
pub(crate) fn list_matches_response(list: &MatchList) -> pb::ListMatchesResponse {
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let summary = |found: &Arc<Match>| pb::MatchSummary {
        match_id: found.id.to_string(),
        matchmaking_set_id: found.set_id.0,
        silo_id: found.silo.0,
        stage: match_stage(&found.stage).into(),
        end_reason: match_end_reason(found.stage.end_reason()).into(),
        proposed_at_unix_ms: found.proposed_at.0,
        started_at_unix_ms: found.stage.started_at().map(|at| at.0),
        quality: found.quality,
        region: found.region.as_deref().unwrap_or_default().to_owned(),
        tickets: count(found.tickets.len()),
        players: count(found.tickets.iter().map(|ticket| ticket.players.len()).sum()),
    };
    pb::ListMatchesResponse { matches: list.matches.iter().map(summary).collect(), truncated: list.is_truncated }
}
