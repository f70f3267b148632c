//! From a query to what is asked of each column: rules that refuse for certain, and terms that are never too large.
//!
//! Soundness. Whatever a column says is held against the exact rule with an error margin on the side of letting a row
//! through: limits are rounded up (`up`), distances between numbers are lessened by their `slack`, terms by theirs.
//! Errors in proportion to a value (places, products, sums of up to 64 terms) stay far below the 2^-16 and 2^-14 by
//! which limits and thresholds are raised: an f32 operation adds 2^-24.

use crate::domain::attribute::Value;
use crate::domain::filter::{Refusal, Side};
use crate::domain::index::Query;
use crate::domain::index::guard::{Owner, around};
use crate::domain::index::layout::{Layout, Ticks};
use crate::domain::locality::Locality;
use crate::domain::measure::Measure;
use crate::domain::ruleset::{Curve, HardFilter, MissingHard, SoftFilter, SoftMode};
use crate::domain::score::{missing_term, weighed};

/// Something between the searcher and a row that several rules and terms read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Gauge {
    /// The difference of two numbers, in units of the column.
    Number { column: usize, at: f32, slack: f32 },
    /// The chord, miles.
    Place { x: usize, at: [f32; 3] },
    /// The round trip, milliseconds. NaN for the searcher's place or best region that is not known.
    Latency { x: usize, at: [f32; 3], intercept: f32, slope: f32, region: usize, best: f32 },
}

/// When a row is refused for certain.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Check {
    /// Always.
    Always,
    /// The gauge is beyond the searcher's limit, or there is a gap and gaps are refused.
    Far { gauge: usize, limit: f32, gaps: bool },
    /// That share of the gauge is beyond the advertiser's limit: `first`, or the value of the last of `steps` whose
    /// tick is not before the row's `since`.
    FarForThem { gauge: usize, share: f32, first: f32, steps: Vec<(u32, f32)> },
    /// The number lies outside.
    Outside { column: usize, least: f32, greatest: f32, gaps: bool },
    /// The code is one of these, or none of these when `wanted`; or there is a gap and gaps are refused.
    /// A leaf none of whose `code::bit`s is in `set` has only such rows.
    Code { column: usize, codes: Vec<u32>, wanted: bool, gaps: bool, set: u32 },
    /// The lists of texts share no bit.
    Bloom { column: usize, bits: u64 },
    /// The ruleset's hash differs.
    Hash { column: usize, hash: u32 },
}

/// A check and the counter of what it refuses.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rule {
    pub(super) counter: usize,
    pub(super) check: Check,
}

/// Where a term's distance comes from; `scale * column + shift` normalises.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Source {
    /// From the searcher's normalised value.
    Difference { column: usize, at: f32 },
    /// From the least of the range.
    Lower { column: usize },
    /// From a gauge.
    Gauge { gauge: usize },
}

/// A soft filter as columns see it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Term {
    pub(super) source: Source,
    pub(super) scale: f32,
    pub(super) shift: f32,
    pub(super) slack: f32,
    pub(super) curve: Curve,
    pub(super) weight: f32,
    /// What is added when there is a gap.
    pub(super) missing: f32,
}

/// How a term is computed in f64 from a row, without its entry.
#[derive(Clone, Copy, Debug)]
pub(super) enum Exact {
    /// The same for every row.
    Constant(f64),
    /// From the searcher's normalised value.
    Difference { column: usize, at: f64 },
    /// From the least of the range.
    Lower { column: usize },
    /// From the chord.
    Distance,
    /// From the round trip by the line.
    Latency,
}

/// One search as columns see it.
#[derive(Debug)]
pub(super) struct Plan {
    /// Rows that expired before this tick are refused first.
    pub(super) tick: u32,
    /// Then those that have fewer seats.
    pub(super) seats: u16,
    /// Whose rows are the searcher's own.
    pub(super) owners: Vec<Owner>,
    /// Whether columns are asked for them: not before there turn out to be many.
    pub(super) own: bool,
    /// By attribute: what published ranges are held against.
    pub(super) values: Vec<[f32; 2]>,
    /// The counter of what those refuse.
    pub(super) ranges: usize,
    pub(super) gauges: Vec<Gauge>,
    /// Hard filters, in the order of `Refusal`.
    pub(super) rules: Vec<Rule>,
    pub(super) terms: Vec<Term>,
    /// What every row adds.
    pub(super) base: f32,
    /// Bounds are in this unit of the score.
    pub(super) unit: f64,
    /// In the order of `Ruleset::soft`; `None` when a column is lacking.
    pub(super) exact: Option<Vec<Exact>>,
    /// Whether the exact score of any row is had from columns alone.
    pub(super) cheap: bool,
    /// Whether rows with a best region must be scored from their entries.
    pub(super) regions: bool,
}

/// A limit in f32 that is not below `limit`, nor below what errors in proportion make of something at the limit.
pub(super) fn up(limit: f64) -> f32 {
    ((limit + limit.abs() / 65_536.0) as f32).next_up()
}

impl Plan {
    pub(super) fn of(query: &Query<'_>, layout: &Layout, codes: &super::code::Codes, clock: &Ticks) -> Self {
        let weights = query.ruleset.soft.iter().map(|soft| soft.weight);
        let unit = weights.fold(0.0, f64::max);
        let mut plan = Self {
            tick: clock.tick(query.now),
            seats: query.searcher.seats,
            owners: Owner::all_of(&query.searcher).collect(),
            own: false,
            values: (0..query.ruleset.attributes.len()).map(|it| around(query.searcher.facts.number(it))).collect(),
            ranges: Refusal::Filter { filter: query.ruleset.hard.len(), side: Side::Advertiser }.counter(),
            gauges: Vec::new(),
            rules: Vec::new(),
            terms: Vec::new(),
            base: 0.0,
            unit: if unit == 0.0 { 1.0 } else { unit },
            exact: None,
            cheap: false,
            regions: !query.searcher.regions.is_empty(),
        };
        super::rules::add_all(&mut plan, query, layout, codes, clock);
        // Beyond these a weight's own rounding could pass the margins; bounds are then 0 and every row is scored.
        if (1e-290..1e290).contains(&plan.unit) {
            query.ruleset.soft.iter().for_each(|soft| plan.add_term(query, layout, soft));
        }
        plan.exact = query.ruleset.soft.iter().map(|soft| exact(query, layout, soft)).collect();
        plan.cheap = plan.exact.is_some() && !plan.regions;
        plan
    }

    pub(super) fn rule(&mut self, refusal: Refusal, check: Check) {
        self.rules.push(Rule { counter: refusal.counter(), check });
    }

    /// The bound that a row must not pass when scores above `score` are of no use.
    pub(super) fn cutoff(&self, score: f64) -> f32 {
        let cutoff = score / self.unit;
        ((cutoff + cutoff.abs() / 16_384.0) as f32).next_up()
    }

    /// The place of a gauge for `measure` in `gauges`. `Err` when the measure is missing for every row, or when there
    /// is no column to tell.
    pub(super) fn gauge(&mut self, query: &Query<'_>, layout: &Layout, measure: Measure) -> Result<usize, NoGauge> {
        let gauge = gauge(query, layout, measure)?;
        if let Some(known) = self.gauges.iter().position(|it| *it == gauge) {
            return Ok(known);
        }
        self.gauges.push(gauge);
        Ok(self.gauges.len() - 1)
    }

    fn add_term(&mut self, query: &Query<'_>, layout: &Layout, soft: &SoftFilter) {
        let (weight, missing) = ((soft.weight / self.unit) as f32, (missing_term(soft) / self.unit) as f32);
        let width = soft.max - soft.min;
        let (source, scale, shift, slack) = match (soft.measure, soft.mode) {
            (Measure::Attribute(attribute), mode) => {
                let Some(column) = layout.number(attribute) else { return };
                let number = layout.numbers[column];
                let (scale, shift) = (number.span / width, (number.offset - soft.min) / width);
                let source = match (mode, query.searcher.facts.number(attribute)) {
                    (SoftMode::Difference, None) => return self.base += missing,
                    // Clamped as rows are: only then are the two never farther apart than in truth.
                    (SoftMode::Difference, Some(at)) => {
                        let at = number.unit(at).clamp(-number.window, number.window) * scale + shift;
                        Source::Difference { column, at: at.clamp(0.0, 1.0) as f32 }
                    }
                    // A value clamped from below is stored as more than it is.
                    (SoftMode::LowerIsBetter, _) if number.unit(soft.min) < -number.window => return,
                    (SoftMode::LowerIsBetter, _) => Source::Lower { column },
                };
                (source, scale, shift, (scale * number.window + shift.abs() + 2.0) * 4.0 * f64::from(f32::EPSILON))
            }
            (measure @ (Measure::Distance | Measure::Latency), _) => match self.gauge(query, layout, measure) {
                Ok(gauge) => {
                    let (scale, shift) = (width.recip(), -soft.min / width);
                    (Source::Gauge { gauge }, scale, shift, (shift.abs() + 2.0) / 262_144.0)
                }
                Err(NoGauge::Missing) => return self.base += missing,
                Err(NoGauge::Unknown) => return,
            },
        };
        // Outside these the arithmetic could meet infinity times zero.
        if (1e-30..1e30).contains(&scale) && shift.abs() < 1e30 {
            let (scale, shift, slack) = (scale as f32, shift as f32, slack as f32);
            self.terms.push(Term { source, scale, shift, slack, curve: soft.curve, weight, missing });
        }
    }
}

/// Why there is no gauge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoGauge {
    /// The searcher lacks the value, so that the measure is missing for every row.
    Missing,
    /// The index keeps no column for it.
    Unknown,
}

fn gauge(query: &Query<'_>, layout: &Layout, measure: Measure) -> Result<Gauge, NoGauge> {
    let searcher = &query.searcher;
    let at = searcher.locality.map(|it| [it.x, it.y, it.z]);
    match measure {
        Measure::Attribute(attribute) => {
            let value = searcher.facts.number(attribute).ok_or(NoGauge::Missing)?;
            let column = layout.number(attribute).ok_or(NoGauge::Unknown)?;
            let number = layout.numbers[column];
            Ok(Gauge::Number { column, at: number.stored(value), slack: number.slack() })
        }
        Measure::Distance => {
            let at = at.ok_or(NoGauge::Missing)?;
            Ok(Gauge::Place { x: layout.x().ok_or(NoGauge::Unknown)?, at })
        }
        Measure::Latency => {
            let best = searcher.regions.iter().map(|region| region.round_trip_ms).reduce(f32::min);
            if at.is_none() && best.is_none() {
                return Err(NoGauge::Missing);
            }
            let (x, region) = layout.x().zip(layout.region()).ok_or(NoGauge::Unknown)?;
            let line = &query.ruleset.line;
            let (intercept, slope) = (line.intercept_ms, line.round_trip_ms(1.0) - line.intercept_ms);
            if !(0.0 <= intercept && 0.0 <= slope) {
                return Err(NoGauge::Unknown);
            }
            Ok(Gauge::Latency {
                x,
                at: at.unwrap_or([f32::NAN; 3]),
                intercept: intercept as f32,
                slope: slope as f32,
                region,
                best: best.unwrap_or(f32::NAN),
            })
        }
    }
}

/// Whether a missing value is refused.
pub(super) fn refuses_gaps(hard: &HardFilter) -> bool {
    hard.missing == MissingHard::Refuse
}

fn exact(query: &Query<'_>, layout: &Layout, soft: &SoftFilter) -> Option<Exact> {
    let searcher = &query.searcher;
    Some(match (soft.measure, soft.mode) {
        (Measure::Attribute(attribute), SoftMode::LowerIsBetter) => Exact::Lower { column: layout.number(attribute)? },
        (Measure::Attribute(attribute), SoftMode::Difference) => match searcher.facts.number(attribute) {
            None => Exact::Constant(weighed(soft, None)),
            Some(at) => Exact::Difference { column: layout.number(attribute)?, at: soft.norm(at) },
        },
        (Measure::Distance | Measure::Latency, _) if searcher.locality.is_none() => {
            Exact::Constant(weighed(soft, None))
        }
        (Measure::Distance, _) => layout.x().map(|_| Exact::Distance)?,
        (Measure::Latency, _) => layout.x().map(|_| Exact::Latency)?,
    })
}

/// Whether a value counts as a text for `In`.
pub(super) fn text(value: &Value) -> Option<&str> {
    match value {
        Value::Text(text) => Some(text),
        Value::Number(_) | Value::Flag(_) | Value::Texts(_) => None,
    }
}

/// A place out of three columns; `None` when the row has none.
pub(super) fn place([x, y, z]: [f32; 3]) -> Option<Locality> {
    (!x.is_nan()).then_some(Locality { x, y, z })
}
