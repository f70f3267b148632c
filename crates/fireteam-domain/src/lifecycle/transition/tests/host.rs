//! Host of a match: found, not found, confirmed, unneeded, lost.

use super::*;

/// S0-21: a failed game server penalizes no player, and all tickets are requeued.
#[test]
fn missing_server_requeues_all_tickets_without_penalty() {
    let [one, two] = all_accept();
    let (current, _) = apply_all(&ready_check_rules(), &[one.clone(), two.clone()]);
    let late = apply_event(
        &ready_check_rules(),
        &current,
        MatchEvent::DeadlinePassed,
        &NO_FACTS,
        START.plus_ms(2_000 + ALLOCATION_TIMEOUT_MS),
    );
    let (_, given_up) = apply_all(
        &ready_check_rules(),
        &[one, two, MatchEvent::ServerFound(game_server(7)), heard(START), failed_host(7)],
    );
    for transition in [&late, &given_up] {
        assert_eq!(
            transition.ticket_fates,
            [(ticket_id(1), TicketFate::Requeued), (ticket_id(2), TicketFate::Requeued)]
        );
        assert_eq!(transition.penalized_users, []);
        assert!(matches!(transition.next_match.as_ref().unwrap().stage, MatchStage::Ended { started_at: None, .. }));
    }
    assert_eq!((late.effects, given_up.effects), (vec![], vec![release_of(7)]));
}

#[test]
fn unneeded_reservation_is_released() {
    let [one, two] = all_accept();
    let (current, _) =
        apply_all(&ready_check_rules(), &[one.clone(), two.clone(), MatchEvent::ServerFound(game_server(7))]);
    let second = apply_event(
        &ready_check_rules(),
        &current,
        MatchEvent::ServerFound(game_server(8)),
        &NO_FACTS,
        START.plus_ms(9_000),
    );
    assert_eq!((second.result, second.effects), (EventResult::WrongStage, vec![release_of(8)]));
    let again = apply_event(
        &ready_check_rules(),
        &current,
        MatchEvent::ServerFound(game_server(7)),
        &NO_FACTS,
        START.plus_ms(9_000),
    );
    assert_eq!(
        (again.result, again.effects),
        (EventResult::AlreadyApplied, vec![]),
        "the match is played on this reservation"
    );
    let (ended, _) = apply_all(&ready_check_rules(), &[one, two, MatchEvent::Cancelled]);
    let late = apply_event(
        &ready_check_rules(),
        &ended,
        MatchEvent::ServerFound(game_server(8)),
        &NO_FACTS,
        START.plus_ms(9_000),
    );
    assert_eq!(late.effects, [release_of(8)]);
}

/// A game server that does not confirm loses its seats and is not asked again; the next one has the time that is left.
#[test]
fn unconfirmed_server_is_replaced_until_the_time_is_over() {
    let [one, two] = all_accept();
    let (current, _) = apply_all(&ready_check_rules(), &[one, two, MatchEvent::ServerFound(game_server(7))]);
    let deadline = START.plus_ms(2_000 + ALLOCATION_TIMEOUT_MS);
    let confirm_by = START.plus_ms(3_000 + CONFIRM_MS);
    assert_eq!(current.stage, MatchStage::Confirming { assignment: game_server(7), confirm_by, deadline });
    let rules = ready_check_rules();
    let silent = apply_event(&rules, &current, MatchEvent::DeadlinePassed, &NO_FACTS, confirm_by);
    assert_eq!(silent.effects, [release_of(7), MatchEffect::FindServer]);
    let next = silent.next_match.unwrap();
    assert_eq!((next.stage.clone(), next.servers_that_did_not_confirm.len()), (MatchStage::Placing { deadline }, 1));
    let late = UnixMs(deadline.0 - 1_000);
    let second = apply_event(&rules, &next, MatchEvent::ServerFound(game_server(8)), &NO_FACTS, late);
    let second = second.next_match.unwrap();
    assert_eq!(second.stage.deadline(), Some(deadline), "not longer than the time that is left");
    let over = apply_event(&rules, &second, MatchEvent::DeadlinePassed, &NO_FACTS, deadline);
    assert_eq!(over.ticket_fates, [(ticket_id(1), TicketFate::Requeued), (ticket_id(2), TicketFate::Requeued)]);
    assert_eq!((over.penalized_users, over.effects), (vec![], vec![release_of(8)]));
    let backfill = Match { backfilled_session: Some(AdvertisementId::from_bytes([7; 16])), ..current };
    let full = apply_event(&rules, &backfill, MatchEvent::DeadlinePassed, &NO_FACTS, confirm_by);
    assert_eq!(stage_name(&full.next_match.unwrap()), "NoServer");
}

/// The host of a match that is being played is lost when it is not heard for the time of the ruleset; each sign of life
/// extends it. A player who hosts counts as having left.
#[test]
fn silent_host_is_lost() {
    let [one, two] = all_accept();
    let found = MatchEvent::ServerFound(game_server(7));
    let (current, _) = apply_all(&ready_check_rules(), &[one.clone(), two.clone(), found, heard(START)]);
    let started_at = START.plus_ms(4_000);
    assert_eq!(current.stage.deadline(), Some(started_at.plus_ms(HOST_LOSS_MS)));
    let later = started_at.plus_ms(50_000);
    let heard_again = apply_event(&ready_check_rules(), &current, heard(later), &NO_FACTS, later).next_match.unwrap();
    assert_eq!(heard_again.stage.deadline(), Some(later.plus_ms(HOST_LOSS_MS)));
    let earlier = apply_event(&ready_check_rules(), &heard_again, heard(started_at), &NO_FACTS, later);
    assert_eq!(earlier.result, EventResult::AlreadyApplied);
    let lost_at = later.plus_ms(HOST_LOSS_MS);
    let lost = apply_event(&ready_check_rules(), &heard_again, MatchEvent::DeadlinePassed, &NO_FACTS, lost_at);
    let played = TicketFate::Ended(TicketEndReason::Played);
    assert_eq!(lost.ticket_fates, [(ticket_id(1), played), (ticket_id(2), played)]);
    assert_eq!((lost.penalized_users, lost.effects), (vec![], vec![release_of(7)]));
    let lost = lost.next_match.unwrap();
    assert_eq!(
        (stage_name(&lost), lost.stage.assignment_since_play_start()),
        ("HostLost".to_owned(), Some(&game_server(7)))
    );

    let rules = lifecycle_rules(Some(READY_CHECK_MS as u32), HostingMode::Peer);
    let (named, _) = apply_all(&rules, &[one.clone(), two.clone()]);
    let silent = apply_event(&rules, &named, MatchEvent::DeadlinePassed, &NO_FACTS, START.plus_ms(2_000 + CONFIRM_MS));
    assert_eq!(silent.ticket_fates, [(ticket_id(1), TicketFate::Requeued), (ticket_id(2), TicketFate::Requeued)]);
    assert_eq!(silent.penalized_users, [], "play had not begun");
    let (playing, _) = apply_all(&rules, &[one, two, heard(START)]);
    let due = playing.stage.deadline().unwrap();
    let lost = apply_event(&rules, &playing, MatchEvent::DeadlinePassed, &NO_FACTS, due);
    let left = TicketFate::Ended(TicketEndReason::Left);
    assert_eq!(lost.ticket_fates, [(ticket_id(1), played), (ticket_id(2), left)], "the host waited longest");
    assert_eq!(lost.penalized_users, [user_key(21)]);
}

/// Host of a match of `tickets`, of which those in `open` have an open NAT, with round trips between them.
fn host_of(tickets: &[MatchTicket], open: &[u8], round_trips: &[(u8, u8, f64)]) -> UserKey {
    let facts = Facts {
        open_nat: open.iter().map(|n| ticket_id(*n)).collect(),
        round_trips: round_trips.iter().map(|&(one, other, ms)| (ticket_id(one), ticket_id(other), ms)).collect(),
        ..Facts::default()
    };
    let rules = lifecycle_rules(None, HostingMode::Peer);
    let transition = create_match(&rules, new_match(tickets.to_vec()), &facts, START);
    let MatchStage::Confirming { assignment: Assignment::PeerHost { host }, .. } = transition.next_match.unwrap().stage
    else {
        panic!()
    };
    host
}

/// The host has an open NAT, then the longest wait; ties by client key.
#[test]
fn peer_host_is_reachable_or_has_waited_longest() {
    let host = |tickets: &[MatchTicket], open: &[u8]| host_of(tickets, open, &[]);
    let tickets = [match_ticket(1, 500, &[11, 10]), match_ticket(2, 400, &[21]), match_ticket(3, 400, &[20])];
    assert_eq!(host(&tickets, &[]), client_key(20), "longest wait, lower client key");
    assert_eq!(host(&tickets, &[1, 2]), client_key(21), "longest wait of those with an open NAT");
    assert_eq!(host(&tickets, &[1]), client_key(10), "lowest client key of the party");
}

/// Among hosts that are equally reachable, the one whose farthest player is nearest, before the longest wait. An unknown round
/// trip is the farthest.
#[test]
fn peer_host_is_nearest_to_its_farthest_player() {
    let tickets = [match_ticket(1, 300, &[10]), match_ticket(2, 500, &[20]), match_ticket(3, 400, &[30])];
    let round_trips = [(1, 2, 90.0), (1, 3, 150.0), (2, 3, 60.0)];
    assert_eq!(host_of(&tickets, &[], &[]), client_key(10), "longest wait");
    assert_eq!(host_of(&tickets, &[], &round_trips), client_key(20), "90 ms to the farthest");
    assert_eq!(
        host_of(&tickets, &[1, 3], &round_trips),
        client_key(10),
        "an open NAT comes first, then the wait: both 150 ms"
    );
    let shorter = [(1, 2, 90.0), (1, 3, 50.0), (2, 3, 60.0)];
    assert_eq!(host_of(&tickets, &[], &shorter), client_key(30), "60 ms to the farthest");
    assert_eq!(host_of(&tickets, &[], &shorter[1..]), client_key(30), "unknown between the others");
    assert_eq!(host_of(&tickets, &[], &shorter[..1]), client_key(10), "one unknown for each");
}
