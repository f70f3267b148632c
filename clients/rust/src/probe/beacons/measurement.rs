//! One measurement: conversations with the nearest beacons, some of them at once, and the receipts.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use fireteam_probe::{BeaconAnswer, BeaconFinding, BeaconProber, BeaconTarget};
use rand::Rng;
use rand::rngs::StdRng;

use crate::matching::{MonotonicTime, PacketBudget, Transmit};

/// Beacons that are measured at once.
const BEACONS_AT_ONCE: usize = 8;
/// Least and most beacons whose receipts are wanted.
const BEACONS_WANTED_RANGE: [usize; 2] = [8, 16];
/// Beacons that are asked at most, since those that do not answer are replaced.
const BEACONS_ASKED_MAX: usize = 24;
/// Longest time of a measurement. It ends with the receipts that it has.
const TIME_MAX: Duration = Duration::from_secs(10);

/// Measurement underway.
#[derive(Debug)]
pub(super) struct Measurement {
    /// Beacons not asked yet, the nearest first.
    waiting: VecDeque<BeaconTarget>,
    running: Vec<BeaconProber>,
    wanted: usize,
    answered: usize,
    receipts: Vec<Vec<u8>>,
    until: MonotonicTime,
}

/// Beacon that asked to be left alone until a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct BusyBeacon {
    pub(super) beacon_id: u32,
    pub(super) until: MonotonicTime,
}

impl Measurement {
    /// Measurement of `wanted` of these beacons, the nearest first.
    pub(super) fn new(targets: Vec<BeaconTarget>, wanted: u32, now: MonotonicTime) -> Self {
        let [least, most] = BEACONS_WANTED_RANGE;
        let mut waiting = VecDeque::from(targets);
        waiting.truncate(BEACONS_ASKED_MAX);
        Self {
            waiting,
            running: Vec::new(),
            wanted: usize::try_from(wanted).unwrap_or(most).clamp(least, most),
            answered: 0,
            receipts: Vec::new(),
            until: now + TIME_MAX,
        }
    }

    /// Takes a packet. Returns the proof to send at once, if it is a challenge; a beacon that is busy is noted.
    pub(super) fn handle(
        &mut self,
        packet: &[u8],
        from: SocketAddr,
        busy: &mut Vec<BusyBeacon>,
        now: MonotonicTime,
    ) -> Option<Transmit> {
        if self.until <= now {
            return None;
        }
        let answers = self.running.iter_mut().filter_map(|prober| {
            let target = *prober.target();
            prober.handle(packet, from, now.as_micros()).map(|answer| (target, answer))
        });
        let (target, answer) = { answers }.next()?;
        match answer {
            BeaconAnswer::SendProof(proof) => Some(Transmit { to: target.endpoint, packet: proof.to_vec() }),
            BeaconAnswer::Busy(seconds) => {
                let until = now + Duration::from_secs(seconds.into());
                busy.push(BusyBeacon { beacon_id: target.beacon_id, until });
                None
            }
            BeaconAnswer::Receipt => None,
        }
    }

    /// Counts late answers as lost, and starts with the next beacons. Returns the packet that may be sent now.
    pub(super) fn poll(&mut self, budget: &PacketBudget, rng: &mut StdRng, now: MonotonicTime) -> Option<Transmit> {
        self.collect_finished_beacons(now);
        while self.running.len() < BEACONS_AT_ONCE
            && self.answered + self.running.len() < self.wanted
            && let Some(target) = self.waiting.pop_front()
        {
            self.running.push(BeaconProber::new(target, rng.random()));
        }
        if now < budget.next_at() || self.until <= now {
            return None;
        }
        let due = self.running.iter_mut().filter(|prober| prober.next_start_us().is_some());
        let prober = due.min_by_key(|prober| prober.next_start_us())?;
        let hello = prober.start_conversation(now.as_micros())?;
        Some(Transmit { to: prober.target().endpoint, packet: hello.to_vec() })
    }

    /// Moves beacons that are measured enough out of those underway.
    fn collect_finished_beacons(&mut self, now: MonotonicTime) {
        self.running.iter_mut().for_each(|prober| prober.expire(now.as_micros()));
        let (finished, running) =
            std::mem::take(&mut self.running).into_iter().partition(|prober| prober.finding().is_some());
        self.running = running;
        self.keep_receipts(finished);
    }

    fn keep_receipts(&mut self, probers: Vec<BeaconProber>) {
        for prober in probers {
            debug_assert!(prober.finding() != Some(BeaconFinding::Silent) || prober.receipts().is_empty());
            self.answered += usize::from(!prober.receipts().is_empty());
            self.receipts.extend(prober.receipts().iter().map(|receipt| receipt.to_vec()));
        }
    }

    /// Whether the measurement is over, after [`Self::poll`].
    pub(super) fn is_over(&self, now: MonotonicTime) -> bool {
        self.running.is_empty() || self.until <= now
    }

    /// Time of the next packet, or at which an answer is late.
    pub(super) fn next_timeout(&self, budget: &PacketBudget) -> MonotonicTime {
        let start_us = self.running.iter().filter_map(BeaconProber::next_start_us).min();
        let start_at = start_us.map(|at| MonotonicTime::from_micros(at).max(budget.next_at()));
        let expiry_us = self.running.iter().filter_map(BeaconProber::next_expiry_us).min();
        let expiry_at = expiry_us.map(MonotonicTime::from_micros);
        [start_at, expiry_at].into_iter().flatten().fold(self.until, MonotonicTime::min)
    }

    /// Receipts, also those of beacons that are still being measured.
    pub(super) fn finish(mut self) -> Vec<Vec<u8>> {
        let running = std::mem::take(&mut self.running);
        self.keep_receipts(running);
        self.receipts
    }
}
