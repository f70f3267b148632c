//! Example allocator: starts a process for each offered match.
//!
//! `cargo run --example process_allocator -- http://127.0.0.1:50051 203.0.113.7 ./game-server --headless`
//!
//! The process finds the match in `FIRETEAM_MATCH_ID`, its token, in hexadecimal digits, in `FIRETEAM_HOST_TOKEN`, and its
//! port in `FIRETEAM_PORT`. It must confirm the match with `QueueService/HostHeartbeat`.

#[path = "allocators/offer_loop.rs"]
mod offer_loop;

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, PoisonError};

use fireteam_client::pb;
use tonic::transport::Endpoint;

use offer_loop::ServerStarter;

/// Most game servers at a time.
const SERVERS_MAX: usize = 32;

/// Starts processes on this machine.
struct Processes {
    /// Address that players reach.
    address: String,
    /// Program and its arguments.
    command: Vec<String>,
    running: Mutex<BTreeMap<Vec<u8>, Child>>,
}

impl Processes {
    fn spawn(&self, offer: &pb::AllocationOffer) -> Result<u16, String> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.retain(|_, child| child.try_wait().is_ok_and(|exit| exit.is_none()));
        if running.len() >= SERVERS_MAX {
            return Err("machine is full".to_owned());
        }
        let port = free_port().map_err(|error| error.to_string())?;
        let token: String = offer.host_token.iter().map(|byte| format!("{byte:02x}")).collect();
        let (program, arguments) = self.command.split_first().ok_or("no command")?;
        let child = Command::new(program)
            .args(arguments)
            .env("FIRETEAM_MATCH_ID", &offer.match_id)
            .env("FIRETEAM_HOST_TOKEN", token)
            .env("FIRETEAM_PORT", port.to_string())
            .spawn()
            .map_err(|error| error.to_string())?;
        running.insert(offer.offer_token.clone(), child);
        Ok(port)
    }
}

/// A UDP port that is free now.
fn free_port() -> std::io::Result<u16> {
    Ok(UdpSocket::bind("0.0.0.0:0")?.local_addr()?.port())
}

impl ServerStarter for Processes {
    async fn start(&self, offer: pb::AllocationOffer) -> Result<Vec<u8>, String> {
        self.spawn(&offer).map(|port| format!("{}:{port}", self.address).into_bytes())
    }

    async fn stop(&self, offer_token: &[u8]) {
        let process = self.running.lock().unwrap_or_else(PoisonError::into_inner).remove(offer_token);
        if let Some(mut process) = process {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(server), Some(address)) = (arguments.next(), arguments.next()) else {
        return Err("give the address of fireteam, the address that players reach, and a command".into());
    };
    let processes = Processes { address, command: arguments.collect(), running: Mutex::default() };
    let channel = Endpoint::from_shared(server)?.connect_lazy();
    let registration = pb::AllocatorRegistration { max_open_offers: Some(8), ..Default::default() };
    let token = authorization();
    offer_loop::serve_offers(channel, token, registration, Arc::new(processes)).await;
    Ok(())
}

/// Value of the `authorization` header, if the server needs one.
#[expect(clippy::disallowed_methods, reason = "an example has no configuration file")]
fn authorization() -> Option<String> {
    std::env::var("FIRETEAM_AUTHORIZATION").ok()
}
