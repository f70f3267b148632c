//! The 32-bit name of a ruleset's meaning: the same for every spelling of the same rules (S1-11).

mod queue;

use sha2::{Digest, Sha256};

use crate::domain::attribute::{Attribute, Value};
use crate::domain::expansion::Expansion;
use crate::domain::id::RulesetHash;
use crate::domain::measure::Measure;
use crate::domain::ruleset::rating::{DecayPeriods, GamePer, Momentum, OnDisconnect, RatingSpec, RatingSystem};
use crate::domain::ruleset::teams::{ReadyCheck, ServerSpec, TeamsSpec};
use crate::domain::ruleset::validate::life::{DEFAULT_RESET_AFTER_MS, DEFAULT_SERVER};
use crate::domain::ruleset::{Consent, HardFilter, HardRule, InList, Ruleset, SiloRule, SoftFilter};

/// Names `ruleset` by its meaning: the first 32 bits of the SHA-256 of everything that matters for matching, and never
/// 0, which clients send for "none".
///
/// The playlist's name, units and the XML itself are for people and do not count. The names of filters, expansions and
/// attributes do: answers, overrides and sessions use them.
pub fn hash_of(ruleset: &Ruleset) -> RulesetHash {
    let mut canon = Canon(Sha256::new());
    canon.text("fireteam ruleset 1");
    canon.whole(ruleset.set_id.0.into());
    match &ruleset.silos {
        SiloRule::Any => canon.text("any"),
        SiloRule::Only(silos) => canon.list(silos, |canon, silo| canon.whole(silo.0)),
    }
    canon.list(&ruleset.attributes, attribute);
    canon.list(&ruleset.hard, hard);
    canon.list(&ruleset.soft, soft);
    canon.list(&ruleset.expansions, expansion);
    canon.list(ruleset.chances.percents(), |canon, percent| canon.number(*percent));
    canon.whole(ruleset.limits.max_results.into());
    canon.whole(ruleset.limits.max_evaluated.into());
    canon.numbers(&[ruleset.line.intercept_ms, ruleset.line.ms_per_1000_km, ruleset.involved_phase_percent]);
    canon.option(ruleset.teams.as_ref(), teams);
    canon.option(ruleset.queue.as_ref(), queue::queue);
    canon.option(ruleset.ready_check.as_ref(), |canon, check| {
        canon.whole(check.deadline_ms.into());
        canon.whole(check.penalties_ms.first().copied().unwrap_or(0).into());
    });
    canon.option(ruleset.rating.as_ref(), rating);
    // Last, and only where they say something: rulesets from before them keep the hashes that clients know.
    if ruleset.consent == Consent::Required {
        canon.text("consent required");
    }
    ruleset.queue.iter().for_each(|it| queue::later(&mut canon, it));
    ruleset.ready_check.iter().for_each(|it| later_in_ready_check(&mut canon, it));
    if ruleset.server != DEFAULT_SERVER {
        let ServerSpec { mode, wait_ms, play_max_ms } = ruleset.server;
        canon.text("server");
        canon.word(mode);
        canon.whole(wait_ms.into());
        canon.whole(play_max_ms);
    }
    let digest = canon.0.finalize();
    let short = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]);
    RulesetHash(short.max(1))
}

/// Feeds values to the digest so that no two different sequences of them feed the same bytes: every text and list says
/// its length first, every option whether it is there.
struct Canon(Sha256);

impl Canon {
    fn whole(&mut self, number: u64) {
        self.0.update(number.to_be_bytes());
    }

    fn number(&mut self, number: f64) {
        self.0.update(number.to_bits().to_be_bytes());
    }

    fn numbers(&mut self, numbers: &[f64]) {
        self.list(numbers, |canon, number| canon.number(*number));
    }

    fn text(&mut self, text: &str) {
        self.whole(text.len() as u64);
        self.0.update(text.as_bytes());
    }

    /// A word of a closed list. Its name in the code is its name here: renaming a variant changes hashes, no more.
    fn word(&mut self, word: impl std::fmt::Debug) {
        self.text(&format!("{word:?}"));
    }

    fn list<T>(&mut self, items: &[T], each: impl Fn(&mut Self, &T)) {
        self.whole(items.len() as u64);
        items.iter().for_each(|item| each(self, item));
    }

    fn option<T>(&mut self, item: Option<&T>, some: impl Fn(&mut Self, &T)) {
        self.whole(item.is_some().into());
        item.into_iter().for_each(|item| some(self, item));
    }

    fn place(&mut self, index: usize) {
        self.whole(index as u64);
    }
}

fn attribute(canon: &mut Canon, attribute: &Attribute) {
    let Attribute { name, kind, source: _, range, unit: _, reduction, trust } = attribute;
    canon.text(name);
    canon.word(kind);
    canon.option(range.as_ref(), |canon, (min, max)| canon.numbers(&[*min, *max]));
    canon.word(reduction);
    canon.word(trust);
}

fn value(canon: &mut Canon, value: &Value) {
    canon.word(value.kind());
    match value {
        Value::Number(number) => canon.number(*number),
        Value::Text(text) => canon.text(text),
        Value::Flag(flag) => canon.whole((*flag).into()),
        Value::Texts(texts) => canon.list(texts, |canon, text| canon.text(text)),
    }
}

fn measure(canon: &mut Canon, measure: Measure) {
    match measure {
        Measure::Attribute(index) => canon.place(index),
        Measure::Latency => canon.text("latency"),
        Measure::Distance => canon.text("distance"),
    }
}

fn hard(canon: &mut Canon, filter: &HardFilter) {
    canon.text(&filter.name);
    canon.word(filter.missing);
    match &filter.rule {
        HardRule::Equal { attribute, value: constant } => {
            canon.text("equal");
            canon.place(*attribute);
            canon.option(constant.as_ref(), value);
        }
        HardRule::NotEqual { attribute, value: constant } => {
            canon.text("not_equal");
            canon.place(*attribute);
            canon.option(constant.as_ref(), value);
        }
        HardRule::In { attribute, list, mutual } => {
            canon.text("in");
            canon.place(*attribute);
            match list {
                InList::Attribute(index) => {
                    canon.text("attribute");
                    canon.place(*index);
                }
                InList::Texts(texts) => {
                    canon.text("texts");
                    canon.list(texts, |canon, text| canon.text(text));
                }
            }
            canon.whole((*mutual).into());
        }
        HardRule::Range { attribute, min, max } => {
            canon.text("range");
            canon.place(*attribute);
            canon.numbers(&[*min, *max]);
        }
        HardRule::Overlap { attribute } => {
            canon.text("overlap");
            canon.place(*attribute);
        }
        HardRule::Compatible { attribute, pairs } => {
            canon.text("compatible");
            canon.place(*attribute);
            canon.list(pairs, |canon, (low, high)| canon.numbers(&[f64::from(*low), f64::from(*high)]));
        }
        HardRule::Within { measure: measured, expansion, reciprocal_percent } => {
            canon.text("within");
            measure(canon, *measured);
            canon.place(*expansion);
            canon.number(*reciprocal_percent);
        }
        HardRule::SameHash => canon.text("same_hash"),
    }
}

fn soft(canon: &mut Canon, filter: &SoftFilter) {
    canon.text(&filter.name);
    measure(canon, filter.measure);
    canon.numbers(&[filter.weight, filter.min, filter.max]);
    canon.word(filter.mode);
    canon.word(filter.curve);
    canon.word(filter.missing);
}

/// Only where the limit changes: equal neighbours are one step, however they are cut.
fn expansion(canon: &mut Canon, expansion: &Expansion) {
    canon.text(&expansion.name);
    measure(canon, expansion.measure);
    let mut steps = expansion.steps().to_vec();
    steps.dedup_by_key(|step| step.value);
    canon.list(&steps, |canon, step| {
        canon.whole(step.start_ms);
        canon.number(step.value);
    });
}

fn teams(canon: &mut Canon, teams: &TeamsSpec) {
    let TeamsSpec { sizes, max_party_size, exact_up_to_size, roles, role_attribute } = teams;
    match &**sizes {
        [size, rest @ ..] if rest.iter().all(|other| other == size) => {
            let numbers = [sizes.len() as u64, (*size).into(), (*max_party_size).into(), (*exact_up_to_size).into()];
            canon.list(&numbers, |canon, number| canon.whole(*number));
        }
        sizes => {
            canon.text("sizes");
            canon.list(sizes, |canon, size| canon.whole((*size).into()));
            canon.whole((*max_party_size).into());
            canon.whole((*exact_up_to_size).into());
        }
    }
    canon.list(roles, |canon, role| {
        canon.text(&role.name);
        canon.whole(role.per_team.into());
    });
    canon.option(role_attribute.as_ref(), |canon, index| canon.place(*index));
}

/// A ladder of more than one step, or one that begins anew sooner or later than in a day.
fn later_in_ready_check(canon: &mut Canon, check: &ReadyCheck) {
    let ReadyCheck { deadline_ms: _, penalties_ms, reset_after_ms } = check;
    if 1 < penalties_ms.len() || *reset_after_ms != DEFAULT_RESET_AFTER_MS {
        canon.text("ladder");
        canon.list(penalties_ms, |canon, ms| canon.whole((*ms).into()));
        canon.whole(*reset_after_ms);
    }
}

fn rating(canon: &mut Canon, rating: &RatingSpec) {
    canon.text(rating.system.as_str());
    match rating.system {
        RatingSystem::Elo { initial, k, scale } => canon.numbers(&[initial, k, scale]),
        RatingSystem::Glicko { initial, deviation, min_deviation, c, period_ms } => {
            canon.numbers(&[initial, deviation, min_deviation, c]);
            canon.whole(period_ms);
        }
        RatingSystem::Glicko2 { initial, deviation, volatility, tau, period_ms } => {
            canon.numbers(&[initial, deviation, volatility, tau]);
            canon.whole(period_ms);
        }
        RatingSystem::TrueSkill { mu, sigma, beta, tau, draw_percent } => {
            canon.numbers(&[mu, sigma, beta, tau, draw_percent]);
        }
        RatingSystem::PlackettLuce { mu, sigma, beta, kappa, tau } => canon.numbers(&[mu, sigma, beta, kappa, tau]),
    }
    canon.number(rating.z);
    canon.option(rating.decay.as_ref(), |canon, decay| {
        canon.whole(decay.every_ms);
        canon.numbers(&[decay.deviation, decay.max_deviation]);
    });
    later_in_rating(canon, rating);
}

/// What `<Rating>` could not say at first: where it says nothing of it, the hash is as it was.
fn later_in_rating(canon: &mut Canon, rating: &RatingSpec) {
    let RatingSpec { system: _, z: _, decay, momentum, placement_matches, on_disconnect, game_per } = rating;
    if decay.is_some_and(|decay| decay.periods == DecayPeriods::Played) {
        canon.text("decay while played");
    }
    if let Some(Momentum { after, factor }) = momentum {
        canon.text("momentum");
        canon.whole((*after).into());
        canon.number(*factor);
    }
    if *placement_matches != 0 {
        canon.text("placement");
        canon.whole((*placement_matches).into());
    }
    if *on_disconnect != OnDisconnect::Rate {
        canon.text("on disconnect");
        canon.word(on_disconnect);
    }
    if *game_per != GamePer::Match {
        canon.text("game per");
        canon.word(game_per);
    }
}
