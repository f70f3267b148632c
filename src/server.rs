//! Stub.

use std::net::SocketAddr;

use crate::config::Config;

/// Serves until told to stop.
pub async fn run(_config: Config) -> anyhow::Result<()> {
    Ok(())
}

/// Whether the server at `address` says that it serves.
pub async fn is_serving(_address: SocketAddr) -> anyhow::Result<bool> {
    Ok(false)
}
