//! Matches of sessions: they begin in play, none of their tickets ever waits, leaving has no cooldown, and reports decide only
//! about players who were heard.

use super::*;
use crate::lifecycle::session_start::SessionMatchStartByHost;
use crate::lifecycle::side_reports::{PlayerResultClaim, ReportDecision};
use crate::lifecycle::transition::report::{apply_report_window_end, apply_side_report};
use crate::lifecycle::transition::session_match::{NewMatchStartedByHost, begin_match_started_by_host};

/// With a ready check and its cooldowns, as a queue of the set has.
fn rules() -> LifecycleRules {
    lifecycle_rules(Some(READY_CHECK_MS as u32), HostingMode::Peer)
}

/// Match of a session: a team of ticket 1 and a team of tickets 2 and 3, with two players each.
fn begun(assignment: Assignment) -> Match {
    let ticket = |n: u8, team: u16| MatchTicket { team, ..match_ticket(n, START.0, &[10 * n, 10 * n + 1]) };
    let new_match = NewMatchStartedByHost {
        id: MatchId::from_bytes([9; 16]),
        set_id: SetId(1),
        silo: SiloId(1),
        ruleset_hash: RulesetHash(1),
        tickets: vec![ticket(1, 0), ticket(2, 1), ticket(3, 1)],
        assignment,
        chosen: Box::default(),
        session_start: SessionMatchStartByHost {
            advertisement: AdvertisementId::from_bytes([7; 16]),
            reservations: vec![
                None,
                Some(ReservationId::from_bytes([2; 16])),
                Some(ReservationId::from_bytes([3; 16])),
            ],
            request_digest: [1; 16],
        },
    };
    begin_match_started_by_host(&rules(), new_match, START)
}

fn of_peer() -> Match {
    begun(Assignment::PeerHost { host: client_key(10) })
}

fn of_game_server() -> Match {
    let advertisement = AdvertisementId::from_bytes([7; 16]);
    begun(Assignment::GameServer { advertisement, reservation: None, connect_data: Vec::new() })
}

fn apply(current: &Match, event: MatchEvent, ms: u64) -> Transition {
    apply_event(&rules(), current, event, &NO_FACTS, START.plus_ms(ms))
}

fn left(n: u8, users: &[u8]) -> MatchEvent {
    let users = users.iter().map(|n| user_key(*n)).collect();
    MatchEvent::PlayersLeft { ticket_id: ticket_id(n), users, left_by: None }
}

#[test]
fn session_match_begins_in_play_and_loses_a_silent_host() {
    for current in [of_peer(), of_game_server()] {
        assert_eq!((stage_name(&current).as_str(), current.version), ("playing", 1));
        assert_eq!(current.stage.deadline(), Some(START.plus_ms(HOST_LOSS_MS)));
        let lost = apply(&current, MatchEvent::DeadlinePassed, HOST_LOSS_MS);
        assert_eq!(stage_name(&lost.next_match.unwrap()), "HostLost");
        assert_eq!((lost.penalized_users, lost.effects), (vec![], vec![]), "no cooldown, and no seats to release");
    }
}

#[test]
fn tickets_of_a_session_match_never_wait() {
    let server = of_game_server();
    let failed = MatchEvent::ServerFailed { host: server.stage.assignment_in_play().unwrap().clone() };
    for event in [failed, MatchEvent::Cancelled] {
        let ended = apply(&server, event, 1_000);
        let cancelled = TicketFate::Ended(TicketEndReason::EndedByServer);
        assert_eq!(ended.ticket_fates, [1, 2, 3].map(|n| (ticket_id(n), cancelled)));
    }
}

#[test]
fn player_leaves_a_session_match_without_a_cooldown() {
    let one = apply(&of_peer(), left(2, &[20]), 1_000);
    assert_eq!((one.ticket_fates.len(), one.penalized_users.len()), (0, 0));
    let party = apply(&one.next_match.unwrap(), left(2, &[21]), 2_000);
    assert_eq!(party.ticket_fates, [(ticket_id(2), TicketFate::Ended(TicketEndReason::Left))]);
    assert_eq!(party.penalized_users, []);
    let host = apply(&of_peer(), left(1, &[10]), 1_000);
    assert_eq!((stage_name(&host.next_match.unwrap()).as_str(), host.penalized_users), ("HostLost", vec![]));
}

/// Decision after both sides have reported alike, while the window runs and at its end, if `heard` tickets were heard.
fn decisions(current: &Match, reporters: [u8; 2], heard: &[u8]) -> [ReportDecision; 2] {
    let was_heard = |id: TicketId| heard.iter().any(|n| ticket_id(*n) == id);
    let claim = PlayerResultClaim { ranks: vec![1, 2], disconnected: Vec::new(), duration_ms: None };
    let (mut current, mut open) = (current.clone(), ReportDecision::Wait);
    for reporter in reporters {
        let users = [user_key(reporter)];
        let (transition, decision) =
            apply_side_report(&rules(), &current, &users, &claim, &was_heard, OutageTimes::NONE, START);
        (current, open) = (transition.next_match.unwrap_or(current), decision);
    }
    let due_at = START.plus_ms(REPORT_WINDOW_MS);
    let (_, closed) = apply_report_window_end(&rules(), &current, &was_heard, OutageTimes::NONE, due_at);
    [open, closed]
}

/// More than half of the roster must be heard, and each side: in a match of a queue neither is needed if the sides agree.
#[test]
fn session_match_needs_more_than_half_of_its_roster() {
    let result = ReportDecision::Result(vec![1, 2]);
    // The tickets of the reporters are heard: four of six players.
    assert_eq!(decisions(&of_peer(), [10, 20], &[])[0], result);
    // Both reporters are of one side.
    let held = [ReportDecision::Wait, ReportDecision::Held(vec![1, 2])];
    assert_eq!(decisions(&of_peer(), [10, 11], &[]), held);
    let heard = [ReportDecision::Wait, result.clone()];
    assert_eq!(decisions(&of_peer(), [10, 11], &[2]), heard, "the silent side was heard");
    // With a party of four who were not heard, the reporters are half of the roster.
    let mut large = of_peer();
    let more = [32, 33].map(|n| MatchPlayer {
        user: user_key(n),
        client: client_key(n),
        ..large.tickets[2].players[0].clone()
    });
    large.tickets[2].players.extend(more);
    assert_eq!(decisions(&large, [10, 20], &[]), held);
    assert_eq!(decisions(&large, [10, 20], &[3])[0], result);
    let of_queue = Match { session_match_start_by_host: None, ..large };
    assert_eq!(decisions(&of_queue, [10, 20], &[])[0], result);
}

/// A player who leaves at once has not been heard: the host cannot rate a player who never wanted the match.
#[test]
fn leaving_at_once_is_no_sign_of_life_in_a_session_match() {
    let mut current = of_peer();
    for n in [2, 3] {
        current = apply(&current, left(n, &[]), 1).next_match.unwrap();
    }
    let held = [ReportDecision::Wait, ReportDecision::Held(vec![1, 2])];
    assert_eq!(decisions(&current, [10, 11], &[]), held);
    let of_queue = Match { session_match_start_by_host: None, ..current };
    assert_eq!(decisions(&of_queue, [10, 11], &[])[1], ReportDecision::Result(vec![1, 2]));
}

#[test]
fn reports_of_a_session_match_rate_only_players_who_were_heard() {
    let mut current = of_peer();
    current.side_reports.add_ticket_heard_in_play(ticket_id(2));
    let ratable = [10, 20, 21, 30].map(|n| current.is_user_ratable_by_reports(user_key(n)));
    assert_eq!(ratable, [false, true, true, false]);
    current.session_match_start_by_host = None;
    assert!(current.is_user_ratable_by_reports(user_key(10)));
}
