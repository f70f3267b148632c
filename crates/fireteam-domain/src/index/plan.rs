//! From a query to what is asked of each column: rules that refuse for certain, and terms that are never too large.
//!
//! Soundness. Whatever a column says is held against the exact rule with an error margin on the side of letting a row
//! through: limits are rounded up (`up`), distances between numbers are lessened by their `slack`, terms by theirs.
//! Errors in proportion to a value (places, products, sums of up to 64 terms) stay far below the 2^-16 and 2^-14 by
//! which limits and thresholds are raised: an f32 operation adds 2^-24.

use crate::attribute::AttributeValue;
use crate::filter::{Refusal, RefusingSide};
use crate::index::SearchQuery;
use crate::index::layout::{ColumnLayout, TickScale};
use crate::index::row_rules::{RowOwner, value_interval};
use crate::locality::Locality;
use crate::measure::Measure;
use crate::ruleset::{DistanceCurve, HardFilter, HardMissingPolicy, SoftFilter, SoftFilterMode};
use crate::score::{missing_value_term, weighted_term};

/// Something between the searcher and a row that several rules and terms read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum DistanceBound {
    /// The difference of two numbers, in units of the column.
    NumberDifference { column: usize, searcher_value: f32, rounding_error: f32 },
    /// The chord, miles.
    Chord { x_column: usize, searcher_position: [f32; 3] },
    /// The round trip, milliseconds. NaN for the searcher's place or best region that is not known.
    RoundTrip {
        x_column: usize,
        searcher_position: [f32; 3],
        intercept_ms: f32,
        ms_per_mile: f32,
        best_region_column: usize,
        searcher_best_region_ms: f32,
    },
}

/// When a row is refused for certain.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ColumnCheck {
    /// Always.
    RefuseAll,
    /// The gauge is beyond the searcher's limit, or there is a gap and gaps are refused.
    BeyondSearcherLimit { bound_index: usize, limit: f32, refuse_missing: bool },
    /// That share of the gauge is beyond the advertiser's limit: `first`, or the value of the last of `steps` whose
    /// tick is not before the row's `since`.
    BeyondAdvertiserLimit { bound_index: usize, reciprocal_share: f32, first_limit: f32, later_limits: Vec<(u32, f32)> },
    /// The number lies outside.
    OutsideRange { column: usize, lower: f32, upper: f32, refuse_missing: bool },
    /// The code is one of these, or none of these when `wanted`; or there is a gap and gaps are refused.
    /// A leaf none of whose `code::bit`s is in `set` has only such rows.
    InternedCode { column: usize, codes: Vec<u32>, must_match: bool, refuse_missing: bool, leaf_bits: u32 },
    /// The lists of texts share no bit.
    NoSharedBloomBit { column: usize, bits: u64 },
    /// The ruleset's hash differs.
    OtherRulesetHash { column: usize, hash: u32 },
}

/// A check and the counter of what it refuses.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CompiledRule {
    pub(super) counter_index: usize,
    pub(super) check: ColumnCheck,
}

/// Where a term's distance comes from; `scale * column + shift` normalises.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum TermSource {
    /// From the searcher's normalised value.
    Difference { column: usize, searcher_value: f32 },
    /// From the least of the range.
    LowerIsBetter { column: usize },
    /// From a gauge.
    DistanceBound { bound_index: usize },
}

/// A soft filter as columns see it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ColumnTerm {
    pub(super) source: TermSource,
    pub(super) scale: f32,
    pub(super) shift: f32,
    pub(super) rounding_error: f32,
    pub(super) curve: DistanceCurve,
    pub(super) weight: f32,
    /// What is added when there is a gap.
    pub(super) missing_value_term: f32,
}

/// How a term is computed in f64 from a row, without its entry.
#[derive(Clone, Copy, Debug)]
pub(super) enum ExactTerm {
    /// The same for every row.
    Constant(f64),
    /// From the searcher's normalised value.
    Difference { column: usize, searcher_value: f64 },
    /// From the least of the range.
    LowerIsBetter { column: usize },
    /// From the chord.
    Distance,
    /// From the round trip by the line.
    Latency,
}

/// One search as columns see it.
#[derive(Debug)]
pub(super) struct QueryPlan {
    /// Rows that expired before this tick are refused first.
    pub(super) now_tick: u32,
    /// Then those that have fewer seats.
    pub(super) seats_needed: u16,
    /// Whose rows are the searcher's own.
    pub(super) own_keys: Vec<RowOwner>,
    /// Whether columns are asked for them: not before there turn out to be many.
    pub(super) check_owner_column: bool,
    /// By attribute: what published ranges are held against.
    pub(super) searcher_intervals: Vec<[f32; 2]>,
    /// The counter of what those refuse.
    pub(super) allowed_range_counter: usize,
    pub(super) distance_bounds: Vec<DistanceBound>,
    /// Hard filters, in the order of `Refusal`.
    pub(super) column_rules: Vec<CompiledRule>,
    pub(super) column_terms: Vec<ColumnTerm>,
    /// What every row adds.
    pub(super) constant_terms: f32,
    /// Bounds are in this unit of the score.
    pub(super) score_unit: f64,
    /// In the order of `Ruleset::soft`; `None` when a column is lacking.
    pub(super) exact_terms: Option<Vec<ExactTerm>>,
    /// Whether the exact score of any row is had from columns alone.
    pub(super) exact_from_columns: bool,
    /// Whether rows with a best region must be scored from their entries.
    pub(super) searcher_has_regions: bool,
}

/// A limit in f32 that is not below `limit`, nor below what errors in proportion make of something at the limit.
pub(super) fn round_up_limit(limit: f64) -> f32 {
    ((limit + limit.abs() / 65_536.0) as f32).next_up()
}

impl QueryPlan {
    pub(super) fn for_query(
        query: &SearchQuery<'_>,
        layout: &ColumnLayout,
        codes: &super::interner::Interner,
        clock: &TickScale,
    ) -> Self {
        let weights = query.ruleset.soft_filters.iter().map(|soft| soft.weight);
        let unit = weights.fold(0.0, f64::max);
        let mut plan = Self {
            now_tick: clock.to_tick(query.now),
            seats_needed: query.searcher.seats_needed,
            own_keys: RowOwner::all_of_searcher(&query.searcher).collect(),
            check_owner_column: false,
            searcher_intervals: (0..query.ruleset.attributes.len())
                .map(|it| value_interval(query.searcher.attribute_values.number(it)))
                .collect(),
            allowed_range_counter: Refusal::HardFilter {
                filter_index: query.ruleset.hard_filters.len(),
                side: RefusingSide::Advertiser,
            }
            .counter_index(),
            distance_bounds: Vec::new(),
            column_rules: Vec::new(),
            column_terms: Vec::new(),
            constant_terms: 0.0,
            score_unit: if unit == 0.0 { 1.0 } else { unit },
            exact_terms: None,
            exact_from_columns: false,
            searcher_has_regions: !query.searcher.region_latencies.is_empty(),
        };
        super::rule_compiler::compile_hard_filters(&mut plan, query, layout, codes, clock);
        // Beyond these a weight's own rounding could pass the margins; bounds are then 0 and every row is scored.
        if (1e-290..1e290).contains(&plan.score_unit) {
            query.ruleset.soft_filters.iter().for_each(|soft| plan.add_term(query, layout, soft));
        }
        plan.exact_terms = query.ruleset.soft_filters.iter().map(|soft| exact_term_for(query, layout, soft)).collect();
        plan.exact_from_columns = plan.exact_terms.is_some() && !plan.searcher_has_regions;
        plan
    }

    pub(super) fn add_rule(&mut self, refusal: Refusal, check: ColumnCheck) {
        self.column_rules.push(CompiledRule { counter_index: refusal.counter_index(), check });
    }

    /// The bound that a row must not pass when scores above `score` are of no use.
    pub(super) fn bound_cutoff(&self, score: f64) -> f32 {
        let cutoff = score / self.score_unit;
        ((cutoff + cutoff.abs() / 16_384.0) as f32).next_up()
    }

    /// The place of a gauge for `measure` in `gauges`. `Err` when the measure is missing for every row, or when there
    /// is no column to tell.
    pub(super) fn distance_bound_index(
        &mut self,
        query: &SearchQuery<'_>,
        layout: &ColumnLayout,
        measure: Measure,
    ) -> Result<usize, NoDistanceBound> {
        let gauge = distance_bound_for(query, layout, measure)?;
        if let Some(known) = self.distance_bounds.iter().position(|it| *it == gauge) {
            return Ok(known);
        }
        self.distance_bounds.push(gauge);
        Ok(self.distance_bounds.len() - 1)
    }

    fn add_term(&mut self, query: &SearchQuery<'_>, layout: &ColumnLayout, soft: &SoftFilter) {
        let (weight, missing) =
            ((soft.weight / self.score_unit) as f32, (missing_value_term(soft) / self.score_unit) as f32);
        let width = soft.max - soft.min;
        let (source, scale, shift, slack) = match (soft.measure, soft.mode) {
            (Measure::AttributeDifference(attribute), mode) => {
                let Some(column) = layout.number_column(attribute) else { return };
                let number = layout.number_columns[column];
                let (scale, shift) = (number.span / width, (number.offset - soft.min) / width);
                let source = match (mode, query.searcher.attribute_values.number(attribute)) {
                    (SoftFilterMode::Difference, None) => return self.constant_terms += missing,
                    // Clamped as rows are: only then are the two never farther apart than in truth.
                    (SoftFilterMode::Difference, Some(at)) => {
                        let at = number.to_column_units(at).clamp(-number.max_magnitude, number.max_magnitude) * scale
                            + shift;
                        TermSource::Difference { column, searcher_value: at.clamp(0.0, 1.0) as f32 }
                    }
                    // A value clamped from below is stored as more than it is.
                    (SoftFilterMode::LowerIsBetter, _) if number.to_column_units(soft.min) < -number.max_magnitude => {
                        return;
                    }
                    (SoftFilterMode::LowerIsBetter, _) => TermSource::LowerIsBetter { column },
                };
                (
                    source,
                    scale,
                    shift,
                    (scale * number.max_magnitude + shift.abs() + 2.0) * 4.0 * f64::from(f32::EPSILON),
                )
            }
            (measure @ (Measure::Distance | Measure::Latency), _) => match self
                .distance_bound_index(query, layout, measure)
            {
                Ok(gauge) => {
                    let (scale, shift) = (width.recip(), -soft.min / width);
                    (TermSource::DistanceBound { bound_index: gauge }, scale, shift, (shift.abs() + 2.0) / 262_144.0)
                }
                Err(NoDistanceBound::SearcherValueMissing) => return self.constant_terms += missing,
                Err(NoDistanceBound::NoColumn) => return,
            },
        };
        // Outside these the arithmetic could meet infinity times zero.
        if (1e-30..1e30).contains(&scale) && shift.abs() < 1e30 {
            let (scale, shift, slack) = (scale as f32, shift as f32, slack as f32);
            self.column_terms.push(ColumnTerm {
                source,
                scale,
                shift,
                rounding_error: slack,
                curve: soft.curve,
                weight,
                missing_value_term: missing,
            });
        }
    }
}

/// Why there is no gauge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoDistanceBound {
    /// The searcher lacks the value, so that the measure is missing for every row.
    SearcherValueMissing,
    /// The index keeps no column for it.
    NoColumn,
}

fn distance_bound_for(
    query: &SearchQuery<'_>,
    layout: &ColumnLayout,
    measure: Measure,
) -> Result<DistanceBound, NoDistanceBound> {
    let searcher = &query.searcher;
    let at = searcher.locality.map(|it| [it.x, it.y, it.z]);
    match measure {
        Measure::AttributeDifference(attribute) => {
            let value = searcher.attribute_values.number(attribute).ok_or(NoDistanceBound::SearcherValueMissing)?;
            let column = layout.number_column(attribute).ok_or(NoDistanceBound::NoColumn)?;
            let number = layout.number_columns[column];
            Ok(DistanceBound::NumberDifference {
                column,
                searcher_value: number.to_column_value(value),
                rounding_error: number.rounding_error(),
            })
        }
        Measure::Distance => {
            let at = at.ok_or(NoDistanceBound::SearcherValueMissing)?;
            Ok(DistanceBound::Chord {
                x_column: layout.location_column().ok_or(NoDistanceBound::NoColumn)?,
                searcher_position: at,
            })
        }
        Measure::Latency => {
            let best = searcher.region_latencies.iter().map(|region| region.round_trip_ms).reduce(f32::min);
            if at.is_none() && best.is_none() {
                return Err(NoDistanceBound::SearcherValueMissing);
            }
            let (x, region) =
                layout.location_column().zip(layout.best_region_column()).ok_or(NoDistanceBound::NoColumn)?;
            let line = &query.ruleset.latency_model;
            let (intercept, slope) = (line.intercept_ms, line.round_trip_ms(1.0) - line.intercept_ms);
            if !(0.0 <= intercept && 0.0 <= slope) {
                return Err(NoDistanceBound::NoColumn);
            }
            Ok(DistanceBound::RoundTrip {
                x_column: x,
                searcher_position: at.unwrap_or([f32::NAN; 3]),
                intercept_ms: intercept as f32,
                ms_per_mile: slope as f32,
                best_region_column: region,
                searcher_best_region_ms: best.unwrap_or(f32::NAN),
            })
        }
    }
}

/// Whether a missing value is refused.
pub(super) fn refuses_missing(hard: &HardFilter) -> bool {
    hard.missing == HardMissingPolicy::Refuse
}

fn exact_term_for(query: &SearchQuery<'_>, layout: &ColumnLayout, soft: &SoftFilter) -> Option<ExactTerm> {
    let searcher = &query.searcher;
    Some(match (soft.measure, soft.mode) {
        (Measure::AttributeDifference(attribute), SoftFilterMode::LowerIsBetter) => {
            ExactTerm::LowerIsBetter { column: layout.number_column(attribute)? }
        }
        (Measure::AttributeDifference(attribute), SoftFilterMode::Difference) => {
            match searcher.attribute_values.number(attribute) {
                None => ExactTerm::Constant(weighted_term(soft, None)),
                Some(at) => ExactTerm::Difference {
                    column: layout.number_column(attribute)?,
                    searcher_value: soft.normalize(at),
                },
            }
        }
        (Measure::Distance | Measure::Latency, _) if searcher.locality.is_none() => {
            ExactTerm::Constant(weighted_term(soft, None))
        }
        (Measure::Distance, _) => layout.location_column().map(|_| ExactTerm::Distance)?,
        (Measure::Latency, _) => layout.location_column().map(|_| ExactTerm::Latency)?,
    })
}

/// Whether a value counts as a text for `In`.
pub(super) fn string_of(value: &AttributeValue) -> Option<&str> {
    match value {
        AttributeValue::String(text) => Some(text),
        AttributeValue::Number(_) | AttributeValue::Bool(_) | AttributeValue::StringList(_) => None,
    }
}

/// A place out of three columns; `None` when the row has none.
pub(super) fn locality_from_columns([x, y, z]: [f32; 3]) -> Option<Locality> {
    (!x.is_nan()).then_some(Locality { x, y, z })
}
