//! Token source: a fixed token, or a callback that fetches a new token before the old one expires.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;
use tonic::metadata::AsciiMetadataValue;

use crate::error::Error;

/// Token of the caller, as its issuer returned it.
#[derive(Clone)]
pub struct Token {
    /// Token text, without `Bearer`.
    pub text: String,
    /// Remaining lifetime; `None` if unknown. A new token is fetched after three quarters of it.
    pub expires_in: Option<Duration>,
}

type TokenFuture = Pin<Box<dyn Future<Output = Result<Token, String>> + Send>>;

/// Source of a [`Client`](crate::Client)'s tokens. Clones share the cached token.
#[derive(Clone)]
pub struct TokenSource(Arc<TokenSourceInner>);

struct TokenSourceInner {
    provider: TokenProvider,
    /// Locked during a fetch, so that concurrent callers wait for the same token.
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
    /// Uses the same token for every call.
    pub fn fixed(text: &str) -> Result<Self, Error> {
        let token = CachedToken { header: bearer_header(text)?, refresh_at: None };
        Ok(Self(Arc::new(TokenSourceInner { provider: TokenProvider::Fixed, cached: Mutex::new(Some(token)) })))
    }

    /// Fetches tokens with `fetch`: the first one on demand, the next one before the current one expires or after a server
    /// rejects it. The text of an error is returned in [`Error::TokenUnavailable`].
    pub fn from_fn<F>(fetch: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Token, String>> + Send + 'static,
    {
        let provider = TokenProvider::Callback(Box::new(move || Box::pin(fetch())));
        Self(Arc::new(TokenSourceInner { provider, cached: Mutex::new(None) }))
    }

    /// Value of the `authorization` header; fetches a token if none is cached or the cached one is due for a refresh.
    pub(crate) async fn authorization_header(&self) -> Result<AsciiMetadataValue, Error> {
        let mut cached = self.0.cached.lock().await;
        let is_fresh = |token: &&CachedToken| token.refresh_at.is_none_or(|refresh_at| Instant::now() < refresh_at);
        if let Some(token) = cached.as_ref().filter(is_fresh) {
            return Ok(token.header.clone());
        }
        let TokenProvider::Callback(fetch) = &self.0.provider else {
            return Err(Error::TokenUnavailable("the source is empty; create another".into()));
        };
        let token = fetch().await.map_err(Error::TokenUnavailable)?;
        let refresh_at = token.expires_in.map(|expires_in| Instant::now() + expires_in.mul_f64(0.75));
        let fetched = cached.insert(CachedToken { header: bearer_header(&token.text)?, refresh_at });
        Ok(fetched.header.clone())
    }

    /// Removes a token that a server rejected. Returns whether the source can provide another one.
    pub(crate) async fn invalidate(&self, rejected: &AsciiMetadataValue) -> bool {
        if matches!(self.0.provider, TokenProvider::Fixed) {
            return false;
        }
        let mut cached = self.0.cached.lock().await;
        // A concurrent call may already have replaced the rejected token.
        cached.take_if(|token| token.header == *rejected);
        true
    }
}

/// Header value `Bearer <token>`, marked as sensitive so that it is not printed in logs.
fn bearer_header(token: &str) -> Result<AsciiMetadataValue, Error> {
    let value = AsciiMetadataValue::try_from(format!("Bearer {token}"));
    let mut value = value.map_err(|_| Error::InvalidMetadata("authorization".into()))?;
    value.set_sensitive(true);
    Ok(value)
}

impl fmt::Debug for Token {
    /// Prints the remaining lifetime, never the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("expires_in", &self.expires_in).finish_non_exhaustive()
    }
}

impl fmt::Debug for TokenSource {
    /// Prints no token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenSource").finish_non_exhaustive()
    }
}
