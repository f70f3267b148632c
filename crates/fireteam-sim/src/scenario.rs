//! A scenario: who plays, how many, when, how patient they are. Read from TOML; the shipped ones are part of the
//! program.

use serde::Deserialize;

use crate::ScenarioError;

/// Bytes that a scenario may have.
pub const SCENARIO_BYTES_MAX: usize = 64 * 1024;

/// The scenarios that ship: names, and contents as shipped.
pub const BUNDLED_SCENARIOS: [(&str, &str); 6] = [
    ("launch_day", include_str!("../../../scenarios/launch_day.toml")),
    ("leagues", include_str!("../../../scenarios/leagues.toml")),
    ("low", include_str!("../../../scenarios/low.toml")),
    ("night", include_str!("../../../scenarios/night.toml")),
    ("normal", include_str!("../../../scenarios/normal.toml")),
    ("outliers_evening", include_str!("../../../scenarios/outliers_evening.toml")),
];

/// A scenario. Whatever a file leaves out is as in `normal`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scenario {
    /// What it is, in a line.
    pub title: String,
    /// Accounts, friends in parties included: 2 to 1,000,000.
    pub players: u32,
    /// How long is counted, hours: more than 0, at most 336.
    pub hours: f64,
    /// How long the world runs before anything is counted, so that nobody counts an empty queue, minutes: 0 to 1,440.
    pub settle_minutes: f64,
    /// The hour of the day in UTC at which counting begins: 0 to 23.
    pub start_utc_hour: u32,
    /// Regions whose players play; empty for all. As in scenarios/cities.csv.
    pub regions: Vec<String>,
    /// How good they are.
    pub skill: SkillDistribution,
    /// Percent of parties that have 1, 2, 3 … players. Those too large for the ruleset are as large as it allows.
    pub party_percent: Vec<f64>,
    /// When and how long they play.
    pub rhythm: PlayerActivity,
    /// How they answer a ready check.
    pub ready: ReadyCheckBehavior,
    /// How long a match waits for a game server, milliseconds, where the ruleset wants one.
    pub server_ms: u64,
    /// Added to every round trip of a `--latencies` matrix, whose ends are hosted machines: the last miles of a home,
    /// milliseconds.
    pub last_mile_ms: f64,
    /// Players with an open, a moderate and a strict NAT, percent.
    pub nat_percent: [f64; 3],
    /// Somebody who is far from everybody else.
    pub outlier: Option<OutlierSpec>,
}

/// How good players are. In points of Elo, whatever system the ruleset has: 400 points are ten to one.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SkillDistribution {
    /// The standard deviation of true skill: 0 to 2,000.
    pub sd: f64,
    /// How far above a newcomer's rating the mean of those who have played is.
    pub centre: f64,
    /// How alike friends are: the correlation of true skill within a party, 0 to 1.
    pub friends: f64,
    /// Players who have never played, percent.
    pub newcomers_percent: f64,
    /// Rated matches of one against one that all others have behind them: 0 to 1,000.
    pub earlier_matches: u32,
}

/// When and how long players play.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PlayerActivity {
    /// How often a party sits down in a day, on average: more than 0, at most 48.
    pub sittings_a_day: f64,
    /// How the sittings of a day fall on its hours, by local time: 24 weights.
    pub by_hour: Vec<f64>,
    /// Matches of a sitting, on average: 1 or more.
    pub matches_a_sitting: f64,
    /// From one match to the next visit to the queue, seconds, on average.
    pub pause_s: f64,
    /// How long a match takes, minutes, on average.
    pub match_minutes: f64,
    /// How long half of the parties are ready to wait, minutes. Some much longer, some much less.
    pub patience_minutes: f64,
}

/// How a party answers a ready check.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReadyCheckBehavior {
    /// Parties that accept, percent.
    pub accept_percent: f64,
    /// Parties that decline, percent; the rest does not answer.
    pub decline_percent: f64,
    /// How long an answer takes, seconds, on average.
    pub answer_s: f64,
}

/// A player who stays all the time and is far from everybody.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutlierSpec {
    /// How far above the mean, points of Elo.
    pub above: f64,
    /// Where: a city of scenarios/cities.csv.
    pub city: String,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            title: "an evening".into(),
            players: 20_000,
            hours: 2.0,
            settle_minutes: 60.0,
            start_utc_hour: 19,
            regions: Vec::new(),
            skill: SkillDistribution::default(),
            party_percent: vec![70.0, 18.0, 6.0, 4.0, 1.0, 1.0],
            rhythm: PlayerActivity::default(),
            ready: ReadyCheckBehavior::default(),
            server_ms: 800,
            last_mile_ms: 17.0,
            nat_percent: [45.0, 45.0, 10.0],
            outlier: None,
        }
    }
}

impl Default for SkillDistribution {
    fn default() -> Self {
        Self { sd: 300.0, centre: 0.0, friends: 0.4, newcomers_percent: 10.0, earlier_matches: 30 }
    }
}

impl Default for PlayerActivity {
    fn default() -> Self {
        let night = [2.0, 1.0, 0.6, 0.4, 0.3, 0.3, 0.5, 1.0];
        let day = [1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0];
        let evening = [6.0, 7.0, 8.0, 9.0, 9.5, 9.0, 7.0, 4.0];
        Self {
            sittings_a_day: 1.0,
            by_hour: [night, day, evening].concat(),
            matches_a_sitting: 5.0,
            pause_s: 40.0,
            match_minutes: 10.0,
            patience_minutes: 6.0,
        }
    }
}

impl Default for ReadyCheckBehavior {
    fn default() -> Self {
        Self { accept_percent: 94.0, decline_percent: 3.0, answer_s: 5.0 }
    }
}

impl Scenario {
    /// One that ships.
    pub fn bundled(name: &str) -> Result<Self, ScenarioError> {
        let found = BUNDLED_SCENARIOS.iter().find(|(known, _)| *known == name);
        let Some((name, text)) = found else {
            let names: Vec<&str> = BUNDLED_SCENARIOS.iter().map(|it| it.0).collect();
            let what = format!("no scenario `{name}` ships: give a .toml file, or one of {}", names.join(", "));
            return Err(ScenarioError(what));
        };
        Self::parse(name, text)
    }

    /// Reads a scenario; `file` is what mistakes call it.
    pub fn parse(file: &str, text: &str) -> Result<Self, ScenarioError> {
        if SCENARIO_BYTES_MAX < text.len() {
            return Err(ScenarioError(format!("{file}: has more than {SCENARIO_BYTES_MAX} bytes")));
        }
        let scenario: Self = toml::from_str(text).map_err(|error| ScenarioError(format!("{file}: {error}")))?;
        scenario.validate().map_err(|why| ScenarioError(format!("{file}: {why}")))?;
        Ok(scenario)
    }

    /// What is wrong with it: the first field that is, and what it may be.
    pub fn validate(&self) -> Result<(), String> {
        let Self { skill, rhythm, ready, .. } = self;
        let bounds = [
            ("players", f64::from(self.players), 2.0, 1e6),
            ("hours", self.hours, 1.0 / 60.0, 336.0),
            ("settle_minutes", self.settle_minutes, 0.0, 1_440.0),
            ("start_utc_hour", f64::from(self.start_utc_hour), 0.0, 23.0),
            ("last_mile_ms", self.last_mile_ms, 0.0, 1_000.0),
            ("server_ms", self.server_ms as f64, 0.0, 3_600_000.0),
            ("skill.sd", skill.sd, 0.0, 2_000.0),
            ("skill.centre", skill.centre, -10_000.0, 10_000.0),
            ("skill.friends", skill.friends, 0.0, 1.0),
            ("skill.newcomers_percent", skill.newcomers_percent, 0.0, 100.0),
            ("skill.earlier_matches", f64::from(skill.earlier_matches), 0.0, 1_000.0),
            ("rhythm.sittings_a_day", rhythm.sittings_a_day, 1e-3, 48.0),
            ("rhythm.matches_a_sitting", rhythm.matches_a_sitting, 1.0, 1_000.0),
            ("rhythm.pause_s", rhythm.pause_s, 0.0, 3_600.0),
            ("rhythm.match_minutes", rhythm.match_minutes, 0.1, 600.0),
            ("rhythm.patience_minutes", rhythm.patience_minutes, 0.1, 600.0),
            ("ready.accept_percent", ready.accept_percent, 0.0, 100.0),
            ("ready.decline_percent", ready.decline_percent, 0.0, 100.0 - ready.accept_percent),
            ("ready.answer_s", ready.answer_s, 0.1, 600.0),
            ("outlier.above", self.outlier.as_ref().map_or(0.0, |it| it.above), -10_000.0, 10_000.0),
        ];
        for (field, value, least, most) in bounds {
            if !(least..=most).contains(&value) {
                return Err(format!("{field} is {value}: it is between {least} and {most}"));
            }
        }
        validate_weights("party_percent", &self.party_percent, 1..=32)?;
        validate_weights("rhythm.by_hour", &rhythm.by_hour, 24..=24)?;
        validate_weights("nat_percent", &self.nat_percent, 3..=3)
    }
}

fn validate_weights(field: &str, weights: &[f64], count: std::ops::RangeInclusive<usize>) -> Result<(), String> {
    let sound = weights.iter().all(|weight| weight.is_finite() && 0.0 <= *weight) && 0.0 < weights.iter().sum::<f64>();
    match sound && count.contains(&weights.len()) {
        true => Ok(()),
        false => {
            let (least, most) = (count.start(), count.end());
            Err(format!("{field} is {least} to {most} numbers, none of them negative and one at least above 0"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bundled_scenarios_are_valid() {
        for (name, _) in BUNDLED_SCENARIOS {
            Scenario::bundled(name).unwrap();
        }
        let why = Scenario::bundled("lauch_day").unwrap_err().to_string();
        assert!(why.contains("launch_day"), "{why}");
    }

    #[test]
    fn scenario_defaults_equal_the_normal_scenario() {
        let normal = Scenario::bundled("normal").unwrap();
        assert_eq!(normal, Scenario { title: normal.title.clone(), ..Scenario::default() });
    }

    #[test]
    fn scenario_error_names_the_field_and_its_range() {
        let check = |text: &str, wanted: &str| {
            let why = Scenario::parse("x.toml", text).unwrap_err().to_string();
            assert!(why.starts_with("x.toml: ") && why.contains(wanted), "{why}");
        };
        check("players = 1", "players is 1: it is between 2 and");
        check("player = 7", "unknown field `player`");
        check("hours = nan", "hours is NaN");
        check("[rhythm]\nby_hour = [1.0]", "rhythm.by_hour is 24 to 24 numbers");
        check("party_percent = [0.0]", "one at least above 0");
        check("[ready]\naccept_percent = 90.0\ndecline_percent = 20.0", "ready.decline_percent is 20");
    }
}
