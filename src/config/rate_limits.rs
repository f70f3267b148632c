//! Rate limit settings: default call rates and open streams by role, and an operator's overrides.
//!
//! Syntax: `ROLE.LIMIT=PER_SECOND/BURST/PER_5_MIN`, the sustained rate per second, the burst size, and the maximum in
//! five minutes. For open streams: `ROLE.stream=COUNT`.

use std::fmt;
use std::ops::RangeInclusive;

use crate::config::Config;
use crate::config::validate::ConfigErrors;

/// Calls per second. Lower values would block any caller; higher ones would not limit.
const CALLS_PER_SECOND_RANGE: RangeInclusive<f64> = 0.01..=100_000.0;
/// Calls in a burst, and calls in five minutes.
const CALL_COUNT_RANGE: RangeInclusive<u32> = 1..=10_000_000;
/// Streams open at the same time.
const OPEN_STREAMS_RANGE: RangeInclusive<u32> = 1..=100_000;

/// Rate limits in effect.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum RateLimitRules {
    /// The defaults; none for anonymous callers on loopback.
    #[default]
    Auto,
    /// None.
    Off,
    /// The defaults with these changes.
    Overrides(Vec<RateLimitRule>),
}

/// Rate limit of one role for one kind of call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateLimitRule {
    /// `client`, `game_server`, `operator`, or `anonymous` for all anonymous callers of one address.
    pub role: &'static str,
    /// Kind of call.
    pub limit: &'static str,
    /// Allowed rate.
    pub allowance: AllowedRate,
}

/// Allowed rate of calls, or number of open streams.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AllowedRate {
    /// Calls.
    Calls {
        /// Calls per second, sustained over fifteen seconds.
        per_second: f64,
        /// Calls in a burst.
        burst: u32,
        /// Calls in five minutes, with a tolerance of ten percent.
        per_5_min: u32,
    },
    /// Streams open at the same time.
    OpenStreams(u32),
}

/// All rate limits with their defaults. A client polls twice a second while it searches. A game server acts for a
/// thousand sessions. One address may have ten players. The limit on all calls exceeds the sum of the others, so it
/// never blocks a caller that respects them.
pub const DEFAULT_RATE_LIMITS: [RateLimitRule; 21] = [
    call_limit("client", "call", 10.0, 100, 1_500),
    call_limit("client", "search", 2.0, 10, 300),
    call_limit("client", "update", 1.0, 5, 300),
    call_limit("client", "heartbeat", 1.0, 5, 150),
    call_limit("client", "seats", 1.0, 5, 300),
    stream_limit("client", 2),
    call_limit("game_server", "call", 500.0, 2_000, 150_000),
    call_limit("game_server", "search", 50.0, 100, 15_000),
    call_limit("game_server", "update", 100.0, 200, 30_000),
    call_limit("game_server", "heartbeat", 200.0, 1_000, 60_000),
    call_limit("game_server", "seats", 20.0, 40, 6_000),
    stream_limit("game_server", 8),
    call_limit("operator", "call", 100.0, 200, 30_000),
    call_limit("operator", "operator", 50.0, 100, 15_000),
    call_limit("anonymous", "call", 100.0, 500, 30_000),
    call_limit("anonymous", "search", 20.0, 100, 3_000),
    call_limit("anonymous", "update", 10.0, 50, 3_000),
    call_limit("anonymous", "heartbeat", 10.0, 50, 1_500),
    call_limit("anonymous", "seats", 10.0, 50, 3_000),
    call_limit("anonymous", "auth_failure", 1.0, 10, 60),
    stream_limit("anonymous", 20),
];

const fn call_limit(
    role: &'static str,
    charge: &'static str,
    per_second: f64,
    burst: u32,
    per_5_min: u32,
) -> RateLimitRule {
    RateLimitRule { role, limit: charge, allowance: AllowedRate::Calls { per_second, burst, per_5_min } }
}

const fn stream_limit(role: &'static str, streams: u32) -> RateLimitRule {
    RateLimitRule { role, limit: "stream", allowance: AllowedRate::OpenStreams(streams) }
}

impl RateLimitRule {
    /// Parses one rule. The error says how to write it.
    fn parse(text: &str) -> Result<Self, String> {
        let syntax = "write ROLE.LIMIT=PER_SECOND/BURST/PER_5_MIN, such as client.search=2/10/300, or `off` alone";
        let (name, value) = text.split_once('=').ok_or_else(|| format!("`{text}` is not a rate limit; {syntax}"))?;
        let Some(default) = DEFAULT_RATE_LIMITS.iter().find(|rule| rule.name() == name.trim()) else {
            let known: Vec<String> = DEFAULT_RATE_LIMITS.iter().map(RateLimitRule::name).collect();
            return Err(format!("`{name}` is not a rate limit; use one of {}", known.join(", ")));
        };
        let allowance = match default.allowance {
            AllowedRate::OpenStreams(_) => {
                let streams = value.trim().parse().ok().filter(|count| OPEN_STREAMS_RANGE.contains(count));
                AllowedRate::OpenStreams(streams.ok_or_else(|| {
                    let (least, most) = (OPEN_STREAMS_RANGE.start(), OPEN_STREAMS_RANGE.end());
                    format!("`{value}` is not a number of streams for {name}; use {least} to {most}")
                })?)
            }
            AllowedRate::Calls { .. } => Self::parse_call_rate(value).ok_or_else(|| {
                format!(
                    "`{value}` is not a rate for {name}; write PER_SECOND/BURST/PER_5_MIN, such as 2/10/300, with \
                     {} to {} calls per second and at least 1 for the others",
                    CALLS_PER_SECOND_RANGE.start(),
                    CALLS_PER_SECOND_RANGE.end()
                )
            })?,
        };
        Ok(Self { allowance, ..*default })
    }

    fn parse_call_rate(value: &str) -> Option<AllowedRate> {
        let mut parts = value.split('/').map(str::trim);
        let per_second = parts.next()?.parse().ok().filter(|rate| CALLS_PER_SECOND_RANGE.contains(rate))?;
        let burst = parts.next()?.parse().ok().filter(|count| CALL_COUNT_RANGE.contains(count))?;
        let per_5_min = parts.next()?.parse().ok().filter(|count| CALL_COUNT_RANGE.contains(count))?;
        parts.next().is_none().then_some(AllowedRate::Calls { per_second, burst, per_5_min })
    }

    /// Name in settings, errors and documents; for example, `client.search`.
    pub fn name(&self) -> String {
        format!("{}.{}", self.role, self.limit)
    }
}

impl fmt::Display for RateLimitRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.allowance {
            AllowedRate::OpenStreams(streams) => write!(f, "{}={streams}", self.name()),
            AllowedRate::Calls { per_second, burst, per_5_min } => {
                write!(f, "{}={per_second}/{burst}/{per_5_min}", self.name())
            }
        }
    }
}

impl RateLimitRules {
    /// Rules as written; `None` for the defaults.
    pub(super) fn to_settings(&self) -> Option<Vec<String>> {
        match self {
            RateLimitRules::Auto => None,
            RateLimitRules::Off => Some(vec!["off".into()]),
            RateLimitRules::Overrides(rules) => Some(rules.iter().map(ToString::to_string).collect()),
        }
    }
}

impl Config {
    /// Rate limits in effect, one per name; `None` if there are none.
    pub fn rate_limit_rules(&self) -> Option<Vec<RateLimitRule>> {
        let overrides = match &self.rate_limits {
            RateLimitRules::Off => return None,
            RateLimitRules::Auto if !self.requires_authentication() && self.listen.is_loopback() => {
                return None;
            }
            RateLimitRules::Auto => &[][..],
            RateLimitRules::Overrides(rules) => rules,
        };
        let effective =
            |rule: &RateLimitRule| *overrides.iter().find(|other| other.name() == rule.name()).unwrap_or(rule);
        Some(DEFAULT_RATE_LIMITS.iter().map(effective).collect())
    }
}

impl ConfigErrors {
    /// Parses rate limits; each name may appear once.
    pub(super) fn parse_rate_limits(&mut self, texts: Option<Vec<String>>) -> RateLimitRules {
        let Some(texts) = texts.filter(|texts| !texts.is_empty()) else { return RateLimitRules::Auto };
        if texts == ["off"] {
            return RateLimitRules::Off;
        }
        let mut rules: Vec<RateLimitRule> = Vec::new();
        for text in &texts {
            match RateLimitRule::parse(text) {
                Err(message) => self.add_invalid_value("rate_limits", message),
                Ok(rule) if rules.iter().any(|other| other.name() == rule.name()) => {
                    self.add_invalid_value("rate_limits", format!("{} is set twice; set it once", rule.name()));
                }
                Ok(rule) => rules.push(rule),
            }
        }
        RateLimitRules::Overrides(rules)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_rules(texts: &[&str]) -> Result<RateLimitRules, String> {
        let mut errors = ConfigErrors(Vec::new());
        let rate_limits = errors.parse_rate_limits(Some(texts.iter().map(|text| text.to_string()).collect()));
        let messages: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
        if messages.is_empty() { Ok(rate_limits) } else { Err(messages.join("\n")) }
    }

    /// SEC-11: a caller that respects the other limits never reaches the limit on all calls.
    #[test]
    fn call_rate_limit_exceeds_the_sum_of_the_others() {
        let calls = |role: &str, counts: fn(&str) -> bool| {
            let of_role = DEFAULT_RATE_LIMITS.iter().filter(|rule| rule.role == role && counts(rule.limit));
            of_role.fold((0.0, 0, 0), |sum, rule| match rule.allowance {
                AllowedRate::Calls { per_second, burst, per_5_min } => {
                    (sum.0 + per_second, sum.1 + burst, sum.2 + per_5_min)
                }
                AllowedRate::OpenStreams(_) => sum,
            })
        };
        for role in ["client", "game_server", "operator", "anonymous"] {
            let (all, others) = (calls(role, |limit| limit == "call"), calls(role, |limit| limit != "call"));
            assert!(all.0 > others.0 && all.1 > others.1 && all.2 > others.2, "{role}: {all:?} {others:?}");
        }
    }

    #[test]
    fn rate_limit_defaults_round_trip_as_text() {
        for rule in DEFAULT_RATE_LIMITS {
            assert_eq!(RateLimitRule::parse(&rule.to_string()), Ok(rule));
            let same_name = DEFAULT_RATE_LIMITS.iter().filter(|other| other.name() == rule.name());
            assert_eq!(same_name.count(), 1, "{}", rule.name());
        }
        assert_eq!(parse_rules(&[]), Ok(RateLimitRules::Auto));
        assert_eq!(parse_rules(&["off"]), Ok(RateLimitRules::Off));
        assert_eq!(parse_rules(&["off"]).unwrap().to_settings(), Some(vec!["off".to_owned()]));
        let overrides = parse_rules(&["client.search=0.5/3/90", "game_server.stream=9"]).unwrap();
        assert_eq!(overrides.to_settings().unwrap(), ["client.search=0.5/3/90", "game_server.stream=9"]);
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
