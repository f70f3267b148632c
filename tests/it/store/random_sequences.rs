//! Whatever is done to a store, in whatever order and grouping, it answers and remembers as the model does (R23).

use fireteam::domain::id::ReservationId;
use fireteam::domain::time::UnixMs;
use fireteam::store::memory::MemoryStore;
use fireteam::store::{AdvertVersion, AdvertWrite, ENDED_RESERVATION_RETENTION_MS, Store};
use proptest::prelude::*;

use crate::store::model::Model;
use crate::store::rows::{ad, ad_id, extend, put, reserve, seat_id, seats};
use crate::store::sequence_runner::{reopened, runner, runtime, shared};

/// One thing to do to a store.
#[derive(Clone, Debug)]
enum Step {
    Commit(Vec<AdvertWrite>),
    Load(u64),
    Forget(u64),
    /// Drop it as a crash would, and open it again.
    Reopen,
}

/// Few names and few moments, so that everything meets everything.
fn write() -> impl Strategy<Value = AdvertWrite> {
    let (n, r, now) = (0..3_u32, 0..5_u32, 0..60_u64);
    let ids = prop::collection::vec((0..5_u32).prop_map(seat_id), 0..3);
    let marks = (ids.clone(), ids);
    fn marked(
        write: AdvertWrite,
        (ids_confirmed, ids_settled): (Vec<ReservationId>, Vec<ReservationId>),
    ) -> AdvertWrite {
        match write {
            AdvertWrite::Publish { advertisement, expires_at: expires, now, .. } => AdvertWrite::Publish {
                advertisement,
                expires_at: expires,
                confirmed_reservations: ids_confirmed,
                joined_reservations: ids_settled,
                now,
            },
            AdvertWrite::ExtendTtl { advertisement_id: id, expires_at: expires, now, .. } => AdvertWrite::ExtendTtl {
                advertisement_id: id,
                expires_at: expires,
                confirmed_reservations: ids_confirmed,
                joined_reservations: ids_settled,
                now,
            },
            other => other,
        }
    }
    prop_oneof![
        5 => (n.clone(), 0..5_u16, now.clone(), 0..60_u64, marks.clone(), "[a-c]").prop_map(
            |(n, open, now, more, marks, word)| marked(put(ad(n, open, now, &word), now + more, now), marks)
        ),
        3 => (n.clone(), now.clone(), 0..60_u64, marks)
            .prop_map(|(n, now, more, marks)| marked(extend(n, now + more, now), marks)),
        1 => (n.clone(), 0..60_u64).prop_map(|(n, until)| AdvertWrite::Delete { advertisement_id: ad_id(n), tombstone_until: UnixMs(until) }),
        2 => (n.clone(), now.clone()).prop_map(|(n, now)| AdvertWrite::Expire { advertisement_id: ad_id(n), now: UnixMs(now), expected_version: None }),
        6 => (r.clone(), n.clone(), 1..4_u16, now, 0..60_u64)
            .prop_map(|(r, n, count, now, more)| reserve(seats(r, n, count, now + more), now)),
        2 => (r, n, 0..60_u64).prop_map(|(r, n, at)| {
            AdvertWrite::EndReservation { reservation_id: seat_id(r), advertisement_id: ad_id(n), purge_at: UnixMs(at) }
        }),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let moment = prop_oneof![4 => 0..60_u64, 1 => Just(ENDED_RESERVATION_RETENTION_MS + 70)];
    let step = prop_oneof![
        10 => prop::collection::vec(write(), 1..12).prop_map(Step::Commit),
        1 => moment.clone().prop_map(Step::Load),
        1 => moment.prop_map(Step::Forget),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..20)
}

/// Takes every step on the store and on the model, and ends by loading both.
async fn check<S: Store>(steps: Vec<Step>, mut open: impl AsyncFnMut(Option<S>) -> S) {
    let mut store = open(None).await;
    let mut model = Model::default();
    for step in steps.into_iter().chain([Step::Load(0)]) {
        match step {
            Step::Commit(batch) => assert_eq!(store.commit(&batch).await.unwrap().outcomes, model.commit(&batch)),
            Step::Load(now) => {
                let mut stored = store.load_advertisements(UnixMs(now)).await.unwrap();
                // What only stores of several servers have.
                stored
                    .iter_mut()
                    .for_each(|it| (it.version, it.is_heartbeat_owner) = (AdvertVersion::default(), false));
                assert_eq!(stored, model.load(UnixMs(now)));
            }
            Step::Forget(now) => {
                store.purge(UnixMs(now)).await.unwrap();
                model.forget(UnixMs(now));
            }
            Step::Reopen => store = open(Some(store)).await,
        }
    }
}

/// R23.
#[test]
fn memory_does_what_the_model_does() {
    let runtime = runtime();
    let outcome = runner(2_000).run(&steps(), |steps| {
        runtime.block_on(check(steps, async |before: Option<MemoryStore>| before.unwrap_or_default()));
        Ok(())
    });
    outcome.unwrap();
}

/// R23, and R2 without the kill: what was acknowledged is there after any reopening.
#[test]
fn sqlite_does_what_the_model_does() {
    let runtime = runtime();
    let outcome = runner(60).run(&steps(), |steps| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        runtime.block_on(check(steps, async |before| reopened(&path, before).await));
        Ok(())
    });
    outcome.unwrap();
}

/// R23. Each reopening is another server.
#[test]
fn postgres_does_what_the_model_does() {
    let Some(shared) = shared("R23 on Postgres") else { return };
    let outcome = runner(60).run(&steps(), |steps| {
        shared.runtime.block_on(async {
            let mut number = 0;
            let open = async |before| {
                number += 1;
                shared.server(number, before).await
            };
            check(steps, open).await;
            shared.empty("advertisement, reservation, advertisement_change").await;
        });
        Ok(())
    });
    outcome.unwrap();
}
