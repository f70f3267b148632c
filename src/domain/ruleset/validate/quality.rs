//! `<Quality>` and `<WaitBonus>`: how good a match is, how good it must be, and what waiting adds.

use crate::domain::limit::RULES_MAX;
use crate::domain::ruleset::Curve;
use crate::domain::ruleset::draft::{Element, Mistakes};
use crate::domain::ruleset::fields::{Bounds, Fields};
use crate::domain::ruleset::queue::{Quality, WaitBonus};
use crate::domain::ruleset::validate::queue::POSITIVE;
use crate::domain::ruleset::validate::soft::CURVES;

const KINDS: [&str; 6] =
    ["SoftScore", "LeaderboardGauss", "AverageSimilarity", "CategorySimilarity", "WinProbability", "DrawProbability"];

/// Shares of the likeliest draw.
const SHARE: Bounds = Bounds::above(0.0, 1.0);

/// Free minutes of a wait bonus: a day at most.
const FREE_MINUTES: Bounds = Bounds::within(0.0, 1_440.0);

/// Reads `<Quality>`.
pub(super) fn read(element: &Element, mistakes: &Mistakes) -> Quality {
    let mut at = Fields::of(element, mistakes);
    let children = at.children(&KINDS);
    if let Some(second) = children.get(1) {
        at.wrong(second.span, "<Quality> is measured in two ways", "keep one of them");
    }
    if element.children.is_empty() {
        let right = format!("add one of <{}>", KINDS.join(">, <"));
        at.wrong(element.span, "<Quality> does not say what good is", right);
    }
    at.finish();
    children.first().map_or(Quality::Any, |element| kind(element, mistakes))
}

fn kind(element: &Element, mistakes: &Mistakes) -> Quality {
    let mut at = Fields::of(element, mistakes);
    let quality = match &*element.name {
        "SoftScore" => Quality::SoftScore { max_score: at.required_number("MaxScore", POSITIVE).unwrap_or(1.0) },
        "LeaderboardGauss" => Quality::LeaderboardGauss {
            sigma: at.number_or("Sigma", POSITIVE, 20.0),
            scale: at.number_or("Scale", POSITIVE, 0.5),
            threshold: at.number_or("Threshold", Bounds::within(0.0, 1e6), 0.3),
        },
        "AverageSimilarity" => Quality::AverageSimilarity {
            rating_span: at.required_number("RatingSpan", POSITIVE).unwrap_or(1.0),
            required_percent: at.required_number("RequiredPercent", Bounds::PERCENT).unwrap_or(0.0),
        },
        "WinProbability" => win_probability(&mut at),
        "DrawProbability" => {
            Quality::DrawProbability { threshold: at.required_number("Threshold", SHARE).unwrap_or(1.0) }
        }
        _ => {
            let categories = at.whole_or("Categories", 2, RULES_MAX as u64, 13);
            let by_span = at.word("DivideBy", &[("count", false), ("span", true)]).unwrap_or(false);
            Quality::CategorySimilarity {
                categories: categories as u16,
                category_width: at.number_or("CategoryWidth", POSITIVE, 200.0),
                divisor: (categories - u64::from(by_span)) as u16,
                curve: at.word("Curve", &CURVES).unwrap_or(Curve::Linear),
                required_percent: at.required_number("RequiredPercent", Bounds::PERCENT).unwrap_or(0.0),
            }
        }
    };
    at.finish();
    quality
}

/// The defaults are those of the Teiserver that dropped its buckets (D-5).
fn win_probability(at: &mut Fields<'_>) -> Quality {
    let min_percent = at.number_or("MinPercent", Bounds::PERCENT, 30.0);
    let max_percent = at.number_or("MaxPercent", Bounds::PERCENT, 70.0);
    if let Some(written) = at.written("MinPercent").or(at.written("MaxPercent")).filter(|_| max_percent < min_percent) {
        let what = format!("a chance of at least {min_percent} % and at most {max_percent} %");
        at.wrong(written.value_span, what, "give `MinPercent` less than `MaxPercent`");
    }
    Quality::WinProbability { min_percent, max_percent }
}

/// Reads `<WaitBonus>`: comprl's tenth a minute, after one (S2-11, S2-12).
pub(super) fn wait_bonus(element: &Element, mistakes: &Mistakes) -> WaitBonus {
    let mut at = Fields::of(element, mistakes);
    let per_minute = at.number_or("PerMinute", POSITIVE, 0.1);
    let free_minutes = at.number_or("FreeMinutes", FREE_MINUTES, 1.0);
    at.finish();
    WaitBonus { per_minute, free_minutes }
}
