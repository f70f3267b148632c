//! Queue snapshot: tickets, past matches, open sessions and counts, as input of a pass or an explanation.

use std::collections::HashMap;
use std::sync::Arc;

use crate::domain::id::{BuildIdHasher, RulesetHash, TicketId};
use crate::domain::limit::PAIR_CHECKS_PER_PASS_MAX;
use crate::domain::played_values::PlayedValues;
use crate::domain::queue::avoidance::PastMatches;
use crate::domain::queue::backfill::OpenSession;
use crate::domain::queue::gate::GateCounts;
use crate::domain::queue::pass::PassInput;
use crate::domain::queue::pass_memory::PassMemory;
use crate::domain::queue::prepared_ticket::PreparedTicket;
use crate::domain::queue::seat_vectors::SeatBeaconVectors;
use crate::domain::queue::ticket::Ticket;
use crate::domain::queue::ticket_vector::TicketBeaconVector;
use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::queue::{AvoidTarget, FrustratedPlayerSpec, Gate, QualitySpec, QueueSpec};
use crate::domain::time::UnixMs;
use crate::engine::queues::open_sessions;
use crate::engine::queues::queue_predictions::VectorCompleter;
use crate::engine::queues::shared_state::SharedState;
use crate::store::queues::{QueueKey, TicketState};

/// Tickets that are read from the cache under one lock, so that a write waits for a fraction of a millisecond at most.
pub(crate) const TICKETS_PER_READ: usize = 1_024;

/// Queue state at one moment, owned, so that another thread can use it.
pub(crate) struct QueueSnapshot {
    pub(crate) ruleset: Arc<Ruleset>,
    pub(crate) prepared_tickets: Vec<Arc<PreparedTicket>>,
    open_sessions: Vec<OpenSession>,
    past_matches: PastMatches,
    pub(crate) gate_counts: GateCounts,
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
        Self::take_longest_waiting(shared, (key, usize::MAX), ruleset, queue, ticket_cache, now)
    }

    /// The same with at most `max_tickets` tickets, the longest waits first.
    pub(crate) fn take_longest_waiting(
        shared: &SharedState,
        (key, max_tickets): (QueueKey, usize),
        ruleset: &Arc<Ruleset>,
        queue: &QueueSpec,
        ticket_cache: &mut PreparedTicketCache,
        now: UnixMs,
    ) -> Self {
        let (tickets, seat_vectors): (Vec<Arc<Ticket>>, Vec<SeatBeaconVectors>) =
            matchable_tickets(shared, key, now, max_tickets).into_iter().unzip();
        let predictions = VectorCompleter::of_ruleset(&shared.common, ruleset, now);
        let open_sessions = if queue.backfill {
            open_sessions::open_sessions(shared, key, ruleset, queue, predictions.as_ref(), now)
        } else {
            Vec::new()
        };
        Self {
            // After the tickets: a match that ended before they were read is in the log.
            past_matches: past_matches(shared, key, (ruleset, queue), &tickets, &open_sessions, now),
            prepared_tickets: ticket_cache.prepare_tickets(
                shared,
                ruleset,
                queue,
                tickets,
                (&seat_vectors, predictions.as_ref()),
            ),
            open_sessions,
            gate_counts: gate_counts(shared, key, &queue.gate, now),
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
            gate_counts: self.gate_counts,
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
    /// Number of changes of block lists that the tickets know.
    block_list_changes: u64,
    /// Memory of the last pass.
    pass_memory: PassMemory,
}

impl PreparedTicketCache {
    /// Clears the cache if the ruleset is not `hash`; returns whether it did.
    pub(crate) fn reset_if_ruleset_changed(&mut self, hash: RulesetHash) -> bool {
        let is_changed = self.ruleset_hash != Some(hash);
        if is_changed {
            self.prepared_tickets.clear();
            self.pass_memory = PassMemory::default();
            self.ruleset_hash = Some(hash);
        }
        is_changed
    }

    /// Takes the memory of the last pass, for the next one.
    pub(crate) fn take_pass_memory(&mut self) -> PassMemory {
        std::mem::take(&mut self.pass_memory)
    }

    /// Keeps the memory of a pass over the prepared tickets.
    pub(crate) fn keep_pass_memory(&mut self, memory: PassMemory) {
        self.pass_memory = memory;
    }

    /// Prepared tickets for a pass. Drops those no longer in the queue.
    fn prepare_tickets(
        &mut self,
        shared: &SharedState,
        ruleset: &Ruleset,
        queue: &QueueSpec,
        tickets: Vec<Arc<Ticket>>,
        (seat_vectors, predictions): (&[SeatBeaconVectors], Option<&VectorCompleter>),
    ) -> Vec<Arc<PreparedTicket>> {
        let party_values = &shared.common.party_values;
        let scale = party_values.rating_key_unless_first_scale(ruleset);
        let tickets: Vec<Arc<Ticket>> =
            tickets.into_iter().map(|ticket| party_values.ticket_on_scale(scale, ruleset, ticket)).collect();
        let uses_leaderboard = matches!(queue.quality, QualitySpec::LeaderboardGauss { .. });
        let ranks = if uses_leaderboard {
            shared.ratings.lock().mean_leaderboard_ranks(ruleset, &tickets)
        } else {
            vec![None; tickets.len()]
        };
        let mut cached = std::mem::take(&mut self.prepared_tickets);
        let mut prepared = Vec::with_capacity(tickets.len());
        let flags_of = |satisfaction: &Option<FrustratedPlayerSpec>| match satisfaction {
            Some(satisfaction) => {
                shared.ratings.lock().has_frustrated_player_by_ticket(ruleset, satisfaction, &tickets)
            }
            None => vec![false; tickets.len()],
        };
        let flags =
            flags_of(&queue.frustrated_player_window).into_iter().zip(flags_of(&ruleset.frustrated_player_limits));
        let block_lists = queue.avoids_blocked_users().then(|| shared.common.block_lists.read());
        let list_changes = block_lists.as_ref().map_or(0, |lists| lists.change_count());
        let lists_have_changed = std::mem::replace(&mut self.block_list_changes, list_changes) != list_changes;
        let tickets = tickets.into_iter().zip(seat_vectors);
        for (((ticket, seat_vectors), rank), (is_frustrated, has_wider_limits)) in tickets.zip(ranks).zip(flags) {
            let id = ticket.id;
            let known = cached.remove(&id);
            let before = known.clone();
            let mut ticket = match known {
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
            if ticket.has_wider_limits() != has_wider_limits {
                ticket = Arc::new(Arc::unwrap_or_clone(ticket).with_limits_if_frustrated(ruleset, has_wider_limits));
            }
            if let Some(lists) = block_lists.as_ref().filter(|_| before.is_none() || lists_have_changed) {
                let durable = lists.users_blocked_by(ticket.users.iter().copied());
                if let Some(blocked) = ticket.blocked_users_if_changed(&durable) {
                    ticket = Arc::new(Arc::unwrap_or_clone(ticket).with_blocked_users(blocked));
                }
            }
            if let Some(vector) = beacon_vector_if_changed(predictions, &ticket, seat_vectors) {
                ticket = Arc::new(PreparedTicket { vector, ..Arc::unwrap_or_clone(ticket) });
            }
            if before.is_some_and(|before| !Arc::ptr_eq(&before, &ticket)) {
                self.pass_memory.forget(id);
            }
            self.prepared_tickets.insert(id, Arc::clone(&ticket));
            prepared.push(ticket);
        }
        prepared
    }
}

/// Completed vector of a ticket, or none, if it is not the one that the ticket has: its players' vectors have changed or ended, or the
/// fleet has.
fn beacon_vector_if_changed(
    predictions: Option<&VectorCompleter>,
    ticket: &PreparedTicket,
    seat_vectors: &SeatBeaconVectors,
) -> Option<Option<Arc<TicketBeaconVector>>> {
    if predictions.is_some_and(|predictions| predictions.is_current(ticket.vector.as_deref(), seat_vectors)) {
        return None;
    }
    let completed =
        predictions.and_then(|predictions| predictions.complete_ticket_vector(&ticket.ticket, seat_vectors));
    (completed.is_some() || ticket.vector.is_some()).then(|| completed.map(Arc::new))
}

/// Counts for the gate. Connected players are counted only for a gate that requires a share of them.
pub(crate) fn gate_counts(shared: &SharedState, key: QueueKey, gate: &Gate, now: UnixMs) -> GateCounts {
    let active_matches = shared.cache.read().queue_index(key).map_or(0, |index| index.live_match_count());
    let connected_players = || shared.connected_users.lock().connected_count(key, now);
    GateCounts {
        connected_players: if gate.requires_share_of_connected() { connected_players() } else { 0 },
        active_matches: u32::try_from(active_matches).unwrap_or(u32::MAX),
    }
}

/// Tickets that may be matched, at most `max_tickets`: none of their players is in a match. Reads few at a time, so that calls do not
/// wait for a long queue. A ticket may leave meanwhile: the store refuses its match.
fn matchable_tickets(
    shared: &SharedState,
    key: QueueKey,
    now: UnixMs,
    max_tickets: usize,
) -> Vec<(Arc<Ticket>, SeatBeaconVectors)> {
    let waiting: Vec<TicketId> = {
        let cache = shared.cache.read();
        let Some(index) = cache.queue_index(key) else { return Vec::new() };
        index.waiting_tickets().map(|(_, id)| id).collect()
    };
    let mut matchable = Vec::with_capacity(waiting.len().min(max_tickets));
    for ids in waiting.chunks(TICKETS_PER_READ) {
        if max_tickets <= matchable.len() {
            break;
        }
        let cache = shared.cache.read();
        matchable.extend(ids.iter().filter_map(|id| {
            let stored = cache.ticket(*id).filter(|stored| stored.state == TicketState::Waiting)?;
            let users = stored.ticket.session.players.iter().map(|player| player.user);
            let is_matchable = now < stored.expires_at && cache.live_match_of(users).is_none();
            is_matchable.then(|| (Arc::clone(&stored.ticket), stored.seat_vectors.clone()))
        }));
    }
    matchable.truncate(max_tickets);
    matchable
}

/// Past matches of the users who wait or are in open sessions, as far as rules and choices need them.
fn past_matches(
    shared: &SharedState,
    key: QueueKey,
    (ruleset, queue): (&Ruleset, &QueueSpec),
    tickets: &[Arc<Ticket>],
    open_sessions: &[OpenSession],
    now: UnixMs,
) -> PastMatches {
    let needs_meetings = queue.avoid.iter().any(|rule| rule.whom != AvoidTarget::Blocked);
    let needs_plays = ruleset.played_values_recent_ms().is_some();
    if !needs_meetings && !needs_plays {
        return PastMatches::default();
    }
    let Some(log) = shared.common.past_matches.get(key) else { return PastMatches::default() };
    let seated = open_sessions.iter().flat_map(|open| &open.parties).flat_map(|party| party.users.iter().copied());
    let waiting = tickets.iter().flat_map(|ticket| ticket.session.players.iter().map(|player| player.user));
    let users = waiting.chain(seated);
    let mut log = log.lock();
    let played = if needs_plays { log.values_played_by(users.clone()) } else { PlayedValues::default() };
    let met = if needs_meetings { log.recent_meetings_among(users, &queue.avoid, now) } else { PastMatches::default() };
    met.with_played_values(played)
}

/// Seed from the 53 random bits of a fraction in [0, 1).
fn seed_from_fraction(fraction: f64) -> u64 {
    (fraction * (1_u64 << 53) as f64) as u64
}
