//! Result codes of the exported functions, and their texts. A result of 0 or more is a success.

use std::ffi::CStr;

/// Version of this interface. A program compares it with `ft_interface_version` of the library that it loads.
pub const FT_INTERFACE_VERSION: u32 = 1;

/// Nothing to do: no call, datagram, outcome, timeout or answer.
pub const FT_NONE: i32 = -1;
/// A required pointer is null.
pub const FT_ERROR_NULL: i32 = -2;
/// A pointer has the wrong alignment for its type.
pub const FT_ERROR_ALIGNMENT: i32 = -3;
/// A length is out of range.
pub const FT_ERROR_LENGTH: i32 = -4;
/// A field or argument has a value that it may not have.
pub const FT_ERROR_VALUE: i32 = -5;
/// Bytes are no protobuf message of the required type.
pub const FT_ERROR_MALFORMED: i32 = -6;
/// The call id is unknown: no call with it was returned, or it is one of the oldest.
pub const FT_ERROR_UNKNOWN_CALL: i32 = -7;
/// The buffer is too small for the answer. The call was made; a repetition needs a larger buffer.
pub const FT_ERROR_BUFFER: i32 = -8;
/// The client cannot be made: the URI or the certificates are invalid, or the system refuses.
pub const FT_ERROR_CLIENT: i32 = -9;
/// The stream has ended: `ft_stream_end` says how.
pub const FT_STREAM_ENDED: i32 = -10;
/// The key set cannot be read, or has no Ed25519 key.
pub const FT_ERROR_KEY_SET: i32 = -11;
/// A game server does not search: give its session to `ft_matching_become_host`.
pub const FT_ERROR_GAME_SERVER: i32 = -12;
/// The text is no credential, or is too long.
pub const FT_CREDENTIAL_MALFORMED: i32 = -20;
/// A token of another kind, such as a player's own token.
pub const FT_CREDENTIAL_WRONG_TYPE: i32 = -21;
/// The key set has no key of the credential: fetch it again, `ft_verifier_replace_keys`, and verify again.
pub const FT_CREDENTIAL_UNKNOWN_KEY: i32 = -22;
/// The signature does not verify: the credential is forged.
pub const FT_CREDENTIAL_BAD_SIGNATURE: i32 = -23;
/// Another issuer.
pub const FT_CREDENTIAL_WRONG_ISSUER: i32 = -24;
/// For another game server, host or match.
pub const FT_CREDENTIAL_WRONG_AUDIENCE: i32 = -25;
/// Not valid yet, or valid for too long.
pub const FT_CREDENTIAL_INVALID_TIMES: i32 = -26;
/// Expired.
pub const FT_CREDENTIAL_EXPIRED: i32 = -27;
/// It has admitted a player before.
pub const FT_CREDENTIAL_USED_BEFORE: i32 = -28;
/// As many credentials as the verifier remembers were used and have not expired.
pub const FT_CREDENTIAL_TOO_MANY: i32 = -29;
/// A bug in the library. The object can only be freed.
pub const FT_ERROR_PANIC: i32 = -100;

/// Text of a result code, for logs.
pub(crate) fn result_text(result: i32) -> &'static CStr {
    match result {
        0.. => c"success",
        FT_NONE => c"nothing to do",
        FT_ERROR_NULL => c"a required pointer is null",
        FT_ERROR_ALIGNMENT => c"a pointer has the wrong alignment for its type",
        FT_ERROR_LENGTH => c"a length is out of range",
        FT_ERROR_VALUE => c"a field or argument has a value that it may not have",
        FT_ERROR_MALFORMED => c"the bytes are no protobuf message of the required type",
        FT_ERROR_UNKNOWN_CALL => c"the call id is unknown; give answers to calls that were fetched",
        FT_ERROR_BUFFER => c"the buffer is too small for the answer; repeat the call with a larger one",
        FT_ERROR_CLIENT => c"the client cannot be made; check the URI and the certificates",
        FT_STREAM_ENDED => c"the stream has ended",
        FT_ERROR_KEY_SET => c"the key set is not valid; give the page /.well-known/jwks.json of the operator port",
        FT_ERROR_GAME_SERVER => c"a game server does not search; give its session to ft_matching_become_host",
        FT_CREDENTIAL_MALFORMED => c"the credential is malformed; send it as the server has given it",
        FT_CREDENTIAL_WRONG_TYPE => c"the token is no match credential; send the credential of the match",
        FT_CREDENTIAL_UNKNOWN_KEY => c"the key set has no key of the credential; fetch the key set again",
        FT_CREDENTIAL_BAD_SIGNATURE => c"the credential is forged; get one from the server",
        FT_CREDENTIAL_WRONG_ISSUER => c"the credential is of another issuer; get one from the server",
        FT_CREDENTIAL_WRONG_AUDIENCE => c"the credential is for another game server; connect to the assigned one",
        FT_CREDENTIAL_INVALID_TIMES => c"the credential's times are not valid; check the clocks",
        FT_CREDENTIAL_EXPIRED => c"the credential has expired; get a new one",
        FT_CREDENTIAL_USED_BEFORE => c"the credential was used before; get a new one",
        FT_CREDENTIAL_TOO_MANY => c"too many credentials are in use; try again in a minute",
        FT_ERROR_PANIC => c"a bug in the library; the object can only be freed",
        _ => c"unknown result code",
    }
}
