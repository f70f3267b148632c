//! Waits for the system to ask the server to go.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

/// Returns when the process is sent SIGTERM or SIGINT.
pub async fn asked_to_stop() -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
