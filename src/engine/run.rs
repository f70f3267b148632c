//! Publications that the store has confirmed, brought to memory many at a time: they share one hold of the lock and their
//! waits for memory, and what they replace is given back when nobody waits for it.

use std::sync::Arc;

use crate::domain::id::SetId;
use crate::domain::index::Entry;
use crate::domain::time::UnixMs;
use crate::engine::command::{ReservationChange, UpdateAnswer};
use crate::engine::core::Core;
use crate::engine::fault::Fault;
use crate::engine::job::{InFlight, Publish, Reply};
use crate::engine::receipt::Seen;
use crate::engine::shelf::{Record, Replaced, entry};
use crate::store::{Outcome, Reservation, Version, Write};

/// Publications under one hold of the lock: enough that their waits for memory overlap, few enough that no search waits
/// long for them.
const RUN_MAX: usize = 32;

/// Publications of one set that follow one another.
#[derive(Debug, Default)]
pub(super) struct Run {
    set_id: Option<SetId>,
    members: Vec<Member>,
}

/// One publication that the store has confirmed.
#[derive(Debug)]
struct Member {
    publish: Publish,
    reply: Reply<UpdateAnswer>,
    in_flight: InFlight,
    created: bool,
    stored_expires: UnixMs,
    /// The moment that the store decided by.
    decided: UnixMs,
}

/// What one member's change came to.
type Changed = (Seen, Vec<(Reservation, ReservationChange)>);

impl Core {
    /// Takes a publication into `run`, applying first what is there already if the two cannot go together. One that the
    /// store has refused is answered when all before it are.
    pub(super) fn gather(
        &self,
        run: &mut Run,
        (publish, reply, in_flight): (Publish, Reply<UpdateAnswer>, InFlight),
        write: &Write,
        outcome: &Outcome,
        now: UnixMs,
    ) {
        let set_id = publish.advertisement.set_id;
        if run.set_id != Some(set_id) || RUN_MAX <= run.members.len() {
            self.apply_run(run, now);
        }
        let refused = match (outcome, write) {
            (&Outcome::Put { created, since }, &Write::Put { expires: stored_expires, now: decided, .. }) => {
                let mut publish = publish;
                if publish.advertisement.since != since {
                    Arc::make_mut(&mut publish.advertisement).since = since;
                }
                run.set_id = Some(set_id);
                run.members.push(Member { publish, reply, in_flight, created, stored_expires, decided });
                return;
            }
            (Outcome::Tombstoned, _) => Fault::Deleted,
            (other, _) => self.broken("put", other),
        };
        self.apply_run(run, now);
        self.answer(reply, in_flight, Err(refused));
    }

    /// Brings a run to memory in its order, answers, and leaves it empty.
    pub(super) fn apply_run(&self, run: &mut Run, now: UnixMs) {
        let Some(set_id) = run.set_id.take() else { return };
        let shelf = self.directory.shelf_or_new(set_id);
        // Only the writer, which is here, adds and removes views: they are the same when the lock is taken again.
        let rulesets = shelf.read().rulesets();
        let mut entries: Vec<Entry> = Vec::with_capacity(run.members.len() * rulesets.len());
        let mut records: Vec<Record> = Vec::with_capacity(run.members.len());
        for member in &run.members {
            let record = member.record();
            entries.extend(rulesets.iter().map(|ruleset| entry(&record, ruleset)));
            records.push(record);
        }
        let mut changes: Vec<Changed> = Vec::with_capacity(run.members.len());
        let mut replaced = Replaced::with_room_for(records.len(), entries.len());
        let mut entries = entries.into_iter();
        {
            let mut shelf = shelf.write();
            shelf.warm(run.members.iter().map(|member| member.publish.advertisement.id));
            for (member, mut record) in run.members.iter().zip(records) {
                if self.sharing.is_some() {
                    // Until it is stamped with the one that the store gave it.
                    record.version = shelf.get(record.advertisement.id).map_or(Version::default(), |old| old.version);
                }
                let Publish { confirmed, settled, .. } = &member.publish;
                let settle = |all: &mut Vec<_>| self.settle(all, confirmed, settled, member.decided);
                let (record, events) = shelf.publish(record, &mut entries, settle, &mut replaced);
                changes.push((Seen::of(record, now), events));
            }
        }
        drop(replaced);
        for (member, (seen, events)) in run.members.drain(..).zip(changes) {
            let Member { publish, reply, in_flight, created, .. } = member;
            self.tell(publish.advertisement.id, events, now);
            let answer = self.update_answer_by(Some(&publish.ruleset), seen, Some(publish.proof), now);
            self.answer(reply, in_flight, Ok(UpdateAnswer { created, ignored: publish.ignored, ..answer }));
        }
    }
}

impl Member {
    /// The record as it is without its reservations.
    fn record(&self) -> Record {
        Record {
            encoded: Arc::clone(&self.publish.encoded),
            advertisement: Arc::clone(&self.publish.advertisement),
            expires: self.decided.after(u64::from(self.publish.time_to_live_ms)),
            stored_expires: self.stored_expires,
            time_to_live_ms: self.publish.time_to_live_ms,
            reservations: Vec::new(),
            version: Version::default(),
            held: true,
            pending: false,
        }
    }
}
