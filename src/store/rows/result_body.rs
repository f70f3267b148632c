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
use crate::domain::queue::ticket::Rated;
use crate::domain::result::{Change, MatchResult, Placed, Report, Unrated, Wanted};
use crate::domain::time::UnixMs;
use crate::store::rows::body::{Name, text};

type ChangeBody = (Name, Option<f64>, Option<f64>, Option<f64>, Option<f64>);

#[derive(Serialize, Deserialize)]
struct ResultBody {
    h: u32,
    s: Vec<(u16, u32, Vec<Name>)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    d: Vec<Name>,
    b: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    l: Option<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    c: Vec<ChangeBody>,
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
const UNRATED: [Unrated; 3] = [Unrated::NoSystem, Unrated::OneSide, Unrated::Disconnected];

/// The text to keep.
pub(super) fn encode(result: &MatchResult) -> String {
    let (report, wanted) = (&result.report, &result.report.wanted);
    let side = |side: &Placed| (side.team, side.rank, side.users.iter().copied().map(Name::of).collect());
    let change = |it: &Change| {
        let [before, after] = [it.before, it.after];
        (Name::of(it.user), Some(before.rating), Some(before.deviation), Some(after.rating), Some(after.deviation))
    };
    let unrated = result.unrated.and_then(|why| UNRATED.iter().position(|known| *known == why));
    text(&ResultBody {
        h: report.hash.0,
        s: report.sides.iter().map(side).collect(),
        d: report.disconnected.iter().copied().map(Name::of).collect(),
        b: report.began.0,
        l: report.duration_ms,
        c: result.changes.iter().map(change).collect(),
        u: unrated.and_then(|at| u8::try_from(at).ok()),
        q: Some(wanted.quality),
        p: wanted.chances.iter().copied().map(Some).collect(),
        g: Some(wanted.gap),
        w: wanted.waits_ms.clone(),
        t: wanted.round_trips_ms.clone(),
        r: wanted.region.clone(),
    })
}

/// The result in a text, but for what has a column of its own: the caller puts that in.
pub(super) fn decode(text: &str) -> Result<MatchResult, serde_json::Error> {
    let body: ResultBody = serde_json::from_str(text)?;
    let number = |number: Option<f64>| number.unwrap_or(f64::NAN);
    let rated = |rating, deviation| Rated { rating: number(rating), deviation: number(deviation) };
    let change = |(user, was, was_unsure, is, is_unsure): ChangeBody| Change {
        user: user.user(),
        before: rated(was, was_unsure),
        after: rated(is, is_unsure),
    };
    let side = |(team, rank, users): (u16, u32, Vec<Name>)| Placed {
        team,
        users: users.into_iter().map(Name::user).collect(),
        rank,
    };
    let unrated = match body.u {
        None => None,
        Some(at) => Some(
            *UNRATED
                .get(usize::from(at))
                .ok_or_else(|| <serde_json::Error as serde::de::Error>::custom(format_args!("{at} is no reason")))?,
        ),
    };
    let report = Report {
        match_id: MatchId::from_bytes([0; 16]),
        set_id: SetId::default(),
        silo: SiloId::default(),
        hash: RulesetHash(body.h),
        sides: body.s.into_iter().map(side).collect(),
        disconnected: body.d.into_iter().map(Name::user).collect(),
        began: UnixMs(body.b),
        duration_ms: body.l,
        wanted: Wanted {
            quality: number(body.q),
            chances: body.p.into_iter().map(number).collect(),
            gap: number(body.g),
            waits_ms: body.w,
            round_trips_ms: body.t,
            region: body.r,
        },
    };
    Ok(MatchResult {
        report,
        payload: [0; 16],
        reported: UnixMs::default(),
        changes: body.c.into_iter().map(change).collect(),
        unrated,
    })
}
