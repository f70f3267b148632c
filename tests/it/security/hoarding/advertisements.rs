//! Advertisements of one owner: a client's newer one takes the older one's place, and a game server has many.

use std::collections::BTreeSet;

use fireteam::auth::identity::Role;
use fireteam_client::{Code, pb};

use crate::security::hoarding::{OPEN_SET, Site, TWO_CLIENTS_SET, advertise, assert_refused, heartbeat, reserve};
use crate::support::queue_server::wait_until;

/// Failure 5: one client published 74 ten-minute sessions with connect data of its choice.
async fn publish_seventy_four_sessions(site: Site) {
    let spammer = [site.player("spammer").await, site.player_elsewhere("spammer").await];
    let first = spammer[0].update_advertisement(advertise(OPEN_SET, "spammer", "spammer", 3, "0")).await.expect("one");
    let mut last = first.clone();
    for number in 1..74 {
        let request = advertise(OPEN_SET, "spammer", "spammer", 3, &number.to_string());
        last = spammer[number % 2].update_advertisement(request).await.expect("the newer takes the older one's place");
    }
    let only = BTreeSet::from([last.advertisement_id.clone()]);
    wait_until("one session is found", async || site.found_by("watcher", OPEN_SET).await == only).await;

    // Nothing brings the older one back: no heartbeat, no update by its token, no retry of its create.
    for client in &spammer {
        wait_until("the older one has no heartbeat", async || {
            heartbeat(client, &first).await.is_err_and(|error| error.code() == Some(Code::NotFound))
        })
        .await;
        let update = pb::MatchmakingUpdateAdvertisementRequest {
            advertisement_id: first.advertisement_id.clone(),
            advertisement_token: first.advertisement_token.clone(),
            ..advertise(OPEN_SET, "spammer", "spammer", 3, "0")
        };
        let late = client.update_advertisement(update).await;
        assert_refused(late, Code::FailedPrecondition, "ADVERTISEMENT_DELETED");
        let retried = client.update_advertisement(advertise(OPEN_SET, "spammer", "spammer", 3, "0")).await;
        assert_refused(retried, Code::FailedPrecondition, "ADVERTISEMENT_DELETED");
        // The other server may receive it later.
        wait_until("the newer one lives", async || heartbeat(client, &last).await.is_ok()).await;
    }
    assert_eq!(site.found_by("watcher", OPEN_SET).await, only);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_advertises_one_session() {
    publish_seventy_four_sessions(Site::on_sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_advertises_one_session_over_two_servers() {
    let Some(site) = Site::on_postgres("client_advertises_one_session_over_two_servers").await else { return };
    publish_seventy_four_sessions(site).await;
}

/// If the ruleset lets an account have two clients, each has its own; a third takes the place of the oldest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_one_account_are_counted_apart_where_the_ruleset_says_so() {
    let site = Site::on_sqlite().await;
    let client = site.player("ada").await;
    let publish = async |set: u32, player: &str, key: &str| {
        site.servers[0].clock.advance_ms(1);
        let published = client.update_advertisement(advertise(set, "ada", player, 1, key)).await.expect("published");
        published.advertisement_id
    };
    let pc = publish(TWO_CLIENTS_SET, "pc", "1").await;
    let phone = publish(TWO_CLIENTS_SET, "phone", "2").await;
    assert_eq!(site.found_by("watcher", TWO_CLIENTS_SET).await, BTreeSet::from([pc, phone.clone()]));
    let pc = publish(TWO_CLIENTS_SET, "pc", "3").await;
    assert_eq!(site.found_by("watcher", TWO_CLIENTS_SET).await, BTreeSet::from([pc.clone(), phone]));
    let tablet = publish(TWO_CLIENTS_SET, "tablet", "4").await;
    assert_eq!(site.found_by("watcher", TWO_CLIENTS_SET).await, BTreeSet::from([pc, tablet]));
    // A set with one client per account counts the advertisements of all sets.
    let one = publish(OPEN_SET, "pc", "5").await;
    assert_eq!(site.found_by("watcher", TWO_CLIENTS_SET).await, BTreeSet::new());
    assert_eq!(site.found_by("watcher", OPEN_SET).await, BTreeSet::from([one]));
}

/// A game server has many advertisements, up to its limit; the refusal names the setting. Its own updates are not refused. It
/// reserves for many parties.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn game_server_is_refused_beyond_its_limit() {
    let site = Site::start(None, |config| config.max_advertisements_per_server = 3).await;
    let server = site.client_of(&site.servers[0], Role::GameServer, "fleet").await;
    let mut published = Vec::new();
    for number in 0..3 {
        let user = format!("guest {number}");
        let one = server.update_advertisement(advertise(OPEN_SET, &user, &user, 4, "itself")).await;
        published.push(one.expect("published"));
    }
    let beyond = server.update_advertisement(advertise(OPEN_SET, "guest 3", "guest 3", 4, "itself")).await;
    let error = assert_refused(beyond, Code::ResourceExhausted, "TOO_MANY_ADVERTISEMENTS");
    let metadata = &error.as_server_error().expect("details").reason_metadata;
    assert_eq!(metadata.get("limit").map(String::as_str), Some("3"));
    assert_eq!(metadata.get("setting").map(String::as_str), Some("max_advertisements_per_server"));
    let again = server.update_advertisement(advertise(OPEN_SET, "guest 0", "guest 0", 4, "itself")).await;
    assert!(!again.expect("a repeated create").created);
    heartbeat(&server, &published[2]).await.expect("a heartbeat");

    let backend = site.client_of(&site.servers[0], Role::GameServer, "backend").await;
    for party in ["a", "b", "c"] {
        let id = &published[0].advertisement_id;
        reserve(&backend, OPEN_SET, id, &[party], party).await.expect("servers reserve for others");
    }
    assert_eq!(heartbeat(&server, &published[0]).await.expect("a heartbeat").reservations.len(), 3);

    let delete = pb::MatchmakingDeleteAdvertisementRequest {
        advertisement_id: published[1].advertisement_id.clone(),
        advertisement_token: published[1].advertisement_token.clone(),
    };
    server.delete_advertisement(delete).await.expect("deleted");
    let next = server.update_advertisement(advertise(OPEN_SET, "guest 3", "guest 3", 4, "itself")).await;
    assert!(next.expect("there is room").created);
}
