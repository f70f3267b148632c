//! A few hundred rows that lie close together, column by column.

use crate::domain::index::layout::{Row, word};

/// Rows that a leaf holds before it is split.
pub(super) const ROWS: usize = 512;
/// Rows that a new leaf has room for; it grows by doubling, so that thousands of tiny partitions stay small.
const ROOM_MIN: usize = 8;

/// Rows as structure of arrays. Each buffer holds its columns one after the other, `room` places each.
#[derive(Debug, Default)]
pub(super) struct Leaf {
    len: usize,
    room: usize,
    floats: Vec<f32>,
    words: Vec<u32>,
    exact: Vec<f64>,
    /// The node above; `None` for the only leaf of a tree.
    pub(super) parent: Option<u32>,
    /// Length at which a split is tried, or tried again after rows that are all alike could not be split.
    pub(super) split_at: usize,
}

impl Leaf {
    pub(super) fn new() -> Self {
        Self { split_at: ROWS + 1, ..Self::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// A float column.
    pub(super) fn floats(&self, column: usize) -> &[f32] {
        &self.floats[column * self.room..][..self.len]
    }

    /// A word column.
    pub(super) fn words(&self, column: usize) -> &[u32] {
        &self.words[column * self.room..][..self.len]
    }

    /// A number of a row in f64; NaN for none.
    pub(super) fn exact(&self, column: usize, row: usize) -> f64 {
        self.exact[column * self.room + row]
    }

    /// One place of a float column.
    pub(super) fn float(&self, column: usize, row: usize) -> f32 {
        self.floats[column * self.room + row]
    }

    /// One place of a word column.
    pub(super) fn word(&self, column: usize, row: usize) -> u32 {
        self.words[column * self.room + row]
    }

    /// Changes one place of a word column.
    pub(super) fn set_word(&mut self, column: usize, row: usize, word: u32) {
        self.words[column * self.room + row] = word;
    }

    /// Appends `row` and says where it is.
    pub(super) fn push(&mut self, row: &Row) -> usize {
        if self.len == self.room {
            self.grow(row);
        }
        self.len += 1;
        self.write(self.len - 1, row);
        self.len - 1
    }

    /// Overwrites a row.
    pub(super) fn write(&mut self, at: usize, row: &Row) {
        let room = self.room;
        row.floats.iter().enumerate().for_each(|(column, &it)| self.floats[column * room + at] = it);
        row.words.iter().enumerate().for_each(|(column, &it)| self.words[column * room + at] = it);
        row.exact.iter().enumerate().for_each(|(column, &it)| self.exact[column * room + at] = it);
    }

    /// Copies a row out.
    pub(super) fn read(&self, at: usize, row: &mut Row) {
        row.clear();
        row.floats.extend(self.floats.chunks_exact(self.room).map(|column| column[at]));
        row.words.extend(self.words.chunks_exact(self.room).map(|column| column[at]));
        row.exact.extend(self.exact.chunks_exact(self.room).map(|column| column[at]));
    }

    /// Takes a row out; the last one takes its place. The slot of the one that moved, if any did.
    pub(super) fn remove(&mut self, at: usize) -> Option<u32> {
        let last = self.len - 1;
        self.floats.chunks_exact_mut(self.room).for_each(|column| column[at] = column[last]);
        self.words.chunks_exact_mut(self.room).for_each(|column| column[at] = column[last]);
        self.exact.chunks_exact_mut(self.room).for_each(|column| column[at] = column[last]);
        self.len = last;
        (at < last).then(|| self.word(word::SLOT, at))
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
        self.exact = widened(&self.exact, row.exact.len(), self.room, room);
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
