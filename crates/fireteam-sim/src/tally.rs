//! What has been seen of a simulated queue, from when it is counted; several worlds' tallies add up to one.

use std::collections::BTreeMap;

use fireteam_domain::queue::report::PassReport;

/// Chances and outcomes are kept in so many bands.
pub const CALIBRATION_BANDS: usize = 10;

/// What has been seen. Times are milliseconds of the invented world.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SimTally {
    /// Worlds that it is of.
    pub world_count: u32,
    /// Accounts, parties, and players who had never been rated.
    pub population_counts: [u64; 3],
    /// Parties that entered, and their players.
    pub entered_counts: [u64; 2],
    /// Tickets that waited until their match began: how long, how many players, and the region of their city.
    pub matched_waits: Vec<WaitSample>,
    /// How long those waited who left.
    pub abandoned_waits_ms: Vec<u32>,
    /// Tickets that still waited at the end.
    pub unmatched_tickets: u64,
    /// Tickets that a ready check ended.
    pub tickets_ended_by_ready_check: u64,
    /// Tickets that were offered another set.
    pub tickets_offered_another_set: u64,
    /// Matches proposed, begun, played to the end; and those that did not come about: declined, unanswered, without a
    /// server.
    pub match_counts: [u64; 6],
    /// From the lowest to the highest player rated in a match.
    pub rating_gaps: Vec<f64>,
    /// From the weakest to the strongest team's mean rating.
    pub team_mean_gaps: Vec<f64>,
    /// Matches played of which the chances were known.
    pub favorite_predictions: Vec<FavoritePrediction>,
    /// The favourite's chance by true skill.
    pub true_favorite_probabilities: Vec<f64>,
    /// Each player's round trip: to the match's region, or else to whoever is farthest.
    pub round_trips_ms: Vec<f32>,
    /// How much more that is than the least that was possible when the match was made.
    pub round_trip_regrets_ms: Vec<f32>,
    /// Pairs refused, by rule.
    pub refusals_by_rule: BTreeMap<String, u64>,
    /// Tickets that gave up or still waited, by the rule that kept them waiting last.
    pub unmatched_by_rule: BTreeMap<String, u64>,
    /// Passes run, passes not worth running, tickets looked at in all passes, pairs judged.
    pub pass_counts: [u64; 4],
    /// Passes that ran out of looks, that fell back from the best choice, that looked at the nearest only.
    pub degraded_pass_counts: [u64; 3],
    /// Every minute: tickets waiting, matches running.
    pub samples_per_minute: Vec<[u32; 2]>,
    /// Of the outlier: waits, and how far below it the mean of its opponents is rated.
    pub outlier: Option<OutlierTally>,
}

/// A wait.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WaitSample {
    /// How long, milliseconds.
    pub waited_ms: u32,
    /// Players in the party.
    pub party_size: u16,
    /// The city, as the map counts them.
    pub city: u16,
}

/// A match of which the chances were known before it was played.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FavoritePrediction {
    /// The favourite's chance.
    pub win_probability: f64,
    /// Whether the favourite came in first.
    pub won: bool,
}

/// What the outlier saw.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OutlierTally {
    /// Waits that ended in a match, milliseconds.
    pub matched_waits_ms: Vec<u32>,
    /// Times it gave up.
    pub gave_up_count: u64,
    /// The chance that its team was given.
    pub win_probabilities: Vec<f64>,
}

impl SimTally {
    /// Adds what was seen in another world of the same scenario.
    pub fn merge(&mut self, other: Self) {
        self.world_count += other.world_count;
        add_elementwise(&mut self.population_counts, other.population_counts);
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
        for (all, more) in [
            (&mut self.refusals_by_rule, other.refusals_by_rule),
            (&mut self.unmatched_by_rule, other.unmatched_by_rule),
        ] {
            for (rule, count) in more {
                *all.entry(rule).or_default() += count;
            }
        }
        add_elementwise(&mut self.pass_counts, other.pass_counts);
        add_elementwise(&mut self.degraded_pass_counts, other.degraded_pass_counts);
        if self.samples_per_minute.len() < other.samples_per_minute.len() {
            self.samples_per_minute.resize(other.samples_per_minute.len(), [0, 0]);
        }
        for (all, more) in self.samples_per_minute.iter_mut().zip(other.samples_per_minute) {
            *all = [all[0] + more[0], all[1] + more[1]];
        }
        if let Some(other) = other.outlier {
            let outlier = self.outlier.get_or_insert_default();
            outlier.matched_waits_ms.extend(other.matched_waits_ms);
            outlier.gave_up_count += other.gave_up_count;
            outlier.win_probabilities.extend(other.win_probabilities);
        }
    }

    /// Counts a pass; `rule` names a refusal.
    pub(super) fn count_pass(
        &mut self,
        report: &PassReport,
        rule: impl Fn(fireteam_domain::filter::Refusal) -> String,
    ) {
        add_elementwise(&mut self.pass_counts, [1, 0, u64::from(report.ticket_count), report.pair_checks]);
        let short = [report.truncated, report.inexact_selection, report.candidate_limit_reached];
        add_elementwise(&mut self.degraded_pass_counts, short.map(u64::from));
        for &(refusal, count) in &report.refusal_counts {
            *self.refusals_by_rule.entry(rule(refusal)).or_default() += count;
        }
    }
}

fn add_elementwise<const N: usize>(all: &mut [u64; N], more: [u64; N]) {
    all.iter_mut().zip(more).for_each(|(all, more)| *all += more);
}
