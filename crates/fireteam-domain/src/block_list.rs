//! Durable block list of a user, and its changes.

use std::collections::BTreeSet;

use crate::id::UserKey;
use crate::limit;

/// Change of a block list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockListChange {
    /// Whether the list is emptied first.
    pub clear_first: bool,
    /// Users to add. One who is in the list already stays.
    pub add: Vec<UserKey>,
    /// Users to remove. One who is not in the list changes nothing.
    pub remove: Vec<UserKey>,
}

/// A change would make a list longer than [`limit::BLOCKED_USERS_PER_LIST_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockListFull;

impl BlockListChange {
    /// The list after the change, sorted. `list` is sorted. The same change again changes nothing.
    pub fn apply(&self, list: &[UserKey]) -> Result<Vec<UserKey>, BlockListFull> {
        let kept = if self.clear_first { &[] } else { list };
        let mut changed: Vec<UserKey> = kept.iter().chain(&self.add).copied().collect();
        let removed: BTreeSet<&UserKey> = self.remove.iter().collect();
        changed.retain(|user| !removed.contains(user));
        changed.sort_unstable();
        changed.dedup();
        if limit::BLOCKED_USERS_PER_LIST_MAX < changed.len() { Err(BlockListFull) } else { Ok(changed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(number: u64) -> UserKey {
        UserKey::from_name(&number.to_string())
    }

    /// A change is the same as on a set, and the same again has no effect.
    #[test]
    fn block_list_change_is_that_of_a_set() {
        let mut state = 11_u64;
        let mut draw = |count: usize| -> Vec<UserKey> {
            let number = |_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                user((state >> 33) % 20)
            };
            (0..count).map(number).collect()
        };
        for _ in 0..200 {
            let before: BTreeSet<UserKey> = draw(8).into_iter().collect();
            let change = BlockListChange { clear_first: draw(1)[0] < user(3), add: draw(5), remove: draw(3) };
            let mut expected = if change.clear_first { BTreeSet::new() } else { before.clone() };
            expected.extend(&change.add);
            change.remove.iter().for_each(|user| _ = expected.remove(user));
            let before: Vec<UserKey> = before.into_iter().collect();
            let after = change.apply(&before).unwrap();
            assert_eq!(after, expected.into_iter().collect::<Vec<_>>());
            assert_eq!(change.apply(&after).unwrap(), after);
        }
    }

    #[test]
    fn block_list_has_a_maximum_length() {
        let mut list: Vec<UserKey> = (0..limit::BLOCKED_USERS_PER_LIST_MAX as u64).map(user).collect();
        list.sort_unstable();
        let add = |number| BlockListChange { add: vec![user(number)], ..BlockListChange::default() };
        assert_eq!(add(0).apply(&list), Ok(list.clone()), "it is in the list");
        assert_eq!(add(1_000_000).apply(&list), Err(BlockListFull));
        let swap = BlockListChange { remove: vec![user(0)], ..add(1_000_000) };
        assert_eq!(swap.apply(&list).map(|list| list.len()), Ok(limit::BLOCKED_USERS_PER_LIST_MAX));
    }
}
