//! Rate limit settings: default call rates and open streams by role, and an operator's overrides.
//!
//! Syntax: `ROLE.LIMIT=PER_SECOND/BURST/PER_5_MIN`, the sustained rate per second, the burst size, and the maximum in
//! five minutes. For open streams: `ROLE.stream=COUNT`.

use std::fmt;
use std::ops::RangeInclusive;

/// Calls per second. Lower values would block any caller; higher ones would not limit.
const CALLS_PER_SECOND_RANGE: RangeInclusive<f64> = 0.01..=100_000.0;
/// Calls in a burst, and calls in five minutes.
const CALL_COUNT_RANGE: RangeInclusive<u32> = 1..=10_000_000;
/// Streams open at the same time.
const OPEN_STREAMS_RANGE: RangeInclusive<u32> = 1..=100_000;

/// Rate limits in effect.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum RateLimitSetting {
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
    /// `client`, `game_server`, `operator`, `anonymous` for all anonymous callers of one address, `client_address` for all
    /// players' clients of one address, or `health_check` for the health checks of one trusted proxy.
    pub role: &'static str,
    /// Kind of call.
    pub limit: &'static str,
    /// Allowed rate.
    pub allowance: CallRateOrOpenStreamsMax,
}

/// Allowed rate of calls, or number of open streams.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CallRateOrOpenStreamsMax {
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
///
/// `client_address` holds the players' clients at one address together, for any accounts: twenty times the
/// limit of one, so that a household or a student residence stays below it.
pub const DEFAULT_RATE_LIMITS: [RateLimitRule; 27] = [
    call_rate_rule("client", "call", 10.0, 100, 1_500),
    call_rate_rule("client", "search", 2.0, 10, 300),
    call_rate_rule("client", "update", 1.0, 5, 300),
    call_rate_rule("client", "heartbeat", 1.0, 5, 150),
    call_rate_rule("client", "seats", 1.0, 5, 300),
    open_streams_rule("client", 2),
    call_rate_rule("client_address", "call", 200.0, 2_000, 30_000),
    call_rate_rule("client_address", "search", 40.0, 200, 6_000),
    call_rate_rule("client_address", "update", 20.0, 100, 6_000),
    call_rate_rule("client_address", "seats", 20.0, 100, 6_000),
    call_rate_rule("game_server", "call", 500.0, 2_000, 150_000),
    call_rate_rule("game_server", "search", 50.0, 100, 15_000),
    call_rate_rule("game_server", "update", 100.0, 200, 30_000),
    call_rate_rule("game_server", "heartbeat", 200.0, 1_000, 60_000),
    call_rate_rule("game_server", "seats", 20.0, 40, 6_000),
    open_streams_rule("game_server", 8),
    call_rate_rule("operator", "call", 100.0, 200, 30_000),
    call_rate_rule("operator", "operator", 50.0, 100, 15_000),
    call_rate_rule("anonymous", "call", 100.0, 500, 30_000),
    call_rate_rule("anonymous", "search", 20.0, 100, 3_000),
    call_rate_rule("anonymous", "update", 10.0, 50, 3_000),
    call_rate_rule("anonymous", "heartbeat", 10.0, 50, 1_500),
    call_rate_rule("anonymous", "seats", 10.0, 50, 3_000),
    call_rate_rule("anonymous", "auth_failure", 1.0, 10, 60),
    call_rate_rule("anonymous", "verification", 20.0, 200, 6_000),
    open_streams_rule("anonymous", 20),
    call_rate_rule("health_check", "call", 100.0, 500, 30_000),
];

const fn call_rate_rule(
    role: &'static str,
    charge: &'static str,
    per_second: f64,
    burst: u32,
    per_5_min: u32,
) -> RateLimitRule {
    RateLimitRule { role, limit: charge, allowance: CallRateOrOpenStreamsMax::Calls { per_second, burst, per_5_min } }
}

const fn open_streams_rule(role: &'static str, streams: u32) -> RateLimitRule {
    RateLimitRule { role, limit: "stream", allowance: CallRateOrOpenStreamsMax::OpenStreams(streams) }
}

impl RateLimitRule {
    /// Parses one rule. The error says how to write it.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let syntax = "write ROLE.LIMIT=PER_SECOND/BURST/PER_5_MIN, such as client.search=2/10/300, or `off` alone";
        let (name, value) = text.split_once('=').ok_or_else(|| format!("`{text}` is not a rate limit; {syntax}"))?;
        let Some(default) = DEFAULT_RATE_LIMITS.iter().find(|rule| rule.setting_name() == name.trim()) else {
            let known: Vec<String> = DEFAULT_RATE_LIMITS.iter().map(RateLimitRule::setting_name).collect();
            return Err(format!("`{name}` is not a rate limit; use one of {}", known.join(", ")));
        };
        let allowance = match default.allowance {
            CallRateOrOpenStreamsMax::OpenStreams(_) => {
                let streams = value.trim().parse().ok().filter(|count| OPEN_STREAMS_RANGE.contains(count));
                CallRateOrOpenStreamsMax::OpenStreams(streams.ok_or_else(|| {
                    let (least, most) = (OPEN_STREAMS_RANGE.start(), OPEN_STREAMS_RANGE.end());
                    format!("`{value}` is not a number of streams for {name}; use {least} to {most}")
                })?)
            }
            CallRateOrOpenStreamsMax::Calls { .. } => Self::parse_call_rate(value).ok_or_else(|| {
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

    fn parse_call_rate(value: &str) -> Option<CallRateOrOpenStreamsMax> {
        let mut parts = value.split('/').map(str::trim);
        let per_second = parts.next()?.parse().ok().filter(|rate| CALLS_PER_SECOND_RANGE.contains(rate))?;
        let burst = parts.next()?.parse().ok().filter(|count| CALL_COUNT_RANGE.contains(count))?;
        let per_5_min = parts.next()?.parse().ok().filter(|count| CALL_COUNT_RANGE.contains(count))?;
        parts.next().is_none().then_some(CallRateOrOpenStreamsMax::Calls { per_second, burst, per_5_min })
    }

    /// Name in settings, errors and documents; for example, `client.search`.
    pub fn setting_name(&self) -> String {
        format!("{}.{}", self.role, self.limit)
    }
}

impl fmt::Display for RateLimitRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.allowance {
            CallRateOrOpenStreamsMax::OpenStreams(streams) => write!(f, "{}={streams}", self.setting_name()),
            CallRateOrOpenStreamsMax::Calls { per_second, burst, per_5_min } => {
                write!(f, "{}={per_second}/{burst}/{per_5_min}", self.setting_name())
            }
        }
    }
}

impl RateLimitSetting {
    /// Rules as written; `None` for the defaults.
    pub(super) fn to_written_rules(&self) -> Option<Vec<String>> {
        match self {
            RateLimitSetting::Auto => None,
            RateLimitSetting::Off => Some(vec!["off".into()]),
            RateLimitSetting::Overrides(rules) => Some(rules.iter().map(ToString::to_string).collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SEC-11: a caller that respects the other limits never reaches the limit on all calls.
    #[test]
    fn call_rate_limit_exceeds_the_sum_of_the_others() {
        let calls = |role: &str, counts: fn(&str) -> bool| {
            let of_role = DEFAULT_RATE_LIMITS.iter().filter(|rule| rule.role == role && counts(rule.limit));
            of_role.fold((0.0, 0, 0), |sum, rule| match rule.allowance {
                CallRateOrOpenStreamsMax::Calls { per_second, burst, per_5_min } => {
                    (sum.0 + per_second, sum.1 + burst, sum.2 + per_5_min)
                }
                CallRateOrOpenStreamsMax::OpenStreams(_) => sum,
            })
        };
        for role in ["client", "client_address", "game_server", "operator", "anonymous"] {
            let (all, others) = (calls(role, |limit| limit == "call"), calls(role, |limit| limit != "call"));
            assert!(all.0 > others.0 && all.1 > others.1 && all.2 > others.2, "{role}: {all:?} {others:?}");
        }
    }
}
