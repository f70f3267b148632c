//! A session that asks for something, seen through the ruleset that it asks under.

use crate::domain::attribute_values::{self, AttributeValues, FieldProblem};
use crate::domain::filter::Searcher;
use crate::domain::id::{AdvertisementId, UserKey};
use crate::domain::ruleset::Ruleset;
use crate::domain::session::Session;
use crate::engine::command::Caller;
use crate::engine::error::EngineError;

/// A session with its facts, its users and what was not believed of it.
#[derive(Debug)]
pub(in crate::engine) struct CheckedSession {
    pub(in crate::engine) session: Session,
    pub(in crate::engine) attribute_values: AttributeValues,
    pub(in crate::engine) users: Vec<UserKey>,
    pub(in crate::engine) subject: Option<UserKey>,
    pub(in crate::engine) ignored_fields: Vec<String>,
}

impl CheckedSession {
    /// Holds `session` against `ruleset`. `ignored` are fields that were set aside before.
    pub(in crate::engine) fn new(
        ruleset: &Ruleset,
        caller: &Caller,
        session: Session,
        mut ignored: Vec<String>,
    ) -> Result<Self, EngineError> {
        check_session(ruleset, &session)?;
        ignored.extend(attribute_values::untrusted_fields(ruleset, &session));
        let facts = AttributeValues::from_session(ruleset, &session);
        Ok(Self {
            attribute_values: facts,
            users: session.sorted_users(),
            subject: caller.subject,
            ignored_fields: ignored,
            session,
        })
    }

    /// The seeker as filters see it.
    pub(in crate::engine) fn searcher<'a>(&'a self, excluded: &'a [AdvertisementId], waited_ms: u64) -> Searcher<'a> {
        Searcher {
            attribute_values: &self.attribute_values,
            locality: self.session.locality,
            region_latencies: &self.session.region_latencies,
            seats_needed: self.session.player_count(),
            users: &self.users,
            caller: self.subject,
            excluded_ids: excluded,
            waited_ms,
        }
    }
}

/// Every field of the session that the ruleset cannot use, as paths of the request.
pub(in crate::engine) fn check_session(ruleset: &Ruleset, session: &Session) -> Result<(), EngineError> {
    let mut problems = attribute_values::validate_attributes(ruleset, session);
    if !ruleset.silos.serves(session.silo) {
        let what = format!("silo {} is not served by ruleset `{}`", session.silo, ruleset.name);
        problems.push(FieldProblem { path: "silo_id".into(), message: what });
    }
    if problems.is_empty() {
        return Ok(());
    }
    for problem in &mut problems {
        problem.path.insert_str(0, "session_composition.");
    }
    Err(EngineError::InvalidFields(problems))
}

/// A fault with one field.
pub(in crate::engine) fn field_error(path: impl Into<String>, what: impl Into<String>) -> EngineError {
    EngineError::InvalidFields(vec![FieldProblem { path: path.into(), message: what.into() }])
}
