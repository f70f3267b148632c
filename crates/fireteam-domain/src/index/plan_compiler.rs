//! Compiler from a search query to its plan: hard filters become column checks, soft filters become column terms and
//! exact terms.

use crate::filter::{Refusal, RefusingSide};
use crate::index::certain_prediction::CertainPrediction;
use crate::index::interner::ValueInterner;
use crate::index::layout::{ColumnLayout, TickScale};
use crate::index::plan::{ColumnTerm, DistanceBoundUnavailable, ExactColumnTerm, QueryPlan, TermSource};
use crate::index::query::SearchQuery;
use crate::index::row_rules::{RowOwnerKey, round_outward};
use crate::index::rule_compiler;
use crate::measure::Measure;
use crate::ruleset::{SoftFilter, SoftFilterObjective};
use crate::score::{missing_value_term, term_of_normalized_distance};

/// Compiles the plan of `query` for an index with this layout.
pub(super) fn compile_plan(
    query: &SearchQuery<'_>,
    layout: &ColumnLayout,
    interner: &ValueInterner,
    tick_scale: &TickScale,
    certain_prediction: CertainPrediction,
) -> QueryPlan {
    let weights = query.ruleset.soft_filters.iter().map(|soft| soft.weight);
    let unit = weights.fold(0.0, f64::max);
    let mut plan = QueryPlan {
        now_tick: tick_scale.tick_of(query.now),
        seats_needed: query.searcher.seats_needed,
        own_keys: RowOwnerKey::owner_keys_of_searcher(&query.searcher).collect(),
        check_owner_column: false,
        searcher_intervals: (0..query.ruleset.attributes.len())
            .map(|attribute| round_outward(query.searcher.attribute_values.number(attribute)))
            .collect(),
        allowed_range_counter: Refusal::HardFilter {
            filter_index: query.ruleset.hard_filters.len(),
            side: RefusingSide::Advertiser,
        }
        .counter_index(),
        certain_prediction,
        distance_bounds: Vec::new(),
        column_rules: Vec::new(),
        column_terms: Vec::new(),
        constant_terms: 0.0,
        score_unit: if unit == 0.0 { 1.0 } else { unit },
        exact_terms: None,
        exact_from_columns: false,
        searcher_predicts: query.searcher.predictor.is_some(),
        searcher_has_regions: !query.searcher.region_latencies.is_empty(),
    };
    rule_compiler::compile_hard_filters(&mut plan, query, layout, interner, tick_scale);
    // Outside this range, rounding of weights could exceed the margins. Bounds are then 0, and all rows are scored.
    if (1e-290..1e290).contains(&plan.score_unit) {
        query.ruleset.soft_filters.iter().for_each(|soft| compile_term(&mut plan, query, layout, soft));
    }
    plan.exact_terms = query.ruleset.soft_filters.iter().map(|soft| exact_term_for(query, layout, soft)).collect();
    plan.exact_from_columns =
        plan.exact_terms.is_some() && !plan.searcher_has_regions && query.searcher.predictor.is_none();
    plan
}

/// Adds the column term of a soft filter, or its constant. Adds nothing if no lower bound is possible.
fn compile_term(plan: &mut QueryPlan, query: &SearchQuery<'_>, layout: &ColumnLayout, soft: &SoftFilter) {
    let (weight, missing) =
        ((soft.weight / plan.score_unit) as f32, (missing_value_term(soft) / plan.score_unit) as f32);
    let width = soft.max - soft.min;
    let (source, scale, shift, rounding_error) = match (soft.measure, soft.mode) {
        (Measure::AttributeDifference(attribute), mode) => {
            let Some(column) = layout.number_column(attribute) else { return };
            let number = layout.number_columns[column];
            let (scale, shift) = (number.span / width, (number.offset - soft.min) / width);
            let source = match (mode, query.searcher.attribute_values.number(attribute)) {
                (SoftFilterObjective::Difference, None) => return plan.constant_terms += missing,
                // Clamped like the rows, so that the difference never exceeds the true difference.
                (SoftFilterObjective::Difference, Some(value)) => {
                    let clamped = number.encode_unclamped(value).clamp(-number.max_magnitude, number.max_magnitude);
                    let normalized = clamped * scale + shift;
                    TermSource::Difference { column, searcher_value: normalized.clamp(0.0, 1.0) as f32 }
                }
                // Values clamped from below are stored too high, so no lower bound is possible.
                (SoftFilterObjective::LowerIsBetter, _)
                    if number.encode_unclamped(soft.min) < -number.max_magnitude =>
                {
                    return;
                }
                (SoftFilterObjective::LowerIsBetter, _) => TermSource::LowerIsBetter { column },
            };
            (source, scale, shift, (scale * number.max_magnitude + shift.abs() + 2.0) * 4.0 * f64::from(f32::EPSILON))
        }
        // Known only of rows with probe results, which are judged without columns.
        (Measure::PacketLoss | Measure::Jitter, _) => return plan.constant_terms += missing,
        (measure @ (Measure::Distance | Measure::Latency | Measure::DeltaPing), _) => {
            // Delta ping is latency, less the same value for all rows.
            let (measure, subtracted) = match (measure, query.searcher.session_view().best_region_round_trip_ms()) {
                (Measure::DeltaPing, None) => return plan.constant_terms += missing,
                (Measure::DeltaPing, Some(best_region_ms)) => (Measure::Latency, best_region_ms),
                (measure, _) => (measure, 0.0),
            };
            match plan.distance_bound_index(query, layout, measure) {
                Ok(bound_index) => {
                    let (scale, shift) = (width.recip(), -(soft.min + subtracted) / width);
                    (TermSource::DistanceBound { bound_index }, scale, shift, (shift.abs() + 2.0) / 262_144.0)
                }
                Err(DistanceBoundUnavailable::SearcherValueMissing) => return plan.constant_terms += missing,
                Err(DistanceBoundUnavailable::NoColumn) => return,
            }
        }
    };
    // Outside these ranges, the arithmetic could multiply infinity by zero.
    if (1e-30..1e30).contains(&scale) && shift.abs() < 1e30 {
        let (scale, shift, rounding_error) = (scale as f32, shift as f32, rounding_error as f32);
        plan.column_terms.push(ColumnTerm {
            source,
            scale,
            shift,
            rounding_error,
            curve: soft.curve,
            weight,
            missing_value_term: missing,
        });
    }
}

/// Exact term of a soft filter; `None` if a column is missing.
fn exact_term_for(query: &SearchQuery<'_>, layout: &ColumnLayout, soft: &SoftFilter) -> Option<ExactColumnTerm> {
    let searcher = &query.searcher;
    Some(match (soft.measure, soft.mode) {
        (Measure::AttributeDifference(attribute), SoftFilterObjective::LowerIsBetter) => {
            ExactColumnTerm::LowerIsBetter { column: layout.number_column(attribute)? }
        }
        (Measure::AttributeDifference(attribute), SoftFilterObjective::Difference) => {
            match searcher.attribute_values.number(attribute) {
                None => ExactColumnTerm::Constant(term_of_normalized_distance(soft, None)),
                Some(value) => ExactColumnTerm::Difference {
                    column: layout.number_column(attribute)?,
                    searcher_value: soft.normalize(value),
                },
            }
        }
        (Measure::PacketLoss | Measure::Jitter, _) => {
            ExactColumnTerm::Constant(term_of_normalized_distance(soft, None))
        }
        (Measure::Distance | Measure::Latency | Measure::DeltaPing, _) if searcher.locality.is_none() => {
            ExactColumnTerm::Constant(term_of_normalized_distance(soft, None))
        }
        (Measure::DeltaPing, _) => match searcher.session_view().best_region_round_trip_ms() {
            None => ExactColumnTerm::Constant(term_of_normalized_distance(soft, None)),
            Some(best_region_ms) => layout.location_column().map(|_| ExactColumnTerm::DeltaPing { best_region_ms })?,
        },
        (Measure::Distance, _) => layout.location_column().map(|_| ExactColumnTerm::Distance)?,
        (Measure::Latency, _) => layout.location_column().map(|_| ExactColumnTerm::Latency)?,
    })
}
