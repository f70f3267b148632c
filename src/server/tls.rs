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
const PEM_FILE_BYTES_MAX: u64 = 1024 * 1024;
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
    KeyReadableByOthers {
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
    CertificateKeyMismatch {
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
pub struct TlsAcceptorSource {
    files: config::TlsFiles,
    current_config: ArcSwap<ServerConfig>,
}

const CERTIFICATE_LABEL: &str = "TLS certificate";
const KEY_LABEL: &str = "TLS key";
const CLIENT_CA_LABEL: &str = "TLS client CA";

impl TlsAcceptorSource {
    /// Reads the files.
    pub fn open(files: config::TlsFiles) -> Result<Self, TlsError> {
        let current = ArcSwap::from(load_server_config(&files)?);
        Ok(Self { files, current_config: current })
    }

    /// Reads the files again. When that fails, what was there before stays. Connections that are open are not touched.
    pub fn reload(&self) -> Result<(), TlsError> {
        self.current_config.store(load_server_config(&self.files)?);
        Ok(())
    }

    /// What the next connection is encrypted with.
    pub fn current_config(&self) -> Arc<ServerConfig> {
        self.current_config.load_full()
    }

    /// The files, for whoever watches them.
    pub fn files_to_watch(files: &config::TlsFiles) -> Vec<PathBuf> {
        [&files.certificate, &files.key].into_iter().chain(&files.client_ca).cloned().collect()
    }
}

fn load_server_config(files: &config::TlsFiles) -> Result<Arc<ServerConfig>, TlsError> {
    let chain = read_certificates(&files.certificate, CERTIFICATE_LABEL)?;
    let key = read_private_key(&files.key)?;
    let unusable =
        |why| TlsError::CertificateKeyMismatch { certificate: files.certificate.clone(), key: files.key.clone(), why };
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(unusable)?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(file) => builder.with_client_cert_verifier(client_certificate_verifier(file, provider)?),
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
fn client_certificate_verifier(
    file: &Path,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn rustls::server::danger::ClientCertVerifier>, TlsError> {
    let expected = "a certificate in it cannot sign others: expected those of certificate authorities, as PEM";
    let malformed = || TlsError::Malformed { what: CLIENT_CA_LABEL, file: file.into(), expected };
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates(file, CLIENT_CA_LABEL)? {
        roots.add(certificate).map_err(|_| malformed())?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .allow_unauthenticated()
        .build()
        .map_err(|_| malformed())
}

fn read_certificates(file: &Path, what: &'static str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let expected = "expected certificates as PEM, beginning with `-----BEGIN CERTIFICATE-----`";
    let malformed = || TlsError::Malformed { what, file: file.into(), expected };
    let text = read_pem_file(file, what, |_| Ok(()))?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).take(CERTIFICATES_MAX).collect();
    read.ok().filter(|certificates| !certificates.is_empty()).ok_or_else(malformed)
}

fn read_private_key(file: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let expected = "expected one private key as PEM, such as `-----BEGIN PRIVATE KEY-----`, without a password";
    let text = read_pem_file(file, KEY_LABEL, |open| match is_exposed(open) {
        Ok(false) => Ok(()),
        Ok(true) => Err(TlsError::KeyReadableByOthers { file: file.into() }),
        Err(why) => Err(TlsError::Io { what: KEY_LABEL, file: file.into(), why }),
    })?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|_| TlsError::Malformed {
        what: KEY_LABEL,
        file: file.into(),
        expected,
    })
}

fn read_pem_file(
    file: &Path,
    what: &'static str,
    check: impl FnOnce(&File) -> Result<(), TlsError>,
) -> Result<Vec<u8>, TlsError> {
    let io_error = |why| TlsError::Io { what, file: file.into(), why };
    let open = File::open(file).map_err(io_error)?;
    check(&open)?;
    let mut text = Vec::new();
    open.take(PEM_FILE_BYTES_MAX).read_to_end(&mut text).map_err(io_error)?;
    Ok(text)
}
