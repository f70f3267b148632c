//! Message authentication codes: truncated HMAC-SHA256.

use hmac::{Hmac, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

/// First `N` bytes of HMAC-SHA256 over the parts, one after another.
pub(crate) fn mac<const N: usize>(key: &[u8], parts: &[&[u8]]) -> [u8; N] {
    let mut hmac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    parts.iter().for_each(|part| hmac.update(part));
    let code = hmac.finalize().into_bytes();
    *code.first_chunk().expect("at most 32 bytes")
}

/// Whether `code` is the code of the parts, in a time that does not depend on where it differs.
pub(crate) fn is_mac<const N: usize>(key: &[u8], parts: &[&[u8]], code: &[u8; N]) -> bool {
    mac::<N>(key, parts).ct_eq(code).into()
}
