//! Audit and rate limit of calls: charges each call, and writes an audit record of each operator call on the operator port:
//! caller, method, target, outcome. Rejected calls are sampled, and their number is recorded.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderMap, Request, Response};
use tonic::body::Body;
use tonic::{Code, Status};

use crate::api::client_address::ClientAddressResolver;
use crate::api::layer::call_reporter::status_code_name;
use crate::api::pb::ErrorReason;
use crate::api::rpc_method::{METHOD_OF_UNKNOWN_PATH, RpcMethod};
use crate::api::status::Rejection;
use crate::auth::identity::{Identity, Role};
use crate::auth::policy::{AccessPolicy, RateLimitKind};
use crate::auth::rate_limit::{RateLimitKey, RateLimits};
use crate::telemetry::audit::{AuditLog, AuditRecord, AuditedRulesetChange};
use crate::telemetry::event_sampler::Sampled;

/// Limit of an `x-request-id` that the audit record repeats, bytes.
const REQUEST_ID_BYTES_MAX: usize = 64;

/// One of the server's two ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerPort {
    /// Port of players and game servers. It serves no operator call, so nothing on it is audited.
    Client,
    /// Port of operators.
    Operator,
}

/// Rate limits and audit log of a port.
#[derive(Clone, Debug)]
pub struct RateLimitsAndAudit {
    /// The port.
    pub port: ServerPort,
    /// Log of operator actions.
    pub audit_log: Arc<AuditLog>,
    /// Rate limits per caller and per address.
    pub rate_limits: Arc<RateLimits>,
    /// Finds the client address of a request.
    pub address_resolver: ClientAddressResolver,
}

/// Action of an operator call, which its handler leaves in the response's extensions.
#[derive(Clone, Debug, Default)]
pub struct AuditDetails {
    /// Object of the action, such as a file name.
    pub target: String,
    /// Rulesets that the call has changed.
    pub ruleset_changes: Vec<AuditedRulesetChange>,
}

/// Operator call in progress, with its audit record.
#[derive(Debug)]
pub struct AuditedCall {
    layer: RateLimitsAndAudit,
    record: AuditRecord,
    rate_limit_key: RateLimitKey,
}

impl RateLimitsAndAudit {
    /// Creates the layer of the client port.
    pub fn new(
        audit_log: Arc<AuditLog>,
        rate_limits: Arc<RateLimits>,
        address_resolver: ClientAddressResolver,
    ) -> Self {
        Self { port: ServerPort::Client, audit_log, rate_limits, address_resolver }
    }

    /// Charges a call before its request is read, so that an unreadable request costs as much as a valid one. A caller
    /// without an identity is charged by its address, and a player's client also by its network.
    ///
    /// Health checks of a trusted proxy have a limit of their own: callers whose address the proxy does not tell cannot
    /// spend it.
    pub fn charge_call(
        &self,
        identity: Option<&Arc<Identity>>,
        method: RpcMethod,
        request: &Request<Body>,
    ) -> Result<(), Rejection> {
        if !self.rate_limits.has_limit_for_any_class(RateLimitKind::Call) {
            return Ok(());
        }
        let (headers, extensions) = (request.headers(), request.extensions());
        if let Some(identity) = identity {
            let network = (identity.role == Role::Client)
                .then(|| self.address_resolver.known_client_address(headers, extensions))
                .flatten();
            let key = RateLimitKey::for_caller(Some((identity.role, identity.caller_key)), None);
            return Ok(self.rate_limits.consume_for_caller_and_network(key, network, RateLimitKind::Call, 1)?);
        }
        let is_health_check = method.access == AccessPolicy::Public;
        let proxy = is_health_check
            .then(|| self.address_resolver.address_of_trusted_peer_calling_for_itself(headers, extensions))
            .flatten();
        let key = match proxy {
            Some(proxy) => RateLimitKey::HealthCheck(proxy),
            None => RateLimitKey::for_caller(None, self.client_address(request)),
        };
        Ok(self.rate_limits.consume(key, RateLimitKind::Call, 1)?)
    }

    /// Charges the client's address for a failed authentication.
    pub fn charge_auth_failure(&self, request: &Request<Body>) -> Result<(), Rejection> {
        Ok(self.rate_limits.consume_auth_failure(self.client_address(request))?)
    }

    fn client_address(&self, request: &Request<Body>) -> Option<IpAddr> {
        self.address_resolver.client_address(request.headers(), request.extensions())
    }

    /// Charges a request for a page of the client port, or for a path that does not exist there. Pages of the operator port
    /// are free: load balancers and metric scrapers read them.
    pub fn charge_non_grpc_request(&self, request: &Request<Body>) -> Result<(), Rejection> {
        match self.port {
            ServerPort::Client => self.charge_call(None, METHOD_OF_UNKNOWN_PATH, request),
            ServerPort::Operator => Ok(()),
        }
    }

    /// Starts the audit of a call of `method`; `None` if others than operators and viewers may make it, or on the client port.
    pub fn start_audit(&self, method: RpcMethod, request: &Request<Body>) -> Option<AuditedCall> {
        if !method.access.is_for_operators() || self.port == ServerPort::Client {
            return None;
        }
        let (headers, address) = (request.headers(), self.client_address(request));
        let request_id = client_request_id(headers).unwrap_or_else(|| self.audit_log.next_request_id());
        let record = AuditRecord { action: method.name, request_id, ..AuditRecord::default() };
        Some(AuditedCall { layer: self.clone(), record, rate_limit_key: RateLimitKey::for_caller(None, address) })
    }
}

impl AuditedCall {
    /// Records the authenticated caller.
    pub fn set_identity(&mut self, identity: &Identity) {
        self.record.subject = Some(identity.subject.to_string());
        self.record.issuer = Some(identity.issuer.to_string());
        self.set_role(identity.role);
        self.rate_limit_key = RateLimitKey::for_caller(Some((identity.role, identity.caller_key)), None);
    }

    /// Records the role of the caller, also of one that fails the role check.
    pub fn set_role(&mut self, role: Role) {
        self.record.role = Some(role.as_str());
    }

    /// Charges the operator limit.
    pub fn charge_operator_call(&self) -> Result<(), Rejection> {
        Ok(self.layer.rate_limits.consume(self.rate_limit_key, RateLimitKind::Operator, 1)?)
    }

    /// Writes the audit record, then returns the response. If the record cannot be written, returns an error instead.
    pub async fn write_audit_record(self, mut response: Response<Body>) -> Response<Body> {
        let Self { layer: RateLimitsAndAudit { audit_log, .. }, mut record, .. } = self;
        let AuditDetails { target, ruleset_changes } = response.extensions_mut().remove().unwrap_or_default();
        (record.target, record.ruleset_changes, record.outcome) = (target, ruleset_changes, outcome_of(&response));
        write_before_response(response, move || audit_log.append(&record)).await
    }

    /// Records a call that was rejected before its handler ran: the first of each role and outcome in a minute. The others
    /// are counted, and the number is recorded.
    pub async fn record_sampled_rejection(self, response: Response<Body>) -> Response<Body> {
        let Self { layer: RateLimitsAndAudit { audit_log, .. }, mut record, .. } = self;
        record.outcome = outcome_of(&response);
        match audit_log.sample_rejection(record.role, record.outcome) {
            Sampled::Count => response,
            Sampled::Write { counted } => {
                write_before_response(response, move || audit_log.append_rejection(&record, counted)).await
            }
        }
    }
}

/// Name of a response's code. A successful call has its status in the trailers, not in the headers.
fn outcome_of(response: &Response<Body>) -> &'static str {
    status_code_name(Status::from_header_map(response.headers()).map_or(Code::Ok, |status| status.code()))
}

/// Writes a record, then returns the response; an error instead if the record cannot be written.
async fn write_before_response(
    response: Response<Body>,
    write: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> Response<Body> {
    let error = match tokio::task::spawn_blocking(write).await {
        Ok(Ok(())) => return response,
        Ok(Err(error)) => error.to_string(),
        Err(error) => error.to_string(),
    };
    tracing::error!(error, "audit record write failed");
    let text = "the audit log is unavailable; the call may have taken effect: see the server's log";
    Rejection::new(Code::Internal, ErrorReason::AuditLogUnavailable, text).into_status().into_http()
}

/// Finishes the audit of a call whose handler ran, if there is one.
pub async fn finish_audit(audited: Option<AuditedCall>, response: Response<Body>) -> Response<Body> {
    match audited {
        Some(audited) => audited.write_audit_record(response).await,
        None => response,
    }
}

/// Finishes the audit of a call that was rejected before its handler ran, if there is one.
pub async fn finish_rejected_audit(audited: Option<AuditedCall>, response: Response<Body>) -> Response<Body> {
    match audited {
        Some(audited) => audited.record_sampled_rejection(response).await,
        None => response,
    }
}

/// Request id from `x-request-id`, if it is short and has only letters, digits and `-_.:`.
fn client_request_id(headers: &HeaderMap) -> Option<String> {
    let text = headers.get("x-request-id")?.to_str().ok()?;
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    (!text.is_empty() && text.len() <= REQUEST_ID_BYTES_MAX && text.bytes().all(is_allowed)).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::rpc_method::method_of_path;
    use crate::domain::time::UnixMs;
    use crate::telemetry::audit::AuditFileSettings;

    const DRAIN_PATH: &str = "/fireteam.v1.OperatorService/Drain";

    fn rate_limits_and_audit(file: Option<&std::path::Path>) -> RateLimitsAndAudit {
        let settings =
            file.map(|file| AuditFileSettings { file: file.to_owned(), bytes_max: 1 << 20, full_files_max: 3 });
        RateLimitsAndAudit {
            port: ServerPort::Operator,
            audit_log: Arc::new(AuditLog::open(settings.as_ref(), Box::new(|| UnixMs(255))).unwrap()),
            rate_limits: Arc::new(RateLimits::unlimited()),
            address_resolver: ClientAddressResolver::new(Arc::new(|peer, _| peer)),
        }
    }

    fn request(headers: &HeaderMap) -> Request<Body> {
        let mut request = Request::new(Body::empty());
        *request.headers_mut() = headers.clone();
        request
    }

    fn start_drain_audit(rate_limits_and_audit: &RateLimitsAndAudit, headers: &HeaderMap) -> AuditedCall {
        rate_limits_and_audit.start_audit(method_of_path(DRAIN_PATH), &request(headers)).unwrap()
    }

    /// SEC-19: a well-formed request id is kept, and nothing else enters the audit record.
    #[test]
    fn audit_keeps_a_well_formed_request_id_and_replaces_others() {
        let (rate_limits_and_audit, mut headers) = (rate_limits_and_audit(None), HeaderMap::new());
        assert_eq!(start_drain_audit(&rate_limits_and_audit, &headers).record.request_id, "ff-0");
        headers.insert("x-request-id", "7f.A-b_c:1".parse().unwrap());
        assert_eq!(start_drain_audit(&rate_limits_and_audit, &headers).record.request_id, "7f.A-b_c:1");
        for invalid in ["", "a b", "a\"b", &"x".repeat(65)] {
            headers.insert("x-request-id", invalid.parse().unwrap());
            assert!(
                start_drain_audit(&rate_limits_and_audit, &headers).record.request_id.starts_with("ff-"),
                "{invalid}"
            );
        }
        assert!(
            rate_limits_and_audit
                .start_audit(method_of_path("/fireteam.v1.MatchmakingService/Search"), &request(&headers))
                .is_none()
        );
        let client_port = RateLimitsAndAudit { port: ServerPort::Client, ..rate_limits_and_audit };
        assert!(client_port.start_audit(method_of_path(DRAIN_PATH), &request(&headers)).is_none());
    }

    /// Caller, action, target and outcome are in the file before the response is sent. If the file cannot be written,
    /// the call fails.
    #[tokio::test]
    async fn audit_record_is_written_before_the_response_or_the_call_fails() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let rate_limits_and_audit = rate_limits_and_audit(Some(&path));
        let mut audited = start_drain_audit(&rate_limits_and_audit, &HeaderMap::new());
        audited.set_identity(&Identity::new("studio", "ana", Role::Operator, &[], None));
        let mut response = Response::new(Body::empty());
        let changes = vec![AuditedRulesetChange { set_id: 1, before: Some(2), after: Some(3) }];
        response.extensions_mut().insert(AuditDetails { target: "duel.xml".into(), ruleset_changes: changes });
        assert!(Status::from_header_map(audited.write_audit_record(response).await.headers()).is_none());
        let rejected = Rejection::new(Code::PermissionDenied, ErrorReason::RoleNotAllowed, "no").into_status();
        let rejected = rejected.into_http();
        finish_rejected_audit(Some(start_drain_audit(&rate_limits_and_audit, &HeaderMap::new())), rejected).await;
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        let text = read("audit.jsonl") + &read("audit.rejected.jsonl");
        let lines: Vec<&str> = text.lines().collect();
        let expected = r#"{"time_unix_ms":255,"role":"operator","subject":"ana","issuer":"studio","#.to_owned()
            + r#""action":"fireteam.v1.OperatorService/Drain","target":"duel.xml","#
            + r#""ruleset_changes":[{"set_id":1,"before":2,"after":3}],"outcome":"OK","request_id":"ff-0"}"#;
        assert_eq!(lines[0], expected);
        assert!(lines[1].contains(r#""subject":null"#) && lines[1].contains("PERMISSION_DENIED"), "{}", lines[1]);
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        let response = start_drain_audit(&rate_limits_and_audit, &HeaderMap::new())
            .write_audit_record(Response::new(Body::empty()))
            .await;
        assert_eq!(Status::from_header_map(response.headers()).unwrap().code(), Code::Internal);
    }
}
