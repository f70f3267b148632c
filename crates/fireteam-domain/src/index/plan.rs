//! Query plan: column rules that refuse only rows that `admit_advertisement` refuses, and column terms that never exceed the exact
//! terms.
//!
//! Soundness: all errors favor admitting a row. Limits are rounded up (`round_up_limit`). Distances of numbers and
//! terms are reduced by their `rounding_error`. Relative errors (positions, products, sums of up to 64 terms) stay far
//! below 2^-16 and 2^-14, by which limits and cutoffs are raised: one f32 operation adds 2^-24.

use crate::attribute::AttributeValue;
use crate::filter::Refusal;
use crate::index::certain_prediction::CertainPrediction;
use crate::index::layout::ColumnLayout;
use crate::index::prediction_bound::{BoundPlanes, bound_planes};
use crate::index::query::SearchQuery;
use crate::index::row_rules::RowOwnerKey;
use crate::locality::Locality;
use crate::measure::Measure;
use crate::ruleset::{DistanceCurve, HardFilter, HardMissingPolicy};

/// Lower bound of a distance between the searcher and a row, shared by rules and terms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum DistanceBound {
    /// Difference of two numbers, in column units.
    NumberDifference { column: usize, searcher_value: f32, rounding_error: f32 },
    /// Chord, miles.
    Chord { x_column: usize, searcher_position: [f32; 3] },
    /// Round trip, milliseconds. The searcher's position or best region round trip is NaN if unknown.
    RoundTrip {
        x_column: usize,
        searcher_position: [f32; 3],
        intercept_ms: f32,
        ms_per_mile: f32,
        best_region_ms_column: usize,
        searcher_best_region_ms: f32,
        prediction: Option<PredictionBound>,
    },
}

/// Columns and planes that bound predicted round trips.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PredictionBound {
    /// Column of the near excess of beacon vectors.
    pub(super) near_excess_column: usize,
    /// First of the other columns of beacon vectors.
    pub(super) vector_column: usize,
    pub(super) certain: CertainPrediction,
    /// Whether the round trip to each row of the block is certainly predicted: then the kernel does not read the columns that tell it.
    pub(super) is_certain_for_all: bool,
    pub(super) planes: BoundPlanes,
}

/// Column check: the condition under which a row is certainly refused.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ColumnRefusalCheck {
    /// Refuses all rows.
    RefuseAll,
    /// The distance exceeds the searcher's limit, or the value is missing and `refuse_missing` is set.
    BeyondSearcherLimit { bound_index: usize, limit: f32, refuse_missing: bool },
    /// `reciprocal_share` of the distance exceeds the advertiser's limit: `first_limit`, or the limit of the last
    /// (tick, limit) entry whose tick is not before the row's `advertised_since`.
    BeyondAdvertiserLimit { bound_index: usize, reciprocal_share: f32, first_limit: f32, later_limits: Vec<(u32, f32)> },
    /// The number is outside the range, or is missing and `refuse_missing` is set.
    OutsideRange { column: usize, lower: f32, upper: f32, refuse_missing: bool },
    /// The code is one of `codes`, or none of them if `must_match` is set; or the value is missing and `refuse_missing`
    /// is set. A leaf that shares no bit with `leaf_bits` contains only refused rows.
    InternedCode { column: usize, codes: Vec<u32>, must_match: bool, refuse_missing: bool, leaf_bits: u32 },
    /// The Bloom filters of the string lists share no bit.
    NoSharedBloomBit { column: usize, bits: u64 },
    /// The ruleset hash differs.
    OtherRulesetHash { column: usize, hash: u32 },
}

/// Column check with the counter of its refusals.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CompiledRule {
    pub(super) counter_index: usize,
    pub(super) check: ColumnRefusalCheck,
}

/// Source of a term's distance; `scale * column + shift` normalizes it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum TermSource {
    /// Difference to the searcher's normalized value.
    Difference { column: usize, searcher_value: f32 },
    /// Normalized value of the row itself.
    LowerIsBetter { column: usize },
    /// A shared distance bound.
    DistanceBound { bound_index: usize },
}

/// Soft filter term computed from columns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ColumnTerm {
    pub(super) source: TermSource,
    pub(super) scale: f32,
    pub(super) shift: f32,
    pub(super) rounding_error: f32,
    pub(super) curve: DistanceCurve,
    pub(super) weight: f32,
    /// Term if a value is missing.
    pub(super) missing_value_term: f32,
}

impl ColumnTerm {
    /// Normalized value, in [0, 1].
    #[inline(always)]
    pub(super) fn normalized(&self, value: f32) -> f32 {
        (value * self.scale + self.shift).clamp(0.0, 1.0)
    }

    /// Term of a normalized distance, at most the exact one.
    #[inline(always)]
    pub(super) fn of_distance(&self, distance: f32, curve: impl Fn(f32) -> f32) -> f32 {
        let reduced = distance - self.rounding_error;
        // NaN, which only rows without the value have, becomes 1.
        let reduced = if reduced <= 1.0 { reduced } else { 1.0 };
        self.weight * curve(if reduced < 0.0 { 0.0 } else { reduced })
    }
}

/// Exact computation of a term in f64 from columns, without the entry.
#[derive(Clone, Copy, Debug)]
pub(super) enum ExactColumnTerm {
    /// Same term for all rows.
    Constant(f64),
    /// Difference to the searcher's normalized value.
    Difference { column: usize, searcher_value: f64 },
    /// Normalized value of the row itself.
    LowerIsBetter { column: usize },
    /// Chord.
    Distance,
    /// Round trip by the latency model.
    Latency,
    /// Round trip by the latency model, less the searcher's least to a region.
    DeltaPing { best_region_ms: f64 },
}

/// Plan of one search on columns.
#[derive(Debug)]
pub(super) struct QueryPlan {
    /// Rows that expired before this tick are refused.
    pub(super) now_tick: u32,
    /// Rows with fewer open seats are refused.
    pub(super) seats_needed: u16,
    /// Owners whose rows are the searcher's own sessions.
    pub(super) own_keys: Vec<RowOwnerKey>,
    /// Whether the kernel checks the owner column. Set only after many own rows were found.
    pub(super) check_owner_column: bool,
    /// Interval around the searcher's value, by attribute, for published ranges.
    pub(super) searcher_intervals: Vec<[f32; 2]>,
    /// Counter index of refusals by published ranges.
    pub(super) allowed_range_counter: usize,
    /// Rows to which round trips are certainly predicted.
    pub(super) certain_prediction: CertainPrediction,
    pub(super) distance_bounds: Vec<DistanceBound>,
    /// Hard filters, in the order of `Refusal`.
    pub(super) column_rules: Vec<CompiledRule>,
    pub(super) column_terms: Vec<ColumnTerm>,
    /// Sum of the terms that are equal for all rows, in `score_unit`.
    pub(super) constant_terms: f32,
    /// Unit of the score bounds: the largest soft filter weight, or 1.
    pub(super) score_unit: f64,
    /// Exact terms in the order of `Ruleset::soft_filters`; `None` if a column is missing.
    pub(super) exact_terms: Option<Vec<ExactColumnTerm>>,
    /// Whether columns suffice for the exact score of each row.
    pub(super) exact_from_columns: bool,
    /// Whether round trips are predicted where a row's vector counts.
    pub(super) searcher_predicts: bool,
    /// Whether rows with region round trips must be scored from their entries.
    pub(super) searcher_has_regions: bool,
}

/// Converts a limit to f32, rounded up by more than the relative errors of a compared value.
pub(super) fn round_up_limit(limit: f64) -> f32 {
    ((limit + limit.abs() / 65_536.0) as f32).next_up()
}

impl QueryPlan {
    pub(super) fn add_rule(&mut self, refusal: Refusal, check: ColumnRefusalCheck) {
        self.column_rules.push(CompiledRule { counter_index: refusal.counter_index(), check });
    }

    /// Sets whether the round trip to each row of the next block is certainly predicted.
    pub(super) fn set_certain_for_all(&mut self, is_certain_for_all: bool) {
        for bound in &mut self.distance_bounds {
            if let DistanceBound::RoundTrip { prediction: Some(bound), .. } = bound {
                bound.is_certain_for_all = is_certain_for_all;
            }
        }
    }

    /// Score bound where the distance bound at `bound_index` is the second of these values instead of the first, which is less.
    pub(super) fn raised_bound(&self, bound: f32, bound_index: usize, values: [f32; 2]) -> f32 {
        let terms = self.column_terms.iter().filter(|term| term.source == TermSource::DistanceBound { bound_index });
        terms.fold(bound, |bound, term| {
            let [before, after] = values.map(|value| {
                let distance = term.normalized(value);
                match term.curve {
                    DistanceCurve::Linear => term.of_distance(distance, |distance| distance),
                    DistanceCurve::Quadratic => term.of_distance(distance, |distance| distance * distance),
                    DistanceCurve::SquareRoot => term.of_distance(distance, f32::sqrt),
                }
            });
            bound + (after - before)
        })
    }

    /// Highest score bound of rows that can still have a score of at most `score`.
    pub(super) fn bound_cutoff_for_score(&self, score: f64) -> f32 {
        let cutoff = score / self.score_unit;
        ((cutoff + cutoff.abs() / 16_384.0) as f32).next_up()
    }

    /// Index in `distance_bounds` of the bound for `measure`; adds it if needed. Fails if the searcher lacks the value
    /// or the index has no column.
    pub(super) fn distance_bound_index(
        &mut self,
        query: &SearchQuery<'_>,
        layout: &ColumnLayout,
        measure: Measure,
    ) -> Result<usize, DistanceBoundUnavailable> {
        let bound = distance_bound_for(query, layout, self.certain_prediction, measure)?;
        if let Some(index) = self.distance_bounds.iter().position(|known| *known == bound) {
            return Ok(index);
        }
        self.distance_bounds.push(bound);
        Ok(self.distance_bounds.len() - 1)
    }
}

/// Reason that no distance bound is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DistanceBoundUnavailable {
    /// The searcher lacks the value, so the measure is missing for all rows.
    SearcherValueMissing,
    /// The index has no column for the measure.
    NoColumn,
}

fn distance_bound_for(
    query: &SearchQuery<'_>,
    layout: &ColumnLayout,
    certain: CertainPrediction,
    measure: Measure,
) -> Result<DistanceBound, DistanceBoundUnavailable> {
    let searcher = &query.searcher;
    let position = searcher.locality.map(|locality| [locality.x, locality.y, locality.z]);
    match measure {
        Measure::AttributeDifference(attribute) => {
            let value =
                searcher.attribute_values.number(attribute).ok_or(DistanceBoundUnavailable::SearcherValueMissing)?;
            let column = layout.number_column(attribute).ok_or(DistanceBoundUnavailable::NoColumn)?;
            let number = layout.number_columns[column];
            Ok(DistanceBound::NumberDifference {
                column,
                searcher_value: number.encode_column_value(value),
                rounding_error: number.difference_rounding_error(),
            })
        }
        Measure::PacketLoss | Measure::Jitter | Measure::DeltaPing => {
            Err(DistanceBoundUnavailable::SearcherValueMissing)
        }
        Measure::Distance => {
            let position = position.ok_or(DistanceBoundUnavailable::SearcherValueMissing)?;
            Ok(DistanceBound::Chord {
                x_column: layout.location_column().ok_or(DistanceBoundUnavailable::NoColumn)?,
                searcher_position: position,
            })
        }
        Measure::Latency => {
            let best_region_ms = searcher.region_latencies.iter().map(|region| region.round_trip_ms).reduce(f32::min);
            if position.is_none() && best_region_ms.is_none() {
                return Err(DistanceBoundUnavailable::SearcherValueMissing);
            }
            let (x_column, best_region_ms_column) = layout
                .location_column()
                .zip(layout.best_region_ms_column())
                .ok_or(DistanceBoundUnavailable::NoColumn)?;
            let prediction = match &searcher.predictor {
                None => None,
                Some(predictor) => {
                    let columns = layout.near_excess_column().zip(layout.beacon_vector_column());
                    let (near_excess_column, vector_column) = columns.ok_or(DistanceBoundUnavailable::NoColumn)?;
                    let planes = bound_planes(predictor).ok_or(DistanceBoundUnavailable::NoColumn)?;
                    Some(PredictionBound {
                        near_excess_column,
                        vector_column,
                        certain,
                        is_certain_for_all: false,
                        planes,
                    })
                }
            };
            let model = &query.ruleset.latency_model;
            let (intercept_ms, ms_per_mile) = (model.intercept_ms, model.round_trip_ms(1.0) - model.intercept_ms);
            if !(intercept_ms >= 0.0 && ms_per_mile >= 0.0) {
                return Err(DistanceBoundUnavailable::NoColumn);
            }
            Ok(DistanceBound::RoundTrip {
                x_column,
                searcher_position: position.unwrap_or([f32::NAN; 3]),
                intercept_ms: intercept_ms as f32,
                ms_per_mile: ms_per_mile as f32,
                best_region_ms_column,
                searcher_best_region_ms: best_region_ms.unwrap_or(f32::NAN),
                prediction,
            })
        }
    }
}

/// Whether `filter` refuses missing values.
pub(super) fn refuses_missing(filter: &HardFilter) -> bool {
    filter.missing == HardMissingPolicy::Refuse
}

/// The string of a string value; `None` for other types.
pub(super) fn string_of(value: &AttributeValue) -> Option<&str> {
    match value {
        AttributeValue::String(string) => Some(string),
        AttributeValue::Number(_) | AttributeValue::Bool(_) | AttributeValue::StringList(_) => None,
    }
}

/// Locality from the three location columns; `None` if the row has none.
pub(super) fn locality_from_columns([x, y, z]: [f32; 3]) -> Option<Locality> {
    (!x.is_nan()).then_some(Locality { x, y, z })
}
