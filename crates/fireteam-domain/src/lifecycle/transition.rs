//! The state machine itself: a match, an event and its moment in; what follows out.
//!
//! | stage | goes on when | is over when |
//! |---|---|---|
//! | ready check | all have agreed: a server is wanted, or play begins | declined, left, unanswered, cancelled |
//! | placing | a server was found: play begins | no server in time, the server failed, left, cancelled |
//! | playing | | reported, time is up, the server failed before anybody played, cancelled |
//!
//! Whoever has not failed the others goes back from a match that was not played, and waits on as if nothing had been
//! (S0-21): nothing of a ticket's progress depends on a match. Every step that ends a match says what becomes of each
//! ticket, and no other step does: a ticket is always in exactly one place. An event that does not fit the stage
//! changes nothing.

use crate::id::{TicketId, UserKey};
use crate::lifecycle::event::{EventResult, MatchEffect, MatchEvent, NewMatch, Transition};
use crate::lifecycle::rules::{ENDED_MATCH_RETENTION_MS, LifecycleRules};
use crate::lifecycle::{Assignment, Match, MatchEndReason, MatchPlayer, MatchStage, MatchTicket, TicketFate};
use crate::queue::ticket::TicketEndReason;
use crate::ruleset::teams::HostingMode;
use crate::time::UnixMs;

/// A match as it begins to live, at edition 1: in its ready check; without one, wanting a server; and where nobody has
/// to be found, played at once. The step is always `Changed`.
///
/// `open` says whether a ticket's players can be reached by anybody (an open NAT), as they know it of themselves.
pub fn create_match(
    rules: &LifecycleRules,
    fresh: NewMatch,
    open: &dyn Fn(TicketId) -> bool,
    now: UnixMs,
) -> Transition {
    let NewMatch {
        id,
        set_id,
        silo,
        ruleset_hash: hash,
        tickets: members,
        quality,
        region,
        backfilled_session: backfills,
    } = fresh;
    let (proposed, edition) = (now, 0);
    // Replaced below: a match has no stage before its first.
    let stage = MatchStage::Placing { deadline: now };
    let unborn = Match {
        id,
        set_id,
        silo,
        ruleset_hash: hash,
        proposed_at: proposed,
        version: edition,
        stage,
        tickets: members,
        quality,
        region,
        backfilled_session: backfills,
    };
    match rules.ready_check_ms {
        Some(ms) => transition_to(&unborn, MatchStage::ReadyCheck { deadline: now.plus_ms(u64::from(ms)) }, Vec::new()),
        None => begin_placement(rules, &unborn, open, now),
    }
}

/// What `event`, which happens at `now`, makes of `play`. Of two events at once the caller decides which is first.
///
/// `open` as for [`begin`].
pub fn apply_event(
    rules: &LifecycleRules,
    play: &Match,
    event: MatchEvent,
    open: &dyn Fn(TicketId) -> bool,
    now: UnixMs,
) -> Transition {
    match event {
        MatchEvent::Responded { ticket_id: ticket, users, accepted: accept } => {
            apply_response(rules, play, (ticket, &users, accept), open, now)
        }
        MatchEvent::DeadlinePassed => apply_deadline(rules, play, now),
        MatchEvent::ServerFound(place) => apply_server_found(rules, play, place, now),
        MatchEvent::ServerFailed => match play.stage {
            MatchStage::Placing { .. } | MatchStage::Playing { .. } => {
                end_match(rules, play, MatchEndReason::ServerFailed, now)
            }
            MatchStage::ReadyCheck { .. } | MatchStage::Ended { .. } => Transition::unchanged(EventResult::WrongStage),
        },
        MatchEvent::EndReported { reported_by: by } => apply_end_report(rules, play, by, now),
        MatchEvent::Cancelled => match play.stage {
            MatchStage::Ended { end_reason: MatchEndReason::Cancelled, .. } => {
                Transition::unchanged(EventResult::AlreadyApplied)
            }
            MatchStage::Ended { .. } => Transition::unchanged(EventResult::WrongStage),
            _ => end_match(rules, play, MatchEndReason::Cancelled, now),
        },
        MatchEvent::TicketWithdrawn { ticket, reason: how } => apply_withdrawal(rules, play, ticket, how, now),
    }
}

/// Players answer: one that declines ends the match at once, the last that accepts lets it go on, and an answer stands
/// until it is changed from yes to no.
fn apply_response(
    rules: &LifecycleRules,
    play: &Match,
    (ticket, users, accept): (TicketId, &[UserKey], bool),
    open: &dyn Fn(TicketId) -> bool,
    now: UnixMs,
) -> Transition {
    let Some(at) = play.tickets.iter().position(|member| member.ticket_id == ticket) else {
        return Transition::unchanged(EventResult::UnknownParticipant);
    };
    let named = |seat: &MatchPlayer| users.contains(&seat.user);
    if users.is_empty() || !users.iter().all(|user| play.tickets[at].players.iter().any(|seat| seat.user == *user)) {
        return Transition::unchanged(EventResult::UnknownParticipant);
    }
    if play.tickets[at].players.iter().filter(|seat| named(seat)).all(|seat| seat.accepted == Some(accept)) {
        return Transition::unchanged(EventResult::AlreadyApplied);
    }
    match play.stage {
        MatchStage::ReadyCheck { deadline } if deadline <= now => return Transition::unchanged(EventResult::TooLate),
        MatchStage::ReadyCheck { .. } => {}
        MatchStage::Placing { .. } | MatchStage::Playing { .. } | MatchStage::Ended { .. } => {
            return Transition::unchanged(EventResult::WrongStage);
        }
    }
    let mut heard = play.clone();
    for seat in heard.tickets[at].players.iter_mut().filter(|seat| named(seat)) {
        // A no is final.
        seat.accepted = Some(accept && seat.accepted != Some(false));
    }
    let seats = || heard.tickets.iter().flat_map(|member| &member.players);
    if seats().any(|seat| seat.accepted == Some(false)) {
        return end_match(rules, &heard, MatchEndReason::Declined, now);
    }
    if seats().all(|seat| seat.accepted == Some(true)) {
        return begin_placement(rules, &heard, open, now);
    }
    let stage = heard.stage.clone();
    transition_to(&heard, stage, Vec::new())
}

/// Nobody has to be asked any more: what is wanted now is a place.
fn begin_placement(rules: &LifecycleRules, play: &Match, open: &dyn Fn(TicketId) -> bool, now: UnixMs) -> Transition {
    let place = match rules.server.mode {
        // Who joins a session goes where it is.
        _ if play.backfilled_session.is_some() => None,
        HostingMode::Advertised => None,
        HostingMode::Peer => choose_host(&play.tickets, open).map(|host| Assignment::PeerHost { host }),
        HostingMode::None => Some(Assignment::Unhosted),
    };
    match place {
        Some(place) => start_play(rules, play, place, now),
        None => {
            let deadline = now.plus_ms(u64::from(rules.server.wait_ms));
            transition_to(play, MatchStage::Placing { deadline }, vec![MatchEffect::FindServer])
        }
    }
}

/// Who of the players runs the game: one with an open NAT first, then who has waited longest, ties by id.
fn choose_host(members: &[MatchTicket], open: &dyn Fn(TicketId) -> bool) -> Option<UserKey> {
    let seats = members.iter().flat_map(|member| {
        let place = (!open(member.ticket_id), member.entered_at);
        member.players.iter().map(move |seat| (place, seat.client))
    });
    seats.min().map(|(_, player)| player)
}

fn start_play(rules: &LifecycleRules, play: &Match, place: Assignment, now: UnixMs) -> Transition {
    let until = now.plus_ms(rules.server.play_max_ms);
    transition_to(
        play,
        MatchStage::Playing { assignment: place, started_at: now, times_out_at: until },
        vec![MatchEffect::StartPlay],
    )
}

fn apply_deadline(rules: &LifecycleRules, play: &Match, now: UnixMs) -> Transition {
    let (due, outcome) = match play.stage {
        MatchStage::ReadyCheck { deadline } => (deadline, MatchEndReason::NotAcceptedInTime),
        MatchStage::Placing { deadline } => (deadline, MatchEndReason::NoServer),
        MatchStage::Playing { times_out_at: until, .. } => (until, MatchEndReason::TimedOut),
        MatchStage::Ended { .. } => return Transition::unchanged(EventResult::WrongStage),
    };
    match due <= now {
        true => end_match(rules, play, outcome, now),
        false => Transition::unchanged(EventResult::TooEarly),
    }
}

/// A server was found. Where none is wanted any more, because the match is over or another was sooner, its seats go
/// back.
fn apply_server_found(rules: &LifecycleRules, play: &Match, found: Assignment, now: UnixMs) -> Transition {
    match &play.stage {
        MatchStage::Placing { .. } => start_play(rules, play, found, now),
        MatchStage::Playing { assignment: place, .. } if *place == found => {
            Transition::unchanged(EventResult::AlreadyApplied)
        }
        MatchStage::ReadyCheck { .. } | MatchStage::Playing { .. } | MatchStage::Ended { .. } => {
            let effects = release_reservation(&found).into_iter().collect();
            Transition { effects, ..Transition::unchanged(EventResult::WrongStage) }
        }
    }
}

fn apply_end_report(rules: &LifecycleRules, play: &Match, by: Option<UserKey>, now: UnixMs) -> Transition {
    let plays = |user| play.tickets.iter().flat_map(|member| &member.players).any(|seat| seat.user == user);
    match play.stage {
        _ if by.is_some_and(|user| !plays(user)) => Transition::unchanged(EventResult::UnknownParticipant),
        MatchStage::Playing { .. } => end_match(rules, play, MatchEndReason::Played, now),
        MatchStage::Ended { end_reason: MatchEndReason::Played, .. } => {
            Transition::unchanged(EventResult::AlreadyApplied)
        }
        MatchStage::ReadyCheck { .. } | MatchStage::Placing { .. } | MatchStage::Ended { .. } => {
            Transition::unchanged(EventResult::WrongStage)
        }
    }
}

/// A ticket is withdrawn. A match that has begun goes on without it.
fn apply_withdrawal(
    rules: &LifecycleRules,
    play: &Match,
    ticket: TicketId,
    how: TicketEndReason,
    now: UnixMs,
) -> Transition {
    let Some(member) = play.tickets.iter().find(|member| member.ticket_id == ticket) else {
        return Transition::unchanged(EventResult::UnknownParticipant);
    };
    if !matches!(play.stage, MatchStage::ReadyCheck { .. } | MatchStage::Placing { .. }) {
        return Transition::unchanged(EventResult::WrongStage);
    }
    let left = how == TicketEndReason::Left;
    let users = member.players.iter().map(|seat| seat.user).filter(|_| left).collect();
    let fate = |member: &MatchTicket| match member.ticket_id == ticket {
        true => TicketFate::Ended(how),
        false => TicketFate::Requeued,
    };
    let fates = play.tickets.iter().map(|member| (member.ticket_id, fate(member))).collect();
    let outcome = if left { MatchEndReason::Declined } else { MatchEndReason::Cancelled };
    Transition { ticket_fates: fates, penalized_users: users, ..end_match(rules, play, outcome, now) }
}

/// The match is over: each ticket goes back or ends, and whoever failed the others is named.
fn end_match(rules: &LifecycleRules, play: &Match, outcome: MatchEndReason, now: UnixMs) -> Transition {
    let fault = |seat: &&MatchPlayer| match outcome {
        MatchEndReason::Declined => seat.accepted == Some(false),
        MatchEndReason::NotAcceptedInTime => seat.accepted != Some(true),
        _ => false,
    };
    let fate = |member: &MatchTicket| match outcome {
        MatchEndReason::Played | MatchEndReason::TimedOut => TicketFate::Ended(TicketEndReason::Played),
        MatchEndReason::Declined if member.players.iter().any(|seat| fault(&seat)) => {
            TicketFate::Ended(TicketEndReason::Declined)
        }
        MatchEndReason::NotAcceptedInTime if member.players.iter().any(|seat| fault(&seat)) => {
            TicketFate::Ended(TicketEndReason::NotAcceptedInTime)
        }
        MatchEndReason::Declined | MatchEndReason::NotAcceptedInTime => TicketFate::Requeued,
        // Nobody is punished for a server's fault, or an operator's.
        MatchEndReason::NoServer | MatchEndReason::ServerFailed | MatchEndReason::Cancelled => TicketFate::Requeued,
    };
    let seats = play.tickets.iter().flat_map(|member| &member.players);
    let punished = seats.filter(fault).map(|seat| seat.user).collect();
    let fates = play.tickets.iter().map(|member| (member.ticket_id, fate(member))).collect();
    let (began, place, effects) = match &play.stage {
        MatchStage::Playing { assignment: place, started_at: began, .. } => {
            // Nobody has met in a match that its server gave up, and nothing came of one that was cancelled.
            let met = outcome != MatchEndReason::ServerFailed;
            let played = matches!(outcome, MatchEndReason::Played | MatchEndReason::TimedOut);
            (met.then_some(*began), played.then(|| place.clone()), release_reservation(place).into_iter().collect())
        }
        MatchStage::ReadyCheck { .. } | MatchStage::Placing { .. } | MatchStage::Ended { .. } => {
            (None, None, Vec::new())
        }
    };
    let meetings = began.map_or(now, |began| began.plus_ms(rules.past_match_retention_ms));
    let forget_at = now.plus_ms(ENDED_MATCH_RETENTION_MS).max(meetings);
    Transition {
        ticket_fates: fates,
        penalized_users: punished,
        ..transition_to(play, MatchStage::Ended { end_reason: outcome, began, place, purge_at: forget_at }, effects)
    }
}

fn release_reservation(place: &Assignment) -> Option<MatchEffect> {
    match place {
        Assignment::GameServer { advertisement, reservation, .. } => {
            Some(MatchEffect::ReleaseReservation { advertisement: *advertisement, reservation: *reservation })
        }
        Assignment::PeerHost { .. } | Assignment::Unhosted => None,
    }
}

fn transition_to(play: &Match, stage: MatchStage, effects: Vec<MatchEffect>) -> Transition {
    let next = Match { version: play.version + 1, stage, ..play.clone() };
    Transition {
        result: EventResult::Changed,
        next_match: Some(next),
        ticket_fates: Vec::new(),
        penalized_users: Vec::new(),
        effects,
    }
}

#[cfg(test)]
mod tests;
