//! Attributes and wanted roles of players: which a ruleset knows, and which it trusts.

use crate::attribute::{AggregateFunction, Attribute, SourceField};
use crate::field_problem::{FieldProblem, unknown_attribute_message, wrong_type_message};
use crate::limit::STRING_LIST_ENTRIES_MAX;
use crate::player_aggregation::union_entry_count;
use crate::ruleset::Ruleset;
use crate::session::{Player, PlayerDetails, Session};

/// Lists the attributes and roles of players that `ruleset` does not have. Paths are relative to the session composition.
pub(crate) fn validate_player_details(ruleset: &Ruleset, session: &Session) -> Vec<FieldProblem> {
    let mut problems = Vec::new();
    if indexed_player_details(session).next().is_none() {
        return problems;
    }
    for (index, details) in indexed_player_details(session) {
        let mut add = |path: String, message: String| {
            problems.push(FieldProblem { path: format!("players[{index}].{path}"), message });
        };
        for (name, value) in &details.attributes {
            let message = match ruleset.attribute_index(name).map(|index| &ruleset.attributes[index]) {
                Some(attribute @ Attribute { source: SourceField::Players(_), .. }) => {
                    let is_wrong = attribute.value_type != value.value_type();
                    is_wrong.then(|| wrong_type_message(attribute, value))
                }
                Some(Attribute { source: SourceField::AttributeMap, .. }) => {
                    Some(format!("`{name}` is an attribute of the party; set it in session_composition.attributes"))
                }
                Some(attribute) if attribute.source.is_kept_by_server() => {
                    Some(format!("`{name}` is counted by the server; remove it from the attributes"))
                }
                Some(_) => Some(format!("`{name}` has its own request field; remove it and set that field")),
                None => {
                    let is_known = |source: SourceField| matches!(source, SourceField::Players(_));
                    Some(unknown_attribute_message(ruleset, name, "attributes of players", is_known))
                }
            };
            message.into_iter().for_each(|message| add(format!("attributes[\"{name}\"]"), message));
        }
        for (position, role) in details.wanted_roles.iter().enumerate() {
            let message = unknown_role_message(ruleset, role);
            message.into_iter().for_each(|message| add(format!("roles[{position}]"), message));
        }
    }
    problems.extend(too_long_union_problems(ruleset, session));
    problems
}

/// Paths of the players' attributes and roles that are set but ignored, because `ruleset` does not trust their origin.
pub(crate) fn ignored_untrusted_player_field_paths(ruleset: &Ruleset, session: &Session) -> Vec<String> {
    let mut paths = Vec::new();
    for (index, details) in indexed_player_details(session) {
        for (name, _) in &details.attributes {
            let attribute = ruleset.attribute_index(name).map(|index| &ruleset.attributes[index]);
            if attribute.is_some_and(|attribute| !attribute.trust.accepts(session.value_origin)) {
                paths.push(format!("players[{index}].attributes[\"{name}\"]"));
            }
        }
        if !details.wanted_roles.is_empty() && !trusts_wanted_roles(ruleset, session) {
            paths.push(format!("players[{index}].roles"));
        }
    }
    paths
}

/// Roles that each player wants, the most wanted first, as indexes into `TeamsSpec::roles`. Empty if no player wants any. A
/// player's list is empty if the player wants none, or none that the ruleset has now.
pub fn wanted_roles_by_player(ruleset: &Ruleset, session: &Session) -> Box<[Box<[u16]>]> {
    let wants_any = session.players.iter().any(|player| !player.wanted_roles().is_empty());
    let Some(teams) = ruleset.teams.as_ref().filter(|_| wants_any && trusts_wanted_roles(ruleset, session)) else {
        return Box::default();
    };
    let index_of = |name: &str| teams.roles.iter().position(|role| *role.name == *name);
    let of_player = |player: &Player| {
        player.wanted_roles().iter().filter_map(|name| index_of(name)).map(|index| index as u16).collect()
    };
    session.players.iter().map(of_player).collect()
}

/// Whether roles that a session states count: as the attribute that says the roles of its party. Without one, always.
fn trusts_wanted_roles(ruleset: &Ruleset, session: &Session) -> bool {
    let attribute = ruleset.teams.as_ref().and_then(|teams| teams.offered_roles_attribute);
    attribute.is_none_or(|index| ruleset.attributes[index].trust.accepts(session.value_origin))
}

fn indexed_player_details(session: &Session) -> impl Iterator<Item = (usize, &PlayerDetails)> {
    let players = session.players.iter().enumerate();
    players.filter_map(|(index, player)| player.details.as_deref().map(|details| (index, details)))
}

fn unknown_role_message(ruleset: &Ruleset, role: &str) -> Option<String> {
    let known = ruleset.teams.as_ref().map_or(&[][..], |teams| &teams.roles);
    if known.iter().any(|known| *known.name == *role) {
        return None;
    }
    let names: Vec<&str> = known.iter().map(|role| &*role.name).collect();
    Some(match names.is_empty() {
        true => format!("is `{role}`, but ruleset `{}` has no <Role>; leave it out", ruleset.name),
        false => format!("is `{role}`; use a role of ruleset `{}`: {}", ruleset.name, names.join(", ")),
    })
}

/// Lists that would be too long when the players' lists are joined.
fn too_long_union_problems(ruleset: &Ruleset, session: &Session) -> Vec<FieldProblem> {
    let is_union = |attribute: &&Attribute| matches!(attribute.source, SourceField::Players(it) if it.function == AggregateFunction::Union);
    let counts = ruleset.attributes.iter().filter(is_union).map(|attribute| {
        let name = &*attribute.name;
        (name, union_entry_count(name, &session.players))
    });
    let too_long = counts.filter(|(_, count)| *count > STRING_LIST_ENTRIES_MAX);
    let problem = |(name, count)| FieldProblem {
        path: "players".into(),
        message: format!(
            "have {count} different strings in `{name}`; at most {STRING_LIST_ENTRIES_MAX} are allowed in all"
        ),
    };
    too_long.map(problem).collect()
}
