//! `fireteam health`: checks that a running server is serving, for container images without another client.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use crate::cli::ExitStatus;
use crate::cli::error_text::error_text;
use crate::config::ListenAddress;
use crate::server::run::{self, HealthCheckTls};

/// Calls the health service at `address`, over TLS with a CA file. Prints the reason if the server is not serving.
pub(super) fn check_health(address: &ListenAddress, ca: Option<PathBuf>, server_name: Option<String>) -> ExitStatus {
    let tls = ca.map(|ca| HealthCheckTls { ca_file: ca, server_name });
    let serving = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(is_serving_at_any(address.resolved_addresses(), tls.as_ref())));
    match serving {
        Ok(true) => ExitStatus::Success,
        Ok(false) => {
            eprintln!("fireteam: {address} is not serving");
            ExitStatus::Failed
        }
        Err(error) => {
            eprintln!("fireteam: health check of {address} failed: {}", error_text(&error));
            ExitStatus::Failed
        }
    }
}

/// Whether a server serves at the first of `addresses` that can be reached. Fails if none can be reached.
async fn is_serving_at_any(addresses: &[SocketAddr], tls: Option<&HealthCheckTls>) -> anyhow::Result<bool> {
    let mut result = Ok(false);
    for &address in addresses {
        result = run::check_remote_health(loopback_if_unspecified(address), tls).await;
        if result.is_ok() {
            break;
        }
    }
    result
}

/// Loopback address for a server that listens on all addresses.
fn loopback_if_unspecified(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_check_of_an_unspecified_address_uses_loopback() {
        let check = |given: &str, expected: &str| {
            assert_eq!(loopback_if_unspecified(given.parse().unwrap()), expected.parse().unwrap());
        };
        check("0.0.0.0:1", "127.0.0.1:1");
        check("[::]:1", "[::1]:1");
        check("192.0.2.1:1", "192.0.2.1:1");
    }
}
