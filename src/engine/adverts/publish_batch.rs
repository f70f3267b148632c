//! Publications that the store has confirmed, brought to memory many at a time: they share one hold of the lock and their
//! waits for memory, and what they replace is given back when nobody waits for it.

use std::sync::Arc;

use crate::domain::id::SetId;
use crate::domain::index::IndexEntry;
use crate::domain::time::UnixMs;
use crate::engine::adverts::advert_set::{AdvertRecord, ReplacedRecords, index_entry};
use crate::engine::adverts::update_answer::UpdateSnapshot;
use crate::engine::adverts::writer_command::{InFlightGuard, PublishAdvert, ReplySender};
use crate::engine::command::{ReservationChange, UpdateAdvertAnswer};
use crate::engine::core::Core;
use crate::engine::error::EngineError;
use crate::store::{AdvertVersion, AdvertWrite, Reservation, WriteOutcome};

/// Publications under one hold of the lock: enough that their waits for memory overlap, few enough that no search waits
/// long for them.
const PUBLICATIONS_PER_LOCK_MAX: usize = 32;

/// Publications of one set that follow one another.
#[derive(Debug, Default)]
pub(in crate::engine) struct PublishBatch {
    set_id: Option<SetId>,
    publications: Vec<ConfirmedPublication>,
}

/// One publication that the store has confirmed.
#[derive(Debug)]
struct ConfirmedPublication {
    publish: PublishAdvert,
    reply: ReplySender<UpdateAdvertAnswer>,
    in_flight: InFlightGuard,
    created: bool,
    stored_expires_at: UnixMs,
    /// The moment that the store decided by.
    decided_at: UnixMs,
}

/// What one member's change came to.
type AppliedPublication = (UpdateSnapshot, Vec<(Reservation, ReservationChange)>);

impl Core {
    /// Takes a publication into `run`, applying first what is there already if the two cannot go together. One that the
    /// store has refused is answered when all before it are.
    pub(in crate::engine) fn add_to_publish_batch(
        &self,
        run: &mut PublishBatch,
        (publish, reply, in_flight): (PublishAdvert, ReplySender<UpdateAdvertAnswer>, InFlightGuard),
        write: &AdvertWrite,
        outcome: &WriteOutcome,
        now: UnixMs,
    ) {
        let set_id = publish.advertisement.set_id;
        if run.set_id != Some(set_id) || PUBLICATIONS_PER_LOCK_MAX <= run.publications.len() {
            self.apply_publish_batch(run, now);
        }
        let refused = match (outcome, write) {
            (
                &WriteOutcome::Published { created, advertised_since: since },
                &AdvertWrite::Publish { expires_at: stored_expires, now: decided, .. },
            ) => {
                let mut publish = publish;
                if publish.advertisement.advertised_since != since {
                    Arc::make_mut(&mut publish.advertisement).advertised_since = since;
                }
                run.set_id = Some(set_id);
                run.publications.push(ConfirmedPublication {
                    publish,
                    reply,
                    in_flight,
                    created,
                    stored_expires_at: stored_expires,
                    decided_at: decided,
                });
                return;
            }
            (WriteOutcome::Tombstoned, _) => EngineError::AdvertisementDeleted,
            (other, _) => self.unexpected_outcome("put", other),
        };
        self.apply_publish_batch(run, now);
        self.send_answer(reply, in_flight, Err(refused));
    }

    /// Brings a run to memory in its order, answers, and leaves it empty.
    pub(in crate::engine) fn apply_publish_batch(&self, run: &mut PublishBatch, now: UnixMs) {
        let Some(set_id) = run.set_id.take() else { return };
        let shelf = self.advert_sets.get_or_create(set_id);
        // Only the writer, which is here, adds and removes views: they are the same when the lock is taken again.
        let rulesets = shelf.read().indexed_rulesets();
        let mut entries: Vec<IndexEntry> = Vec::with_capacity(run.publications.len() * rulesets.len());
        let mut records: Vec<AdvertRecord> = Vec::with_capacity(run.publications.len());
        for member in &run.publications {
            let record = member.to_record();
            entries.extend(rulesets.iter().map(|ruleset| index_entry(&record, ruleset)));
            records.push(record);
        }
        let mut changes: Vec<AppliedPublication> = Vec::with_capacity(run.publications.len());
        let mut replaced = ReplacedRecords::with_capacity(records.len(), entries.len());
        let mut entries = entries.into_iter();
        {
            let mut shelf = shelf.write();
            shelf.prefetch(run.publications.iter().map(|member| member.publish.advertisement.id));
            for (member, mut record) in run.publications.iter().zip(records) {
                if self.replication.is_some() {
                    // Until it is stamped with the one that the store gave it.
                    record.version =
                        shelf.get(record.advertisement.id).map_or(AdvertVersion::default(), |old| old.version);
                }
                let PublishAdvert { confirmed_reservations: confirmed, joined_reservations: settled, .. } =
                    &member.publish;
                let settle =
                    |all: &mut Vec<_>| self.confirm_and_end_reservations(all, confirmed, settled, member.decided_at);
                let (record, events) = shelf.upsert_with_entries(record, &mut entries, settle, &mut replaced);
                changes.push((UpdateSnapshot::from_record(record, now), events));
            }
        }
        drop(replaced);
        for (member, (seen, events)) in run.publications.drain(..).zip(changes) {
            let ConfirmedPublication { publish, reply, in_flight, created, .. } = member;
            self.publish_reservation_events(publish.advertisement.id, events, now);
            let answer =
                self.build_update_answer_with_ruleset(Some(&publish.ruleset), seen, Some(publish.owner_token), now);
            self.send_answer(
                reply,
                in_flight,
                Ok(UpdateAdvertAnswer { created, ignored_fields: publish.ignored_fields, ..answer }),
            );
        }
    }
}

impl ConfirmedPublication {
    /// The record as it is without its reservations.
    fn to_record(&self) -> AdvertRecord {
        AdvertRecord {
            encoded_advert: Arc::clone(&self.publish.encoded_advert),
            advertisement: Arc::clone(&self.publish.advertisement),
            expires_at: self.decided_at.plus_ms(u64::from(self.publish.ttl_ms)),
            stored_expires_at: self.stored_expires_at,
            ttl_ms: self.publish.ttl_ms,
            reservations: Vec::new(),
            version: AdvertVersion::default(),
            is_heartbeat_owner: true,
            is_unwritten: false,
        }
    }
}
