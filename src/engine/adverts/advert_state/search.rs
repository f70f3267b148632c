//! Searches, and ranking by measured latency. Both are answered from memory, without the store.

use std::cell::RefCell;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::auth::token::{AdvertisementHandleCipher, ConsentPurpose};
use crate::domain::advertisement::{Advertisement, AdvertisementKind};
use crate::domain::chosen_value::ChosenValue;
use crate::domain::filter::{
    AdvertisementView, AdvertsOfAvoidedPlayers, Searcher, admit_advertisement, measure_between,
    measured_or_predicted_round_trip,
};
use crate::domain::id::{AdvertisementId, SiloId, UserKey};
use crate::domain::index::{SearchHit, SearchQuery, SearchResult};
use crate::domain::latency::has_common_region;
use crate::domain::measure::Measure;
use crate::domain::probe_result::{MeasuredOrPredictedRoundTrip, ProbeResults};
use crate::domain::queue::past_match_log::PastMatchLog;
use crate::domain::ruleset::probing::ProbedPlayers;
use crate::domain::ruleset::{AdvertisementIdForm, Ruleset};
use crate::domain::score::{score, soft_filter_term_of_advertisement};
use crate::domain::time::UnixMs;
use crate::domain::value_choice::{ValueChoiceContext, choose_values, seed_of_id};
use crate::domain::wish::{Wish, allowed_wishes};
use crate::engine::adverts::advert_set::candidate_from_record;
use crate::engine::adverts::advert_state::AdvertState;
use crate::engine::adverts::avoided_advert_ids::AvoidedAdvertIds;
use crate::engine::adverts::probe_results::{
    count_answered_and_probed, merge_records, probe_results_at, record_of_finding,
};
use crate::engine::adverts::search_claim::{renew_or_start_search_claim, ruleset_of_search, sign_search_token};
use crate::engine::adverts::search_overrides::apply_overrides;
use crate::engine::beacons::party_floors::PartyPredictor;
use crate::engine::beacons::party_latency::{AppliedLatencyTokens, apply_latency_tokens};
use crate::engine::checked_session::CheckedSession;
use crate::engine::command::{
    Caller, CandidateView, LatencyReportSummary, LatencyTestPhase, ReportLatencyCommand, ReportedFinding,
    RoundTripWithSource, SearchCommand, SearchSummary,
};
use crate::engine::error::{EngineError, field_error};
use crate::engine::party_avoidance::PartyAvoidance;
use crate::engine::party_consent::check_party_consents;
use crate::store::queues::QueueKey;
use crate::telemetry::label::{PredictionSide, ProbeOutcome, ProbePhase, RoundTripLabel};

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
        let mut session = search.session;
        let AppliedLatencyTokens { ignored_fields: mut ignored, floors } =
            apply_latency_tokens(&self.common, caller, &effective, &mut session, &search.latency_tokens, now);
        let (session, untrusted) = self.common.with_resolved_locality(caller, session)?;
        ignored.extend(untrusted);
        let checked = CheckedSession::new(&self.common.party_values, &effective, caller, session, ignored)?;
        let predictor = floors.predictor(&self.common.beacons, checked.session.locality, now);
        let measured_claim = renew_or_start_search_claim(&self.common, &ruleset, &checked, &search.search_token, now)?;
        let claim = &measured_claim.search;
        let probes = probe_results_at(&measured_claim.measured, claim.started_at, now);
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
            truncated: false,
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
            answer.truncated,
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
            answer.truncated = results.truncated;
            answer.refusal_counts.extend_from_slice(&results.refusal_counts);
            // Touch all encoded candidates first, so that their cache misses overlap.
            let first_byte =
                |hit: &SearchHit| index.entry(hit.slot).encoded_response.first().copied().map_or(0, usize::from);
            std::hint::black_box(results.hits.iter().map(first_byte).sum::<usize>());
            let choices = self.value_choice_input(query.ruleset, query.silo, query.now);
            // With handles, endpoints would tell which advertisements of two searchers are the same.
            let told_probes = if cipher.is_none() { query.ruleset.probing.player_probes_in_search() } else { 0 };
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
                let view = builder.build(&candidate, &entry.encoded_response, hit.score, results.hit_terms(hit_index));
                sources[label_of_round_trip(view.round_trip) as usize] += 1;
                each(CandidateView { player_probe, chosen: &chosen, ..view });
            }
            self.common.metrics.record_round_trip_sources(sources);
            results.hits.len()
        })
    }

    /// Ranks candidates by measured round trip instead of locality; ties by latency. The answer's token keeps what was measured.
    ///
    /// Drops candidates that did not respond, are gone or full, or are refused at the measured round trip. Players' machines
    /// that no quick probe can reach are kept by their estimate; the answer has the endpoints of the best of them.
    pub(crate) fn rank_candidates_by_measured_round_trips(
        &self,
        caller: &Caller,
        report: ReportLatencyCommand,
        each: &mut dyn FnMut(CandidateView<'_>),
    ) -> Result<LatencyReportSummary, EngineError> {
        let now = self.common.clock.now();
        let ruleset = ruleset_of_search(&self.common, report.set_id, report.ruleset_hash, &report.search_token)?;
        let mut session = report.session;
        let AppliedLatencyTokens { ignored_fields: mut ignored, floors } =
            apply_latency_tokens(&self.common, caller, &ruleset, &mut session, &report.latency_tokens, now);
        let (session, untrusted) = self.common.with_resolved_locality(caller, session)?;
        ignored.extend(untrusted);
        let checked = CheckedSession::new(&self.common.party_values, &ruleset, caller, session, ignored)?;
        if report.search_token.is_empty() {
            return Err(field_error(
                "search_token",
                "is required; send the token of the search that found the candidates",
            ));
        }
        let mut claim = renew_or_start_search_claim(&self.common, &ruleset, &checked, &report.search_token, now)?;
        let (search, phase) = (claim.search, report.phase);
        if phase == LatencyTestPhase::Involved && !claim.measured.involved_phase_may_start {
            return Err(EngineError::InvolvedTooEarly);
        }
        let party = search.party_digest;
        let to_id = |handle| self.advert_id_of_handle(&ruleset, party, handle, now).unwrap_or(handle);
        let stated: Vec<_> = report.measurements.iter().map(|&(handle, finding)| (to_id(handle), finding)).collect();
        let silo = checked.session.silo;
        let findings = self.fill_unstated_findings(&ruleset, phase, stated);
        let (answered, probed) = count_answered_and_probed(&claim.measured.probes, &findings);
        self.count_probe_reports(phase, &findings);
        let since_start_ms = now.ms_since(search.started_at);
        let records = findings
            .iter()
            .filter_map(|&(id, finding)| record_of_finding(id, finding, ruleset.probing.figure, phase, since_start_ms));
        merge_records(&mut claim.measured.probes, records);
        let probes = probe_results_at(&claim.measured, search.started_at, now);
        let probes = ProbeResults::from_sorted(&probes);
        let predictor = floors.predictor(&self.common.beacons, checked.session.locality, now);
        let predictor = predictor.as_ref().map(PartyPredictor::as_search_predictor);
        let searcher = checked.searcher(&[], AdvertsOfAvoidedPlayers::default(), probes, predictor, since_start_ms);
        let cipher = self.handle_cipher(&ruleset, party, now);
        let avoidance = PartyAvoidance::new(&self.common, &ruleset, silo, &checked.users, now);
        let cipher = cipher.as_ref();
        let ranking = RankingContext { ruleset: &ruleset, searcher, avoidance, silo, cipher, phase, now };
        let implausible = self.filter_and_rank_candidates(ranking, &findings, each);
        let not_probed = findings.iter().filter(|(_, finding)| *finding == ReportedFinding::NotProbed).count();
        let enough_answered = answered as f64 >= ruleset.involved_phase_percent * probed as f64 / 100.0;
        let involved_phase_may_start = match phase {
            LatencyTestPhase::Quick => answered + not_probed > 0 && enough_answered,
            LatencyTestPhase::Involved => false,
        };
        if phase == LatencyTestPhase::Quick {
            claim.measured.involved_phase_may_start = involved_phase_may_start;
        }
        if ruleset.handles == AdvertisementIdForm::PerSearcher {
            // The token would tell which advertisements of two searchers are the same.
            claim.measured.probes.clear();
        }
        Ok(LatencyReportSummary {
            search_token: sign_search_token(&self.common, &claim),
            ruleset,
            involved_phase_may_start,
            answered,
            probed,
            ignored_fields: checked.ignored_fields,
            implausible_measurements: implausible,
        })
    }

    /// Facts for choices of entries of string lists; `None` if the ruleset chooses none.
    fn value_choice_input(&self, ruleset: &Ruleset, silo: SiloId, now: UnixMs) -> Option<ValueChoiceInput> {
        let key = QueueKey { set_id: ruleset.set_id, silo };
        let log = || ruleset.played_values_recent_ms().and_then(|_| self.common.past_matches.get(key));
        ruleset.chooses_values().then(|| ValueChoiceInput { log: log(), now })
    }

    /// Cipher for the ids that a party receives; `None` where it receives the ids themselves.
    fn handle_cipher(
        &self,
        ruleset: &Ruleset,
        party_digest: [u8; 16],
        now: UnixMs,
    ) -> Option<AdvertisementHandleCipher> {
        match ruleset.handles {
            AdvertisementIdForm::Ids => None,
            AdvertisementIdForm::PerSearcher => {
                Some(self.common.token_signer.advertisement_handle_cipher(party_digest, now))
            }
        }
    }

    /// Id of the advertisement that a party calls by `handle`. `None` if the ruleset tells handles and this is none of an
    /// advertisement in memory.
    pub(crate) fn advert_id_of_handle(
        &self,
        ruleset: &Ruleset,
        party_digest: [u8; 16],
        handle: AdvertisementId,
        now: UnixMs,
    ) -> Option<AdvertisementId> {
        if ruleset.handles == AdvertisementIdForm::Ids {
            return Some(handle);
        }
        let set = self.advert_sets.get(ruleset.set_id)?;
        let set = set.lock_for_read();
        self.common
            .token_signer
            .advertisement_ids_of_handle(party_digest, handle, now)
            .find(|id| set.get(*id).is_some())
    }

    /// Findings of a report, with those that the client leaves to the server: a player's machine whose endpoint no search tells was
    /// not probed in the quick phase; any other host is silent.
    fn fill_unstated_findings(
        &self,
        ruleset: &Ruleset,
        phase: LatencyTestPhase,
        stated: Vec<(AdvertisementId, Option<ReportedFinding>)>,
    ) -> Vec<(AdvertisementId, ReportedFinding)> {
        let set = self.advert_sets.get(ruleset.set_id);
        let set = set.as_ref().map(|set| set.lock_for_read());
        let is_untold = |id| {
            let record = set.as_ref().and_then(|set| set.get(id));
            let players = ruleset.probing.players;
            record.is_some_and(|record| record.advertisement.player_probe().is_some())
                && players != ProbedPlayers::Quick
        };
        let unstated = |id| match phase {
            LatencyTestPhase::Quick if is_untold(id) => ReportedFinding::NotProbed,
            LatencyTestPhase::Quick | LatencyTestPhase::Involved => ReportedFinding::Silent,
        };
        stated.into_iter().map(|(id, finding)| (id, finding.unwrap_or_else(|| unstated(id)))).collect()
    }

    /// Counts reported probes in the metrics.
    fn count_probe_reports(&self, phase: LatencyTestPhase, findings: &[(AdvertisementId, ReportedFinding)]) {
        let phase = match phase {
            LatencyTestPhase::Quick => ProbePhase::Quick,
            LatencyTestPhase::Involved => ProbePhase::Involved,
        };
        for (_, finding) in findings {
            let outcome = match finding {
                ReportedFinding::Answered(_) => ProbeOutcome::Answered,
                ReportedFinding::Silent => ProbeOutcome::Silent,
                ReportedFinding::Incompatible => ProbeOutcome::Incompatible,
                ReportedFinding::Full => ProbeOutcome::Full,
                ReportedFinding::NotProbed => ProbeOutcome::NotProbed,
            };
            self.common.metrics.probe_reports.get_or_create(&(phase, outcome)).inc();
        }
    }

    /// Records how far a measured round trip is from the predicted one.
    fn record_prediction_error(
        &self,
        ruleset: &Ruleset,
        searcher: &Searcher<'_>,
        candidate: &AdvertisementView<'_>,
        measured_ms: f64,
    ) {
        let predicted = searcher.predictor.as_ref().and_then(|predictor| {
            predictor.predict(ruleset, &candidate.advertisement.session, candidate.completed_vector)
        });
        let Some(predicted) = predicted else { return };
        let metrics = &self.common.metrics;
        metrics.prediction_error_seconds.observe((measured_ms - predicted.round_trip_ms).abs() / 1_000.0);
        let side = if measured_ms < predicted.low_ms {
            Some(PredictionSide::Low)
        } else {
            (predicted.high_ms < measured_ms).then_some(PredictionSide::High)
        };
        if let Some(side) = side {
            metrics.prediction_outside.get_or_create(&side).inc();
        }
    }

    /// Calls `each` per ranked candidate. Returns the indices of measurements that are faster than light: they count as what light
    /// would take.
    fn filter_and_rank_candidates(
        &self,
        RankingContext { ruleset, searcher, avoidance, silo, cipher, phase, now }: RankingContext<'_>,
        findings: &[(AdvertisementId, ReportedFinding)],
        each: &mut dyn FnMut(CandidateView<'_>),
    ) -> Vec<usize> {
        let Some(set) = self.advert_sets.get(ruleset.set_id) else { return Vec::new() };
        let set = set.lock_for_read();
        let records = findings.iter().filter_map(|(id, _)| set.get(*id));
        let avoided = avoidance.map(|avoidance| AvoidedAdvertIds::among(records, &avoidance)).unwrap_or_default();
        let searcher = &Searcher { avoided: avoided.view(), ..searcher };
        // As in a search: a client may name any id.
        let is_searched = |advertisement: &Advertisement| {
            advertisement.kind == AdvertisementKind::Session
                && advertisement.session.silo == silo
                && !searcher.avoided.is_hidden(advertisement.id)
        };
        let mut implausible = Vec::new();
        let mut ranked: Vec<_> = findings
            .iter()
            .enumerate()
            .filter_map(|(position, &(id, finding))| {
                let record = set.get(id).filter(|record| is_searched(&record.advertisement))?;
                let attribute_values =
                    self.common.party_values.attribute_values(ruleset, &record.advertisement.session);
                let candidate = candidate_from_record(record, &attribute_values);
                let counted = match finding {
                    ReportedFinding::Answered(statistics) => {
                        self.record_prediction_error(ruleset, searcher, &candidate, statistics.floor_ms);
                        measured_or_predicted_round_trip(ruleset, searcher, &candidate)
                    }
                    ReportedFinding::NotProbed => None,
                    ReportedFinding::Silent | ReportedFinding::Incompatible | ReportedFinding::Full => return None,
                };
                let is_raised =
                    matches!(counted, Some(MeasuredOrPredictedRoundTrip::Measured { is_as_measured: false, .. }));
                implausible.extend(is_raised.then_some(position));
                admit_advertisement(ruleset, searcher, &candidate, now).ok()?;
                let score = score(ruleset, searcher, &candidate);
                Some((score, id, counted.map(|counted| counted.round_trip_ms()), record, attribute_values))
            })
            .collect();
        let millis = |round_trip_ms: &Option<f64>| round_trip_ms.unwrap_or(f64::INFINITY);
        ranked.sort_by(|left, right| {
            left.0.total_cmp(&right.0).then(millis(&left.2).total_cmp(&millis(&right.2))).then(left.1.cmp(&right.1))
        });
        ranked.dedup_by_key(|candidate| candidate.1);
        // With handles, endpoints would tell which advertisements of two searchers are the same.
        let told_probes = match (phase, cipher) {
            (LatencyTestPhase::Quick, None) => ruleset.probing.player_probes_after_quick_probe(),
            _ => 0,
        };
        let mut score_terms = Vec::new();
        let choices = self.value_choice_input(ruleset, silo, now);
        for (place, (score, _, _, record, attribute_values)) in ranked.iter().enumerate() {
            let choices = choices.as_ref();
            let builder = CandidateViewBuilder { ruleset, searcher, cipher, choices };
            let candidate = candidate_from_record(record, attribute_values);
            let filters = ruleset.soft_filters.iter();
            score_terms.clear();
            score_terms
                .extend(filters.map(|filter| soft_filter_term_of_advertisement(ruleset, filter, searcher, &candidate)));
            let player_probe = record.advertisement.player_probe().filter(|_| place < told_probes);
            let view = builder.build(&candidate, &record.encoded_advert, *score, &score_terms);
            let chosen = builder.chosen_values(&candidate);
            each(CandidateView { player_probe, chosen: &chosen, ..view });
        }
        implausible
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

/// Context of a ranking by measured round trips.
struct RankingContext<'a> {
    ruleset: &'a Ruleset,
    searcher: Searcher<'a>,
    avoidance: Option<PartyAvoidance<'a>>,
    silo: SiloId,
    cipher: Option<&'a AdvertisementHandleCipher>,
    phase: LatencyTestPhase,
    now: UnixMs,
}

/// Facts for choices of entries of string lists.
struct ValueChoiceInput {
    /// Past matches of the set and silo, if the ruleset chooses by what was played.
    log: Option<Arc<Mutex<PastMatchLog>>>,
    now: UnixMs,
}

/// Context for building candidate views.
struct CandidateViewBuilder<'a> {
    ruleset: &'a Ruleset,
    searcher: &'a Searcher<'a>,
    /// Seals ids; `None` where searchers receive ids.
    cipher: Option<&'a AdvertisementHandleCipher>,
    /// Facts for choices of entries of string lists; `None` if the ruleset chooses none.
    choices: Option<&'a ValueChoiceInput>,
}

impl CandidateViewBuilder<'_> {
    /// Entries that the ruleset would choose for the party and the session. None if it chooses none, which costs nothing.
    fn chosen_values(&self, advertisement: &AdvertisementView<'_>) -> Box<[ChosenValue]> {
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

    fn build<'v>(
        &self,
        advertisement: &AdvertisementView<'_>,
        encoded_advert: &'v [u8],
        score: f64,
        score_terms: &'v [f64],
    ) -> CandidateView<'v> {
        let (searcher_view, candidate_view) = (self.searcher.session_view(), advertisement.session_view());
        let between = |measure| measure_between(self.ruleset, measure, &searcher_view, &candidate_view, None);
        let estimated = |ms| match has_common_region(searcher_view.region_latencies, candidate_view.region_latencies) {
            true => RoundTripWithSource::ByRegion(ms),
            false => RoundTripWithSource::ByDistance(ms),
        };
        let round_trip = match measured_or_predicted_round_trip(self.ruleset, self.searcher, advertisement) {
            Some(MeasuredOrPredictedRoundTrip::Measured { measured, is_as_measured: true }) => {
                Some(RoundTripWithSource::Measured(measured.round_trip_ms))
            }
            Some(MeasuredOrPredictedRoundTrip::Measured { measured, .. }) => Some(estimated(measured.round_trip_ms)),
            Some(MeasuredOrPredictedRoundTrip::Predicted(predicted)) => Some(RoundTripWithSource::Predicted(predicted)),
            None => between(Measure::Latency).map(estimated),
        };
        CandidateView {
            id: advertisement.advertisement.id,
            handle: self.cipher.map(|cipher| cipher.seal(advertisement.advertisement.id)),
            encoded_advert,
            score,
            score_terms,
            avoidance_cost: self.searcher.avoided.cost(advertisement.advertisement.id),
            distance_miles: between(Measure::Distance),
            round_trip,
            open_seats: advertisement.open_seats,
            chosen: &[],
            player_probe: None,
        }
    }
}
