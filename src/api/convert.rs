//! Conversion of requests to domain types, with the path of each invalid field; conversion of domain types to
//! responses.

pub mod advertisement;
pub mod allocation;
pub mod beacons;
pub mod block_list;
pub mod field_checks;
pub(super) mod hosting;
pub(super) mod operator;
pub mod queue;
pub mod rating;
pub mod reservation;
pub mod search;
pub mod session;
pub mod to_proto;
mod wishes;

use std::fmt::Display;

use crate::api::status::Rejection;
use crate::domain::attribute_values::FieldProblem;
use crate::domain::id::SetId;
use crate::engine::error::EngineError;
use crate::telemetry::trace;

/// Way in which a request arrived: as a typed RPC, or in an envelope with fields of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RequestReader {
    /// Prefix of each field path: empty, or the sub-request's name in the envelope and a dot.
    pub field_prefix: &'static str,
    /// Matchmaking set in the envelope.
    pub envelope_set_id: Option<u32>,
    /// Nonce in the envelope.
    pub envelope_nonce: Option<u64>,
}

impl RequestReader {
    /// Creates an empty list of field errors for a request at this entry point.
    pub fn new_field_errors(&self) -> FieldErrors {
        FieldErrors { sub_request_prefix: self.field_prefix, errors: Vec::new() }
    }

    /// Matchmaking set of a request: its own or the envelope's. Both must agree.
    fn own_or_envelope_set_id(&self, own: Option<u32>, problems: &mut FieldErrors) -> Option<SetId> {
        if let (Some(own), Some(envelope)) = (own, self.envelope_set_id)
            && own != envelope
        {
            problems.add(
                "matchmaking_set_id",
                format!("is {own}, but the envelope has {envelope}; set it in one place only"),
            );
        }
        let set_id = own.or(self.envelope_set_id).map(SetId);
        set_id.into_iter().for_each(trace::record_set_id);
        set_id
    }

    /// Matchmaking set of a request that requires one.
    fn required_own_or_envelope_set_id(&self, own: Option<u32>, problems: &mut FieldErrors) -> SetId {
        let set_id = self.own_or_envelope_set_id(own, problems);
        if set_id.is_none() {
            problems.add("matchmaking_set_id", "is missing; set it to the SetId of a loaded ruleset");
        }
        set_id.unwrap_or_default()
    }

    /// Converts an engine error; adds the prefix to its field paths.
    pub fn rejection_from(&self, mut error: EngineError) -> Rejection {
        if let EngineError::InvalidFields(problems) = &mut error {
            for problem in problems {
                problem.path.insert_str(0, self.field_prefix);
            }
        }
        error.into()
    }
}

/// Invalid fields of one request.
#[derive(Debug)]
pub struct FieldErrors {
    sub_request_prefix: &'static str,
    errors: Vec<FieldProblem>,
}

impl FieldErrors {
    /// Adds a problem of the field at `path`: what is wrong, and what to send instead.
    pub fn add(&mut self, path: impl Display, message: impl Into<String>) {
        let path = format!("{}{path}", self.sub_request_prefix);
        self.errors.push(FieldProblem { path, message: message.into() });
    }

    /// Adds the problems of a part of the request.
    fn extend(&mut self, part: Self) {
        self.errors.extend(part.errors);
    }

    /// Returns `value` if no problem was added, else all problems as one rejection.
    pub fn into_result<T>(self, value: T) -> Result<T, Rejection> {
        if self.errors.is_empty() { Ok(value) } else { Err(Rejection::invalid_fields(self.errors)) }
    }
}
