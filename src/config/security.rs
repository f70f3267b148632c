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
    /// Issuers of tokens; at least one. At most one signs for the role `client`, since a player's account is the subject
    /// alone.
    pub issuers: Vec<TokenIssuer>,
}

/// Issuer of tokens, with keys that sign for no other issuer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenIssuer {
    /// Required `iss` claim.
    pub name: String,
    /// Audience that `aud` must contain.
    pub audience: String,
    /// Files with its public keys.
    pub keys: Vec<VerifyingKeyFile>,
}

/// File with public keys, PEM or JWKS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyingKeyFile {
    /// Path.
    pub file: PathBuf,
    /// Names of the roles that the keys sign for; empty for all.
    pub roles: Vec<&'static str>,
}

/// Roles that a key file may be limited to.
const KEY_ROLES: [&str; 4] = ["client", "game_server", "operator", "viewer"];

impl JwtSettings {
    /// One issuer whose keys sign for all roles.
    pub fn of_one_issuer(name: &str, audience: &str, files: &[PathBuf]) -> Self {
        let keys = files.iter().map(|file| VerifyingKeyFile { file: file.clone(), roles: Vec::new() }).collect();
        Self { issuers: vec![TokenIssuer { name: name.into(), audience: audience.into(), keys }] }
    }
}

impl TokenIssuer {
    /// Whether a key of the issuer signs for the role.
    pub(super) fn signs_for_role(&self, role: &str) -> bool {
        self.keys.iter().any(|keys| keys.roles.is_empty() || keys.roles.contains(&role))
    }
}

impl VerifyingKeyFile {
    /// Parses `FILE` or `ROLE+ROLE=FILE`. The error says how to write it.
    pub(super) fn parse(entry: PathBuf) -> Result<Self, String> {
        let Some((names, file)) = entry.to_str().and_then(|text| text.split_once('=')) else {
            return Ok(Self { file: entry, roles: Vec::new() });
        };
        // A path with a `/` or a `.` before the `=` is no list of roles.
        if names.contains(['/', '\\', '.']) {
            return Ok(Self { file: entry, roles: Vec::new() });
        }
        let role = |name: &str| {
            KEY_ROLES.into_iter().find(|role| *role == name.trim()).ok_or_else(|| {
                let roles = KEY_ROLES.join(", ");
                format!(
                    "`{name}` is not a role; write ROLE=FILE or ROLE+ROLE=FILE with {roles}, or ./{names}=… for a file"
                )
            })
        };
        let roles = names.split('+').map(role).collect::<Result<Vec<_>, _>>()?;
        if file.is_empty() {
            return Err(format!("`{names}=` names no file; write {names}=FILE"));
        }
        Ok(Self { file: file.into(), roles })
    }

    /// The entry that `parse` reads as this.
    pub(super) fn to_setting(&self) -> PathBuf {
        if self.roles.is_empty() {
            return self.file.clone();
        }
        format!("{}={}", self.roles.join("+"), self.file.display()).into()
    }
}
