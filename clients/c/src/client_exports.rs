//! Exported functions of the client. They are unsafe for Rust callers: pointers must be as the header says.
#![expect(unsafe_code, reason = "exported names; no unsafe blocks")]
#![expect(clippy::missing_safety_doc, reason = "the header states the rules once for all functions")]

use std::ffi::c_char;
use std::ptr;
use std::time::Duration;

use crate::client::{ClientSettings, FtClient};
use crate::raw::{Caller, run_exported};
use crate::status::{FT_ERROR_BUFFER, FT_ERROR_VALUE};
use crate::types::{FtAnswer, FtCall, FtClientOptions};

/// Longest text in the options, bytes.
const OPTION_TEXT_BYTES_MAX: usize = 8_192;
/// Longest path of a method, bytes.
const PATH_BYTES_MAX: usize = 256;
/// Longest deadline.
const TIMEOUT_MS_MAX: u32 = 600_000;

/// Makes a client. It does not connect yet. Free it with `ft_client_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_client_new(options: *const FtClientOptions, client: *mut *mut FtClient) -> i32 {
    run_exported(|caller| {
        caller.check_place(client)?;
        let options = caller.read(options)?;
        let settings = ClientSettings {
            uri: caller.text(options.uri, OPTION_TEXT_BYTES_MAX)?,
            ca_certificates: caller.bytes(options.ca_certificates, options.ca_certificates_length)?,
            server_name: optional_text(&caller, options.server_name)?,
            token: optional_text(&caller, options.token)?,
        };
        caller.give(client, FtClient::new(&settings)?)?;
        Ok(0)
    })
}

/// Frees a client; null is ignored. No call may be underway.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_client_free(client: *mut FtClient) -> i32 {
    run_exported(|caller| caller.free(client).map(|()| 0))
}

/// Makes a call, and blocks until it is answered, at most `call->timeout_ms` (1 to 600000). Fills `answer` for `ft_matching_handle_answer`,
/// also if the call fails; its `body` is in the buffer. Returns the bytes of the body. A capacity of `FT_ANSWER_BYTES` is enough for
/// the calls of the search loop, one of `FT_QUEUE_ANSWER_BYTES` for those of the others.
///
/// Several threads may make calls with one client. A game that does not want to block makes calls on a thread of its own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ft_client_call(
    client: *const FtClient,
    call: *const FtCall,
    request: *const u8,
    request_length: usize,
    buffer: *mut u8,
    capacity: usize,
    answer: *mut FtAnswer,
) -> i32 {
    run_exported(|caller| {
        caller.check_place(answer)?;
        let client = caller.shared_object(client)?;
        let (call_id, path, deadline) = read_call(&caller, call)?;
        let request = caller.bytes(request, request_length)?.to_vec();
        let answered = client.call(path, request, deadline)?;
        let (status, body) = match &answered {
            Ok(body) => (0, body),
            Err(failure) => (failure.code, &failure.details),
        };
        if capacity < body.len() {
            return Err(FT_ERROR_BUFFER);
        }
        let length = caller.fill(body, buffer, capacity)?;
        let body_length = body.len();
        caller.write(
            answer,
            FtAnswer { call_id, retry_after_ms: -1, reason: ptr::null(), body: buffer, body_length, status },
        )?;
        Ok(length)
    })
}

/// Number, path and deadline of a call.
pub(crate) fn read_call(caller: &Caller, call: *const FtCall) -> Result<(u64, &str, Duration), i32> {
    let call = caller.read(call)?;
    let path = caller.text(call.path, PATH_BYTES_MAX)?;
    if !(1..=TIMEOUT_MS_MAX).contains(&call.timeout_ms) || !path.starts_with('/') {
        return Err(FT_ERROR_VALUE);
    }
    Ok((call.id, path, Duration::from_millis(call.timeout_ms.into())))
}

/// Text that may be null.
fn optional_text(caller: &Caller, start: *const c_char) -> Result<Option<&str>, i32> {
    if start.is_null() { Ok(None) } else { caller.text(start, OPTION_TEXT_BYTES_MAX).map(Some) }
}
