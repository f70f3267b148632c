//! Search loop as an object of the interface.

use std::ffi::CStr;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use fireteam_client::matching::{
    Answer, Call, CallError, CallId, Event, HostedSession, Matching, MatchingOptions, MatchingState, MonotonicTime,
    Outcome, ProberDataJudge,
};
use fireteam_client::pb;
use fireteam_client::probe::Verdict;
use prost::Message;

use crate::identifier::all_fit_id_text;
use crate::loop_object::{LoopMachine, LoopObject};
use crate::pending_transmit::PendingTransmit;
use crate::raw::Caller;
use crate::search_call_codec::SearchRpc;
use crate::status::{FT_ERROR_GAME_SERVER, FT_ERROR_MALFORMED, FT_ERROR_VALUE};
use crate::types::{self, FtAddress};

/// Search loop of one party. One thread at a time may use it.
pub struct FtMatching {
    pub(crate) object: LoopObject<Matching>,
    transmit: PendingTransmit,
}

impl LoopMachine for Matching {
    type Event = Event;
    type Answer = Answer;
    type Outcome = Outcome;
    type Rpc = SearchRpc;

    fn handle(&mut self, event: Event, now: MonotonicTime) {
        Matching::handle(self, event, now);
    }

    fn poll_call(&mut self) -> Option<(CallId, SearchRpc, Vec<u8>)> {
        let Call { id, request } = Matching::poll_call(self)?;
        let (rpc, body) = SearchRpc::encode_request(&request);
        Some((id, rpc, body))
    }

    fn poll_outcome(&mut self) -> Option<Outcome> {
        Matching::poll_outcome(self)
    }

    fn poll_timeout(&self) -> Option<MonotonicTime> {
        Matching::poll_timeout(self)
    }

    fn path(rpc: SearchRpc) -> &'static CStr {
        rpc.path()
    }

    fn decode(rpc: SearchRpc, body: &[u8]) -> Option<Answer> {
        rpc.decode(body)
    }

    fn answer_event(id: CallId, result: Result<Answer, CallError>) -> Event {
        Event::Answer { id, result }
    }
}

impl FtMatching {
    pub(crate) fn new(options: MatchingOptions, seed: [u8; 32], compares_game_data: bool) -> Self {
        let own = options.game_data.clone();
        let mut matching = Matching::new(options, seed);
        if compares_game_data {
            matching.set_prober_data_judge(equal_data_judge(own));
        }
        Self { object: LoopObject::new(matching), transmit: PendingTransmit::default() }
    }

    /// Gives an event to the loop.
    pub(crate) fn handle(&mut self, event: Event, now_us: u64) -> Result<i32, i32> {
        self.object.handle(event, now_us)
    }

    /// Fetches a datagram.
    pub(crate) fn poll_transmit(
        &mut self,
        caller: &Caller,
        to: *mut FtAddress,
        buffer: (*mut u8, usize),
    ) -> Result<i32, i32> {
        let object = &mut self.object;
        self.transmit.write_to_caller(caller, || object.run(Matching::poll_transmit), to, buffer)
    }

    /// Counts a packet of another loop.
    pub(crate) fn record_other_packet(&mut self, now_us: u64) -> Result<i32, i32> {
        self.object.run(|matching| matching.record_packet_of_other_loop(MonotonicTime::from_micros(now_us)))?;
        Ok(0)
    }

    /// State, as `FT_STATE_*`.
    pub(crate) fn state(&mut self) -> Result<i32, i32> {
        self.object.run(|matching| match matching.state() {
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
        f.debug_struct("FtMatching").field("matching", self.object.machine()).finish_non_exhaustive()
    }
}

/// Judgement that takes equal data only.
pub(crate) fn equal_data_judge(own: Vec<u8>) -> ProberDataJudge {
    Box::new(move |data, _| if data == own { Verdict::Fits } else { Verdict::Incompatible })
}

/// Party from its bytes.
pub(crate) fn parse_party(bytes: &[u8]) -> Result<pb::SessionCompositionData, i32> {
    pb::SessionCompositionData::decode(bytes).map_err(|_| FT_ERROR_MALFORMED)
}

/// Session to host from the bytes of an advertisement.
pub(crate) fn parse_hosted_session(
    advertisement: &[u8],
    probe_address: Option<IpAddr>,
    probe_port: u16,
    keep_when_full: bool,
) -> Result<HostedSession, i32> {
    let request = parse_advertisement_update(advertisement)?;
    Ok(HostedSession {
        kind: pb::AdvertisementKind::try_from(request.kind).map_err(|_| FT_ERROR_VALUE)?,
        session: request.session_composition.ok_or(FT_ERROR_VALUE)?,
        connect_data: request.connect_data,
        allowed_ranges: request.allowed_ranges,
        time_to_live: request.time_to_live_ms.map(Duration::from_millis),
        probe_port: (probe_port != 0).then_some(probe_port),
        probe_address,
        keep_when_full,
    })
}

/// Session that a searching client may host. A game server does not search.
pub(crate) fn refuse_game_server_host(hosting: HostedSession) -> Result<HostedSession, i32> {
    if hosting.kind == pb::AdvertisementKind::GameServer { Err(FT_ERROR_GAME_SERVER) } else { Ok(hosting) }
}

/// Change of the hosted session from the bytes of an advertisement.
pub(crate) fn parse_session_change(advertisement: &[u8]) -> Result<Event, i32> {
    let request = parse_advertisement_update(advertisement)?;
    Ok(Event::SessionChanged {
        session: Box::new(request.session_composition.ok_or(FT_ERROR_VALUE)?),
        joined_reservation_ids: request.joined_reservation_ids,
    })
}

/// Event of a reservation from its bytes.
pub(crate) fn parse_reservation_event(bytes: &[u8]) -> Result<Event, i32> {
    let event = pb::ReservationEvent::decode(bytes).map_err(|_| FT_ERROR_MALFORMED)?;
    let is_known = all_fit_id_text(event.reservation.iter().map(|it| &it.reservation_id));
    is_known.then_some(Event::ReservationChanged(event)).ok_or(FT_ERROR_VALUE)
}

fn parse_advertisement_update(bytes: &[u8]) -> Result<pb::MatchmakingUpdateAdvertisementRequest, i32> {
    pb::MatchmakingUpdateAdvertisementRequest::decode(bytes).map_err(|_| FT_ERROR_MALFORMED)
}
