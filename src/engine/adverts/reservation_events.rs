//! Who is listening for what happens to which advertisement, and how far behind one may be.

use std::collections::HashMap;
use std::sync::Mutex;

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio_util::sync::CancellationToken;

use crate::domain::id::{AdvertisementId, BuildIdHasher};
use crate::engine::command::ReservationEvent;

/// Events that one connection may be behind by. A slower one is closed: its client comes back and asks for everything.
pub(in crate::engine) const EVENT_BUFFER_CAPACITY: usize = 64;

/// Connections that may listen to one advertisement: its host's, and a few that its host has lost without noticing.
const LISTENERS_PER_ADVERT_MAX: usize = 8;

/// A connection that wants to hear of reservations. When its inbox overflows, `overflowed` is cancelled and the
/// connection must end.
#[derive(Clone, Debug)]
pub struct ReservationListener {
    /// Where events go.
    pub event_sender: mpsc::Sender<ReservationEvent>,
    /// Cancelled when the inbox overflowed.
    pub overflow: CancellationToken,
}

impl ReservationListener {
    /// A listener and the end that its connection reads.
    pub fn new() -> (Self, mpsc::Receiver<ReservationEvent>) {
        let (events, inbox) = mpsc::channel(EVENT_BUFFER_CAPACITY);
        (Self { event_sender: events, overflow: CancellationToken::new() }, inbox)
    }
}

/// Which connections listen to which advertisement.
///
/// A std mutex: nothing is awaited while it is held, and it is held for a look-up.
#[derive(Debug, Default)]
pub(in crate::engine) struct ReservationEventHub {
    listeners: Mutex<HashMap<AdvertisementId, Vec<ReservationListener>, BuildIdHasher>>,
}

impl ReservationEventHub {
    /// Lets `listener` hear of `id`. Listening twice is listening once.
    pub(in crate::engine) fn subscribe(&self, id: AdvertisementId, listener: &ReservationListener) {
        let mut listeners = self.lock();
        let of_this = listeners.entry(id).or_default();
        of_this.retain(|known| !known.event_sender.is_closed());
        if of_this.iter().any(|known| known.event_sender.same_channel(&listener.event_sender)) {
            return;
        }
        if of_this.len() == LISTENERS_PER_ADVERT_MAX {
            of_this.remove(0).overflow.cancel();
        }
        of_this.push(listener.clone());
    }

    /// Tells whoever listens.
    pub(in crate::engine) fn publish(&self, event: &ReservationEvent) {
        let mut listeners = self.lock();
        let Some(of_this) = listeners.get_mut(&event.advertisement_id) else { return };
        of_this.retain(|listener| match listener.event_sender.try_send(event.clone()) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => {
                listener.overflow.cancel();
                false
            }
            Err(TrySendError::Closed(_)) => false,
        });
        if of_this.is_empty() {
            listeners.remove(&event.advertisement_id);
        }
    }

    /// Forgets who listened to an advertisement that is gone.
    pub(in crate::engine) fn remove_listeners(&self, id: AdvertisementId) {
        self.lock().remove(&id);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<AdvertisementId, Vec<ReservationListener>, BuildIdHasher>> {
        self.listeners.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
