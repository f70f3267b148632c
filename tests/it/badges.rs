//! Who callers are: an issuer whose key the server is given, and the tokens that it signs.

use std::path::Path;
use std::sync::Arc;

use fireteam::api::authorization::{AuthorizedCaller, Authorizer, ClientOrGameServer};
use fireteam::api::client_address::ClientAddressResolver;
use fireteam::auth::authenticator::Authenticator;
use fireteam::auth::identity::Role;
use fireteam::auth::issuing_key::{CallerTokenClaims, IssuingKey};
use fireteam::auth::policy::CLIENTS_AND_GAME_SERVERS;
use fireteam::clock::Clock;
use fireteam::config::JwtSettings;
use fireteam_client::{Client, TokenSource};

use crate::harness::House;

/// What the issuer is called.
pub(crate) const ISSUER: &str = "the-game";
/// What its tokens are good for.
pub(crate) const AUDIENCE: &str = "fireteam";

/// An issuer, at a moment.
pub(crate) struct Badges {
    pub(crate) key: IssuingKey,
    pub(crate) now_s: u64,
}

impl Badges {
    /// The issuer that all tests know.
    pub(crate) fn new(clock: &dyn Clock) -> Self {
        Self { key: IssuingKey::from_seed(&[7; 32]).unwrap(), now_s: clock.now().0 / 1000 }
    }

    /// What a server is told of the issuer; its key goes into `folder`.
    pub(crate) fn auth(&self, folder: &Path) -> JwtSettings {
        let file = folder.join("jwks.json");
        std::fs::write(&file, self.key.public_key_set()).unwrap();
        JwtSettings { keys: vec![file], issuer: ISSUER.into(), audience: AUDIENCE.into() }
    }

    /// What a good token says, for an hour.
    pub(crate) fn issued(&self, role: Role, subject: &str) -> CallerTokenClaims {
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

    /// A good token.
    pub(crate) fn token(&self, role: Role, subject: &str) -> String {
        self.key.sign_jwt(&self.issued(role, subject)).unwrap()
    }

    /// The header that shows it.
    pub(crate) fn header(&self, role: Role, subject: &str) -> String {
        format!("Bearer {}", self.token(role, subject))
    }

    /// A client of `house` that shows it.
    pub(crate) async fn client(&self, house: &House, role: Role, subject: &str) -> Client {
        house.client().await.with_token_source(TokenSource::fixed(&self.token(role, subject)).unwrap())
    }

    /// As the check lets it in, without a network.
    pub(crate) fn caller(&self, house: &House, role: Role, subject: &str) -> AuthorizedCaller<ClientOrGameServer> {
        let authenticator: Option<Arc<Authenticator>> = house.parts.authenticator.clone();
        let (mut headers, mut extensions) = (http::HeaderMap::new(), http::Extensions::new());
        headers.insert("authorization", self.header(role, subject).parse().unwrap());
        let admitted = Authorizer::new(authenticator)
            .authorize(CLIENTS_AND_GAME_SERVERS, &headers, &extensions)
            .expect("it is let in");
        extensions.insert(admitted);
        AuthorizedCaller::from_request(&ClientAddressResolver::new(Arc::new(|peer, _| peer)), &headers, &extensions)
            .expect("a player")
    }
}

/// A house that wants to know who is calling, and the issuer that it believes.
pub(crate) async fn locked_house() -> (House, Badges) {
    locked_house_with(|_| {}).await
}

/// The same, with a configuration changed by `change`.
pub(crate) async fn locked_house_with(change: impl FnOnce(&mut fireteam::config::Config)) -> (House, Badges) {
    let folder = tempfile::tempdir().unwrap();
    let badges = Badges::new(&crate::harness::HandClock::new());
    let auth = badges.auth(folder.path());
    let mut house = House::open_with(|config| {
        config.auth = Some(auth);
        change(config);
    })
    .await;
    house.keep(folder);
    (house, badges)
}
