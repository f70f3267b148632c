//! Latency tokens that a task of their own keeps fresh, for callers without a search loop.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::beacons_run::BeaconsRun;
use crate::retrying_channel::RetryingChannel;
use crate::secret_length::debug_secret_length;

/// Longest time for which a loop waits for its first token.
pub(crate) const FIRST_TOKEN_TIME_MAX: Duration = Duration::from_secs(4);

/// Latest latency token of this client. A task measures beacons, and again before the token expires, until the last clone is dropped.
#[derive(Clone)]
pub struct LatencyTokens {
    latest: watch::Receiver<LatestToken>,
    /// Aborts the task when it is dropped.
    _task: Arc<JoinSet<()>>,
}

#[derive(Default)]
struct LatestToken {
    /// Empty for none.
    token: Vec<u8>,
    /// The first measurement is over.
    is_first_measurement_over: bool,
}

impl LatencyTokens {
    pub(crate) fn start(channel: RetryingChannel, socket: Arc<UdpSocket>) -> Self {
        let (sender, latest) = watch::channel(LatestToken::default());
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut beacons = BeaconsRun::start(channel);
            loop {
                beacons.carry_out(&socket).await;
                sender.send_if_modified(|latest| {
                    let token = beacons.beacons().poll_token();
                    let is_news = token.is_some()
                        || latest.is_first_measurement_over != beacons.beacons().is_first_measurement_over();
                    latest.is_first_measurement_over = beacons.beacons().is_first_measurement_over();
                    token.into_iter().for_each(|token| latest.token = token);
                    is_news
                });
                let event = beacons.next_event_on(&socket).await;
                beacons.handle(event);
            }
        });
        Self { latest, _task: Arc::new(task) }
    }

    /// Token to send now; empty if there is none that is fresh.
    pub fn latest(&self) -> Vec<u8> {
        self.latest.borrow().token.clone()
    }

    /// Token to send now; [`Self::changed`] does not return it again.
    pub(crate) fn take_latest(&mut self) -> Vec<u8> {
        self.latest.borrow_and_update().token.clone()
    }

    /// Waits until the first measurement is over, for at most 4 s, and returns its token; empty without one.
    pub async fn first(&mut self) -> Vec<u8> {
        let settled = self.latest.wait_for(|latest| latest.is_first_measurement_over);
        match tokio::time::timeout(FIRST_TOKEN_TIME_MAX, settled).await {
            Ok(Ok(latest)) => latest.token.clone(),
            _ => Vec::new(),
        }
    }

    /// Waits for a token that neither this nor [`Self::first`] has returned; empty if the last one has expired.
    pub async fn wait_for_next_token(&mut self) -> Vec<u8> {
        match self.latest.changed().await {
            Ok(()) => self.latest.borrow().token.clone(),
            // The runtime stops, which alone ends the task.
            Err(_) => std::future::pending().await,
        }
    }
}

impl fmt::Debug for LatencyTokens {
    /// Prints no token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LatencyTokens").field("latest", &debug_secret_length(&self.latest.borrow().token)).finish()
    }
}

/// Next token of a measurement, or none for ever without one.
pub(crate) async fn next_token_or_pending(tokens: &mut Option<LatencyTokens>) -> Vec<u8> {
    match tokens {
        Some(tokens) => tokens.wait_for_next_token().await,
        None => std::future::pending().await,
    }
}
