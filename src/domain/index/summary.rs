//! What is known of each leaf without reading it: never too tight, sometimes too wide.

use crate::domain::index::code;
use crate::domain::index::guard::SEATS_BITS;
use crate::domain::index::layout::{Layout, Row, TICK_MAX, word};
use crate::domain::index::leaf::Leaf;

/// Bounds of every leaf of a partition, one array each so that all leaves are judged in one plain loop.
#[derive(Debug, Default)]
pub(super) struct Summary {
    /// By float column, then by leaf: the least value; infinite when there is none.
    pub(super) least: Vec<Vec<f32>>,
    /// The greatest value; minus infinite when there is none.
    pub(super) greatest: Vec<Vec<f32>>,
    /// By leaf, then by float column: least and greatest once more. Most rows widen nothing, and here that is seen in
    /// one place.
    hulls: Vec<[f32; 2]>,
    /// 1 when some row may lack the value.
    pub(super) gaps: Vec<Vec<u32>>,
    /// The latest expiry.
    pub(super) expires: Vec<u32>,
    /// The most open seats.
    pub(super) seats: Vec<u32>,
    /// The earliest `since`.
    pub(super) since: Vec<u32>,
    /// By word column after the fixed ones, then by leaf: which codes there may be, as `code::bit`, or all bits that
    /// any list of texts has.
    pub(super) sets: Vec<Vec<u32>>,
    /// Rows.
    pub(super) len: Vec<u32>,
    /// How many of `sets` are of codes.
    coded: usize,
}

impl Summary {
    pub(super) fn new(layout: &Layout) -> Self {
        let floats = layout.floats();
        Self {
            sets: vec![Vec::new(); layout.words() - word::FIXED],
            coded: layout.coded.len(),
            least: vec![Vec::new(); floats],
            greatest: vec![Vec::new(); floats],
            gaps: vec![Vec::new(); floats],
            ..Self::default()
        }
    }

    /// How many leaves there are.
    pub(super) fn leaves(&self) -> usize {
        self.len.len()
    }

    /// Adds an empty leaf.
    pub(super) fn push(&mut self) {
        self.least.iter_mut().for_each(|column| column.push(f32::INFINITY));
        self.greatest.iter_mut().for_each(|column| column.push(f32::NEG_INFINITY));
        self.gaps.iter_mut().for_each(|column| column.push(0));
        self.hulls.extend(self.least.iter().map(|_| [f32::INFINITY, f32::NEG_INFINITY]));
        self.sets.iter_mut().for_each(|column| column.push(0));
        self.expires.push(0);
        self.seats.push(0);
        self.since.push(TICK_MAX);
        self.len.push(0);
    }

    /// Widens a leaf's bounds to take in `row`.
    pub(super) fn widen(&mut self, leaf: usize, row: &Row) {
        let hull = &mut self.hulls[leaf * row.floats.len()..][..row.floats.len()];
        for (column, (&value, [least, greatest])) in row.floats.iter().zip(hull).enumerate() {
            if value.is_nan() {
                self.gaps[column][leaf] = 1;
            } else if value < *least || *greatest < value {
                (*least, *greatest) = (least.min(value), greatest.max(value));
                (self.least[column][leaf], self.greatest[column][leaf]) = (*least, *greatest);
            }
        }
        self.expires[leaf] = self.expires[leaf].max(row.words[word::EXPIRES]);
        self.seats[leaf] = self.seats[leaf].max(row.words[word::SEATS] & SEATS_BITS);
        self.since[leaf] = self.since[leaf].min(row.words[word::SINCE]);
        for (column, (set, &word)) in self.sets.iter_mut().zip(&row.words[word::FIXED..]).enumerate() {
            set[leaf] |= if column < self.coded { code::bit(word) } else { word };
        }
    }

    /// Computes a leaf's bounds anew; it has no holes.
    pub(super) fn recompute(&mut self, at: usize, leaf: &Leaf) {
        for column in 0..self.least.len() {
            let values = leaf.floats(column);
            // `f32::min` and `f32::max` pass over NaN.
            self.least[column][at] = values.iter().copied().fold(f32::INFINITY, f32::min);
            self.greatest[column][at] = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            self.hulls[at * self.least.len() + column] = [self.least[column][at], self.greatest[column][at]];
            self.gaps[column][at] = u32::from(values.iter().any(|value| value.is_nan()));
        }
        self.expires[at] = leaf.words(word::EXPIRES).iter().copied().max().unwrap_or(0);
        self.seats[at] = leaf.words(word::SEATS).iter().map(|word| word & SEATS_BITS).max().unwrap_or(0);
        self.since[at] = leaf.words(word::SINCE).iter().copied().min().unwrap_or(TICK_MAX);
        for (column, set) in self.sets.iter_mut().enumerate() {
            let words = leaf.words(word::FIXED + column).iter();
            let bits = words.map(|&word| if column < self.coded { code::bit(word) } else { word });
            set[at] = bits.fold(0, |all, bits| all | bits);
        }
        self.len[at] = leaf.len() as u32;
    }
}
