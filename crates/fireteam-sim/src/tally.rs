//! Counts and samples of simulated worlds, taken after the warm-up. Tallies of several worlds can be merged.

use std::collections::BTreeMap;

use fireteam_domain::queue::report::PassReport;

use crate::latency_source::LatencySource;
use crate::search_tally::SearchTally;

/// Number of bands of predicted probability.
pub const CALIBRATION_BANDS: usize = 10;

/// Counts and samples. Times are milliseconds of simulated time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SimTally {
    /// Number of worlds.
    pub world_count: u32,
    /// Number of accounts, of parties, and of players never rated before.
    pub account_party_newcomer_counts: [u64; 3],
    /// Number of tickets that entered, and of their players.
    pub entered_counts: [u64; 2],
    /// Tickets that waited until their match started.
    pub matched_waits: Vec<WaitSample>,
    /// Time waited by tickets that gave up.
    pub abandoned_waits_ms: Vec<u32>,
    /// Number of tickets that waited at the end.
    pub unmatched_tickets: u64,
    /// Number of tickets that a ready check ended.
    pub tickets_ended_by_ready_check: u64,
    /// Number of tickets that were offered another set.
    pub tickets_offered_another_set: u64,
    /// Numbers of matches: proposed, started, played to the end, declined, not accepted in time, without a game server.
    pub match_counts: [u64; 6],
    /// Highest less lowest player rating, per match.
    pub rating_gaps: Vec<f64>,
    /// Highest less lowest mean rating of the teams, per match.
    pub team_mean_gaps: Vec<f64>,
    /// Played matches with a prediction.
    pub favorite_predictions: Vec<FavoriteSample>,
    /// Favorite's win probability by true skill, per match.
    pub true_favorite_probabilities: Vec<f64>,
    /// Round trip of each player: to the region of the match, otherwise to the farthest player.
    pub round_trips_ms: Vec<f32>,
    /// Excess over the best round trip that was possible when the match was proposed.
    pub round_trip_regrets_ms: Vec<f32>,
    /// Refused pairs by rule.
    pub refusals_by_rule: BTreeMap<String, u64>,
    /// Tickets that gave up or waited at the end, by the rule that refused last.
    pub unmatched_by_rule: BTreeMap<String, u64>,
    /// Passes run, passes skipped, tickets in all passes, evaluated pairs.
    pub pass_counts: [u64; 4],
    /// Passes that reached the pair limit, that fell back from the best selection, that considered the nearest only.
    pub degraded_pass_counts: [u64; 3],
    /// Tickets waiting and matches running, at each minute.
    pub samples_per_minute: Vec<[u32; 2]>,
    /// Samples of the outlier, if the scenario has one.
    pub outlier: Option<OutlierPartyTally>,
    /// Simulated searches, by the source of the round trips by which they chose.
    pub searches: BTreeMap<LatencySource, SearchTally>,
}

/// Wait of one ticket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WaitSample {
    /// Time waited in milliseconds.
    pub waited_ms: u32,
    /// Number of players in the party.
    pub party_size: u16,
    /// Index of the city in the map.
    pub city: u16,
    /// Hour of the day at entry, UTC: 0 to 23.
    pub utc_hour: u8,
}

/// Match with a predicted win probability of the favorite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FavoriteSample {
    /// Predicted win probability.
    pub win_probability: f64,
    /// True if the favorite came in first.
    pub won: bool,
}

/// Samples of the outlier.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OutlierPartyTally {
    /// Waits that ended in a match, milliseconds.
    pub matched_waits_ms: Vec<u32>,
    /// Number of tickets that gave up.
    pub gave_up_tickets: u64,
    /// Predicted win probabilities of its team.
    pub win_probabilities: Vec<f64>,
}

impl SimTally {
    /// Adds the tally of another world of the same scenario.
    pub fn merge(&mut self, other: Self) {
        self.world_count += other.world_count;
        add_elementwise(&mut self.account_party_newcomer_counts, other.account_party_newcomer_counts);
        add_elementwise(&mut self.entered_counts, other.entered_counts);
        self.matched_waits.extend(other.matched_waits);
        self.abandoned_waits_ms.extend(other.abandoned_waits_ms);
        self.unmatched_tickets += other.unmatched_tickets;
        self.tickets_ended_by_ready_check += other.tickets_ended_by_ready_check;
        self.tickets_offered_another_set += other.tickets_offered_another_set;
        add_elementwise(&mut self.match_counts, other.match_counts);
        self.rating_gaps.extend(other.rating_gaps);
        self.team_mean_gaps.extend(other.team_mean_gaps);
        self.favorite_predictions.extend(other.favorite_predictions);
        self.true_favorite_probabilities.extend(other.true_favorite_probabilities);
        self.round_trips_ms.extend(other.round_trips_ms);
        self.round_trip_regrets_ms.extend(other.round_trip_regrets_ms);
        for (own, added) in [
            (&mut self.refusals_by_rule, other.refusals_by_rule),
            (&mut self.unmatched_by_rule, other.unmatched_by_rule),
        ] {
            for (rule, count) in added {
                *own.entry(rule).or_default() += count;
            }
        }
        add_elementwise(&mut self.pass_counts, other.pass_counts);
        add_elementwise(&mut self.degraded_pass_counts, other.degraded_pass_counts);
        if self.samples_per_minute.len() < other.samples_per_minute.len() {
            self.samples_per_minute.resize(other.samples_per_minute.len(), [0, 0]);
        }
        for (own, added) in self.samples_per_minute.iter_mut().zip(other.samples_per_minute) {
            *own = [own[0] + added[0], own[1] + added[1]];
        }
        if let Some(other) = other.outlier {
            let outlier = self.outlier.get_or_insert_default();
            outlier.matched_waits_ms.extend(other.matched_waits_ms);
            outlier.gave_up_tickets += other.gave_up_tickets;
            outlier.win_probabilities.extend(other.win_probabilities);
        }
        for (source, searches) in other.searches {
            self.searches.entry(source).or_default().merge(searches);
        }
    }

    /// Counts a pass. `rule_name` names a refusal.
    pub(super) fn count_pass(
        &mut self,
        report: &PassReport,
        rule_name: impl Fn(fireteam_domain::filter::Refusal) -> String,
    ) {
        add_elementwise(&mut self.pass_counts, [1, 0, u64::from(report.ticket_count), report.pair_checks]);
        let degraded = [report.truncated, report.inexact_selection, report.candidate_limit_reached];
        add_elementwise(&mut self.degraded_pass_counts, degraded.map(u64::from));
        for &(refusal, count) in &report.refusal_counts {
            *self.refusals_by_rule.entry(rule_name(refusal)).or_default() += count;
        }
    }
}

fn add_elementwise<const N: usize>(sums: &mut [u64; N], added: [u64; N]) {
    sums.iter_mut().zip(added).for_each(|(sums, added)| *sums += added);
}
