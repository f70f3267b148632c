//! TLS configuration of both ports, from certificate and key files that are reloaded when they change.
//!
//! TLS 1.3, and 1.2 for older clients. No early data, because an eavesdropper could replay it.

use std::io;
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

use crate::auth::key_file::is_readable_by_others;
use crate::config;
use crate::files::{READ_DEADLINE, read_file_start, read_start, with_regular_file};

/// Size limit of a PEM file, bytes: a bundle of many CA certificates.
const PEM_FILE_BYTES_MAX: u64 = 1024 * 1024;
/// Limit of certificates read from a file.
const CERTIFICATES_MAX: usize = 256;

/// Reason why TLS files cannot be used. Each message is one line and names the file and the remedy.
#[derive(Debug, Error)]
pub enum TlsError {
    /// The file cannot be read.
    #[error("{file_kind} {}: {error}; check path and permissions", file.display())]
    Io {
        /// Kind of file, such as `TLS key`.
        file_kind: &'static str,
        /// Path of the file.
        file: PathBuf,
        /// Error of the operating system.
        error: io::Error,
    },
    /// The key file is readable by other users.
    #[error("TLS key {0} is readable by other users; run `chmod 600 {0}`", file.display())]
    KeyReadableByOthers {
        /// Path of the key file.
        file: PathBuf,
    },
    /// The file has other content than expected. The content is never disclosed.
    #[error("{file_kind} {}: {expected}", file.display())]
    Malformed {
        /// Kind of file, such as `TLS key`.
        file_kind: &'static str,
        /// Path of the file.
        file: PathBuf,
        /// Expected content.
        expected: &'static str,
    },
    /// Each file is valid, but certificate and key do not belong together.
    #[error("TLS certificate {} with key {}: {error}; the file must hold the server's own certificate first, and the key must be that certificate's", certificate.display(), key.display())]
    CertificateKeyMismatch {
        /// Path of the certificate file.
        certificate: PathBuf,
        /// Path of the key file.
        key: PathBuf,
        /// Error of the TLS library.
        error: rustls::Error,
    },
}

/// TLS configuration for new connections, reloadable.
#[derive(Debug)]
pub struct ReloadableTlsConfig {
    files: config::TlsFiles,
    current_config: ArcSwap<ServerConfig>,
}

const CERTIFICATE_FILE_KIND: &str = "TLS certificate";
const KEY_FILE_KIND: &str = "TLS key";
const CLIENT_CA_FILE_KIND: &str = "TLS client CA";

impl ReloadableTlsConfig {
    /// Loads the files.
    pub fn open(files: config::TlsFiles) -> Result<Self, TlsError> {
        let current_config = ArcSwap::from(load_server_config(&files)?);
        Ok(Self { files, current_config })
    }

    /// Reloads the files. On failure the previous configuration stays. Open connections are not affected.
    pub fn reload(&self) -> Result<(), TlsError> {
        self.current_config.store(load_server_config(&self.files)?);
        Ok(())
    }

    /// Configuration for the next connection.
    pub fn current_config(&self) -> Arc<ServerConfig> {
        self.current_config.load_full()
    }

    /// Paths whose changes require a reload.
    pub fn files_to_watch(files: &config::TlsFiles) -> Vec<PathBuf> {
        [&files.certificate, &files.key].into_iter().chain(&files.client_ca).cloned().collect()
    }
}

fn load_server_config(files: &config::TlsFiles) -> Result<Arc<ServerConfig>, TlsError> {
    let chain = read_certificates(&files.certificate, CERTIFICATE_FILE_KIND)?;
    let key = read_private_key(&files.key)?;
    let mismatch = |error| TlsError::CertificateKeyMismatch {
        certificate: files.certificate.clone(),
        key: files.key.clone(),
        error,
    };
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(mismatch)?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(file) => builder.with_client_cert_verifier(optional_client_certificate_verifier(file, provider)?),
    };
    let mut config = builder.with_single_cert(chain, key).map_err(mismatch)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    if files.client_ca.is_some() {
        // A resumed session does not present its certificate again, so an expired certificate would still be accepted.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(Arc::new(config))
}

/// Verifier that requests a client certificate and accepts clients without one as unauthenticated.
fn optional_client_certificate_verifier(
    file: &Path,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn rustls::server::danger::ClientCertVerifier>, TlsError> {
    let expected = "contains a certificate that cannot sign others; expected CA certificates as PEM";
    let malformed = || TlsError::Malformed { file_kind: CLIENT_CA_FILE_KIND, file: file.into(), expected };
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates(file, CLIENT_CA_FILE_KIND)? {
        roots.add(certificate).map_err(|_| malformed())?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .allow_unauthenticated()
        .build()
        .map_err(|_| malformed())
}

fn read_certificates(file: &Path, file_kind: &'static str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let expected = "expected certificates as PEM, beginning with `-----BEGIN CERTIFICATE-----`";
    let malformed = || TlsError::Malformed { file_kind, file: file.into(), expected };
    let io_error = |error| TlsError::Io { file_kind, file: file.into(), error };
    let pem = read_file_start(file, PEM_FILE_BYTES_MAX).map_err(io_error)?;
    let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).take(CERTIFICATES_MAX).collect();
    parsed.ok().filter(|certificates| !certificates.is_empty()).ok_or_else(malformed)
}

fn read_private_key(file: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let expected = "expected one private key as PEM, such as `-----BEGIN PRIVATE KEY-----`, without a password";
    let pem = with_regular_file(file, READ_DEADLINE, |opened| {
        let is_exposed = is_readable_by_others(&opened)?;
        Ok((!is_exposed).then_some(read_start(&opened, PEM_FILE_BYTES_MAX)?))
    });
    let pem = pem
        .map_err(|error| TlsError::Io { file_kind: KEY_FILE_KIND, file: file.into(), error })?
        .ok_or_else(|| TlsError::KeyReadableByOthers { file: file.into() })?;
    PrivateKeyDer::from_pem_slice(&pem).map_err(|_| TlsError::Malformed {
        file_kind: KEY_FILE_KIND,
        file: file.into(),
        expected,
    })
}
