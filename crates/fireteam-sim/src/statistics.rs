//! A tally in figures: what is printed, written as JSON and compared.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::city_map::CityMap;
use crate::tally::{CALIBRATION_BANDS, FavoritePrediction, SimTally};

/// Figures of one or several worlds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SimStatistics {
    /// Worlds, that is seeds.
    pub worlds: u32,
    /// Accounts.
    pub players: u64,
    /// Parties that they are in.
    pub parties: u64,
    /// Players who had never been rated when the world began.
    pub newcomers: u64,
    /// What became of tickets.
    pub tickets: TicketStatistics,
    /// What became of matches.
    pub matches: MatchStatistics,
    /// Waits of tickets until their match began, seconds.
    pub waits_s: Percentiles,
    /// The same, by players in the party.
    pub waits_s_by_party: BTreeMap<u16, Percentiles>,
    /// The same, by region of the party's city.
    pub waits_s_by_region: BTreeMap<String, Percentiles>,
    /// How long those waited who gave up, seconds.
    pub gave_up_after_s: Percentiles,
    /// From the lowest to the highest player rated in a match, rating points.
    pub rating_gap: Percentiles,
    /// From the weakest to the strongest team's mean rating, rating points.
    pub team_gap: Percentiles,
    /// What the ratings said of the outcome, and what it was; none where nobody is rated.
    pub fairness: Option<FavoriteCalibration>,
    /// The favourite's chance by true skill, percent.
    pub true_favourite_percent: Percentiles,
    /// Each player's round trip, milliseconds: to the match's region, or else to whoever is farthest.
    pub round_trip_ms: Percentiles,
    /// How much more that is than the best that was possible among those who waited, milliseconds.
    pub regret_ms: Percentiles,
    /// Pairs refused, by rule, most first.
    pub refusals: Vec<RuleCount>,
    /// Tickets that gave up or were left at the end, by what kept them waiting last, most first.
    pub kept_waiting: Vec<RuleCount>,
    /// How the passes went.
    pub passes: PassStatistics,
    /// What somebody far from everybody saw, if there is anybody.
    pub outlier: Option<OutlierStatistics>,
}

/// What became of tickets that entered while it was counted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TicketStatistics {
    /// Tickets.
    pub entered: u64,
    /// Players in them.
    pub players: u64,
    /// Tickets whose match began.
    pub matched: u64,
    /// Tickets that left.
    pub gave_up: u64,
    /// Tickets that a ready check ended: somebody of it declined or did not answer.
    pub checked_out: u64,
    /// Tickets that still waited, or were in a match not begun, at the end.
    pub unmatched: u64,
    /// Tickets that waited long enough to be offered another set.
    pub offered: u64,
}

/// What became of matches.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MatchStatistics {
    /// Matches that passes proposed.
    pub proposed: u64,
    /// Matches that began.
    pub begun: u64,
    /// Matches that were played to their end.
    pub played: u64,
    /// Matches that somebody declined or left.
    pub declined: u64,
    /// Matches that somebody did not answer.
    pub unanswered: u64,
    /// Matches for which no server was found.
    pub no_server: u64,
}

/// How values are spread: nearest ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Percentiles {
    /// How many there are; all else is 0 where there are none.
    pub count: u64,
    /// Their mean.
    pub mean: f64,
    /// Half are no greater.
    pub p50: f64,
    /// Nine in ten are no greater.
    pub p90: f64,
    /// 99 in a hundred are no greater.
    pub p99: f64,
    /// None is greater.
    pub max: f64,
}

/// A rule and how often.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RuleCount {
    /// The rule.
    pub rule: String,
    /// How often.
    pub count: u64,
}

/// Chances against outcomes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FavoriteCalibration {
    /// The favourite's chance as the rating system saw it, mean, percent.
    pub favourite_percent: f64,
    /// How often the favourite won, percent.
    pub favourite_won_percent: f64,
    /// The mean squared error of that chance: 0.25 is a coin's.
    pub brier: f64,
    /// By the chance given: how often the favourite won.
    pub bands: Vec<CalibrationBand>,
}

/// Matches whose favourite was given a chance in a band.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CalibrationBand {
    /// Its lower end, percent.
    pub from_percent: f64,
    /// Matches in it.
    pub matches: u64,
    /// The mean chance, percent.
    pub predicted_percent: f64,
    /// How often the favourite won, percent.
    pub won_percent: f64,
}

/// How passes went.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PassStatistics {
    /// Passes that ran.
    pub run: u64,
    /// Passes that were not worth running.
    pub skipped: u64,
    /// Tickets in a pass, mean.
    pub tickets_mean: f64,
    /// Pairs judged in all.
    pub looks: u64,
    /// Passes that ran out of looks.
    pub out_of_looks: u64,
    /// Passes that took the nearest instead of the best.
    pub fell_back: u64,
    /// Passes that looked at the nearest only.
    pub narrowed: u64,
}

/// What the outlier saw.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OutlierStatistics {
    /// Its waits, seconds.
    pub waits_s: Percentiles,
    /// Times it gave up.
    pub gave_up: u64,
    /// The chance that its team was given, percent.
    pub chance_percent: Percentiles,
}

impl Percentiles {
    /// How `values` are spread.
    pub fn from_values(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        if values.is_empty() {
            return Self::default();
        }
        values.sort_unstable_by(f64::total_cmp);
        let count = values.len();
        let rank = |percent: usize| values[(count * percent).div_ceil(100).clamp(1, count) - 1];
        Self {
            count: count as u64,
            mean: values.iter().sum::<f64>() / count as f64,
            p50: rank(50),
            p90: rank(90),
            p99: rank(99),
            max: values[count - 1],
        }
    }
}

impl SimStatistics {
    /// `tally` in figures; `map` says what its cities' regions are.
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
        let [proposed, begun, played, declined, unanswered, no_server] = tally.match_counts;
        let [run, skipped, tickets, looks] = tally.pass_counts;
        let [out_of_looks, fell_back, narrowed] = tally.degraded_pass_counts;
        Self {
            worlds: tally.world_count,
            players: tally.population_counts[0],
            parties: tally.population_counts[1],
            newcomers: tally.population_counts[2],
            tickets: TicketStatistics {
                entered: tally.entered_counts[0],
                players: tally.entered_counts[1],
                matched: tally.matched_waits.len() as u64,
                gave_up: tally.abandoned_waits_ms.len() as u64,
                checked_out: tally.tickets_ended_by_ready_check,
                unmatched: tally.unmatched_tickets,
                offered: tally.tickets_offered_another_set,
            },
            matches: MatchStatistics { proposed, begun, played, declined, unanswered, no_server },
            waits_s: waits(&|_| true),
            waits_s_by_party: parties.into_iter().map(|size| (size, waits(&|wait| wait.party_size == size))).collect(),
            waits_s_by_region: by_region.filter(|(_, spread)| 0 < spread.count).collect(),
            gave_up_after_s: Percentiles::from_values(tally.abandoned_waits_ms.iter().copied().map(ms_to_seconds)),
            rating_gap: Percentiles::from_values(tally.rating_gaps.iter().copied()),
            team_gap: Percentiles::from_values(tally.team_mean_gaps.iter().copied()),
            fairness: favorite_calibration(&tally.favorite_predictions),
            true_favourite_percent: Percentiles::from_values(
                tally.true_favorite_probabilities.iter().map(|chance| chance * 100.0),
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
                gave_up: outlier.gave_up_count,
                chance_percent: Percentiles::from_values(outlier.win_probabilities.iter().map(|chance| chance * 100.0)),
            }),
        }
    }
}

fn ms_to_seconds(ms: u32) -> f64 {
    f64::from(ms) / 1_000.0
}

fn sorted_rule_counts(counts: &BTreeMap<String, u64>) -> Vec<RuleCount> {
    let mut counts: Vec<RuleCount> =
        counts.iter().map(|(rule, &count)| RuleCount { rule: rule.clone(), count }).collect();
    // Stable: equal counts stay in the order of their names.
    counts.sort_by_key(|it| std::cmp::Reverse(it.count));
    counts
}

fn favorite_calibration(predicted: &[FavoritePrediction]) -> Option<FavoriteCalibration> {
    if predicted.is_empty() {
        return None;
    }
    let count = predicted.len() as f64;
    let error = |it: &FavoritePrediction| (it.win_probability - f64::from(u8::from(it.won))).powi(2);
    let band = |place: usize| {
        let of = |it: &&FavoritePrediction| {
            ((it.win_probability * CALIBRATION_BANDS as f64) as usize).min(CALIBRATION_BANDS - 1) == place
        };
        let matches: Vec<&FavoritePrediction> = predicted.iter().filter(of).collect();
        let (predicted_percent, won_percent) = mean_probability_and_win_share(matches.iter().copied());
        CalibrationBand {
            from_percent: 100.0 * place as f64 / CALIBRATION_BANDS as f64,
            matches: matches.len() as u64,
            predicted_percent,
            won_percent,
        }
    };
    let (favourite_percent, favourite_won_percent) = mean_probability_and_win_share(predicted.iter());
    Some(FavoriteCalibration {
        favourite_percent,
        favourite_won_percent,
        brier: predicted.iter().map(error).sum::<f64>() / count,
        bands: (0..CALIBRATION_BANDS).map(band).filter(|band| 0 < band.matches).collect(),
    })
}

/// The mean chance and the share that won, percent.
fn mean_probability_and_win_share<'a>(
    predicted: impl ExactSizeIterator<Item = &'a FavoritePrediction> + Clone,
) -> (f64, f64) {
    let count = predicted.len().max(1) as f64;
    let chance: f64 = predicted.clone().map(|it| it.win_probability).sum();
    let won = predicted.filter(|it| it.won).count() as f64;
    (100.0 * chance / count, 100.0 * won / count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks_without_interpolation() {
        let spread = Percentiles::from_values((1..=10).map(f64::from));
        assert_eq!((spread.count, spread.mean, spread.p50, spread.p90, spread.p99, spread.max), {
            (10, 5.5, 5.0, 9.0, 10.0, 10.0)
        });
        assert_eq!(Percentiles::from_values([]), Percentiles::default());
    }

    #[test]
    fn favorite_calibration_compares_predictions_with_results() {
        let of = |chance, won| FavoritePrediction { win_probability: chance, won };
        let fairness = favorite_calibration(&[of(0.6, true), of(0.6, false), of(0.9, true), of(1.0, true)]).unwrap();
        assert!((fairness.favourite_percent - 77.5).abs() < 1e-9);
        assert!((fairness.favourite_won_percent - 75.0).abs() < 1e-9);
        assert_eq!(fairness.bands.len(), 2, "0.9 and 1.0 are in one");
        assert_eq!((fairness.bands[0].matches, fairness.bands[0].won_percent), (2, 50.0));
    }
}
