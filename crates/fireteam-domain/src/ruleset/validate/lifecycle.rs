//! `<ReadyCheck>` and `<Server>`: who must agree to a match, and where it is played.

use crate::limit::RULESET_DURATION_MS_MAX;
use crate::ruleset::element_reader::ElementReader;
use crate::ruleset::raw::{Diagnostics, RawElement};
use crate::ruleset::teams::{HostingMode, HostingSpec, ReadyCheckSpec};

/// How long players have to answer where a file does not say, milliseconds (D-3).
const DEFAULT_READY_CHECK_TIMEOUT_MS: u64 = 30_000;

/// The longest that a ready check may hold players, milliseconds.
const READY_CHECK_TIMEOUT_MS_MAX: u64 = 10 * 60 * 1000;

/// After how long without a failed check penalties begin anew where a file does not say: a day, milliseconds.
pub(in crate::ruleset) const DEFAULT_PENALTY_RESET_AFTER_MS: u64 = 24 * 60 * 60 * 1000;

/// The longest that a match may wait for a server: an hour, milliseconds.
const ALLOCATION_TIMEOUT_MS_MAX: u64 = 60 * 60 * 1000;

/// Where matches are played where a file does not say: players are told of each other, and that is all.
pub(in crate::ruleset) const DEFAULT_HOSTING: HostingSpec =
    HostingSpec { mode: HostingMode::None, wait_ms: 30_000, play_max_ms: 4 * 60 * 60 * 1000 };

/// Reads `<ReadyCheck>`.
pub(super) fn read_ready_check(element: &RawElement, mistakes: &Diagnostics) -> ReadyCheckSpec {
    let mut at = ElementReader::new(element, mistakes);
    let deadline_ms =
        at.integer_or("DeadlineMs", 1_000, READY_CHECK_TIMEOUT_MS_MAX, DEFAULT_READY_CHECK_TIMEOUT_MS) as u32;
    let cooldown_ms = at.integer_or("DeclineCooldownMs", 0, RULESET_DURATION_MS_MAX, 0) as u32;
    let steps = at.children_named(&["Penalty"]);
    if let (Some(written), Some(_)) = (at.attribute("DeclineCooldownMs"), steps.first()) {
        let right = "keep one of them: `DeclineCooldownMs` is a ladder of one <Penalty>";
        at.report(written.name_span, "there is one cooldown and a ladder of them", right);
    }
    let mut penalties_ms = if steps.is_empty() { vec![cooldown_ms] } else { read_penalty_schedule(&steps, mistakes) };
    if penalties_ms == [0] {
        penalties_ms.clear();
    }
    let reset_after_ms = at.integer_or("ResetAfterMs", 1, RULESET_DURATION_MS_MAX, DEFAULT_PENALTY_RESET_AFTER_MS);
    // A ladder of one step begins anew where it ends.
    if penalties_ms.len() < 2 && element.children.is_empty() {
        at.report_without_effect(&["ResetAfterMs"], "without a second <Penalty> there is nothing to begin anew");
    }
    at.report_unread();
    ReadyCheckSpec { deadline_ms, penalty_cooldowns_ms: penalties_ms.into(), reset_after_ms }
}

/// The steps, first to last.
fn read_penalty_schedule(steps: &[&RawElement], mistakes: &Diagnostics) -> Vec<u32> {
    let mut ladder: Vec<u32> = Vec::new();
    for step in steps {
        let mut at = ElementReader::new(step, mistakes);
        let ms = at.required_integer("Ms", 0, RULESET_DURATION_MS_MAX).map(|ms| ms as u32);
        if let (Some(written), Some(ms), Some(&before)) = (at.attribute("Ms"), ms, ladder.last())
            && ms < before
        {
            at.report_value(
                written,
                format!("give {before} or more: each penalty is as long as the one before, or longer"),
            );
        }
        at.report_unread();
        ladder.extend(ms);
    }
    ladder
}

/// Reads `<Server>`.
pub(super) fn read_hosting(element: Option<&RawElement>, mistakes: &Diagnostics) -> HostingSpec {
    let Some(element) = element else { return DEFAULT_HOSTING };
    let modes = [("advertised", HostingMode::Advertised), ("peer", HostingMode::Peer), ("none", HostingMode::None)];
    let mut at = ElementReader::new(element, mistakes);
    let mode = at.required_keyword("Mode", &modes);
    let wait_ms = at.integer_or("WaitMs", 1_000, ALLOCATION_TIMEOUT_MS_MAX, DEFAULT_HOSTING.wait_ms.into()) as u32;
    let play_max_ms = at.integer_or("PlayMaxMs", 1_000, RULESET_DURATION_MS_MAX, DEFAULT_HOSTING.play_max_ms);
    if let Some(HostingMode::Peer | HostingMode::None) = mode {
        at.report_without_effect(&["WaitMs"], "no server is waited for");
    }
    at.report_unread();
    HostingSpec { mode: mode.unwrap_or(DEFAULT_HOSTING.mode), wait_ms, play_max_ms }
}

const _: () = assert!(RULESET_DURATION_MS_MAX <= u32::MAX as u64);
