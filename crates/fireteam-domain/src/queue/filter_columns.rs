//! Hard and soft filter inputs in columns, one entry per ticket of a pass, for fast evaluation of pairs.
//!
//! Results equal `filter::admit_queue_parties` and `score::worse_of_both_scores` bit for bit.

use std::collections::BTreeMap;

use crate::attribute::AttributeValue;
use crate::filter::{
    Refusal, RefusingSide, WaitingSession, admit_mutually_by_wishes, admit_queue_parties_by_one_filter,
    measure_between, measure_for_queue_limit,
};
use crate::locality::Locality;
use crate::measure::Measure;
use crate::order::ordered_bits;
use crate::ruleset::{
    HardFilter, HardMissingPolicy, HardRule, InFilterListSource, Ruleset, SoftFilter, SoftFilterObjective,
};
use crate::score::term_of_normalized_distance;

/// Maximum number of distinct values for a table of all value pairs.
const PAIR_TABLE_CODES_MAX: usize = 32;

/// Code of a ticket without a value.
const MISSING_VALUE_CODE: u32 = 0;

/// Filters of one ruleset over the tickets of one pass.
pub(super) struct FilterColumns<'a> {
    ruleset: &'a Ruleset,
    waiting_sessions: Vec<WaitingSession<'a>>,
    hard_columns: Vec<HardFilterColumn>,
    soft_columns: Vec<(SoftFilterColumn, &'a SoftFilter)>,
    /// Scores are the same from both sides.
    scores_are_symmetric: bool,
    /// A ticket has wishes.
    has_wishes: bool,
}

/// Column of one hard filter.
struct HardFilterColumn {
    filter_index: usize,
    column_rule: ColumnRule,
}

enum ColumnRule {
    /// Whether each ticket's own value passes.
    PerTicket(Vec<bool>),
    /// Value code of each ticket, and a `code_count` by `code_count` table of allowed pairs.
    PairTable { value_codes: Vec<u32>, code_count: u32, allowed_pairs: Vec<bool> },
    /// Equal or unequal values, with more codes than a table holds.
    Equality { value_codes: Vec<u32>, must_be_equal: bool, missing: HardMissingPolicy },
    /// Measured difference against the current limits of both tickets.
    Within { pair_measure: PairMeasure, expanded_limits: Vec<f64>, reciprocal_percent: f64, missing: HardMissingPolicy },
    /// Evaluated per pair by `filter`.
    EvaluatePerPair,
}

/// Normalized values of a soft filter; NaN if missing.
enum SoftFilterColumn {
    Difference(Vec<f64>),
    CandidateValue(Vec<f64>),
    PairMeasure(PairMeasure),
}

/// Measure between two tickets.
enum PairMeasure {
    /// Numbers; NaN if missing.
    NumberDifference(Vec<f64>),
    DistanceMiles(Vec<Option<Locality>>),
    /// Latency estimated from distance, if no ticket has measured round trips or a vector.
    EstimatedLatencyMs(Vec<Option<Locality>>),
    /// Evaluated per pair by `filter`.
    EvaluatePerPair(Measure),
    /// Evaluated per pair by `filter`, as limits compare it.
    EvaluateLimitPerPair(Measure),
}

impl<'a> FilterColumns<'a> {
    pub(super) fn new(ruleset: &'a Ruleset, waiting_sessions: Vec<WaitingSession<'a>>) -> Self {
        // All tickets use this ruleset, so `SameRuleset` always passes.
        // Tickets send no probes to each other, so limits on lost packets and jitter pass too.
        let always_passes = |filter: &HardFilter| {
            matches!(filter.rule, HardRule::SameRuleset | HardRule::MaxPacketLoss { .. } | HardRule::MaxJitter { .. })
        };
        let evaluated = ruleset.hard_filters.iter().enumerate().filter(|(_, filter)| !always_passes(filter));
        let hard_columns = evaluated
            .map(|(index, filter)| HardFilterColumn {
                filter_index: index,
                column_rule: build_column_rule(ruleset, index, filter, &waiting_sessions),
            })
            .collect();
        let soft_columns =
            ruleset.soft_filters.iter().map(|filter| (build_soft_column(filter, &waiting_sessions), filter)).collect();
        let one_sided = |(column, filter): &(SoftFilterColumn, &SoftFilter)| {
            matches!(column, SoftFilterColumn::CandidateValue(_)) || filter.measure == Measure::DeltaPing
        };
        let has_wishes =
            ruleset.allows_wishes() && waiting_sessions.iter().any(|waiting| !waiting.session.wishes.is_empty());
        let mut columns =
            Self { ruleset, waiting_sessions, hard_columns, soft_columns, scores_are_symmetric: true, has_wishes };
        columns.scores_are_symmetric = !columns.soft_columns.iter().any(one_sided);
        columns
    }

    /// Whether a ticket has wishes, and the ruleset allows them.
    pub(super) fn has_wishes(&self) -> bool {
        self.has_wishes
    }

    /// Same result as `filter::admit_queue_parties`.
    pub(super) fn check_pair(&self, one: u32, other: u32) -> Result<(), Refusal> {
        let (here, there) = (one as usize, other as usize);
        for HardFilterColumn { filter_index, column_rule } in &self.hard_columns {
            let refuse = |side| Err(Refusal::HardFilter { filter_index: *filter_index, side });
            match column_rule {
                ColumnRule::PerTicket(passes) if !passes[there] => return refuse(RefusingSide::Searcher),
                ColumnRule::PerTicket(passes) if !passes[here] => return refuse(RefusingSide::Advertiser),
                ColumnRule::PerTicket(_) => {}
                ColumnRule::PairTable { value_codes, code_count, allowed_pairs } => {
                    if !allowed_pairs[(value_codes[here] * code_count + value_codes[there]) as usize] {
                        return refuse(RefusingSide::Searcher);
                    }
                }
                ColumnRule::Equality { value_codes, must_be_equal, missing } => {
                    let (ours, theirs) = (value_codes[here], value_codes[there]);
                    let is_missing = ours == MISSING_VALUE_CODE || theirs == MISSING_VALUE_CODE;
                    if if is_missing {
                        *missing == HardMissingPolicy::Refuse
                    } else {
                        (ours == theirs) != *must_be_equal
                    } {
                        return refuse(RefusingSide::Searcher);
                    }
                }
                ColumnRule::Within { pair_measure, expanded_limits, reciprocal_percent, missing } => {
                    let Some(measured) = pair_measure.measure_pair(self, here, there) else {
                        if *missing == HardMissingPolicy::Refuse {
                            return refuse(RefusingSide::Searcher);
                        }
                        continue;
                    };
                    let (ours, theirs) = (expanded_limits[here], expanded_limits[there]);
                    let (tighter, side) = if ours <= theirs {
                        (ours, RefusingSide::Searcher)
                    } else {
                        (theirs, RefusingSide::Advertiser)
                    };
                    if ours.max(theirs) < measured || tighter < measured * reciprocal_percent / 100.0 {
                        return refuse(side);
                    }
                }
                ColumnRule::EvaluatePerPair => admit_queue_parties_by_one_filter(
                    self.ruleset,
                    *filter_index,
                    &self.waiting_sessions[here],
                    &self.waiting_sessions[there],
                )?,
            }
        }
        if self.has_wishes {
            admit_mutually_by_wishes(self.ruleset, &self.waiting_sessions[here], &self.waiting_sessions[there], None)?;
        }
        Ok(())
    }

    /// Same result as `score::worse_of_both_scores`.
    pub(super) fn pair_score(&self, one: u32, other: u32) -> f64 {
        let (one, other) = (one as usize, other as usize);
        let score = self.one_sided_score(one, other);
        if self.scores_are_symmetric { score } else { score.max(self.one_sided_score(other, one)) }
    }

    fn one_sided_score(&self, here: usize, there: usize) -> f64 {
        self.soft_columns.iter().fold(0.0, |sum, (values, soft)| {
            let distance = match values {
                SoftFilterColumn::Difference(values) => none_if_nan(values[there] - values[here]).map(f64::abs),
                SoftFilterColumn::CandidateValue(values) => none_if_nan(values[there]),
                SoftFilterColumn::PairMeasure(pair_measure) => {
                    pair_measure.measure_pair(self, here, there).map(|measured| soft.normalize(measured))
                }
            };
            sum + term_of_normalized_distance(soft, distance)
        })
    }
}

impl PairMeasure {
    fn new(measure: Measure, rows: &[WaitingSession<'_>]) -> Self {
        let places = || rows.iter().map(|row| row.session.locality).collect();
        match measure {
            Measure::AttributeDifference(index) => Self::NumberDifference(number_column(rows, index, |it| it)),
            Measure::Distance => Self::DistanceMiles(places()),
            Measure::Latency
                if rows
                    .iter()
                    .all(|row| row.session.region_latencies.is_empty() && row.session.prediction_end.is_none()) =>
            {
                Self::EstimatedLatencyMs(places())
            }
            Measure::Latency | Measure::DeltaPing | Measure::PacketLoss | Measure::Jitter => {
                Self::EvaluatePerPair(measure)
            }
        }
    }

    fn for_limit(measure: Measure, rows: &[WaitingSession<'_>]) -> Self {
        match Self::new(measure, rows) {
            Self::EvaluatePerPair(measure) => Self::EvaluateLimitPerPair(measure),
            by_column => by_column,
        }
    }

    fn measure_pair(&self, columns: &FilterColumns<'_>, here: usize, there: usize) -> Option<f64> {
        let miles = |places: &[Option<Locality>]| Some(places[here]?.chord_miles(places[there]?));
        match self {
            Self::NumberDifference(numbers) => none_if_nan(numbers[there] - numbers[here]).map(f64::abs),
            Self::DistanceMiles(places) => miles(places),
            Self::EstimatedLatencyMs(places) => miles(places).map(|it| columns.ruleset.latency_model.round_trip_ms(it)),
            Self::EvaluatePerPair(measure) => {
                let (here, there) = (&columns.waiting_sessions[here].session, &columns.waiting_sessions[there].session);
                measure_between(columns.ruleset, *measure, here, there, None)
            }
            Self::EvaluateLimitPerPair(measure) => {
                let (here, there) = (&columns.waiting_sessions[here].session, &columns.waiting_sessions[there].session);
                measure_for_queue_limit(columns.ruleset, *measure, here, there)
            }
        }
    }
}

fn build_column_rule(
    ruleset: &Ruleset,
    filter_index: usize,
    hard: &HardFilter,
    waiting_sessions: &[WaitingSession<'_>],
) -> ColumnRule {
    let admits = |one: usize, other: usize| {
        admit_queue_parties_by_one_filter(ruleset, filter_index, &waiting_sessions[one], &waiting_sessions[other])
            .is_ok()
    };
    match hard.rule {
        HardRule::Within { measure, expansion, reciprocal_percent } => {
            let expanded_limits = waiting_sessions
                .iter()
                .map(|waiting_session| waiting_session.limit_of(&ruleset.expansions[expansion]))
                .collect();
            ColumnRule::Within {
                pair_measure: PairMeasure::for_limit(measure, waiting_sessions),
                expanded_limits,
                reciprocal_percent,
                missing: hard.missing,
            }
        }
        HardRule::Range { .. }
        | HardRule::Equal { value: Some(_), .. }
        | HardRule::NotEqual { value: Some(_), .. }
        | HardRule::In { list: InFilterListSource::Strings(_), .. } => {
            ColumnRule::PerTicket((0..waiting_sessions.len()).map(|index| admits(index, index)).collect())
        }
        HardRule::Equal { attribute, value: None }
        | HardRule::NotEqual { attribute, value: None }
        | HardRule::Overlap { attribute, .. }
        | HardRule::Compatible { attribute, .. } => {
            let (value_codes, examples) = intern_values(waiting_sessions, attribute);
            let code_count = examples.len();
            // A code without a ticket allows no pair.
            let is_allowed = |one: Option<usize>, other: Option<usize>| {
                one.zip(other).is_some_and(|(one, other)| admits(one, other))
            };
            let must_be_equal = matches!(hard.rule, HardRule::Equal { .. });
            match hard.rule {
                _ if code_count <= PAIR_TABLE_CODES_MAX => {
                    let pairs = examples.iter().flat_map(|&one| examples.iter().map(move |&other| (one, other)));
                    let allowed_pairs = pairs.map(|(one, other)| is_allowed(one, other)).collect();
                    ColumnRule::PairTable { value_codes, code_count: code_count as u32, allowed_pairs }
                }
                HardRule::Equal { .. } | HardRule::NotEqual { .. } => {
                    ColumnRule::Equality { value_codes, must_be_equal, missing: hard.missing }
                }
                _ => ColumnRule::EvaluatePerPair,
            }
        }
        HardRule::In { list: InFilterListSource::OwnAttribute(_), .. }
        | HardRule::SameRuleset
        | HardRule::MaxPacketLoss { .. }
        | HardRule::MaxJitter { .. } => ColumnRule::EvaluatePerPair,
    }
}

fn build_soft_column(filter: &SoftFilter, waiting_sessions: &[WaitingSession<'_>]) -> SoftFilterColumn {
    match (filter.mode, filter.measure) {
        (SoftFilterObjective::Difference, Measure::AttributeDifference(index)) => {
            SoftFilterColumn::Difference(number_column(waiting_sessions, index, |it| filter.normalize(it)))
        }
        (SoftFilterObjective::LowerIsBetter, Measure::AttributeDifference(index)) => {
            SoftFilterColumn::CandidateValue(number_column(waiting_sessions, index, |it| filter.normalize(it)))
        }
        (_, measure) => SoftFilterColumn::PairMeasure(PairMeasure::new(measure, waiting_sessions)),
    }
}

fn number_column(waiting_sessions: &[WaitingSession<'_>], index: usize, convert: impl Fn(f64) -> f64) -> Vec<f64> {
    waiting_sessions
        .iter()
        .map(|waiting_session| waiting_session.session.attribute_values.number(index).map_or(f64::NAN, &convert))
        .collect()
}

fn none_if_nan(number: f64) -> Option<f64> {
    (!number.is_nan()).then_some(number)
}

/// Ordered key of an attribute value.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum ValueKey<'v> {
    Number(u64),
    Text(&'v str),
    Flag(bool),
    Texts(&'v [Box<str>]),
}

/// Returns the value code of each ticket, and for each code one ticket that has it. Equal values share a code.
fn intern_values(waiting_sessions: &[WaitingSession<'_>], attribute: usize) -> (Vec<u32>, Vec<Option<usize>>) {
    let (mut codes, mut examples) = (BTreeMap::new(), vec![None]);
    let mut code = |index: usize| {
        let key = match waiting_sessions[index].session.attribute_values.get(attribute) {
            None => {
                examples[MISSING_VALUE_CODE as usize].get_or_insert(index);
                return MISSING_VALUE_CODE;
            }
            Some(AttributeValue::Number(number)) => ValueKey::Number(ordered_bits(*number)),
            Some(AttributeValue::String(text)) => ValueKey::Text(text),
            Some(AttributeValue::Bool(flag)) => ValueKey::Flag(*flag),
            Some(AttributeValue::StringList(texts)) => ValueKey::Texts(texts),
        };
        *codes.entry(key).or_insert_with(|| {
            examples.push(Some(index));
            examples.len() as u32 - 1
        })
    };
    ((0..waiting_sessions.len()).map(&mut code).collect(), examples)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::attribute::{Attribute, ValueType};
    use crate::filter::admit_queue_parties;
    use crate::queue::pass_state::PassState;
    use crate::queue::rng::SplitMix64;
    use crate::queue::tests::fixture::{QueueFixture, one_in, pick_random, random_queue_fixture};
    use crate::score::worse_of_both_scores;

    /// Attribute indices in `random_queue_fixture`, and one more.
    const MODE_ATTRIBUTE: usize = 1;
    const TASTE_ATTRIBUTE: usize = 3;
    const LIKES_ATTRIBUTE: usize = 4;

    /// For random rulesets and tickets, columns and filter definitions agree on all pairs.
    #[test]
    fn filter_columns_agree_with_the_filter_definitions() {
        let (mut admitted, mut refused) = (0, 0);
        for seed in 0..150 {
            let (mut fixture, mut rng) = (random_queue_fixture(seed, 50), SplitMix64(seed));
            add_likes_attribute(&mut fixture, &mut rng);
            let missing = pick_random(&mut rng, &[HardMissingPolicy::Pass, HardMissingPolicy::Refuse]);
            let extra = extra_hard_rules(&mut rng).into_iter().filter(|_| one_in(&mut rng, 4));
            let extra = extra.map(|rule| HardFilter { name: "extra".into(), missing, rule }).collect::<Vec<_>>();
            fixture.ruleset.hard_filters = fixture.ruleset.hard_filters.iter().cloned().chain(extra).collect();
            fixture.with_input(&fixture.prepared_tickets(), |input| {
                let counts = assert_columns_agree_with_filters(input.ruleset, &PassState::new(input).filter_columns);
                (admitted, refused) = (admitted + counts.0, refused + counts.1);
            });
        }
        assert!(admitted > 10_000 && refused > 10_000, "{admitted} admitted, {refused} refused");
    }

    /// More values than a pair table holds.
    #[test]
    fn filter_columns_agree_beyond_the_pair_table_size() {
        for (rule, missing) in [
            (HardRule::Equal { attribute: TASTE_ATTRIBUTE, value: None }, HardMissingPolicy::Refuse),
            (HardRule::NotEqual { attribute: TASTE_ATTRIBUTE, value: None }, HardMissingPolicy::Pass),
        ] {
            let mut fixture = random_queue_fixture(5, 200);
            fixture.ruleset.hard_filters = [HardFilter { name: "taste".into(), missing, rule }].into();
            for (number, ticket) in (0_u32..).zip(&mut fixture.tickets) {
                let taste = ("taste".into(), AttributeValue::Number(f64::from(number % 60)));
                Arc::make_mut(ticket).session.attributes = if number % 10 == 9 { vec![] } else { vec![taste] };
            }
            fixture.with_input(&fixture.prepared_tickets(), |input| {
                let columns = PassState::new(input).filter_columns;
                assert!(
                    matches!(columns.hard_columns[0].column_rule, ColumnRule::Equality { .. }),
                    "{} rows",
                    columns.waiting_sessions.len()
                );
                assert_columns_agree_with_filters(input.ruleset, &columns);
            });
        }
    }

    /// Compares columns and definitions on all pairs. Returns the number of admitted and of refused pairs.
    fn assert_columns_agree_with_filters(ruleset: &Ruleset, columns: &FilterColumns<'_>) -> (u32, u32) {
        let (mut admitted, mut refused) = (0, 0);
        for (one, ours) in (0_u32..).zip(&columns.waiting_sessions) {
            for (other, theirs) in (0_u32..).zip(&columns.waiting_sessions).filter(|it| it.0 != one) {
                let verdict = admit_queue_parties(ruleset, ours, theirs);
                assert_eq!(columns.check_pair(one, other), verdict, "{one} and {other}: {:?}", ruleset.hard_filters);
                *if verdict.is_ok() { &mut admitted } else { &mut refused } += 1;
                let score = worse_of_both_scores(ruleset, &ours.session, &theirs.session);
                assert_eq!(
                    columns.pair_score(one, other).to_bits(),
                    score.to_bits(),
                    "{one} and {other}: {:?}",
                    ruleset.soft_filters
                );
            }
        }
        (admitted, refused)
    }

    /// Kinds of rules that `random_queue_fixture` does not use.
    fn extra_hard_rules(rng: &mut SplitMix64) -> Vec<HardRule> {
        let texts = || ["t0".into(), "t2".into()].into();
        let mutual = one_in(rng, 2);
        vec![
            HardRule::NotEqual { attribute: MODE_ATTRIBUTE, value: None },
            HardRule::In { attribute: MODE_ATTRIBUTE, list: InFilterListSource::Strings(texts()), mutual },
            HardRule::In { attribute: MODE_ATTRIBUTE, list: InFilterListSource::OwnAttribute(LIKES_ATTRIBUTE), mutual },
            HardRule::Overlap { attribute: LIKES_ATTRIBUTE, choose: None },
            HardRule::Compatible { attribute: TASTE_ATTRIBUTE, pairs: [(0, 0), (0, 3), (1, 4), (2, 2), (3, 9)].into() },
            HardRule::Equal { attribute: LIKES_ATTRIBUTE, value: None },
            HardRule::SameRuleset,
        ]
    }

    /// Adds a string list attribute to the ruleset and to some tickets.
    fn add_likes_attribute(fixture: &mut QueueFixture, rng: &mut SplitMix64) {
        let mut attributes = fixture.ruleset.attributes.to_vec();
        assert_eq!((&*attributes[MODE_ATTRIBUTE].name, &*attributes[TASTE_ATTRIBUTE].name), ("mode", "taste"));
        let likes =
            Attribute { name: "likes".into(), value_type: ValueType::StringList, ..attributes[MODE_ATTRIBUTE].clone() };
        attributes.push(likes);
        fixture.ruleset.attributes = attributes.into();
        for ticket in &mut fixture.tickets {
            let likes: Box<[Box<str>]> =
                ["t0", "t1", "t2"].into_iter().filter(|_| one_in(rng, 2)).map(Into::into).collect();
            if !likes.is_empty() {
                Arc::make_mut(ticket).session.attributes.push(("likes".into(), AttributeValue::StringList(likes)));
            }
        }
    }
}
