//! Results and ratings as they stand, to the wire.

use std::collections::BTreeMap;

use crate::api::convert::rating::{RatingHistoryQuery, encode_page_token};
use crate::api::pb;
use crate::domain::id::UserKey;
use crate::domain::match_result::{RatingHistoryEntry, RatingUpdate, SideRank, UnratedReason};
use crate::domain::queue::ticket::PlayerRating;
use crate::engine::ratings::command::{FinishedMatch, LeaderboardPage, RatingView, ReportResultAnswer};

/// It is written down.
pub fn report_result_response(answer: ReportResultAnswer) -> pb::ReportResultResponse {
    let change = |(key, change): (UserKey, RatingUpdate)| pb::PlayerRatingChange {
        player_key: key.to_string(),
        before: Some(rating_value(change.before)),
        after: Some(rating_value(change.after)),
    };
    pb::ReportResultResponse {
        rated: answer.result.unrated_reason.is_none(),
        unrated: unrated_reason(answer.result.unrated_reason).into(),
        changes: answer.rating_changes.into_iter().map(change).collect(),
        already_reported: answer.is_replay,
    }
}

fn unrated_reason(why: Option<UnratedReason>) -> pb::UnratedReason {
    match why {
        None => pb::UnratedReason::Unspecified,
        Some(UnratedReason::NoRatingSystem) => pb::UnratedReason::NoRatingSystem,
        Some(UnratedReason::SingleSide) => pb::UnratedReason::OneSide,
        Some(UnratedReason::PlayerLeftEarly) => pb::UnratedReason::Disconnected,
    }
}

fn rating_value(rated: PlayerRating) -> pb::RatingValue {
    pb::RatingValue { rating: rated.rating, deviation: rated.deviation }
}

/// Ratings, in the order asked.
pub fn ratings_response(asked: Vec<String>, users: &[UserKey], views: Vec<RatingView>) -> pb::GetRatingsResponse {
    let named = asked.into_iter().zip(users).zip(views);
    let rating = |((user_id, user), view): ((String, &UserKey), RatingView)| user_rating(user_id, *user, &view);
    pb::GetRatingsResponse { ratings: named.map(rating).collect() }
}

fn user_rating(user_id: String, user: UserKey, view: &RatingView) -> pb::UserRating {
    pb::UserRating {
        user_id,
        user_key: user.to_string(),
        rating: Some(rating_value(view.skill.estimate)),
        rating_low_95: view.interval_95.0,
        rating_high_95: view.interval_95.1,
        matches: view.skill.match_count,
        streak: view.skill.streak,
        provisional: view.is_provisional,
        conservative_rating: view.conservative_rating,
        leaderboard_rank: view.leaderboard_rank.map(|place| u32::try_from(place).unwrap_or(u32::MAX).saturating_add(1)),
    }
}

/// A part of a leaderboard.
pub fn leaderboard_response(page: LeaderboardPage) -> pb::GetLeaderboardResponse {
    let last = page.entries.last().filter(|_| page.has_more);
    let next_page_token = last
        .map_or_else(Vec::new, |(_, at, _)| encode_page_token(at.conservative_rating.to_bits(), at.user.as_bytes()));
    pb::GetLeaderboardResponse {
        entries: page.entries.into_iter().map(|(_, at, view)| user_rating(String::new(), at.user, &view)).collect(),
        total: page.total_entries as u64,
        next_page_token,
    }
}

/// Changes of a rating, latest first: those that were asked for.
pub fn rating_history_response(
    changes: Vec<RatingHistoryEntry>,
    asked: &RatingHistoryQuery,
) -> pb::GetRatingHistoryResponse {
    let mut rest: Vec<RatingHistoryEntry> = changes;
    rest.retain(|it| asked.before.is_none_or(|before| (it.reported_at, it.rated_match_number) < before));
    let more = asked.page_size < rest.len();
    rest.truncate(asked.page_size);
    let last = rest.last().filter(|_| more);
    let next_page_token = last.map_or_else(Vec::new, |it| {
        it.reported_at.0.to_be_bytes().into_iter().chain(it.rated_match_number.to_be_bytes()).collect()
    });
    let change = |it: RatingHistoryEntry| pb::RatingChange {
        match_id: it.match_id.to_string(),
        reported_at_unix_ms: it.reported_at.0,
        rank: it.rank,
        sides: it.side_count,
        before: Some(rating_value(it.before)),
        after: Some(rating_value(it.after)),
        matches: it.rated_match_number,
    };
    pb::GetRatingHistoryResponse { changes: rest.into_iter().map(change).collect(), next_page_token }
}

/// The first `most` finished matches. A page that is empty is asked for again by the token that it was asked for by.
pub fn export_matches_response(
    finished: Vec<FinishedMatch>,
    most: usize,
    asked_after: Vec<u8>,
) -> pb::ExportMatchesResponse {
    let more = most < finished.len();
    let page: Vec<FinishedMatch> = finished.into_iter().take(most).collect();
    let next_page_token = page.last().map_or(asked_after, |last| {
        encode_page_token(last.result.reported_at.0, last.result.report.match_id.as_bytes())
    });
    pb::ExportMatchesResponse { matches: page.iter().map(finished_match).collect(), next_page_token, has_more: more }
}

fn finished_match(finished: &FinishedMatch) -> pb::FinishedMatch {
    let (result, report) = (&finished.result, &finished.result.report);
    let wanted = &report.expectation;
    let changes: BTreeMap<UserKey, &RatingUpdate> = result.rating_updates.iter().map(|it| (it.user, it)).collect();
    let player = |user: &UserKey| pb::FinishedPlayer {
        user_key: user.to_string(),
        before: changes.get(user).map(|it| rating_value(it.before)),
        after: changes.get(user).map(|it| rating_value(it.after)),
    };
    let side = |(at, side): (usize, &SideRank)| pb::FinishedSide {
        team: side.team_index.into(),
        rank: side.rank,
        win_probability: wanted.win_probabilities.get(at).copied(),
        players: side.users.iter().map(player).collect(),
    };
    let trips = wanted.ticket_round_trips_ms.iter().copied().chain(std::iter::repeat(None));
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
        quality: wanted.match_quality,
        rating_gap: wanted.max_rating_gap,
        parties: wanted.ticket_waits_ms.iter().zip(trips).map(party).collect(),
        region: wanted.region.as_deref().unwrap_or_default().to_owned(),
        disconnected_user_keys: report.left_early.iter().map(UserKey::to_string).collect(),
        unrated: unrated_reason(result.unrated_reason).into(),
        feedback_count: finished.feedback_count,
        mean_feedback: (0 < finished.feedback_count)
            .then(|| f64::from(finished.star_sum) / f64::from(finished.feedback_count)),
    }
}
