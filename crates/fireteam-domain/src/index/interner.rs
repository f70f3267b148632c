//! Interner of values: maps attribute values to small integer codes, so that columns can compare them for equality.

use std::collections::BTreeMap;

use crate::attribute::{AttributeValue, ShortString};

/// Code of a missing value.
pub(super) const MISSING_CODE: u32 = 0;
/// Code of values that arrived when the table was full; it can stand for any value.
pub(super) const OVERFLOW_CODE: u32 = u32::MAX;
/// Maximum number of distinct values per column. Clients choose the strings, so there must be a limit. Beyond it,
/// searches stay exact and become slower.
const CODES_PER_COLUMN_MAX: usize = 65_536;

/// Maps a code to one of 32 bits, so that one word describes the codes of a leaf. `MISSING_CODE` and `OVERFLOW_CODE`
/// have their own bits; the other codes share the rest.
pub(super) fn code_bit(code: u32) -> u32 {
    match code {
        MISSING_CODE => 1,
        OVERFLOW_CODE => 2,
        code => 4 << (code % 30),
    }
}

/// Interned values, one table per interned attribute. Codes are not reused until the index is empty.
#[derive(Debug, Default)]
pub(super) struct ValueInterner {
    columns: Vec<InternedColumn>,
}

#[derive(Debug, Default)]
struct InternedColumn {
    strings: BTreeMap<ShortString, u32>,
    numbers: BTreeMap<u64, u32>,
}

impl ValueInterner {
    /// Empty tables for `columns` attributes.
    pub(super) fn new(columns: usize) -> Self {
        Self { columns: (0..columns).map(|_| InternedColumn::default()).collect() }
    }

    /// Removes all codes. Only valid when no row contains a code.
    pub(super) fn clear(&mut self) {
        self.columns.iter_mut().for_each(|column| *column = InternedColumn::default());
    }

    /// Code of `value`; assigns a new code to a new value.
    pub(super) fn intern(&mut self, column: usize, value: Option<&AttributeValue>) -> u32 {
        let Some(value) = value else { return MISSING_CODE };
        let table = &mut self.columns[column];
        let (existing, next) = (table.code_of(value), table.next_code());
        match (existing, value) {
            (Some(code), _) => code,
            (None, _) if next as usize > CODES_PER_COLUMN_MAX => OVERFLOW_CODE,
            (None, AttributeValue::String(string)) => *table.strings.entry(string.clone()).or_insert(next),
            (None, AttributeValue::Number(number)) => {
                *table.numbers.entry(canonical_float_bits(*number)).or_insert(next)
            }
            (None, AttributeValue::Bool(_) | AttributeValue::StringList(_)) => OVERFLOW_CODE,
        }
    }

    /// Code of `value`, if it has been interned. Rows with `OVERFLOW_CODE` can also have this value.
    pub(super) fn code_of(&self, column: usize, value: &AttributeValue) -> Option<u32> {
        self.columns[column].code_of(value)
    }
}

impl InternedColumn {
    fn code_of(&self, value: &AttributeValue) -> Option<u32> {
        match value {
            AttributeValue::Bool(boolean) => Some(1 + u32::from(*boolean)),
            AttributeValue::String(string) => self.strings.get(string).copied(),
            AttributeValue::Number(number) => self.numbers.get(&canonical_float_bits(*number)).copied(),
            AttributeValue::StringList(_) => None,
        }
    }

    fn next_code(&self) -> u32 {
        (self.strings.len() + self.numbers.len() + 1) as u32
    }
}

/// Bits of a number, equal for equal numbers: -0 becomes 0.
fn canonical_float_bits(number: f64) -> u64 {
    (number + 0.0).to_bits()
}
