//! Refusal reasons of searches and queue passes, in one closed enum.

use std::borrow::Cow;

use crate::ruleset::{RefusingRule, Ruleset};

/// Side whose rule refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RefusingSide {
    /// The searcher's rule refuses the advertisement.
    Searcher,
    /// The advertiser's rule refuses the searcher.
    Advertiser,
}

impl RefusingSide {
    /// The other side.
    pub fn opposite(self) -> RefusingSide {
        match self {
            RefusingSide::Searcher => RefusingSide::Advertiser,
            RefusingSide::Advertiser => RefusingSide::Searcher,
        }
    }
}

/// Reason that an advertisement is not returned to a searcher or that a ticket still waits, in evaluation order.
/// Searches use the variants up to `Silent`; queues use `OwnSession`, `HardFilter` and the variants after `Silent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// The silos differ.
    Silo,
    /// The candidate shares a user or the authenticated caller with the searcher.
    OwnSession,
    /// The searcher excluded the advertisement by id.
    Excluded,
    /// The advertisement's TTL has expired.
    Expired,
    /// The advertisement has fewer open seats than the searcher has players.
    NotEnoughSeats,
    /// A hard filter of the ruleset, an allowed range published by the advertisement, or a wish of a party.
    HardFilter {
        /// Index in `Ruleset::hard_filters`; its length stands for the allowed ranges, and what follows for wishes:
        /// `Ruleset::rule_of_filter_index`.
        filter_index: usize,
        /// Side whose limit or value refused.
        side: RefusingSide,
    },
    /// The searcher's probe of the host was not answered, or found it incompatible.
    Silent,
    /// The rating groups are too far apart for the time that both have waited.
    RatingGroup,
    /// The parties have no region in common.
    NoCommonRegion,
    /// The rating windows do not yet include each other.
    RatingWindow,
    /// One party avoids a player of the other. In searches the advertisement does not exist, so it comes first, and only
    /// explanations for operators count it.
    AvoidedPlayer,
    /// The compatible tickets do not fill the teams or cannot be split into them.
    TeamsNotFilled,
    /// The players of the compatible tickets do not fill the roles of every team.
    RolesNotFilled,
    /// The match quality would be below the threshold.
    LowQuality,
    /// All compatible tickets were used in other matches.
    CandidatesTaken,
    /// No other ticket waits.
    NoCandidates,
    /// A player of the ticket is in a match.
    PlayerInMatch,
    /// The queue's gate is closed: too few tickets for a pass, or too many concurrent matches.
    GateClosed,
    /// The pair check budget of the pass was used up before this ticket.
    NotEvaluated,
}

impl Refusal {
    /// Name of the refusing rule: a hard filter's own name, a wish with its side, otherwise the refusal's short name.
    pub fn rule_name(self, ruleset: &Ruleset) -> Cow<'_, str> {
        match self {
            Refusal::HardFilter { filter_index, side } => match (ruleset.rule_of_filter_index(filter_index), side) {
                (rule @ RefusingRule::Wish(_), RefusingSide::Advertiser) => format!("other_{}", rule.name()).into(),
                (rule, _) => rule.name(),
            },
            other => other.as_str().into(),
        }
    }

    /// Short name, as in metric labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Refusal::Silo => "silo",
            Refusal::OwnSession => "own",
            Refusal::Excluded => "excluded",
            Refusal::Expired => "expired",
            Refusal::NotEnoughSeats => "full",
            Refusal::HardFilter { .. } => "filter",
            Refusal::Silent => "silent",
            Refusal::RatingGroup => "group",
            Refusal::NoCommonRegion => "region",
            Refusal::RatingWindow => "window",
            Refusal::AvoidedPlayer => "avoid",
            Refusal::TeamsNotFilled => "team",
            Refusal::RolesNotFilled => "role",
            Refusal::LowQuality => "quality",
            Refusal::CandidatesTaken => "taken",
            Refusal::NoCandidates => "no_candidates",
            Refusal::PlayerInMatch => "paused",
            Refusal::GateClosed => "gate",
            Refusal::NotEvaluated => "not_evaluated",
        }
    }

    /// Index into an array of counters, without gaps. `HardFilter` comes last, with two counters per filter.
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
            Refusal::RolesNotFilled => 16,
            Refusal::Silent => 17,
            Refusal::HardFilter { filter_index, side: RefusingSide::Searcher } => {
                Self::NON_FILTER_REFUSALS.len() + 2 * filter_index
            }
            Refusal::HardFilter { filter_index, side: RefusingSide::Advertiser } => {
                Self::NON_FILTER_REFUSALS.len() + 2 * filter_index + 1
            }
        }
    }

    /// Refusal with this `counter_index`.
    pub fn from_counter_index(counter: usize) -> Refusal {
        let Some(filter_counter) = counter.checked_sub(Self::NON_FILTER_REFUSALS.len()) else {
            return Self::NON_FILTER_REFUSALS[counter];
        };
        let side = if filter_counter.is_multiple_of(2) { RefusingSide::Searcher } else { RefusingSide::Advertiser };
        Refusal::HardFilter { filter_index: filter_counter / 2, side }
    }

    /// Number of counters for a ruleset with `filter_indexes` values of `filter_index`: `Ruleset::refusing_rule_count`.
    pub fn counter_count(filter_indexes: usize) -> usize {
        Self::NON_FILTER_REFUSALS.len() + 2 * filter_indexes
    }

    /// All variants but `HardFilter`, in `counter_index` order.
    const NON_FILTER_REFUSALS: [Refusal; 18] = [
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
        Refusal::RolesNotFilled,
        Refusal::Silent,
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_counter_index_round_trips() {
        for counter in 0..Refusal::counter_count(4) {
            assert_eq!(Refusal::from_counter_index(counter).counter_index(), counter);
        }
        assert_eq!(
            Refusal::from_counter_index(Refusal::counter_count(4) - 1),
            Refusal::HardFilter { filter_index: 3, side: RefusingSide::Advertiser }
        );
    }
}
