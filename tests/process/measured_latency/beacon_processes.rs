//! Beacons as processes of their own, each behind a delay line.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::ops::Range;
use std::path::Path as FilePath;
use std::process::{Child, Stdio};
use std::sync::Arc;

use fireteam::auth::identity::Role;

use crate::identities::Identities;
use crate::support::delay_line::{DelayLine, Direction, Path};
use crate::support::server_process::{StderrLog, fireteam_command};

/// Types of the packets of a client, and the positions of type and nonce.
const TYPE_AT: usize = 4;
const NONCE: Range<usize> = 8..16;
const HELLO: u8 = 0x11;
const PROOF: u8 = 0x13;

/// Beacon of the scenario: its id, region, and path to clients.
#[derive(Clone, Copy)]
pub(super) struct BeaconPlan {
    pub(super) id: u32,
    pub(super) region: &'static str,
    pub(super) path: Path,
}

/// Running beacon. Killed when it is dropped.
pub(super) struct BeaconProcess {
    pub(super) plan: BeaconPlan,
    child: Child,
    line: DelayLine,
}

impl BeaconProcess {
    /// Starts a beacon at `address`, whose files are in `folder` beside the fleet key. It has announced itself when this returns.
    pub(super) async fn start(
        plan: BeaconPlan,
        (address, seed): (IpAddr, u64),
        (server, identities, folder): (SocketAddr, &Identities, &FilePath),
    ) -> Self {
        let BeaconPlan { id, region, path } = plan;
        let (id, key, token) = (id.to_string(), format!("beacon-{id}.key"), "beacon.token");
        let make_key = ["beacon-key", "--id", &id, "--fleet-key-file", "fleet-key", "--out", &key];
        let made = fireteam_command(folder, &make_key).output().expect("the binary starts");
        assert!(made.status.success(), "{made:?}");
        std::fs::write(folder.join(token), identities.token(Role::GameServer, "fleet")).expect("write");
        // The address is this beacon's alone, so the port stays free.
        let free = UdpSocket::bind((address, 0)).expect("a free port").local_addr().expect("an address");
        let line = DelayLine::start(address, free, path, seed).await;
        let (listen, server) = (free.to_string(), format!("http://{server}"));
        let (announced, port) = (address.to_string(), line.address().port().to_string());
        let mut command = fireteam_command(folder, &["beacon", "--id", &id, "--region", region, "--place", "50.1/8.7"]);
        command.args(["--key-file", &key, "--token-file", token, "--listen", &listen, "--server", &server]);
        command.args(["--announce-address", &announced, "--announce-port", &port]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut child = child.expect("the binary starts");
        let log: Arc<StderrLog> = StderrLog::capture(child.stderr.take().expect("piped"));
        assert_eq!(log.wait_for_lines("beacon announced", 1).len(), 1, "{}", log.text());
        Self { plan, child, line }
    }

    /// Ends the beacon with SIGKILL. The servers list it for another minute.
    pub(super) fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    /// Hellos and proofs of the longest run so far: the packets with one nonce. Beacons measure each other with a nonce for each hello, so it
    /// is the client's. Fails if the beacon has sent more packets than it received, or longer ones.
    pub(super) fn longest_run(&self) -> (usize, usize) {
        let (mut runs, mut received, mut answers) = (BTreeMap::<Vec<u8>, (usize, usize)>::new(), 0, 0);
        for packet in self.line.packets() {
            assert_eq!(packet.bytes.len(), 64, "{}", self.plan.region);
            if packet.direction == Direction::ToClient {
                answers += 1;
                continue;
            }
            received += 1;
            let (hellos, proofs) = runs.entry(packet.bytes[NONCE].to_vec()).or_default();
            match packet.bytes[TYPE_AT] {
                HELLO => *hellos += 1,
                PROOF => *proofs += 1,
                other => panic!("a packet of type {other} to {}", self.plan.region),
            }
        }
        assert!(answers <= received, "{}", self.plan.region);
        runs.into_values().max().unwrap_or_default()
    }
}

impl Drop for BeaconProcess {
    fn drop(&mut self) {
        // The process may have exited already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
