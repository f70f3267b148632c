//! Effects of a ruleset change on ratings, in words and numbers, for the log and the operator.

use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::rating::scale::KeyedRatingSpec;
use crate::engine::ratings::RatingCache;

/// Effect on ratings if `after` replaces `before`: how many are set aside and how many come back. `None` if the same
/// ratings stay in use, or if there are none.
pub(super) fn describe_rating_effect(
    ratings: &RatingCache,
    before: Option<&Ruleset>,
    after: &Ruleset,
) -> Option<String> {
    let used_before = before.and_then(|ruleset| ratings.keyed_spec_of_ruleset(ruleset));
    let used_after = ratings.keyed_spec_of_ruleset(after);
    if used_before.map(|rating| rating.key) == used_after.map(|rating| rating.key) {
        return None;
    }
    let count = |rating: Option<KeyedRatingSpec>| rating.map_or(0, |rating| ratings.rating_count(rating.key));
    let (set_aside, come_back) = (count(used_before), count(used_after));
    match (used_before, used_after) {
        (_, None) if set_aside == 0 => None,
        (_, None) => Some(format!(
            "the set has no ratings any more: {}",
            format_rating_count(set_aside, "is set aside", "are set aside")
        )),
        (None, Some(_)) if come_back == 0 => None,
        (None, Some(_)) => {
            Some(format!("the set has ratings again: {}", format_rating_count(come_back, "comes back", "come back")))
        }
        (Some(previous), Some(next)) => {
            let changed = if previous.spec.scale() == next.spec.scale() { "pool" } else { "scale" };
            Some(if come_back == 0 {
                format!(
                    "the rating {changed} changes: {}",
                    format_rating_count(set_aside, "begins again", "begin again")
                )
            } else {
                format!(
                    "the rating {changed} changes: {}, {}",
                    format_rating_count(come_back, "comes back", "come back"),
                    format_rating_count(set_aside, "is set aside", "are set aside")
                )
            })
        }
    }
}

/// `1 rating comes back`, `2 ratings come back`.
fn format_rating_count(count: usize, singular: &str, plural: &str) -> String {
    if count == 1 { format!("1 rating {singular}") } else { format!("{count} ratings {plural}") }
}
