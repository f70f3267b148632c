//! Queue snapshot: tickets, past matches, open sessions and counts, as input of a pass or an explanation.

use std::collections::HashMap;
use std::sync::Arc;

use crate::domain::id::{BuildIdHasher, RulesetHash, TicketId};
use crate::domain::limit::PAIR_CHECKS_PER_PASS_MAX;
use crate::domain::queue::avoidance::PastMatches;
use crate::domain::queue::backfill::OpenSession;
use crate::domain::queue::gate::GateInput;
use crate::domain::queue::pass::PassInput;
use crate::domain::queue::prepared_ticket::PreparedTicket;
use crate::domain::queue::ticket::Ticket;
use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::queue::{AvoidTarget, QualitySpec, QueueSpec};
use crate::domain::time::UnixMs;
use crate::engine::queues::shared_state::SharedState;
use crate::store::queues::QueueKey;

/// Queue state at one moment, owned, so that another thread can use it.
pub(crate) struct QueueSnapshot {
    pub(crate) ruleset: Arc<Ruleset>,
    pub(crate) prepared_tickets: Vec<Arc<PreparedTicket>>,
    open_sessions: Vec<OpenSession>,
    past_matches: Arc<PastMatches>,
    pub(crate) gate_input: GateInput,
    now: UnixMs,
    seed: u64,
}

impl QueueSnapshot {
    /// Current queue state, without tickets that have a player in another match.
    pub(crate) fn take(
        shared: &SharedState,
        key: QueueKey,
        ruleset: &Arc<Ruleset>,
        queue: &QueueSpec,
        ticket_cache: &mut PreparedTicketCache,
        now: UnixMs,
    ) -> Self {
        let tickets = matchable_tickets(shared, key, now);
        Self {
            past_matches: past_matches(shared, key, queue, ticket_cache, now),
            prepared_tickets: ticket_cache.prepare_tickets(shared, ruleset, queue, tickets, now),
            open_sessions: if queue.backfill {
                shared.adverts.open_backfill_sessions(key.set_id, key.silo, ruleset, now)
            } else {
                Vec::new()
            },
            gate_input: gate_input(shared, key, now),
            now,
            seed: seed_from_fraction(shared.common.clock.random_unit_f64()),
            ruleset: Arc::clone(ruleset),
        }
    }

    /// Calls `use_input` with the snapshot as pass input; `None` if the set has no queue.
    pub(crate) fn with_pass_input<T>(&self, use_input: impl FnOnce(&PassInput<'_>) -> T) -> Option<T> {
        let (queue, teams) = (self.ruleset.queue.as_ref()?, self.ruleset.teams.as_ref()?);
        let tickets: Vec<&PreparedTicket> = self.prepared_tickets.iter().map(|ticket| &**ticket).collect();
        Some(use_input(&PassInput {
            ruleset: &self.ruleset,
            queue,
            teams,
            tickets: &tickets,
            open_sessions: &self.open_sessions,
            past_matches: &self.past_matches,
            gate_input: self.gate_input,
            now: self.now,
            rng_seed: self.seed,
            max_pair_checks: PAIR_CHECKS_PER_PASS_MAX,
        }))
    }
}

/// Prepared tickets and past matches, reused between passes under one ruleset.
#[derive(Debug, Default)]
pub(crate) struct PreparedTicketCache {
    prepared_tickets: HashMap<TicketId, Arc<PreparedTicket>, BuildIdHasher>,
    ruleset_hash: Option<RulesetHash>,
    /// Past matches, with the cache's `past_match_version` at collection.
    past_matches: Option<(u64, Arc<PastMatches>)>,
}

impl PreparedTicketCache {
    /// Clears the cache if the ruleset is not `hash`; returns whether it did.
    pub(crate) fn reset_if_ruleset_changed(&mut self, hash: RulesetHash) -> bool {
        let is_changed = self.ruleset_hash != Some(hash);
        if is_changed {
            self.prepared_tickets.clear();
            self.past_matches = None;
            self.ruleset_hash = Some(hash);
        }
        is_changed
    }

    /// Prepared tickets for a pass. Drops those no longer in the queue.
    fn prepare_tickets(
        &mut self,
        shared: &SharedState,
        ruleset: &Ruleset,
        queue: &QueueSpec,
        tickets: Vec<Arc<Ticket>>,
        now: UnixMs,
    ) -> Vec<Arc<PreparedTicket>> {
        let tickets: Vec<Arc<Ticket>> = {
            let ratings = shared.ratings.lock();
            tickets.into_iter().map(|ticket| ratings.with_ratings_of(ruleset, ticket, now)).collect()
        };
        let uses_leaderboard = matches!(queue.quality, QualitySpec::LeaderboardGauss { .. });
        let ranks = if uses_leaderboard {
            shared.ratings.lock().mean_leaderboard_ranks(ruleset, &tickets)
        } else {
            vec![None; tickets.len()]
        };
        let mut cached = std::mem::take(&mut self.prepared_tickets);
        let mut prepared = Vec::with_capacity(tickets.len());
        let frustrated_flags = match &queue.satisfaction {
            Some(satisfaction) => shared.ratings.lock().tickets_with_frustrated_player(ruleset, satisfaction, &tickets),
            None => vec![false; tickets.len()],
        };
        for ((ticket, rank), is_frustrated) in tickets.into_iter().zip(ranks).zip(frustrated_flags) {
            let id = ticket.id;
            let ticket = match cached.remove(&id) {
                Some(ticket) if ticket.leaderboard_position == rank && ticket.frustrated == is_frustrated => ticket,
                Some(ticket) => Arc::new(PreparedTicket {
                    leaderboard_position: rank,
                    frustrated: is_frustrated,
                    ..(*ticket).clone()
                }),
                None => Arc::new(PreparedTicket {
                    frustrated: is_frustrated,
                    ..PreparedTicket::new(ruleset, queue, ticket, rank)
                }),
            };
            self.prepared_tickets.insert(id, Arc::clone(&ticket));
            prepared.push(ticket);
        }
        prepared
    }
}

/// Counts for the gate.
pub(crate) fn gate_input(shared: &SharedState, key: QueueKey, now: UnixMs) -> GateInput {
    let active_matches = shared.cache.read().queue_index(key).map_or(0, |index| index.running_match_count());
    GateInput {
        connected_players: shared.connected_users.lock().connected_count(key.silo, now),
        active_matches: u32::try_from(active_matches).unwrap_or(u32::MAX),
    }
}

/// Tickets that may be matched: none of their players is in a match.
fn matchable_tickets(shared: &SharedState, key: QueueKey, now: UnixMs) -> Vec<Arc<Ticket>> {
    let cache = shared.cache.read();
    let Some(index) = cache.queue_index(key) else { return Vec::new() };
    let tickets = index.waiting_tickets().filter_map(|(_, id)| {
        let stored = cache.ticket(id)?;
        let users = stored.ticket.session.players.iter().map(|player| player.user);
        (now < stored.expires_at && cache.running_match_of(users).is_none()).then(|| Arc::clone(&stored.ticket))
    });
    tickets.collect()
}

/// Past matches of the queue. Cached until a match starts or is removed; readers skip matches that are too old.
fn past_matches(
    shared: &SharedState,
    key: QueueKey,
    queue: &QueueSpec,
    ticket_cache: &mut PreparedTicketCache,
    now: UnixMs,
) -> Arc<PastMatches> {
    let version = shared.cache.read().past_match_version();
    if let Some((_, cached)) =
        ticket_cache.past_matches.as_ref().filter(|(cached_version, _)| *cached_version == version)
    {
        return Arc::clone(cached);
    }
    let past_matches = Arc::new(collect_past_matches(shared, key, queue, now));
    ticket_cache.past_matches = Some((version, Arc::clone(&past_matches)));
    past_matches
}

/// Past matches within the longest period that the ruleset avoids.
fn collect_past_matches(shared: &SharedState, key: QueueKey, queue: &QueueSpec, now: UnixMs) -> PastMatches {
    let max_age_ms = queue.avoid.iter().map(|avoid| match avoid.whom {
        AvoidTarget::Blocked => 0,
        AvoidTarget::RecentOpponents { recent_ms } | AvoidTarget::RecentTeammates { recent_ms } => recent_ms,
    });
    let Some(max_age_ms) = max_age_ms.max().filter(|age_ms| *age_ms > 0) else { return PastMatches::default() };
    let cache = shared.cache.read();
    let mut past_matches = Vec::new();
    for match_ in cache.all_matches().filter(|match_| match_.set_id == key.set_id && match_.silo == key.silo) {
        if match_.stage.started_at().is_some_and(|started_at| now.ms_since(started_at) < max_age_ms) {
            past_matches.extend(match_.past_matches());
        }
    }
    PastMatches::latest_of(past_matches)
}

/// Seed from the 53 random bits of a fraction in [0, 1).
fn seed_from_fraction(fraction: f64) -> u64 {
    (fraction * (1_u64 << 53) as f64) as u64
}
