//! Calls of the functions of queue loops and hosts of matches with Rust values.

use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;

use fireteam_c::match_host_exports::*;
use fireteam_c::queue_types::{FtMatchOutcome, FtQueueOutcome};
use fireteam_c::queueing_exports::*;
use fireteam_c::types::FtCall;
use fireteam_c::{FtMatchHost, FtQueueing};
use fireteam_client::pb;
use prost::Message;

use crate::functions::{answer, c};

/// Queue loop that is freed at the end of the test.
pub(crate) struct Queue(pub(crate) *mut FtQueueing);

impl Drop for Queue {
    fn drop(&mut self) {
        assert_eq!(c!(ft_queueing_free(self.0)), 0);
    }
}

/// Host of matches that is freed at the end of the test.
pub(crate) struct Matches(pub(crate) *mut FtMatchHost);

impl Drop for Matches {
    fn drop(&mut self) {
        assert_eq!(c!(ft_match_host_free(self.0)), 0);
    }
}

/// Request of one player.
pub(crate) fn enter_request() -> Vec<u8> {
    let player = pb::PlayerData { user_id: "ada".into(), ..Default::default() };
    let party = pb::SessionCompositionData { players: vec![player], ..Default::default() };
    pb::QueueEnterRequest { session_composition: Some(party), matchmaking_set_id: Some(7), ..Default::default() }
        .encode_to_vec()
}

pub(crate) fn new_queue(request: &[u8]) -> Result<Queue, i32> {
    let mut queueing = std::ptr::null_mut();
    match c!(ft_queueing_new(request.as_ptr(), request.len(), [5; 32].as_ptr(), 32, &mut queueing)) {
        0 => Ok(Queue(queueing)),
        error => Err(error),
    }
}

pub(crate) fn restored_queue(saved: &[u8]) -> Result<Queue, i32> {
    let mut queueing = std::ptr::null_mut();
    match c!(ft_queueing_restore(saved.as_ptr(), saved.len(), [6; 32].as_ptr(), 32, &mut queueing)) {
        0 => Ok(Queue(queueing)),
        error => Err(error),
    }
}

pub(crate) fn new_matches(token: &[u8]) -> Result<Matches, i32> {
    let mut host = std::ptr::null_mut();
    match c!(ft_match_host_new(token.as_ptr(), token.len(), [5; 32].as_ptr(), 32, &mut host)) {
        0 => Ok(Matches(host)),
        error => Err(error),
    }
}

/// Bytes that a function writes into a buffer.
pub(crate) fn filled(fill: impl FnOnce(*mut u8, usize) -> i32) -> Result<Vec<u8>, i32> {
    let mut buffer = vec![0; 65_536];
    let length = fill(buffer.as_mut_ptr(), buffer.len());
    buffer.truncate(usize::try_from(length).map_err(|_| length)?);
    Ok(buffer)
}

/// Call that a function fetches: its id, path and request.
fn fetched(fetch: impl FnOnce(*mut FtCall, *mut u8, usize) -> i32) -> Result<(u64, String, Vec<u8>), i32> {
    let mut call = FtCall { id: 0, path: std::ptr::null(), timeout_ms: 0 };
    let request = filled(|buffer, capacity| fetch(&mut call, buffer, capacity))?;
    assert_eq!(call.timeout_ms, 5_000);
    Ok((call.id, c!(CStr::from_ptr(call.path)).to_str().unwrap().to_owned(), request))
}

impl Queue {
    pub(crate) fn poll_call(&self) -> Result<(u64, String, Vec<u8>), i32> {
        fetched(|call, buffer, capacity| c!(ft_queueing_poll_call(self.0, call, buffer, capacity)))
    }

    pub(crate) fn poll_watch(&self) -> Result<(u64, String, Vec<u8>), i32> {
        fetched(|call, buffer, capacity| c!(ft_queueing_poll_watch(self.0, call, buffer, capacity)))
    }

    pub(crate) fn poll_outcome(&self) -> Result<(FtQueueOutcome, Vec<u8>), i32> {
        let mut outcome = MaybeUninit::uninit();
        let data =
            filled(|buffer, capacity| c!(ft_queueing_poll_outcome(self.0, outcome.as_mut_ptr(), buffer, capacity)))?;
        Ok((c!(outcome.assume_init()), data))
    }

    /// Kinds of all outcomes, and the last one.
    pub(crate) fn outcomes(&self) -> (Vec<u32>, Option<(FtQueueOutcome, Vec<u8>)>) {
        let outcomes: Vec<_> = std::iter::from_fn(|| self.poll_outcome().ok()).collect();
        (outcomes.iter().map(|(outcome, _)| outcome.kind).collect(), outcomes.into_iter().last())
    }

    pub(crate) fn saved(&self) -> Vec<u8> {
        filled(|buffer, capacity| c!(ft_queueing_save(self.0, buffer, capacity))).unwrap()
    }

    pub(crate) fn answer(&self, id: u64, status: i32, body: &[u8], now_us: u64) -> i32 {
        c!(ft_queueing_handle_answer(self.0, &answer(id, status, body), now_us))
    }

    pub(crate) fn watch_message(&self, watch_id: u64, message: &[u8], now_us: u64) -> i32 {
        c!(ft_queueing_handle_watch_message(self.0, watch_id, message.as_ptr(), message.len(), now_us))
    }

    pub(crate) fn watch_end(&self, watch_id: u64, status: i32, now_us: u64) -> i32 {
        c!(ft_queueing_handle_watch_end(self.0, &answer(watch_id, status, b""), now_us))
    }

    pub(crate) fn respond(&self, match_id: &str, accept: u8, now_us: u64) -> i32 {
        let match_id = CString::new(match_id).unwrap();
        c!(ft_queueing_respond(self.0, match_id.as_ptr(), accept, now_us))
    }

    pub(crate) fn state(&self) -> i32 {
        c!(ft_queueing_state(self.0))
    }

    /// Time of the next timeout.
    pub(crate) fn timeout_us(&self) -> Result<u64, i32> {
        let mut at_us = 0;
        match c!(ft_queueing_poll_timeout(self.0, &mut at_us)) {
            0 => Ok(at_us),
            error => Err(error),
        }
    }
}

impl Matches {
    pub(crate) fn poll_call(&self) -> Result<(u64, String, Vec<u8>), i32> {
        fetched(|call, buffer, capacity| c!(ft_match_host_poll_call(self.0, call, buffer, capacity)))
    }

    pub(crate) fn poll_outcome(&self) -> Result<(FtMatchOutcome, Vec<u8>), i32> {
        let mut outcome = MaybeUninit::uninit();
        let data =
            filled(|buffer, capacity| c!(ft_match_host_poll_outcome(self.0, outcome.as_mut_ptr(), buffer, capacity)))?;
        Ok((c!(outcome.assume_init()), data))
    }

    pub(crate) fn answer(&self, id: u64, status: i32, body: &[u8], now_us: u64) -> i32 {
        c!(ft_match_host_handle_answer(self.0, &answer(id, status, body), now_us))
    }

    /// Time of the next timeout.
    pub(crate) fn timeout_us(&self) -> Result<u64, i32> {
        let mut at_us = 0;
        match c!(ft_match_host_poll_timeout(self.0, &mut at_us)) {
            0 => Ok(at_us),
            error => Err(error),
        }
    }
}
