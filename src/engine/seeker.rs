//! A session that asks for something, seen through the ruleset that it asks under.

use crate::domain::facts::{self, Facts, FieldProblem};
use crate::domain::filter::Searcher;
use crate::domain::id::{AdvertisementId, UserKey};
use crate::domain::ruleset::Ruleset;
use crate::domain::session::Session;
use crate::engine::command::Caller;
use crate::engine::fault::Fault;

/// A session with its facts, its users and what was not believed of it.
#[derive(Debug)]
pub(super) struct Seeker {
    pub(super) session: Session,
    pub(super) facts: Facts,
    pub(super) users: Vec<UserKey>,
    pub(super) subject: Option<UserKey>,
    pub(super) ignored: Vec<String>,
}

impl Seeker {
    /// Holds `session` against `ruleset`. `ignored` are fields that were set aside before.
    pub(super) fn new(
        ruleset: &Ruleset,
        caller: &Caller,
        session: Session,
        mut ignored: Vec<String>,
    ) -> Result<Self, Fault> {
        check_session(ruleset, &session)?;
        ignored.extend(facts::ignored(ruleset, &session));
        let facts = Facts::of(ruleset, &session);
        Ok(Self { facts, users: session.users(), subject: caller.subject, ignored, session })
    }

    /// The seeker as filters see it.
    pub(super) fn searcher<'a>(&'a self, excluded: &'a [AdvertisementId], waited_ms: u64) -> Searcher<'a> {
        Searcher {
            facts: &self.facts,
            locality: self.session.locality,
            regions: &self.session.regions,
            seats: self.session.player_count(),
            users: &self.users,
            subject: self.subject,
            excluded,
            waited_ms,
        }
    }
}

/// Every field of the session that the ruleset cannot use, as paths of the request.
pub(super) fn check_session(ruleset: &Ruleset, session: &Session) -> Result<(), Fault> {
    let mut problems = facts::check(ruleset, session);
    if !ruleset.silos.serves(session.silo) {
        let what = format!("silo {} is not served by ruleset `{}`", session.silo, ruleset.name);
        problems.push(FieldProblem { path: "silo_id".into(), what });
    }
    if problems.is_empty() {
        return Ok(());
    }
    for problem in &mut problems {
        problem.path.insert_str(0, "session_composition.");
    }
    Err(Fault::Fields(problems))
}

/// A fault with one field.
pub(super) fn field(path: impl Into<String>, what: impl Into<String>) -> Fault {
    Fault::Fields(vec![FieldProblem { path: path.into(), what: what.into() }])
}
