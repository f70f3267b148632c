//! "Did you mean …?": the known word that a misspelt one is nearest to.

use crate::domain::limit::TEXT_BYTES_MAX;

/// The candidate that `word` was probably meant to be; `None` when nothing is near.
///
/// Near means: at most one slip for every three letters, upper and lower case and `-`, `_` taken as one. Ties go to the
/// candidate that comes first.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = plain(word);
    if word.is_empty() || TEXT_BYTES_MAX < word.len() {
        return None;
    }
    let slips_max = word.len() / 3;
    let judged = candidates.into_iter().map(|candidate| (slips(&word, &plain(candidate)), candidate));
    let near = judged.filter(|&(count, _)| count <= slips_max);
    near.min_by_key(|&(count, _)| count).map(|(_, candidate)| candidate)
}

/// A clause for a reader who wrote `word`: the near candidate, or else all there are.
pub fn instead<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str> + Clone) -> String {
    if let Some(candidate) = nearest(word, candidates.clone()) {
        return format!("did you mean `{candidate}`?");
    }
    let known: Vec<&str> = candidates.into_iter().collect();
    match known.as_slice() {
        [] => "there is none to choose from".into(),
        [only] => format!("use `{only}`"),
        [some @ .., last] => format!("use `{}` or `{last}`", some.join("`, `")),
    }
}

fn plain(word: &str) -> Vec<char> {
    word.chars()
        .take(TEXT_BYTES_MAX + 1)
        .filter(|letter| !"-_ ".contains(*letter))
        .flat_map(char::to_lowercase)
        .collect()
}

/// Insertions, deletions, replacements and swaps of neighbours that make one word into the other (optimal string
/// alignment, three rows of the usual table).
fn slips(from: &[char], to: &[char]) -> usize {
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
    fn check(word: &str, expected: Option<&str>) {
        let words = ["Weight", "Mode", "Curve", "lower_is_better", "difference", "Min", "Max"];
        assert_eq!(nearest(word, words), expected, "{word}");
    }

    #[test]
    fn slips_of_the_finger_are_understood() {
        check("Wieght", Some("Weight"));
        check("weight", Some("Weight"));
        check("Weigths", Some("Weight"));
        check("LowerIsBetter", Some("lower_is_better"));
        check("diference", Some("difference"));
        check("Mim", Some("Min"));
        check("MAX", Some("Max"));
    }

    #[test]
    fn another_word_is_not_guessed_at() {
        check("Colour", None);
        check("", None);
        check("Ma", None);
        check(&"Weight".repeat(20), None);
    }
}
