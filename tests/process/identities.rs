//! Identities of players and game servers: tokens of an issuer whose key the servers of a cluster are given.

use fireteam::auth::identity::Role;
use fireteam::auth::jwt_signing_key::{CallerTokenClaims, JwtSigningKey};
use fireteam::clock::{Clock, SystemClock};
use fireteam_client::{Client, TokenSource};

const ISSUER: &str = "the-game";
const AUDIENCE: &str = "fireteam";

/// Issuer of tokens, and the folder with its public key.
pub(crate) struct Identities {
    folder: tempfile::TempDir,
    key: JwtSigningKey,
}

impl Identities {
    /// Issuer with a key of its own.
    pub(crate) fn create() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let key = JwtSigningKey::from_seed(&[7; 32]).expect("a key");
        std::fs::write(folder.path().join("jwks.json"), key.public_key_set()).expect("write");
        Self { folder, key }
    }

    /// Arguments of servers that accept the tokens.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let file = self.folder.path().join("jwks.json").display().to_string();
        let arguments = ["--auth-keys", &file, "--auth-issuer", ISSUER, "--auth-audience", AUDIENCE];
        arguments.into_iter().map(str::to_owned).collect()
    }

    /// The client with the identity of a player, valid for an hour.
    pub(crate) fn client_of(&self, client: &Client, name: &str) -> Client {
        self.client_as(client, Role::Client, name)
    }

    /// The client with an identity of this role, valid for an hour.
    pub(crate) fn client_as(&self, client: &Client, role: Role, name: &str) -> Client {
        client.clone().with_token_source(TokenSource::fixed(&self.token(role, name)).expect("a token"))
    }

    /// Token of an identity of this role, valid for an hour.
    pub(crate) fn token(&self, role: Role, name: &str) -> String {
        let now_s = SystemClock::start().now().0 / 1_000;
        let claims = CallerTokenClaims {
            iss: ISSUER.into(),
            sub: name.into(),
            aud: AUDIENCE.into(),
            iat: now_s,
            exp: now_s + 3_600,
            role: Some(role.as_str().into()),
            scope: None,
        };
        self.key.sign_jwt(&claims).expect("a token")
    }
}
