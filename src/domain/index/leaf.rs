//! A few hundred rows that lie close together: what searches pass over column by column, the rest row by row.

use crate::domain::index::guard::Ranges;
use crate::domain::index::layout::Row;

/// Rows that a leaf holds when it is split.
pub(super) const ROWS: usize = 512;
/// Rows that a new leaf has room for; it grows by doubling, so that thousands of tiny partitions stay small.
const ROOM_MIN: usize = 8;

/// Rows as structure of arrays. Each buffer of columns holds them one after the other, `room` places each.
///
/// A row that is taken out leaves a hole, which the next one fills: taking out touches no column, which for a row
/// somewhere in a million is most of what it costs.
#[derive(Debug, Default)]
pub(super) struct Leaf {
    /// Places in use, holes among them.
    end: usize,
    room: usize,
    floats: Vec<f32>,
    words: Vec<u32>,
    /// Row by row: the slot and the id's first four bytes, then the numbers' bits. Only rows that pass are read here,
    /// and each is in one place.
    cold: Vec<u64>,
    /// Words of a row in `cold`.
    stride: usize,
    /// Whole keys of the rows' owners.
    owners: Vec<[u64; 2]>,
    /// Of attributes for which some row has one.
    ranges: Vec<Ranges>,
    holes: Vec<u32>,
    /// The node above; `None` for the only leaf of a tree.
    pub(super) parent: Option<u32>,
    /// Rows at which a split is tried, or tried again after rows that are all alike could not be split.
    pub(super) split_at: usize,
}

impl Leaf {
    pub(super) fn new() -> Self {
        Self { split_at: ROWS, ..Self::default() }
    }

    /// Rows.
    pub(super) fn len(&self) -> usize {
        self.end - self.holes.len()
    }

    /// Places in use: rows, and holes among them that whoever passes over columns must skip.
    pub(super) fn end(&self) -> usize {
        self.end
    }

    /// Places without a row, in no order.
    pub(super) fn holes(&self) -> &[u32] {
        &self.holes
    }

    /// A float column.
    pub(super) fn floats(&self, column: usize) -> &[f32] {
        &self.floats[column * self.room..][..self.end]
    }

    /// A word column.
    pub(super) fn words(&self, column: usize) -> &[u32] {
        &self.words[column * self.room..][..self.end]
    }

    /// Whole keys of the rows' owners.
    pub(super) fn owners(&self) -> &[[u64; 2]] {
        &self.owners[..self.end]
    }

    /// The published ranges, by attribute.
    pub(super) fn ranges(&self) -> &[Ranges] {
        &self.ranges
    }

    /// A number of a row in f64; NaN for none.
    pub(super) fn exact(&self, column: usize, row: usize) -> f64 {
        f64::from_bits(self.cold[row * self.stride + 1 + column])
    }

    /// The slot of a row.
    pub(super) fn slot(&self, row: usize) -> u32 {
        self.cold[row * self.stride] as u32
    }

    /// The first four bytes of a row's id.
    pub(super) fn id(&self, row: usize) -> u32 {
        (self.cold[row * self.stride] >> 32) as u32
    }

    /// One place of a float column.
    pub(super) fn float(&self, column: usize, row: usize) -> f32 {
        self.floats[column * self.room + row]
    }

    /// Changes those bits of one place of a word column that are in `bits`.
    pub(super) fn set_word(&mut self, column: usize, row: usize, word: u32, bits: u32) {
        let place = &mut self.words[column * self.room + row];
        *place = (*place & !bits) | (word & bits);
    }

    /// Puts `row` in and says where it is.
    pub(super) fn push(&mut self, row: &Row) -> usize {
        let at = self.holes.pop().map_or(self.end, |hole| hole as usize);
        if at == self.room {
            self.grow(row);
        }
        self.end = self.end.max(at + 1);
        self.write(at, row);
        at
    }

    /// Overwrites a row.
    pub(super) fn write(&mut self, at: usize, row: &Row) {
        let (room, stride) = (self.room, self.stride);
        row.floats.iter().enumerate().for_each(|(column, &it)| self.floats[column * room + at] = it);
        row.words.iter().enumerate().for_each(|(column, &it)| self.words[column * room + at] = it);
        let cold = &mut self.cold[at * stride..][..stride];
        cold[0] = (u64::from(row.id) << 32) | u64::from(row.slot);
        cold[1..].iter_mut().zip(&row.exact).for_each(|(cold, exact)| *cold = exact.to_bits());
        self.owners[at] = row.owner;
        self.ranges.iter_mut().for_each(|ranges| ranges.forget(at));
        for range in &row.ranges {
            let known = self.ranges.iter().position(|ranges| ranges.attribute == range.attribute);
            let number = known.unwrap_or_else(|| {
                self.ranges.push(Ranges::new(range.attribute, room));
                self.ranges.len() - 1
            });
            (self.ranges[number].least[at], self.ranges[number].greatest[at]) = (range.least, range.greatest);
        }
    }

    /// Copies a row out.
    pub(super) fn read(&self, at: usize, row: &mut Row) {
        row.clear();
        row.floats.extend(self.floats.chunks_exact(self.room).map(|column| column[at]));
        row.words.extend(self.words.chunks_exact(self.room).map(|column| column[at]));
        (row.slot, row.id) = (self.slot(at), self.id(at));
        row.exact.extend((0..self.stride - 1).map(|column| self.exact(column, at)));
        row.owner = self.owners[at];
        row.ranges.extend(self.ranges.iter().filter_map(|ranges| ranges.get(at)));
    }

    /// Takes a row out; nothing else moves.
    pub(super) fn remove(&mut self, at: usize) {
        if at + 1 == self.end {
            self.end = at;
        } else {
            self.holes.push(at as u32);
        }
        if self.holes.len() == self.end {
            self.end = 0;
            self.holes.clear();
        }
    }

    /// Fills all holes with rows from the end. `moved` hears of their slots and where they are now.
    pub(super) fn compact(&mut self, mut moved: impl FnMut(u32, u32)) {
        self.holes.sort_unstable();
        let mut row = Row::default();
        // From the last hole on, so that what is moved into one is never a hole itself.
        while let Some(hole) = self.holes.pop() {
            self.end -= 1;
            if (hole as usize) < self.end {
                self.read(self.end, &mut row);
                self.write(hole as usize, &row);
                moved(row.slot, hole);
            }
        }
        let end = self.end;
        self.ranges.retain(|ranges| (0..end).any(|at| ranges.get(at).is_some()));
    }

    /// Takes all rows out.
    pub(super) fn clear(&mut self) {
        let parent = self.parent;
        *self = Self { parent, ..Self::new() };
    }

    fn grow(&mut self, row: &Row) {
        let room = (self.room * 2).max(ROOM_MIN);
        self.floats = widened(&self.floats, row.floats.len(), self.room, room);
        self.words = widened(&self.words, row.words.len(), self.room, room);
        self.stride = 1 + row.exact.len();
        self.cold.resize(room * self.stride, 0);
        self.owners.resize(room, [0; 2]);
        self.ranges.iter_mut().for_each(|ranges| ranges.widen(room));
        self.room = room;
    }
}

fn widened<T: Copy + Default>(old: &[T], columns: usize, old_room: usize, room: usize) -> Vec<T> {
    let mut new = vec![T::default(); columns * room];
    for column in 0..columns {
        let from = &old[column * old_room..][..old_room];
        new[column * room..][..old_room].copy_from_slice(from);
    }
    new
}
