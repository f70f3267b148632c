//! `<Statistics>`: the regions that statistics tell apart.

use crate::limit::{STATISTICS_REGIONS_MAX, STRING_BYTES_MAX};
use crate::ruleset::element_reader::ElementReader;
use crate::ruleset::raw::{Diagnostics, RawElement};

/// Reads the names of `<Region>`, sorted.
pub(super) fn read_statistics_regions(element: Option<&RawElement>, diagnostics: &Diagnostics) -> Box<[Box<str>]> {
    let Some(element) = element else { return Box::default() };
    let mut reader = ElementReader::new(element, diagnostics);
    let listed = reader.children_named(&["Region"]);
    if listed.is_empty() && element.children.is_empty() {
        reader.report_at(
            element.name_span,
            "<Statistics> lists no region",
            "add <Region Name=\"…\"/>, or remove the element",
        );
    }
    if let Some(first_surplus) = listed.get(STATISTICS_REGIONS_MAX) {
        let problem = format!("<Statistics> lists {} regions", listed.len());
        reader.report_at(first_surplus.name_span, problem, format!("list at most {STATISTICS_REGIONS_MAX}"));
    }
    let mut regions: Vec<Box<str>> = Vec::with_capacity(listed.len());
    for region in listed {
        let mut region_reader = ElementReader::new(region, diagnostics);
        if let Some(name) = region_reader.required_attribute("Name") {
            if name.value.is_empty() || STRING_BYTES_MAX < name.value.len() {
                region_reader.report_value(name, format!("give the name of a region, 1 to {STRING_BYTES_MAX} bytes"));
            } else if regions.contains(&name.value) {
                region_reader.report_value(name, "remove it: the region is listed above");
            } else {
                regions.push(name.value.clone());
            }
        }
        region_reader.report_unread_and_missing();
    }
    reader.report_unread_and_missing();
    regions.sort_unstable();
    regions.into()
}
