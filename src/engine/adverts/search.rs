//! Searching, and ordering again by measured round trips. Memory alone answers; the store is never asked.

use std::cell::RefCell;
use std::sync::Arc;

use crate::auth::token::{SearchClaim, TokenSigner};
use crate::domain::advertisement::AdvertisementKind;
use crate::domain::attribute_values::AttributeValues;
use crate::domain::filter::{AdvertisementView, Searcher, admit, measure_between};
use crate::domain::id::{AdvertisementId, RulesetHash, SetId};
use crate::domain::index::{SearchHit, SearchQuery, SearchResult};
use crate::domain::latency::min_possible_round_trip_ms;
use crate::domain::measure::Measure;
use crate::domain::ruleset::Ruleset;
use crate::domain::score::{score, soft_filter_term};
use crate::domain::time::UnixMs;
use crate::engine::adverts::advert_set::candidate_of_record;
use crate::engine::adverts::checked_session::{CheckedSession, field_error};
use crate::engine::adverts::search_overrides::apply_overrides;
use crate::engine::command::{
    Caller, CandidateView, LatencyPhase, ReportLatencyAnswer, ReportLatencyCommand, RoundTrip, SearchAnswer,
    SearchCommand,
};
use crate::engine::core::Core;
use crate::engine::error::EngineError;

thread_local! {
    /// What one thread's searches write into, kept so that a search allocates nothing per candidate.
    static RESULT_BUFFER: RefCell<SearchResult> = RefCell::default();
}

impl Core {
    /// Finds sessions; `each` sees the candidates, best first, while the set's index is held, and must be quick.
    pub(in crate::engine) fn search(
        &self,
        caller: &Caller,
        search: SearchCommand,
        each: &mut dyn FnMut(CandidateView<'_>),
    ) -> Result<SearchAnswer, EngineError> {
        let now = self.clock.now();
        let ruleset = self.ruleset(search.set_id, search.ruleset_hash)?;
        let judged = match &search.overrides {
            None => Arc::clone(&ruleset),
            Some(_) if !self.settings.allow_search_overrides => return Err(EngineError::OverridesForbidden),
            Some(overrides) => Arc::new(apply_overrides(&ruleset, overrides)?),
        };
        self.check_party_consents(caller, &ruleset, &search.session, &search.consents, now)?;
        let (session, ignored) = self.with_resolved_locality(caller, search.session)?;
        let seeker = CheckedSession::new(&judged, caller, session, ignored)?;
        let claim = self.renew_search_claim(&ruleset, &seeker, &search.search_token, now)?;
        let asked = search.overrides.as_ref().and_then(|overrides| overrides.searching_for_ms);
        let waited_ms = asked.unwrap_or_else(|| now.ms_since(claim.started_at));

        let mut excluded = search.excluded_adverts;
        excluded.sort_unstable();
        let query = SearchQuery {
            ruleset: &judged,
            searcher: seeker.searcher(&excluded, waited_ms),
            silo: seeker.session.silo,
            kind: AdvertisementKind::Session,
            limits: judged.search_limits,
            now,
        };
        let mut answer = SearchAnswer {
            ruleset: Arc::clone(&judged),
            evaluated_rows: 0,
            truncated: false,
            refusal_counts: Vec::new(),
            search_token: self.token_signer.sign(&claim),
            searching_for_ms: waited_ms,
            next_expansion_in_ms: judged.ms_until_next_expansion(waited_ms),
            store_staleness_ms: self.store_staleness_ms(now),
            ignored_fields: seeker.ignored_fields.clone(),
        };
        let candidates = self.search_index(&query, &mut answer, each);
        let hard_filters = judged.hard_filters.len();
        self.metrics.record_search(
            answer.evaluated_rows,
            candidates,
            answer.truncated,
            &answer.refusal_counts,
            hard_filters,
        );
        Ok(answer)
    }

    /// Looks through the set's index and says how many it found; a set without advertisements has nothing to look
    /// through.
    fn search_index(
        &self,
        query: &SearchQuery<'_>,
        answer: &mut SearchAnswer,
        each: &mut dyn FnMut(CandidateView<'_>),
    ) -> usize {
        let Some(shelf) = self.advert_sets.get(query.ruleset.set_id) else { return 0 };
        let shelf = shelf.read();
        let Some(view) = shelf.index_of_ruleset(query.ruleset.hash) else { return 0 };
        RESULT_BUFFER.with_borrow_mut(|found| {
            view.search(query, found);
            answer.evaluated_rows = found.evaluated_rows;
            answer.truncated = found.truncated;
            answer.refusal_counts.extend_from_slice(&found.refusal_counts);
            // What is copied lies anywhere in memory: asked for together, it comes in the time of one.
            let first = |hit: &SearchHit| view.entry(hit.slot).encoded_response.first().copied().map_or(0, usize::from);
            std::hint::black_box(found.hits.iter().map(first).sum::<usize>());
            for (number, hit) in found.hits.iter().enumerate() {
                let entry = view.entry(hit.slot);
                let shown =
                    CandidateViewBuilder { ruleset: query.ruleset, searcher: &query.searcher, round_trip: None };
                each(shown.build(&entry.view(), &entry.encoded_response, hit.score, found.hit_terms(number)));
            }
            found.hits.len()
        })
    }

    /// Orders candidates by what their round trips really are (S1-28, S1-29); from here on locality is ignored, and the
    /// faster of two with one score comes first. Who did not answer is out, and so is who has gone, filled up or is
    /// refused by a rule at the measured round trip.
    pub(in crate::engine) fn report_latency(
        &self,
        caller: &Caller,
        report: ReportLatencyCommand,
        each: &mut dyn FnMut(CandidateView<'_>),
    ) -> Result<ReportLatencyAnswer, EngineError> {
        let now = self.clock.now();
        let ruleset = self.ruleset_of_search(report.set_id, report.ruleset_hash, &report.search_token)?;
        let (session, ignored) = self.with_resolved_locality(caller, report.session)?;
        let seeker = CheckedSession::new(&ruleset, caller, session, ignored)?;
        if report.search_token.is_empty() {
            return Err(field_error(
                "search_token",
                "is required: send the one of the search that found the candidates",
            ));
        }
        let claim = self.renew_search_claim(&ruleset, &seeker, &report.search_token, now)?;
        let searcher = seeker.searcher(&[], now.ms_since(claim.started_at));
        let answered = report.measurements.iter().filter(|(_, round_trip_ms)| round_trip_ms.is_some()).count();
        let doubted = self.rank_by_measured_latency(&ruleset, &searcher, &report.measurements, now, each);
        let enough = ruleset.involved_phase_percent * report.measurements.len() as f64 / 100.0;
        let involved_phase_may_start = match report.phase {
            LatencyPhase::Quick => 0 < answered && enough <= answered as f64,
            LatencyPhase::Involved => false,
        };
        Ok(ReportLatencyAnswer {
            ruleset,
            involved_phase_may_start,
            ignored_fields: seeker.ignored_fields,
            implausible_measurements: doubted,
        })
    }

    /// What is measured faster than light counts as what light would take, and is named: by its place in the report.
    fn rank_by_measured_latency(
        &self,
        ruleset: &Ruleset,
        searcher: &Searcher<'_>,
        measurements: &[(AdvertisementId, Option<f32>)],
        now: UnixMs,
        each: &mut dyn FnMut(CandidateView<'_>),
    ) -> Vec<usize> {
        let mut doubted = Vec::new();
        let Some(shelf) = self.advert_sets.get(ruleset.set_id) else { return doubted };
        let shelf = shelf.read();
        let measured = measurements.iter().enumerate();
        let measured = measured.filter_map(|(at, &(id, round_trip_ms))| Some((at, id, f64::from(round_trip_ms?))));
        let mut standing: Vec<_> = measured
            .filter_map(|(at, id, claimed_ms)| {
                let record = shelf.get(id)?;
                let least_ms = min_possible_round_trip_ms(searcher.locality, record.advertisement.session.locality);
                let believed = if claimed_ms < least_ms {
                    doubted.push(at);
                    RoundTrip::Estimated(least_ms)
                } else {
                    RoundTrip::Measured(claimed_ms)
                };
                let facts = AttributeValues::from_session(ruleset, &record.advertisement.session);
                let candidate = candidate_of_record(record, &facts);
                admit(ruleset, searcher, &candidate, Some(believed.millis()), now).ok()?;
                let score = score(ruleset, searcher, &candidate, Some(believed.millis()));
                Some((score, id, believed, record, facts))
            })
            .collect();
        standing.sort_by(|one, other| {
            one.0.total_cmp(&other.0).then(one.2.millis().total_cmp(&other.2.millis())).then(one.1.cmp(&other.1))
        });
        standing.dedup_by_key(|candidate| candidate.1);
        let mut terms = Vec::new();
        for (score, _, believed, record, facts) in &standing {
            let shown = CandidateViewBuilder { ruleset, searcher, round_trip: Some(*believed) };
            let candidate = candidate_of_record(record, facts);
            let soft = ruleset.soft_filters.iter();
            terms.clear();
            terms.extend(
                soft.map(|soft| soft_filter_term(ruleset, soft, searcher, &candidate, Some(believed.millis()))),
            );
            each(shown.build(&candidate, &record.encoded_advert, *score, &terms));
        }
        doubted
    }

    /// The ruleset that a search went by: the one of `hash`, else the one that its token names, else the current one.
    pub(in crate::engine) fn ruleset_of_search(
        &self,
        set_id: SetId,
        hash: Option<RulesetHash>,
        token: &[u8],
    ) -> Result<Arc<Ruleset>, EngineError> {
        let named = || self.token_signer.verify::<SearchClaim>(token).filter(|claim| claim.set_id == set_id);
        self.ruleset(set_id, hash.or_else(|| named().map(|claim| claim.ruleset_hash)))
    }

    /// The claim to go on with, by the rules of `ruleset`: the token's while it lasts, else a new one that begins now.
    pub(in crate::engine) fn renew_search_claim(
        &self,
        ruleset: &Ruleset,
        seeker: &CheckedSession,
        token: &[u8],
        now: UnixMs,
    ) -> Result<SearchClaim, EngineError> {
        let party = TokenSigner::party_digest(seeker.subject, &seeker.users, &seeker.session.party_sizes);
        let Ruleset { set_id, hash, .. } = *ruleset;
        let fresh = SearchClaim {
            set_id,
            ruleset_hash: hash,
            silo: seeker.session.silo,
            party_digest: party,
            started_at: now,
            last_issued_at: now,
        };
        if token.is_empty() {
            return Ok(fresh);
        }
        let Some(claim) = self.token_signer.verify::<SearchClaim>(token) else {
            return Err(field_error("search_token", "is not one of this server's: leave it out to begin a new search"));
        };
        if (claim.set_id, claim.silo, claim.party_digest) != (fresh.set_id, fresh.silo, fresh.party_digest) {
            let what = "belongs to another set, silo or party: leave it out to begin a new search";
            return Err(field_error("search_token", what));
        }
        if self.settings.search_token_idle_timeout_ms < now.ms_since(claim.last_issued_at) {
            return Ok(fresh);
        }
        Ok(SearchClaim { ruleset_hash: hash, last_issued_at: now, ..claim })
    }
}

/// What a candidate is shown with.
struct CandidateViewBuilder<'a> {
    ruleset: &'a Ruleset,
    searcher: &'a Searcher<'a>,
    /// What its report of a round trip counts as, once there is one.
    round_trip: Option<RoundTrip>,
}

impl CandidateViewBuilder<'_> {
    fn build<'v>(
        &self,
        listed: &AdvertisementView<'_>,
        encoded: &'v [u8],
        score: f64,
        terms: &'v [f64],
    ) -> CandidateView<'v> {
        let (here, there) = (self.searcher.session_view(), listed.session_view());
        let between = |measure| measure_between(self.ruleset, measure, &here, &there, None);
        CandidateView {
            id: listed.advertisement.id,
            encoded_advert: encoded,
            score,
            score_terms: terms,
            distance_miles: between(Measure::Distance),
            round_trip: self.round_trip.or_else(|| between(Measure::Latency).map(RoundTrip::Estimated)),
            open_seats: listed.open_seats,
        }
    }
}
