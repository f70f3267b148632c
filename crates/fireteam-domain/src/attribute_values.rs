//! Attribute values of a session under one ruleset: one trusted value, or none, per declared attribute.

use crate::attribute::{Attribute, AttributeSource, AttributeValue};
use crate::player_facts::{self, PlayerFacts};
use crate::queue::ticket::{PlayerRating, Ticket};
use crate::ruleset::Ruleset;
use crate::session::Session;

/// One value per attribute of a ruleset, in the ruleset's order. `None` if the value is absent, has the wrong type or
/// comes from an origin that the ruleset does not trust.
#[derive(Clone, Debug, PartialEq)]
pub struct AttributeValues(Box<[Option<AttributeValue>]>);

impl AttributeValues {
    /// Reads the values of a party: what `ruleset` declares, trusts, and the server keeps. `facts` are those of the
    /// session's players, in their order; `None` if the ruleset has no rating system or does not use them.
    pub fn of_party(ruleset: &Ruleset, session: &Session, facts: Option<&[PlayerFacts]>) -> Self {
        let values = ruleset.attributes.iter().map(|attribute| {
            if !attribute.source.depends_on_player_facts() {
                return trusted_value(attribute, session);
            }
            let number = match attribute.source {
                AttributeSource::MatchesPlayed => {
                    aggregate(attribute, facts?.iter().map(|player| f64::from(player.match_count)))
                }
                AttributeSource::DisputedPercent => {
                    facts?.iter().map(|player| player.disputed_percent).reduce(f64::max)
                }
                _ => rating_number(attribute, player_facts::session_ratings(ruleset, session, facts).flatten()),
            };
            number.map(AttributeValue::Number)
        });
        Self(values.collect())
    }

    /// Values of a party of whose players the server keeps nothing.
    pub fn from_session(ruleset: &Ruleset, session: &Session) -> Self {
        Self::of_party(ruleset, session, None)
    }

    /// Reads the values of players whose ratings were chosen before, as in [`player_facts::player_rating`]. What the
    /// server counts is read from the session's attributes, where [`kept_attributes`] has put it.
    pub fn of_rated_players(ruleset: &Ruleset, session: &Session, ratings: &[PlayerRating]) -> Self {
        let values = ruleset.attributes.iter().map(|attribute| match attribute.source {
            AttributeSource::Skill | AttributeSource::RatingDeviation => {
                rating_number(attribute, ratings.iter().copied()).map(AttributeValue::Number)
            }
            AttributeSource::DisputedPercent | AttributeSource::MatchesPlayed => {
                session.attribute_value(&attribute.name).cloned()
            }
            _ => trusted_value(attribute, session),
        });
        Self(values.collect())
    }

    /// Reads the values of a queue ticket. With a rating system, its players' ratings were chosen when it entered.
    pub fn from_ticket(ruleset: &Ruleset, ticket: &Ticket) -> Self {
        match ruleset.rating {
            Some(_) => Self::of_rated_players(ruleset, &ticket.session, &ticket.player_ratings),
            None => Self::from_session(ruleset, &ticket.session),
        }
    }

    /// Whether the values equal `other`, except for those that depend on what the server keeps about players.
    pub fn equals_without_player_facts(&self, other: &Self, ruleset: &Ruleset) -> bool {
        let mut values = ruleset.attributes.iter().zip(self.0.iter().zip(&other.0));
        values.all(|(attribute, (one, other))| attribute.source.depends_on_player_facts() || one == other)
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
            Some(attribute) if attribute.source.is_kept_by_server() => {
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

/// Values that the server keeps of a party's players, other than ratings, in the form of session attributes. A ticket is
/// stored with them.
pub fn kept_attributes(
    ruleset: &Ruleset,
    session: &Session,
    facts: Option<&[PlayerFacts]>,
) -> Vec<(Box<str>, AttributeValue)> {
    let values = AttributeValues::of_party(ruleset, session, facts);
    let attributes = ruleset.attributes.iter().enumerate();
    let stored = attributes.filter(|(_, attribute)| {
        matches!(attribute.source, AttributeSource::DisputedPercent | AttributeSource::MatchesPlayed)
    });
    stored.filter_map(|(index, attribute)| Some((attribute.name.clone(), values.get(index)?.clone()))).collect()
}

/// Number that an attribute takes from the ratings of players: the rating, or its deviation.
fn rating_number(attribute: &Attribute, ratings: impl Iterator<Item = PlayerRating>) -> Option<f64> {
    let is_deviation = attribute.source == AttributeSource::RatingDeviation;
    aggregate(attribute, ratings.map(|rating| if is_deviation { rating.deviation } else { rating.rating }))
}

fn aggregate(attribute: &Attribute, values: impl Iterator<Item = f64>) -> Option<f64> {
    attribute.party_aggregation.aggregate(&values.collect::<Vec<f64>>())
}

/// Value that the session states, if the ruleset trusts its origin.
fn trusted_value(attribute: &Attribute, session: &Session) -> Option<AttributeValue> {
    if attribute.source == AttributeSource::PlayerCount {
        return Some(AttributeValue::Number(f64::from(session.player_count())));
    }
    if !attribute.trust.accepts(session.origin) {
        return None;
    }
    let value = match attribute.source {
        AttributeSource::NatType => AttributeValue::Number(f64::from(session.nat_type?)),
        AttributeSource::GameInProgress => AttributeValue::Bool(session.game_in_progress?),
        AttributeSource::BigPartyCount => AttributeValue::Number(f64::from(session.big_party_count?)),
        _ => session.attribute_value(&attribute.name)?.clone(),
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
