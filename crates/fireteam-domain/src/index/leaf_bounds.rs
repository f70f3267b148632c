//! Bounds of leaves: conservative ranges of the values in each leaf, so that searches can skip leaves without reading
//! them.

use crate::index::interner;
use crate::index::layout::{ColumnLayout, RowBuffer, TICK_MAX};
use crate::index::leaf::Leaf;
use crate::index::row_rules::SEATS_MASK;
use crate::index::word_column;

/// Bounds of all leaves of a partition, as one array per bound, so that a simple loop evaluates all leaves.
#[derive(Debug, Default)]
pub(super) struct LeafBounds {
    /// Lowest value, by float column, then by leaf; infinite if there is none.
    pub(super) lower: Vec<Vec<f32>>,
    /// Highest value, by float column, then by leaf; minus infinite if there is none.
    pub(super) upper: Vec<Vec<f32>>,
    /// Copy of lowest and highest value, by leaf, then by float column. Most inserts widen no bound; here the check
    /// reads contiguous memory.
    intervals_by_leaf: Vec<[f32; 2]>,
    /// 1 if some row may lack the value, by float column, then by leaf.
    pub(super) may_be_missing: Vec<Vec<u32>>,
    /// Latest expiry in ticks, by leaf.
    pub(super) latest_expiry: Vec<u32>,
    /// Maximum open seats, by leaf.
    pub(super) max_open_seats: Vec<u32>,
    /// Earliest `advertised_since` in ticks, by leaf.
    pub(super) earliest_since: Vec<u32>,
    /// Union of bits, by word column after the fixed ones, then by leaf: `interner::code_bit` of the codes, or the
    /// Bloom filter bits of the string lists.
    pub(super) word_bits: Vec<Vec<u32>>,
    /// Number of rows, by leaf.
    pub(super) row_counts: Vec<u32>,
    /// Number of columns in `word_bits` with interned codes.
    interned_column_count: usize,
}

impl LeafBounds {
    pub(super) fn new(layout: &ColumnLayout) -> Self {
        let float_columns = layout.float_column_count();
        Self {
            word_bits: vec![Vec::new(); layout.word_column_count() - word_column::FIXED_COUNT],
            interned_column_count: layout.interned_attributes.len(),
            lower: vec![Vec::new(); float_columns],
            upper: vec![Vec::new(); float_columns],
            may_be_missing: vec![Vec::new(); float_columns],
            ..Self::default()
        }
    }

    /// Number of leaves.
    pub(super) fn leaf_count(&self) -> usize {
        self.row_counts.len()
    }

    /// Adds bounds of an empty leaf.
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

    /// Widens the bounds of a leaf to include `row`.
    pub(super) fn widen_to_row(&mut self, leaf: usize, row: &RowBuffer) {
        let intervals = &mut self.intervals_by_leaf[leaf * row.float_columns.len()..][..row.float_columns.len()];
        for (column, (&value, [lower, upper])) in row.float_columns.iter().zip(intervals).enumerate() {
            if value.is_nan() {
                self.may_be_missing[column][leaf] = 1;
            } else if value < *lower || value > *upper {
                (*lower, *upper) = (lower.min(value), upper.max(value));
                (self.lower[column][leaf], self.upper[column][leaf]) = (*lower, *upper);
            }
        }
        self.latest_expiry[leaf] = self.latest_expiry[leaf].max(row.word_columns[word_column::EXPIRES_AT]);
        self.max_open_seats[leaf] =
            self.max_open_seats[leaf].max(row.word_columns[word_column::SEATS_AND_OWNER] & SEATS_MASK);
        self.earliest_since[leaf] = self.earliest_since[leaf].min(row.word_columns[word_column::ADVERTISED_SINCE]);
        for (column, (leaf_bits, &word)) in
            self.word_bits.iter_mut().zip(&row.word_columns[word_column::FIXED_COUNT..]).enumerate()
        {
            leaf_bits[leaf] |= if column < self.interned_column_count { interner::code_bit(word) } else { word };
        }
    }

    /// Recomputes the bounds of the leaf at `leaf_index`, which must have no holes.
    pub(super) fn recompute_leaf(&mut self, leaf_index: usize, leaf: &Leaf) {
        for column in 0..self.lower.len() {
            let values = leaf.float_column(column);
            // `f32::min` and `f32::max` ignore NaN.
            self.lower[column][leaf_index] = values.iter().copied().fold(f32::INFINITY, f32::min);
            self.upper[column][leaf_index] = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            self.intervals_by_leaf[leaf_index * self.lower.len() + column] =
                [self.lower[column][leaf_index], self.upper[column][leaf_index]];
            self.may_be_missing[column][leaf_index] = u32::from(values.iter().any(|value| value.is_nan()));
        }
        self.latest_expiry[leaf_index] = leaf.word_column(word_column::EXPIRES_AT).iter().copied().max().unwrap_or(0);
        self.max_open_seats[leaf_index] =
            leaf.word_column(word_column::SEATS_AND_OWNER).iter().map(|word| word & SEATS_MASK).max().unwrap_or(0);
        self.earliest_since[leaf_index] =
            leaf.word_column(word_column::ADVERTISED_SINCE).iter().copied().min().unwrap_or(TICK_MAX);
        for (column, leaf_bits) in self.word_bits.iter_mut().enumerate() {
            let words = leaf.word_column(word_column::FIXED_COUNT + column).iter();
            let bits =
                words.map(|&word| if column < self.interned_column_count { interner::code_bit(word) } else { word });
            leaf_bits[leaf_index] = bits.fold(0, |all, bits| all | bits);
        }
        self.row_counts[leaf_index] = leaf.len() as u32;
    }
}
