//! Row rules, which apply under any ruleset: the searcher's own sessions, and ranges published by advertisements.
//!
//! Each row stores one owner key completely, so that scans over many own rows read no entries. Leaves store published
//! ranges only for attributes that have any. `filter::admit_advertisement` checks the other players of a row.

use crate::advertisement::Advertisement;
use crate::filter::Searcher;
use crate::id::UserKey;
use crate::ruleset::Ruleset;

/// Owner of a row: the authenticated publisher, else the first user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RowOwnerKey {
    /// Complete user key.
    pub(super) key: [u64; 2],
    /// 0 for no owner; otherwise the kind (publisher or user) and 14 bits of the key. 16 bits, stored above the seats.
    pub(super) tag: u32,
}

/// Tag of an owner that is the first user.
const USER_OWNER_TAG: u32 = 0x8000;
/// Tag of an owner that is the authenticated publisher.
const PUBLISHER_OWNER_TAG: u32 = 0xc000;

/// Bits of `word_column::SEATS_AND_OWNER` with the open seats.
pub(super) const SEATS_MASK: u32 = 0xffff;

impl RowOwnerKey {
    /// Owner of an advertisement.
    pub(super) fn of_advertisement(advertisement: &Advertisement) -> Self {
        let user = || advertisement.session.players.first().map(|player| Self::new(player.user, USER_OWNER_TAG));
        let publisher = advertisement.publisher.map(|publisher| Self::new(publisher, PUBLISHER_OWNER_TAG));
        publisher.or_else(user).unwrap_or_default()
    }

    /// Owners whose rows are the searcher's own sessions.
    pub(super) fn owner_keys_of_searcher<'a>(searcher: &Searcher<'a>) -> impl Iterator<Item = Self> + use<'a> {
        let caller = searcher.caller.map(|caller| Self::new(caller, PUBLISHER_OWNER_TAG));
        caller.into_iter().chain(searcher.users.iter().map(|&user| Self::new(user, USER_OWNER_TAG)))
    }

    fn new(key: UserKey, kind: u32) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = *key.as_bytes();
        let key = [u64::from_le_bytes([a, b, c, d, e, f, g, h]), u64::from_le_bytes([i, j, k, l, m, n, o, p])];
        let bits = (key[0] ^ (key[1] >> 48)) as u32;
        Self { key, tag: kind | (bits & 0x3fff) }
    }
}

/// Published range of one attribute in a row. Rounded outward, so that a value outside is certainly refused.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PublishedRange {
    /// Index in `Ruleset::attributes`.
    pub(super) attribute_index: usize,
    /// Lower bound; always finite, because minus infinity marks a row without range.
    pub(super) lower: f32,
    pub(super) upper: f32,
}

/// Appends the ranges of `advertisement` for attributes that `ruleset` declares, one per attribute.
pub(super) fn append_published_ranges(ruleset: &Ruleset, advertisement: &Advertisement, out: &mut Vec<PublishedRange>) {
    for allowed in &advertisement.allowed_ranges {
        let Some(attribute_index) = ruleset.attribute_index(&allowed.attribute) else { continue };
        // `f32::max` and `f32::min` ignore NaN.
        let lower = allowed.min.map_or(f32::MIN, round_down).max(f32::MIN);
        let upper = allowed.max.map_or(f32::INFINITY, round_up).min(f32::INFINITY);
        match out.iter_mut().find(|range| range.attribute_index == attribute_index) {
            Some(range) => (range.lower, range.upper) = (range.lower.max(lower), range.upper.min(upper)),
            None => out.push(PublishedRange { attribute_index, lower, upper }),
        }
    }
}

/// Interval around a searcher's value, rounded outward, for comparison with ranges. Without a value, an interval
/// outside all ranges.
pub(super) fn round_outward(value: Option<f64>) -> [f32; 2] {
    value.map_or([f32::NEG_INFINITY; 2], |value| [round_down(value), round_up(value)])
}

fn round_down(value: f64) -> f32 {
    (value as f32).next_down()
}

fn round_up(value: f64) -> f32 {
    (value as f32).next_up()
}

/// Published ranges of a leaf's rows for one attribute.
#[derive(Debug)]
pub(super) struct PublishedRangeColumn {
    /// Index in `Ruleset::attributes`.
    pub(super) attribute_index: usize,
    /// Lower bound, by row; minus infinity for no range.
    pub(super) lower: Vec<f32>,
    /// Upper bound, by row; infinity for no range.
    pub(super) upper: Vec<f32>,
}

impl PublishedRangeColumn {
    /// No ranges, with space for `capacity` rows.
    pub(super) fn new(attribute_index: usize, capacity: usize) -> Self {
        let mut new = Self { attribute_index, lower: Vec::new(), upper: Vec::new() };
        new.grow(capacity);
        new
    }

    /// Extends the space to `capacity` rows.
    pub(super) fn grow(&mut self, capacity: usize) {
        self.lower.resize(capacity, f32::NEG_INFINITY);
        self.upper.resize(capacity, f32::INFINITY);
    }

    /// Removes the range of a row.
    pub(super) fn clear_row(&mut self, row_index: usize) {
        (self.lower[row_index], self.upper[row_index]) = (f32::NEG_INFINITY, f32::INFINITY);
    }

    /// Range of a row, if any.
    pub(super) fn row_range(&self, row_index: usize) -> Option<PublishedRange> {
        let (lower, upper) = (self.lower[row_index], self.upper[row_index]);
        (lower > f32::NEG_INFINITY).then_some(PublishedRange { attribute_index: self.attribute_index, lower, upper })
    }
}
