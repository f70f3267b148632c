//! Leaf of a kd-B-tree: up to a few hundred rows that are close together, stored as columns for searches.

use crate::index::layout::RowBuffer;
use crate::index::row_rules::PublishedRangeColumn;

/// Number of rows at which a leaf is split.
pub(super) const ROWS_PER_LEAF: usize = 512;
/// Initial capacity of a leaf, in rows, so that thousands of tiny partitions use little memory.
const CAPACITY_MIN: usize = 8;
/// Capacity up to which a full leaf doubles. A larger one grows by as many rows, or by an eighth: most leaves have between half
/// of [`ROWS_PER_LEAF`] rows and all of them, and doubling would leave a quarter of their memory unused.
const DOUBLED_CAPACITY_MAX: usize = 64;

/// Rows as structure of arrays. Each column buffer stores its columns one after the other, `capacity` values each.
///
/// A removed row leaves a hole, which the next inserted row fills. Removal touches no column, which avoids most of its
/// cache misses.
#[derive(Debug, Default)]
pub(super) struct Leaf {
    /// Row positions in use, including holes.
    used_len: usize,
    capacity: usize,
    float_columns: Vec<f32>,
    word_columns: Vec<u32>,
    /// Row-wise data: slot and id prefix, then the bits of the exact numbers. Read only for rows that pass the checks;
    /// each row is contiguous.
    row_data: Vec<u64>,
    /// Words per row in `row_data`.
    row_data_stride: usize,
    /// Complete owner keys, by row.
    owner_keys: Vec<[u64; 2]>,
    /// Published ranges, for each attribute for which some row has one.
    published_ranges: Vec<PublishedRangeColumn>,
    holes: Vec<u32>,
    /// Parent node; `None` for the only leaf of a tree.
    pub(super) parent_node: Option<u32>,
    /// Number of rows at which a split is tried, or retried after identical rows could not be split.
    pub(super) split_threshold: usize,
}

impl Leaf {
    pub(super) fn new() -> Self {
        Self { split_threshold: ROWS_PER_LEAF, ..Self::default() }
    }

    /// Number of rows.
    pub(super) fn len(&self) -> usize {
        self.used_len - self.holes.len()
    }

    /// Row positions in use: rows and holes. Loops over columns must skip the holes.
    pub(super) fn used_len(&self) -> usize {
        self.used_len
    }

    /// Positions without a row, in any order.
    pub(super) fn hole_positions(&self) -> &[u32] {
        &self.holes
    }

    /// A float column, `used_len` values.
    pub(super) fn float_column(&self, column: usize) -> &[f32] {
        &self.float_columns[column * self.capacity..][..self.used_len]
    }

    /// A word column, `used_len` values.
    pub(super) fn word_column(&self, column: usize) -> &[u32] {
        &self.word_columns[column * self.capacity..][..self.used_len]
    }

    /// Complete owner keys, by row.
    pub(super) fn owner_keys(&self) -> &[[u64; 2]] {
        &self.owner_keys[..self.used_len]
    }

    /// Published ranges, by attribute.
    pub(super) fn published_ranges(&self) -> &[PublishedRangeColumn] {
        &self.published_ranges
    }

    /// Exact number of a row; NaN if missing.
    pub(super) fn exact_number(&self, column: usize, row: usize) -> f64 {
        f64::from_bits(self.row_data[row * self.row_data_stride + 1 + column])
    }

    /// Slot of a row.
    pub(super) fn slot(&self, row: usize) -> u32 {
        self.row_data[row * self.row_data_stride] as u32
    }

    /// First four bytes of a row's id, big-endian.
    pub(super) fn id_first_four_bytes(&self, row: usize) -> u32 {
        (self.row_data[row * self.row_data_stride] >> 32) as u32
    }

    /// Reads the first value of each column, which brings it into the cache.
    pub(super) fn touch_columns(&self) -> f32 {
        let floats: f32 = self.float_columns.iter().step_by(self.capacity.max(1)).sum();
        let words: u32 = self.word_columns.iter().step_by(self.capacity.max(1)).fold(0, |all, word| all ^ word);
        floats + f32::from_bits(words)
    }

    /// Value of a row in a float column.
    pub(super) fn float_value(&self, column: usize, row: usize) -> f32 {
        self.float_columns[column * self.capacity + row]
    }

    /// Sets the bits in `bits` of a row's word to those of `word`.
    pub(super) fn set_word_bits(&mut self, column: usize, row: usize, word: u32, bits: u32) {
        let stored = &mut self.word_columns[column * self.capacity + row];
        *stored = (*stored & !bits) | (word & bits);
    }

    /// Inserts `row` and returns its position.
    pub(super) fn insert_row(&mut self, row: &RowBuffer) -> usize {
        let row_index = self.holes.pop().map_or(self.used_len, |hole| hole as usize);
        if row_index == self.capacity {
            self.grow(row);
        }
        self.used_len = self.used_len.max(row_index + 1);
        self.overwrite_row(row_index, row);
        row_index
    }

    /// Overwrites the row at `row_index`.
    pub(super) fn overwrite_row(&mut self, row_index: usize, row: &RowBuffer) {
        let (capacity, stride) = (self.capacity, self.row_data_stride);
        row.float_columns
            .iter()
            .enumerate()
            .for_each(|(column, &value)| self.float_columns[column * capacity + row_index] = value);
        row.word_columns
            .iter()
            .enumerate()
            .for_each(|(column, &word)| self.word_columns[column * capacity + row_index] = word);
        let row_data = &mut self.row_data[row_index * stride..][..stride];
        row_data[0] = (u64::from(row.id_prefix) << 32) | u64::from(row.slot);
        row_data[1..].iter_mut().zip(&row.exact_numbers).for_each(|(stored, exact)| *stored = exact.to_bits());
        self.owner_keys[row_index] = row.owner_key;
        self.published_ranges.iter_mut().for_each(|ranges| ranges.clear_row(row_index));
        for range in &row.published_ranges {
            let existing =
                self.published_ranges.iter().position(|ranges| ranges.attribute_index == range.attribute_index);
            let range_index = existing.unwrap_or_else(|| {
                self.published_ranges.push(PublishedRangeColumn::new(range.attribute_index, capacity));
                self.published_ranges.len() - 1
            });
            (
                self.published_ranges[range_index].lower[row_index],
                self.published_ranges[range_index].upper[row_index],
            ) = (range.lower, range.upper);
        }
    }

    /// Copies the row at `row_index` to `row`.
    pub(super) fn copy_row_to(&self, row_index: usize, row: &mut RowBuffer) {
        row.clear();
        row.float_columns.extend(self.float_columns.chunks_exact(self.capacity).map(|column| column[row_index]));
        row.word_columns.extend(self.word_columns.chunks_exact(self.capacity).map(|column| column[row_index]));
        (row.slot, row.id_prefix) = (self.slot(row_index), self.id_first_four_bytes(row_index));
        row.exact_numbers.extend((0..self.row_data_stride - 1).map(|column| self.exact_number(column, row_index)));
        row.owner_key = self.owner_keys[row_index];
        row.published_ranges.extend(self.published_ranges.iter().filter_map(|ranges| ranges.row_range(row_index)));
    }

    /// Removes a row; other rows keep their positions.
    pub(super) fn remove_row(&mut self, row_index: usize) {
        if row_index + 1 == self.used_len {
            self.used_len = row_index;
        } else {
            self.holes.push(row_index as u32);
        }
        if self.holes.len() == self.used_len {
            self.used_len = 0;
            self.holes.clear();
        }
    }

    /// Fills all holes with rows from the end. Calls `on_move` with the slot and new position of each moved row.
    pub(super) fn fill_holes(&mut self, mut on_move: impl FnMut(u32, u32)) {
        self.holes.sort_unstable();
        let mut row = RowBuffer::default();
        // Starts at the last hole, so that the moved row is never a hole itself.
        while let Some(hole) = self.holes.pop() {
            self.used_len -= 1;
            if (hole as usize) < self.used_len {
                self.copy_row_to(self.used_len, &mut row);
                self.overwrite_row(hole as usize, &row);
                on_move(row.slot, hole);
            }
        }
        let used_len = self.used_len;
        self.published_ranges.retain(|ranges| (0..used_len).any(|row_index| ranges.row_range(row_index).is_some()));
    }

    /// Removes all rows.
    pub(super) fn reset(&mut self) {
        let parent_node = self.parent_node;
        *self = Self { parent_node, ..Self::new() };
    }

    fn grow(&mut self, row: &RowBuffer) {
        let capacity = next_capacity(self.capacity);
        self.float_columns = regrow_columns(&self.float_columns, row.float_columns.len(), self.capacity, capacity);
        self.word_columns = regrow_columns(&self.word_columns, row.word_columns.len(), self.capacity, capacity);
        self.row_data_stride = 1 + row.exact_numbers.len();
        resize_exact(&mut self.row_data, capacity * self.row_data_stride);
        resize_exact(&mut self.owner_keys, capacity);
        self.published_ranges.iter_mut().for_each(|ranges| ranges.grow(capacity));
        self.capacity = capacity;
    }
}

/// Capacity of a leaf that is full at `capacity` rows.
fn next_capacity(capacity: usize) -> usize {
    if capacity < DOUBLED_CAPACITY_MAX {
        return (capacity * 2).max(CAPACITY_MIN);
    }
    capacity + (capacity / 8).next_multiple_of(DOUBLED_CAPACITY_MAX)
}

/// Fills `values` up to `length`, without more memory than they need.
fn resize_exact<T: Copy + Default>(values: &mut Vec<T>, length: usize) {
    values.reserve_exact(length.saturating_sub(values.len()));
    values.resize(length, T::default());
}

fn regrow_columns<T: Copy + Default>(old: &[T], columns: usize, old_capacity: usize, capacity: usize) -> Vec<T> {
    let mut new = vec![T::default(); columns * capacity];
    for column in 0..columns {
        let old_column = &old[column * old_capacity..][..old_capacity];
        new[column * capacity..][..old_capacity].copy_from_slice(old_column);
    }
    new
}
