//! Authentication and role check of each call, made before the request body is read. The engine can only be reached
//! with an `AuthorizedCaller`, which only this check creates.

use std::fmt;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{Extensions, HeaderMap};
use tonic::Code;

use crate::api::client_address::{ClientAddressResolver, ConnectionPeer};
use crate::api::pb::ErrorReason;
use crate::api::status::Rejection;
use crate::auth::authenticator::Authenticator;
use crate::auth::credential_error::{CredentialError, PublicReason};
use crate::auth::identity::{Identity, Role};
use crate::auth::policy::{
    ALL_AUTHENTICATED, AccessPolicy, CLIENTS_AND_GAME_SERVERS, GAME_SERVERS_ONLY, OPERATORS_AND_VIEWERS,
    OPERATORS_ONLY, RateLimitKind,
};
use crate::auth::rate_limit::{RateLimitExceeded, RateLimitKey, RateLimits};
use crate::domain::attribute::ValueOrigin;
use crate::engine::command;

/// Authenticates callers and checks their role.
#[derive(Clone, Default)]
pub struct Authorizer {
    /// `None`: authentication is off, and each call is allowed.
    authenticator: Option<Arc<Authenticator>>,
    /// `None`: signatures are verified without a limit.
    verification_rate_limit: Option<VerificationRateLimit>,
}

/// Limit of the signatures that are verified for one client address.
#[derive(Clone, Debug)]
pub struct VerificationRateLimit {
    /// Rate limits per address.
    pub rate_limits: Arc<RateLimits>,
    /// Finds the client address of a request.
    pub address_resolver: ClientAddressResolver,
}

/// Outcome of a passed check. Only `Authorizer::authorize` creates it.
#[derive(Clone, Debug)]
pub struct PassedAuthCheck {
    identity: Option<Arc<Identity>>,
    valid_for: Option<Duration>,
    access: AccessPolicy,
}

/// Reason why a call is not authorized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthError {
    /// The caller could not be authenticated.
    Unauthenticated(CredentialError),
    /// The caller is authenticated, and its role may not make this call.
    RoleNotAllowed(Role),
    /// The caller's address sends too many tokens that have to be verified. Nothing was verified.
    RateLimited(RateLimitExceeded),
}

impl Authorizer {
    /// Creates the check with `authenticator`; without one, each call is allowed.
    pub fn new(authenticator: Option<Arc<Authenticator>>) -> Self {
        Self { authenticator, verification_rate_limit: None }
    }

    /// Charges the client's address before a signature is verified, and gives the charge back if the token is valid.
    pub fn with_verification_rate_limit(self, limit: VerificationRateLimit) -> Self {
        Self { verification_rate_limit: Some(limit), ..self }
    }

    /// Whether callers must authenticate.
    pub fn requires_authentication(&self) -> bool {
        self.authenticator.is_some()
    }

    /// Authenticates a call by its headers and its client certificate, and checks that the role is in `access`.
    pub fn authorize(
        &self,
        access: AccessPolicy,
        headers: &HeaderMap,
        extensions: &Extensions,
    ) -> Result<PassedAuthCheck, AuthError> {
        let anonymous = PassedAuthCheck { identity: None, valid_for: None, access };
        let (Some(authenticator), AccessPolicy::RolesOnly(roles)) = (&self.authenticator, access) else {
            return Ok(anonymous);
        };
        let mut authorizations = headers.get_all(AUTHORIZATION).iter().map(http::HeaderValue::as_bytes);
        let authorization = authorizations.next();
        if authorizations.next().is_some() {
            return Err(AuthError::Unauthenticated(CredentialError::Malformed));
        }
        let certificate = extensions.get::<ConnectionPeer>().and_then(|peer| peer.certificate.as_deref());
        let identity = match authenticator.cached_identity(authorization, certificate) {
            Some(identity) => identity,
            None => {
                let charge = self.charge_verification(authenticator, authorization, headers, extensions)?;
                let identity = authenticator.authenticate(authorization, certificate)?;
                charge.refund();
                identity
            }
        };
        if !roles.contains(identity.role) {
            return Err(AuthError::RoleNotAllowed(identity.role));
        }
        let valid_for = authenticator.identity_expires_in_ms(&identity).map(Duration::from_millis);
        Ok(PassedAuthCheck { identity: Some(identity), valid_for, access })
    }

    /// Charges the client's address for the signatures that a token needs to be verified.
    fn charge_verification(
        &self,
        authenticator: &Authenticator,
        authorization: Option<&[u8]>,
        headers: &HeaderMap,
        extensions: &Extensions,
    ) -> Result<VerificationCharge<'_>, AuthError> {
        let cost = authorization.map_or(0, |header| authenticator.signatures_to_verify_max(header));
        let Some(limit) = self.verification_rate_limit.as_ref().filter(|_| cost > 0) else {
            return Ok(VerificationCharge(None));
        };
        let key = RateLimitKey::for_caller(None, limit.address_resolver.client_address(headers, extensions));
        limit.rate_limits.consume(key, RateLimitKind::Verification, cost).map_err(AuthError::RateLimited)?;
        Ok(VerificationCharge(Some((&limit.rate_limits, key, cost))))
    }

    /// Authorizes a request for the metrics. Operators and viewers may read them. If the operator port listens on loopback, so may
    /// processes on this machine, because metric scrapers there have no token.
    pub fn authorize_metrics(
        &self,
        port: IpAddr,
        headers: &HeaderMap,
        extensions: &Extensions,
    ) -> Result<(), AuthError> {
        let is_loopback = |address: IpAddr| address.to_canonical().is_loopback();
        let is_local_caller = extensions.get::<ConnectionPeer>().is_some_and(|peer| is_loopback(peer.address));
        if is_loopback(port) && is_local_caller {
            return Ok(());
        }
        self.authorize(OPERATORS_AND_VIEWERS, headers, extensions).map(|_| ())
    }
}

/// Charge for signatures that are verified; `None`: nothing was charged.
struct VerificationCharge<'a>(Option<(&'a RateLimits, RateLimitKey, u32)>);

impl VerificationCharge<'_> {
    /// Gives the charge back, because the token was valid.
    fn refund(self) {
        if let Some((rate_limits, key, cost)) = self.0 {
            rate_limits.refund(key, RateLimitKind::Verification, cost);
        }
    }
}

impl From<CredentialError> for AuthError {
    fn from(error: CredentialError) -> Self {
        AuthError::Unauthenticated(error)
    }
}

impl fmt::Debug for Authorizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authorizer").field("requires_authentication", &self.requires_authentication()).finish()
    }
}

impl PassedAuthCheck {
    /// Remaining validity of the credentials; `None` if they do not expire.
    pub fn valid_for(&self) -> Option<Duration> {
        self.valid_for
    }

    /// Authenticated identity; `None` if authentication is off or the call is public.
    pub fn identity(&self) -> Option<&Arc<Identity>> {
        self.identity.as_ref()
    }
}

impl From<AuthError> for Rejection {
    /// One message for each reason that a caller can act on. The exact reason is counted in metrics and not disclosed.
    fn from(error: AuthError) -> Self {
        let unauthenticated = |reason, text: &str| Rejection::new(Code::Unauthenticated, reason, text);
        match error {
            AuthError::Unauthenticated(credential_error) => match credential_error.public_reason() {
                PublicReason::Missing => {
                    unauthenticated(ErrorReason::NoCredentials, "no credentials; send `authorization: Bearer <token>`")
                }
                PublicReason::Malformed => unauthenticated(
                    ErrorReason::MalformedCredentials,
                    "malformed credentials; send `authorization: Bearer <token>` exactly once",
                ),
                PublicReason::Expired => {
                    unauthenticated(ErrorReason::CredentialsExpired, "token expired; send a new token")
                }
                PublicReason::Rejected => unauthenticated(
                    ErrorReason::CredentialsRejected,
                    "credentials rejected; send a token or client certificate that this server trusts",
                ),
            },
            AuthError::RoleNotAllowed(role) => {
                let text = format!("role `{}` may not make this call; use a token with an allowed role", role.as_str());
                Rejection::new(Code::PermissionDenied, ErrorReason::RoleNotAllowed, text)
            }
            AuthError::RateLimited(exceeded) => exceeded.into(),
        }
    }
}

/// Error that ends a stream whose caller's credentials have expired.
pub fn token_expired_rejection() -> Rejection {
    let text = "token expired; connect again with a new token";
    Rejection::new(Code::Unauthenticated, ErrorReason::CredentialsExpired, text)
}

/// Kind of caller that a handler accepts, as a type parameter.
pub trait CallerKind: sealed::Sealed {
    /// Roles that belong to this kind.
    const ACCESS: AccessPolicy;
}

/// Marker: players' clients and game servers.
#[derive(Clone, Copy, Debug)]
pub enum ClientOrGameServer {}

/// Marker: game servers, and programs that start them.
#[derive(Clone, Copy, Debug)]
pub enum GameServerOnly {}

/// Marker: operators of this server.
#[derive(Clone, Copy, Debug)]
pub enum OperatorOnly {}

/// Marker: operators of this server, and viewers, for calls that change nothing.
#[derive(Clone, Copy, Debug)]
pub enum OperatorOrViewer {}

/// Kind of caller of the operator service.
pub trait OperatorCallerKind: CallerKind {}

impl OperatorCallerKind for OperatorOnly {}

impl OperatorCallerKind for OperatorOrViewer {}

/// Marker: callers in any role.
#[derive(Clone, Copy, Debug)]
pub enum AnyRole {}

impl CallerKind for ClientOrGameServer {
    const ACCESS: AccessPolicy = CLIENTS_AND_GAME_SERVERS;
}

impl CallerKind for GameServerOnly {
    const ACCESS: AccessPolicy = GAME_SERVERS_ONLY;
}

impl CallerKind for OperatorOnly {
    const ACCESS: AccessPolicy = OPERATORS_ONLY;
}

impl CallerKind for OperatorOrViewer {
    const ACCESS: AccessPolicy = OPERATORS_AND_VIEWERS;
}

impl CallerKind for AnyRole {
    const ACCESS: AccessPolicy = ALL_AUTHENTICATED;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::ClientOrGameServer {}
    impl Sealed for super::GameServerOnly {}
    impl Sealed for super::OperatorOnly {}
    impl Sealed for super::OperatorOrViewer {}
    impl Sealed for super::AnyRole {}
}

/// Caller that has passed authentication and the role check as kind `P`. Handlers require one, so an unchecked caller
/// does not compile:
///
/// ```compile_fail
/// use fireteam::api::convert::RequestReader;
/// use fireteam::api::{matchmaking_handler::MatchmakingHandler, pb};
/// use fireteam::engine::command::Caller;
///
/// fn unchecked(handler: &MatchmakingHandler) {
///     let _ = handler.search(RequestReader::default(), &Caller::default(), pb::SearchRequest::default());
/// }
/// ```
///
/// A caller of another kind does not compile either:
///
/// ```compile_fail
/// use fireteam::api::authorization::{AuthorizedCaller, OperatorOnly};
/// use fireteam::api::convert::RequestReader;
/// use fireteam::api::{matchmaking_handler::MatchmakingHandler, pb};
///
/// fn wrong_kind(handler: &MatchmakingHandler, caller: &AuthorizedCaller<OperatorOnly>) {
///     let _ = handler.search(RequestReader::default(), caller, pb::SearchRequest::default());
/// }
/// ```
///
/// A caller of the right kind compiles:
///
/// ```
/// use fireteam::api::authorization::{AuthorizedCaller, ClientOrGameServer};
/// use fireteam::api::convert::RequestReader;
/// use fireteam::api::{matchmaking_handler::MatchmakingHandler, pb};
///
/// fn checked(handler: &MatchmakingHandler, caller: &AuthorizedCaller<ClientOrGameServer>) {
///     let _ = handler.search(RequestReader::default(), caller, pb::SearchRequest::default());
/// }
/// ```
#[derive(Clone, Debug)]
pub struct AuthorizedCaller<P> {
    engine_caller: command::Caller,
    /// Address that the caller shares a rate limit with; `None` for callers other than players' clients.
    address_limited_besides_caller: Option<IpAddr>,
    auth: PassedAuthCheck,
    _kind: PhantomData<P>,
}

impl<P: CallerKind> AuthorizedCaller<P> {
    /// Reads the caller from the `PassedAuthCheck` that the check has left in `extensions`. Fails as unauthenticated if
    /// there is none, or if the check was made for another kind.
    pub fn from_checked_request(
        address_resolver: &ClientAddressResolver,
        headers: &HeaderMap,
        extensions: &Extensions,
    ) -> Result<Self, Rejection> {
        let auth = extensions.get::<PassedAuthCheck>().filter(|auth| auth.access == P::ACCESS);
        let auth = auth.ok_or(AuthError::Unauthenticated(CredentialError::Missing))?.clone();
        let resolved = address_resolver.resolve(headers, extensions);
        let ip_address = resolved.map(|resolved| resolved.address);
        let tcp_floor_us = extensions.get::<ConnectionPeer>().and_then(|peer| peer.tcp_floor.known_floor_us());
        let engine_caller = command::Caller { ip_address, tcp_floor_us, ..engine_caller_of(auth.identity()) };
        let is_client = auth.identity().is_some_and(|identity| identity.role == Role::Client);
        let address_limited_besides_caller = resolved.filter(|resolved| is_client && resolved.is_of_client);
        let address_limited_besides_caller = address_limited_besides_caller.map(|resolved| resolved.address);
        Ok(Self { engine_caller, address_limited_besides_caller, auth, _kind: PhantomData })
    }

    /// The caller as the engine's type.
    pub fn engine_caller(&self) -> &command::Caller {
        &self.engine_caller
    }

    /// Authenticated identity; `None` if authentication is off.
    pub fn identity(&self) -> Option<&Arc<Identity>> {
        self.auth.identity()
    }

    /// Address that a player's client shares a rate limit with; `None` for all others, and if it is unknown.
    pub fn address_limited_besides_caller(&self) -> Option<IpAddr> {
        self.address_limited_besides_caller
    }

    /// Remaining validity of the credentials; `None` if they do not expire.
    pub fn valid_for(&self) -> Option<Duration> {
        self.auth.valid_for()
    }
}

/// Converts an identity to the engine's caller, without an address.
fn engine_caller_of(identity: Option<&Arc<Identity>>) -> command::Caller {
    let Some(identity) = identity else { return command::Caller::default() };
    let origin = match identity.role {
        Role::GameServer => ValueOrigin::GameServer,
        Role::Client | Role::Operator | Role::Viewer => ValueOrigin::Client,
    };
    command::Caller {
        subject: Some(identity.caller_key),
        user: identity.player_account_key(),
        may_read_all: identity.role.may_read_all(),
        program_kind: origin,
        ip_address: None,
        tcp_floor_us: None,
    }
}
