//! Vocabulary: banned words and phrases, first words of doc comments, tense of log events, and where requirement ids may stand.

use crate::support::source_tree::{self, SourceFile, assert_exact_violations, assert_no_violations};

/// Banned words and phrases, each with the standard words to use instead. Parts are joined so that this file passes its own test.
const BANNED: &[(&str, &str)] = &[
    (concat!("no", "body"), "no caller, no ticket, no one"),
    (concat!("who", "ever"), "the caller, any player"),
    (concat!("some", "body"), "a caller, another player"),
    (concat!("every", "body"), "all players, each caller"),
    (concat!("any", "body"), "any caller, a player"),
    (concat!("what", "ever"), "any, each"),
    (concat!("which", "ever"), "any, the one that"),
    (concat!("where", "ever"), "where, in each place that"),
    (concat!("whom", "ever"), "any caller"),
    (concat!("belie", "ved"), "valid until, trusted, accepted"),
    (concat!("so ", "many"), "n, this number of"),
    (concat!("such ", "a thing"), "name the thing"),
    (concat!("is ", "told"), "receives"),
    (concat!("are ", "told"), "receive"),
    (concat!("was ", "told"), "received"),
    (concat!("came ", "of"), "resulted from, result"),
    (concat!("comes ", "of"), "results from"),
    (concat!("a", "new"), "again"),
    (concat!("goes ", "by"), "depends on"),
    (concat!("go ", "by"), "depend on"),
    (concat!("be ", "it"), "whether"),
    (concat!("gives ", "way"), "is replaced"),
    (concat!("takes ", "leave"), "closes"),
    (concat!("di", "ce"), "rng"),
    (concat!("lap", "se"), "expire, TTL"),
    (concat!("lap", "ses"), "expires"),
    (concat!("lap", "sed"), "expired"),
];

/// First words that a doc comment may not have: it opens with a noun phrase or a verb.
const FIRST_WORDS: &[&str] = &["What", "How", "Who", "Whom", "Whose", "Where", "Which", "Why"];

/// Past participles and states that an `error!` or `warn!` event contains: the event is a fact, not an order.
const EVENT_WORDS: &[&str] = &[
    "accepted",
    "cannot",
    "changed",
    "closed",
    "corrupt",
    "discarded",
    "dropped",
    "ended",
    "exceeded",
    "expired",
    "failed",
    "ignored",
    "invalid",
    "kept",
    "lost",
    "missing",
    "not",
    "panicked",
    "quarantined",
    "reached",
    "recovered",
    "refused",
    "rejected",
    "renewed",
    "restored",
    "retried",
    "skipped",
    "stopped",
    "timed",
    "unavailable",
    "unknown",
    "unreachable",
    "unreadable",
];

/// Files that may cite requirement ids (`S1-25`, `R6`, `SEC-10`, `B-8`), beside tests.
const ID_FILES: &[&str] = &["docs/COVERAGE.md", "SECURITY.md", "docs/SECURITY-TESTS.md"];

#[test]
fn words_are_plain() {
    assert_no_violations(&banned_words(&source_tree::read_source_files(source_tree::repository_root())));
}

#[test]
fn words_that_open_a_doc_comment_are_nouns_or_verbs() {
    assert_no_violations(&first_words(&source_tree::read_source_files(source_tree::repository_root())));
}

#[test]
fn words_of_log_events_are_past_tense_facts() {
    assert_no_violations(&log_events(&source_tree::read_source_files(source_tree::repository_root())));
}

#[test]
fn words_that_are_requirement_ids_stay_in_tests_and_their_pages() {
    assert_no_violations(&stray_ids(&source_tree::read_source_files(source_tree::repository_root())));
}

/// Whether a file is text that people write. Excluded: `ruleset/hash/`, because hashes depend on its labels; lock, golden,
/// vector, corpus and data files, which are generated or external; the changelog, which quotes old names.
fn is_checked(path: &str) -> bool {
    let excluded =
        ["/golden/", "/vectors/", "/corpus/", "data/", "LICENSE", "CHANGELOG", "Cargo.lock", "ruleset/hash/"];
    !excluded.iter().any(|part| path.contains(part))
}

fn banned_words(tree: &[SourceFile]) -> Vec<String> {
    let mut complaints = Vec::new();
    for source in tree.iter().filter(|source| is_checked(&source.path)) {
        for (number, line) in source.text.lines().enumerate() {
            let lower = line.to_lowercase();
            let found = BANNED.iter().filter(|(phrase, _)| occurrences(&lower, phrase) > 0);
            complaints.extend(
                found.map(|(phrase, instead)| format!("{}:{}: `{phrase}`; say {instead}", source.path, number + 1)),
            );
        }
    }
    complaints
}

/// Occurrences of `phrase` as whole words. `_` ends a word, so that test names count.
fn occurrences(text: &str, phrase: &str) -> usize {
    let is_letter = |edge: Option<char>| edge.is_some_and(char::is_alphanumeric);
    text.match_indices(phrase)
        .filter(|(at, found)| {
            !is_letter(text[..*at].chars().next_back()) && !is_letter(text[at + found.len()..].chars().next())
        })
        .count()
}

fn first_words(tree: &[SourceFile]) -> Vec<String> {
    let mut complaints = Vec::new();
    for source in tree.iter().filter(|source| source.path.ends_with(".rs") && is_checked(&source.path)) {
        let mut previous_is_doc = false;
        for (number, line) in source.text.lines().enumerate() {
            let line = line.trim_start();
            let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
            let first = text.and_then(|text| text.split_whitespace().next()).unwrap_or_default();
            if !previous_is_doc && FIRST_WORDS.contains(&first.trim_end_matches(|mark: char| !mark.is_alphanumeric())) {
                complaints.push(format!("{}:{}: a doc comment opens with `{first}`", source.path, number + 1));
            }
            previous_is_doc = text.is_some();
        }
    }
    complaints
}

fn log_events(tree: &[SourceFile]) -> Vec<String> {
    let mut complaints = Vec::new();
    for source in tree.iter().filter(|source| source.path.starts_with("src/") && source.path.ends_with(".rs")) {
        for name in ["error!(", "warn!("] {
            for (at, _) in source.text.match_indices(name) {
                let is_macro =
                    source.text[..at].ends_with("tracing::") || source.text[..at].ends_with([' ', '{', '(', '\n']);
                let Some(message) = event_message(&source.text[at + name.len()..]).filter(|_| is_macro) else {
                    continue;
                };
                let words = message.split(|mark: char| !mark.is_alphanumeric());
                if !words.into_iter().any(|word| EVENT_WORDS.contains(&word)) {
                    let line = source.text[..at].lines().count();
                    complaints.push(format!("{}:{line}: event `{message}` says no fact such as `failed`", source.path));
                }
            }
        }
    }
    complaints
}

/// The message of a log macro: the last string literal before its closing parenthesis, which ends a line.
fn event_message(arguments: &str) -> Option<&str> {
    let end = [");", "),\n", ")\n"].into_iter().filter_map(|end| arguments.find(end)).min()?;
    let call = &arguments[..end];
    let end = call.rfind('"')?;
    let start = call[..end].rfind('"')? + 1;
    Some(&call[start..end])
}

fn stray_ids(tree: &[SourceFile]) -> Vec<String> {
    let mut complaints = Vec::new();
    for source in tree.iter().filter(|source| is_checked(&source.path) && !may_cite_ids(&source.path)) {
        let mut in_tests = false;
        for (number, line) in source.text.lines().enumerate() {
            in_tests |= (line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test"))
                && source.path.ends_with(".rs");
            let words = line.split(|mark: char| !(mark.is_alphanumeric() || mark == '-'));
            let found = words.into_iter().filter(|word| is_requirement_id(word)).filter(|_| !in_tests);
            complaints.extend(found.map(|id| format!("{}:{}: `{id}`; say what it means", source.path, number + 1)));
        }
    }
    complaints
}

fn may_cite_ids(path: &str) -> bool {
    ID_FILES.contains(&path)
        || path.starts_with("tests/")
        || path.ends_with("/tests.rs")
        || path.ends_with("/oracle.rs")
        || path.contains("/tests/")
}

/// `S0-1` to `S4-18`, `SEC-5`, `B-8`. `R4` alone is too short to be told from other words; it is found as `(R4)`.
fn is_requirement_id(word: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.len() <= 2 && text.bytes().all(|byte| byte.is_ascii_digit());
    let Some((prefix, number)) = word.split_once('-') else { return false };
    digits(number) && (prefix == "SEC" || matches!(prefix.as_bytes(), [b'S', b'0'..=b'4'] | [b'B']))
}

#[test]
fn words_violations_are_reported() {
    let example = source_tree::example_tree(&[
        ("src/a.rs", &format!("//! What a file is for.\n/// Rows. {}\nfn a() {{}}\n", concat!("No", "body."))),
        (
            "src/b.rs",
            "//! Rows.\nfn b() { tracing::error!(%error, \"commit a batch\"); warn!(\"batch commit failed\"); }\n",
        ),
        ("src/c.rs", "//! Rows (S1-25).\n#[cfg(test)]\nmod tests { /* S1-25 */ }\n"),
        ("clients/rust/src/tests.rs", concat!("//! S1-25: rows.\nfn some", "body_waits() {}\n")),
        ("data/e.txt", concat!("no", "body\n")),
    ]);
    assert_exact_violations(&banned_words(&example), &["src/a.rs:2", "clients/rust/src/tests.rs:2"]);
    assert_exact_violations(&first_words(&example), &["src/a.rs:1: a doc comment opens with `What`"]);
    assert_exact_violations(&log_events(&example), &["src/b.rs:2: event `commit a batch`"]);
    assert_exact_violations(&stray_ids(&example), &["src/c.rs:1: `S1-25`"]);
}
