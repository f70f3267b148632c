//! Attribute values of a session under one ruleset: one trusted value, or none, per declared attribute.

use crate::attribute::{Attribute, AttributeSource, AttributeValue};
use crate::queue::ticket::Ticket;
use crate::ruleset::Ruleset;
use crate::session::Session;

/// One value per attribute of a ruleset, in the ruleset's order. `None` if the value is absent, has the wrong type or
/// comes from an origin that the ruleset does not trust.
#[derive(Clone, Debug, PartialEq)]
pub struct AttributeValues(Box<[Option<AttributeValue>]>);

impl AttributeValues {
    /// Reads the values of `session` that `ruleset` declares and trusts.
    pub fn from_session(ruleset: &Ruleset, session: &Session) -> Self {
        Self(ruleset.attributes.iter().map(|attribute| trusted_value(attribute, session)).collect())
    }

    /// Reads the values of a queue ticket. If the ruleset has a rating system, `skill` is the aggregate of the stored
    /// ratings. A `skill` from the request is then ignored, regardless of the attribute's trust.
    pub fn from_ticket(ruleset: &Ruleset, ticket: &Ticket) -> Self {
        let mut attribute_values = Self::from_session(ruleset, &ticket.session);
        if ruleset.rating.is_some() {
            let ratings: Vec<f64> = ticket.player_ratings.iter().map(|rated| rated.rating).collect();
            for (attribute, value) in ruleset.attributes.iter().zip(&mut attribute_values.0) {
                if attribute.source == AttributeSource::Skill {
                    *value = attribute.party_aggregation.aggregate(&ratings).map(AttributeValue::Number);
                }
            }
        }
        attribute_values
    }

    /// No values, for a ruleset without attributes.
    pub fn empty() -> Self {
        Self(Box::default())
    }

    /// Value of the attribute at `index` in `Ruleset::attributes`.
    pub fn get(&self, index: usize) -> Option<&AttributeValue> {
        self.0[index].as_ref()
    }

    /// Number at `index` in `Ruleset::attributes`; `None` if it is absent or not a number.
    pub fn number(&self, index: usize) -> Option<f64> {
        match self.0[index] {
            Some(AttributeValue::Number(number)) => Some(number),
            _ => None,
        }
    }
}

/// Invalid field of a session. Paths are relative to the session composition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldProblem {
    /// Field path, for example `attributes["mode"]`.
    pub path: String,
    /// The problem and its remedy.
    pub message: String,
}

/// Lists the attributes of `session` that `ruleset` does not declare, or declares with another type or source.
pub fn validate_attributes(ruleset: &Ruleset, session: &Session) -> Vec<FieldProblem> {
    let mut problems = Vec::new();
    for (name, value) in &session.attributes {
        let path = || format!("attributes[\"{name}\"]");
        match ruleset.attribute_index(name).map(|index| &ruleset.attributes[index]) {
            None => problems.push(FieldProblem { path: path(), message: unknown_attribute_message(ruleset, name) }),
            Some(attribute) if attribute.source == AttributeSource::DisputedPercent => {
                let message = format!("`{name}` is counted by the server; remove it from the attributes");
                problems.push(FieldProblem { path: path(), message });
            }
            Some(attribute) if attribute.source != AttributeSource::AttributeMap => {
                let message =
                    format!("`{name}` has its own request field; remove it from the attributes and set that field");
                problems.push(FieldProblem { path: path(), message });
            }
            Some(attribute) if attribute.value_type != value.value_type() => {
                let (declared, given) = (attribute.value_type.as_str(), value.value_type().as_str());
                let message = format!("has type {given}; the ruleset declares type {declared}");
                problems.push(FieldProblem { path: path(), message });
            }
            Some(_) => {}
        }
    }
    problems
}

/// Paths of the fields of `session` that are set but ignored, because `ruleset` does not trust their origin.
pub fn untrusted_fields(ruleset: &Ruleset, session: &Session) -> Vec<String> {
    let mut paths = Vec::new();
    for attribute in ruleset.attributes.iter().filter(|attribute| !attribute.trust.accepts(session.origin)) {
        match attribute.source {
            AttributeSource::AttributeMap if session.attribute_value(&attribute.name).is_some() => {
                paths.push(format!("attributes[\"{}\"]", attribute.name));
            }
            AttributeSource::Skill => {
                let given = session.players.iter().enumerate().filter(|(_, player)| player.stated_skill.is_some());
                paths.extend(given.map(|(index, _)| format!("players[{index}].skill")));
            }
            AttributeSource::NatType if session.nat_type.is_some() => paths.push("nat_type".into()),
            AttributeSource::GameInProgress if session.game_in_progress.is_some() => {
                paths.push("game_in_progress".into())
            }
            AttributeSource::BigPartyCount if session.big_party_count.is_some() => paths.push("big_party_count".into()),
            _ => {}
        }
    }
    paths
}

fn trusted_value(attribute: &Attribute, session: &Session) -> Option<AttributeValue> {
    if attribute.source == AttributeSource::PlayerCount {
        return Some(AttributeValue::Number(f64::from(session.player_count())));
    }
    if attribute.source == AttributeSource::DisputedPercent {
        return session.attribute_value(&attribute.name).cloned();
    }
    if !attribute.trust.accepts(session.origin) {
        return None;
    }
    let value = match attribute.source {
        AttributeSource::AttributeMap | AttributeSource::DisputedPercent => {
            session.attribute_value(&attribute.name)?.clone()
        }
        AttributeSource::Skill => {
            let skills: Vec<f64> = session.players.iter().filter_map(|player| player.stated_skill).collect();
            AttributeValue::Number(attribute.party_aggregation.aggregate(&skills)?)
        }
        AttributeSource::NatType => AttributeValue::Number(f64::from(session.nat_type?)),
        AttributeSource::GameInProgress => AttributeValue::Bool(session.game_in_progress?),
        AttributeSource::BigPartyCount => AttributeValue::Number(f64::from(session.big_party_count?)),
        AttributeSource::PlayerCount => AttributeValue::Number(f64::from(session.player_count())),
    };
    (value.value_type() == attribute.value_type).then_some(value)
}

fn unknown_attribute_message(ruleset: &Ruleset, name: &str) -> String {
    let known: Vec<&str> = ruleset
        .attributes
        .iter()
        .filter(|attribute| attribute.source == AttributeSource::AttributeMap)
        .map(|attribute| &*attribute.name)
        .collect();
    if known.is_empty() {
        return format!("`{name}` is not declared; ruleset `{}` declares no custom attributes", ruleset.name);
    }
    format!("`{name}` is not declared by ruleset `{}`; use one of: {}", ruleset.name, known.join(", "))
}
