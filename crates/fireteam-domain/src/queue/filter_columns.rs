//! What hard and soft filters look at, laid out in columns for one pass, so that the many pairs of a pass are judged without
//! detours. The answers are those of `filter::meet` and `score::score_between`, to the bit.

use std::collections::BTreeMap;

use crate::attribute::AttributeValue;
use crate::filter::{Refusal, RefusingSide, WaitingSession, admit_mutually_by_filter, measure_between};
use crate::locality::Locality;
use crate::measure::Measure;
use crate::queue::pass_state::ordered_bits;
use crate::ruleset::{HardFilter, HardMissingPolicy, HardRule, InFilterList, Ruleset, SoftFilter, SoftFilterMode};
use crate::score::weighted_term;

/// Values that a filter of pairs may tell apart before a table of all pairs is too large.
const PAIR_TABLE_CODES_MAX: usize = 32;

/// The code of a row that has no value.
const MISSING_VALUE_CODE: u32 = 0;

/// The filters of one ruleset over the rows of one pass.
pub(super) struct FilterColumns<'a> {
    ruleset: &'a Ruleset,
    waiting_sessions: Vec<WaitingSession<'a>>,
    hard_columns: Vec<HardFilterColumn>,
    soft_columns: Vec<(SoftFilterColumn, &'a SoftFilter)>,
    /// Scores are the same from both sides.
    scores_are_symmetric: bool,
}

/// A hard filter.
struct HardFilterColumn {
    filter_index: usize,
    column_rule: ColumnRule,
}

enum ColumnRule {
    /// Whether each row's own value is one that anybody may meet.
    PerTicket(Vec<bool>),
    /// Which values go together: codes of values, and a table of `width` by `width` of them.
    PairTable { value_codes: Vec<u32>, code_count: u32, allowed_pairs: Vec<bool> },
    /// Values that must be the same, or must not; too many for a table.
    Equality { codes: Vec<u32>, must_be_equal: bool, missing: HardMissingPolicy },
    /// A measure against both limits by now.
    Within { pair_measure: PairMeasure, expanded_limits: Vec<f64>, reciprocal_percent: f64, missing: HardMissingPolicy },
    /// Everything else goes the long way.
    EvaluatePerPair,
}

/// A soft filter's values, normalised; NaN where there is none.
enum SoftFilterColumn {
    Difference(Vec<f64>),
    CandidateValue(Vec<f64>),
    PairMeasure(PairMeasure),
}

/// What is measured between two rows.
enum PairMeasure {
    /// Numbers; NaN where there is none.
    NumberDifference(Vec<f64>),
    DistanceMiles(Vec<Option<Locality>>),
    /// Milliseconds by the line, where nobody has measured a round trip.
    EstimatedLatencyMs(Vec<Option<Locality>>),
    /// The long way.
    EvaluatePerPair(Measure),
}

impl<'a> FilterColumns<'a> {
    pub(super) fn new(ruleset: &'a Ruleset, rows: Vec<WaitingSession<'a>>) -> Self {
        // Whatever is published under this ruleset has its hash.
        let judges = ruleset.hard_filters.iter().enumerate().filter(|(_, hard)| hard.rule != HardRule::SameHash);
        let hard = judges
            .map(|(filter, hard)| HardFilterColumn {
                filter_index: filter,
                column_rule: build_column_rule(ruleset, filter, hard, &rows),
            })
            .collect();
        let soft = ruleset.soft_filters.iter().map(|filter| (build_soft_column(filter, &rows), filter)).collect();
        let one_sided = |it: &(SoftFilterColumn, &SoftFilter)| matches!(it.0, SoftFilterColumn::CandidateValue(_));
        let mut columns = Self {
            ruleset,
            waiting_sessions: rows,
            hard_columns: hard,
            soft_columns: soft,
            scores_are_symmetric: true,
        };
        columns.scores_are_symmetric = !columns.soft_columns.iter().any(one_sided);
        columns
    }

    /// `filter::meet` of two rows.
    pub(super) fn check_pair(&self, one: u32, other: u32) -> Result<(), Refusal> {
        let (here, there) = (one as usize, other as usize);
        for HardFilterColumn { filter_index: filter, column_rule: rule } in &self.hard_columns {
            let refused = |side| Err(Refusal::HardFilter { filter_index: *filter, side });
            match rule {
                ColumnRule::PerTicket(fine) if !fine[there] => return refused(RefusingSide::Searcher),
                ColumnRule::PerTicket(fine) if !fine[here] => return refused(RefusingSide::Advertiser),
                ColumnRule::PerTicket(_) => {}
                ColumnRule::PairTable { value_codes: codes, code_count: width, allowed_pairs: together } => {
                    if !together[(codes[here] * width + codes[there]) as usize] {
                        return refused(RefusingSide::Searcher);
                    }
                }
                ColumnRule::Equality { codes, must_be_equal: same, missing } => {
                    let (ours, theirs) = (codes[here], codes[there]);
                    let unknown = ours == MISSING_VALUE_CODE || theirs == MISSING_VALUE_CODE;
                    if if unknown { *missing == HardMissingPolicy::Refuse } else { (ours == theirs) != *same } {
                        return refused(RefusingSide::Searcher);
                    }
                }
                ColumnRule::Within { pair_measure: between, expanded_limits: limits, reciprocal_percent, missing } => {
                    let Some(between) = between.measure_pair(self, here, there) else {
                        if *missing == HardMissingPolicy::Refuse {
                            return refused(RefusingSide::Searcher);
                        }
                        continue;
                    };
                    let (ours, theirs) = (limits[here], limits[there]);
                    let (tighter, side) = if ours <= theirs {
                        (ours, RefusingSide::Searcher)
                    } else {
                        (theirs, RefusingSide::Advertiser)
                    };
                    if ours.max(theirs) < between || tighter < between * reciprocal_percent / 100.0 {
                        return refused(side);
                    }
                }
                ColumnRule::EvaluatePerPair => admit_mutually_by_filter(
                    self.ruleset,
                    *filter,
                    &self.waiting_sessions[here],
                    &self.waiting_sessions[there],
                )?,
            }
        }
        Ok(())
    }

    /// `score::score_between` of two rows.
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
                SoftFilterColumn::PairMeasure(between) => {
                    between.measure_pair(self, here, there).map(|it| soft.normalize(it))
                }
            };
            sum + weighted_term(soft, distance)
        })
    }
}

impl PairMeasure {
    fn new(measure: Measure, rows: &[WaitingSession<'_>]) -> Self {
        let places = || rows.iter().map(|row| row.session.locality).collect();
        match measure {
            Measure::AttributeDifference(index) => Self::NumberDifference(number_column(rows, index, |it| it)),
            Measure::Distance => Self::DistanceMiles(places()),
            Measure::Latency if rows.iter().all(|row| row.session.region_latencies.is_empty()) => {
                Self::EstimatedLatencyMs(places())
            }
            Measure::Latency => Self::EvaluatePerPair(measure),
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
        }
    }
}

fn build_column_rule(ruleset: &Ruleset, filter: usize, hard: &HardFilter, rows: &[WaitingSession<'_>]) -> ColumnRule {
    let fine = |one: usize, other: usize| admit_mutually_by_filter(ruleset, filter, &rows[one], &rows[other]).is_ok();
    match hard.rule {
        HardRule::Within { measure, expansion, reciprocal_percent } => {
            let limits = rows.iter().map(|row| ruleset.expansions[expansion].limit_at(row.waited_ms)).collect();
            ColumnRule::Within {
                pair_measure: PairMeasure::new(measure, rows),
                expanded_limits: limits,
                reciprocal_percent,
                missing: hard.missing,
            }
        }
        HardRule::Range { .. }
        | HardRule::Equal { value: Some(_), .. }
        | HardRule::NotEqual { value: Some(_), .. }
        | HardRule::In { list: InFilterList::Strings(_), .. } => {
            ColumnRule::PerTicket((0..rows.len()).map(|row| fine(row, row)).collect())
        }
        HardRule::Equal { attribute, value: None }
        | HardRule::NotEqual { attribute, value: None }
        | HardRule::Overlap { attribute }
        | HardRule::Compatible { attribute, .. } => {
            let (codes, firsts) = intern_values(rows, attribute);
            let width = firsts.len();
            // A code that no row has goes with nothing.
            let pair =
                |one: Option<usize>, other: Option<usize>| one.zip(other).is_some_and(|(one, other)| fine(one, other));
            let same = matches!(hard.rule, HardRule::Equal { .. });
            match hard.rule {
                _ if width <= PAIR_TABLE_CODES_MAX => {
                    let pairs = firsts.iter().flat_map(|&one| firsts.iter().map(move |&other| (one, other)));
                    let together = pairs.map(|(one, other)| pair(one, other)).collect();
                    ColumnRule::PairTable { value_codes: codes, code_count: width as u32, allowed_pairs: together }
                }
                HardRule::Equal { .. } | HardRule::NotEqual { .. } => {
                    ColumnRule::Equality { codes, must_be_equal: same, missing: hard.missing }
                }
                _ => ColumnRule::EvaluatePerPair,
            }
        }
        HardRule::In { list: InFilterList::OwnAttribute(_), .. } | HardRule::SameHash => ColumnRule::EvaluatePerPair,
    }
}

fn build_soft_column(filter: &SoftFilter, rows: &[WaitingSession<'_>]) -> SoftFilterColumn {
    match (filter.mode, filter.measure) {
        (SoftFilterMode::Difference, Measure::AttributeDifference(index)) => {
            SoftFilterColumn::Difference(number_column(rows, index, |it| filter.normalize(it)))
        }
        (SoftFilterMode::LowerIsBetter, Measure::AttributeDifference(index)) => {
            SoftFilterColumn::CandidateValue(number_column(rows, index, |it| filter.normalize(it)))
        }
        (_, measure) => SoftFilterColumn::PairMeasure(PairMeasure::new(measure, rows)),
    }
}

fn number_column(rows: &[WaitingSession<'_>], index: usize, of: impl Fn(f64) -> f64) -> Vec<f64> {
    rows.iter().map(|row| row.session.attribute_values.number(index).map_or(f64::NAN, &of)).collect()
}

fn none_if_nan(number: f64) -> Option<f64> {
    (!number.is_nan()).then_some(number)
}

/// What rows are told apart by.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum ValueKey<'v> {
    Number(u64),
    Text(&'v str),
    Flag(bool),
    Texts(&'v [Box<str>]),
}

/// A code for each row's value, the same for equal values, and of each code a row that has it. `NONE` for no value.
fn intern_values(rows: &[WaitingSession<'_>], attribute: usize) -> (Vec<u32>, Vec<Option<usize>>) {
    let (mut known, mut firsts) = (BTreeMap::new(), vec![None]);
    let mut code = |row: usize| {
        let key = match rows[row].session.attribute_values.get(attribute) {
            None => {
                firsts[MISSING_VALUE_CODE as usize].get_or_insert(row);
                return MISSING_VALUE_CODE;
            }
            Some(AttributeValue::Number(number)) => ValueKey::Number(ordered_bits(*number)),
            Some(AttributeValue::String(text)) => ValueKey::Text(text),
            Some(AttributeValue::Bool(flag)) => ValueKey::Flag(*flag),
            Some(AttributeValue::StringList(texts)) => ValueKey::Texts(texts),
        };
        *known.entry(key).or_insert_with(|| {
            firsts.push(Some(row));
            firsts.len() as u32 - 1
        })
    };
    ((0..rows.len()).map(&mut code).collect(), firsts)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::attribute::{Attribute, ValueType};
    use crate::filter::admit_mutually;
    use crate::queue::pass_state::PassState;
    use crate::queue::rng::SplitMix64;
    use crate::queue::tests::fixture::{QueueFixture, one_in, pick_random, random_queue_fixture};
    use crate::score::mutual_score;

    /// Places in the attributes of `random`, and one more.
    const MODE_ATTRIBUTE: usize = 1;
    const TASTE_ATTRIBUTE: usize = 3;
    const LIKES_ATTRIBUTE: usize = 4;

    /// Whatever a ruleset asks and whoever lacks what: the columns say of every pair what the definitions say of it.
    #[test]
    fn filter_columns_agree_with_the_filter_definitions() {
        let (mut met, mut refused) = (0, 0);
        for seed in 0..150 {
            let (mut world, mut dice) = (random_queue_fixture(seed, 50), SplitMix64(seed));
            add_likes_attribute(&mut world, &mut dice);
            let missing = pick_random(&mut dice, &[HardMissingPolicy::Pass, HardMissingPolicy::Refuse]);
            let more = extra_hard_rules(&mut dice).into_iter().filter(|_| one_in(&mut dice, 4));
            let more = more.map(|rule| HardFilter { name: "more".into(), missing, rule }).collect::<Vec<_>>();
            world.ruleset.hard_filters = world.ruleset.hard_filters.iter().cloned().chain(more).collect();
            world.with_input(&world.prepared_tickets(), |input| {
                let counts = assert_columns_agree_with_filters(input.ruleset, &PassState::new(input).filter_columns);
                (met, refused) = (met + counts.0, refused + counts.1);
            });
        }
        assert!(10_000 < met && 10_000 < refused, "{met} met, {refused} did not");
    }

    /// More values than a table holds.
    #[test]
    fn filter_columns_agree_beyond_the_pair_table_size() {
        for (rule, missing) in [
            (HardRule::Equal { attribute: TASTE_ATTRIBUTE, value: None }, HardMissingPolicy::Refuse),
            (HardRule::NotEqual { attribute: TASTE_ATTRIBUTE, value: None }, HardMissingPolicy::Pass),
        ] {
            let mut world = random_queue_fixture(5, 200);
            world.ruleset.hard_filters = [HardFilter { name: "taste".into(), missing, rule }].into();
            for (number, ticket) in (0_u32..).zip(&mut world.tickets) {
                let taste = ("taste".into(), AttributeValue::Number(f64::from(number % 60)));
                Arc::make_mut(ticket).session.attributes = if number % 10 == 9 { vec![] } else { vec![taste] };
            }
            world.with_input(&world.prepared_tickets(), |input| {
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

    /// Holds columns against the definitions, pair by pair; how many met and how many did not.
    fn assert_columns_agree_with_filters(ruleset: &Ruleset, columns: &FilterColumns<'_>) -> (u32, u32) {
        let (mut met, mut refused) = (0, 0);
        for (one, ours) in (0_u32..).zip(&columns.waiting_sessions) {
            for (other, theirs) in (0_u32..).zip(&columns.waiting_sessions).filter(|it| it.0 != one) {
                let verdict = admit_mutually(ruleset, ours, theirs);
                assert_eq!(columns.check_pair(one, other), verdict, "{one} and {other}: {:?}", ruleset.hard_filters);
                *if verdict.is_ok() { &mut met } else { &mut refused } += 1;
                let score = mutual_score(ruleset, &ours.session, &theirs.session);
                assert_eq!(
                    columns.pair_score(one, other).to_bits(),
                    score.to_bits(),
                    "{one} and {other}: {:?}",
                    ruleset.soft_filters
                );
            }
        }
        (met, refused)
    }

    /// A rule of every kind that the crowds of `random` do not know.
    fn extra_hard_rules(dice: &mut SplitMix64) -> Vec<HardRule> {
        let texts = || ["t0".into(), "t2".into()].into();
        let mutual = one_in(dice, 2);
        vec![
            HardRule::NotEqual { attribute: MODE_ATTRIBUTE, value: None },
            HardRule::In { attribute: MODE_ATTRIBUTE, list: InFilterList::Strings(texts()), mutual },
            HardRule::In { attribute: MODE_ATTRIBUTE, list: InFilterList::OwnAttribute(LIKES_ATTRIBUTE), mutual },
            HardRule::Overlap { attribute: LIKES_ATTRIBUTE },
            HardRule::Compatible { attribute: TASTE_ATTRIBUTE, pairs: [(0, 0), (0, 3), (1, 4), (2, 2), (3, 9)].into() },
            HardRule::Equal { attribute: LIKES_ATTRIBUTE, value: None },
            HardRule::SameHash,
        ]
    }

    /// Lets everybody say which modes they like, or not.
    fn add_likes_attribute(world: &mut QueueFixture, dice: &mut SplitMix64) {
        let mut attributes = world.ruleset.attributes.to_vec();
        assert_eq!((&*attributes[MODE_ATTRIBUTE].name, &*attributes[TASTE_ATTRIBUTE].name), ("mode", "taste"));
        let likes =
            Attribute { name: "likes".into(), value_type: ValueType::StringList, ..attributes[MODE_ATTRIBUTE].clone() };
        attributes.push(likes);
        world.ruleset.attributes = attributes.into();
        for ticket in &mut world.tickets {
            let likes: Box<[Box<str>]> =
                ["t0", "t1", "t2"].into_iter().filter(|_| one_in(dice, 2)).map(Into::into).collect();
            if !likes.is_empty() {
                Arc::make_mut(ticket).session.attributes.push(("likes".into(), AttributeValue::StringList(likes)));
            }
        }
    }
}
