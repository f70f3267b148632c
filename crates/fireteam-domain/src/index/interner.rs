//! Values of attributes as small numbers, so that a column can tell equal from unequal.

use std::collections::BTreeMap;

use crate::attribute::AttributeValue;

/// The code of a missing value.
pub(super) const MISSING_CODE: u32 = 0;
/// The code of a value that came when the table was full: it may be anything.
pub(super) const OVERFLOW_CODE: u32 = u32::MAX;
/// Distinct values that one column tells apart. Strangers choose texts, so there must be a limit; beyond it search
/// stays exact and gets slower.
const CODES_PER_COLUMN_MAX: usize = 65_536;

/// A code as one of 32 bits, so that a leaf's codes can be told of in a word: missing and anything have their own, the
/// others share.
pub(super) fn code_bit(code: u32) -> u32 {
    match code {
        MISSING_CODE => 1,
        OVERFLOW_CODE => 2,
        code => 4 << (code % 30),
    }
}

/// Interned values of each coded attribute. Codes are never reused, until the index is empty.
#[derive(Debug, Default)]
pub(super) struct Interner {
    columns: Vec<InternedColumn>,
}

#[derive(Debug, Default)]
struct InternedColumn {
    strings: BTreeMap<Box<str>, u32>,
    numbers: BTreeMap<u64, u32>,
}

impl Interner {
    /// Tables for `columns` attributes.
    pub(super) fn new(columns: usize) -> Self {
        Self { columns: (0..columns).map(|_| InternedColumn::default()).collect() }
    }

    /// Forgets all; only when no row holds a code.
    pub(super) fn clear(&mut self) {
        self.columns.iter_mut().for_each(|column| *column = InternedColumn::default());
    }

    /// The code of `value`, a new one if need be.
    pub(super) fn intern(&mut self, column: usize, value: Option<&AttributeValue>) -> u32 {
        let Some(value) = value else { return MISSING_CODE };
        let table = &mut self.columns[column];
        let (known, next) = (table.code_of(value), table.next_code());
        match (known, value) {
            (Some(code), _) => code,
            (None, _) if CODES_PER_COLUMN_MAX < next as usize => OVERFLOW_CODE,
            (None, AttributeValue::String(text)) => *table.strings.entry(text.clone()).or_insert(next),
            (None, AttributeValue::Number(number)) => {
                *table.numbers.entry(canonical_float_bits(*number)).or_insert(next)
            }
            (None, AttributeValue::Bool(_) | AttributeValue::StringList(_)) => OVERFLOW_CODE,
        }
    }

    /// The code of `value`, if any row has had it. Rows with `ANY` may have it all the same.
    pub(super) fn code_of(&self, column: usize, value: &AttributeValue) -> Option<u32> {
        self.columns[column].code_of(value)
    }
}

impl InternedColumn {
    fn code_of(&self, value: &AttributeValue) -> Option<u32> {
        match value {
            AttributeValue::Bool(flag) => Some(1 + u32::from(*flag)),
            AttributeValue::String(text) => self.strings.get(text).copied(),
            AttributeValue::Number(number) => self.numbers.get(&canonical_float_bits(*number)).copied(),
            AttributeValue::StringList(_) => None,
        }
    }

    fn next_code(&self) -> u32 {
        (self.strings.len() + self.numbers.len() + 1) as u32
    }
}

/// Equal numbers have equal bits: -0 becomes 0.
fn canonical_float_bits(number: f64) -> u64 {
    (number + 0.0).to_bits()
}
