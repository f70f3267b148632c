//! `<Teams>`: number and size of teams, largest party, and roles.

use crate::attribute::ValueType;
use crate::limit::{PLAYERS_PER_SESSION_MAX, PLAYERS_PER_TICKET_MAX, ROLES_PER_RULESET_MAX, RULESET_DURATION_MS_MAX};
use crate::ruleset::element_reader::ElementReader;
use crate::ruleset::raw::{Diagnostics, RawElement, quoted_excerpt};
use crate::ruleset::spelling::closest_name;
use crate::ruleset::teams::{BotsSpec, TeamOrderInMatch, TeamRole, TeamsSpec};
use crate::ruleset::validate::attributes::DeclaredAttributes;

/// Default of `ExactUpToSize`: 126 evaluations for ten players.
const DEFAULT_EXACT_UP_TO_TEAM_SIZE: u64 = 5;

/// Maximum of `ExactUpToSize`: C(19, 9), about 92,000 evaluations, which is what a pass can afford.
const EXACT_UP_TO_SIZE_SETTING_MAX: u64 = 10;

/// Fewest players of a match with bots: a result needs two sides.
const MIN_PLAYERS_WITH_BOTS: u64 = 2;

/// Reads `<Teams>`.
pub(super) fn read_teams(element: &RawElement, declared: &DeclaredAttributes, diagnostics: &Diagnostics) -> TeamsSpec {
    let mut reader = ElementReader::new(element, diagnostics);
    let sizes = read_team_sizes(&mut reader, diagnostics);
    let players: u64 = sizes.iter().sum();
    if players > PLAYERS_PER_SESSION_MAX as u64 {
        let problem = format!("{} have {players} players", describe_team_sizes(&sizes));
        reader.report_at(
            element.name_span,
            problem,
            format!("keep a match to at most {PLAYERS_PER_SESSION_MAX} players"),
        );
    }
    // Invalid sizes were reported already; accept any party size then.
    let largest_team = sizes.iter().copied().max().unwrap_or(PLAYERS_PER_SESSION_MAX as u64);
    let smallest_team = sizes.iter().copied().min().unwrap_or(PLAYERS_PER_SESSION_MAX as u64);
    let largest_party = largest_team.min(PLAYERS_PER_TICKET_MAX as u64);
    let max_party_size = reader.integer_or("MaxPartySize", 1, largest_party, largest_party);
    let exact_up_to_size =
        reader.integer_or("ExactUpToSize", 0, EXACT_UP_TO_SIZE_SETTING_MAX, DEFAULT_EXACT_UP_TO_TEAM_SIZE);
    let orders = [("split", TeamOrderInMatch::Split), ("drawn", TeamOrderInMatch::Drawn)];
    let order = reader.optional_keyword("Order", &orders).unwrap_or_default();
    let raw_role_attribute = reader.attribute("RoleAttribute");
    let role_attribute = raw_role_attribute.and_then(|raw| declared.find_of_kind(&reader, raw, ValueType::StringList));
    if let (Some(index), Some(raw)) = (role_attribute, raw_role_attribute)
        && declared.is_of_players(index)
    {
        let problem = format!("{} is an attribute of each player", quoted_excerpt(&raw.value));
        let fix = "name one without `PartyAggregation`: players state their roles in `roles`";
        reader.report_at(raw.value_span, problem, fix);
    }
    let children = reader.children_named(&["Role"]);
    if children.is_empty() {
        reader.report_without_effect(&["RoleAttribute"], "there is no <Role>");
    }
    if let Some(excess) = children.get(ROLES_PER_RULESET_MAX) {
        let problem = format!("{} roles are declared", children.len());
        reader.report_at(excess.name_span, problem, format!("keep at most {ROLES_PER_RULESET_MAX}"));
    }
    let roles = read_team_roles(&reader, &children, smallest_team, diagnostics);
    let bots = reader.single_child("Bots").and_then(|bots| read_bots(bots, &sizes, diagnostics));
    reader.report_unread_and_missing();
    TeamsSpec {
        team_sizes: sizes.into_iter().map(|size| size as u16).collect(),
        max_party_size: max_party_size as u16,
        exact_up_to_team_size: exact_up_to_size as u16,
        roles: roles.into(),
        order,
        offered_roles_attribute: role_attribute,
        bots,
    }
}

/// Reads `<Bots>`.
fn read_bots(element: &RawElement, team_sizes: &[u64], diagnostics: &Diagnostics) -> Option<BotsSpec> {
    let mut reader = ElementReader::new(element, diagnostics);
    let after_ms = reader.required_integer("AfterMs", 0, RULESET_DURATION_MS_MAX);
    let players: u64 = team_sizes.iter().sum();
    if players == MIN_PLAYERS_WITH_BOTS {
        reader.report_at(element.name_span, "a match of two players has no seat for a bot", "remove <Bots>");
    }
    let most_players = players.saturating_sub(1).max(MIN_PLAYERS_WITH_BOTS);
    let min_players = reader.required_integer("MinPlayers", MIN_PLAYERS_WITH_BOTS, most_players);
    reader.report_unread_and_missing();
    Some(BotsSpec { after_ms: after_ms?, min_players: min_players? as u16 })
}

/// Players in each team, from `Count` and `Size` or from one `<Team>` per team. Empty if a problem was reported.
fn read_team_sizes(reader: &mut ElementReader<'_>, diagnostics: &Diagnostics) -> Vec<u64> {
    let players_max = PLAYERS_PER_SESSION_MAX as u64;
    let teams = reader.children_named(&["Team"]);
    let has_misspelt_team =
        reader.element.children.iter().any(|child| closest_name(&child.name, ["Team", "Role", "Bots"]) == Some("Team"));
    if teams.is_empty() && !has_misspelt_team {
        let (count, size) =
            (reader.required_integer("Count", 2, players_max), reader.required_integer("Size", 1, players_max));
        // An invalid count was reported already; a valid size is still checked.
        return size.map_or(Vec::new(), |size| vec![size; count.unwrap_or(2) as usize]);
    }
    for name in ["Count", "Size"] {
        if let Some(raw) = reader.attribute(name) {
            let problem = format!("`{name}` is combined with a list of teams");
            reader.report_at(raw.name_span, problem, "keep either `Count` and `Size`, or one <Team> per team");
        }
    }
    if let [only_team] = teams.as_slice() {
        let fix = "add a <Team Size=\"…\"/> for each other team";
        reader.report_at(only_team.name_span, "a match needs at least two teams and has one", fix);
    }
    let sizes: Option<Vec<u64>> = teams.iter().map(|team| read_team_size(team, diagnostics)).collect();
    sizes.unwrap_or_default()
}

fn read_team_size(team: &RawElement, diagnostics: &Diagnostics) -> Option<u64> {
    let mut reader = ElementReader::new(team, diagnostics);
    let size = reader.required_integer("Size", 1, PLAYERS_PER_SESSION_MAX as u64);
    reader.report_unread_and_missing();
    size
}

fn describe_team_sizes(sizes: &[u64]) -> String {
    match sizes {
        [size, rest @ ..] if rest.iter().all(|other| other == size) => format!("{} teams of {size}", sizes.len()),
        sizes => format!("teams of {}", sizes.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")),
    }
}

/// Reads the roles of a team; they must fit into the smallest team.
fn read_team_roles(
    reader: &ElementReader<'_>,
    children: &[&RawElement],
    smallest_team: u64,
    diagnostics: &Diagnostics,
) -> Vec<TeamRole> {
    let mut roles: Vec<TeamRole> = Vec::new();
    for child in children {
        let mut reader = ElementReader::new(child, diagnostics);
        let name = reader.required_identifier("Name");
        let per_team = reader.required_integer("PerTeam", 1, smallest_team).unwrap_or(1) as u16;
        if let Some(name) = name {
            if roles.iter().any(|role| role.name == name.value) {
                reader.report_at(
                    name.value_span,
                    format!("role {} appears a second time", quoted_excerpt(&name.value)),
                    "merge them into one",
                );
            }
            roles.push(TeamRole { name: name.value.clone(), per_team });
        }
        reader.report_unread_and_missing();
    }
    let players_needed: u64 = roles.iter().map(|role| u64::from(role.per_team)).sum();
    if players_needed > smallest_team {
        let problem = format!("its roles need {players_needed} players in a team of {smallest_team}");
        reader.report_at(reader.element.name_span, problem, "lower `PerTeam`");
    }
    roles
}
