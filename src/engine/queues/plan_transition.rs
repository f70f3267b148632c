//! Store write of a match transition: fates of its tickets, penalties and the players' other tickets.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::domain::available_time::OutageTimes;
use crate::domain::id::{TicketId, UserKey};
use crate::domain::lifecycle::event::{MatchEffect, Transition};
use crate::domain::lifecycle::ticket_facts::TicketFacts;
use crate::domain::lifecycle::{Match, MatchEndReason, MatchStage};
use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::rating::scale::KeyedRatingSpec;
use crate::domain::time::UnixMs;
use crate::engine::queues::match_round_trips::MatchRoundTrips;
use crate::engine::queues::shared_state::SharedState;
use crate::engine::queues::shared_state::host_contact::is_hosted_by_ticket;
use crate::engine::queues::stored_ticket::expiry_after_heartbeat;
use crate::engine::queues::ticket_match_cache::TicketMatchCache;
use crate::store::queues::{QueueWrite, ReadyCheckCooldowns};

/// Wire value of an open NAT.
const OPEN_NAT_TYPE: i32 = 1;

/// Transition to write.
pub(crate) struct PlannedTransition {
    /// Match after the transition.
    pub(crate) next_match: Arc<Match>,
    /// Write for the store.
    pub(crate) write: QueueWrite,
    /// Further actions.
    pub(crate) effects: Vec<MatchEffect>,
}

/// Write for a transition; `None` if it changes nothing. Without a ruleset no user is penalized.
pub(crate) fn plan_transition(
    shared: &SharedState,
    ruleset: Option<&Ruleset>,
    transition: Transition,
    now: UnixMs,
) -> Option<PlannedTransition> {
    let mut next_match = transition.next_match?;
    shared.record_tickets_heard_before_leaving(&mut next_match, now);
    let next_match = Arc::new(next_match);
    let starts_now = transition.effects.contains(&MatchEffect::StartPlay);
    let requeued_until =
        ruleset.and_then(|ruleset| ruleset.queue.as_ref()).map_or(now, |queue| expiry_after_heartbeat(queue, now));
    let until =
        |ticket_id| unextended_expiry_of_unconfirmed_host(shared, &next_match, ticket_id).unwrap_or(requeued_until);
    let write = QueueWrite::TransitionMatch {
        ticket_fates: transition
            .ticket_fates
            .into_iter()
            .map(|(ticket_id, fate)| (ticket_id, fate, until(ticket_id)))
            .collect(),
        other_tickets: if starts_now { other_waiting_tickets(shared, &next_match) } else { Vec::new() },
        penalized_users: penalized_users(&next_match, transition.penalized_users),
        leaver_rating: rating_spec_for_leaver(shared, ruleset, &next_match, now),
        penalty_schedule: ruleset.map_or_else(ReadyCheckCooldowns::default, penalty_schedule),
        purge_at: now.plus_ms(shared.common.settings.ended_ticket_retention_ms),
        updated_match: Arc::clone(&next_match),
        now,
    };
    Some(PlannedTransition { next_match, write, effects: transition.effects })
}

/// Users that a transition penalizes.
fn penalized_users(next_match: &Match, users: Vec<UserKey>) -> Vec<UserKey> {
    if fail_point_penalizes_all_players() && matches!(next_match.stage, MatchStage::Ended { .. }) {
        return next_match.tickets.iter().flat_map(|ticket| &ticket.players).map(|player| player.user).collect();
    }
    users
}

/// Whether the fail point is on that penalizes all players of a match that ends.
fn fail_point_penalizes_all_players() -> bool {
    fail::fail_point!("penalize_all_players", |_| true);
    false
}

/// Expiry of a ticket whose player was to host the match and did not confirm. It is not extended: otherwise a silent party
/// would be matched again and again. `None` for other tickets.
fn unextended_expiry_of_unconfirmed_host(
    shared: &SharedState,
    next_match: &Match,
    ticket_id: TicketId,
) -> Option<UnixMs> {
    let cache = shared.cache.read();
    let before = cache.match_by_id(next_match.id)?;
    let is_unconfirmed = matches!(before.stage, MatchStage::Confirming { .. })
        && next_match.stage.end_reason() == Some(MatchEndReason::HostLost);
    (is_unconfirmed && is_hosted_by_ticket(before, ticket_id))
        .then(|| cache.ticket(ticket_id).map(|own| own.expires_at))?
}

/// Facts about cached tickets at a time.
pub(crate) struct CachedTicketFacts<'a> {
    cache: &'a TicketMatchCache,
    outages: &'a OutageTimes,
    deadlines_enforced_until: UnixMs,
    round_trips: Option<MatchRoundTrips>,
}

impl<'a> CachedTicketFacts<'a> {
    /// Facts with deadlines extended by `outages`, and enforced up to `enforced_until`.
    pub(crate) fn new(cache: &'a TicketMatchCache, outages: &'a OutageTimes, enforced_until: UnixMs) -> Self {
        Self { cache, outages, deadlines_enforced_until: enforced_until, round_trips: None }
    }

    /// Facts with estimates of round trips, if a ruleset predicts them.
    pub(crate) fn with_round_trips(self, round_trips: Option<MatchRoundTrips>) -> Self {
        Self { round_trips, ..self }
    }
}

impl TicketFacts for CachedTicketFacts<'_> {
    fn has_open_nat(&self, id: TicketId) -> bool {
        self.cache.ticket(id).is_some_and(|stored| stored.ticket.session.nat_type == Some(OPEN_NAT_TYPE))
    }

    fn high_round_trip_ms(&self, one: TicketId, other: TicketId) -> Option<f64> {
        let estimate = self.round_trips.as_ref()?.between(self.cache, one, other)?;
        Some(estimate.high_ms())
    }

    fn has_expired(&self, id: TicketId) -> bool {
        self.cache
            .ticket(id)
            .is_some_and(|stored| self.cache.expiry_of(stored, self.outages) <= self.deadlines_enforced_until)
    }

    fn has_acknowledged_ready_check(&self, id: TicketId, user: UserKey) -> bool {
        let Some(stored) = self.cache.ticket(id) else { return false };
        let index = stored.ticket.session.players.iter().position(|player| player.user == user);
        let bit = index.and_then(|index| 1_u64.checked_shl(u32::try_from(index).ok()?));
        bit.is_some_and(|bit| stored.ready_check_delivered_mask & bit != 0)
    }

    fn outages(&self) -> &OutageTimes {
        self.outages
    }

    fn deadlines_enforced_until(&self, now: UnixMs) -> UnixMs {
        self.deadlines_enforced_until.min(now)
    }
}

/// Other waiting tickets of the match's players; they end when the match starts.
pub(crate) fn other_waiting_tickets(shared: &SharedState, next_match: &Match) -> Vec<TicketId> {
    let cache = shared.cache.read();
    let users = next_match.present_players().map(|(_, player)| player.user);
    let mut ticket_ids: BTreeSet<TicketId> = users.flat_map(|user| cache.waiting_tickets_of(user)).collect();
    ticket_ids.retain(|ticket_id| next_match.tickets.iter().all(|match_ticket| match_ticket.ticket_id != *ticket_id));
    ticket_ids.into_iter().collect()
}

/// Ratings in which a leaver's abandoned match counts; `None` if no player leaves at `now`.
fn rating_spec_for_leaver(
    shared: &SharedState,
    ruleset: Option<&Ruleset>,
    next_match: &Match,
    now: UnixMs,
) -> Option<KeyedRatingSpec> {
    let mut players = next_match.tickets.iter().flat_map(|match_ticket| &match_ticket.players);
    let has_leaver = players.any(|player| player.left_at == Some(now));
    ruleset.filter(|_| has_leaver).and_then(|ruleset| shared.ratings.lock().keyed_spec_of_ruleset(ruleset))
}

fn penalty_schedule(ruleset: &Ruleset) -> ReadyCheckCooldowns {
    ruleset.ready_check.as_ref().map_or_else(ReadyCheckCooldowns::default, |check| ReadyCheckCooldowns {
        cooldowns_ms: check.penalty_cooldowns_ms.clone(),
        reset_after_ms: check.reset_after_ms,
    })
}
