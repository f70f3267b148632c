//! Errors of an invalid configuration.

use std::path::PathBuf;

use thiserror::Error;

use crate::config::listen_address::ListenAddress;

/// Invalid configuration. Each message says how to fix it.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: cannot be read: {error}; check the path and its permissions", file.display())]
    UnreadableFile {
        /// File.
        file: PathBuf,
        /// I/O error.
        error: std::io::Error,
    },
    /// The file is not TOML, or a value has the wrong type.
    #[error("{}: {message}", file.display())]
    InvalidToml {
        /// File.
        file: PathBuf,
        /// Position and problem.
        message: String,
    },
    /// Unknown key.
    #[error("{origin}: unknown key `{key}`; {}", unknown_key_fix(suggestion.as_deref()))]
    UnknownKey {
        /// The file, or `environment`.
        origin: String,
        /// Key as written.
        key: String,
        /// Closest known key, if any.
        suggestion: Option<String>,
    },
    /// Invalid value.
    #[error("{key}: {message}")]
    InvalidValue {
        /// Setting.
        key: &'static str,
        /// Problem and fix.
        message: String,
    },
    /// Public address without TLS or authentication.
    #[error(
        "{key} = {address} can be reached from outside, and calls are not {}; or use a loopback address such as 127.0.0.1",
        missing.join(", and not ")
    )]
    InsecurePublicAddress {
        /// `listen` or `operator_listen`.
        key: &'static str,
        /// Address.
        address: ListenAddress,
        /// Missing protections, each with the flags that add it.
        missing: Vec<&'static str>,
    },
}

fn unknown_key_fix(suggestion: Option<&str>) -> String {
    suggestion.map_or("remove it".into(), |name| format!("did you mean `{name}`?"))
}
