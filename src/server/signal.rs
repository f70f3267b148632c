//! Waits for the system to ask the server to go.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

/// A future that is ready when the process is sent SIGTERM or SIGINT. Heard from this call on, not from the first poll:
/// whoever starts a server and thinks better of it at once is heard too.
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
