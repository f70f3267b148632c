//! Access policy of calls, and the kinds of rate limits that calls count against.

use crate::auth::identity::{CallerRoleSet, Role};

/// Callers that may make a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessPolicy {
    /// All callers, also unauthenticated ones: health checks of load balancers.
    Public,
    /// Callers in one of these roles; all callers if the server has no authentication configured.
    RolesOnly(CallerRoleSet),
}

/// Kind of rate limit that a call counts against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RateLimitKind {
    /// Any call, counted on arrival, also when its request turns out to be invalid.
    Call,
    /// A search.
    Search,
    /// A change to an advertisement.
    Update,
    /// An update that only extends the TTL.
    Heartbeat,
    /// A reservation, or the release of one.
    Seats,
    /// A call of an operator.
    Operator,
    /// An open stream. Requests on it count against their own limits.
    ConcurrentStreams,
    /// A failed authentication, counted for the client's address.
    AuthFailure,
    /// A signature that has to be verified, counted for the client's address before the work is done. Given back if the
    /// token is valid.
    Verification,
}

impl RateLimitKind {
    /// All kinds.
    pub const ALL: [RateLimitKind; 9] = [
        RateLimitKind::Call,
        RateLimitKind::Search,
        RateLimitKind::Update,
        RateLimitKind::Heartbeat,
        RateLimitKind::Seats,
        RateLimitKind::Operator,
        RateLimitKind::ConcurrentStreams,
        RateLimitKind::AuthFailure,
        RateLimitKind::Verification,
    ];

    /// Name in settings, metrics and errors.
    pub fn as_str(self) -> &'static str {
        match self {
            RateLimitKind::Call => "call",
            RateLimitKind::Search => "search",
            RateLimitKind::Update => "update",
            RateLimitKind::Heartbeat => "heartbeat",
            RateLimitKind::Seats => "seats",
            RateLimitKind::Operator => "operator",
            RateLimitKind::ConcurrentStreams => "stream",
            RateLimitKind::AuthFailure => "auth_failure",
            RateLimitKind::Verification => "verification",
        }
    }
}

/// Players' clients and game servers.
pub const CLIENTS_AND_GAME_SERVERS: AccessPolicy =
    AccessPolicy::RolesOnly(CallerRoleSet::from_roles(&[Role::Client, Role::GameServer]));
/// Game servers, and programs that start them.
pub const GAME_SERVERS_ONLY: AccessPolicy = AccessPolicy::RolesOnly(CallerRoleSet::from_roles(&[Role::GameServer]));
/// Operators of this server.
pub const OPERATORS_ONLY: AccessPolicy = AccessPolicy::RolesOnly(CallerRoleSet::from_roles(&[Role::Operator]));
/// Operators, and viewers, who change nothing.
pub const OPERATORS_AND_VIEWERS: AccessPolicy =
    AccessPolicy::RolesOnly(CallerRoleSet::from_roles(&[Role::Operator, Role::Viewer]));
/// Every authenticated caller: reads that depend on the caller's role.
pub const ALL_AUTHENTICATED: AccessPolicy = AccessPolicy::RolesOnly(CallerRoleSet::from_roles(&Role::ALL));

impl AccessPolicy {
    /// Whether only operators and viewers may make the call.
    pub fn is_for_operators(self) -> bool {
        self == OPERATORS_ONLY || self == OPERATORS_AND_VIEWERS
    }

    /// Whether a caller in `role` may make the call.
    pub fn allows(self, role: Role) -> bool {
        match self {
            AccessPolicy::Public => true,
            AccessPolicy::RolesOnly(roles) => roles.contains(role),
        }
    }
}
