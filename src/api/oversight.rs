//! Watches over calls: how often anybody makes one; and of those that only operators may make, that it is written down who
//! asked for what and how it ended.

use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderMap, Request, Response};
use tonic::body::Body;
use tonic::{Code, Status};

use crate::api::pb::ErrorReason;
use crate::api::caller::Callers;
use crate::api::layer::report::code_word;
use crate::api::method::Method;
use crate::api::status::Rejection;
use crate::auth::identity::{Identity, Role};
use crate::auth::policy::{Charge, OPERATORS};
use crate::auth::quota::{Payer, Quotas};
use crate::telemetry::audit::{AuditLog, Change, Record};

/// Bytes of a request's own name that are taken over.
const REQUEST_ID_BYTES_MAX: usize = 64;

/// What watches.
#[derive(Clone, Debug)]
pub struct Oversight {
    /// Where what operators do is written down.
    pub audit: Arc<AuditLog>,
    /// How often anybody may ask.
    pub quotas: Arc<Quotas>,
    /// Where they ask from.
    pub callers: Callers,
}

/// What a call did, left by its handler among the extensions of its answer.
#[derive(Clone, Debug, Default)]
pub struct Deed {
    /// What it was done to.
    pub object: String,
    /// Rulesets that are others now.
    pub changes: Vec<Change>,
}

/// A call that is being watched.
#[derive(Debug)]
pub struct Watched {
    oversight: Oversight,
    record: Record,
    payer: Payer,
}

impl Oversight {
    /// Charges a call before its request is read: what cannot be read has cost its reading (SEC-11). Whoever has not shown
    /// who they are pays by where they are.
    pub fn charge_call(&self, by: Option<&Arc<Identity>>, request: &Request<Body>) -> Result<(), Rejection> {
        if !self.quotas.has(Charge::Call) {
            return Ok(());
        }
        let payer = match by {
            Some(identity) => Payer::of(Some((identity.role, identity.key)), None),
            None => Payer::of(None, self.address(request)),
        };
        Ok(self.quotas.charge(payer, Charge::Call, 1)?)
    }

    /// Charges a place for a proof of identity that was worth nothing.
    pub fn charge_failure(&self, request: &Request<Body>) -> Result<(), Rejection> {
        Ok(self.quotas.failed(self.address(request))?)
    }

    fn address(&self, request: &Request<Body>) -> Option<IpAddr> {
        self.callers.address(request.headers(), request.extensions())
    }

    /// Watches a call of `method`, if only operators may make it.
    pub fn watch(&self, method: Method, request: &Request<Body>) -> Option<Watched> {
        if method.access != OPERATORS {
            return None;
        }
        let (headers, address) = (request.headers(), self.address(request));
        let request_id = given_id(headers).unwrap_or_else(|| self.audit.request_id());
        let record = Record { what: method.name, request_id, ..Record::default() };
        Some(Watched { oversight: self.clone(), record, payer: Payer::of(None, address) })
    }
}

impl Watched {
    /// It has turned out who asks.
    pub fn is_by(&mut self, identity: &Identity) {
        self.record.subject = Some(identity.subject.to_string());
        self.record.issuer = Some(identity.issuer.to_string());
        self.is_by_some(identity.role);
        self.payer = Payer::of(Some((identity.role, identity.key)), None);
    }

    /// It has turned out in what role somebody asks.
    pub fn is_by_some(&mut self, role: Role) {
        self.record.role = Some(role.as_str());
    }

    /// Charges whoever asks.
    pub fn charge(&self) -> Result<(), Rejection> {
        Ok(self.oversight.quotas.charge(self.payer, Charge::Operate, 1)?)
    }

    /// Writes down how it ended, and then lets the answer go. What cannot be written down is answered by an error.
    pub async fn end(self, mut response: Response<Body>) -> Response<Body> {
        let Self { oversight: Oversight { audit, .. }, mut record, .. } = self;
        // A call that ends well says so after its answer, in the trailers.
        let code = Status::from_header_map(response.headers()).map_or(Code::Ok, |status| status.code());
        let Deed { object, changes } = response.extensions_mut().remove().unwrap_or_default();
        (record.object, record.changes, record.outcome) = (object, changes, code_word(code));
        let why = match tokio::task::spawn_blocking(move || audit.write(&record)).await {
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
pub async fn end(watched: Option<Watched>, response: Response<Body>) -> Response<Body> {
    match watched {
        Some(watched) => watched.end(response).await,
        None => response,
    }
}

/// The request's own name, `x-request-id`, if it is one that can be written down.
fn given_id(headers: &HeaderMap) -> Option<String> {
    let text = headers.get("x-request-id")?.to_str().ok()?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    (!text.is_empty() && text.len() <= REQUEST_ID_BYTES_MAX && text.bytes().all(plain)).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::method::of_path;
    use crate::domain::time::UnixMs;

    const DRAIN: &str = "/fireteam.v1.OperatorService/Drain";

    fn oversight(file: Option<&std::path::Path>) -> Oversight {
        Oversight {
            audit: Arc::new(AuditLog::open(file, Box::new(|| UnixMs(255))).unwrap()),
            quotas: Arc::new(Quotas::off()),
            callers: Callers::new(Arc::new(|peer, _| peer)),
        }
    }

    fn request(headers: &HeaderMap) -> Request<Body> {
        let mut request = Request::new(Body::empty());
        *request.headers_mut() = headers.clone();
        request
    }

    fn watched(oversight: &Oversight, headers: &HeaderMap) -> Watched {
        oversight.watch(of_path(DRAIN), &request(headers)).unwrap()
    }

    /// SEC-19: a request's own name is kept when it is one, and nothing else gets into the line.
    #[test]
    fn a_request_has_a_name_that_is_one() {
        let (oversight, mut headers) = (oversight(None), HeaderMap::new());
        assert_eq!(watched(&oversight, &headers).record.request_id, "ff-0");
        headers.insert("x-request-id", "7f.A-b_c:1".parse().unwrap());
        assert_eq!(watched(&oversight, &headers).record.request_id, "7f.A-b_c:1");
        for odd in ["", "a b", "a\"b", &"x".repeat(65)] {
            headers.insert("x-request-id", odd.parse().unwrap());
            assert!(watched(&oversight, &headers).record.request_id.starts_with("ff-"), "{odd}");
        }
        assert!(oversight.watch(of_path("/fireteam.v1.MatchmakingService/Search"), &request(&headers)).is_none());
    }

    /// Who, what, of what, and how it ended are in the file before the answer goes out; what the file does not take is an
    /// error of the call.
    #[tokio::test]
    async fn what_is_done_is_written_down_first() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let oversight = oversight(Some(&path));
        let mut by_ana = watched(&oversight, &HeaderMap::new());
        by_ana.is_by(&Identity::new("studio", "ana", Role::Operator, &[], None));
        let mut response = Response::new(Body::empty());
        let changes = vec![Change { set_id: 1, before: Some(2), after: Some(3) }];
        response.extensions_mut().insert(Deed { object: "duel.xml".into(), changes });
        assert!(Status::from_header_map(by_ana.end(response).await.headers()).is_none());
        let refused = Rejection::new(Code::PermissionDenied, ErrorReason::RoleNotAllowed, "no").into_status();
        end(Some(watched(&oversight, &HeaderMap::new())), refused.into_http()).await;
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let expected = r#"{"time_unix_ms":255,"role":"operator","subject":"ana","issuer":"studio","#.to_owned()
            + r#""what":"fireteam.v1.OperatorService/Drain","object":"duel.xml","#
            + r#""changes":[{"set_id":1,"before":2,"after":3}],"outcome":"OK","request_id":"ff-0"}"#;
        assert_eq!(lines[0], expected);
        assert!(lines[1].contains(r#""subject":null"#) && lines[1].contains("PERMISSION_DENIED"), "{}", lines[1]);
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        let answer = watched(&oversight, &HeaderMap::new()).end(Response::new(Body::empty())).await;
        assert_eq!(Status::from_header_map(answer.headers()).unwrap().code(), Code::Internal);
    }
}
