//! Ids and reasons as text of fixed size in structures.

use std::ffi::c_char;

use fireteam_client::matching::CallError;

use crate::types::FT_ID_BYTES;

/// Id in a structure.
pub(crate) type IdText = [c_char; FT_ID_BYTES];

/// No id.
pub(crate) const NO_ID: IdText = [0; FT_ID_BYTES];

/// Whether each id fits into a structure of the interface, as text with a zero byte at its end.
pub(crate) fn all_fit_id_text<'a>(mut ids: impl Iterator<Item = &'a String>) -> bool {
    ids.all(|id| id.len() < FT_ID_BYTES && id.bytes().all(|byte| byte.is_ascii_graphic()))
}

/// Text with a zero byte at its end. Longer ids were refused when they arrived.
pub(crate) fn id_text(text: &str) -> IdText {
    let mut bytes = NO_ID;
    for (to, from) in bytes.iter_mut().zip(text.bytes().take(FT_ID_BYTES - 1)) {
        *to = from as c_char;
    }
    bytes
}

/// Reason of a failed call, such as `UNKNOWN_MATCHMAKING_SET`.
pub(crate) fn reason_text(error: &CallError) -> IdText {
    let name = error.reason.as_str_name();
    id_text(name.strip_prefix("ERROR_REASON_").unwrap_or(name))
}
