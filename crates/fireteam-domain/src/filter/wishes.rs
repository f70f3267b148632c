//! Evaluation of wishes: each side's own, on the other side's values, at the time that it has waited.

use crate::filter::pair::{WaitingSession, measure_between};
use crate::filter::refusal::{Refusal, RefusingSide};
use crate::location_privacy::{ROUND_TRIP_ROUNDING_MS, round_to_step};
use crate::measure::Measure;
use crate::probe_result::MeasuredOrPredictedRoundTrip;
use crate::ruleset::Ruleset;
use crate::wish::allowed_wishes::subject_in_force;
use crate::wish::{AcceptedValues, Wish, WishSubject};

/// Admits two sessions to each other by their wishes, or returns the first wish that refuses; those of `one` come first.
#[inline(always)]
pub fn admit_mutually_by_wishes(
    ruleset: &Ruleset,
    one: &WaitingSession<'_>,
    other: &WaitingSession<'_>,
    counted: Option<MeasuredOrPredictedRoundTrip>,
) -> Result<(), Refusal> {
    if one.session.wishes.is_empty() && other.session.wishes.is_empty() {
        return Ok(());
    }
    refusals_by_wishes(ruleset, one, other, counted).next().map_or(Ok(()), Err)
}

/// Refusals of all wishes that are not met, those of `one` first, as the searcher's.
pub fn refusals_by_wishes<'a>(
    ruleset: &'a Ruleset,
    one: &'a WaitingSession<'a>,
    other: &'a WaitingSession<'a>,
    counted: Option<MeasuredOrPredictedRoundTrip>,
) -> impl Iterator<Item = Refusal> + 'a {
    let sides = [(one, other, RefusingSide::Searcher), (other, one, RefusingSide::Advertiser)];
    sides.into_iter().flat_map(move |(wishing, wished, side)| {
        wishing.session.wishes.iter().filter_map(move |wish| {
            // A wish that the ruleset no longer allows is ignored, as a filter that it no longer has.
            let subject = subject_in_force(ruleset, wish)?;
            let is_met = match subject {
                WishSubject::Attribute(index) => {
                    wish.accepts_at(wishing.waited_ms, wished.session.attribute_values.get(index))
                }
                WishSubject::Latency => accepts_round_trip(
                    wish,
                    wishing.waited_ms,
                    disclosed_round_trip_ms(ruleset, wishing, wished, counted),
                ),
            };
            (!is_met).then(|| Refusal::HardFilter { filter_index: ruleset.filter_index_of_wish(subject), side })
        })
    })
}

/// Round trip between two sessions as answers tell it: as measured, or rounded, so that wishes locate no one.
fn disclosed_round_trip_ms(
    ruleset: &Ruleset,
    one: &WaitingSession<'_>,
    other: &WaitingSession<'_>,
    counted: Option<MeasuredOrPredictedRoundTrip>,
) -> Option<f64> {
    let exact_ms = match counted {
        Some(MeasuredOrPredictedRoundTrip::Measured { measured, is_as_measured: true, .. }) => {
            return Some(measured.round_trip_ms);
        }
        Some(counted) => counted.round_trip_ms(),
        None => measure_between(ruleset, Measure::Latency, &one.session, &other.session, None)?,
    };
    Some(round_to_step(exact_ms, ROUND_TRIP_ROUNDING_MS))
}

fn accepts_round_trip(wish: &Wish, waited_ms: u64, round_trip_ms: Option<f64>) -> bool {
    let accepted = wish.accepted_at(waited_ms);
    match round_trip_ms {
        Some(round_trip_ms) => accepted.accepts_number(round_trip_ms),
        None => wish.accepts_missing || *accepted == AcceptedValues::Any,
    }
}
