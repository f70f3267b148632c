//! Operator service: rulesets, drain, consistency check, explanations, statistics, ratings, match export, the state and end of
//! one match or ticket, and erasure and export of one user.

mod backend;
mod ruleset_admin;

use std::pin::Pin;
use std::sync::Arc;

use futures_util::stream::unfold;
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use crate::api::authorization::{self, AuthorizedCaller, CallerKind};
use crate::api::authorized::ServiceResult;
use crate::api::client_address::ClientAddressResolver;
use crate::api::consistency::{self, ConsistencyChecker};
use crate::api::convert::operator::rulesets::{
    ruleset_changes, ruleset_problems, ruleset_status, swap_command, swap_target,
};
use crate::api::convert::operator::{
    self as conversion, ExplainSubject, listing, lookup, overview, ruleset_details, statistics, user_data,
};
use crate::api::convert::queue::{match_end_reason, ticket_end_reason};
use crate::api::convert::{RequestReader, rating};
use crate::api::drain::Drain;
use crate::api::operator::backend::OperatorBackend;
use crate::api::pb;
use crate::api::pb::operator_service_server::OperatorService;
use crate::api::rate_limits_and_audit::AuditDetails;
use crate::api::status::{Rejection, swap_obstacle_text};
use crate::auth::authenticator::Authenticator;
use crate::auth::identity::{Identity, Role};
use crate::domain::attribute_values::FieldProblem;
use crate::domain::id::{SetId, SiloId};
use crate::engine::error::EngineError;
use crate::engine::queues::QueueEngine;
use crate::engine::rulesets::{CheckRulesetAnswer, ReloadReport, RetiredSetCounts, SwapReport};
use crate::telemetry::audit::AuditedRulesetChange;

pub use ruleset_admin::RulesetAdmin;

/// Stream of overviews.
pub type OverviewUpdates = Pin<Box<dyn Stream<Item = Result<pb::WatchOverviewResponse, Status>> + Send>>;

/// Limit of a ruleset file in CheckRuleset, bytes.
const RULESET_BYTES_MAX: usize = 256 * 1024;

/// Limit of a file name, bytes.
const FILE_NAME_BYTES_MAX: usize = 256;

/// Implementation of the Operator service.
#[derive(Clone)]
pub struct OperatorApi {
    backend: OperatorBackend,
    /// `None` without identities.
    authenticator: Option<Arc<Authenticator>>,
    address_resolver: ClientAddressResolver,
}

impl OperatorApi {
    /// Creates the service. Without `queues`, calls that need them fail as draining.
    pub fn new(
        rulesets: Arc<dyn RulesetAdmin>,
        consistency_checker: Arc<dyn ConsistencyChecker>,
        queues: Option<QueueEngine>,
        authenticator: Option<Arc<Authenticator>>,
        drain: Drain,
    ) -> Self {
        // Operator calls do not use the client address.
        Self {
            backend: OperatorBackend::new(rulesets, consistency_checker, queues, drain),
            authenticator,
            address_resolver: ClientAddressResolver::new(Arc::new(|peer, _| peer)),
        }
    }

    /// Splits a request into its authorized caller and its message. Fails if the caller is not an operator.
    fn authorized_request<T>(
        &self,
        request: Request<T>,
    ) -> Result<(AuthorizedCaller<authorization::OperatorOnly>, T), Status> {
        self.split_request(request)
    }

    /// The same for a call that changes nothing, which viewers may make too.
    fn viewing_request<T>(
        &self,
        request: Request<T>,
    ) -> Result<(AuthorizedCaller<authorization::OperatorOrViewer>, T), Status> {
        self.split_request(request)
    }

    fn split_request<P: CallerKind, T>(&self, request: Request<T>) -> Result<(AuthorizedCaller<P>, T), Status> {
        let (metadata, extensions, message) = request.into_parts();
        Ok((AuthorizedCaller::from_checked_request(&self.address_resolver, metadata.as_ref(), &extensions)?, message))
    }
}

#[tonic::async_trait]
impl OperatorService for OperatorApi {
    async fn check_ruleset(
        &self,
        request: Request<pb::CheckRulesetRequest>,
    ) -> ServiceResult<pb::CheckRulesetResponse> {
        let (caller, message) = self.viewing_request(request)?;
        let file_name = checked_file_name(&message.file_name, &message.ruleset_xml)?;
        let entry = AuditDetails { target: file_name.to_owned(), ..AuditDetails::default() };
        let response = match self.backend.ruleset_admin(&caller).check(file_name, &message.ruleset_xml) {
            Ok(CheckRulesetAnswer { hash, rating_change }) => pb::CheckRulesetResponse {
                service_configuration_hash: hash.map(|hash| hash.0),
                rating_change,
                ..Default::default()
            },
            Err(problems) => pb::CheckRulesetResponse { problems: ruleset_problems(problems), ..Default::default() },
        };
        Ok(with_audit_details(entry, response))
    }

    async fn get_ruleset(&self, request: Request<pb::GetRulesetRequest>) -> ServiceResult<pb::GetRulesetResponse> {
        let (caller, message) = self.viewing_request(request)?;
        let (set_id, hash) = ruleset_details::get_ruleset_query(&message)?;
        let rulesets = self.backend.ruleset_admin(&caller);
        let current = rulesets.find(set_id, None).ok_or(EngineError::UnknownSet(set_id)).map_err(Rejection::from)?;
        let found = match hash {
            None => current,
            Some(requested) => rulesets
                .find(set_id, hash)
                .ok_or_else(|| Rejection::from(EngineError::UnknownRulesetHash { requested, current: current.hash }))?,
        };
        Ok(Response::new(ruleset_details::ruleset_response(&found)))
    }

    async fn try_ruleset(&self, request: Request<pb::TryRulesetRequest>) -> ServiceResult<pb::TryRulesetResponse> {
        let (caller, message) = self.viewing_request(request)?;
        let file_name = checked_file_name(&message.file_name, &message.ruleset_xml)?;
        let entry = AuditDetails { target: format!("trial of {file_name}"), ..AuditDetails::default() };
        let ruleset = match self.backend.ruleset_admin(&caller).parse(file_name, &message.ruleset_xml) {
            Ok(Some(ruleset)) => ruleset,
            Ok(None) => return Err(retirement_marker_rejection().into()),
            Err(problems) => {
                let problems = ruleset_problems(problems);
                return Ok(with_audit_details(entry, pb::TryRulesetResponse { problems, ..Default::default() }));
            }
        };
        let queues = self.backend.queue_engine(&caller)?;
        let answer = queues.try_ruleset(ruleset, message.silo_id.map(SiloId)).await.map_err(Rejection::from)?;
        Ok(with_audit_details(entry, ruleset_details::trial_response(&answer)))
    }

    async fn reload_rulesets(
        &self,
        request: Request<pb::ReloadRulesetsRequest>,
    ) -> ServiceResult<pb::ReloadRulesetsResponse> {
        let (caller, _) = self.authorized_request(request)?;
        let report = self.backend.ruleset_admin(&caller).reload(&loader_name(&caller)).await;
        let entry = audit_details_of_reload(&report);
        let changes = ruleset_changes(&report);
        let problems = ruleset_problems(report.problems);
        Ok(with_audit_details(entry, pb::ReloadRulesetsResponse { changes, problems }))
    }

    async fn swap_ruleset(&self, request: Request<pb::SwapRulesetRequest>) -> ServiceResult<pb::SwapRulesetResponse> {
        let (caller, message) = self.authorized_request(request)?;
        let (swap, reason) = swap_command(message)?;
        let swapped = self.backend.ruleset_admin(&caller).swap(&swap, &loader_name(&caller)).await;
        let SwapReport { file_name, load } = swapped.map_err(Rejection::from)?;
        let entry =
            AuditDetails { target: swap_target(&swap, &file_name, &load, &reason), ..audit_details_of_reload(&load) };
        let changes = ruleset_changes(&load);
        let problems = ruleset_problems(load.problems);
        Ok(with_audit_details(entry, pb::SwapRulesetResponse { changes, problems, file_name }))
    }

    async fn list_rulesets(
        &self,
        request: Request<pb::ListRulesetsRequest>,
    ) -> ServiceResult<pb::ListRulesetsResponse> {
        let (caller, _) = self.viewing_request(request)?;
        let admin = self.backend.ruleset_admin(&caller);
        let rulesets = admin.list_rulesets().into_iter().map(ruleset_status).collect();
        let is_viewer = caller.identity().is_some_and(|identity| identity.role == Role::Viewer);
        let swap_obstacle = match admin.swap_obstacle() {
            _ if is_viewer => "the role viewer changes nothing; use an operator's token".to_owned(),
            obstacle => obstacle.as_ref().map_or_else(String::new, swap_obstacle_text),
        };
        Ok(Response::new(pb::ListRulesetsResponse { rulesets, swap_obstacle, caller_may_change: !is_viewer }))
    }

    async fn retire_set(&self, request: Request<pb::RetireSetRequest>) -> ServiceResult<pb::RetireSetResponse> {
        let (caller, message) = self.authorized_request(request)?;
        let Some(set_id) = message.matchmaking_set_id else {
            let problem = FieldProblem {
                path: "matchmaking_set_id".into(),
                message: "is required; name the set to retire".into(),
            };
            return Err(Rejection::invalid_fields(vec![problem]).into());
        };
        let force = if message.force { ", with its waiting tickets" } else { "" };
        let entry = AuditDetails { target: format!("set {set_id}{force}"), ..AuditDetails::default() };
        let retired = self.backend.ruleset_admin(&caller).retire_set(SetId(set_id), message.force).await;
        let RetiredSetCounts { ended_tickets, live_matches } = retired.map_err(Rejection::from)?;
        Ok(with_audit_details(entry, pb::RetireSetResponse { ended_tickets, live_matches }))
    }

    async fn drain(&self, request: Request<pb::DrainRequest>) -> ServiceResult<pb::DrainResponse> {
        let (caller, _) = self.authorized_request(request)?;
        Ok(Response::new(pb::DrainResponse { already_draining: self.backend.drain(&caller).start().await }))
    }

    async fn check_consistency(
        &self,
        request: Request<pb::CheckConsistencyRequest>,
    ) -> ServiceResult<pb::CheckConsistencyResponse> {
        let (caller, message) = self.viewing_request(request)?;
        let max_listed = consistency::checked_max_differences(&message)?;
        let report =
            self.backend.consistency_checker(&caller).check_consistency(max_listed).await.map_err(Rejection::from)?;
        Ok(Response::new(consistency::consistency_response(report)))
    }

    async fn explain(&self, request: Request<pb::ExplainRequest>) -> ServiceResult<pb::ExplainResponse> {
        let (caller, message) = self.viewing_request(request)?;
        let (subject, max_listed) = conversion::explain_query(message)?;
        let queues = self.backend.queue_engine(&caller)?;
        let response = match subject {
            ExplainSubject::Ticket(id) => conversion::explain_ticket_response(
                queues.explain_ticket(id, max_listed).await.map_err(Rejection::from)?,
            ),
            ExplainSubject::Search(search) => {
                let (set_id, searching_for_ms) = (search.set_id, search.searching_for_ms);
                let explanation = queues.explain_search_results(*search).await;
                let entry_point = RequestReader { field_prefix: "search.", ..RequestReader::default() };
                let explanation = explanation.map_err(|error| entry_point.rejection_from(error))?;
                conversion::explain_search_response(set_id, searching_for_ms, &explanation)
            }
        };
        Ok(Response::new(response))
    }

    async fn get_statistics(
        &self,
        request: Request<pb::GetStatisticsRequest>,
    ) -> ServiceResult<pb::GetStatisticsResponse> {
        let (caller, message) = self.viewing_request(request)?;
        let period = statistics::statistics_period(&message)?;
        let engine = self.backend.queue_engine(&caller)?;
        let counted = match period {
            Some(period) => Some(engine.statistics_of_period(period).await.map_err(Rejection::from)?),
            None => None,
        };
        let (mut queues, mut sets) = engine.statistics();
        if let Some(set_id) = message.matchmaking_set_id.map(SetId) {
            queues.retain(|queue| queue.set_id == set_id);
            sets.retain(|set| set.set_id == set_id);
        }
        Ok(Response::new(statistics::statistics_response(queues, sets, counted)))
    }

    type WatchOverviewStream = OverviewUpdates;

    async fn watch_overview(&self, request: Request<pb::WatchOverviewRequest>) -> ServiceResult<OverviewUpdates> {
        let (caller, _) = self.viewing_request(request)?;
        let watch = self.backend.queue_engine(&caller)?.watch_overview();
        Ok(Response::new(Box::pin(unfold(watch, |mut watch| async move {
            let update = watch.next_update().await?;
            Some((Ok(overview::overview_response(&update)), watch))
        }))))
    }

    async fn import_ratings(
        &self,
        request: Request<pb::ImportRatingsRequest>,
    ) -> ServiceResult<pb::ImportRatingsResponse> {
        let (caller, message) = self.authorized_request(request)?;
        let (set_id, ratings) = conversion::import_ratings_command(message)?;
        let entry =
            AuditDetails { target: format!("{} ratings of set {set_id}", ratings.len()), ..AuditDetails::default() };
        let imported =
            self.backend.queue_engine(&caller)?.import_ratings(set_id, ratings).await.map_err(Rejection::from)?;
        Ok(with_audit_details(entry, pb::ImportRatingsResponse { imported }))
    }

    async fn report_result(
        &self,
        request: Request<pb::OperatorReportResultRequest>,
    ) -> ServiceResult<pb::OperatorReportResultResponse> {
        let (caller, message) = self.authorized_request(request)?;
        let entry_point = RequestReader { field_prefix: "report.", ..RequestReader::default() };
        let result = entry_point.operator_report_result_command(message.report.unwrap_or_default())?;
        let match_id = result.match_id.map_or_else(String::new, |id| id.to_string());
        let entry = AuditDetails { target: format!("result of match {match_id}"), ..AuditDetails::default() };
        let answer = self.backend.queue_engine(&caller)?.report_result(caller.engine_caller(), &result).await;
        let answer = answer.map_err(|error| entry_point.rejection_from(error))?;
        Ok(with_audit_details(
            entry,
            pb::OperatorReportResultResponse { report: Some(rating::report_result_response(answer)) },
        ))
    }

    async fn cancel_match(&self, request: Request<pb::CancelMatchRequest>) -> ServiceResult<pb::CancelMatchResponse> {
        let (caller, message) = self.authorized_request(request)?;
        let (id, reason) = lookup::cancel_match_command(message)?;
        let entry = AuditDetails { target: format!("match {id}: {reason}"), ..AuditDetails::default() };
        let answer = self.backend.queue_engine(&caller)?.cancel_match(id).await.map_err(Rejection::from)?;
        let end_reason = match_end_reason(Some(answer.end_reason)).into();
        Ok(with_audit_details(entry, pb::CancelMatchResponse { end_reason, had_ended: answer.had_ended }))
    }

    async fn dismiss_ticket(
        &self,
        request: Request<pb::DismissTicketRequest>,
    ) -> ServiceResult<pb::DismissTicketResponse> {
        let (caller, message) = self.authorized_request(request)?;
        let (id, reason) = lookup::dismiss_ticket_command(message)?;
        let entry = AuditDetails { target: format!("ticket {id}: {reason}"), ..AuditDetails::default() };
        let answer = self.backend.queue_engine(&caller)?.dismiss_ticket(id).await.map_err(Rejection::from)?;
        let end_reason = ticket_end_reason(answer.end_reason).into();
        Ok(with_audit_details(entry, pb::DismissTicketResponse { end_reason, had_ended: answer.had_ended }))
    }

    async fn get_match(&self, request: Request<pb::GetMatchRequest>) -> ServiceResult<pb::GetMatchResponse> {
        let (caller, message) = self.viewing_request(request)?;
        let id = lookup::get_match_query(&message)?;
        let entry = AuditDetails { target: format!("match {id}"), ..AuditDetails::default() };
        let queues = self.backend.queue_engine(&caller)?;
        let overview = queues.match_overview(id).await.map_err(Rejection::from)?;
        Ok(with_audit_details(entry, lookup::match_response(&overview, queues.public_user_key_secret())))
    }

    async fn list_tickets(&self, request: Request<pb::ListTicketsRequest>) -> ServiceResult<pb::ListTicketsResponse> {
        let (caller, message) = self.viewing_request(request)?;
        let query = listing::list_tickets_query(message)?;
        let list = self.backend.queue_engine(&caller)?.list_tickets(&query);
        Ok(Response::new(listing::list_tickets_response(list)))
    }

    async fn list_matches(&self, request: Request<pb::ListMatchesRequest>) -> ServiceResult<pb::ListMatchesResponse> {
        let (caller, message) = self.viewing_request(request)?;
        let query = listing::list_matches_query(&message)?;
        let list = self.backend.queue_engine(&caller)?.list_matches(query);
        Ok(Response::new(listing::list_matches_response(&list)))
    }

    async fn get_player(&self, request: Request<pb::GetPlayerRequest>) -> ServiceResult<pb::GetPlayerResponse> {
        let (caller, message) = self.viewing_request(request)?;
        let queues = self.backend.queue_engine(&caller)?;
        let query = lookup::get_player_query(&message, queues.public_user_key_secret())?;
        let overview = queues.player_overview(query).await.map_err(Rejection::from)?;
        // The audit log names no account, but the key that the user has in logs.
        let target = format!("user {}", lookup::user_log_name_text(overview.log_name));
        let entry = AuditDetails { target, ..AuditDetails::default() };
        Ok(with_audit_details(entry, lookup::player_response(&overview, queues.public_user_key_secret())))
    }

    async fn erase_user(&self, request: Request<pb::EraseUserRequest>) -> ServiceResult<pb::EraseUserResponse> {
        let (caller, message) = self.authorized_request(request)?;
        let queues = self.backend.queue_engine(&caller)?;
        let user_id = message.user_id.clone();
        let (user, reason) = user_data::erase_user_command(message, queues.public_user_key_secret())?;
        // The last line with this key: the erasure forgets it.
        let log_key =
            lookup::user_log_name_text(queues.existing_or_random_log_name(user).await.map_err(Rejection::from)?);
        let entry = AuditDetails { target: format!("user {log_key}: {reason}"), ..AuditDetails::default() };
        let callers = self.authenticator.iter().flat_map(|it| it.caller_keys_of_user_per_issuer(&user_id)).collect();
        let answer = queues.erase_user(user, callers).await.map_err(Rejection::from)?;
        Ok(with_audit_details(entry, user_data::erase_user_response(answer)))
    }

    async fn export_user(&self, request: Request<pb::ExportUserRequest>) -> ServiceResult<pb::ExportUserResponse> {
        let (caller, message) = self.authorized_request(request)?;
        let queues = self.backend.queue_engine(&caller)?;
        let query = user_data::export_user_query(&message, queues.public_user_key_secret())?;
        let log_key =
            lookup::user_log_name_text(queues.existing_or_new_log_name(query.user).await.map_err(Rejection::from)?);
        let entry = AuditDetails { target: format!("user {log_key}"), ..AuditDetails::default() };
        let export =
            queues.export_user_page(query.user, query.after, query.page_size).await.map_err(Rejection::from)?;
        let response = user_data::export_user_response(&export, queues.now(), queues.public_user_key_secret());
        Ok(with_audit_details(entry, response))
    }

    async fn export_matches(
        &self,
        request: Request<pb::ExportMatchesRequest>,
    ) -> ServiceResult<pb::ExportMatchesResponse> {
        let (caller, message) = self.authorized_request(request)?;
        let (after, page_size) = RequestReader::default().export_matches_query(&message)?;
        let queues = self.backend.queue_engine(&caller)?;
        let matches = queues.finished_matches_reported_after(after, page_size + 1).await.map_err(Rejection::from)?;
        let entry = AuditDetails {
            target: format!("{} finished matches", matches.len().min(page_size)),
            ..AuditDetails::default()
        };
        let keys = queues.public_user_key_secret();
        Ok(with_audit_details(entry, rating::export_matches_response(matches, page_size, message.page_token, keys)))
    }
}

/// Limit of files with problems that an audit entry names.
const AUDITED_PROBLEM_FILES_MAX: usize = 8;

/// Audit entry of a ruleset reload.
pub fn audit_details_of_reload(report: &ReloadReport) -> AuditDetails {
    let changes = report.changes.iter().map(|&(set, before, after)| AuditedRulesetChange {
        set_id: set.0,
        before: before.map(|hash| hash.0),
        after: after.map(|hash| hash.0),
    });
    let mut target = format!("rulesets, {} problems", report.problems.len());
    let mut files: Vec<&str> = report.problems.iter().map(|problem| problem.file_name.as_str()).collect();
    files.dedup();
    for (index, file) in files.into_iter().filter(|file| !file.is_empty()).take(AUDITED_PROBLEM_FILES_MAX).enumerate() {
        target += if index == 0 { " in " } else { ", " };
        target.extend(file.chars().take(FILE_NAME_BYTES_MAX));
    }
    AuditDetails { target, ruleset_changes: changes.collect() }
}

/// Operator as `loaded_by` names it.
fn loader_name(caller: &AuthorizedCaller<authorization::OperatorOnly>) -> String {
    let name = |identity: &Arc<Identity>| format!("operator {} ({})", identity.subject, identity.issuer);
    caller.identity().map_or_else(|| "operator".to_owned(), name)
}

/// Response with an audit entry for the middleware.
fn with_audit_details<T>(entry: AuditDetails, message: T) -> Response<T> {
    let mut response = Response::new(message);
    response.extensions_mut().insert(entry);
    response
}

/// File name of a ruleset's text, after a check of both sizes.
fn checked_file_name<'a>(file_name: &'a str, ruleset_xml: &str) -> Result<&'a str, Rejection> {
    check_field_bytes("file_name", file_name.len(), FILE_NAME_BYTES_MAX)?;
    check_field_bytes("ruleset_xml", ruleset_xml.len(), RULESET_BYTES_MAX)?;
    Ok(if file_name.is_empty() { "ruleset.xml" } else { file_name })
}

/// Rejection of a file without rules that can be tried.
fn retirement_marker_rejection() -> Rejection {
    let message = "retires its set and has no rules to try; send a ruleset with a <Queue>";
    Rejection::invalid_fields(vec![FieldProblem { path: "ruleset_xml".into(), message: message.into() }])
}

fn check_field_bytes(path: &str, bytes: usize, max: usize) -> Result<(), Rejection> {
    if bytes <= max {
        return Ok(());
    }
    let message = format!("has {bytes} bytes; at most {max} are allowed");
    Err(Rejection::invalid_fields(vec![FieldProblem { path: path.into(), message }]))
}
