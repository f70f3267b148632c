//! Counts connections, in all and from one place, and turns away those that are too many or come too fast (SEC-2).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hashbrown::HashMap;
use tokio::time::Instant;

use crate::api::layer::report::RpcObserver;
use crate::server::frames::{Purse, Share};
use crate::telemetry::label::TurnedAway;

/// Places that are remembered only for how fast they came; beyond that they are forgotten, and may come fast once more.
const PLACES_MAX: usize = 65_536;

/// Places below which looking for those to forget is not worth it.
const PLACES_FEW: usize = 1_024;

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
    /// From one place; also how many may come at once after a pause.
    pub per_place: u32,
    /// From one neighbour.
    pub per_neighbour: u32,
    /// How often one place may open a connection in the long run; neighbours may as often as they like.
    pub opening_every: Duration,
    /// Frames that ask for nothing, from one place; neighbours may send what they like.
    pub idle_frames: Share,
}

/// What a connection is to us before it has said who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Anybody.
    Stranger,
    /// This machine or a trusted proxy, which carries the connections of many.
    Neighbour,
}

/// Whether an address is this machine's own, as its proxies have it: 127.0.0.1 and ::1, not the rest of 127/8, where
/// nothing of ours comes from.
pub fn is_this_machine(address: IpAddr) -> bool {
    address == IpAddr::V4(Ipv4Addr::LOCALHOST) || address == IpAddr::V6(Ipv6Addr::LOCALHOST)
}

#[derive(Debug, Default)]
struct Counts {
    total: usize,
    places: HashMap<Place, Seen>,
    /// The number of places at which those that have nothing open and have not come lately are forgotten.
    tidy_at: usize,
}

/// What is known of a place.
#[derive(Debug)]
struct Seen {
    open: u32,
    /// When all that it has opened is paid for, at one connection every `opening_every`.
    paid: Instant,
    /// What its connections may send together, of frames that ask for nothing.
    purse: Arc<Mutex<Purse>>,
}

/// What is counted as one: an IPv4 address, or the /64 that one IPv6 customer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Place {
    Four([u8; 4]),
    Six([u8; 8]),
}

/// A connection's place among the counted; given back when it is dropped.
pub struct Pass {
    gate: Arc<Gate>,
    place: Place,
    /// None: a neighbour, who is not held to it.
    purse: Option<Arc<Mutex<Purse>>>,
    observer: Option<Arc<dyn RpcObserver>>,
}

impl Gate {
    /// A gate that nobody has passed.
    pub fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, counts: Mutex::default() })
    }

    /// Lets a connection from `address` in, or says why not.
    pub fn admit(self: &Arc<Self>, address: IpAddr, standing: Standing, now: Instant) -> Result<Pass, TurnedAway> {
        let place = Place::of(address);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if self.limits.total <= counts.total {
            return Err(TurnedAway::TooMany);
        }
        let seen = counts.places.entry(place).or_insert_with(|| Seen::new(now, self.limits.idle_frames));
        let purse = match standing {
            Standing::Neighbour if self.limits.per_neighbour <= seen.open => {
                return Err(TurnedAway::TooManyFromOnePlace);
            }
            Standing::Neighbour => None,
            Standing::Stranger => {
                if self.limits.per_place <= seen.open {
                    return Err(TurnedAway::TooManyFromOnePlace);
                }
                let paid = seen.paid.max(now) + self.limits.opening_every;
                if now + self.limits.opening_every * self.limits.per_place < paid {
                    return Err(TurnedAway::TooFastFromOnePlace);
                }
                seen.paid = paid;
                Some(seen.purse.clone())
            }
        };
        seen.open += 1;
        counts.total += 1;
        if counts.tidy_at.max(PLACES_FEW) < counts.places.len() {
            counts.tidy(now);
        }
        Ok(Pass { gate: self.clone(), place, purse, observer: None })
    }
}

impl Seen {
    /// A place that nothing has come from.
    fn new(now: Instant, idle_frames: Share) -> Self {
        Self { open: 0, paid: now, purse: Arc::new(Mutex::new(Purse::new(idle_frames, now))) }
    }

    /// Whether a newcomer could be told from it.
    fn is_known(&self, now: Instant) -> bool {
        0 < self.open || now < self.paid || !self.purse.lock().unwrap_or_else(PoisonError::into_inner).is_full(now)
    }
}

impl Counts {
    /// Forgets places that a newcomer could not be told from. Done whenever their number has doubled.
    fn tidy(&mut self, now: Instant) {
        self.places.retain(|_, seen| seen.is_known(now));
        if PLACES_MAX < self.places.len() {
            self.places.retain(|_, seen| 0 < seen.open);
        }
        self.tidy_at = 2 * self.places.len();
    }
}

impl Pass {
    /// The same, which `observer` counts too.
    pub fn counted_by(mut self, observer: &Arc<dyn RpcObserver>) -> Self {
        observer.connections(1);
        self.observer = Some(observer.clone());
        self
    }

    /// What its place may send of frames that ask for nothing; none: as many as it likes.
    pub fn purse(&self) -> Option<Arc<Mutex<Purse>>> {
        self.purse.clone()
    }

    /// Counts that the connection is ended, and why.
    pub fn refuse(&self, why: TurnedAway) {
        if let Some(observer) = &self.observer {
            observer.turned_away(why.as_str());
        }
    }
}

impl std::fmt::Debug for Pass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pass").finish_non_exhaustive()
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if let Some(observer) = &self.observer {
            observer.connections(-1);
        }
        let mut counts = self.gate.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.total -= 1;
        if let Some(seen) = counts.places.get_mut(&self.place) {
            seen.open -= 1;
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

    const SECOND: Duration = Duration::from_secs(1);
    const LIMITS: Limits = Limits {
        total: 9,
        per_place: 3,
        per_neighbour: 3,
        opening_every: SECOND,
        idle_frames: Share { at_once: 10, every: SECOND },
    };

    fn gate(limits: Limits) -> (Arc<Gate>, Instant) {
        (Gate::new(limits), Instant::now())
    }

    /// SEC-2: few from one place, a limited number in all, and whoever leaves makes room.
    #[test]
    fn a_flood_from_one_place_leaves_room_for_others() {
        let (gate, mut now) = gate(Limits { total: 7, per_place: 2, opening_every: Duration::from_nanos(1), ..LIMITS });
        let mut admit = |text: &str| {
            now += SECOND;
            let address = text.parse().unwrap();
            let standing = if is_this_machine(address) { Standing::Neighbour } else { Standing::Stranger };
            gate.admit(address, standing, now)
        };
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
        let mut counts = gate.counts.lock().unwrap();
        assert_eq!(counts.total, 0);
        counts.tidy(now + SECOND);
        assert_eq!(counts.places.len(), 0);
    }

    /// SEC-2: a place may come with all that it may have at once, and after that one by one.
    #[test]
    fn a_place_may_not_come_and_go_as_fast_as_it_likes() {
        let (gate, start) = gate(LIMITS);
        let from = |address: &str, standing, at| gate.admit(address.parse().unwrap(), standing, at).map(drop);
        let stranger = |at| from("203.0.113.9", Standing::Stranger, start + at);
        for _ in 0..3 {
            stranger(Duration::ZERO).unwrap();
        }
        assert_eq!(stranger(Duration::ZERO), Err(TurnedAway::TooFastFromOnePlace));
        assert_eq!(stranger(SECOND / 2), Err(TurnedAway::TooFastFromOnePlace));
        stranger(SECOND).unwrap();
        assert_eq!(stranger(SECOND), Err(TurnedAway::TooFastFromOnePlace));
        from("203.0.113.10", Standing::Stranger, start).unwrap();
        for _ in 0..9 {
            from("127.0.0.1", Standing::Neighbour, start).unwrap();
        }
        for _ in 0..3 {
            stranger(SECOND * 60).unwrap();
        }
    }

    /// SEC-1: what a place has sent is remembered when it goes and comes again, as long as it matters; what neighbours send
    /// is not counted.
    #[test]
    fn a_place_does_not_fill_its_purse_by_going() {
        let (gate, start) = gate(LIMITS);
        let stranger = || gate.admit("203.0.113.9".parse().unwrap(), Standing::Stranger, start).unwrap();
        let purse = stranger().purse().expect("it has one");
        purse.lock().unwrap().take(10, start).unwrap();
        drop(purse);
        let again = stranger();
        gate.counts.lock().unwrap().tidy(start + 5 * SECOND);
        assert!(again.purse().unwrap().lock().unwrap().take(6, start + 5 * SECOND).is_err());
        drop(again);
        gate.counts.lock().unwrap().tidy(start + 9 * SECOND);
        assert_eq!(gate.counts.lock().unwrap().places.len(), 1);
        gate.counts.lock().unwrap().tidy(start + 10 * SECOND);
        assert_eq!(gate.counts.lock().unwrap().places.len(), 0);
        let neighbour = gate.admit("127.0.0.1".parse().unwrap(), Standing::Neighbour, start).unwrap();
        assert!(neighbour.purse().is_none());
    }

    /// A flood of addresses that come once each is forgotten.
    #[test]
    fn places_that_are_gone_are_forgotten() {
        let (gate, start) = gate(LIMITS);
        for number in 0..20_000u32 {
            let now = start + SECOND * number;
            gate.admit(Ipv4Addr::from_bits(number).into(), Standing::Stranger, now).unwrap();
        }
        assert!(gate.counts.lock().unwrap().places.len() <= PLACES_FEW + 1);
    }
}
