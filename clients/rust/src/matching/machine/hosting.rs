//! Hosting: the own session is open to others, until it is full or no party comes.

use std::net::SocketAddr;

use fireteam_probe::Verdict;

use crate::matching::advertising::{Advertising, AdvertisingEnd};
use crate::matching::call::{CallError, CallId};
use crate::matching::machine::Matching;
use crate::matching::monotonic_time::MonotonicTime;
use crate::matching::options::HostedSession;
use crate::matching::outcome::EndReason;
use crate::matching::stage::{ProbeStep, Stage};
use crate::pb;

impl Matching {
    /// Opens a session to others. `is_drawn`: the loop goes on without it if no party comes.
    pub(super) fn advertise(&mut self, hosting: HostedSession, is_drawn: bool, now: MonotonicTime) {
        let mut advertising = Advertising::new(hosting, &self.options, is_drawn, &mut self.effects, now);
        advertising.renew_latency_token(self.latency_token.clone());
        self.stage = Stage::Advertising(Box::new(advertising));
    }

    /// The game chose this client as the host, at the start or of the session that it is in.
    pub(super) fn become_host(&mut self, hosting: HostedSession, now: MonotonicTime) {
        if matches!(self.stage, Stage::Ending { .. } | Stage::Ended) {
            return;
        }
        if matches!(self.stage, Stage::Idle) {
            self.started_at = now;
        }
        self.leave_stage(now);
        self.advertise(hosting, false, now);
    }

    /// Another client hosts the session, in which this one stays.
    pub(super) fn host_moved(&mut self, now: MonotonicTime) {
        if matches!(self.stage, Stage::Advertising(_) | Stage::HostingFullSession(_)) {
            self.leave_stage(now);
            self.stage = Stage::JoinedAsFormerHost;
        }
    }

    pub(super) fn change_hosted_session(
        &mut self,
        session: pb::SessionCompositionData,
        joined: Vec<String>,
        now: MonotonicTime,
    ) {
        match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Advertising(mut advertising) => {
                advertising.change_session(session, joined);
                self.stage = Stage::Advertising(advertising);
            }
            Stage::HostingFullSession(mut hosting) => {
                hosting.session = session;
                if hosting.open_seats() > 0 {
                    self.advertise(*hosting, false, now);
                } else {
                    self.stage = Stage::HostingFullSession(hosting);
                }
            }
            other => self.stage = other,
        }
    }

    pub(super) fn on_reservation_event(&mut self, event: &pb::ReservationEvent, now: MonotonicTime) {
        if let Stage::Advertising(advertising) = &mut self.stage {
            advertising.apply_reservation_event(event, &mut self.effects, now);
        }
    }

    /// Takes a datagram: an answer to a probe, or the probe of another client.
    pub(super) fn on_datagram(&mut self, packet: &[u8], from: SocketAddr, now: MonotonicTime) {
        match &mut self.stage {
            Stage::Quick { step: ProbeStep::Probing(phase), .. }
            | Stage::Involved { step: ProbeStep::Probing(phase), .. } => phase.handle(packet, from, now),
            Stage::Advertising(advertising) => {
                let judge = |data: &[u8], answer: &mut Vec<u8>| match &mut self.prober_data_judge {
                    Some(judge) => judge(data, answer),
                    None => Verdict::Fits,
                };
                advertising.handle_probe(packet, from, judge, &mut self.effects, now);
            }
            _ => {}
        }
    }

    /// Sends the update that is due. Returns whether the state has changed.
    pub(super) fn step_advertising(&mut self, now: MonotonicTime) -> bool {
        let Stage::Advertising(advertising) = &mut self.stage else { return false };
        let end = advertising.send_due_update(&self.options, &mut self.effects, now);
        self.end_advertising(end, now)
    }

    pub(super) fn on_updated(&mut self, answer: &pb::MatchmakingUpdateAdvertisementResponse, now: MonotonicTime) {
        let Stage::Advertising(advertising) = &mut self.stage else { return };
        let end = advertising.take_update_answer(answer, &mut self.effects, now);
        self.end_advertising(end, now);
    }

    pub(super) fn on_update_failed(&mut self, error: CallError, now: MonotonicTime) {
        let Stage::Advertising(advertising) = &mut self.stage else { return };
        let end = advertising.take_update_failure(error, &mut self.effects, now);
        self.end_advertising(end, now);
    }

    /// Takes an answer that no state waits for. An advertisement that this client does not keep alive is deleted.
    pub(super) fn on_late_update_answer(
        &mut self,
        call: CallId,
        answer: &pb::MatchmakingUpdateAdvertisementResponse,
        now: MonotonicTime,
    ) {
        let is_own = match &mut self.stage {
            Stage::Advertising(advertising) => advertising.take_late_update_answer(call, answer),
            _ => false,
        };
        if !is_own {
            self.effects.delete(&answer.advertisement_id, &answer.advertisement_token, now);
        }
    }

    fn end_advertising(&mut self, end: Option<AdvertisingEnd>, now: MonotonicTime) -> bool {
        let (Some(end), Stage::Advertising(advertising)) = (end, &self.stage) else { return false };
        let (hosted_session, has_guests) = (advertising.hosted_session().clone(), advertising.has_guests());
        let is_game_server = hosted_session.kind == pb::AdvertisementKind::GameServer;
        match end {
            AdvertisingEnd::Full => {
                self.leave_stage(now);
                self.stage = Stage::HostingFullSession(Box::new(hosted_session));
            }
            AdvertisingEnd::Alone => {
                self.leave_stage(now);
                self.choose_action(now);
            }
            // The party itself may be welcome elsewhere; a game server has none.
            AdvertisingEnd::Refused(error) if !has_guests && !error.is_final() && !is_game_server => {
                self.leave_stage(now);
                self.redraw_wait_started_at = now;
                self.search(now);
            }
            AdvertisingEnd::Refused(error) => self.end(EndReason::Failed(error), now),
        }
        true
    }
}
