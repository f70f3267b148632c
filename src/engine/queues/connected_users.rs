//! Who is connected: the players of whom a ruleset may ask that a share be waiting (S2-7).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::domain::id::{BuildIdHasher, SiloId, UserKey};
use crate::domain::time::UnixMs;

/// For how long somebody counts who has said to be connected.
const CONNECTED_TTL_MS: u64 = 30_000;

/// Users that are counted in one silo; beyond, the count stands still.
const USERS_PER_SILO_MAX: usize = 2_000_000;

/// Users who have said that they are connected, on this server, and how many all servers together have.
#[derive(Debug, Default)]
pub(super) struct ConnectedUsers {
    on_this_replica: BTreeMap<SiloId, SiloUsers>,
    total_counts: BTreeMap<SiloId, u32>,
}

#[derive(Debug, Default)]
struct SiloUsers {
    expires_at: HashMap<UserKey, UnixMs, BuildIdHasher>,
    expiry_queue: BTreeSet<(UnixMs, UserKey)>,
}

impl ConnectedUsers {
    /// Notes that `users` are connected.
    pub(super) fn record_connected(&mut self, silo: SiloId, users: impl IntoIterator<Item = UserKey>, now: UnixMs) {
        let silo = self.on_this_replica.entry(silo).or_default();
        let until = now.plus_ms(CONNECTED_TTL_MS);
        for user in users {
            if USERS_PER_SILO_MAX <= silo.expires_at.len() && !silo.expires_at.contains_key(&user) {
                continue;
            }
            if let Some(before) = silo.expires_at.insert(user, until) {
                silo.expiry_queue.remove(&(before, user));
            }
            silo.expiry_queue.insert((until, user));
        }
    }

    /// How many are connected here, by silo; whoever has not been heard of for a while no longer counts.
    pub(super) fn counts_on_this_replica(&mut self, now: UnixMs) -> Vec<(SiloId, u32)> {
        for silo in self.on_this_replica.values_mut() {
            while let Some((until, user)) = silo.expiry_queue.first().copied().filter(|(until, _)| *until <= now) {
                silo.expiry_queue.remove(&(until, user));
                silo.expires_at.remove(&user);
            }
        }
        self.on_this_replica.retain(|_, silo| !silo.expires_at.is_empty());
        self.on_this_replica
            .iter()
            .map(|(id, silo)| (*id, u32::try_from(silo.expires_at.len()).unwrap_or(u32::MAX)))
            .collect()
    }

    /// Notes what all servers have, this one included.
    pub(super) fn set_total_counts(&mut self, everywhere: Vec<(SiloId, u32)>) {
        self.total_counts = everywhere.into_iter().collect();
    }

    /// How many are connected in a silo, as far as is known.
    pub(super) fn connected_count(&mut self, silo: SiloId, now: UnixMs) -> u32 {
        let here =
            self.counts_on_this_replica(now).into_iter().find(|(id, _)| *id == silo).map_or(0, |(_, count)| count);
        here.max(self.total_counts.get(&silo).copied().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S2-7: who has not been heard of for half a minute is no longer connected, and nobody counts twice.
    #[test]
    fn connected_users_expire_without_heartbeat() {
        let (mut presence, silo) = (ConnectedUsers::default(), SiloId(3));
        let user = |name: &str| UserKey::from_name(name);
        presence.record_connected(silo, [user("ann"), user("bob")], UnixMs(0));
        presence.record_connected(silo, [user("ann")], UnixMs(20_000));
        assert_eq!(presence.connected_count(silo, UnixMs(29_999)), 2);
        assert_eq!(presence.connected_count(silo, UnixMs(30_000)), 1);
        assert_eq!(presence.connected_count(silo, UnixMs(50_000)), 0);
        presence.set_total_counts(vec![(silo, 7)]);
        assert_eq!(presence.connected_count(silo, UnixMs(50_000)), 7);
        assert_eq!(presence.connected_count(SiloId(4), UnixMs(50_000)), 0);
    }
}
