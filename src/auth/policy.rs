//! Who may make a call, and what calls are charged as.

use crate::auth::identity::{Role, Roles};

/// Who may make a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Strangers too: what balancers ask before anybody has shown who they are.
    Anyone,
    /// Callers in one of these roles. Where nobody can show who they are, everybody.
    Only(Roles),
}

/// What is charged for a call. Searches, changes and streams have quotas of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Charge {
    /// Any call at all, when it comes in: one that cannot be read has been read, too.
    Call,
    /// A look at the index.
    Search,
    /// A change of an advertisement.
    Update,
    /// An update that says only that its host is still there.
    Heartbeat,
    /// A change of seats.
    Seats,
    /// Anything that an operator asks.
    Operate,
    /// A stream, for as long as it is open; what is asked on it is charged as what it is.
    Stream,
    /// A proof of identity that was worth nothing; charged to the place that it came from.
    Failure,
}

impl Charge {
    /// Everything that may be charged.
    pub const ALL: [Charge; 8] = [
        Charge::Call,
        Charge::Search,
        Charge::Update,
        Charge::Heartbeat,
        Charge::Seats,
        Charge::Operate,
        Charge::Stream,
        Charge::Failure,
    ];

    /// The word in settings, metrics and refusals.
    pub fn as_str(self) -> &'static str {
        match self {
            Charge::Call => "call",
            Charge::Search => "search",
            Charge::Update => "update",
            Charge::Heartbeat => "heartbeat",
            Charge::Seats => "seats",
            Charge::Operate => "operate",
            Charge::Stream => "stream",
            Charge::Failure => "failure",
        }
    }
}

/// Players and the servers that they play on.
pub const PLAYERS: Access = Access::Only(Roles::of(&[Role::Client, Role::Server]));
/// Those who run fireteam.
pub const OPERATORS: Access = Access::Only(Roles::of(&[Role::Operator]));
/// Whoever can show who they are.
pub const IDENTIFIED: Access = Access::Only(Roles::of(&Role::ALL));

impl Access {
    /// Whether somebody in `role` may.
    pub fn admits(self, role: Role) -> bool {
        match self {
            Access::Anyone => true,
            Access::Only(roles) => roles.has(role),
        }
    }
}
