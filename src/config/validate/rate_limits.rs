//! Validation of rate limit settings.

use crate::config::rate_limits::{RateLimitRule, RateLimitSetting};
use crate::config::validate::ConfigErrors;

impl ConfigErrors {
    /// Parses rate limits; each name may appear once.
    pub(super) fn parse_rate_limits(&mut self, texts: Option<Vec<String>>) -> RateLimitSetting {
        let Some(texts) = texts.filter(|texts| !texts.is_empty()) else { return RateLimitSetting::Auto };
        if texts == ["off"] {
            return RateLimitSetting::Off;
        }
        let mut rules: Vec<RateLimitRule> = Vec::new();
        for text in &texts {
            match RateLimitRule::parse(text) {
                Err(message) => self.add_invalid_value("rate_limits", message),
                Ok(rule) if rules.iter().any(|other| other.setting_name() == rule.setting_name()) => {
                    self.add_invalid_value("rate_limits", format!("{} is set twice; set it once", rule.setting_name()));
                }
                Ok(rule) => rules.push(rule),
            }
        }
        RateLimitSetting::Overrides(rules)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::rate_limits::DEFAULT_RATE_LIMITS;

    fn parse_rules(texts: &[&str]) -> Result<RateLimitSetting, String> {
        let mut errors = ConfigErrors(Vec::new());
        let rate_limits = errors.parse_rate_limits(Some(texts.iter().map(|text| text.to_string()).collect()));
        let messages: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
        if messages.is_empty() { Ok(rate_limits) } else { Err(messages.join("\n")) }
    }

    #[test]
    fn rate_limit_defaults_round_trip_as_text() {
        for rule in DEFAULT_RATE_LIMITS {
            assert_eq!(RateLimitRule::parse(&rule.to_string()), Ok(rule));
            let same_name = DEFAULT_RATE_LIMITS.iter().filter(|other| other.setting_name() == rule.setting_name());
            assert_eq!(same_name.count(), 1, "{}", rule.setting_name());
        }
        assert_eq!(parse_rules(&[]), Ok(RateLimitSetting::Auto));
        assert_eq!(parse_rules(&["off"]), Ok(RateLimitSetting::Off));
        assert_eq!(parse_rules(&["off"]).unwrap().to_written_rules(), Some(vec!["off".to_owned()]));
        let overrides = parse_rules(&["client.search=0.5/3/90", "game_server.stream=9"]).unwrap();
        assert_eq!(overrides.to_written_rules().unwrap(), ["client.search=0.5/3/90", "game_server.stream=9"]);
    }

    #[test]
    fn invalid_rate_limit_error_shows_the_syntax() {
        let check = |texts: &[&str], expected: &str| {
            let messages = parse_rules(texts).unwrap_err();
            assert!(messages.starts_with("rate_limits: ") && messages.contains(expected), "{texts:?}: {messages}");
        };
        check(&["fast"], "write ROLE.LIMIT=PER_SECOND/BURST/PER_5_MIN, such as client.search=2/10/300");
        check(&["off", "client.search=1/1/1"], "`off` is not a rate limit");
        check(&["client.dance=1/1/1"], "use one of client.call, client.search");
        check(&["operator.stream=1"], "`operator.stream` is not a rate limit");
        check(&["client.search=0/1/1"], "with 0.01 to 100000 calls per second");
        check(&["client.search=NaN/1/1"], "is not a rate for client.search");
        for value in ["1/0/1", "1/1", "1/1/1/1", "1/-1/1", "inf/1/1", ""] {
            check(&[&format!("client.search={value}")], "such as 2/10/300");
        }
        check(&["client.stream=0"], "use 1 to 100000");
        check(&["client.search=1/1/1", "client.search=2/1/1"], "client.search is set twice; set it once");
    }
}
