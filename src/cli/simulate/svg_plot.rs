//! Line plots as SVG text.

use anyhow::anyhow;
use plotters::prelude::{
    BLACK, ChartBuilder, Circle, Color, IntoDrawingArea, LineSeries, PathElement, RGBColor, SVGBackend, WHITE,
};

/// Data series of a plot.
#[derive(Clone, Debug)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// Points from left to right.
    pub points: Vec<(f64, f64)>,
}

/// Maximum number of points of a series; more are not visible.
const SERIES_POINTS_MAX: usize = 200;

/// Maximum number of points of a series that is drawn with dots.
const DOTTED_POINTS_MAX: usize = 12;

/// Minimum number of values for a distribution.
const DISTRIBUTION_VALUES_MIN: usize = 20;

/// Colors that are distinguishable with color blindness (Okabe and Ito, 2008).
const SERIES_COLORS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(100, 100, 100),
];

const SVG_IMAGE_SIZE_PX: (u32, u32) = (640, 360);

const LABEL_FONT: (&str, u32) = ("sans-serif", 15);

/// Line plot of several series; empty without an area to draw.
pub fn line_plot(title: &str, (x, y): (&str, &str), series: &[Series]) -> anyhow::Result<String> {
    let points = || series.iter().flat_map(|one_series| &one_series.points);
    let min_of = |coordinate: fn(&(f64, f64)) -> f64| points().map(coordinate).fold(f64::INFINITY, f64::min);
    let max_of = |coordinate: fn(&(f64, f64)) -> f64| points().map(coordinate).fold(f64::NEG_INFINITY, f64::max);
    let (left, right) = (min_of(|point| point.0).min(0.0), max_of(|point| point.0));
    let (bottom, top) = (min_of(|point| point.1).min(0.0), max_of(|point| point.1));
    if !(left < right && bottom < top) {
        return Ok(String::new());
    }
    let mut svg = String::new();
    {
        let failed = |error| anyhow!("draw {title}: {error}");
        let area = SVGBackend::with_string(&mut svg, SVG_IMAGE_SIZE_PX).into_drawing_area();
        area.fill(&WHITE).map_err(|error| failed(error.to_string()))?;
        let mut chart = ChartBuilder::on(&area)
            .caption(title, ("sans-serif", 20))
            .margin(10)
            .margin_right(28)
            .x_label_area_size(36)
            .y_label_area_size(64)
            .build_cartesian_2d(left..right, bottom..top)
            .map_err(|error| failed(error.to_string()))?;
        chart
            .configure_mesh()
            .max_light_lines(0)
            .label_style(LABEL_FONT)
            .axis_desc_style(LABEL_FONT)
            .x_desc(x)
            .y_desc(y)
            .draw()
            .map_err(|error| failed(error.to_string()))?;
        let non_empty =
            series.iter().zip(SERIES_COLORS.iter().cycle()).filter(|(one_series, _)| !one_series.points.is_empty());
        for (one_series, color) in non_empty {
            let color = *color;
            chart
                .draw_series(LineSeries::new(one_series.points.iter().copied(), color.stroke_width(2)))
                .map_err(|error| failed(error.to_string()))?
                .label(one_series.name.as_str())
                .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], color.stroke_width(2)));
            // A series of one point has no line, so its dot is needed.
            if one_series.points.len() <= DOTTED_POINTS_MAX {
                let dots = one_series.points.iter().map(|&point| Circle::new(point, 3, color.filled()));
                chart.draw_series(dots).map_err(|error| failed(error.to_string()))?;
            }
        }
        chart
            .configure_series_labels()
            .label_font(LABEL_FONT)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .draw()
            .map_err(|error| failed(error.to_string()))?;
        area.present().map_err(|error| failed(error.to_string()))?;
    }
    Ok(svg)
}

/// Cumulative distribution of values up to the 99th percentile; the tail would compress the rest. Empty with fewer than
/// `DISTRIBUTION_VALUES_MIN` values.
pub(super) fn cumulative_series(name: impl Into<String>, values: impl IntoIterator<Item = f64>) -> Series {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_unstable_by(f64::total_cmp);
    let shown_count = if values.len() < DISTRIBUTION_VALUES_MIN { 0 } else { values.len() * 99 / 100 };
    let step = shown_count.div_ceil(SERIES_POINTS_MAX).max(1);
    let points =
        (0..shown_count).step_by(step).map(|index| (values[index], 100.0 * (index + 1) as f64 / values.len() as f64));
    Series { name: name.into(), points: points.collect() }
}
