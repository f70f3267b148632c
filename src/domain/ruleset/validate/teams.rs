//! `<Teams>` and `<ReadyCheck>`: what a match is made of, and who must agree to it.

use crate::domain::attribute::ValueKind;
use crate::domain::limit::{DURATION_MS_MAX, PLAYERS_MAX};
use crate::domain::ruleset::draft::{Element, Mistakes, quoted};
use crate::domain::ruleset::fields::Fields;
use crate::domain::ruleset::teams::{ReadyCheck, Role, ServerMode, ServerSpec, TeamsSpec};
use crate::domain::ruleset::validate::attributes::Declared;

/// Teams up to this size are split exactly where a file does not say: 126 looks for ten players (S4-13).
const DEFAULT_EXACT_UP_TO_SIZE: u64 = 5;

/// Larger teams are never split exactly: C(19, 9) looks, some 92,000, are what a pass can bear.
const EXACT_UP_TO_SIZE_MAX: u64 = 10;

/// How long players have to answer where a file does not say, milliseconds (D-3).
const DEFAULT_DEADLINE_MS: u64 = 30_000;

/// The longest that a ready check may hold players, milliseconds.
const DEADLINE_MS_MAX: u64 = 10 * 60 * 1000;

/// After how long without a failed check penalties begin anew where a file does not say: a day, milliseconds.
const DEFAULT_RESET_AFTER_MS: u64 = 24 * 60 * 60 * 1000;

/// Where matches are played where a file does not say.
pub(super) const DEFAULT_SERVER: ServerSpec =
    ServerSpec { mode: ServerMode::None, wait_ms: 30_000, play_max_ms: 4 * 60 * 60 * 1000 };

/// Reads `<Teams>`.
pub(super) fn read(element: &Element, declared: &Declared, mistakes: &Mistakes) -> TeamsSpec {
    let players_max = PLAYERS_MAX as u64;
    let mut at = Fields::of(element, mistakes);
    let count = at.required_whole("Count", 2, players_max);
    let size = at.required_whole("Size", 1, players_max);
    if let (Some(count), Some(size)) = (count, size)
        && players_max < count * size
    {
        let what = format!("{count} teams of {size} are {} players", count * size);
        at.wrong(element.span, what, format!("keep a match to {players_max} players"));
    }
    let team = size.unwrap_or(players_max);
    let max_party_size = at.whole_or("MaxPartySize", 1, team, team);
    let exact_up_to_size = at.whole_or("ExactUpToSize", 0, EXACT_UP_TO_SIZE_MAX, DEFAULT_EXACT_UP_TO_SIZE);
    let role_written = at.written("RoleAttribute");
    let role_attribute = role_written.and_then(|written| declared.expect_kind(&at, written, ValueKind::Texts));
    let roles = roles(&mut at, team, mistakes);
    if let (None, Some(first)) = (role_written, element.children.first().filter(|_| !roles.is_empty())) {
        let right = "add RoleAttribute=\"…\" with the texts attribute in which parties say what they play";
        at.wrong(first.span, "roles are asked for, but nothing says who plays them", right);
    }
    at.finish();
    TeamsSpec {
        sizes: vec![team as u16; count.unwrap_or(2) as usize].into(),
        max_party_size: max_party_size as u16,
        exact_up_to_size: exact_up_to_size as u16,
        roles: roles.into(),
        role_attribute,
    }
}

fn roles(at: &mut Fields<'_>, team: u64, mistakes: &Mistakes) -> Vec<Role> {
    let mut roles: Vec<Role> = Vec::new();
    let element = at.element;
    for child in at.children(&["Role"]) {
        let mut at = Fields::of(child, mistakes);
        let name = at.handle("Name");
        let per_team = at.required_whole("PerTeam", 1, team).unwrap_or(1) as u16;
        if let Some(name) = name {
            if roles.iter().any(|role| role.name == name.value) {
                at.wrong(name.value_span, format!("role {} is here a second time", quoted(&name.value)), "add them up");
            }
            roles.push(Role { name: name.value.clone(), per_team });
        }
        at.finish();
    }
    let wanted: u64 = roles.iter().map(|role| u64::from(role.per_team)).sum();
    if team < wanted {
        at.wrong(element.span, format!("its roles ask for {wanted} players in a team of {team}"), "ask for fewer");
    }
    roles
}

/// Reads `<ReadyCheck>`.
pub(super) fn ready_check(element: &Element, mistakes: &Mistakes) -> ReadyCheck {
    let mut at = Fields::of(element, mistakes);
    let deadline_ms = at.whole_or("DeadlineMs", 1_000, DEADLINE_MS_MAX, DEFAULT_DEADLINE_MS) as u32;
    let cooldown_ms = at.whole_or("DeclineCooldownMs", 0, DURATION_MS_MAX, 0) as u32;
    at.finish();
    let penalties_ms = if cooldown_ms == 0 { Box::default() } else { [cooldown_ms].into() };
    ReadyCheck { deadline_ms, penalties_ms, reset_after_ms: DEFAULT_RESET_AFTER_MS }
}

const _: () = assert!(DURATION_MS_MAX <= u32::MAX as u64);
