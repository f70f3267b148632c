//! Wire to domain, refusing with the path of every field at fault; domain to wire, never failing.

pub mod advertisement;
pub mod field;
pub mod out;
pub mod queue;
pub mod rating;
pub mod search;
pub mod seats;
pub mod session;

use std::fmt::Display;

use crate::api::status::Rejection;
use crate::domain::facts::FieldProblem;
use crate::domain::id::SetId;
use crate::engine::fault::Fault;

/// How a request came in: alone, or inside an envelope that says something about it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Door {
    /// What stands before the path of every field: empty, or the envelope's name for the request and a dot.
    pub prefix: &'static str,
    /// The envelope's set.
    pub set_id: Option<u32>,
    /// The envelope's nonce.
    pub nonce: Option<u64>,
}

impl Door {
    /// An empty list of problems of a request that came through this door.
    pub fn problems(&self) -> Problems {
        Problems { prefix: self.prefix, found: Vec::new() }
    }

    /// The set that a request is about, by its own word or the envelope's.
    fn set_id(&self, own: Option<u32>, problems: &mut Problems) -> Option<SetId> {
        if let (Some(own), Some(envelope)) = (own, self.set_id)
            && own != envelope
        {
            problems.add("matchmaking_set_id", format!("is {own}, but the envelope says {envelope}: say it once"));
        }
        own.or(self.set_id).map(SetId)
    }

    /// The same, where it cannot be done without.
    fn required_set_id(&self, own: Option<u32>, problems: &mut Problems) -> SetId {
        let set_id = self.set_id(own, problems);
        if set_id.is_none() {
            problems.add("matchmaking_set_id", "is missing: say which playlist");
        }
        set_id.unwrap_or_default()
    }

    /// Puts a fault of the engine into the words of the wire.
    pub fn rejection(&self, mut fault: Fault) -> Rejection {
        if let Fault::Fields(problems) = &mut fault {
            for problem in problems {
                problem.path.insert_str(0, self.prefix);
            }
        }
        fault.into()
    }
}

/// Everything that is wrong with one request.
#[derive(Debug)]
pub struct Problems {
    prefix: &'static str,
    found: Vec<FieldProblem>,
}

impl Problems {
    /// Notes that the field at `path` cannot be used, and what would be right.
    pub fn add(&mut self, path: impl Display, what: impl Into<String>) {
        let path = format!("{}{path}", self.prefix);
        self.found.push(FieldProblem { path, what: what.into() });
    }

    /// The value, if nothing was wrong; otherwise all that was.
    pub fn finish<T>(self, value: T) -> Result<T, Rejection> {
        if self.found.is_empty() { Ok(value) } else { Err(Rejection::of_fields(self.found)) }
    }
}
