//! Ratings from wins and losses alone: the share of wins is a percentile, which a table of federation members maps to a
//! rating.

/// Row of the table: the share of players rated below `rating_from`, and the category from that rating on.
struct PercentileBand {
    share_below: f64,
    rating_from: f64,
    category: u8,
}

const fn new_percentile_band(share_below: f64, rating_from: f64, category: u8) -> PercentileBand {
    PercentileBand { share_below, rating_from, category }
}

/// Rating distribution of the members of the United States Chess Federation. Each band is 100 points wide and ends at
/// 99.
#[rustfmt::skip]
const USCF_PERCENTILE_BANDS: [PercentileBand; 28] = [
    new_percentile_band(0.0000,    0.0,  1), new_percentile_band(0.0608,  200.0,  2), new_percentile_band(0.0997,  300.0,  2), new_percentile_band(0.1477,  400.0,  3),
    new_percentile_band(0.2018,  500.0,  3), new_percentile_band(0.2596,  600.0,  4), new_percentile_band(0.3199,  700.0,  4), new_percentile_band(0.3784,  800.0,  5),
    new_percentile_band(0.4322,  900.0,  5), new_percentile_band(0.4832, 1000.0,  6), new_percentile_band(0.5294, 1100.0,  6), new_percentile_band(0.5748, 1200.0,  7),
    new_percentile_band(0.6229, 1300.0,  7), new_percentile_band(0.6709, 1400.0,  8), new_percentile_band(0.7226, 1500.0,  8), new_percentile_band(0.7774, 1600.0,  9),
    new_percentile_band(0.8299, 1700.0,  9), new_percentile_band(0.8761, 1800.0, 10), new_percentile_band(0.9171, 1900.0, 10), new_percentile_band(0.9462, 2000.0, 11),
    new_percentile_band(0.9694, 2100.0, 11), new_percentile_band(0.9813, 2200.0, 12), new_percentile_band(0.9919, 2300.0, 12), new_percentile_band(0.9954, 2400.0, 13),
    new_percentile_band(0.9974, 2500.0, 13), new_percentile_band(0.9988, 2600.0, 13), new_percentile_band(0.9998, 2700.0, 13), new_percentile_band(1.0000, 2800.0, 13),
];

/// Rating from 0 to 2800 and category from 1 to 13 for a number of wins and losses. Draws are left out. An impossible
/// record (negative, not a number, or without matches) counts as one win and one loss.
///
/// The share of wins is the percentile. Within a band, the rating is interpolated and rounded. A player without losses
/// gets 2800, because the last band has no upper end.
pub fn rating_and_category_from_record(wins: f64, losses: f64) -> (u32, u8) {
    let is_count = |count: f64| count.is_finite() && count >= 0.0;
    let is_possible = is_count(wins) && is_count(losses) && wins + losses > 0.0 && (wins + losses).is_finite();
    let share = if is_possible { wins / (wins + losses) } else { 0.5 };
    let index = USCF_PERCENTILE_BANDS.partition_point(|band| band.share_below <= share).saturating_sub(1);
    let band = &USCF_PERCENTILE_BANDS[index];
    let Some(next) = USCF_PERCENTILE_BANDS.get(index + 1) else { return (band.rating_from as u32, band.category) };
    let width = next.rating_from - 1.0 - band.rating_from;
    let rating = band.rating_from + width * (share - band.share_below) / (next.share_below - band.share_below);
    (rating.round() as u32, band.category)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S4-4: edges, middle and end of the table.
    #[test]
    fn percentile_rating_follows_the_share_of_wins() {
        for (wins, losses, expected) in [
            (0.0, 10.0, (0, 1)),
            (1.0, 1.0, (1036, 6)),
            (5_000.0, 5_000.0, (1036, 6)),
            (3.0, 1.0, (1550, 8)),
            (6_229.0, 3_771.0, (1300, 7)),
            (6_228.0, 3_772.0, (1299, 7)),
            (9_999.0, 1.0, (2750, 13)),
            (7.0, 0.0, (2800, 13)),
        ] {
            assert_eq!(rating_and_category_from_record(wins, losses), expected, "{wins} wins, {losses} losses");
        }
    }

    /// S4-4: an impossible record counts as one win and one loss.
    #[test]
    fn percentile_rating_of_an_impossible_record_is_one_win_and_one_loss() {
        for (wins, losses) in
            [(0.0, 0.0), (-1.0, 5.0), (5.0, -1.0), (f64::NAN, 1.0), (f64::INFINITY, 1.0), (f64::MAX, f64::MAX)]
        {
            assert_eq!(
                rating_and_category_from_record(wins, losses),
                rating_and_category_from_record(1.0, 1.0),
                "{wins} wins, {losses} losses"
            );
        }
    }

    #[test]
    fn percentile_rating_never_falls_with_more_wins() {
        let rated: Vec<u32> = (0..=1_000)
            .map(|wins| rating_and_category_from_record(f64::from(wins), f64::from(1_000 - wins)).0)
            .collect();
        assert!(rated.is_sorted() && rated[0] == 0 && rated[1_000] == 2_800, "{rated:?}");
    }
}
