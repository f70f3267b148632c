//! Security settings: TLS files and JWT verification.

use std::path::PathBuf;

/// TLS certificate files. They are reloaded when they change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificate chain of the server, PEM.
    pub certificate: PathBuf,
    /// Private key of the certificate, PEM.
    pub key: PathBuf,
    /// CA certificates for verifying client certificates, PEM; `None` to not request client certificates.
    pub client_ca: Option<PathBuf>,
}

/// JWT verification. The key files are reloaded when they change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtSettings {
    /// Public keys, PEM or JWKS.
    pub keys: Vec<PathBuf>,
    /// Required `iss` claim.
    pub issuer: String,
    /// Audience that `aud` must contain.
    pub audience: String,
}
