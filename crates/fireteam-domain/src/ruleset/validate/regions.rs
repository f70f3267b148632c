//! `<Regions>`: use of the players' regions.

use crate::attribute::ValueType;
use crate::limit::SOFT_FILTER_WEIGHT_MAX;
use crate::measure::Measure;
use crate::ruleset::element_reader::ElementReader;
use crate::ruleset::number_bounds::NumberBounds;
use crate::ruleset::queue::RegionUse;
use crate::ruleset::raw::{Diagnostics, RawElement, quoted_excerpt};
use crate::ruleset::validate::attributes::DeclaredAttributes;
use crate::ruleset::validate::expansions::DeclaredExpansions;

/// Default round trip that counts as 1, milliseconds: the thesis's latency range.
const DEFAULT_FULL_COST_ROUND_TRIP_MS: f64 = 300.0;

#[derive(Clone, Copy)]
enum RegionModeName {
    Partition,
    Filter,
    Quality,
}

const REGION_MODE_KEYWORDS: [(&str, RegionModeName); 3] = [
    ("partition", RegionModeName::Partition),
    ("filter", RegionModeName::Filter),
    ("quality", RegionModeName::Quality),
];

/// Reads `<Regions>`; `None` if a problem was reported.
pub(super) fn read_regions(
    element: &RawElement,
    declared: &DeclaredAttributes,
    expansions: &DeclaredExpansions,
    diagnostics: &Diagnostics,
) -> Option<RegionUse> {
    let mut reader = ElementReader::new(element, diagnostics);
    let Some(mode) = reader.required_keyword("Mode", &REGION_MODE_KEYWORDS) else {
        // The accepted attributes depend on the mode, so nothing else can be checked without it.
        for name in ["Attribute", "Expansion", "Weight", "SpanMs"] {
            let _ = reader.attribute(name);
        }
        reader.report_unread_and_missing();
        return None;
    };
    let regions = match mode {
        RegionModeName::Partition => {
            let attribute = reader
                .required_attribute("Attribute")
                .and_then(|raw| declared.find_of_kind(&reader, raw, ValueType::String));
            attribute.map(|attribute| RegionUse::Partition { attribute })
        }
        RegionModeName::Filter => {
            read_latency_expansion(&mut reader, expansions).map(|expansion| RegionUse::Filter { expansion })
        }
        RegionModeName::Quality => {
            let weight = reader.required_number("Weight", NumberBounds::new_exclusive_min(0.0, SOFT_FILTER_WEIGHT_MAX));
            let span_ms = reader.number_or(
                "SpanMs",
                NumberBounds::new_exclusive_min(0.0, 60_000.0),
                DEFAULT_FULL_COST_ROUND_TRIP_MS,
            );
            weight.map(|weight| RegionUse::Quality { weight, span_ms })
        }
    };
    reader.report_unread_and_missing();
    regions
}

/// Reads the expansion that limits round trips to regions.
fn read_latency_expansion(reader: &mut ElementReader<'_>, expansions: &DeclaredExpansions) -> Option<usize> {
    let raw = reader.required_attribute("Expansion")?;
    let (expansion, measure) = expansions.find(reader, raw)?;
    if measure? != Measure::Latency {
        let problem = format!("{} does not limit latency", quoted_excerpt(&raw.value));
        reader.report_at(raw.value_span, problem, "name an expansion with Type=\"latency\"");
        return None;
    }
    Some(expansion)
}
