//! Rating groups: which one a rating is in, and which others it may meet by now (S3-2, B-29, B-30).

use crate::ruleset::queue::RatingGroups;

/// The group of a rating: a place in `Groups::groups`. Ratings below the first are in the first, ratings above the last in
/// the last (B-29).
pub fn group_of_rating(groups: &RatingGroups, rating: f64) -> u16 {
    let begun = groups.groups.partition_point(|group| group.from <= rating);
    begun.saturating_sub(1) as u16
}

/// How many groups further somebody may look after `waited_ms` (B-30).
pub fn extra_groups(groups: &RatingGroups, waited_ms: u64) -> u16 {
    let Some(every_ms) = groups.neighbour_every_ms else { return 0 };
    u16::try_from(waited_ms / every_ms.max(1)).unwrap_or(u16::MAX).min(groups.max_neighbours)
}

/// Milliseconds until somebody who has waited `waited_ms` may look further; `None` when it is as far as it gets.
pub fn ms_until_next_group(groups: &RatingGroups, waited_ms: u64) -> Option<u64> {
    let every_ms = groups.neighbour_every_ms?.max(1);
    let last = (groups.groups.len() as u16).saturating_sub(1).min(groups.max_neighbours);
    (extra_groups(groups, waited_ms) < last).then(|| every_ms - waited_ms % every_ms)
}

/// Whether two may meet: both have waited long enough for the groups between them.
pub fn groups_may_meet(one: (u16, u16), other: (u16, u16)) -> bool {
    let ((group, reach), (other_group, other_reach)) = (one, other);
    group.abs_diff(other_group) <= reach.min(other_reach)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ruleset::queue::RatingGroup;

    fn league_groups() -> RatingGroups {
        let group = |(place, name): (usize, &str)| {
            let from = 1000.0 + 500.0 * place as f64;
            RatingGroup { name: name.into(), from, to: from + 500.0 }
        };
        let names = ["Bronze", "Silver", "Gold", "Platinum", "Diamond", "Semi-Pro", "Professional"];
        let groups = names.into_iter().enumerate().map(group).collect();
        RatingGroups { groups, neighbour_every_ms: Some(30_000), max_neighbours: 2 }
    }

    /// B-30: 1499 and 1501 meet after both have waited, and nobody looks further than he may.
    #[test]
    fn neighboring_groups_meet_after_both_have_waited() {
        let groups = league_groups();
        let at = |rating, waited_ms| (group_of_rating(&groups, rating), extra_groups(&groups, waited_ms));
        assert!(!groups_may_meet(at(1499.0, 29_999), at(1501.0, 29_999)));
        assert!(!groups_may_meet(at(1499.0, 30_000), at(1501.0, 0)), "the newcomer has not waited");
        assert!(groups_may_meet(at(1499.0, 30_000), at(1501.0, 30_000)));
        assert!(groups_may_meet(at(1000.0, 60_000), at(2200.0, 60_000)));
        assert!(!groups_may_meet(at(1000.0, u64::MAX), at(2500.0, u64::MAX)), "two groups further at most");
    }

    #[test]
    fn next_group_time_is_known_until_the_last_group() {
        let mut groups = league_groups();
        assert_eq!(ms_until_next_group(&groups, 0), Some(30_000));
        assert_eq!(ms_until_next_group(&groups, 59_999), Some(1));
        assert_eq!(ms_until_next_group(&groups, 60_000), None);
        groups.neighbour_every_ms = None;
        assert_eq!((extra_groups(&groups, u64::MAX), ms_until_next_group(&groups, 0)), (0, None));
    }
}
