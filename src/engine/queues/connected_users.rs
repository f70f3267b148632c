//! Connected users per set and silo, counted for gates that require a share of them to be waiting.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::domain::id::{SetId, UserKey};
use crate::domain::time::UnixMs;
use crate::store::queues::QueueKey;

/// Time after a heartbeat for which a user counts as connected, milliseconds.
const CONNECTED_TTL_MS: u64 = 30_000;

/// Maximum entries of this replica: one per user, set and silo. Further users are not counted.
const ENTRIES_MAX: usize = 4_000_000;

/// Maximum changes to record. With more of them, all users are listed again.
const CHANGES_MAX: usize = 200_000;

/// Users who have connected or disconnected: whether they are connected now.
pub(crate) type ConnectionChanges = BTreeMap<(QueueKey, UserKey), bool>;

/// Users connected to this replica, and counts over all replicas. A user counts once per set and silo.
#[derive(Debug, Default)]
pub(crate) struct ConnectedUsers {
    expiry_by_user: HashMap<(QueueKey, UserKey), UnixMs>,
    /// All entries by expiry, so that dropping the expired ones reads no other.
    expiry_queue: BTreeSet<(UnixMs, QueueKey, UserKey)>,
    local_counts: BTreeMap<QueueKey, u32>,
    total_counts: BTreeMap<QueueKey, u32>,
    /// Changes since the last call of `take_changes`. `None` if no other server needs them.
    changes: Option<Box<RecordedChanges>>,
}

/// Changes of the users of some sets.
#[derive(Debug)]
struct RecordedChanges {
    sets: BTreeSet<SetId>,
    changes: ConnectionChanges,
}

impl ConnectedUsers {
    /// Records a heartbeat of `users` who play the set in the silo of `key`.
    pub(crate) fn record_connected(&mut self, key: QueueKey, users: impl IntoIterator<Item = UserKey>, now: UnixMs) {
        self.remove_expired(now);
        let expires_at = now.plus_ms(CONNECTED_TTL_MS);
        for user in users {
            let is_full = self.expiry_by_user.len() >= ENTRIES_MAX;
            if is_full && !self.expiry_by_user.contains_key(&(key, user)) {
                continue;
            }
            match self.expiry_by_user.insert((key, user), expires_at) {
                Some(previous) => {
                    self.expiry_queue.remove(&(previous, key, user));
                }
                None => {
                    *self.local_counts.entry(key).or_insert(0) += 1;
                    self.record_change(key, user, true);
                }
            }
            self.expiry_queue.insert((expires_at, key, user));
        }
    }

    /// Forgets a user in all queues.
    pub(crate) fn forget(&mut self, user: UserKey) {
        let entries: Vec<(QueueKey, UserKey)> =
            self.expiry_by_user.keys().copied().filter(|(_, connected)| *connected == user).collect();
        for (key, user) in entries {
            if let Some(expires_at) = self.expiry_by_user.remove(&(key, user)) {
                self.expiry_queue.remove(&(expires_at, key, user));
                self.remove_from_count(key);
                self.record_change(key, user, false);
            }
        }
    }

    fn record_change(&mut self, key: QueueKey, user: UserKey, is_connected: bool) {
        let Some(recorded) = &mut self.changes else { return };
        if recorded.sets.contains(&key.set_id) {
            recorded.changes.insert((key, user), is_connected);
            if CHANGES_MAX < recorded.changes.len() {
                self.changes = None;
            }
        }
    }

    /// Records changes of the users of `sets` from now on. Returns those who are connected.
    pub(crate) fn start_recording(&mut self, sets: &BTreeSet<SetId>) -> impl Iterator<Item = (QueueKey, UserKey)> {
        self.changes = Some(Box::new(RecordedChanges { sets: sets.clone(), changes: BTreeMap::new() }));
        self.expiry_by_user.keys().copied().filter(|(key, _)| sets.contains(&key.set_id))
    }

    /// Stops recording changes.
    pub(crate) fn stop_recording(&mut self) {
        self.changes = None;
    }

    /// Takes the changes of the users of `sets` since the last call, or since they are recorded. `None` if they are not, or
    /// there were too many.
    pub(crate) fn take_changes(&mut self, sets: &BTreeSet<SetId>) -> Option<ConnectionChanges> {
        let recorded = self.changes.as_mut().filter(|recorded| recorded.sets == *sets)?;
        Some(std::mem::take(&mut recorded.changes))
    }

    fn remove_from_count(&mut self, key: QueueKey) {
        if let Some(count) = self.local_counts.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.local_counts.remove(&key);
            }
        }
    }

    /// Connected users of this replica, by set and silo. Only queues with users are listed.
    pub(crate) fn local_counts(&mut self, now: UnixMs) -> &BTreeMap<QueueKey, u32> {
        self.remove_expired(now);
        &self.local_counts
    }

    /// Sets the counts over all replicas, this one included.
    pub(crate) fn set_total_counts(&mut self, counts: Vec<(QueueKey, u32)>) {
        self.total_counts = counts.into_iter().collect();
    }

    /// Connected users of a set and silo: the larger of the local and the total count.
    pub(crate) fn connected_count(&mut self, key: QueueKey, now: UnixMs) -> u32 {
        self.remove_expired(now);
        let count_in = |counts: &BTreeMap<QueueKey, u32>| counts.get(&key).copied().unwrap_or(0);
        count_in(&self.local_counts).max(count_in(&self.total_counts))
    }

    /// Removes the entries that have expired at `now`. Each is removed once, so its cost belongs to its heartbeat.
    fn remove_expired(&mut self, now: UnixMs) {
        while let Some(&(expires_at, key, user)) = self.expiry_queue.first()
            && expires_at <= now
        {
            self.expiry_queue.pop_first();
            self.expiry_by_user.remove(&(key, user));
            self.remove_from_count(key);
            self.record_change(key, user, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::id::SiloId;

    const LADDER: QueueKey = QueueKey { set_id: SetId(1), silo: SiloId(3) };

    fn user(name: &str) -> UserKey {
        UserKey::from_name(name)
    }

    /// S2-7: a user without a heartbeat for 30 s is no longer connected, and no user counts twice.
    #[test]
    fn connected_users_expire_without_heartbeat() {
        let mut connected = ConnectedUsers::default();
        connected.record_connected(LADDER, [user("ann"), user("bob")], UnixMs(0));
        connected.record_connected(LADDER, [user("ann")], UnixMs(20_000));
        assert_eq!(connected.connected_count(LADDER, UnixMs(29_999)), 2);
        assert_eq!(connected.connected_count(LADDER, UnixMs(30_000)), 1);
        assert_eq!(connected.connected_count(LADDER, UnixMs(50_000)), 0);
        assert!(connected.expiry_by_user.is_empty() && connected.local_counts(UnixMs(50_000)).is_empty());
        connected.set_total_counts(vec![(LADDER, 7)]);
        assert_eq!(connected.connected_count(LADDER, UnixMs(50_000)), 7);
    }

    /// S2-7: other servers hear of users who have connected or disconnected, not of those who stay, nor of other sets.
    #[test]
    fn connected_users_record_changes() {
        let mut connected = ConnectedUsers::default();
        let sets = BTreeSet::from([LADDER.set_id]);
        let casual = QueueKey { set_id: SetId(2), ..LADDER };
        connected.record_connected(LADDER, [user("ann")], UnixMs(0));
        connected.record_connected(casual, [user("ann")], UnixMs(0));
        assert_eq!(connected.take_changes(&sets), None);
        assert_eq!(connected.start_recording(&sets).collect::<Vec<_>>(), [(LADDER, user("ann"))]);
        connected.record_connected(LADDER, [user("ann"), user("bob"), user("cid")], UnixMs(10_000));
        connected.record_connected(casual, [user("dan")], UnixMs(10_000));
        connected.forget(user("cid"));
        let changes = |entries: &[(&str, bool)]| -> Option<ConnectionChanges> {
            Some(entries.iter().map(|(name, is_connected)| ((LADDER, user(name)), *is_connected)).collect())
        };
        assert_eq!(connected.take_changes(&sets), changes(&[("bob", true), ("cid", false)]));
        connected.record_connected(LADDER, [user("bob")], UnixMs(39_999));
        connected.local_counts(UnixMs(40_000));
        assert_eq!(connected.take_changes(&sets), changes(&[("ann", false)]));
        assert_eq!(connected.take_changes(&BTreeSet::new()), None, "other sets");
        let many = (0..=CHANGES_MAX).map(|number| user(&number.to_string()));
        connected.record_connected(LADDER, many, UnixMs(40_000));
        assert_eq!(connected.take_changes(&sets), None, "too many");
        assert_eq!(connected.start_recording(&sets).count(), CHANGES_MAX + 2);
        connected.stop_recording();
        assert_eq!(connected.take_changes(&sets), None);
    }

    /// S2-7: users of another set, or of the same set in another silo, do not count.
    #[test]
    fn connected_users_count_in_their_own_set_and_silo() {
        let mut connected = ConnectedUsers::default();
        let casual = QueueKey { set_id: SetId(2), ..LADDER };
        let other_silo = QueueKey { silo: SiloId(4), ..LADDER };
        connected.record_connected(LADDER, [user("ann")], UnixMs(0));
        connected.record_connected(casual, [user("ann"), user("bob"), user("cid")], UnixMs(0));
        connected.record_connected(other_silo, [user("dan"), user("eve")], UnixMs(0));
        let counts = [LADDER, casual, other_silo].map(|key| connected.connected_count(key, UnixMs(1)));
        assert_eq!(counts, [1, 3, 2]);
        let listed: Vec<_> = connected.local_counts(UnixMs(1)).iter().map(|(key, count)| (*key, *count)).collect();
        assert_eq!(listed, [(LADDER, 1), (other_silo, 2), (casual, 3)]);
    }
}
