//! Compiler from hard filters to column checks.

use crate::attribute::{AttributeValue, ValueType};
use crate::expansion::Expansion;
use crate::filter::{Refusal, RefusingSide};
use crate::index::interner::{self, ValueInterner};
use crate::index::layout::{ColumnLayout, TickScale, bloom_bit, bloom_filter_bits};
use crate::index::plan::{
    ColumnRefusalCheck, DistanceBoundUnavailable, QueryPlan, refuses_missing, round_up_limit, string_of,
};
use crate::index::query::SearchQuery;
use crate::measure::Measure;
use crate::ruleset::probing::LatencyEstimatePolicy;
use crate::ruleset::{HardFilter, HardRule, InFilterListSource};
use crate::time::UnixMs;

/// Maximum number of expansion steps per check. Neighboring steps are merged at the wider limit.
const LIMIT_STEPS_MAX: usize = 8;

/// Adds column checks for all hard filters that columns can evaluate, at least in part, in order.
pub(super) fn compile_hard_filters(
    plan: &mut QueryPlan,
    query: &SearchQuery<'_>,
    layout: &ColumnLayout,
    interner: &ValueInterner,
    tick_scale: &TickScale,
) {
    let mut compiler = RuleCompiler { plan, query, layout, interner, tick_scale };
    for (filter_index, filter) in query.ruleset.hard_filters.iter().enumerate() {
        compiler.compile_filter(filter_index, filter);
    }
}

struct RuleCompiler<'a, 'q> {
    plan: &'a mut QueryPlan,
    query: &'a SearchQuery<'q>,
    layout: &'a ColumnLayout,
    interner: &'a ValueInterner,
    tick_scale: &'a TickScale,
}

impl RuleCompiler<'_, '_> {
    fn compile_filter(&mut self, filter_index: usize, filter: &HardFilter) {
        let refusal = Refusal::HardFilter { filter_index, side: RefusingSide::Searcher };
        let refuse_missing = refuses_missing(filter);
        match &filter.rule {
            HardRule::Equal { attribute, value } => {
                self.compile_equality(refusal, filter, *attribute, value.as_ref(), true)
            }
            HardRule::NotEqual { attribute, value } => {
                self.compile_equality(refusal, filter, *attribute, value.as_ref(), false)
            }
            HardRule::Compatible { attribute, pairs } => {
                match self.query.searcher.attribute_values.number(*attribute) {
                    Some(own) => {
                        let both_orders = |&(low, high): &(i32, i32)| [(low, high), (high, low)];
                        let pairs = pairs.iter().flat_map(both_orders).filter(|&(one, _)| f64::from(one) == own);
                        let compatible: Vec<AttributeValue> =
                            pairs.map(|(_, other)| AttributeValue::Number(f64::from(other))).collect();
                        self.add_code_check(refusal, *attribute, &compatible, true, refuse_missing);
                    }
                    None => self.refuse_all_if(refusal, refuse_missing),
                }
            }
            HardRule::In { attribute, list, mutual } => {
                self.compile_in_list(filter_index, filter, *attribute, list, *mutual)
            }
            HardRule::Overlap { attribute, .. } => match self.query.searcher.attribute_values.get(*attribute) {
                Some(AttributeValue::StringList(strings)) => {
                    self.add_bloom_check(refusal, *attribute, bloom_filter_bits(strings))
                }
                Some(AttributeValue::Number(_) | AttributeValue::String(_) | AttributeValue::Bool(_)) => {}
                None => self.refuse_all_if(refusal, refuse_missing),
            },
            HardRule::Range { attribute, min, max } => {
                let Some(column) = self.layout.number_column(*attribute) else { return };
                let number = self.layout.number_columns[column];
                let (lower, upper) = (
                    number.encode_column_value(*min) - number.difference_rounding_error(),
                    number.encode_column_value(*max) + number.difference_rounding_error(),
                );
                self.plan.add_rule(refusal, ColumnRefusalCheck::OutsideRange { column, lower, upper, refuse_missing });
            }
            HardRule::Within { measure, expansion, reciprocal_percent } => {
                let expansion = &self.query.ruleset.expansions[*expansion];
                self.compile_within_rule(filter_index, refuse_missing, *measure, expansion, *reciprocal_percent);
            }
            // Rows with probe results are judged without columns; all others pass.
            HardRule::MaxPacketLoss { .. } | HardRule::MaxJitter { .. } => {}
            HardRule::SameRuleset => {
                let Some(column) = self.layout.ruleset_hash_column() else { return };
                self.plan.add_rule(
                    refusal,
                    ColumnRefusalCheck::OtherRulesetHash { column, hash: self.query.ruleset.hash.0 },
                );
            }
        }
    }

    /// Refuses all rows if `refused` is set. For rules whose result does not depend on the row, such as when the
    /// searcher lacks a value.
    fn refuse_all_if(&mut self, refusal: Refusal, refused: bool) {
        if refused {
            self.plan.add_rule(refusal, ColumnRefusalCheck::RefuseAll);
        }
    }

    fn compile_equality(
        &mut self,
        refusal: Refusal,
        filter: &HardFilter,
        attribute: usize,
        value: Option<&AttributeValue>,
        must_match: bool,
    ) {
        let refuse_missing = refuses_missing(filter);
        let Some(value) = value.or_else(|| self.query.searcher.attribute_values.get(attribute)) else {
            return self.refuse_all_if(refusal, refuse_missing);
        };
        if value.value_type() == self.query.ruleset.attributes[attribute].value_type
            && value.value_type() != ValueType::StringList
        {
            self.add_code_check(refusal, attribute, std::slice::from_ref(value), must_match, refuse_missing);
        }
    }

    fn add_code_check(
        &mut self,
        refusal: Refusal,
        attribute: usize,
        values: &[AttributeValue],
        must_match: bool,
        refuse_missing: bool,
    ) {
        let Some(column) = self.layout.interned_column(attribute) else { return };
        let Some(table) = self.layout.interned_attributes.iter().position(|&known| known == attribute) else { return };
        let mut codes: Vec<u32> = values.iter().filter_map(|value| self.interner.code_of(table, value)).collect();
        codes.sort_unstable();
        codes.dedup();
        let bits_of_codes = codes
            .iter()
            .fold(interner::code_bit(interner::OVERFLOW_CODE), |bits, &code| bits | interner::code_bit(code));
        let leaf_bits = if must_match {
            bits_of_codes | if refuse_missing { 0 } else { interner::code_bit(interner::MISSING_CODE) }
        } else {
            u32::MAX
        };
        self.plan.add_rule(
            refusal,
            ColumnRefusalCheck::InternedCode { column, codes, must_match, refuse_missing, leaf_bits },
        );
    }

    /// Adds no check for an empty list: it would also refuse rows without a value. `admit_advertisement` decides these rows.
    fn add_bloom_check(&mut self, refusal: Refusal, attribute: usize, bits: u64) {
        let Some(column) = self.layout.bloom_column(attribute) else { return };
        if bits != 0 {
            self.plan.add_rule(refusal, ColumnRefusalCheck::NoSharedBloomBit { column, bits });
        }
    }

    fn compile_in_list(
        &mut self,
        filter_index: usize,
        filter: &HardFilter,
        attribute: usize,
        list: &InFilterListSource,
        mutual: bool,
    ) {
        let refusal = |side| Refusal::HardFilter { filter_index, side };
        let (refuse_missing, attribute_values) = (refuses_missing(filter), self.query.searcher.attribute_values);
        let strings = match list {
            InFilterListSource::Strings(strings) => Some(strings),
            InFilterListSource::OwnAttribute(list_attribute) => match attribute_values.get(*list_attribute) {
                Some(AttributeValue::StringList(strings)) => Some(strings),
                Some(AttributeValue::Number(_) | AttributeValue::String(_) | AttributeValue::Bool(_)) | None => None,
            },
        };
        match strings {
            Some(strings) => {
                let strings: Vec<AttributeValue> =
                    strings.iter().map(|text| AttributeValue::String((**text).into())).collect();
                self.add_code_check(refusal(RefusingSide::Searcher), attribute, &strings, true, refuse_missing);
            }
            None => self.refuse_all_if(refusal(RefusingSide::Searcher), refuse_missing),
        }
        if !mutual {
            return;
        }
        match (attribute_values.get(attribute).and_then(string_of), list) {
            (None, _) => self.refuse_all_if(refusal(RefusingSide::Advertiser), refuse_missing),
            (Some(own), InFilterListSource::Strings(strings)) => {
                let refused = strings.binary_search_by(|string| (**string).cmp(own)).is_err();
                self.refuse_all_if(refusal(RefusingSide::Advertiser), refused);
            }
            (Some(own), InFilterListSource::OwnAttribute(list_attribute)) => {
                self.add_bloom_check(refusal(RefusingSide::Advertiser), *list_attribute, bloom_bit(own));
            }
        }
    }

    fn compile_within_rule(
        &mut self,
        filter_index: usize,
        refuse_missing: bool,
        measure: Measure,
        expansion: &Expansion,
        reciprocal_percent: f64,
    ) {
        let refusal = |side| Refusal::HardFilter { filter_index, side };
        if measure == Measure::Latency
            && self.query.ruleset.probing.latency_estimate_policy == LatencyEstimatePolicy::Measured
        {
            // Rows with probe results are judged without columns; of all others the round trip is missing.
            return self.refuse_all_if(refusal(RefusingSide::Searcher), refuse_missing);
        }
        let bound_index = match self.plan.distance_bound_index(self.query, self.layout, measure) {
            Ok(index) => index,
            Err(DistanceBoundUnavailable::SearcherValueMissing) => {
                return self.refuse_all_if(refusal(RefusingSide::Searcher), refuse_missing);
            }
            Err(DistanceBoundUnavailable::NoColumn) => return,
        };
        let span = match measure {
            Measure::AttributeDifference(attribute) => {
                self.layout.number_column(attribute).map_or(1.0, |column| self.layout.number_columns[column].span)
            }
            Measure::Latency | Measure::DeltaPing | Measure::Distance | Measure::PacketLoss | Measure::Jitter => 1.0,
        };
        let searcher = &self.query.searcher;
        let limit = round_up_limit(searcher.attribute_values.limit_of(expansion, searcher.waited_ms) / span);
        self.plan.add_rule(
            refusal(RefusingSide::Searcher),
            ColumnRefusalCheck::BeyondSearcherLimit { bound_index, limit, refuse_missing },
        );
        let reciprocal_share = (reciprocal_percent / 100.0 * (1.0 - 1e-6)) as f32;
        let (first_limit, later_limits) = self.advertiser_limits_by_tick(expansion, span);
        self.plan.add_rule(
            refusal(RefusingSide::Advertiser),
            ColumnRefusalCheck::BeyondAdvertiserLimit { bound_index, reciprocal_share, first_limit, later_limits },
        );
    }

    /// The first limit of an advertiser, and for each later limit the last `advertised_since` tick that has reached it.
    ///
    /// Ticks never decrease with time, so a row that has reached a step is never checked against an earlier one. Limits
    /// never shrink, so rounding a row's wait up can only admit more.
    fn advertiser_limits_by_tick(&self, expansion: &Expansion, span: f64) -> (f32, Vec<(u32, f32)>) {
        let now = self.query.now.0;
        // Any advertiser may be frustrated here; `admit_advertisement` knows which are.
        let factor = self.query.ruleset.frustrated_player_limits.map_or(1.0, |rule| rule.limit_widen_factor);
        let reached = expansion.steps().iter().filter(|step| step.start_ms <= now);
        let mut steps: Vec<(u64, f32)> =
            reached.map(|step| (step.start_ms, round_up_limit(step.limit.max(step.limit * factor) / span))).collect();
        steps.dedup_by(|later, earlier| later.1 == earlier.1);
        let group_len = steps.len().div_ceil(LIMIT_STEPS_MAX).max(1);
        let widest = |group: &[(u64, f32)]| (group[0].0, group[group.len() - 1].1);
        let mut steps = steps.chunks(group_len).map(widest);
        let first_limit = steps.next().map_or(f32::INFINITY, |step| step.1);
        (first_limit, steps.map(|(start, limit)| (self.tick_scale.tick_of(UnixMs(now - start)), limit)).collect())
    }
}
