//! Server streams over HTTP/2 and TLS: messages, waits, and ends.

use std::ffi::CString;
use std::ptr::null_mut;

use fireteam_c::FtStream;
use fireteam_c::status::*;
use fireteam_c::stream_exports::*;
use fireteam_c::types::{FtAnswer, FtCall};

use crate::functions::{answer, c};
use crate::served::{Client, call, new_client, scripted};
use crate::server::Served;

/// Longest wait for what does happen, milliseconds.
const LONG_MS: u32 = 30_000;

/// Stream that is freed at the end of the test.
struct Stream(*mut FtStream);

impl Drop for Stream {
    fn drop(&mut self) {
        assert_eq!(c!(ft_stream_free(self.0)), 0);
    }
}

fn open(client: &Client, method: &str, timeout_ms: u32, request: &[u8]) -> Result<Stream, i32> {
    let path = CString::new(format!("/fireteam.v1.MatchmakingService/{method}")).unwrap();
    let call = FtCall { id: 9, path: path.as_ptr(), timeout_ms };
    let mut stream = null_mut();
    match c!(ft_stream_new(client.0, &call, request.as_ptr(), request.len(), &mut stream)) {
        0 => Ok(Stream(stream)),
        error => Err(error),
    }
}

impl Stream {
    fn next(&self, wait_ms: u32, capacity: usize) -> i32 {
        let mut buffer = vec![1; capacity];
        let length = c!(ft_stream_next(self.0, wait_ms, buffer.as_mut_ptr(), capacity));
        let written = usize::try_from(length).ok().filter(|it| *it <= capacity).unwrap_or(0);
        assert!(buffer[..written].iter().all(|byte| *byte == 0) && buffer[written..].iter().all(|byte| *byte == 1));
        length
    }

    /// End of the stream: its result, status and details.
    fn end(&self, capacity: usize) -> (i32, i32, Vec<u8>) {
        let (mut buffer, mut end): (_, FtAnswer) = (vec![0; capacity], answer(0, -1, b""));
        let length = c!(ft_stream_end(self.0, buffer.as_mut_ptr(), capacity, &mut end));
        buffer.truncate(end.body_length);
        assert!(length < 0 || (end.call_id, end.retry_after_ms) == (9, -1));
        (length, end.status, buffer)
    }
}

fn tls_client(served: &Served) -> Client {
    let certificate = served.certificate.as_ref().unwrap().as_bytes();
    new_client(&format!("https://localhost:{}", served.address.port()), certificate, Some("secret")).unwrap()
}

/// Messages arrive one by one, empty ones too; one that does not fit is kept. The stream ends with the server's status.
#[test]
fn stream_has_messages_and_an_end() {
    let served = scripted(true);
    let client = tls_client(&served);
    let stream = open(&client, "EndedStream", 5_000, &[3, 0, 200]).unwrap();
    assert_eq!(stream.end(100).0, FT_NONE);
    assert_eq!((stream.next(LONG_MS, 100), stream.next(LONG_MS, 100)), (3, 0));
    assert_eq!((stream.next(LONG_MS, 100), stream.next(0, 199)), (200, 200), "too small a buffer");
    assert_eq!(stream.end(100).0, FT_NONE, "a message was not read");
    assert_eq!(stream.next(0, 200), 200);
    assert_eq!((stream.next(LONG_MS, 100), stream.next(0, 100)), (FT_STREAM_ENDED, FT_STREAM_ENDED));
    assert_eq!(stream.end(0), (0, 0, Vec::new()));
    assert_eq!(served.calls.lock().unwrap()[0].1.as_deref(), Some("Bearer secret"));

    let failing = open(&client, "FailingStream", 5_000, &[1]).unwrap();
    assert_eq!((failing.next(LONG_MS, 9), failing.next(LONG_MS, 9)), (1, FT_STREAM_ENDED));
    assert_eq!((failing.end(6).0, failing.end(7)), (FT_ERROR_BUFFER, (7, 14, b"details".to_vec())));
    let refused = open(&client, "RefusedStream", 5_000, b"").unwrap();
    assert_eq!((refused.next(LONG_MS, 9), refused.end(7).1), (FT_STREAM_ENDED, 14));
}

/// A wait without a message is no end. A stream that is not opened in time ends, and so does one whose server is gone.
#[test]
fn stream_waits_and_notices_a_lost_server() {
    let served = scripted(true);
    let client = tls_client(&served);
    let stream = open(&client, "OpenStream", 5_000, &[5]).unwrap();
    let silent = open(&client, "SilentStream", 50, b"").unwrap();
    assert_eq!((stream.next(LONG_MS, 9), stream.next(0, 9), stream.next(20, 9)), (5, FT_NONE, FT_NONE));
    assert_eq!((silent.next(LONG_MS, 9), silent.end(9).1), (FT_STREAM_ENDED, 4));
    // The client may be freed before its streams.
    drop(client);
    drop(served);
    assert_eq!((stream.next(LONG_MS, 9), stream.end(9).1), (FT_STREAM_ENDED, 14));
}

/// A thread that waits for a message does not hold up the calls of others, nor the other way around.
#[test]
fn stream_waits_while_other_threads_make_calls() {
    let served = scripted(true);
    let client = tls_client(&served);
    let stream = open(&client, "OpenStream", 5_000, &[5, 6]).unwrap();
    assert_eq!(stream.next(LONG_MS, 9), 5);
    let address = stream.0.expose_provenance();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(move || {
            let stream = std::mem::ManuallyDrop::new(Stream(std::ptr::with_exposed_provenance_mut(address)));
            [stream.next(LONG_MS, 9), stream.next(200, 9)]
        });
        for _ in 0..20 {
            assert_eq!(call(&client, "/fireteam.v1.MatchmakingService/Release", 5_000, 100).1, 0);
        }
        assert_eq!(waiting.join().unwrap(), [6, FT_NONE]);
    });
}

#[test]
fn stream_misuse_is_refused() {
    let served = scripted(false);
    let client = new_client(&format!("http://{}", served.address), b"", None).unwrap();
    assert_eq!(open(&client, "OpenStream", 0, b"").err(), Some(FT_ERROR_VALUE));
    assert_eq!(open(&Client(null_mut()), "OpenStream", 1, b"").err(), Some(FT_ERROR_NULL));
    assert_eq!(c!(ft_stream_free(null_mut())), 0);
    assert_eq!(c!(ft_stream_next(null_mut(), 0, null_mut(), 0)), FT_ERROR_NULL);
    let stream = open(&client, "OpenStream", 5_000, &[5]).unwrap();
    assert_eq!(stream.next(600_001, 9), FT_ERROR_VALUE);
    assert_eq!(c!(ft_stream_end(stream.0, null_mut(), 0, null_mut())), FT_ERROR_NULL);
    assert_eq!(c!(ft_stream_next(stream.0, LONG_MS, null_mut(), 9)), FT_ERROR_NULL);
    assert_eq!(stream.next(0, 9), 5, "misuse loses nothing");
}
