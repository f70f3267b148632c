//! How often each kind of caller may ask what: the defaults, and what an operator has put in their place.
//!
//! A rule is written `ROLE.CHARGE=PER_SECOND/BURST/PER_5_MIN`: so many a second, so many at once after a rest, and so many in
//! five minutes. Streams are counted, not timed: `ROLE.stream=AT_ONCE`.

use std::fmt;
use std::ops::RangeInclusive;

use crate::config::Config;
use crate::config::validate::ConfigErrors;

/// Calls a second; below that a quota would be met by nobody, above it is none.
const CALLS_PER_SECOND_RANGE: RangeInclusive<f64> = 0.01..=100_000.0;
/// Calls at once, and calls in five minutes.
const CALL_COUNT_RANGE: RangeInclusive<u32> = 1..=10_000_000;
/// Streams at once.
const OPEN_STREAMS_RANGE: RangeInclusive<u32> = 1..=100_000;

/// Which quotas hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum RateLimitRules {
    /// The defaults, where strangers can come or callers show who they are; none for a developer on loopback.
    #[default]
    Auto,
    /// None.
    Off,
    /// The defaults, but for these.
    Overrides(Vec<RateLimitRule>),
}

/// How often callers in one role may do one kind of thing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateLimitRule {
    /// `client`, `server`, `operator`, or `anonymous` for everybody at one address.
    pub role: &'static str,
    /// What is asked for.
    pub limit: &'static str,
    /// How often.
    pub allowance: AllowedRate,
}

/// How much is allowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AllowedRate {
    /// Calls.
    Calls {
        /// In the long run of fifteen seconds, a second.
        per_second: f64,
        /// At once, after a rest.
        burst: u32,
        /// In five minutes, and a tenth more.
        per_5_min: u32,
    },
    /// Streams that are open at once.
    OpenStreams(u32),
}

/// Every quota there is, with its default (RELIABILITY 4.3). A player's client looks twice a second while it searches; a
/// server speaks for a thousand sessions; behind one address ten players may live. Calls of whatever kind are more than all
/// others together, so that they hold back nobody who keeps to those.
pub const DEFAULT_RATE_LIMITS: [RateLimitRule; 21] = [
    call_limit("client", "call", 10.0, 100, 1_500),
    call_limit("client", "search", 2.0, 10, 300),
    call_limit("client", "update", 1.0, 5, 300),
    call_limit("client", "heartbeat", 1.0, 5, 150),
    call_limit("client", "seats", 1.0, 5, 300),
    stream_limit("client", 2),
    call_limit("server", "call", 500.0, 2_000, 150_000),
    call_limit("server", "search", 50.0, 100, 15_000),
    call_limit("server", "update", 100.0, 200, 30_000),
    call_limit("server", "heartbeat", 200.0, 1_000, 60_000),
    call_limit("server", "seats", 20.0, 40, 6_000),
    stream_limit("server", 8),
    call_limit("operator", "call", 100.0, 200, 30_000),
    call_limit("operator", "operate", 50.0, 100, 15_000),
    call_limit("anonymous", "call", 100.0, 500, 30_000),
    call_limit("anonymous", "search", 20.0, 100, 3_000),
    call_limit("anonymous", "update", 10.0, 50, 3_000),
    call_limit("anonymous", "heartbeat", 10.0, 50, 1_500),
    call_limit("anonymous", "seats", 10.0, 50, 3_000),
    call_limit("anonymous", "failure", 1.0, 10, 60),
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
    /// Reads one rule; what is wrong with it otherwise, and what would be right.
    fn parse(text: &str) -> Result<Self, String> {
        let shape = "write ROLE.CHARGE=PER_SECOND/BURST/PER_5_MIN, such as client.search=2/10/300, or `off` alone";
        let (name, value) = text.split_once('=').ok_or_else(|| format!("`{text}` is no quota: {shape}"))?;
        let Some(default) = DEFAULT_RATE_LIMITS.iter().find(|rule| rule.name() == name.trim()) else {
            let known: Vec<String> = DEFAULT_RATE_LIMITS.iter().map(RateLimitRule::name).collect();
            return Err(format!("`{name}` is no quota: there are {}", known.join(", ")));
        };
        let allowance = match default.allowance {
            AllowedRate::OpenStreams(_) => {
                let streams = value.trim().parse().ok().filter(|it| OPEN_STREAMS_RANGE.contains(it));
                AllowedRate::OpenStreams(streams.ok_or_else(|| {
                    format!("`{value}` is no number of streams for {name}: use {} to {}", OPEN_STREAMS_RANGE.start(), OPEN_STREAMS_RANGE.end())
                })?)
            }
            AllowedRate::Calls { .. } => Self::parse_call_rate(value).ok_or_else(|| {
                format!(
                    "`{value}` is no quota for {name}: write PER_SECOND/BURST/PER_5_MIN, such as 2/10/300, with {} to {} a \
                     second and at least 1 of the others",
                    CALLS_PER_SECOND_RANGE.start(),
                    CALLS_PER_SECOND_RANGE.end()
                )
            })?,
        };
        Ok(Self { allowance, ..*default })
    }

    fn parse_call_rate(value: &str) -> Option<AllowedRate> {
        let mut parts = value.split('/').map(str::trim);
        let per_second = parts.next()?.parse().ok().filter(|it| CALLS_PER_SECOND_RANGE.contains(it))?;
        let burst = parts.next()?.parse().ok().filter(|it| CALL_COUNT_RANGE.contains(it))?;
        let per_5_min = parts.next()?.parse().ok().filter(|it| CALL_COUNT_RANGE.contains(it))?;
        parts.next().is_none().then_some(AllowedRate::Calls { per_second, burst, per_5_min })
    }

    /// `client.search`: what the quota is called in settings, refusals and documents.
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
    /// As they are written; none for the defaults.
    pub(super) fn to_settings(&self) -> Option<Vec<String>> {
        match self {
            RateLimitRules::Auto => None,
            RateLimitRules::Off => Some(vec!["off".into()]),
            RateLimitRules::Overrides(rules) => Some(rules.iter().map(ToString::to_string).collect()),
        }
    }
}

impl Config {
    /// Every quota that holds, one for each name; none when there are none.
    pub fn rate_limit_rules(&self) -> Option<Vec<RateLimitRule>> {
        let changed = match &self.quotas {
            RateLimitRules::Off => return None,
            RateLimitRules::Auto
                if !self.requires_authentication() && self.listen.ip().to_canonical().is_loopback() =>
            {
                return None;
            }
            RateLimitRules::Auto => &[][..],
            RateLimitRules::Overrides(rules) => rules,
        };
        let of = |rule: &RateLimitRule| *changed.iter().find(|it| it.name() == rule.name()).unwrap_or(rule);
        Some(DEFAULT_RATE_LIMITS.iter().map(of).collect())
    }
}

impl ConfigErrors {
    /// Reads the quotas; each may be set once.
    pub(super) fn parse_rate_limits(&mut self, given: Option<Vec<String>>) -> RateLimitRules {
        let Some(given) = given.filter(|given| !given.is_empty()) else { return RateLimitRules::Auto };
        if given == ["off"] {
            return RateLimitRules::Off;
        }
        let mut rules: Vec<RateLimitRule> = Vec::new();
        for text in &given {
            match RateLimitRule::parse(text) {
                Err(what) => self.add_invalid_value("quotas", what),
                Ok(rule) if rules.iter().any(|it| it.name() == rule.name()) => {
                    self.add_invalid_value("quotas", format!("{} is there twice: say it once", rule.name()));
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

    fn parse_rules(given: &[&str]) -> Result<RateLimitRules, String> {
        let mut problems = ConfigErrors(Vec::new());
        let quotas = problems.parse_rate_limits(Some(given.iter().map(|it| it.to_string()).collect()));
        let said: Vec<String> = problems.0.iter().map(ToString::to_string).collect();
        if said.is_empty() { Ok(quotas) } else { Err(said.join("\n")) }
    }

    /// SEC-11: who keeps to every other quota is never held back by that of calls.
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
        for role in ["client", "server", "operator", "anonymous"] {
            let (all, others) = (calls(role, |it| it == "call"), calls(role, |it| it != "call"));
            assert!(others.0 < all.0 && others.1 < all.1 && others.2 < all.2, "{role}: {all:?} {others:?}");
        }
    }

    #[test]
    fn rate_limit_defaults_round_trip_as_text() {
        for rule in DEFAULT_RATE_LIMITS {
            assert_eq!(RateLimitRule::parse(&rule.to_string()), Ok(rule));
            let twins = DEFAULT_RATE_LIMITS.iter().filter(|it| it.name() == rule.name());
            assert_eq!(twins.count(), 1, "{}", rule.name());
        }
        assert_eq!(parse_rules(&[]), Ok(RateLimitRules::Auto));
        assert_eq!(parse_rules(&["off"]), Ok(RateLimitRules::Off));
        assert_eq!(parse_rules(&["off"]).unwrap().to_settings(), Some(vec!["off".to_owned()]));
        let changed = parse_rules(&["client.search=0.5/3/90", "server.stream=9"]).unwrap();
        assert_eq!(changed.to_settings().unwrap(), ["client.search=0.5/3/90", "server.stream=9"]);
    }

    #[test]
    fn invalid_rate_limit_error_shows_the_syntax() {
        let check = |given: &[&str], expected: &str| {
            let said = parse_rules(given).unwrap_err();
            assert!(said.starts_with("quotas: ") && said.contains(expected), "{given:?}: {said}");
        };
        check(&["fast"], "write ROLE.CHARGE=PER_SECOND/BURST/PER_5_MIN, such as client.search=2/10/300");
        check(&["off", "client.search=1/1/1"], "`off` is no quota");
        check(&["client.dance=1/1/1"], "there are client.call, client.search");
        check(&["operator.stream=1"], "`operator.stream` is no quota");
        check(&["client.search=0/1/1"], "with 0.01 to 100000 a second");
        check(&["client.search=NaN/1/1"], "is no quota for client.search");
        for odd in ["1/0/1", "1/1", "1/1/1/1", "1/-1/1", "inf/1/1", ""] {
            check(&[&format!("client.search={odd}")], "such as 2/10/300");
        }
        check(&["client.stream=0"], "use 1 to 100000");
        check(&["client.search=1/1/1", "client.search=2/1/1"], "client.search is there twice");
    }
}
