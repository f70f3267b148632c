//! What has been seen of a simulated queue, from when it is counted; several worlds' tallies add up to one.

use std::collections::BTreeMap;

use crate::domain::queue::report::PassReport;

/// Chances and outcomes are kept in so many bands.
pub const BANDS: usize = 10;

/// What has been seen. Times are milliseconds of the invented world.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    /// Worlds that it is of.
    pub worlds: u32,
    /// Accounts, parties, and players who had never been rated.
    pub population: [u64; 3],
    /// Parties that entered, and their players.
    pub entered: [u64; 2],
    /// Tickets that waited until their match began: how long, how many players, and the region of their city.
    pub waits: Vec<Wait>,
    /// How long those waited who left.
    pub gave_up_ms: Vec<u32>,
    /// Tickets that still waited at the end.
    pub unmatched: u64,
    /// Tickets that a ready check ended.
    pub checked_out: u64,
    /// Tickets that were offered another set.
    pub offered: u64,
    /// Matches proposed, begun, played to the end; and those that did not come about: declined, unanswered, without a
    /// server.
    pub matches: [u64; 6],
    /// From the lowest to the highest player rated in a match.
    pub rating_gaps: Vec<f64>,
    /// From the weakest to the strongest team's mean rating.
    pub team_gaps: Vec<f64>,
    /// Matches played of which the chances were known.
    pub predicted: Vec<Predicted>,
    /// The favourite's chance by true skill.
    pub true_favourites: Vec<f64>,
    /// Each player's round trip: to the match's region, or else to whoever is farthest.
    pub round_trips_ms: Vec<f32>,
    /// How much more that is than the least that was possible when the match was made.
    pub regrets_ms: Vec<f32>,
    /// Pairs refused, by rule.
    pub refusals: BTreeMap<String, u64>,
    /// Tickets that gave up or still waited, by the rule that kept them waiting last.
    pub kept_waiting: BTreeMap<String, u64>,
    /// Passes run, passes not worth running, tickets looked at in all passes, pairs judged.
    pub passes: [u64; 4],
    /// Passes that ran out of looks, that fell back from the best choice, that looked at the nearest only.
    pub short_passes: [u64; 3],
    /// Every minute: tickets waiting, matches running.
    pub minutes: Vec<[u32; 2]>,
    /// Of the outlier: waits, and how far below it the mean of its opponents is rated.
    pub outlier: Option<Outlier>,
}

/// A wait.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wait {
    /// How long, milliseconds.
    pub ms: u32,
    /// Players in the party.
    pub party: u16,
    /// The city, as the map counts them.
    pub city: u16,
}

/// A match of which the chances were known before it was played.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Predicted {
    /// The favourite's chance.
    pub chance: f64,
    /// Whether the favourite came in first.
    pub won: bool,
}

/// What the outlier saw.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outlier {
    /// Waits that ended in a match, milliseconds.
    pub waits_ms: Vec<u32>,
    /// Times it gave up.
    pub gave_up: u64,
    /// The chance that its team was given.
    pub chances: Vec<f64>,
}

impl Tally {
    /// Adds what was seen in another world of the same scenario.
    pub fn add(&mut self, other: Self) {
        self.worlds += other.worlds;
        add_all(&mut self.population, other.population);
        add_all(&mut self.entered, other.entered);
        self.waits.extend(other.waits);
        self.gave_up_ms.extend(other.gave_up_ms);
        self.unmatched += other.unmatched;
        self.checked_out += other.checked_out;
        self.offered += other.offered;
        add_all(&mut self.matches, other.matches);
        self.rating_gaps.extend(other.rating_gaps);
        self.team_gaps.extend(other.team_gaps);
        self.predicted.extend(other.predicted);
        self.true_favourites.extend(other.true_favourites);
        self.round_trips_ms.extend(other.round_trips_ms);
        self.regrets_ms.extend(other.regrets_ms);
        for (all, more) in [(&mut self.refusals, other.refusals), (&mut self.kept_waiting, other.kept_waiting)] {
            for (rule, count) in more {
                *all.entry(rule).or_default() += count;
            }
        }
        add_all(&mut self.passes, other.passes);
        add_all(&mut self.short_passes, other.short_passes);
        if self.minutes.len() < other.minutes.len() {
            self.minutes.resize(other.minutes.len(), [0, 0]);
        }
        for (all, more) in self.minutes.iter_mut().zip(other.minutes) {
            *all = [all[0] + more[0], all[1] + more[1]];
        }
        if let Some(other) = other.outlier {
            let outlier = self.outlier.get_or_insert_default();
            outlier.waits_ms.extend(other.waits_ms);
            outlier.gave_up += other.gave_up;
            outlier.chances.extend(other.chances);
        }
    }

    /// Counts a pass; `rule` names a refusal.
    pub(super) fn pass(&mut self, report: &PassReport, rule: impl Fn(crate::domain::filter::Refusal) -> String) {
        add_all(&mut self.passes, [1, 0, u64::from(report.tickets), report.looks]);
        let short = [report.out_of_looks, report.fell_back, report.narrowed];
        add_all(&mut self.short_passes, short.map(u64::from));
        for &(refusal, count) in &report.refusals {
            *self.refusals.entry(rule(refusal)).or_default() += count;
        }
    }
}

fn add_all<const N: usize>(all: &mut [u64; N], more: [u64; N]) {
    all.iter_mut().zip(more).for_each(|(all, more)| *all += more);
}
