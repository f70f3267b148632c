//! Attribute values of a session under one ruleset: one trusted value, or none, per declared attribute.

use crate::attribute::{Attribute, AttributeSource, AttributeValue};
use crate::player_standing::{self, PlayerStanding};
use crate::queue::ticket::{PlayerRating, Ticket};
use crate::ruleset::Ruleset;
use crate::session::Session;

/// One value per attribute of a ruleset, in the ruleset's order. `None` if the value is absent, has the wrong type or
/// comes from an origin that the ruleset does not trust.
#[derive(Clone, Debug, PartialEq)]
pub struct AttributeValues(Box<[Option<AttributeValue>]>);

impl AttributeValues {
    /// Reads the values of a party: what `ruleset` declares, trusts, and the server keeps. `standings` are those of the
    /// session's players, in their order; `None` if the ruleset has no rating system or does not use them.
    pub fn of_party(ruleset: &Ruleset, session: &Session, standings: Option<&[PlayerStanding]>) -> Self {
        Self::read(ruleset, session, |attribute| {
            let number = match attribute.source {
                AttributeSource::Skill | AttributeSource::RatingDeviation => {
                    rating_number(attribute, player_standing::session_ratings(ruleset, session, standings).flatten())
                }
                _ => counted_number(attribute, standings?),
            };
            number.map(AttributeValue::Number)
        })
    }

    /// Values of a party of whose players the server keeps nothing.
    pub fn from_session(ruleset: &Ruleset, session: &Session) -> Self {
        Self::of_party(ruleset, session, None)
    }

    /// Reads the values of players whose ratings were chosen before, as in [`player_standing::player_rating`]. What the
    /// server counts is read from the session's attributes, where it was put at the entry.
    pub fn of_rated_players(ruleset: &Ruleset, session: &Session, ratings: &[PlayerRating]) -> Self {
        Self::read(ruleset, session, |attribute| match attribute.source {
            AttributeSource::Skill | AttributeSource::RatingDeviation => {
                rating_number(attribute, ratings.iter().copied()).map(AttributeValue::Number)
            }
            _ => session.attribute_value(&attribute.name).cloned(),
        })
    }

    /// Reads the values of a queue ticket. With a rating system, its players' ratings were chosen when it entered.
    pub fn from_ticket(ruleset: &Ruleset, ticket: &Ticket) -> Self {
        match ruleset.rating {
            Some(_) => Self::of_rated_players(ruleset, &ticket.session, &ticket.player_ratings),
            None => Self::from_session(ruleset, &ticket.session),
        }
    }

    /// Values of a session; `standing_value` reads those that depend on the standing of players.
    fn read(
        ruleset: &Ruleset,
        session: &Session,
        standing_value: impl Fn(&Attribute) -> Option<AttributeValue>,
    ) -> Self {
        let value = |attribute: &Attribute| match attribute.source.depends_on_standings() {
            true => standing_value(attribute),
            false => trusted_value(attribute, session),
        };
        Self(ruleset.attributes.iter().map(value).collect())
    }

    /// Whether the values equal `other`, except for those that depend on the standing of players.
    pub fn equals_without_standings(&self, other: &Self, ruleset: &Ruleset) -> bool {
        if !player_standing::uses_standings(ruleset) {
            return self == other;
        }
        let mut values = ruleset.attributes.iter().zip(self.0.iter().zip(&other.0));
        values.all(|(attribute, (one, other))| attribute.source.depends_on_standings() || one == other)
    }

    /// Numbers of the attributes that depend on the standing of players, in the ruleset's order.
    pub fn standing_numbers(&self, ruleset: &Ruleset) -> Vec<Option<f64>> {
        let attributes = ruleset.attributes.iter().enumerate();
        let dependent = attributes.filter(|(_, attribute)| attribute.source.depends_on_standings());
        dependent.map(|(index, _)| self.number(index)).collect()
    }

    /// The values with these [`standing_numbers`](Self::standing_numbers).
    pub fn with_standing_numbers(mut self, ruleset: &Ruleset, numbers: &[Option<f64>]) -> Self {
        let attributes = ruleset.attributes.iter().zip(&mut self.0);
        let dependent = attributes.filter(|(attribute, _)| attribute.source.depends_on_standings());
        dependent.zip(numbers).for_each(|((_, value), number)| *value = number.map(AttributeValue::Number));
        self
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

/// Number that the server counts for a party; `None` if the attribute is not counted, or there are no players.
pub fn counted_number(attribute: &Attribute, standings: &[PlayerStanding]) -> Option<f64> {
    match attribute.source {
        AttributeSource::MatchesPlayed => {
            aggregate(attribute, standings.iter().map(|player| f64::from(player.match_count)))
        }
        AttributeSource::DisputedPercent => standings.iter().map(|player| player.disputed_percent).reduce(f64::max),
        _ => None,
    }
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
