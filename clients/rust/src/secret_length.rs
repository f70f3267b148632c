//! Secrets in `Debug` output: only their lengths are printed.

use std::fmt;

/// Bytes of which `Debug` shows only the number.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SecretBytes(pub Vec<u8>);

impl From<Vec<u8>> for SecretBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for SecretBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug_secret_length(&self.0).fmt(f)
    }
}

/// Length of a secret, for `Debug`.
pub(crate) struct SecretLength(Option<usize>);

/// Secret with a length.
pub(crate) trait SecretWithLength {
    /// Length in bytes; `None` if absent.
    fn length(&self) -> Option<usize>;
}

impl SecretWithLength for Vec<u8> {
    fn length(&self) -> Option<usize> {
        Some(self.len())
    }
}

impl SecretWithLength for String {
    fn length(&self) -> Option<usize> {
        Some(self.len())
    }
}

impl<S: SecretWithLength> SecretWithLength for Option<S> {
    fn length(&self) -> Option<usize> {
        self.as_ref().and_then(SecretWithLength::length)
    }
}

/// Replaces a secret in `Debug` output.
pub(crate) fn debug_secret_length(secret: &impl SecretWithLength) -> SecretLength {
    SecretLength(secret.length())
}

impl fmt::Debug for SecretLength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("None"),
            Some(0) => f.write_str("empty"),
            Some(length) => write!(f, "hidden, {length} bytes"),
        }
    }
}
