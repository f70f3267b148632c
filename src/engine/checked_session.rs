//! Session of a caller, validated against a ruleset.

use crate::domain::attribute_values::{self, AttributeValues, FieldProblem};
use crate::domain::filter::{AdvertsOfAvoidedPlayers, RoundTripPredictor, Searcher};
use crate::domain::id::{AdvertisementId, UserKey};
use crate::domain::probe_result::ProbeResults;
use crate::domain::ruleset::Ruleset;
use crate::domain::session::Session;
use crate::domain::wish::allowed_wishes::validate_wishes;
use crate::engine::command::Caller;
use crate::engine::error::EngineError;
use crate::engine::party_values::PartyValueReader;

/// Session with its attribute values, its users and its ignored fields.
#[derive(Debug)]
pub(crate) struct CheckedSession {
    pub(crate) session: Session,
    pub(crate) attribute_values: AttributeValues,
    pub(crate) users: Vec<UserKey>,
    pub(crate) subject: Option<UserKey>,
    pub(crate) ignored_fields: Vec<String>,
}

impl CheckedSession {
    /// Validates `session` against `ruleset`. Adds to `ignored_fields`.
    pub(crate) fn new(
        party_values: &PartyValueReader,
        ruleset: &Ruleset,
        caller: &Caller,
        session: Session,
        mut ignored_fields: Vec<String>,
    ) -> Result<Self, EngineError> {
        validate_session_for_ruleset(ruleset, &session)?;
        ignored_fields.extend(attribute_values::ignored_untrusted_field_paths(ruleset, &session));
        let values = party_values.attribute_values(ruleset, &session);
        Ok(Self {
            attribute_values: values,
            users: session.sorted_users(),
            subject: caller.subject,
            ignored_fields,
            session,
        })
    }

    /// Session as filters see it.
    pub(crate) fn searcher<'a>(
        &'a self,
        excluded_ids: &'a [AdvertisementId],
        avoided: AdvertsOfAvoidedPlayers<'a>,
        probes: ProbeResults<'a>,
        predictor: Option<RoundTripPredictor<'a>>,
        waited_ms: u64,
    ) -> Searcher<'a> {
        Searcher {
            attribute_values: &self.attribute_values,
            locality: self.session.locality,
            region_latencies: &self.session.region_latencies,
            wishes: self.session.wishes(),
            seats_needed: self.session.player_count(),
            users: &self.users,
            caller: self.subject,
            excluded_ids,
            avoided,
            probes,
            predictor,
            waited_ms,
        }
    }
}

/// Checks a session against the ruleset. Returns all invalid fields, as request paths.
pub(crate) fn validate_session_for_ruleset(ruleset: &Ruleset, session: &Session) -> Result<(), EngineError> {
    let mut problems = attribute_values::validate_attributes(ruleset, session);
    if !ruleset.silos.serves(session.silo) {
        let message =
            format!("silo {} is not served by ruleset `{}`; use a silo that it serves", session.silo, ruleset.name);
        problems.push(FieldProblem { path: "silo_id".into(), message });
    }
    problems.extend(unknown_teams(ruleset, session));
    problems.extend(validate_wishes(ruleset, session.wishes()));
    if problems.is_empty() {
        return Ok(());
    }
    for problem in &mut problems {
        problem.path.insert_str(0, "session_composition.");
    }
    Err(EngineError::InvalidFields(problems))
}

/// Stated teams that the ruleset does not have.
fn unknown_teams(ruleset: &Ruleset, session: &Session) -> Vec<FieldProblem> {
    let teams = ruleset.teams.as_ref().map_or(0, |teams| teams.team_sizes.len());
    let unknown = session.players.iter().enumerate().filter_map(|(index, player)| {
        let team = player.team.filter(|team| teams <= usize::from(*team))?;
        let message = match teams {
            0 => format!("is {team}, but ruleset `{}` has no <Teams>; leave it out", ruleset.name),
            _ => format!("is {team}; use a team of ruleset `{}`, 0 to {}", ruleset.name, teams - 1),
        };
        Some(FieldProblem { path: format!("players[{index}].team"), message })
    });
    unknown.collect()
}
