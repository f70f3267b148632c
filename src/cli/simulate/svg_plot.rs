//! Plots as SVG text.

use anyhow::anyhow;
use plotters::prelude::{
    BLACK, ChartBuilder, Circle, Color, IntoDrawingArea, LineSeries, PathElement, RGBColor, SVGBackend, WHITE,
};

/// A line: its name, and its points from left to right.
pub(super) struct Series {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
}

/// Points of one line at most: more cannot be seen.
const SERIES_POINTS_MAX: usize = 200;

/// Lines of so few points have dots as well.
const DOTTED_POINTS_MAX: usize = 12;

/// Values of which a spread is drawn, at least: fewer are no spread.
const DISTRIBUTION_VALUES_MIN: usize = 20;

/// Colours that are told apart, also by those who see few (Okabe and Ito, 2008).
const SERIES_COLORS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(100, 100, 100),
];

const PLOT_SIZE_PX: (u32, u32) = (640, 360);

const LABEL_FONT: (&str, u32) = ("sans-serif", 15);

/// Lines over common axes; empty where there is nothing to draw.
pub(super) fn line_plot(title: &str, (x, y): (&str, &str), lines: &[Series]) -> anyhow::Result<String> {
    let points = || lines.iter().flat_map(|line| &line.points);
    let least = |pick: fn(&(f64, f64)) -> f64| points().map(pick).fold(f64::INFINITY, f64::min);
    let most = |pick: fn(&(f64, f64)) -> f64| points().map(pick).fold(f64::NEG_INFINITY, f64::max);
    let (left, right) = (least(|it| it.0).min(0.0), most(|it| it.0));
    let (low, high) = (least(|it| it.1).min(0.0), most(|it| it.1));
    if !(left < right && low < high) {
        return Ok(String::new());
    }
    let mut svg = String::new();
    {
        let failed = |error| anyhow!("draw {title}: {error}");
        let area = SVGBackend::with_string(&mut svg, PLOT_SIZE_PX).into_drawing_area();
        area.fill(&WHITE).map_err(|it| failed(it.to_string()))?;
        let mut chart = ChartBuilder::on(&area)
            .caption(title, ("sans-serif", 20))
            .margin(10)
            .margin_right(28)
            .x_label_area_size(36)
            .y_label_area_size(64)
            .build_cartesian_2d(left..right, low..high)
            .map_err(|it| failed(it.to_string()))?;
        chart
            .configure_mesh()
            .max_light_lines(0)
            .label_style(LABEL_FONT)
            .axis_desc_style(LABEL_FONT)
            .x_desc(x)
            .y_desc(y)
            .draw()
            .map_err(|it| failed(it.to_string()))?;
        let drawn = lines.iter().zip(SERIES_COLORS.iter().cycle()).filter(|(line, _)| !line.points.is_empty());
        for (line, colour) in drawn {
            let colour = *colour;
            chart
                .draw_series(LineSeries::new(line.points.iter().copied(), colour.stroke_width(2)))
                .map_err(|it| failed(it.to_string()))?
                .label(line.name.as_str())
                .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], colour.stroke_width(2)));
            // So few that each is worth seeing; a single one is no line at all.
            if line.points.len() <= DOTTED_POINTS_MAX {
                let dots = line.points.iter().map(|&point| Circle::new(point, 3, colour.filled()));
                chart.draw_series(dots).map_err(|it| failed(it.to_string()))?;
            }
        }
        chart
            .configure_series_labels()
            .label_font(LABEL_FONT)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .draw()
            .map_err(|it| failed(it.to_string()))?;
        area.present().map_err(|it| failed(it.to_string()))?;
    }
    Ok(svg)
}

/// How values are spread: for each share of them the value that it does not exceed, up to the 99th in a hundred, for
/// the rest would hide them. Nothing where they are few.
pub(super) fn cumulative_series(name: impl Into<String>, values: impl IntoIterator<Item = f64>) -> Series {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_unstable_by(f64::total_cmp);
    let shown = if values.len() < DISTRIBUTION_VALUES_MIN { 0 } else { values.len() * 99 / 100 };
    let step = shown.div_ceil(SERIES_POINTS_MAX).max(1);
    let points = (0..shown).step_by(step).map(|at| (values[at], 100.0 * (at + 1) as f64 / values.len() as f64));
    Series { name: name.into(), points: points.collect() }
}
