//! Column layout: the columns that an index needs for its ruleset, and encoding of entries as rows.
//!
//! Columns only prefilter. A number is normalized in f64, `(value - offset) / span`, clamped to a wide range and
//! rounded once to f32. Clamping never increases the distance of two values. A distance between column values therefore
//! exceeds the true distance at most by the rounding, which `NumberColumn::difference_rounding_error` bounds.

use crate::attribute::{AttributeValue, ValueType};
use crate::index::entry::IndexEntry;
use crate::index::interner::ValueInterner;
use crate::index::row_rules::{self, PublishedRange, RowOwnerKey};
use crate::index::vector_columns;
use crate::index::word_column;
use crate::latency::predictor_constants::PREDICTOR_V1;
use crate::measure::Measure;
use crate::ruleset::probing::{LatencyEstimatePolicy, LatencyTrust};
use crate::ruleset::{HardRule, InFilterListSource, Ruleset, SoftFilter};
use crate::time::UnixMs;

/// Number of location columns: x, y and z. They follow the number columns.
pub(super) const AXIS_COUNT: usize = 3;

/// Float column of one number attribute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct NumberColumn {
    /// Index in `Ruleset::attributes`.
    pub(super) attribute_index: usize,
    /// Attribute value stored as 0.
    pub(super) offset: f64,
    /// Attribute difference stored as 1; positive.
    pub(super) span: f64,
    /// Stored values are in [-max_magnitude, max_magnitude].
    pub(super) max_magnitude: f64,
    /// Weight of this dimension when a leaf is split, per column unit.
    pub(super) leaf_split_weight: f32,
}

impl NumberColumn {
    /// Converts a value to column units, without clamping.
    pub(super) fn encode_unclamped(&self, value: f64) -> f64 {
        (value - self.offset) / self.span
    }

    /// Converts a value to its stored form.
    pub(super) fn encode_column_value(&self, value: f64) -> f32 {
        self.encode_unclamped(value).clamp(-self.max_magnitude, self.max_magnitude) as f32
    }

    /// Upper bound of the rounding error in the difference of two stored values: half a unit in the last place of each
    /// value and of the difference. Errors of f64 are far smaller.
    pub(super) fn difference_rounding_error(&self) -> f32 {
        (self.max_magnitude * 4.0 * f64::from(f32::EPSILON)) as f32
    }
}

/// Columns of an index.
#[derive(Debug)]
pub(super) struct ColumnLayout {
    /// Number attributes read by soft filters, `Within` and `Range`; the first float columns.
    pub(super) number_columns: Vec<NumberColumn>,
    /// Whether there are x, y and z columns.
    pub(super) has_location: bool,
    /// Weight of an axis when a leaf is split, per mile.
    pub(super) location_split_weight: f32,
    /// Weight of the near excess of beacon vectors when a leaf is split, per millisecond.
    pub(super) excess_split_weight: f32,
    /// Whether there is a column with each row's lowest region round trip.
    pub(super) has_best_region: bool,
    /// Whether there are columns with the lower bounds of each row's beacon vector, and of whether it counts.
    pub(super) has_vector: bool,
    /// Source that floors must have at least, so that a row's vector counts.
    pub(super) vector_trust: LatencyTrust,
    /// Attributes with interned values, one word column each.
    pub(super) interned_attributes: Vec<usize>,
    /// String list attributes, two word columns with a Bloom filter each.
    pub(super) bloom_attributes: Vec<usize>,
    /// Whether there is a word column with the ruleset hash.
    pub(super) has_ruleset_hash: bool,
    /// String and bool attributes that are part of the partition key.
    pub(super) partition_attributes: Vec<usize>,
}

/// Value that stands in for a missing one when rows are assigned to leaves.
pub(super) const MISSING_SPLIT_VALUE: f32 = 0.5;

/// Maximum stored magnitude of a number with a declared range, in spans. Values beyond it are clamped.
const DECLARED_MAGNITUDE_MAX: f64 = 2.0;
/// Maximum stored magnitude of a number without a range; its span is the widest limit on it.
const UNDECLARED_MAGNITUDE_MAX: f64 = 4096.0;

impl ColumnLayout {
    /// Columns that searches under `ruleset` need.
    pub(super) fn for_ruleset(ruleset: &Ruleset) -> Self {
        let mut layout = Self {
            number_columns: Vec::new(),
            has_location: false,
            location_split_weight: 0.0,
            excess_split_weight: 0.0,
            has_best_region: false,
            has_vector: false,
            vector_trust: ruleset.probing.region_latency_trust,
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
        let value_type = |attribute: usize| ruleset.attributes[attribute].value_type;
        match rule {
            HardRule::Equal { attribute, .. } => match value_type(*attribute) {
                ValueType::String | ValueType::Bool => push_unique(&mut self.partition_attributes, *attribute),
                ValueType::Number => push_unique(&mut self.interned_attributes, *attribute),
                ValueType::StringList => push_unique(&mut self.bloom_attributes, *attribute),
            },
            HardRule::NotEqual { attribute, .. } => match value_type(*attribute) {
                ValueType::String | ValueType::Bool | ValueType::Number => {
                    push_unique(&mut self.interned_attributes, *attribute)
                }
                ValueType::StringList => {}
            },
            HardRule::Compatible { attribute, .. } => push_unique(&mut self.interned_attributes, *attribute),
            HardRule::In { attribute, list, mutual } => {
                push_unique(&mut self.interned_attributes, *attribute);
                match list {
                    InFilterListSource::OwnAttribute(list_attribute) if *mutual => {
                        push_unique(&mut self.bloom_attributes, *list_attribute)
                    }
                    InFilterListSource::OwnAttribute(_) | InFilterListSource::Strings(_) => {}
                }
            }
            HardRule::Overlap { attribute, .. } => push_unique(&mut self.bloom_attributes, *attribute),
            HardRule::Range { attribute, .. } => {
                self.add_measure_columns(ruleset, Measure::AttributeDifference(*attribute))
            }
            HardRule::Within { measure, .. } => self.add_measure_columns(ruleset, *measure),
            HardRule::SameRuleset => self.has_ruleset_hash = true,
            HardRule::MaxPacketLoss { .. } | HardRule::MaxJitter { .. } => {}
        }
    }

    fn add_measure_columns(&mut self, ruleset: &Ruleset, measure: Measure) {
        match measure {
            Measure::Distance => self.has_location = true,
            Measure::Latency | Measure::DeltaPing => {
                (self.has_location, self.has_best_region) = (true, true);
                self.has_vector = ruleset.probing.latency_estimate_policy == LatencyEstimatePolicy::PredictedV1;
            }
            Measure::AttributeDifference(attribute) if self.number_column(attribute).is_none() => {
                self.number_columns.push(number_column_for(ruleset, attribute));
            }
            Measure::AttributeDifference(_) | Measure::PacketLoss | Measure::Jitter => {}
        }
    }

    /// Sets the split weight of each dimension: the score per unit from soft filters, plus a small part for limits.
    fn assign_split_weights(&mut self, ruleset: &Ruleset) {
        let total: f64 = ruleset.soft_filters.iter().map(|soft| soft.weight).sum::<f64>().clamp(1e-300, 1e300);
        for number in &mut self.number_columns {
            let per_value: f64 = split_weight_per_unit(ruleset, total, |measure| match measure {
                Measure::AttributeDifference(attribute) => (attribute == number.attribute_index).then_some(1.0),
                Measure::Latency | Measure::DeltaPing | Measure::Distance | Measure::PacketLoss | Measure::Jitter => {
                    None
                }
            });
            number.leaf_split_weight = (per_value * number.span) as f32;
        }
        let latency_model = &ruleset.latency_model;
        self.location_split_weight = split_weight_per_unit(ruleset, total, |measure| match measure {
            Measure::Distance => Some(1.0),
            Measure::Latency | Measure::DeltaPing => {
                Some(latency_model.round_trip_ms(1.0) - latency_model.intercept_ms)
            }
            Measure::AttributeDifference(_) | Measure::PacketLoss | Measure::Jitter => None,
        }) as f32;
        let [.., of_access] = PREDICTOR_V1.near;
        self.excess_split_weight = split_weight_per_unit(ruleset, total, |measure| {
            matches!(measure, Measure::Latency | Measure::DeltaPing).then_some(of_access)
        }) as f32;
    }

    /// Float column of a number attribute.
    pub(super) fn number_column(&self, attribute: usize) -> Option<usize> {
        self.number_columns.iter().position(|number| number.attribute_index == attribute)
    }

    /// Float column of x; y and z follow.
    pub(super) fn location_column(&self) -> Option<usize> {
        self.has_location.then_some(self.number_columns.len())
    }

    /// Float column of the best region's round trip.
    pub(super) fn best_region_ms_column(&self) -> Option<usize> {
        self.has_best_region.then_some(self.split_dimension_count())
    }

    /// Float column of the near excess of beacon vectors, after the axes: the tree splits along it.
    pub(super) fn near_excess_column(&self) -> Option<usize> {
        self.has_vector.then_some(self.number_columns.len() + AXIS_COUNT)
    }

    /// First of the other float columns of beacon vectors: `vector_columns` has their order.
    pub(super) fn beacon_vector_column(&self) -> Option<usize> {
        self.has_vector.then_some(self.split_dimension_count() + 1)
    }

    /// Number of float columns that the tree splits along: numbers, axes, and the near excess of beacon vectors.
    pub(super) fn split_dimension_count(&self) -> usize {
        self.number_columns.len() + if self.has_location { AXIS_COUNT } else { 0 } + usize::from(self.has_vector)
    }

    /// Number of float columns.
    pub(super) fn float_column_count(&self) -> usize {
        self.split_dimension_count()
            + usize::from(self.has_best_region)
            + vector_columns::COUNT * usize::from(self.has_vector)
    }

    /// Word column of an interned attribute.
    pub(super) fn interned_column(&self, attribute: usize) -> Option<usize> {
        Some(word_column::FIXED_COUNT + self.interned_attributes.iter().position(|&known| known == attribute)?)
    }

    /// First of the two word columns of a string list attribute.
    pub(super) fn bloom_column(&self, attribute: usize) -> Option<usize> {
        let index = self.bloom_attributes.iter().position(|&known| known == attribute)?;
        Some(word_column::FIXED_COUNT + self.interned_attributes.len() + 2 * index)
    }

    /// Word column of the ruleset hash.
    pub(super) fn ruleset_hash_column(&self) -> Option<usize> {
        self.has_ruleset_hash
            .then_some(word_column::FIXED_COUNT + self.interned_attributes.len() + 2 * self.bloom_attributes.len())
    }

    /// Number of word columns.
    pub(super) fn word_column_count(&self) -> usize {
        word_column::FIXED_COUNT
            + self.interned_attributes.len()
            + 2 * self.bloom_attributes.len()
            + usize::from(self.has_ruleset_hash)
    }

    /// Split weight per unit of a dimension.
    pub(super) fn leaf_split_weight(&self, dimension: usize) -> f32 {
        if Some(dimension) == self.near_excess_column() {
            return self.excess_split_weight;
        }
        self.number_columns.get(dimension).map_or(self.location_split_weight, |number| number.leaf_split_weight)
    }

    /// Encodes `entry` into `row`.
    pub(super) fn write_row(
        &self,
        ruleset: &Ruleset,
        entry: &IndexEntry,
        slot: u32,
        tick_scale: &TickScale,
        interner: &mut ValueInterner,
        row: &mut RowBuffer,
    ) {
        let advertisement = &entry.advertisement;
        row.clear();
        for number in &self.number_columns {
            let value = entry.attribute_values.number(number.attribute_index);
            row.exact_numbers.push(value.unwrap_or(f64::NAN));
            row.float_columns.push(value.map_or(f32::NAN, |value| number.encode_column_value(value)));
        }
        if self.has_location {
            let position = advertisement
                .session
                .locality
                .map_or([f32::NAN; AXIS_COUNT], |locality| [locality.x, locality.y, locality.z]);
            row.float_columns.extend(position);
        }
        if self.has_vector {
            row.float_columns.push(vector_columns::near_excess_of(&advertisement.session));
        }
        if self.has_best_region {
            let best_region_ms =
                advertisement.session.region_latencies.iter().map(|region| region.round_trip_ms).reduce(f32::min);
            row.float_columns.push(best_region_ms.unwrap_or(f32::NAN));
        }
        if self.has_vector {
            let values =
                vector_columns::values_of(&advertisement.session, self.vector_trust, |time| tick_scale.tick_of(time));
            row.float_columns.extend(values);
        }
        let [a, b, c, d, ..] = *advertisement.id.as_bytes();
        let (expires, since) =
            (tick_scale.tick_of(entry.expires_at), tick_scale.tick_of(advertisement.advertised_since));
        (row.slot, row.id_prefix) = (slot, u32::from_be_bytes([a, b, c, d]));
        let owner = RowOwnerKey::of_advertisement(advertisement);
        row.owner_key = owner.key;
        row_rules::append_published_ranges(ruleset, advertisement, &mut row.published_ranges);
        row.word_columns.extend([expires, u32::from(entry.open_seats) | (owner.tag << 16), since]);
        for (column, &attribute) in self.interned_attributes.iter().enumerate() {
            row.word_columns.push(interner.intern(column, entry.attribute_values.get(attribute)));
        }
        for &attribute in &self.bloom_attributes {
            let bits = match entry.attribute_values.get(attribute) {
                Some(AttributeValue::StringList(strings)) => bloom_filter_bits(strings),
                _ => u64::MAX,
            };
            row.word_columns.extend([bits as u32, (bits >> 32) as u32]);
        }
        if self.has_ruleset_hash {
            row.word_columns.push(advertisement.ruleset_hash.0);
        }
    }
}

/// Buffer for one row that is written into a leaf or copied out of one.
#[derive(Debug, Default)]
pub(super) struct RowBuffer {
    /// Slot of the entry in the slab.
    pub(super) slot: u32,
    /// First four bytes of the advertisement id, big-endian, so that they sort like ids.
    pub(super) id_prefix: u32,
    /// Number attributes in f64; NaN if missing.
    pub(super) exact_numbers: Vec<f64>,
    /// Float columns; NaN if missing.
    pub(super) float_columns: Vec<f32>,
    /// Word columns.
    pub(super) word_columns: Vec<u32>,
    /// Complete key of the owner.
    pub(super) owner_key: [u64; 2],
    /// Ranges published by the advertisement.
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

/// Conversion of times to 31-bit ticks of 128 ms, from 4 years before the first time seen to 4 years after it. Ticks
/// saturate outside this range and never decrease as time increases. 31 bits, because the portable instruction set
/// compares only signed numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TickScale {
    first_tick: Option<u64>,
}

/// The last tick.
pub(super) const TICK_MAX: u32 = i32::MAX as u32;

impl TickScale {
    /// Sets the middle of the range on the first call; later calls have no effect.
    pub(super) fn set_origin_once(&mut self, time: UnixMs) {
        let _ = *self.first_tick.get_or_insert((time.0 >> 7).saturating_sub(1 << 30));
    }

    /// Tick that contains `time`.
    pub(super) fn tick_of(&self, time: UnixMs) -> u32 {
        let ticks = (time.0 >> 7).saturating_sub(self.first_tick.unwrap_or(0));
        u32::try_from(ticks).unwrap_or(TICK_MAX).min(TICK_MAX)
    }
}

/// Bloom filter of 64 bits with one bit per string. Lists that share a string share a bit.
pub(super) fn bloom_filter_bits(strings: &[Box<str>]) -> u64 {
    strings.iter().fold(0, |bits, string| bits | bloom_bit(string))
}

/// Bloom filter bit of one string: FNV-1a hash (Fowler, Noll, Vo), folded to six bits.
pub(super) fn bloom_bit(string: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let hash = string.bytes().fold(0xcbf2_9ce4_8422_2325, step);
    1 << ((hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58)
}

fn push_unique(columns: &mut Vec<usize>, attribute: usize) {
    if !columns.contains(&attribute) {
        columns.push(attribute);
    }
}

/// Column of a number attribute. Offset and span come from its declared range, else a soft filter's range, else a
/// limit.
fn number_column_for(ruleset: &Ruleset, attribute: usize) -> NumberColumn {
    let reads_attribute = |soft: &&SoftFilter| soft.measure == Measure::AttributeDifference(attribute);
    let soft_filter_range = ruleset.soft_filters.iter().find(reads_attribute).map(|soft| (soft.min, soft.max));
    let limits = ruleset.expansions.iter().filter(|limit| limit.measure == Measure::AttributeDifference(attribute));
    let widest_limit = limits.filter_map(|limit| limit.steps().last()).map(|step| step.limit).fold(0.0, f64::max);
    let (min, max, magnitude_limit) = match ruleset.attributes[attribute].normalization_range.or(soft_filter_range) {
        Some((min, max)) => (min, max, DECLARED_MAGNITUDE_MAX),
        None if widest_limit > 0.0 => (0.0, widest_limit, UNDECLARED_MAGNITUDE_MAX),
        None => (0.0, 1.0, UNDECLARED_MAGNITUDE_MAX),
    };
    let span = if min < max { max - min } else { 1.0 };
    let ranges = ruleset.soft_filters.iter().filter(reads_attribute).flat_map(|soft| [soft.min, soft.max]);
    let max_magnitude = ranges.map(|value| ((value - min) / span).abs()).fold(magnitude_limit, f64::max);
    NumberColumn {
        attribute_index: attribute,
        offset: min,
        span,
        max_magnitude: max_magnitude.min(UNDECLARED_MAGNITUDE_MAX),
        leaf_split_weight: 0.0,
    }
}

/// Score per unit of a value, as a share of the total weight. `units` converts: units of the measure per unit of the
/// value; `None` if the measure does not depend on the value.
fn split_weight_per_unit(ruleset: &Ruleset, total: f64, units: impl Fn(Measure) -> Option<f64>) -> f64 {
    let soft = ruleset.soft_filters.iter();
    let soft = soft.filter_map(|soft| Some(units(soft.measure)? * (soft.weight / total) / (soft.max - soft.min)));
    let limits = ruleset.hard_filters.iter().filter_map(|hard| match hard.rule {
        HardRule::Within { measure, expansion, .. } => {
            let widest_limit = ruleset.expansions[expansion].steps().last().map_or(1.0, |step| step.limit.max(1e-9));
            Some(0.05 * units(measure)? / widest_limit)
        }
        _ => None,
    });
    soft.chain(limits).sum()
}
