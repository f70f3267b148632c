//! Counts connections, in all and from one place, and turns away those that are too many (SEC-2).

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use hashbrown::HashMap;

/// Lets connections in.
#[derive(Debug)]
pub struct Gate {
    limits: Limits,
    counts: Mutex<Counts>,
}

/// How many.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// In all.
    pub total: usize,
    /// From one place.
    pub per_place: u32,
    /// From one place on this machine.
    pub per_local_place: u32,
}

#[derive(Debug, Default)]
struct Counts {
    total: usize,
    places: HashMap<Place, u32>,
}

/// What is counted as one: an IPv4 address, or the /64 that one IPv6 customer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Place {
    Four([u8; 4]),
    Six([u8; 8]),
}

/// Why a connection is turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnedAway {
    /// There are too many in all.
    TooMany,
    /// There are too many from there.
    TooManyFromOnePlace,
}

impl TurnedAway {
    /// The word in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            TurnedAway::TooMany => "too_many",
            TurnedAway::TooManyFromOnePlace => "too_many_from_one_place",
        }
    }
}

/// A connection's place among the counted; given back when it is dropped.
#[derive(Debug)]
pub struct Pass {
    gate: Arc<Gate>,
    place: Place,
}

impl Gate {
    /// A gate that nobody has passed.
    pub fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, counts: Mutex::default() })
    }

    /// Lets a connection from `address` in, or says why not.
    pub fn admit(self: &Arc<Self>, address: IpAddr) -> Result<Pass, TurnedAway> {
        let place = Place::of(address);
        let limit = if address.is_loopback() { self.limits.per_local_place } else { self.limits.per_place };
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if self.limits.total <= counts.total {
            return Err(TurnedAway::TooMany);
        }
        let from_there = counts.places.get(&place).copied().unwrap_or(0);
        if limit <= from_there {
            return Err(TurnedAway::TooManyFromOnePlace);
        }
        counts.places.insert(place, from_there + 1);
        counts.total += 1;
        Ok(Pass { gate: self.clone(), place })
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut counts = self.gate.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.total -= 1;
        match counts.places.get_mut(&self.place) {
            Some(count) if 1 < *count => *count -= 1,
            _ => drop(counts.places.remove(&self.place)),
        }
    }
}

impl Place {
    fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(four) => Place::Four(four.octets()),
            IpAddr::V6(six) => {
                let mut network = [0; 8];
                network.copy_from_slice(&six.octets()[..8]);
                Place::Six(network)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SEC-2: few from one place, a limited number in all, and whoever leaves makes room.
    #[test]
    fn a_flood_from_one_place_leaves_room_for_others() {
        let gate = Gate::new(Limits { total: 7, per_place: 2, per_local_place: 3 });
        let admit = |text: &str| gate.admit(text.parse().unwrap());
        let mut inside = Vec::new();
        inside.push(admit("203.0.113.9").unwrap());
        inside.push(admit("::ffff:203.0.113.9").unwrap());
        assert_eq!(admit("203.0.113.9").unwrap_err(), TurnedAway::TooManyFromOnePlace);
        inside.push(admit("2001:db8:0:1::1").unwrap());
        inside.push(admit("2001:db8:0:1:ffff::2").unwrap());
        assert_eq!(admit("2001:db8:0:1::3").unwrap_err(), TurnedAway::TooManyFromOnePlace);
        inside.extend(["127.0.0.1"; 3].map(|local| admit(local).unwrap()));
        assert_eq!(admit("198.51.100.1").unwrap_err(), TurnedAway::TooMany);
        inside.pop();
        inside.push(admit("198.51.100.1").unwrap());
        inside.clear();
        let counts = gate.counts.lock().unwrap();
        assert_eq!((counts.total, counts.places.len()), (0, 0));
    }
}
