//! Queues in time: parties enter and are told when their match is ready; passes are run, matches live, the store decides.

mod bell;
pub mod command;
mod enter;
mod explain;
mod hall;
mod hear;
mod host;
mod keeper;
mod picture;
mod presence;
mod reports;
mod results;
mod roster;
mod runner;
mod status;
mod waits;
mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::auth::token::{AdvertisementClaim, HeardClaim, TicketClaim};
use crate::domain::id::{TicketId, UserKey};
use crate::domain::life::event::{Event, Heard};
use crate::domain::life::{Match, Place, Stage};
use crate::domain::queue::ticket::Ending;
use crate::engine::command::Caller;
use crate::engine::core::Core;
use crate::engine::fault::Fault;
use crate::engine::job::Job;
use crate::engine::queues::command::{
    EndMatch, EndMatchAnswer, Enter, EnterAnswer, Heartbeat, LeaveAnswer, Proof, QueueStatistics, Reference, Respond,
    Status,
};
use crate::engine::queues::enter::lapses_at;
use crate::engine::queues::hall::{HEARD_WITHIN, Hall, INBOX_MAX};
use crate::engine::queues::roster::Room;
use crate::engine::queues::status::is_over;
use crate::engine::seeker::field;
use crate::store::StoreError;
use crate::store::queues::{QueueKey, QueueOutcome, QueueWrite, StoredTicket, TicketState};

pub use self::bell::Bell;
pub use self::reports::rule_name;

/// After how long a match that has begun can no longer be called a failure of its server, milliseconds.
const FAILS_WITHIN_MS: u64 = 60_000;

/// The queues at work.
#[derive(Clone, Debug)]
pub struct Queues {
    hall: Arc<Hall>,
}

/// Tickets that somebody watches; over when dropped.
#[derive(Debug)]
pub struct Watch {
    hall: Arc<Hall>,
    bell: Arc<Bell>,
    /// What was last told of each: the ticket's edition and its match's.
    told: BTreeMap<TicketId, Option<(u64, u64)>>,
    /// Changed, and not told yet.
    changed: BTreeSet<TicketId>,
    /// Until when a ticket that nobody here knows may have been made at another server.
    known_by: Instant,
}

impl Queues {
    /// Loads what the store has and starts the tasks.
    pub(super) async fn start(
        core: Arc<Core>,
        jobs: mpsc::Sender<Job>,
        stop: &CancellationToken,
    ) -> Result<(Self, Vec<JoinHandle<()>>), StoreError> {
        let (orders, inbox) = mpsc::channel(INBOX_MAX);
        let feed = core.store.queue_feed().await;
        let hall = Arc::new(Hall::new(Arc::clone(&core), orders, jobs, feed.is_some()));
        let mut tasks = vec![tokio::spawn(writer::run(Arc::clone(&hall), inbox, stop.clone()))];
        match feed {
            Some(mut feed) => {
                hall.adopt(feed.read().await?);
                tasks.push(tokio::spawn(hear::run(Arc::clone(&hall), feed, stop.clone())));
            }
            None => {
                let load = core.store.load_queues(core.clock.now()).await?;
                hall.adopt(load.into());
            }
        }
        // Sorting a million takes a moment: better now than under the first who asks.
        let rated = core.catalog.living().into_iter().filter_map(|ruleset| Some((ruleset.set_id, ruleset.rating?)));
        for (set_id, spec) in rated {
            hall.ratings.lock().board(set_id, &spec);
        }
        tasks.push(tokio::spawn(keeper::run(Arc::clone(&hall), stop.clone())));
        Ok((Self { hall }, tasks))
    }

    /// A party begins to wait.
    pub async fn enter(&self, caller: &Caller, enter: Enter) -> Result<EnterAnswer, Fault> {
        self.hall.enter(caller, enter).await
    }

    /// A party no longer waits, or hears that it has a match.
    pub async fn leave(&self, caller: &Caller, ticket: &Reference) -> Result<LeaveAnswer, Fault> {
        let claim = self.own_claim(caller, ticket)?;
        let now = self.hall.core.clock.now();
        let forget_at = now.after(self.hall.core.settings.ticket_kept_ms);
        let write = QueueWrite::End { id: claim.id, how: Ending::Left, forget_at, now };
        match self.hall.write(write).await? {
            QueueOutcome::Ticket(stored) => {
                let status = self.hall.status(&stored, now);
                Ok(if is_over(&stored) { LeaveAnswer::Left(status) } else { LeaveAnswer::Matched(status) })
            }
            _ => Err(Fault::TicketNotFound),
        }
    }

    /// Keeps tickets alive, and says how each stands; `None` for one that nobody knows any more.
    pub async fn heartbeat(&self, caller: &Caller, beat: Heartbeat) -> Result<(Vec<Option<Status>>, u32), Fault> {
        let now = self.hall.core.clock.now();
        if let Some(own) = caller.user
            && beat.connected.iter().any(|user| *user != own)
        {
            return Err(Fault::NotYours);
        }
        let claims: Result<Vec<TicketClaim>, Fault> =
            beat.tickets.iter().map(|ticket| self.own_claim(caller, ticket)).collect();
        self.hall.presence.lock().note(beat.silo, beat.connected, now);
        let claims = claims?;
        let kept = join_all(claims.iter().map(|claim| self.hall.keep_alive(claim.id))).await;
        let kept: Result<Vec<_>, Fault> = kept.into_iter().collect();
        let kept = kept?;
        let least_ms = kept.iter().flatten().map(|(_, lapse_ms)| *lapse_ms).min();
        let statuses = kept.into_iter().map(|it| it.map(|(stored, _)| self.hall.status(&stored, now))).collect();
        Ok((statuses, least_ms.unwrap_or(0)))
    }

    /// Answers a ready check.
    pub async fn respond(&self, caller: &Caller, respond: Respond) -> Result<Status, Fault> {
        let claim = self.own_claim(caller, &respond.ticket)?;
        let stored = self.hall.known(claim.id).await?;
        let in_it: Vec<UserKey> = stored.ticket.session.players.iter().map(|player| player.user).collect();
        let users = if respond.users.is_empty() { in_it } else { respond.users };
        let event = Event::Answered { ticket: claim.id, users, accept: respond.accept };
        let heard_of = self.hall.soon(|roster| roster.play(respond.match_id).map(|_| ())).await;
        heard_of.ok_or(Fault::NotYours)?;
        let came = self.hall.happen(respond.match_id, event).await?;
        match came.heard {
            Heard::Changed | Heard::Known => {}
            Heard::NotNow | Heard::TooEarly | Heard::TooLate => return Err(Fault::NoReadyCheck),
            Heard::Stranger => return Err(Fault::NotYours),
        }
        let stored = self.hall.known(claim.id).await?;
        Ok(self.hall.status(&stored, self.hall.core.clock.now()))
    }

    /// A match is over, or its server has failed. Whoever runs it may say so while it is played, and hears afterwards how it
    /// ended, however often it asks.
    pub async fn end_match(&self, caller: &Caller, end: EndMatch) -> Result<EndMatchAnswer, Fault> {
        let play = self.hall.soon(|roster| roster.play(end.match_id).cloned()).await.ok_or(Fault::NotYours)?;
        let by = self.who_ends(caller, &end, &play)?;
        let young = match play.stage {
            Stage::Playing { began, .. } => self.hall.core.clock.now().since(began) < FAILS_WITHIN_MS,
            Stage::Over { outcome, .. } => return Ok(Some(outcome)),
            // Before it begins a match is ended by answering, or by leaving: whoever does is asked why by the ruleset.
            Stage::ReadyCheck { .. } | Stage::Placing { .. } => return Err(Fault::NotBegun),
        };
        let event = if end.failed && young { Event::ServerFailed } else { Event::Reported { by } };
        let came = self.hall.happen(end.match_id, event).await?;
        Ok(came.play.stage.outcome())
    }

    /// Which of its players, if any, says that a match is over; fails for whoever may not.
    fn who_ends(&self, caller: &Caller, end: &EndMatch, play: &Match) -> Result<Option<UserKey>, Fault> {
        let signer = &self.hall.core.signer;
        match &end.proof {
            Proof::Server(token) => {
                let claim = signer.open::<AdvertisementClaim>(token).ok_or(Fault::NotYours)?;
                let here = play.stage.was_at().is_some_and(|place| place.is_at(claim.id));
                (claim.subject == caller.subject && here).then_some(None).ok_or(Fault::NotYours)
            }
            Proof::Ticket(token) => {
                let claim = signer.open::<TicketClaim>(token).ok_or(Fault::NotYours)?;
                let member = play.members.iter().find(|member| member.ticket == claim.id);
                let member = member.filter(|_| claim.subject == caller.subject).ok_or(Fault::NotYours)?;
                match play.stage.was_at() {
                    Some(Place::Server { .. }) => Err(Fault::NotYours),
                    Some(Place::Peer { host }) => {
                        let hosts = member.players.iter().find(|seat| seat.player == *host);
                        Ok(Some(hosts.ok_or(Fault::NotYours)?.user))
                    }
                    Some(Place::Nowhere) if end.failed => {
                        Err(field("failed", "must not be set: this match has no server that could fail"))
                    }
                    Some(Place::Nowhere) | None => Ok(member.players.first().map(|seat| seat.user)),
                }
            }
        }
    }

    /// Watches tickets: each is told at first, unless what was last heard of it is still so, and whenever it changes.
    pub fn watch(&self, caller: &Caller, tickets: &[Reference]) -> Result<Watch, Fault> {
        let mut told = BTreeMap::new();
        for ticket in tickets {
            let claim = self.own_claim(caller, ticket)?;
            let heard = self.hall.core.signer.open::<HeardClaim>(&ticket.heard).filter(|heard| heard.id == claim.id);
            told.insert(claim.id, heard.map(|heard| (heard.ticket, heard.play)));
        }
        let bell = Arc::new(Bell::default());
        let mut roster = self.hall.roster.write();
        told.keys().for_each(|id| roster.listen(*id, &bell));
        drop(roster);
        let changed = told.keys().copied().collect();
        let known_by = Instant::now() + if self.hall.shared { HEARD_WITHIN } else { Duration::ZERO };
        Ok(Watch { hall: Arc::clone(&self.hall), bell, told, changed, known_by })
    }

    /// What every queue looks like.
    pub fn statistics(&self) -> Vec<QueueStatistics> {
        self.hall.statistics()
    }

    /// The claim in a ticket's token, if it is about that ticket and was given to this caller.
    fn own_claim(&self, caller: &Caller, ticket: &Reference) -> Result<TicketClaim, Fault> {
        let claim = self.hall.core.signer.open::<TicketClaim>(&ticket.token).ok_or(Fault::NotYours)?;
        if claim.id != ticket.id || claim.subject != caller.subject {
            return Err(Fault::NotYours);
        }
        Ok(claim)
    }
}

impl Watch {
    /// The next news of any of its tickets; `None` when all of them are over and that has been told.
    pub async fn next(&mut self) -> Option<Status> {
        loop {
            while let Some(id) = self.changed.pop_first() {
                if let Some(status) = self.news(id) {
                    return Some(status);
                }
            }
            if self.told.is_empty() {
                return None;
            }
            self.changed = match Instant::now() < self.known_by {
                true => match timeout_at(self.known_by, self.bell.changed()).await {
                    Ok(changed) => changed,
                    // Whatever is not known by now is looked at once more, and let go.
                    Err(_) => self.told.keys().copied().collect(),
                },
                false => self.bell.changed().await,
            };
        }
    }

    /// Keeps its tickets alive; how soon again, milliseconds.
    pub async fn keep_alive(&self) -> u32 {
        let ids: Vec<TicketId> = self.told.keys().copied().collect();
        let kept = join_all(ids.into_iter().map(|id| self.hall.keep_alive(id))).await;
        let lapses = kept.into_iter().flatten().flatten().map(|(_, lapse_ms)| lapse_ms);
        lapses.min().unwrap_or(KEPT_ALIVE_MS) / 3
    }

    /// How a ticket stands, if that has not been told.
    fn news(&mut self, id: TicketId) -> Option<Status> {
        let stored = self.hall.roster.read().ticket(id).cloned();
        let Some(stored) = stored else {
            // Nobody knows it any more, or nobody does yet.
            if self.known_by <= Instant::now() {
                self.let_go(id);
            }
            return None;
        };
        let status = self.hall.status(&stored, self.hall.core.clock.now());
        let now = self.hall.core.signer.open::<HeardClaim>(&status.heard).map(|heard| (heard.ticket, heard.play));
        let told = self.told.get_mut(&id)?;
        if now.is_some() && *told == now && !is_over(&stored) {
            return None;
        }
        *told = now;
        if is_over(&stored) {
            self.let_go(id);
        }
        Some(status)
    }

    /// There is nothing more to hear of a ticket.
    fn let_go(&mut self, id: TicketId) {
        self.told.remove(&id);
        self.hall.roster.write().unlisten(id, &self.bell);
    }
}

/// How soon tickets are kept alive again of which none waits, milliseconds.
const KEPT_ALIVE_MS: u32 = 60_000;

impl Drop for Watch {
    fn drop(&mut self) {
        let mut roster = self.hall.roster.write();
        self.told.keys().for_each(|id| roster.unlisten(*id, &self.bell));
    }
}

impl Hall {
    /// A ticket, from memory.
    async fn known(&self, id: TicketId) -> Result<StoredTicket, Fault> {
        self.soon(|roster| roster.ticket(id).cloned()).await.ok_or(Fault::TicketNotFound)
    }

    /// Keeps a ticket alive that waits; the store is told when half of the time has gone by. How it stands, and how long it is kept
    /// without another heartbeat.
    async fn keep_alive(&self, id: TicketId) -> Result<Option<(StoredTicket, u32)>, Fault> {
        let Some(stored) = self.soon(|roster| roster.ticket(id).cloned()).await else { return Ok(None) };
        let now = self.core.clock.now();
        let users: Vec<UserKey> = stored.ticket.session.players.iter().map(|player| player.user).collect();
        self.presence.lock().note(stored.ticket.session.silo, users, now);
        let ruleset = self.core.catalog.current(stored.ticket.set_id);
        let Some(queue) = ruleset.as_ref().and_then(|ruleset| ruleset.queue.as_ref()) else {
            return Ok(Some((stored, KEPT_ALIVE_MS)));
        };
        let lapse_ms = queue.ticket_lapse_ms;
        if stored.state != TicketState::Waiting || u64::from(lapse_ms / 2) < stored.expires.since(now) {
            return Ok(Some((stored, lapse_ms)));
        }
        match self.write(QueueWrite::Beat { id, expires: lapses_at(queue, now), now }).await? {
            QueueOutcome::Ticket(stored) => Ok(Some((stored, lapse_ms))),
            _ => Ok(None),
        }
    }

    fn statistics(&self) -> Vec<QueueStatistics> {
        let now = self.core.clock.now();
        let roster = self.roster.read();
        let (waits, reports) = (self.waits.lock(), self.reports.lock());
        let of = |(key, room): (QueueKey, &Room)| {
            let filed = reports.of(key);
            QueueStatistics {
                set_id: key.set_id,
                silo: key.silo,
                waiting: u32::try_from(room.len()).unwrap_or(u32::MAX),
                players: room.players(),
                matches: u32::try_from(room.matches()).unwrap_or(u32::MAX),
                longest_wait_ms: room.waiting().next().map_or(0, |(entered, _)| now.since(entered)),
                here: filed.is_some(),
                refusals: filed.map_or_else(Vec::new, |filed| filed.refusals.clone()),
                passes: filed.map_or(0, |filed| filed.passes),
                last_pass_ms: filed.map_or(0.0, |filed| filed.took_ms),
                waits: waits.whole(key.set_id, now).map(|it| (it.p50_ms, it.p90_ms, it.count)),
                quality: waits.quality(key.set_id, now),
                calibration_percent: waits.calibration_percent(key.set_id),
            }
        };
        roster.queues().map(of).collect()
    }
}
