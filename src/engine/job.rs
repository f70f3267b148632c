//! What waits in the writer's inbox: one change each, with whoever waits for its answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;

use crate::domain::advertisement::{Advertisement, Kind};
use crate::domain::facts::Facts;
use crate::domain::id::{AdvertisementId, IdState, ReservationId, SetId, SiloId, UserKey};
use crate::domain::ruleset::Ruleset;
use crate::domain::session::Session;
use crate::domain::time::UnixMs;
use crate::engine::command::{ReserveAnswer, UpdateAnswer};
use crate::engine::fault::Fault;
use crate::engine::receipt::Proof;
use crate::engine::shelf::Record;
use crate::store::News;

/// Where an answer goes. Nobody may be waiting any more; the change happens all the same.
pub(super) type Reply<T> = oneshot::Sender<Result<T, Fault>>;

/// Publish or replace.
#[derive(Debug)]
pub(super) struct Publish {
    pub(super) advertisement: Arc<Advertisement>,
    /// The part of it that answers to searches are made of.
    pub(super) encoded: Arc<[u8]>,
    /// The ruleset that it is published under.
    pub(super) ruleset: Arc<Ruleset>,
    /// Made while nobody waited; not what the host gets should the store know another `since`.
    pub(super) proof: Proof,
    pub(super) time_to_live_ms: u32,
    pub(super) confirmed: Vec<ReservationId>,
    pub(super) settled: Vec<ReservationId>,
    pub(super) ignored: Vec<String>,
}

/// Keep alive when the store must hear of it.
#[derive(Debug)]
pub(super) struct Extend {
    pub(super) id: AdvertisementId,
    /// What the host has shown, if it may have it again.
    pub(super) proof: Option<Proof>,
    pub(super) set_id: SetId,
    /// None: as long as before.
    pub(super) time_to_live_ms: Option<u32>,
    pub(super) confirmed: Vec<ReservationId>,
    pub(super) settled: Vec<ReservationId>,
}

/// Take seats for a party that has searched, or for a match.
#[derive(Debug)]
pub(super) struct Take {
    pub(super) id: ReservationId,
    pub(super) advertisement_id: AdvertisementId,
    /// What it must be. A match's seats on a game server are judged by nothing else.
    pub(super) kind: Kind,
    pub(super) set_id: SetId,
    pub(super) silo: SiloId,
    pub(super) ruleset: Arc<Ruleset>,
    pub(super) session: Session,
    pub(super) facts: Facts,
    pub(super) users: Vec<UserKey>,
    pub(super) subject: Option<UserKey>,
    pub(super) searching_since: UnixMs,
    pub(super) hold_ms: u32,
    pub(super) payload: [u8; 16],
}

/// One change.
#[derive(Debug)]
pub(super) enum Job {
    /// Publish or replace.
    Publish(Box<Publish>, Reply<UpdateAnswer>, InFlight),
    /// Keep alive.
    Extend(Box<Extend>, Reply<UpdateAnswer>, InFlight),
    /// Withdraw.
    Delete(AdvertisementId, SetId, Reply<()>, InFlight),
    /// Take seats.
    Take(Box<Take>, Reply<ReserveAnswer>, InFlight),
    /// Give seats back.
    Release(ReservationId, AdvertisementId, SetId, Reply<()>, InFlight),
    /// A hold's deadline has passed, by the sweep.
    Lapse(ReservationId, AdvertisementId, SetId),
    /// An advertisement's time is over, by the sweep.
    /// The record is what memory has let go of, to be put back should the store not follow.
    Expire(AdvertisementId, SetId, Option<Box<Record>>),
    /// What other servers have changed, read after that batch.
    News(Box<News>, u64),
    /// From now on these rulesets live; answered when every set has their views.
    Rules(Vec<Arc<Ruleset>>, oneshot::Sender<()>),
    /// Answered when everything before it is in memory.
    Mark(oneshot::Sender<()>),
}

impl Job {
    /// Which advertisement it is about, where it is about one.
    pub(super) fn about(&self) -> Option<(AdvertisementId, SetId)> {
        match self {
            Job::Publish(publish, ..) => Some((publish.advertisement.id, publish.advertisement.set_id)),
            Job::Extend(extend, ..) => Some((extend.id, extend.set_id)),
            Job::Take(take, ..) => Some((take.advertisement_id, take.set_id)),
            Job::Delete(id, set_id, ..)
            | Job::Release(_, id, set_id, ..)
            | Job::Lapse(_, id, set_id)
            | Job::Expire(id, set_id, _) => Some((*id, *set_id)),
            Job::News(..) | Job::Rules(..) | Job::Mark(_) => None,
        }
    }
}

/// How many changes of each advertisement are on their way, so that a heartbeat never overtakes an earlier change.
#[derive(Clone, Debug, Default)]
pub(super) struct Flights(Arc<Mutex<HashMap<AdvertisementId, u32, IdState>>>);

/// One change on its way; over when dropped.
#[derive(Debug)]
pub(super) struct InFlight {
    flights: Flights,
    id: AdvertisementId,
}

impl Flights {
    /// Notes a change of `id` until the result is dropped.
    pub(super) fn begin(&self, id: AdvertisementId) -> InFlight {
        *self.lock().entry(id).or_insert(0) += 1;
        InFlight { flights: self.clone(), id }
    }

    /// Whether any change of `id` is on its way.
    pub(super) fn any(&self, id: AdvertisementId) -> bool {
        self.lock().contains_key(&id)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<AdvertisementId, u32, IdState>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut flights = self.flights.lock();
        if let Some(count) = flights.get_mut(&self.id) {
            *count -= 1;
            if *count == 0 {
                flights.remove(&self.id);
            }
        }
    }
}
