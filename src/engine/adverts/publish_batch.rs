//! Batched application of committed publications: they share one lock and overlap their cache misses. Replaced records
//! are freed after the lock is released.

use std::sync::Arc;

use thin_vec::ThinVec;

use crate::domain::id::SetId;
use crate::domain::index::IndexEntry;
use crate::domain::time::UnixMs;
use crate::engine::adverts::advert_set::{AdvertRecord, ReplacedRecordsToFree, build_index_entry};
use crate::engine::adverts::advert_state::AdvertState;
use crate::engine::adverts::in_flight_changes::{InFlightGuard, end_change_and_answer};
use crate::engine::adverts::update_answer::UpdateSnapshot;
use crate::engine::adverts::writer_command::PublishAdvert;
use crate::engine::command::{ReservationChange, UpdateAdvertAnswer};
use crate::engine::error::EngineError;
use crate::engine::writer_inbox::ReplySender;
use crate::store::{AdvertVersion, AdvertWrite, Reservation, WriteOutcome};

/// Publications per lock: enough to overlap cache misses, few enough not to delay searches.
const PUBLICATIONS_PER_LOCK_MAX: usize = 32;

/// Consecutive publications of one set.
#[derive(Debug, Default)]
pub(crate) struct PublishBatch {
    set_id: Option<SetId>,
    publications: Vec<ConfirmedPublication>,
}

/// Publication that the store has committed.
#[derive(Debug)]
struct ConfirmedPublication {
    publish: PublishAdvert,
    reply_sender: ReplySender<UpdateAdvertAnswer>,
    in_flight: InFlightGuard,
    is_new_advert: bool,
    stored_expires_at: UnixMs,
    /// Time at which the write was prepared.
    decided_at: UnixMs,
}

/// Snapshot of the applied record, and its reservation events.
type SnapshotWithEvents = (UpdateSnapshot, Vec<(Reservation, ReservationChange)>);

impl PublishBatch {
    /// Adds a publication; applies the batch first if it is full or of another set.
    ///
    /// A rejected publication is answered after all before it.
    pub(crate) fn add(
        &mut self,
        state: &AdvertState,
        (publish, reply, in_flight): (PublishAdvert, ReplySender<UpdateAdvertAnswer>, InFlightGuard),
        write: &AdvertWrite,
        outcome: &WriteOutcome,
        now: UnixMs,
    ) {
        let set_id = publish.advertisement.set_id;
        if self.set_id != Some(set_id) || self.publications.len() >= PUBLICATIONS_PER_LOCK_MAX {
            self.apply(state, now);
        }
        let error = match (outcome, write) {
            (
                &WriteOutcome::Published { created, advertised_since, .. },
                &AdvertWrite::Publish { expires_at: stored_expires_at, now: decided_at, .. },
            ) => {
                let mut publish = publish;
                if publish.advertisement.advertised_since != advertised_since {
                    Arc::make_mut(&mut publish.advertisement).advertised_since = advertised_since;
                }
                self.set_id = Some(set_id);
                self.publications.push(ConfirmedPublication {
                    publish,
                    reply_sender: reply,
                    in_flight,
                    is_new_advert: created,
                    stored_expires_at,
                    decided_at,
                });
                return;
            }
            (WriteOutcome::Tombstoned, _) => EngineError::AdvertisementDeleted,
            (WriteOutcome::IdempotencyKeyReused, _) => EngineError::IdempotencyKeyReused,
            (WriteOutcome::TooManyAdvertisements, _) => {
                EngineError::TooManyAdvertisements { limit: state.common.settings.max_advertisements_per_server }
            }
            (other, _) => unexpected_outcome("publish", other),
        };
        self.apply(state, now);
        end_change_and_answer(reply, in_flight, Err(error));
    }

    /// Applies the batch to memory in order, answers, and empties it.
    pub(crate) fn apply(&mut self, state: &AdvertState, now: UnixMs) {
        let Some(set_id) = self.set_id.take() else { return };
        let set = state.advert_sets.get_or_create(set_id);
        // Only the writer changes indexes, and it runs here: they cannot change between the two locks.
        let rulesets = set.lock_for_read().indexed_rulesets();
        let mut entries: Vec<IndexEntry> = Vec::with_capacity(self.publications.len() * rulesets.len());
        let mut records: Vec<AdvertRecord> = Vec::with_capacity(self.publications.len());
        for publication in &self.publications {
            let record = publication.to_record();
            entries
                .extend(rulesets.iter().map(|ruleset| build_index_entry(&record, ruleset, &state.common.party_values)));
            records.push(record);
        }
        let mut applied: Vec<SnapshotWithEvents> = Vec::with_capacity(self.publications.len());
        let mut replaced = ReplacedRecordsToFree::with_capacity(records.len(), entries.len());
        let mut entries = entries.into_iter();
        let fills_sessions = state.common.fills_open_sessions(set_id);
        {
            let mut set = set.lock_for_write();
            set.prefetch(self.publications.iter().map(|publication| publication.publish.advertisement.id));
            for (publication, mut record) in self.publications.iter().zip(records) {
                if state.replication.is_some() {
                    // Keep the old version until the commit's version is recorded.
                    record.version =
                        set.get(record.advertisement.id).map_or(AdvertVersion::default(), |existing| existing.version);
                }
                let PublishAdvert { confirmed_reservations, joined_reservations, .. } = &publication.publish;
                let update_reservations = |reservations: &mut ThinVec<_>| {
                    state.confirm_and_end_reservations(
                        reservations,
                        confirmed_reservations,
                        joined_reservations,
                        publication.decided_at,
                    )
                };
                let (record, events) =
                    set.upsert_with_entries(record, &mut entries, update_reservations, &mut replaced);
                if fills_sessions {
                    state.wake_backfill_if_open(record);
                }
                applied.push((UpdateSnapshot::from_record(record, now), events));
            }
        }
        drop(replaced);
        for (publication, (snapshot, events)) in self.publications.drain(..).zip(applied) {
            let ConfirmedPublication { publish, reply_sender: reply, in_flight, is_new_advert: created, .. } =
                publication;
            state.publish_reservation_events(publish.advertisement.id, events, now);
            let answer = snapshot.into_answer_with_ruleset(
                &state.common,
                &state.host_events,
                Some(&publish.ruleset),
                Some(publish.token_to_return),
                now,
            );
            end_change_and_answer(
                reply,
                in_flight,
                Ok(UpdateAdvertAnswer { is_new_advert: created, ignored_fields: publish.ignored_fields, ..answer }),
            );
        }
    }
}

impl ConfirmedPublication {
    /// Record without its reservations.
    fn to_record(&self) -> AdvertRecord {
        AdvertRecord {
            advertisement: Arc::clone(&self.publish.advertisement),
            expires_at: self.decided_at.plus_ms(u64::from(self.publish.ttl_ms)),
            stored_expires_at: self.stored_expires_at,
            ttl_ms: self.publish.ttl_ms,
            reservations: ThinVec::new(),
            version: AdvertVersion::default(),
            is_heartbeat_owner: true,
            is_unwritten: false,
        }
    }
}

/// Logs an outcome that does not belong to its write, which is a bug, and returns the error for the client.
pub(crate) fn unexpected_outcome(operation: &'static str, outcome: &WriteOutcome) -> EngineError {
    tracing::error!(operation, ?outcome, "invalid store outcome received");
    EngineError::Internal
}
