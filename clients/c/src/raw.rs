//! Access to the memory of C callers, with checks; the only file with unsafe blocks. Rust code never unwinds into C.
#![expect(unsafe_code, reason = "pointers of C callers")]

use std::ffi::c_char;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{ptr, slice};

use crate::status::{FT_ERROR_ALIGNMENT, FT_ERROR_LENGTH, FT_ERROR_NULL, FT_ERROR_PANIC, FT_ERROR_VALUE};

/// Longest sequence of bytes that a caller may pass.
const BYTES_MAX: usize = 4 * 1024 * 1024;

/// Promise of the C code that calls an exported function: pointers that are neither null nor misaligned are valid for their type and length
/// until the function returns, objects come from their `new` function, were not freed, and are in no other call.
///
/// Only [`run_exported`] makes a value, and only the exported functions, which are unsafe, call it, with pointers that they received.
pub(crate) struct Caller(());

/// Runs an exported function. A panic becomes [`FT_ERROR_PANIC`].
pub(crate) fn run_exported(function: impl FnOnce(Caller) -> Result<i32, i32>) -> i32 {
    match catch_unwind(AssertUnwindSafe(|| function(Caller(())))) {
        Ok(Ok(result) | Err(result)) => result,
        Err(payload) => {
            // Its destructor may panic, too.
            std::mem::forget(payload);
            FT_ERROR_PANIC
        }
    }
}

impl Caller {
    /// Bytes of the caller. Null is allowed for none.
    pub(crate) fn bytes(&self, start: *const u8, length: usize) -> Result<&[u8], i32> {
        if length == 0 {
            return Ok(&[]);
        }
        if start.is_null() {
            return Err(FT_ERROR_NULL);
        }
        if BYTES_MAX < length {
            return Err(FT_ERROR_LENGTH);
        }
        // SAFETY: not null, bytes have no alignment, and the caller promises `length` initialized bytes until the function returns.
        Ok(unsafe { slice::from_raw_parts(start, length) })
    }

    /// Text that ends with a zero byte, of at most `length_max` bytes.
    pub(crate) fn text(&self, start: *const c_char, length_max: usize) -> Result<&str, i32> {
        if start.is_null() {
            return Err(FT_ERROR_NULL);
        }
        // SAFETY: each byte is read only if no earlier one was the zero that ends the text, so it is in the caller's text.
        let length = (0..=length_max).find(|at| unsafe { start.add(*at).read() } == 0).ok_or(FT_ERROR_LENGTH)?;
        let bytes = self.bytes(start.cast(), length)?;
        std::str::from_utf8(bytes).map_err(|_| FT_ERROR_VALUE)
    }

    /// Copy of a structure of the caller.
    pub(crate) fn read<T: Copy>(&self, from: *const T) -> Result<T, i32> {
        check_pointer(from)?;
        // SAFETY: not null and aligned, and the caller promises an initialized value. `T` has integers, floats and raw pointers only.
        Ok(unsafe { from.read() })
    }

    /// Structures of the caller, one after another. Null is allowed for none.
    pub(crate) fn items<T: Copy>(&self, start: *const T, count: usize) -> Result<&[T], i32> {
        if count == 0 {
            return Ok(&[]);
        }
        check_pointer(start)?;
        if BYTES_MAX / size_of::<T>().max(1) < count {
            return Err(FT_ERROR_LENGTH);
        }
        // SAFETY: not null and aligned, and the caller promises `count` initialized values until the function returns. `T` has integers only.
        Ok(unsafe { slice::from_raw_parts(start, count) })
    }

    /// Checks a place for [`Caller::write`], before something is done whose result it takes.
    pub(crate) fn check_place<T>(&self, to: *mut T) -> Result<(), i32> {
        check_pointer(to.cast_const())
    }

    /// Writes a structure for the caller.
    pub(crate) fn write<T>(&self, to: *mut T, value: T) -> Result<(), i32> {
        check_pointer(to.cast_const())?;
        // SAFETY: not null and aligned, and the caller promises a place for a `T`. The old value is not dropped: it may be uninitialized.
        unsafe { to.write(value) };
        Ok(())
    }

    /// Copies bytes into a buffer of the caller, and returns their number. If the buffer is too small, it only returns the number.
    pub(crate) fn fill(&self, bytes: &[u8], buffer: *mut u8, capacity: usize) -> Result<i32, i32> {
        let length = i32::try_from(bytes.len()).map_err(|_| FT_ERROR_LENGTH)?;
        if bytes.is_empty() || capacity < bytes.len() {
            return Ok(length);
        }
        if buffer.is_null() {
            return Err(FT_ERROR_NULL);
        }
        // SAFETY: not null, the caller promises `capacity` bytes, which are enough, and memory of Rust is no buffer of the caller.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), buffer, bytes.len()) };
        Ok(length)
    }

    /// Moves an object to the heap, for the caller to free.
    pub(crate) fn give<T>(&self, to: *mut *mut T, object: T) -> Result<(), i32> {
        check_pointer(to.cast_const())?;
        self.write(to, Box::into_raw(Box::new(object)))
    }

    /// Object of the caller, which no other call uses.
    #[expect(clippy::mut_from_ref, reason = "the promise of the caller, not the memory of `self`")]
    pub(crate) fn object<T>(&self, object: *mut T) -> Result<&mut T, i32> {
        check_pointer(object.cast_const())?;
        // SAFETY: not null and aligned, and the caller promises a live object from `give` that is in no other call.
        Ok(unsafe { &mut *object })
    }

    /// Object of the caller that other calls may use at the same time.
    #[cfg(feature = "client")]
    pub(crate) fn shared_object<T: Sync>(&self, object: *const T) -> Result<&T, i32> {
        check_pointer(object)?;
        // SAFETY: not null and aligned, and the caller promises a live object from `give`. No function takes such an object as its own.
        Ok(unsafe { &*object })
    }

    /// Drops an object of the caller. Null is no object.
    pub(crate) fn free<T>(&self, object: *mut T) -> Result<(), i32> {
        if object.is_null() {
            return Ok(());
        }
        check_pointer(object.cast_const())?;
        // SAFETY: not null and aligned, and the caller promises an object from `give`, and not to use it again.
        drop(unsafe { Box::from_raw(object) });
        Ok(())
    }
}

/// Refuses null and misaligned pointers.
fn check_pointer<T>(pointer: *const T) -> Result<(), i32> {
    match pointer {
        null if null.is_null() => Err(FT_ERROR_NULL),
        aligned if aligned.is_aligned() => Ok(()),
        _ => Err(FT_ERROR_ALIGNMENT),
    }
}
