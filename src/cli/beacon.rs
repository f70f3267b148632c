//! `fireteam beacon`: a beacon as a process of its own. `fireteam beacon-key`: the key of one beacon.

mod grpc_registry;

use std::io::Write;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use tokio_util::sync::CancellationToken;

use crate::auth::key_file;
use crate::beacon::{BeaconSite, BeaconUdp, run_announcer};
use crate::cli::beacon::grpc_registry::GrpcRegistry;
use crate::clock::{Clock as _, SystemClock};
use crate::config::{
    BeaconPlace, DEFAULT_BEACON_PACKETS_PER_SECOND, ListenAddress, check_region_syntax, parse_announce_address,
};
use crate::server::signal::shutdown_signal;
use crate::supervisor::TaskSupervisor;
use crate::telemetry::log;
use crate::telemetry::metric::beacon_packets::BeaconPacketCounters;

/// Size of the log per minute, bytes.
const LOG_BYTES_PER_MINUTE_MAX: u64 = 256 << 10;

/// Interval at which the log has the counts of packets.
const COUNTS_INTERVAL: Duration = Duration::from_secs(60);

/// Flags of `beacon`.
#[derive(Clone, Debug, Args)]
pub struct BeaconFlags {
    /// UDP address to listen at, `HOST:PORT`; on a machine with several addresses that of --announce-address.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: ListenAddress,
    /// Id of the beacon, number, 1 to 4294967295; for ever: a beacon that moves gets a new one.
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u32).range(1..))]
    pub id: u32,
    /// Region of the game that the beacon stands for, 1 to 64 bytes [default: none].
    #[arg(long, value_name = "NAME", value_parser = check_region_syntax)]
    pub region: Option<String>,
    /// Place of the machine, `LATITUDE/LONGITUDE` in degrees, -90 to 90 and -180 to 180, such as 50.1/8.7.
    #[arg(long, value_name = "PLACE", allow_hyphen_values = true, value_parser = BeaconPlace::parse)]
    pub place: BeaconPlace,
    /// Key of the beacon, file from `fireteam beacon-key`, readable by its owner only.
    #[arg(long, value_name = "FILE")]
    pub key_file: PathBuf,
    /// URL of the client port of a server, or of the load balancer before the servers.
    #[arg(long, value_name = "URL")]
    pub server: String,
    /// IP address at which clients reach the beacon.
    #[arg(long, value_name = "IP", value_parser = parse_announce_address)]
    pub announce_address: IpAddr,
    /// UDP port at which clients reach the beacon, 1 to 65535 [default: the port of --listen].
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub announce_port: Option<u16>,
    /// Maximum packets that are answered, of all senders together, number per second, 100 to 1000000.
    #[arg(long, value_name = "COUNT", default_value_t = DEFAULT_BEACON_PACKETS_PER_SECOND, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    pub packets_per_second: u32,
    /// File with a token of the role game_server; read before each call, so that it can be renewed [default: no token].
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// CA certificates for verifying the server's certificate, PEM file; for an https URL.
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
}

/// Flags of `beacon-key`.
#[derive(Clone, Debug, Args)]
pub struct BeaconKeyCommandFlags {
    /// Id of the beacon, number, 1 to 4294967295.
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u32).range(1..))]
    pub id: u32,
    /// Keys of all beacons' receipts: the file that the servers have as --beacon-fleet-key-file.
    #[arg(long, value_name = "FILE")]
    pub fleet_key_file: PathBuf,
    /// File for the beacon's own key, created, readable by its owner only.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
}

/// Writes the key of one beacon to a new file, and prints its id. Fails if the file exists.
pub(super) fn write_beacon_key(flags: &BeaconKeyCommandFlags, printed: &mut dyn Write) -> anyhow::Result<()> {
    let keys = key_file::load_beacon_fleet_keys(&flags.fleet_key_file).context("load fleet keys")?;
    let key = keys.current_beacon_key(flags.id);
    let out = &flags.out;
    if out.exists() {
        bail!("{} already exists; use another --out", out.display());
    }
    key_file::create_secret_file(out, key.0).with_context(|| format!("write {}", out.display()))?;
    let key_id: String = key.key_id().iter().map(|byte| format!("{byte:02x}")).collect();
    writeln!(
        printed,
        "{}\n  for beacon {} alone: fireteam beacon --key-file; key id {key_id}",
        out.display(),
        flags.id
    )?;
    Ok(())
}

/// Runs a beacon until SIGTERM or SIGINT.
pub(super) fn run_beacon(flags: &BeaconFlags) -> anyhow::Result<()> {
    let clock = SystemClock::start();
    log::init_logging(false, "info", LOG_BYTES_PER_MINUTE_MAX, Box::new(move || clock.now()))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(run_until_signal(flags))
}

async fn run_until_signal(flags: &BeaconFlags) -> anyhow::Result<()> {
    let mut stop = std::pin::pin!(shutdown_signal().context("listen for signals")?);
    let key = key_file::load_single_beacon_key(&flags.key_file).context("load the beacon's key")?;
    let key_id = key.key_id();
    let (clock, counters) = (Arc::new(SystemClock::start()), BeaconPacketCounters::default());
    let addresses = flags.listen.resolved_addresses();
    let udp = BeaconUdp::bind(addresses, flags.id, key, flags.packets_per_second, clock.clone(), counters.clone())
        .with_context(|| format!("listen at {} of --listen", flags.listen))?;
    let bound = udp.local_address().context("read the address of the socket")?;
    let site = BeaconSite {
        id: flags.id,
        region: flags.region.clone().unwrap_or_default(),
        latitude: flags.place.latitude,
        longitude: flags.place.longitude,
        address: flags.announce_address,
        port: flags.announce_port.unwrap_or(bound.port()),
        key_id,
    };
    let registry = Arc::new(GrpcRegistry::new(&flags.server, flags.ca.as_deref(), flags.token_file.clone())?);
    let supervisor = TaskSupervisor::default();
    let thread = udp.spawn(&supervisor).context("start the thread of the beacon")?;
    tracing::info!(listen = %bound, beacon_id = site.id, "beacon started");
    let announcing = run_announcer(registry, site, clock, CancellationToken::new());
    tokio::select! {
        () = announcing => {}
        () = log_counts(&counters) => {}
        () = &mut stop => {}
    }
    drop(thread);
    let (answered, dropped) = (counters.answered.get(), counters.dropped.get());
    tracing::info!(answered, dropped, "beacon stopped");
    Ok(())
}

/// Logs the counts of packets each minute in which they changed.
async fn log_counts(counters: &BeaconPacketCounters) {
    let mut logged = (0, 0);
    loop {
        tokio::time::sleep(COUNTS_INTERVAL).await;
        let counts = (counters.answered.get(), counters.dropped.get());
        if counts != logged {
            let (answered, dropped) = counts;
            tracing::info!(answered, dropped, "packets counted since the start");
            logged = counts;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn flags(folder: &Path) -> BeaconKeyCommandFlags {
        BeaconKeyCommandFlags { id: 7, fleet_key_file: folder.join("fleet-key"), out: folder.join("beacon-7.key") }
    }

    /// SEC-15: the file has the key that the servers derive from the current fleet key, and no other user can read it.
    #[test]
    fn beacon_key_is_the_one_of_the_fleet_key() {
        let folder = tempfile::tempdir().unwrap();
        let flags = flags(folder.path());
        let error = format!("{:#}", write_beacon_key(&flags, &mut Vec::new()).unwrap_err());
        assert!(error.contains("fleet-key") && !flags.fleet_key_file.exists(), "{error}");

        let keys = key_file::load_or_create_beacon_fleet_keys(&flags.fleet_key_file, [9; 32]).unwrap();
        let mut printed = Vec::new();
        write_beacon_key(&flags, &mut printed).unwrap();
        let key = key_file::load_single_beacon_key(&flags.out).unwrap();
        assert_eq!(key.0, keys.current_beacon_key(7).0);
        let (printed, text) = (String::from_utf8(printed).unwrap(), std::fs::read_to_string(&flags.out).unwrap());
        assert!(text.trim().len() == 64 && !printed.contains(text.trim()), "{printed}");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(std::fs::metadata(&flags.out).unwrap().permissions().mode() & 0o777, 0o600);
        }
        let error = write_beacon_key(&flags, &mut Vec::new()).unwrap_err().to_string();
        assert!(error.ends_with("already exists; use another --out"), "{error}");
    }

    #[test]
    fn beacon_key_file_with_other_text_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let flags = flags(folder.path());
        key_file::load_or_create_beacon_fleet_keys(&flags.fleet_key_file, [9; 32]).unwrap();
        write_beacon_key(&flags, &mut Vec::new()).unwrap();
        let two_lines = std::fs::read_to_string(&flags.out).unwrap().repeat(2);
        std::fs::write(&flags.out, two_lines).unwrap();
        let error = key_file::load_single_beacon_key(&flags.out).unwrap_err().to_string();
        assert!(error.contains("make it with `fireteam beacon-key`"), "{error}");
    }
}
