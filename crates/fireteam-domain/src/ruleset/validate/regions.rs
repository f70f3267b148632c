//! `<Regions>`: what a player's region means, in one of three ways (S3-8).

use crate::attribute::ValueType;
use crate::limit::SOFT_FILTER_WEIGHT_MAX;
use crate::measure::Measure;
use crate::ruleset::element_reader::{ElementReader, NumberBounds};
use crate::ruleset::queue::RegionMode;
use crate::ruleset::raw::{Diagnostics, RawElement, quoted_excerpt};
use crate::ruleset::validate::attributes::DeclaredAttributes;
use crate::ruleset::validate::expansions::DeclaredExpansions;

/// The round trip that counts as 1 where a file does not say: the thesis's range (S1-19), milliseconds.
const DEFAULT_ROUND_TRIP_SPAN_MS: f64 = 300.0;

#[derive(Clone, Copy)]
enum RegionModeName {
    Separate,
    Stage,
    Quality,
}

const REGION_MODE_KEYWORDS: [(&str, RegionModeName); 3] =
    [("separate", RegionModeName::Separate), ("stage", RegionModeName::Stage), ("quality", RegionModeName::Quality)];

/// Reads `<Regions>`; `None` when the mistake is noted.
pub(super) fn read_regions(
    element: &RawElement,
    declared: &DeclaredAttributes,
    expansions: &DeclaredExpansions,
    mistakes: &Diagnostics,
) -> Option<RegionMode> {
    let mut at = ElementReader::new(element, mistakes);
    let Some(mode) = at.required_keyword("Mode", &REGION_MODE_KEYWORDS) else {
        // Which attributes belong here depends on the mode: without it nothing more can be said.
        for name in ["Attribute", "Expansion", "Weight", "SpanMs"] {
            let _ = at.attribute(name);
        }
        at.report_unread();
        return None;
    };
    let regions = match mode {
        RegionModeName::Separate => {
            let attribute = at
                .required_attribute("Attribute")
                .and_then(|written| declared.find_of_kind(&at, written, ValueType::String));
            attribute.map(|attribute| RegionMode::Separate { attribute })
        }
        RegionModeName::Stage => {
            read_latency_expansion(&mut at, expansions).map(|expansion| RegionMode::Stage { expansion })
        }
        RegionModeName::Quality => {
            let weight = at.required_number("Weight", NumberBounds::greater_than(0.0, SOFT_FILTER_WEIGHT_MAX));
            let span_ms = at.number_or("SpanMs", NumberBounds::greater_than(0.0, 60_000.0), DEFAULT_ROUND_TRIP_SPAN_MS);
            weight.map(|weight| RegionMode::Quality { weight, span_ms })
        }
    };
    at.report_unread();
    regions
}

/// The limit by which regions are in reach.
fn read_latency_expansion(at: &mut ElementReader<'_>, expansions: &DeclaredExpansions) -> Option<usize> {
    let written = at.required_attribute("Expansion")?;
    let (expansion, measure) = expansions.find(at, written)?;
    if measure? != Measure::Latency {
        let what = format!("{} limits something else than latency", quoted_excerpt(&written.value));
        at.report(written.value_span, what, "regions are in reach by their round trips: name one of Type=\"latency\"");
        return None;
    }
    Some(expansion)
}
