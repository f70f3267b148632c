//! What is known of each leaf without reading it: never too tight, sometimes too wide.

use crate::index::interner;
use crate::index::layout::{ColumnLayout, RowBuffer, TICK_MAX, word_column};
use crate::index::leaf::Leaf;
use crate::index::row_rules::SEATS_MASK;

/// Bounds of every leaf of a partition, one array each so that all leaves are judged in one plain loop.
#[derive(Debug, Default)]
pub(super) struct LeafBounds {
    /// By float column, then by leaf: the least value; infinite when there is none.
    pub(super) lower: Vec<Vec<f32>>,
    /// The greatest value; minus infinite when there is none.
    pub(super) upper: Vec<Vec<f32>>,
    /// By leaf, then by float column: least and greatest once more. Most rows widen nothing, and here that is seen in
    /// one place.
    intervals_by_leaf: Vec<[f32; 2]>,
    /// 1 when some row may lack the value.
    pub(super) may_be_missing: Vec<Vec<u32>>,
    /// The latest expiry.
    pub(super) latest_expiry: Vec<u32>,
    /// The most open seats.
    pub(super) max_open_seats: Vec<u32>,
    /// The earliest `since`.
    pub(super) earliest_since: Vec<u32>,
    /// By word column after the fixed ones, then by leaf: which codes there may be, as `code::bit`, or all bits that
    /// any list of texts has.
    pub(super) word_bits: Vec<Vec<u32>>,
    /// Rows.
    pub(super) row_counts: Vec<u32>,
    /// How many of `sets` are of codes.
    interned_column_count: usize,
}

impl LeafBounds {
    pub(super) fn new(layout: &ColumnLayout) -> Self {
        let floats = layout.float_column_count();
        Self {
            word_bits: vec![Vec::new(); layout.word_column_count() - word_column::FIXED_COUNT],
            interned_column_count: layout.interned_attributes.len(),
            lower: vec![Vec::new(); floats],
            upper: vec![Vec::new(); floats],
            may_be_missing: vec![Vec::new(); floats],
            ..Self::default()
        }
    }

    /// How many leaves there are.
    pub(super) fn leaf_count(&self) -> usize {
        self.row_counts.len()
    }

    /// Adds an empty leaf.
    pub(super) fn push_empty_leaf(&mut self) {
        self.lower.iter_mut().for_each(|column| column.push(f32::INFINITY));
        self.upper.iter_mut().for_each(|column| column.push(f32::NEG_INFINITY));
        self.may_be_missing.iter_mut().for_each(|column| column.push(0));
        self.intervals_by_leaf.extend(self.lower.iter().map(|_| [f32::INFINITY, f32::NEG_INFINITY]));
        self.word_bits.iter_mut().for_each(|column| column.push(0));
        self.latest_expiry.push(0);
        self.max_open_seats.push(0);
        self.earliest_since.push(TICK_MAX);
        self.row_counts.push(0);
    }

    /// Widens a leaf's bounds to take in `row`.
    pub(super) fn widen_to_row(&mut self, leaf: usize, row: &RowBuffer) {
        let hull = &mut self.intervals_by_leaf[leaf * row.float_columns.len()..][..row.float_columns.len()];
        for (column, (&value, [least, greatest])) in row.float_columns.iter().zip(hull).enumerate() {
            if value.is_nan() {
                self.may_be_missing[column][leaf] = 1;
            } else if value < *least || *greatest < value {
                (*least, *greatest) = (least.min(value), greatest.max(value));
                (self.lower[column][leaf], self.upper[column][leaf]) = (*least, *greatest);
            }
        }
        self.latest_expiry[leaf] = self.latest_expiry[leaf].max(row.word_columns[word_column::EXPIRES_AT]);
        self.max_open_seats[leaf] =
            self.max_open_seats[leaf].max(row.word_columns[word_column::SEATS_AND_OWNER] & SEATS_MASK);
        self.earliest_since[leaf] = self.earliest_since[leaf].min(row.word_columns[word_column::ADVERTISED_SINCE]);
        for (column, (set, &word)) in
            self.word_bits.iter_mut().zip(&row.word_columns[word_column::FIXED_COUNT..]).enumerate()
        {
            set[leaf] |= if column < self.interned_column_count { interner::code_bit(word) } else { word };
        }
    }

    /// Computes a leaf's bounds anew; it has no holes.
    pub(super) fn recompute_leaf(&mut self, at: usize, leaf: &Leaf) {
        for column in 0..self.lower.len() {
            let values = leaf.float_column(column);
            // `f32::min` and `f32::max` pass over NaN.
            self.lower[column][at] = values.iter().copied().fold(f32::INFINITY, f32::min);
            self.upper[column][at] = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            self.intervals_by_leaf[at * self.lower.len() + column] = [self.lower[column][at], self.upper[column][at]];
            self.may_be_missing[column][at] = u32::from(values.iter().any(|value| value.is_nan()));
        }
        self.latest_expiry[at] = leaf.word_column(word_column::EXPIRES_AT).iter().copied().max().unwrap_or(0);
        self.max_open_seats[at] =
            leaf.word_column(word_column::SEATS_AND_OWNER).iter().map(|word| word & SEATS_MASK).max().unwrap_or(0);
        self.earliest_since[at] =
            leaf.word_column(word_column::ADVERTISED_SINCE).iter().copied().min().unwrap_or(TICK_MAX);
        for (column, set) in self.word_bits.iter_mut().enumerate() {
            let words = leaf.word_column(word_column::FIXED_COUNT + column).iter();
            let bits =
                words.map(|&word| if column < self.interned_column_count { interner::code_bit(word) } else { word });
            set[at] = bits.fold(0, |all, bits| all | bits);
        }
        self.row_counts[at] = leaf.len() as u32;
    }
}
