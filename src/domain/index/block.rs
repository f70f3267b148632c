//! What the kernel passes over: a run of rows, or of leaves with their bounds. A row is a leaf whose least and greatest
//! values are the same, so both are judged by the same passes.

use crate::domain::index::layout::word;
use crate::domain::index::leaf::Leaf;
use crate::domain::index::summary::Summary;

/// A run of rows or leaves.
pub(super) trait Block: Copy {
    /// Whether least and greatest are the same, and a gap is a NaN.
    const ROWS: bool;
    fn least(&self, column: usize) -> &[f32];
    fn greatest(&self, column: usize) -> &[f32];
    /// Empty for rows.
    fn gaps(&self, column: usize) -> &[u32];
    /// One of the fixed words, at its most lenient.
    fn fixed(&self, column: usize) -> &[u32];
    /// Any other word; of leaves what `Summary::sets` says.
    fn word(&self, column: usize) -> &[u32];
    /// Whole keys of owners; empty for leaves.
    fn owners(&self) -> &[[u64; 2]];
    /// Published ranges of the `number`th attribute that has any, and which attribute that is; none for leaves.
    fn ranges(&self, number: usize) -> Option<(usize, &[f32], &[f32])>;
}

/// Rows `from..from + len` of a leaf.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub(super) leaf: &'a Leaf,
    pub(super) from: usize,
    pub(super) len: usize,
}

impl Block for Rows<'_> {
    const ROWS: bool = true;

    #[inline(always)]
    fn least(&self, column: usize) -> &[f32] {
        &self.leaf.floats(column)[self.from..][..self.len]
    }

    #[inline(always)]
    fn greatest(&self, column: usize) -> &[f32] {
        self.least(column)
    }

    #[inline(always)]
    fn gaps(&self, _column: usize) -> &[u32] {
        &[]
    }

    #[inline(always)]
    fn fixed(&self, column: usize) -> &[u32] {
        &self.leaf.words(column)[self.from..][..self.len]
    }

    #[inline(always)]
    fn word(&self, column: usize) -> &[u32] {
        self.fixed(column)
    }

    #[inline(always)]
    fn owners(&self) -> &[[u64; 2]] {
        &self.leaf.owners()[self.from..][..self.len]
    }

    #[inline(always)]
    fn ranges(&self, number: usize) -> Option<(usize, &[f32], &[f32])> {
        let ranges = self.leaf.ranges().get(number)?;
        let rows = self.from..self.from + self.len;
        Some((ranges.attribute, &ranges.least[rows.clone()], &ranges.greatest[rows]))
    }
}

/// Leaves `from..from + len` of a partition.
#[derive(Clone, Copy)]
pub(super) struct Leaves<'a> {
    pub(super) summary: &'a Summary,
    pub(super) from: usize,
    pub(super) len: usize,
}

impl Block for Leaves<'_> {
    const ROWS: bool = false;

    #[inline(always)]
    fn least(&self, column: usize) -> &[f32] {
        &self.summary.least[column][self.from..][..self.len]
    }

    #[inline(always)]
    fn greatest(&self, column: usize) -> &[f32] {
        &self.summary.greatest[column][self.from..][..self.len]
    }

    #[inline(always)]
    fn gaps(&self, column: usize) -> &[u32] {
        &self.summary.gaps[column][self.from..][..self.len]
    }

    #[inline(always)]
    fn fixed(&self, column: usize) -> &[u32] {
        let words = match column {
            word::EXPIRES => &self.summary.expires,
            word::SEATS => &self.summary.seats,
            _ => &self.summary.since,
        };
        &words[self.from..][..self.len]
    }

    #[inline(always)]
    fn word(&self, column: usize) -> &[u32] {
        &self.summary.sets[column - word::FIXED][self.from..][..self.len]
    }

    #[inline(always)]
    fn owners(&self) -> &[[u64; 2]] {
        &[]
    }

    #[inline(always)]
    fn ranges(&self, _number: usize) -> Option<(usize, &[f32], &[f32])> {
        None
    }
}
