//! Wishes of tickets: against each other, and against sessions with open seats. On SQLite, and through two servers on one Postgres.

use fireteam_client::{Ticket, pb};
use pb::TicketState;

use crate::support::generated_client as wire;
use crate::support::party_site::{PartySite, by_operator, on_each_store, reason, wait_for_rule, wait_for_state};
use crate::support::queue_server::operator_client;
use crate::wishes::fixture::{advertised, entering, numbers, relaxed, skill_wish, wish, wishes_ruleset};

/// A ticket waits for one whose values it accepts, and both say whose wish it is. After a restart the wish still holds, and when it
/// relaxes, without another event, the two meet.
async fn wishes_hold_between_tickets(mut site: PartySite) {
    let wishes = [relaxed(skill_wish(0.0, 10.0), 5_000, numbers(Some(0.0), Some(20.0)))];
    site.player_elsewhere("ana").await.enter_queue(entering("ana", 40.0, &wishes)).await.expect("enter");
    site.player("ben").await.enter_queue(entering("ben", 20.0, &[])).await.expect("enter");
    wait_for_rule(&site, "ana", "wish:skill").await;
    site.restart_first().await;
    // Its server is another process now, or the one that did not restart.
    let (mut ana, mut ben) = (mine(&site, "ana").await, mine(&site, "ben").await);
    let mut cyd =
        site.player("cyd").await.enter_queue(entering("cyd", 50.0, &[skill_wish(45.0, 50.0)])).await.expect("enter");
    wait_for_rule(&site, "cyd", "wish:skill").await;
    for ticket in [&mut ana, &mut ben] {
        assert_eq!(ticket.heartbeat().await.expect("heartbeat").state(), TicketState::Waiting);
    }
    site.clock.advance_ms(5_000);
    for ticket in [&mut ana, &mut ben] {
        wait_for_state(ticket, TicketState::Matched).await;
    }
    assert_eq!(cyd.heartbeat().await.expect("heartbeat").state(), TicketState::Waiting);
    site.shut_down().await;
}

/// The ticket of a player, as its own client finds it after a restart.
async fn mine(site: &PartySite, user: &str) -> Ticket {
    let (mut own, _) = site.player_elsewhere(user).await.own_tickets_and_cooldowns().await.expect("mine");
    own.pop().expect("a ticket")
}

/// A session with open seats takes the guest whom its host accepts; another waits until the host's wish relaxes.
async fn wishes_hold_between_a_session_and_its_guests(site: PartySite) {
    let host = site.player("hal").await;
    let wishes = [relaxed(skill_wish(15.0, 25.0), 5_000, numbers(None, None))];
    let (connection, mut events) = host.open_stream().await.expect("a stream");
    let advertisement = connection.advertise(advertised("hal", 20.0, &wishes)).await.expect("advertise");
    let mut ana = site.player("ana").await.enter_queue(entering("ana", 40.0, &[])).await.expect("enter");
    wait_for_rule(&site, "ana", "other_wish:skill").await;
    let own_wish = [wish("skill", numbers(Some(45.0), None))];
    let mut ben = site.player("ben").await.enter_queue(entering("ben", 20.0, &own_wish)).await.expect("enter");
    wait_for_rule(&site, "ben", "wish:skill").await;
    ben.leave().await.expect("leave");
    site.clock.advance_ms(5_000);
    let asked = crate::queue::hosted_matches::next_match(&mut events).await;
    assert!(asked.backfill);
    fireteam_client::MatchHost::new(host.clone(), &advertisement).heartbeat().await.expect("beat");
    wait_for_state(&mut ana, TicketState::Matched).await;
    site.shut_down().await;
}

/// The same key with another wish is another request. The export of the player has the wishes of the ticket as they were sent.
async fn wishes_are_part_of_what_a_key_names(site: PartySite) {
    let client = site.player("ana").await;
    let request = |wishes: &[pb::Wish]| {
        let key = "0123456789abcdef".to_owned();
        pb::QueueEnterRequest { idempotency_key: key, ..entering("ana", 20.0, wishes) }
    };
    let first = client.enter_queue(request(&[skill_wish(0.0, 10.0)])).await.expect("enter");
    let again = client.enter_queue(request(&[skill_wish(0.0, 10.0)])).await.expect("the same request");
    assert_eq!(first.status.ticket_id, again.status.ticket_id);
    let later = relaxed(skill_wish(0.0, 10.0), 5_000, numbers(None, None));
    for wishes in [vec![], vec![skill_wish(0.0, 11.0)], vec![later]] {
        let refused = client.enter_queue(request(&wishes)).await.expect_err("another request");
        assert_eq!(reason(&refused), "IDEMPOTENCY_KEY_REUSED", "{wishes:?}");
    }
    let request = wire::ExportUserRequest { user_id: "ana".to_owned(), ..Default::default() };
    let exported = operator_client(&site.servers[0]).await.export_user(by_operator(&site, request)).await;
    let ticket = exported.expect("an export").into_inner().tickets.pop().expect("a ticket");
    let accepted = wire::AcceptedValues { min: Some(0.0), max: Some(10.0), ..Default::default() };
    let wish = wire::Wish { attribute: "skill".to_owned(), accepted: Some(accepted), ..Default::default() };
    assert_eq!(ticket.wishes, [wish]);
    site.shut_down().await;
}

/// S1-36: mutual wishes of tickets, which relax with their wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wishes_hold_between_tickets_on_sqlite() {
    wishes_hold_between_tickets(PartySite::on_sqlite(&wishes_ruleset("")).await).await;
}

/// S1-36: mutual wishes of tickets, which relax with their wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wishes_hold_between_tickets_on_postgres() {
    let test = "wishes_hold_between_tickets_on_postgres";
    if let Some(site) = PartySite::on_postgres(test, &wishes_ruleset("")).await {
        wishes_hold_between_tickets(site).await;
    }
}

on_each_store! {
    wishes_hold_between_a_session_and_its_guests, wishes_ruleset(r#"Backfill="true""#),
        wishes_hold_between_a_session_and_its_guests_on_sqlite, wishes_hold_between_a_session_and_its_guests_on_postgres;
    wishes_are_part_of_what_a_key_names, wishes_ruleset(""),
        wishes_are_part_of_what_a_key_names_on_sqlite, wishes_are_part_of_what_a_key_names_on_postgres;
}
