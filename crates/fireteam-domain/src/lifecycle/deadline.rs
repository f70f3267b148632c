//! Deadlines of a match in effect: extended by the outages since they were set.

use crate::available_time::{MATCH_START_DELAY_BY_OUTAGES_MAX_MS, OutageTimes};
use crate::lifecycle::rules::LifecycleRules;
use crate::lifecycle::{Match, MatchStage};
use crate::time::UnixMs;

/// Time at which the stage's deadline passes; `None` after the end. Without rules, each deadline before play counts as set
/// at the proposal.
pub fn effective_deadline(rules: Option<&LifecycleRules>, current: &Match, outages: &OutageTimes) -> Option<UnixMs> {
    if outages.is_empty() {
        return current.stage.deadline();
    }
    let set_before = |deadline: UnixMs, duration_ms: Option<u64>| {
        let set_at = duration_ms.map(|ms| UnixMs(deadline.ms_since(UnixMs(ms))));
        set_at.map_or(current.proposed_at, |set_at| set_at.max(current.proposed_at))
    };
    match &current.stage {
        MatchStage::ReadyCheck { deadline } => Some(outages.effective_deadline(current.proposed_at, *deadline)),
        MatchStage::Placing { deadline } => {
            let duration_ms = rules.map(|rules| u64::from(rules.hosting.allocation_timeout_ms));
            Some(outages.effective_deadline(set_before(*deadline, duration_ms), *deadline))
        }
        MatchStage::Confirming { confirm_by, .. } => {
            let duration_ms = rules.map(|rules| u64::from(rules.hosting.confirm_ms));
            Some(outages.effective_deadline(set_before(*confirm_by, duration_ms), *confirm_by))
        }
        MatchStage::Playing { host_lost_at, .. } => {
            let duration_ms = rules.map(|rules| u64::from(rules.hosting.host_loss_ms));
            let lost_at =
                host_lost_at.map(|lost_at| outages.effective_deadline(set_before(lost_at, duration_ms), lost_at));
            [effective_times_out_at(&current.stage, outages), lost_at].into_iter().flatten().min()
        }
        MatchStage::Ended { .. } => None,
    }
}

/// Time at which the report window ends, if no outcome is known. Without rules it counts as begun at the proposal.
pub fn effective_reports_due_at(
    rules: Option<&LifecycleRules>,
    current: &Match,
    outages: &OutageTimes,
) -> Option<UnixMs> {
    let ends_at = current.reports_due_at()?;
    let begun_at = rules.map(|rules| UnixMs(ends_at.ms_since(UnixMs(u64::from(rules.hosting.report_window_ms)))));
    Some(outages.effective_deadline(begun_at.unwrap_or(current.proposed_at), ends_at))
}

/// Time at which a match in play ends without a report.
pub(super) fn effective_times_out_at(stage: &MatchStage, outages: &OutageTimes) -> Option<UnixMs> {
    let MatchStage::Playing { started_at, times_out_at, .. } = stage else { return None };
    Some(outages.effective_deadline(*started_at, *times_out_at))
}

/// End of the wait for a game server, whose stored value is `deadline`.
pub fn effective_placing_deadline(rules: &LifecycleRules, deadline: UnixMs, outages: &OutageTimes) -> UnixMs {
    let set_at = UnixMs(deadline.ms_since(UnixMs(u64::from(rules.hosting.allocation_timeout_ms))));
    outages.effective_deadline(set_at, deadline)
}

/// Time at which a match that has not begun is given up: the end of its ready check, or of the wait for a game server.
pub fn given_up_before_play_at(
    rules: Option<&LifecycleRules>,
    current: &Match,
    outages: &OutageTimes,
) -> Option<UnixMs> {
    match &current.stage {
        MatchStage::ReadyCheck { .. } => effective_deadline(rules, current, outages),
        MatchStage::Placing { deadline } | MatchStage::Confirming { deadline, .. } => {
            Some(rules.map_or(*deadline, |rules| effective_placing_deadline(rules, *deadline, outages)))
        }
        MatchStage::Playing { .. } | MatchStage::Ended { .. } => None,
    }
}

/// Whether outages have held up a match before play for so long that it is cancelled.
pub fn is_start_delayed_too_long_by_outages(current: &Match, outages: &OutageTimes, now: UnixMs) -> bool {
    !outages.is_empty()
        && current.stage.is_before_play()
        && outages.outage_ms_between(current.proposed_at, now) >= MATCH_START_DELAY_BY_OUTAGES_MAX_MS
}
