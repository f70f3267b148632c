//! Statistics of matchmaking: which quantities are counted, by which keys, and in which buckets.

pub mod histogram;

use crate::id::{RulesetHash, SetId};

/// Upper bounds of durations, milliseconds: 1 s to 30 min.
const DURATION_BOUNDS_MS: &[f64] = &[
    1_000.0,
    2_000.0,
    5_000.0,
    10_000.0,
    15_000.0,
    20_000.0,
    30_000.0,
    45_000.0,
    60_000.0,
    90_000.0,
    120_000.0,
    180_000.0,
    300_000.0,
    600_000.0,
    900_000.0,
    1_800_000.0,
];

/// Upper bounds of distances, kilometers.
const DISTANCE_BOUNDS_KM: &[f64] =
    &[50.0, 100.0, 250.0, 500.0, 1_000.0, 1_500.0, 2_000.0, 3_000.0, 5_000.0, 7_500.0, 10_000.0];

/// Upper bounds of round trips, milliseconds.
const ROUND_TRIP_BOUNDS_MS: &[f64] =
    &[10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 80.0, 100.0, 125.0, 150.0, 200.0, 250.0, 300.0, 500.0];

/// Upper bounds of match qualities and scores, whose scale is the ruleset's own.
const QUALITY_BOUNDS: &[f64] = &[
    -100.0, -10.0, -5.0, -2.0, -1.0, -0.5, 0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 2.0, 5.0, 10.0, 100.0,
];

/// Upper bounds of feedback, stars.
const STAR_BOUNDS: &[f64] = &[1.0, 2.0, 3.0, 4.0, 5.0];

/// Quantity that is counted. The numbers are in the store and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StatisticKind {
    /// Time from a party's first search until its seats were reserved, milliseconds. Counted when the host has confirmed the
    /// reservation or the party has joined.
    SearchToSeat = 1,
    /// Time from entering the queue until a match was proposed, milliseconds, for each party of each proposal.
    EnterToMatch = 2,
    /// Time from entering the queue until play began, milliseconds, for each party.
    EnterToPlay = 3,
    /// Quality of a match that began in play, from a queue; higher is better.
    MatchQuality = 4,
    /// Score of the session in which a searching party has a seat; lower is better.
    SeatScore = 5,
    /// Distance of a searching party to the session in which it has a seat, kilometers.
    SeatDistance = 6,
    /// Largest distance between two parties of a match that began in play, kilometers.
    MatchDistance = 7,
    /// Expected round trip of a searching party to the session in which it has a seat, milliseconds.
    SeatRoundTrip = 8,
    /// Round trip of a party to the region of its match that began in play, milliseconds.
    MatchRoundTrip = 9,
    /// Sessions that a rule refused in searches.
    SearchRefusals = 10,
    /// Pairs of parties that a rule refused in passes.
    PassRefusals = 11,
    /// Feedback of players on matches, stars.
    Feedback = 12,
    /// Matches with a result.
    Results = 13,
}

impl StatisticKind {
    /// All kinds, by number.
    pub const ALL: [Self; 13] = [
        Self::SearchToSeat,
        Self::EnterToMatch,
        Self::EnterToPlay,
        Self::MatchQuality,
        Self::SeatScore,
        Self::SeatDistance,
        Self::MatchDistance,
        Self::SeatRoundTrip,
        Self::MatchRoundTrip,
        Self::SearchRefusals,
        Self::PassRefusals,
        Self::Feedback,
        Self::Results,
    ];

    /// Number in the store.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// Kind with a number; `None` for a number of a later version.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.number() == number)
    }

    /// Upper bounds of the buckets, inclusive and ascending. A further bucket has all higher values. Empty for plain counts.
    pub fn bounds(self) -> &'static [f64] {
        match self {
            Self::SearchToSeat | Self::EnterToMatch | Self::EnterToPlay => DURATION_BOUNDS_MS,
            Self::MatchQuality | Self::SeatScore => QUALITY_BOUNDS,
            Self::SeatDistance | Self::MatchDistance => DISTANCE_BOUNDS_KM,
            Self::SeatRoundTrip | Self::MatchRoundTrip => ROUND_TRIP_BOUNDS_MS,
            Self::Feedback => STAR_BOUNDS,
            Self::SearchRefusals | Self::PassRefusals | Self::Results => &[],
        }
    }

    /// Bucket of a value: an index into `bounds`, or its length.
    pub fn bucket(self, value: f64) -> usize {
        self.bounds().partition_point(|bound| *bound < value)
    }

    /// Whether it tells one version of a ruleset from another, and is kept longer than the others.
    pub fn is_by_ruleset_version(self) -> bool {
        matches!(self, Self::Feedback | Self::Results)
    }
}

/// Number of players of a party, in classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PartySizeClass {
    /// All sizes, and quantities of no party.
    #[default]
    All = 0,
    /// One player.
    One = 1,
    /// Two players.
    Two = 2,
    /// Three or four players.
    ThreeToFour = 3,
    /// Five to eight players.
    FiveToEight = 4,
    /// Nine players or more.
    NineOrMore = 5,
}

impl PartySizeClass {
    /// All classes, by number.
    pub const ALL: [Self; 6] =
        [Self::All, Self::One, Self::Two, Self::ThreeToFour, Self::FiveToEight, Self::NineOrMore];

    /// Class of a party with this number of players.
    pub fn from_player_count(players: usize) -> Self {
        match players {
            0 | 1 => Self::One,
            2 => Self::Two,
            3 | 4 => Self::ThreeToFour,
            5..=8 => Self::FiveToEight,
            _ => Self::NineOrMore,
        }
    }

    /// Number in the store.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// Class with a number; `None` for a number of a later version.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.number() == number)
    }

    /// Text in answers and metrics; empty for all sizes.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::All => "",
            Self::One => "1",
            Self::Two => "2",
            Self::ThreeToFour => "3-4",
            Self::FiveToEight => "5-8",
            Self::NineOrMore => "9+",
        }
    }
}

/// Key of a count. It names no player and no silo.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StatisticKey {
    /// Quantity.
    pub kind: StatisticKind,
    /// Matchmaking set. `None` for sets beyond the limit of a server.
    pub set_id: Option<SetId>,
    /// Region that the ruleset lists in `<Statistics>`. Empty for others, and for quantities of no region.
    pub region: Box<str>,
    /// Size of the party.
    pub party_size: PartySizeClass,
    /// Ruleset, for kinds that differ by it.
    pub ruleset_hash: Option<RulesetHash>,
    /// Name of the refusing rule. Empty for other kinds.
    pub rule: Box<str>,
}

impl StatisticKey {
    /// Key of a set, for all regions and party sizes.
    pub fn of_matchmaking_set(kind: StatisticKind, set_id: SetId) -> Self {
        Self {
            kind,
            set_id: Some(set_id),
            region: "".into(),
            party_size: PartySizeClass::All,
            ruleset_hash: None,
            rule: "".into(),
        }
    }

    /// Key of everything beyond a limit: without set, region, party size, ruleset and rule.
    pub fn for_overflow(kind: StatisticKind) -> Self {
        Self { set_id: None, ..Self::of_matchmaking_set(kind, SetId(0)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistic_numbers_are_distinct_and_bounds_ascend() {
        for (index, kind) in StatisticKind::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(kind.number()), index + 1);
            assert_eq!(StatisticKind::from_number(kind.number()), Some(kind));
            assert!(kind.bounds().is_sorted_by(|one, other| one < other), "{kind:?}");
        }
        assert_eq!(StatisticKind::from_number(0), None);
        for class in PartySizeClass::ALL {
            assert_eq!(PartySizeClass::from_number(class.number()), Some(class));
        }
        assert_eq!(PartySizeClass::from_number(6), None);
    }

    #[test]
    fn statistic_buckets_include_their_upper_bound() {
        let buckets = [0.0, 1_000.0, 1_001.0, 1_800_000.0, 1_800_001.0];
        assert_eq!(buckets.map(|value| StatisticKind::SearchToSeat.bucket(value)), [0, 0, 1, 15, 16]);
        assert_eq!([1.0, 5.0].map(|stars| StatisticKind::Feedback.bucket(stars)), [0, 4]);
        assert_eq!(StatisticKind::Results.bucket(7.0), 0);
    }

    #[test]
    fn party_size_classes_cover_all_sizes() {
        let classes: Vec<&str> = (1..=10).map(|players| PartySizeClass::from_player_count(players).as_str()).collect();
        assert_eq!(classes, ["1", "2", "3-4", "3-4", "5-8", "5-8", "5-8", "5-8", "9+", "9+"]);
    }
}
