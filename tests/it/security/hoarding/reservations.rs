//! Reservations of one owner: a client holds the seats of one session, and a party holds its seats once.

use std::collections::BTreeSet;

use fireteam_client::{Code, HostEvent, pb};

use crate::security::hoarding::{OPEN_SET, Site, advertise, assert_refused, heartbeat, reserve};
use crate::support::queue_server::wait_until;

/// Failure 5: one client held the seats of 40 of 40 sessions, and renewed them for as long as it liked.
async fn hold_seats_of_forty_sessions(site: Site) {
    const SESSIONS: usize = 40;
    let mut sessions = Vec::new();
    for number in 0..SESSIONS {
        let (user, client) = (format!("host {number}"), site.player(&format!("host {number}")).await);
        let published = client.update_advertisement(advertise(OPEN_SET, &user, &user, 1, "itself")).await;
        sessions.push((client, published.expect("published")));
    }
    let ids: BTreeSet<String> = sessions.iter().map(|(_, session)| session.advertisement_id.clone()).collect();
    wait_until("the last server has all sessions", async || site.found_by("watcher", OPEN_SET).await == ids).await;
    let hoarder = site.player("hoarder").await;
    let mut last = None;
    for round in 0..2 {
        for (_, session) in &sessions {
            let key = format!("round {round} at {}", session.advertisement_id);
            let held = reserve(&hoarder, OPEN_SET, &session.advertisement_id, &["hoarder"], &key).await;
            last = held.expect("the newer reservation takes the older one's place").reservation;
        }
    }
    let last = last.expect("a reservation").reservation_id;
    let mut held = Vec::new();
    for (client, session) in &sessions {
        held.extend(heartbeat(client, session).await.expect("a heartbeat").reservations);
    }
    assert_eq!(held.iter().map(|it| &it.reservation_id).collect::<Vec<_>>(), [&last], "of {SESSIONS} sessions");
    let mut open = ids;
    open.remove(&sessions[SESSIONS - 1].1.advertisement_id);
    wait_until("every other session is open", async || site.found_by("watcher", OPEN_SET).await == open).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_holds_the_seats_of_one_session() {
    hold_seats_of_forty_sessions(Site::on_sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_holds_the_seats_of_one_session_over_two_servers() {
    let test = "client_holds_the_seats_of_one_session_over_two_servers";
    let Some(site) = Site::on_postgres(test).await else { return };
    hold_seats_of_forty_sessions(site).await;
}

/// A crash leaves nothing behind that stands in the way: the game starts again, publishes again and reserves again in the
/// same session. Its host receives both events. The same after the server was restarted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn newer_reservation_takes_the_place_of_the_older_in_the_same_session() {
    let mut site = Site::on_sqlite().await;
    let host = site.player("host").await;
    let (connection, mut events) = host.open_stream().await.expect("a stream");
    let session = connection.advertise(advertise(OPEN_SET, "host", "host", 1, "itself")).await.expect("published");
    let id = session.id().to_owned();
    let guest = site.player("guest").await;
    let first = reserve(&guest, OPEN_SET, &id, &["guest"], "first").await.expect("a seat").reservation.expect("it");
    let again = reserve(&guest, OPEN_SET, &id, &["guest"], "first").await.expect("a retry").reservation.expect("it");
    assert_eq!(first.reservation_id, again.reservation_id);
    let second = reserve(&guest, OPEN_SET, &id, &["guest"], "second").await.expect("the only seat");
    let second = second.reservation.expect("it").reservation_id;
    let late = reserve(&guest, OPEN_SET, &id, &["guest"], "first").await;
    assert_refused(late, Code::FailedPrecondition, "RESERVATION_ENDED");
    let mut told = Vec::new();
    while told.len() < 3 {
        if let HostEvent::Reservation(event) = events.next_host_event().await.expect("an event") {
            told.push((event.reservation.expect("it").reservation_id, event.state));
        }
    }
    let state = |state: pb::ReservationState| i32::from(state);
    let expected = [
        (first.reservation_id.clone(), state(pb::ReservationState::Held)),
        (first.reservation_id, state(pb::ReservationState::Released)),
        (second.clone(), state(pb::ReservationState::Held)),
    ];
    assert_eq!(told, expected);

    drop((connection, events, host, guest));
    let server = site.servers.remove(0).restart().await;
    site.servers.push(server);
    let guest = site.player("guest").await;
    let third = reserve(&guest, OPEN_SET, &id, &["guest"], "third").await.expect("the only seat, after a restart");
    let host = site.player("host").await;
    let token = session.token().to_vec();
    let published = pb::MatchmakingUpdateAdvertisementResponse {
        advertisement_id: id,
        advertisement_token: token,
        ..Default::default()
    };
    let reservations = heartbeat(&host, &published).await.expect("a heartbeat").reservations;
    let ids: Vec<String> = reservations.into_iter().map(|it| it.reservation_id).collect();
    assert_eq!(ids, [third.reservation.expect("it").reservation_id]);
    let newer = host.update_advertisement(advertise(OPEN_SET, "host", "host", 1, "again")).await.expect("a newer one");
    assert_eq!(site.found_by("watcher", OPEN_SET).await, BTreeSet::from([newer.advertisement_id]));
}

/// Members of one party hold its seats once, also if several of them reserve. Another party of one of them is another party.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn party_holds_its_seats_once_if_two_members_reserve() {
    let site = Site::on_sqlite().await;
    let mut sessions = Vec::new();
    for number in 0..3 {
        let user = format!("host {number}");
        let client = site.player(&user).await;
        let published = client.update_advertisement(advertise(OPEN_SET, &user, &user, 4, "itself")).await;
        sessions.push((client, published.expect("published")));
    }
    let id = |number: usize| sessions[number].1.advertisement_id.as_str();
    let (leader, member) = (site.player("leader").await, site.player("member").await);
    reserve(&leader, OPEN_SET, id(0), &["leader", "member"], "a").await.expect("two seats");
    reserve(&member, OPEN_SET, id(1), &["member", "leader"], "b").await.expect("the same party elsewhere");
    reserve(&member, OPEN_SET, id(2), &["member"], "c").await.expect("the member alone");
    let mut seats = Vec::new();
    for (client, published) in &sessions {
        let held = heartbeat(client, published).await.expect("a heartbeat").reservations;
        seats.push(held.iter().map(|it| it.seats).collect::<Vec<_>>());
    }
    assert_eq!(seats, [vec![], vec![], vec![1]]);
}

/// A reservation that is refused changes nothing: the older one stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_reservation_replaces_nothing() {
    let site = Site::on_sqlite().await;
    let (host, full) = (site.player("host").await, site.player("full").await);
    let open = host.update_advertisement(advertise(OPEN_SET, "host", "host", 1, "itself")).await.expect("published");
    let taken = full.update_advertisement(advertise(OPEN_SET, "full", "full", 0, "itself")).await.expect("published");
    let guest = site.player("guest").await;
    let held = reserve(&guest, OPEN_SET, &open.advertisement_id, &["guest"], "a").await.expect("a seat");
    let refused = reserve(&guest, OPEN_SET, &taken.advertisement_id, &["guest"], "b").await;
    assert_refused(refused, Code::FailedPrecondition, "SEATS_TAKEN");
    let left = heartbeat(&host, &open).await.expect("a heartbeat").reservations;
    assert_eq!(left[0].reservation_id, held.reservation.expect("it").reservation_id);
}
