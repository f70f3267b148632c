//! Every reason for which two do not meet, in one closed list for searches and queues alike.

/// Which side's rule refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RefusingSide {
    /// The searcher will not have the advertisement.
    Searcher,
    /// The advertisement will not have the searcher.
    Advertiser,
}

impl RefusingSide {
    /// The other one.
    pub fn opposite(self) -> RefusingSide {
        match self {
            RefusingSide::Searcher => RefusingSide::Advertiser,
            RefusingSide::Advertiser => RefusingSide::Searcher,
        }
    }
}

/// Why two do not meet: why an advertisement is not shown to a searcher, or why a ticket still waits; in the order tried.
/// Searches know the rules up to `Filter`, queues `Own`, `Filter` and what follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// They are of populations that never meet.
    Silo,
    /// It shares a user or a subject with the searcher (S1-50).
    OwnSession,
    /// The searcher asked not to be shown it.
    Excluded,
    /// It is no longer believed (S1-45).
    Expired,
    /// It has fewer open seats than the searcher has players (S1-40).
    NotEnoughSeats,
    /// A hard filter of the ruleset: its place in `Ruleset::hard`, or `Ruleset::hard.len()` for a range that the
    /// advertisement itself published.
    HardFilter {
        /// Which filter.
        filter_index: usize,
        /// Whose limit.
        side: RefusingSide,
    },
    /// Their rating groups are too far apart for the time that both have waited (S3-2, B-30).
    RatingGroup,
    /// They have no region in common (S3-8).
    NoCommonRegion,
    /// Their ranges do not meet by now (S0-9).
    RatingWindow,
    /// One of them would not meet the other again.
    AvoidedPlayer,
    /// Those who suit each other do not fill the teams, or cannot be divided into them.
    TeamsNotFilled,
    /// The match would not be good enough.
    LowQuality,
    /// Whoever would do was taken by somebody else.
    CandidatesTaken,
    /// Nobody else waits.
    NoCandidates,
    /// A user of it is in a match.
    PlayerInMatch,
    /// The pass was not worth running, or no more matches may be running (S2-7, S2-12).
    GateClosed,
    /// The pass ran out of looks before it came to it.
    NotEvaluated,
}

impl Refusal {
    /// The rule, in a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Refusal::Silo => "silo",
            Refusal::OwnSession => "own",
            Refusal::Excluded => "excluded",
            Refusal::Expired => "expired",
            Refusal::NotEnoughSeats => "full",
            Refusal::HardFilter { .. } => "filter",
            Refusal::RatingGroup => "group",
            Refusal::NoCommonRegion => "region",
            Refusal::RatingWindow => "window",
            Refusal::AvoidedPlayer => "avoid",
            Refusal::TeamsNotFilled => "team",
            Refusal::LowQuality => "quality",
            Refusal::CandidatesTaken => "taken",
            Refusal::NoCandidates => "nobody",
            Refusal::PlayerInMatch => "paused",
            Refusal::GateClosed => "gate",
            Refusal::NotEvaluated => "unseen",
        }
    }

    /// A place for each refusal, without gaps: `Filter` comes last, for there are as many as a ruleset has rules.
    pub fn counter_index(self) -> usize {
        match self {
            Refusal::Silo => 0,
            Refusal::OwnSession => 1,
            Refusal::Excluded => 2,
            Refusal::Expired => 3,
            Refusal::NotEnoughSeats => 4,
            Refusal::RatingGroup => 5,
            Refusal::NoCommonRegion => 6,
            Refusal::RatingWindow => 7,
            Refusal::AvoidedPlayer => 8,
            Refusal::TeamsNotFilled => 9,
            Refusal::LowQuality => 10,
            Refusal::CandidatesTaken => 11,
            Refusal::NoCandidates => 12,
            Refusal::PlayerInMatch => 13,
            Refusal::GateClosed => 14,
            Refusal::NotEvaluated => 15,
            Refusal::HardFilter { filter_index: filter, side: RefusingSide::Searcher } => {
                Self::NON_FILTER_REFUSALS.len() + 2 * filter
            }
            Refusal::HardFilter { filter_index: filter, side: RefusingSide::Advertiser } => {
                Self::NON_FILTER_REFUSALS.len() + 2 * filter + 1
            }
        }
    }

    /// The refusal whose `counter` this is.
    pub fn from_counter_index(counter: usize) -> Refusal {
        let Some(filter) = counter.checked_sub(Self::NON_FILTER_REFUSALS.len()) else {
            return Self::NON_FILTER_REFUSALS[counter];
        };
        let side = if filter.is_multiple_of(2) { RefusingSide::Searcher } else { RefusingSide::Advertiser };
        Refusal::HardFilter { filter_index: filter / 2, side }
    }

    /// How many counters a ruleset with so many hard filters needs, ranges of advertisements included.
    pub fn counter_count(hard_filters: usize) -> usize {
        Self::NON_FILTER_REFUSALS.len() + 2 * (hard_filters + 1)
    }

    /// All but `Filter`.
    const NON_FILTER_REFUSALS: [Refusal; 16] = [
        Refusal::Silo,
        Refusal::OwnSession,
        Refusal::Excluded,
        Refusal::Expired,
        Refusal::NotEnoughSeats,
        Refusal::RatingGroup,
        Refusal::NoCommonRegion,
        Refusal::RatingWindow,
        Refusal::AvoidedPlayer,
        Refusal::TeamsNotFilled,
        Refusal::LowQuality,
        Refusal::CandidatesTaken,
        Refusal::NoCandidates,
        Refusal::PlayerInMatch,
        Refusal::GateClosed,
        Refusal::NotEvaluated,
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_counter_index_round_trips() {
        for counter in 0..Refusal::counter_count(3) {
            assert_eq!(Refusal::from_counter_index(counter).counter_index(), counter);
        }
        assert_eq!(
            Refusal::from_counter_index(Refusal::counter_count(3) - 1),
            Refusal::HardFilter { filter_index: 3, side: RefusingSide::Advertiser }
        );
    }
}
