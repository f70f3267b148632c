//! Every reason for which two do not meet, in one closed list for searches and queues alike.

/// Which side's rule refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The searcher will not have the advertisement.
    Searcher,
    /// The advertisement will not have the searcher.
    Advertiser,
}

impl Side {
    /// The other one.
    pub fn other(self) -> Side {
        match self {
            Side::Searcher => Side::Advertiser,
            Side::Advertiser => Side::Searcher,
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
    Own,
    /// The searcher asked not to be shown it.
    Excluded,
    /// It is no longer believed (S1-45).
    Expired,
    /// It has fewer open seats than the searcher has players (S1-40).
    Full,
    /// A hard filter of the ruleset: its place in `Ruleset::hard`, or `Ruleset::hard.len()` for a range that the
    /// advertisement itself published.
    Filter {
        /// Which filter.
        filter: usize,
        /// Whose limit.
        side: Side,
    },
    /// Their rating groups are too far apart for the time that both have waited (S3-2, B-30).
    Group,
    /// They have no region in common (S3-8).
    Region,
    /// Their ranges do not meet by now (S0-9).
    Window,
    /// One of them would not meet the other again.
    Avoid,
    /// Those who suit each other do not fill the teams, or cannot be divided into them.
    Team,
    /// The match would not be good enough.
    Quality,
    /// Whoever would do was taken by somebody else.
    Taken,
    /// Nobody else waits.
    Nobody,
    /// A user of it is in a match.
    Paused,
    /// The pass was not worth running, or no more matches may be running (S2-7, S2-12).
    Gate,
    /// The pass ran out of looks before it came to it.
    Unseen,
}

impl Refusal {
    /// The rule, in a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Refusal::Silo => "silo",
            Refusal::Own => "own",
            Refusal::Excluded => "excluded",
            Refusal::Expired => "expired",
            Refusal::Full => "full",
            Refusal::Filter { .. } => "filter",
            Refusal::Group => "group",
            Refusal::Region => "region",
            Refusal::Window => "window",
            Refusal::Avoid => "avoid",
            Refusal::Team => "team",
            Refusal::Quality => "quality",
            Refusal::Taken => "taken",
            Refusal::Nobody => "nobody",
            Refusal::Paused => "paused",
            Refusal::Gate => "gate",
            Refusal::Unseen => "unseen",
        }
    }

    /// A place for each refusal, without gaps: `Filter` comes last, for there are as many as a ruleset has rules.
    pub fn counter(self) -> usize {
        match self {
            Refusal::Silo => 0,
            Refusal::Own => 1,
            Refusal::Excluded => 2,
            Refusal::Expired => 3,
            Refusal::Full => 4,
            Refusal::Group => 5,
            Refusal::Region => 6,
            Refusal::Window => 7,
            Refusal::Avoid => 8,
            Refusal::Team => 9,
            Refusal::Quality => 10,
            Refusal::Taken => 11,
            Refusal::Nobody => 12,
            Refusal::Paused => 13,
            Refusal::Gate => 14,
            Refusal::Unseen => 15,
            Refusal::Filter { filter, side: Side::Searcher } => Self::PLAIN.len() + 2 * filter,
            Refusal::Filter { filter, side: Side::Advertiser } => Self::PLAIN.len() + 2 * filter + 1,
        }
    }

    /// The refusal whose `counter` this is.
    pub fn of_counter(counter: usize) -> Refusal {
        let Some(filter) = counter.checked_sub(Self::PLAIN.len()) else { return Self::PLAIN[counter] };
        let side = if filter.is_multiple_of(2) { Side::Searcher } else { Side::Advertiser };
        Refusal::Filter { filter: filter / 2, side }
    }

    /// How many counters a ruleset with so many hard filters needs, ranges of advertisements included.
    pub fn counters(hard_filters: usize) -> usize {
        Self::PLAIN.len() + 2 * (hard_filters + 1)
    }

    /// All but `Filter`.
    const PLAIN: [Refusal; 16] = [
        Refusal::Silo,
        Refusal::Own,
        Refusal::Excluded,
        Refusal::Expired,
        Refusal::Full,
        Refusal::Group,
        Refusal::Region,
        Refusal::Window,
        Refusal::Avoid,
        Refusal::Team,
        Refusal::Quality,
        Refusal::Taken,
        Refusal::Nobody,
        Refusal::Paused,
        Refusal::Gate,
        Refusal::Unseen,
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_has_a_place_of_its_own() {
        for counter in 0..Refusal::counters(3) {
            assert_eq!(Refusal::of_counter(counter).counter(), counter);
        }
        assert_eq!(
            Refusal::of_counter(Refusal::counters(3) - 1),
            Refusal::Filter { filter: 3, side: Side::Advertiser }
        );
    }
}
