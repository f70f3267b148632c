//! Search loop as an object of the interface: keeps what does not fit into the caller's buffer, and knows the RPC of each call.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use fireteam_client::matching::{
    Call, CallId, Event, HostedSession, Matching, MatchingOptions, MatchingState, MonotonicTime, Outcome,
    ProberDataJudge, Transmit,
};
use fireteam_client::pb;
use fireteam_client::probe::Verdict;
use prost::Message;

use crate::call_codec::{KnownCalls, Rpc, are_ids, call_error, unreadable};
use crate::status::{FT_ERROR_MALFORMED, FT_ERROR_PANIC, FT_ERROR_UNKNOWN_CALL, FT_ERROR_VALUE};
use crate::types;

/// Search loop of one party. One thread at a time may use it.
pub struct FtMatching {
    matching: Matching,
    known_calls: KnownCalls,
    call: Option<PendingCall>,
    transmit: Option<Transmit>,
    outcome: Option<Outcome>,
    /// A function runs, or has ended by a panic.
    is_running: bool,
}

/// Call that was not fetched yet.
pub(crate) struct PendingCall {
    pub(crate) id: CallId,
    pub(crate) rpc: Rpc,
    pub(crate) body: Vec<u8>,
}

/// Parts of an answer.
pub(crate) struct AnswerParts<'a> {
    pub(crate) id: CallId,
    pub(crate) status: i32,
    pub(crate) body: &'a [u8],
    pub(crate) reason: Option<&'a str>,
    pub(crate) retry_after_ms: Option<u64>,
}

impl FtMatching {
    pub(crate) fn new(options: MatchingOptions, seed: [u8; 32], compares_game_data: bool) -> Self {
        let own = options.game_data.clone();
        let mut matching = Matching::new(options, seed);
        if compares_game_data {
            matching.set_prober_data_judge(judge(own));
        }
        Self {
            matching,
            known_calls: KnownCalls::default(),
            call: None,
            transmit: None,
            outcome: None,
            is_running: false,
        }
    }

    /// Runs a function, unless an earlier one has ended by a panic.
    pub(crate) fn run<T>(&mut self, function: impl FnOnce(&mut Self) -> T) -> Result<T, i32> {
        if std::mem::replace(&mut self.is_running, true) {
            return Err(FT_ERROR_PANIC);
        }
        let result = function(self);
        self.is_running = false;
        Ok(result)
    }

    /// Gives an event to the loop.
    pub(crate) fn handle(&mut self, event: Event, now_us: u64) -> Result<i32, i32> {
        self.run(|it| it.matching.handle(event, MonotonicTime::from_micros(now_us)))?;
        Ok(0)
    }

    /// Gives an answer to the loop. An answer that cannot be read counts as a failure of the call, and is an error of the caller, too.
    pub(crate) fn handle_answer(&mut self, answer: &AnswerParts<'_>, now_us: u64) -> Result<i32, i32> {
        let id = answer.id;
        let rpc = self.known_calls.rpc(id.0).ok_or(FT_ERROR_UNKNOWN_CALL)?;
        let result = match answer.status {
            0 => rpc.decode(answer.body).ok_or_else(unreadable),
            1..=16 => Err(call_error(answer.status, answer.body, answer.reason, answer.retry_after_ms)),
            _ => return Err(FT_ERROR_VALUE),
        };
        let is_unreadable = answer.status == 0 && result.is_err();
        self.handle(Event::Answer { id, result }, now_us)?;
        if is_unreadable { Err(FT_ERROR_MALFORMED) } else { Ok(0) }
    }

    /// Next call, until [`Self::call_is_done`].
    pub(crate) fn next_call(&mut self) -> Result<Option<&PendingCall>, i32> {
        self.run(|it| {
            if it.call.is_none()
                && let Some(Call { id, request }) = it.matching.poll_call()
            {
                let (rpc, body) = Rpc::of(&request);
                it.known_calls.insert(id.0, rpc);
                it.call = Some(PendingCall { id, rpc, body });
            }
        })?;
        Ok(self.call.as_ref())
    }

    pub(crate) fn call_is_done(&mut self) {
        self.call = None;
    }

    /// Next datagram, until [`Self::transmit_is_done`].
    pub(crate) fn next_transmit(&mut self) -> Result<Option<&Transmit>, i32> {
        self.run(|it| it.transmit = it.transmit.take().or_else(|| it.matching.poll_transmit()))?;
        Ok(self.transmit.as_ref())
    }

    pub(crate) fn transmit_is_done(&mut self) {
        self.transmit = None;
    }

    /// Next outcome, until [`Self::outcome_is_done`].
    pub(crate) fn next_outcome(&mut self) -> Result<Option<&Outcome>, i32> {
        self.run(|it| it.outcome = it.outcome.take().or_else(|| it.matching.poll_outcome()))?;
        Ok(self.outcome.as_ref())
    }

    pub(crate) fn outcome_is_done(&mut self) {
        self.outcome = None;
    }

    /// Time of the next timeout, microseconds.
    pub(crate) fn timeout_us(&mut self) -> Result<Option<u64>, i32> {
        self.run(|it| it.matching.poll_timeout().map(MonotonicTime::as_micros))
    }

    /// State, as `FT_STATE_*`.
    pub(crate) fn state(&mut self) -> Result<i32, i32> {
        self.run(|it| match it.matching.state() {
            MatchingState::Idle => types::FT_STATE_IDLE,
            MatchingState::Choosing => types::FT_STATE_CHOOSING,
            MatchingState::Searching => types::FT_STATE_SEARCHING,
            MatchingState::Quick => types::FT_STATE_QUICK,
            MatchingState::Involved => types::FT_STATE_INVOLVED,
            MatchingState::Joining => types::FT_STATE_JOINING,
            MatchingState::Waiting => types::FT_STATE_WAITING,
            MatchingState::Advertising => types::FT_STATE_ADVERTISING,
            MatchingState::Joined => types::FT_STATE_JOINED,
            MatchingState::Ending => types::FT_STATE_ENDING,
            MatchingState::Ended => types::FT_STATE_ENDED,
        })
    }
}

impl fmt::Debug for FtMatching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FtMatching").field("matching", &self.matching).finish_non_exhaustive()
    }
}

/// Judgement that takes equal data only.
pub(crate) fn judge(own: Vec<u8>) -> ProberDataJudge {
    Box::new(move |data, _| if data == own { Verdict::Fits } else { Verdict::Incompatible })
}

/// Party from its bytes.
pub(crate) fn party(bytes: &[u8]) -> Result<pb::SessionCompositionData, i32> {
    pb::SessionCompositionData::decode(bytes).map_err(|_| FT_ERROR_MALFORMED)
}

/// Session to host from the bytes of an advertisement.
pub(crate) fn hosting(
    advertisement: &[u8],
    probe_address: Option<IpAddr>,
    probe_port: u16,
    keep_when_full: bool,
) -> Result<HostedSession, i32> {
    let request = update(advertisement)?;
    Ok(HostedSession {
        session: request.session_composition.ok_or(FT_ERROR_VALUE)?,
        connect_data: request.connect_data,
        allowed_ranges: request.allowed_ranges,
        time_to_live: request.time_to_live_ms.map(Duration::from_millis),
        probe_port: (probe_port != 0).then_some(probe_port),
        probe_address,
        keep_when_full,
    })
}

/// Change of the hosted session from the bytes of an advertisement.
pub(crate) fn session_changed(advertisement: &[u8]) -> Result<Event, i32> {
    let request = update(advertisement)?;
    Ok(Event::SessionChanged {
        session: Box::new(request.session_composition.ok_or(FT_ERROR_VALUE)?),
        joined_reservation_ids: request.joined_reservation_ids,
    })
}

/// Event of a reservation from its bytes.
pub(crate) fn reservation_event(bytes: &[u8]) -> Result<Event, i32> {
    let event = pb::ReservationEvent::decode(bytes).map_err(|_| FT_ERROR_MALFORMED)?;
    let is_known = are_ids(event.reservation.iter().map(|it| &it.reservation_id));
    is_known.then_some(Event::Reservation(event)).ok_or(FT_ERROR_VALUE)
}

fn update(bytes: &[u8]) -> Result<pb::MatchmakingUpdateAdvertisementRequest, i32> {
    pb::MatchmakingUpdateAdvertisementRequest::decode(bytes).map_err(|_| FT_ERROR_MALFORMED)
}
