//! Graceful drain: health reports NOT_SERVING first, then streams end, while unary calls are still served.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::CancellationToken;

use crate::api::health::HealthState;

/// Drain switch of the server. Once started, a drain cannot be undone.
#[derive(Clone, Debug)]
pub struct Drain {
    health: HealthState,
    stream_cancellation: CancellationToken,
    started: Arc<AtomicBool>,
}

impl Drain {
    /// Creates a switch that reports to `health`. The drain has not started.
    pub fn new(health: HealthState) -> Self {
        Self { health, stream_cancellation: CancellationToken::new(), started: Arc::default() }
    }

    /// Starts the drain; returns true if it had started before. Health changes before any stream ends, so that a client
    /// that reconnects through a load balancer is not sent here again.
    pub async fn start(&self) -> bool {
        let was_started = self.started.swap(true, Ordering::SeqCst);
        self.health.set_serving_status(false).await;
        self.stream_cancellation.cancel();
        was_started
    }

    /// Whether the server accepts new streams and reports itself ready.
    pub fn is_serving(&self) -> bool {
        !self.started.load(Ordering::SeqCst)
    }

    /// Token that is cancelled when streams must end.
    pub fn stream_cancellation(&self) -> &CancellationToken {
        &self.stream_cancellation
    }
}
