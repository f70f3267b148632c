//! The Operator service: what designers and operators ask of a running server.

use std::sync::Arc;

use tonic::{Request, Response, Status};

use crate::api::audit_layer::AuditEntry;
use crate::api::authorization::{self, AuthorizedCaller};
use crate::api::client_address::ClientAddressResolver;
use crate::api::consistency::{self, ConsistencyChecker};
use crate::api::convert::{EntryPoint, rating};
use crate::api::drain::Drain;
use crate::api::explained::{self, ExplainSubject};
use crate::api::pb;
use crate::api::pb::operator_service_server::OperatorService;
use crate::api::status::Rejection;
use crate::domain::attribute_values::FieldProblem;
use crate::domain::id::{RulesetHash, SetId};
use crate::domain::time::UnixMs;
use crate::engine::queues::QueueEngine;
use crate::telemetry::audit::AuditedChange;

/// Bytes of a ruleset file that is checked.
const RULESET_BYTES_MAX: usize = 256 * 1024;

/// Bytes of a file's name.
const FILE_NAME_BYTES_MAX: usize = 256;

/// One mistake in a ruleset file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RulesetProblem {
    /// The file.
    pub file_name: String,
    /// From 1; 0 when the mistake is the whole file's.
    pub line: u32,
    /// From 1; 0 when the mistake is the whole file's.
    pub column: u32,
    /// What is wrong, and what would be right.
    pub message: String,
}

/// What a reload changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReloadReport {
    /// Sets with another ruleset than before: the set, the hash before and the hash now.
    pub changes: Vec<(SetId, Option<RulesetHash>, Option<RulesetHash>)>,
    /// Mistakes; they change nothing.
    pub problems: Vec<RulesetProblem>,
}

/// One ruleset that can still be searched by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RulesetListing {
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
    pub loaded_at: UnixMs,
    /// What was wrong with the file when it was last read.
    pub problems: Vec<RulesetProblem>,
}

/// The rulesets folder, as operators see it.
#[tonic::async_trait]
pub trait RulesetAdmin: Send + Sync + 'static {
    /// Checks a file's text; nothing is loaded.
    fn check(&self, file_name: &str, xml: &str) -> Result<RulesetHash, Vec<RulesetProblem>>;
    /// Reads the folder now.
    async fn reload(&self) -> ReloadReport;
    /// By set, the current one first, then the latest retired first.
    fn list(&self) -> Vec<RulesetListing>;
}

/// The service.
#[derive(Clone)]
pub struct OperatorApi {
    backend: authorized::OperatorBackend,
    address_resolver: ClientAddressResolver,
}

impl OperatorApi {
    /// A service over `rulesets`, which has the server compared by `auditor` and taken out of service by `drain`.
    pub fn new(
        rulesets: Arc<dyn RulesetAdmin>,
        auditor: Arc<dyn ConsistencyChecker>,
        queues: Option<QueueEngine>,
        drain: Drain,
    ) -> Self {
        // Nobody asks where operators are.
        Self {
            backend: authorized::OperatorBackend::new(rulesets, auditor, queues, drain),
            address_resolver: ClientAddressResolver::new(Arc::new(|peer, _| peer)),
        }
    }

    /// The request, and the caller as which the check has let it in.
    fn authorized_request<T>(
        &self,
        request: Request<T>,
    ) -> Result<(AuthorizedCaller<authorization::Operator>, T), Status> {
        let (metadata, extensions, wire) = request.into_parts();
        Ok((AuthorizedCaller::from_request(&self.address_resolver, metadata.as_ref(), &extensions)?, wire))
    }
}

/// What operators reach, and nobody else: there is no way to it without a caller who has passed the check.
mod authorized {
    use std::sync::Arc;

    use super::{ConsistencyChecker, RulesetAdmin};
    use crate::api::authorization::{AuthorizedCaller, Operator};
    use crate::api::drain::Drain;
    use crate::api::status::Rejection;
    use crate::engine::error::EngineError;
    use crate::engine::queues::QueueEngine;

    /// The rulesets folder, whoever compares, and the switch.
    #[derive(Clone)]
    pub(super) struct OperatorBackend {
        rulesets: Arc<dyn RulesetAdmin>,
        consistency_checker: Arc<dyn ConsistencyChecker>,
        queues: Option<QueueEngine>,
        drain: Drain,
    }

    impl OperatorBackend {
        pub(super) fn new(
            rulesets: Arc<dyn RulesetAdmin>,
            auditor: Arc<dyn ConsistencyChecker>,
            queues: Option<QueueEngine>,
            drain: Drain,
        ) -> Self {
            Self { rulesets, consistency_checker: auditor, queues, drain }
        }

        /// Where parties wait; a test that stands in for the engine has no such place.
        pub(super) fn queues(&self, _: &AuthorizedCaller<Operator>) -> Result<&QueueEngine, Rejection> {
            self.queues.as_ref().ok_or_else(|| EngineError::Draining.into())
        }

        pub(super) fn rulesets(&self, _: &AuthorizedCaller<Operator>) -> &dyn RulesetAdmin {
            &*self.rulesets
        }

        pub(super) fn consistency_checker(&self, _: &AuthorizedCaller<Operator>) -> &dyn ConsistencyChecker {
            &*self.consistency_checker
        }

        pub(super) fn drain(&self, _: &AuthorizedCaller<Operator>) -> &Drain {
            &self.drain
        }
    }
}

type ServiceResult<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl OperatorService for OperatorApi {
    async fn check_ruleset(
        &self,
        request: Request<pb::CheckRulesetRequest>,
    ) -> ServiceResult<pb::CheckRulesetResponse> {
        let (caller, wire) = self.authorized_request(request)?;
        check_field_bytes("file_name", wire.file_name.len(), FILE_NAME_BYTES_MAX)?;
        check_field_bytes("ruleset_xml", wire.ruleset_xml.len(), RULESET_BYTES_MAX)?;
        let file_name = if wire.file_name.is_empty() { "ruleset.xml" } else { &wire.file_name };
        let deed = AuditEntry { target: file_name.to_owned(), ..AuditEntry::default() };
        let checked = match self.backend.rulesets(&caller).check(file_name, &wire.ruleset_xml) {
            Ok(hash) => pb::CheckRulesetResponse { service_configuration_hash: Some(hash.0), ..Default::default() },
            Err(problems) => pb::CheckRulesetResponse { problems: ruleset_problems(problems), ..Default::default() },
        };
        Ok(with_audit_entry(deed, checked))
    }

    async fn reload_rulesets(
        &self,
        request: Request<pb::ReloadRulesetsRequest>,
    ) -> ServiceResult<pb::ReloadRulesetsResponse> {
        let (caller, _) = self.authorized_request(request)?;
        let reloaded = self.backend.rulesets(&caller).reload().await;
        let deed = audit_entry_of_reload(&reloaded);
        let changes = reloaded.changes.into_iter().map(|(set, before, now)| pb::RulesetChange {
            matchmaking_set_id: set.0,
            previous_hash: before.map(|hash| hash.0),
            current_hash: now.map(|hash| hash.0),
        });
        let problems = ruleset_problems(reloaded.problems);
        Ok(with_audit_entry(deed, pb::ReloadRulesetsResponse { changes: changes.collect(), problems }))
    }

    async fn list_rulesets(
        &self,
        request: Request<pb::ListRulesetsRequest>,
    ) -> ServiceResult<pb::ListRulesetsResponse> {
        let (caller, _) = self.authorized_request(request)?;
        let rulesets = self.backend.rulesets(&caller).list().into_iter().map(ruleset_status).collect();
        Ok(Response::new(pb::ListRulesetsResponse { rulesets }))
    }

    async fn drain(&self, request: Request<pb::DrainRequest>) -> ServiceResult<pb::DrainResponse> {
        let (caller, _) = self.authorized_request(request)?;
        Ok(Response::new(pb::DrainResponse { already_draining: self.backend.drain(&caller).start().await }))
    }

    async fn check_consistency(
        &self,
        request: Request<pb::CheckConsistencyRequest>,
    ) -> ServiceResult<pb::CheckConsistencyResponse> {
        let (caller, wire) = self.authorized_request(request)?;
        let listed_max = consistency::max_differences_listed(&wire)?;
        let answer =
            self.backend.consistency_checker(&caller).check_consistency(listed_max).await.map_err(Rejection::from)?;
        Ok(Response::new(consistency::consistency_response(answer)))
    }

    async fn explain(&self, request: Request<pb::ExplainRequest>) -> ServiceResult<pb::ExplainResponse> {
        let (caller, wire) = self.authorized_request(request)?;
        let (about, nearest) = explained::explain_query(wire)?;
        let queues = self.backend.queues(&caller)?;
        let answer = match about {
            ExplainSubject::Ticket(id) => {
                explained::explain_ticket_response(queues.explain_ticket(id, nearest).await.map_err(Rejection::from)?)
            }
            ExplainSubject::Search(set_id, session, for_ms) => {
                let answer = queues.explain_search(set_id, *session, for_ms, nearest).await;
                let door = EntryPoint { field_prefix: "search.", ..EntryPoint::default() };
                explained::explain_search_response(set_id, for_ms, &answer.map_err(|fault| door.rejection_from(fault))?)
            }
        };
        Ok(Response::new(answer))
    }

    async fn get_statistics(
        &self,
        request: Request<pb::GetStatisticsRequest>,
    ) -> ServiceResult<pb::GetStatisticsResponse> {
        let (caller, _) = self.authorized_request(request)?;
        Ok(Response::new(explained::statistics_response(self.backend.queues(&caller)?.statistics())))
    }

    async fn import_ratings(
        &self,
        request: Request<pb::ImportRatingsRequest>,
    ) -> ServiceResult<pb::ImportRatingsResponse> {
        let (caller, wire) = self.authorized_request(request)?;
        let (set_id, given) = explained::import_ratings_command(wire)?;
        let deed = AuditEntry { target: format!("{} ratings of set {set_id}", given.len()), ..AuditEntry::default() };
        let imported = self.backend.queues(&caller)?.import_ratings(set_id, given).await.map_err(Rejection::from)?;
        Ok(with_audit_entry(deed, pb::ImportRatingsResponse { imported }))
    }

    async fn report_result(
        &self,
        request: Request<pb::OperatorReportResultRequest>,
    ) -> ServiceResult<pb::OperatorReportResultResponse> {
        let (caller, wire) = self.authorized_request(request)?;
        let report = EntryPoint { field_prefix: "report.", ..EntryPoint::default() };
        let said = report.operator_report_result_command(wire.report.unwrap_or_default())?;
        let deed = AuditEntry { target: format!("result of match {}", said.match_id), ..AuditEntry::default() };
        let answer = self.backend.queues(&caller)?.report_result(caller.engine_caller(), &said).await;
        let answer = answer.map_err(|fault| report.rejection_from(fault))?;
        Ok(with_audit_entry(
            deed,
            pb::OperatorReportResultResponse { report: Some(rating::report_result_response(answer)) },
        ))
    }

    async fn export_matches(
        &self,
        request: Request<pb::ExportMatchesRequest>,
    ) -> ServiceResult<pb::ExportMatchesResponse> {
        let (caller, wire) = self.authorized_request(request)?;
        let (after, most) = EntryPoint::default().export_matches_query(&wire)?;
        let finished =
            self.backend.queues(&caller)?.finished_matches(after, most + 1).await.map_err(Rejection::from)?;
        let deed =
            AuditEntry { target: format!("{} finished matches", finished.len().min(most)), ..AuditEntry::default() };
        Ok(with_audit_entry(deed, rating::export_matches_response(finished, most, wire.page_token)))
    }
}

/// Files with problems that a deed names.
const NAMED_FILES_MAX: usize = 8;

/// What a reload did, for whoever writes it down.
pub fn audit_entry_of_reload(reloaded: &ReloadReport) -> AuditEntry {
    let changes = reloaded.changes.iter().map(|&(set, before, after)| AuditedChange {
        set_id: set.0,
        before: before.map(|hash| hash.0),
        after: after.map(|hash| hash.0),
    });
    let mut object = format!("rulesets, {} problems", reloaded.problems.len());
    let mut files: Vec<&str> = reloaded.problems.iter().map(|problem| problem.file_name.as_str()).collect();
    files.dedup();
    for (at, file) in files.into_iter().filter(|file| !file.is_empty()).take(NAMED_FILES_MAX).enumerate() {
        object += if at == 0 { " in " } else { ", " };
        object.extend(file.chars().take(FILE_NAME_BYTES_MAX));
    }
    AuditEntry { target: object, ruleset_changes: changes.collect() }
}

/// An answer, and what was done.
fn with_audit_entry<T>(deed: AuditEntry, answer: T) -> Response<T> {
    let mut response = Response::new(answer);
    response.extensions_mut().insert(deed);
    response
}

fn check_field_bytes(path: &str, bytes: usize, max: usize) -> Result<(), Rejection> {
    if bytes <= max {
        return Ok(());
    }
    let what = format!("has {bytes} bytes, at most {max} are allowed");
    Err(Rejection::invalid_fields(vec![FieldProblem { path: path.into(), message: what }]))
}

fn ruleset_status(listed: RulesetListing) -> pb::RulesetStatus {
    let state = if listed.is_current { pb::RulesetState::Current } else { pb::RulesetState::Retired };
    pb::RulesetStatus {
        name: listed.name,
        matchmaking_set_id: listed.set_id.0,
        service_configuration_hash: listed.hash.0,
        file_name: listed.file_name,
        state: state.into(),
        loaded_at_unix_ms: listed.loaded_at.0,
        problems: ruleset_problems(listed.problems),
    }
}

fn ruleset_problems(problems: Vec<RulesetProblem>) -> Vec<pb::RulesetProblem> {
    let wire = problems.into_iter().map(|problem| pb::RulesetProblem {
        file_name: problem.file_name,
        line: problem.line,
        column: problem.column,
        message: problem.message,
    });
    wire.collect()
}
