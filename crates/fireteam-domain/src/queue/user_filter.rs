//! Set of users with false positives and without false negatives: a bit per hash, so that most absent users cost one
//! look-up in a few bytes.

use crate::id::UserKey;

/// Bits per user: about one of sixteen other users is a false positive.
const BITS_PER_USER: usize = 16;

/// Filter for a set of users.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UserBloomFilter {
    /// Bits; a power of two of them, or none for the empty set.
    words: Vec<u64>,
}

impl UserBloomFilter {
    /// Filter for `users`.
    pub(super) fn new(users: &[UserKey]) -> Self {
        if users.is_empty() {
            return Self::default();
        }
        let bits = (users.len() * BITS_PER_USER).next_power_of_two().max(64);
        let mut filter = Self { words: vec![0; bits / 64] };
        for user in users {
            let (word, bit) = filter.position(*user);
            if let Some(word) = filter.words.get_mut(word) {
                *word |= 1 << bit;
            }
        }
        filter
    }

    /// Whether the user may be in the set. `false` is certain.
    pub(super) fn may_contain(&self, user: UserKey) -> bool {
        let (word, bit) = self.position(user);
        self.words.get(word).is_some_and(|word| word >> bit & 1 == 1)
    }

    /// User keys are digests, so their first bytes are as good as a hash.
    fn position(&self, user: UserKey) -> (usize, u32) {
        let [a, b, c, d, e, f, g, h, ..] = *user.as_bytes();
        let bit = u64::from_le_bytes([a, b, c, d, e, f, g, h]) & (self.words.len() as u64 * 64).wrapping_sub(1);
        (usize::try_from(bit / 64).unwrap_or(usize::MAX), (bit % 64) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::rng::SplitMix64;

    #[test]
    fn user_filter_contains_its_users_and_few_others() {
        let mut rng = SplitMix64(3);
        let mut user =
            || UserKey::from_bytes((u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64())).to_le_bytes());
        let (inside, outside): (Vec<_>, Vec<_>) = (0..1_000).map(|_| (user(), user())).unzip();
        let filter = UserBloomFilter::new(&inside);
        assert!(inside.iter().all(|user| filter.may_contain(*user)));
        let false_positives = outside.iter().filter(|user| filter.may_contain(**user)).count();
        assert!(false_positives < 120, "{false_positives}");
        assert!(!UserBloomFilter::default().may_contain(inside[0]));
    }
}
