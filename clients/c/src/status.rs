//! Result codes of the exported functions. A result of 0 or more is a success.

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
/// A bug in the library. The object can only be freed.
pub const FT_ERROR_PANIC: i32 = -100;
