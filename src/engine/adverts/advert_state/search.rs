//! Searches, and ranking by measured latency. Both are answered from memory, without the store.

use std::cell::RefCell;
use std::sync::Arc;

use crate::auth::token::{ConsentPurpose, HandleCipher};
use crate::domain::advertisement::AdvertisementKind;
use crate::domain::filter::{AdvertisementView, Searcher, admit, measure_between};
use crate::domain::id::AdvertisementId;
use crate::domain::index::{SearchHit, SearchQuery, SearchResult};
use crate::domain::latency::min_possible_round_trip_ms;
use crate::domain::measure::Measure;
use crate::domain::ruleset::{HandlePolicy, Ruleset};
use crate::domain::score::{score, soft_filter_term};
use crate::domain::time::UnixMs;
use crate::engine::adverts::advert_set::candidate_from_record;
use crate::engine::adverts::advert_state::AdvertState;
use crate::engine::adverts::search_claim::{renew_search_claim, ruleset_of_search};
use crate::engine::adverts::search_overrides::apply_overrides;
use crate::engine::checked_session::CheckedSession;
use crate::engine::command::{
    Caller, CandidateView, QuickOrInvolvedTest, ReportLatencyAnswer, ReportLatencyCommand, RoundTrip, SearchAnswer,
    SearchCommand,
};
use crate::engine::error::{EngineError, field_error};
use crate::engine::party_consent::check_party_consents;

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
    ) -> Result<SearchAnswer, EngineError> {
        let now = self.common.clock.now();
        let ruleset = self.common.ruleset(search.set_id, search.ruleset_hash)?;
        let effective = match &search.overrides {
            None => Arc::clone(&ruleset),
            Some(_) if !self.common.settings.allow_search_overrides => return Err(EngineError::OverridesForbidden),
            Some(overrides) => Arc::new(apply_overrides(&ruleset, overrides)?),
        };
        let purpose = (&*ruleset, ConsentPurpose::Search);
        check_party_consents(&self.common, caller, purpose, &search.session, &search.consents, now)?;
        let (session, ignored) = self.common.with_resolved_locality(caller, search.session)?;
        let checked = CheckedSession::new(&self.common.party_values, &effective, caller, session, ignored)?;
        let claim = renew_search_claim(&self.common, &ruleset, &checked, &search.search_token, now)?;
        let overridden_ms = search.overrides.as_ref().and_then(|overrides| overrides.searching_for_ms);
        let waited_ms = overridden_ms.unwrap_or_else(|| now.ms_since(claim.started_at));

        let party = claim.party_digest;
        let to_ids = search.excluded_adverts.into_iter().filter_map(|id| self.advert_id(&effective, party, id, now));
        let mut excluded: Vec<AdvertisementId> = to_ids.collect();
        excluded.sort_unstable();
        let query = SearchQuery {
            ruleset: &effective,
            searcher: checked.searcher(&excluded, waited_ms),
            silo: checked.session.silo,
            kind: AdvertisementKind::Session,
            limits: effective.search_limits,
            now,
        };
        let mut answer = SearchAnswer {
            ruleset: Arc::clone(&effective),
            evaluated_rows: 0,
            truncated: false,
            refusal_counts: Vec::new(),
            search_token: self.common.token_signer.sign(&claim),
            searching_for_ms: waited_ms,
            next_expansion_in_ms: effective.ms_until_next_expansion(waited_ms),
            store_staleness_ms: self.common.store_staleness_ms(now),
            ignored_fields: checked.ignored_fields.clone(),
        };
        let cipher = self.handle_cipher(&effective, party, now);
        let candidates = self.search_index(&query, cipher.as_ref(), &mut answer, each);
        let hard_filters = effective.hard_filters.len();
        self.common.metrics.record_search(
            answer.evaluated_rows,
            candidates,
            answer.truncated,
            &answer.refusal_counts,
            hard_filters,
        );
        Ok(answer)
    }

    /// Searches the set's index and returns the number of candidates; 0 for a set without advertisements.
    fn search_index(
        &self,
        query: &SearchQuery<'_>,
        cipher: Option<&HandleCipher>,
        answer: &mut SearchAnswer,
        each: &mut dyn FnMut(CandidateView<'_>),
    ) -> usize {
        let Some(set) = self.advert_sets.get(query.ruleset.set_id) else { return 0 };
        let set = set.read();
        let Some(index) = set.index_of_ruleset(query.ruleset.hash) else { return 0 };
        RESULT_BUFFER.with_borrow_mut(|results| {
            index.search(query, results);
            answer.evaluated_rows = results.evaluated_rows;
            answer.truncated = results.truncated;
            answer.refusal_counts.extend_from_slice(&results.refusal_counts);
            // Touch all encoded candidates first, so that their cache misses overlap.
            let first_byte =
                |hit: &SearchHit| index.entry(hit.slot).encoded_response.first().copied().map_or(0, usize::from);
            std::hint::black_box(results.hits.iter().map(first_byte).sum::<usize>());
            for (hit_index, hit) in results.hits.iter().enumerate() {
                let entry = index.entry(hit.slot);
                let builder = CandidateViewBuilder {
                    ruleset: query.ruleset,
                    searcher: &query.searcher,
                    cipher,
                    round_trip: None,
                };
                each(builder.build(&entry.view(), &entry.encoded_response, hit.score, results.hit_terms(hit_index)));
            }
            results.hits.len()
        })
    }

    /// Ranks candidates by measured round trip instead of locality; ties by latency.
    ///
    /// Drops candidates that did not respond, are gone or full, or are refused at the measured round trip.
    pub(crate) fn rank_candidates_by_measured_round_trips(
        &self,
        caller: &Caller,
        report: ReportLatencyCommand,
        each: &mut dyn FnMut(CandidateView<'_>),
    ) -> Result<ReportLatencyAnswer, EngineError> {
        let now = self.common.clock.now();
        let ruleset = ruleset_of_search(&self.common, report.set_id, report.ruleset_hash, &report.search_token)?;
        let (session, ignored) = self.common.with_resolved_locality(caller, report.session)?;
        let checked = CheckedSession::new(&self.common.party_values, &ruleset, caller, session, ignored)?;
        if report.search_token.is_empty() {
            return Err(field_error(
                "search_token",
                "is required; send the token of the search that found the candidates",
            ));
        }
        let claim = renew_search_claim(&self.common, &ruleset, &checked, &report.search_token, now)?;
        let searcher = checked.searcher(&[], now.ms_since(claim.started_at));
        let responded = report.measurements.iter().filter(|(_, round_trip_ms)| round_trip_ms.is_some()).count();
        let cipher = self.handle_cipher(&ruleset, claim.party_digest, now);
        let to_id = |(handle, round_trip_ms): &(AdvertisementId, Option<f32>)| {
            (self.advert_id(&ruleset, claim.party_digest, *handle, now).unwrap_or(*handle), *round_trip_ms)
        };
        let measurements: Vec<_> = report.measurements.iter().map(to_id).collect();
        let ranking = Ranking { ruleset: &ruleset, searcher: &searcher, cipher: cipher.as_ref(), now };
        let implausible = self.rank_by_measured_latency(&ranking, &measurements, each);
        let min_responses = ruleset.involved_phase_percent * report.measurements.len() as f64 / 100.0;
        let involved_phase_may_start = match report.phase {
            QuickOrInvolvedTest::Quick => responded > 0 && responded as f64 >= min_responses,
            QuickOrInvolvedTest::Involved => false,
        };
        Ok(ReportLatencyAnswer {
            ruleset,
            involved_phase_may_start,
            ignored_fields: checked.ignored_fields,
            implausible_measurements: implausible,
        })
    }

    /// Cipher for the ids that a party receives; `None` where it receives the ids themselves.
    fn handle_cipher(&self, ruleset: &Ruleset, party_digest: [u8; 16], now: UnixMs) -> Option<HandleCipher> {
        match ruleset.handles {
            HandlePolicy::Ids => None,
            HandlePolicy::PerSearcher => Some(self.common.token_signer.handle_cipher(party_digest, now)),
        }
    }

    /// Id of the advertisement that a party calls by `handle`. `None` if the ruleset tells handles and this is none of an
    /// advertisement in memory.
    pub(crate) fn advert_id(
        &self,
        ruleset: &Ruleset,
        party_digest: [u8; 16],
        handle: AdvertisementId,
        now: UnixMs,
    ) -> Option<AdvertisementId> {
        if ruleset.handles == HandlePolicy::Ids {
            return Some(handle);
        }
        let set = self.advert_sets.get(ruleset.set_id)?;
        let set = set.read();
        self.common.token_signer.open_handle(party_digest, handle, now).find(|id| set.get(*id).is_some())
    }

    /// Replaces measurements below the speed-of-light minimum by that minimum, and returns their indices in the report.
    fn rank_by_measured_latency(
        &self,
        &Ranking { ruleset, searcher, cipher, now }: &Ranking<'_>,
        measurements: &[(AdvertisementId, Option<f32>)],
        each: &mut dyn FnMut(CandidateView<'_>),
    ) -> Vec<usize> {
        let mut implausible = Vec::new();
        let Some(set) = self.advert_sets.get(ruleset.set_id) else { return implausible };
        let set = set.read();
        let responses = measurements
            .iter()
            .enumerate()
            .filter_map(|(position, &(id, round_trip_ms))| Some((position, id, f64::from(round_trip_ms?))));
        let mut ranked: Vec<_> = responses
            .filter_map(|(position, id, measured_ms)| {
                let record = set.get(id)?;
                let min_ms = min_possible_round_trip_ms(searcher.locality, record.advertisement.session.locality);
                let round_trip = if measured_ms < min_ms {
                    implausible.push(position);
                    RoundTrip::Estimated(min_ms)
                } else {
                    RoundTrip::Measured(measured_ms)
                };
                let attribute_values =
                    self.common.party_values.attribute_values(ruleset, &record.advertisement.session);
                let candidate = candidate_from_record(record, &attribute_values);
                admit(ruleset, searcher, &candidate, Some(round_trip.millis()), now).ok()?;
                let score = score(ruleset, searcher, &candidate, Some(round_trip.millis()));
                Some((score, id, round_trip, record, attribute_values))
            })
            .collect();
        ranked.sort_by(|left, right| {
            left.0.total_cmp(&right.0).then(left.2.millis().total_cmp(&right.2.millis())).then(left.1.cmp(&right.1))
        });
        ranked.dedup_by_key(|candidate| candidate.1);
        let mut score_terms = Vec::new();
        for (score, _, round_trip, record, attribute_values) in &ranked {
            let builder = CandidateViewBuilder { ruleset, searcher, cipher, round_trip: Some(*round_trip) };
            let candidate = candidate_from_record(record, attribute_values);
            let filters = ruleset.soft_filters.iter();
            score_terms.clear();
            score_terms.extend(
                filters
                    .map(|filter| soft_filter_term(ruleset, filter, searcher, &candidate, Some(round_trip.millis()))),
            );
            each(builder.build(&candidate, &record.encoded_advert, *score, &score_terms));
        }
        implausible
    }
}

/// Context of a ranking by measured round trips.
struct Ranking<'a> {
    ruleset: &'a Ruleset,
    searcher: &'a Searcher<'a>,
    cipher: Option<&'a HandleCipher>,
    now: UnixMs,
}

/// Context for building candidate views.
struct CandidateViewBuilder<'a> {
    ruleset: &'a Ruleset,
    searcher: &'a Searcher<'a>,
    /// Seals ids; `None` where searchers receive ids.
    cipher: Option<&'a HandleCipher>,
    /// Measured round trip; `None` for a plain search.
    round_trip: Option<RoundTrip>,
}

impl CandidateViewBuilder<'_> {
    fn build<'v>(
        &self,
        advertisement: &AdvertisementView<'_>,
        encoded_advert: &'v [u8],
        score: f64,
        score_terms: &'v [f64],
    ) -> CandidateView<'v> {
        let (searcher_view, candidate_view) = (self.searcher.session_view(), advertisement.session_view());
        let between = |measure| measure_between(self.ruleset, measure, &searcher_view, &candidate_view, None);
        CandidateView {
            id: advertisement.advertisement.id,
            handle: self.cipher.map(|cipher| cipher.seal(advertisement.advertisement.id)),
            encoded_advert,
            score,
            score_terms,
            distance_miles: between(Measure::Distance),
            round_trip: self.round_trip.or_else(|| between(Measure::Latency).map(RoundTrip::Estimated)),
            open_seats: advertisement.open_seats,
        }
    }
}
