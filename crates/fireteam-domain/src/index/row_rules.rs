//! What a row itself has against a searcher, whatever the ruleset says: that it is the searcher's own (S1-50), and the
//! ranges that it published.
//!
//! One owner of each row is kept whole, so that a sweep over nothing but one's own rows needs none of their entries. Ranges
//! are kept only by leaves that have any. Whoever else plays in a row is left to `filter::admit`.

use crate::advertisement::Advertisement;
use crate::filter::Searcher;
use crate::id::UserKey;
use crate::ruleset::Ruleset;

/// A row's owner: its subject, else the first of its users.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RowOwner {
    /// The whole key.
    pub(super) key: [u64; 2],
    /// 0 for nobody; else whether it is a subject or a user, and some bits of the key. Fits above the seats.
    pub(super) tag: u32,
}

const USER_TAG: u32 = 0x8000;
const CALLER_TAG: u32 = 0xc000;

/// The bits of `word::SEATS` below the mark.
pub(super) const SEATS_MASK: u32 = 0xffff;

impl RowOwner {
    /// The owner of an advertisement.
    pub(super) fn of_advertisement(advertisement: &Advertisement) -> Self {
        let user = || advertisement.session.players.first().map(|player| Self::new(player.user, USER_TAG));
        let subject = advertisement.publisher.map(|subject| Self::new(subject, CALLER_TAG));
        subject.or_else(user).unwrap_or_default()
    }

    /// Owners whose rows are the searcher's own.
    pub(super) fn all_of_searcher<'a>(searcher: &Searcher<'a>) -> impl Iterator<Item = Self> + use<'a> {
        let subject = searcher.caller.map(|subject| Self::new(subject, CALLER_TAG));
        subject.into_iter().chain(searcher.users.iter().map(|&user| Self::new(user, USER_TAG)))
    }

    fn new(key: UserKey, kind: u32) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = *key.as_bytes();
        let key = [u64::from_le_bytes([a, b, c, d, e, f, g, h]), u64::from_le_bytes([i, j, k, l, m, n, o, p])];
        let bits = (key[0] ^ (key[1] >> 48)) as u32;
        Self { key, tag: kind | (bits & 0x3fff) }
    }
}

/// A published range of one attribute, on its way into a leaf. Rounded outward: what lies outside is refused for certain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PublishedRange {
    /// Its place in `Ruleset::attributes`.
    pub(super) attribute_index: usize,
    /// Finite, which tells it from no range.
    pub(super) lower: f32,
    pub(super) upper: f32,
}

/// Adds the ranges of `advertisement` that say something under `ruleset`, each attribute once.
pub(super) fn published_ranges(ruleset: &Ruleset, advertisement: &Advertisement, out: &mut Vec<PublishedRange>) {
    for allowed in &advertisement.allowed_ranges {
        let Some(attribute) = ruleset.attribute_index(&allowed.attribute) else { continue };
        // `f32::max` and `f32::min` pass over NaN.
        let least = allowed.min.map_or(f32::MIN, round_down).max(f32::MIN);
        let greatest = allowed.max.map_or(f32::INFINITY, round_up).min(f32::INFINITY);
        match out.iter_mut().find(|range| range.attribute_index == attribute) {
            Some(range) => (range.lower, range.upper) = (range.lower.max(least), range.upper.min(greatest)),
            None => out.push(PublishedRange { attribute_index: attribute, lower: least, upper: greatest }),
        }
    }
}

/// A searcher's value as ranges are held against it: not above it and not below it. None at all lies outside every
/// range.
pub(super) fn value_interval(value: Option<f64>) -> [f32; 2] {
    value.map_or([f32::NEG_INFINITY; 2], |value| [round_down(value), round_up(value)])
}

fn round_down(value: f64) -> f32 {
    (value as f32).next_down()
}

fn round_up(value: f64) -> f32 {
    (value as f32).next_up()
}

/// The ranges that a leaf's rows have for one attribute.
#[derive(Debug)]
pub(super) struct LeafRanges {
    /// Its place in `Ruleset::attributes`.
    pub(super) attribute_index: usize,
    /// By row; minus infinity for none.
    pub(super) lower: Vec<f32>,
    /// By row; infinity for none.
    pub(super) upper: Vec<f32>,
}

impl LeafRanges {
    /// None yet.
    pub(super) fn new(attribute: usize, room: usize) -> Self {
        let mut new = Self { attribute_index: attribute, lower: Vec::new(), upper: Vec::new() };
        new.grow(room);
        new
    }

    /// Makes room for more rows.
    pub(super) fn grow(&mut self, room: usize) {
        self.lower.resize(room, f32::NEG_INFINITY);
        self.upper.resize(room, f32::INFINITY);
    }

    /// Forgets what the row that was at `at` had.
    pub(super) fn clear_row(&mut self, at: usize) {
        (self.lower[at], self.upper[at]) = (f32::NEG_INFINITY, f32::INFINITY);
    }

    /// What the row at `at` has.
    pub(super) fn row_range(&self, at: usize) -> Option<PublishedRange> {
        let (least, greatest) = (self.lower[at], self.upper[at]);
        (f32::NEG_INFINITY < least).then_some(PublishedRange {
            attribute_index: self.attribute_index,
            lower: least,
            upper: greatest,
        })
    }
}
