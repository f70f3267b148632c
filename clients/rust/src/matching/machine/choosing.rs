//! Start of a loop, the draw of its action, and the fetch of the current ruleset.

use crate::matching::call::{CallError, Request};
use crate::matching::machine::Matching;
use crate::matching::monotonic_time::MonotonicTime;
use crate::matching::outcome::EndReason;
use crate::matching::stage::Stage;
use crate::pb;

/// Searches in a row with a stale ruleset after which the loop waits before the next.
const STALE_RULESETS_BEFORE_WAIT: u32 = 3;

impl Matching {
    pub(super) fn start(&mut self, now: MonotonicTime) {
        if matches!(self.stage, Stage::Idle) {
            self.started_at = now;
            let hosting = self.options.hosting.as_ref();
            if hosting.is_some_and(|hosting| hosting.kind == pb::AdvertisementKind::GameServer) {
                return self.end(EndReason::Failed(CallError::game_server_searches()), now);
            }
            self.choose_action(now);
        }
    }

    /// Draws the next action, if the party can host. Otherwise it searches.
    pub(super) fn choose_action(&mut self, now: MonotonicTime) {
        self.redraw_wait_started_at = now;
        if self.options.hosting.is_none() {
            return self.search(now);
        }
        let request = pb::MatchmakingChooseActionRequest {
            matchmaking_set_id: Some(self.options.set_id),
            party_size: self.options.party_size(),
        };
        let call = self.effects.call(Request::ChooseAction(request), now);
        self.stage = Stage::Choosing { call };
    }

    pub(super) fn on_action(&mut self, action: pb::MatchmakingAction, now: MonotonicTime) {
        match (action, self.options.hosting.clone()) {
            (pb::MatchmakingAction::Advertise, Some(hosting)) => self.advertise(hosting, true, now),
            _ => self.search(now),
        }
    }

    /// The draw is no more than a draw: without it the party searches.
    pub(super) fn on_action_failed(&mut self, error: CallError, now: MonotonicTime) {
        if error.is_final() {
            return self.end(EndReason::Failed(error), now);
        }
        self.search(now);
    }

    /// Fetches the hash of the current ruleset, and begins again with it.
    pub(super) fn fetch_current_ruleset(&mut self, now: MonotonicTime) {
        self.search_memory.forget_search();
        self.stale_in_a_row += 1;
        if STALE_RULESETS_BEFORE_WAIT < self.stale_in_a_row {
            return self.wait(0, now);
        }
        let request = pb::MatchmakingGetConfigurationRequest {
            matchmaking_set_id: Some(self.options.set_id),
            service_configuration_hash: self.options.service_configuration_hash,
        };
        let call = self.effects.call(Request::GetConfiguration(request), now);
        self.stage = Stage::Configuring { call };
    }

    pub(super) fn on_current_ruleset(&mut self, hash: u32, now: MonotonicTime) {
        // A client that names no ruleset uses the current one in any case.
        self.options.service_configuration_hash = self.options.service_configuration_hash.map(|_| hash);
        self.choose_action(now);
    }

    pub(super) fn on_current_ruleset_failed(&mut self, error: CallError, now: MonotonicTime) {
        if error.is_final() {
            return self.end(EndReason::Failed(error), now);
        }
        self.options.service_configuration_hash = None;
        self.wait(error.retry_after_ms.unwrap_or(0), now);
    }
}
