//! "Did you mean …?": the known word that a misspelt one is nearest to.

use crate::limit::STRING_BYTES_MAX;

/// The candidate that `word` was probably meant to be; `None` when nothing is near.
///
/// Near means: at most one slip for every three letters, upper and lower case and `-`, `_` taken as one. Ties go to the
/// candidate that comes first.
pub fn closest_name<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = normalize(word);
    if word.is_empty() || STRING_BYTES_MAX < word.len() {
        return None;
    }
    let slips_max = word.len() / 3;
    let judged = candidates.into_iter().map(|candidate| (edit_distance(&word, &normalize(candidate)), candidate));
    let near = judged.filter(|&(count, _)| count <= slips_max);
    near.min_by_key(|&(count, _)| count).map(|(_, candidate)| candidate)
}

/// A clause for a reader who wrote `word`: the near candidate, or else all there are.
pub fn suggestion<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str> + Clone) -> String {
    if let Some(candidate) = closest_name(word, candidates.clone()) {
        return format!("did you mean `{candidate}`?");
    }
    let known: Vec<&str> = candidates.into_iter().collect();
    match known.as_slice() {
        [] => "there is none to choose from".into(),
        [only] => format!("use `{only}`"),
        [some @ .., last] => format!("use `{}` or `{last}`", some.join("`, `")),
    }
}

fn normalize(word: &str) -> Vec<char> {
    word.chars()
        .take(STRING_BYTES_MAX + 1)
        .filter(|letter| !"-_ ".contains(*letter))
        .flat_map(char::to_lowercase)
        .collect()
}

/// Insertions, deletions, replacements and swaps of neighbours that make one word into the other (optimal string
/// alignment, three rows of the usual table).
fn edit_distance(from: &[char], to: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=to.len()).collect();
    for (row, &have) in from.iter().enumerate() {
        let mut current = vec![row + 1];
        for (column, &want) in to.iter().enumerate() {
            let replaced = above[column] + usize::from(have != want);
            let mut least = replaced.min(above[column + 1] + 1).min(current[column] + 1);
            if 0 < row && 0 < column && have == to[column - 1] && from[row - 1] == want {
                least = least.min(before[column - 1] + 1);
            }
            current.push(least);
        }
        before = std::mem::replace(&mut above, current);
    }
    above[to.len()]
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
