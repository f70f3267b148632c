//! Durable block lists in memory, below advertisements and queues: copies of the store's rows, updated by the queue writer and
//! the feed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::domain::id::{BuildIdHasher, UserKey};
use crate::domain::time::UnixMs;
use crate::store::queues::StoredBlockList;

/// Block lists of all users.
#[derive(Debug, Default)]
pub(crate) struct BlockLists {
    lists: HashMap<UserKey, CachedBlockList, BuildIdHasher>,
    /// Users who have blocked each user. Without blockers there is no entry.
    blockers: HashMap<UserKey, HashSet<UserKey, BuildIdHasher>, BuildIdHasher>,
    /// Number of changes.
    change_count: u64,
}

/// Block list of a user.
#[derive(Debug)]
struct CachedBlockList {
    blocked: Arc<[UserKey]>,
    version: u64,
    /// Time at which this server has written it, if it was the last to do so. A read of all lists may be older.
    written_here_at: Option<UnixMs>,
}

impl BlockLists {
    /// Takes over a stored list, unless a newer one is known. `written_at` is the time if this server has written it. Returns
    /// whether the list has changed.
    pub(crate) fn apply_if_newer(&mut self, stored: &StoredBlockList, written_at: Option<UnixMs>) -> bool {
        if self.lists.get(&stored.user).is_some_and(|known| stored.version <= known.version) {
            return false;
        }
        let (blocked, version) = (Arc::clone(&stored.blocked), stored.version);
        let before = self.lists.insert(stored.user, CachedBlockList { blocked, version, written_here_at: written_at });
        let before = before.map_or_else(|| Arc::from([]), |list| list.blocked);
        self.unlink(stored.user, &before);
        for user in &*stored.blocked {
            self.blockers.entry(*user).or_default().insert(stored.user);
        }
        self.change_count += 1;
        before != stored.blocked
    }

    /// Forgets the list of a user. Returns whether there was one.
    pub(crate) fn remove(&mut self, user: UserKey) -> bool {
        let Some(removed) = self.lists.remove(&user) else { return false };
        self.unlink(user, &removed.blocked);
        self.change_count += 1;
        true
    }

    /// Forgets the lists that are not among `stored`, all lists as of some time, and that this server has not written since
    /// `newer_than`. Returns the users.
    pub(crate) fn remove_unlisted_older_than(
        &mut self,
        stored: &[StoredBlockList],
        newer_than: UnixMs,
    ) -> Vec<UserKey> {
        let listed: HashSet<UserKey, BuildIdHasher> = stored.iter().map(|list| list.user).collect();
        let is_old = |list: &CachedBlockList| list.written_here_at.is_none_or(|at| at < newer_than);
        let old = self.lists.iter().filter(|(user, list)| !listed.contains(*user) && is_old(list));
        let mut removed: Vec<UserKey> = old.map(|(user, _)| *user).collect();
        removed.retain(|user| self.remove(*user));
        removed
    }

    /// Number of changes so far.
    pub(crate) fn change_count(&self) -> u64 {
        self.change_count
    }

    /// List of a user; `None` for a user who never had one.
    pub(crate) fn list_of(&self, user: UserKey) -> Option<&Arc<[UserKey]>> {
        self.lists.get(&user).map(|list| &list.blocked)
    }

    /// Users whom any of `users` has blocked, sorted.
    pub(crate) fn users_blocked_by(&self, users: impl IntoIterator<Item = UserKey>) -> Vec<UserKey> {
        if self.blockers.is_empty() {
            return Vec::new();
        }
        let lists = users.into_iter().filter_map(|user| self.list_of(user));
        let mut blocked: Vec<UserKey> = lists.flat_map(|list| list.iter().copied()).collect();
        blocked.sort_unstable();
        blocked.dedup();
        blocked
    }

    /// Users who have blocked `user`, and those whom `user` has blocked. A user can occur twice.
    pub(crate) fn kept_apart_from(&self, user: UserKey) -> impl Iterator<Item = UserKey> + '_ {
        let blocked = self.list_of(user).into_iter().flat_map(|list| list.iter().copied());
        blocked.chain(self.blockers.get(&user).into_iter().flatten().copied())
    }

    /// Number of users that [`kept_apart_from`](Self::kept_apart_from) returns.
    pub(crate) fn kept_apart_count(&self, user: UserKey) -> usize {
        self.list_of(user).map_or(0, |list| list.len()) + self.blockers.get(&user).map_or(0, HashSet::len)
    }

    /// Removes `user` as the blocker of `blocked`.
    fn unlink(&mut self, user: UserKey, blocked: &[UserKey]) {
        for other in blocked {
            if let Some(blockers) = self.blockers.get_mut(other) {
                blockers.remove(&user);
                if blockers.is_empty() {
                    self.blockers.remove(other);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn user(number: u32) -> UserKey {
        UserKey::from_name(&number.to_string())
    }

    fn stored(of: u32, blocked: &[u32], version: u64) -> StoredBlockList {
        let mut blocked: Vec<UserKey> = blocked.iter().map(|number| user(*number)).collect();
        blocked.sort_unstable();
        StoredBlockList { user: user(of), blocked: blocked.into(), version }
    }

    /// The lookup in both directions equals a scan of the newest version of each list, however they arrive.
    #[test]
    fn block_lists_are_found_from_both_sides() {
        let (mut lists, mut newest) = (BlockLists::default(), BTreeMap::<u32, StoredBlockList>::new());
        let mut state = 7_u32;
        let mut draw = |below: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16) % below
        };
        for _ in 0..400 {
            let of = draw(6);
            if draw(8) == 0 {
                assert_eq!(lists.remove(user(of)), newest.remove(&of).is_some());
            } else {
                let blocked: Vec<u32> =
                    (0..draw(4)).map(|_| draw(6)).collect::<std::collections::BTreeSet<_>>().into_iter().collect();
                let list = stored(of, &blocked, u64::from(draw(20)) + 1);
                lists.apply_if_newer(&list, None);
                if newest.get(&of).is_none_or(|known| known.version < list.version) {
                    newest.insert(of, list);
                }
            }
            let has_blocked =
                |by: u32, other: u32| newest.get(&by).is_some_and(|list| list.blocked.contains(&user(other)));
            for one in 0..6 {
                let apart: Vec<UserKey> = lists.kept_apart_from(user(one)).collect();
                assert_eq!(apart.len(), lists.kept_apart_count(user(one)));
                for other in 0..6 {
                    let expected = has_blocked(one, other) || has_blocked(other, one);
                    assert_eq!(apart.contains(&user(other)), expected);
                    assert_eq!(lists.users_blocked_by([user(one)]).contains(&user(other)), has_blocked(one, other));
                }
            }
        }
    }

    #[test]
    fn own_list_outlives_an_older_read_of_all_lists() {
        let mut lists = BlockLists::default();
        assert!(lists.apply_if_newer(&stored(1, &[2], 1), Some(UnixMs(1_000))));
        assert!(lists.apply_if_newer(&stored(3, &[2], 1), None));
        assert_eq!(lists.remove_unlisted_older_than(&[], UnixMs(1_000)), [user(3)]);
        assert_eq!(lists.remove_unlisted_older_than(&[], UnixMs(1_001)), [user(1)]);
    }
}
