//! Host of matches as an object of the interface.

use std::ffi::CStr;
use std::fmt;

use fireteam_client::match_hosting::{HostAnswer, HostCall, HostingEvent, HostingOutcome, HostingState, MatchHosting};
use fireteam_client::matching::{CallError, CallId, MonotonicTime};
use fireteam_client::pb;
use prost::Message;

use crate::identifier::all_fit_id_text;
use crate::loop_object::{LoopMachine, LoopObject};
use crate::match_host_call_codec::MatchHostRpc;
use crate::queue_types;
use crate::status::{FT_ERROR_MALFORMED, FT_ERROR_VALUE};

/// Host of the matches of one advertisement. One thread at a time may use it.
pub struct FtMatchHost {
    pub(crate) object: LoopObject<MatchHosting>,
}

impl LoopMachine for MatchHosting {
    type Event = HostingEvent;
    type Answer = HostAnswer;
    type Outcome = HostingOutcome;
    type Rpc = MatchHostRpc;

    fn handle(&mut self, event: HostingEvent, now: MonotonicTime) {
        MatchHosting::handle(self, event, now);
    }

    fn poll_call(&mut self) -> Option<(CallId, MatchHostRpc, Vec<u8>)> {
        let HostCall { id, request } = MatchHosting::poll_call(self)?;
        let (rpc, body) = MatchHostRpc::encode_request(&request);
        Some((id, rpc, body))
    }

    fn poll_outcome(&mut self) -> Option<HostingOutcome> {
        MatchHosting::poll_outcome(self)
    }

    fn poll_timeout(&self) -> Option<MonotonicTime> {
        MatchHosting::poll_timeout(self)
    }

    fn path(rpc: MatchHostRpc) -> &'static CStr {
        rpc.path()
    }

    fn decode(rpc: MatchHostRpc, body: &[u8]) -> Option<HostAnswer> {
        rpc.decode(body)
    }

    fn answer_event(id: CallId, result: Result<HostAnswer, CallError>) -> HostingEvent {
        HostingEvent::Answer { id, result }
    }
}

impl FtMatchHost {
    pub(crate) fn new(advertisement_token: Vec<u8>, seed: [u8; 32]) -> Self {
        Self { object: LoopObject::new(MatchHosting::new(advertisement_token, seed)) }
    }

    /// Gives an event to the host.
    pub(crate) fn handle(&mut self, event: HostingEvent, now_us: u64) -> Result<i32, i32> {
        self.object.handle(event, now_us)
    }

    /// State, as `FT_MATCH_HOST_*`.
    pub(crate) fn state(&mut self) -> Result<i32, i32> {
        self.object.run(|host| match host.state() {
            HostingState::Idle => queue_types::FT_MATCH_HOST_IDLE,
            HostingState::Hosting => queue_types::FT_MATCH_HOST_HOSTING,
            HostingState::Ending => queue_types::FT_MATCH_HOST_ENDING,
            HostingState::Ended => queue_types::FT_MATCH_HOST_ENDED,
        })
    }
}

impl fmt::Debug for FtMatchHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FtMatchHost").field("host", self.object.machine()).finish()
    }
}

/// Match id of the caller.
pub(crate) fn parse_match_id(text: &str) -> Result<String, i32> {
    let id = text.to_owned();
    if !id.is_empty() && all_fit_id_text([&id].into_iter()) { Ok(id) } else { Err(FT_ERROR_VALUE) }
}

/// Report from its bytes: a `ReportResultRequest` with a match and ranks.
pub(crate) fn parse_report(bytes: &[u8]) -> Result<HostingEvent, i32> {
    let report = pb::ReportResultRequest::decode(bytes).map_err(|_| FT_ERROR_MALFORMED)?;
    parse_match_id(&report.match_id)?;
    if report.team_ranks.is_empty() && report.player_ranks.is_empty() {
        return Err(FT_ERROR_VALUE);
    }
    Ok(HostingEvent::Report(Box::new(report)))
}
