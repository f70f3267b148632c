//! Spelling suggestions ("did you mean …?"): finds the known name closest to a misspelt one.

use crate::limit::STRING_BYTES_MAX;

/// Names of elements, attributes and values before version 0.2, and their names now.
const RENAMED: [(&str, &str); 31] = [
    ("Reduce", "PartyAggregation"),
    ("text", "string"),
    ("flag", "bool"),
    ("texts", "string_list"),
    ("server", "game_server"),
    ("SameHash", "SameRuleset"),
    ("PassEveryMs", "PassIntervalMs"),
    ("SeveralQueues", "AllowOtherQueues"),
    ("LikePartiesFirst", "PreferSamePartySize"),
    ("TicketLapseMs", "TicketTtlMs"),
    ("MaxParallelMatches", "MaxConcurrentMatches"),
    ("Groups", "RatingGroups"),
    ("Group", "RatingGroup"),
    ("NeighbourEveryMs", "WidenEveryMs"),
    ("MaxNeighbours", "MaxExtraGroups"),
    ("separate", "partition"),
    ("stage", "filter"),
    ("Window", "RatingWindow"),
    ("best_window", "first_window"),
    ("LookAt", "MaxCandidates"),
    ("ExactUpTo", "ExactUpToTickets"),
    ("rather_not", "prefer_not"),
    ("ForMs", "RecentMs"),
    ("ScoreBelow", "FeedbackBelow"),
    ("DeadlineMs", "TimeoutMs"),
    ("Ms", "CooldownMs"),
    ("Server", "Hosting"),
    ("advertised", "game_server"),
    ("WaitMs", "AllocationTimeoutMs"),
    ("PlayMaxMs", "MaxMatchMs"),
    ("GamePer", "GamesPer"),
];

/// The candidate that `word` was called before it was renamed, if any.
fn renamed<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let (_, name) = RENAMED.iter().find(|(old, _)| *old == word)?;
    candidates.into_iter().find(|candidate| candidate == name)
}

/// Candidate closest to `word`; `None` if none is close.
///
/// Close means an edit distance of at most one per three characters, ignoring case, `-` and `_`. Ties go to the first
/// candidate.
pub fn closest_name<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let candidates: Vec<&str> = candidates.into_iter().collect();
    if let Some(candidate) = renamed(word, candidates.iter().copied()) {
        return Some(candidate);
    }
    let word = normalize(word);
    if word.is_empty() || word.len() > STRING_BYTES_MAX {
        return None;
    }
    let max_distance = word.len() / 3;
    let distances = candidates.into_iter().map(|candidate| (edit_distance(&word, &normalize(candidate)), candidate));
    let close = distances.filter(|&(count, _)| count <= max_distance);
    close.min_by_key(|&(count, _)| count).map(|(_, candidate)| candidate)
}

/// Clause that suggests the closest candidate for `word`, or else lists all candidates.
pub fn suggestion<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str> + Clone) -> String {
    if let Some(candidate) = renamed(word, candidates.clone()) {
        return format!("it is now called `{candidate}`");
    }
    if let Some(candidate) = closest_name(word, candidates.clone()) {
        return format!("did you mean `{candidate}`?");
    }
    let known: Vec<&str> = candidates.into_iter().collect();
    match known.as_slice() {
        [] => "there is none to choose from".into(),
        [only] => format!("use `{only}`"),
        [first @ .., last] => format!("use `{}` or `{last}`", first.join("`, `")),
    }
}

fn normalize(word: &str) -> Vec<char> {
    word.chars()
        .take(STRING_BYTES_MAX + 1)
        .filter(|character| !"-_ ".contains(*character))
        .flat_map(char::to_lowercase)
        .collect()
}

/// Edit distance: insertions, deletions, replacements and swaps of adjacent characters (optimal string alignment, three
/// rows of the table).
fn edit_distance(from: &[char], to: &[char]) -> usize {
    let mut row_before_previous: Vec<usize> = Vec::new();
    let mut previous_row: Vec<usize> = (0..=to.len()).collect();
    for (row, &from_character) in from.iter().enumerate() {
        let mut current = vec![row + 1];
        for (column, &to_character) in to.iter().enumerate() {
            let with_replacement = previous_row[column] + usize::from(from_character != to_character);
            let mut distance = with_replacement.min(previous_row[column + 1] + 1).min(current[column] + 1);
            if row > 0 && column > 0 && from_character == to[column - 1] && from[row - 1] == to_character {
                distance = distance.min(row_before_previous[column - 1] + 1);
            }
            current.push(distance);
        }
        row_before_previous = std::mem::replace(&mut previous_row, current);
    }
    previous_row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_closest_name(word: &str, expected: Option<&str>) {
        let words = ["Weight", "Mode", "Curve", "lower_is_better", "difference", "Min", "Max"];
        assert_eq!(closest_name(word, words), expected, "{word}");
    }

    #[test]
    fn closest_name_corrects_typos() {
        check_closest_name("Wieght", Some("Weight"));
        check_closest_name("weight", Some("Weight"));
        check_closest_name("Weigths", Some("Weight"));
        check_closest_name("LowerIsBetter", Some("lower_is_better"));
        check_closest_name("diference", Some("difference"));
        check_closest_name("Mim", Some("Min"));
        check_closest_name("MAX", Some("Max"));
    }

    #[test]
    fn closest_name_ignores_unrelated_words() {
        check_closest_name("Colour", None);
        check_closest_name("", None);
        check_closest_name("Ma", None);
        check_closest_name(&"Weight".repeat(20), None);
    }
}
