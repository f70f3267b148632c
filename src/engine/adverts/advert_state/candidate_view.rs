//! Candidates as a searcher receives them: ids or handles, distance, round trip, and chosen values.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::auth::token::AdvertisementHandleCipher;
use crate::domain::chosen_value::ChosenValue;
use crate::domain::filter::search_round_trip::search_round_trip;
use crate::domain::filter::{AdvertisementView, Searcher, measure_between};
use crate::domain::id::{SiloId, UserKey};
use crate::domain::measure::Measure;
use crate::domain::queue::past_match_log::PastMatchLog;
use crate::domain::ruleset::Ruleset;
use crate::domain::time::UnixMs;
use crate::domain::value_choice::{ValueChoiceContext, choose_values, seed_of_id};
use crate::engine::adverts::advert_state::AdvertState;
use crate::engine::command::CandidateView;
use crate::store::queues::QueueKey;

/// Facts for choices of entries of string lists.
pub(super) struct ValueChoiceInput {
    /// Past matches of the set and silo, if the ruleset chooses by what was played.
    log: Option<Arc<Mutex<PastMatchLog>>>,
    now: UnixMs,
}

/// Context for building candidate views.
pub(super) struct CandidateViewBuilder<'a> {
    pub(super) ruleset: &'a Ruleset,
    pub(super) searcher: &'a Searcher<'a>,
    /// Seals ids; `None` where searchers receive ids.
    pub(super) cipher: Option<&'a AdvertisementHandleCipher>,
    /// Facts for choices of entries of string lists; `None` if the ruleset chooses none.
    pub(super) choices: Option<&'a ValueChoiceInput>,
}

impl AdvertState {
    /// Facts for choices of entries of string lists; `None` if the ruleset chooses none.
    pub(super) fn value_choice_input(&self, ruleset: &Ruleset, silo: SiloId, now: UnixMs) -> Option<ValueChoiceInput> {
        let key = QueueKey { set_id: ruleset.set_id, silo };
        let log = || ruleset.played_values_recent_ms().and_then(|_| self.common.past_matches.get(key));
        ruleset.chooses_values().then(|| ValueChoiceInput { log: log(), now })
    }
}

impl CandidateViewBuilder<'_> {
    /// Entries that the ruleset would choose for the party and the session. None if it chooses none, which costs nothing.
    pub(super) fn chosen_values(&self, advertisement: &AdvertisementView<'_>) -> Box<[ChosenValue]> {
        let Some(choices) = self.choices else { return Box::default() };
        let seed = seed_of_id(advertisement.advertisement.id.as_bytes());
        let sides = [advertisement.attribute_values, self.searcher.attribute_values];
        let listed = advertisement.advertisement.session.players.iter().map(|player| player.user);
        let users: Vec<UserKey> = listed.chain(self.searcher.users.iter().copied()).collect();
        let played =
            &choices.log.as_ref().map(|log| log.lock().values_played_by(users.iter().copied())).unwrap_or_default();
        let input = ValueChoiceContext { seed, users: &users, played, promised: &[], now: choices.now };
        choose_values(self.ruleset, sides.into_iter(), input).unwrap_or_default()
    }

    pub(super) fn build<'v>(
        &self,
        advertisement: &AdvertisementView<'v>,
        score: f64,
        score_terms: &'v [f64],
    ) -> CandidateView<'v> {
        let (searcher, candidate) = (self.searcher.session_view(), advertisement.session_view());
        CandidateView {
            advertisement: advertisement.advertisement,
            handle: self.cipher.map(|cipher| cipher.seal(advertisement.advertisement.id)),
            score,
            score_terms,
            avoidance_cost: self.searcher.avoided.cost(advertisement.advertisement.id),
            distance_miles: measure_between(self.ruleset, Measure::Distance, &searcher, &candidate, None),
            round_trip: search_round_trip(self.ruleset, self.searcher, advertisement),
            open_seats: advertisement.open_seats,
            chosen: &[],
            player_probe: None,
        }
    }
}
