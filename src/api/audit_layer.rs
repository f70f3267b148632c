//! Watches over calls: how often anybody makes one; and of those that only operators may make, that it is written down who
//! asked for what and how it ended.

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
use crate::auth::policy::{OPERATORS_ONLY, RateLimitKind};
use crate::auth::rate_limit::{RateLimitKey, RateLimits};
use crate::telemetry::audit::{AuditLog, AuditRecord, AuditedChange};

/// Bytes of a request's own name that are taken over.
const REQUEST_ID_BYTES_MAX: usize = 64;

/// What watches.
#[derive(Clone, Debug)]
pub struct AuditLayer {
    /// Where what operators do is written down.
    pub audit_log: Arc<AuditLog>,
    /// How often anybody may ask.
    pub rate_limits: Arc<RateLimits>,
    /// Where they ask from.
    pub address_resolver: ClientAddressResolver,
}

/// What a call did, left by its handler among the extensions of its answer.
#[derive(Clone, Debug, Default)]
pub struct AuditEntry {
    /// What it was done to.
    pub target: String,
    /// Rulesets that are others now.
    pub ruleset_changes: Vec<AuditedChange>,
}

/// A call that is being watched.
#[derive(Debug)]
pub struct AuditedCall {
    layer: AuditLayer,
    record: AuditRecord,
    rate_limit_key: RateLimitKey,
}

impl AuditLayer {
    /// Charges a call before its request is read: what cannot be read has cost its reading (SEC-11). Whoever has not shown
    /// who they are pays by where they are.
    pub fn charge_call(&self, by: Option<&Arc<Identity>>, request: &Request<Body>) -> Result<(), Rejection> {
        if !self.rate_limits.has_limit(RateLimitKind::Call) {
            return Ok(());
        }
        let payer = match by {
            Some(identity) => RateLimitKey::for_caller(Some((identity.role, identity.caller_key)), None),
            None => RateLimitKey::for_caller(None, self.client_address(request)),
        };
        Ok(self.rate_limits.consume(payer, RateLimitKind::Call, 1)?)
    }

    /// Charges a place for a proof of identity that was worth nothing.
    pub fn charge_auth_failure(&self, request: &Request<Body>) -> Result<(), Rejection> {
        Ok(self.rate_limits.consume_auth_failure(self.client_address(request))?)
    }

    fn client_address(&self, request: &Request<Body>) -> Option<IpAddr> {
        self.address_resolver.client_address(request.headers(), request.extensions())
    }

    /// Watches a call of `method`, if only operators may make it.
    pub fn start_audit(&self, method: RpcMethod, request: &Request<Body>) -> Option<AuditedCall> {
        if method.access != OPERATORS_ONLY {
            return None;
        }
        let (headers, address) = (request.headers(), self.client_address(request));
        let request_id = client_request_id(headers).unwrap_or_else(|| self.audit_log.generate_request_id());
        let record = AuditRecord { what: method.name, request_id, ..AuditRecord::default() };
        Some(AuditedCall { layer: self.clone(), record, rate_limit_key: RateLimitKey::for_caller(None, address) })
    }
}

impl AuditedCall {
    /// It has turned out who asks.
    pub fn set_identity(&mut self, identity: &Identity) {
        self.record.subject = Some(identity.subject.to_string());
        self.record.issuer = Some(identity.issuer.to_string());
        self.set_role(identity.role);
        self.rate_limit_key = RateLimitKey::for_caller(Some((identity.role, identity.caller_key)), None);
    }

    /// It has turned out in what role somebody asks.
    pub fn set_role(&mut self, role: Role) {
        self.record.role = Some(role.as_str());
    }

    /// Charges whoever asks.
    pub fn charge_operator_call(&self) -> Result<(), Rejection> {
        Ok(self.layer.rate_limits.consume(self.rate_limit_key, RateLimitKind::Operator, 1)?)
    }

    /// Writes down how it ended, and then lets the answer go. What cannot be written down is answered by an error.
    pub async fn write_audit_record(self, mut response: Response<Body>) -> Response<Body> {
        let Self { layer: AuditLayer { audit_log: audit, .. }, mut record, .. } = self;
        // A call that ends well says so after its answer, in the trailers.
        let code = Status::from_header_map(response.headers()).map_or(Code::Ok, |status| status.code());
        let AuditEntry { target: object, ruleset_changes: changes } =
            response.extensions_mut().remove().unwrap_or_default();
        (record.object, record.changes, record.outcome) = (object, changes, status_code_name(code));
        let why = match tokio::task::spawn_blocking(move || audit.append(&record)).await {
            Ok(Ok(())) => return response,
            Ok(Err(why)) => why.to_string(),
            Err(why) => why.to_string(),
        };
        tracing::error!(why, "the audit file cannot be written");
        let text = "the audit file cannot be written; what was asked for may have been done: see the server's log";
        Rejection::new(Code::Internal, ErrorReason::AuditLogUnavailable, text).into_status().into_http()
    }
}

/// Lets an answer go, watched or not.
pub async fn finish_audit(watched: Option<AuditedCall>, response: Response<Body>) -> Response<Body> {
    match watched {
        Some(watched) => watched.write_audit_record(response).await,
        None => response,
    }
}

/// The request's own name, `x-request-id`, if it is one that can be written down.
fn client_request_id(headers: &HeaderMap) -> Option<String> {
    let text = headers.get("x-request-id")?.to_str().ok()?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    (!text.is_empty() && text.len() <= REQUEST_ID_BYTES_MAX && text.bytes().all(plain)).then(|| text.to_owned())
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

    fn start_drain_audit(oversight: &AuditLayer, headers: &HeaderMap) -> AuditedCall {
        oversight.start_audit(method_of_path(DRAIN_PATH), &request(headers)).unwrap()
    }

    /// SEC-19: a request's own name is kept when it is one, and nothing else gets into the line.
    #[test]
    fn audit_keeps_a_well_formed_request_id_and_replaces_others() {
        let (oversight, mut headers) = (audit_layer(None), HeaderMap::new());
        assert_eq!(start_drain_audit(&oversight, &headers).record.request_id, "ff-0");
        headers.insert("x-request-id", "7f.A-b_c:1".parse().unwrap());
        assert_eq!(start_drain_audit(&oversight, &headers).record.request_id, "7f.A-b_c:1");
        for odd in ["", "a b", "a\"b", &"x".repeat(65)] {
            headers.insert("x-request-id", odd.parse().unwrap());
            assert!(start_drain_audit(&oversight, &headers).record.request_id.starts_with("ff-"), "{odd}");
        }
        assert!(
            oversight
                .start_audit(method_of_path("/fireteam.v1.MatchmakingService/Search"), &request(&headers))
                .is_none()
        );
    }

    /// Who, what, of what, and how it ended are in the file before the answer goes out; what the file does not take is an
    /// error of the call.
    #[tokio::test]
    async fn audit_record_is_written_before_the_response_or_the_call_fails() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let oversight = audit_layer(Some(&path));
        let mut by_ana = start_drain_audit(&oversight, &HeaderMap::new());
        by_ana.set_identity(&Identity::new("studio", "ana", Role::Operator, &[], None));
        let mut response = Response::new(Body::empty());
        let changes = vec![AuditedChange { set_id: 1, before: Some(2), after: Some(3) }];
        response.extensions_mut().insert(AuditEntry { target: "duel.xml".into(), ruleset_changes: changes });
        assert!(Status::from_header_map(by_ana.write_audit_record(response).await.headers()).is_none());
        let refused = Rejection::new(Code::PermissionDenied, ErrorReason::RoleNotAllowed, "no").into_status();
        finish_audit(Some(start_drain_audit(&oversight, &HeaderMap::new())), refused.into_http()).await;
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let expected = r#"{"time_unix_ms":255,"role":"operator","subject":"ana","issuer":"studio","#.to_owned()
            + r#""what":"fireteam.v1.OperatorService/Drain","object":"duel.xml","#
            + r#""changes":[{"set_id":1,"before":2,"after":3}],"outcome":"OK","request_id":"ff-0"}"#;
        assert_eq!(lines[0], expected);
        assert!(lines[1].contains(r#""subject":null"#) && lines[1].contains("PERMISSION_DENIED"), "{}", lines[1]);
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        let answer =
            start_drain_audit(&oversight, &HeaderMap::new()).write_audit_record(Response::new(Body::empty())).await;
        assert_eq!(Status::from_header_map(answer.headers()).unwrap().code(), Code::Internal);
    }
}
