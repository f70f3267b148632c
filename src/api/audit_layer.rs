//! Audit and rate limit of calls: charges each call, and writes an audit record of each call that only operators may
//! make: caller, method, target, outcome.

use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderMap, Request, Response};
use tonic::body::Body;
use tonic::{Code, Status};

use crate::api::client_address::ClientAddressResolver;
use crate::api::layer::call_report::status_code_name;
use crate::api::pb::ErrorReason;
use crate::api::rpc_method::RpcMethod;
use crate::api::status::Rejection;
use crate::auth::identity::{Identity, Role};
use crate::auth::policy::{AccessPolicy, OPERATORS_ONLY, RateLimitKind};
use crate::auth::rate_limit::{RateLimitKey, RateLimits};
use crate::telemetry::audit::{AuditLog, AuditRecord, AuditedChange};

/// Limit of an `x-request-id` that the audit record repeats, bytes.
const REQUEST_ID_BYTES_MAX: usize = 64;

/// Rate limits and audit log of a port.
#[derive(Clone, Debug)]
pub struct AuditLayer {
    /// Log of operator actions.
    pub audit_log: Arc<AuditLog>,
    /// Rate limits per caller and per address.
    pub rate_limits: Arc<RateLimits>,
    /// Finds the client address of a request.
    pub address_resolver: ClientAddressResolver,
}

/// Action of an operator call, which its handler leaves in the response's extensions.
#[derive(Clone, Debug, Default)]
pub struct AuditEntry {
    /// Object of the action, such as a file name.
    pub target: String,
    /// Rulesets that the call has changed.
    pub ruleset_changes: Vec<AuditedChange>,
}

/// Operator call in progress, with its audit record.
#[derive(Debug)]
pub struct AuditedCall {
    layer: AuditLayer,
    record: AuditRecord,
    rate_limit_key: RateLimitKey,
}

impl AuditLayer {
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
        if !self.rate_limits.has_limit(RateLimitKind::Call) {
            return Ok(());
        }
        let (headers, extensions) = (request.headers(), request.extensions());
        if let Some(identity) = identity {
            let network = (identity.role == Role::Client)
                .then(|| self.address_resolver.known_client_address(headers, extensions))
                .flatten();
            let key = RateLimitKey::for_caller(Some((identity.role, identity.caller_key)), None);
            return Ok(self.rate_limits.consume_in_network(key, network, RateLimitKind::Call, 1)?);
        }
        let is_health_check = method.access == AccessPolicy::Public;
        let proxy = is_health_check.then(|| self.address_resolver.trusted_peer_itself(headers, extensions)).flatten();
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

    /// Starts the audit of a call of `method`; `None` if not only operators may make it.
    pub fn start_audit(&self, method: RpcMethod, request: &Request<Body>) -> Option<AuditedCall> {
        if method.access != OPERATORS_ONLY {
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

    /// Records the role of a caller that failed the role check.
    pub fn set_role(&mut self, role: Role) {
        self.record.role = Some(role.as_str());
    }

    /// Charges the operator limit.
    pub fn charge_operator_call(&self) -> Result<(), Rejection> {
        Ok(self.layer.rate_limits.consume(self.rate_limit_key, RateLimitKind::Operator, 1)?)
    }

    /// Writes the audit record, then returns the response. If the record cannot be written, returns an error instead.
    pub async fn write_audit_record(self, mut response: Response<Body>) -> Response<Body> {
        let Self { layer: AuditLayer { audit_log, .. }, mut record, .. } = self;
        // A successful call has its status in the trailers, not in the headers.
        let code = Status::from_header_map(response.headers()).map_or(Code::Ok, |status| status.code());
        let AuditEntry { target, ruleset_changes } = response.extensions_mut().remove().unwrap_or_default();
        (record.target, record.ruleset_changes, record.outcome) = (target, ruleset_changes, status_code_name(code));
        let error = match tokio::task::spawn_blocking(move || audit_log.append(&record)).await {
            Ok(Ok(())) => return response,
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        tracing::error!(error, "audit record write failed");
        let text = "the audit log is unavailable; the call may have taken effect: see the server's log";
        Rejection::new(Code::Internal, ErrorReason::AuditLogUnavailable, text).into_status().into_http()
    }
}

/// Finishes the audit of a call, if there is one.
pub async fn finish_audit(audited: Option<AuditedCall>, response: Response<Body>) -> Response<Body> {
    match audited {
        Some(audited) => audited.write_audit_record(response).await,
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

    const DRAIN_PATH: &str = "/fireteam.v1.OperatorService/Drain";

    fn audit_layer(file: Option<&std::path::Path>) -> AuditLayer {
        AuditLayer {
            audit_log: Arc::new(AuditLog::open(file, Box::new(|| UnixMs(255))).unwrap()),
            rate_limits: Arc::new(RateLimits::unlimited()),
            address_resolver: ClientAddressResolver::new(Arc::new(|peer, _| peer)),
        }
    }

    fn request(headers: &HeaderMap) -> Request<Body> {
        let mut request = Request::new(Body::empty());
        *request.headers_mut() = headers.clone();
        request
    }

    fn start_drain_audit(audit_layer: &AuditLayer, headers: &HeaderMap) -> AuditedCall {
        audit_layer.start_audit(method_of_path(DRAIN_PATH), &request(headers)).unwrap()
    }

    /// SEC-19: a well-formed request id is kept, and nothing else enters the audit record.
    #[test]
    fn audit_keeps_a_well_formed_request_id_and_replaces_others() {
        let (audit_layer, mut headers) = (audit_layer(None), HeaderMap::new());
        assert_eq!(start_drain_audit(&audit_layer, &headers).record.request_id, "ff-0");
        headers.insert("x-request-id", "7f.A-b_c:1".parse().unwrap());
        assert_eq!(start_drain_audit(&audit_layer, &headers).record.request_id, "7f.A-b_c:1");
        for invalid in ["", "a b", "a\"b", &"x".repeat(65)] {
            headers.insert("x-request-id", invalid.parse().unwrap());
            assert!(start_drain_audit(&audit_layer, &headers).record.request_id.starts_with("ff-"), "{invalid}");
        }
        assert!(
            audit_layer
                .start_audit(method_of_path("/fireteam.v1.MatchmakingService/Search"), &request(&headers))
                .is_none()
        );
    }

    /// Caller, action, target and outcome are in the file before the response is sent. If the file cannot be written,
    /// the call fails.
    #[tokio::test]
    async fn audit_record_is_written_before_the_response_or_the_call_fails() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let audit_layer = audit_layer(Some(&path));
        let mut audited = start_drain_audit(&audit_layer, &HeaderMap::new());
        audited.set_identity(&Identity::new("studio", "ana", Role::Operator, &[], None));
        let mut response = Response::new(Body::empty());
        let changes = vec![AuditedChange { set_id: 1, before: Some(2), after: Some(3) }];
        response.extensions_mut().insert(AuditEntry { target: "duel.xml".into(), ruleset_changes: changes });
        assert!(Status::from_header_map(audited.write_audit_record(response).await.headers()).is_none());
        let rejected = Rejection::new(Code::PermissionDenied, ErrorReason::RoleNotAllowed, "no").into_status();
        finish_audit(Some(start_drain_audit(&audit_layer, &HeaderMap::new())), rejected.into_http()).await;
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let expected = r#"{"time_unix_ms":255,"role":"operator","subject":"ana","issuer":"studio","#.to_owned()
            + r#""action":"fireteam.v1.OperatorService/Drain","target":"duel.xml","#
            + r#""ruleset_changes":[{"set_id":1,"before":2,"after":3}],"outcome":"OK","request_id":"ff-0"}"#;
        assert_eq!(lines[0], expected);
        assert!(lines[1].contains(r#""subject":null"#) && lines[1].contains("PERMISSION_DENIED"), "{}", lines[1]);
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        let response =
            start_drain_audit(&audit_layer, &HeaderMap::new()).write_audit_record(Response::new(Body::empty())).await;
        assert_eq!(Status::from_header_map(response.headers()).unwrap().code(), Code::Internal);
    }
}
