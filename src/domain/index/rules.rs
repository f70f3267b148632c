//! Hard filters as checks on columns.

use crate::domain::attribute::{Value, ValueKind};
use crate::domain::expansion::Expansion;
use crate::domain::filter::{Refusal, Side};
use crate::domain::index::Query;
use crate::domain::index::code::{self, Codes};
use crate::domain::index::layout::{Layout, Ticks, bloom_bit, bloom_of};
use crate::domain::index::plan::{Check, NoGauge, Plan, refuses_gaps, text, up};
use crate::domain::measure::Measure;
use crate::domain::ruleset::{HardFilter, HardRule, InList};
use crate::domain::time::UnixMs;

/// Steps of an expansion that a check tells apart; neighbours are taken together at the wider limit.
const STEPS_MAX: usize = 8;

/// Adds a check for every hard filter that columns can tell something about, in order.
pub(super) fn add_all(plan: &mut Plan, query: &Query<'_>, layout: &Layout, codes: &Codes, clock: &Ticks) {
    let mut maker = Maker { plan, query, layout, codes, clock };
    for (filter, hard) in query.ruleset.hard.iter().enumerate() {
        maker.add(filter, hard);
    }
}

struct Maker<'a, 'q> {
    plan: &'a mut Plan,
    query: &'a Query<'q>,
    layout: &'a Layout,
    codes: &'a Codes,
    clock: &'a Ticks,
}

impl Maker<'_, '_> {
    fn add(&mut self, filter: usize, hard: &HardFilter) {
        let searcher = Refusal::Filter { filter, side: Side::Searcher };
        let gaps = refuses_gaps(hard);
        match &hard.rule {
            HardRule::Equal { attribute, value } => self.equal(searcher, hard, *attribute, value.as_ref(), true),
            HardRule::NotEqual { attribute, value } => self.equal(searcher, hard, *attribute, value.as_ref(), false),
            HardRule::Compatible { attribute, pairs } => match self.query.searcher.facts.number(*attribute) {
                Some(own) => {
                    let both = |&(low, high): &(i32, i32)| [(low, high), (high, low)];
                    let fit = pairs.iter().flat_map(both).filter(|&(one, _)| f64::from(one) == own);
                    let fit: Vec<Value> = fit.map(|(_, other)| Value::Number(f64::from(other))).collect();
                    self.code(searcher, *attribute, &fit, true, gaps);
                }
                None => self.all_lack_it(searcher, gaps),
            },
            HardRule::In { attribute, list, mutual } => self.listed(filter, hard, *attribute, list, *mutual),
            HardRule::Overlap { attribute } => match self.query.searcher.facts.get(*attribute) {
                Some(Value::Texts(texts)) => self.bloom(searcher, *attribute, bloom_of(texts)),
                Some(Value::Number(_) | Value::Text(_) | Value::Flag(_)) => {}
                None => self.all_lack_it(searcher, gaps),
            },
            HardRule::Range { attribute, min, max } => {
                let Some(column) = self.layout.number(*attribute) else { return };
                let number = self.layout.numbers[column];
                let (least, greatest) = (number.stored(*min) - number.slack(), number.stored(*max) + number.slack());
                self.plan.rule(searcher, Check::Outside { column, least, greatest, gaps });
            }
            HardRule::Within { measure, expansion, reciprocal_percent } => {
                let expansion = &self.query.ruleset.expansions[*expansion];
                self.within(filter, gaps, *measure, expansion, *reciprocal_percent);
            }
            HardRule::SameHash => {
                let Some(column) = self.layout.hash() else { return };
                self.plan.rule(searcher, Check::Hash { column, hash: self.query.ruleset.hash.0 });
            }
        }
    }

    /// The searcher has no value: a rule about both sides says the same of every row.
    fn all_lack_it(&mut self, refusal: Refusal, refused: bool) {
        if refused {
            self.plan.rule(refusal, Check::Always);
        }
    }

    fn equal(&mut self, refusal: Refusal, hard: &HardFilter, attribute: usize, value: Option<&Value>, wanted: bool) {
        let gaps = refuses_gaps(hard);
        let Some(value) = value.or_else(|| self.query.searcher.facts.get(attribute)) else {
            return self.all_lack_it(refusal, gaps);
        };
        if value.kind() == self.query.ruleset.attributes[attribute].kind && value.kind() != ValueKind::Texts {
            self.code(refusal, attribute, std::slice::from_ref(value), wanted, gaps);
        }
    }

    fn code(&mut self, refusal: Refusal, attribute: usize, values: &[Value], wanted: bool, gaps: bool) {
        let Some(column) = self.layout.code(attribute) else { return };
        let Some(table) = self.layout.coded.iter().position(|&it| it == attribute) else { return };
        let mut codes: Vec<u32> = values.iter().filter_map(|value| self.codes.known(table, value)).collect();
        codes.sort_unstable();
        codes.dedup();
        let fit = codes.iter().fold(code::bit(code::ANY), |set, &it| set | code::bit(it));
        let set = if wanted { fit | if gaps { 0 } else { code::bit(code::MISSING) } } else { u32::MAX };
        self.plan.rule(refusal, Check::Code { column, codes, wanted, gaps, set });
    }

    /// No bits at all would refuse rows without a value too; the exact rule is left to tell them apart.
    fn bloom(&mut self, refusal: Refusal, attribute: usize, bits: u64) {
        let Some(column) = self.layout.bloom(attribute) else { return };
        if bits != 0 {
            self.plan.rule(refusal, Check::Bloom { column, bits });
        }
    }

    fn listed(&mut self, filter: usize, hard: &HardFilter, attribute: usize, list: &InList, mutual: bool) {
        let refusal = |side| Refusal::Filter { filter, side };
        let (gaps, facts) = (refuses_gaps(hard), self.query.searcher.facts);
        let texts = match list {
            InList::Texts(texts) => Some(texts),
            InList::Attribute(asking) => match facts.get(*asking) {
                Some(Value::Texts(texts)) => Some(texts),
                Some(Value::Number(_) | Value::Text(_) | Value::Flag(_)) | None => None,
            },
        };
        match texts {
            Some(texts) => {
                let texts: Vec<Value> = texts.iter().cloned().map(Value::Text).collect();
                self.code(refusal(Side::Searcher), attribute, &texts, true, gaps);
            }
            None => self.all_lack_it(refusal(Side::Searcher), gaps),
        }
        if !mutual {
            return;
        }
        match (facts.get(attribute).and_then(text), list) {
            (None, _) => self.all_lack_it(refusal(Side::Advertiser), gaps),
            (Some(own), InList::Texts(texts)) => {
                let refused = texts.binary_search_by(|text| (**text).cmp(own)).is_err();
                self.all_lack_it(refusal(Side::Advertiser), refused);
            }
            (Some(own), InList::Attribute(asking)) => {
                self.bloom(refusal(Side::Advertiser), *asking, bloom_bit(own));
            }
        }
    }

    fn within(&mut self, filter: usize, gaps: bool, measure: Measure, expansion: &Expansion, percent: f64) {
        let refusal = |side| Refusal::Filter { filter, side };
        let gauge = match self.plan.gauge(self.query, self.layout, measure) {
            Ok(gauge) => gauge,
            Err(NoGauge::Missing) => return self.all_lack_it(refusal(Side::Searcher), gaps),
            Err(NoGauge::Unknown) => return,
        };
        let span = match measure {
            Measure::Attribute(attribute) => {
                self.layout.number(attribute).map_or(1.0, |it| self.layout.numbers[it].span)
            }
            Measure::Latency | Measure::Distance => 1.0,
        };
        let limit = up(expansion.limit_at(self.query.searcher.waited_ms) / span);
        self.plan.rule(refusal(Side::Searcher), Check::Far { gauge, limit, gaps });
        let share = (percent / 100.0 * (1.0 - 1e-6)) as f32;
        let (first, steps) = self.steps(expansion, span);
        self.plan.rule(refusal(Side::Advertiser), Check::FarForThem { gauge, share, first, steps });
    }

    /// The first limit, and for each further one the last tick of `since` that has reached it. Ticks never decrease in
    /// the moment, so a row that has reached a step is never held to an earlier one; limits never shrink, so a row that
    /// is taken to have waited longer is only let through more easily.
    fn steps(&self, expansion: &Expansion, span: f64) -> (f32, Vec<(u32, f32)>) {
        let now = self.query.now.0;
        let reached = expansion.steps().iter().filter(|step| step.start_ms <= now);
        let mut steps: Vec<(u64, f32)> = reached.map(|step| (step.start_ms, up(step.value / span))).collect();
        steps.dedup_by(|later, earlier| later.1 == earlier.1);
        let group = steps.len().div_ceil(STEPS_MAX).max(1);
        let widest = |group: &[(u64, f32)]| (group[0].0, group[group.len() - 1].1);
        let mut steps = steps.chunks(group).map(widest);
        let first = steps.next().map_or(f32::INFINITY, |step| step.1);
        (first, steps.map(|(start, limit)| (self.clock.tick(UnixMs(now - start)), limit)).collect())
    }
}
