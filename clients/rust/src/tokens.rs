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
    pub good_for: Option<Duration>,
}

type Fetching = Pin<Box<dyn Future<Output = Result<Token, String>> + Send>>;

/// Where a [`Client`](crate::Client)'s tokens come from. Clones share the token that they hold.
#[derive(Clone)]
pub struct Tokens(Arc<Inner>);

struct Inner {
    source: Source,
    /// Held across the fetching: whoever comes meanwhile gets what is being fetched.
    held: Mutex<Option<Held>>,
}

enum Source {
    Fixed,
    Fetched(Box<dyn Fn() -> Fetching + Send + Sync>),
}

struct Held {
    header: AsciiMetadataValue,
    fresh_until: Option<Instant>,
}

impl Tokens {
    /// The same token for every call.
    pub fn fixed(text: &str) -> Result<Self, Error> {
        let held = Held { header: header(text)?, fresh_until: None };
        Ok(Self(Arc::new(Inner { source: Source::Fixed, held: Mutex::new(Some(held)) })))
    }

    /// Tokens that `fetch` gets from whoever vouches for the player: the first when it is needed, the next before that
    /// has run out or when a server no longer takes it. An error's text is passed on in [`Error::Token`].
    pub fn fetched<F>(fetch: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Token, String>> + Send + 'static,
    {
        let source = Source::Fetched(Box::new(move || Box::pin(fetch())));
        Self(Arc::new(Inner { source, held: Mutex::new(None) }))
    }

    /// What to send as `authorization`.
    pub(crate) async fn header(&self) -> Result<AsciiMetadataValue, Error> {
        let mut held = self.0.held.lock().await;
        let is_fresh = |held: &&Held| held.fresh_until.is_none_or(|until| Instant::now() < until);
        if let Some(held) = held.as_ref().filter(is_fresh) {
            return Ok(held.header.clone());
        }
        let Source::Fetched(fetch) = &self.0.source else { return Err(Error::Token("there is none".into())) };
        let token = fetch().await.map_err(Error::Token)?;
        let fresh_until = token.good_for.map(|good_for| Instant::now() + good_for.mul_f64(0.75));
        let fresh = held.insert(Held { header: header(&token.text)?, fresh_until });
        Ok(fresh.header.clone())
    }

    /// Whether another can be had instead of the one that a server was shown and did not take.
    pub(crate) async fn renew(&self, shown: &AsciiMetadataValue) -> bool {
        if matches!(self.0.source, Source::Fixed) {
            return false;
        }
        let mut held = self.0.held.lock().await;
        // Somebody else may have renewed it meanwhile.
        held.take_if(|held| held.header == *shown);
        true
    }
}

/// A header that does not show itself in logs.
fn header(token: &str) -> Result<AsciiMetadataValue, Error> {
    let value = AsciiMetadataValue::try_from(format!("Bearer {token}"));
    let mut value = value.map_err(|_| Error::Metadata("authorization".into()))?;
    value.set_sensitive(true);
    Ok(value)
}

impl fmt::Debug for Token {
    /// Never shows the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("good_for", &self.good_for).finish_non_exhaustive()
    }
}

impl fmt::Debug for Tokens {
    /// Never shows a token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").finish_non_exhaustive()
    }
}
