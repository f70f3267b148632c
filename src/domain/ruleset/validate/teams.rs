//! `<Teams>`: what a match is made of.

use crate::domain::attribute::ValueKind;
use crate::domain::limit::PLAYERS_MAX;
use crate::domain::ruleset::draft::{Element, Mistakes, quoted};
use crate::domain::ruleset::fields::Fields;
use crate::domain::ruleset::suggest::nearest;
use crate::domain::ruleset::teams::{Role, TeamsSpec};
use crate::domain::ruleset::validate::attributes::Declared;

/// Teams up to this size are split exactly where a file does not say: 126 looks for ten players (S4-13).
const DEFAULT_EXACT_UP_TO_SIZE: u64 = 5;

/// Larger teams are never split exactly: C(19, 9) looks, some 92,000, are what a pass can bear.
const EXACT_UP_TO_SIZE_MAX: u64 = 10;

/// Reads `<Teams>`.
pub(super) fn read(element: &Element, declared: &Declared, mistakes: &Mistakes) -> TeamsSpec {
    let mut at = Fields::of(element, mistakes);
    let sizes = sizes(&mut at, mistakes);
    let players: u64 = sizes.iter().sum();
    if (PLAYERS_MAX as u64) < players {
        let what = format!("{} are {players} players", in_words(&sizes));
        at.wrong(element.span, what, format!("keep a match to {PLAYERS_MAX} players"));
    }
    // Where sizes are wrong, everything fits: that they are wrong is noted already.
    let largest = sizes.iter().copied().max().unwrap_or(PLAYERS_MAX as u64);
    let smallest = sizes.iter().copied().min().unwrap_or(PLAYERS_MAX as u64);
    let max_party_size = at.whole_or("MaxPartySize", 1, largest, largest);
    let exact_up_to_size = at.whole_or("ExactUpToSize", 0, EXACT_UP_TO_SIZE_MAX, DEFAULT_EXACT_UP_TO_SIZE);
    let role_written = at.written("RoleAttribute");
    let role_attribute = role_written.and_then(|written| declared.expect_kind(&at, written, ValueKind::Texts));
    let children = at.children(&["Role"]);
    match (role_written, children.first()) {
        (None, Some(first)) => {
            let right = "add RoleAttribute=\"…\" with the texts attribute in which parties say what they play";
            at.wrong(first.span, "roles are asked for, but nothing says who plays them", right);
        }
        (Some(_), None) => at.idle(&["RoleAttribute"], "no <Role> asks for anybody"),
        _ => {}
    }
    let roles = roles(&at, &children, smallest, mistakes);
    at.finish();
    TeamsSpec {
        sizes: sizes.into_iter().map(|size| size as u16).collect(),
        max_party_size: max_party_size as u16,
        exact_up_to_size: exact_up_to_size as u16,
        roles: roles.into(),
        role_attribute,
    }
}

/// Players in each team: so many teams of one size, or one `<Team>` after another. Empty when a mistake is noted.
fn sizes(at: &mut Fields<'_>, mistakes: &Mistakes) -> Vec<u64> {
    let players_max = PLAYERS_MAX as u64;
    let teams = at.children(&["Team"]);
    let misspelt = at.element.children.iter().any(|child| nearest(&child.name, ["Team", "Role"]) == Some("Team"));
    if teams.is_empty() && !misspelt {
        let (count, size) = (at.required_whole("Count", 2, players_max), at.required_whole("Size", 1, players_max));
        // A wrong count is noted; sizes that are right are still held against it.
        return size.map_or(Vec::new(), |size| vec![size; count.unwrap_or(2) as usize]);
    }
    for name in ["Count", "Size"] {
        if let Some(written) = at.written(name) {
            let what = format!("`{name}` stands beside a list of teams");
            at.wrong(written.name_span, what, "keep `Count` and `Size`, or one <Team> for each team");
        }
    }
    if let [only] = teams.as_slice() {
        let right = "add a <Team Size=\"…\"/> for every other team";
        at.wrong(only.span, "a match needs two teams, and this is the only one", right);
    }
    let sizes: Option<Vec<u64>> = teams.iter().map(|team| team_size(team, mistakes)).collect();
    sizes.unwrap_or_default()
}

fn team_size(team: &Element, mistakes: &Mistakes) -> Option<u64> {
    let mut at = Fields::of(team, mistakes);
    let size = at.required_whole("Size", 1, PLAYERS_MAX as u64);
    at.finish();
    size
}

fn in_words(sizes: &[u64]) -> String {
    match sizes {
        [size, rest @ ..] if rest.iter().all(|other| other == size) => format!("{} teams of {size}", sizes.len()),
        sizes => format!("teams of {}", sizes.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")),
    }
}

/// What every team must fill, the smallest one too.
fn roles(at: &Fields<'_>, children: &[&Element], smallest: u64, mistakes: &Mistakes) -> Vec<Role> {
    let mut roles: Vec<Role> = Vec::new();
    for child in children {
        let mut at = Fields::of(child, mistakes);
        let name = at.handle("Name");
        let per_team = at.required_whole("PerTeam", 1, smallest).unwrap_or(1) as u16;
        if let Some(name) = name {
            if roles.iter().any(|role| role.name == name.value) {
                at.wrong(name.value_span, format!("role {} is here a second time", quoted(&name.value)), "add them up");
            }
            roles.push(Role { name: name.value.clone(), per_team });
        }
        at.finish();
    }
    let wanted: u64 = roles.iter().map(|role| u64::from(role.per_team)).sum();
    if smallest < wanted {
        let what = format!("its roles ask for {wanted} players in a team of {smallest}");
        at.wrong(at.element.span, what, "ask for fewer");
    }
    roles
}
