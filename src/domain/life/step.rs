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

use crate::domain::id::{TicketId, UserKey};
use crate::domain::life::event::{Effect, Event, Fresh, Heard, Step};
use crate::domain::life::rules::{LifeRules, REMEMBERED_MS};
use crate::domain::life::{Fate, Match, Member, Outcome, Place, Seat, Stage};
use crate::domain::queue::ticket::Ending;
use crate::domain::ruleset::teams::ServerMode;
use crate::domain::time::UnixMs;

/// A match as it begins to live, at edition 1: in its ready check; without one, wanting a server; and where nobody has
/// to be found, played at once. The step is always `Changed`.
///
/// `open` says whether a ticket's players can be reached by anybody (an open NAT), as they know it of themselves.
pub fn begin(rules: &LifeRules, fresh: Fresh, open: &dyn Fn(TicketId) -> bool, now: UnixMs) -> Step {
    let Fresh { id, set_id, silo, hash, members, quality, region, backfills } = fresh;
    let (proposed, edition) = (now, 0);
    // Replaced below: a match has no stage before its first.
    let stage = Stage::Placing { deadline: now };
    let unborn = Match { id, set_id, silo, hash, proposed, edition, stage, members, quality, region, backfills };
    match rules.ready_check_ms {
        Some(ms) => changed(&unborn, Stage::ReadyCheck { deadline: now.after(u64::from(ms)) }, Vec::new()),
        None => agreed(rules, &unborn, open, now),
    }
}

/// What `event`, which happens at `now`, makes of `play`. Of two events at once the caller decides which is first.
///
/// `open` as for [`begin`].
pub fn step(rules: &LifeRules, play: &Match, event: Event, open: &dyn Fn(TicketId) -> bool, now: UnixMs) -> Step {
    match event {
        Event::Answered { ticket, users, accept } => answered(rules, play, (ticket, &users, accept), open, now),
        Event::DeadlinePassed => deadline_passed(rules, play, now),
        Event::ServerFound(place) => server_found(rules, play, place, now),
        Event::ServerFailed => match play.stage {
            Stage::Placing { .. } | Stage::Playing { .. } => over(rules, play, Outcome::ServerFailed, now),
            Stage::ReadyCheck { .. } | Stage::Over { .. } => Step::unchanged(Heard::NotNow),
        },
        Event::Reported { by } => reported(rules, play, by, now),
        Event::Cancelled => match play.stage {
            Stage::Over { outcome: Outcome::Cancelled, .. } => Step::unchanged(Heard::Known),
            Stage::Over { .. } => Step::unchanged(Heard::NotNow),
            _ => over(rules, play, Outcome::Cancelled, now),
        },
        Event::Gone { ticket, how } => gone(rules, play, ticket, how, now),
    }
}

/// Players answer: one that declines ends the match at once, the last that accepts lets it go on, and an answer stands
/// until it is changed from yes to no.
fn answered(
    rules: &LifeRules,
    play: &Match,
    (ticket, users, accept): (TicketId, &[UserKey], bool),
    open: &dyn Fn(TicketId) -> bool,
    now: UnixMs,
) -> Step {
    let Some(at) = play.members.iter().position(|member| member.ticket == ticket) else {
        return Step::unchanged(Heard::Stranger);
    };
    let named = |seat: &Seat| users.contains(&seat.user);
    if users.is_empty() || !users.iter().all(|user| play.members[at].players.iter().any(|seat| seat.user == *user)) {
        return Step::unchanged(Heard::Stranger);
    }
    if play.members[at].players.iter().filter(|seat| named(seat)).all(|seat| seat.answer == Some(accept)) {
        return Step::unchanged(Heard::Known);
    }
    match play.stage {
        Stage::ReadyCheck { deadline } if deadline <= now => return Step::unchanged(Heard::TooLate),
        Stage::ReadyCheck { .. } => {}
        Stage::Placing { .. } | Stage::Playing { .. } | Stage::Over { .. } => return Step::unchanged(Heard::NotNow),
    }
    let mut heard = play.clone();
    for seat in heard.members[at].players.iter_mut().filter(|seat| named(seat)) {
        // A no is final.
        seat.answer = Some(accept && seat.answer != Some(false));
    }
    let seats = || heard.members.iter().flat_map(|member| &member.players);
    if seats().any(|seat| seat.answer == Some(false)) {
        return over(rules, &heard, Outcome::Declined, now);
    }
    if seats().all(|seat| seat.answer == Some(true)) {
        return agreed(rules, &heard, open, now);
    }
    let stage = heard.stage.clone();
    changed(&heard, stage, Vec::new())
}

/// Nobody has to be asked any more: what is wanted now is a place.
fn agreed(rules: &LifeRules, play: &Match, open: &dyn Fn(TicketId) -> bool, now: UnixMs) -> Step {
    let place = match rules.server.mode {
        // Who joins a session goes where it is.
        _ if play.backfills.is_some() => None,
        ServerMode::Advertised => None,
        ServerMode::Peer => host(&play.members, open).map(|host| Place::Peer { host }),
        ServerMode::None => Some(Place::Nowhere),
    };
    match place {
        Some(place) => playing(rules, play, place, now),
        None => {
            let deadline = now.after(u64::from(rules.server.wait_ms));
            changed(play, Stage::Placing { deadline }, vec![Effect::WantServer])
        }
    }
}

/// Who of the players runs the game: one with an open NAT first, then who has waited longest, ties by id.
fn host(members: &[Member], open: &dyn Fn(TicketId) -> bool) -> Option<UserKey> {
    let seats = members.iter().flat_map(|member| {
        let place = (!open(member.ticket), member.entered);
        member.players.iter().map(move |seat| (place, seat.player))
    });
    seats.min().map(|(_, player)| player)
}

fn playing(rules: &LifeRules, play: &Match, place: Place, now: UnixMs) -> Step {
    let until = now.after(rules.server.play_max_ms);
    changed(play, Stage::Playing { place, began: now, until }, vec![Effect::Begin])
}

fn deadline_passed(rules: &LifeRules, play: &Match, now: UnixMs) -> Step {
    let (due, outcome) = match play.stage {
        Stage::ReadyCheck { deadline } => (deadline, Outcome::Unanswered),
        Stage::Placing { deadline } => (deadline, Outcome::NoServer),
        Stage::Playing { until, .. } => (until, Outcome::Lapsed),
        Stage::Over { .. } => return Step::unchanged(Heard::NotNow),
    };
    match due <= now {
        true => over(rules, play, outcome, now),
        false => Step::unchanged(Heard::TooEarly),
    }
}

/// A server was found. Where none is wanted any more, because the match is over or another was sooner, its seats go
/// back.
fn server_found(rules: &LifeRules, play: &Match, found: Place, now: UnixMs) -> Step {
    match &play.stage {
        Stage::Placing { .. } => playing(rules, play, found, now),
        Stage::Playing { place, .. } if *place == found => Step::unchanged(Heard::Known),
        Stage::ReadyCheck { .. } | Stage::Playing { .. } | Stage::Over { .. } => {
            let effects = give_back(&found).into_iter().collect();
            Step { effects, ..Step::unchanged(Heard::NotNow) }
        }
    }
}

fn reported(rules: &LifeRules, play: &Match, by: Option<UserKey>, now: UnixMs) -> Step {
    let plays = |user| play.members.iter().flat_map(|member| &member.players).any(|seat| seat.user == user);
    match play.stage {
        _ if by.is_some_and(|user| !plays(user)) => Step::unchanged(Heard::Stranger),
        Stage::Playing { .. } => over(rules, play, Outcome::Played, now),
        Stage::Over { outcome: Outcome::Played, .. } => Step::unchanged(Heard::Known),
        Stage::ReadyCheck { .. } | Stage::Placing { .. } | Stage::Over { .. } => Step::unchanged(Heard::NotNow),
    }
}

/// A ticket is withdrawn. A match that has begun goes on without it.
fn gone(rules: &LifeRules, play: &Match, ticket: TicketId, how: Ending, now: UnixMs) -> Step {
    let Some(member) = play.members.iter().find(|member| member.ticket == ticket) else {
        return Step::unchanged(Heard::Stranger);
    };
    if !matches!(play.stage, Stage::ReadyCheck { .. } | Stage::Placing { .. }) {
        return Step::unchanged(Heard::NotNow);
    }
    let left = how == Ending::Left;
    let users = member.players.iter().map(|seat| seat.user).filter(|_| left).collect();
    let fate = |member: &Member| match member.ticket == ticket {
        true => Fate::Ends(how),
        false => Fate::Returns,
    };
    let fates = play.members.iter().map(|member| (member.ticket, fate(member))).collect();
    let outcome = if left { Outcome::Declined } else { Outcome::Cancelled };
    Step { fates, punished: users, ..over(rules, play, outcome, now) }
}

/// The match is over: each ticket goes back or ends, and whoever failed the others is named.
fn over(rules: &LifeRules, play: &Match, outcome: Outcome, now: UnixMs) -> Step {
    let fault = |seat: &&Seat| match outcome {
        Outcome::Declined => seat.answer == Some(false),
        Outcome::Unanswered => seat.answer != Some(true),
        _ => false,
    };
    let fate = |member: &Member| match outcome {
        Outcome::Played | Outcome::Lapsed => Fate::Ends(Ending::Played),
        Outcome::Declined if member.players.iter().any(|seat| fault(&seat)) => Fate::Ends(Ending::Declined),
        Outcome::Unanswered if member.players.iter().any(|seat| fault(&seat)) => Fate::Ends(Ending::Absent),
        Outcome::Declined | Outcome::Unanswered => Fate::Returns,
        // Nobody is punished for a server's fault, or an operator's.
        Outcome::NoServer | Outcome::ServerFailed | Outcome::Cancelled => Fate::Returns,
    };
    let seats = play.members.iter().flat_map(|member| &member.players);
    let punished = seats.filter(fault).map(|seat| seat.user).collect();
    let fates = play.members.iter().map(|member| (member.ticket, fate(member))).collect();
    let (began, place, effects) = match &play.stage {
        Stage::Playing { place, began, .. } => {
            // Nobody has met in a match that its server gave up, and nothing came of one that was cancelled.
            let met = outcome != Outcome::ServerFailed;
            let played = matches!(outcome, Outcome::Played | Outcome::Lapsed);
            (met.then_some(*began), played.then(|| place.clone()), give_back(place).into_iter().collect())
        }
        Stage::ReadyCheck { .. } | Stage::Placing { .. } | Stage::Over { .. } => (None, None, Vec::new()),
    };
    let meetings = began.map_or(now, |began| began.after(rules.meetings_ms));
    let forget_at = now.after(REMEMBERED_MS).max(meetings);
    Step { fates, punished, ..changed(play, Stage::Over { outcome, began, place, forget_at }, effects) }
}

fn give_back(place: &Place) -> Option<Effect> {
    match place {
        Place::Server { advertisement, reservation, .. } => {
            Some(Effect::GiveBack { advertisement: *advertisement, reservation: *reservation })
        }
        Place::Peer { .. } | Place::Nowhere => None,
    }
}

fn changed(play: &Match, stage: Stage, effects: Vec<Effect>) -> Step {
    let next = Match { edition: play.edition + 1, stage, ..play.clone() };
    Step { heard: Heard::Changed, next: Some(next), fates: Vec::new(), punished: Vec::new(), effects }
}

#[cfg(test)]
mod tests;
