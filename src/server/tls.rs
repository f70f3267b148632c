//! TLS for both ports: the certificate and its key from their files, read again when these change.
//!
//! TLS 1.3, and 1.2 for whoever has nothing newer; never early data, which whoever listens could send again.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig};
use thiserror::Error;

use crate::auth::key_file::is_exposed;
use crate::config;

/// Bytes in a file at most: a bundle of many certificate authorities.
const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// Certificates that are read of a file at most.
const CERTIFICATES_MAX: usize = 256;

/// Why certificates cannot be used. Each message is one line, names the file and says what would be right.
#[derive(Debug, Error)]
pub enum TlsError {
    /// It cannot be read.
    #[error("{what} {}: {why}", file.display())]
    Io {
        /// What it is for.
        what: &'static str,
        /// Which file.
        file: PathBuf,
        /// What the system said.
        #[source]
        why: io::Error,
    },
    /// Others than its owner may read the key.
    #[error("TLS key {0} can be read by others: run `chmod 600 {0}`", file.display())]
    Exposed {
        /// Which file.
        file: PathBuf,
    },
    /// It holds something else than it should. Its content is never shown.
    #[error("{what} {}: {expected}", file.display())]
    Malformed {
        /// What it is for.
        what: &'static str,
        /// Which file.
        file: PathBuf,
        /// What it should hold.
        expected: &'static str,
    },
    /// All could be read, and it does not go together.
    #[error("TLS certificate {} with key {}: {why}; the file must hold the server's own certificate first, and the key must be that certificate's", certificate.display(), key.display())]
    Unusable {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// What TLS said.
        #[source]
        why: rustls::Error,
    },
}

/// What connections are encrypted with; the newest that could be read.
#[derive(Debug)]
pub struct Tls {
    files: config::Tls,
    current: ArcSwap<ServerConfig>,
}

const CERTIFICATE: &str = "TLS certificate";
const KEY: &str = "TLS key";
const CLIENT_CA: &str = "TLS client CA";

impl Tls {
    /// Reads the files.
    pub fn open(files: config::Tls) -> Result<Self, TlsError> {
        let current = ArcSwap::from(load(&files)?);
        Ok(Self { files, current })
    }

    /// Reads the files again. When that fails, what was there before stays. Connections that are open are not touched.
    pub fn reload(&self) -> Result<(), TlsError> {
        self.current.store(load(&self.files)?);
        Ok(())
    }

    /// What the next connection is encrypted with.
    pub fn current(&self) -> Arc<ServerConfig> {
        self.current.load_full()
    }

    /// The files, for whoever watches them.
    pub fn files(files: &config::Tls) -> Vec<PathBuf> {
        [&files.certificate, &files.key].into_iter().chain(&files.client_ca).cloned().collect()
    }
}

fn load(files: &config::Tls) -> Result<Arc<ServerConfig>, TlsError> {
    let chain = certificates(&files.certificate, CERTIFICATE)?;
    let key = key(&files.key)?;
    let unusable = |why| TlsError::Unusable { certificate: files.certificate.clone(), key: files.key.clone(), why };
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(unusable)?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(file) => builder.with_client_cert_verifier(verifier(file, provider)?),
    };
    let mut config = builder.with_single_cert(chain, key).map_err(unusable)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    if files.client_ca.is_some() {
        // A resumed session shows no certificate again: one that has run out since would still count.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(Arc::new(config))
}

/// Asks clients for a certificate and checks those that they show; who shows none is nobody, and is let in as that.
fn verifier(
    file: &Path,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn rustls::server::danger::ClientCertVerifier>, TlsError> {
    let expected = "a certificate in it cannot sign others: expected those of certificate authorities, as PEM";
    let malformed = || TlsError::Malformed { what: CLIENT_CA, file: file.into(), expected };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file, CLIENT_CA)? {
        roots.add(certificate).map_err(|_| malformed())?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .allow_unauthenticated()
        .build()
        .map_err(|_| malformed())
}

fn certificates(file: &Path, what: &'static str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let expected = "expected certificates as PEM, beginning with `-----BEGIN CERTIFICATE-----`";
    let malformed = || TlsError::Malformed { what, file: file.into(), expected };
    let text = read(file, what, |_| Ok(()))?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).take(CERTIFICATES_MAX).collect();
    read.ok().filter(|certificates| !certificates.is_empty()).ok_or_else(malformed)
}

fn key(file: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let expected = "expected one private key as PEM, such as `-----BEGIN PRIVATE KEY-----`, without a password";
    let text = read(file, KEY, |open| match is_exposed(open) {
        Ok(false) => Ok(()),
        Ok(true) => Err(TlsError::Exposed { file: file.into() }),
        Err(why) => Err(TlsError::Io { what: KEY, file: file.into(), why }),
    })?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|_| TlsError::Malformed { what: KEY, file: file.into(), expected })
}

fn read(
    file: &Path,
    what: &'static str,
    check: impl FnOnce(&File) -> Result<(), TlsError>,
) -> Result<Vec<u8>, TlsError> {
    let io_error = |why| TlsError::Io { what, file: file.into(), why };
    let open = File::open(file).map_err(io_error)?;
    check(&open)?;
    let mut text = Vec::new();
    open.take(FILE_BYTES_MAX).read_to_end(&mut text).map_err(io_error)?;
    Ok(text)
}
