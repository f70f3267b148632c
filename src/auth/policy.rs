//! Who may make a call, and what calls are charged as.

use crate::auth::identity::{CallerRoles, Role};

/// Who may make a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessPolicy {
    /// Strangers too: what balancers ask before anybody has shown who they are.
    Public,
    /// Callers in one of these roles. Where nobody can show who they are, everybody.
    RolesOnly(CallerRoles),
}

/// What is charged for a call. Searches, changes and streams have quotas of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RateLimitKind {
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
    Operator,
    /// A stream, for as long as it is open; what is asked on it is charged as what it is.
    Stream,
    /// A proof of identity that was worth nothing; charged to the place that it came from.
    AuthFailure,
}

impl RateLimitKind {
    /// Everything that may be charged.
    pub const ALL: [RateLimitKind; 8] = [
        RateLimitKind::Call,
        RateLimitKind::Search,
        RateLimitKind::Update,
        RateLimitKind::Heartbeat,
        RateLimitKind::Seats,
        RateLimitKind::Operator,
        RateLimitKind::Stream,
        RateLimitKind::AuthFailure,
    ];

    /// The word in settings, metrics and refusals.
    pub fn as_str(self) -> &'static str {
        match self {
            RateLimitKind::Call => "call",
            RateLimitKind::Search => "search",
            RateLimitKind::Update => "update",
            RateLimitKind::Heartbeat => "heartbeat",
            RateLimitKind::Seats => "seats",
            RateLimitKind::Operator => "operate",
            RateLimitKind::Stream => "stream",
            RateLimitKind::AuthFailure => "failure",
        }
    }
}

/// Players and the servers that they play on.
pub const CLIENTS_AND_GAME_SERVERS: AccessPolicy =
    AccessPolicy::RolesOnly(CallerRoles::from_roles(&[Role::Client, Role::GameServer]));
/// Those who run fireteam.
pub const OPERATORS_ONLY: AccessPolicy = AccessPolicy::RolesOnly(CallerRoles::from_roles(&[Role::Operator]));
/// Whoever can show who they are.
pub const ALL_AUTHENTICATED: AccessPolicy = AccessPolicy::RolesOnly(CallerRoles::from_roles(&Role::ALL));

impl AccessPolicy {
    /// Whether somebody in `role` may.
    pub fn allows(self, role: Role) -> bool {
        match self {
            AccessPolicy::Public => true,
            AccessPolicy::RolesOnly(roles) => roles.contains(role),
        }
    }
}
