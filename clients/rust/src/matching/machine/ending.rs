//! End of a loop: it releases what it holds, and deletes what it advertised.

use std::time::Duration;

use crate::matching::call::Request;
use crate::matching::machine::Matching;
use crate::matching::monotonic_time::MonotonicTime;
use crate::matching::outcome::{EndReason, Outcome};
use crate::matching::stage::{JoinStep, Stage};

/// Longest time for the calls that release and delete. What they do not reach expires on the server.
const ENDING_TIME: Duration = Duration::from_secs(10);

impl Matching {
    /// Time at which the loop gives up; `None` in a session, and without such a limit.
    pub(super) fn gives_up_at(&self) -> Option<MonotonicTime> {
        let limit = self.options.give_up_after?;
        let is_seeking = match &self.stage {
            Stage::Idle
            | Stage::JoinedAsGuest(_)
            | Stage::HostingFullSession(_)
            | Stage::JoinedAsFormerHost
            | Stage::Ending { .. }
            | Stage::Ended => false,
            Stage::Advertising(advertising) => !advertising.has_guests(),
            _ => true,
        };
        is_seeking.then(|| self.started_at + limit)
    }

    /// Ends the loop. The first reason counts.
    pub(super) fn end(&mut self, reason: EndReason, now: MonotonicTime) {
        if matches!(self.stage, Stage::Ending { .. } | Stage::Ended) {
            return;
        }
        self.leave_stage(now);
        self.stage = Stage::Ending { reason, until: now + ENDING_TIME };
    }

    /// Releases and deletes what the state holds. Calls underway that reserve or publish go on, since their answers say what to undo.
    pub(super) fn leave_stage(&mut self, now: MonotonicTime) {
        match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Joining { step: JoinStep::Connecting { seat, .. }, .. } => {
                let reservation_id = seat.reservation.reservation_id.clone();
                self.effects.tell(Outcome::AbandonConnect { reservation_id });
                self.effects.release(&seat.reservation, now);
            }
            Stage::JoinedAsGuest(seat) => self.effects.release(&seat.reservation, now),
            Stage::Advertising(advertising) => {
                if !advertising.id().is_empty() {
                    // Another server may show it until it hears of the deletion.
                    self.exclusions.add(advertising.id(), now);
                }
                advertising.withdraw(&mut self.effects, now);
            }
            _ => {}
        }
        self.effects.calls.forget_unwanted(|_, request| {
            matches!(
                request,
                Request::ChooseAction(_)
                    | Request::GetConfiguration(_)
                    | Request::Search(_)
                    | Request::ReportLatency(_)
            )
        });
    }

    /// Says that the loop has ended.
    pub(super) fn finish_ending(&mut self) {
        if let Stage::Ending { reason, .. } = std::mem::replace(&mut self.stage, Stage::Ended) {
            self.effects.transmits.clear();
            self.effects.tell(Outcome::Ended(reason));
        }
    }
}
