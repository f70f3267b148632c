//! `<Regions>`: what a player's region means, in one of three ways (S3-8).

use crate::domain::attribute::ValueKind;
use crate::domain::limit::WEIGHT_MAX;
use crate::domain::measure::Measure;
use crate::domain::ruleset::draft::{Element, Mistakes, quoted};
use crate::domain::ruleset::fields::{Bounds, Fields};
use crate::domain::ruleset::queue::Regions;
use crate::domain::ruleset::validate::attributes::Declared;
use crate::domain::ruleset::validate::expansions::Expansions;

/// The round trip that counts as 1 where a file does not say: the thesis's range (S1-19), milliseconds.
const DEFAULT_SPAN_MS: f64 = 300.0;

#[derive(Clone, Copy)]
enum Mode {
    Separate,
    Stage,
    Quality,
}

const MODES: [(&str, Mode); 3] = [("separate", Mode::Separate), ("stage", Mode::Stage), ("quality", Mode::Quality)];

/// Reads `<Regions>`; `None` when the mistake is noted.
pub(super) fn read(
    element: &Element,
    declared: &Declared,
    expansions: &Expansions,
    mistakes: &Mistakes,
) -> Option<Regions> {
    let mut at = Fields::of(element, mistakes);
    let Some(mode) = at.required_word("Mode", &MODES) else {
        // Which attributes belong here depends on the mode: without it nothing more can be said.
        for name in ["Attribute", "Expansion", "Weight", "SpanMs"] {
            let _ = at.written(name);
        }
        at.finish();
        return None;
    };
    let regions = match mode {
        Mode::Separate => {
            let attribute =
                at.required("Attribute").and_then(|written| declared.expect_kind(&at, written, ValueKind::Text));
            attribute.map(|attribute| Regions::Separate { attribute })
        }
        Mode::Stage => stage(&mut at, expansions).map(|expansion| Regions::Stage { expansion }),
        Mode::Quality => {
            let weight = at.required_number("Weight", Bounds::above(0.0, WEIGHT_MAX));
            let span_ms = at.number_or("SpanMs", Bounds::above(0.0, 60_000.0), DEFAULT_SPAN_MS);
            weight.map(|weight| Regions::Quality { weight, span_ms })
        }
    };
    at.finish();
    regions
}

/// The limit by which regions are in reach.
fn stage(at: &mut Fields<'_>, expansions: &Expansions) -> Option<usize> {
    let written = at.required("Expansion")?;
    let (expansion, measure) = expansions.find(at, written)?;
    if measure? != Measure::Latency {
        let what = format!("{} limits something else than latency", quoted(&written.value));
        at.wrong(written.value_span, what, "regions are in reach by their round trips: name one of Type=\"latency\"");
        return None;
    }
    Some(expansion)
}
