//! What hard and soft filters look at, laid out in columns for one pass, so that the many pairs of a pass are judged without
//! detours. The answers are those of `filter::meet` and `score::score_between`, to the bit.

use std::collections::BTreeMap;

use crate::domain::attribute::Value;
use crate::domain::filter::{Refusal, Side, Waits, measure_between, meet_by};
use crate::domain::locality::Locality;
use crate::domain::measure::Measure;
use crate::domain::queue::field::ordered_bits;
use crate::domain::ruleset::{HardFilter, HardRule, InList, MissingHard, Ruleset, SoftFilter, SoftMode};
use crate::domain::score::weighed;

/// Values that a filter of pairs may tell apart before a table of all pairs is too large.
const TABLE_MAX: usize = 32;

/// The code of a row that has no value.
const NONE: u32 = 0;

/// The filters of one ruleset over the rows of one pass.
pub(super) struct Columns<'a> {
    ruleset: &'a Ruleset,
    rows: Vec<Waits<'a>>,
    hard: Vec<Hard>,
    soft: Vec<(Soft, &'a SoftFilter)>,
    /// Scores are the same from both sides.
    symmetric: bool,
}

/// A hard filter.
struct Hard {
    filter: usize,
    rule: Rule,
}

enum Rule {
    /// Whether each row's own value is one that anybody may meet.
    Own(Vec<bool>),
    /// Which values go together: codes of values, and a table of `width` by `width` of them.
    Table { codes: Vec<u32>, width: u32, together: Vec<bool> },
    /// Values that must be the same, or must not; too many for a table.
    Same { codes: Vec<u32>, same: bool, missing: MissingHard },
    /// A measure against both limits by now.
    Within { between: Between, limits: Vec<f64>, reciprocal_percent: f64, missing: MissingHard },
    /// Everything else goes the long way.
    Other,
}

/// A soft filter's values, normalised; NaN where there is none.
enum Soft {
    Difference(Vec<f64>),
    Cost(Vec<f64>),
    Between(Between),
}

/// What is measured between two rows.
enum Between {
    /// Numbers; NaN where there is none.
    Numbers(Vec<f64>),
    Miles(Vec<Option<Locality>>),
    /// Milliseconds by the line, where nobody has measured a round trip.
    Milliseconds(Vec<Option<Locality>>),
    /// The long way.
    Other(Measure),
}

impl<'a> Columns<'a> {
    pub(super) fn of(ruleset: &'a Ruleset, rows: Vec<Waits<'a>>) -> Self {
        // Whatever is published under this ruleset has its hash.
        let judges = ruleset.hard.iter().enumerate().filter(|(_, hard)| hard.rule != HardRule::SameHash);
        let hard = judges.map(|(filter, hard)| Hard { filter, rule: rule(ruleset, filter, hard, &rows) }).collect();
        let soft = ruleset.soft.iter().map(|filter| (soft(filter, &rows), filter)).collect();
        let one_sided = |it: &(Soft, &SoftFilter)| matches!(it.0, Soft::Cost(_));
        let mut columns = Self { ruleset, rows, hard, soft, symmetric: true };
        columns.symmetric = !columns.soft.iter().any(one_sided);
        columns
    }

    /// `filter::meet` of two rows.
    pub(super) fn meet(&self, one: u32, other: u32) -> Result<(), Refusal> {
        let (here, there) = (one as usize, other as usize);
        for Hard { filter, rule } in &self.hard {
            let refused = |side| Err(Refusal::Filter { filter: *filter, side });
            match rule {
                Rule::Own(fine) if !fine[there] => return refused(Side::Searcher),
                Rule::Own(fine) if !fine[here] => return refused(Side::Advertiser),
                Rule::Own(_) => {}
                Rule::Table { codes, width, together } => {
                    if !together[(codes[here] * width + codes[there]) as usize] {
                        return refused(Side::Searcher);
                    }
                }
                Rule::Same { codes, same, missing } => {
                    let (ours, theirs) = (codes[here], codes[there]);
                    let unknown = ours == NONE || theirs == NONE;
                    if if unknown { *missing == MissingHard::Refuse } else { (ours == theirs) != *same } {
                        return refused(Side::Searcher);
                    }
                }
                Rule::Within { between, limits, reciprocal_percent, missing } => {
                    let Some(between) = between.at(self, here, there) else {
                        if *missing == MissingHard::Refuse {
                            return refused(Side::Searcher);
                        }
                        continue;
                    };
                    let (ours, theirs) = (limits[here], limits[there]);
                    let (tighter, side) =
                        if ours <= theirs { (ours, Side::Searcher) } else { (theirs, Side::Advertiser) };
                    if ours.max(theirs) < between || tighter < between * reciprocal_percent / 100.0 {
                        return refused(side);
                    }
                }
                Rule::Other => meet_by(self.ruleset, *filter, &self.rows[here], &self.rows[there])?,
            }
        }
        Ok(())
    }

    /// `score::score_between` of two rows.
    pub(super) fn score(&self, one: u32, other: u32) -> f64 {
        let (one, other) = (one as usize, other as usize);
        let score = self.score_from(one, other);
        if self.symmetric { score } else { score.max(self.score_from(other, one)) }
    }

    fn score_from(&self, here: usize, there: usize) -> f64 {
        self.soft.iter().fold(0.0, |sum, (values, soft)| {
            let distance = match values {
                Soft::Difference(values) => some(values[there] - values[here]).map(f64::abs),
                Soft::Cost(values) => some(values[there]),
                Soft::Between(between) => between.at(self, here, there).map(|it| soft.norm(it)),
            };
            sum + weighed(soft, distance)
        })
    }
}

impl Between {
    fn of(measure: Measure, rows: &[Waits<'_>]) -> Self {
        let places = || rows.iter().map(|row| row.seen.locality).collect();
        match measure {
            Measure::Attribute(index) => Self::Numbers(numbers(rows, index, |it| it)),
            Measure::Distance => Self::Miles(places()),
            Measure::Latency if rows.iter().all(|row| row.seen.regions.is_empty()) => Self::Milliseconds(places()),
            Measure::Latency => Self::Other(measure),
        }
    }

    fn at(&self, columns: &Columns<'_>, here: usize, there: usize) -> Option<f64> {
        let miles = |places: &[Option<Locality>]| Some(places[here]?.chord_miles(places[there]?));
        match self {
            Self::Numbers(numbers) => some(numbers[there] - numbers[here]).map(f64::abs),
            Self::Miles(places) => miles(places),
            Self::Milliseconds(places) => miles(places).map(|it| columns.ruleset.line.round_trip_ms(it)),
            Self::Other(measure) => {
                let (here, there) = (&columns.rows[here].seen, &columns.rows[there].seen);
                measure_between(columns.ruleset, *measure, here, there, None)
            }
        }
    }
}

fn rule(ruleset: &Ruleset, filter: usize, hard: &HardFilter, rows: &[Waits<'_>]) -> Rule {
    let fine = |one: usize, other: usize| meet_by(ruleset, filter, &rows[one], &rows[other]).is_ok();
    match hard.rule {
        HardRule::Within { measure, expansion, reciprocal_percent } => {
            let limits = rows.iter().map(|row| ruleset.expansions[expansion].limit_at(row.waited_ms)).collect();
            Rule::Within { between: Between::of(measure, rows), limits, reciprocal_percent, missing: hard.missing }
        }
        HardRule::Range { .. }
        | HardRule::Equal { value: Some(_), .. }
        | HardRule::NotEqual { value: Some(_), .. }
        | HardRule::In { list: InList::Texts(_), .. } => Rule::Own((0..rows.len()).map(|row| fine(row, row)).collect()),
        HardRule::Equal { attribute, value: None }
        | HardRule::NotEqual { attribute, value: None }
        | HardRule::Overlap { attribute }
        | HardRule::Compatible { attribute, .. } => {
            let (codes, firsts) = coded(rows, attribute);
            let width = firsts.len();
            // A code that no row has goes with nothing.
            let pair =
                |one: Option<usize>, other: Option<usize>| one.zip(other).is_some_and(|(one, other)| fine(one, other));
            let same = matches!(hard.rule, HardRule::Equal { .. });
            match hard.rule {
                _ if width <= TABLE_MAX => {
                    let pairs = firsts.iter().flat_map(|&one| firsts.iter().map(move |&other| (one, other)));
                    let together = pairs.map(|(one, other)| pair(one, other)).collect();
                    Rule::Table { codes, width: width as u32, together }
                }
                HardRule::Equal { .. } | HardRule::NotEqual { .. } => Rule::Same { codes, same, missing: hard.missing },
                _ => Rule::Other,
            }
        }
        HardRule::In { list: InList::Attribute(_), .. } | HardRule::SameHash => Rule::Other,
    }
}

fn soft(filter: &SoftFilter, rows: &[Waits<'_>]) -> Soft {
    match (filter.mode, filter.measure) {
        (SoftMode::Difference, Measure::Attribute(index)) => {
            Soft::Difference(numbers(rows, index, |it| filter.norm(it)))
        }
        (SoftMode::LowerIsBetter, Measure::Attribute(index)) => Soft::Cost(numbers(rows, index, |it| filter.norm(it))),
        (_, measure) => Soft::Between(Between::of(measure, rows)),
    }
}

fn numbers(rows: &[Waits<'_>], index: usize, of: impl Fn(f64) -> f64) -> Vec<f64> {
    rows.iter().map(|row| row.seen.facts.number(index).map_or(f64::NAN, &of)).collect()
}

fn some(number: f64) -> Option<f64> {
    (!number.is_nan()).then_some(number)
}

/// What rows are told apart by.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Key<'v> {
    Number(u64),
    Text(&'v str),
    Flag(bool),
    Texts(&'v [Box<str>]),
}

/// A code for each row's value, the same for equal values, and of each code a row that has it. `NONE` for no value.
fn coded(rows: &[Waits<'_>], attribute: usize) -> (Vec<u32>, Vec<Option<usize>>) {
    let (mut known, mut firsts) = (BTreeMap::new(), vec![None]);
    let mut code = |row: usize| {
        let key = match rows[row].seen.facts.get(attribute) {
            None => {
                firsts[NONE as usize].get_or_insert(row);
                return NONE;
            }
            Some(Value::Number(number)) => Key::Number(ordered_bits(*number)),
            Some(Value::Text(text)) => Key::Text(text),
            Some(Value::Flag(flag)) => Key::Flag(*flag),
            Some(Value::Texts(texts)) => Key::Texts(texts),
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
    use crate::domain::attribute::{Attribute, ValueKind};
    use crate::domain::filter::meet;
    use crate::domain::queue::dice::Dice;
    use crate::domain::queue::field::Field;
    use crate::domain::queue::tests::world::{World, one_in, pick, random};
    use crate::domain::score::score_between;

    /// Places in the attributes of `random`, and one more.
    const MODE: usize = 1;
    const TASTE: usize = 3;
    const LIKES: usize = 4;

    /// Whatever a ruleset asks and whoever lacks what: the columns say of every pair what the definitions say of it.
    #[test]
    fn columns_say_what_the_filters_say() {
        let (mut met, mut refused) = (0, 0);
        for seed in 0..150 {
            let (mut world, mut dice) = (random(seed, 50), Dice(seed));
            let_like(&mut world, &mut dice);
            let missing = pick(&mut dice, &[MissingHard::Pass, MissingHard::Refuse]);
            let more = more_rules(&mut dice).into_iter().filter(|_| one_in(&mut dice, 4));
            let more = more.map(|rule| HardFilter { name: "more".into(), missing, rule }).collect::<Vec<_>>();
            world.ruleset.hard = world.ruleset.hard.iter().cloned().chain(more).collect();
            world.with(&world.entrants(), |input| {
                let counts = agree(input.ruleset, &Field::of(input).columns);
                (met, refused) = (met + counts.0, refused + counts.1);
            });
        }
        assert!(10_000 < met && 10_000 < refused, "{met} met, {refused} did not");
    }

    /// More values than a table holds.
    #[test]
    fn many_values_are_told_apart_too() {
        for (rule, missing) in [
            (HardRule::Equal { attribute: TASTE, value: None }, MissingHard::Refuse),
            (HardRule::NotEqual { attribute: TASTE, value: None }, MissingHard::Pass),
        ] {
            let mut world = random(5, 200);
            world.ruleset.hard = [HardFilter { name: "taste".into(), missing, rule }].into();
            for (number, ticket) in (0_u32..).zip(&mut world.tickets) {
                let taste = ("taste".into(), Value::Number(f64::from(number % 60)));
                Arc::make_mut(ticket).session.attributes = if number % 10 == 9 { vec![] } else { vec![taste] };
            }
            world.with(&world.entrants(), |input| {
                let columns = Field::of(input).columns;
                assert!(matches!(columns.hard[0].rule, Rule::Same { .. }), "{} rows", columns.rows.len());
                agree(input.ruleset, &columns);
            });
        }
    }

    /// Holds columns against the definitions, pair by pair; how many met and how many did not.
    fn agree(ruleset: &Ruleset, columns: &Columns<'_>) -> (u32, u32) {
        let (mut met, mut refused) = (0, 0);
        for (one, ours) in (0_u32..).zip(&columns.rows) {
            for (other, theirs) in (0_u32..).zip(&columns.rows).filter(|it| it.0 != one) {
                let verdict = meet(ruleset, ours, theirs);
                assert_eq!(columns.meet(one, other), verdict, "{one} and {other}: {:?}", ruleset.hard);
                *if verdict.is_ok() { &mut met } else { &mut refused } += 1;
                let score = score_between(ruleset, &ours.seen, &theirs.seen);
                assert_eq!(
                    columns.score(one, other).to_bits(),
                    score.to_bits(),
                    "{one} and {other}: {:?}",
                    ruleset.soft
                );
            }
        }
        (met, refused)
    }

    /// A rule of every kind that the crowds of `random` do not know.
    fn more_rules(dice: &mut Dice) -> Vec<HardRule> {
        let texts = || ["t0".into(), "t2".into()].into();
        let mutual = one_in(dice, 2);
        vec![
            HardRule::NotEqual { attribute: MODE, value: None },
            HardRule::In { attribute: MODE, list: InList::Texts(texts()), mutual },
            HardRule::In { attribute: MODE, list: InList::Attribute(LIKES), mutual },
            HardRule::Overlap { attribute: LIKES },
            HardRule::Compatible { attribute: TASTE, pairs: [(0, 0), (0, 3), (1, 4), (2, 2), (3, 9)].into() },
            HardRule::Equal { attribute: LIKES, value: None },
            HardRule::SameHash,
        ]
    }

    /// Lets everybody say which modes they like, or not.
    fn let_like(world: &mut World, dice: &mut Dice) {
        let mut attributes = world.ruleset.attributes.to_vec();
        assert_eq!((&*attributes[MODE].name, &*attributes[TASTE].name), ("mode", "taste"));
        let likes = Attribute { name: "likes".into(), kind: ValueKind::Texts, ..attributes[MODE].clone() };
        attributes.push(likes);
        world.ruleset.attributes = attributes.into();
        for ticket in &mut world.tickets {
            let likes: Box<[Box<str>]> =
                ["t0", "t1", "t2"].into_iter().filter(|_| one_in(dice, 2)).map(Into::into).collect();
            if !likes.is_empty() {
                Arc::make_mut(ticket).session.attributes.push(("likes".into(), Value::Texts(likes)));
            }
        }
    }
}
