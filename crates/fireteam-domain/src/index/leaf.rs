//! A few hundred rows that lie close together: what searches pass over column by column, the rest row by row.

use crate::index::layout::RowBuffer;
use crate::index::row_rules::LeafRanges;

/// Rows that a leaf holds when it is split.
pub(super) const ROWS_PER_LEAF: usize = 512;
/// Rows that a new leaf has room for; it grows by doubling, so that thousands of tiny partitions stay small.
const CAPACITY_MIN: usize = 8;

/// Rows as structure of arrays. Each buffer of columns holds them one after the other, `room` places each.
///
/// A row that is taken out leaves a hole, which the next one fills: taking out touches no column, which for a row
/// somewhere in a million is most of what it costs.
#[derive(Debug, Default)]
pub(super) struct Leaf {
    /// Places in use, holes among them.
    used_len: usize,
    capacity: usize,
    float_columns: Vec<f32>,
    word_columns: Vec<u32>,
    /// Row by row: the slot and the id's first four bytes, then the numbers' bits. Only rows that pass are read here,
    /// and each is in one place.
    row_data: Vec<u64>,
    /// Words of a row in `cold`.
    row_data_stride: usize,
    /// Whole keys of the rows' owners.
    owner_keys: Vec<[u64; 2]>,
    /// Of attributes for which some row has one.
    published_ranges: Vec<LeafRanges>,
    holes: Vec<u32>,
    /// The node above; `None` for the only leaf of a tree.
    pub(super) parent_node: Option<u32>,
    /// Rows at which a split is tried, or tried again after rows that are all alike could not be split.
    pub(super) split_threshold: usize,
}

impl Leaf {
    pub(super) fn new() -> Self {
        Self { split_threshold: ROWS_PER_LEAF, ..Self::default() }
    }

    /// Rows.
    pub(super) fn len(&self) -> usize {
        self.used_len - self.holes.len()
    }

    /// Places in use: rows, and holes among them that whoever passes over columns must skip.
    pub(super) fn used_len(&self) -> usize {
        self.used_len
    }

    /// Places without a row, in no order.
    pub(super) fn holes(&self) -> &[u32] {
        &self.holes
    }

    /// A float column.
    pub(super) fn float_column(&self, column: usize) -> &[f32] {
        &self.float_columns[column * self.capacity..][..self.used_len]
    }

    /// A word column.
    pub(super) fn word_column(&self, column: usize) -> &[u32] {
        &self.word_columns[column * self.capacity..][..self.used_len]
    }

    /// Whole keys of the rows' owners.
    pub(super) fn owner_keys(&self) -> &[[u64; 2]] {
        &self.owner_keys[..self.used_len]
    }

    /// The published ranges, by attribute.
    pub(super) fn published_ranges(&self) -> &[LeafRanges] {
        &self.published_ranges
    }

    /// A number of a row in f64; NaN for none.
    pub(super) fn exact_number(&self, column: usize, row: usize) -> f64 {
        f64::from_bits(self.row_data[row * self.row_data_stride + 1 + column])
    }

    /// The slot of a row.
    pub(super) fn slot(&self, row: usize) -> u32 {
        self.row_data[row * self.row_data_stride] as u32
    }

    /// The first four bytes of a row's id.
    pub(super) fn id_prefix(&self, row: usize) -> u32 {
        (self.row_data[row * self.row_data_stride] >> 32) as u32
    }

    /// One place of a float column.
    pub(super) fn float_value(&self, column: usize, row: usize) -> f32 {
        self.float_columns[column * self.capacity + row]
    }

    /// Changes those bits of one place of a word column that are in `bits`.
    pub(super) fn set_word(&mut self, column: usize, row: usize, word: u32, bits: u32) {
        let place = &mut self.word_columns[column * self.capacity + row];
        *place = (*place & !bits) | (word & bits);
    }

    /// Puts `row` in and says where it is.
    pub(super) fn insert_row(&mut self, row: &RowBuffer) -> usize {
        let at = self.holes.pop().map_or(self.used_len, |hole| hole as usize);
        if at == self.capacity {
            self.grow(row);
        }
        self.used_len = self.used_len.max(at + 1);
        self.overwrite_row(at, row);
        at
    }

    /// Overwrites a row.
    pub(super) fn overwrite_row(&mut self, at: usize, row: &RowBuffer) {
        let (room, stride) = (self.capacity, self.row_data_stride);
        row.float_columns.iter().enumerate().for_each(|(column, &it)| self.float_columns[column * room + at] = it);
        row.word_columns.iter().enumerate().for_each(|(column, &it)| self.word_columns[column * room + at] = it);
        let cold = &mut self.row_data[at * stride..][..stride];
        cold[0] = (u64::from(row.id_prefix) << 32) | u64::from(row.slot);
        cold[1..].iter_mut().zip(&row.exact_numbers).for_each(|(cold, exact)| *cold = exact.to_bits());
        self.owner_keys[at] = row.owner_key;
        self.published_ranges.iter_mut().for_each(|ranges| ranges.clear_row(at));
        for range in &row.published_ranges {
            let known = self.published_ranges.iter().position(|ranges| ranges.attribute_index == range.attribute_index);
            let number = known.unwrap_or_else(|| {
                self.published_ranges.push(LeafRanges::new(range.attribute_index, room));
                self.published_ranges.len() - 1
            });
            (self.published_ranges[number].lower[at], self.published_ranges[number].upper[at]) =
                (range.lower, range.upper);
        }
    }

    /// Copies a row out.
    pub(super) fn copy_row_to(&self, at: usize, row: &mut RowBuffer) {
        row.clear();
        row.float_columns.extend(self.float_columns.chunks_exact(self.capacity).map(|column| column[at]));
        row.word_columns.extend(self.word_columns.chunks_exact(self.capacity).map(|column| column[at]));
        (row.slot, row.id_prefix) = (self.slot(at), self.id_prefix(at));
        row.exact_numbers.extend((0..self.row_data_stride - 1).map(|column| self.exact_number(column, at)));
        row.owner_key = self.owner_keys[at];
        row.published_ranges.extend(self.published_ranges.iter().filter_map(|ranges| ranges.row_range(at)));
    }

    /// Takes a row out; nothing else moves.
    pub(super) fn remove_row(&mut self, at: usize) {
        if at + 1 == self.used_len {
            self.used_len = at;
        } else {
            self.holes.push(at as u32);
        }
        if self.holes.len() == self.used_len {
            self.used_len = 0;
            self.holes.clear();
        }
    }

    /// Fills all holes with rows from the end. `moved` hears of their slots and where they are now.
    pub(super) fn fill_holes(&mut self, mut moved: impl FnMut(u32, u32)) {
        self.holes.sort_unstable();
        let mut row = RowBuffer::default();
        // From the last hole on, so that what is moved into one is never a hole itself.
        while let Some(hole) = self.holes.pop() {
            self.used_len -= 1;
            if (hole as usize) < self.used_len {
                self.copy_row_to(self.used_len, &mut row);
                self.overwrite_row(hole as usize, &row);
                moved(row.slot, hole);
            }
        }
        let end = self.used_len;
        self.published_ranges.retain(|ranges| (0..end).any(|at| ranges.row_range(at).is_some()));
    }

    /// Takes all rows out.
    pub(super) fn clear(&mut self) {
        let parent = self.parent_node;
        *self = Self { parent_node: parent, ..Self::new() };
    }

    fn grow(&mut self, row: &RowBuffer) {
        let room = (self.capacity * 2).max(CAPACITY_MIN);
        self.float_columns = regrow_columns(&self.float_columns, row.float_columns.len(), self.capacity, room);
        self.word_columns = regrow_columns(&self.word_columns, row.word_columns.len(), self.capacity, room);
        self.row_data_stride = 1 + row.exact_numbers.len();
        self.row_data.resize(room * self.row_data_stride, 0);
        self.owner_keys.resize(room, [0; 2]);
        self.published_ranges.iter_mut().for_each(|ranges| ranges.grow(room));
        self.capacity = room;
    }
}

fn regrow_columns<T: Copy + Default>(old: &[T], columns: usize, old_room: usize, room: usize) -> Vec<T> {
    let mut new = vec![T::default(); columns * room];
    for column in 0..columns {
        let from = &old[column * old_room..][..old_room];
        new[column * room..][..old_room].copy_from_slice(from);
    }
    new
}
