//! Events for hosts: reservations and matches of an advertisement. Subscriptions of client connections to them, with a
//! bounded buffer per connection, and the matches of each advertisement for hosts that reconnect.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio_util::sync::CancellationToken;

use crate::domain::id::{AdvertisementId, BuildIdHasher, MatchId};
use crate::domain::limit::HOSTED_MATCHES_PER_CALL_MAX;
use crate::domain::time::UnixMs;
use crate::engine::command::ReservationEvent;
use crate::engine::hosted_match::{HostedMatch, HostedMatchState};

/// Events buffered per connection. A slower connection is closed; its client reconnects and reads the current state.
pub(crate) const EVENT_BUFFER_CAPACITY: usize = 64;

/// Maximum connections per advertisement: its host's, and a few stale ones of the same host.
const LISTENERS_PER_ADVERT_MAX: usize = 8;

/// Event for the host of an advertisement.
#[derive(Clone, Debug, PartialEq)]
pub enum HostEvent {
    /// A reservation was made, confirmed or ended.
    Reservation(ReservationEvent),
    /// A match has taken seats, has changed or has ended.
    Match(Arc<HostedMatch>),
}

/// Connection that receives the events of hosts. If its buffer overflows, `overflow` is cancelled and the connection must
/// end.
#[derive(Clone, Debug)]
pub struct HostEventSender {
    /// Event buffer.
    pub event_sender: mpsc::Sender<HostEvent>,
    /// Cancelled when the buffer overflows.
    pub overflow: CancellationToken,
}

impl HostEventSender {
    /// Listener, and the receiver for its connection.
    pub fn new() -> (Self, mpsc::Receiver<HostEvent>) {
        let (event_sender, event_receiver) = mpsc::channel(EVENT_BUFFER_CAPACITY);
        (Self { event_sender, overflow: CancellationToken::new() }, event_receiver)
    }
}

/// Matches and next heartbeat of one advertisement.
#[derive(Debug, Default)]
struct HostRecord {
    matches: BTreeMap<MatchId, Arc<HostedMatch>>,
    next_beat: Option<NextBeat>,
    /// Last match of the list that a heartbeat got, if the list was not whole.
    listed_through: Option<MatchId>,
    /// The advertisement is deleted or has expired. Its matches go on.
    is_advert_removed: bool,
}

impl HostRecord {
    /// Ids of all matches in order, or of the next ones after the last list, around the end.
    fn list_next_matches(&mut self) -> Vec<MatchId> {
        let after_last = self.listed_through.map_or(Bound::Unbounded, Bound::Excluded);
        let later = self.matches.range((after_last, Bound::Unbounded)).map(|(id, _)| *id);
        let around = self.matches.keys().copied();
        let count = self.matches.len().min(HOSTED_MATCHES_PER_CALL_MAX);
        let listed: Vec<MatchId> = later.chain(around).take(count).collect();
        let is_whole = count == self.matches.len();
        self.listed_through = listed.last().copied().filter(|_| !is_whole);
        listed
    }
}

/// Heartbeat that a host was asked for.
#[derive(Clone, Copy, Debug)]
struct NextBeat {
    due_at: UnixMs,
    interval_ms: u64,
}

/// Subscribed connections and matches by advertisement.
///
/// Uses std mutexes: they are held for one lookup, never across an await. `hosts` may be locked while `listeners` is not.
#[derive(Debug, Default)]
pub(crate) struct HostEventHub {
    listeners: Mutex<HashMap<AdvertisementId, Vec<HostEventSender>, BuildIdHasher>>,
    hosts: Mutex<HashMap<AdvertisementId, HostRecord, BuildIdHasher>>,
}

impl HostEventHub {
    /// Subscribes `listener` to `id`. A repeated subscription has no effect.
    pub(crate) fn subscribe(&self, id: AdvertisementId, listener: &HostEventSender) {
        let mut listeners = self.lock_listeners();
        let subscribed = listeners.entry(id).or_default();
        subscribed.retain(|existing| !existing.event_sender.is_closed());
        if subscribed.iter().any(|existing| existing.event_sender.same_channel(&listener.event_sender)) {
            return;
        }
        if subscribed.len() == LISTENERS_PER_ADVERT_MAX {
            subscribed.remove(0).overflow.cancel();
        }
        subscribed.push(listener.clone());
    }

    /// Whether an open connection is subscribed to `id`.
    pub(crate) fn has_listener(&self, id: AdvertisementId) -> bool {
        let listeners = self.lock_listeners();
        listeners.get(&id).is_some_and(|subscribed| subscribed.iter().any(|one| !one.event_sender.is_closed()))
    }

    /// Sends a reservation event to the advertisement's listeners.
    pub(crate) fn publish_reservation(&self, event: ReservationEvent) {
        self.publish(event.advertisement_id, &HostEvent::Reservation(event));
    }

    fn publish(&self, id: AdvertisementId, event: &HostEvent) {
        let mut listeners = self.lock_listeners();
        let Some(subscribed) = listeners.get_mut(&id) else { return };
        subscribed.retain(|listener| match listener.event_sender.try_send(event.clone()) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => {
                listener.overflow.cancel();
                false
            }
            Err(TrySendError::Closed(_)) => false,
        });
        if subscribed.is_empty() {
            listeners.remove(&id);
        }
    }

    /// Records a match of an advertisement, and tells its listeners unless nothing that they see has changed.
    pub(crate) fn set_hosted_match(&self, advertisement: AdvertisementId, hosted: HostedMatch, now: UnixMs) {
        let event = HostEvent::Match(Arc::new(hosted.with_time_left_at(now)));
        let previous = {
            let mut hosts = self.lock_hosts();
            hosts.entry(advertisement).or_default().matches.insert(hosted.id, Arc::new(hosted.clone()))
        };
        if previous.is_none_or(|previous| *previous != hosted) {
            self.publish(advertisement, &event);
        }
    }

    /// Removes a match of an advertisement, and tells its listeners.
    pub(crate) fn remove_hosted_match_and_notify(
        &self,
        advertisement: AdvertisementId,
        id: MatchId,
        state: HostedMatchState,
    ) {
        let is_forgotten = {
            let mut hosts = self.lock_hosts();
            let Some(host) = hosts.get_mut(&advertisement) else { return };
            if host.matches.remove(&id).is_none() {
                return;
            }
            let is_forgotten = host.matches.is_empty() && host.is_advert_removed;
            if is_forgotten || host.matches.is_empty() && host.next_beat.is_none() {
                hosts.remove(&advertisement);
            }
            is_forgotten
        };
        self.publish(advertisement, &HostEvent::Match(Arc::new(HostedMatch::new_without_details(id, state))));
        if is_forgotten {
            self.lock_listeners().remove(&advertisement);
        }
    }

    /// Matches of an advertisement, as far as one call returns them.
    pub(crate) fn hosted_matches(&self, advertisement: AdvertisementId, now: UnixMs) -> Vec<HostedMatch> {
        let hosts = self.lock_hosts();
        let matches = hosts.get(&advertisement).into_iter().flat_map(|host| host.matches.values());
        matches.take(HOSTED_MATCHES_PER_CALL_MAX).map(|hosted| hosted.with_time_left_at(now)).collect()
    }

    /// Ids of the matches of an advertisement, as far as one call returns them.
    pub(crate) fn hosted_match_ids(&self, advertisement: AdvertisementId) -> Vec<MatchId> {
        let hosts = self.lock_hosts();
        let ids = hosts.get(&advertisement).into_iter().flat_map(|host| host.matches.keys());
        ids.take(HOSTED_MATCHES_PER_CALL_MAX).copied().collect()
    }

    /// Ids of the matches of a host that is asked for its next heartbeat `interval_ms` after `now`. A host of more matches than one
    /// call returns gets them by turns.
    pub(crate) fn schedule_beat_and_list_matches(
        &self,
        advertisement: AdvertisementId,
        interval_ms: u64,
        now: UnixMs,
    ) -> Vec<MatchId> {
        let mut hosts = self.lock_hosts();
        let host = hosts.entry(advertisement).or_default();
        host.is_advert_removed = false;
        host.next_beat = Some(NextBeat { due_at: now.plus_ms(interval_ms), interval_ms });
        host.list_next_matches()
    }

    /// Whether a heartbeat that the host was asked for is due. It is then taken: the next one is due an interval later.
    pub(crate) fn consume_expected_beat(&self, advertisement: AdvertisementId, now: UnixMs) -> bool {
        let mut hosts = self.lock_hosts();
        let Some(next_beat) = hosts.get_mut(&advertisement).and_then(|host| host.next_beat.as_mut()) else {
            return false;
        };
        let is_due = next_beat.due_at <= now;
        if is_due {
            next_beat.due_at = now.plus_ms(next_beat.interval_ms);
        }
        is_due
    }

    /// Removes all listeners of an advertisement that no longer exists, unless it hosts a match.
    pub(crate) fn remove_listeners_unless_hosting(&self, id: AdvertisementId) {
        {
            let mut hosts = self.lock_hosts();
            if let Some(host) = hosts.get_mut(&id) {
                host.is_advert_removed = true;
                if !host.matches.is_empty() {
                    return;
                }
                hosts.remove(&id);
            }
        }
        self.lock_listeners().remove(&id);
    }

    fn lock_listeners(&self) -> MutexGuard<'_, HashMap<AdvertisementId, Vec<HostEventSender>, BuildIdHasher>> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_hosts(&self) -> MutexGuard<'_, HashMap<AdvertisementId, HostRecord, BuildIdHasher>> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_of_many_matches_gets_their_ids_by_turns() {
        let hub = HostEventHub::default();
        let advertisement = AdvertisementId::from_bytes([1; 16]);
        let ids: Vec<MatchId> = (0..600_u128).map(|n| MatchId::from_bytes(n.to_be_bytes())).collect();
        for id in &ids {
            let hosted = HostedMatch::new_without_details(*id, HostedMatchState::Playing);
            hub.set_hosted_match(advertisement, hosted, UnixMs(0));
        }
        let beat = || hub.schedule_beat_and_list_matches(advertisement, 1_000, UnixMs(0));

        let lists = [beat(), beat(), beat()];
        assert_eq!(lists.iter().map(Vec::len).collect::<Vec<_>>(), [HOSTED_MATCHES_PER_CALL_MAX; 3]);
        let told: Vec<MatchId> = lists.concat();
        assert_eq!(told[..600], ids, "each match once before one is listed again");
        assert_eq!(told[600..], ids[..3 * HOSTED_MATCHES_PER_CALL_MAX - 600]);

        // Reading the ids does not take a turn.
        assert_eq!(hub.hosted_match_ids(advertisement), ids[..HOSTED_MATCHES_PER_CALL_MAX]);
        assert_eq!(beat()[0], ids[3 * HOSTED_MATCHES_PER_CALL_MAX - 600]);

        for id in &ids[..400] {
            hub.remove_hosted_match_and_notify(advertisement, *id, HostedMatchState::Ended);
        }
        let mut rest = beat();
        rest.sort_unstable();
        assert_eq!(rest, ids[400..], "all that are left");
        assert_eq!(beat(), ids[400..], "and in order from then on");
    }
}
