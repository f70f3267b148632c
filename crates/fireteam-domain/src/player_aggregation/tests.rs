//! Aggregates of random parties against their definitions, written out.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::attribute::{NumberAggregation, ShortString};
use crate::id::UserKey;
use crate::session::PlayerDetails;

const NAME: &str = "it";

/// Party whose players have these values, and another attribute before and after in their order.
fn party(values: &[Option<AttributeValue>]) -> Vec<Player> {
    let player = |(index, value): (usize, &Option<AttributeValue>)| {
        let own = value.iter().map(|value| (NAME.into(), value.clone()));
        let others = ["aa", "zz"].map(|name| (name.into(), AttributeValue::Number(7.0)));
        let mut attributes: Vec<(ShortString, AttributeValue)> = own.chain(others).collect();
        attributes.sort_by(|(one, _), (other, _)| one.cmp(other));
        let details = Some(Box::new(PlayerDetails { attributes, ..PlayerDetails::default() }));
        Player { details, ..Player::from_user(UserKey::from_bytes([index as u8; 16])) }
    };
    values.iter().enumerate().map(player).collect()
}

fn aggregate(
    function: AggregateFunction,
    skips: bool,
    value_type: ValueType,
    values: &[Option<AttributeValue>],
) -> Option<AttributeValue> {
    let missing_member = if skips { MissingMemberPolicy::Skip } else { MissingMemberPolicy::Missing };
    aggregate_attribute_of_players(PlayerAggregation { function, missing_member }, NAME, value_type, &party(values))
}

/// Values that count, by the definition: all of them, or none if one is missing and missing members do not skip.
fn counted<T: Clone>(values: &[Option<T>], skips: bool) -> Vec<T> {
    if !skips && values.iter().any(Option::is_none) {
        return Vec::new();
    }
    values.iter().flatten().cloned().collect()
}

fn list(texts: &BTreeSet<String>) -> AttributeValue {
    AttributeValue::StringList(texts.iter().map(|text| text.as_str().into()).collect())
}

proptest! {
    #[test]
    fn number_aggregates_equal_their_definitions(
        values in prop::collection::vec(prop::option::weighted(0.8, -99i32..99), 0..7),
        skips: bool,
    ) {
        let wrapped: Vec<Option<AttributeValue>> =
            values.iter().map(|value| value.map(|value| AttributeValue::Number(value.into()))).collect();
        let counted = counted(&values, skips);
        let sum: i32 = counted.iter().sum();
        let expected = [
            (NumberAggregation::Min, counted.iter().min().map(|min| f64::from(*min))),
            (NumberAggregation::Max, counted.iter().max().map(|max| f64::from(*max))),
            (NumberAggregation::Sum, (!counted.is_empty()).then(|| f64::from(sum))),
            (NumberAggregation::Mean, (!counted.is_empty()).then(|| f64::from(sum) / counted.len() as f64)),
        ];
        for (function, expected) in expected {
            let function = AggregateFunction::Number(function);
            let found = aggregate(function, skips, ValueType::Number, &wrapped);
            prop_assert_eq!(found, expected.map(AttributeValue::Number), "{:?} of {:?}", function, values);
        }
    }

    #[test]
    fn bool_aggregates_equal_their_definitions(
        values in prop::collection::vec(prop::option::weighted(0.8, any::<bool>()), 0..6),
        skips: bool,
    ) {
        let wrapped: Vec<Option<AttributeValue>> =
            values.iter().map(|value| value.map(AttributeValue::Bool)).collect();
        let counted = counted(&values, skips);
        let if_known = |flag: bool| (!counted.is_empty()).then_some(AttributeValue::Bool(flag));
        let any = counted.iter().any(|flag| *flag);
        let all = counted.iter().all(|flag| *flag);
        prop_assert_eq!(aggregate(AggregateFunction::Any, skips, ValueType::Bool, &wrapped), if_known(any));
        prop_assert_eq!(aggregate(AggregateFunction::All, skips, ValueType::Bool, &wrapped), if_known(all));
    }

    #[test]
    fn list_aggregates_equal_their_definitions(
        values in prop::collection::vec(
            prop::option::weighted(0.8, prop::collection::btree_set("[a-z]{1,2}", 0..20)), 0..5),
        skips: bool,
    ) {
        let wrapped: Vec<Option<AttributeValue>> = values.iter().map(|value| value.as_ref().map(list)).collect();
        let counted = counted(&values, skips);
        let union: BTreeSet<String> = counted.iter().flatten().cloned().collect();
        let in_all = |text: &&String| counted.iter().all(|texts| texts.contains(*text));
        let common: BTreeSet<String> = union.iter().filter(in_all).cloned().collect();
        let is_short = union.len() <= STRING_LIST_ENTRIES_MAX;
        let found = aggregate(AggregateFunction::Union, skips, ValueType::StringList, &wrapped);
        prop_assert_eq!(found, (!counted.is_empty() && is_short).then(|| list(&union)));
        let found = aggregate(AggregateFunction::Intersection, skips, ValueType::StringList, &wrapped);
        prop_assert_eq!(found, (!counted.is_empty()).then(|| list(&common)));
    }
}

#[test]
fn value_of_another_type_counts_as_missing() {
    let values = [Some(AttributeValue::Number(3.0)), Some(AttributeValue::Bool(true))];
    let max = AggregateFunction::Number(NumberAggregation::Max);
    assert_eq!(aggregate(max, false, ValueType::Number, &values), None);
    assert_eq!(aggregate(max, true, ValueType::Number, &values), Some(AttributeValue::Number(3.0)));
}
