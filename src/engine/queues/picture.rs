//! A queue as a pass and an explanation see it: who waits, who has met whom, which sessions are open, how many are about.

use std::collections::HashMap;
use std::sync::Arc;

use crate::domain::id::{IdState, RulesetHash, TicketId};
use crate::domain::limit::PASS_LOOKS_MAX;
use crate::domain::queue::avoid::Meetings;
use crate::domain::queue::backfill::OpenSession;
use crate::domain::queue::entrant::Entrant;
use crate::domain::queue::gate::Crowd;
use crate::domain::queue::pass::PassInput;
use crate::domain::queue::ticket::Ticket;
use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::queue::{AvoidWhom, Quality, QueueSpec};
use crate::domain::time::UnixMs;
use crate::engine::queues::hall::Hall;
use crate::store::queues::QueueKey;

/// A queue at one moment, owned, so that it can be looked at on another thread.
pub(super) struct Picture {
    pub(super) ruleset: Arc<Ruleset>,
    pub(super) entrants: Vec<Arc<Entrant>>,
    sessions: Vec<OpenSession>,
    meetings: Arc<Meetings>,
    pub(super) crowd: Crowd,
    now: UnixMs,
    seed: u64,
}

impl Picture {
    /// Has `look` look at it; none where the set has no queue.
    pub(super) fn look<T>(&self, look: impl FnOnce(&PassInput<'_>) -> T) -> Option<T> {
        let (queue, teams) = (self.ruleset.queue.as_ref()?, self.ruleset.teams.as_ref()?);
        let entrants: Vec<&Entrant> = self.entrants.iter().map(|entrant| &**entrant).collect();
        Some(look(&PassInput {
            ruleset: &self.ruleset,
            queue,
            teams,
            entrants: &entrants,
            sessions: &self.sessions,
            meetings: &self.meetings,
            crowd: self.crowd,
            now: self.now,
            seed: self.seed,
            looks_max: PASS_LOOKS_MAX,
        }))
    }
}

/// What passes of a queue need not make anew: tickets as they see them, and who has met whom; for one ruleset.
#[derive(Debug, Default)]
pub(super) struct Entrants {
    known: HashMap<TicketId, Arc<Entrant>, IdState>,
    seen_by: Option<RulesetHash>,
    /// With the roster's count of matches that had begun then.
    meetings: Option<(u64, Arc<Meetings>)>,
}

impl Entrants {
    /// Whether these are of another ruleset than `hash`; they are forgotten then.
    pub(super) fn is_new(&mut self, hash: RulesetHash) -> bool {
        let new = self.seen_by != Some(hash);
        if new {
            self.known.clear();
            self.meetings = None;
            self.seen_by = Some(hash);
        }
        new
    }

    /// The tickets as a pass sees them; those that have gone are forgotten.
    fn of(
        &mut self,
        hall: &Hall,
        ruleset: &Ruleset,
        queue: &QueueSpec,
        tickets: Vec<Arc<Ticket>>,
    ) -> Vec<Arc<Entrant>> {
        let by_place = matches!(queue.quality, Quality::LeaderboardGauss { .. });
        let places = match by_place {
            true => hall.ratings.lock().places(ruleset, &tickets),
            false => vec![None; tickets.len()],
        };
        let mut known = std::mem::take(&mut self.known);
        let mut seen = Vec::with_capacity(tickets.len());
        let frustrated = match &queue.satisfaction {
            Some(satisfaction) => hall.ratings.lock().frustrated(ruleset.set_id, satisfaction, &tickets),
            None => vec![false; tickets.len()],
        };
        for ((ticket, place), frustrated) in tickets.into_iter().zip(places).zip(frustrated) {
            let id = ticket.id;
            let entrant = match known.remove(&id) {
                Some(entrant) if entrant.place == place && entrant.frustrated == frustrated => entrant,
                Some(entrant) => Arc::new(Entrant { place, frustrated, ..(*entrant).clone() }),
                None => Arc::new(Entrant { frustrated, ..Entrant::of(ruleset, queue, ticket, place) }),
            };
            self.known.insert(id, Arc::clone(&entrant));
            seen.push(entrant);
        }
        seen
    }
}

impl Hall {
    /// The queue as it is now, without those who are in a match by another ticket.
    pub(super) fn picture(
        &self,
        key: QueueKey,
        ruleset: &Arc<Ruleset>,
        queue: &QueueSpec,
        entrants: &mut Entrants,
        now: UnixMs,
    ) -> Picture {
        let tickets = self.free(key, now);
        Picture {
            meetings: self.meetings(key, queue, entrants, now),
            entrants: entrants.of(self, ruleset, queue, tickets),
            sessions: if queue.backfill { self.open_sessions(key, ruleset, now) } else { Vec::new() },
            crowd: self.crowd(key, now),
            now,
            seed: seed(self.core.clock.dice()),
            ruleset: Arc::clone(ruleset),
        }
    }

    /// What the gate counts.
    pub(super) fn crowd(&self, key: QueueKey, now: UnixMs) -> Crowd {
        let running = self.roster.read().room(key).map_or(0, |room| room.matches());
        Crowd {
            connected_players: self.presence.lock().of(key.silo, now),
            running_matches: u32::try_from(running).unwrap_or(u32::MAX),
        }
    }

    /// Tickets that may be matched: none of their players is in a match.
    fn free(&self, key: QueueKey, now: UnixMs) -> Vec<Arc<Ticket>> {
        let roster = self.roster.read();
        let Some(room) = roster.room(key) else { return Vec::new() };
        let free = room.waiting().filter_map(|(_, id)| {
            let stored = roster.ticket(id)?;
            let users = stored.ticket.session.players.iter().map(|player| player.user);
            (now < stored.expires && roster.match_of(users).is_none()).then(|| Arc::clone(&stored.ticket))
        });
        free.collect()
    }

    /// Who met whom. What was found stands until another match begins: a meeting that has become too old in the meantime is
    /// passed over by whoever asks.
    fn meetings(&self, key: QueueKey, queue: &QueueSpec, entrants: &mut Entrants, now: UnixMs) -> Arc<Meetings> {
        let begun = self.roster.read().begun();
        if let Some((_, known)) = entrants.meetings.as_ref().filter(|(at, _)| *at == begun) {
            return Arc::clone(known);
        }
        let meetings = Arc::new(self.find_meetings(key, queue, now));
        entrants.meetings = Some((begun, Arc::clone(&meetings)));
        meetings
    }

    /// Who met whom, as far back as the ruleset asks.
    fn find_meetings(&self, key: QueueKey, queue: &QueueSpec, now: UnixMs) -> Meetings {
        let back_ms = queue.avoid.iter().map(|avoid| match avoid.whom {
            AvoidWhom::Blocked => 0,
            AvoidWhom::RecentOpponents { for_ms } | AvoidWhom::RecentTeammates { for_ms } => for_ms,
        });
        let Some(back_ms) = back_ms.max().filter(|ms| 0 < *ms) else { return Meetings::default() };
        let roster = self.roster.read();
        let mut meetings = Vec::new();
        for play in roster.plays().filter(|play| play.set_id == key.set_id && play.silo == key.silo) {
            if play.stage.began().is_some_and(|began| now.since(began) < back_ms) {
                meetings.extend(play.meetings());
            }
        }
        Meetings::of(meetings)
    }
}

/// Dice as a seed: the 53 bits that there are.
fn seed(dice: f64) -> u64 {
    (dice * (1_u64 << 53) as f64) as u64
}
