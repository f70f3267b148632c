//! Exported functions of streams. They are unsafe for Rust callers: pointers must be as the header says.
#![expect(unsafe_code, reason = "exported names; no unsafe blocks")]
#![expect(clippy::missing_safety_doc, reason = "the header states the rules once for all functions")]

use std::ptr;
use std::time::Duration;

use crate::client::FtClient;
use crate::client_exports::read_call;
use crate::raw::run_exported;
use crate::status::{FT_ERROR_BUFFER, FT_ERROR_VALUE, FT_NONE, FT_STREAM_ENDED};
use crate::stream::FtStream;
use crate::types::{FtAnswer, FtCall};

/// Longest wait for a message.
const WAIT_MS_MAX: u32 = 600_000;

/// Makes a server stream, such as the watch of `ft_queueing_poll_watch`. It does not block: `ft_stream_next` opens it, within
/// `call->timeout_ms` (1 to 600000). Free the stream with `ft_stream_free`; the client may be freed before it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_stream_new(
    client: *const FtClient,
    call: *const FtCall,
    request: *const u8,
    request_length: usize,
    stream: *mut *mut FtStream,
) -> i32 {
    run_exported(|caller| {
        caller.check_place(stream)?;
        let client = caller.shared_object(client)?;
        let (id, path, deadline) = read_call(&caller, call)?;
        let request = caller.bytes(request, request_length)?.to_vec();
        caller.give(stream, client.stream(id, path, request, deadline)?)?;
        Ok(0)
    })
}

/// Frees a stream, which closes it; null is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_stream_free(stream: *mut FtStream) -> i32 {
    run_exported(|caller| caller.free(stream).map(|()| 0))
}

/// Waits for the next message, at most `wait_ms` (0 to 600000; 0 takes about a millisecond), and writes it into the buffer. Returns its
/// bytes. More than `capacity`: nothing was written, call again with a larger buffer. `FT_NONE`: no message came. `FT_STREAM_ENDED`: none
/// comes any longer, `ft_stream_end` says why.
///
/// The connection moves only while a thread is in a function of its client or streams: call this one at least every few seconds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_stream_next(stream: *mut FtStream, wait_ms: u32, buffer: *mut u8, capacity: usize) -> i32 {
    run_exported(|caller| {
        let stream = caller.object(stream)?;
        if WAIT_MS_MAX < wait_ms {
            return Err(FT_ERROR_VALUE);
        }
        stream.wait(Duration::from_millis(wait_ms.into()))?;
        let none = if stream.has_ended() { FT_STREAM_ENDED } else { FT_NONE };
        let message = stream.message().ok_or(none)?;
        let length = caller.fill(message, buffer, capacity)?;
        if message.len() <= capacity {
            stream.message_is_done();
        }
        Ok(length)
    })
}

/// Fills `end` with the end of a stream, for `ft_queueing_handle_watch_end`: status 0 if the server ended it; its `body` is in the buffer.
/// Returns the bytes of the body; `FT_ERROR_BUFFER` if they are more than `capacity`. `FT_NONE`: it has not ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_stream_end(
    stream: *mut FtStream,
    buffer: *mut u8,
    capacity: usize,
    end: *mut FtAnswer,
) -> i32 {
    run_exported(|caller| {
        caller.check_place(end)?;
        let (call_id, status, body) = caller.object(stream)?.end().ok_or(FT_NONE)?;
        if capacity < body.len() {
            return Err(FT_ERROR_BUFFER);
        }
        let length = caller.fill(body, buffer, capacity)?;
        let (reason, body_length) = (ptr::null(), body.len());
        caller.write(end, FtAnswer { call_id, retry_after_ms: -1, reason, body: buffer, body_length, status })?;
        Ok(length)
    })
}
