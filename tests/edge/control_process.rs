//! Somebody else to attack, on the same machine: a process that takes connections, reads once and closes them. How long honest
//! calls take meanwhile is what attackers cost who work on the same two cores, and nothing that is done to the server.

use std::io::Read;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};

use crate::attack::Attack;
use crate::attacker_process;
use crate::server_under_attack::Victim;

/// Set in the process that is to stand by.
const STANDS_BY: &str = "EDGE_STANDS_BY";

/// Starts one in a process of its own.
pub(crate) fn start() -> Victim {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "control_process::a_bystander_is_attacked", "--nocapture"]);
    command.env(STANDS_BY, "");
    Victim::spawn(command, None, None)
}

/// In the test itself, one is started and attacked; in the process that this starts, it is the bystander.
#[tokio::test]
async fn a_bystander_is_attacked() {
    if std::env::var_os(STANDS_BY).is_none() {
        let bystander = start();
        let flood = Attack::named("PING flood");
        let fate = attacker_process::run(flood, bystander.address, 2, Duration::from_millis(500)).await;
        assert!(0 < fate.closed, "{fate:?}");
        return;
    }
    // Whoever started this holds the other end, and lets go of it when he ends, whichever way.
    let orphaned = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    tokio::select! {
        () = stand_by() => {}
        _ = orphaned => {}
    }
}

async fn stand_by() {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    eprintln!("listen={}", listener.local_addr().unwrap());
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        tokio::spawn(close(stream));
    }
}

/// Closes who has said something, as a server closes who does harm.
async fn close(mut stream: TcpStream) {
    drop(stream.read(&mut [0; 16 * 1024]).await);
}
