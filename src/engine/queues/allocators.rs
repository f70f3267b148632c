//! Allocators that are connected to this server, and the offers that they have not answered.

use std::collections::{BTreeMap, BTreeSet};

use tokio::sync::mpsc;

use crate::domain::id::{MatchId, SetId, UserKey};
use crate::domain::time::UnixMs;
use crate::engine::queues::command::{AllocatorRegistration, MatchOffer};

/// Maximum allocators connected to one server.
pub(crate) const ALLOCATORS_MAX: usize = 64;

/// Maximum offers that an allocator answers at the same time.
pub(crate) const OPEN_OFFERS_PER_ALLOCATOR_MAX: usize = 64;

/// Connection of one allocator; another one after a reconnect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct AllocatorConnectionId(u64);

/// One connected allocator.
#[derive(Debug)]
struct Allocator {
    registration: AllocatorRegistration,
    /// Offers that it has not answered, with the number of the offer and the time to answer.
    open_offers: BTreeMap<MatchId, (u32, UnixMs)>,
    /// Place in the order in which allocators had their last offer; lower is earlier.
    last_turn: u64,
    offer_sender: mpsc::Sender<MatchOffer>,
}

/// Connected allocators.
#[derive(Debug, Default)]
pub(crate) struct Allocators {
    connected: BTreeMap<AllocatorConnectionId, Allocator>,
    last_id: u64,
    last_turn: u64,
}

/// Identities of an allocator and of its game servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AllocatorAndHostIdentities {
    pub(crate) allocator: Option<UserKey>,
    pub(crate) host: Option<UserKey>,
}

impl Allocators {
    /// Adds an allocator; `None` if there are too many.
    pub(crate) fn connect(
        &mut self,
        registration: AllocatorRegistration,
    ) -> Option<(AllocatorConnectionId, mpsc::Receiver<MatchOffer>)> {
        if self.connected.len() >= ALLOCATORS_MAX {
            return None;
        }
        self.last_id += 1;
        let (id, (offers, receiver)) =
            (AllocatorConnectionId(self.last_id), mpsc::channel(OPEN_OFFERS_PER_ALLOCATOR_MAX));
        let allocator = Allocator { registration, open_offers: BTreeMap::new(), last_turn: 0, offer_sender: offers };
        self.connected.insert(id, allocator);
        Some((id, receiver))
    }

    /// Removes an allocator. Its offers can still be answered, on another connection.
    pub(crate) fn disconnect(&mut self, id: AllocatorConnectionId) {
        self.connected.remove(&id);
    }

    pub(crate) fn count(&self) -> usize {
        self.connected.len()
    }

    /// Whether an allocator could take an offer now.
    pub(crate) fn has_room(&self) -> bool {
        self.connected.values().any(Allocator::has_room)
    }

    /// Allocator for a match: of those that serve it, have room and are not in `excluded`, the one whose last offer is
    /// longest ago.
    pub(crate) fn choose(
        &self,
        set_id: SetId,
        region: Option<&str>,
        excluded: &BTreeSet<AllocatorConnectionId>,
    ) -> Option<AllocatorConnectionId> {
        let suitable = self.connected.iter().filter(|(id, allocator)| {
            !excluded.contains(id) && allocator.has_room() && allocator.serves(set_id, region)
        });
        suitable.min_by_key(|(id, allocator)| (allocator.last_turn, **id)).map(|(id, _)| *id)
    }

    /// Whether an allocator that is not in `excluded` serves the match, with room or without.
    pub(crate) fn has_untried(
        &self,
        set_id: SetId,
        region: Option<&str>,
        excluded: &BTreeSet<AllocatorConnectionId>,
    ) -> bool {
        self.connected.iter().any(|(id, allocator)| !excluded.contains(id) && allocator.serves(set_id, region))
    }

    /// Takes one of the allocator's places for an offer.
    pub(crate) fn open_offer(
        &mut self,
        id: AllocatorConnectionId,
        match_id: MatchId,
        number: u32,
        answer_by: UnixMs,
    ) -> Option<AllocatorAndHostIdentities> {
        self.last_turn += 1;
        let allocator = self.connected.get_mut(&id)?;
        allocator.last_turn = self.last_turn;
        allocator.open_offers.insert(match_id, (number, answer_by));
        let AllocatorRegistration { subject, host_subject, .. } = &allocator.registration;
        Some(AllocatorAndHostIdentities { allocator: *subject, host: *host_subject })
    }

    /// Sends an offer. Returns false if the allocator has disconnected or does not read.
    pub(crate) fn send(&self, id: AllocatorConnectionId, offer: MatchOffer) -> bool {
        self.connected.get(&id).is_some_and(|allocator| allocator.offer_sender.try_send(offer).is_ok())
    }

    /// Frees the place of an offer that was answered, or that was not made. Returns whether it was open.
    pub(crate) fn close_offer(&mut self, match_id: MatchId, number: u32) -> bool {
        let is_this = |open: Option<&(u32, UnixMs)>| open.is_some_and(|(open_number, _)| *open_number == number);
        let mut was_open = false;
        for allocator in self.connected.values_mut() {
            if is_this(allocator.open_offers.get(&match_id)) {
                allocator.open_offers.remove(&match_id);
                was_open = true;
            }
        }
        was_open
    }

    /// Frees the places of offers that were not answered in time. Returns their number.
    pub(crate) fn expire_offers(&mut self, now: UnixMs) -> u64 {
        let open_before = self.open_offer_count();
        for allocator in self.connected.values_mut() {
            allocator.open_offers.retain(|_, (_, answer_by)| now < *answer_by);
        }
        (open_before - self.open_offer_count()) as u64
    }

    fn open_offer_count(&self) -> usize {
        self.connected.values().map(|allocator| allocator.open_offers.len()).sum()
    }
}

impl Allocator {
    /// An allocator that does not read has no room either.
    fn has_room(&self) -> bool {
        self.open_offers.len() < self.registration.max_open_offers && self.offer_sender.capacity() > 0
    }

    fn serves(&self, set_id: SetId, region: Option<&str>) -> bool {
        let AllocatorRegistration { sets, regions, .. } = &self.registration;
        let serves_region = |region: &str| regions.iter().any(|own| **own == *region);
        (sets.is_empty() || sets.contains(&set_id)) && (regions.is_empty() || region.is_none_or(serves_region))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registration(max_open_offers: usize) -> AllocatorRegistration {
        AllocatorRegistration { max_open_offers, ..AllocatorRegistration::default() }
    }

    fn match_id(byte: u8) -> MatchId {
        MatchId::from_bytes([byte; 16])
    }

    const NONE: BTreeSet<AllocatorConnectionId> = BTreeSet::new();

    #[test]
    fn allocators_take_turns_within_their_room() {
        let mut allocators = Allocators::default();
        let (first, _first_offers) = allocators.connect(registration(1)).unwrap();
        let (second, _second_offers) = allocators.connect(registration(2)).unwrap();
        let mut turns = Vec::new();
        for number in 0..3 {
            let id = allocators.choose(SetId(1), None, &NONE).unwrap();
            allocators.open_offer(id, match_id(number), 1, UnixMs(10)).unwrap();
            turns.push(id);
        }
        assert_eq!(turns, [first, second, second]);
        assert!(!allocators.has_room() && allocators.choose(SetId(1), None, &NONE).is_none());
        assert!(allocators.has_untried(SetId(1), None, &NONE));
        assert!(!allocators.close_offer(match_id(0), 2), "another offer of the match");
        assert!(allocators.close_offer(match_id(0), 1));
        assert_eq!(allocators.choose(SetId(1), None, &NONE), Some(first));
        assert_eq!(allocators.choose(SetId(1), None, &BTreeSet::from([first])), None);
        assert_eq!((allocators.expire_offers(UnixMs(9)), allocators.expire_offers(UnixMs(10))), (0, 2));
        assert_eq!(allocators.choose(SetId(1), None, &BTreeSet::from([first])), Some(second));
    }

    #[test]
    fn allocators_serve_their_sets_and_regions_only() {
        let mut allocators = Allocators::default();
        let narrow =
            AllocatorRegistration { sets: BTreeSet::from([SetId(1)]), regions: vec!["eu".into()], ..registration(1) };
        let (id, _offers) = allocators.connect(narrow).unwrap();
        let chosen = |set, region| allocators.choose(SetId(set), region, &NONE);
        assert_eq!(chosen(1, Some("eu")), Some(id));
        assert_eq!(chosen(1, None), Some(id));
        assert_eq!((chosen(1, Some("us")), chosen(2, Some("eu"))), (None, None));
    }

    #[test]
    fn allocators_per_server_are_limited() {
        let mut allocators = Allocators::default();
        let connected: Vec<_> = (0..ALLOCATORS_MAX).map(|_| allocators.connect(registration(1)).unwrap()).collect();
        assert!(allocators.connect(registration(1)).is_none());
        allocators.disconnect(connected[0].0);
        assert!(allocators.connect(registration(1)).is_some());
    }
}
