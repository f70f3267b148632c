//! TLS on both ports: handshakes, client certificates, certificate reload, errors about files.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion, version};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_stream::StreamExt;
use tokio_util::sync::CancellationToken;
use tonic::transport::server::Connected;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Error};

use fireteam::api::client_address::ConnectionPeer;
use fireteam::clock::SystemClock;
use fireteam::config;
use fireteam::server::accept::IncomingConnections;
use fireteam::server::handshake::{ConnectionHandshaker, ProxySettings};
use fireteam::server::limits::EdgeLimits;
use fireteam::server::tls::ReloadableTlsConfig;

use crate::api::limits_wire::read_until_closed;
use crate::support::certs::{CertificateAndKey, CertificateAuthority, write_private_file, write_server_certificate};
use crate::support::generated_client::matchmaking_service_client::MatchmakingServiceClient;
use crate::support::scripted_server::{RecordingObserver, ScriptedServer, TEST_TIMEOUT, search_request};

/// A scripted server with TLS, and the CA of its certificate.
struct TlsServer {
    server: ScriptedServer,
    tls: Arc<ReloadableTlsConfig>,
    authority: CertificateAuthority,
    folder: TempDir,
}

fn open_acceptor(
    folder: &TempDir,
    certificate: &CertificateAndKey,
    client_ca: Option<&CertificateAuthority>,
) -> Arc<ReloadableTlsConfig> {
    let (certificate, key) = write_server_certificate(folder.path(), certificate);
    let client_ca = client_ca.map(|authority| {
        let file = folder.path().join("clients.pem");
        write_private_file(&file, &authority.pem);
        file
    });
    Arc::new(ReloadableTlsConfig::open(config::TlsFiles { certificate, key, client_ca }).unwrap())
}

impl TlsServer {
    async fn start(edge: EdgeLimits) -> Self {
        let (folder, authority) = (tempfile::tempdir().unwrap(), CertificateAuthority::new("server"));
        let tls = open_acceptor(&folder, &authority.server_certificate(), None);
        let server =
            ScriptedServer::start_with_tls_and_proxies(edge, Some(tls.clone()), ProxySettings::without_proxies()).await;
        Self { server, tls, authority, folder }
    }

    /// New connection of a client that trusts `authority`.
    async fn channel(&self, authority: &CertificateAuthority) -> Result<Channel, Error> {
        let ca = Certificate::from_pem(&authority.pem);
        let tls = ClientTlsConfig::new().ca_certificate(ca).domain_name("localhost");
        let uri = format!("https://{}", self.server.address);
        Endpoint::from_shared(uri).unwrap().tls_config(tls).unwrap().connect().await
    }
}

#[tokio::test]
async fn tls_client_that_trusts_the_ca_is_served() {
    let server = TlsServer::start(EdgeLimits::default()).await;
    let mut client = MatchmakingServiceClient::new(server.channel(&server.authority).await.unwrap());
    client.search(search_request()).await.unwrap();
    let mut operators = TcpStream::connect(server.server.operator_address).await.unwrap();
    operators.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    read_until_closed(&mut operators).await;
    server.server.observer.wait_for_rejection("tls").await;
}

#[tokio::test]
async fn tls_client_that_trusts_another_ca_fails_to_connect() {
    let server = TlsServer::start(EdgeLimits::default()).await;
    assert!(server.channel(&CertificateAuthority::new("other")).await.is_err());
    server.server.observer.wait_for_rejection("tls").await;
    server.channel(&server.authority).await.unwrap();

    write_server_certificate(server.folder.path(), &server.authority.expired_server_certificate());
    server.tls.reload().unwrap();
    assert!(server.channel(&server.authority).await.is_err(), "an expired certificate is rejected");
}

#[tokio::test]
async fn tls_port_rejects_plaintext() {
    let server = TlsServer::start(EdgeLimits::default()).await;
    let mut socket = server.server.raw_connection().await;
    socket.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let error = read_until_closed(&mut socket).await;
    assert!(!error.windows(9).any(|bytes| bytes[3..] == [4, 0, 0, 0, 0, 0]), "no SETTINGS in {error:?}");
    server.server.observer.wait_for_rejection("tls").await;
    server.channel(&server.authority).await.unwrap();
}

/// SEC-1: a stalled TLS handshake is ended, without any byte or with half a ClientHello.
#[tokio::test]
async fn tls_handshake_times_out() {
    let server =
        TlsServer::start(EdgeLimits { first_bytes_timeout: Duration::from_millis(100), ..EdgeLimits::default() }).await;
    for half_a_client_hello in [&b""[..], b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03"] {
        let mut socket = server.server.raw_connection().await;
        socket.write_all(half_a_client_hello).await.unwrap();
        assert_eq!(read_until_closed(&mut socket).await, b"");
    }
    server.server.observer.wait_for_rejection("handshake_timeout").await;
}

/// SEC-2: silent connections cannot keep out later ones: the oldest handshake is dropped.
#[tokio::test]
async fn tls_handshake_limit_drops_the_oldest() {
    let patient =
        EdgeLimits { first_bytes_timeout: Duration::from_secs(3_600), handshakes_max: 2, ..EdgeLimits::default() };
    let server = TlsServer::start(patient).await;
    let mut silent = server.server.raw_connection().await;
    let (_second, _third) = (server.server.raw_connection().await, server.server.raw_connection().await);
    assert_eq!(read_until_closed(&mut silent).await, b"");
    server.server.observer.wait_for_rejection("max_handshakes").await;
    server.channel(&server.authority).await.expect("later connections are accepted");
}

/// A1: certificates are reloaded without a restart; open connections continue. A mismatched pair changes nothing.
#[tokio::test]
async fn tls_certificate_reload_keeps_open_connections() {
    let server = TlsServer::start(EdgeLimits::default()).await;
    let mut old = MatchmakingServiceClient::new(server.channel(&server.authority).await.unwrap());
    old.search(search_request()).await.unwrap();

    let next = CertificateAuthority::new("next");
    let certificate = next.server_certificate();
    write_private_file(&server.folder.path().join("server.pem"), &certificate.certificate);
    let error = server.tls.reload().unwrap_err().to_string();
    assert!(error.contains("server.pem") && error.contains("server.key") && !error.contains('\n'), "{error}");
    server.channel(&server.authority).await.expect("the old pair is still in use");

    write_private_file(&server.folder.path().join("server.key"), &certificate.key);
    server.tls.reload().unwrap();
    old.search(search_request()).await.expect("the open connection continues");
    assert!(server.channel(&server.authority).await.is_err());
    let mut new = MatchmakingServiceClient::new(server.channel(&next).await.unwrap());
    new.search(search_request()).await.unwrap();
}

type TlsVersions = &'static [&'static SupportedProtocolVersion];

const TLS_1_3: TlsVersions = &[&version::TLS13];
const TLS_1_2: TlsVersions = &[&version::TLS12];

/// TLS client configuration that trusts `authority`, with an optional client certificate and these protocol versions.
fn client_config(
    authority: &CertificateAuthority,
    certificate: Option<&CertificateAndKey>,
    versions: TlsVersions,
) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots);
    match certificate {
        None => builder.with_no_client_auth(),
        Some(certificate) => {
            let chain = vec![CertificateDer::from_pem_slice(certificate.certificate.as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(certificate.key.as_bytes()).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    }
}

/// TLS connector without ALPN.
pub(crate) fn tls_connector(authority: &CertificateAuthority, certificate: Option<&CertificateAndKey>) -> TlsConnector {
    TlsConnector::from(Arc::new(client_config(authority, certificate, TLS_1_3)))
}

async fn connect_tls(
    to: SocketAddr,
    authority: &CertificateAuthority,
    certificate: Option<&CertificateAndKey>,
    versions: TlsVersions,
) -> TlsStream<TcpStream> {
    let mut config = client_config(authority, certificate, versions);
    config.alpn_protocols = vec![b"h2".to_vec()];
    let socket = TcpStream::connect(to).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, socket).await.unwrap()
}

fn listen_tls(tls: Arc<ReloadableTlsConfig>, observer: &Arc<RecordingObserver>) -> IncomingConnections {
    let stop = CancellationToken::new();
    let clock = Arc::new(SystemClock::start());
    let handshaker = ConnectionHandshaker::new(
        Arc::default(),
        clock,
        observer.clone(),
        stop,
        Some(tls),
        ProxySettings::without_proxies(),
    );
    IncomingConnections::bind(&["127.0.0.1:0".parse().unwrap()], handshaker).unwrap()
}

async fn next_peer(incoming: &mut IncomingConnections) -> ConnectionPeer {
    let next = tokio::time::timeout(TEST_TIMEOUT, incoming.next()).await.expect("a connection in time");
    next.unwrap().unwrap().connect_info()
}

/// A1, A2: a client certificate from a known CA is passed on with the peer; a peer without one is accepted.
#[tokio::test]
async fn client_certificate_is_verified_and_passed_to_the_api() {
    let folder = tempfile::tempdir().unwrap();
    let (server_ca, client_ca) = (CertificateAuthority::new("server"), CertificateAuthority::new("clients"));
    let observer = Arc::new(RecordingObserver::default());
    let mut incoming = listen_tls(open_acceptor(&folder, &server_ca.server_certificate(), Some(&client_ca)), &observer);
    let address = incoming.address();
    let certificate = client_ca.client_certificate("fireteam://game_server/7");
    let expected = CertificateDer::from_pem_slice(certificate.certificate.as_bytes()).unwrap();
    for versions in [TLS_1_3, TLS_1_2] {
        let connecting = connect_tls(address, &server_ca, Some(&certificate), versions);
        let (peer, client) = tokio::join!(next_peer(&mut incoming), connecting);
        assert_eq!(peer.certificate.as_deref(), Some(expected.as_ref()));
        assert_eq!(client.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    }
    let (peer, _client) = tokio::join!(next_peer(&mut incoming), connect_tls(address, &server_ca, None, TLS_1_3));
    assert_eq!(peer.certificate, None);

    let forged = CertificateAuthority::new("clients").client_certificate("fireteam://operator/1");
    let connecting = tokio::spawn(async move { drop(connect_tls(address, &server_ca, Some(&forged), TLS_1_3).await) });
    tokio::select! {
        _ = incoming.next() => panic!("a certificate of an unknown CA was accepted"),
        () = observer.wait_for_rejection("tls") => {}
    }
    connecting.await.unwrap();
}

/// SEC-15: a secret that Kubernetes mounts with `fsGroup` belongs to root and is readable by its group: it is accepted.
#[cfg(unix)]
#[test]
fn tls_key_owned_by_root_may_be_readable_by_its_group() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) =
        write_server_certificate(folder.path(), &CertificateAuthority::new("server").server_certificate());
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o440)).unwrap();
    let is_roots = std::fs::metadata(&key).unwrap().uid() == 0;
    let opened = ReloadableTlsConfig::open(config::TlsFiles { certificate, key, client_ca: None });
    assert_eq!(opened.is_ok(), is_roots, "{opened:?}");
}

/// An error about a wrong file names the file and the expected content. A key readable by others is refused.
#[test]
fn tls_file_errors_name_the_file_and_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let certificate = CertificateAuthority::new("server").server_certificate();
    let error = |certificate: &str, key: &str, client_ca: Option<&str>| {
        let (certificate_file, key_file) = (folder.path().join("server.pem"), folder.path().join("server.key"));
        let ca_file = folder.path().join("clients.pem");
        write_private_file(&certificate_file, certificate);
        write_private_file(&key_file, key);
        write_private_file(&ca_file, client_ca.unwrap_or_default());
        let client_ca = client_ca.map(|_| ca_file);
        let error =
            ReloadableTlsConfig::open(config::TlsFiles { certificate: certificate_file, key: key_file, client_ca });
        let error = error.unwrap_err().to_string();
        assert!(!error.contains('\n') && !error.contains("MII"), "{error}");
        error
    };
    let check =
        |error: String, file: &str, remedy: &str| assert!(error.contains(file) && error.contains(remedy), "{error}");
    check(error("", &certificate.key, None), "server.pem", "expected certificates as PEM");
    check(error(&certificate.key, &certificate.key, None), "server.pem", "expected certificates as PEM");
    check(error(&certificate.certificate, "", None), "server.key", "expected one private key as PEM");
    check(error(&certificate.certificate, &certificate.key, Some("")), "clients.pem", "expected certificates as PEM");
    let other = CertificateAuthority::new("other").server_certificate();
    check(error(&certificate.certificate, &other.key, None), "server.key", "the key must be that certificate's");

    let absent = config::TlsFiles { certificate: "no.pem".into(), key: "no.key".into(), client_ca: None };
    check(ReloadableTlsConfig::open(absent).unwrap_err().to_string(), "no.pem", "TLS certificate");

    #[cfg(unix)]
    for mode in [0o644, 0o660, 0o604] {
        let (certificate, key) = write_server_certificate(folder.path(), &certificate);
        std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        let remedy = format!("chmod 600 {}", key.display());
        check(
            ReloadableTlsConfig::open(config::TlsFiles { certificate, key, client_ca: None }).unwrap_err().to_string(),
            "",
            &remedy,
        );
    }
}
