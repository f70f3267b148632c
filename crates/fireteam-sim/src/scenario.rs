//! Scenario of a simulation: number of players, activity, patience, skill and ready check behavior. Read from TOML;
//! some scenarios are bundled.

mod search_settings;

use fireteam_domain::location_privacy::DEFAULT_SESSION_GRID_DEGREES;
use serde::Deserialize;

use crate::ScenarioError;

pub use search_settings::SearchSettings;

/// Maximum size of a scenario in bytes.
pub const SCENARIO_BYTES_MAX: usize = 64 * 1024;

/// Names and contents of the bundled scenarios.
pub const BUNDLED_SCENARIOS: [(&str, &str); 7] = [
    ("launch_day", include_str!("../../../scenarios/launch_day.toml")),
    ("leagues", include_str!("../../../scenarios/leagues.toml")),
    ("low", include_str!("../../../scenarios/low.toml")),
    ("night", include_str!("../../../scenarios/night.toml")),
    ("normal", include_str!("../../../scenarios/normal.toml")),
    ("outliers_evening", include_str!("../../../scenarios/outliers_evening.toml")),
    ("searches", include_str!("../../../scenarios/searches.toml")),
];

/// Scenario. Fields that a file leaves out have the values of `normal`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scenario {
    /// Title, one line.
    pub title: String,
    /// Number of accounts, including friends in parties: 2 to 1,000,000.
    pub players: u32,
    /// Counted time in hours: 1/60 to 336.
    pub hours: f64,
    /// Warm-up before counting begins, in minutes, so that the empty queue is not counted: 0 to 1,440.
    pub warm_up_minutes: f64,
    /// Hour of the day in UTC at which counting begins: 0 to 23.
    pub start_utc_hour: u32,
    /// Regions of the players, as in scenarios/cities.csv; empty for all.
    pub regions: Vec<String>,
    /// Distribution of true skill.
    pub skill: SkillDistribution,
    /// Percentages of parties with 1, 2, 3 … players. Larger parties are reduced to the ruleset's maximum.
    pub party_percent: Vec<f64>,
    /// Activity of players.
    pub activity: PlayerActivity,
    /// Responses to ready checks.
    pub ready: ReadyCheckBehavior,
    /// Time to find a game server in milliseconds, if the ruleset needs one: 0 to 3,600,000.
    pub server_ms: u64,
    /// Added to each round trip of a `--latencies` matrix, in milliseconds: 0 to 1,000. The matrix is measured between
    /// data centers; this is the access network of players.
    pub last_mile_ms: f64,
    /// Grid of the locations by which parties are judged, in degrees, as `--session-location-grid-degrees` of the server:
    /// 0 to 10. With 0, locations and round trips to regions are exact.
    pub location_grid_degrees: f64,
    /// Percentages of players with open, moderate and strict NAT.
    pub nat_percent: [f64; 3],
    /// A player far from all others.
    pub outlier: Option<SingleOutlierSpec>,
    /// Searches of sessions, with probes. Without it, none are simulated.
    pub latency: Option<SearchSettings>,
}

/// Distribution of true skill, in Elo points for any rating system: 400 points mean odds of ten to one.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SkillDistribution {
    /// Standard deviation of true skill: 0 to 2,000.
    pub sd: f64,
    /// Mean of experienced players less a newcomer's rating, in Elo points: -10,000 to 10,000.
    pub centre: f64,
    /// Correlation of true skill within a party: 0 to 1.
    pub friends: f64,
    /// Percentage of players without matches: 0 to 100.
    pub newcomers_percent: f64,
    /// Rated 1v1 matches of all other players before the world begins: 0 to 1,000.
    pub prior_matches: u32,
}

/// Activity of players.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PlayerActivity {
    /// Mean number of play sessions of a party per day: 0.001 to 48.
    pub play_sessions_per_day: f64,
    /// Weights of the 24 local hours for the start of play sessions.
    pub by_hour: Vec<f64>,
    /// Mean number of matches per play session: 1 to 1,000.
    pub matches_per_play_session: f64,
    /// Mean time from a match to the next queue entry in seconds: 0 to 3,600.
    pub pause_s: f64,
    /// Mean duration of a match in minutes: 0.1 to 600.
    pub match_minutes: f64,
    /// Median patience of a party in minutes: 0.1 to 600. Individual values vary widely.
    pub patience_minutes: f64,
}

/// Responses of parties to a ready check.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReadyCheckBehavior {
    /// Percentage of parties that accept: 0 to 100.
    pub accept_percent: f64,
    /// Percentage of parties that decline: 0 to 100 less `accept_percent`. The rest do not respond.
    pub decline_percent: f64,
    /// Mean response time in seconds: 0.1 to 600.
    pub response_s: f64,
}

/// A player who is always in a play session and far from all others.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SingleOutlierSpec {
    /// Elo points above the mean: -10,000 to 10,000.
    pub rating_offset: f64,
    /// City, as in scenarios/cities.csv.
    pub city: String,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            title: "an evening".into(),
            players: 20_000,
            hours: 2.0,
            warm_up_minutes: 60.0,
            start_utc_hour: 19,
            regions: Vec::new(),
            skill: SkillDistribution::default(),
            party_percent: vec![70.0, 18.0, 6.0, 4.0, 1.0, 1.0],
            activity: PlayerActivity::default(),
            ready: ReadyCheckBehavior::default(),
            server_ms: 800,
            last_mile_ms: 17.0,
            location_grid_degrees: DEFAULT_SESSION_GRID_DEGREES,
            nat_percent: [45.0, 45.0, 10.0],
            outlier: None,
            latency: None,
        }
    }
}

impl Default for SkillDistribution {
    fn default() -> Self {
        Self { sd: 300.0, centre: 0.0, friends: 0.4, newcomers_percent: 10.0, prior_matches: 30 }
    }
}

impl Default for PlayerActivity {
    fn default() -> Self {
        let night = [2.0, 1.0, 0.6, 0.4, 0.3, 0.3, 0.5, 1.0];
        let day = [1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0];
        let evening = [6.0, 7.0, 8.0, 9.0, 9.5, 9.0, 7.0, 4.0];
        Self {
            play_sessions_per_day: 1.0,
            by_hour: [night, day, evening].concat(),
            matches_per_play_session: 5.0,
            pause_s: 40.0,
            match_minutes: 10.0,
            patience_minutes: 6.0,
        }
    }
}

impl Default for ReadyCheckBehavior {
    fn default() -> Self {
        Self { accept_percent: 94.0, decline_percent: 3.0, response_s: 5.0 }
    }
}

impl Scenario {
    /// Bundled scenario with this name; fails for an unknown name.
    pub fn bundled(name: &str) -> Result<Self, ScenarioError> {
        let found = BUNDLED_SCENARIOS.iter().find(|(known, _)| *known == name);
        let Some((name, text)) = found else {
            let names: Vec<&str> = BUNDLED_SCENARIOS.iter().map(|scenario| scenario.0).collect();
            let message = format!("unknown scenario `{name}`; use a .toml file or one of {}", names.join(", "));
            return Err(ScenarioError(message));
        };
        Self::parse(name, text)
    }

    /// Parses and validates a scenario. `file` is its name in errors.
    pub fn parse(file: &str, text: &str) -> Result<Self, ScenarioError> {
        if text.len() > SCENARIO_BYTES_MAX {
            return Err(ScenarioError(format!(
                "{file}: scenario is too large; use at most {SCENARIO_BYTES_MAX} bytes"
            )));
        }
        let scenario: Self = toml::from_str(text).map_err(|error| ScenarioError(format!("{file}: {error}")))?;
        scenario.validate().map_err(|error| ScenarioError(format!("{file}: {error}")))?;
        Ok(scenario)
    }

    /// Validates the ranges; returns the first invalid field with its range.
    pub fn validate(&self) -> Result<(), String> {
        let Self { skill, activity, ready, .. } = self;
        let bounds = [
            ("players", f64::from(self.players), 2.0, 1e6),
            ("hours", self.hours, 1.0 / 60.0, 336.0),
            ("warm_up_minutes", self.warm_up_minutes, 0.0, 1_440.0),
            ("start_utc_hour", f64::from(self.start_utc_hour), 0.0, 23.0),
            ("last_mile_ms", self.last_mile_ms, 0.0, 1_000.0),
            ("location_grid_degrees", self.location_grid_degrees, 0.0, 10.0),
            ("server_ms", self.server_ms as f64, 0.0, 3_600_000.0),
            ("skill.sd", skill.sd, 0.0, 2_000.0),
            ("skill.centre", skill.centre, -10_000.0, 10_000.0),
            ("skill.friends", skill.friends, 0.0, 1.0),
            ("skill.newcomers_percent", skill.newcomers_percent, 0.0, 100.0),
            ("skill.prior_matches", f64::from(skill.prior_matches), 0.0, 1_000.0),
            ("activity.play_sessions_per_day", activity.play_sessions_per_day, 1e-3, 48.0),
            ("activity.matches_per_play_session", activity.matches_per_play_session, 1.0, 1_000.0),
            ("activity.pause_s", activity.pause_s, 0.0, 3_600.0),
            ("activity.match_minutes", activity.match_minutes, 0.1, 600.0),
            ("activity.patience_minutes", activity.patience_minutes, 0.1, 600.0),
            ("ready.accept_percent", ready.accept_percent, 0.0, 100.0),
            ("ready.decline_percent", ready.decline_percent, 0.0, 100.0 - ready.accept_percent),
            ("ready.response_s", ready.response_s, 0.1, 600.0),
            (
                "outlier.rating_offset",
                self.outlier.as_ref().map_or(0.0, |outlier| outlier.rating_offset),
                -10_000.0,
                10_000.0,
            ),
        ];
        let of_searches = self.latency.iter().flat_map(SearchSettings::bounds);
        for (field, value, lowest, highest) in bounds.into_iter().chain(of_searches) {
            if !(lowest..=highest).contains(&value) {
                return Err(format!("{field} is {value}; use {lowest} to {highest}"));
            }
        }
        validate_weights("party_percent", &self.party_percent, 1..=32)?;
        validate_weights("activity.by_hour", &activity.by_hour, 24..=24)?;
        validate_weights("nat_percent", &self.nat_percent, 3..=3)
    }
}

fn validate_weights(field: &str, weights: &[f64], count: std::ops::RangeInclusive<usize>) -> Result<(), String> {
    let are_valid =
        weights.iter().all(|weight| weight.is_finite() && *weight >= 0.0) && weights.iter().sum::<f64>() > 0.0;
    if are_valid && count.contains(&weights.len()) {
        return Ok(());
    }
    let (fewest, most) = (count.start(), count.end());
    Err(format!("{field} is invalid; use {fewest} to {most} numbers of 0 or more, at least one above 0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bundled_scenarios_are_valid() {
        for (name, _) in BUNDLED_SCENARIOS {
            Scenario::bundled(name).unwrap();
        }
        let error = Scenario::bundled("lauch_day").unwrap_err().to_string();
        assert!(error.contains("launch_day"), "{error}");
    }

    #[test]
    fn scenario_defaults_equal_the_normal_scenario() {
        let normal = Scenario::bundled("normal").unwrap();
        assert_eq!(normal, Scenario { title: normal.title.clone(), ..Scenario::default() });
    }

    #[test]
    fn scenario_defaults_of_searches_equal_the_searches_scenario() {
        let searches = Scenario::bundled("searches").unwrap();
        assert_eq!(searches.latency, Some(SearchSettings::default()));
        assert_eq!(Scenario::parse("x.toml", "[latency]").unwrap().latency, searches.latency);
    }

    #[test]
    fn scenario_error_names_the_field_and_its_range() {
        let check = |text: &str, expected: &str| {
            let error = Scenario::parse("x.toml", text).unwrap_err().to_string();
            assert!(error.starts_with("x.toml: ") && error.contains(expected), "{error}");
        };
        check("players = 1", "players is 1; use 2 to");
        check("player = 7", "unknown field `player`");
        check("hours = nan", "hours is NaN");
        check("[activity]\nby_hour = [1.0]", "activity.by_hour is invalid; use 24 to 24 numbers");
        check("party_percent = [0.0]", "at least one above 0");
        check("[latency]\nbeacons = 65", "latency.beacons is 65; use 0 to 64");
        check("[latency]\nfloors = 33", "latency.floors is 33; use 0 to 32");
        check("[latency]\nloss = 1.0", "latency.loss is 1; use 0 to 0.9");
        check("[latency]\njitter_ms = -1.0", "latency.jitter_ms is -1; use 0 to 1000");
        check("[latency]\nsessions = 0", "latency.sessions is 0; use 1 to 1000");
        check("[latency]\nsearches = 0", "latency.searches is 0; use 1 to 100000");
        check("[latency]\nbeacon = 5", "unknown field `beacon`");
        check("[ready]\naccept_percent = 90.0\ndecline_percent = 20.0", "ready.decline_percent is 20");
    }
}
