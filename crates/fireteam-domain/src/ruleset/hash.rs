//! The 32-bit name of a ruleset's meaning: the same for every spelling of the same rules (S1-11).

mod queue;

use sha2::{Digest, Sha256};

use crate::attribute::{Attribute, AttributeValue};
use crate::expansion::Expansion;
use crate::id::RulesetHash;
use crate::measure::Measure;
use crate::ruleset::rating::{
    DecayPeriodFilter, DisconnectPolicy, RatedGameUnit, RatingSpec, RatingSystem, StreakMomentum,
};
use crate::ruleset::teams::{HostingSpec, ReadyCheckSpec, TeamsSpec};
use crate::ruleset::validate::lifecycle::{DEFAULT_HOSTING, DEFAULT_PENALTY_RESET_AFTER_MS};
use crate::ruleset::{HardFilter, HardRule, InFilterList, PartyConsentPolicy, Ruleset, ServedSilos, SoftFilter};

/// Names `ruleset` by its meaning: the first 32 bits of the SHA-256 of everything that matters for matching, and never
/// 0, which clients send for "none".
///
/// The playlist's name, units and the XML itself are for people and do not count. The names of filters, expansions and
/// attributes do: answers, overrides and sessions use them.
pub fn ruleset_hash(ruleset: &Ruleset) -> RulesetHash {
    let mut canon = CanonicalWriter(Sha256::new());
    canon.string("fireteam ruleset 1");
    canon.integer(ruleset.set_id.0.into());
    match &ruleset.silos {
        ServedSilos::Any => canon.string("any"),
        ServedSilos::Only(silos) => canon.list(silos, |canon, silo| canon.integer(silo.0)),
    }
    canon.list(&ruleset.attributes, write_attribute);
    canon.list(&ruleset.hard_filters, write_hard_filter);
    canon.list(&ruleset.soft_filters, write_soft_filter);
    canon.list(&ruleset.expansions, write_expansion);
    canon.list(ruleset.advertise_chances.percents(), |canon, percent| canon.float(*percent));
    canon.integer(ruleset.search_limits.max_results.into());
    canon.integer(ruleset.search_limits.max_evaluated.into());
    canon.floats(&[
        ruleset.latency_model.intercept_ms,
        ruleset.latency_model.ms_per_1000_km,
        ruleset.involved_phase_percent,
    ]);
    canon.option(ruleset.teams.as_ref(), write_teams);
    canon.option(ruleset.queue.as_ref(), queue::write_queue);
    canon.option(ruleset.ready_check.as_ref(), |canon, check| {
        canon.integer(check.deadline_ms.into());
        canon.integer(check.penalty_cooldowns_ms.first().copied().unwrap_or(0).into());
    });
    canon.option(ruleset.rating.as_ref(), write_rating);
    // Last, and only where they say something: rulesets from before them keep the hashes that clients know.
    if ruleset.consent == PartyConsentPolicy::Required {
        canon.string("consent required");
    }
    ruleset.queue.iter().for_each(|it| queue::write_queue_additions(&mut canon, it));
    ruleset.ready_check.iter().for_each(|it| write_penalty_schedule(&mut canon, it));
    if ruleset.server != DEFAULT_HOSTING {
        let HostingSpec { mode, wait_ms, play_max_ms } = ruleset.server;
        canon.string("server");
        canon.variant_name(mode);
        canon.integer(wait_ms.into());
        canon.integer(play_max_ms);
    }
    let digest = canon.0.finalize();
    let short = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]);
    RulesetHash(short.max(1))
}

/// Feeds values to the digest so that no two different sequences of them feed the same bytes: every text and list says
/// its length first, every option whether it is there.
struct CanonicalWriter(Sha256);

impl CanonicalWriter {
    fn integer(&mut self, number: u64) {
        self.0.update(number.to_be_bytes());
    }

    fn float(&mut self, number: f64) {
        self.0.update(number.to_bits().to_be_bytes());
    }

    fn floats(&mut self, numbers: &[f64]) {
        self.list(numbers, |canon, number| canon.float(*number));
    }

    fn string(&mut self, text: &str) {
        self.integer(text.len() as u64);
        self.0.update(text.as_bytes());
    }

    /// A word of a closed list. Its name in the code is its name here: renaming a variant changes hashes, no more.
    fn variant_name(&mut self, word: impl std::fmt::Debug) {
        self.string(&format!("{word:?}"));
    }

    fn list<T>(&mut self, items: &[T], each: impl Fn(&mut Self, &T)) {
        self.integer(items.len() as u64);
        items.iter().for_each(|item| each(self, item));
    }

    fn option<T>(&mut self, item: Option<&T>, some: impl Fn(&mut Self, &T)) {
        self.integer(item.is_some().into());
        item.into_iter().for_each(|item| some(self, item));
    }

    fn index(&mut self, index: usize) {
        self.integer(index as u64);
    }
}

fn write_attribute(canon: &mut CanonicalWriter, attribute: &Attribute) {
    let Attribute {
        name,
        value_type: kind,
        source: _,
        normalization_range: range,
        unit: _,
        party_aggregation: reduction,
        trust,
    } = attribute;
    canon.string(name);
    canon.variant_name(kind);
    canon.option(range.as_ref(), |canon, (min, max)| canon.floats(&[*min, *max]));
    canon.variant_name(reduction);
    canon.variant_name(trust);
}

fn write_value(canon: &mut CanonicalWriter, value: &AttributeValue) {
    canon.variant_name(value.value_type());
    match value {
        AttributeValue::Number(number) => canon.float(*number),
        AttributeValue::String(text) => canon.string(text),
        AttributeValue::Bool(flag) => canon.integer((*flag).into()),
        AttributeValue::StringList(texts) => canon.list(texts, |canon, text| canon.string(text)),
    }
}

fn write_measure(canon: &mut CanonicalWriter, measure: Measure) {
    match measure {
        Measure::AttributeDifference(index) => canon.index(index),
        Measure::Latency => canon.string("latency"),
        Measure::Distance => canon.string("distance"),
    }
}

fn write_hard_filter(canon: &mut CanonicalWriter, filter: &HardFilter) {
    canon.string(&filter.name);
    canon.variant_name(filter.missing);
    match &filter.rule {
        HardRule::Equal { attribute, value: constant } => {
            canon.string("equal");
            canon.index(*attribute);
            canon.option(constant.as_ref(), write_value);
        }
        HardRule::NotEqual { attribute, value: constant } => {
            canon.string("not_equal");
            canon.index(*attribute);
            canon.option(constant.as_ref(), write_value);
        }
        HardRule::In { attribute, list, mutual } => {
            canon.string("in");
            canon.index(*attribute);
            match list {
                InFilterList::OwnAttribute(index) => {
                    canon.string("attribute");
                    canon.index(*index);
                }
                InFilterList::Strings(texts) => {
                    canon.string("texts");
                    canon.list(texts, |canon, text| canon.string(text));
                }
            }
            canon.integer((*mutual).into());
        }
        HardRule::Range { attribute, min, max } => {
            canon.string("range");
            canon.index(*attribute);
            canon.floats(&[*min, *max]);
        }
        HardRule::Overlap { attribute } => {
            canon.string("overlap");
            canon.index(*attribute);
        }
        HardRule::Compatible { attribute, pairs } => {
            canon.string("compatible");
            canon.index(*attribute);
            canon.list(pairs, |canon, (low, high)| canon.floats(&[f64::from(*low), f64::from(*high)]));
        }
        HardRule::Within { measure: measured, expansion, reciprocal_percent } => {
            canon.string("within");
            write_measure(canon, *measured);
            canon.index(*expansion);
            canon.float(*reciprocal_percent);
        }
        HardRule::SameHash => canon.string("same_hash"),
    }
}

fn write_soft_filter(canon: &mut CanonicalWriter, filter: &SoftFilter) {
    canon.string(&filter.name);
    write_measure(canon, filter.measure);
    canon.floats(&[filter.weight, filter.min, filter.max]);
    canon.variant_name(filter.mode);
    canon.variant_name(filter.curve);
    canon.variant_name(filter.missing);
}

/// Only where the limit changes: equal neighbours are one step, however they are cut.
fn write_expansion(canon: &mut CanonicalWriter, expansion: &Expansion) {
    canon.string(&expansion.name);
    write_measure(canon, expansion.measure);
    let mut steps = expansion.steps().to_vec();
    steps.dedup_by_key(|step| step.limit);
    canon.list(&steps, |canon, step| {
        canon.integer(step.start_ms);
        canon.float(step.limit);
    });
}

fn write_teams(canon: &mut CanonicalWriter, teams: &TeamsSpec) {
    let TeamsSpec { team_sizes: sizes, max_party_size, exact_up_to_size, roles, role_attribute } = teams;
    match &**sizes {
        [size, rest @ ..] if rest.iter().all(|other| other == size) => {
            let numbers = [sizes.len() as u64, (*size).into(), (*max_party_size).into(), (*exact_up_to_size).into()];
            canon.list(&numbers, |canon, number| canon.integer(*number));
        }
        sizes => {
            canon.string("sizes");
            canon.list(sizes, |canon, size| canon.integer((*size).into()));
            canon.integer((*max_party_size).into());
            canon.integer((*exact_up_to_size).into());
        }
    }
    canon.list(roles, |canon, role| {
        canon.string(&role.name);
        canon.integer(role.per_team.into());
    });
    canon.option(role_attribute.as_ref(), |canon, index| canon.index(*index));
}

/// A ladder of more than one step, or one that begins anew sooner or later than in a day.
fn write_penalty_schedule(canon: &mut CanonicalWriter, check: &ReadyCheckSpec) {
    let ReadyCheckSpec { deadline_ms: _, penalty_cooldowns_ms: penalties_ms, reset_after_ms } = check;
    if 1 < penalties_ms.len() || *reset_after_ms != DEFAULT_PENALTY_RESET_AFTER_MS {
        canon.string("ladder");
        canon.list(penalties_ms, |canon, ms| canon.integer((*ms).into()));
        canon.integer(*reset_after_ms);
    }
}

fn write_rating(canon: &mut CanonicalWriter, rating: &RatingSpec) {
    canon.string(rating.system.as_str());
    match rating.system {
        RatingSystem::Elo { initial, k, scale } => canon.floats(&[initial, k, scale]),
        RatingSystem::Glicko { initial, deviation, min_deviation, c, period_ms } => {
            canon.floats(&[initial, deviation, min_deviation, c]);
            canon.integer(period_ms);
        }
        RatingSystem::Glicko2 { initial, deviation, volatility, tau, period_ms } => {
            canon.floats(&[initial, deviation, volatility, tau]);
            canon.integer(period_ms);
        }
        RatingSystem::TrueSkill { mu, sigma, beta, tau, draw_percent } => {
            canon.floats(&[mu, sigma, beta, tau, draw_percent]);
        }
        RatingSystem::PlackettLuce { mu, sigma, beta, kappa, tau } => canon.floats(&[mu, sigma, beta, kappa, tau]),
    }
    canon.float(rating.z);
    canon.option(rating.decay.as_ref(), |canon, decay| {
        canon.integer(decay.every_ms);
        canon.floats(&[decay.deviation, decay.max_deviation]);
    });
    write_rating_additions(canon, rating);
}

/// What `<Rating>` could not say at first: where it says nothing of it, the hash is as it was.
fn write_rating_additions(canon: &mut CanonicalWriter, rating: &RatingSpec) {
    let RatingSpec { system: _, z: _, decay, momentum, placement_matches, on_disconnect, game_per } = rating;
    if decay.is_some_and(|decay| decay.periods == DecayPeriodFilter::Played) {
        canon.string("decay while played");
    }
    if let Some(StreakMomentum { after, factor }) = momentum {
        canon.string("momentum");
        canon.integer((*after).into());
        canon.float(*factor);
    }
    if *placement_matches != 0 {
        canon.string("placement");
        canon.integer((*placement_matches).into());
    }
    if *on_disconnect != DisconnectPolicy::Rate {
        canon.string("on disconnect");
        canon.variant_name(on_disconnect);
    }
    if *game_per != RatedGameUnit::Match {
        canon.string("game per");
        canon.variant_name(game_per);
    }
}
