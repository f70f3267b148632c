//! Shutdown signal: SIGTERM or SIGINT.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

/// Future that completes on SIGTERM or SIGINT. Signals are caught from this call on, not from the first poll, so that a
/// signal during startup is not lost. Fails if the handlers cannot be installed.
pub fn shutdown_signal() -> io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
