//! Address to listen at: an IP address or a host name, with a port.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// `HOST:PORT`. A host name is resolved once, when the text is parsed. At least one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    text: String,
    addresses: Vec<SocketAddr>,
}

impl ListenAddress {
    /// Addresses of the host, IPv4 first. The server listens at the first one that it can bind.
    pub fn resolved_addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The host as it was given: a name or an address.
    pub fn host(&self) -> &str {
        self.text.rsplit_once(':').map_or(&*self.text, |(host, _)| host)
    }

    /// Whether no other machine can reach any of the addresses.
    pub(super) fn is_loopback(&self) -> bool {
        self.addresses.iter().all(|address| address.ip().to_canonical().is_loopback())
    }

    /// Whether both have an address and port in common. Port 0 means any free port, so it is never in common.
    pub(super) fn shares_address_with(&self, other: &Self) -> bool {
        self.addresses.iter().any(|address| address.port() != 0 && other.addresses.contains(address))
    }
}

impl From<SocketAddr> for ListenAddress {
    fn from(address: SocketAddr) -> Self {
        Self { text: address.to_string(), addresses: vec![address] }
    }
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(address.into());
        }
        let form = "use HOST:PORT, such as 127.0.0.1:50051";
        if text.contains('@') || text.contains("://") {
            return Err(format!("the text is a URL, and not an address; {form}"));
        }
        let Some((host, port)) = text.rsplit_once(':').filter(|(host, _)| !host.is_empty()) else {
            return Err(format!("`{text}` has no port; {form}"));
        };
        let port: u16 = port.parse().map_err(|_| format!("port `{port}` is not a number from 0 to 65535; {form}"))?;
        let unresolved = |reason: String| format!("host `{host}` cannot be resolved ({reason}); {form}");
        let resolved = (host, port).to_socket_addrs().map_err(|error| unresolved(error.to_string()))?;
        let mut addresses: Vec<SocketAddr> = resolved.collect();
        addresses.sort_by_key(SocketAddr::is_ipv6);
        addresses.dedup();
        if addresses.is_empty() {
            Err(unresolved("no address".into()))
        } else {
            Ok(Self { text: text.into(), addresses })
        }
    }
}

impl fmt::Display for ListenAddress {
    /// Prints the text as it was given.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for ListenAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for ListenAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listen_address_is_an_ip_address_or_a_resolved_name() {
        let one: ListenAddress = "[::1]:7".parse().unwrap();
        assert_eq!((one.to_string(), one.resolved_addresses()), ("[::1]:7".into(), &["[::1]:7".parse().unwrap()][..]));
        let name: ListenAddress = "localhost:7".parse().unwrap();
        assert_eq!(name.to_string(), "localhost:7");
        assert!(name.is_loopback() && name.shares_address_with(&"localhost:7".parse().unwrap()));
        assert!(!name.shares_address_with(&"localhost:8".parse().unwrap()));
        let any_port: ListenAddress = "localhost:0".parse().unwrap();
        assert!(!any_port.shares_address_with(&any_port));
        for (text, expected) in [("localhost", "no port"), (":1", "no port"), ("localhost:x", "port `x`")] {
            let error = text.parse::<ListenAddress>().unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
