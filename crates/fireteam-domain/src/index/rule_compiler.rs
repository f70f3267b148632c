//! Hard filters as checks on columns.

use crate::attribute::{AttributeValue, ValueType};
use crate::expansion::Expansion;
use crate::filter::{Refusal, RefusingSide};
use crate::index::SearchQuery;
use crate::index::interner::{self, Interner};
use crate::index::layout::{ColumnLayout, TickScale, bloom_bit, bloom_filter_bits};
use crate::index::plan::{ColumnCheck, NoDistanceBound, QueryPlan, refuses_missing, round_up_limit, string_of};
use crate::measure::Measure;
use crate::ruleset::{HardFilter, HardRule, InFilterList};
use crate::time::UnixMs;

/// Steps of an expansion that a check tells apart; neighbours are taken together at the wider limit.
const LIMIT_STEPS_MAX: usize = 8;

/// Adds a check for every hard filter that columns can tell something about, in order.
pub(super) fn compile_hard_filters(
    plan: &mut QueryPlan,
    query: &SearchQuery<'_>,
    layout: &ColumnLayout,
    codes: &Interner,
    clock: &TickScale,
) {
    let mut maker = RuleCompiler { plan, query, layout, interner: codes, tick_scale: clock };
    for (filter, hard) in query.ruleset.hard_filters.iter().enumerate() {
        maker.compile_filter(filter, hard);
    }
}

struct RuleCompiler<'a, 'q> {
    plan: &'a mut QueryPlan,
    query: &'a SearchQuery<'q>,
    layout: &'a ColumnLayout,
    interner: &'a Interner,
    tick_scale: &'a TickScale,
}

impl RuleCompiler<'_, '_> {
    fn compile_filter(&mut self, filter: usize, hard: &HardFilter) {
        let searcher = Refusal::HardFilter { filter_index: filter, side: RefusingSide::Searcher };
        let gaps = refuses_missing(hard);
        match &hard.rule {
            HardRule::Equal { attribute, value } => {
                self.compile_equality(searcher, hard, *attribute, value.as_ref(), true)
            }
            HardRule::NotEqual { attribute, value } => {
                self.compile_equality(searcher, hard, *attribute, value.as_ref(), false)
            }
            HardRule::Compatible { attribute, pairs } => {
                match self.query.searcher.attribute_values.number(*attribute) {
                    Some(own) => {
                        let both = |&(low, high): &(i32, i32)| [(low, high), (high, low)];
                        let fit = pairs.iter().flat_map(both).filter(|&(one, _)| f64::from(one) == own);
                        let fit: Vec<AttributeValue> =
                            fit.map(|(_, other)| AttributeValue::Number(f64::from(other))).collect();
                        self.add_code_check(searcher, *attribute, &fit, true, gaps);
                    }
                    None => self.refuse_all_if(searcher, gaps),
                }
            }
            HardRule::In { attribute, list, mutual } => self.compile_in_list(filter, hard, *attribute, list, *mutual),
            HardRule::Overlap { attribute } => match self.query.searcher.attribute_values.get(*attribute) {
                Some(AttributeValue::StringList(texts)) => {
                    self.add_bloom_check(searcher, *attribute, bloom_filter_bits(texts))
                }
                Some(AttributeValue::Number(_) | AttributeValue::String(_) | AttributeValue::Bool(_)) => {}
                None => self.refuse_all_if(searcher, gaps),
            },
            HardRule::Range { attribute, min, max } => {
                let Some(column) = self.layout.number_column(*attribute) else { return };
                let number = self.layout.number_columns[column];
                let (least, greatest) = (
                    number.to_column_value(*min) - number.rounding_error(),
                    number.to_column_value(*max) + number.rounding_error(),
                );
                self.plan.add_rule(
                    searcher,
                    ColumnCheck::OutsideRange { column, lower: least, upper: greatest, refuse_missing: gaps },
                );
            }
            HardRule::Within { measure, expansion, reciprocal_percent } => {
                let expansion = &self.query.ruleset.expansions[*expansion];
                self.compile_within(filter, gaps, *measure, expansion, *reciprocal_percent);
            }
            HardRule::SameHash => {
                let Some(column) = self.layout.ruleset_hash_column() else { return };
                self.plan.add_rule(searcher, ColumnCheck::OtherRulesetHash { column, hash: self.query.ruleset.hash.0 });
            }
        }
    }

    /// The searcher has no value: a rule about both sides says the same of every row.
    fn refuse_all_if(&mut self, refusal: Refusal, refused: bool) {
        if refused {
            self.plan.add_rule(refusal, ColumnCheck::RefuseAll);
        }
    }

    fn compile_equality(
        &mut self,
        refusal: Refusal,
        hard: &HardFilter,
        attribute: usize,
        value: Option<&AttributeValue>,
        wanted: bool,
    ) {
        let gaps = refuses_missing(hard);
        let Some(value) = value.or_else(|| self.query.searcher.attribute_values.get(attribute)) else {
            return self.refuse_all_if(refusal, gaps);
        };
        if value.value_type() == self.query.ruleset.attributes[attribute].value_type
            && value.value_type() != ValueType::StringList
        {
            self.add_code_check(refusal, attribute, std::slice::from_ref(value), wanted, gaps);
        }
    }

    fn add_code_check(
        &mut self,
        refusal: Refusal,
        attribute: usize,
        values: &[AttributeValue],
        wanted: bool,
        gaps: bool,
    ) {
        let Some(column) = self.layout.interned_column(attribute) else { return };
        let Some(table) = self.layout.interned_attributes.iter().position(|&it| it == attribute) else { return };
        let mut codes: Vec<u32> = values.iter().filter_map(|value| self.interner.code_of(table, value)).collect();
        codes.sort_unstable();
        codes.dedup();
        let fit =
            codes.iter().fold(interner::code_bit(interner::OVERFLOW_CODE), |set, &it| set | interner::code_bit(it));
        let set =
            if wanted { fit | if gaps { 0 } else { interner::code_bit(interner::MISSING_CODE) } } else { u32::MAX };
        self.plan.add_rule(
            refusal,
            ColumnCheck::InternedCode { column, codes, must_match: wanted, refuse_missing: gaps, leaf_bits: set },
        );
    }

    /// No bits at all would refuse rows without a value too; the exact rule is left to tell them apart.
    fn add_bloom_check(&mut self, refusal: Refusal, attribute: usize, bits: u64) {
        let Some(column) = self.layout.bloom_column(attribute) else { return };
        if bits != 0 {
            self.plan.add_rule(refusal, ColumnCheck::NoSharedBloomBit { column, bits });
        }
    }

    fn compile_in_list(
        &mut self,
        filter: usize,
        hard: &HardFilter,
        attribute: usize,
        list: &InFilterList,
        mutual: bool,
    ) {
        let refusal = |side| Refusal::HardFilter { filter_index: filter, side };
        let (gaps, facts) = (refuses_missing(hard), self.query.searcher.attribute_values);
        let texts = match list {
            InFilterList::Strings(texts) => Some(texts),
            InFilterList::OwnAttribute(asking) => match facts.get(*asking) {
                Some(AttributeValue::StringList(texts)) => Some(texts),
                Some(AttributeValue::Number(_) | AttributeValue::String(_) | AttributeValue::Bool(_)) | None => None,
            },
        };
        match texts {
            Some(texts) => {
                let texts: Vec<AttributeValue> = texts.iter().cloned().map(AttributeValue::String).collect();
                self.add_code_check(refusal(RefusingSide::Searcher), attribute, &texts, true, gaps);
            }
            None => self.refuse_all_if(refusal(RefusingSide::Searcher), gaps),
        }
        if !mutual {
            return;
        }
        match (facts.get(attribute).and_then(string_of), list) {
            (None, _) => self.refuse_all_if(refusal(RefusingSide::Advertiser), gaps),
            (Some(own), InFilterList::Strings(texts)) => {
                let refused = texts.binary_search_by(|text| (**text).cmp(own)).is_err();
                self.refuse_all_if(refusal(RefusingSide::Advertiser), refused);
            }
            (Some(own), InFilterList::OwnAttribute(asking)) => {
                self.add_bloom_check(refusal(RefusingSide::Advertiser), *asking, bloom_bit(own));
            }
        }
    }

    fn compile_within(&mut self, filter: usize, gaps: bool, measure: Measure, expansion: &Expansion, percent: f64) {
        let refusal = |side| Refusal::HardFilter { filter_index: filter, side };
        let gauge = match self.plan.distance_bound_index(self.query, self.layout, measure) {
            Ok(gauge) => gauge,
            Err(NoDistanceBound::SearcherValueMissing) => {
                return self.refuse_all_if(refusal(RefusingSide::Searcher), gaps);
            }
            Err(NoDistanceBound::NoColumn) => return,
        };
        let span = match measure {
            Measure::AttributeDifference(attribute) => {
                self.layout.number_column(attribute).map_or(1.0, |it| self.layout.number_columns[it].span)
            }
            Measure::Latency | Measure::Distance => 1.0,
        };
        let limit = round_up_limit(expansion.limit_at(self.query.searcher.waited_ms) / span);
        self.plan.add_rule(
            refusal(RefusingSide::Searcher),
            ColumnCheck::BeyondSearcherLimit { bound_index: gauge, limit, refuse_missing: gaps },
        );
        let share = (percent / 100.0 * (1.0 - 1e-6)) as f32;
        let (first, steps) = self.advertiser_limits_by_tick(expansion, span);
        self.plan.add_rule(
            refusal(RefusingSide::Advertiser),
            ColumnCheck::BeyondAdvertiserLimit {
                bound_index: gauge,
                reciprocal_share: share,
                first_limit: first,
                later_limits: steps,
            },
        );
    }

    /// The first limit, and for each further one the last tick of `since` that has reached it. Ticks never decrease in
    /// the moment, so a row that has reached a step is never held to an earlier one; limits never shrink, so a row that
    /// is taken to have waited longer is only let through more easily.
    fn advertiser_limits_by_tick(&self, expansion: &Expansion, span: f64) -> (f32, Vec<(u32, f32)>) {
        let now = self.query.now.0;
        let reached = expansion.steps().iter().filter(|step| step.start_ms <= now);
        let mut steps: Vec<(u64, f32)> =
            reached.map(|step| (step.start_ms, round_up_limit(step.limit / span))).collect();
        steps.dedup_by(|later, earlier| later.1 == earlier.1);
        let group = steps.len().div_ceil(LIMIT_STEPS_MAX).max(1);
        let widest = |group: &[(u64, f32)]| (group[0].0, group[group.len() - 1].1);
        let mut steps = steps.chunks(group).map(widest);
        let first = steps.next().map_or(f32::INFINITY, |step| step.1);
        (first, steps.map(|(start, limit)| (self.tick_scale.to_tick(UnixMs(now - start)), limit)).collect())
    }
}
