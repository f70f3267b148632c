//! Copies of rulesets in the store, as the catalog uses them: parsed, merged into the catalog, and reported.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::domain::id::SetId;
use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::load::RulesetLoad;
use crate::domain::time::UnixMs;
use crate::engine::rulesets::report::file_name;
use crate::rules;
use crate::rules::catalog::{CatalogState, RetiringRuleset};
use crate::store::ruleset_copies::{ReportedRuleset, RulesetCopy, RulesetKey};

/// Number of unavailable rulesets from which those that are no longer asked for are forgotten.
const UNAVAILABLE_RULESETS_MAX: usize = 1_024;

/// Durations of a merge, milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RulesetRetention {
    /// Time for which the ruleset of a removed file stays in force; 0: it ends at once.
    pub(crate) removal_grace_ms: u64,
    /// Time for which a retired ruleset is found by its hash.
    pub(crate) keep_retired_ms: u64,
}

/// Rulesets of copies that this server parsed, and the keys of those whose text is invalid.
#[derive(Debug, Default)]
pub(crate) struct ParsedCopies {
    valid: BTreeMap<RulesetKey, Arc<Ruleset>>,
    invalid: BTreeSet<RulesetKey>,
}

impl ParsedCopies {
    /// Parses new copies, and forgets those that the store no longer has. Logs each invalid copy once.
    pub(crate) fn update(&mut self, copies: &[RulesetCopy], known: &CatalogState) {
        let stored: BTreeSet<RulesetKey> = copies.iter().map(RulesetCopy::key).collect();
        self.valid.retain(|key, _| stored.contains(key));
        self.invalid.retain(|key| stored.contains(key));
        for copy in copies {
            let key = copy.key();
            if self.valid.contains_key(&key) || self.invalid.contains(&key) {
                continue;
            }
            if let Some(ruleset) = known.find_by_hash_with_index(copy.set_id, copy.hash) {
                self.valid.insert(key, Arc::clone(ruleset));
                continue;
            }
            match parse_copy(copy) {
                Ok(ruleset) => drop(self.valid.insert(key, Arc::new(ruleset))),
                Err(problem) => {
                    let (set_id, hash) = (copy.set_id, copy.hash.0);
                    tracing::error!(%set_id, hash, problem, "failed to parse the stored copy of a ruleset");
                    self.invalid.insert(key);
                }
            }
        }
    }
}

/// Ruleset of a copy, with the default constants that its hash says. It keeps the hash of the copy, which matches name: a later
/// version may compute another hash.
fn parse_copy(copy: &RulesetCopy) -> Result<Ruleset, String> {
    let ruleset = rules::parse_ruleset(&copy.file_name, &copy.source_xml)
        .map_err(|problems| problems.first().map_or_else(String::new, ToString::to_string))?;
    if ruleset.set_id != copy.set_id {
        return Err(format!("the text has set {}", ruleset.set_id));
    }
    let former = ruleset.with_former_rating_defaults().filter(|former| former.hash == copy.hash);
    Ok(Ruleset { hash: copy.hash, ..former.unwrap_or(ruleset) })
}

/// Report of the active rulesets, and of those of retiring sets.
pub(crate) fn rulesets_to_report(state: &CatalogState) -> (Vec<ReportedRuleset>, Vec<ReportedRuleset>) {
    let report = |file: &Path, ruleset: &Ruleset| ruleset_to_report(file, ruleset, state.load_of(ruleset).cloned());
    let active = state.active.values().map(|active| report(&active.file, &active.ruleset));
    let removed = state.retiring.values().map(|retiring| report(&retiring.file, &retiring.ruleset));
    (active.collect(), removed.collect())
}

/// Report of one ruleset.
pub(crate) fn ruleset_to_report(file: &Path, ruleset: &Ruleset, load: Option<RulesetLoad>) -> ReportedRuleset {
    ReportedRuleset {
        set_id: ruleset.set_id,
        hash: ruleset.hash,
        file_name: file_name(file),
        source_xml: Arc::clone(&ruleset.file_xml),
        load,
    }
}

/// Takes over the copies of the store: sets that are being retired, and rulesets of matches. `live` are the rulesets of
/// matches that have not ended, `None` before they are loaded; `wanted` are further rulesets to look for.
pub(crate) fn merge_copies(
    state: &mut CatalogState,
    copies: &[RulesetCopy],
    parsed: &ParsedCopies,
    (live, wanted): (Option<&BTreeSet<RulesetKey>>, &BTreeSet<RulesetKey>),
    retention: RulesetRetention,
    now: UnixMs,
) {
    state.durable = copies.iter().map(RulesetCopy::key).collect();
    let stored_loads = copies.iter().filter_map(|copy| Some((copy.key(), copy.load.clone()?)));
    state.loads.extend(stored_loads);
    merge_retiring_sets(state, copies, parsed, retention, now);
    keep_rulesets_of_matches(state, &parsed.valid, live);
    state.forget_loads_of_unknown_rulesets();
    let mut unavailable: BTreeSet<RulesetKey> = live.into_iter().flatten().chain(wanted).copied().collect();
    if state.unavailable.len() < UNAVAILABLE_RULESETS_MAX {
        unavailable.append(&mut state.unavailable);
    }
    state.unavailable =
        unavailable.into_iter().filter(|(set_id, hash)| state.find_for_match(*set_id, *hash).is_none()).collect();
}

/// Keeps the rulesets that only matches use: with an index if a match has not ended.
pub(crate) fn keep_rulesets_of_matches(
    state: &mut CatalogState,
    stored: &BTreeMap<RulesetKey, Arc<Ruleset>>,
    live: Option<&BTreeSet<RulesetKey>>,
) {
    let mut kept = stored.clone();
    // The store purges a copy only if nothing uses it. Another server's clock may be ahead, so keep what matches use here.
    let before = std::mem::take(&mut state.copies).into_iter().chain(std::mem::take(&mut state.copies_without_index));
    for (key, ruleset) in before {
        if live.is_some_and(|live| live.contains(&key)) {
            kept.entry(key).or_insert(ruleset);
        }
    }
    kept.retain(|(set_id, hash), _| state.find_by_hash_with_index(*set_id, *hash).is_none());
    let (indexed, others) = kept.into_iter().partition(|(key, _)| live.is_none_or(|live| live.contains(key)));
    (state.copies, state.copies_without_index) = (indexed, others);
}

/// Updates the sets that are being retired from the latest copy of each set.
fn merge_retiring_sets(
    state: &mut CatalogState,
    copies: &[RulesetCopy],
    parsed: &ParsedCopies,
    retention: RulesetRetention,
    now: UnixMs,
) {
    // The ruleset that was active last; of two at the same time, the one that this server knows.
    let rank = |copy: &RulesetCopy| {
        let known = state.retiring.get(&copy.set_id).map(|retiring| retiring.ruleset.hash);
        (copy.last_active_at, known == Some(copy.hash))
    };
    let mut latest: BTreeMap<SetId, &RulesetCopy> = BTreeMap::new();
    for copy in copies {
        let entry = latest.entry(copy.set_id).or_insert(copy);
        if rank(entry) < rank(copy) {
            *entry = copy;
        }
    }
    for (set_id, copy) in latest {
        if state.active.contains_key(&set_id) {
            continue;
        }
        if copy.set_retired_at.is_some() || retention.removal_grace_ms == 0 {
            state.end_grace_period(set_id, now, now.plus_ms(retention.keep_retired_ms));
            continue;
        }
        let known = state.retiring.get(&set_id);
        let Some(ruleset) = parsed.valid.get(&copy.key()).or_else(|| known.map(|known| &known.ruleset)) else {
            continue;
        };
        let removed_at = copy.file_removed_at.unwrap_or(now);
        let retiring = RetiringRuleset {
            file: known.map_or_else(|| PathBuf::from(&copy.file_name), |known| known.file.clone()),
            ruleset: Arc::clone(ruleset),
            removed_at,
            noticed_at: known.map_or(now, |known| known.noticed_at),
            ends_at: removed_at.plus_ms(retention.removal_grace_ms),
        };
        state.retiring.insert(set_id, retiring);
    }
}
