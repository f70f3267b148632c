//! Users online per silo, counted for gates that require a share of them to be waiting.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::domain::id::{BuildIdHasher, SiloId, UserKey};
use crate::domain::time::UnixMs;

/// Time after a heartbeat for which a user counts as connected, milliseconds.
const CONNECTED_TTL_MS: u64 = 30_000;

/// Maximum users counted per silo.
const USERS_PER_SILO_MAX: usize = 2_000_000;

/// Users connected to this replica, and counts over all replicas.
#[derive(Debug, Default)]
pub(crate) struct ConnectedUsers {
    users_by_silo: BTreeMap<SiloId, SiloUsers>,
    total_counts: BTreeMap<SiloId, u32>,
}

#[derive(Debug, Default)]
struct SiloUsers {
    expiry_by_user: HashMap<UserKey, UnixMs, BuildIdHasher>,
    expiry_queue: BTreeSet<(UnixMs, UserKey)>,
}

impl ConnectedUsers {
    /// Records a heartbeat of `users`.
    pub(crate) fn record_connected(&mut self, silo: SiloId, users: impl IntoIterator<Item = UserKey>, now: UnixMs) {
        let silo = self.users_by_silo.entry(silo).or_default();
        let expires_at = now.plus_ms(CONNECTED_TTL_MS);
        for user in users {
            if silo.expiry_by_user.len() >= USERS_PER_SILO_MAX && !silo.expiry_by_user.contains_key(&user) {
                continue;
            }
            if let Some(previous) = silo.expiry_by_user.insert(user, expires_at) {
                silo.expiry_queue.remove(&(previous, user));
            }
            silo.expiry_queue.insert((expires_at, user));
        }
    }

    /// Connected users of this replica by silo. Drops expired ones.
    pub(crate) fn local_counts(&mut self, now: UnixMs) -> Vec<(SiloId, u32)> {
        for silo in self.users_by_silo.values_mut() {
            while let Some((expires_at, user)) =
                silo.expiry_queue.first().copied().filter(|(expires_at, _)| *expires_at <= now)
            {
                silo.expiry_queue.remove(&(expires_at, user));
                silo.expiry_by_user.remove(&user);
            }
        }
        self.users_by_silo.retain(|_, silo| !silo.expiry_by_user.is_empty());
        self.users_by_silo
            .iter()
            .map(|(id, silo)| (*id, u32::try_from(silo.expiry_by_user.len()).unwrap_or(u32::MAX)))
            .collect()
    }

    /// Sets the counts over all replicas, this one included.
    pub(crate) fn set_total_counts(&mut self, counts: Vec<(SiloId, u32)>) {
        self.total_counts = counts.into_iter().collect();
    }

    /// Connected users of a silo: the larger of the local and the total count.
    pub(crate) fn connected_count(&mut self, silo: SiloId, now: UnixMs) -> u32 {
        let local_count = self.local_counts(now).into_iter().find(|(id, _)| *id == silo).map_or(0, |(_, count)| count);
        local_count.max(self.total_counts.get(&silo).copied().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S2-7: a user without a heartbeat for 30 s is no longer connected, and no user counts twice.
    #[test]
    fn connected_users_expire_without_heartbeat() {
        let (mut connected, silo) = (ConnectedUsers::default(), SiloId(3));
        let user = |name: &str| UserKey::from_name(name);
        connected.record_connected(silo, [user("ann"), user("bob")], UnixMs(0));
        connected.record_connected(silo, [user("ann")], UnixMs(20_000));
        assert_eq!(connected.connected_count(silo, UnixMs(29_999)), 2);
        assert_eq!(connected.connected_count(silo, UnixMs(30_000)), 1);
        assert_eq!(connected.connected_count(silo, UnixMs(50_000)), 0);
        connected.set_total_counts(vec![(silo, 7)]);
        assert_eq!(connected.connected_count(silo, UnixMs(50_000)), 7);
        assert_eq!(connected.connected_count(SiloId(4), UnixMs(50_000)), 0);
    }
}
