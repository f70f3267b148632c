//! A session as one ruleset sees it: a believed value, or none, for every declared attribute.

use crate::domain::attribute::{Attribute, Source, Value};
use crate::domain::queue::ticket::Ticket;
use crate::domain::ruleset::Ruleset;
use crate::domain::session::Session;

/// One value for each of a ruleset's attributes, in the ruleset's order. A value that is absent, of the wrong kind or
/// from a source that the ruleset does not trust is `None`.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts(Box<[Option<Value>]>);

impl Facts {
    /// Looks at `session` through `ruleset`.
    pub fn of(ruleset: &Ruleset, session: &Session) -> Self {
        Self(ruleset.attributes.iter().map(|attribute| believed(attribute, session)).collect())
    }

    /// Looks at a party that waits in a queue: where the set has a rating system, `skill` is what the server knows of its
    /// players, whatever they say and whoever is trusted.
    pub fn of_ticket(ruleset: &Ruleset, ticket: &Ticket) -> Self {
        let mut facts = Self::of(ruleset, &ticket.session);
        if ruleset.rating.is_some() {
            let ratings: Vec<f64> = ticket.ratings.iter().map(|rated| rated.rating).collect();
            for (attribute, value) in ruleset.attributes.iter().zip(&mut facts.0) {
                if attribute.source == Source::Skill {
                    *value = attribute.reduction.reduce(&ratings).map(Value::Number);
                }
            }
        }
        facts
    }

    /// What a ruleset without attributes sees.
    pub fn none() -> Self {
        Self(Box::default())
    }

    /// The value of the attribute at `index`.
    pub fn get(&self, index: usize) -> Option<&Value> {
        self.0[index].as_ref()
    }

    /// The number at `index`; `None` when it is absent or no number.
    pub fn number(&self, index: usize) -> Option<f64> {
        match self.0[index] {
            Some(Value::Number(number)) => Some(number),
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
    pub what: String,
}

/// Every attribute of `session` that `ruleset` does not know, or knows as something else.
pub fn check(ruleset: &Ruleset, session: &Session) -> Vec<FieldProblem> {
    let mut problems = Vec::new();
    for (name, value) in &session.attributes {
        let path = || format!("attributes[\"{name}\"]");
        match ruleset.attribute_index(name).map(|index| &ruleset.attributes[index]) {
            None => problems.push(FieldProblem { path: path(), what: unknown_attribute(ruleset, name) }),
            Some(attribute) if attribute.source != Source::Map => {
                let what = format!("`{name}` is read from its own field, not from the attributes");
                problems.push(FieldProblem { path: path(), what });
            }
            Some(attribute) if attribute.kind != value.kind() => {
                let (wanted, given) = (attribute.kind.as_str(), value.kind().as_str());
                problems.push(FieldProblem {
                    path: path(),
                    what: format!("is a {given}, the ruleset declares a {wanted}"),
                });
            }
            Some(_) => {}
        }
    }
    problems
}

/// Paths of the fields of `session` that were given but, by `ruleset`, not believed.
pub fn ignored(ruleset: &Ruleset, session: &Session) -> Vec<String> {
    let mut paths = Vec::new();
    for attribute in ruleset.attributes.iter().filter(|attribute| !attribute.trust.believes(session.origin)) {
        match attribute.source {
            Source::Map if session.attribute(&attribute.name).is_some() => {
                paths.push(format!("attributes[\"{}\"]", attribute.name));
            }
            Source::Skill => {
                let given = session.players.iter().enumerate().filter(|(_, player)| player.skill.is_some());
                paths.extend(given.map(|(index, _)| format!("players[{index}].skill")));
            }
            Source::NatType if session.nat_type.is_some() => paths.push("nat_type".into()),
            Source::GameInProgress if session.game_in_progress.is_some() => paths.push("game_in_progress".into()),
            Source::BigPartyCount if session.big_party_count.is_some() => paths.push("big_party_count".into()),
            _ => {}
        }
    }
    paths
}

fn believed(attribute: &Attribute, session: &Session) -> Option<Value> {
    if attribute.source == Source::PlayerCount {
        return Some(Value::Number(f64::from(session.player_count())));
    }
    if !attribute.trust.believes(session.origin) {
        return None;
    }
    let value = match attribute.source {
        Source::Map => session.attribute(&attribute.name)?.clone(),
        Source::Skill => {
            let skills: Vec<f64> = session.players.iter().filter_map(|player| player.skill).collect();
            Value::Number(attribute.reduction.reduce(&skills)?)
        }
        Source::NatType => Value::Number(f64::from(session.nat_type?)),
        Source::GameInProgress => Value::Flag(session.game_in_progress?),
        Source::BigPartyCount => Value::Number(f64::from(session.big_party_count?)),
        Source::PlayerCount => Value::Number(f64::from(session.player_count())),
    };
    (value.kind() == attribute.kind).then_some(value)
}

fn unknown_attribute(ruleset: &Ruleset, name: &str) -> String {
    let known: Vec<&str> = ruleset
        .attributes
        .iter()
        .filter(|attribute| attribute.source == Source::Map)
        .map(|attribute| &*attribute.name)
        .collect();
    if known.is_empty() {
        return format!("`{name}` is not declared: ruleset `{}` declares no attributes of its own", ruleset.name);
    }
    format!("`{name}` is not declared by ruleset `{}`, which has: {}", ruleset.name, known.join(", "))
}
