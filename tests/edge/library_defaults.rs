//! A server of the same library with its default settings, as a target: the attacks must harm it, otherwise they prove nothing.

use std::io::Read;
use std::process::Command;

use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Identity, Server, ServerTlsConfig};
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;

use crate::server_under_attack::ServerUnderAttack;
use crate::support::certs::{CertificateAuthority, write_server_certificate};

/// Variable set in the server process.
const RUN_SERVER: &str = "EDGE_RUN_DEFAULT_SERVER";

/// Starts such a server in a process of its own.
pub(crate) fn start(with_tls: bool) -> ServerUnderAttack {
    let folder = tempfile::tempdir().unwrap();
    let authority = with_tls.then(|| CertificateAuthority::new("test CA"));
    if let Some(authority) = &authority {
        write_server_certificate(folder.path(), &authority.server_certificate());
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "library_defaults::library_default_server_serves", "--nocapture"]);
    command.current_dir(folder.path()).env(RUN_SERVER, "1");
    ServerUnderAttack::spawn(command, authority, Some(folder))
}

/// The test starts a server and calls it; in that process the same function is the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn library_default_server_serves() {
    if std::env::var_os(RUN_SERVER).is_none() {
        let server = start(false);
        server.client().await.check(HealthCheckRequest::default()).await.unwrap();
        return;
    }
    // The parent holds the other end of standard input, which closes when the parent ends in any way.
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
