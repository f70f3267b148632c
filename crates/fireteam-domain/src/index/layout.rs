//! Which columns an index keeps for its ruleset, and how a row is written into them.
//!
//! Columns only prefilter. A number is normalised in f64, `(value - offset) / span`, clamped to a wide window and
//! rounded to f32 once; clamping brings two values closer together, never farther apart, so a distance between columns
//! is never more than the true one by more than the rounding, which `Number::slack` bounds.

use crate::attribute::{AttributeValue, ValueType};
use crate::index::IndexEntry;
use crate::index::interner::Interner;
use crate::index::row_rules::{self, PublishedRange, RowOwner};
use crate::measure::Measure;
use crate::ruleset::{HardRule, InFilterList, Ruleset, SoftFilter};
use crate::time::UnixMs;

/// Column of `x`, after the numbers; `y` and `z` follow.
pub(super) const AXIS_COUNT: usize = 3;

/// One number attribute as a column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct NumberColumn {
    /// Its place in `Ruleset::attributes`.
    pub(super) attribute_index: usize,
    /// The value that becomes 0.
    pub(super) offset: f64,
    /// The difference that becomes 1; positive.
    pub(super) span: f64,
    /// Columns lie in [-window, window].
    pub(super) max_magnitude: f64,
    /// How much a split along it is worth, per unit of the column.
    pub(super) split_weight: f32,
}

impl NumberColumn {
    /// The value in units of the column, before clamping.
    pub(super) fn to_column_units(&self, value: f64) -> f64 {
        (value - self.offset) / self.span
    }

    /// The value as it is stored.
    pub(super) fn to_column_value(&self, value: f64) -> f32 {
        self.to_column_units(value).clamp(-self.max_magnitude, self.max_magnitude) as f32
    }

    /// More than the difference of two stored values can be wrong by: half a unit in the last place of each, and of
    /// their difference. The errors of f64 are far below it.
    pub(super) fn rounding_error(&self) -> f32 {
        (self.max_magnitude * 4.0 * f64::from(f32::EPSILON)) as f32
    }
}

/// The columns of an index.
#[derive(Debug)]
pub(super) struct ColumnLayout {
    /// Numbers that soft filters, `Within` and `Range` read; the first float columns.
    pub(super) number_columns: Vec<NumberColumn>,
    /// Whether x, y and z are kept.
    pub(super) has_location: bool,
    /// How much a split along an axis is worth, per mile.
    pub(super) location_split_weight: f32,
    /// Whether each row's best region is kept.
    pub(super) has_best_region: bool,
    /// Attributes whose values are interned, one word each.
    pub(super) interned_attributes: Vec<usize>,
    /// Texts attributes, two words of a Bloom filter each.
    pub(super) bloom_attributes: Vec<usize>,
    /// Whether rulesets' hashes are kept.
    pub(super) has_ruleset_hash: bool,
    /// Text and flag attributes that are part of the partition's key.
    pub(super) partition_attributes: Vec<usize>,
}

/// Word columns that every index has.
pub(super) mod word_column {
    /// Ticks of the expiry.
    pub(in crate::index) const EXPIRES_AT: usize = 0;
    /// Open seats; above them the mark of the row's owner.
    pub(in crate::index) const SEATS_AND_OWNER: usize = 1;
    /// Ticks of `since`.
    pub(in crate::index) const ADVERTISED_SINCE: usize = 2;
    /// How many there are.
    pub(in crate::index) const FIXED_COUNT: usize = 3;
}

/// A tree node that holds a NaN in a dimension is placed as if it held this.
pub(super) const MISSING_SPLIT_VALUE: f32 = 0.5;

/// How far beyond its declared range a number is told apart.
const DECLARED_MAGNITUDE_MAX: f64 = 2.0;
/// The same for a number without a range, whose span is the widest limit on it.
const UNDECLARED_MAGNITUDE_MAX: f64 = 4096.0;

impl ColumnLayout {
    /// The columns that serve `ruleset`.
    pub(super) fn for_ruleset(ruleset: &Ruleset) -> Self {
        let mut layout = Self {
            number_columns: Vec::new(),
            has_location: false,
            location_split_weight: 0.0,
            has_best_region: false,
            interned_attributes: Vec::new(),
            bloom_attributes: Vec::new(),
            has_ruleset_hash: false,
            partition_attributes: Vec::new(),
        };
        for soft in &ruleset.soft_filters {
            layout.add_measure_columns(ruleset, soft.measure);
        }
        for hard in &ruleset.hard_filters {
            layout.add_hard_filter_columns(ruleset, &hard.rule);
        }
        layout.assign_split_weights(ruleset);
        layout
    }

    fn add_hard_filter_columns(&mut self, ruleset: &Ruleset, rule: &HardRule) {
        let kind = |attribute: usize| ruleset.attributes[attribute].value_type;
        match rule {
            HardRule::Equal { attribute, .. } => match kind(*attribute) {
                ValueType::String | ValueType::Bool => push_unique(&mut self.partition_attributes, *attribute),
                ValueType::Number => push_unique(&mut self.interned_attributes, *attribute),
                ValueType::StringList => push_unique(&mut self.bloom_attributes, *attribute),
            },
            HardRule::NotEqual { attribute, .. } => match kind(*attribute) {
                ValueType::String | ValueType::Bool | ValueType::Number => {
                    push_unique(&mut self.interned_attributes, *attribute)
                }
                ValueType::StringList => {}
            },
            HardRule::Compatible { attribute, .. } => push_unique(&mut self.interned_attributes, *attribute),
            HardRule::In { attribute, list, mutual } => {
                push_unique(&mut self.interned_attributes, *attribute);
                match list {
                    InFilterList::OwnAttribute(asking) if *mutual => push_unique(&mut self.bloom_attributes, *asking),
                    InFilterList::OwnAttribute(_) | InFilterList::Strings(_) => {}
                }
            }
            HardRule::Overlap { attribute } => push_unique(&mut self.bloom_attributes, *attribute),
            HardRule::Range { attribute, .. } => {
                self.add_measure_columns(ruleset, Measure::AttributeDifference(*attribute))
            }
            HardRule::Within { measure, .. } => self.add_measure_columns(ruleset, *measure),
            HardRule::SameHash => self.has_ruleset_hash = true,
        }
    }

    fn add_measure_columns(&mut self, ruleset: &Ruleset, measure: Measure) {
        match measure {
            Measure::Distance => self.has_location = true,
            Measure::Latency => (self.has_location, self.has_best_region) = (true, true),
            Measure::AttributeDifference(attribute) if self.number_column(attribute).is_none() => {
                self.number_columns.push(number_column_for(ruleset, attribute));
            }
            Measure::AttributeDifference(_) => {}
        }
    }

    /// Gives each dimension its worth in a split: what soft filters add per unit, and a little for limits.
    fn assign_split_weights(&mut self, ruleset: &Ruleset) {
        let total: f64 = ruleset.soft_filters.iter().map(|soft| soft.weight).sum::<f64>().clamp(1e-300, 1e300);
        for number in &mut self.number_columns {
            let per_value: f64 = split_weight_per_unit(ruleset, total, |measure| match measure {
                Measure::AttributeDifference(attribute) => (attribute == number.attribute_index).then_some(1.0),
                Measure::Latency | Measure::Distance => None,
            });
            number.split_weight = (per_value * number.span) as f32;
        }
        let line = &ruleset.latency_model;
        self.location_split_weight = split_weight_per_unit(ruleset, total, |measure| match measure {
            Measure::Distance => Some(1.0),
            Measure::Latency => Some(line.round_trip_ms(1.0) - line.intercept_ms),
            Measure::AttributeDifference(_) => None,
        }) as f32;
    }

    /// The float column of a number attribute.
    pub(super) fn number_column(&self, attribute: usize) -> Option<usize> {
        self.number_columns.iter().position(|number| number.attribute_index == attribute)
    }

    /// The float column of `x`.
    pub(super) fn location_column(&self) -> Option<usize> {
        self.has_location.then_some(self.number_columns.len())
    }

    /// The float column of the best region.
    pub(super) fn best_region_column(&self) -> Option<usize> {
        self.has_best_region.then_some(self.number_columns.len() + AXIS_COUNT)
    }

    /// How many float columns the tree splits along: numbers and axes.
    pub(super) fn split_dimension_count(&self) -> usize {
        self.number_columns.len() + if self.has_location { AXIS_COUNT } else { 0 }
    }

    /// How many float columns there are.
    pub(super) fn float_column_count(&self) -> usize {
        self.split_dimension_count() + usize::from(self.has_best_region)
    }

    /// The word column of an interned attribute.
    pub(super) fn interned_column(&self, attribute: usize) -> Option<usize> {
        Some(word_column::FIXED_COUNT + self.interned_attributes.iter().position(|&known| known == attribute)?)
    }

    /// The first of two word columns of a texts attribute.
    pub(super) fn bloom_column(&self, attribute: usize) -> Option<usize> {
        let at = self.bloom_attributes.iter().position(|&known| known == attribute)?;
        Some(word_column::FIXED_COUNT + self.interned_attributes.len() + 2 * at)
    }

    /// The word column of the ruleset's hash.
    pub(super) fn ruleset_hash_column(&self) -> Option<usize> {
        self.has_ruleset_hash
            .then_some(word_column::FIXED_COUNT + self.interned_attributes.len() + 2 * self.bloom_attributes.len())
    }

    /// How many word columns there are.
    pub(super) fn word_column_count(&self) -> usize {
        word_column::FIXED_COUNT
            + self.interned_attributes.len()
            + 2 * self.bloom_attributes.len()
            + usize::from(self.has_ruleset_hash)
    }

    /// What a unit along `dim` is worth to a split.
    pub(super) fn split_weight(&self, dim: usize) -> f32 {
        self.number_columns.get(dim).map_or(self.location_split_weight, |number| number.split_weight)
    }

    /// Writes `entry` as a row.
    pub(super) fn write_row(
        &self,
        ruleset: &Ruleset,
        entry: &IndexEntry,
        slot: u32,
        clock: &TickScale,
        codes: &mut Interner,
        row: &mut RowBuffer,
    ) {
        let advertisement = &entry.advertisement;
        row.clear();
        for number in &self.number_columns {
            let value = entry.attribute_values.number(number.attribute_index);
            row.exact_numbers.push(value.unwrap_or(f64::NAN));
            row.float_columns.push(value.map_or(f32::NAN, |value| number.to_column_value(value)));
        }
        if self.has_location {
            let place = advertisement.session.locality.map_or([f32::NAN; AXIS_COUNT], |it| [it.x, it.y, it.z]);
            row.float_columns.extend(place);
        }
        if self.has_best_region {
            let best =
                advertisement.session.region_latencies.iter().map(|region| region.round_trip_ms).reduce(f32::min);
            row.float_columns.push(best.unwrap_or(f32::NAN));
        }
        let [a, b, c, d, ..] = *advertisement.id.as_bytes();
        let (expires, since) = (clock.to_tick(entry.expires_at), clock.to_tick(advertisement.advertised_since));
        (row.slot, row.id_prefix) = (slot, u32::from_be_bytes([a, b, c, d]));
        let owner = RowOwner::of_advertisement(advertisement);
        row.owner_key = owner.key;
        row_rules::published_ranges(ruleset, advertisement, &mut row.published_ranges);
        row.word_columns.extend([expires, u32::from(entry.open_seats) | (owner.tag << 16), since]);
        for (column, &attribute) in self.interned_attributes.iter().enumerate() {
            row.word_columns.push(codes.intern(column, entry.attribute_values.get(attribute)));
        }
        for &attribute in &self.bloom_attributes {
            let bits = match entry.attribute_values.get(attribute) {
                Some(AttributeValue::StringList(texts)) => bloom_filter_bits(texts),
                _ => u64::MAX,
            };
            row.word_columns.extend([bits as u32, (bits >> 32) as u32]);
        }
        if self.has_ruleset_hash {
            row.word_columns.push(advertisement.ruleset_hash.0);
        }
    }
}

/// One row on its way into a leaf.
#[derive(Debug, Default)]
pub(super) struct RowBuffer {
    /// Place in the slab.
    pub(super) slot: u32,
    /// The id's first four bytes, in the order of ids.
    pub(super) id_prefix: u32,
    /// Numbers in f64; NaN for none.
    pub(super) exact_numbers: Vec<f64>,
    /// Float columns; NaN for none.
    pub(super) float_columns: Vec<f32>,
    /// Word columns.
    pub(super) word_columns: Vec<u32>,
    /// The whole key of its owner.
    pub(super) owner_key: [u64; 2],
    /// Ranges that it published.
    pub(super) published_ranges: Vec<PublishedRange>,
}

impl RowBuffer {
    pub(super) fn clear(&mut self) {
        self.exact_numbers.clear();
        self.float_columns.clear();
        self.word_columns.clear();
        self.published_ranges.clear();
    }
}

/// Moments as 31-bit ticks of 128 ms from 4 years before the first moment seen to 4 years after. Outside they
/// saturate. Never decreasing in the moment, which is all that its users rest on; and the portable instruction set
/// compares signed numbers only.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TickScale {
    first_tick: Option<u64>,
}

/// The last tick.
pub(super) const TICK_MAX: u32 = i32::MAX as u32;

impl TickScale {
    /// Fixes the middle of the range, unless that has been done.
    pub(super) fn set_origin_once(&mut self, moment: UnixMs) {
        let _ = *self.first_tick.get_or_insert((moment.0 >> 7).saturating_sub(1 << 30));
    }

    /// The tick that `moment` falls into.
    pub(super) fn to_tick(&self, moment: UnixMs) -> u32 {
        let ticks = (moment.0 >> 7).saturating_sub(self.first_tick.unwrap_or(0));
        u32::try_from(ticks).unwrap_or(TICK_MAX).min(TICK_MAX)
    }
}

/// 64 bits, one set for each text. Lists that share a text share a bit.
pub(super) fn bloom_filter_bits(texts: &[Box<str>]) -> u64 {
    texts.iter().fold(0, |bits, text| bits | bloom_bit(text))
}

/// The bit of one text: FNV-1a (Fowler, Noll, Vo), folded to six bits.
pub(super) fn bloom_bit(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, step);
    1 << ((hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58)
}

fn push_unique(columns: &mut Vec<usize>, attribute: usize) {
    if !columns.contains(&attribute) {
        columns.push(attribute);
    }
}

/// The offset and span of a number's column: its declared range, else the range of a soft filter, else a limit.
fn number_column_for(ruleset: &Ruleset, attribute: usize) -> NumberColumn {
    let own = |soft: &&SoftFilter| soft.measure == Measure::AttributeDifference(attribute);
    let wished = ruleset.soft_filters.iter().find(own).map(|soft| (soft.min, soft.max));
    let limits = ruleset.expansions.iter().filter(|it| it.measure == Measure::AttributeDifference(attribute));
    let widest = limits.filter_map(|it| it.steps().last()).map(|step| step.limit).fold(0.0, f64::max);
    let (min, max, window) = match ruleset.attributes[attribute].normalization_range.or(wished) {
        Some((min, max)) => (min, max, DECLARED_MAGNITUDE_MAX),
        None if 0.0 < widest => (0.0, widest, UNDECLARED_MAGNITUDE_MAX),
        None => (0.0, 1.0, UNDECLARED_MAGNITUDE_MAX),
    };
    let span = if min < max { max - min } else { 1.0 };
    let ranges = ruleset.soft_filters.iter().filter(own).flat_map(|soft| [soft.min, soft.max]);
    let reach = ranges.map(|value| ((value - min) / span).abs()).fold(window, f64::max);
    NumberColumn {
        attribute_index: attribute,
        offset: min,
        span,
        max_magnitude: reach.min(UNDECLARED_MAGNITUDE_MAX),
        split_weight: 0.0,
    }
}

/// What one unit of a value is worth to the score, as a share of all weights; `units` says how many units of the
/// measure one unit of the value is.
fn split_weight_per_unit(ruleset: &Ruleset, total: f64, units: impl Fn(Measure) -> Option<f64>) -> f64 {
    let soft = ruleset.soft_filters.iter();
    let soft = soft.filter_map(|it| Some(units(it.measure)? * (it.weight / total) / (it.max - it.min)));
    let limits = ruleset.hard_filters.iter().filter_map(|hard| match hard.rule {
        HardRule::Within { measure, expansion, .. } => {
            let widest = ruleset.expansions[expansion].steps().last().map_or(1.0, |step| step.limit.max(1e-9));
            Some(0.05 * units(measure)? / widest)
        }
        _ => None,
    });
    soft.chain(limits).sum()
}
