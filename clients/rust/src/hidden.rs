//! Secrets in `Debug` output: only their lengths are printed.

use std::fmt;

/// Length of a secret, for `Debug`.
pub(crate) struct Hidden(Option<usize>);

/// Secret with a length.
pub(crate) trait Secret {
    /// Length in bytes; `None` if absent.
    fn length(&self) -> Option<usize>;
}

impl Secret for Vec<u8> {
    fn length(&self) -> Option<usize> {
        Some(self.len())
    }
}

impl Secret for String {
    fn length(&self) -> Option<usize> {
        Some(self.len())
    }
}

impl<S: Secret> Secret for Option<S> {
    fn length(&self) -> Option<usize> {
        self.as_ref().and_then(Secret::length)
    }
}

/// Replaces a secret in `Debug` output.
pub(crate) fn hidden(secret: &impl Secret) -> Hidden {
    Hidden(secret.length())
}

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("None"),
            Some(0) => f.write_str("empty"),
            Some(length) => write!(f, "hidden, {length} bytes"),
        }
    }
}
