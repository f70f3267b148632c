//! Members of a party that another player entered: each has its own seat, answers for itself, and is punished for nothing that
//! others did. On SQLite, and through two servers on one Postgres.

use fireteam_client::{Code, Error, Ticket, pb};
use pb::{Acceptance, ConsentUse, TicketEndReason, TicketState};

use crate::support::party_site::{PartySite, enter_pair_request, on_each_store, pairs_ruleset, reason, wait_for_state};
use crate::support::queue_server::{SET_ID, enter_request, wait_until};

/// A ready check, and matches that start without a host.
const CHECKED: &str = r#"<ReadyCheck TimeoutMs="20000"/>"#;

/// Fields that a refused call names.
fn fields(error: &Error) -> Vec<&str> {
    error.fields().iter().map(|problem| problem.field.as_str()).collect()
}

/// Cooldowns of a player, by its own client.
async fn cooldowns_ms(site: &PartySite, name: &str) -> Vec<u64> {
    let (_, cooldowns) = site.player_elsewhere(name).await.own_tickets_and_cooldowns().await.expect("mine");
    cooldowns.iter().map(|cooldown| cooldown.ends_in_ms).collect()
}

/// The only ticket of a player, through the last server.
async fn own_ticket(site: &PartySite, name: &str) -> Ticket {
    let (mut tickets, _) = site.player_elsewhere(name).await.own_tickets_and_cooldowns().await.expect("mine");
    assert_eq!(tickets.len(), 1, "{name}");
    tickets.remove(0)
}

/// Id of the match that is proposed to a ticket; each look is a heartbeat of its holder.
async fn proposed_match(ticket: &mut Ticket) -> String {
    let status = wait_for_state(ticket, TicketState::Proposed).await;
    status.found_match.expect("a match").match_id
}

/// The first ticket takes a consent; a retry is the same ticket, at each server and after a restart. Nothing else gets it.
async fn first_ticket_takes_the_consent(mut site: PartySite) {
    let token = site.consent("ben", "ana", false, ConsentUse::Queue).await;
    let request = |key| enter_pair_request("ana", ("ben", &token), key);
    let mut first = site.player("ana").await.enter_queue(request("the first key")).await.expect("enter");
    let again =
        site.player_elsewhere("ana").await.enter_queue(request("the first key")).await.expect("the same request");
    assert_eq!(again.id(), first.id());
    first.leave().await.expect("leave");
    site.restart_first().await;
    for client in [site.player("ana").await, site.player_elsewhere("ana").await] {
        let error = client.enter_queue(request("the second key")).await.expect_err("the consent was used");
        assert_eq!(fields(&error), ["session_composition.players[1].consent_token"], "{error}");
        let again = client.enter_queue(request("the first key")).await.expect("the same request");
        assert_eq!((again.id(), again.status.state()), (first.id(), TicketState::Ended));
    }
    site.enter_pair("ana", "ben", false).await;
    site.shut_down().await;
}

/// A revoked consent enters nothing, at any server. Only the member revokes it.
async fn revoked_consent_is_refused(site: PartySite) {
    let token = site.consent("ben", "ana", false, ConsentUse::Queue).await;
    for stranger in ["ana", "eve"] {
        let error =
            site.player(stranger).await.revoke_party_consent(&token).await.expect_err("another player's consent");
        assert_eq!(reason(&error), "NOT_OWNER");
    }
    for _ in 0..2 {
        assert!(!site.player("ben").await.revoke_party_consent(&token).await.expect("revoke").was_used);
    }
    let error = site.player_elsewhere("ana").await.enter_queue(enter_pair_request("ana", ("ben", &token), "")).await;
    assert_eq!(fields(&error.expect_err("revoked")), ["session_composition.players[1].consent_token"]);

    let used = site.consent("ben", "ana", false, ConsentUse::Queue).await;
    site.player("ana").await.enter_queue(enter_pair_request("ana", ("ben", &used), "key")).await.expect("enter");
    assert!(site.player_elsewhere("ben").await.revoke_party_consent(&used).await.expect("revoke").was_used);
    site.player("ana")
        .await
        .enter_queue(enter_pair_request("ana", ("ben", &used), "key"))
        .await
        .expect("the same ticket");
    site.shut_down().await;
}

/// A member finds the ticket that another player entered, and leaves it. No one has a cooldown, and others see nothing of it.
async fn member_leaves_by_its_own_token(site: PartySite) {
    let mut entered = site.enter_pair("ana", "ben", false).await;
    let mut own = own_ticket(&site, "ben").await;
    assert_eq!(own.id(), entered.id());
    for stranger in ["eve", "ana"] {
        let request = pb::QueueLeaveRequest {
            ticket_id: own.id().to_owned(),
            ticket_token: own.reference().ticket_token,
            user_ids: Vec::new(),
        };
        let error = site.player(stranger).await.leave_queue(request).await.expect_err("the token is of another player");
        assert_eq!(reason(&error), "NOT_OWNER");
    }
    let (tickets, cooldowns) = site.player("eve").await.own_tickets_and_cooldowns().await.expect("mine");
    assert_eq!((tickets.len(), cooldowns.len()), (0, 0));
    assert!(own.leave().await.expect("leave"));
    wait_for_state(&mut entered, TicketState::Ended).await;
    assert_eq!(entered.status.end_reason(), TicketEndReason::Left);
    for name in ["ana", "ben"] {
        assert_eq!(cooldowns_ms(&site, name).await, [] as [u64; 0]);
        site.player(name).await.enter_queue(enter_request(SET_ID, &[(name, 20.0)])).await.expect("free");
    }
    site.shut_down().await;
}

/// The leader answers for itself and for those who let it; the others answer by themselves, and have their own credentials.
async fn members_answer_for_themselves(site: PartySite) {
    let mut opponents = site.enter_opponents().await;
    let mut leader = site.enter_pair("ana", "ben", false).await;
    let id = proposed_match(&mut leader).await;
    let error =
        leader.respond_to_ready_check_for_players(&id, true, vec!["ben".into()]).await.expect_err("ben answers alone");
    assert_eq!(fields(&error), ["user_ids"], "{error}");
    let error = leader
        .respond_to_ready_check_for_players(&id, false, vec!["ana".into(), "ben".into()])
        .await
        .expect_err("ben answers alone");
    assert_eq!(fields(&error), ["user_ids"], "{error}");
    let acceptances = |status: &pb::TicketStatus| -> Vec<Acceptance> {
        status.found_match.iter().flat_map(|found| &found.own_players).map(pb::TicketPlayer::acceptance).collect()
    };
    let accepted = leader.respond_to_ready_check(&id, true).await.expect("accept");
    assert_eq!(acceptances(accepted), [Acceptance::Accepted, Acceptance::Unspecified]);
    let mut seat = own_ticket(&site, "ben").await;
    let error = seat
        .respond_to_ready_check_for_players(&id, false, vec!["ana".into()])
        .await
        .expect_err("ana answers for herself");
    assert_eq!(fields(&error), ["user_ids"], "{error}");
    assert_eq!(acceptances(seat.respond_to_ready_check(&id, true).await.expect("accept")), [Acceptance::Accepted; 2]);
    opponents.respond_to_ready_check(&id, true).await.expect("accept");
    for (ticket, has_credential) in [(&mut leader, [true, false]), (&mut seat, [false, true])] {
        let status = wait_for_state(ticket, TicketState::Matched).await;
        let found = status.found_match.expect("a match");
        assert_eq!(
            found.own_players.iter().map(|player| !player.credential.is_empty()).collect::<Vec<_>>(),
            has_credential
        );
    }
    // During play each leaves alone.
    assert!(!leader.leave().await.expect("leave"), "ben still plays");
    assert!(seat.leave().await.expect("leave"), "the last of the ticket");
    site.shut_down().await;
}

/// A leader that declines is at fault alone, also where a member let it answer. The opponents keep their waiting time.
async fn leader_who_declines_is_barred_alone(site: PartySite) {
    let mut opponents = site.enter_opponents().await;
    site.clock.advance_ms(7_000);
    for (leader, member, may_answer) in [("ana", "ben", true), ("cid", "dan", false)] {
        let mut ticket = site.enter_pair(leader, member, may_answer).await;
        let id = proposed_match(&mut ticket).await;
        opponents.respond_to_ready_check(&id, true).await.expect("accept");
        let named = if may_answer { vec![member.to_owned()] } else { Vec::new() };
        ticket.respond_to_ready_check_for_players(&id, false, named).await.expect("decline");
        assert_eq!(cooldowns_ms(&site, leader).await, [30_000]);
        assert_eq!(cooldowns_ms(&site, member).await, [] as [u64; 0]);
        let waiting = wait_for_state(&mut opponents, TicketState::Waiting).await;
        assert_eq!(waiting.waited_ms, 7_000);
    }
    // Leaving during the ready check is a decline.
    let mut ticket = site.enter_pair("eve", "fay", true).await;
    proposed_match(&mut ticket).await;
    assert!(ticket.leave().await.expect("leave"));
    assert_eq!((cooldowns_ms(&site, "eve").await, cooldowns_ms(&site, "fay").await), (vec![30_000], vec![]));
    site.shut_down().await;
}

/// A silent player is at fault only if its own client, or the leader that it let answer, received the match. That outlives a
/// restart.
async fn silence_is_a_fault_of_players_with_the_match(mut site: PartySite) {
    for (round, may_answer, member_is_told, leader_accepts, expected) in [
        ("a member without the match", false, false, true, [0, 0]),
        ("a member with the match", false, true, true, [0, 1]),
        ("a leader who answers for the member", true, false, false, [1, 1]),
        ("a leader who does not", false, false, false, [1, 0]),
    ] {
        site.enter_opponents().await;
        let (leader, member) = (format!("leader: {round}"), format!("member: {round}"));
        let mut ticket = site.enter_pair(&leader, &member, may_answer).await;
        let id = proposed_match(&mut ticket).await;
        if leader_accepts {
            ticket.respond_to_ready_check(&id, true).await.expect("accept");
        }
        if member_is_told {
            own_ticket(&site, &member).await.heartbeat().await.expect("heartbeat");
        }
        site.restart_first().await;
        site.clock.advance_ms(20_000);
        wait_until("the ready check has failed", async || {
            let (tickets, _) = site.player_elsewhere(&member).await.own_tickets_and_cooldowns().await.expect("mine");
            tickets.is_empty()
        })
        .await;
        let barred = [cooldowns_ms(&site, &leader).await.len(), cooldowns_ms(&site, &member).await.len()];
        assert_eq!(barred, expected, "{round}");
        site.clock.advance_ms(60_000);
    }
    site.shut_down().await;
}

/// Whether others wait, play or have a cooldown is one answer, to the byte. Everyone learns their own state.
async fn refusals_about_others_are_alike(site: PartySite) {
    let enter = async |name: &str| site.player(name).await.enter_queue(enter_request(SET_ID, &[(name, 40.0)])).await;
    let waiting = enter("wes").await.expect("enter");
    let mut opponents = site.enter_opponents().await;
    let mut pair =
        site.backend().await.enter_queue(enter_request(SET_ID, &[("pia", 20.0), ("quin", 20.0)])).await.expect("enter");
    let id = proposed_match(&mut pair).await;
    pair.respond_to_ready_check(&id, true).await.expect("accept");
    opponents.respond_to_ready_check(&id, true).await.expect("accept");
    wait_for_state(&mut pair, TicketState::Matched).await;
    let mut decliner =
        site.backend().await.enter_queue(enter_request(SET_ID, &[("kim", 20.0), ("lou", 20.0)])).await.expect("enter");
    let mut others =
        site.backend().await.enter_queue(enter_request(SET_ID, &[("mia", 20.0), ("ned", 20.0)])).await.expect("enter");
    let id = proposed_match(&mut decliner).await;
    decliner.respond_to_ready_check(&id, false).await.expect("decline");
    wait_for_state(&mut others, TicketState::Waiting).await;

    let states = [("wes", "ALREADY_QUEUED"), ("pia", "ALREADY_IN_MATCH"), ("kim", "QUEUE_COOLDOWN")];
    let spy = site.player_elsewhere("spy").await;
    let mut refusals = Vec::new();
    for (victim, own_reason) in states {
        for party in [vec![("spy", 20.0), (victim, 20.0)], vec![(victim, 20.0), ("spy", 20.0)]] {
            let error = spy.enter_queue(enter_request(SET_ID, &party)).await.expect_err(victim);
            refusals.push(error.as_server_error().expect("of the server").clone());
        }
        assert_eq!(reason(&enter(victim).await.expect_err("its own state")), own_reason);
        let by_backend =
            site.backend().await.enter_queue(enter_request(SET_ID, &[(victim, 20.0)])).await.expect_err(victim);
        assert_eq!(reason(&by_backend), own_reason, "a game's backend learns it");
    }
    assert_eq!(refusals[0].reason.as_deref(), Some("PLAYER_UNAVAILABLE"));
    assert_eq!((refusals[0].code, refusals[0].retry_after), (Code::FailedPrecondition, None));
    assert!(refusals.iter().all(|refusal| *refusal == refusals[0]), "{refusals:?}");
    // The caller's own state comes first, in any state of the others.
    let _own = enter("spy").await.expect("enter");
    for (victim, _) in states {
        let error = spy.enter_queue(enter_request(SET_ID, &[("spy", 20.0), (victim, 20.0)])).await.expect_err(victim);
        assert_eq!(reason(&error), "ALREADY_QUEUED");
    }
    drop(waiting);
    site.shut_down().await;
}

on_each_store! {
    first_ticket_takes_the_consent, pairs_ruleset(CHECKED),
        first_ticket_takes_the_consent_on_sqlite, first_ticket_takes_the_consent_on_postgres;
    revoked_consent_is_refused, pairs_ruleset(CHECKED),
        revoked_consent_is_refused_on_sqlite, revoked_consent_is_refused_on_postgres;
    member_leaves_by_its_own_token, pairs_ruleset(CHECKED),
        member_leaves_by_its_own_token_on_sqlite, member_leaves_by_its_own_token_on_postgres;
    members_answer_for_themselves, pairs_ruleset(CHECKED),
        members_answer_for_themselves_on_sqlite, members_answer_for_themselves_on_postgres;
    leader_who_declines_is_barred_alone, pairs_ruleset(CHECKED),
        leader_who_declines_is_barred_alone_on_sqlite, leader_who_declines_is_barred_alone_on_postgres;
    silence_is_a_fault_of_players_with_the_match, pairs_ruleset(CHECKED),
        silence_is_a_fault_of_players_with_the_match_on_sqlite, silence_is_a_fault_of_players_with_the_match_on_postgres;
    refusals_about_others_are_alike, pairs_ruleset(&format!(r#"<Party Consent="assumed"/>{CHECKED}"#)),
        refusals_about_others_are_alike_on_sqlite, refusals_about_others_are_alike_on_postgres;
}
