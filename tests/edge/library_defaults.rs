//! The same library with its own settings, as a process to attack: it must fare worse, or the attacks prove nothing.

use std::io::Read;
use std::process::Command;

use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Identity, Server, ServerTlsConfig};
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;

use crate::server_under_attack::Victim;
use crate::support::certs::{CertificateAuthority, write_server_certificate};

/// Set in the process that is to serve.
const SERVES: &str = "EDGE_SERVES_WITH_DEFAULTS";

/// Starts one in a process of its own.
pub(crate) fn start(with_tls: bool) -> Victim {
    let folder = tempfile::tempdir().unwrap();
    let authority = with_tls.then(|| CertificateAuthority::new("house"));
    if let Some(authority) = &authority {
        write_server_certificate(folder.path(), &authority.server_certificate());
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "library_defaults::a_server_with_defaults_serves", "--nocapture"]);
    command.current_dir(folder.path()).env(SERVES, "1");
    Victim::spawn(command, authority, Some(folder))
}

/// In the test itself, one is started and asked; in the process that this starts, it is the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_defaults_serves() {
    if std::env::var_os(SERVES).is_none() {
        let victim = start(false);
        victim.client().await.check(HealthCheckRequest::default()).await.unwrap();
        return;
    }
    // Whoever started this holds the other end, and lets go of it when he ends, whichever way.
    let orphaned = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    tokio::select! {
        () = serve() => {}
        _ = orphaned => {}
    }
}

async fn serve() {
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_service_status("", ServingStatus::Serving).await;
    let mut server = Server::builder();
    if let (Ok(certificate), Ok(key)) = (std::fs::read("server.pem"), std::fs::read("server.key")) {
        server = server.tls_config(ServerTlsConfig::new().identity(Identity::from_pem(certificate, key))).unwrap();
    }
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    eprintln!("listen={}", listener.local_addr().unwrap());
    server.add_service(health).serve_with_incoming(TcpListenerStream::new(listener)).await.unwrap();
}
