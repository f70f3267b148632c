//! Ranking of a search's candidates by measured latency, answered from memory, without the store.

use crate::auth::token::AdvertisementHandleCipher;
use crate::domain::advertisement::{Advertisement, AdvertisementKind};
use crate::domain::filter::{
    AdvertisementView, AdvertsOfAvoidedPlayers, Searcher, admit_advertisement, measured_or_predicted_round_trip,
};
use crate::domain::id::{AdvertisementId, SiloId};
use crate::domain::probe_result::{MeasuredOrPredictedRoundTrip, ProbeResults};
use crate::domain::ruleset::probing::ProbedPlayers;
use crate::domain::ruleset::{AdvertisementIdForm, Ruleset};
use crate::domain::score::{score, soft_filter_term_of_advertisement};
use crate::domain::time::UnixMs;
use crate::engine::adverts::advert_set::candidate_from_record;
use crate::engine::adverts::advert_state::AdvertState;
use crate::engine::adverts::advert_state::candidate_view::CandidateViewBuilder;
use crate::engine::adverts::avoided_advert_ids::AvoidedAdvertIds;
use crate::engine::adverts::probe_results::{
    count_answered_and_probed, merge_records, probe_results_of_search, record_of_finding,
};
use crate::engine::adverts::search_claim::{renew_or_start_search_claim, ruleset_of_search, sign_search_token};
use crate::engine::beacons::party_floors::PartyPredictor;
use crate::engine::command::{
    Caller, CandidateView, LatencyReportSummary, LatencyTestPhase, ReportLatencyCommand, ReportedFinding,
};
use crate::engine::error::{EngineError, field_error};
use crate::engine::party_avoidance::PartyAvoidance;
use crate::engine::searching_party::SearchingParty;
use crate::telemetry::label::{PredictionSide, ProbeOutcome, ProbePhase};

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

impl AdvertState {
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
        let SearchingParty { checked, predictor } =
            SearchingParty::new(&self.common, caller, &ruleset, report.session, &report.latency_tokens, now)?;
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
        let stated: Vec<_> =
            report.candidate_findings.iter().map(|&(handle, finding)| (to_id(handle), finding)).collect();
        let silo = checked.session.silo;
        let findings = self.fill_unstated_findings(&ruleset, phase, stated);
        let (answered, probed) = count_answered_and_probed(&claim.measured.probes, &findings);
        self.count_probe_reports(phase, &findings);
        let since_start_ms = now.ms_since(search.started_at);
        let records = findings
            .iter()
            .filter_map(|&(id, finding)| record_of_finding(id, finding, ruleset.probing.figure, phase, since_start_ms));
        merge_records(&mut claim.measured.probes, records);
        let probes = probe_results_of_search(&claim.measured, search.started_at, now);
        let probes = ProbeResults::from_sorted(&probes);
        let predictor = predictor.as_ref().map(PartyPredictor::as_search_predictor);
        let searcher = checked.searcher(&[], AdvertsOfAvoidedPlayers::default(), probes, predictor, since_start_ms);
        let cipher = self.handle_cipher(&ruleset, party, now);
        let avoidance = PartyAvoidance::new(&self.common, &ruleset, silo, &checked.users, now);
        let cipher = cipher.as_ref();
        let ranking = RankingContext { ruleset: &ruleset, searcher, avoidance, silo, cipher, phase, now };
        let implausible = self.filter_and_rank_candidates(ranking, &findings, each);
        let not_probed = findings.iter().filter(|(_, finding)| *finding == ReportedFinding::NotProbed).count();
        let enough_answered = answered as f64 >= ruleset.answered_percent_for_involved_phase * probed as f64 / 100.0;
        let involved_phase_may_start = match phase {
            LatencyTestPhase::Quick => answered + not_probed > 0 && enough_answered,
            LatencyTestPhase::Involved => false,
        };
        if phase == LatencyTestPhase::Quick {
            claim.measured.involved_phase_may_start = involved_phase_may_start;
        }
        if ruleset.advertisement_id_form == AdvertisementIdForm::PerSearcher {
            // The token would tell which advertisements of two searchers are the same.
            claim.measured.probes.clear();
        }
        Ok(LatencyReportSummary {
            search_token: sign_search_token(&self.common, &claim),
            ruleset,
            involved_phase_may_start,
            answered_count: answered,
            probed_count: probed,
            ignored_fields: checked.ignored_fields,
            implausible_measurement_indices: implausible,
        })
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
            let view = builder.build(&candidate, *score, &score_terms);
            let chosen = builder.chosen_values(&candidate);
            each(CandidateView { player_probe, chosen: &chosen, ..view });
        }
        implausible
    }
}
