//! The parts of a result that SQL never asks about, as one JSON text with short keys, as `body.rs` has them.
//!
//! | key | what | | key | what |
//! |---|---|---|---|---|
//! | `h` | ruleset hash | | `q` | quality |
//! | `s` | sides: team, rank, users | | `p` | chances of the sides |
//! | `d` | users who had left | | `g` | gap |
//! | `b` | began | | `w` | waits |
//! | `l` | how long it was played | | `t` | round trips, null where unknown |
//! | `c` | changes: user, rating and deviation before, and after | | `r` | region |
//! | `u` | why nothing was rated, in the order of `Unrated` | | | |
//!
//! What is absent or empty has no key, and a key that is not known is passed over. A number that JSON has no word for is null and
//! comes back as no number.

use serde::{Deserialize, Serialize};

use crate::domain::id::{MatchId, RulesetHash, SetId, SiloId};
use crate::domain::match_result::{MatchExpectation, MatchResult, RatingUpdate, ResultReport, SideRank, UnratedReason};
use crate::domain::queue::ticket::PlayerRating;
use crate::domain::time::UnixMs;
use crate::store::rows::body::{HexKey, to_json_text};

type RatingUpdateBody = (HexKey, Option<f64>, Option<f64>, Option<f64>, Option<f64>);

#[derive(Serialize, Deserialize)]
struct ResultBody {
    h: u32,
    s: Vec<(u16, u32, Vec<HexKey>)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    d: Vec<HexKey>,
    b: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    l: Option<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    c: Vec<RatingUpdateBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    u: Option<u8>,
    q: Option<f64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    p: Vec<Option<f64>>,
    g: Option<f64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    w: Vec<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    t: Vec<Option<f32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    r: Option<Box<str>>,
}

/// Why nothing was rated, by the number that stands for it.
const UNRATED_REASONS: [UnratedReason; 3] =
    [UnratedReason::NoRatingSystem, UnratedReason::SingleSide, UnratedReason::PlayerLeftEarly];

/// The text to keep.
pub(super) fn encode_result(result: &MatchResult) -> String {
    let (report, wanted) = (&result.report, &result.report.expectation);
    let side =
        |side: &SideRank| (side.team_index, side.rank, side.users.iter().copied().map(HexKey::from_user_key).collect());
    let change = |it: &RatingUpdate| {
        let [before, after] = [it.before, it.after];
        (
            HexKey::from_user_key(it.user),
            Some(before.rating),
            Some(before.deviation),
            Some(after.rating),
            Some(after.deviation),
        )
    };
    let unrated = result.unrated_reason.and_then(|why| UNRATED_REASONS.iter().position(|known| *known == why));
    to_json_text(&ResultBody {
        h: report.ruleset_hash.0,
        s: report.sides.iter().map(side).collect(),
        d: report.left_early.iter().copied().map(HexKey::from_user_key).collect(),
        b: report.started_at.0,
        l: report.duration_ms,
        c: result.rating_updates.iter().map(change).collect(),
        u: unrated.and_then(|at| u8::try_from(at).ok()),
        q: Some(wanted.match_quality),
        p: wanted.win_probabilities.iter().copied().map(Some).collect(),
        g: Some(wanted.max_rating_gap),
        w: wanted.ticket_waits_ms.clone(),
        t: wanted.ticket_round_trips_ms.clone(),
        r: wanted.region.clone(),
    })
}

/// The result in a text, but for what has a column of its own: the caller puts that in.
pub(super) fn decode_result(text: &str) -> Result<MatchResult, serde_json::Error> {
    let body: ResultBody = serde_json::from_str(text)?;
    let number = |number: Option<f64>| number.unwrap_or(f64::NAN);
    let rated = |rating, deviation| PlayerRating { rating: number(rating), deviation: number(deviation) };
    let change = |(user, was, was_unsure, is, is_unsure): RatingUpdateBody| RatingUpdate {
        user: user.user_key(),
        before: rated(was, was_unsure),
        after: rated(is, is_unsure),
    };
    let side = |(team, rank, users): (u16, u32, Vec<HexKey>)| SideRank {
        team_index: team,
        users: users.into_iter().map(HexKey::user_key).collect(),
        rank,
    };
    let unrated = match body.u {
        None => None,
        Some(at) => Some(
            *UNRATED_REASONS
                .get(usize::from(at))
                .ok_or_else(|| <serde_json::Error as serde::de::Error>::custom(format_args!("{at} is no reason")))?,
        ),
    };
    let report = ResultReport {
        match_id: MatchId::from_bytes([0; 16]),
        set_id: SetId::default(),
        silo: SiloId::default(),
        ruleset_hash: RulesetHash(body.h),
        sides: body.s.into_iter().map(side).collect(),
        left_early: body.d.into_iter().map(HexKey::user_key).collect(),
        started_at: UnixMs(body.b),
        duration_ms: body.l,
        expectation: MatchExpectation {
            match_quality: number(body.q),
            win_probabilities: body.p.into_iter().map(number).collect(),
            max_rating_gap: number(body.g),
            ticket_waits_ms: body.w,
            ticket_round_trips_ms: body.t,
            region: body.r,
        },
    };
    Ok(MatchResult {
        report,
        report_digest: [0; 16],
        reported_at: UnixMs::default(),
        rating_updates: body.c.into_iter().map(change).collect(),
        unrated_reason: unrated,
    })
}
