//! Scripted beacon: a real responder on a socket, and the service that lists it and records the reports.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use fireteam_probe::{BeaconCookieKey, BeaconKey, BeaconResponder, FIXED_PACKET_BYTES, Receipt};
use tokio::net::UdpSocket;
use tokio::time::Instant;
use tonic::{Request, Response, Status};

use crate::pb;
use crate::pb::latency_service_server::LatencyService;

const BEACON_ID: u32 = 7;
const BINDING: [u8; 16] = [6; 16];
const KEY: BeaconKey = BeaconKey([3; 32]);

/// Token of the first report. Each later one has a `+` more at its end.
pub(crate) const LATENCY_TOKEN: &[u8] = b"proven";

/// A beacon, and the reports of its receipts.
#[derive(Debug)]
pub(crate) struct ScriptedBeacon {
    endpoint: SocketAddr,
    /// Receipts of each report, all of which the beacon has signed.
    pub(crate) reports: Mutex<Vec<Vec<Receipt>>>,
}

impl ScriptedBeacon {
    /// Starts a beacon on the loopback interface. A silent one only has an endpoint.
    pub(crate) async fn start(is_silent: bool) -> Arc<Self> {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let endpoint = socket.local_addr().unwrap();
        tokio::spawn(async move {
            if is_silent {
                let () = std::future::pending().await;
            }
            let (mut responder, start) =
                (BeaconResponder::new(BEACON_ID, KEY, BeaconCookieKey([2; 32]), 50_000), Instant::now());
            let mut packet = [0; FIXED_PACKET_BYTES + 1];
            while let Ok((length, from)) = socket.recv_from(&mut packet).await {
                let now_us = u64::try_from(start.elapsed().as_micros()).unwrap();
                if let Some(answer) = responder.handle(&packet[..length], from, now_us, 1_000) {
                    socket.send_to(&answer, from).await.unwrap();
                }
            }
        });
        Arc::new(Self { endpoint, reports: Mutex::default() })
    }
}

#[tonic::async_trait]
impl LatencyService for ScriptedBeacon {
    async fn get_beacons(&self, _: Request<pb::GetBeaconsRequest>) -> Result<Response<pb::GetBeaconsResponse>, Status> {
        let SocketAddr::V4(endpoint) = self.endpoint else { return Err(Status::internal("no IPv4 address")) };
        let beacon = pb::Beacon {
            id: BEACON_ID,
            address: endpoint.ip().octets().to_vec(),
            port: endpoint.port().into(),
            ..Default::default()
        };
        Ok(Response::new(pb::GetBeaconsResponse {
            beacons: vec![beacon],
            binding: BINDING.to_vec(),
            good_for_ms: 600_000,
            beacons_wanted: 12,
        }))
    }

    async fn report_trips(
        &self,
        request: Request<pb::ReportTripsRequest>,
    ) -> Result<Response<pb::ReportTripsResponse>, Status> {
        let receipts = request.into_inner().receipts.into_iter().map(|receipt| Receipt::decode(&receipt).unwrap());
        let receipts: Vec<Receipt> = receipts.collect();
        assert!(receipts.iter().all(|receipt| receipt.is_signed_by(&KEY) && receipt.claims.binding == BINDING));
        let mut reports = self.reports.lock().unwrap();
        let token = [LATENCY_TOKEN, "+".repeat(reports.len()).as_bytes()].concat();
        let latency_token = if receipts.is_empty() { Vec::new() } else { token };
        reports.push(receipts);
        Ok(Response::new(pb::ReportTripsResponse { latency_token, good_for_ms: 600_000, ..Default::default() }))
    }

    async fn announce_beacon(
        &self,
        _: Request<pb::AnnounceBeaconRequest>,
    ) -> Result<Response<pb::AnnounceBeaconResponse>, Status> {
        Err(Status::permission_denied("a client"))
    }
}
