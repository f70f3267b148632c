//! Attribute values of a session under one ruleset: one trusted value, or none, per declared attribute.

use crate::attribute::{Attribute, AttributeValue, SourceField};
use crate::expansion::Expansion;
use crate::field_problem::{unknown_attribute_message, wrong_type_message};
use crate::player_aggregation::aggregate_attribute_of_players;
use crate::player_details;
use crate::player_standing::{self, PlayerStanding};
use crate::queue::ticket::{PlayerRating, Ticket};
use crate::ruleset::Ruleset;
use crate::session::Session;

pub use crate::field_problem::FieldProblem;

/// One value per attribute of a ruleset, in the ruleset's order. `None` if the value is absent, has the wrong type or
/// comes from an origin that the ruleset does not trust.
#[derive(Clone, Debug, PartialEq)]
pub struct AttributeValues {
    values: Box<[Option<AttributeValue>]>,
    /// Factor on the limits of the session's expansions, at least 1.
    limit_factor: f64,
}

impl AttributeValues {
    /// Reads the values of a party: what `ruleset` declares, trusts, and the server keeps. `standings` are those of the
    /// session's players, in their order; `None` if the ruleset has no rating system or does not use them.
    pub fn from_session_and_standings(
        ruleset: &Ruleset,
        session: &Session,
        standings: Option<&[PlayerStanding]>,
    ) -> Self {
        let is_frustrated = standings.is_some_and(|standings| standings.iter().any(|player| player.is_frustrated));
        let limit_factor = if is_frustrated { limit_factor_of_frustrated(ruleset) } else { 1.0 };
        Self::from_session_with(ruleset, session, limit_factor, |attribute| {
            let number = match attribute.source {
                SourceField::Skill | SourceField::RatingDeviation => number_from_ratings(
                    ruleset,
                    attribute,
                    player_standing::session_ratings(ruleset, session, standings).flatten(),
                ),
                _ => number_counted_from_matches(attribute, standings?),
            };
            number.map(AttributeValue::Number)
        })
    }

    /// The values of a party, one of whose players counts as frustrated by the ruleset, or none.
    pub fn with_frustration(self, ruleset: &Ruleset, is_frustrated: bool) -> Self {
        Self { limit_factor: if is_frustrated { limit_factor_of_frustrated(ruleset) } else { 1.0 }, ..self }
    }

    /// Factor on the limits of the session's expansions: more than 1 if one of its players counts as frustrated.
    pub fn limit_factor(&self) -> f64 {
        self.limit_factor
    }

    /// Limit of one of the session's expansions after it has waited.
    pub fn limit_of(&self, expansion: &Expansion, waited_ms: u64) -> f64 {
        expansion.limit_at(waited_ms) * self.limit_factor
    }

    /// Values of a party of whose players the server keeps nothing.
    pub fn from_session_without_standings(ruleset: &Ruleset, session: &Session) -> Self {
        // As `of_party` without standings; most advertisements are read here.
        Self::from_session_with(ruleset, session, 1.0, |attribute| match attribute.source {
            SourceField::Skill | SourceField::RatingDeviation => {
                let ratings = player_standing::session_ratings(ruleset, session, None).flatten();
                number_from_ratings(ruleset, attribute, ratings).map(AttributeValue::Number)
            }
            _ => None,
        })
    }

    /// Reads the values of players whose ratings were chosen before, as in [`player_standing::stated_or_standing_rating`]. What the
    /// server counts is read from the session's attributes, where it was put at the entry.
    pub fn from_session_and_ratings(ruleset: &Ruleset, session: &Session, ratings: &[PlayerRating]) -> Self {
        Self::from_session_with(ruleset, session, 1.0, |attribute| match attribute.source {
            SourceField::Skill | SourceField::RatingDeviation => {
                number_from_ratings(ruleset, attribute, ratings.iter().copied()).map(AttributeValue::Number)
            }
            _ => session.stated_attribute_value(&attribute.name).cloned(),
        })
    }

    /// Reads the values of a queue ticket. With a rating system, its players' ratings were chosen when it entered.
    pub fn from_ticket(ruleset: &Ruleset, ticket: &Ticket) -> Self {
        match ruleset.rating {
            Some(_) => Self::from_session_and_ratings(ruleset, &ticket.session, &ticket.player_ratings),
            None => Self::from_session_without_standings(ruleset, &ticket.session),
        }
    }

    /// Values of a session; `standing_value` reads those that depend on the standing of players.
    fn from_session_with(
        ruleset: &Ruleset,
        session: &Session,
        limit_factor: f64,
        standing_value: impl Fn(&Attribute) -> Option<AttributeValue>,
    ) -> Self {
        let value = |attribute: &Attribute| match attribute.source.depends_on_standings() {
            true => standing_value(attribute),
            false => trusted_value(attribute, session),
        };
        Self { values: ruleset.attributes.iter().map(value).collect(), limit_factor }
    }

    /// Whether the values equal `other`, except for those that depend on the standing of players.
    pub fn equals_without_standings(&self, other: &Self, ruleset: &Ruleset) -> bool {
        if !player_standing::uses_standings(ruleset) {
            return self == other;
        }
        let mut values = ruleset.attributes.iter().zip(self.values.iter().zip(&other.values));
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
        let attributes = ruleset.attributes.iter().zip(&mut self.values);
        let dependent = attributes.filter(|(attribute, _)| attribute.source.depends_on_standings());
        dependent.zip(numbers).for_each(|((_, value), number)| *value = number.map(AttributeValue::Number));
        self
    }

    /// No values, for a ruleset without attributes.
    pub fn of_no_attributes() -> Self {
        Self { values: Box::default(), limit_factor: 1.0 }
    }

    /// Value of the attribute at `index` in `Ruleset::attributes`.
    pub fn get(&self, index: usize) -> Option<&AttributeValue> {
        self.values[index].as_ref()
    }

    /// Number at `index` in `Ruleset::attributes`; `None` if it is absent or not a number.
    pub fn number(&self, index: usize) -> Option<f64> {
        match self.values[index] {
            Some(AttributeValue::Number(number)) => Some(number),
            _ => None,
        }
    }
}

/// Lists the attributes of `session` that `ruleset` does not declare, or declares with another type or source.
pub fn validate_attributes(ruleset: &Ruleset, session: &Session) -> Vec<FieldProblem> {
    let mut problems = Vec::new();
    for (name, value) in &session.attributes {
        let path = || format!("attributes[\"{name}\"]");
        match ruleset.attribute_index(name).map(|index| &ruleset.attributes[index]) {
            None => {
                let is_known = |source: SourceField| source == SourceField::AttributeMap;
                let message = unknown_attribute_message(ruleset, name, "custom attributes", is_known);
                problems.push(FieldProblem { path: path(), message });
            }
            Some(Attribute { source: SourceField::Players(_), .. }) => {
                let message = format!("`{name}` is an attribute of each player; set it in players[].attributes");
                problems.push(FieldProblem { path: path(), message });
            }
            Some(attribute) if attribute.source.is_kept_by_server() => {
                let message = format!("`{name}` is counted by the server; remove it from the attributes");
                problems.push(FieldProblem { path: path(), message });
            }
            Some(attribute) if attribute.source != SourceField::AttributeMap => {
                let message =
                    format!("`{name}` has its own request field; remove it from the attributes and set that field");
                problems.push(FieldProblem { path: path(), message });
            }
            Some(attribute) if attribute.value_type != value.value_type() => {
                problems.push(FieldProblem { path: path(), message: wrong_type_message(attribute, value) });
            }
            Some(_) => {}
        }
    }
    problems.extend(player_details::validate_player_details(ruleset, session));
    problems
}

/// Paths of the fields of `session` that are set but ignored, because `ruleset` does not trust their origin.
pub fn ignored_untrusted_field_paths(ruleset: &Ruleset, session: &Session) -> Vec<String> {
    let mut paths = Vec::new();
    for attribute in ruleset.attributes.iter().filter(|attribute| !attribute.trust.accepts(session.value_origin)) {
        match attribute.source {
            SourceField::AttributeMap if session.stated_attribute_value(&attribute.name).is_some() => {
                paths.push(format!("attributes[\"{}\"]", attribute.name));
            }
            SourceField::Skill => {
                let given = session.players.iter().enumerate().filter(|(_, player)| player.stated_skill.is_some());
                paths.extend(given.map(|(index, _)| format!("players[{index}].skill")));
            }
            SourceField::NatType if session.nat_type.is_some() => paths.push("nat_type".into()),
            SourceField::GameInProgress if session.game_in_progress.is_some() => paths.push("game_in_progress".into()),
            SourceField::BigPartyCount if session.big_party_count.is_some() => paths.push("big_party_count".into()),
            _ => {}
        }
    }
    paths.extend(player_details::ignored_untrusted_player_field_paths(ruleset, session));
    paths
}

/// Factor on the limits of a party, one of whose players counts as frustrated by the ruleset.
fn limit_factor_of_frustrated(ruleset: &Ruleset) -> f64 {
    ruleset.frustrated_player_limits.as_ref().map_or(1.0, |rule| rule.limit_widen_factor)
}

/// Number that the server counts for a party; `None` if the attribute is not counted, or there are no players.
pub fn number_counted_from_matches(attribute: &Attribute, standings: &[PlayerStanding]) -> Option<f64> {
    match attribute.source {
        SourceField::MatchesPlayed => {
            aggregate_numbers(attribute, standings.iter().map(|player| f64::from(player.rated_match_count)))
        }
        SourceField::DisputedPercent => standings.iter().map(|player| player.disputed_percent).reduce(f64::max),
        _ => None,
    }
}

/// Number that an attribute takes from the ratings of players: the rating less `match_z` deviations, or the deviation.
#[inline]
fn number_from_ratings(
    ruleset: &Ruleset,
    attribute: &Attribute,
    ratings: impl Iterator<Item = PlayerRating>,
) -> Option<f64> {
    let (match_z, is_deviation) = (ruleset.match_z(), attribute.source == SourceField::RatingDeviation);
    let number = |it: PlayerRating| if is_deviation { it.deviation } else { it.matching_rating(match_z) };
    aggregate_numbers(attribute, ratings.map(number))
}

fn aggregate_numbers(attribute: &Attribute, values: impl Iterator<Item = f64>) -> Option<f64> {
    attribute.number_aggregation.aggregate(&values.collect::<Vec<f64>>())
}

/// Value that the session states, if the ruleset trusts its origin.
fn trusted_value(attribute: &Attribute, session: &Session) -> Option<AttributeValue> {
    if attribute.source == SourceField::PlayerCount {
        return Some(AttributeValue::Number(f64::from(session.player_count())));
    }
    if !attribute.trust.accepts(session.value_origin) {
        return None;
    }
    let value = match attribute.source {
        SourceField::NatType => AttributeValue::Number(f64::from(session.nat_type?)),
        SourceField::GameInProgress => AttributeValue::Bool(session.game_in_progress?),
        SourceField::BigPartyCount => AttributeValue::Number(f64::from(session.big_party_count?)),
        SourceField::Players(aggregation) => {
            return aggregate_attribute_of_players(
                aggregation,
                &attribute.name,
                attribute.value_type,
                &session.players,
            );
        }
        _ => session.stated_attribute_value(&attribute.name)?.clone(),
    };
    (value.value_type() == attribute.value_type).then_some(value)
}
