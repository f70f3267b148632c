//! Soft filters: a weighted sum of named terms, lower is better, 0 is perfect (S1-18).
//!
//! | weights 40/60, ranges -1000..1000 and 0..300      | score |
//! |----------------------------------------------------|-------|
//! | searcher 200 points, 150 ms; candidate 400, 225 ms | 0.19  |
//! | 100 points of difference alone                     | 0.02  |
//! | 10 ms of latency alone, lower is better            | 0.02  |

use crate::domain::filter::{Listed, Searcher, Seen, measure_between};
use crate::domain::measure::Measure;
use crate::domain::ruleset::{Curve, MissingSoft, Ruleset, SoftFilter, SoftMode};

/// The score of `listed` for `searcher`: the terms of all soft filters, added up in file order.
pub fn score(ruleset: &Ruleset, searcher: &Searcher<'_>, listed: &Listed<'_>, round_trip_ms: Option<f64>) -> f64 {
    ruleset.soft.iter().fold(0.0, |sum, soft| sum + term(ruleset, soft, searcher, listed, round_trip_ms))
}

/// How badly two parties of a queue suit each other, whichever of them asks: the worse of both scores.
pub fn score_between(ruleset: &Ruleset, one: &Seen<'_>, other: &Seen<'_>) -> f64 {
    let of =
        |here, there| ruleset.soft.iter().fold(0.0, |sum, soft| sum + term_between(ruleset, soft, here, there, None));
    // What a side alone has counts once from each side; everything else is the same from both.
    let one_sided =
        |soft: &SoftFilter| soft.mode == SoftMode::LowerIsBetter && matches!(soft.measure, Measure::Attribute(_));
    let score: f64 = of(one, other);
    if ruleset.soft.iter().any(one_sided) { score.max(of(other, one)) } else { score }
}

/// One soft filter's part of the score, in [0, weight]. With a measured round trip, distance costs nothing.
pub fn term(
    ruleset: &Ruleset,
    soft: &SoftFilter,
    searcher: &Searcher<'_>,
    listed: &Listed<'_>,
    round_trip_ms: Option<f64>,
) -> f64 {
    term_between(ruleset, soft, &searcher.seen(), &listed.seen(), round_trip_ms)
}

/// The same of any two sessions of which `here` asks.
pub fn term_between(
    ruleset: &Ruleset,
    soft: &SoftFilter,
    here: &Seen<'_>,
    there: &Seen<'_>,
    round_trip_ms: Option<f64>,
) -> f64 {
    let distance = match (soft.mode, soft.measure) {
        (SoftMode::Difference, Measure::Attribute(index)) => {
            let (theirs, ours) = (there.facts.number(index), here.facts.number(index));
            theirs.zip(ours).map(|(theirs, ours)| (soft.norm(theirs) - soft.norm(ours)).abs())
        }
        (SoftMode::LowerIsBetter, Measure::Attribute(index)) => there.facts.number(index).map(|it| soft.norm(it)),
        // A round trip is measured: what the place stood for is known, and the place no longer counts (S1-28).
        (_, Measure::Distance) if round_trip_ms.is_some() => Some(0.0),
        (_, Measure::Latency | Measure::Distance) => {
            measure_between(ruleset, soft.measure, here, there, round_trip_ms).map(|it| soft.norm(it))
        }
    };
    weighed(soft, distance)
}

/// A soft filter's term out of its normalised distance in [0, 1]; `None` when a value is missing.
pub fn weighed(soft: &SoftFilter, distance: Option<f64>) -> f64 {
    match distance {
        Some(distance) => soft.weight * curved(soft.curve, distance),
        None => missing_term(soft),
    }
}

/// What a soft filter adds when it has nothing to go by.
pub fn missing_term(soft: &SoftFilter) -> f64 {
    match soft.missing {
        MissingSoft::Worst => soft.weight,
        MissingSoft::Neutral => soft.weight * 0.5,
    }
}

/// A distance in [0, 1] as a curve sees it; 0 stays 0 and 1 stays 1.
pub fn curved(curve: Curve, distance: f64) -> f64 {
    match curve {
        Curve::Linear => distance,
        Curve::Quadratic => distance * distance,
        Curve::SquareRoot => distance.sqrt(),
    }
}
