//! `<Teams>`: what a match is made of.

use crate::attribute::ValueType;
use crate::limit::PLAYERS_PER_SESSION_MAX;
use crate::ruleset::element_reader::ElementReader;
use crate::ruleset::raw::{Diagnostics, RawElement, quoted_excerpt};
use crate::ruleset::spelling::closest_name;
use crate::ruleset::teams::{TeamRole, TeamsSpec};
use crate::ruleset::validate::attributes::DeclaredAttributes;

/// Teams up to this size are split exactly where a file does not say: 126 looks for ten players (S4-13).
const DEFAULT_EXACT_UP_TO_SIZE: u64 = 5;

/// Larger teams are never split exactly: C(19, 9) looks, some 92,000, are what a pass can bear.
const EXACT_UP_TO_SIZE_MAX: u64 = 10;

/// Reads `<Teams>`.
pub(super) fn read_teams(element: &RawElement, declared: &DeclaredAttributes, mistakes: &Diagnostics) -> TeamsSpec {
    let mut at = ElementReader::new(element, mistakes);
    let sizes = read_team_sizes(&mut at, mistakes);
    let players: u64 = sizes.iter().sum();
    if (PLAYERS_PER_SESSION_MAX as u64) < players {
        let what = format!("{} are {players} players", describe_team_sizes(&sizes));
        at.report(element.name_span, what, format!("keep a match to {PLAYERS_PER_SESSION_MAX} players"));
    }
    // Where sizes are wrong, everything fits: that they are wrong is noted already.
    let largest = sizes.iter().copied().max().unwrap_or(PLAYERS_PER_SESSION_MAX as u64);
    let smallest = sizes.iter().copied().min().unwrap_or(PLAYERS_PER_SESSION_MAX as u64);
    let max_party_size = at.integer_or("MaxPartySize", 1, largest, largest);
    let exact_up_to_size = at.integer_or("ExactUpToSize", 0, EXACT_UP_TO_SIZE_MAX, DEFAULT_EXACT_UP_TO_SIZE);
    let role_written = at.attribute("RoleAttribute");
    let role_attribute = role_written.and_then(|written| declared.find_of_kind(&at, written, ValueType::StringList));
    let children = at.children_named(&["Role"]);
    match (role_written, children.first()) {
        (None, Some(first)) => {
            let right = "add RoleAttribute=\"…\" with the texts attribute in which parties say what they play";
            at.report(first.name_span, "roles are asked for, but nothing says who plays them", right);
        }
        (Some(_), None) => at.report_without_effect(&["RoleAttribute"], "no <Role> asks for anybody"),
        _ => {}
    }
    let roles = read_team_roles(&at, &children, smallest, mistakes);
    at.report_unread();
    TeamsSpec {
        team_sizes: sizes.into_iter().map(|size| size as u16).collect(),
        max_party_size: max_party_size as u16,
        exact_up_to_size: exact_up_to_size as u16,
        roles: roles.into(),
        role_attribute,
    }
}

/// Players in each team: so many teams of one size, or one `<Team>` after another. Empty when a mistake is noted.
fn read_team_sizes(at: &mut ElementReader<'_>, mistakes: &Diagnostics) -> Vec<u64> {
    let players_max = PLAYERS_PER_SESSION_MAX as u64;
    let teams = at.children_named(&["Team"]);
    let misspelt = at.element.children.iter().any(|child| closest_name(&child.name, ["Team", "Role"]) == Some("Team"));
    if teams.is_empty() && !misspelt {
        let (count, size) = (at.required_integer("Count", 2, players_max), at.required_integer("Size", 1, players_max));
        // A wrong count is noted; sizes that are right are still held against it.
        return size.map_or(Vec::new(), |size| vec![size; count.unwrap_or(2) as usize]);
    }
    for name in ["Count", "Size"] {
        if let Some(written) = at.attribute(name) {
            let what = format!("`{name}` stands beside a list of teams");
            at.report(written.name_span, what, "keep `Count` and `Size`, or one <Team> for each team");
        }
    }
    if let [only] = teams.as_slice() {
        let right = "add a <Team Size=\"…\"/> for every other team";
        at.report(only.name_span, "a match needs two teams, and this is the only one", right);
    }
    let sizes: Option<Vec<u64>> = teams.iter().map(|team| read_team_size(team, mistakes)).collect();
    sizes.unwrap_or_default()
}

fn read_team_size(team: &RawElement, mistakes: &Diagnostics) -> Option<u64> {
    let mut at = ElementReader::new(team, mistakes);
    let size = at.required_integer("Size", 1, PLAYERS_PER_SESSION_MAX as u64);
    at.report_unread();
    size
}

fn describe_team_sizes(sizes: &[u64]) -> String {
    match sizes {
        [size, rest @ ..] if rest.iter().all(|other| other == size) => format!("{} teams of {size}", sizes.len()),
        sizes => format!("teams of {}", sizes.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")),
    }
}

/// What every team must fill, the smallest one too.
fn read_team_roles(
    at: &ElementReader<'_>,
    children: &[&RawElement],
    smallest: u64,
    mistakes: &Diagnostics,
) -> Vec<TeamRole> {
    let mut roles: Vec<TeamRole> = Vec::new();
    for child in children {
        let mut at = ElementReader::new(child, mistakes);
        let name = at.required_identifier("Name");
        let per_team = at.required_integer("PerTeam", 1, smallest).unwrap_or(1) as u16;
        if let Some(name) = name {
            if roles.iter().any(|role| role.name == name.value) {
                at.report(
                    name.value_span,
                    format!("role {} is here a second time", quoted_excerpt(&name.value)),
                    "add them up",
                );
            }
            roles.push(TeamRole { name: name.value.clone(), per_team });
        }
        at.report_unread();
    }
    let wanted: u64 = roles.iter().map(|role| u64::from(role.per_team)).sum();
    if smallest < wanted {
        let what = format!("its roles ask for {wanted} players in a team of {smallest}");
        at.report(at.element.name_span, what, "ask for fewer");
    }
    roles
}
