//! JSON encoding of the parts of a match result without a column, with short keys, as in `adverts/row_body.rs`.
//!
//! | key | content | | key | content |
//! |---|---|---|---|---|
//! | `h` | ruleset hash | | `q` | quality |
//! | `s` | sides: team, rank, users | | `p` | win probabilities of the sides |
//! | `d` | users who left early | | `g` | rating gap |
//! | `f` | of these, users who left by their own call | | `x` | users of the sides whose reports contradict each other |
//! | `b` | start | | `w` | waiting times |
//! | `l` | duration | | `t` | round trips, null if unknown |
//! | `c` | rating updates: user, rating and deviation before, and after | | `r` | region |
//! | `u` | reason why the match was not rated, as index in `UNRATED_REASONS` | | `k` | categories after the rating updates, in their order |
//!
//! Absent and empty values have no key. A row with an unknown key is left to newer servers, as in
//! `adverts/row_body.rs`. NaN and infinity become null and are read as NaN.

use serde::{Deserialize, Serialize};

use crate::domain::id::{MatchId, RulesetHash, SetId, SiloId};
use crate::domain::match_result::{MatchForecast, MatchResult, RatingUpdate, ResultReport, SideRank, UnratedReason};
use crate::domain::queue::ticket::PlayerRating;
use crate::domain::time::UnixMs;
use crate::store::adverts::row_body::{HexKey, to_json_text};

type RatingUpdateBody = (HexKey, Option<f64>, Option<f64>, Option<f64>, Option<f64>);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ResultBody {
    #[serde(rename = "h")]
    ruleset_hash: u32,
    #[serde(rename = "s")]
    sides: Vec<(u16, u32, Vec<HexKey>)>,
    #[serde(rename = "d", default, skip_serializing_if = "Vec::is_empty")]
    left_early: Vec<HexKey>,
    #[serde(rename = "f", default, skip_serializing_if = "Vec::is_empty")]
    left_by_call: Vec<HexKey>,
    #[serde(rename = "x", default, skip_serializing_if = "Vec::is_empty")]
    disputing_users: Vec<HexKey>,
    #[serde(rename = "b")]
    started_at_ms: u64,
    #[serde(rename = "l", skip_serializing_if = "Option::is_none")]
    duration_ms: Option<u64>,
    #[serde(rename = "c", default, skip_serializing_if = "Vec::is_empty")]
    rating_updates: Vec<RatingUpdateBody>,
    #[serde(rename = "k", default, skip_serializing_if = "Vec::is_empty")]
    categories: Vec<u16>,
    #[serde(rename = "u", skip_serializing_if = "Option::is_none")]
    unrated_reason: Option<u8>,
    #[serde(rename = "q")]
    match_quality: Option<f64>,
    #[serde(rename = "p", default, skip_serializing_if = "Vec::is_empty")]
    win_probabilities: Vec<Option<f64>>,
    #[serde(rename = "g")]
    max_rating_gap: Option<f64>,
    #[serde(rename = "w", default, skip_serializing_if = "Vec::is_empty")]
    ticket_waits_ms: Vec<u64>,
    #[serde(rename = "t", default, skip_serializing_if = "Vec::is_empty")]
    ticket_round_trips_ms: Vec<Option<f32>>,
    #[serde(rename = "r", skip_serializing_if = "Option::is_none")]
    region: Option<Box<str>>,
}

/// Reasons why a match was not rated, in the order of their stored numbers.
const UNRATED_REASONS: [UnratedReason; 4] =
    [UnratedReason::NoRatingSystem, UnratedReason::SingleSide, UnratedReason::PlayerLeftEarly, UnratedReason::Disputed];

pub(in crate::store) fn encode_result(result: &MatchResult) -> String {
    let (report, forecast) = (&result.report, &result.report.forecast);
    let side =
        |side: &SideRank| (side.team_index, side.rank, side.users.iter().copied().map(HexKey::from_user_key).collect());
    let update = |update: &RatingUpdate| {
        let [before, after] = [update.before, update.after];
        (
            HexKey::from_user_key(update.user),
            Some(before.rating),
            Some(before.deviation),
            Some(after.rating),
            Some(after.deviation),
        )
    };
    let reason_index =
        result.unrated_reason.and_then(|reason| UNRATED_REASONS.iter().position(|known| *known == reason));
    to_json_text(&ResultBody {
        ruleset_hash: report.ruleset_hash.0,
        sides: report.sides.iter().map(side).collect(),
        left_early: report.left_early.iter().copied().map(HexKey::from_user_key).collect(),
        left_by_call: report.always_rated_leavers.iter().copied().map(HexKey::from_user_key).collect(),
        disputing_users: report.disputing_users.iter().copied().map(HexKey::from_user_key).collect(),
        started_at_ms: report.started_at.0,
        duration_ms: report.duration_ms,
        rating_updates: result.rating_updates.iter().map(update).collect(),
        categories: result.rating_updates.iter().filter_map(|update| update.category_after).collect(),
        unrated_reason: reason_index.and_then(|index| u8::try_from(index).ok()),
        match_quality: Some(forecast.match_quality),
        win_probabilities: forecast.win_probabilities.iter().copied().map(Some).collect(),
        max_rating_gap: Some(forecast.max_rating_gap),
        ticket_waits_ms: forecast.ticket_waits_ms.clone(),
        ticket_round_trips_ms: forecast.ticket_round_trips_ms.clone(),
        region: forecast.region.clone(),
    })
}

/// Decodes a result. The caller sets the values that have a column.
pub(in crate::store) fn decode_result(text: &str) -> Result<MatchResult, serde_json::Error> {
    let body: ResultBody = serde_json::from_str(text)?;
    let number = |number: Option<f64>| number.unwrap_or(f64::NAN);
    let player_rating = |rating, deviation| PlayerRating { rating: number(rating), deviation: number(deviation) };
    let update = |(user, before, deviation_before, after, deviation_after): RatingUpdateBody| RatingUpdate {
        user: user.user_key(),
        before: player_rating(before, deviation_before),
        after: player_rating(after, deviation_after),
        category_after: None,
    };
    let side = |(team_index, rank, users): (u16, u32, Vec<HexKey>)| SideRank {
        team_index,
        users: users.into_iter().map(HexKey::user_key).collect(),
        rank,
    };
    let unrated_reason = match body.unrated_reason {
        None => None,
        Some(index) => Some(*UNRATED_REASONS.get(usize::from(index)).ok_or_else(|| {
            <serde_json::Error as serde::de::Error>::custom(format_args!("unknown unrated reason {index}"))
        })?),
    };
    let report = ResultReport {
        match_id: MatchId::from_bytes([0; 16]),
        set_id: SetId::default(),
        silo: SiloId::default(),
        ruleset_hash: RulesetHash(body.ruleset_hash),
        sides: body.sides.into_iter().map(side).collect(),
        left_early: body.left_early.into_iter().map(HexKey::user_key).collect(),
        always_rated_leavers: body.left_by_call.into_iter().map(HexKey::user_key).collect(),
        disputing_users: body.disputing_users.into_iter().map(HexKey::user_key).collect(),
        started_at: UnixMs(body.started_at_ms),
        duration_ms: body.duration_ms,
        forecast: MatchForecast {
            match_quality: number(body.match_quality),
            win_probabilities: body.win_probabilities.into_iter().map(number).collect(),
            max_rating_gap: number(body.max_rating_gap),
            ticket_waits_ms: body.ticket_waits_ms,
            ticket_round_trips_ms: body.ticket_round_trips_ms,
            region: body.region,
        },
    };
    let mut rating_updates: Vec<RatingUpdate> = body.rating_updates.into_iter().map(update).collect();
    if !body.categories.is_empty() && body.categories.len() != rating_updates.len() {
        let (categories, updates) = (body.categories.len(), rating_updates.len());
        let text = format_args!("{categories} categories for {updates} rating updates");
        return Err(<serde_json::Error as serde::de::Error>::custom(text));
    }
    for (update, category) in rating_updates.iter_mut().zip(body.categories) {
        update.category_after = Some(category);
    }
    Ok(MatchResult { report, report_digest: [0; 16], reported_at: UnixMs::default(), rating_updates, unrated_reason })
}
