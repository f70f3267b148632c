//! Players who leave in each stage, and parties that are silent.

use super::*;

/// Leaving before play ends the ticket and is penalized; a withdrawal is not.
#[test]
fn leave_before_play_ends_the_ticket_and_requeues_the_others() {
    let [one, two] = all_accept();
    let left = |users: &[u8]| MatchEvent::PlayersLeft {
        ticket_id: ticket_id(1),
        users: users.iter().map(|&n| user_key(n)).collect(),
        left_by: None,
    };
    let found = MatchEvent::ServerFound(game_server(7));
    let fates = |reason| [(ticket_id(1), TicketFate::Ended(reason)), (ticket_id(2), TicketFate::Requeued)];
    for before in [&[one.clone()][..], &[one.clone(), two.clone()], &[one.clone(), two.clone(), found.clone()]] {
        let (_, party) = apply_all(&ready_check_rules(), &[before, &[left(&[])]].concat());
        assert_eq!(party.ticket_fates, fates(TicketEndReason::Left));
        assert_eq!(party.penalized_users, [user_key(11), user_key(12)]);
        assert_eq!(party.effects, if before.len() == 3 { vec![release_of(7)] } else { vec![] });
        let (_, player) = apply_all(&ready_check_rules(), &[before, &[left(&[12])]].concat());
        assert_eq!(player.ticket_fates, fates(TicketEndReason::Left));
        assert_eq!(player.penalized_users, [user_key(12)], "the party is not at fault");
        let withdrawn = MatchEvent::TicketWithdrawn { ticket_id: ticket_id(1), reason: TicketEndReason::EndedByServer };
        let (_, cancelled) = apply_all(&ready_check_rules(), &[before, &[withdrawn]].concat());
        assert_eq!(cancelled.ticket_fates, fates(TicketEndReason::EndedByServer));
        assert_eq!(cancelled.penalized_users, []);
    }
}

/// After half of the wait for a server, leaving is free. Without a ready check it
/// always is.
#[test]
fn leave_is_not_penalized_after_half_of_the_wait_for_a_server() {
    let [one, two] = all_accept();
    let (placing, _) = apply_all(&ready_check_rules(), &[one, two]);
    let leave = MatchEvent::PlayersLeft { ticket_id: ticket_id(2), users: Vec::new(), left_by: None };
    let half_wait = START.plus_ms(2_000 + ALLOCATION_TIMEOUT_MS / 2);
    for (now, penalized) in [(UnixMs(half_wait.0 - 1), vec![user_key(21)]), (half_wait, vec![])] {
        let transition = apply_event(&ready_check_rules(), &placing, leave.clone(), &NO_FACTS, now);
        assert_eq!(transition.penalized_users, penalized, "at {now:?}");
    }
    let rules = lifecycle_rules(None, HostingMode::GameServer);
    let placing = create_match(&rules, two_tickets(), &NO_FACTS, START).next_match.unwrap();
    assert_eq!(apply_event(&rules, &placing, leave, &NO_FACTS, START).penalized_users, []);
}

/// During play, who leaves is free at once and the match goes on, until no player is left. A ticket ends with its last
/// player, and only once.
#[test]
fn leave_during_play_frees_the_player_and_the_match_goes_on() {
    let rules = lifecycle_rules(None, HostingMode::None);
    let left = |n: u8, users: &[u8]| MatchEvent::PlayersLeft {
        ticket_id: ticket_id(n),
        users: users.iter().map(|&n| user_key(n)).collect(),
        left_by: None,
    };
    let present = |current: &Match| current.present_players().map(|(_, player)| player.user).collect::<Vec<_>>();
    let (current, one) = apply_all(&rules, &[left(1, &[12])]);
    assert_eq!((present(&current), one.ticket_fates), (vec![user_key(11), user_key(21)], vec![]));
    let again = apply_event(&rules, &current, left(1, &[12]), &NO_FACTS, START);
    assert_eq!(again.result, EventResult::AlreadyApplied);
    let (current, rest) = apply_all(&rules, &[left(1, &[12]), left(1, &[])]);
    let ended = |n: u8| (ticket_id(n), TicketFate::Ended(TicketEndReason::Left));
    assert_eq!((present(&current), rest.ticket_fates), (vec![user_key(21)], vec![ended(1)]));
    let (current, last) = apply_all(&rules, &[left(1, &[12]), left(1, &[]), left(2, &[])]);
    assert_eq!((stage_name(&current), last.ticket_fates), ("Abandoned".to_owned(), vec![ended(2)]));
    let (_, reported) = apply_all(&rules, &[left(1, &[]), MatchEvent::EndReported { reported_by: None }]);
    assert_eq!(reported.ticket_fates, [(ticket_id(2), TicketFate::Ended(TicketEndReason::Played))]);
}

/// A party without some of its players does not wait again when the server fails soon after the start.
#[test]
fn server_failure_ends_a_party_that_some_players_have_left() {
    let left = MatchEvent::PlayersLeft { ticket_id: ticket_id(1), users: vec![user_key(12)], left_by: None };
    let [one, two] = all_accept();
    let found = MatchEvent::ServerFound(game_server(7));
    let (_, failed) = apply_all(&ready_check_rules(), &[one, two, found, heard(START), left, failed_host(7)]);
    let fates = [(ticket_id(1), TicketFate::Ended(TicketEndReason::Left)), (ticket_id(2), TicketFate::Requeued)];
    assert_eq!(failed.ticket_fates, fates);
}

/// A party that is silent for longer than its TTL is not released into a match: it ends, and the others wait again.
#[test]
fn silent_party_is_withdrawn_before_play() {
    let silent = Facts { expired: vec![ticket_id(2)], ..Facts::default() };
    let fates = [(ticket_id(1), TicketFate::Requeued), (ticket_id(2), TicketFate::Ended(TicketEndReason::Expired))];
    let [one, two] = all_accept();
    let found = MatchEvent::ServerFound(game_server(7));
    let stages = [vec![], vec![one.clone(), two.clone()], vec![one.clone(), two.clone(), found.clone()]];
    for events in stages {
        let current = match &*events {
            [] => created_match(&ready_check_rules()),
            events => apply_all(&ready_check_rules(), events).0,
        };
        let now = START.plus_ms(5_000);
        let withdrawn = apply_event(&ready_check_rules(), &current, MatchEvent::DeadlinePassed, &silent, now);
        assert_eq!(withdrawn.ticket_fates, fates, "while {}", stage_name(&current));
        assert_eq!(withdrawn.penalized_users, []);
    }
    let (confirming, _) = apply_all(&ready_check_rules(), &[one.clone(), two.clone(), found]);
    let confirmed = apply_event(&ready_check_rules(), &confirming, heard(START), &silent, START.plus_ms(5_000));
    assert_eq!((confirmed.ticket_fates, confirmed.effects), (fates.to_vec(), vec![release_of(7)]));
    let rules = lifecycle_rules(Some(READY_CHECK_MS as u32), HostingMode::None);
    let (accepted, _) = apply_all(&rules, &[one]);
    let last = apply_event(&rules, &accepted, two, &silent, START.plus_ms(5_000));
    assert_eq!(last.ticket_fates, fates);
}
