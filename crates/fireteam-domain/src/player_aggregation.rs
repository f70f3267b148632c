//! Aggregation of the players' own attributes into the value of their party.

use crate::attribute::{AggregateFunction, AttributeValue, MissingMemberPolicy, PlayerAggregation, ValueType};
use crate::limit::STRING_LIST_ENTRIES_MAX;
use crate::session::Player;

/// Value of the party of these players for the attribute `name`. A value of another type counts as missing. `None` for a
/// session that does not list its players.
pub fn aggregate_attribute_of_players(
    aggregation: PlayerAggregation,
    name: &str,
    value_type: ValueType,
    players: &[Player],
) -> Option<AttributeValue> {
    let mut values = Vec::with_capacity(players.len());
    for player in players {
        match player.attribute_value(name).filter(|value| value.value_type() == value_type) {
            Some(value) => values.push(value),
            None if aggregation.missing_member == MissingMemberPolicy::Missing => return None,
            None => {}
        }
    }
    if values.is_empty() { None } else { aggregate_values(aggregation.function, &values) }
}

/// Aggregate of values of the function's type, at least one.
fn aggregate_values(function: AggregateFunction, values: &[&AttributeValue]) -> Option<AttributeValue> {
    Some(match function {
        AggregateFunction::Number(function) => {
            let numbers = values.iter().filter_map(|value| match value {
                AttributeValue::Number(number) => Some(*number),
                _ => None,
            });
            AttributeValue::Number(function.aggregate(&numbers.collect::<Vec<f64>>())?)
        }
        AggregateFunction::Any => AttributeValue::Bool(values.contains(&&AttributeValue::Bool(true))),
        AggregateFunction::All => AttributeValue::Bool(!values.contains(&&AttributeValue::Bool(false))),
        AggregateFunction::Union => {
            let union = AttributeValue::from_string_list(string_lists(values).flatten().cloned().collect());
            return Some(union).filter(|union| entry_count(union) <= STRING_LIST_ENTRIES_MAX);
        }
        AggregateFunction::Intersection => {
            let mut lists = string_lists(values);
            let mut common = lists.next()?.to_vec();
            // Both lists are sorted.
            lists.for_each(|list| common.retain(|text| list.binary_search(text).is_ok()));
            AttributeValue::StringList(common.into())
        }
    })
}

/// Number of different strings that the players have in a string list.
pub(crate) fn union_entry_count(name: &str, players: &[Player]) -> usize {
    let values: Vec<&AttributeValue> = players.iter().filter_map(|player| player.attribute_value(name)).collect();
    entry_count(&AttributeValue::from_string_list(string_lists(&values).flatten().cloned().collect()))
}

fn string_lists<'a>(values: &[&'a AttributeValue]) -> impl Iterator<Item = &'a [Box<str>]> {
    values.iter().filter_map(|value| match value {
        AttributeValue::StringList(list) => Some(&**list),
        _ => None,
    })
}

fn entry_count(list: &AttributeValue) -> usize {
    match list {
        AttributeValue::StringList(list) => list.len(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
