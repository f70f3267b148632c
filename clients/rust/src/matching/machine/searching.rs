//! Searches, and the waits between them.

use std::time::Duration;

use crate::matching::call::{CallError, Request};
use crate::matching::machine::Matching;
use crate::matching::monotonic_time::MonotonicTime;
use crate::matching::outcome::EndReason;
use crate::matching::round::Round;
use crate::matching::stage::Stage;
use crate::pb;

/// Least and most time between two searches, milliseconds, before the jitter.
const WAIT_RANGE_MS: [u64; 2] = [500, 5_000];
/// Share by which a wait is shorter or longer at random, so that clients that began together do not stay together.
const WAIT_JITTER: f64 = 0.2;
/// Longest wait that a server may ask for, milliseconds.
const SERVER_WAIT_MAX_MS: u64 = 60_000;

impl Matching {
    /// Searches with the limits for the time waited so far.
    pub(super) fn search(&mut self, now: MonotonicTime) {
        let request = pb::MatchmakingSearchRequest {
            session_composition: Some(self.party_with_latency_token()),
            service_configuration_hash: self.options.service_configuration_hash,
            matchmaking_set_id: Some(self.options.set_id),
            search_token: self.search_memory.token_unless_idle(now),
            exclude_advertisement_ids: self.exclusions.ids(now),
            ..Default::default()
        };
        let call = self.effects.call(Request::Search(Box::new(request)), now);
        self.stage = Stage::Searching { call };
    }

    pub(super) fn on_found(&mut self, found: &pb::MatchmakingSearchResponse, now: MonotonicTime) {
        self.search_memory.keep_token(&found.search_token, now);
        self.next_expansion_in_ms = found.next_expansion_in_ms;
        self.stale_in_a_row = 0;
        let mut round = Round::new(found);
        let is_left_out =
            |id: &&String| self.exclusions.contains(id, now) || self.search_memory.is_silent_or_incompatible(id);
        let order = round.order().iter().filter(|id| !is_left_out(id)).cloned().collect();
        round.set_order(order);
        self.start_quick_phase(Box::new(round), now);
    }

    pub(super) fn on_search_failed(&mut self, is_new_search: bool, error: CallError, now: MonotonicTime) {
        if error.code == tonic::Code::InvalidArgument && !is_new_search {
            // The token is of another server, or of another party.
            self.search_memory.forget_search();
            return self.search(now);
        }
        if error.is_final() {
            return self.end(EndReason::Failed(error), now);
        }
        self.wait(error.retry_after_ms.unwrap_or(0), now);
    }

    /// Waits until the limits have relaxed, and at least `least_ms`.
    pub(super) fn wait(&mut self, least_ms: u64, now: MonotonicTime) {
        let [least, most] = WAIT_RANGE_MS;
        let wait_ms = self.next_expansion_in_ms.unwrap_or(most).clamp(least, most);
        let wait = Duration::from_millis(wait_ms)
            .mul_f64(1.0 - WAIT_JITTER + 2.0 * WAIT_JITTER * self.effects.jitter_fraction());
        let least = Duration::from_millis(least_ms.min(SERVER_WAIT_MAX_MS));
        self.stage = Stage::Waiting { until: now + wait.max(least) };
    }

    /// Begins the next round: with another draw, if the rounds since the last one took too long.
    pub(super) fn next_round(&mut self, now: MonotonicTime) {
        if self.options.redraw_after <= now.since(self.redraw_wait_started_at) {
            self.choose_action(now);
        } else {
            self.search(now);
        }
    }
}
