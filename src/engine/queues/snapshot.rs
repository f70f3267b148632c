//! A queue as a pass and an explanation see it: who waits, who has met whom, which sessions are open, how many are about.

use std::collections::HashMap;
use std::sync::Arc;

use crate::domain::id::{BuildIdHasher, RulesetHash, TicketId};
use crate::domain::limit::PAIR_CHECKS_PER_PASS_MAX;
use crate::domain::queue::avoidance::PastMatches;
use crate::domain::queue::backfill::OpenSession;
use crate::domain::queue::gate::QueueCounts;
use crate::domain::queue::pass::PassInput;
use crate::domain::queue::prepared_ticket::PreparedTicket;
use crate::domain::queue::ticket::Ticket;
use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::queue::{AvoidTarget, QualitySpec, QueueSpec};
use crate::domain::time::UnixMs;
use crate::engine::queues::shared_state::SharedState;
use crate::store::queues::QueueKey;

/// A queue at one moment, owned, so that it can be looked at on another thread.
pub(super) struct QueueSnapshot {
    pub(super) ruleset: Arc<Ruleset>,
    pub(super) prepared_tickets: Vec<Arc<PreparedTicket>>,
    open_sessions: Vec<OpenSession>,
    past_matches: Arc<PastMatches>,
    pub(super) queue_counts: QueueCounts,
    now: UnixMs,
    seed: u64,
}

impl QueueSnapshot {
    /// Has `look` look at it; none where the set has no queue.
    pub(super) fn with_pass_input<T>(&self, look: impl FnOnce(&PassInput<'_>) -> T) -> Option<T> {
        let (queue, teams) = (self.ruleset.queue.as_ref()?, self.ruleset.teams.as_ref()?);
        let entrants: Vec<&PreparedTicket> = self.prepared_tickets.iter().map(|entrant| &**entrant).collect();
        Some(look(&PassInput {
            ruleset: &self.ruleset,
            queue,
            teams,
            tickets: &entrants,
            open_sessions: &self.open_sessions,
            past_matches: &self.past_matches,
            queue_counts: self.queue_counts,
            now: self.now,
            rng_seed: self.seed,
            max_pair_checks: PAIR_CHECKS_PER_PASS_MAX,
        }))
    }
}

/// What passes of a queue need not make anew: tickets as they see them, and who has met whom; for one ruleset.
#[derive(Debug, Default)]
pub(super) struct PreparedTicketCache {
    prepared_tickets: HashMap<TicketId, Arc<PreparedTicket>, BuildIdHasher>,
    ruleset_hash: Option<RulesetHash>,
    /// With the roster's count of matches that had begun then.
    past_matches: Option<(u64, Arc<PastMatches>)>,
}

impl PreparedTicketCache {
    /// Whether these are of another ruleset than `hash`; they are forgotten then.
    pub(super) fn reset_if_ruleset_changed(&mut self, hash: RulesetHash) -> bool {
        let new = self.ruleset_hash != Some(hash);
        if new {
            self.prepared_tickets.clear();
            self.past_matches = None;
            self.ruleset_hash = Some(hash);
        }
        new
    }

    /// The tickets as a pass sees them; those that have gone are forgotten.
    fn prepare_tickets(
        &mut self,
        hall: &SharedState,
        ruleset: &Ruleset,
        queue: &QueueSpec,
        tickets: Vec<Arc<Ticket>>,
    ) -> Vec<Arc<PreparedTicket>> {
        let by_place = matches!(queue.quality, QualitySpec::LeaderboardGauss { .. });
        let places = match by_place {
            true => hall.ratings.lock().mean_leaderboard_ranks(ruleset, &tickets),
            false => vec![None; tickets.len()],
        };
        let mut known = std::mem::take(&mut self.prepared_tickets);
        let mut seen = Vec::with_capacity(tickets.len());
        let frustrated = match &queue.satisfaction {
            Some(satisfaction) => {
                hall.ratings.lock().tickets_with_frustrated_player(ruleset.set_id, satisfaction, &tickets)
            }
            None => vec![false; tickets.len()],
        };
        for ((ticket, place), frustrated) in tickets.into_iter().zip(places).zip(frustrated) {
            let id = ticket.id;
            let entrant = match known.remove(&id) {
                Some(entrant) if entrant.leaderboard_position == place && entrant.frustrated == frustrated => entrant,
                Some(entrant) => {
                    Arc::new(PreparedTicket { leaderboard_position: place, frustrated, ..(*entrant).clone() })
                }
                None => Arc::new(PreparedTicket { frustrated, ..PreparedTicket::new(ruleset, queue, ticket, place) }),
            };
            self.prepared_tickets.insert(id, Arc::clone(&entrant));
            seen.push(entrant);
        }
        seen
    }
}

impl SharedState {
    /// The queue as it is now, without those who are in a match by another ticket.
    pub(super) fn take_snapshot(
        &self,
        key: QueueKey,
        ruleset: &Arc<Ruleset>,
        queue: &QueueSpec,
        entrants: &mut PreparedTicketCache,
        now: UnixMs,
    ) -> QueueSnapshot {
        let tickets = self.matchable_tickets(key, now);
        QueueSnapshot {
            past_matches: self.past_matches(key, queue, entrants, now),
            prepared_tickets: entrants.prepare_tickets(self, ruleset, queue, tickets),
            open_sessions: if queue.backfill { self.open_backfill_sessions(key, ruleset, now) } else { Vec::new() },
            queue_counts: self.queue_counts(key, now),
            now,
            seed: seed_from_fraction(self.core.clock.random_unit_f64()),
            ruleset: Arc::clone(ruleset),
        }
    }

    /// What the gate counts.
    pub(super) fn queue_counts(&self, key: QueueKey, now: UnixMs) -> QueueCounts {
        let running = self.cache.read().queue_index(key).map_or(0, |room| room.running_match_count());
        QueueCounts {
            connected_players: self.connected_users.lock().connected_count(key.silo, now),
            active_matches: u32::try_from(running).unwrap_or(u32::MAX),
        }
    }

    /// Tickets that may be matched: none of their players is in a match.
    fn matchable_tickets(&self, key: QueueKey, now: UnixMs) -> Vec<Arc<Ticket>> {
        let roster = self.cache.read();
        let Some(room) = roster.queue_index(key) else { return Vec::new() };
        let free = room.waiting_tickets().filter_map(|(_, id)| {
            let stored = roster.ticket(id)?;
            let users = stored.ticket.session.players.iter().map(|player| player.user);
            (now < stored.expires_at && roster.running_match_of(users).is_none()).then(|| Arc::clone(&stored.ticket))
        });
        free.collect()
    }

    /// Who met whom. What was found stands until another match begins: a meeting that has become too old in the meantime is
    /// passed over by whoever asks.
    fn past_matches(
        &self,
        key: QueueKey,
        queue: &QueueSpec,
        entrants: &mut PreparedTicketCache,
        now: UnixMs,
    ) -> Arc<PastMatches> {
        let begun = self.cache.read().past_match_version();
        if let Some((_, known)) = entrants.past_matches.as_ref().filter(|(at, _)| *at == begun) {
            return Arc::clone(known);
        }
        let meetings = Arc::new(self.collect_past_matches(key, queue, now));
        entrants.past_matches = Some((begun, Arc::clone(&meetings)));
        meetings
    }

    /// Who met whom, as far back as the ruleset asks.
    fn collect_past_matches(&self, key: QueueKey, queue: &QueueSpec, now: UnixMs) -> PastMatches {
        let back_ms = queue.avoid.iter().map(|avoid| match avoid.whom {
            AvoidTarget::Blocked => 0,
            AvoidTarget::RecentOpponents { for_ms } | AvoidTarget::RecentTeammates { for_ms } => for_ms,
        });
        let Some(back_ms) = back_ms.max().filter(|ms| 0 < *ms) else { return PastMatches::default() };
        let roster = self.cache.read();
        let mut meetings = Vec::new();
        for play in roster.all_matches().filter(|play| play.set_id == key.set_id && play.silo == key.silo) {
            if play.stage.started_at().is_some_and(|began| now.ms_since(began) < back_ms) {
                meetings.extend(play.past_matches());
            }
        }
        PastMatches::latest_of(meetings)
    }
}

/// Dice as a seed: the 53 bits that there are.
fn seed_from_fraction(dice: f64) -> u64 {
    (dice * (1_u64 << 53) as f64) as u64
}
