//! Values of attributes as small numbers, so that a column can tell equal from unequal.

use std::collections::BTreeMap;

use crate::domain::attribute::Value;

/// The code of a missing value.
pub(super) const MISSING: u32 = 0;
/// The code of a value that came when the table was full: it may be anything.
pub(super) const ANY: u32 = u32::MAX;
/// Distinct values that one column tells apart. Strangers choose texts, so there must be a limit; beyond it search
/// stays exact and gets slower.
const VALUES_MAX: usize = 65_536;

/// A code as one of 32 bits, so that a leaf's codes can be told of in a word: missing and anything have their own, the
/// others share.
pub(super) fn bit(code: u32) -> u32 {
    match code {
        MISSING => 1,
        ANY => 2,
        code => 4 << (code % 30),
    }
}

/// Interned values of each coded attribute. Codes are never reused, until the index is empty.
#[derive(Debug, Default)]
pub(super) struct Codes {
    columns: Vec<Column>,
}

#[derive(Debug, Default)]
struct Column {
    texts: BTreeMap<Box<str>, u32>,
    numbers: BTreeMap<u64, u32>,
}

impl Codes {
    /// Tables for `columns` attributes.
    pub(super) fn new(columns: usize) -> Self {
        Self { columns: (0..columns).map(|_| Column::default()).collect() }
    }

    /// Forgets all; only when no row holds a code.
    pub(super) fn clear(&mut self) {
        self.columns.iter_mut().for_each(|column| *column = Column::default());
    }

    /// The code of `value`, a new one if need be.
    pub(super) fn intern(&mut self, column: usize, value: Option<&Value>) -> u32 {
        let Some(value) = value else { return MISSING };
        let table = &mut self.columns[column];
        let (known, next) = (table.known(value), table.next());
        match (known, value) {
            (Some(code), _) => code,
            (None, _) if VALUES_MAX < next as usize => ANY,
            (None, Value::Text(text)) => *table.texts.entry(text.clone()).or_insert(next),
            (None, Value::Number(number)) => *table.numbers.entry(bits(*number)).or_insert(next),
            (None, Value::Flag(_) | Value::Texts(_)) => ANY,
        }
    }

    /// The code of `value`, if any row has had it. Rows with `ANY` may have it all the same.
    pub(super) fn known(&self, column: usize, value: &Value) -> Option<u32> {
        self.columns[column].known(value)
    }
}

impl Column {
    fn known(&self, value: &Value) -> Option<u32> {
        match value {
            Value::Flag(flag) => Some(1 + u32::from(*flag)),
            Value::Text(text) => self.texts.get(text).copied(),
            Value::Number(number) => self.numbers.get(&bits(*number)).copied(),
            Value::Texts(_) => None,
        }
    }

    fn next(&self) -> u32 {
        (self.texts.len() + self.numbers.len() + 1) as u32
    }
}

/// Equal numbers have equal bits: -0 becomes 0.
fn bits(number: f64) -> u64 {
    (number + 0.0).to_bits()
}
