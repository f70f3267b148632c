//! Answers to latency probes as an object of the interface.

use std::fmt;
use std::net::SocketAddr;

use fireteam_client::matching::ProberDataJudge;
use fireteam_client::pb;
use fireteam_client::probe::{ArrivalAndAnswerTime, HostCookieKey, HostResponder, ProbeKey, Verdict};
use prost::Message;

use crate::matching::equal_data_judge;
use crate::panic_guard::PanicGuard;
use crate::status::FT_ERROR_VALUE;

/// Host that answers the probes of one advertisement. One thread at a time may use it.
pub struct FtResponder(PanicGuard<KeyedResponder>);

/// Responder with the key of its probes, and the game's judgement.
pub(crate) struct KeyedResponder {
    responder: HostResponder,
    probe_key: [u8; 32],
    judge: ProberDataJudge,
}

impl FtResponder {
    pub(crate) fn new(cookie_key: [u8; 32], key: [u8; 32]) -> Self {
        let responder = HostResponder::new(HostCookieKey(cookie_key));
        Self(PanicGuard::new(KeyedResponder { responder, probe_key: key, judge: Box::new(|_, _| Verdict::Fits) }))
    }

    /// Runs a function, unless an earlier one has ended by a panic.
    pub(crate) fn run<T>(&mut self, function: impl FnOnce(&mut KeyedResponder) -> Result<T, i32>) -> Result<T, i32> {
        self.0.run(function)?
    }
}

impl KeyedResponder {
    /// Endpoint to publish, as bytes.
    pub(crate) fn probe_endpoint_bytes(&self, port: u16) -> Vec<u8> {
        let probe_key = self.probe_key.to_vec();
        pb::ProbeEndpoint { address: Vec::new(), port: port.into(), probe_key, hosted: false }.encode_to_vec()
    }

    /// Answers the probes of this advertisement.
    pub(crate) fn advertise(&mut self, advertisement_id: &str) -> Result<i32, i32> {
        let is_id = advertisement_id.len() == 32 && advertisement_id.bytes().all(|byte| byte.is_ascii_hexdigit());
        let id = u128::from_str_radix(advertisement_id, 16).ok().filter(|_| is_id).ok_or(FT_ERROR_VALUE)?;
        let key = ProbeKey::new(&self.probe_key).ok_or(FT_ERROR_VALUE)?;
        self.responder.set_advertisement(id.to_be_bytes(), key);
        Ok(0)
    }

    pub(crate) fn withdraw(&mut self) {
        self.responder.clear_advertisement();
    }

    pub(crate) fn set_full(&mut self, full: bool) {
        self.responder.set_full(full);
    }

    /// Takes equal data only.
    pub(crate) fn set_game_data(&mut self, own: Vec<u8>) {
        self.judge = equal_data_judge(own);
    }

    /// Answer to a packet.
    pub(crate) fn handle(&mut self, packet: &[u8], from: SocketAddr, time: ArrivalAndAnswerTime) -> Option<Vec<u8>> {
        self.responder.handle(packet, from, time, &mut self.judge)
    }
}

impl fmt::Debug for FtResponder {
    /// Prints no key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FtResponder").finish_non_exhaustive()
    }
}
