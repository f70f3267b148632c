//! `fireteam health`: asks a running server whether it serves, for container images that have no other client.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use crate::cli::ExitStatus;
use crate::server::{self, HealthCheckTls};

/// Asks the server at `address`, over TLS when there is a file of authorities; says why when it does not serve.
pub(super) fn check_health(address: SocketAddr, ca: Option<PathBuf>, server_name: Option<String>) -> ExitStatus {
    let known = ca.map(|ca| HealthCheckTls { ca_file: ca, server_name });
    let asked = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(server::is_serving(loopback_if_unspecified(address), known.as_ref())));
    match asked {
        Ok(true) => ExitStatus::Success,
        Ok(false) => {
            eprintln!("fireteam: {address} is not serving");
            ExitStatus::Failed
        }
        Err(why) => {
            eprintln!("fireteam: {address} cannot be asked: {why:#}");
            ExitStatus::Failed
        }
    }
}

/// A server that listens everywhere is asked on loopback.
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
