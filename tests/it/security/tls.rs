//! TLS on both ports: who gets in, who does not, and certificates that are replaced while connections live.

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
use fireteam::server::tls::TlsAcceptorSource;

use crate::support::certs::{CertificateAuthority, CertificateAndKey, write_private_file, write_server_certificate};
use crate::support::generated_client::matchmaking_service_client::MatchmakingServiceClient;
use crate::support::scripted_server::{RecordingObserver, TEST_TIMEOUT, ScriptedServer, search_request};
use crate::api::limits_wire::read_until_closed;

/// A server that encrypts, and who signed its certificate.
struct TlsServer {
    server: ScriptedServer,
    tls: Arc<TlsAcceptorSource>,
    authority: CertificateAuthority,
    folder: TempDir,
}

fn open_acceptor(folder: &TempDir, papers: &CertificateAndKey, client_ca: Option<&CertificateAuthority>) -> Arc<TlsAcceptorSource> {
    let (certificate, key) = write_server_certificate(folder.path(), papers);
    let client_ca = client_ca.map(|authority| {
        let file = folder.path().join("clients.pem");
        write_private_file(&file, &authority.pem);
        file
    });
    Arc::new(TlsAcceptorSource::open(config::TlsFiles { certificate, key, client_ca }).unwrap())
}

impl TlsServer {
    async fn start(edge: EdgeLimits) -> Self {
        let (folder, authority) = (tempfile::tempdir().unwrap(), CertificateAuthority::new("house"));
        let tls = open_acceptor(&folder, &authority.server_certificate(), None);
        let stage = ScriptedServer::start_with_tls_and_proxies(edge, Some(tls.clone()), ProxySettings::none()).await;
        Self { server: stage, tls, authority, folder }
    }

    /// A new connection of somebody who believes `authority`.
    async fn channel(&self, authority: &CertificateAuthority) -> Result<Channel, Error> {
        let ca = Certificate::from_pem(&authority.pem);
        let tls = ClientTlsConfig::new().ca_certificate(ca).domain_name("localhost");
        let uri = format!("https://{}", self.server.address);
        Endpoint::from_shared(uri).unwrap().tls_config(tls).unwrap().connect().await
    }
}

#[tokio::test]
async fn tls_client_that_trusts_the_ca_is_served() {
    let house = TlsServer::start(EdgeLimits::default()).await;
    let mut client = MatchmakingServiceClient::new(house.channel(&house.authority).await.unwrap());
    client.search(search_request()).await.unwrap();
    let mut operators = TcpStream::connect(house.server.operator_address).await.unwrap();
    operators.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    read_until_closed(&mut operators).await;
    house.server.observer.wait_for_rejection("tls").await;
}

#[tokio::test]
async fn tls_client_that_trusts_another_ca_fails_to_connect() {
    let house = TlsServer::start(EdgeLimits::default()).await;
    assert!(house.channel(&CertificateAuthority::new("somebody else")).await.is_err());
    house.server.observer.wait_for_rejection("tls").await;
    house.channel(&house.authority).await.unwrap();

    write_server_certificate(house.folder.path(), &house.authority.expired_server_certificate());
    house.tls.reload().unwrap();
    assert!(house.channel(&house.authority).await.is_err(), "a certificate that has run out is none");
}

#[tokio::test]
async fn tls_port_rejects_plaintext() {
    let house = TlsServer::start(EdgeLimits::default()).await;
    let mut socket = house.server.raw_connection().await;
    socket.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let said = read_until_closed(&mut socket).await;
    assert!(!said.windows(9).any(|bytes| bytes[3..] == [4, 0, 0, 0, 0, 0]), "no SETTINGS in {said:?}");
    house.server.observer.wait_for_rejection("tls").await;
    house.channel(&house.authority).await.unwrap();
}

/// SEC-1: TLS stall. Neither silence nor half a greeting keeps a connection.
#[tokio::test]
async fn tls_handshake_times_out() {
    let house =
        TlsServer::start(EdgeLimits { first_bytes_timeout: Duration::from_millis(100), ..EdgeLimits::default() }).await;
    for half_a_greeting in [&b""[..], b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03"] {
        let mut socket = house.server.raw_connection().await;
        socket.write_all(half_a_greeting).await.unwrap();
        assert_eq!(read_until_closed(&mut socket).await, b"");
    }
    house.server.observer.wait_for_rejection("handshake_timeout").await;
}

/// SEC-2: those who come and say nothing cannot keep out whoever comes after them.
#[tokio::test]
async fn tls_handshake_limit_drops_the_oldest() {
    let patient =
        EdgeLimits { first_bytes_timeout: Duration::from_secs(3_600), handshakes_max: 2, ..EdgeLimits::default() };
    let house = TlsServer::start(patient).await;
    let mut silent = house.server.raw_connection().await;
    let (_second, _third) = (house.server.raw_connection().await, house.server.raw_connection().await);
    assert_eq!(read_until_closed(&mut silent).await, b"");
    house.server.observer.wait_for_rejection("max_handshakes").await;
    house.channel(&house.authority).await.expect("others are in nobody's way");
}

/// A1: certificates are renewed without a restart; connections that are open keep theirs; a bad pair changes nothing.
#[tokio::test]
async fn tls_certificate_reload_keeps_open_connections() {
    let house = TlsServer::start(EdgeLimits::default()).await;
    let mut old = MatchmakingServiceClient::new(house.channel(&house.authority).await.unwrap());
    old.search(search_request()).await.unwrap();

    let next = CertificateAuthority::new("next");
    let papers = next.server_certificate();
    write_private_file(&house.folder.path().join("server.pem"), &papers.certificate);
    let said = house.tls.reload().unwrap_err().to_string();
    assert!(said.contains("server.pem") && said.contains("server.key") && !said.contains('\n'), "{said}");
    house.channel(&house.authority).await.expect("the old pair is still in use");

    write_private_file(&house.folder.path().join("server.key"), &papers.key);
    house.tls.reload().unwrap();
    old.search(search_request()).await.expect("an open connection is not touched");
    assert!(house.channel(&house.authority).await.is_err());
    let mut new = MatchmakingServiceClient::new(house.channel(&next).await.unwrap());
    new.search(search_request()).await.unwrap();
}

type TlsVersions = &'static [&'static SupportedProtocolVersion];

const TLS_1_3: TlsVersions = &[&version::TLS13];
const TLS_1_2: TlsVersions = &[&version::TLS12];

/// How to connect by hand as somebody who believes `authority`, has `papers` to show, and speaks `versions`.
fn client_config(authority: &CertificateAuthority, papers: Option<&CertificateAndKey>, versions: TlsVersions) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots);
    match papers {
        None => builder.with_no_client_auth(),
        Some(papers) => {
            let chain = vec![CertificateDer::from_pem_slice(papers.certificate.as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(papers.key.as_bytes()).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    }
}

/// The same, for whoever asks for no protocol.
pub(crate) fn tls_connector(authority: &CertificateAuthority, papers: Option<&CertificateAndKey>) -> TlsConnector {
    TlsConnector::from(Arc::new(client_config(authority, papers, TLS_1_3)))
}

async fn connect_tls(
    to: SocketAddr,
    authority: &CertificateAuthority,
    papers: Option<&CertificateAndKey>,
    versions: TlsVersions,
) -> TlsStream<TcpStream> {
    let mut config = client_config(authority, papers, versions);
    config.alpn_protocols = vec![b"h2".to_vec()];
    let socket = TcpStream::connect(to).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, socket).await.unwrap()
}

fn listen_tls(tls: Arc<TlsAcceptorSource>, counted: &Arc<RecordingObserver>) -> IncomingConnections {
    let stop = CancellationToken::new();
    let clock = Arc::new(SystemClock::start());
    let entrance =
        ConnectionHandshaker::new(Arc::default(), clock, counted.clone(), stop, Some(tls), ProxySettings::none());
    IncomingConnections::bind("127.0.0.1:0".parse().unwrap(), entrance).unwrap()
}

async fn next_peer(incoming: &mut IncomingConnections) -> ConnectionPeer {
    let next = tokio::time::timeout(TEST_TIMEOUT, incoming.next()).await.expect("it arrives");
    next.unwrap().unwrap().connect_info()
}

/// A1, A2: a certificate that a known authority signed is who the peer is; none is nobody, and is let in.
#[tokio::test]
async fn client_certificate_is_verified_and_passed_to_the_api() {
    let folder = tempfile::tempdir().unwrap();
    let (house, clients) = (CertificateAuthority::new("house"), CertificateAuthority::new("clients"));
    let counted = Arc::new(RecordingObserver::default());
    let mut incoming = listen_tls(open_acceptor(&folder, &house.server_certificate(), Some(&clients)), &counted);
    let at = incoming.address();
    let papers = clients.client_certificate("fireteam://game_server/7");
    let shown = CertificateDer::from_pem_slice(papers.certificate.as_bytes()).unwrap();
    for versions in [TLS_1_3, TLS_1_2] {
        let connecting = connect_tls(at, &house, Some(&papers), versions);
        let (peer, client) = tokio::join!(next_peer(&mut incoming), connecting);
        assert_eq!(peer.certificate.as_deref(), Some(shown.as_ref()));
        assert_eq!(client.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    }
    let (peer, _client) = tokio::join!(next_peer(&mut incoming), connect_tls(at, &house, None, TLS_1_3));
    assert_eq!(peer.certificate, None);

    let forged = CertificateAuthority::new("clients").client_certificate("fireteam://operator/1");
    let connecting = tokio::spawn(async move { drop(connect_tls(at, &house, Some(&forged), TLS_1_3).await) });
    tokio::select! {
        _ = incoming.next() => panic!("a certificate that nobody known has signed is let in"),
        () = counted.wait_for_rejection("tls") => {}
    }
    connecting.await.unwrap();
}

/// SEC-15: a secret that Kubernetes has mounted with `fsGroup` is root's, and its group reads it: that will do.
#[cfg(unix)]
#[test]
fn tls_key_owned_by_root_may_be_readable_by_its_group() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = write_server_certificate(folder.path(), &CertificateAuthority::new("house").server_certificate());
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o440)).unwrap();
    let is_roots = std::fs::metadata(&key).unwrap().uid() == 0;
    let opened = TlsAcceptorSource::open(config::TlsFiles { certificate, key, client_ca: None });
    assert_eq!(opened.is_ok(), is_roots, "{opened:?}");
}

/// A file that is wrong is named, with what it should hold; and a key that others can read is none.
#[test]
fn tls_file_errors_name_the_file_and_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let papers = CertificateAuthority::new("house").server_certificate();
    let said = |certificate: &str, key: &str, client_ca: Option<&str>| {
        let (certificate_file, key_file) = (folder.path().join("server.pem"), folder.path().join("server.key"));
        let ca_file = folder.path().join("clients.pem");
        write_private_file(&certificate_file, certificate);
        write_private_file(&key_file, key);
        write_private_file(&ca_file, client_ca.unwrap_or_default());
        let client_ca = client_ca.map(|_| ca_file);
        let said =
            TlsAcceptorSource::open(config::TlsFiles { certificate: certificate_file, key: key_file, client_ca });
        let said = said.unwrap_err().to_string();
        assert!(!said.contains('\n') && !said.contains("MII"), "{said}");
        said
    };
    let check =
        |said: String, file: &str, remedy: &str| assert!(said.contains(file) && said.contains(remedy), "{said}");
    check(said("", &papers.key, None), "server.pem", "expected certificates as PEM");
    check(said(&papers.key, &papers.key, None), "server.pem", "expected certificates as PEM");
    check(said(&papers.certificate, "", None), "server.key", "expected one private key as PEM");
    check(said(&papers.certificate, &papers.key, Some("")), "clients.pem", "expected certificates as PEM");
    let other = CertificateAuthority::new("other").server_certificate();
    check(said(&papers.certificate, &other.key, None), "server.key", "the key must be that certificate's");

    let absent = config::TlsFiles { certificate: "no.pem".into(), key: "no.key".into(), client_ca: None };
    check(TlsAcceptorSource::open(absent).unwrap_err().to_string(), "no.pem", "TLS certificate");

    #[cfg(unix)]
    for mode in [0o644, 0o660, 0o604] {
        let (certificate, key) = write_server_certificate(folder.path(), &papers);
        std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        let remedy = format!("chmod 600 {}", key.display());
        check(
            TlsAcceptorSource::open(config::TlsFiles { certificate, key, client_ca: None }).unwrap_err().to_string(),
            "",
            &remedy,
        );
    }
}
