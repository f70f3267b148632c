//! Applies committed block lists to memory: own commits, and other replicas' changes from the feed.

use std::collections::BTreeSet;

use crate::domain::id::UserKey;
use crate::domain::time::UnixMs;
use crate::engine::queues::shared_state::SharedState;
use crate::engine::queues::shared_state::apply_changes::FULL_READ_REMOVAL_MARGIN_MS;
use crate::store::queues::{QueueFeedBatch, QueueKey, StoredBlockList};

impl SharedState {
    /// Applies stored block lists; `written_at` is the time if this replica has written them. They may change how passes treat
    /// the users' waiting tickets.
    pub(super) fn apply_block_lists(
        &self,
        stored: &[StoredBlockList],
        written_at: Option<UnixMs>,
        changed_queues: &mut BTreeSet<QueueKey>,
    ) {
        if stored.is_empty() {
            return;
        }
        let changed: Vec<UserKey> = {
            let mut lists = self.common.block_lists.write();
            stored.iter().filter(|list| lists.apply_if_newer(list, written_at)).map(|list| list.user).collect()
        };
        self.mark_queues_of_users_changed(changed, changed_queues);
    }

    /// Forgets the list of an erased user.
    pub(super) fn forget_block_list(&self, user: UserKey, changed_queues: &mut BTreeSet<QueueKey>) {
        let was_known = self.common.block_lists.write().remove(user);
        self.mark_queues_of_users_changed(was_known.then_some(user), changed_queues);
    }

    /// Forgets the lists of users whom other replicas have erased.
    pub(super) fn forget_removed_block_lists(
        &self,
        feed_batch: &QueueFeedBatch,
        changed_queues: &mut BTreeSet<QueueKey>,
    ) {
        let removed: Vec<UserKey> = {
            let mut lists = self.common.block_lists.write();
            if feed_batch.has_all_ratings_and_block_lists {
                let newer_than = UnixMs(feed_batch.read_at.0.saturating_sub(FULL_READ_REMOVAL_MARGIN_MS));
                lists.remove_unlisted_older_than(&feed_batch.block_lists, newer_than)
            } else {
                let is_listed = |user: &UserKey| feed_batch.block_lists.iter().any(|list| list.user == *user);
                let unlisted = feed_batch.fully_read_users.iter().filter(|user| !is_listed(user));
                unlisted.copied().filter(|user| lists.remove(*user)).collect()
            }
        };
        self.mark_queues_of_users_changed(removed, changed_queues);
    }
}
