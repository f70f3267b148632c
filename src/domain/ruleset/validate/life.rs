//! `<ReadyCheck>` and `<Server>`: who must agree to a match, and where it is played.

use crate::domain::limit::DURATION_MS_MAX;
use crate::domain::ruleset::draft::{Element, Mistakes};
use crate::domain::ruleset::fields::Fields;
use crate::domain::ruleset::teams::{ReadyCheck, ServerMode, ServerSpec};

/// How long players have to answer where a file does not say, milliseconds (D-3).
const DEFAULT_DEADLINE_MS: u64 = 30_000;

/// The longest that a ready check may hold players, milliseconds.
const DEADLINE_MS_MAX: u64 = 10 * 60 * 1000;

/// After how long without a failed check penalties begin anew where a file does not say: a day, milliseconds.
pub(in crate::domain::ruleset) const DEFAULT_RESET_AFTER_MS: u64 = 24 * 60 * 60 * 1000;

/// The longest that a match may wait for a server: an hour, milliseconds.
const WAIT_MS_MAX: u64 = 60 * 60 * 1000;

/// Where matches are played where a file does not say: players are told of each other, and that is all.
pub(in crate::domain::ruleset) const DEFAULT_SERVER: ServerSpec =
    ServerSpec { mode: ServerMode::None, wait_ms: 30_000, play_max_ms: 4 * 60 * 60 * 1000 };

/// Reads `<ReadyCheck>`.
pub(super) fn ready_check(element: &Element, mistakes: &Mistakes) -> ReadyCheck {
    let mut at = Fields::of(element, mistakes);
    let deadline_ms = at.whole_or("DeadlineMs", 1_000, DEADLINE_MS_MAX, DEFAULT_DEADLINE_MS) as u32;
    let cooldown_ms = at.whole_or("DeclineCooldownMs", 0, DURATION_MS_MAX, 0) as u32;
    let steps = at.children(&["Penalty"]);
    if let (Some(written), Some(_)) = (at.written("DeclineCooldownMs"), steps.first()) {
        let right = "keep one of them: `DeclineCooldownMs` is a ladder of one <Penalty>";
        at.wrong(written.name_span, "there is one cooldown and a ladder of them", right);
    }
    let mut penalties_ms = if steps.is_empty() { vec![cooldown_ms] } else { ladder(&steps, mistakes) };
    if penalties_ms == [0] {
        penalties_ms.clear();
    }
    let reset_after_ms = at.whole_or("ResetAfterMs", 1, DURATION_MS_MAX, DEFAULT_RESET_AFTER_MS);
    // A ladder of one step begins anew where it ends.
    if penalties_ms.len() < 2 && element.children.is_empty() {
        at.idle(&["ResetAfterMs"], "without a second <Penalty> there is nothing to begin anew");
    }
    at.finish();
    ReadyCheck { deadline_ms, penalties_ms: penalties_ms.into(), reset_after_ms }
}

/// The steps, first to last.
fn ladder(steps: &[&Element], mistakes: &Mistakes) -> Vec<u32> {
    let mut ladder: Vec<u32> = Vec::new();
    for step in steps {
        let mut at = Fields::of(step, mistakes);
        let ms = at.required_whole("Ms", 0, DURATION_MS_MAX).map(|ms| ms as u32);
        if let (Some(written), Some(ms), Some(&before)) = (at.written("Ms"), ms, ladder.last())
            && ms < before
        {
            at.wrong_value(
                written,
                format!("give {before} or more: each penalty is as long as the one before, or longer"),
            );
        }
        at.finish();
        ladder.extend(ms);
    }
    ladder
}

/// Reads `<Server>`.
pub(super) fn server(element: Option<&Element>, mistakes: &Mistakes) -> ServerSpec {
    let Some(element) = element else { return DEFAULT_SERVER };
    let modes = [("advertised", ServerMode::Advertised), ("peer", ServerMode::Peer), ("none", ServerMode::None)];
    let mut at = Fields::of(element, mistakes);
    let mode = at.required_word("Mode", &modes);
    let wait_ms = at.whole_or("WaitMs", 1_000, WAIT_MS_MAX, DEFAULT_SERVER.wait_ms.into()) as u32;
    let play_max_ms = at.whole_or("PlayMaxMs", 1_000, DURATION_MS_MAX, DEFAULT_SERVER.play_max_ms);
    if let Some(ServerMode::Peer | ServerMode::None) = mode {
        at.idle(&["WaitMs"], "no server is waited for");
    }
    at.finish();
    ServerSpec { mode: mode.unwrap_or(DEFAULT_SERVER.mode), wait_ms, play_max_ms }
}

const _: () = assert!(DURATION_MS_MAX <= u32::MAX as u64);
