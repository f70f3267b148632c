//! What waits in the writer's inbox: one change each, with whoever waits for its answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;

use crate::domain::advertisement::{Advertisement, AdvertisementKind};
use crate::domain::attribute_values::AttributeValues;
use crate::domain::id::{AdvertisementId, BuildIdHasher, ReservationId, SetId, SiloId, UserKey};
use crate::domain::ruleset::Ruleset;
use crate::domain::session::Session;
use crate::domain::time::UnixMs;
use crate::engine::adverts::advert_set::AdvertRecord;
use crate::engine::adverts::update_answer::SignedToken;
use crate::engine::command::{ReserveAnswer, UpdateAdvertAnswer};
use crate::engine::error::EngineError;
use crate::store::FeedBatch;

/// Where an answer goes. Nobody may be waiting any more; the change happens all the same.
pub(in crate::engine) type ReplySender<T> = oneshot::Sender<Result<T, EngineError>>;

/// Publish or replace.
#[derive(Debug)]
pub(in crate::engine) struct PublishAdvert {
    pub(in crate::engine) advertisement: Arc<Advertisement>,
    /// The part of it that answers to searches are made of.
    pub(in crate::engine) encoded_advert: Arc<[u8]>,
    /// The ruleset that it is published under.
    pub(in crate::engine) ruleset: Arc<Ruleset>,
    /// Made while nobody waited; not what the host gets should the store know another `since`.
    pub(in crate::engine) owner_token: SignedToken,
    pub(in crate::engine) ttl_ms: u32,
    pub(in crate::engine) confirmed_reservations: Vec<ReservationId>,
    pub(in crate::engine) joined_reservations: Vec<ReservationId>,
    pub(in crate::engine) ignored_fields: Vec<String>,
}

/// Keep alive when the store must hear of it.
#[derive(Debug)]
pub(in crate::engine) struct ExtendAdvertTtl {
    pub(in crate::engine) id: AdvertisementId,
    /// What the host has shown, if it may have it again.
    pub(in crate::engine) owner_token: Option<SignedToken>,
    pub(in crate::engine) set_id: SetId,
    /// None: as long as before.
    pub(in crate::engine) ttl_ms: Option<u32>,
    pub(in crate::engine) confirmed_reservations: Vec<ReservationId>,
    pub(in crate::engine) joined_reservations: Vec<ReservationId>,
}

/// Take seats for a party that has searched, or for a match.
#[derive(Debug)]
pub(in crate::engine) struct ReserveSeats {
    pub(in crate::engine) reservation_id: ReservationId,
    pub(in crate::engine) advertisement_id: AdvertisementId,
    /// What it must be. A match's seats on a game server are judged by nothing else.
    pub(in crate::engine) required_kind: AdvertisementKind,
    pub(in crate::engine) set_id: SetId,
    pub(in crate::engine) silo: SiloId,
    pub(in crate::engine) ruleset: Arc<Ruleset>,
    pub(in crate::engine) session: Session,
    pub(in crate::engine) attribute_values: AttributeValues,
    pub(in crate::engine) users: Vec<UserKey>,
    pub(in crate::engine) subject: Option<UserKey>,
    pub(in crate::engine) searching_since: UnixMs,
    pub(in crate::engine) hold_ms: u32,
    pub(in crate::engine) request_digest: [u8; 16],
}

/// One change.
#[derive(Debug)]
pub(in crate::engine) enum AdvertWriterCommand {
    /// Publish or replace.
    Publish(Box<PublishAdvert>, ReplySender<UpdateAdvertAnswer>, InFlightGuard),
    /// Keep alive.
    ExtendTtl(Box<ExtendAdvertTtl>, ReplySender<UpdateAdvertAnswer>, InFlightGuard),
    /// Withdraw.
    Delete(AdvertisementId, SetId, ReplySender<()>, InFlightGuard),
    /// Take seats.
    ReserveSeats(Box<ReserveSeats>, ReplySender<ReserveAnswer>, InFlightGuard),
    /// Give seats back.
    ReleaseReservation(ReservationId, AdvertisementId, SetId, ReplySender<()>, InFlightGuard),
    /// A hold's deadline has passed, by the sweep.
    ExpireHold(ReservationId, AdvertisementId, SetId),
    /// An advertisement's time is over, by the sweep.
    /// The record is what memory has let go of, to be put back should the store not follow.
    ExpireAdvert(AdvertisementId, SetId, Option<Box<AdvertRecord>>),
    /// What other servers have changed, read after that batch.
    ApplyFeed(Box<FeedBatch>, u64),
    /// From now on these rulesets live; answered when every set has their views.
    SetRulesets(Vec<Arc<Ruleset>>, oneshot::Sender<()>),
    /// Answered when everything before it is in memory.
    Flush(oneshot::Sender<()>),
}

impl AdvertWriterCommand {
    /// Which advertisement it is about, where it is about one.
    pub(in crate::engine) fn advert_and_set_id(&self) -> Option<(AdvertisementId, SetId)> {
        match self {
            AdvertWriterCommand::Publish(publish, ..) => Some((publish.advertisement.id, publish.advertisement.set_id)),
            AdvertWriterCommand::ExtendTtl(extend, ..) => Some((extend.id, extend.set_id)),
            AdvertWriterCommand::ReserveSeats(take, ..) => Some((take.advertisement_id, take.set_id)),
            AdvertWriterCommand::Delete(id, set_id, ..)
            | AdvertWriterCommand::ReleaseReservation(_, id, set_id, ..)
            | AdvertWriterCommand::ExpireHold(_, id, set_id)
            | AdvertWriterCommand::ExpireAdvert(id, set_id, _) => Some((*id, *set_id)),
            AdvertWriterCommand::ApplyFeed(..)
            | AdvertWriterCommand::SetRulesets(..)
            | AdvertWriterCommand::Flush(_) => None,
        }
    }
}

/// How many changes of each advertisement are on their way, so that a heartbeat never overtakes an earlier change.
#[derive(Clone, Debug, Default)]
pub(in crate::engine) struct InFlightChanges(Arc<Mutex<HashMap<AdvertisementId, u32, BuildIdHasher>>>);

/// One change on its way; over when dropped.
#[derive(Debug)]
pub(in crate::engine) struct InFlightGuard {
    changes: InFlightChanges,
    advertisement_id: AdvertisementId,
}

impl InFlightChanges {
    /// Notes a change of `id` until the result is dropped.
    pub(in crate::engine) fn begin(&self, id: AdvertisementId) -> InFlightGuard {
        *self.lock().entry(id).or_insert(0) += 1;
        InFlightGuard { changes: self.clone(), advertisement_id: id }
    }

    /// Whether any change of `id` is on its way.
    pub(in crate::engine) fn contains(&self, id: AdvertisementId) -> bool {
        self.lock().contains_key(&id)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<AdvertisementId, u32, BuildIdHasher>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        let mut flights = self.changes.lock();
        if let Some(count) = flights.get_mut(&self.advertisement_id) {
            *count -= 1;
            if *count == 0 {
                flights.remove(&self.advertisement_id);
            }
        }
    }
}
