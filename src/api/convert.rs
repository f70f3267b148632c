//! Wire to domain, refusing with the path of every field at fault; domain to wire, never failing.

pub mod advertisement;
pub mod field_checks;
pub mod queue;
pub mod rating;
pub mod reservation;
pub mod search;
pub mod session;
pub mod to_proto;

use std::fmt::Display;

use crate::api::status::Rejection;
use crate::domain::attribute_values::FieldProblem;
use crate::domain::id::SetId;
use crate::engine::error::EngineError;

/// How a request came in: alone, or inside an envelope that says something about it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EntryPoint {
    /// What stands before the path of every field: empty, or the envelope's name for the request and a dot.
    pub field_prefix: &'static str,
    /// The envelope's set.
    pub envelope_set_id: Option<u32>,
    /// The envelope's nonce.
    pub envelope_nonce: Option<u64>,
}

impl EntryPoint {
    /// An empty list of problems of a request that came through this door.
    pub fn field_errors(&self) -> FieldErrors {
        FieldErrors { field_prefix: self.field_prefix, errors: Vec::new() }
    }

    /// The set that a request is about, by its own word or the envelope's.
    fn resolve_set_id(&self, own: Option<u32>, problems: &mut FieldErrors) -> Option<SetId> {
        if let (Some(own), Some(envelope)) = (own, self.envelope_set_id)
            && own != envelope
        {
            problems.add("matchmaking_set_id", format!("is {own}, but the envelope says {envelope}: say it once"));
        }
        own.or(self.envelope_set_id).map(SetId)
    }

    /// The same, where it cannot be done without.
    fn resolve_required_set_id(&self, own: Option<u32>, problems: &mut FieldErrors) -> SetId {
        let set_id = self.resolve_set_id(own, problems);
        if set_id.is_none() {
            problems.add("matchmaking_set_id", "is missing: say which playlist");
        }
        set_id.unwrap_or_default()
    }

    /// Puts a fault of the engine into the words of the wire.
    pub fn rejection_from(&self, mut fault: EngineError) -> Rejection {
        if let EngineError::InvalidFields(problems) = &mut fault {
            for problem in problems {
                problem.path.insert_str(0, self.field_prefix);
            }
        }
        fault.into()
    }
}

/// Everything that is wrong with one request.
#[derive(Debug)]
pub struct FieldErrors {
    field_prefix: &'static str,
    errors: Vec<FieldProblem>,
}

impl FieldErrors {
    /// Notes that the field at `path` cannot be used, and what would be right.
    pub fn add(&mut self, path: impl Display, what: impl Into<String>) {
        let path = format!("{}{path}", self.field_prefix);
        self.errors.push(FieldProblem { path, message: what.into() });
    }

    /// The value, if nothing was wrong; otherwise all that was.
    pub fn into_result<T>(self, value: T) -> Result<T, Rejection> {
        if self.errors.is_empty() { Ok(value) } else { Err(Rejection::invalid_fields(self.errors)) }
    }
}
