//! What the kernel passes over: a run of rows, or of leaves with their bounds. A row is a leaf whose least and greatest
//! values are the same, so both are judged by the same passes.

use crate::index::layout::word_column;
use crate::index::leaf::Leaf;
use crate::index::leaf_bounds::LeafBounds;

/// A run of rows or leaves.
pub(super) trait ColumnBlock: Copy {
    /// Whether least and greatest are the same, and a gap is a NaN.
    const IS_ROWS: bool;
    fn lower_values(&self, column: usize) -> &[f32];
    fn upper_values(&self, column: usize) -> &[f32];
    /// Empty for rows.
    fn may_be_missing(&self, column: usize) -> &[u32];
    /// One of the fixed words, at its most lenient.
    fn fixed_words(&self, column: usize) -> &[u32];
    /// Any other word; of leaves what `Summary::sets` says.
    fn attribute_words(&self, column: usize) -> &[u32];
    /// Whole keys of owners; empty for leaves.
    fn owner_keys(&self) -> &[[u64; 2]];
    /// Published ranges of the `number`th attribute that has any, and which attribute that is; none for leaves.
    fn published_range_bounds(&self, number: usize) -> Option<(usize, &[f32], &[f32])>;
}

/// Rows `from..from + len` of a leaf.
#[derive(Clone, Copy)]
pub(super) struct RowBlock<'a> {
    pub(super) leaf: &'a Leaf,
    pub(super) first_row: usize,
    pub(super) len: usize,
}

impl ColumnBlock for RowBlock<'_> {
    const IS_ROWS: bool = true;

    #[inline(always)]
    fn lower_values(&self, column: usize) -> &[f32] {
        &self.leaf.float_column(column)[self.first_row..][..self.len]
    }

    #[inline(always)]
    fn upper_values(&self, column: usize) -> &[f32] {
        self.lower_values(column)
    }

    #[inline(always)]
    fn may_be_missing(&self, _column: usize) -> &[u32] {
        &[]
    }

    #[inline(always)]
    fn fixed_words(&self, column: usize) -> &[u32] {
        &self.leaf.word_column(column)[self.first_row..][..self.len]
    }

    #[inline(always)]
    fn attribute_words(&self, column: usize) -> &[u32] {
        self.fixed_words(column)
    }

    #[inline(always)]
    fn owner_keys(&self) -> &[[u64; 2]] {
        &self.leaf.owner_keys()[self.first_row..][..self.len]
    }

    #[inline(always)]
    fn published_range_bounds(&self, number: usize) -> Option<(usize, &[f32], &[f32])> {
        let ranges = self.leaf.published_ranges().get(number)?;
        let rows = self.first_row..self.first_row + self.len;
        Some((ranges.attribute_index, &ranges.lower[rows.clone()], &ranges.upper[rows]))
    }
}

/// Leaves `from..from + len` of a partition.
#[derive(Clone, Copy)]
pub(super) struct LeafBlock<'a> {
    pub(super) leaf_bounds: &'a LeafBounds,
    pub(super) first_leaf: usize,
    pub(super) len: usize,
}

impl ColumnBlock for LeafBlock<'_> {
    const IS_ROWS: bool = false;

    #[inline(always)]
    fn lower_values(&self, column: usize) -> &[f32] {
        &self.leaf_bounds.lower[column][self.first_leaf..][..self.len]
    }

    #[inline(always)]
    fn upper_values(&self, column: usize) -> &[f32] {
        &self.leaf_bounds.upper[column][self.first_leaf..][..self.len]
    }

    #[inline(always)]
    fn may_be_missing(&self, column: usize) -> &[u32] {
        &self.leaf_bounds.may_be_missing[column][self.first_leaf..][..self.len]
    }

    #[inline(always)]
    fn fixed_words(&self, column: usize) -> &[u32] {
        let words = match column {
            word_column::EXPIRES_AT => &self.leaf_bounds.latest_expiry,
            word_column::SEATS_AND_OWNER => &self.leaf_bounds.max_open_seats,
            _ => &self.leaf_bounds.earliest_since,
        };
        &words[self.first_leaf..][..self.len]
    }

    #[inline(always)]
    fn attribute_words(&self, column: usize) -> &[u32] {
        &self.leaf_bounds.word_bits[column - word_column::FIXED_COUNT][self.first_leaf..][..self.len]
    }

    #[inline(always)]
    fn owner_keys(&self) -> &[[u64; 2]] {
        &[]
    }

    #[inline(always)]
    fn published_range_bounds(&self, _number: usize) -> Option<(usize, &[f32], &[f32])> {
        None
    }
}
