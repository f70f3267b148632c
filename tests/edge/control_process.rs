//! Control process: another target on the same machine, which accepts connections, reads once and closes them. The latency of
//! honest calls while it is attacked is the cost of attackers on the same two cores, without work of the server.

use std::io::Read;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};

use crate::attack::Attack;
use crate::attacker_process;
use crate::server_under_attack::ServerUnderAttack;

/// Variable set in the control process.
const RUN_CONTROL: &str = "EDGE_RUN_CONTROL";

/// Starts a control process.
pub(crate) fn start() -> ServerUnderAttack {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "control_process::control_process_closes_connections", "--nocapture"]);
    command.env(RUN_CONTROL, "");
    ServerUnderAttack::spawn(command, None, None)
}

/// The test starts a control process and attacks it; in that process the same function accepts connections.
#[tokio::test]
async fn control_process_closes_connections() {
    if std::env::var_os(RUN_CONTROL).is_none() {
        let control = start();
        let flood = Attack::named("PING flood");
        let outcome = attacker_process::run(flood, control.address, 2, Duration::from_millis(500)).await;
        assert!(0 < outcome.closed, "{outcome:?}");
        return;
    }
    // The parent holds the other end of standard input, which closes when the parent ends in any way.
    let orphaned = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    tokio::select! {
        () = accept_and_close() => {}
        _ = orphaned => {}
    }
}

async fn accept_and_close() {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    eprintln!("listen={}", listener.local_addr().unwrap());
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        tokio::spawn(close(stream));
    }
}

/// Reads once and closes, as a server closes a harmful connection.
async fn close(mut stream: TcpStream) {
    drop(stream.read(&mut [0; 16 * 1024]).await);
}
