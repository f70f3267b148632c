//! Set of rows of a pass.

/// Set of rows, as bits or as numbers: the smaller of the two forms.
#[derive(Debug)]
pub(super) enum RowSet {
    /// One bit for each row.
    Bits(Box<[u64]>),
    /// Sorted rows.
    Sorted(Box<[u32]>),
}

impl RowSet {
    /// Set of `rows`, each below `row_count`; they may repeat.
    pub(super) fn new(mut rows: Vec<u32>, row_count: u32) -> Self {
        if row_count as usize <= rows.len() * 32 {
            let mut words = vec![0; row_count.div_ceil(64) as usize];
            rows.iter().for_each(|&row| words[row as usize / 64] |= 1 << (row % 64));
            return Self::Bits(words.into());
        }
        rows.sort_unstable();
        rows.dedup();
        Self::Sorted(rows.into())
    }

    /// Whether the row is in the set.
    pub(super) fn contains(&self, row: u32) -> bool {
        match self {
            Self::Bits(words) => words.get(row as usize / 64).is_some_and(|word| word >> (row % 64) & 1 == 1),
            Self::Sorted(rows) => rows.binary_search(&row).is_ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::queue::rng::SplitMix64;

    /// Both forms contain what a plain set contains.
    #[test]
    fn row_set_is_a_set() {
        let mut rng = SplitMix64(5);
        let mut forms = [0, 0];
        for row_count in [1, 63, 64, 65, 1_000, 5_000] {
            for len in [0, 1, 2, 40, 900] {
                let rows: Vec<u32> = (0..len).map(|_| (rng.next_u64() % u64::from(row_count)) as u32).collect();
                let set = RowSet::new(rows.clone(), row_count);
                forms[usize::from(matches!(set, RowSet::Bits(_)))] += 1;
                let expected: BTreeSet<u32> = rows.into_iter().collect();
                assert!((0..row_count + 70).all(|row| set.contains(row) == expected.contains(&row)));
            }
        }
        assert!(forms.iter().all(|&count| count > 5), "{forms:?}");
    }
}
