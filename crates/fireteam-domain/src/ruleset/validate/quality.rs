//! `<Quality>` and `<WaitBonus>`: how good a match is, how good it must be, and what waiting adds.

use crate::limit::RULESET_ENTRIES_PER_KIND_MAX;
use crate::ruleset::DistanceCurve;
use crate::ruleset::element_reader::{ElementReader, NumberBounds};
use crate::ruleset::queue::{QualitySpec, WaitBonus};
use crate::ruleset::raw::{Diagnostics, RawElement};
use crate::ruleset::validate::queue::POSITIVE_NUMBER;
use crate::ruleset::validate::soft_filters::DISTANCE_CURVE_KEYWORDS;

const QUALITY_ELEMENTS: [&str; 6] =
    ["SoftScore", "LeaderboardGauss", "AverageSimilarity", "CategorySimilarity", "WinProbability", "DrawProbability"];

/// Shares of the likeliest draw.
const DRAW_THRESHOLD_BOUNDS: NumberBounds = NumberBounds::greater_than(0.0, 1.0);

/// Free minutes of a wait bonus: a day at most.
const FREE_MINUTES_BOUNDS: NumberBounds = NumberBounds::inclusive(0.0, 1_440.0);

/// Reads `<Quality>`.
pub(super) fn read_quality(element: &RawElement, mistakes: &Diagnostics) -> QualitySpec {
    let mut at = ElementReader::new(element, mistakes);
    let children = at.children_named(&QUALITY_ELEMENTS);
    if let Some(second) = children.get(1) {
        at.report(second.name_span, "<Quality> is measured in two ways", "keep one of them");
    }
    if element.children.is_empty() {
        let right = format!("add one of <{}>", QUALITY_ELEMENTS.join(">, <"));
        at.report(element.name_span, "<Quality> does not say what good is", right);
    }
    at.report_unread();
    children.first().map_or(QualitySpec::Any, |element| read_quality_measure(element, mistakes))
}

fn read_quality_measure(element: &RawElement, mistakes: &Diagnostics) -> QualitySpec {
    let mut at = ElementReader::new(element, mistakes);
    let quality = match &*element.name {
        "SoftScore" => {
            QualitySpec::SoftScore { max_score: at.required_number("MaxScore", POSITIVE_NUMBER).unwrap_or(1.0) }
        }
        "LeaderboardGauss" => QualitySpec::LeaderboardGauss {
            sigma: at.number_or("Sigma", POSITIVE_NUMBER, 20.0),
            scale: at.number_or("Scale", POSITIVE_NUMBER, 0.5),
            threshold: at.number_or("Threshold", NumberBounds::inclusive(0.0, 1e6), 0.3),
        },
        "AverageSimilarity" => QualitySpec::AverageSimilarity {
            rating_span: at.required_number("RatingSpan", POSITIVE_NUMBER).unwrap_or(1.0),
            required_percent: at.required_number("RequiredPercent", NumberBounds::PERCENT).unwrap_or(0.0),
        },
        "WinProbability" => read_win_probability(&mut at),
        "DrawProbability" => QualitySpec::DrawProbability {
            threshold: at.required_number("Threshold", DRAW_THRESHOLD_BOUNDS).unwrap_or(1.0),
        },
        _ => {
            let categories = at.integer_or("Categories", 2, RULESET_ENTRIES_PER_KIND_MAX as u64, 13);
            let by_span = at.optional_keyword("DivideBy", &[("count", false), ("span", true)]).unwrap_or(false);
            QualitySpec::CategorySimilarity {
                categories: categories as u16,
                category_width: at.number_or("CategoryWidth", POSITIVE_NUMBER, 200.0),
                divisor: (categories - u64::from(by_span)) as u16,
                curve: at.optional_keyword("Curve", &DISTANCE_CURVE_KEYWORDS).unwrap_or(DistanceCurve::Linear),
                required_percent: at.required_number("RequiredPercent", NumberBounds::PERCENT).unwrap_or(0.0),
            }
        }
    };
    at.report_unread();
    quality
}

/// The defaults are those of the Teiserver that dropped its buckets (D-5).
fn read_win_probability(at: &mut ElementReader<'_>) -> QualitySpec {
    let min_percent = at.number_or("MinPercent", NumberBounds::PERCENT, 30.0);
    let max_percent = at.number_or("MaxPercent", NumberBounds::PERCENT, 70.0);
    if let Some(written) =
        at.attribute("MinPercent").or(at.attribute("MaxPercent")).filter(|_| max_percent < min_percent)
    {
        let what = format!("a chance of at least {min_percent} % and at most {max_percent} %");
        at.report(written.value_span, what, "give `MinPercent` less than `MaxPercent`");
    }
    QualitySpec::WinProbability { min_percent, max_percent }
}

/// Reads `<WaitBonus>`: comprl's tenth a minute, after one (S2-11, S2-12).
pub(super) fn read_wait_bonus(element: &RawElement, mistakes: &Diagnostics) -> WaitBonus {
    let mut at = ElementReader::new(element, mistakes);
    let per_minute = at.number_or("PerMinute", POSITIVE_NUMBER, 0.1);
    let free_minutes = at.number_or("FreeMinutes", FREE_MINUTES_BOUNDS, 1.0);
    at.report_unread();
    WaitBonus { per_minute, free_minutes }
}
