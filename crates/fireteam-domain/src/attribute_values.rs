//! A session as one ruleset sees it: a believed value, or none, for every declared attribute.

use crate::attribute::{Attribute, AttributeSource, AttributeValue};
use crate::queue::ticket::Ticket;
use crate::ruleset::Ruleset;
use crate::session::Session;

/// One value for each of a ruleset's attributes, in the ruleset's order. A value that is absent, of the wrong kind or
/// from a source that the ruleset does not trust is `None`.
#[derive(Clone, Debug, PartialEq)]
pub struct AttributeValues(Box<[Option<AttributeValue>]>);

impl AttributeValues {
    /// Looks at `session` through `ruleset`.
    pub fn from_session(ruleset: &Ruleset, session: &Session) -> Self {
        Self(ruleset.attributes.iter().map(|attribute| trusted_value(attribute, session)).collect())
    }

    /// Looks at a party that waits in a queue: where the set has a rating system, `skill` is what the server knows of its
    /// players, whatever they say and whoever is trusted.
    pub fn from_ticket(ruleset: &Ruleset, ticket: &Ticket) -> Self {
        let mut facts = Self::from_session(ruleset, &ticket.session);
        if ruleset.rating.is_some() {
            let ratings: Vec<f64> = ticket.player_ratings.iter().map(|rated| rated.rating).collect();
            for (attribute, value) in ruleset.attributes.iter().zip(&mut facts.0) {
                if attribute.source == AttributeSource::Skill {
                    *value = attribute.party_aggregation.aggregate(&ratings).map(AttributeValue::Number);
                }
            }
        }
        facts
    }

    /// What a ruleset without attributes sees.
    pub fn empty() -> Self {
        Self(Box::default())
    }

    /// The value of the attribute at `index`.
    pub fn get(&self, index: usize) -> Option<&AttributeValue> {
        self.0[index].as_ref()
    }

    /// The number at `index`; `None` when it is absent or no number.
    pub fn number(&self, index: usize) -> Option<f64> {
        match self.0[index] {
            Some(AttributeValue::Number(number)) => Some(number),
            _ => None,
        }
    }
}

/// A field of a session that cannot be used, and what would be right. Paths are relative to the session composition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldProblem {
    /// `attributes["mode"]`, for example.
    pub path: String,
    /// What is wrong and what would be right.
    pub message: String,
}

/// Every attribute of `session` that `ruleset` does not know, or knows as something else.
pub fn validate_attributes(ruleset: &Ruleset, session: &Session) -> Vec<FieldProblem> {
    let mut problems = Vec::new();
    for (name, value) in &session.attributes {
        let path = || format!("attributes[\"{name}\"]");
        match ruleset.attribute_index(name).map(|index| &ruleset.attributes[index]) {
            None => problems.push(FieldProblem { path: path(), message: unknown_attribute_message(ruleset, name) }),
            Some(attribute) if attribute.source != AttributeSource::AttributeMap => {
                let what = format!("`{name}` is read from its own field, not from the attributes");
                problems.push(FieldProblem { path: path(), message: what });
            }
            Some(attribute) if attribute.value_type != value.value_type() => {
                let (wanted, given) = (attribute.value_type.as_str(), value.value_type().as_str());
                problems.push(FieldProblem {
                    path: path(),
                    message: format!("is a {given}, the ruleset declares a {wanted}"),
                });
            }
            Some(_) => {}
        }
    }
    problems
}

/// Paths of the fields of `session` that were given but, by `ruleset`, not believed.
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
    if !attribute.trust.accepts(session.origin) {
        return None;
    }
    let value = match attribute.source {
        AttributeSource::AttributeMap => session.attribute_value(&attribute.name)?.clone(),
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
        return format!("`{name}` is not declared: ruleset `{}` declares no attributes of its own", ruleset.name);
    }
    format!("`{name}` is not declared by ruleset `{}`, which has: {}", ruleset.name, known.join(", "))
}
