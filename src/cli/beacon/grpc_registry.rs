//! Announcements of a beacon through the Latency service of a server.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::api::pb;
use crate::beacon::{BeaconRegistry, BeaconSite, PeerBeacon, PeerTrip, RegistryError};
use crate::cli::unary_client::{UnaryClient, endpoint_of, read_token_file};

/// Timeout of one call; shorter than the time between two announcements.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// Server that is called with a token of the role game_server.
pub(super) struct GrpcRegistry {
    channel: Channel,
    token_file: Option<PathBuf>,
}

impl GrpcRegistry {
    /// Registry at a URL; connects at the first call, and again when the connection is lost. Needs a Tokio runtime. Fails on an invalid
    /// URL or CA file, and if the token file cannot be read.
    pub(super) fn new(server: &str, ca: Option<&Path>, token_file: Option<PathBuf>) -> anyhow::Result<Self> {
        let endpoint = endpoint_of("--server", server, ca)?.timeout(CALL_TIMEOUT);
        let registry = Self { channel: endpoint.connect_lazy(), token_file };
        registry.client().context("read the token of --token-file")?;
        Ok(registry)
    }

    /// Client with the present token.
    fn client(&self) -> anyhow::Result<UnaryClient> {
        let token = self.token_file.as_deref().map(read_token_file).transpose()?;
        UnaryClient::new(self.channel.clone(), token.as_deref()).context("use the token of --token-file as a header")
    }

    async fn call<Q, A>(&self, path: &'static str, message: Q) -> Result<A, RegistryError>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let mut client = self.client().map_err(|error| RegistryError::Refused(format!("{error:#}")))?;
        client.call(path, message).await.map_err(error_of)
    }
}

fn error_of(status: Status) -> RegistryError {
    let text = format!("{:?}: {}", status.code(), status.message());
    match status.code() {
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown | Code::ResourceExhausted => {
            RegistryError::Unreachable(text)
        }
        _ => RegistryError::Refused(text),
    }
}

#[async_trait]
impl BeaconRegistry for GrpcRegistry {
    async fn announce(&self, site: &BeaconSite, trips: Vec<PeerTrip>) -> Result<Duration, RegistryError> {
        let request = announcement(site, trips);
        let answer: pb::AnnounceBeaconResponse =
            self.call("/fireteam.v1.LatencyService/AnnounceBeacon", request).await?;
        Ok(Duration::from_millis(answer.announce_again_in_ms.into()))
    }

    async fn live_beacons(&self) -> Result<Vec<PeerBeacon>, RegistryError> {
        let answer: pb::GetBeaconsResponse =
            self.call("/fireteam.v1.LatencyService/GetBeacons", pb::GetBeaconsRequest {}).await?;
        Ok(answer.beacons.iter().filter_map(peer_of).collect())
    }
}

fn announcement(site: &BeaconSite, trips: Vec<PeerTrip>) -> pb::AnnounceBeaconRequest {
    let address = match site.address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let beacon = pb::Beacon {
        id: site.id,
        region: site.region.clone(),
        address,
        port: site.port.into(),
        latitude: site.latitude,
        longitude: site.longitude,
        measure_first: false,
    };
    let trips = trips.into_iter().map(|PeerTrip { beacon_id, floor_ms, age_ms }| pb::BeaconTrip {
        beacon_id,
        floor_ms,
        age_ms,
    });
    pb::AnnounceBeaconRequest { beacon: Some(beacon), key_id: site.key_id.to_vec(), trips: trips.collect() }
}

/// Address of a beacon; `None` for one that this version cannot read.
fn peer_of(beacon: &pb::Beacon) -> Option<PeerBeacon> {
    let address = match *beacon.address {
        [a, b, c, d] => IpAddr::from([a, b, c, d]),
        _ => IpAddr::from(<[u8; 16]>::try_from(&*beacon.address).ok()?),
    };
    let port = u16::try_from(beacon.port).ok().filter(|port| *port != 0)?;
    Some(PeerBeacon { id: beacon.id, endpoint: SocketAddr::new(address, port) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announcement_names_the_address_that_peers_read() {
        for address in ["192.0.2.7", "2001:db8::7"] {
            let address: IpAddr = address.parse().unwrap();
            let (region, key_id) = ("eu".to_owned(), [1, 2, 3, 4]);
            let site = BeaconSite { id: 7, region, latitude: 50.1, longitude: 8.7, address, port: 7_777, key_id };
            let trips = vec![PeerTrip { beacon_id: 8, floor_ms: 12.5, age_ms: 60_000 }];
            let request = announcement(&site, trips);
            assert_eq!(request.key_id, key_id);
            assert_eq!(request.trips, [pb::BeaconTrip { beacon_id: 8, floor_ms: 12.5, age_ms: 60_000 }]);
            let beacon = request.beacon.unwrap();
            let expected = PeerBeacon { id: 7, endpoint: SocketAddr::new(address, 7_777) };
            assert_eq!(peer_of(&beacon), Some(expected));
            assert_eq!(peer_of(&pb::Beacon { address: vec![1; 5], ..beacon.clone() }), None);
            assert_eq!(peer_of(&pb::Beacon { port: 65_536, ..beacon }), None);
        }
    }
}
