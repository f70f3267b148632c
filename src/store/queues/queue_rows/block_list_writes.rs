//! Writes of block lists: a change by the user, and the removal of an erased user from the lists of others.

use crate::domain::block_list::BlockListChange;
use crate::domain::id::UserKey;
use crate::store::queues::queue_rows::QueueRows;
use crate::store::queues::{QueueOutcome, StoredBlockList};

impl QueueRows {
    /// Changes the list of a user. A user without a list has an empty one.
    pub(super) fn update_block_list(&mut self, user: UserKey, change: &BlockListChange) -> QueueOutcome {
        let known = self.block_lists.get(&user);
        let Ok(blocked) = change.apply(known.map_or(&[], |list| &list.blocked)) else {
            return QueueOutcome::BlockListFull;
        };
        let unchanged = known.filter(|list| *list.blocked == *blocked).cloned();
        QueueOutcome::BlockListUpdated(unchanged.unwrap_or_else(|| self.replace_block_list(user, blocked)))
    }

    /// Removes `erased` from the list of a user. Returns the list if it has changed.
    pub(super) fn remove_erased_from_block_list_of(
        &mut self,
        user: UserKey,
        erased: UserKey,
    ) -> Option<StoredBlockList> {
        let mut blocked = self.block_lists.get(&user)?.blocked.to_vec();
        let at = blocked.binary_search(&erased).ok()?;
        blocked.remove(at);
        Some(self.replace_block_list(user, blocked))
    }

    fn replace_block_list(&mut self, user: UserKey, blocked: Vec<UserKey>) -> StoredBlockList {
        let version = self.block_lists.get(&user).map_or(0, |list| list.version) + 1;
        let list = StoredBlockList { user, blocked: blocked.into(), version };
        self.block_lists.insert(user, list.clone());
        list
    }
}
