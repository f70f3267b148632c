//! Subscriptions of client connections to reservation events, with a bounded buffer per connection.

use std::collections::HashMap;
use std::sync::Mutex;

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio_util::sync::CancellationToken;

use crate::domain::id::{AdvertisementId, BuildIdHasher};
use crate::engine::command::ReservationEvent;

/// Events buffered per connection. A slower connection is closed; its client reconnects and reads the current state.
pub(crate) const EVENT_BUFFER_CAPACITY: usize = 64;

/// Maximum connections per advertisement: its host's, and a few stale ones of the same host.
const LISTENERS_PER_ADVERT_MAX: usize = 8;

/// Connection that receives reservation events. If its buffer overflows, `overflow` is cancelled and the connection
/// must end.
#[derive(Clone, Debug)]
pub struct ReservationListener {
    /// Event buffer.
    pub event_sender: mpsc::Sender<ReservationEvent>,
    /// Cancelled when the buffer overflows.
    pub overflow: CancellationToken,
}

impl ReservationListener {
    /// Listener, and the receiver for its connection.
    pub fn new() -> (Self, mpsc::Receiver<ReservationEvent>) {
        let (event_sender, event_receiver) = mpsc::channel(EVENT_BUFFER_CAPACITY);
        (Self { event_sender, overflow: CancellationToken::new() }, event_receiver)
    }
}

/// Subscribed connections by advertisement.
///
/// Uses a std mutex: it is held for one lookup, never across an await.
#[derive(Debug, Default)]
pub(crate) struct ReservationEventHub {
    listeners: Mutex<HashMap<AdvertisementId, Vec<ReservationListener>, BuildIdHasher>>,
}

impl ReservationEventHub {
    /// Subscribes `listener` to `id`. A repeated subscription has no effect.
    pub(crate) fn subscribe(&self, id: AdvertisementId, listener: &ReservationListener) {
        let mut listeners = self.lock();
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

    /// Sends an event to the advertisement's listeners.
    pub(crate) fn publish(&self, event: &ReservationEvent) {
        let mut listeners = self.lock();
        let Some(subscribed) = listeners.get_mut(&event.advertisement_id) else { return };
        subscribed.retain(|listener| match listener.event_sender.try_send(event.clone()) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => {
                listener.overflow.cancel();
                false
            }
            Err(TrySendError::Closed(_)) => false,
        });
        if subscribed.is_empty() {
            listeners.remove(&event.advertisement_id);
        }
    }

    /// Removes all listeners of an advertisement that no longer exists.
    pub(crate) fn remove_listeners(&self, id: AdvertisementId) {
        self.lock().remove(&id);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<AdvertisementId, Vec<ReservationListener>, BuildIdHasher>> {
        self.listeners.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
