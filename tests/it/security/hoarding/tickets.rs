//! Tickets of one user over all queues.

use fireteam::auth::identity::Role;
use fireteam_client::{Code, pb};

use crate::security::hoarding::{Site, assert_refused, enter};

/// A user waits in four queues. A client learns so of its own user only; game servers enter users without the limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn user_waits_in_four_queues() {
    let site = Site::on_sqlite().await;
    let (ada, bob) = (site.player("ada").await, site.player("bob").await);
    let mut tickets = Vec::new();
    for number in 0..4 {
        tickets.push(ada.enter_queue(enter(number, &["ada"])).await.expect("a ticket"));
    }
    let error = assert_refused(ada.enter_queue(enter(4, &["ada"])).await, Code::ResourceExhausted, "TOO_MANY_TICKETS");
    let metadata = &error.as_server_error().expect("details").reason_metadata;
    let value = |key: &str| metadata.get(key).cloned().unwrap_or_default();
    assert_eq!([value("player"), value("limit"), value("setting")], ["0", "4", "max_tickets_per_user"]);
    let other = bob.enter_queue(enter(4, &["bob", "ada"])).await.expect_err("ada has too many");
    assert_ne!(other.as_server_error().and_then(|it| it.reason.clone()).as_deref(), Some("TOO_MANY_TICKETS"));
    assert_eq!(ada.enter_queue(enter(3, &["ada"])).await.expect("a repeated enter").id(), tickets[3].id());

    let backend = site.client_of(&site.servers[0], Role::GameServer, "backend").await;
    backend.enter_queue(enter(4, &["ada"])).await.expect("servers enter for others");
    let again = || pb::QueueEnterRequest { idempotency_key: "once more".into(), ..enter(0, &["ada"]) };
    assert!(tickets[0].leave().await.expect("left"));
    assert_refused(ada.enter_queue(again()).await, Code::ResourceExhausted, "TOO_MANY_TICKETS");
    assert!(tickets[1].leave().await.expect("left"));
    ada.enter_queue(again()).await.expect("there is room");
}
