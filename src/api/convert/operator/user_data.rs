//! Conversions of operators' calls that erase or export a user.

use crate::api::convert::RequestReader;
use crate::api::convert::hosting::chosen_values;
use crate::api::convert::operator::lookup::{check_reason, required_user, user_log_name_text};
use crate::api::convert::operator::user_adverts::{
    exported_advertisement, exported_player_attributes, exported_reservations_of_user, exported_session_attributes,
    exported_wanted_roles_of_user,
};
use crate::api::convert::rating::{checked_page_size, rating_change, rating_value};
use crate::api::convert::wishes::wishes_to_proto;
use crate::api::pb;
use crate::api::status::Rejection;
use crate::auth::public_user_keys::{KeyPurpose, PublicUserKeySecret};
use crate::domain::chosen_value::ChosenValue;
use crate::domain::id::{MatchId, UserKey};
use crate::domain::lifecycle::Match;
use crate::domain::locality::Locality;
use crate::domain::match_result::MatchResult;
use crate::domain::time::UnixMs;
use crate::engine::queues::operator_command::{
    EraseUserChangedRecords, ExportedRating, StoredTicket, TicketState, UserExportPage,
};

/// Default page size of ExportUser.
const EXPORT_PAGE_SIZE_DEFAULT: usize = 100;

/// Query of ExportUser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExportUserQuery {
    pub(crate) user: UserKey,
    /// Last match of the previous page; `None` for the first page.
    pub(crate) after: Option<MatchId>,
    pub(crate) page_size: usize,
}

/// Reads an EraseUser request: the user, and the reason for the audit log.
pub(crate) fn erase_user_command(
    wire: pb::EraseUserRequest,
    keys: &PublicUserKeySecret,
) -> Result<(UserKey, String), Rejection> {
    let mut problems = RequestReader::default().new_field_errors();
    let user = required_user(&wire.user_id, &wire.user_key, keys, &mut problems);
    check_reason(&wire.reason, &mut problems);
    if !wire.user_id.is_empty() && wire.reason.contains(&wire.user_id) {
        problems.add("reason", "contains user_id; give a reason that does not name the account");
    }
    problems.into_result((user, wire.reason))
}

/// Converts the answer to an erasure.
pub(crate) fn erase_user_response(answer: EraseUserChangedRecords) -> pb::EraseUserResponse {
    let EraseUserChangedRecords { tickets, matches, results } = answer;
    pb::EraseUserResponse { tickets, matches, results }
}

/// Reads an ExportUser request.
pub(crate) fn export_user_query(
    wire: &pb::ExportUserRequest,
    keys: &PublicUserKeySecret,
) -> Result<ExportUserQuery, Rejection> {
    let mut problems = RequestReader::default().new_field_errors();
    let user = required_user(&wire.user_id, &wire.user_key, keys, &mut problems);
    let page_size = checked_page_size(wire.page_size, EXPORT_PAGE_SIZE_DEFAULT, &mut problems);
    let after = match &*wire.page_token {
        [] => None,
        token => {
            let id = token.try_into().ok().map(MatchId::from_bytes);
            if id.is_none() {
                problems.add("page_token", "is not a page token; send next_page_token unchanged");
            }
            id
        }
    };
    problems.into_result(ExportUserQuery { user, after, page_size })
}

/// Converts a page of an export.
pub(crate) fn export_user_response(
    export: &UserExportPage,
    now: UnixMs,
    keys: &PublicUserKeySecret,
) -> pb::ExportUserResponse {
    let user = export.user;
    let last = export.results.last().filter(|_| export.has_more);
    let penalties = export.penalties.iter().map(|(set_id, penalty)| pb::PlayerPenalty {
        matchmaking_set_id: set_id.0,
        level: penalty.level,
        cooldown_ms: penalty.active_cooldown_end(now).map(|until| until.ms_since(now)),
        resets_in_ms: penalty.resets_at.ms_since(now),
    });
    let feedback = export.feedback.iter().map(|given| pb::ExportedFeedback {
        match_id: given.match_id.to_string(),
        stars: given.stars.into(),
        given_at_unix_ms: given.given_at.0,
    });
    let is_player = |stored: &&StoredTicket| stored.ticket.session.players.iter().any(|player| player.user == user);
    let matches = export.matches_without_result.iter().map(|found| exported_match(found, user));
    let results = export.results.iter().map(|(result, chosen)| exported_result(result, chosen, user));
    let operator_key = |user: &UserKey| keys.public_key(KeyPurpose::Operator, *user).to_string();
    pb::ExportUserResponse {
        user_key: keys.public_key(KeyPurpose::Operator, user).to_string(),
        log_key: export.log_name.map_or_else(String::new, user_log_name_text),
        ratings: export.ratings.iter().map(exported_rating).collect(),
        penalties: penalties.collect(),
        tickets: export
            .tickets
            .iter()
            .filter(is_player)
            .map(|stored| exported_ticket(stored, export.user, keys))
            .collect(),
        advertisements: export.adverts.iter().filter_map(|advert| exported_advertisement(advert, user)).collect(),
        reservations: export.adverts.iter().flat_map(|advert| exported_reservations_of_user(advert, user)).collect(),
        blocked_user_keys: export.blocked_users.iter().map(operator_key).collect(),
        feedback: feedback.collect(),
        matches: matches.chain(results).collect(),
        next_page_token: last.map_or_else(Vec::new, |(result, _)| result.report.match_id.as_bytes().to_vec()),
    }
}

fn exported_rating(exported: &ExportedRating) -> pb::ExportedRating {
    let row = &exported.row;
    pb::ExportedRating {
        matchmaking_set_ids: exported.sets.iter().map(|set_id| set_id.0).collect(),
        rating: Some(rating_value(row.rating)),
        volatility: row.volatility,
        matches: row.rated_match_count,
        last_match_at_unix_ms: row.last_match_at.0,
        streak: row.streak,
        abandoned_matches: row.satisfaction.abandoned_matches,
        disputed_matches: row.satisfaction.disputed_matches,
        feedback_count: row.satisfaction.given_feedback_count,
        feedback_sum: row.satisfaction.given_feedback_sum,
        changes: exported.changes.iter().copied().map(rating_change).collect(),
    }
}

fn exported_ticket(stored: &StoredTicket, user: UserKey, keys: &PublicUserKeySecret) -> pb::ExportedTicket {
    let (ticket, session) = (&stored.ticket, &stored.ticket.session);
    let match_id = match stored.state {
        TicketState::Waiting => None,
        TicketState::InMatch(id) => Some(id),
        TicketState::Ended { match_id, .. } => match_id,
    };
    let position = session.locality.map(Locality::to_degrees);
    pb::ExportedTicket {
        ticket_id: ticket.id.to_string(),
        matchmaking_set_id: ticket.set_id.0,
        silo_id: session.silo.0,
        entered_at_unix_ms: ticket.entered_at.0,
        party_size: session.player_count().into(),
        match_id: match_id.map_or_else(String::new, |id| id.to_string()),
        has_ended: matches!(stored.state, TicketState::Ended { .. }),
        latitude: position.map(|(latitude, _)| latitude as f32),
        longitude: position.map(|(_, longitude)| longitude as f32),
        attributes: exported_session_attributes(session),
        player_attributes: exported_player_attributes(session, user),
        wanted_roles: exported_wanted_roles_of_user(session, user),
        wishes: wishes_to_proto(session.wishes()),
        region_latencies: session
            .region_latencies
            .iter()
            .map(|latency| format!("{}={}", latency.region, latency.round_trip_ms))
            .collect(),
        blocked_user_keys: ticket
            .blocked_users
            .iter()
            .map(|user| keys.public_key(KeyPurpose::Operator, *user).to_string())
            .collect(),
    }
}

/// Match without a result.
fn exported_match(found: &Match, user: UserKey) -> pb::ExportedMatch {
    let mut seats =
        found.tickets.iter().flat_map(|ticket| ticket.players.iter().map(move |player| (ticket.team, player)));
    let seat = seats.find(|(_, player)| player.user == user);
    pb::ExportedMatch {
        match_id: found.id.to_string(),
        matchmaking_set_id: found.set_id.0,
        silo_id: found.silo.0,
        started_at_unix_ms: found.stage.started_at().map(|at| at.0),
        team: seat.map_or(0, |(team, _)| team.into()),
        left_early: seat.is_some_and(|(_, player)| player.left_at.is_some()),
        region: found.region.as_deref().unwrap_or_default().to_owned(),
        chosen: chosen_values(&found.chosen_values),
        ..pb::ExportedMatch::default()
    }
}

fn exported_result(result: &MatchResult, chosen: &[ChosenValue], user: UserKey) -> pb::ExportedMatch {
    let report = &result.report;
    let side = report.sides.iter().find(|side| side.users.contains(&user));
    let update = result.rating_updates.iter().find(|update| update.user == user);
    pb::ExportedMatch {
        match_id: report.match_id.to_string(),
        matchmaking_set_id: report.set_id.0,
        silo_id: report.silo.0,
        started_at_unix_ms: Some(report.started_at.0),
        reported_at_unix_ms: Some(result.reported_at.0),
        duration_ms: report.duration_ms,
        team: side.map_or(0, |side| side.team_index.into()),
        rank: side.map_or(0, |side| side.rank),
        sides: u32::try_from(report.sides.len()).unwrap_or(u32::MAX),
        left_early: report.left_early.contains(&user),
        before: update.map(|update| rating_value(update.before)),
        after: update.map(|update| rating_value(update.after)),
        category: update.and_then(|update| update.category_after).map(u32::from),
        region: report.forecast.region.as_deref().unwrap_or_default().to_owned(),
        chosen: chosen_values(chosen),
    }
}
