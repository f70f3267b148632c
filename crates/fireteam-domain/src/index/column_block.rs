//! Column block: consecutive rows of a leaf, or consecutive leaves with their bounds, as input of the kernel. A row is
//! like a leaf with equal lower and upper values, so the same loops evaluate both.

use crate::index::leaf::Leaf;
use crate::index::leaf_bounds::LeafBounds;
use crate::index::word_column;

/// Maximum number of rows or leaves in one block.
pub(super) const BLOCK_LEN_MAX: usize = 512;

/// Consecutive rows or leaves. All slices have the length of the block, unless stated otherwise.
pub(super) trait ColumnBlock: Copy {
    /// True for rows: lower and upper values are equal, and NaN marks a missing value.
    const IS_ROWS: bool;
    /// Lowest value per leaf, or the value per row, of a float column.
    fn lower_values(&self, column: usize) -> &[f32];
    /// Highest value per leaf, or the value per row, of a float column.
    fn upper_values(&self, column: usize) -> &[f32];
    /// 1 for each leaf in which some row may lack the value; empty for rows.
    fn may_be_missing(&self, column: usize) -> &[u32];
    /// A fixed word column; for leaves, the most permissive value of their rows.
    fn fixed_words(&self, column: usize) -> &[u32];
    /// Any other word column; for leaves, `LeafBounds::word_bits`.
    fn attribute_words(&self, column: usize) -> &[u32];
    /// Complete owner keys; empty for leaves.
    fn owner_keys(&self) -> &[[u64; 2]];
    /// Attribute index, lower and upper bounds of the `nth` attribute with published ranges; `None` for leaves.
    fn published_range_bounds(&self, nth: usize) -> Option<(usize, &[f32], &[f32])>;
}

/// Rows `first_row..first_row + len` of a leaf.
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
    fn published_range_bounds(&self, nth: usize) -> Option<(usize, &[f32], &[f32])> {
        let ranges = self.leaf.published_ranges().get(nth)?;
        let rows = self.first_row..self.first_row + self.len;
        Some((ranges.attribute_index, &ranges.lower[rows.clone()], &ranges.upper[rows]))
    }
}

/// Leaves `first_leaf..first_leaf + len` of a partition.
#[derive(Clone, Copy)]
pub(super) struct LeafBoundsBlock<'a> {
    pub(super) leaf_bounds: &'a LeafBounds,
    pub(super) first_leaf: usize,
    pub(super) len: usize,
}

impl ColumnBlock for LeafBoundsBlock<'_> {
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
    fn published_range_bounds(&self, _nth: usize) -> Option<(usize, &[f32], &[f32])> {
        None
    }
}
