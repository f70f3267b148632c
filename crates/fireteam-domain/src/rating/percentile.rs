//! Ratings for games that only know wins and losses (S4-4): the share of wins is taken as a percentile, and the percentile is
//! looked up among the players of a large federation.

/// A row of the table: the share of players who are rated below `from`, and the category of those from there on.
struct PercentileBand {
    share_below: f64,
    rating_from: f64,
    category: u8,
}

const fn percentile_band(below: f64, from: f64, category: u8) -> PercentileBand {
    PercentileBand { share_below: below, rating_from: from, category }
}

/// The ratings of the United States Chess Federation's members, as the team challenge has them (D-19). A class is 100 points wide
/// and ends at 99.
#[rustfmt::skip]
const USCF_PERCENTILE_BANDS: [PercentileBand; 28] = [
    percentile_band(0.0000,    0.0,  1), percentile_band(0.0608,  200.0,  2), percentile_band(0.0997,  300.0,  2), percentile_band(0.1477,  400.0,  3),
    percentile_band(0.2018,  500.0,  3), percentile_band(0.2596,  600.0,  4), percentile_band(0.3199,  700.0,  4), percentile_band(0.3784,  800.0,  5),
    percentile_band(0.4322,  900.0,  5), percentile_band(0.4832, 1000.0,  6), percentile_band(0.5294, 1100.0,  6), percentile_band(0.5748, 1200.0,  7),
    percentile_band(0.6229, 1300.0,  7), percentile_band(0.6709, 1400.0,  8), percentile_band(0.7226, 1500.0,  8), percentile_band(0.7774, 1600.0,  9),
    percentile_band(0.8299, 1700.0,  9), percentile_band(0.8761, 1800.0, 10), percentile_band(0.9171, 1900.0, 10), percentile_band(0.9462, 2000.0, 11),
    percentile_band(0.9694, 2100.0, 11), percentile_band(0.9813, 2200.0, 12), percentile_band(0.9919, 2300.0, 12), percentile_band(0.9954, 2400.0, 13),
    percentile_band(0.9974, 2500.0, 13), percentile_band(0.9988, 2600.0, 13), percentile_band(0.9998, 2700.0, 13), percentile_band(1.0000, 2800.0, 13),
];

/// A rating, 0 to 2800, and a category, 1 to 13, for somebody who has won and lost so often. Draws are left out. A record that
/// cannot be, negative or no number, and one without any match, is taken as one win and one loss.
///
/// The share of wins is the percentile; within a class the rating is interpolated and rounded. Who has never lost is rated 2800:
/// the last class has no upper end.
pub fn rating_from_record(wins: f64, losses: f64) -> (u32, u8) {
    let counts = |it: f64| it.is_finite() && 0.0 <= it;
    let sound = counts(wins) && counts(losses) && 0.0 < wins + losses && (wins + losses).is_finite();
    let share = if sound { wins / (wins + losses) } else { 0.5 };
    let place = USCF_PERCENTILE_BANDS.partition_point(|class| class.share_below <= share).saturating_sub(1);
    let class = &USCF_PERCENTILE_BANDS[place];
    let Some(next) = USCF_PERCENTILE_BANDS.get(place + 1) else { return (class.rating_from as u32, class.category) };
    let width = next.rating_from - 1.0 - class.rating_from;
    let rating = class.rating_from + width * (share - class.share_below) / (next.share_below - class.share_below);
    (rating.round() as u32, class.category)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S4-4: the table's edges, its middle, and its end.
    #[test]
    fn percentile_rating_follows_the_share_of_wins() {
        for (wins, losses, wanted) in [
            (0.0, 10.0, (0, 1)),
            (1.0, 1.0, (1036, 6)),
            (5_000.0, 5_000.0, (1036, 6)),
            (3.0, 1.0, (1550, 8)),
            (6_229.0, 3_771.0, (1300, 7)),
            (6_228.0, 3_772.0, (1299, 7)),
            (9_999.0, 1.0, (2750, 13)),
            (7.0, 0.0, (2800, 13)),
        ] {
            assert_eq!(rating_from_record(wins, losses), wanted, "{wins} wins, {losses} losses");
        }
    }

    /// S4-4: what cannot be is one win and one loss.
    #[test]
    fn percentile_rating_of_an_impossible_record_is_one_win_and_one_loss() {
        for (wins, losses) in
            [(0.0, 0.0), (-1.0, 5.0), (5.0, -1.0), (f64::NAN, 1.0), (f64::INFINITY, 1.0), (f64::MAX, f64::MAX)]
        {
            assert_eq!(rating_from_record(wins, losses), rating_from_record(1.0, 1.0), "{wins} wins, {losses} losses");
        }
    }

    #[test]
    fn percentile_rating_never_falls_with_more_wins() {
        let rated: Vec<u32> =
            (0..=1_000).map(|wins| rating_from_record(f64::from(wins), f64::from(1_000 - wins)).0).collect();
        assert!(rated.is_sorted() && rated[0] == 0 && rated[1_000] == 2_800, "{rated:?}");
    }
}
