//! Beacon: a UDP socket that measures and signs round trips to clients, and a task that announces it to the servers.
//!
//! `fireteam beacon` runs one as a process of its own, the server runs one with `--beacon-listen`. Packets and answers are in the crate
//! `fireteam-probe`; this layer adds the socket, the time and the random keys. It keeps nothing of a client.

mod announcer;
mod measurement;
mod peer_trips;
mod registry;
mod udp;

pub use self::announcer::run_announcer;
pub use self::registry::{BeaconRegistry, BeaconSite, PeerBeacon, PeerTrip, RegistryError};
pub use self::udp::{BeaconThread, BeaconUdp};
