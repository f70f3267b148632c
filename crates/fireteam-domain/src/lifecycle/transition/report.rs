//! Results that the players of a match report themselves: a report arrives, the report window ends, or a game server or
//! operator settles the match.

use crate::available_time::OutageTimes;
use crate::id::{TicketId, UserKey};
use crate::lifecycle::deadline::effective_reports_due_at;
use crate::lifecycle::event::{EventResult, Transition};
use crate::lifecycle::rules::{ENDED_MATCH_RETENTION_MS, LifecycleRules};
use crate::lifecycle::side_reports::{
    PlayerReport, PlayerResultClaim, ReportDecision, SideClaims, SideReportsOutcome, decide_reports,
    is_ranked_last_by_all_claims,
};
use crate::lifecycle::transition::end::{apply_end_report, end_match};
use crate::lifecycle::transition::session_match::is_report_quorum_heard;
use crate::lifecycle::{Assignment, Match, MatchEndReason, MatchPlayer, MatchStage, MatchTicket};
use crate::time::UnixMs;

/// Retention of a match whose result an operator must decide: seven days, milliseconds.
pub const MATCH_HELD_FOR_OPERATOR_RETENTION_MS: u64 = 7 * 24 * 60 * 60 * 1000;

/// Source of whether a ticket was heard since play began.
pub type TicketWasHeardFn<'a> = &'a dyn Fn(TicketId) -> bool;

/// Records the report of `reporters`, players of one ticket, and decides. The caller has checked that they have not left
/// and have not reported. Changes nothing if the match was not played, the window is over, or there is an outcome. The
/// window is extended by `outages`.
pub fn apply_side_report(
    rules: &LifecycleRules,
    current: &Match,
    reporters: &[UserKey],
    claim: &PlayerResultClaim,
    was_heard: TicketWasHeardFn<'_>,
    outages: &OutageTimes,
    now: UnixMs,
) -> (Transition, ReportDecision) {
    let is_late = effective_reports_due_at(Some(rules), current, outages).is_some_and(|due_at| due_at <= now);
    if current.stage.assignment_since_play_start().is_none() || current.side_reports.outcome.is_some() || is_late {
        return (Transition::unchanged(EventResult::WrongStage), ReportDecision::Wait);
    }
    let mut updated = with_heard_tickets(current, was_heard);
    for user in reporters {
        let report = PlayerReport { user: *user, claim: claim.clone() };
        updated.side_reports.reports.push(report);
    }
    let ticket_of_reporters = players_with_tickets(&updated).find(|(_, player)| reporters.contains(&player.user));
    if let Some(ticket_id) = ticket_of_reporters.map(|(ticket, _)| ticket.ticket_id) {
        updated.side_reports.add_ticket_heard_in_play(ticket_id);
    }
    let window_ends_at = now.plus_ms(u64::from(rules.hosting.report_window_ms));
    updated.side_reports.window_ends_at.get_or_insert(window_ends_at);
    let sides = claims_by_side(&updated);
    let decision = decide_reports_with_quorum(&updated, &sides, false);
    let sides_with_opinion = sides.iter().filter(|side| side.majority_ranks().is_some()).count();
    let ends_play = 2 * sides_with_opinion > sides.len() || is_peer_host_among(&updated, reporters);
    (transition_with_outcome(rules, &updated, outcome_of(&decision), ends_play, now), decision)
}

/// Decides at the end of the report window, which is extended by `outages`.
pub fn apply_report_window_end(
    rules: &LifecycleRules,
    current: &Match,
    was_heard: TicketWasHeardFn<'_>,
    outages: &OutageTimes,
    now: UnixMs,
) -> (Transition, ReportDecision) {
    if effective_reports_due_at(Some(rules), current, outages).is_none_or(|due_at| now < due_at) {
        return (Transition::unchanged(EventResult::TooEarly), ReportDecision::Wait);
    }
    let updated = with_heard_tickets(current, was_heard);
    let decision = decide_reports_with_quorum(&updated, &claims_by_side(&updated), true);
    (transition_with_outcome(rules, &updated, outcome_of(&decision), true, now), decision)
}

/// A game server or operator reports the result: ends the match if it is being played, and its players' reports no longer
/// count.
pub fn apply_authoritative_report(
    rules: &LifecycleRules,
    current: &Match,
    reported_by: Option<UserKey>,
    now: UnixMs,
) -> Transition {
    let may_be_reported = matches!(current.stage.assignment_since_play_start(), Some(Assignment::PeerHost { .. }))
        && current.side_reports.outcome != Some(SideReportsOutcome::Settled);
    let mut transition = match current.stage {
        MatchStage::Ended { .. } if may_be_reported => Transition::to_stage(current, current.stage.clone(), Vec::new()),
        MatchStage::Ended { .. } => Transition::unchanged(EventResult::AlreadyApplied),
        _ => apply_end_report(rules, current, reported_by, now),
    };
    if let Some(next) = transition.next_match.as_mut().filter(|_| may_be_reported) {
        next.side_reports.outcome = Some(SideReportsOutcome::Settled);
    }
    transition
}

/// Players who left during play, and whose side all players who stayed and reported rank last.
pub fn leavers_of_sides_ranked_last(match_: &Match) -> Vec<UserKey> {
    let has_left =
        |user: UserKey| players_with_tickets(match_).any(|(_, player)| player.user == user && player.left_at.is_some());
    let claims = || {
        let of_others = match_.side_reports.reports.iter().filter(|report| !has_left(report.user));
        of_others.map(|report| report.claim.ranks.as_slice())
    };
    let sides = match_.sides();
    let last_sides = sides.iter().enumerate().filter(|(index, _)| is_ranked_last_by_all_claims(claims(), *index));
    last_sides.flat_map(|(_, (_, users))| users.iter().copied()).filter(|user| has_left(*user)).collect()
}

/// Players who are said to have left before the end by more than half of the sides, in user order. A report of one side of
/// two is not enough, so no side can make its own loss unrated.
pub fn disconnected_by_agreement(match_: &Match, ranks: &[u32]) -> Vec<UserKey> {
    let sides = match_.sides();
    let says = |users: &[UserKey], user: UserKey| {
        let mut claims = match_.side_reports.reports.iter().filter(|report| users.contains(&report.user));
        claims.any(|report| report.claim.ranks == ranks && report.claim.disconnected.contains(&user))
    };
    let is_agreed = |user: UserKey| 2 * sides.iter().filter(|(_, users)| says(users, user)).count() > sides.len();
    let mut users: Vec<UserKey> =
        players_with_tickets(match_).map(|(_, player)| player.user).filter(|user| is_agreed(*user)).collect();
    users.sort_unstable();
    users
}

/// Users of the sides that reported anything.
pub fn users_of_reporting_sides(match_: &Match) -> Vec<UserKey> {
    let has_reported = |user: &UserKey| match_.side_reports.reports.iter().any(|report| report.user == *user);
    let sides = match_.sides().into_iter().filter(|(_, users)| users.iter().any(has_reported));
    sides.flat_map(|(_, users)| users).collect()
}

/// The match with its reports decided, ended if it is being played and `ends_play`.
fn transition_with_outcome(
    rules: &LifecycleRules,
    updated: &Match,
    outcome: Option<SideReportsOutcome>,
    ends_play: bool,
    now: UnixMs,
) -> Transition {
    let is_playing = matches!(updated.stage, MatchStage::Playing { .. });
    let mut transition = if is_playing && (ends_play || outcome.is_some()) {
        end_match(rules, updated, MatchEndReason::Played, now)
    } else {
        Transition::to_stage(updated, updated.stage.clone(), Vec::new())
    };
    if let Some(next) = &mut transition.next_match {
        next.side_reports.outcome = outcome;
        let window_ends_at = next.side_reports.window_ends_at.unwrap_or(now);
        if let MatchStage::Ended { purge_at, .. } = &mut next.stage {
            let kept_until = match outcome {
                Some(SideReportsOutcome::Held) => now.plus_ms(MATCH_HELD_FOR_OPERATOR_RETENTION_MS),
                _ => window_ends_at.plus_ms(ENDED_MATCH_RETENTION_MS),
            };
            *purge_at = (*purge_at).max(kept_until);
        }
    }
    transition
}

fn outcome_of(decision: &ReportDecision) -> Option<SideReportsOutcome> {
    match decision {
        ReportDecision::Wait => None,
        ReportDecision::Result(_) => Some(SideReportsOutcome::Settled),
        ReportDecision::Held(_) => Some(SideReportsOutcome::Held),
        ReportDecision::Disputed => Some(SideReportsOutcome::Disputed),
        ReportDecision::Unreported => Some(SideReportsOutcome::Unreported),
    }
}

/// Decides about the reports. In a match of a session, no result counts against players who were not heard.
fn decide_reports_with_quorum(match_: &Match, sides: &[SideClaims], is_window_over: bool) -> ReportDecision {
    match decide_reports(sides, is_window_over) {
        ReportDecision::Result(_) if !is_report_quorum_heard(match_, sides) && !is_window_over => ReportDecision::Wait,
        ReportDecision::Result(ranks) if !is_report_quorum_heard(match_, sides) => ReportDecision::Held(ranks),
        decision => decision,
    }
}

/// Sides with the reports of their members. A side of which a player left was heard: leaving is a call. Not in a match of a
/// session, which its players have not accepted: there, who leaves at once has declined it.
fn claims_by_side(match_: &Match) -> Vec<SideClaims> {
    let claim_of = |user: UserKey| match_.side_reports.claim_of_user(user).map(|claim| &claim.ranks);
    let side = |(_, users): (u16, Vec<UserKey>)| {
        let members = || players_with_tickets(match_).filter(|(_, player)| users.contains(&player.user));
        SideClaims {
            claims: users.iter().filter_map(|user| claim_of(*user).cloned()).collect(),
            may_report_more: members().any(|(_, player)| player.left_at.is_none() && claim_of(player.user).is_none()),
            made_contact_in_play: members().any(|(ticket, player)| {
                let has_left_queue_match = player.left_at.is_some() && match_.session_match_start_by_host.is_none();
                has_left_queue_match || match_.side_reports.heard_tickets.contains(&ticket.ticket_id)
            }),
        }
    };
    match_.sides().into_iter().map(side).collect()
}

fn players_with_tickets(match_: &Match) -> impl Iterator<Item = (&MatchTicket, &MatchPlayer)> {
    match_.tickets.iter().flat_map(|ticket| ticket.players.iter().map(move |player| (ticket, player)))
}

fn with_heard_tickets(current: &Match, was_heard: TicketWasHeardFn<'_>) -> Match {
    let mut updated = current.clone();
    for ticket in current.tickets.iter().filter(|ticket| was_heard(ticket.ticket_id)) {
        updated.side_reports.add_ticket_heard_in_play(ticket.ticket_id);
    }
    updated
}

fn is_peer_host_among(match_: &Match, users: &[UserKey]) -> bool {
    let Some(Assignment::PeerHost { host }) = match_.stage.assignment_since_play_start() else { return false };
    players_with_tickets(match_).any(|(_, player)| player.client == *host && users.contains(&player.user))
}
