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
use crate::domain::ruleset::queue::{AvoidTarget, Gate, QualitySpec, QueueSpec};
use crate::domain::time::UnixMs;
use crate::engine::queues::shared_state::SharedState;
use crate::store::queues::QueueKey;

/// Queue state at one moment, owned, so that another thread can use it.
pub(crate) struct QueueSnapshot {
    pub(crate) ruleset: Arc<Ruleset>,
    pub(crate) prepared_tickets: Vec<Arc<PreparedTicket>>,
    open_sessions: Vec<OpenSession>,
    past_matches: PastMatches,
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
        let open_sessions = if queue.backfill {
            shared.adverts.open_backfill_sessions(key.set_id, key.silo, ruleset, now)
        } else {
            Vec::new()
        };
        Self {
            // After the tickets: a match that ended before they were read is in the log.
            past_matches: past_matches(shared, key, queue, &tickets, &open_sessions, now),
            prepared_tickets: ticket_cache.prepare_tickets(shared, ruleset, queue, tickets),
            open_sessions,
            gate_input: gate_input(shared, key, &queue.gate, now),
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

/// Prepared tickets, reused between passes under one ruleset.
#[derive(Debug, Default)]
pub(crate) struct PreparedTicketCache {
    prepared_tickets: HashMap<TicketId, Arc<PreparedTicket>, BuildIdHasher>,
    ruleset_hash: Option<RulesetHash>,
}

impl PreparedTicketCache {
    /// Clears the cache if the ruleset is not `hash`; returns whether it did.
    pub(crate) fn reset_if_ruleset_changed(&mut self, hash: RulesetHash) -> bool {
        let is_changed = self.ruleset_hash != Some(hash);
        if is_changed {
            self.prepared_tickets.clear();
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
    ) -> Vec<Arc<PreparedTicket>> {
        let party_values = &shared.common.party_values;
        let scale = party_values.rating_digest_key(ruleset);
        let tickets: Vec<Arc<Ticket>> =
            tickets.into_iter().map(|ticket| party_values.on_scale(scale, ruleset, ticket)).collect();
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

/// Counts for the gate. Connected players are counted only for a gate that requires a share of them.
pub(crate) fn gate_input(shared: &SharedState, key: QueueKey, gate: &Gate, now: UnixMs) -> GateInput {
    let active_matches = shared.cache.read().queue_index(key).map_or(0, |index| index.running_match_count());
    let connected_players = || shared.connected_users.lock().connected_count(key, now);
    GateInput {
        connected_players: if gate.counts_connected_players() { connected_players() } else { 0 },
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

/// Past matches of the users who wait or are in open sessions. Empty if no rule needs them.
fn past_matches(
    shared: &SharedState,
    key: QueueKey,
    queue: &QueueSpec,
    tickets: &[Arc<Ticket>],
    open_sessions: &[OpenSession],
    now: UnixMs,
) -> PastMatches {
    if queue.avoid.iter().all(|rule| rule.whom == AvoidTarget::Blocked) {
        return PastMatches::default();
    }
    let Some(log) = shared.cache.read().past_match_log(key) else { return PastMatches::default() };
    let sessions = open_sessions.iter().map(|open| &open.advertisement.session);
    let sessions = tickets.iter().map(|ticket| &ticket.session).chain(sessions);
    let users = sessions.flat_map(|session| session.players.iter().map(|player| player.user));
    log.lock().past_matches_of(users, &queue.avoid, now)
}

/// Seed from the 53 random bits of a fraction in [0, 1).
fn seed_from_fraction(fraction: f64) -> u64 {
    (fraction * (1_u64 << 53) as f64) as u64
}
