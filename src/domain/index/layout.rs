//! Which columns an index keeps for its ruleset, and how a row is written into them.
//!
//! Columns only prefilter. A number is normalised in f64, `(value - offset) / span`, clamped to a wide window and
//! rounded to f32 once; clamping brings two values closer together, never farther apart, so a distance between columns
//! is never more than the true one by more than the rounding, which `Number::slack` bounds.

use crate::domain::attribute::{Value, ValueKind};
use crate::domain::index::Entry;
use crate::domain::index::code::Codes;
use crate::domain::index::guard::{self, Owner, Range};
use crate::domain::measure::Measure;
use crate::domain::ruleset::{HardRule, InList, Ruleset, SoftFilter};
use crate::domain::time::UnixMs;

/// Column of `x`, after the numbers; `y` and `z` follow.
pub(super) const AXES: usize = 3;

/// One number attribute as a column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Number {
    /// Its place in `Ruleset::attributes`.
    pub(super) attribute: usize,
    /// The value that becomes 0.
    pub(super) offset: f64,
    /// The difference that becomes 1; positive.
    pub(super) span: f64,
    /// Columns lie in [-window, window].
    pub(super) window: f64,
    /// How much a split along it is worth, per unit of the column.
    pub(super) pull: f32,
}

impl Number {
    /// The value in units of the column, before clamping.
    pub(super) fn unit(&self, value: f64) -> f64 {
        (value - self.offset) / self.span
    }

    /// The value as it is stored.
    pub(super) fn stored(&self, value: f64) -> f32 {
        self.unit(value).clamp(-self.window, self.window) as f32
    }

    /// More than the difference of two stored values can be wrong by: half a unit in the last place of each, and of
    /// their difference. The errors of f64 are far below it.
    pub(super) fn slack(&self) -> f32 {
        (self.window * 4.0 * f64::from(f32::EPSILON)) as f32
    }
}

/// The columns of an index.
#[derive(Debug)]
pub(super) struct Layout {
    /// Numbers that soft filters, `Within` and `Range` read; the first float columns.
    pub(super) numbers: Vec<Number>,
    /// Whether x, y and z are kept.
    pub(super) place: bool,
    /// How much a split along an axis is worth, per mile.
    pub(super) place_pull: f32,
    /// Whether each row's best region is kept.
    pub(super) region: bool,
    /// Attributes whose values are interned, one word each.
    pub(super) coded: Vec<usize>,
    /// Texts attributes, two words of a Bloom filter each.
    pub(super) blooms: Vec<usize>,
    /// Whether rulesets' hashes are kept.
    pub(super) hash: bool,
    /// Text and flag attributes that are part of the partition's key.
    pub(super) keyed: Vec<usize>,
}

/// Word columns that every index has.
pub(super) mod word {
    /// Ticks of the expiry.
    pub(in crate::domain::index) const EXPIRES: usize = 0;
    /// Open seats; above them the mark of the row's owner.
    pub(in crate::domain::index) const SEATS: usize = 1;
    /// Ticks of `since`.
    pub(in crate::domain::index) const SINCE: usize = 2;
    /// How many there are.
    pub(in crate::domain::index) const FIXED: usize = 3;
}

/// A tree node that holds a NaN in a dimension is placed as if it held this.
pub(super) const STAND_IN: f32 = 0.5;

/// How far beyond its declared range a number is told apart.
const WINDOW_DECLARED: f64 = 2.0;
/// The same for a number without a range, whose span is the widest limit on it.
const WINDOW_UNDECLARED: f64 = 4096.0;

impl Layout {
    /// The columns that serve `ruleset`.
    pub(super) fn of(ruleset: &Ruleset) -> Self {
        let mut layout = Self {
            numbers: Vec::new(),
            place: false,
            place_pull: 0.0,
            region: false,
            coded: Vec::new(),
            blooms: Vec::new(),
            hash: false,
            keyed: Vec::new(),
        };
        for soft in &ruleset.soft {
            layout.add_measure(ruleset, soft.measure);
        }
        for hard in &ruleset.hard {
            layout.add_rule(ruleset, &hard.rule);
        }
        layout.weigh(ruleset);
        layout
    }

    fn add_rule(&mut self, ruleset: &Ruleset, rule: &HardRule) {
        let kind = |attribute: usize| ruleset.attributes[attribute].kind;
        match rule {
            HardRule::Equal { attribute, .. } => match kind(*attribute) {
                ValueKind::Text | ValueKind::Flag => add(&mut self.keyed, *attribute),
                ValueKind::Number => add(&mut self.coded, *attribute),
                ValueKind::Texts => add(&mut self.blooms, *attribute),
            },
            HardRule::NotEqual { attribute, .. } => match kind(*attribute) {
                ValueKind::Text | ValueKind::Flag | ValueKind::Number => add(&mut self.coded, *attribute),
                ValueKind::Texts => {}
            },
            HardRule::Compatible { attribute, .. } => add(&mut self.coded, *attribute),
            HardRule::In { attribute, list, mutual } => {
                add(&mut self.coded, *attribute);
                match list {
                    InList::Attribute(asking) if *mutual => add(&mut self.blooms, *asking),
                    InList::Attribute(_) | InList::Texts(_) => {}
                }
            }
            HardRule::Overlap { attribute } => add(&mut self.blooms, *attribute),
            HardRule::Range { attribute, .. } => self.add_measure(ruleset, Measure::Attribute(*attribute)),
            HardRule::Within { measure, .. } => self.add_measure(ruleset, *measure),
            HardRule::SameHash => self.hash = true,
        }
    }

    fn add_measure(&mut self, ruleset: &Ruleset, measure: Measure) {
        match measure {
            Measure::Distance => self.place = true,
            Measure::Latency => (self.place, self.region) = (true, true),
            Measure::Attribute(attribute) if self.number(attribute).is_none() => {
                self.numbers.push(scale_of(ruleset, attribute));
            }
            Measure::Attribute(_) => {}
        }
    }

    /// Gives each dimension its worth in a split: what soft filters add per unit, and a little for limits.
    fn weigh(&mut self, ruleset: &Ruleset) {
        let total: f64 = ruleset.soft.iter().map(|soft| soft.weight).sum::<f64>().clamp(1e-300, 1e300);
        for number in &mut self.numbers {
            let per_value: f64 = pull(ruleset, total, |measure| match measure {
                Measure::Attribute(attribute) => (attribute == number.attribute).then_some(1.0),
                Measure::Latency | Measure::Distance => None,
            });
            number.pull = (per_value * number.span) as f32;
        }
        let line = &ruleset.line;
        self.place_pull = pull(ruleset, total, |measure| match measure {
            Measure::Distance => Some(1.0),
            Measure::Latency => Some(line.round_trip_ms(1.0) - line.intercept_ms),
            Measure::Attribute(_) => None,
        }) as f32;
    }

    /// The float column of a number attribute.
    pub(super) fn number(&self, attribute: usize) -> Option<usize> {
        self.numbers.iter().position(|number| number.attribute == attribute)
    }

    /// The float column of `x`.
    pub(super) fn x(&self) -> Option<usize> {
        self.place.then_some(self.numbers.len())
    }

    /// The float column of the best region.
    pub(super) fn region(&self) -> Option<usize> {
        self.region.then_some(self.numbers.len() + AXES)
    }

    /// How many float columns the tree splits along: numbers and axes.
    pub(super) fn dims(&self) -> usize {
        self.numbers.len() + if self.place { AXES } else { 0 }
    }

    /// How many float columns there are.
    pub(super) fn floats(&self) -> usize {
        self.dims() + usize::from(self.region)
    }

    /// The word column of an interned attribute.
    pub(super) fn code(&self, attribute: usize) -> Option<usize> {
        Some(word::FIXED + self.coded.iter().position(|&known| known == attribute)?)
    }

    /// The first of two word columns of a texts attribute.
    pub(super) fn bloom(&self, attribute: usize) -> Option<usize> {
        let at = self.blooms.iter().position(|&known| known == attribute)?;
        Some(word::FIXED + self.coded.len() + 2 * at)
    }

    /// The word column of the ruleset's hash.
    pub(super) fn hash(&self) -> Option<usize> {
        self.hash.then_some(word::FIXED + self.coded.len() + 2 * self.blooms.len())
    }

    /// How many word columns there are.
    pub(super) fn words(&self) -> usize {
        word::FIXED + self.coded.len() + 2 * self.blooms.len() + usize::from(self.hash)
    }

    /// What a unit along `dim` is worth to a split.
    pub(super) fn pull(&self, dim: usize) -> f32 {
        self.numbers.get(dim).map_or(self.place_pull, |number| number.pull)
    }

    /// Writes `entry` as a row.
    pub(super) fn write(
        &self,
        ruleset: &Ruleset,
        entry: &Entry,
        slot: u32,
        clock: &Ticks,
        codes: &mut Codes,
        row: &mut Row,
    ) {
        let advertisement = &entry.advertisement;
        row.clear();
        for number in &self.numbers {
            let value = entry.facts.number(number.attribute);
            row.exact.push(value.unwrap_or(f64::NAN));
            row.floats.push(value.map_or(f32::NAN, |value| number.stored(value)));
        }
        if self.place {
            let place = advertisement.session.locality.map_or([f32::NAN; AXES], |it| [it.x, it.y, it.z]);
            row.floats.extend(place);
        }
        if self.region {
            let best = advertisement.session.regions.iter().map(|region| region.round_trip_ms).reduce(f32::min);
            row.floats.push(best.unwrap_or(f32::NAN));
        }
        let [a, b, c, d, ..] = *advertisement.id.as_bytes();
        let (expires, since) = (clock.tick(entry.expires), clock.tick(advertisement.since));
        (row.slot, row.id) = (slot, u32::from_be_bytes([a, b, c, d]));
        let owner = Owner::of(advertisement);
        row.owner = owner.key;
        guard::ranges_of(ruleset, advertisement, &mut row.ranges);
        row.words.extend([expires, u32::from(entry.open_seats) | (owner.mark << 16), since]);
        for (column, &attribute) in self.coded.iter().enumerate() {
            row.words.push(codes.intern(column, entry.facts.get(attribute)));
        }
        for &attribute in &self.blooms {
            let bits = match entry.facts.get(attribute) {
                Some(Value::Texts(texts)) => bloom_of(texts),
                _ => u64::MAX,
            };
            row.words.extend([bits as u32, (bits >> 32) as u32]);
        }
        if self.hash {
            row.words.push(advertisement.hash.0);
        }
    }
}

/// One row on its way into a leaf.
#[derive(Debug, Default)]
pub(super) struct Row {
    /// Place in the slab.
    pub(super) slot: u32,
    /// The id's first four bytes, in the order of ids.
    pub(super) id: u32,
    /// Numbers in f64; NaN for none.
    pub(super) exact: Vec<f64>,
    /// Float columns; NaN for none.
    pub(super) floats: Vec<f32>,
    /// Word columns.
    pub(super) words: Vec<u32>,
    /// The whole key of its owner.
    pub(super) owner: [u64; 2],
    /// Ranges that it published.
    pub(super) ranges: Vec<Range>,
}

impl Row {
    pub(super) fn clear(&mut self) {
        self.exact.clear();
        self.floats.clear();
        self.words.clear();
        self.ranges.clear();
    }
}

/// Moments as 31-bit ticks of 128 ms from 4 years before the first moment seen to 4 years after. Outside they
/// saturate. Never decreasing in the moment, which is all that its users rest on; and the portable instruction set
/// compares signed numbers only.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ticks {
    base: Option<u64>,
}

/// The last tick.
pub(super) const TICK_MAX: u32 = i32::MAX as u32;

impl Ticks {
    /// Fixes the middle of the range, unless that has been done.
    pub(super) fn anchor(&mut self, moment: UnixMs) {
        let _ = *self.base.get_or_insert((moment.0 >> 7).saturating_sub(1 << 30));
    }

    /// The tick that `moment` falls into.
    pub(super) fn tick(&self, moment: UnixMs) -> u32 {
        let ticks = (moment.0 >> 7).saturating_sub(self.base.unwrap_or(0));
        u32::try_from(ticks).unwrap_or(TICK_MAX).min(TICK_MAX)
    }
}

/// 64 bits, one set for each text. Lists that share a text share a bit.
pub(super) fn bloom_of(texts: &[Box<str>]) -> u64 {
    texts.iter().fold(0, |bits, text| bits | bloom_bit(text))
}

/// The bit of one text: FNV-1a (Fowler, Noll, Vo), folded to six bits.
pub(super) fn bloom_bit(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, step);
    1 << ((hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58)
}

fn add(columns: &mut Vec<usize>, attribute: usize) {
    if !columns.contains(&attribute) {
        columns.push(attribute);
    }
}

/// The offset and span of a number's column: its declared range, else the range of a soft filter, else a limit.
fn scale_of(ruleset: &Ruleset, attribute: usize) -> Number {
    let own = |soft: &&SoftFilter| soft.measure == Measure::Attribute(attribute);
    let wished = ruleset.soft.iter().find(own).map(|soft| (soft.min, soft.max));
    let limits = ruleset.expansions.iter().filter(|it| it.measure == Measure::Attribute(attribute));
    let widest = limits.filter_map(|it| it.steps().last()).map(|step| step.value).fold(0.0, f64::max);
    let (min, max, window) = match ruleset.attributes[attribute].range.or(wished) {
        Some((min, max)) => (min, max, WINDOW_DECLARED),
        None if 0.0 < widest => (0.0, widest, WINDOW_UNDECLARED),
        None => (0.0, 1.0, WINDOW_UNDECLARED),
    };
    let span = if min < max { max - min } else { 1.0 };
    let ranges = ruleset.soft.iter().filter(own).flat_map(|soft| [soft.min, soft.max]);
    let reach = ranges.map(|value| ((value - min) / span).abs()).fold(window, f64::max);
    Number { attribute, offset: min, span, window: reach.min(WINDOW_UNDECLARED), pull: 0.0 }
}

/// What one unit of a value is worth to the score, as a share of all weights; `units` says how many units of the
/// measure one unit of the value is.
fn pull(ruleset: &Ruleset, total: f64, units: impl Fn(Measure) -> Option<f64>) -> f64 {
    let soft = ruleset.soft.iter();
    let soft = soft.filter_map(|it| Some(units(it.measure)? * (it.weight / total) / (it.max - it.min)));
    let limits = ruleset.hard.iter().filter_map(|hard| match hard.rule {
        HardRule::Within { measure, expansion, .. } => {
            let widest = ruleset.expansions[expansion].steps().last().map_or(1.0, |step| step.value.max(1e-9));
            Some(0.05 * units(measure)? / widest)
        }
        _ => None,
    });
    soft.chain(limits).sum()
}
