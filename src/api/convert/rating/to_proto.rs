//! Conversion of ratings, leaderboards, histories and finished matches to responses; cannot fail.

use std::collections::BTreeMap;

use crate::api::convert::rating::paging::{RatingHistoryQuery, encode_page_token};
use crate::api::pb;
use crate::auth::public_user_keys::{KeyPurpose, PublicUserKeySecret};
use crate::domain::id::UserKey;
use crate::domain::match_result::{RatingHistoryEntry, RatingUpdate, SideRank, UnratedReason};
use crate::domain::queue::ticket::PlayerRating;
use crate::engine::ratings::command::{FinishedMatch, LeaderboardPage, RatingView, ReportResultAnswer, ReportState};

/// Converts the answer to a reported result.
pub fn report_result_response(answer: ReportResultAnswer) -> pb::ReportResultResponse {
    let change = |(key, change): (UserKey, RatingUpdate)| pb::PlayerRatingChange {
        player_key: key.to_string(),
        before: Some(rating_value(change.before)),
        after: Some(rating_value(change.after)),
        category: change.category_after.map(u32::from),
    };
    let (state, window_left_ms) = report_state_and_time_left(answer.state);
    let unrated = answer.result.as_ref().and_then(|result| result.unrated_reason);
    pb::ReportResultResponse {
        rated: answer.result.is_some() && unrated.is_none(),
        unrated: unrated_reason(unrated).into(),
        state: state.into(),
        window_left_ms,
        changes: answer.rating_changes.into_iter().map(change).collect(),
        already_reported: answer.is_repeated_report,
    }
}

/// State of a match's reports, and the time left to report.
pub fn report_state_and_time_left(state: ReportState) -> (pb::ReportState, Option<u64>) {
    match state {
        ReportState::Waiting { window_left_ms } => (pb::ReportState::Waiting, Some(window_left_ms)),
        ReportState::Settled => (pb::ReportState::Settled, None),
        ReportState::Held => (pb::ReportState::Held, None),
        ReportState::Disputed => (pb::ReportState::Disputed, None),
        ReportState::Unreported => (pb::ReportState::Unreported, None),
    }
}

fn unrated_reason(reason: Option<UnratedReason>) -> pb::UnratedReason {
    match reason {
        None => pb::UnratedReason::Unspecified,
        Some(UnratedReason::NoRatingSystem) => pb::UnratedReason::NoRatingSystem,
        Some(UnratedReason::SingleSide) => pb::UnratedReason::OneSide,
        Some(UnratedReason::PlayerLeftEarly) => pb::UnratedReason::Disconnected,
        Some(UnratedReason::Disputed) => pb::UnratedReason::Disputed,
    }
}

pub(in crate::api::convert) fn rating_value(rated: PlayerRating) -> pb::RatingValue {
    pb::RatingValue { rating: rated.rating, deviation: rated.deviation }
}

/// Converts ratings, in the order of the requested users.
pub fn ratings_response(
    user_ids: Vec<String>,
    users: &[UserKey],
    views: Vec<RatingView>,
    keys: &PublicUserKeySecret,
) -> pb::GetRatingsResponse {
    let public_key = |user| keys.public_key(KeyPurpose::Leaderboard, user);
    let rows = user_ids.into_iter().zip(users).zip(views);
    let rating =
        |((user_id, user), view): ((String, &UserKey), RatingView)| user_rating(user_id, public_key(*user), &view);
    pb::GetRatingsResponse { ratings: rows.map(rating).collect() }
}

fn user_rating(user_id: String, user_key: UserKey, view: &RatingView) -> pb::UserRating {
    pb::UserRating {
        user_id,
        user_key: user_key.to_string(),
        rating: Some(rating_value(view.skill.estimate)),
        rating_low_95: view.interval_95.0,
        rating_high_95: view.interval_95.1,
        matches: view.skill.match_count,
        streak: view.skill.streak,
        provisional: view.is_provisional,
        conservative_rating: view.conservative_rating,
        category: view.category.map(u32::from),
        leaderboard_rank: view
            .leaderboard_index
            .map(|position| u32::try_from(position).unwrap_or(u32::MAX).saturating_add(1)),
    }
}

/// Converts a leaderboard page.
pub fn leaderboard_response(page: LeaderboardPage, keys: &PublicUserKeySecret) -> pb::GetLeaderboardResponse {
    let public_key = |user| keys.public_key(KeyPurpose::Leaderboard, user);
    let last = page.entries.last().filter(|_| page.has_more);
    let next_page_token = last.map_or_else(Vec::new, |(_, entry, _)| {
        encode_page_token(entry.conservative_rating.to_bits(), public_key(entry.user).as_bytes())
    });
    pb::GetLeaderboardResponse {
        entries: page
            .entries
            .into_iter()
            .map(|(_, entry, view)| user_rating(String::new(), public_key(entry.user), &view))
            .collect(),
        total: page.total_entries as u64,
        next_page_token,
    }
}

/// Converts one page of a rating history, latest first.
pub fn rating_history_response(
    changes: Vec<RatingHistoryEntry>,
    query: &RatingHistoryQuery,
) -> pb::GetRatingHistoryResponse {
    let mut page: Vec<RatingHistoryEntry> = changes;
    page.retain(|entry| query.before.is_none_or(|before| (entry.reported_at, entry.rated_match_number) < before));
    let has_more = page.len() > query.page_size;
    page.truncate(query.page_size);
    let last = page.last().filter(|_| has_more);
    let next_page_token = last.map_or_else(Vec::new, |entry| {
        entry.reported_at.0.to_be_bytes().into_iter().chain(entry.rated_match_number.to_be_bytes()).collect()
    });
    pb::GetRatingHistoryResponse { changes: page.into_iter().map(rating_change).collect(), next_page_token }
}

/// Converts one entry of a rating history.
pub(in crate::api::convert) fn rating_change(entry: RatingHistoryEntry) -> pb::RatingChange {
    pb::RatingChange {
        match_id: entry.match_id.to_string(),
        reported_at_unix_ms: entry.reported_at.0,
        rank: entry.rank,
        sides: entry.side_count,
        before: Some(rating_value(entry.before)),
        after: Some(rating_value(entry.after)),
        matches: entry.rated_match_number,
    }
}

/// Converts at most `page_size` finished matches. An empty page repeats the token of its request.
pub fn export_matches_response(
    finished: Vec<FinishedMatch>,
    page_size: usize,
    requested_after: Vec<u8>,
    keys: &PublicUserKeySecret,
) -> pb::ExportMatchesResponse {
    let has_more = finished.len() > page_size;
    let page: Vec<FinishedMatch> = finished.into_iter().take(page_size).collect();
    let next_page_token = page.last().map_or(requested_after, |last| {
        encode_page_token(last.result.reported_at.0, last.result.report.match_id.as_bytes())
    });
    pb::ExportMatchesResponse {
        matches: page.iter().map(|finished| finished_match(finished, keys)).collect(),
        next_page_token,
        has_more,
    }
}

/// Converts a finished match.
pub fn finished_match(finished: &FinishedMatch, keys: &PublicUserKeySecret) -> pb::FinishedMatch {
    let public_key = |user: &UserKey| keys.public_key(KeyPurpose::Operator, *user).to_string();
    let (result, report) = (&finished.result, &finished.result.report);
    let forecast = &report.forecast;
    let changes: BTreeMap<UserKey, &RatingUpdate> =
        result.rating_updates.iter().map(|update| (update.user, update)).collect();
    let player = |user: &UserKey| pb::FinishedPlayer {
        user_key: public_key(user),
        before: changes.get(user).map(|update| rating_value(update.before)),
        after: changes.get(user).map(|update| rating_value(update.after)),
        category: changes.get(user).and_then(|update| update.category_after).map(u32::from),
    };
    let side = |(index, side): (usize, &SideRank)| pb::FinishedSide {
        team: side.team_index.into(),
        rank: side.rank,
        win_probability: forecast.win_probabilities.get(index).copied(),
        players: side.users.iter().map(player).collect(),
    };
    let round_trips = forecast.ticket_round_trips_ms.iter().copied().chain(std::iter::repeat(None));
    let party =
        |(waited_ms, round_trip_ms): (&u64, Option<f32>)| pb::FinishedParty { waited_ms: *waited_ms, round_trip_ms };
    pb::FinishedMatch {
        match_id: report.match_id.to_string(),
        matchmaking_set_id: report.set_id.0,
        silo_id: report.silo.0,
        service_configuration_hash: report.ruleset_hash.0,
        started_at_unix_ms: report.started_at.0,
        reported_at_unix_ms: result.reported_at.0,
        duration_ms: report.duration_ms,
        sides: report.sides.iter().enumerate().map(side).collect(),
        quality: forecast.match_quality,
        rating_gap: forecast.max_rating_gap,
        parties: forecast.ticket_waits_ms.iter().zip(round_trips).map(party).collect(),
        region: forecast.region.as_deref().unwrap_or_default().to_owned(),
        disconnected_user_keys: report.left_early.iter().map(public_key).collect(),
        unrated: unrated_reason(result.unrated_reason).into(),
        feedback_count: finished.feedback_count,
        mean_feedback: (finished.feedback_count > 0)
            .then(|| f64::from(finished.feedback_sum) / f64::from(finished.feedback_count)),
    }
}
