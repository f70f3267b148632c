//! Caller tokens: an issuer whose key the server is given, and the JWTs that it signs.

use std::path::Path;
use std::sync::Arc;

use fireteam::api::authorization::{AuthorizedCaller, Authorizer, ClientOrGameServer};
use fireteam::api::client_address::ClientAddressResolver;
use fireteam::auth::authenticator::Authenticator;
use fireteam::auth::identity::Role;
use fireteam::auth::jwt_signing_key::{CallerTokenClaims, JwtSigningKey};
use fireteam::auth::policy::CLIENTS_AND_GAME_SERVERS;
use fireteam::clock::Clock;
use fireteam::config::JwtSettings;
use fireteam_client::{Client, TokenSource};

use crate::support::test_server::TestServer;

/// Issuer name (`iss`).
pub(crate) const ISSUER: &str = "the-game";
/// Audience of its tokens (`aud`).
pub(crate) const AUDIENCE: &str = "fireteam";

/// Token issuer with a signing key and the current time.
pub(crate) struct TokenIssuer {
    pub(crate) key: JwtSigningKey,
    pub(crate) now_s: u64,
}

impl TokenIssuer {
    /// The issuer of all tests.
    pub(crate) fn new(clock: &dyn Clock) -> Self {
        Self { key: JwtSigningKey::from_seed(&[7; 32]).unwrap(), now_s: clock.now().0 / 1000 }
    }

    /// Writes the public key into `folder` and returns the server's JWT settings.
    pub(crate) fn write_jwt_settings(&self, folder: &Path) -> JwtSettings {
        let file = folder.join("jwks.json");
        std::fs::write(&file, self.key.public_key_set()).unwrap();
        JwtSettings::of_one_issuer(ISSUER, AUDIENCE, &[file])
    }

    /// Claims of a valid token for one hour.
    pub(crate) fn claims(&self, role: Role, subject: &str) -> CallerTokenClaims {
        CallerTokenClaims {
            iss: ISSUER.into(),
            sub: subject.into(),
            aud: AUDIENCE.into(),
            iat: self.now_s,
            exp: self.now_s + 3_600,
            role: Some(role.as_str().into()),
            scope: None,
        }
    }

    /// Signs a valid token.
    pub(crate) fn sign_token(&self, role: Role, subject: &str) -> String {
        self.key.sign_jwt(&self.claims(role, subject)).unwrap()
    }

    /// Authorization header with a valid token.
    pub(crate) fn authorization_header(&self, role: Role, subject: &str) -> String {
        format!("Bearer {}", self.sign_token(role, subject))
    }

    /// Request of the operator `subject`.
    pub(crate) fn operator_request<T>(&self, subject: &str, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        let header = self.authorization_header(Role::Operator, subject).parse().expect("a header");
        request.metadata_mut().insert("authorization", header);
        request
    }

    /// Client of `server` with a valid token.
    pub(crate) async fn client_with_token(&self, server: &TestServer, role: Role, subject: &str) -> Client {
        server.client().await.with_token_source(TokenSource::fixed(&self.sign_token(role, subject)).unwrap())
    }

    /// Authorized caller, without a network.
    pub(crate) fn authorized_caller(
        &self,
        server: &TestServer,
        role: Role,
        subject: &str,
    ) -> AuthorizedCaller<ClientOrGameServer> {
        let authenticator: Option<Arc<Authenticator>> = server.app.authenticator.clone();
        let (mut headers, mut extensions) = (http::HeaderMap::new(), http::Extensions::new());
        headers.insert("authorization", self.authorization_header(role, subject).parse().unwrap());
        let auth_context = Authorizer::new(authenticator)
            .authorize(CLIENTS_AND_GAME_SERVERS, &headers, &extensions)
            .expect("the token is valid");
        extensions.insert(auth_context);
        AuthorizedCaller::from_checked_request(
            &ClientAddressResolver::new(Arc::new(|peer, _| peer)),
            &headers,
            &extensions,
        )
        .expect("authorized as a client or game server")
    }
}

/// Starts a server with authentication, and its token issuer.
pub(crate) async fn start_authenticated_server() -> (TestServer, TokenIssuer) {
    start_authenticated_server_with_config(|_| {}).await
}

/// Starts a server with authentication and a configuration changed by `change`.
pub(crate) async fn start_authenticated_server_with_config(
    change: impl FnOnce(&mut fireteam::config::Config),
) -> (TestServer, TokenIssuer) {
    let folder = tempfile::tempdir().unwrap();
    let issuer = TokenIssuer::new(&crate::support::test_server::TestClock::new());
    let auth = issuer.write_jwt_settings(folder.path());
    let mut server = TestServer::start_with_config(|config| {
        config.auth = Some(auth);
        change(config);
    })
    .await;
    server.keep_folder(folder);
    (server, issuer)
}
