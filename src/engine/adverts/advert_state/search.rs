//! Searches, answered from memory, without the store.

use std::cell::RefCell;
use std::sync::Arc;

use crate::auth::token::{AdvertisementHandleCipher, ConsentPurpose};
use crate::domain::advertisement::AdvertisementKind;
use crate::domain::filter::search_round_trip::RoundTripWithSource;
use crate::domain::filter::{AdvertsOfAvoidedPlayers, Searcher};
use crate::domain::id::AdvertisementId;
use crate::domain::index::{SearchHit, SearchQuery, SearchResult};
use crate::domain::probe_result::ProbeResults;
use crate::domain::ruleset::Ruleset;
use crate::domain::wish::{Wish, allowed_wishes};
use crate::engine::adverts::advert_state::AdvertState;
use crate::engine::adverts::advert_state::candidate_view::CandidateViewBuilder;
use crate::engine::adverts::avoided_advert_ids::AvoidedAdvertIds;
use crate::engine::adverts::probe_results::probe_results_of_search;
use crate::engine::adverts::search_claim::{renew_or_start_search_claim, sign_search_token};
use crate::engine::adverts::search_overrides::apply_overrides;
use crate::engine::beacons::party_floors::PartyPredictor;
use crate::engine::command::{Caller, CandidateView, SearchCommand, SearchSummary};
use crate::engine::error::EngineError;
use crate::engine::party_avoidance::PartyAvoidance;
use crate::engine::party_consent::check_party_consents;
use crate::engine::searching_party::SearchingParty;
use crate::telemetry::label::RoundTripLabel;

thread_local! {
    /// Result buffer of each thread, reused so that a search does not allocate per candidate.
    static RESULT_BUFFER: RefCell<SearchResult> = RefCell::default();
}

impl AdvertState {
    /// Finds sessions. Calls `each` per candidate, best first, while the set's index is locked; `each` must be quick.
    pub(crate) fn search(
        &self,
        caller: &Caller,
        search: SearchCommand,
        each: &mut dyn FnMut(CandidateView<'_>),
    ) -> Result<SearchSummary, EngineError> {
        let now = self.common.clock.now();
        let ruleset = self.common.current_or_cached_ruleset(search.set_id, search.ruleset_hash)?;
        let effective = match &search.overrides {
            None => Arc::clone(&ruleset),
            Some(_) if !self.common.settings.allow_search_overrides => return Err(EngineError::OverridesForbidden),
            Some(overrides) => Arc::new(apply_overrides(&ruleset, overrides)?),
        };
        let purpose = (&*ruleset, ConsentPurpose::Search);
        check_party_consents(&self.common, caller, purpose, &search.session, &search.consents, now)?;
        let SearchingParty { checked, predictor } =
            SearchingParty::new(&self.common, caller, &effective, search.session, &search.latency_tokens, now)?;
        let measured_claim = renew_or_start_search_claim(&self.common, &ruleset, &checked, &search.search_token, now)?;
        let claim = &measured_claim.search;
        let probes = probe_results_of_search(&measured_claim.measured, claim.started_at, now);
        let overridden_ms = search.overrides.as_ref().and_then(|overrides| overrides.searching_for_ms);
        let waited_ms = overridden_ms.unwrap_or_else(|| now.ms_since(claim.started_at));

        let party = claim.party_digest;
        let to_ids =
            search.excluded_adverts.into_iter().filter_map(|id| self.advert_id_of_handle(&effective, party, id, now));
        let mut excluded: Vec<AdvertisementId> = to_ids.collect();
        excluded.sort_unstable();
        let query = SearchQuery {
            ruleset: &effective,
            searcher: checked.searcher(
                &excluded,
                AdvertsOfAvoidedPlayers::default(),
                ProbeResults::from_sorted(&probes),
                predictor.as_ref().map(PartyPredictor::as_search_predictor),
                waited_ms,
            ),
            silo: checked.session.silo,
            kind: AdvertisementKind::Session,
            limits: effective.search_limits,
            now,
        };
        let mut answer = SearchSummary {
            ruleset: Arc::clone(&effective),
            evaluated_rows: 0,
            is_truncated: false,
            refusal_counts: Vec::new(),
            search_token: sign_search_token(&self.common, &measured_claim),
            searching_for_ms: waited_ms,
            next_expansion_in_ms: ms_until_limits_relax(&effective, query.searcher.wishes, waited_ms),
            store_staleness_ms: self.common.store_staleness_ms(now),
            ignored_fields: checked.ignored_fields.clone(),
        };
        let cipher = self.handle_cipher(&effective, party, now);
        let avoidance = PartyAvoidance::new(&self.common, &effective, query.silo, &checked.users, now);
        let candidates = self.search_index(query, avoidance, cipher.as_ref(), &mut answer, each);
        let hard_filters = effective.hard_filters.len();
        self.common.metrics.record_search(
            answer.evaluated_rows,
            candidates,
            answer.is_truncated,
            &answer.refusal_counts,
            hard_filters,
        );
        self.common.statistics.record_search_refusals(
            &effective,
            checked.session.player_count(),
            &answer.refusal_counts,
        );
        Ok(answer)
    }

    /// Searches the set's index and returns the number of candidates; 0 for a set without advertisements.
    fn search_index(
        &self,
        query: SearchQuery<'_>,
        avoidance: Option<PartyAvoidance<'_>>,
        cipher: Option<&AdvertisementHandleCipher>,
        answer: &mut SearchSummary,
        each: &mut dyn FnMut(CandidateView<'_>),
    ) -> usize {
        let Some(set) = self.advert_sets.get(query.ruleset.set_id) else { return 0 };
        let set = set.lock_for_read();
        let Some(index) = set.index_of_ruleset(query.ruleset.hash) else { return 0 };
        let avoided = avoidance.map(|avoidance| AvoidedAdvertIds::in_set(&set, index, &avoidance)).unwrap_or_default();
        let query = &SearchQuery { searcher: Searcher { avoided: avoided.view(), ..query.searcher }, ..query };
        RESULT_BUFFER.with_borrow_mut(|results| {
            index.search(query, results);
            answer.evaluated_rows = results.evaluated_rows;
            answer.is_truncated = results.truncated;
            answer.refusal_counts.extend_from_slice(&results.refusal_counts);
            // Touch all candidates first, so that their cache misses overlap.
            let seats = |hit: &SearchHit| usize::from(index.entry(hit.slot).advertisement.session.offered_seats);
            std::hint::black_box(results.hits.iter().map(seats).sum::<usize>());
            let choices = self.value_choice_input(query.ruleset, query.silo, query.now);
            // With handles, endpoints would tell which advertisements of two searchers are the same.
            let told_probes = if cipher.is_none() { query.ruleset.probing.max_probed_players_in_search() } else { 0 };
            let mut sources = [0; RoundTripLabel::ALL.len()];
            for (hit_index, hit) in results.hits.iter().enumerate() {
                let entry = index.entry(hit.slot);
                let builder = CandidateViewBuilder {
                    ruleset: query.ruleset,
                    searcher: &query.searcher,
                    cipher,
                    choices: choices.as_ref(),
                };
                let player_probe = entry.advertisement.player_probe().filter(|_| hit_index < told_probes);
                let chosen = builder.chosen_values(&entry.view());
                let candidate = index.view(hit.slot);
                let view = builder.build(&candidate, hit.score, results.hit_terms(hit_index));
                sources[label_of_round_trip(view.round_trip) as usize] += 1;
                each(CandidateView { player_probe, chosen: &chosen, ..view });
            }
            self.common.metrics.record_round_trip_sources(sources);
            results.hits.len()
        })
    }
}

fn label_of_round_trip(round_trip: Option<RoundTripWithSource>) -> RoundTripLabel {
    match round_trip {
        Some(RoundTripWithSource::Measured(_)) => RoundTripLabel::Measured,
        Some(RoundTripWithSource::Predicted(_)) => RoundTripLabel::Predicted,
        Some(RoundTripWithSource::ByRegion(_)) => RoundTripLabel::Region,
        Some(RoundTripWithSource::ByDistance(_)) => RoundTripLabel::Distance,
        None => RoundTripLabel::Unknown,
    }
}

/// Milliseconds until a limit of the ruleset or a wish of the party next relaxes, after `waited_ms`.
fn ms_until_limits_relax(ruleset: &Ruleset, wishes: &[Wish], waited_ms: u64) -> Option<u64> {
    let of_wishes = allowed_wishes::ms_until_next_step(ruleset, wishes, waited_ms);
    ruleset.ms_until_next_expansion(waited_ms).into_iter().chain(of_wishes).min()
}
