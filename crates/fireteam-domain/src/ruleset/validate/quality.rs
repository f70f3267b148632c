//! `<Quality>` and `<WaitBonus>`: match quality measure, its threshold, and the bonus for waiting.

use crate::limit::RATING_CATEGORIES_MAX;
use crate::ruleset::DistanceCurve;
use crate::ruleset::element_reader::ElementReader;
use crate::ruleset::number_bounds::NumberBounds;
use crate::ruleset::queue::{QualitySpec, WaitBonus};
use crate::ruleset::raw::{Diagnostics, RawElement};
use crate::ruleset::validate::soft_filters::DISTANCE_CURVE_KEYWORDS;

const QUALITY_ELEMENTS: [&str; 6] =
    ["SoftScore", "LeaderboardGauss", "AverageSimilarity", "CategorySimilarity", "WinProbability", "DrawProbability"];

/// Threshold of `<DrawProbability>`: a share of the maximum draw probability.
const DRAW_PROBABILITY_THRESHOLD_BOUNDS: NumberBounds = NumberBounds::new_exclusive_min(0.0, 1.0);

/// Free minutes of a wait bonus: at most one day.
const WAIT_BONUS_FREE_MINUTES_BOUNDS: NumberBounds = NumberBounds::new_inclusive(0.0, 1_440.0);

/// Reads `<Quality>`.
pub(super) fn read_quality(element: &RawElement, diagnostics: &Diagnostics) -> QualitySpec {
    let mut reader = ElementReader::new(element, diagnostics);
    let children = reader.children_named(&QUALITY_ELEMENTS);
    if let Some(second) = children.get(1) {
        reader.report_at(second.name_span, "<Quality> has two measures", "keep one of them");
    }
    if element.children.is_empty() {
        let fix = format!("add one of <{}>", QUALITY_ELEMENTS.join(">, <"));
        reader.report_at(element.name_span, "<Quality> has no measure", fix);
    }
    reader.report_unread_and_missing();
    children.first().map_or(QualitySpec::Any, |element| read_quality_measure(element, diagnostics))
}

fn read_quality_measure(element: &RawElement, diagnostics: &Diagnostics) -> QualitySpec {
    let mut reader = ElementReader::new(element, diagnostics);
    let quality = match &*element.name {
        "SoftScore" => QualitySpec::SoftScore {
            max_score: reader.required_number("MaxScore", NumberBounds::POSITIVE).unwrap_or(1.0),
        },
        "LeaderboardGauss" => QualitySpec::LeaderboardGauss {
            sigma: reader.number_or("Sigma", NumberBounds::POSITIVE, 20.0),
            scale: reader.number_or("Scale", NumberBounds::POSITIVE, 0.5),
            threshold: reader.number_or("Threshold", NumberBounds::new_inclusive(0.0, 1e6), 0.3),
        },
        "AverageSimilarity" => QualitySpec::AverageSimilarity {
            rating_span: reader.required_number("RatingSpan", NumberBounds::POSITIVE).unwrap_or(1.0),
            required_percent: reader.required_number("RequiredPercent", NumberBounds::PERCENT).unwrap_or(0.0),
        },
        "WinProbability" => read_win_probability(&mut reader),
        "DrawProbability" => QualitySpec::DrawProbability {
            threshold: reader.required_number("Threshold", DRAW_PROBABILITY_THRESHOLD_BOUNDS).unwrap_or(1.0),
        },
        _ => {
            let categories = reader.integer_or("Categories", 2, RATING_CATEGORIES_MAX, 13);
            let by_span = reader.optional_keyword("DivideBy", &[("count", false), ("span", true)]).unwrap_or(false);
            QualitySpec::CategorySimilarity {
                categories: categories as u16,
                category_width: reader.number_or("CategoryWidth", NumberBounds::POSITIVE, 200.0),
                divisor: (categories - u64::from(by_span)) as u16,
                curve: reader.optional_keyword("Curve", &DISTANCE_CURVE_KEYWORDS).unwrap_or(DistanceCurve::Linear),
                required_percent: reader.required_number("RequiredPercent", NumberBounds::PERCENT).unwrap_or(0.0),
            }
        }
    };
    reader.report_unread_and_missing();
    quality
}

/// Reads `<WinProbability>`. Defaults are those of a later version of Teiserver, which has no buckets.
fn read_win_probability(reader: &mut ElementReader<'_>) -> QualitySpec {
    let min_percent = reader.number_or("MinPercent", NumberBounds::PERCENT, 30.0);
    let max_percent = reader.number_or("MaxPercent", NumberBounds::PERCENT, 70.0);
    if let Some(raw) =
        reader.attribute("MinPercent").or(reader.attribute("MaxPercent")).filter(|_| max_percent < min_percent)
    {
        let problem = format!("`MinPercent` is {min_percent} and `MaxPercent` is {max_percent}");
        reader.report_at(raw.value_span, problem, "give `MinPercent` less than `MaxPercent`");
    }
    QualitySpec::WinProbability { min_percent, max_percent }
}

/// Reads `<WaitBonus>`. Defaults are those of comprl: 0.1 per minute after one minute.
pub(super) fn read_wait_bonus(element: &RawElement, diagnostics: &Diagnostics) -> WaitBonus {
    let mut reader = ElementReader::new(element, diagnostics);
    let per_minute = reader.number_or("PerMinute", NumberBounds::POSITIVE, 0.1);
    let free_minutes = reader.number_or("FreeMinutes", WAIT_BONUS_FREE_MINUTES_BOUNDS, 1.0);
    reader.report_unread_and_missing();
    WaitBonus { per_combined_minute: per_minute, free_combined_minutes: free_minutes }
}
