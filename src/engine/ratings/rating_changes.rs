//! Log of changed ratings: readers in memory find out whose ratings have changed since they last looked.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::Notify;

use crate::domain::id::{RatingKey, UserKey};

/// Maximum changes kept. A reader that is further behind reads all ratings.
const CHANGES_MAX: usize = 65_536;

/// Latest changes of ratings, in order.
#[derive(Debug, Default)]
pub(crate) struct RatingChanges {
    /// Number of changes before the first one kept.
    dropped: u64,
    kept: VecDeque<(RatingKey, UserKey)>,
    notify: Arc<Notify>,
}

/// Changes since a reader last looked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ChangesSince {
    /// Changed ratings, oldest first; a rating may occur more than once.
    Ratings(Vec<(RatingKey, UserKey)>),
    /// Too many: any rating may have changed.
    All,
}

impl RatingChanges {
    /// Records a changed or removed rating.
    pub(super) fn record(&mut self, key: RatingKey, user: UserKey) {
        if self.kept.len() == CHANGES_MAX {
            self.kept.pop_front();
            self.dropped += 1;
        }
        self.kept.push_back((key, user));
        self.notify.notify_one();
    }

    /// Number of changes so far: the position of a reader that has seen all.
    pub(crate) fn position(&self) -> u64 {
        self.dropped + self.kept.len() as u64
    }

    /// Changes after `position`.
    pub(crate) fn since(&self, position: u64) -> ChangesSince {
        match position.checked_sub(self.dropped) {
            Some(seen) => ChangesSince::Ratings(self.kept.iter().skip(seen as usize).copied().collect()),
            None => ChangesSince::All,
        }
    }

    /// Wakes one reader, the advertisement writer, after each change.
    pub(crate) fn notify_handle(&self) -> Arc<Notify> {
        Arc::clone(&self.notify)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::id::SetId;

    const KEY: RatingKey = RatingKey::of_set_on_first_scale(SetId(1));

    fn user(number: usize) -> UserKey {
        UserKey::from_name(&number.to_string())
    }

    /// A reader gets each change after its position once, and learns when it is too far behind.
    #[test]
    fn rating_changes_are_read_from_a_position() {
        let mut changes = RatingChanges::default();
        (0..3).for_each(|number| changes.record(KEY, user(number)));
        let position = changes.position();
        assert_eq!(changes.since(0), ChangesSince::Ratings((0..3).map(|number| (KEY, user(number))).collect()));
        assert_eq!(changes.since(position), ChangesSince::Ratings(Vec::new()));
        (3..CHANGES_MAX + 1).for_each(|number| changes.record(KEY, user(number)));
        assert_eq!(changes.since(0), ChangesSince::All);
        assert_eq!(changes.position(), CHANGES_MAX as u64 + 1);
        let ChangesSince::Ratings(rest) = changes.since(position) else { panic!("the reader is not too far behind") };
        assert_eq!(rest.len(), CHANGES_MAX - 2);
        assert_eq!(rest[0], (KEY, user(3)));
    }
}
