//! Copies of rulesets in the store, so that tickets and matches outlive the files of their rulesets.
//!
//! A table has one row per set and hash. Every backend decides changes with the code of this file; it reads the rows, and
//! writes those that differ.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;

use crate::domain::id::{RulesetHash, SetId};
use crate::domain::ruleset::load::RulesetLoad;
use crate::domain::time::UnixMs;
use crate::store::error::StoreError;

/// Set and hash of a ruleset.
pub type RulesetKey = (SetId, RulesetHash);

/// Ruleset as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RulesetCopy {
    /// Matchmaking set.
    pub set_id: SetId,
    /// Hash of the ruleset.
    pub hash: RulesetHash,
    /// Name of the file, without its directory.
    pub file_name: String,
    /// Text of the file. Versions up to 0.2.0 write it without comments.
    pub source_xml: Arc<str>,
    /// When and by whom it was loaded; `None` if a version up to 0.2.0 wrote the copy.
    pub load: Option<RulesetLoad>,
    /// When a server last reported the ruleset as active.
    pub last_active_at: UnixMs,
    /// When the file was first found missing; `None` while a server reports a ruleset of the set as active.
    pub file_removed_at: Option<UnixMs>,
    /// When the set was retired; `None` before.
    pub set_retired_at: Option<UnixMs>,
}

impl RulesetCopy {
    /// Set and hash.
    pub fn key(&self) -> RulesetKey {
        (self.set_id, self.hash)
    }

    /// Latest time at which a server reported on the row.
    fn last_reported_at(&self) -> UnixMs {
        [Some(self.last_active_at), self.file_removed_at, self.set_retired_at]
            .into_iter()
            .flatten()
            .max()
            .unwrap_or_default()
    }
}

/// Ruleset that a server has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedRuleset {
    /// Matchmaking set.
    pub set_id: SetId,
    /// Hash of the ruleset.
    pub hash: RulesetHash,
    /// Name of the file, without its directory.
    pub file_name: String,
    /// Text of the file.
    pub source_xml: Arc<str>,
    /// When and by whom it was loaded, as far as this server knows.
    pub load: Option<RulesetLoad>,
}

/// Report of one server about its rulesets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RulesetReport {
    /// Active rulesets. Their sets are neither removed nor retired from now on.
    pub active: Vec<ReportedRuleset>,
    /// Rulesets of sets whose file is missing. The time of the first report is kept.
    pub removed: Vec<ReportedRuleset>,
    /// Sets to retire.
    pub sets_to_retire: Vec<SetId>,
    /// Copies that no server reported on since this time, and that no ticket or match uses, are purged; `None` to purge
    /// nothing.
    pub purge_before: Option<UnixMs>,
    /// Time of the report.
    pub now: UnixMs,
}

/// Store of ruleset copies.
#[async_trait]
pub trait RulesetCopyStore: Send + Sync + 'static {
    /// Applies a report in one transaction, and returns all copies as they are afterwards, in key order. Durable on return.
    ///
    /// On an error the report was not applied, or the outcome is unknown; the same report may be applied again.
    async fn apply_ruleset_report(&self, report: &RulesetReport) -> Result<Vec<RulesetCopy>, StoreError>;
}

/// Rows of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RulesetCopyRows(pub(super) BTreeMap<RulesetKey, RulesetCopy>);

/// Rulesets that tickets and matches use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct UsedRulesets {
    /// Sets with a ticket that has not ended. They use the set's latest ruleset.
    pub(super) ticket_sets: BTreeSet<SetId>,
    /// Rulesets of matches, also of ended ones: their results can still be reported.
    pub(super) match_rulesets: BTreeSet<RulesetKey>,
}

/// Difference between two states of the table.
#[derive(Debug, Default)]
pub(super) struct RulesetCopyChanges {
    /// New rows, and rows with another text.
    pub(super) upserted: Vec<RulesetCopy>,
    /// Rows with the same text and other values. Databases need not write the text again.
    pub(super) updated: Vec<RulesetCopy>,
    pub(super) deleted: Vec<RulesetKey>,
}

impl RulesetCopyRows {
    /// Rows from a backend.
    pub(super) fn new(copies: impl IntoIterator<Item = RulesetCopy>) -> Self {
        Self(copies.into_iter().map(|copy| (copy.key(), copy)).collect())
    }

    /// Copies in key order.
    pub(super) fn into_copies(self) -> Vec<RulesetCopy> {
        self.0.into_values().collect()
    }

    /// Applies the report, without its purge.
    pub(super) fn apply_report(&mut self, report: &RulesetReport) {
        let now = report.now;
        let active_sets: BTreeSet<SetId> = report.active.iter().map(|active| active.set_id).collect();
        for reported in report.active.iter().chain(&report.removed) {
            let ReportedRuleset { set_id, hash, file_name, source_xml, load } = reported;
            let latest_load = self.latest_load(*set_id);
            let copy = self.0.entry((*set_id, *hash)).or_insert_with(|| RulesetCopy {
                set_id: *set_id,
                hash: *hash,
                file_name: file_name.clone(),
                source_xml: Arc::clone(source_xml),
                load: None,
                last_active_at: now,
                file_removed_at: None,
                set_retired_at: None,
            });
            if active_sets.contains(set_id) {
                copy.file_name.clone_from(file_name);
                copy.source_xml = Arc::clone(source_xml);
                copy.last_active_at = copy.last_active_at.max(now);
            }
            // While a version is the latest of its set, the server that loaded it first has said who did. A version that
            // comes back is loaded again.
            if let Some(load) = load.as_ref().filter(|load| load.replaces(copy.load.as_ref()))
                && latest_load != Some(*hash)
            {
                copy.load = Some(load.clone());
            }
        }
        let removed_sets: BTreeSet<SetId> = report.removed.iter().map(|removed| removed.set_id).collect();
        for copy in self.0.values_mut() {
            if active_sets.contains(&copy.set_id) {
                (copy.file_removed_at, copy.set_retired_at) = (None, None);
                continue;
            }
            if report.sets_to_retire.contains(&copy.set_id) {
                copy.set_retired_at.get_or_insert(now);
            }
            if removed_sets.contains(&copy.set_id) || copy.set_retired_at.is_some() {
                copy.file_removed_at.get_or_insert(now);
            }
        }
    }

    /// Version of a set that was loaded last, as far as it was recorded.
    fn latest_load(&self, set_id: SetId) -> Option<RulesetHash> {
        let of_set = self.0.range((set_id, RulesetHash(0))..=(set_id, RulesetHash(u32::MAX)));
        let loads = of_set.filter_map(|((_, hash), copy)| Some((copy.load.as_ref()?.at, *hash)));
        loads.max().map(|(_, hash)| hash)
    }

    /// Whether a purge before `before` could delete a row.
    pub(super) fn has_purgeable(&self, report: &RulesetReport) -> bool {
        self.0.values().any(|copy| is_purge_candidate(copy, report))
    }

    /// Deletes the rows that the report purges.
    pub(super) fn purge(&mut self, report: &RulesetReport, used: &UsedRulesets) {
        let mut latest: BTreeMap<SetId, (UnixMs, RulesetKey)> = BTreeMap::new();
        for copy in self.0.values() {
            let entry = latest.entry(copy.set_id).or_insert((copy.last_active_at, copy.key()));
            *entry = (*entry).max((copy.last_active_at, copy.key()));
        }
        let is_used_by_ticket = |copy: &RulesetCopy| {
            used.ticket_sets.contains(&copy.set_id)
                && latest.get(&copy.set_id).is_some_and(|(_, key)| *key == copy.key())
        };
        self.0.retain(|key, copy| {
            !is_purge_candidate(copy, report) || is_used_by_ticket(copy) || used.match_rulesets.contains(key)
        });
    }

    /// Difference to `after`.
    pub(super) fn changes_to(&self, after: &Self) -> RulesetCopyChanges {
        let changed = after.0.iter().filter(|(key, copy)| self.0.get(*key) != Some(copy));
        let (updated, upserted) = changed
            .map(|(_, copy)| copy.clone())
            .partition(|copy| self.0.get(&copy.key()).is_some_and(|before| before.source_xml == copy.source_xml));
        RulesetCopyChanges {
            upserted,
            updated,
            deleted: self.0.keys().filter(|key| !after.0.contains_key(*key)).copied().collect(),
        }
    }
}

impl RulesetCopyChanges {
    /// Whether nothing differs.
    pub(super) fn is_empty(&self) -> bool {
        self.upserted.is_empty() && self.updated.is_empty() && self.deleted.is_empty()
    }
}

fn is_purge_candidate(copy: &RulesetCopy, report: &RulesetReport) -> bool {
    let is_active = report.active.iter().any(|active| (active.set_id, active.hash) == copy.key());
    !is_active && report.purge_before.is_some_and(|before| copy.last_reported_at() < before)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(set: u32, hash: u32) -> ReportedRuleset {
        ReportedRuleset {
            set_id: SetId(set),
            hash: RulesetHash(hash),
            file_name: format!("{set}.xml"),
            source_xml: format!("<Ruleset SetId=\"{set}\"/>").into(),
            load: None,
        }
    }

    fn loaded(hash: u32, at: u64, by: &str) -> ReportedRuleset {
        ReportedRuleset { load: Some(RulesetLoad::new(UnixMs(at), by)), ..reported(1, hash) }
    }

    /// Servers agree on who loaded a version: the first that had it. A version that comes back was loaded again, but not by a
    /// server that only starts.
    #[test]
    fn ruleset_copy_keeps_who_loaded_the_version_first_until_it_comes_back() {
        let mut rows = RulesetCopyRows::default();
        let mut apply = |ruleset: ReportedRuleset, hash: u32| {
            let at = ruleset.load.as_ref().map_or(0, |load| load.at.0);
            rows.apply_report(&RulesetReport { active: vec![ruleset], ..report(at) });
            rows.0[&(SetId(1), RulesetHash(hash))].load.as_ref().map(|load| (load.at.0, load.by.to_string()))
        };
        let load = |at: u64, by: &str| Some((at, by.to_owned()));
        assert_eq!(apply(reported(1, 7), 7), None, "a server that does not record loads");
        assert_eq!(apply(loaded(7, 10, "start"), 7), load(10, "start"));
        assert_eq!(apply(loaded(8, 20, "ana"), 8), load(20, "ana"));
        // Another server with the same files notices the change a little later.
        assert_eq!(apply(loaded(8, 21, "folder"), 8), load(20, "ana"));
        // A third one restarts before it has the new file, and goes on reporting.
        assert_eq!(apply(loaded(7, 22, "start"), 7), load(10, "start"));
        assert_eq!(apply(loaded(8, 23, "folder"), 8), load(20, "ana"));
        assert_eq!(apply(loaded(7, 30, "ben"), 7), load(30, "ben"), "rolled back");
        assert_eq!(apply(loaded(7, 10, "start"), 7), load(30, "ben"), "a late report");
        assert_eq!(apply(loaded(8, 40, "ana"), 8), load(40, "ana"));
    }

    fn report(now: u64) -> RulesetReport {
        RulesetReport { now: UnixMs(now), ..RulesetReport::default() }
    }

    fn times(rows: &RulesetCopyRows, set: u32, hash: u32) -> (u64, Option<u64>, Option<u64>) {
        let copy = &rows.0[&(SetId(set), RulesetHash(hash))];
        (copy.last_active_at.0, copy.file_removed_at.map(|at| at.0), copy.set_retired_at.map(|at| at.0))
    }

    #[test]
    fn ruleset_copies_keep_the_first_time_of_removal_until_the_set_is_active_again() {
        let mut rows = RulesetCopyRows::default();
        rows.apply_report(&RulesetReport { active: vec![reported(1, 7), reported(2, 8)], ..report(10) });
        rows.apply_report(&RulesetReport { active: vec![reported(2, 8)], removed: vec![reported(1, 7)], ..report(20) });
        rows.apply_report(&RulesetReport { removed: vec![reported(1, 7)], ..report(30) });
        assert_eq!(times(&rows, 1, 7), (10, Some(20), None));
        assert_eq!(times(&rows, 2, 8), (20, None, None));
        rows.apply_report(&RulesetReport { sets_to_retire: vec![SetId(1)], ..report(40) });
        assert_eq!(times(&rows, 1, 7), (10, Some(20), Some(40)));
        rows.apply_report(&RulesetReport { active: vec![reported(1, 9)], ..report(50) });
        assert_eq!(times(&rows, 1, 7), (10, None, None));
        assert_eq!(times(&rows, 1, 9), (50, None, None));
    }

    #[test]
    fn ruleset_copies_are_purged_unless_active_young_or_used() {
        let mut rows = RulesetCopyRows::default();
        let all = vec![reported(1, 1), reported(2, 1), reported(3, 1), reported(4, 1), reported(5, 1)];
        rows.apply_report(&RulesetReport { active: all, ..report(10) });
        rows.apply_report(&RulesetReport { active: vec![reported(3, 2)], ..report(20) });
        let purge = RulesetReport { active: vec![reported(1, 1)], purge_before: Some(UnixMs(15)), ..report(30) };
        assert!(rows.has_purgeable(&purge));
        let used = UsedRulesets {
            ticket_sets: [SetId(2), SetId(3)].into(),
            match_rulesets: [(SetId(4), RulesetHash(1))].into(),
        };
        let before = rows.clone();
        rows.purge(&purge, &used);
        let kept: Vec<(u32, u32)> = rows.0.keys().map(|(set, hash)| (set.0, hash.0)).collect();
        // The tickets of set 3 use its latest ruleset only.
        assert_eq!(kept, [(1, 1), (2, 1), (3, 2), (4, 1)]);
        let changes = before.changes_to(&rows);
        assert_eq!((changes.upserted.len(), changes.updated.len(), changes.deleted.len()), (0, 0, 2));
    }
}
