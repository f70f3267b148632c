//! Expiry during a store outage: the expired advertisement is deleted from the store when it is available again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fireteam::clock::Clock as _;
use fireteam::domain::id::SetId;
use fireteam::domain::session::Session;
use fireteam::engine::command::{Caller, PublishOrHeartbeatAdvertCommand};
use fireteam::rules::bundled;
use fireteam::store::Store as _;

use crate::support::faulty_engine::start_engine;
use crate::support::faulty_store::FaultyStore;
use crate::support::test_server::TestClock;

/// R10: an expired advertisement is deleted from the store, also if the store was unavailable when it expired.
#[tokio::test]
async fn expiry_during_a_store_outage_is_written_later() {
    let clock = Arc::new(TestClock::new());
    let store = Arc::new(FaultyStore::default());
    let engine = start_engine(&store, bundled::load_bundled().unwrap(), &clock).await;
    let session = Session { party_sizes: [1].into(), offered_seats: 3, ..Session::default() };
    let update = PublishOrHeartbeatAdvertCommand {
        set_id: Some(SetId(1)),
        session: Some(session),
        ..PublishOrHeartbeatAdvertCommand::default()
    };
    engine.update_advertisement(&Caller::default(), update).unwrap().wait().await.unwrap();

    clock.advance_ms(90_000);
    store.adverts_unavailable.store(true, Ordering::SeqCst);
    engine.sweep_expired_adverts_and_wait().await;
    assert_eq!(store.load_advertisements(clock.now()).await.unwrap().len(), 1, "the store was unavailable");
    store.adverts_unavailable.store(false, Ordering::SeqCst);
    engine.sweep_expired_adverts_and_wait().await;
    assert!(store.load_advertisements(clock.now()).await.unwrap().is_empty(), "deleted at the next sweep");
}
