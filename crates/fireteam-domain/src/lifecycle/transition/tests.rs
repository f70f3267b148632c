//! Every event at every stage, and what becomes of those who were in a match.

mod random_walk;

use super::*;
use crate::id::{AdvertisementId, MatchId, ReservationId, RulesetHash, SetId, SiloId};
use crate::ruleset::teams::HostingSpec;

const READY_CHECK_MS: u64 = 30_000;
const ALLOCATION_TIMEOUT_MS: u64 = 20_000;
const MAX_MATCH_MS: u64 = 3_600_000;
/// When the matches of these tests are proposed.
const START: UnixMs = UnixMs(1_000_000);

fn lifecycle_rules(ready_check_ms: Option<u32>, mode: HostingMode) -> LifecycleRules {
    let server = HostingSpec { mode, wait_ms: ALLOCATION_TIMEOUT_MS as u32, play_max_ms: MAX_MATCH_MS };
    LifecycleRules { ready_check_ms, server, past_match_retention_ms: 0 }
}

fn ready_check_rules() -> LifecycleRules {
    lifecycle_rules(Some(READY_CHECK_MS as u32), HostingMode::Advertised)
}

fn ticket_id(n: u8) -> TicketId {
    TicketId::from_bytes([n; 16])
}

fn user_key(n: u8) -> UserKey {
    UserKey::from_bytes([n; 16])
}

/// The client of that user.
fn client_key(n: u8) -> UserKey {
    UserKey::from_bytes([n | 0x80; 16])
}

fn match_ticket(n: u8, entered: u64, users: &[u8]) -> MatchTicket {
    let seat = |n: &u8| MatchPlayer { user: user_key(*n), client: client_key(*n), role: None, accepted: None };
    MatchTicket {
        ticket_id: ticket_id(n),
        entered_at: UnixMs(entered),
        team: 0,
        players: users.iter().map(seat).collect(),
    }
}

fn new_match(members: Vec<MatchTicket>) -> NewMatch {
    NewMatch {
        id: MatchId::from_bytes([9; 16]),
        set_id: SetId(1),
        silo: SiloId(1),
        ruleset_hash: RulesetHash(1),
        tickets: members,
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

fn response(n: u8, users: &[u8], accept: bool) -> MatchEvent {
    MatchEvent::Responded {
        ticket_id: ticket_id(n),
        users: users.iter().map(|&n| user_key(n)).collect(),
        accepted: accept,
    }
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

/// Plays events, a second apart, every one of which must change the match.
fn apply_all(rules: &LifecycleRules, events: &[MatchEvent]) -> (Match, Transition) {
    let (mut play, mut last, mut now) = (created_match(rules), None, START);
    for event in events {
        now = now.plus_ms(1_000);
        let stepped = apply_event(rules, &play, event.clone(), &no_open_nat, now);
        play = stepped.next_match.clone().unwrap_or_else(|| panic!("{event:?} is {:?}", stepped.result));
        last = Some(stepped);
    }
    (play, last.unwrap())
}

fn all_accept() -> [MatchEvent; 2] {
    [response(1, &[11, 12], true), response(2, &[21], true)]
}

fn stage_name(play: &Match) -> String {
    match &play.stage {
        MatchStage::ReadyCheck { .. } => "ready".into(),
        MatchStage::Placing { .. } => "placing".into(),
        MatchStage::Playing { .. } => "playing".into(),
        MatchStage::Ended { end_reason: outcome, .. } => format!("{outcome:?}"),
    }
}

/// S0-20, S0-21: every event at every stage. Columns: a ready check to which ticket 1 has agreed, placing, playing on
/// server 7, and over: reported, and cancelled. A cell is the stage that follows, or why nothing does.
#[test]
fn event_table_covers_every_stage() {
    let (early, due) = (START.plus_ms(5_000), START.plus_ms(2 * MAX_MATCH_MS));
    let (left, sent_away) = (TicketEndReason::Left, TicketEndReason::Cancelled);
    let gone = |n, how| MatchEvent::TicketWithdrawn { ticket: ticket_id(n), reason: how };
    let told = |by: Option<u8>| MatchEvent::EndReported { reported_by: by.map(user_key) };
    let found = |n| MatchEvent::ServerFound(game_server(n));
    let (failed, cancelled) = ("ServerFailed", "Cancelled");
    #[rustfmt::skip]
    let table = [
        ("agrees",          early, response(2, &[21], true),     ["placing", "Known", "Known", "Known", "Known"]),
        ("agrees again",    early, response(1, &[11], true),     ["Known"; 5]),
        ("agrees late",     due,   response(2, &[21], true),     ["TooLate", "Known", "Known", "Known", "Known"]),
        ("declines",        early, response(2, &[21], false),    ["Declined", "NotNow", "NotNow", "NotNow", "NotNow"]),
        ("changes to no",   early, response(1, &[12], false),    ["Declined", "NotNow", "NotNow", "NotNow", "NotNow"]),
        ("declines late",   due,   response(2, &[21], false),    ["TooLate", "NotNow", "NotNow", "NotNow", "NotNow"]),
        ("strange ticket",  early, response(3, &[21], true),     ["Stranger"; 5]),
        ("strange user",    early, response(1, &[11, 21], true), ["Stranger"; 5]),
        ("nobody answers",  early, response(1, &[], true),       ["Stranger"; 5]),
        ("time, early",     early, MatchEvent::DeadlinePassed,    ["TooEarly", "TooEarly", "TooEarly", "NotNow", "NotNow"]),
        ("time",            due,   MatchEvent::DeadlinePassed,    ["Unanswered", "NoServer", "Lapsed", "NotNow", "NotNow"]),
        ("this server",     early, found(7),                 ["NotNow", "playing", "Known", "NotNow", "NotNow"]),
        ("another server",  early, found(8),                 ["NotNow", "playing", "NotNow", "NotNow", "NotNow"]),
        ("server fails",    early, MatchEvent::ServerFailed,      ["NotNow", failed, failed, "NotNow", "NotNow"]),
        ("reported",        early, told(None),               ["NotNow", "NotNow", "Played", "Known", "NotNow"]),
        ("player reports",  early, told(Some(12)),           ["NotNow", "NotNow", "Played", "Known", "NotNow"]),
        ("other reports",   early, told(Some(99)),           ["Stranger"; 5]),
        ("cancelled",       early, MatchEvent::Cancelled,         [cancelled, cancelled, cancelled, "NotNow", "Known"]),
        ("leaves",          early, gone(1, left),            ["Declined", "Declined", "NotNow", "NotNow", "NotNow"]),
        ("is dismissed",    early, gone(1, sent_away),       ["Cancelled", "Cancelled", "NotNow", "NotNow", "NotNow"]),
        ("stranger leaves", early, gone(3, left),            ["Stranger"; 5]),
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
        for (play, expected) in before.iter().zip(expected) {
            let step = apply_event(&ready_check_rules(), play, event.clone(), &no_open_nat, now);
            let is = step.next_match.as_ref().map_or(format!("{:?}", step.result), stage_name);
            assert_eq!(is, expected, "{name} while {}", stage_name(play));
            assert_eq!(step.next_match.is_some(), step.result == EventResult::Changed, "{name}");
            let over = step.next_match.iter().any(|next| matches!(next.stage, MatchStage::Ended { .. }));
            assert_eq!(step.ticket_fates.len(), if over { 2 } else { 0 }, "{name}: each ticket's fate when it is over");
            assert!(step.next_match.is_none_or(|next| next.version == play.version + 1), "{name}");
        }
    }
}

/// S0-20: partial answers are kept, and the last one lets the match go on.
#[test]
fn ready_check_passes_with_the_last_acceptance() {
    let (play, step) = apply_all(&ready_check_rules(), &[response(1, &[11], true)]);
    let answers: Vec<Option<bool>> = play.tickets.iter().flat_map(|it| &it.players).map(|seat| seat.accepted).collect();
    assert_eq!(answers, [Some(true), None, None]);
    assert_eq!((step.effects, play.version), (vec![], 2));
    let (play, step) = apply_all(
        &ready_check_rules(),
        &[response(1, &[11], true), response(1, &[11, 12], true), response(2, &[21], true)],
    );
    assert_eq!(play.stage, MatchStage::Placing { deadline: START.plus_ms(3_000 + ALLOCATION_TIMEOUT_MS) });
    assert_eq!(step.effects, [MatchEffect::FindServer]);
}

/// S0-21, B-35: who declines ends and is punished; those who agreed and those who had not answered yet go back; a party
/// is not split by it.
#[test]
fn decline_ends_the_decliner_and_requeues_the_others() {
    let (play, step) = apply_all(&ready_check_rules(), &[response(1, &[12], false)]);
    assert_eq!(
        step.ticket_fates,
        [(ticket_id(1), TicketFate::Ended(TicketEndReason::Declined)), (ticket_id(2), TicketFate::Requeued)]
    );
    assert_eq!(step.penalized_users, [user_key(12)], "and not the friend, who said nothing");
    assert_eq!(
        play.stage,
        MatchStage::Ended {
            end_reason: MatchEndReason::Declined,
            began: None,
            place: None,
            purge_at: START.plus_ms(1_000 + ENDED_MATCH_RETENTION_MS)
        }
    );
    let members = created_match(&ready_check_rules()).tickets;
    let entered: Vec<(TicketId, UnixMs)> = play.tickets.iter().map(|it| (it.ticket_id, it.entered_at)).collect();
    assert_eq!(entered, members.iter().map(|it| (it.ticket_id, it.entered_at)).collect::<Vec<_>>());
}

/// S0-21, B-35: at the deadline the silent are absent and punished; those who agreed go back.
#[test]
fn ready_check_timeout_ends_tickets_that_did_not_accept() {
    let (play, _) = apply_all(&ready_check_rules(), &[response(1, &[11], true), response(2, &[21], true)]);
    let step = apply_event(
        &ready_check_rules(),
        &play,
        MatchEvent::DeadlinePassed,
        &no_open_nat,
        START.plus_ms(READY_CHECK_MS),
    );
    assert_eq!(
        step.ticket_fates,
        [(ticket_id(1), TicketFate::Ended(TicketEndReason::NotAcceptedInTime)), (ticket_id(2), TicketFate::Requeued)]
    );
    assert_eq!(step.penalized_users, [user_key(12)]);
}

#[test]
fn ready_check_deadline_is_exclusive() {
    let play = created_match(&ready_check_rules());
    let at = |ms, event| apply_event(&ready_check_rules(), &play, event, &no_open_nat, START.plus_ms(ms)).result;
    assert_eq!(at(READY_CHECK_MS - 1, response(1, &[11], true)), EventResult::Changed);
    assert_eq!(at(READY_CHECK_MS, response(1, &[11], true)), EventResult::TooLate);
    assert_eq!(at(READY_CHECK_MS - 1, MatchEvent::DeadlinePassed), EventResult::TooEarly);
    assert_eq!(at(READY_CHECK_MS, MatchEvent::DeadlinePassed), EventResult::Changed);
}

/// S0-21: nobody is punished for a server's fault, and all wait on.
#[test]
fn missing_server_requeues_all_tickets_without_penalty() {
    let [one, two] = all_accept();
    let (play, _) = apply_all(&ready_check_rules(), &[one.clone(), two.clone()]);
    let late = apply_event(
        &ready_check_rules(),
        &play,
        MatchEvent::DeadlinePassed,
        &no_open_nat,
        START.plus_ms(2_000 + ALLOCATION_TIMEOUT_MS),
    );
    let (_, failed) = apply_all(&ready_check_rules(), &[one.clone(), two.clone(), MatchEvent::ServerFailed]);
    let (_, gave_up) =
        apply_all(&ready_check_rules(), &[one, two, MatchEvent::ServerFound(game_server(7)), MatchEvent::ServerFailed]);
    for step in [&late, &failed, &gave_up] {
        assert_eq!(step.ticket_fates, [(ticket_id(1), TicketFate::Requeued), (ticket_id(2), TicketFate::Requeued)]);
        assert_eq!(step.penalized_users, []);
        assert!(matches!(step.next_match.as_ref().unwrap().stage, MatchStage::Ended { began: None, .. }));
    }
    assert_eq!((late.effects, failed.effects, gave_up.effects), (vec![], vec![], vec![release_of(7)]));
}

#[test]
fn leave_before_play_ends_the_ticket_and_requeues_the_others() {
    let [one, two] = all_accept();
    let gone = |how| MatchEvent::TicketWithdrawn { ticket: ticket_id(1), reason: how };
    let (_, left) = apply_all(&ready_check_rules(), &[one.clone(), two.clone(), gone(TicketEndReason::Left)]);
    assert_eq!(
        left.ticket_fates,
        [(ticket_id(1), TicketFate::Ended(TicketEndReason::Left)), (ticket_id(2), TicketFate::Requeued)]
    );
    assert_eq!(left.penalized_users, [user_key(11), user_key(12)]);
    let (_, dismissed) = apply_all(&ready_check_rules(), &[one, two, gone(TicketEndReason::Cancelled)]);
    assert_eq!(
        dismissed.ticket_fates,
        [(ticket_id(1), TicketFate::Ended(TicketEndReason::Cancelled)), (ticket_id(2), TicketFate::Requeued)]
    );
    assert_eq!(dismissed.penalized_users, [], "whoever is sent away has done nothing");
}

#[test]
fn unneeded_reservation_is_released() {
    let [one, two] = all_accept();
    let (play, _) =
        apply_all(&ready_check_rules(), &[one.clone(), two.clone(), MatchEvent::ServerFound(game_server(7))]);
    let second = apply_event(
        &ready_check_rules(),
        &play,
        MatchEvent::ServerFound(game_server(8)),
        &no_open_nat,
        START.plus_ms(9_000),
    );
    assert_eq!((second.result, second.effects), (EventResult::WrongStage, vec![release_of(8)]));
    let again = apply_event(
        &ready_check_rules(),
        &play,
        MatchEvent::ServerFound(game_server(7)),
        &no_open_nat,
        START.plus_ms(9_000),
    );
    assert_eq!((again.result, again.effects), (EventResult::AlreadyApplied, vec![]), "these are the ones it plays on");
    let (over, _) = apply_all(&ready_check_rules(), &[one, two, MatchEvent::Cancelled]);
    let late = apply_event(
        &ready_check_rules(),
        &over,
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
    let (play, begins) = apply_all(&rules, &[one, two, MatchEvent::ServerFound(game_server(7))]);
    let began = START.plus_ms(3_000);
    assert_eq!(begins.effects, [MatchEffect::StartPlay]);
    assert_eq!(
        play.stage,
        MatchStage::Playing {
            assignment: game_server(7),
            started_at: began,
            times_out_at: began.plus_ms(MAX_MATCH_MS)
        }
    );
    let reported =
        apply_event(&rules, &play, MatchEvent::EndReported { reported_by: None }, &no_open_nat, START.plus_ms(9_000));
    let lapsed = apply_event(&rules, &play, MatchEvent::DeadlinePassed, &no_open_nat, began.plus_ms(MAX_MATCH_MS));
    for (step, outcome) in [(reported, MatchEndReason::Played), (lapsed, MatchEndReason::TimedOut)] {
        let played = TicketFate::Ended(TicketEndReason::Played);
        assert_eq!(step.ticket_fates, [(ticket_id(1), played), (ticket_id(2), played)]);
        assert_eq!((step.penalized_users, step.effects), (vec![], vec![release_of(7)]));
        let forget_at = began.plus_ms(10 * ENDED_MATCH_RETENTION_MS);
        assert_eq!(
            step.next_match.unwrap().stage,
            MatchStage::Ended {
                end_reason: outcome,
                began: Some(began),
                place: Some(game_server(7)),
                purge_at: forget_at
            }
        );
    }
}

#[test]
fn match_without_ready_check_starts_with_placement() {
    let want = create_match(&lifecycle_rules(None, HostingMode::Advertised), two_tickets(), &no_open_nat, START);
    assert_eq!(want.effects, [MatchEffect::FindServer]);
    assert_eq!(want.next_match.unwrap().stage, MatchStage::Placing { deadline: START.plus_ms(ALLOCATION_TIMEOUT_MS) });
    let play = create_match(&lifecycle_rules(None, HostingMode::None), two_tickets(), &no_open_nat, START);
    assert_eq!(
        (play.result, play.effects, play.ticket_fates),
        (EventResult::Changed, vec![MatchEffect::StartPlay], vec![])
    );
    let play = play.next_match.unwrap();
    assert_eq!((play.version, play.proposed_at), (1, START));
    assert_eq!(
        play.stage,
        MatchStage::Playing {
            assignment: Assignment::Unhosted,
            started_at: START,
            times_out_at: START.plus_ms(MAX_MATCH_MS)
        }
    );
}

#[test]
fn backfill_waits_for_seats_in_every_hosting_mode() {
    let joins = NewMatch { backfilled_session: Some(AdvertisementId::from_bytes([5; 16])), ..two_tickets() };
    for mode in [HostingMode::Advertised, HostingMode::Peer, HostingMode::None] {
        let step = create_match(&lifecycle_rules(None, mode), joins.clone(), &no_open_nat, START);
        assert_eq!(step.effects, [MatchEffect::FindServer], "{mode:?}");
    }
}

/// The host: an open NAT first, then who has waited longest, ties by id.
#[test]
fn peer_host_is_reachable_or_has_waited_longest() {
    let host = |members: &[MatchTicket], open: &[u8]| {
        let step = create_match(
            &lifecycle_rules(None, HostingMode::Peer),
            new_match(members.to_vec()),
            &|it| open.iter().any(|n| ticket_id(*n) == it),
            START,
        );
        let MatchStage::Playing { assignment: Assignment::PeerHost { host }, .. } = step.next_match.unwrap().stage
        else {
            panic!()
        };
        host
    };
    let members = [match_ticket(1, 500, &[11, 10]), match_ticket(2, 400, &[21]), match_ticket(3, 400, &[20])];
    assert_eq!(host(&members, &[]), client_key(20), "waited longest, and comes first of two");
    assert_eq!(host(&members, &[1, 2]), client_key(21), "waited longest of those who can be reached");
    assert_eq!(host(&members, &[1]), client_key(10), "the first of the party");
}

#[test]
fn unhosted_match_starts_with_the_last_acceptance() {
    let (play, step) = apply_all(&lifecycle_rules(Some(1_000_000), HostingMode::None), &all_accept());
    assert_eq!((stage_name(&play), step.effects), ("playing".to_owned(), vec![MatchEffect::StartPlay]));
}
