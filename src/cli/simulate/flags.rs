//! Flags of `fireteam simulate`.

use std::path::PathBuf;

use crate::sim::latency_source::LatencySource;

/// Maximum number of worlds in one run.
const SEEDS_MAX: u32 = 1_000;

/// Flags of `simulate`.
#[derive(Debug, clap::Args)]
pub struct SimulateFlags {
    /// Ruleset file.
    #[arg(value_name = "RULESET", required_unless_present = "compare")]
    pub(super) ruleset: Option<PathBuf>,
    /// Scenario: low, normal, launch_day, leagues, outliers_evening, night, searches, or a .toml file.
    #[arg(long, value_name = "NAME|FILE", default_value = "normal")]
    pub(super) scenario: String,
    /// First seed; the same seed gives the same world.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
    /// Number of worlds, one seed each, 1 to 1000 [default: 1; with --compare 8].
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=i64::from(SEEDS_MAX)))]
    pub(super) seeds: Option<u32>,
    /// Counted time in hours [default: as in the scenario].
    #[arg(long, value_name = "H")]
    pub(super) hours: Option<f64>,
    /// File for all statistics as JSON; `-` prints only them to standard output.
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// File for a page of plots, HTML.
    #[arg(long, value_name = "FILE.html")]
    pub(super) plot: Option<PathBuf>,
    /// Measured round trips, CSV file with source, destination, avg in ms [default: the ruleset's latency model].
    #[arg(long, value_name = "CSV")]
    pub(super) latencies: Option<PathBuf>,
    /// Site locations of --latencies, CSV file with id, latitude, longitude [default: servers*.csv beside it].
    #[arg(long, value_name = "CSV", requires = "latencies")]
    pub(super) latency_sites: Option<PathBuf>,
    /// Round trips by which the scenario's searches choose a session: distance, predicted or measured; with --compare one for both,
    /// or two, as distance,measured [default: all three; with --compare measured].
    #[arg(long, value_name = "SOURCE", value_delimiter = ',', value_parser = parse_latency_source)]
    pub(super) latency_source: Vec<LatencySource>,
    /// Compare two rulesets on the same players.
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with = "ruleset")]
    pub(super) compare: Option<Vec<PathBuf>>,
}

fn parse_latency_source(text: &str) -> Result<LatencySource, String> {
    let found = LatencySource::ALL.into_iter().find(|source| source.as_str() == text);
    found.ok_or_else(|| "use distance, predicted or measured".to_owned())
}
