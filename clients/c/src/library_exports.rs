//! Exported functions of the library as a whole.
#![expect(unsafe_code, reason = "exported names; no unsafe blocks")]

use std::ffi::c_char;

use crate::status::{FT_INTERFACE_VERSION, text};

/// Version of the interface that the library implements. Compare it with `FT_INTERFACE_VERSION` of the header.
#[unsafe(no_mangle)]
pub extern "C" fn ft_interface_version() -> u32 {
    FT_INTERFACE_VERSION
}

/// Text of a result code, for logs: what is wrong and what to do, in static memory, with a zero byte at its end. Never null.
#[unsafe(no_mangle)]
pub extern "C" fn ft_result_text(result: i32) -> *const c_char {
    text(result).as_ptr()
}
