//! Going out of service in good order: health says so first, then streams end, while calls are still answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::CancellationToken;

use crate::api::health::HealthState;

/// The switch that takes the server out of service. There is no way back.
#[derive(Clone, Debug)]
pub struct Drain {
    health: HealthState,
    stream_cancellation: CancellationToken,
    started: Arc<AtomicBool>,
}

impl Drain {
    /// A switch that tells `health`.
    pub fn new(health: HealthState) -> Self {
        Self { health, stream_cancellation: CancellationToken::new(), started: Arc::default() }
    }

    /// Begins; tells whether it had begun before. Health changes before any stream ends, so that whoever asks where to
    /// go next is not sent here.
    pub async fn start(&self) -> bool {
        let before = self.started.swap(true, Ordering::SeqCst);
        self.health.set_serving(false).await;
        self.stream_cancellation.cancel();
        before
    }

    /// Whether the server takes new streams and should be sent new clients.
    pub fn is_serving(&self) -> bool {
        !self.started.load(Ordering::SeqCst)
    }

    /// Cancelled when streams must end.
    pub fn stream_cancellation(&self) -> &CancellationToken {
        &self.stream_cancellation
    }
}
