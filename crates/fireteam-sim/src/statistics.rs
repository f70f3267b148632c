//! Statistics of simulated worlds, computed from a tally: printed, written as JSON and compared.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::city_map::CityMap;
use crate::search_statistics::SearchStatistics;
use crate::tally::{CALIBRATION_BANDS, FavoriteSample, SimTally};

pub use crate::percentiles::Percentiles;

/// Statistics of one or several worlds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SimStatistics {
    /// Number of worlds, one per seed.
    pub worlds: u32,
    /// Number of accounts.
    pub players: u64,
    /// Number of parties.
    pub parties: u64,
    /// Number of players without a rating when the world began.
    pub newcomers: u64,
    /// Results of tickets.
    pub tickets: TicketStatistics,
    /// Results of matches.
    pub matches: MatchOutcomeCounts,
    /// Time from entering to the start of the match, seconds, per ticket.
    pub waits_s: Percentiles,
    /// Same, by number of players in the party.
    pub waits_s_by_party: BTreeMap<u16, Percentiles>,
    /// Same, by region of the party's city.
    pub waits_s_by_region: BTreeMap<String, Percentiles>,
    /// Same, by hour of the day at entry, UTC: 0 to 23.
    pub waits_s_by_utc_hour: BTreeMap<u8, Percentiles>,
    /// Time waited by tickets that gave up, seconds.
    pub gave_up_after_s: Percentiles,
    /// Highest less lowest player rating in a match, rating points.
    pub rating_gap: Percentiles,
    /// Highest less lowest mean rating of the teams in a match, rating points.
    pub team_gap: Percentiles,
    /// Predictions of the rating system against results; `None` without ratings.
    pub fairness: Option<FavoriteCalibration>,
    /// Favorite's win probability by true skill, percent.
    pub true_favourite_percent: Percentiles,
    /// Round trip of each player, milliseconds: to the region of the match, otherwise to the farthest player.
    pub round_trip_ms: Percentiles,
    /// Excess over the best round trip possible among the players who waited, milliseconds.
    pub regret_ms: Percentiles,
    /// Refused pairs by rule, most first.
    pub refusals: Vec<RuleCount>,
    /// Tickets that gave up or were left at the end, by the rule that refused last, most first.
    pub kept_waiting: Vec<RuleCount>,
    /// Counts of passes.
    pub passes: PassStatistics,
    /// Results of the outlier, if the scenario has one.
    pub outlier: Option<OutlierStatistics>,
    /// Simulated searches, one entry for each source of round trips.
    pub searches: Vec<SearchStatistics>,
}

/// Results of tickets that entered while the world was counted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TicketStatistics {
    /// Number of tickets.
    pub entered: u64,
    /// Number of players in them.
    pub players: u64,
    /// Tickets with a started match.
    pub matched: u64,
    /// Tickets that gave up.
    pub gave_up: u64,
    /// Tickets ended by a ready check, because a player declined or did not respond.
    pub checked_out: u64,
    /// Tickets that waited at the end, or were in a match that had not started.
    pub unmatched: u64,
    /// Tickets that waited long enough to be offered another set.
    pub offered: u64,
}

/// Results of matches.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MatchOutcomeCounts {
    /// Matches that passes proposed.
    pub proposed: u64,
    /// Matches that started.
    pub begun: u64,
    /// Matches that were played to the end.
    pub played: u64,
    /// Matches that a player declined or left.
    pub declined: u64,
    /// Matches with a player who did not respond in time.
    pub unanswered: u64,
    /// Matches without a game server.
    pub no_server: u64,
}

/// Rule and the number of its refusals.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RuleCount {
    /// Name of the rule.
    pub rule: String,
    /// Number of refusals or tickets.
    pub count: u64,
}

/// Predicted against actual wins of favorites.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FavoriteCalibration {
    /// Mean win probability of the favorite by the rating system, percent.
    pub favourite_percent: f64,
    /// Share of matches that the favorite won, percent.
    pub favourite_won_percent: f64,
    /// Brier score of that probability: the mean squared error, 0.25 for a coin.
    pub brier: f64,
    /// Wins of the favorite by predicted probability.
    pub bands: Vec<CalibrationBand>,
}

/// Matches with a predicted win probability of the favorite in one band.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CalibrationBand {
    /// Lower end of the band, percent.
    pub from_percent: f64,
    /// Number of matches in the band.
    pub matches: u64,
    /// Mean predicted probability, percent.
    pub predicted_percent: f64,
    /// Share that the favorite won, percent.
    pub won_percent: f64,
}

/// Counts of passes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PassStatistics {
    /// Passes that ran.
    pub run: u64,
    /// Passes that were skipped, because they could not find a match.
    pub skipped: u64,
    /// Mean number of tickets in a pass.
    pub tickets_mean: f64,
    /// Number of evaluated pairs.
    pub looks: u64,
    /// Passes that reached the limit of evaluated pairs.
    pub out_of_looks: u64,
    /// Passes that fell back from the best selection to the nearest one.
    pub fell_back: u64,
    /// Passes that considered the nearest candidates only.
    pub narrowed: u64,
}

/// Results of the outlier.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OutlierStatistics {
    /// Waits, seconds.
    pub waits_s: Percentiles,
    /// Number of tickets that gave up.
    pub gave_up: u64,
    /// Predicted win probability of its team, percent.
    pub chance_percent: Percentiles,
}

impl SimStatistics {
    /// Statistics of a tally. `map` gives the regions of the cities.
    pub fn from_tally(tally: &SimTally, map: &CityMap) -> Self {
        let waits = |keep: &dyn Fn(&crate::tally::WaitSample) -> bool| {
            Percentiles::from_values(
                tally.matched_waits.iter().filter(|wait| keep(wait)).map(|wait| ms_to_seconds(wait.waited_ms)),
            )
        };
        let region = |city: u16| &*map.cities[usize::from(city)].region;
        let mut parties: Vec<u16> = tally.matched_waits.iter().map(|wait| wait.party_size).collect();
        parties.sort_unstable();
        parties.dedup();
        let mut regions: Vec<&str> = map.cities.iter().map(|city| &*city.region).collect();
        regions.sort_unstable();
        regions.dedup();
        let by_region = regions.into_iter().map(|name| (name.to_owned(), waits(&|wait| region(wait.city) == name)));
        let by_hour = (0..24).map(|hour| (hour, waits(&|wait| wait.utc_hour == hour)));
        let [proposed, started, played, declined, unanswered, no_server] = tally.match_counts;
        let [run, skipped, tickets, looks] = tally.pass_counts;
        let [out_of_looks, fell_back, narrowed] = tally.degraded_pass_counts;
        Self {
            worlds: tally.world_count,
            players: tally.account_party_newcomer_counts[0],
            parties: tally.account_party_newcomer_counts[1],
            newcomers: tally.account_party_newcomer_counts[2],
            tickets: TicketStatistics {
                entered: tally.entered_counts[0],
                players: tally.entered_counts[1],
                matched: tally.matched_waits.len() as u64,
                gave_up: tally.abandoned_waits_ms.len() as u64,
                checked_out: tally.tickets_ended_by_ready_check,
                unmatched: tally.unmatched_tickets,
                offered: tally.tickets_offered_another_set,
            },
            matches: MatchOutcomeCounts { proposed, begun: started, played, declined, unanswered, no_server },
            waits_s: waits(&|_| true),
            waits_s_by_party: parties.into_iter().map(|size| (size, waits(&|wait| wait.party_size == size))).collect(),
            waits_s_by_utc_hour: by_hour.filter(|(_, percentiles)| percentiles.count > 0).collect(),
            waits_s_by_region: by_region.filter(|(_, percentiles)| percentiles.count > 0).collect(),
            gave_up_after_s: Percentiles::from_values(tally.abandoned_waits_ms.iter().copied().map(ms_to_seconds)),
            rating_gap: Percentiles::from_values(tally.rating_gaps.iter().copied()),
            team_gap: Percentiles::from_values(tally.team_mean_gaps.iter().copied()),
            fairness: favorite_calibration(&tally.favorite_predictions),
            true_favourite_percent: Percentiles::from_values(
                tally.true_favorite_probabilities.iter().map(|probability| probability * 100.0),
            ),
            round_trip_ms: Percentiles::from_values(tally.round_trips_ms.iter().copied().map(f64::from)),
            regret_ms: Percentiles::from_values(tally.round_trip_regrets_ms.iter().copied().map(f64::from)),
            refusals: sorted_rule_counts(&tally.refusals_by_rule),
            kept_waiting: sorted_rule_counts(&tally.unmatched_by_rule),
            passes: PassStatistics {
                run,
                skipped,
                tickets_mean: tickets as f64 / run.max(1) as f64,
                looks,
                out_of_looks,
                fell_back,
                narrowed,
            },
            outlier: tally.outlier.as_ref().map(|outlier| OutlierStatistics {
                waits_s: Percentiles::from_values(outlier.matched_waits_ms.iter().copied().map(ms_to_seconds)),
                gave_up: outlier.gave_up_tickets,
                chance_percent: Percentiles::from_values(
                    outlier.win_probabilities.iter().map(|probability| probability * 100.0),
                ),
            }),
            searches: tally
                .searches
                .iter()
                .map(|(source, searches)| SearchStatistics::from_tally(*source, searches))
                .collect(),
        }
    }
}

fn ms_to_seconds(ms: u32) -> f64 {
    f64::from(ms) / 1_000.0
}

fn sorted_rule_counts(counts: &BTreeMap<String, u64>) -> Vec<RuleCount> {
    let mut counts: Vec<RuleCount> =
        counts.iter().map(|(rule, &count)| RuleCount { rule: rule.clone(), count }).collect();
    // Stable sort: equal counts keep the order of rule names.
    counts.sort_by_key(|rule_count| std::cmp::Reverse(rule_count.count));
    counts
}

fn favorite_calibration(predictions: &[FavoriteSample]) -> Option<FavoriteCalibration> {
    if predictions.is_empty() {
        return None;
    }
    let count = predictions.len() as f64;
    let error =
        |prediction: &FavoriteSample| (prediction.win_probability - f64::from(u8::from(prediction.won))).powi(2);
    let band = |index: usize| {
        let is_in_band = |prediction: &&FavoriteSample| {
            ((prediction.win_probability * CALIBRATION_BANDS as f64) as usize).min(CALIBRATION_BANDS - 1) == index
        };
        let matches: Vec<&FavoriteSample> = predictions.iter().filter(is_in_band).collect();
        let (predicted_percent, won_percent) = mean_probability_and_win_share(matches.iter().copied());
        CalibrationBand {
            from_percent: 100.0 * index as f64 / CALIBRATION_BANDS as f64,
            matches: matches.len() as u64,
            predicted_percent,
            won_percent,
        }
    };
    let (favourite_percent, favourite_won_percent) = mean_probability_and_win_share(predictions.iter());
    Some(FavoriteCalibration {
        favourite_percent,
        favourite_won_percent,
        brier: predictions.iter().map(error).sum::<f64>() / count,
        bands: (0..CALIBRATION_BANDS).map(band).filter(|band| band.matches > 0).collect(),
    })
}

/// Mean win probability and share of wins, percent.
fn mean_probability_and_win_share<'a>(
    predictions: impl ExactSizeIterator<Item = &'a FavoriteSample> + Clone,
) -> (f64, f64) {
    let count = predictions.len().max(1) as f64;
    let probability_sum: f64 = predictions.clone().map(|prediction| prediction.win_probability).sum();
    let wins = predictions.filter(|prediction| prediction.won).count() as f64;
    (100.0 * probability_sum / count, 100.0 * wins / count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn favorite_calibration_compares_predictions_with_results() {
        let prediction = |probability, won| FavoriteSample { win_probability: probability, won };
        let calibration = favorite_calibration(&[
            prediction(0.6, true),
            prediction(0.6, false),
            prediction(0.9, true),
            prediction(1.0, true),
        ])
        .unwrap();
        assert!((calibration.favourite_percent - 77.5).abs() < 1e-9);
        assert!((calibration.favourite_won_percent - 75.0).abs() < 1e-9);
        assert_eq!(calibration.bands.len(), 2, "0.9 and 1.0 are in one band");
        assert_eq!((calibration.bands[0].matches, calibration.bands[0].won_percent), (2, 50.0));
    }
}
