//! Refresh of advertisements whose players' ratings have changed. The index takes the new values; nothing is encoded or
//! stored again. The advertisement writer runs it, so it does not race with publications.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::domain::attribute_values::AttributeValues;
use crate::domain::id::{AdvertisementId, RatingKey, RulesetHash, SetId, UserKey};
use crate::domain::index::AdvertisementIndex;
use crate::engine::adverts::advert_set_map::AdvertSetLock;
use crate::engine::adverts::advert_state::AdvertState;
use crate::engine::ratings::rating_changes::ChangesSince;

/// Shortest time between two refreshes, so that ratings that change often do not hold up searches.
const REFRESH_INTERVAL_MIN: Duration = Duration::from_millis(100);

/// Maximum advertisements that are changed while the set's lock is held.
const ADVERTS_PER_LOCK_MAX: usize = 256;

/// Reader of changed ratings.
#[derive(Debug)]
pub(crate) struct RatingRefresh {
    /// Position in the log of changed ratings.
    position: u64,
    ratings_changed: Arc<Notify>,
    is_due: bool,
    not_before: Instant,
}

/// New attribute values of an advertisement in one index.
struct ChangedValues {
    id: AdvertisementId,
    ruleset_hash: RulesetHash,
    values: AttributeValues,
}

impl RatingRefresh {
    /// Reader of all changes from the first one.
    pub(crate) fn new(state: &AdvertState) -> Self {
        let changed = state.common.ratings.lock().rating_change_log().notify_handle();
        Self { position: 0, ratings_changed: changed, is_due: true, not_before: Instant::now() }
    }

    /// Waits until ratings have changed and the next refresh may start. May be cancelled.
    pub(crate) async fn wait_until_refresh_due(&mut self) {
        if !self.is_due {
            self.ratings_changed.notified().await;
            self.is_due = true;
        }
        tokio::time::sleep_until(self.not_before).await;
    }

    /// Brings the values of all advertisements up to date.
    pub(crate) async fn refresh(&mut self, state: &AdvertState) {
        self.is_due = false;
        self.not_before = Instant::now() + REFRESH_INTERVAL_MIN;
        let changes = {
            let ratings = state.common.ratings.lock();
            let changes = ratings.rating_change_log().since(self.position);
            self.position = ratings.rating_change_log().position();
            match changes {
                ChangesSince::Ratings(changed) => Some(changed.into_iter().collect::<BTreeSet<_>>()),
                ChangesSince::All => None,
            }
        };
        if changes.as_ref().is_some_and(BTreeSet::is_empty) {
            return;
        }
        for (set_id, set) in state.advert_sets.all_sets() {
            let ids = affected_adverts(state, &set, changes.as_ref());
            for page in ids.chunks(ADVERTS_PER_LOCK_MAX) {
                refresh_adverts(state, (set_id, &set), page);
                tokio::task::yield_now().await;
            }
        }
    }
}

/// Advertisements of a set that have players among the changed ratings; of all players if `changes` is `None`.
fn affected_adverts(
    state: &AdvertState,
    set: &AdvertSetLock,
    changes: Option<&BTreeSet<(RatingKey, UserKey)>>,
) -> Vec<AdvertisementId> {
    let set = set.lock_for_read();
    let mut affected: Vec<AdvertisementId> = Vec::new();
    for index in set.indexes().iter().filter(|index| index.depends_on_standings()) {
        let Some(changes) = changes else { return set.records().map(|record| record.advertisement.id).collect() };
        let Some(rating) = state.common.ratings.lock().keyed_spec_of_ruleset(index.ruleset()) else { continue };
        let from = (rating.key, UserKey::from_bytes([0; 16]));
        let to = (rating.key, UserKey::from_bytes([u8::MAX; 16]));
        affected.extend(changes.range(from..=to).flat_map(|(_, user)| index.tracked_ids_of_user(*user)));
    }
    affected.sort_unstable();
    affected.dedup();
    affected
}

/// Replaces the values of some advertisements, where they have changed.
fn refresh_adverts(state: &AdvertState, (set_id, set): (SetId, &AdvertSetLock), ids: &[AdvertisementId]) {
    // Only the writer changes indexes, and it runs here: they cannot change between the two locks.
    let changed: Vec<ChangedValues> = {
        let set = set.lock_for_read();
        let depends = |index: &&AdvertisementIndex| index.depends_on_standings();
        let indexes = set.indexes().iter().filter(depends);
        indexes.flat_map(|index| ids.iter().filter_map(|id| changed_values(state, index, *id))).collect()
    };
    if changed.is_empty() {
        return;
    }
    let fills_sessions = state.common.fills_open_sessions(set_id);
    let mut set = set.lock_for_write();
    for ChangedValues { id, ruleset_hash, values } in changed {
        set.set_attribute_values(ruleset_hash, id, values);
        if let Some(record) = set.get(id).filter(|_| fills_sessions) {
            state.wake_backfill_if_open(record);
        }
    }
}

fn changed_values(state: &AdvertState, index: &AdvertisementIndex, id: AdvertisementId) -> Option<ChangedValues> {
    let entry = index.get(id)?;
    let values = state.common.party_values.attribute_values(index.ruleset(), &entry.advertisement.session);
    let ruleset_hash = index.ruleset().hash;
    (values != entry.attribute_values).then_some(ChangedValues { id, ruleset_hash, values })
}
