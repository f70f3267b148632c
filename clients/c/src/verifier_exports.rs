//! Exported functions of the verifier. They are unsafe for Rust callers: pointers must be as the header says.
#![expect(unsafe_code, reason = "exported names; no unsafe blocks")]
#![expect(clippy::missing_safety_doc, reason = "the header states the rules once for all functions")]

use std::ffi::c_char;

use crate::arguments::bounded_bytes;
use crate::queue_types::{FT_CREDENTIAL_BYTES, FtAdmittedPlayer};
use crate::raw::{Caller, run_exported};
use crate::status::{FT_CREDENTIAL_MALFORMED, FT_ERROR_KEY_SET};
use crate::types::FT_ID_BYTES;
use crate::verifier::FtVerifier;

/// Most bytes of a key set.
const KEY_SET_BYTES_MAX: usize = 65_536;

/// Makes a verifier of the credentials that players present to one game server, offline and each once. `key_set` is the page
/// `/.well-known/jwks.json` of the fireteam server's operator port. `audience` is the id of the game server's own advertisement; for a player
/// who hosts, the player's key; without a host, the match id. It remembers `remembered_max` credentials until they expire, at most 1048576;
/// 0: 16384. `FT_ERROR_KEY_SET`: the key set is none. Free the verifier with `ft_verifier_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_verifier_new(
    key_set: *const u8,
    key_set_length: usize,
    audience: *const c_char,
    remembered_max: usize,
    verifier: *mut *mut FtVerifier,
) -> i32 {
    run_exported(|caller| {
        caller.check_place(verifier)?;
        let audience = caller.text(audience, FT_ID_BYTES)?;
        let key_set = key_set_text(&caller, key_set, key_set_length)?;
        caller.give(verifier, FtVerifier::new(key_set, audience, remembered_max)?)?;
        Ok(0)
    })
}

/// Frees a verifier; null is ignored. Another one does not know the credentials that were used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_verifier_free(verifier: *mut FtVerifier) -> i32 {
    run_exported(|caller| caller.free(verifier).map(|()| 0))
}

/// Replaces the keys, after a rotation or `FT_CREDENTIAL_UNKNOWN_KEY`. Used credentials stay used. After an error the old keys stay.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_verifier_replace_keys(
    verifier: *mut FtVerifier,
    key_set: *const u8,
    key_set_length: usize,
) -> i32 {
    run_exported(|caller| {
        let verifier = caller.object(verifier)?;
        verifier.replace_keys(key_set_text(&caller, key_set, key_set_length)?)
    })
}

/// Admits the player of a credential, if it is genuine, for this game server, valid at `unix_s` (seconds since the Unix epoch), and used for
/// the first time. Else `FT_CREDENTIAL_*` says why not: do not admit the player. `credential` is text of any length, without a zero byte at
/// its end. Compare `match_id` with the matches that the game server hosts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_verifier_verify(
    verifier: *mut FtVerifier,
    credential: *const u8,
    credential_length: usize,
    unix_s: u64,
    player: *mut FtAdmittedPlayer,
) -> i32 {
    run_exported(|caller| {
        let verifier = caller.object(verifier)?;
        caller.check_place(player)?;
        // Players send it: its length is no mistake of the caller.
        if FT_CREDENTIAL_BYTES < credential_length {
            return Err(FT_CREDENTIAL_MALFORMED);
        }
        let credential = std::str::from_utf8(caller.bytes(credential, credential_length)?);
        let admitted = verifier.verify(credential.map_err(|_| FT_CREDENTIAL_MALFORMED)?, unix_s)?;
        caller.write(player, admitted)?;
        Ok(0)
    })
}

/// Text of a key set.
fn key_set_text(caller: &Caller, key_set: *const u8, length: usize) -> Result<&str, i32> {
    let bytes = bounded_bytes(caller, key_set, length, KEY_SET_BYTES_MAX)?;
    std::str::from_utf8(bytes).map_err(|_| FT_ERROR_KEY_SET)
}
