//! The Operator service: what designers and operators ask of a running server.

use std::sync::Arc;

use tonic::{Request, Response, Status};

use crate::api::admission::{self, Caller};
use crate::api::audit::{self, Auditor};
use crate::api::caller::Callers;
use crate::api::convert::{Door, rating};
use crate::api::drain::Drain;
use crate::api::explained::{self, About};
use crate::api::oversight::Deed;
use crate::api::pb;
use crate::api::pb::operator_service_server::OperatorService;
use crate::api::status::Rejection;
use crate::domain::facts::FieldProblem;
use crate::domain::id::{RulesetHash, SetId};
use crate::domain::time::UnixMs;
use crate::engine::queues::Queues;
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
pub struct OperatorApi {
    reach: reach::Reach,
    callers: Callers,
}

impl OperatorApi {
    /// A service over `rulesets`, which has the server compared by `auditor` and taken out of service by `drain`.
    pub fn new(
        rulesets: Arc<dyn RulesetsDesk>,
        auditor: Arc<dyn Auditor>,
        queues: Option<Queues>,
        drain: Drain,
    ) -> Self {
        // Nobody asks where operators are.
        Self {
            reach: reach::Reach::new(rulesets, auditor, queues, drain),
            callers: Callers::new(Arc::new(|peer, _| peer)),
        }
    }

    /// The request, and the caller as which the check has let it in.
    fn open<T>(&self, request: Request<T>) -> Result<(Caller<admission::Operator>, T), Status> {
        let (metadata, extensions, wire) = request.into_parts();
        Ok((Caller::of(&self.callers, metadata.as_ref(), &extensions)?, wire))
    }
}

/// What operators reach, and nobody else: there is no way to it without a caller who has passed the check.
mod reach {
    use std::sync::Arc;

    use super::{Auditor, RulesetsDesk};
    use crate::api::admission::{Caller, Operator};
    use crate::api::drain::Drain;
    use crate::api::status::Rejection;
    use crate::engine::fault::Fault;
    use crate::engine::queues::Queues;

    /// The rulesets folder, whoever compares, and the switch.
    #[derive(Clone)]
    pub(super) struct Reach {
        rulesets: Arc<dyn RulesetsDesk>,
        auditor: Arc<dyn Auditor>,
        queues: Option<Queues>,
        drain: Drain,
    }

    impl Reach {
        pub(super) fn new(
            rulesets: Arc<dyn RulesetsDesk>,
            auditor: Arc<dyn Auditor>,
            queues: Option<Queues>,
            drain: Drain,
        ) -> Self {
            Self { rulesets, auditor, queues, drain }
        }

        /// Where parties wait; a test that stands in for the engine has no such place.
        pub(super) fn queues(&self, _: &Caller<Operator>) -> Result<&Queues, Rejection> {
            self.queues.as_ref().ok_or_else(|| Fault::Draining.into())
        }

        pub(super) fn rulesets(&self, _: &Caller<Operator>) -> &dyn RulesetsDesk {
            &*self.rulesets
        }

        pub(super) fn auditor(&self, _: &Caller<Operator>) -> &dyn Auditor {
            &*self.auditor
        }

        pub(super) fn drain(&self, _: &Caller<Operator>) -> &Drain {
            &self.drain
        }
    }
}

type Answered<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl OperatorService for OperatorApi {
    async fn check_ruleset(&self, request: Request<pb::CheckRulesetRequest>) -> Answered<pb::CheckRulesetResponse> {
        let (caller, wire) = self.open(request)?;
        at_most("file_name", wire.file_name.len(), FILE_NAME_BYTES_MAX)?;
        at_most("ruleset_xml", wire.ruleset_xml.len(), RULESET_BYTES_MAX)?;
        let file_name = if wire.file_name.is_empty() { "ruleset.xml" } else { &wire.file_name };
        let deed = Deed { object: file_name.to_owned(), ..Deed::default() };
        let checked = match self.reach.rulesets(&caller).check(file_name, &wire.ruleset_xml) {
            Ok(hash) => pb::CheckRulesetResponse { service_configuration_hash: Some(hash.0), ..Default::default() },
            Err(problems) => pb::CheckRulesetResponse { problems: wire_problems(problems), ..Default::default() },
        };
        Ok(with_deed(deed, checked))
    }

    async fn reload_rulesets(
        &self,
        request: Request<pb::ReloadRulesetsRequest>,
    ) -> Answered<pb::ReloadRulesetsResponse> {
        let (caller, _) = self.open(request)?;
        let reloaded = self.reach.rulesets(&caller).reload().await;
        let deed = deed_of(&reloaded);
        let changes = reloaded.changes.into_iter().map(|(set, before, now)| pb::RulesetChange {
            matchmaking_set_id: set.0,
            previous_hash: before.map(|hash| hash.0),
            current_hash: now.map(|hash| hash.0),
        });
        let problems = wire_problems(reloaded.problems);
        Ok(with_deed(deed, pb::ReloadRulesetsResponse { changes: changes.collect(), problems }))
    }

    async fn list_rulesets(&self, request: Request<pb::ListRulesetsRequest>) -> Answered<pb::ListRulesetsResponse> {
        let (caller, _) = self.open(request)?;
        let rulesets = self.reach.rulesets(&caller).list().into_iter().map(wire_ruleset).collect();
        Ok(Response::new(pb::ListRulesetsResponse { rulesets }))
    }

    async fn drain(&self, request: Request<pb::DrainRequest>) -> Answered<pb::DrainResponse> {
        let (caller, _) = self.open(request)?;
        Ok(Response::new(pb::DrainResponse { already_draining: self.reach.drain(&caller).begin().await }))
    }

    async fn check_consistency(&self, request: Request<pb::CheckConsistencyRequest>) -> Answered<pb::CheckConsistencyResponse> {
        let (caller, wire) = self.open(request)?;
        let listed_max = audit::listed_max(&wire)?;
        let answer = self.reach.auditor(&caller).audit(listed_max).await.map_err(Rejection::from)?;
        Ok(Response::new(audit::wire_answer(answer)))
    }

    async fn explain(&self, request: Request<pb::ExplainRequest>) -> Answered<pb::ExplainResponse> {
        let (caller, wire) = self.open(request)?;
        let (about, nearest) = explained::question(wire)?;
        let queues = self.reach.queues(&caller)?;
        let answer = match about {
            About::Ticket(id) => explained::explained(queues.explain(id, nearest).await.map_err(Rejection::from)?),
            About::Search(set_id, session, for_ms) => {
                let answer = queues.explain_search(set_id, *session, for_ms, nearest).await;
                let door = Door { prefix: "search.", ..Door::default() };
                explained::search_explained(set_id, for_ms, &answer.map_err(|fault| door.rejection(fault))?)
            }
        };
        Ok(Response::new(answer))
    }

    async fn get_statistics(&self, request: Request<pb::GetStatisticsRequest>) -> Answered<pb::GetStatisticsResponse> {
        let (caller, _) = self.open(request)?;
        Ok(Response::new(explained::statistics(self.reach.queues(&caller)?.statistics())))
    }

    async fn import_ratings(&self, request: Request<pb::ImportRatingsRequest>) -> Answered<pb::ImportRatingsResponse> {
        let (caller, wire) = self.open(request)?;
        let (set_id, given) = explained::ratings(wire)?;
        let deed = Deed { object: format!("{} ratings of set {set_id}", given.len()), ..Deed::default() };
        let imported = self.reach.queues(&caller)?.import_ratings(set_id, given).await.map_err(Rejection::from)?;
        Ok(with_deed(deed, pb::ImportRatingsResponse { imported }))
    }

    async fn report_result(
        &self,
        request: Request<pb::OperatorReportResultRequest>,
    ) -> Answered<pb::OperatorReportResultResponse> {
        let (caller, wire) = self.open(request)?;
        let report = Door { prefix: "report.", ..Door::default() };
        let said = report.report_result_by_operator(wire.report.unwrap_or_default())?;
        let deed = Deed { object: format!("result of match {}", said.match_id), ..Deed::default() };
        let answer = self.reach.queues(&caller)?.report_result(caller.asking(), &said).await;
        let answer = answer.map_err(|fault| report.rejection(fault))?;
        Ok(with_deed(deed, pb::OperatorReportResultResponse { report: Some(rating::reported(answer)) }))
    }

    async fn export_matches(&self, request: Request<pb::ExportMatchesRequest>) -> Answered<pb::ExportMatchesResponse> {
        let (caller, wire) = self.open(request)?;
        let (after, most) = Door::default().export_matches(&wire)?;
        let finished = self.reach.queues(&caller)?.finished(after, most + 1).await.map_err(Rejection::from)?;
        let deed = Deed { object: format!("{} finished matches", finished.len().min(most)), ..Deed::default() };
        Ok(with_deed(deed, rating::exported(finished, most, wire.page_token)))
    }
}

/// Files with problems that a deed names.
const NAMED_MAX: usize = 8;

/// What a reload did, for whoever writes it down.
pub fn deed_of(reloaded: &Reloaded) -> Deed {
    let changes = reloaded.changes.iter().map(|&(set, before, after)| Change {
        set_id: set.0,
        before: before.map(|hash| hash.0),
        after: after.map(|hash| hash.0),
    });
    let mut object = format!("rulesets, {} problems", reloaded.problems.len());
    let mut files: Vec<&str> = reloaded.problems.iter().map(|problem| problem.file_name.as_str()).collect();
    files.dedup();
    for (at, file) in files.into_iter().filter(|file| !file.is_empty()).take(NAMED_MAX).enumerate() {
        object += if at == 0 { " in " } else { ", " };
        object.extend(file.chars().take(FILE_NAME_BYTES_MAX));
    }
    Deed { object, changes: changes.collect() }
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
        message: problem.text,
    });
    wire.collect()
}
