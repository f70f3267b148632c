//! Parts of a pass report: counters per rule, and the next time at which a match may become possible.

use crate::filter::Refusal;
use crate::measure::Measure;
use crate::queue::avoidance;
use crate::queue::input::PassInput;
use crate::queue::pass_progress::PassProgress;
use crate::queue::pass_state::{PassState, PassTicket};
use crate::queue::rating_group;
use crate::queue::waiting_list::WaitingList;
use crate::queue::window;
use crate::ruleset::HardRule;
use crate::ruleset::queue::{QualitySpec, RegionUse};
use crate::time::UnixMs;
use crate::wish::allowed_wishes;

pub use crate::queue::outcome::{PassReport, UnmatchedTicket};

/// Nonzero counters with their refusals.
pub(super) fn nonzero_refusal_counts(counts: &[u64]) -> Vec<(Refusal, u64)> {
    let counts = counts.iter().enumerate().filter(|(_, count)| **count > 0);
    counts.map(|(counter, &count)| (Refusal::from_counter_index(counter), count)).collect()
}

/// Next time at which an unmatched ticket may find a match without new events.
pub(super) fn next_change_at(
    pass_state: &PassState<'_>,
    waiting_list: &WaitingList,
    progress: &PassProgress,
) -> Option<UnixMs> {
    let input = pass_state.input;
    let own_change_times = OwnChangeTimes::new(input);
    let reads_latency = reads_latency(pass_state);
    let change_of = |ticket: &PassTicket<'_>| {
        // Without its vector, it is matched by regions or distance.
        let vector_end = ticket.prepared.vector.as_ref().map(|vector| vector.expires_at);
        let vector_end = vector_end.filter(|at| reads_latency && input.now < *at);
        own_change_times.next_after(input, ticket).into_iter().chain(vector_end).min()
    };
    let waiting = pass_state.tickets.iter().zip(0_u32..).filter(|(_, row)| waiting_list.is_waiting(*row));
    let of_tickets = waiting.filter_map(|(ticket, _)| change_of(ticket)).min();
    let sessions = input.open_sessions.iter().filter(|_| input.queue.backfill);
    // A session has limits, a group and a window of its own, which may grow after those of every ticket.
    let of_sessions = sessions.filter_map(|open| {
        let (session, since) = (&open.advertisement.session, open.advertisement.advertised_since);
        let advertised_ms = input.now.ms_since(since);
        let growth = input.queue.window.as_ref().and_then(|window| {
            let ratings = open.parties.iter();
            let ratings = ratings.filter_map(|it| input.queue.party_rating.aggregate(it.matching_ratings()));
            ratings.filter_map(|rating| window::next_growth_at(window, rating, since, input.now)).min()
        });
        let groups =
            input.queue.groups.as_ref().and_then(|groups| rating_group::ms_until_next_group(groups, advertised_ms));
        let limits = own_change_times
            .expansions
            .iter()
            .filter_map(|&limit| input.ruleset.expansions[limit].ms_until_next_growth(advertised_ms));
        let wishes = allowed_wishes::ms_until_next_step(input.ruleset, session.wishes(), advertised_ms);
        let in_ms = limits.chain(groups).chain(wishes).min().map(|ms| input.now.plus_ms(ms));
        let limits_round_trip = reads_latency || input.ruleset.hosting.max_round_trip_ms.is_some();
        let vector_end = open.vector_at(input.now).map(|vector| vector.expires_at).filter(|_| limits_round_trip);
        growth.into_iter().chain(in_ms).chain(vector_end).min()
    });
    let of_avoidance = avoidance::next_recency_end(&input.queue.avoid, input.past_matches, input.now);
    of_tickets.into_iter().chain(of_sessions.min()).chain(of_avoidance).chain(progress.next_change_at).min()
}

/// Times at which the limits of tickets grow by waiting alone.
pub(super) struct OwnChangeTimes {
    /// Expansions that limit tickets.
    expansions: Vec<usize>,
}

impl OwnChangeTimes {
    pub(super) fn new(input: &PassInput<'_>) -> Self {
        let filters = input.ruleset.hard_filters.iter().filter_map(|filter| match filter.rule {
            HardRule::Within { expansion, .. } => Some(expansion),
            _ => None,
        });
        let regions = match input.queue.regions {
            Some(RegionUse::Filter { expansion }) => Some(expansion),
            _ => None,
        };
        let mut expansions: Vec<usize> = filters.chain(regions).collect();
        expansions.sort_unstable();
        expansions.dedup();
        Self { expansions }
    }

    /// Next time after that of the pass at which a limit of `ticket` grows.
    pub(super) fn next_after(&self, input: &PassInput<'_>, ticket: &PassTicket<'_>) -> Option<UnixMs> {
        let (waited_ms, entered_at) = (ticket.waiting_session.waited_ms, ticket.prepared.ticket.entered_at);
        let growth = input.queue.window.as_ref();
        let growth = growth
            .and_then(|window| window::next_growth_at(window, ticket.prepared.party_rating, entered_at, input.now));
        let groups =
            input.queue.groups.as_ref().and_then(|groups| rating_group::ms_until_next_group(groups, waited_ms));
        let limits = self.expansions.iter();
        let limits = limits.filter_map(|&limit| input.ruleset.expansions[limit].ms_until_next_growth(waited_ms));
        let wishes =
            allowed_wishes::ms_until_next_step(input.ruleset, ticket.waiting_session.session.wishes, waited_ms);
        let bots = input.teams.bots.and_then(|bots| bots.after_ms.checked_sub(waited_ms)).filter(|ms| 0 < *ms);
        let in_ms = limits.chain(groups).chain(wishes).chain(bots).min().map(|ms| input.now.plus_ms(ms));
        growth.into_iter().chain(in_ms).min()
    }
}

/// Whether a rule or the quality of the pass depends on round trips between tickets.
fn reads_latency(pass_state: &PassState<'_>) -> bool {
    let PassInput { ruleset, queue, .. } = *pass_state.input;
    let limits = || ruleset.hard_filters.iter().any(|filter| is_latency_limit(&filter.rule));
    let scores = || ruleset.soft_filters.iter().any(|filter| filter.measure == Measure::Latency);
    let is_score = matches!(queue.quality, QualitySpec::SoftScore { .. });
    limits() || (is_score && scores()) || pass_state.filter_columns.has_wishes()
}

fn is_latency_limit(rule: &HardRule) -> bool {
    matches!(rule, HardRule::Within { measure: Measure::Latency, .. })
}
