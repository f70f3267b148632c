//! Results and ratings as they stand, to the wire.

use std::collections::BTreeMap;

use crate::api::convert::rating::{AskedHistory, token};
use crate::api::pb;
use crate::domain::id::UserKey;
use crate::domain::queue::ticket::Rated;
use crate::domain::result::{Change, Placed, RatingChange, Unrated};
use crate::engine::ratings::command::{BoardPage, Finished, RatingView, ReportAnswer};

/// It is written down.
pub fn reported(answer: ReportAnswer) -> pb::ReportResultResponse {
    let change = |(key, change): (UserKey, Change)| pb::PlayerRatingChange {
        player_key: key.to_string(),
        before: Some(value(change.before)),
        after: Some(value(change.after)),
    };
    pb::ReportResultResponse {
        rated: answer.result.unrated.is_none(),
        unrated: unrated(answer.result.unrated).into(),
        changes: answer.changes.into_iter().map(change).collect(),
        already_reported: answer.replayed,
    }
}

fn unrated(why: Option<Unrated>) -> pb::UnratedReason {
    match why {
        None => pb::UnratedReason::Unspecified,
        Some(Unrated::NoSystem) => pb::UnratedReason::NoRatingSystem,
        Some(Unrated::OneSide) => pb::UnratedReason::OneSide,
        Some(Unrated::Disconnected) => pb::UnratedReason::Disconnected,
    }
}

fn value(rated: Rated) -> pb::RatingValue {
    pb::RatingValue { rating: rated.rating, deviation: rated.deviation }
}

/// Ratings, in the order asked.
pub fn ratings(asked: Vec<String>, users: &[UserKey], views: Vec<RatingView>) -> pb::GetRatingsResponse {
    let named = asked.into_iter().zip(users).zip(views);
    let rating = |((user_id, user), view): ((String, &UserKey), RatingView)| of_view(user_id, *user, &view);
    pb::GetRatingsResponse { ratings: named.map(rating).collect() }
}

fn of_view(user_id: String, user: UserKey, view: &RatingView) -> pb::UserRating {
    pb::UserRating {
        user_id,
        user_key: user.to_string(),
        rating: Some(value(view.skill.rated)),
        rating_low_95: view.interval.0,
        rating_high_95: view.interval.1,
        matches: view.skill.matches,
        streak: view.skill.streak,
        provisional: view.provisional,
        conservative_rating: view.score,
        leaderboard_rank: view.place.map(|place| u32::try_from(place).unwrap_or(u32::MAX).saturating_add(1)),
    }
}

/// A part of a leaderboard.
pub fn leaderboard(page: BoardPage) -> pb::GetLeaderboardResponse {
    let last = page.entries.last().filter(|_| page.more);
    let next_page_token = last.map_or_else(Vec::new, |(_, at, _)| token(at.score.to_bits(), at.user.as_bytes()));
    pb::GetLeaderboardResponse {
        entries: page.entries.into_iter().map(|(_, at, view)| of_view(String::new(), at.user, &view)).collect(),
        total: page.total as u64,
        next_page_token,
    }
}

/// Changes of a rating, latest first: those that were asked for.
pub fn history(changes: Vec<RatingChange>, asked: &AskedHistory) -> pb::GetRatingHistoryResponse {
    let mut rest: Vec<RatingChange> = changes;
    rest.retain(|it| asked.before.is_none_or(|before| (it.at, it.number) < before));
    let more = asked.most < rest.len();
    rest.truncate(asked.most);
    let last = rest.last().filter(|_| more);
    let next_page_token =
        last.map_or_else(Vec::new, |it| it.at.0.to_be_bytes().into_iter().chain(it.number.to_be_bytes()).collect());
    let change = |it: RatingChange| pb::RatingChange {
        match_id: it.match_id.to_string(),
        reported_at_unix_ms: it.at.0,
        rank: it.rank,
        sides: it.sides,
        before: Some(value(it.before)),
        after: Some(value(it.after)),
        matches: it.number,
    };
    pb::GetRatingHistoryResponse { changes: rest.into_iter().map(change).collect(), next_page_token }
}

/// The first `most` finished matches. A page that is empty is asked for again by the token that it was asked for by.
pub fn exported(finished: Vec<Finished>, most: usize, asked_after: Vec<u8>) -> pb::ExportMatchesResponse {
    let more = most < finished.len();
    let page: Vec<Finished> = finished.into_iter().take(most).collect();
    let next_page_token =
        page.last().map_or(asked_after, |last| token(last.result.reported.0, last.result.report.match_id.as_bytes()));
    pb::ExportMatchesResponse { matches: page.iter().map(finished_match).collect(), next_page_token, has_more: more }
}

fn finished_match(finished: &Finished) -> pb::FinishedMatch {
    let (result, report) = (&finished.result, &finished.result.report);
    let wanted = &report.wanted;
    let changes: BTreeMap<UserKey, &Change> = result.changes.iter().map(|it| (it.user, it)).collect();
    let player = |user: &UserKey| pb::FinishedPlayer {
        user_key: user.to_string(),
        before: changes.get(user).map(|it| value(it.before)),
        after: changes.get(user).map(|it| value(it.after)),
    };
    let side = |(at, side): (usize, &Placed)| pb::FinishedSide {
        team: side.team.into(),
        rank: side.rank,
        win_probability: wanted.chances.get(at).copied(),
        players: side.users.iter().map(player).collect(),
    };
    let trips = wanted.round_trips_ms.iter().copied().chain(std::iter::repeat(None));
    let party =
        |(waited_ms, round_trip_ms): (&u64, Option<f32>)| pb::FinishedParty { waited_ms: *waited_ms, round_trip_ms };
    pb::FinishedMatch {
        match_id: report.match_id.to_string(),
        matchmaking_set_id: report.set_id.0,
        silo_id: report.silo.0,
        service_configuration_hash: report.hash.0,
        started_at_unix_ms: report.began.0,
        reported_at_unix_ms: result.reported.0,
        duration_ms: report.duration_ms,
        sides: report.sides.iter().enumerate().map(side).collect(),
        quality: wanted.quality,
        rating_gap: wanted.gap,
        parties: wanted.waits_ms.iter().zip(trips).map(party).collect(),
        region: wanted.region.as_deref().unwrap_or_default().to_owned(),
        disconnected_user_keys: report.disconnected.iter().map(UserKey::to_string).collect(),
        unrated: unrated(result.unrated).into(),
        feedback_count: finished.scores,
        mean_feedback: (0 < finished.scores).then(|| f64::from(finished.score_sum) / f64::from(finished.scores)),
    }
}
