//! Certificates for tests, made when they are needed: an authority, and what it signs, as files.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType, date_time_ymd,
};

/// Whoever signs.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its certificate, PEM.
    pub(crate) pem: String,
}

/// A certificate and its key, PEM.
pub(crate) struct Papers {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// For a server that is called `localhost` and 127.0.0.1.
    pub(crate) fn server(&self) -> Papers {
        self.sign(server_params())
    }

    /// The same, but it has run out.
    pub(crate) fn expired_server(&self) -> Papers {
        let mut params = server_params();
        params.not_before = date_time_ymd(2019, 1, 1);
        params.not_after = date_time_ymd(2020, 1, 1);
        self.sign(params)
    }

    /// For a client that is known by `uri`.
    pub(crate) fn client(&self, uri: &str) -> Papers {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.subject_alt_names.push(SanType::URI(uri.try_into().unwrap()));
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth);
        self.sign(params)
    }

    fn sign(&self, params: CertificateParams) -> Papers {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Papers { certificate, key: key.serialize_pem() }
    }
}

fn server_params() -> CertificateParams {
    let mut params = CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
    params
}

/// Writes a file for its owner's eyes alone, by renaming, as whoever renews certificates does.
pub(crate) fn write(path: &Path, text: &str) {
    let draft = path.with_extension("draft");
    fs::write(&draft, text).unwrap();
    #[cfg(unix)]
    fs::set_permissions(&draft, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    fs::rename(&draft, path).unwrap();
}

/// Writes a server's papers into `folder`: the certificate's file and the key's.
pub(crate) fn write_server(folder: &Path, papers: &Papers) -> (PathBuf, PathBuf) {
    let (certificate, key) = (folder.join("server.pem"), folder.join("server.key"));
    write(&key, &papers.key);
    write(&certificate, &papers.certificate);
    (certificate, key)
}
