//! Who is connected: the players of whom a ruleset may ask that a share be waiting (S2-7).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::domain::id::{IdState, SiloId, UserKey};
use crate::domain::time::UnixMs;

/// For how long somebody counts who has said to be connected.
const BELIEVED_MS: u64 = 30_000;

/// Users that are counted in one silo; beyond, the count stands still.
const USERS_MAX: usize = 2_000_000;

/// Users who have said that they are connected, on this server, and how many all servers together have.
#[derive(Debug, Default)]
pub(super) struct Presence {
    here: BTreeMap<SiloId, Silo>,
    everywhere: BTreeMap<SiloId, u32>,
}

#[derive(Debug, Default)]
struct Silo {
    until: HashMap<UserKey, UnixMs, IdState>,
    lapses: BTreeSet<(UnixMs, UserKey)>,
}

impl Presence {
    /// Notes that `users` are connected.
    pub(super) fn note(&mut self, silo: SiloId, users: impl IntoIterator<Item = UserKey>, now: UnixMs) {
        let silo = self.here.entry(silo).or_default();
        let until = now.after(BELIEVED_MS);
        for user in users {
            if USERS_MAX <= silo.until.len() && !silo.until.contains_key(&user) {
                continue;
            }
            if let Some(before) = silo.until.insert(user, until) {
                silo.lapses.remove(&(before, user));
            }
            silo.lapses.insert((until, user));
        }
    }

    /// How many are connected here, by silo; whoever has not been heard of for a while no longer counts.
    pub(super) fn here(&mut self, now: UnixMs) -> Vec<(SiloId, u32)> {
        for silo in self.here.values_mut() {
            while let Some((until, user)) = silo.lapses.first().copied().filter(|(until, _)| *until <= now) {
                silo.lapses.remove(&(until, user));
                silo.until.remove(&user);
            }
        }
        self.here.retain(|_, silo| !silo.until.is_empty());
        self.here.iter().map(|(id, silo)| (*id, u32::try_from(silo.until.len()).unwrap_or(u32::MAX))).collect()
    }

    /// Notes what all servers have, this one included.
    pub(super) fn heard(&mut self, everywhere: Vec<(SiloId, u32)>) {
        self.everywhere = everywhere.into_iter().collect();
    }

    /// How many are connected in a silo, as far as is known.
    pub(super) fn of(&mut self, silo: SiloId, now: UnixMs) -> u32 {
        let here = self.here(now).into_iter().find(|(id, _)| *id == silo).map_or(0, |(_, count)| count);
        here.max(self.everywhere.get(&silo).copied().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S2-7: who has not been heard of for half a minute is no longer connected, and nobody counts twice.
    #[test]
    fn whoever_falls_silent_no_longer_counts() {
        let (mut presence, silo) = (Presence::default(), SiloId(3));
        let user = |name: &str| UserKey::of(name);
        presence.note(silo, [user("ann"), user("bob")], UnixMs(0));
        presence.note(silo, [user("ann")], UnixMs(20_000));
        assert_eq!(presence.of(silo, UnixMs(29_999)), 2);
        assert_eq!(presence.of(silo, UnixMs(30_000)), 1);
        assert_eq!(presence.of(silo, UnixMs(50_000)), 0);
        presence.heard(vec![(silo, 7)]);
        assert_eq!(presence.of(silo, UnixMs(50_000)), 7);
        assert_eq!(presence.of(SiloId(4), UnixMs(50_000)), 0);
    }
}
