//! Rating groups: the group of a rating, and the other groups it may meet after a wait.

use crate::ruleset::queue::RatingGroups;

/// Index into `RatingGroups::groups`. Ratings below the first group belong to the first, ratings above the last to the
/// last.
pub fn group_of_rating(groups: &RatingGroups, rating: f64) -> u16 {
    let started = groups.groups.partition_point(|group| group.from <= rating);
    started.saturating_sub(1) as u16
}

/// Number of groups beyond its own that a ticket may meet after `waited_ms`.
pub fn extra_group_count(groups: &RatingGroups, waited_ms: u64) -> u16 {
    let Some(every_ms) = groups.widen_every_ms else { return 0 };
    u16::try_from(waited_ms / every_ms.max(1)).unwrap_or(u16::MAX).min(groups.max_extra_groups)
}

/// Milliseconds until a ticket that has waited `waited_ms` may meet one more group. `None` if it has reached the
/// maximum.
pub fn ms_until_next_group(groups: &RatingGroups, waited_ms: u64) -> Option<u64> {
    let every_ms = groups.widen_every_ms?.max(1);
    let last = (groups.groups.len() as u16).saturating_sub(1).min(groups.max_extra_groups);
    (extra_group_count(groups, waited_ms) < last).then(|| every_ms - waited_ms % every_ms)
}

/// Whether two tickets may meet, each given as (group, extra groups). Both must reach the other's group.
pub fn groups_may_meet(one: (u16, u16), other: (u16, u16)) -> bool {
    let ((group, extra), (other_group, other_extra)) = (one, other);
    group.abs_diff(other_group) <= extra.min(other_extra)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ruleset::queue::RatingGroup;

    fn league_groups() -> RatingGroups {
        let group = |(index, name): (usize, &str)| {
            let from = 1000.0 + 500.0 * index as f64;
            RatingGroup { name: name.into(), from, to: from + 500.0 }
        };
        let names = ["Bronze", "Silver", "Gold", "Platinum", "Diamond", "Semi-Pro", "Professional"];
        let groups = names.into_iter().enumerate().map(group).collect();
        RatingGroups { groups, widen_every_ms: Some(30_000), max_extra_groups: 2 }
    }

    /// B-30: 1499 and 1501 meet after both have waited, and no ticket meets more groups than the maximum.
    #[test]
    fn neighboring_groups_meet_after_both_have_waited() {
        let groups = league_groups();
        let at = |rating, waited_ms| (group_of_rating(&groups, rating), extra_group_count(&groups, waited_ms));
        assert!(!groups_may_meet(at(1499.0, 29_999), at(1501.0, 29_999)));
        assert!(!groups_may_meet(at(1499.0, 30_000), at(1501.0, 0)), "the second ticket has not waited");
        assert!(groups_may_meet(at(1499.0, 30_000), at(1501.0, 30_000)));
        assert!(groups_may_meet(at(1000.0, 60_000), at(2200.0, 60_000)));
        assert!(!groups_may_meet(at(1000.0, u64::MAX), at(2500.0, u64::MAX)), "at most two extra groups");
    }

    #[test]
    fn next_group_time_is_known_until_the_last_group() {
        let mut groups = league_groups();
        assert_eq!(ms_until_next_group(&groups, 0), Some(30_000));
        assert_eq!(ms_until_next_group(&groups, 59_999), Some(1));
        assert_eq!(ms_until_next_group(&groups, 60_000), None);
        groups.widen_every_ms = None;
        assert_eq!((extra_group_count(&groups, u64::MAX), ms_until_next_group(&groups, 0)), (0, None));
    }
}
