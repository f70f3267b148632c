//! The Operator service: what designers and operators ask of a running server.

use std::sync::Arc;

use tonic::{Request, Response, Status};

use crate::api::drain::Drain;
use crate::api::oversight::Deed;
use crate::api::pb;
use crate::api::pb::operator_server::Operator;
use crate::api::status::Rejection;
use crate::domain::facts::FieldProblem;
use crate::domain::id::{RulesetHash, SetId};
use crate::domain::time::UnixMs;
use crate::telemetry::audit::Change;

/// Bytes of a ruleset file that is checked.
const RULESET_BYTES_MAX: usize = 256 * 1024;

/// Bytes of a file's name.
const FILE_NAME_BYTES_MAX: usize = 256;

/// One mistake in a ruleset file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub file_name: String,
    /// From 1; 0 when the mistake is the whole file's.
    pub line: u32,
    /// From 1; 0 when the mistake is the whole file's.
    pub column: u32,
    /// What is wrong, and what would be right.
    pub text: String,
}

/// What a reload changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// Sets with another ruleset than before: the set, the hash before and the hash now.
    pub changes: Vec<(SetId, Option<RulesetHash>, Option<RulesetHash>)>,
    /// Mistakes; they change nothing.
    pub problems: Vec<Problem>,
}

/// One ruleset that can still be searched by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedRuleset {
    /// The playlist's name.
    pub name: String,
    /// The set that it rules.
    pub set_id: SetId,
    /// Names its meaning.
    pub hash: RulesetHash,
    /// The file that it was read from.
    pub file_name: String,
    /// In force, rather than replaced.
    pub is_current: bool,
    /// When it was loaded.
    pub loaded: UnixMs,
    /// What was wrong with the file when it was last read.
    pub problems: Vec<Problem>,
}

/// The rulesets folder, as operators see it.
#[tonic::async_trait]
pub trait RulesetsDesk: Send + Sync + 'static {
    /// Checks a file's text; nothing is loaded.
    fn check(&self, file_name: &str, xml: &str) -> Result<RulesetHash, Vec<Problem>>;
    /// Reads the folder now.
    async fn reload(&self) -> Reloaded;
    /// By set, the current one first, then the latest retired first.
    fn list(&self) -> Vec<ListedRuleset>;
}

/// The service.
#[derive(Clone)]
pub struct OperatorService {
    rulesets: Arc<dyn RulesetsDesk>,
    drain: Drain,
}

impl OperatorService {
    /// A service over `rulesets`, which takes the server out of service by `drain`.
    pub fn new(rulesets: Arc<dyn RulesetsDesk>, drain: Drain) -> Self {
        Self { rulesets, drain }
    }
}

type Answered<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl Operator for OperatorService {
    async fn check_ruleset(&self, request: Request<pb::CheckRulesetRequest>) -> Answered<pb::CheckRulesetResponse> {
        let wire = request.into_inner();
        at_most("file_name", wire.file_name.len(), FILE_NAME_BYTES_MAX)?;
        at_most("ruleset_xml", wire.ruleset_xml.len(), RULESET_BYTES_MAX)?;
        let file_name = if wire.file_name.is_empty() { "ruleset.xml" } else { &wire.file_name };
        let deed = Deed { object: file_name.to_owned(), ..Deed::default() };
        Ok(with_deed(
            deed,
            match self.rulesets.check(file_name, &wire.ruleset_xml) {
                Ok(hash) => pb::CheckRulesetResponse { service_configuration_hash: Some(hash.0), ..Default::default() },
                Err(problems) => pb::CheckRulesetResponse { problems: wire_problems(problems), ..Default::default() },
            },
        ))
    }

    async fn reload_rulesets(&self, _: Request<pb::ReloadRulesetsRequest>) -> Answered<pb::ReloadRulesetsResponse> {
        let reloaded = self.rulesets.reload().await;
        let deed = deed_of(&reloaded);
        let changes = reloaded.changes.into_iter().map(|(set, before, now)| pb::RulesetChange {
            matchmaking_set_id: set.0,
            previous_hash: before.map(|hash| hash.0),
            current_hash: now.map(|hash| hash.0),
        });
        let problems = wire_problems(reloaded.problems);
        Ok(with_deed(deed, pb::ReloadRulesetsResponse { changes: changes.collect(), problems }))
    }

    async fn list_rulesets(&self, _: Request<pb::ListRulesetsRequest>) -> Answered<pb::ListRulesetsResponse> {
        let rulesets = self.rulesets.list().into_iter().map(wire_ruleset).collect();
        Ok(Response::new(pb::ListRulesetsResponse { rulesets }))
    }

    async fn drain(&self, _: Request<pb::DrainRequest>) -> Answered<pb::DrainResponse> {
        Ok(Response::new(pb::DrainResponse { already_draining: self.drain.begin().await }))
    }
}

/// What a reload did, for whoever writes it down.
fn deed_of(reloaded: &Reloaded) -> Deed {
    let changes = reloaded.changes.iter().map(|&(set, before, after)| Change {
        set_id: set.0,
        before: before.map(|hash| hash.0),
        after: after.map(|hash| hash.0),
    });
    Deed { object: format!("rulesets, {} problems", reloaded.problems.len()), changes: changes.collect() }
}

/// An answer, and what was done.
fn with_deed<T>(deed: Deed, answer: T) -> Response<T> {
    let mut response = Response::new(answer);
    response.extensions_mut().insert(deed);
    response
}

fn at_most(path: &str, bytes: usize, max: usize) -> Result<(), Rejection> {
    if bytes <= max {
        return Ok(());
    }
    let what = format!("has {bytes} bytes, at most {max} are allowed");
    Err(Rejection::of_fields(vec![FieldProblem { path: path.into(), what }]))
}

fn wire_ruleset(listed: ListedRuleset) -> pb::RulesetStatus {
    let state = if listed.is_current { pb::RulesetState::Current } else { pb::RulesetState::Retired };
    pb::RulesetStatus {
        name: listed.name,
        matchmaking_set_id: listed.set_id.0,
        service_configuration_hash: listed.hash.0,
        file_name: listed.file_name,
        state: state.into(),
        loaded_at_unix_ms: listed.loaded.0,
        problems: wire_problems(listed.problems),
    }
}

fn wire_problems(problems: Vec<Problem>) -> Vec<pb::RulesetProblem> {
    let wire = problems.into_iter().map(|problem| pb::RulesetProblem {
        file_name: problem.file_name,
        line: problem.line,
        column: problem.column,
        text: problem.text,
    });
    wire.collect()
}
