//! Certificates generated for tests: a certificate authority, and the certificates that it signs, as files.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType, date_time_ymd,
};

/// A certificate authority.
pub(crate) struct CertificateAuthority {
    issuer: Issuer<'static, KeyPair>,
    /// Its own certificate, PEM.
    pub(crate) pem: String,
}

/// A certificate and its key, PEM.
pub(crate) struct CertificateAndKey {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl CertificateAuthority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// Signs a server certificate for `localhost` and 127.0.0.1.
    pub(crate) fn server_certificate(&self) -> CertificateAndKey {
        self.sign(server_certificate_params())
    }

    /// Signs a server certificate that has expired.
    pub(crate) fn expired_server_certificate(&self) -> CertificateAndKey {
        let mut params = server_certificate_params();
        params.not_before = date_time_ymd(2019, 1, 1);
        params.not_after = date_time_ymd(2020, 1, 1);
        self.sign(params)
    }

    /// Signs a client certificate with the URI `uri` as its name.
    pub(crate) fn client_certificate(&self, uri: &str) -> CertificateAndKey {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.subject_alt_names.push(SanType::URI(uri.try_into().unwrap()));
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth);
        self.sign(params)
    }

    fn sign(&self, params: CertificateParams) -> CertificateAndKey {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        CertificateAndKey { certificate, key: key.serialize_pem() }
    }
}

fn server_certificate_params() -> CertificateParams {
    let mut params = CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
    params
}

/// Writes a file readable by its owner only, by rename, as certificate managers do.
pub(crate) fn write_private_file(path: &Path, text: &str) {
    let temporary = path.with_extension("temporary");
    fs::write(&temporary, text).unwrap();
    #[cfg(unix)]
    fs::set_permissions(&temporary, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    fs::rename(&temporary, path).unwrap();
}

/// Writes a server certificate into `folder`. Returns the paths of the certificate and the key.
pub(crate) fn write_server_certificate(folder: &Path, server: &CertificateAndKey) -> (PathBuf, PathBuf) {
    let (certificate, key) = (folder.join("server.pem"), folder.join("server.key"));
    write_private_file(&key, &server.key);
    write_private_file(&certificate, &server.certificate);
    (certificate, key)
}
