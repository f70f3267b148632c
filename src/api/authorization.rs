//! The one check that every call passes: who is calling, and whether the call is theirs to make. It comes before a byte
//! of the request's body is read, and nothing behind it can be reached without what it gives.

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
use crate::auth::policy::{AccessPolicy, CLIENTS_AND_GAME_SERVERS, OPERATORS_ONLY};
use crate::domain::attribute::ValueOrigin;
use crate::engine::command;

/// Lets calls in, or says why not.
#[derive(Clone, Default)]
pub struct Authorizer {
    /// None: nobody can show who they are, and everybody may do everything.
    authenticator: Option<Arc<Authenticator>>,
}

/// A call that was let in. Made by `Keeper::admit` and nowhere else.
#[derive(Clone, Debug)]
pub struct AuthContext {
    identity: Option<Arc<Identity>>,
    valid_for: Option<Duration>,
    access: AccessPolicy,
}

/// Why a call is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthError {
    /// Nobody knows who is calling.
    Unauthenticated(CredentialError),
    /// It is known, and the call is for others.
    RoleNotAllowed(Role),
}

impl Authorizer {
    /// A keeper that goes by what `authenticator` says; without one, everybody is let in.
    pub fn new(authenticator: Option<Arc<Authenticator>>) -> Self {
        Self { authenticator }
    }

    /// Whether callers must show who they are.
    pub fn requires_authentication(&self) -> bool {
        self.authenticator.is_some()
    }

    /// Judges a call by its headers and its connection.
    pub fn authorize(
        &self,
        access: AccessPolicy,
        headers: &HeaderMap,
        extensions: &Extensions,
    ) -> Result<AuthContext, AuthError> {
        let stranger = AuthContext { identity: None, valid_for: None, access };
        let (Some(authenticator), AccessPolicy::RolesOnly(roles)) = (&self.authenticator, access) else {
            return Ok(stranger);
        };
        let mut shown = headers.get_all(AUTHORIZATION).iter().map(http::HeaderValue::as_bytes);
        let authorization = shown.next();
        if shown.next().is_some() {
            return Err(AuthError::Unauthenticated(CredentialError::Malformed));
        }
        let certificate = extensions.get::<ConnectionPeer>().and_then(|peer| peer.certificate.as_deref());
        let identity = authenticator.authenticate(authorization, certificate).map_err(AuthError::Unauthenticated)?;
        if !roles.contains(identity.role) {
            return Err(AuthError::RoleNotAllowed(identity.role));
        }
        let good_for = authenticator.identity_expires_in_ms(&identity).map(Duration::from_millis);
        Ok(AuthContext { identity: Some(identity), valid_for: good_for, access })
    }

    /// Judges who asks for the metrics: operators may; and where only this machine can reach the port at all, whoever is
    /// on it, because whatever gathers metrics there has no token.
    pub fn authorize_metrics(
        &self,
        port: IpAddr,
        headers: &HeaderMap,
        extensions: &Extensions,
    ) -> Result<(), AuthError> {
        let is_here = |address: IpAddr| address.to_canonical().is_loopback();
        let from_here = extensions.get::<ConnectionPeer>().is_some_and(|peer| is_here(peer.address));
        if is_here(port) && from_here {
            return Ok(());
        }
        self.authorize(OPERATORS_ONLY, headers, extensions).map(|_| ())
    }
}

impl fmt::Debug for Authorizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper").field("authenticates", &self.requires_authentication()).finish()
    }
}

impl AuthContext {
    /// How long the proof is still good; none when it has no end of its own.
    pub fn valid_for(&self) -> Option<Duration> {
        self.valid_for
    }

    /// Who it is; none where nobody shows it.
    pub fn identity(&self) -> Option<&Arc<Identity>> {
        self.identity.as_ref()
    }
}

impl From<AuthError> for Rejection {
    /// One text for each of the few things that a caller can do something about; what exactly was wrong with what was
    /// shown is counted, and not said.
    fn from(denied: AuthError) -> Self {
        let unknown = |reason, text: &str| Rejection::new(Code::Unauthenticated, reason, text);
        match denied {
            AuthError::Unauthenticated(refused) => match refused.public_reason() {
                PublicReason::Missing => {
                    unknown(ErrorReason::NoCredentials, "say who is calling: send `authorization: Bearer <token>`")
                }
                PublicReason::Malformed => unknown(
                    ErrorReason::MalformedCredentials,
                    "this is no token: send `authorization: Bearer <token>`, once",
                ),
                PublicReason::Expired => {
                    unknown(ErrorReason::CredentialsExpired, "the token has run out: send a fresh one")
                }
                PublicReason::Rejected => {
                    unknown(ErrorReason::CredentialsRejected, "this server does not accept what was shown")
                }
            },
            AuthError::RoleNotAllowed(role) => {
                let text = format!("this call is not for the role `{}`", role.as_str());
                Rejection::new(Code::PermissionDenied, ErrorReason::RoleNotAllowed, text)
            }
        }
    }
}

/// What a stream says when its token has run out.
pub fn token_expired_rejection() -> Rejection {
    let text = "the token has run out: connect again with a fresh one";
    Rejection::new(Code::Unauthenticated, ErrorReason::CredentialsExpired, text)
}

/// Who a caller is to a handler.
pub trait CallerKind: sealed::Sealed {
    /// Who may be one.
    const ACCESS: AccessPolicy;
}

/// Players and game servers.
#[derive(Clone, Copy, Debug)]
pub enum ClientOrGameServer {}

/// Those who run fireteam.
#[derive(Clone, Copy, Debug)]
pub enum Operator {}

impl CallerKind for ClientOrGameServer {
    const ACCESS: AccessPolicy = CLIENTS_AND_GAME_SERVERS;
}

impl CallerKind for Operator {
    const ACCESS: AccessPolicy = OPERATORS_ONLY;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::ClientOrGameServer {}
    impl Sealed for super::Operator {}
}

/// A caller who has passed the check as one of `P`. Handlers take one, the engine and the operator's desk are behind the
/// handlers, and there is no way to a caller but by the check:
///
/// ```compile_fail
/// use fireteam::api::convert::Door;
/// use fireteam::api::{handler::Handler, pb};
/// use fireteam::engine::command::Caller;
///
/// fn unchecked(handler: &Handler) {
///     let _ = handler.search(Door::default(), &Caller::default(), pb::SearchRequest::default());
/// }
/// ```
///
/// nor is one of the wrong sort of any use:
///
/// ```compile_fail
/// use fireteam::api::admission::{Caller, Operator};
/// use fireteam::api::convert::Door;
/// use fireteam::api::{handler::Handler, pb};
///
/// fn wrong_sort(handler: &Handler, caller: &Caller<Operator>) {
///     let _ = handler.search(Door::default(), caller, pb::SearchRequest::default());
/// }
/// ```
///
/// With the right one it is as easy as that:
///
/// ```
/// use fireteam::api::admission::{Caller, Player};
/// use fireteam::api::convert::Door;
/// use fireteam::api::{handler::Handler, pb};
///
/// fn checked(handler: &Handler, caller: &Caller<Player>) {
///     let _ = handler.search(Door::default(), caller, pb::SearchRequest::default());
/// }
/// ```
#[derive(Clone, Debug)]
pub struct AuthorizedCaller<P> {
    engine_caller: command::Caller,
    auth: AuthContext,
    _kind: PhantomData<P>,
}

impl<P: CallerKind> AuthorizedCaller<P> {
    /// The caller of a request that the check has let in, which left word of it in `extensions`. A request that has come
    /// past the check, or was let in as something else, has none.
    pub fn from_request(
        callers: &ClientAddressResolver,
        headers: &HeaderMap,
        extensions: &Extensions,
    ) -> Result<Self, Rejection> {
        let admitted = extensions.get::<AuthContext>().filter(|it| it.access == P::ACCESS);
        let admitted = admitted.ok_or(AuthError::Unauthenticated(CredentialError::Missing))?.clone();
        let asking = command::Caller {
            ip_address: callers.client_address(headers, extensions),
            ..engine_caller_of(admitted.identity())
        };
        Ok(Self { engine_caller: asking, auth: admitted, _kind: PhantomData })
    }

    /// As the engine sees it.
    pub fn engine_caller(&self) -> &command::Caller {
        &self.engine_caller
    }

    /// Who it is; none where nobody shows it.
    pub fn identity(&self) -> Option<&Arc<Identity>> {
        self.auth.identity()
    }

    /// How long the proof is still good; none when it has no end of its own.
    pub fn valid_for(&self) -> Option<Duration> {
        self.auth.valid_for()
    }
}

/// An identity as the engine sees it, without its address.
fn engine_caller_of(identity: Option<&Arc<Identity>>) -> command::Caller {
    let Some(identity) = identity else { return command::Caller::default() };
    let origin = match identity.role {
        Role::GameServer => ValueOrigin::GameServer,
        Role::Client | Role::Operator => ValueOrigin::Client,
    };
    command::Caller { subject: Some(identity.caller_key), user: identity.user_key(), origin, ip_address: None }
}
