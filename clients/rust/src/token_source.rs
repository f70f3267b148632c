//! Who is calling, as a token: one for good, or one that is fetched anew before it runs out.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;
use tonic::metadata::AsciiMetadataValue;

use crate::error::Error;

/// A token, as whoever vouches for players gave it.
#[derive(Clone)]
pub struct Token {
    /// The token itself, without `Bearer`.
    pub text: String,
    /// How long it is still good; `None` when that is not known. Another is fetched after three quarters of it.
    pub expires_in: Option<Duration>,
}

type TokenFuture = Pin<Box<dyn Future<Output = Result<Token, String>> + Send>>;

/// Where a [`Client`](crate::Client)'s tokens come from. Clones share the token that they hold.
#[derive(Clone)]
pub struct TokenSource(Arc<TokenSourceInner>);

struct TokenSourceInner {
    provider: TokenProvider,
    /// Held across the fetching: whoever comes meanwhile gets what is being fetched.
    cached: Mutex<Option<CachedToken>>,
}

enum TokenProvider {
    Fixed,
    Callback(Box<dyn Fn() -> TokenFuture + Send + Sync>),
}

struct CachedToken {
    header: AsciiMetadataValue,
    refresh_at: Option<Instant>,
}

impl TokenSource {
    /// The same token for every call.
    pub fn fixed(text: &str) -> Result<Self, Error> {
        let held = CachedToken { header: bearer_header(text)?, refresh_at: None };
        Ok(Self(Arc::new(TokenSourceInner { provider: TokenProvider::Fixed, cached: Mutex::new(Some(held)) })))
    }

    /// Tokens that `fetch` gets from whoever vouches for the player: the first when it is needed, the next before that
    /// has run out or when a server no longer takes it. An error's text is passed on in [`Error::Token`].
    pub fn from_fn<F>(fetch: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Token, String>> + Send + 'static,
    {
        let source = TokenProvider::Callback(Box::new(move || Box::pin(fetch())));
        Self(Arc::new(TokenSourceInner { provider: source, cached: Mutex::new(None) }))
    }

    /// What to send as `authorization`.
    pub(crate) async fn authorization_header(&self) -> Result<AsciiMetadataValue, Error> {
        let mut held = self.0.cached.lock().await;
        let is_fresh = |held: &&CachedToken| held.refresh_at.is_none_or(|until| Instant::now() < until);
        if let Some(held) = held.as_ref().filter(is_fresh) {
            return Ok(held.header.clone());
        }
        let TokenProvider::Callback(fetch) = &self.0.provider else {
            return Err(Error::TokenUnavailable("there is none".into()));
        };
        let token = fetch().await.map_err(Error::TokenUnavailable)?;
        let fresh_until = token.expires_in.map(|good_for| Instant::now() + good_for.mul_f64(0.75));
        let fresh = held.insert(CachedToken { header: bearer_header(&token.text)?, refresh_at: fresh_until });
        Ok(fresh.header.clone())
    }

    /// Whether another can be had instead of the one that a server was shown and did not take.
    pub(crate) async fn invalidate(&self, shown: &AsciiMetadataValue) -> bool {
        if matches!(self.0.provider, TokenProvider::Fixed) {
            return false;
        }
        let mut held = self.0.cached.lock().await;
        // Somebody else may have renewed it meanwhile.
        held.take_if(|held| held.header == *shown);
        true
    }
}

/// A header that does not show itself in logs.
fn bearer_header(token: &str) -> Result<AsciiMetadataValue, Error> {
    let value = AsciiMetadataValue::try_from(format!("Bearer {token}"));
    let mut value = value.map_err(|_| Error::InvalidMetadata("authorization".into()))?;
    value.set_sensitive(true);
    Ok(value)
}

impl fmt::Debug for Token {
    /// Never shows the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("good_for", &self.expires_in).finish_non_exhaustive()
    }
}

impl fmt::Debug for TokenSource {
    /// Never shows a token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").finish_non_exhaustive()
    }
}
