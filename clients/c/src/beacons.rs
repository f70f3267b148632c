//! Measurement of beacons as an object of the interface.

use std::ffi::CStr;
use std::fmt;

use fireteam_client::matching::{CallError, CallId, MonotonicTime};
use fireteam_client::probe::beacons::{Beacons, BeaconsAnswer, BeaconsCall, BeaconsEvent, BeaconsState};
use prost::Message;

use crate::beacons_call_codec::BeaconsRpc;
use crate::loop_object::{LoopMachine, LoopObject};
use crate::pending_transmit::PendingTransmit;
use crate::raw::Caller;
use crate::status::FT_ERROR_VALUE;
use crate::types::{self, FtAddress, FtPlace};

/// Measurement of beacons by one client. One thread at a time may use it.
pub struct FtBeacons {
    pub(crate) object: LoopObject<Beacons>,
    transmit: PendingTransmit,
}

impl LoopMachine for Beacons {
    type Event = BeaconsEvent;
    type Answer = BeaconsAnswer;
    /// Latency token to send from now on.
    type Outcome = Vec<u8>;
    type Rpc = BeaconsRpc;

    fn handle(&mut self, event: BeaconsEvent, now: MonotonicTime) {
        Beacons::handle(self, event, now);
    }

    fn poll_call(&mut self) -> Option<(CallId, BeaconsRpc, Vec<u8>)> {
        let BeaconsCall { id, request } = Beacons::poll_call(self)?;
        let (rpc, body) = BeaconsRpc::encode_request(&request);
        Some((id, rpc, body))
    }

    fn poll_outcome(&mut self) -> Option<Vec<u8>> {
        self.poll_token()
    }

    fn poll_timeout(&self) -> Option<MonotonicTime> {
        Beacons::poll_timeout(self)
    }

    fn path(rpc: BeaconsRpc) -> &'static CStr {
        rpc.path()
    }

    fn decode(rpc: BeaconsRpc, body: &[u8]) -> Option<BeaconsAnswer> {
        rpc.decode(body)
    }

    fn answer_event(id: CallId, result: Result<BeaconsAnswer, CallError>) -> BeaconsEvent {
        BeaconsEvent::Answer { id, result }
    }
}

impl FtBeacons {
    /// Measurement by a client at this place, if the game knows it.
    pub(crate) fn new(place: Option<FtPlace>, seed: [u8; 32]) -> Result<Self, i32> {
        let mut beacons = Beacons::new(seed);
        if let Some(FtPlace { latitude, longitude }) = place {
            let is_place = (-90.0..=90.0).contains(&latitude) && (-180.0..=180.0).contains(&longitude);
            if !is_place {
                return Err(FT_ERROR_VALUE);
            }
            beacons = beacons.with_place(latitude, longitude);
        }
        Ok(Self { object: LoopObject::new(beacons), transmit: PendingTransmit::default() })
    }

    /// Gives an event to the measurement.
    pub(crate) fn handle(&mut self, event: BeaconsEvent, now_us: u64) -> Result<i32, i32> {
        self.object.handle(event, now_us)
    }

    /// Counts a packet of another loop.
    pub(crate) fn record_other_packet(&mut self, now_us: u64) -> Result<i32, i32> {
        self.object.run(|beacons| beacons.record_packet_of_other_loop(MonotonicTime::from_micros(now_us)))?;
        Ok(0)
    }

    /// Fetches a datagram.
    pub(crate) fn poll_transmit(
        &mut self,
        caller: &Caller,
        to: *mut FtAddress,
        buffer: (*mut u8, usize),
    ) -> Result<i32, i32> {
        let object = &mut self.object;
        self.transmit.write_to_caller(caller, || object.run(Beacons::poll_transmit), to, buffer)
    }

    /// Server's answer to the last report, as bytes. `None` if there was none.
    pub(crate) fn report(&mut self) -> Result<Option<Vec<u8>>, i32> {
        self.object.run(|beacons| beacons.report_response().map(Message::encode_to_vec))
    }

    /// State, as `FT_BEACONS_*`.
    pub(crate) fn state(&mut self) -> Result<i32, i32> {
        self.object.run(|beacons| match beacons.state() {
            BeaconsState::Idle => types::FT_BEACONS_IDLE,
            BeaconsState::Listing => types::FT_BEACONS_LISTING,
            BeaconsState::Measuring => types::FT_BEACONS_MEASURING,
            BeaconsState::Reporting => types::FT_BEACONS_REPORTING,
            BeaconsState::Resting => types::FT_BEACONS_RESTING,
        })
    }
}

impl fmt::Debug for FtBeacons {
    /// Prints no token: the machine hides it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FtBeacons").field("beacons", self.object.machine()).finish_non_exhaustive()
    }
}
