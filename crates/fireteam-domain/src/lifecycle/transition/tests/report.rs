//! Reports of players: when they end play, when they decide, and what a leaver is rated for.

use super::*;
use crate::available_time::OutageTimes;
use crate::lifecycle::side_reports::{PlayerResultClaim, ReportDecision, SideReportsOutcome};
use crate::lifecycle::transition::report::{
    apply_authoritative_report, apply_report_window_end, apply_side_report, disconnected_by_agreement,
    leavers_of_sides_ranked_last,
};

const TICKETS: [u8; 3] = [1, 2, 3];

fn rules() -> LifecycleRules {
    LifecycleRules { hosts_confirm: false, ..lifecycle_rules(None, HostingMode::Peer) }
}

/// A match of three teams of one player, which the player of ticket 1 hosts.
fn playing() -> Match {
    let ticket = |n: u8| MatchTicket { team: n.into(), ..match_ticket(n, n.into(), &[10 * n]) };
    let tickets = TICKETS.map(ticket).to_vec();
    create_match(&rules(), new_match(tickets), &NO_FACTS, START).next_match.unwrap()
}

fn claim(ranks: [u32; 3]) -> PlayerResultClaim {
    PlayerResultClaim { ranks: ranks.to_vec(), disconnected: Vec::new(), duration_ms: None }
}

fn report(current: &Match, reporter: u8, ranks: [u32; 3], ms: u64) -> (Match, ReportDecision) {
    let (users, now) = ([user_key(10 * reporter)], START.plus_ms(ms));
    let (transition, decision) =
        apply_side_report(&rules(), current, &users, &claim(ranks), &|_| false, OutageTimes::NONE, now);
    (transition.next_match.expect("the report is recorded"), decision)
}

/// A report of one player does not end play for the others; the host's, and the majority's, do.
#[test]
fn report_ends_play_by_host_or_majority() {
    let (first, decision) = report(&playing(), 2, [2, 1, 3], 1_000);
    assert_eq!((stage_name(&first).as_str(), decision), ("playing", ReportDecision::Wait));
    assert_eq!(first.reports_due_at(), Some(START.plus_ms(1_000 + REPORT_WINDOW_MS)));
    let (by_host, _) = report(&playing(), 1, [2, 1, 3], 1_000);
    assert_eq!(stage_name(&by_host), "Played");
    let (agreed, decision) = report(&first, 3, [2, 1, 3], 2_000);
    assert_eq!((stage_name(&agreed).as_str(), decision), ("Played", ReportDecision::Result(vec![2, 1, 3])));
    assert_eq!((agreed.side_reports.outcome, agreed.reports_due_at()), (Some(SideReportsOutcome::Settled), None));
}

/// The window ends once, at its end; a held match is kept for an operator, whose report settles it.
#[test]
fn window_end_decides_and_operator_settles() {
    let (reported, _) = report(&playing(), 2, [2, 1, 3], 0);
    let due_at = START.plus_ms(REPORT_WINDOW_MS);
    let at = |now| apply_report_window_end(&rules(), &reported, &|_| false, OutageTimes::NONE, now);
    assert_eq!(at(UnixMs(due_at.0 - 1)).0.result, EventResult::TooEarly);
    let (transition, decision) = at(due_at);
    assert_eq!(decision, ReportDecision::Held(vec![2, 1, 3]));
    let held = transition.next_match.unwrap();
    assert_eq!((stage_name(&held).as_str(), held.side_reports.outcome), ("Played", Some(SideReportsOutcome::Held)));
    assert_eq!(
        apply_report_window_end(&rules(), &held, &|_| false, OutageTimes::NONE, due_at.plus_ms(9)).0.next_match,
        None
    );
    let (late, _) =
        apply_side_report(&rules(), &held, &[user_key(30)], &claim([1, 2, 3]), &|_| true, OutageTimes::NONE, due_at);
    assert_eq!(late.next_match, None, "a player's report is too late");
    let settled = apply_authoritative_report(&rules(), &held, None, due_at.plus_ms(9)).next_match.unwrap();
    assert_eq!(settled.side_reports.outcome, Some(SideReportsOutcome::Settled));
    assert_eq!(apply_authoritative_report(&rules(), &settled, None, due_at.plus_ms(10)).next_match, None);
    let heard = apply_report_window_end(&rules(), &reported, &|_| true, OutageTimes::NONE, due_at);
    assert_eq!(heard.1, ReportDecision::Result(vec![2, 1, 3]));
}

/// The hosting player leaves; the others have the window to report. What they agree on about the
/// leaver counts, also if they contradict each other otherwise.
#[test]
fn host_that_leaves_opens_the_window_and_is_last_by_agreement() {
    let left = MatchEvent::PlayersLeft { ticket_id: ticket_id(1), users: Vec::new(), left_by: None };
    let lost = apply_event(&rules(), &playing(), left, &NO_FACTS, START.plus_ms(5)).next_match.unwrap();
    assert_eq!(
        (stage_name(&lost).as_str(), lost.reports_due_at()),
        ("HostLost", Some(START.plus_ms(5 + REPORT_WINDOW_MS)))
    );
    let unreported =
        apply_report_window_end(&rules(), &lost, &|_| true, OutageTimes::NONE, START.plus_ms(5 + REPORT_WINDOW_MS));
    assert_eq!(unreported.1, ReportDecision::Unreported);
    let (one, decision) = report(&lost, 2, [3, 1, 2], 10);
    assert_eq!(decision, ReportDecision::Wait);
    let (two, decision) = report(&one, 3, [3, 2, 1], 20);
    assert_eq!(decision, ReportDecision::Disputed, "no one else can report");
    assert_eq!(leavers_of_sides_ranked_last(&two), [user_key(10)]);
    let (other, _) = report(&one, 3, [2, 3, 1], 20);
    assert_eq!(leavers_of_sides_ranked_last(&other), [], "the reports do not agree about the leaver");
}

#[test]
fn disconnected_players_need_more_than_half_of_the_sides() {
    let mut current = playing();
    let accused = user_key(30);
    for (reporter, expected) in [(1, vec![]), (2, vec![accused])] {
        let claim = PlayerResultClaim { disconnected: vec![accused], ..claim([1, 2, 3]) };
        let (users, now) = ([user_key(10 * reporter)], START);
        current = apply_side_report(&rules(), &current, &users, &claim, &|_| false, OutageTimes::NONE, now)
            .0
            .next_match
            .unwrap();
        assert_eq!(disconnected_by_agreement(&current, &[1, 2, 3]), expected);
    }
}
