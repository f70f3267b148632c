//! Every event at every stage, and the new state of the match's tickets.

mod exhaustive_walk;
mod host;
mod leave;
mod outages;
mod random_walk;
mod report;
mod session_match;

use super::*;
use crate::available_time::OutageTimes;
use crate::id::{AdvertisementId, MatchId, ReservationId, RulesetHash, SetId, SiloId};
use crate::lifecycle::event::MatchEffect;
use crate::lifecycle::rules::ENDED_MATCH_RETENTION_MS;
use crate::lifecycle::{Assignment, MatchTicket, TicketFate};
use crate::queue::ticket::TicketEndReason;
use crate::ruleset::teams::{AllocatorOfferSpec, GameServerOrder, HostingMode, HostingSpec, PlayerDataForHost};

const READY_CHECK_MS: u64 = 30_000;
const ALLOCATION_TIMEOUT_MS: u64 = 20_000;
const MAX_MATCH_MS: u64 = 3_600_000;
const CONFIRM_MS: u64 = 6_000;
/// Time for the other sides to report.
const REPORT_WINDOW_MS: u64 = 300_000;
const HOST_LOSS_MS: u64 = 90_000;
/// Time of the proposals in these tests.
const START: UnixMs = UnixMs(1_000_000);

fn lifecycle_rules(ready_check_ms: Option<u32>, mode: HostingMode) -> LifecycleRules {
    let hosting = HostingSpec {
        mode,
        allocation_timeout_ms: ALLOCATION_TIMEOUT_MS as u32,
        max_match_ms: MAX_MATCH_MS,
        confirm_ms: CONFIRM_MS as u32,
        host_loss_ms: HOST_LOSS_MS as u32,
        report_window_ms: REPORT_WINDOW_MS as u32,
        game_server_order: GameServerOrder::BestScore,
        max_round_trip_ms: None,
        allocator_offers: AllocatorOfferSpec::NO_OFFERS,
        host_data: PlayerDataForHost::default(),
    };
    LifecycleRules { ready_check_ms, hosting, hosts_confirm: true, past_match_retention_ms: 0 }
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
    let player =
        |n: &u8| MatchPlayer { user: user_key(*n), client: client_key(*n), role: None, accepted: None, left_at: None };
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
        chosen_values: Box::default(),
        bots_by_team: Box::default(),
        worst_pair: None,
    }
}

/// Ticket 1 with users 11 and 12, ticket 2 with user 21.
fn two_tickets() -> NewMatch {
    new_match(vec![match_ticket(1, 500, &[11, 12]), match_ticket(2, 400, &[21])])
}

/// Facts about the tickets of a match.
#[derive(Default)]
struct Facts {
    open_nat: Vec<TicketId>,
    expired: Vec<TicketId>,
    /// Two tickets and the round trip between them, milliseconds.
    round_trips: Vec<(TicketId, TicketId, f64)>,
    outages: Option<OutageTimes>,
    /// Users whose clients were not told of the match.
    untold: Vec<UserKey>,
}

impl TicketFacts for Facts {
    fn has_open_nat(&self, id: TicketId) -> bool {
        self.open_nat.contains(&id)
    }

    fn high_round_trip_ms(&self, one: TicketId, other: TicketId) -> Option<f64> {
        let is_pair = |it: &&(TicketId, TicketId, f64)| (it.0, it.1) == (one, other) || (it.0, it.1) == (other, one);
        self.round_trips.iter().find(is_pair).map(|it| it.2)
    }

    fn has_expired(&self, id: TicketId) -> bool {
        self.expired.contains(&id)
    }

    fn has_acknowledged_ready_check(&self, _: TicketId, user: UserKey) -> bool {
        !self.untold.contains(&user)
    }

    fn outages(&self) -> &OutageTimes {
        self.outages.as_ref().unwrap_or(OutageTimes::NONE)
    }
}

/// No open NAT, and no ticket expired.
const NO_FACTS: Facts =
    Facts { open_nat: Vec::new(), expired: Vec::new(), round_trips: Vec::new(), outages: None, untold: Vec::new() };

/// The named host confirms, or is heard again.
fn heard(at: UnixMs) -> MatchEvent {
    MatchEvent::HostHeard { lost_at: at.plus_ms(HOST_LOSS_MS) }
}

fn created_match(rules: &LifecycleRules) -> Match {
    create_match(rules, two_tickets(), &NO_FACTS, START).next_match.unwrap()
}

fn response(n: u8, users: &[u8], accepted: bool) -> MatchEvent {
    let users = users.iter().map(|&n| user_key(n)).collect();
    MatchEvent::Responded { ticket_id: ticket_id(n), users, accepted, answered_by: None }
}

fn game_server(n: u8) -> Assignment {
    Assignment::GameServer {
        advertisement: AdvertisementId::from_bytes([n; 16]),
        reservation: Some(ReservationId::from_bytes([n; 16])),
        connect_data: vec![n],
    }
}

fn failed_host(n: u8) -> MatchEvent {
    MatchEvent::ServerFailed { host: game_server(n) }
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
        let transition = apply_event(rules, &current, event.clone(), &NO_FACTS, now);
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
        MatchStage::Confirming { .. } => "confirming".into(),
        MatchStage::Playing { .. } => "playing".into(),
        MatchStage::Ended { end_reason, .. } => format!("{end_reason:?}"),
    }
}

/// S0-20, S0-21: every event at every stage. Stages: ready check accepted by ticket 1, placing, confirming on game server
/// 7, playing on it, ended by report, cancelled. A cell is the next stage, or the result if nothing changes.
#[test]
fn event_table_covers_every_stage() {
    let (early, due) = (START.plus_ms(5_000), START.plus_ms(2 * MAX_MATCH_MS));
    let by_operator = TicketEndReason::EndedByServer;
    let withdrawn = |n, reason| MatchEvent::TicketWithdrawn { ticket_id: ticket_id(n), reason };
    let left = |n, users: &[u8]| MatchEvent::PlayersLeft {
        ticket_id: ticket_id(n),
        users: users.iter().map(|&n| user_key(n)).collect(),
        left_by: None,
    };
    let reported = |by: Option<u8>| MatchEvent::EndReported { reported_by: by.map(user_key) };
    let found = |n| MatchEvent::ServerFound(game_server(n));
    let (failed, cancelled) = ("ServerFailed", "Cancelled");
    let (applied, wrong, unknown) = ("AlreadyApplied", "WrongStage", "UnknownParticipant");
    #[rustfmt::skip]
    let table = [
        ("accepts",         early, response(2, &[21], true),     ["placing", applied, applied, applied, applied, applied]),
        ("accepts again",   early, response(1, &[11], true),     [applied; 6]),
        ("accepts late",    due,   response(2, &[21], true),     ["TooLate", applied, applied, applied, applied, applied]),
        ("declines",        early, response(2, &[21], false),    ["Declined", wrong, wrong, wrong, wrong, wrong]),
        ("then declines",   early, response(1, &[12], false),    ["Declined", wrong, wrong, wrong, wrong, wrong]),
        ("declines late",   due,   response(2, &[21], false),    ["TooLate", wrong, wrong, wrong, wrong, wrong]),
        ("unknown ticket",  early, response(3, &[21], true),     [unknown; 6]),
        ("unknown user",    early, response(1, &[11, 21], true), [unknown; 6]),
        ("no users",        early, response(1, &[], true),       [unknown; 6]),
        ("deadline, early", early, MatchEvent::DeadlinePassed,   ["TooEarly", "TooEarly", "TooEarly", "TooEarly", wrong, wrong]),
        ("deadline",        due,   MatchEvent::DeadlinePassed,   ["NotAcceptedInTime", "NoServer", "NoServer", "TimedOut", wrong, wrong]),
        ("this server",     early, found(7),                     [wrong, "confirming", applied, applied, wrong, wrong]),
        ("another server",  early, found(8),                     [wrong, "confirming", wrong, wrong, wrong, wrong]),
        ("host is heard",   early, heard(early),                 [wrong, wrong, "playing", "playing", wrong, wrong]),
        ("server fails",    early, failed_host(7),               [wrong, wrong, "placing", failed, wrong, wrong]),
        ("another fails",   early, failed_host(8),               [wrong, wrong, wrong, wrong, wrong, wrong]),
        ("reported",        early, reported(None),               [wrong, wrong, wrong, "Played", applied, wrong]),
        ("player reports",  early, reported(Some(12)),           [wrong, wrong, wrong, "Played", applied, wrong]),
        ("unknown reports", early, reported(Some(99)),           [unknown; 6]),
        ("cancelled",       early, MatchEvent::Cancelled,        [cancelled, cancelled, cancelled, cancelled, wrong, applied]),
        ("party leaves",    early, left(1, &[]),                 ["Declined", "Declined", "Declined", "playing", wrong, wrong]),
        ("player leaves",   early, left(1, &[12]),               ["Declined", "Declined", "Declined", "playing", wrong, wrong]),
        ("stranger leaves", early, left(1, &[21]),               [unknown; 6]),
        ("unknown leaves",  early, left(3, &[]),                 [unknown; 6]),
        ("is withdrawn",    early, withdrawn(1, by_operator),    [cancelled, cancelled, cancelled, wrong, wrong, wrong]),
    ];
    let [one, two] = all_accept();
    let (found, confirmed) = (found(7), heard(START.plus_ms(4_000)));
    let all = [one.clone(), two.clone(), found, confirmed, MatchEvent::EndReported { reported_by: None }];
    let before = [
        apply_all(&ready_check_rules(), &all[..1]).0,
        apply_all(&ready_check_rules(), &all[..2]).0,
        apply_all(&ready_check_rules(), &all[..3]).0,
        apply_all(&ready_check_rules(), &all[..4]).0,
        apply_all(&ready_check_rules(), &all).0,
        apply_all(&ready_check_rules(), &[one, two, MatchEvent::Cancelled]).0,
    ];
    for (name, now, event, expected) in table {
        for (current, expected) in before.iter().zip(expected) {
            let transition = apply_event(&ready_check_rules(), current, event.clone(), &NO_FACTS, now);
            let outcome = transition.next_match.as_ref().map_or(format!("{:?}", transition.result), stage_name);
            assert_eq!(outcome, expected, "{name} while {}", stage_name(current));
            assert_eq!(transition.next_match.is_some(), transition.result == EventResult::Changed, "{name}");
            let ended = transition.next_match.iter().any(|next| matches!(next.stage, MatchStage::Ended { .. }));
            let leaves_play = name == "party leaves" && expected == "playing";
            let fates = if ended { 2 } else { usize::from(leaves_play) };
            assert_eq!(transition.ticket_fates.len(), fates, "{name}: a ticket that leaves the match gets a state");
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
        &NO_FACTS,
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
    let at = |ms, event| apply_event(&ready_check_rules(), &current, event, &NO_FACTS, START.plus_ms(ms)).result;
    assert_eq!(at(READY_CHECK_MS - 1, response(1, &[11], true)), EventResult::Changed);
    assert_eq!(at(READY_CHECK_MS, response(1, &[11], true)), EventResult::TooLate);
    assert_eq!(at(READY_CHECK_MS - 1, MatchEvent::DeadlinePassed), EventResult::TooEarly);
    assert_eq!(at(READY_CHECK_MS, MatchEvent::DeadlinePassed), EventResult::Changed);
}

#[test]
fn match_ends_by_report_or_timeout_and_is_kept_for_avoid_rules() {
    let rules = LifecycleRules { past_match_retention_ms: 10 * ENDED_MATCH_RETENTION_MS, ..ready_check_rules() };
    let [one, two] = all_accept();
    let (current, transition) = apply_all(&rules, &[one, two, MatchEvent::ServerFound(game_server(7)), heard(START)]);
    let started_at = START.plus_ms(4_000);
    assert_eq!(transition.effects, [MatchEffect::StartPlay]);
    let stage = MatchStage::Playing {
        assignment: game_server(7),
        started_at,
        times_out_at: started_at.plus_ms(MAX_MATCH_MS),
        host_lost_at: Some(started_at.plus_ms(HOST_LOSS_MS)),
    };
    assert_eq!(current.stage, stage);
    let reported =
        apply_event(&rules, &current, MatchEvent::EndReported { reported_by: None }, &NO_FACTS, START.plus_ms(9_000));
    let timed_out =
        apply_event(&rules, &current, MatchEvent::DeadlinePassed, &NO_FACTS, started_at.plus_ms(MAX_MATCH_MS));
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
    let transition = create_match(&lifecycle_rules(None, HostingMode::GameServer), two_tickets(), &NO_FACTS, START);
    assert_eq!(transition.effects, [MatchEffect::FindServer]);
    assert_eq!(
        transition.next_match.unwrap().stage,
        MatchStage::Placing { deadline: START.plus_ms(ALLOCATION_TIMEOUT_MS) }
    );
    let current = create_match(&lifecycle_rules(None, HostingMode::None), two_tickets(), &NO_FACTS, START);
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
            times_out_at: START.plus_ms(MAX_MATCH_MS),
            host_lost_at: None,
        }
    );
}

#[test]
fn backfill_waits_for_seats_in_every_hosting_mode() {
    let backfill = NewMatch { backfilled_session: Some(AdvertisementId::from_bytes([5; 16])), ..two_tickets() };
    for mode in [HostingMode::GameServer, HostingMode::Peer, HostingMode::None] {
        let transition = create_match(&lifecycle_rules(None, mode), backfill.clone(), &NO_FACTS, START);
        assert_eq!(transition.effects, [MatchEffect::FindServer], "{mode:?}");
    }
}

#[test]
fn unhosted_match_starts_with_the_last_acceptance() {
    let (current, transition) = apply_all(&lifecycle_rules(Some(1_000_000), HostingMode::None), &all_accept());
    assert_eq!((stage_name(&current), transition.effects), ("playing".to_owned(), vec![MatchEffect::StartPlay]));
}
