//! How often each kind of caller may ask what: the defaults, and what an operator has put in their place.
//!
//! A rule is written `ROLE.CHARGE=PER_SECOND/BURST/PER_5_MIN`: so many a second, so many at once after a rest, and so many in
//! five minutes. Streams are counted, not timed: `ROLE.stream=AT_ONCE`.

use std::fmt;
use std::ops::RangeInclusive;

use crate::config::Config;
use crate::config::check::Problems;

/// Calls a second; below that a quota would be met by nobody, above it is none.
const PER_SECOND: RangeInclusive<f64> = 0.01..=100_000.0;
/// Calls at once, and calls in five minutes.
const CALLS: RangeInclusive<u32> = 1..=10_000_000;
/// Streams at once.
const STREAMS: RangeInclusive<u32> = 1..=100_000;

/// Which quotas hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Quotas {
    /// The defaults, where strangers can come or callers show who they are; none for a developer on loopback.
    #[default]
    Auto,
    /// None.
    Off,
    /// The defaults, but for these.
    With(Vec<QuotaRule>),
}

/// How often callers in one role may do one kind of thing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QuotaRule {
    /// `client`, `server`, `operator`, or `anonymous` for everybody at one address.
    pub role: &'static str,
    /// What is asked for.
    pub charge: &'static str,
    /// How often.
    pub allowance: Allowance,
}

/// How much is allowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Allowance {
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
    AtOnce(u32),
}

/// Every quota there is, with its default (RELIABILITY 4.3). A player's client looks twice a second while it searches; a
/// server speaks for a thousand sessions; behind one address ten players may live. Calls of whatever kind are more than all
/// others together, so that they hold back nobody who keeps to those.
pub const DEFAULTS: [QuotaRule; 21] = [
    calls("client", "call", 10.0, 100, 1_500),
    calls("client", "search", 2.0, 10, 300),
    calls("client", "update", 1.0, 5, 300),
    calls("client", "heartbeat", 1.0, 5, 150),
    calls("client", "seats", 1.0, 5, 300),
    at_once("client", 2),
    calls("server", "call", 500.0, 2_000, 150_000),
    calls("server", "search", 50.0, 100, 15_000),
    calls("server", "update", 100.0, 200, 30_000),
    calls("server", "heartbeat", 200.0, 1_000, 60_000),
    calls("server", "seats", 20.0, 40, 6_000),
    at_once("server", 8),
    calls("operator", "call", 100.0, 200, 30_000),
    calls("operator", "operate", 50.0, 100, 15_000),
    calls("anonymous", "call", 100.0, 500, 30_000),
    calls("anonymous", "search", 20.0, 100, 3_000),
    calls("anonymous", "update", 10.0, 50, 3_000),
    calls("anonymous", "heartbeat", 10.0, 50, 1_500),
    calls("anonymous", "seats", 10.0, 50, 3_000),
    calls("anonymous", "failure", 1.0, 10, 60),
    at_once("anonymous", 20),
];

const fn calls(role: &'static str, charge: &'static str, per_second: f64, burst: u32, per_5_min: u32) -> QuotaRule {
    QuotaRule { role, charge, allowance: Allowance::Calls { per_second, burst, per_5_min } }
}

const fn at_once(role: &'static str, streams: u32) -> QuotaRule {
    QuotaRule { role, charge: "stream", allowance: Allowance::AtOnce(streams) }
}

impl QuotaRule {
    /// Reads one rule; what is wrong with it otherwise, and what would be right.
    fn parse(text: &str) -> Result<Self, String> {
        let shape = "write ROLE.CHARGE=PER_SECOND/BURST/PER_5_MIN, such as client.search=2/10/300, or `off` alone";
        let (name, value) = text.split_once('=').ok_or_else(|| format!("`{text}` is no quota: {shape}"))?;
        let Some(default) = DEFAULTS.iter().find(|rule| rule.name() == name.trim()) else {
            let known: Vec<String> = DEFAULTS.iter().map(QuotaRule::name).collect();
            return Err(format!("`{name}` is no quota: there are {}", known.join(", ")));
        };
        let allowance = match default.allowance {
            Allowance::AtOnce(_) => {
                let streams = value.trim().parse().ok().filter(|it| STREAMS.contains(it));
                Allowance::AtOnce(streams.ok_or_else(|| {
                    format!("`{value}` is no number of streams for {name}: use {} to {}", STREAMS.start(), STREAMS.end())
                })?)
            }
            Allowance::Calls { .. } => Self::parse_calls(value).ok_or_else(|| {
                format!(
                    "`{value}` is no quota for {name}: write PER_SECOND/BURST/PER_5_MIN, such as 2/10/300, with {} to {} a \
                     second and at least 1 of the others",
                    PER_SECOND.start(),
                    PER_SECOND.end()
                )
            })?,
        };
        Ok(Self { allowance, ..*default })
    }

    fn parse_calls(value: &str) -> Option<Allowance> {
        let mut parts = value.split('/').map(str::trim);
        let per_second = parts.next()?.parse().ok().filter(|it| PER_SECOND.contains(it))?;
        let burst = parts.next()?.parse().ok().filter(|it| CALLS.contains(it))?;
        let per_5_min = parts.next()?.parse().ok().filter(|it| CALLS.contains(it))?;
        parts.next().is_none().then_some(Allowance::Calls { per_second, burst, per_5_min })
    }

    /// `client.search`: what the quota is called in settings, refusals and documents.
    pub fn name(&self) -> String {
        format!("{}.{}", self.role, self.charge)
    }
}

impl fmt::Display for QuotaRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.allowance {
            Allowance::AtOnce(streams) => write!(f, "{}={streams}", self.name()),
            Allowance::Calls { per_second, burst, per_5_min } => {
                write!(f, "{}={per_second}/{burst}/{per_5_min}", self.name())
            }
        }
    }
}

impl Quotas {
    /// As they are written; none for the defaults.
    pub(super) fn to_settings(&self) -> Option<Vec<String>> {
        match self {
            Quotas::Auto => None,
            Quotas::Off => Some(vec!["off".into()]),
            Quotas::With(rules) => Some(rules.iter().map(ToString::to_string).collect()),
        }
    }
}

impl Config {
    /// Every quota that holds, one for each name; none when there are none.
    pub fn quota_rules(&self) -> Option<Vec<QuotaRule>> {
        let changed = match &self.quotas {
            Quotas::Off => return None,
            Quotas::Auto if !self.authenticates() && self.listen.ip().to_canonical().is_loopback() => return None,
            Quotas::Auto => &[][..],
            Quotas::With(rules) => rules,
        };
        let of = |rule: &QuotaRule| *changed.iter().find(|it| it.name() == rule.name()).unwrap_or(rule);
        Some(DEFAULTS.iter().map(of).collect())
    }
}

impl Problems {
    /// Reads the quotas; each may be set once.
    pub(super) fn quotas(&mut self, given: Option<Vec<String>>) -> Quotas {
        let Some(given) = given.filter(|given| !given.is_empty()) else { return Quotas::Auto };
        if given == ["off"] {
            return Quotas::Off;
        }
        let mut rules: Vec<QuotaRule> = Vec::new();
        for text in &given {
            match QuotaRule::parse(text) {
                Err(what) => self.invalid("quotas", what),
                Ok(rule) if rules.iter().any(|it| it.name() == rule.name()) => {
                    self.invalid("quotas", format!("{} is there twice: say it once", rule.name()));
                }
                Ok(rule) => rules.push(rule),
            }
        }
        Quotas::With(rules)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(given: &[&str]) -> Result<Quotas, String> {
        let mut problems = Problems(Vec::new());
        let quotas = problems.quotas(Some(given.iter().map(|it| it.to_string()).collect()));
        let said: Vec<String> = problems.0.iter().map(ToString::to_string).collect();
        if said.is_empty() { Ok(quotas) } else { Err(said.join("\n")) }
    }

    /// SEC-11: who keeps to every other quota is never held back by that of calls.
    #[test]
    fn calls_may_be_as_many_as_all_that_is_asked() {
        let calls = |role: &str, counts: fn(&str) -> bool| {
            let of_role = DEFAULTS.iter().filter(|rule| rule.role == role && counts(rule.charge));
            of_role.fold((0.0, 0, 0), |sum, rule| match rule.allowance {
                Allowance::Calls { per_second, burst, per_5_min } => {
                    (sum.0 + per_second, sum.1 + burst, sum.2 + per_5_min)
                }
                Allowance::AtOnce(_) => sum,
            })
        };
        for role in ["client", "server", "operator", "anonymous"] {
            let (all, others) = (calls(role, |it| it == "call"), calls(role, |it| it != "call"));
            assert!(others.0 < all.0 && others.1 < all.1 && others.2 < all.2, "{role}: {all:?} {others:?}");
        }
    }

    #[test]
    fn defaults_are_sound_and_read_back_as_written() {
        for rule in DEFAULTS {
            assert_eq!(QuotaRule::parse(&rule.to_string()), Ok(rule));
            let twins = DEFAULTS.iter().filter(|it| it.name() == rule.name());
            assert_eq!(twins.count(), 1, "{}", rule.name());
        }
        assert_eq!(read(&[]), Ok(Quotas::Auto));
        assert_eq!(read(&["off"]), Ok(Quotas::Off));
        assert_eq!(read(&["off"]).unwrap().to_settings(), Some(vec!["off".to_owned()]));
        let changed = read(&["client.search=0.5/3/90", "server.stream=9"]).unwrap();
        assert_eq!(changed.to_settings().unwrap(), ["client.search=0.5/3/90", "server.stream=9"]);
    }

    #[test]
    fn what_is_no_quota_is_told_what_would_be_right() {
        let check = |given: &[&str], expected: &str| {
            let said = read(given).unwrap_err();
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
