//! Every event at every stage, and the new state of the match's tickets.

mod random_walk;

use super::*;
use crate::id::{AdvertisementId, MatchId, ReservationId, RulesetHash, SetId, SiloId};
use crate::ruleset::teams::HostingSpec;

const READY_CHECK_MS: u64 = 30_000;
const ALLOCATION_TIMEOUT_MS: u64 = 20_000;
const MAX_MATCH_MS: u64 = 3_600_000;
/// Time of the proposals in these tests.
const START: UnixMs = UnixMs(1_000_000);

fn lifecycle_rules(ready_check_ms: Option<u32>, mode: HostingMode) -> LifecycleRules {
    let hosting = HostingSpec { mode, allocation_timeout_ms: ALLOCATION_TIMEOUT_MS as u32, max_match_ms: MAX_MATCH_MS };
    LifecycleRules { ready_check_ms, hosting, past_match_retention_ms: 0 }
}

fn ready_check_rules() -> LifecycleRules {
    lifecycle_rules(Some(READY_CHECK_MS as u32), HostingMode::GameServer)
}

fn ticket_id(n: u8) -> TicketId {
    TicketId::from_bytes([n; 16])
}

fn user_key(n: u8) -> UserKey {
    UserKey::from_bytes([n; 16])
}

/// Client of user `n`.
fn client_key(n: u8) -> UserKey {
    UserKey::from_bytes([n | 0x80; 16])
}

fn match_ticket(n: u8, entered_at: u64, users: &[u8]) -> MatchTicket {
    let player = |n: &u8| MatchPlayer { user: user_key(*n), client: client_key(*n), role: None, accepted: None };
    MatchTicket {
        ticket_id: ticket_id(n),
        entered_at: UnixMs(entered_at),
        team: 0,
        players: users.iter().map(player).collect(),
    }
}

fn new_match(tickets: Vec<MatchTicket>) -> NewMatch {
    NewMatch {
        id: MatchId::from_bytes([9; 16]),
        set_id: SetId(1),
        silo: SiloId(1),
        ruleset_hash: RulesetHash(1),
        tickets,
        quality: 0.0,
        region: None,
        backfilled_session: None,
    }
}

/// Ticket 1 with users 11 and 12, ticket 2 with user 21.
fn two_tickets() -> NewMatch {
    new_match(vec![match_ticket(1, 500, &[11, 12]), match_ticket(2, 400, &[21])])
}

fn no_open_nat(_: TicketId) -> bool {
    false
}

fn created_match(rules: &LifecycleRules) -> Match {
    create_match(rules, two_tickets(), &no_open_nat, START).next_match.unwrap()
}

fn response(n: u8, users: &[u8], accepted: bool) -> MatchEvent {
    MatchEvent::Responded { ticket_id: ticket_id(n), users: users.iter().map(|&n| user_key(n)).collect(), accepted }
}

fn game_server(n: u8) -> Assignment {
    Assignment::GameServer {
        advertisement: AdvertisementId::from_bytes([n; 16]),
        reservation: ReservationId::from_bytes([n; 16]),
        connect_data: vec![n],
    }
}

fn release_of(n: u8) -> MatchEffect {
    let (advertisement, reservation) = (AdvertisementId::from_bytes([n; 16]), ReservationId::from_bytes([n; 16]));
    MatchEffect::ReleaseReservation { advertisement, reservation }
}

/// Applies events one second apart. Each of them must change the match.
fn apply_all(rules: &LifecycleRules, events: &[MatchEvent]) -> (Match, Transition) {
    let (mut current, mut last, mut now) = (created_match(rules), None, START);
    for event in events {
        now = now.plus_ms(1_000);
        let transition = apply_event(rules, &current, event.clone(), &no_open_nat, now);
        current = transition.next_match.clone().unwrap_or_else(|| panic!("{event:?} is {:?}", transition.result));
        last = Some(transition);
    }
    (current, last.unwrap())
}

fn all_accept() -> [MatchEvent; 2] {
    [response(1, &[11, 12], true), response(2, &[21], true)]
}

fn stage_name(current: &Match) -> String {
    match &current.stage {
        MatchStage::ReadyCheck { .. } => "ready".into(),
        MatchStage::Placing { .. } => "placing".into(),
        MatchStage::Playing { .. } => "playing".into(),
        MatchStage::Ended { end_reason, .. } => format!("{end_reason:?}"),
    }
}

/// S0-20, S0-21: every event at every stage. Stages: ready check accepted by ticket 1, placing, playing on game server
/// 7, ended by report, cancelled. A cell is the next stage, or the result if nothing changes.
#[test]
fn event_table_covers_every_stage() {
    let (early, due) = (START.plus_ms(5_000), START.plus_ms(2 * MAX_MATCH_MS));
    let (left, by_operator) = (TicketEndReason::Left, TicketEndReason::Cancelled);
    let withdrawn = |n, reason| MatchEvent::TicketWithdrawn { ticket_id: ticket_id(n), reason };
    let reported = |by: Option<u8>| MatchEvent::EndReported { reported_by: by.map(user_key) };
    let found = |n| MatchEvent::ServerFound(game_server(n));
    let (failed, cancelled) = ("ServerFailed", "Cancelled");
    let (applied, wrong, unknown) = ("AlreadyApplied", "WrongStage", "UnknownParticipant");
    #[rustfmt::skip]
    let table = [
        ("accepts",         early, response(2, &[21], true),     ["placing", applied, applied, applied, applied]),
        ("accepts again",   early, response(1, &[11], true),     [applied; 5]),
        ("accepts late",    due,   response(2, &[21], true),     ["TooLate", applied, applied, applied, applied]),
        ("declines",        early, response(2, &[21], false),    ["Declined", wrong, wrong, wrong, wrong]),
        ("then declines",   early, response(1, &[12], false),    ["Declined", wrong, wrong, wrong, wrong]),
        ("declines late",   due,   response(2, &[21], false),    ["TooLate", wrong, wrong, wrong, wrong]),
        ("unknown ticket",  early, response(3, &[21], true),     [unknown; 5]),
        ("unknown user",    early, response(1, &[11, 21], true), [unknown; 5]),
        ("no users",        early, response(1, &[], true),       [unknown; 5]),
        ("deadline, early", early, MatchEvent::DeadlinePassed,   ["TooEarly", "TooEarly", "TooEarly", wrong, wrong]),
        ("deadline",        due,   MatchEvent::DeadlinePassed,   ["NotAcceptedInTime", "NoServer", "TimedOut", wrong, wrong]),
        ("this server",     early, found(7),                     [wrong, "playing", applied, wrong, wrong]),
        ("another server",  early, found(8),                     [wrong, "playing", wrong, wrong, wrong]),
        ("server fails",    early, MatchEvent::ServerFailed,     [wrong, failed, failed, wrong, wrong]),
        ("reported",        early, reported(None),               [wrong, wrong, "Played", applied, wrong]),
        ("player reports",  early, reported(Some(12)),           [wrong, wrong, "Played", applied, wrong]),
        ("unknown reports", early, reported(Some(99)),           [unknown; 5]),
        ("cancelled",       early, MatchEvent::Cancelled,        [cancelled, cancelled, cancelled, wrong, applied]),
        ("leaves",          early, withdrawn(1, left),           ["Declined", "Declined", wrong, wrong, wrong]),
        ("is cancelled",    early, withdrawn(1, by_operator),    ["Cancelled", "Cancelled", wrong, wrong, wrong]),
        ("unknown leaves",  early, withdrawn(3, left),           [unknown; 5]),
    ];
    let [one, two] = all_accept();
    let found = found(7);
    let before = [
        apply_all(&ready_check_rules(), std::slice::from_ref(&one)).0,
        apply_all(&ready_check_rules(), &[one.clone(), two.clone()]).0,
        apply_all(&ready_check_rules(), &[one.clone(), two.clone(), found.clone()]).0,
        apply_all(
            &ready_check_rules(),
            &[one.clone(), two.clone(), found.clone(), MatchEvent::EndReported { reported_by: None }],
        )
        .0,
        apply_all(&ready_check_rules(), &[one, two, MatchEvent::Cancelled]).0,
    ];
    for (name, now, event, expected) in table {
        for (current, expected) in before.iter().zip(expected) {
            let transition = apply_event(&ready_check_rules(), current, event.clone(), &no_open_nat, now);
            let outcome = transition.next_match.as_ref().map_or(format!("{:?}", transition.result), stage_name);
            assert_eq!(outcome, expected, "{name} while {}", stage_name(current));
            assert_eq!(transition.next_match.is_some(), transition.result == EventResult::Changed, "{name}");
            let ended = transition.next_match.iter().any(|next| matches!(next.stage, MatchStage::Ended { .. }));
            assert_eq!(
                transition.ticket_fates.len(),
                if ended { 2 } else { 0 },
                "{name}: all tickets get a state when the match ends"
            );
            assert!(transition.next_match.is_none_or(|next| next.version == current.version + 1), "{name}");
        }
    }
}

/// S0-20: single acceptances are kept, and the last one moves the match on.
#[test]
fn ready_check_passes_with_the_last_acceptance() {
    let (current, transition) = apply_all(&ready_check_rules(), &[response(1, &[11], true)]);
    let responses: Vec<Option<bool>> =
        current.tickets.iter().flat_map(|it| &it.players).map(|player| player.accepted).collect();
    assert_eq!(responses, [Some(true), None, None]);
    assert_eq!((transition.effects, current.version), (vec![], 2));
    let (current, transition) = apply_all(
        &ready_check_rules(),
        &[response(1, &[11], true), response(1, &[11, 12], true), response(2, &[21], true)],
    );
    assert_eq!(current.stage, MatchStage::Placing { deadline: START.plus_ms(3_000 + ALLOCATION_TIMEOUT_MS) });
    assert_eq!(transition.effects, [MatchEffect::FindServer]);
}

/// S0-21, B-35: the ticket of a player who declines ends, and that player is penalized. Other tickets are requeued,
/// also if they have not responded. A party stays together.
#[test]
fn decline_ends_the_decliner_and_requeues_the_others() {
    let (current, transition) = apply_all(&ready_check_rules(), &[response(1, &[12], false)]);
    assert_eq!(
        transition.ticket_fates,
        [(ticket_id(1), TicketFate::Ended(TicketEndReason::Declined)), (ticket_id(2), TicketFate::Requeued)]
    );
    assert_eq!(transition.penalized_users, [user_key(12)], "the silent party member is not penalized");
    assert_eq!(
        current.stage,
        MatchStage::Ended {
            end_reason: MatchEndReason::Declined,
            started_at: None,
            assignment: None,
            purge_at: START.plus_ms(1_000 + ENDED_MATCH_RETENTION_MS)
        }
    );
    let tickets = created_match(&ready_check_rules()).tickets;
    let entered_at: Vec<(TicketId, UnixMs)> = current.tickets.iter().map(|it| (it.ticket_id, it.entered_at)).collect();
    assert_eq!(entered_at, tickets.iter().map(|it| (it.ticket_id, it.entered_at)).collect::<Vec<_>>());
}

/// S0-21, B-35: at the deadline, tickets that did not accept end, and their silent players are penalized. The others
/// are requeued.
#[test]
fn ready_check_timeout_ends_tickets_that_did_not_accept() {
    let (current, _) = apply_all(&ready_check_rules(), &[response(1, &[11], true), response(2, &[21], true)]);
    let transition = apply_event(
        &ready_check_rules(),
        &current,
        MatchEvent::DeadlinePassed,
        &no_open_nat,
        START.plus_ms(READY_CHECK_MS),
    );
    assert_eq!(
        transition.ticket_fates,
        [(ticket_id(1), TicketFate::Ended(TicketEndReason::NotAcceptedInTime)), (ticket_id(2), TicketFate::Requeued)]
    );
    assert_eq!(transition.penalized_users, [user_key(12)]);
}

#[test]
fn ready_check_deadline_is_exclusive() {
    let current = created_match(&ready_check_rules());
    let at = |ms, event| apply_event(&ready_check_rules(), &current, event, &no_open_nat, START.plus_ms(ms)).result;
    assert_eq!(at(READY_CHECK_MS - 1, response(1, &[11], true)), EventResult::Changed);
    assert_eq!(at(READY_CHECK_MS, response(1, &[11], true)), EventResult::TooLate);
    assert_eq!(at(READY_CHECK_MS - 1, MatchEvent::DeadlinePassed), EventResult::TooEarly);
    assert_eq!(at(READY_CHECK_MS, MatchEvent::DeadlinePassed), EventResult::Changed);
}

/// S0-21: a failed game server penalizes no player, and all tickets are requeued.
#[test]
fn missing_server_requeues_all_tickets_without_penalty() {
    let [one, two] = all_accept();
    let (current, _) = apply_all(&ready_check_rules(), &[one.clone(), two.clone()]);
    let late = apply_event(
        &ready_check_rules(),
        &current,
        MatchEvent::DeadlinePassed,
        &no_open_nat,
        START.plus_ms(2_000 + ALLOCATION_TIMEOUT_MS),
    );
    let (_, failed) = apply_all(&ready_check_rules(), &[one.clone(), two.clone(), MatchEvent::ServerFailed]);
    let (_, given_up) =
        apply_all(&ready_check_rules(), &[one, two, MatchEvent::ServerFound(game_server(7)), MatchEvent::ServerFailed]);
    for transition in [&late, &failed, &given_up] {
        assert_eq!(
            transition.ticket_fates,
            [(ticket_id(1), TicketFate::Requeued), (ticket_id(2), TicketFate::Requeued)]
        );
        assert_eq!(transition.penalized_users, []);
        assert!(matches!(transition.next_match.as_ref().unwrap().stage, MatchStage::Ended { started_at: None, .. }));
    }
    assert_eq!((late.effects, failed.effects, given_up.effects), (vec![], vec![], vec![release_of(7)]));
}

#[test]
fn leave_before_play_ends_the_ticket_and_requeues_the_others() {
    let [one, two] = all_accept();
    let withdrawn = |reason| MatchEvent::TicketWithdrawn { ticket_id: ticket_id(1), reason };
    let (_, left) = apply_all(&ready_check_rules(), &[one.clone(), two.clone(), withdrawn(TicketEndReason::Left)]);
    assert_eq!(
        left.ticket_fates,
        [(ticket_id(1), TicketFate::Ended(TicketEndReason::Left)), (ticket_id(2), TicketFate::Requeued)]
    );
    assert_eq!(left.penalized_users, [user_key(11), user_key(12)]);
    let (_, cancelled) = apply_all(&ready_check_rules(), &[one, two, withdrawn(TicketEndReason::Cancelled)]);
    assert_eq!(
        cancelled.ticket_fates,
        [(ticket_id(1), TicketFate::Ended(TicketEndReason::Cancelled)), (ticket_id(2), TicketFate::Requeued)]
    );
    assert_eq!(cancelled.penalized_users, [], "a cancelled ticket is not penalized");
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
        &no_open_nat,
        START.plus_ms(9_000),
    );
    assert_eq!((second.result, second.effects), (EventResult::WrongStage, vec![release_of(8)]));
    let again = apply_event(
        &ready_check_rules(),
        &current,
        MatchEvent::ServerFound(game_server(7)),
        &no_open_nat,
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
        &no_open_nat,
        START.plus_ms(9_000),
    );
    assert_eq!(late.effects, [release_of(8)]);
}

#[test]
fn match_ends_by_report_or_timeout_and_is_kept_for_avoid_rules() {
    let rules = LifecycleRules { past_match_retention_ms: 10 * ENDED_MATCH_RETENTION_MS, ..ready_check_rules() };
    let [one, two] = all_accept();
    let (current, transition) = apply_all(&rules, &[one, two, MatchEvent::ServerFound(game_server(7))]);
    let started_at = START.plus_ms(3_000);
    assert_eq!(transition.effects, [MatchEffect::StartPlay]);
    assert_eq!(
        current.stage,
        MatchStage::Playing { assignment: game_server(7), started_at, times_out_at: started_at.plus_ms(MAX_MATCH_MS) }
    );
    let reported = apply_event(
        &rules,
        &current,
        MatchEvent::EndReported { reported_by: None },
        &no_open_nat,
        START.plus_ms(9_000),
    );
    let timed_out =
        apply_event(&rules, &current, MatchEvent::DeadlinePassed, &no_open_nat, started_at.plus_ms(MAX_MATCH_MS));
    for (transition, end_reason) in [(reported, MatchEndReason::Played), (timed_out, MatchEndReason::TimedOut)] {
        let played = TicketFate::Ended(TicketEndReason::Played);
        assert_eq!(transition.ticket_fates, [(ticket_id(1), played), (ticket_id(2), played)]);
        assert_eq!((transition.penalized_users, transition.effects), (vec![], vec![release_of(7)]));
        let purge_at = started_at.plus_ms(10 * ENDED_MATCH_RETENTION_MS);
        assert_eq!(
            transition.next_match.unwrap().stage,
            MatchStage::Ended { end_reason, started_at: Some(started_at), assignment: Some(game_server(7)), purge_at }
        );
    }
}

#[test]
fn match_without_ready_check_starts_with_placement() {
    let transition = create_match(&lifecycle_rules(None, HostingMode::GameServer), two_tickets(), &no_open_nat, START);
    assert_eq!(transition.effects, [MatchEffect::FindServer]);
    assert_eq!(
        transition.next_match.unwrap().stage,
        MatchStage::Placing { deadline: START.plus_ms(ALLOCATION_TIMEOUT_MS) }
    );
    let current = create_match(&lifecycle_rules(None, HostingMode::None), two_tickets(), &no_open_nat, START);
    assert_eq!(
        (current.result, current.effects, current.ticket_fates),
        (EventResult::Changed, vec![MatchEffect::StartPlay], vec![])
    );
    let current = current.next_match.unwrap();
    assert_eq!((current.version, current.proposed_at), (1, START));
    assert_eq!(
        current.stage,
        MatchStage::Playing {
            assignment: Assignment::Unhosted,
            started_at: START,
            times_out_at: START.plus_ms(MAX_MATCH_MS)
        }
    );
}

#[test]
fn backfill_waits_for_seats_in_every_hosting_mode() {
    let backfill = NewMatch { backfilled_session: Some(AdvertisementId::from_bytes([5; 16])), ..two_tickets() };
    for mode in [HostingMode::GameServer, HostingMode::Peer, HostingMode::None] {
        let transition = create_match(&lifecycle_rules(None, mode), backfill.clone(), &no_open_nat, START);
        assert_eq!(transition.effects, [MatchEffect::FindServer], "{mode:?}");
    }
}

/// The host has an open NAT, then the longest wait; ties by client key.
#[test]
fn peer_host_is_reachable_or_has_waited_longest() {
    let host = |tickets: &[MatchTicket], open: &[u8]| {
        let transition = create_match(
            &lifecycle_rules(None, HostingMode::Peer),
            new_match(tickets.to_vec()),
            &|it| open.iter().any(|n| ticket_id(*n) == it),
            START,
        );
        let MatchStage::Playing { assignment: Assignment::PeerHost { host }, .. } =
            transition.next_match.unwrap().stage
        else {
            panic!()
        };
        host
    };
    let tickets = [match_ticket(1, 500, &[11, 10]), match_ticket(2, 400, &[21]), match_ticket(3, 400, &[20])];
    assert_eq!(host(&tickets, &[]), client_key(20), "longest wait, lower client key");
    assert_eq!(host(&tickets, &[1, 2]), client_key(21), "longest wait of those with an open NAT");
    assert_eq!(host(&tickets, &[1]), client_key(10), "lowest client key of the party");
}

#[test]
fn unhosted_match_starts_with_the_last_acceptance() {
    let (current, transition) = apply_all(&lifecycle_rules(Some(1_000_000), HostingMode::None), &all_accept());
    assert_eq!((stage_name(&current), transition.effects), ("playing".to_owned(), vec![MatchEffect::StartPlay]));
}
