//! Searching, and ordering again by measured round trips. Memory alone answers; the store is never asked.

use std::cell::RefCell;
use std::sync::Arc;

use crate::auth::token::{SearchClaim, Signer};
use crate::domain::advertisement::Kind;
use crate::domain::facts::Facts;
use crate::domain::filter::{Listed, Searcher, admit, measure_between};
use crate::domain::id::{AdvertisementId, RulesetHash, SetId};
use crate::domain::index::{Found, Hit, Query};
use crate::domain::latency::least_round_trip_ms;
use crate::domain::measure::Measure;
use crate::domain::ruleset::Ruleset;
use crate::domain::score::{score, term};
use crate::domain::time::UnixMs;
use crate::engine::command::{
    Caller, CandidateView, LatencyPhase, ReportLatency, ReportLatencyAnswer, RoundTrip, Search, SearchAnswer,
};
use crate::engine::core::Core;
use crate::engine::fault::Fault;
use crate::engine::overrides::overridden;
use crate::engine::seeker::{Seeker, field};
use crate::engine::shelf::listed;

thread_local! {
    /// What one thread's searches write into, kept so that a search allocates nothing per candidate.
    static SCRATCH: RefCell<Found> = RefCell::default();
}

impl Core {
    /// Finds sessions; `each` sees the candidates, best first, while the set's index is held, and must be quick.
    pub(super) fn search(
        &self,
        caller: &Caller,
        search: Search,
        each: &mut dyn FnMut(CandidateView<'_>),
    ) -> Result<SearchAnswer, Fault> {
        let now = self.clock.now();
        let ruleset = self.ruleset(search.set_id, search.hash)?;
        let judged = match &search.overrides {
            None => Arc::clone(&ruleset),
            Some(_) if !self.settings.allow_overrides => return Err(Fault::OverridesForbidden),
            Some(overrides) => Arc::new(overridden(&ruleset, overrides)?),
        };
        self.check_party(caller, &ruleset, &search.session, &search.consents, now)?;
        let (session, ignored) = self.placed(caller, search.session)?;
        let seeker = Seeker::new(&judged, caller, session, ignored)?;
        let claim = self.search_claim(&ruleset, &seeker, &search.token, now)?;
        let asked = search.overrides.as_ref().and_then(|overrides| overrides.searching_for_ms);
        let waited_ms = asked.unwrap_or_else(|| now.since(claim.since));

        let mut excluded = search.excluded;
        excluded.sort_unstable();
        let query = Query {
            ruleset: &judged,
            searcher: seeker.searcher(&excluded, waited_ms),
            silo: seeker.session.silo,
            kind: Kind::Session,
            limits: judged.limits,
            now,
        };
        let mut answer = SearchAnswer {
            ruleset: Arc::clone(&judged),
            evaluated: 0,
            truncated: false,
            refusals: Vec::new(),
            token: self.signer.seal(&claim),
            searching_for_ms: waited_ms,
            next_expansion_in_ms: judged.next_expansion_in_ms(waited_ms),
            stale_for_ms: self.stale_for_ms(now),
            ignored: seeker.ignored.clone(),
        };
        let candidates = self.look(&query, &mut answer, each);
        let hard_filters = judged.hard.len();
        self.metrics.record_search(answer.evaluated, candidates, answer.truncated, &answer.refusals, hard_filters);
        Ok(answer)
    }

    /// Looks through the set's index and says how many it found; a set without advertisements has nothing to look
    /// through.
    fn look(&self, query: &Query<'_>, answer: &mut SearchAnswer, each: &mut dyn FnMut(CandidateView<'_>)) -> usize {
        let Some(shelf) = self.directory.shelf(query.ruleset.set_id) else { return 0 };
        let shelf = shelf.read();
        let Some(view) = shelf.view(query.ruleset.hash) else { return 0 };
        SCRATCH.with_borrow_mut(|found| {
            view.search(query, found);
            answer.evaluated = found.evaluated;
            answer.truncated = found.truncated;
            answer.refusals.extend_from_slice(&found.refusals);
            // What is copied lies anywhere in memory: asked for together, it comes in the time of one.
            let first = |hit: &Hit| view.entry(hit.slot).encoded.first().copied().map_or(0, usize::from);
            std::hint::black_box(found.hits.iter().map(first).sum::<usize>());
            for (number, hit) in found.hits.iter().enumerate() {
                let entry = view.entry(hit.slot);
                let shown = Shown { ruleset: query.ruleset, searcher: &query.searcher, believed: None };
                each(shown.view(&entry.listed(), &entry.encoded, hit.score, found.terms(number)));
            }
            found.hits.len()
        })
    }

    /// Orders candidates by what their round trips really are (S1-28, S1-29); from here on locality is ignored, and the
    /// faster of two with one score comes first. Who did not answer is out, and so is who has gone, filled up or is
    /// refused by a rule at the measured round trip.
    pub(super) fn report_latency(
        &self,
        caller: &Caller,
        report: ReportLatency,
        each: &mut dyn FnMut(CandidateView<'_>),
    ) -> Result<ReportLatencyAnswer, Fault> {
        let now = self.clock.now();
        let ruleset = self.searched_by(report.set_id, report.hash, &report.token)?;
        let (session, ignored) = self.placed(caller, report.session)?;
        let seeker = Seeker::new(&ruleset, caller, session, ignored)?;
        if report.token.is_empty() {
            return Err(field("search_token", "is required: send the one of the search that found the candidates"));
        }
        let claim = self.search_claim(&ruleset, &seeker, &report.token, now)?;
        let searcher = seeker.searcher(&[], now.since(claim.since));
        let answered = report.measurements.iter().filter(|(_, round_trip_ms)| round_trip_ms.is_some()).count();
        let doubted = self.order_measured(&ruleset, &searcher, &report.measurements, now, each);
        let enough = ruleset.involved_phase_percent * report.measurements.len() as f64 / 100.0;
        let involved_phase_may_start = match report.phase {
            LatencyPhase::Quick => 0 < answered && enough <= answered as f64,
            LatencyPhase::Involved => false,
        };
        Ok(ReportLatencyAnswer { ruleset, involved_phase_may_start, ignored: seeker.ignored, doubted })
    }

    /// What is measured faster than light counts as what light would take, and is named: by its place in the report.
    fn order_measured(
        &self,
        ruleset: &Ruleset,
        searcher: &Searcher<'_>,
        measurements: &[(AdvertisementId, Option<f32>)],
        now: UnixMs,
        each: &mut dyn FnMut(CandidateView<'_>),
    ) -> Vec<usize> {
        let mut doubted = Vec::new();
        let Some(shelf) = self.directory.shelf(ruleset.set_id) else { return doubted };
        let shelf = shelf.read();
        let measured = measurements.iter().enumerate();
        let measured = measured.filter_map(|(at, &(id, round_trip_ms))| Some((at, id, f64::from(round_trip_ms?))));
        let mut standing: Vec<_> = measured
            .filter_map(|(at, id, claimed_ms)| {
                let record = shelf.get(id)?;
                let least_ms = least_round_trip_ms(searcher.locality, record.advertisement.session.locality);
                let believed = if claimed_ms < least_ms {
                    doubted.push(at);
                    RoundTrip::Expected(least_ms)
                } else {
                    RoundTrip::Measured(claimed_ms)
                };
                let facts = Facts::of(ruleset, &record.advertisement.session);
                let candidate = listed(record, &facts);
                admit(ruleset, searcher, &candidate, Some(believed.ms()), now).ok()?;
                let score = score(ruleset, searcher, &candidate, Some(believed.ms()));
                Some((score, id, believed, record, facts))
            })
            .collect();
        standing.sort_by(|one, other| {
            one.0.total_cmp(&other.0).then(one.2.ms().total_cmp(&other.2.ms())).then(one.1.cmp(&other.1))
        });
        standing.dedup_by_key(|candidate| candidate.1);
        let mut terms = Vec::new();
        for (score, _, believed, record, facts) in &standing {
            let shown = Shown { ruleset, searcher, believed: Some(*believed) };
            let candidate = listed(record, facts);
            let soft = ruleset.soft.iter();
            terms.clear();
            terms.extend(soft.map(|soft| term(ruleset, soft, searcher, &candidate, Some(believed.ms()))));
            each(shown.view(&candidate, &record.encoded, *score, &terms));
        }
        doubted
    }

    /// The ruleset that a search went by: the one of `hash`, else the one that its token names, else the current one.
    pub(super) fn searched_by(
        &self,
        set_id: SetId,
        hash: Option<RulesetHash>,
        token: &[u8],
    ) -> Result<Arc<Ruleset>, Fault> {
        let named = || self.signer.open::<SearchClaim>(token).filter(|claim| claim.set_id == set_id);
        self.ruleset(set_id, hash.or_else(|| named().map(|claim| claim.hash)))
    }

    /// The claim to go on with, by the rules of `ruleset`: the token's while it lasts, else a new one that begins now.
    pub(super) fn search_claim(
        &self,
        ruleset: &Ruleset,
        seeker: &Seeker,
        token: &[u8],
        now: UnixMs,
    ) -> Result<SearchClaim, Fault> {
        let party = Signer::party_digest(seeker.subject, &seeker.users, &seeker.session.party_sizes);
        let Ruleset { set_id, hash, .. } = *ruleset;
        let fresh = SearchClaim { set_id, hash, silo: seeker.session.silo, party, since: now, used: now };
        if token.is_empty() {
            return Ok(fresh);
        }
        let Some(claim) = self.signer.open::<SearchClaim>(token) else {
            return Err(field("search_token", "is not one of this server's: leave it out to begin a new search"));
        };
        if (claim.set_id, claim.silo, claim.party) != (fresh.set_id, fresh.silo, fresh.party) {
            let what = "belongs to another set, silo or party: leave it out to begin a new search";
            return Err(field("search_token", what));
        }
        if self.settings.search_token_lapse_ms < now.since(claim.used) {
            return Ok(fresh);
        }
        Ok(SearchClaim { hash, used: now, ..claim })
    }
}

/// What a candidate is shown with.
struct Shown<'a> {
    ruleset: &'a Ruleset,
    searcher: &'a Searcher<'a>,
    /// What its report of a round trip counts as, once there is one.
    believed: Option<RoundTrip>,
}

impl Shown<'_> {
    fn view<'v>(&self, listed: &Listed<'_>, encoded: &'v [u8], score: f64, terms: &'v [f64]) -> CandidateView<'v> {
        let (here, there) = (self.searcher.seen(), listed.seen());
        let between = |measure| measure_between(self.ruleset, measure, &here, &there, None);
        CandidateView {
            id: listed.advertisement.id,
            encoded,
            score,
            terms,
            distance_miles: between(Measure::Distance),
            round_trip: self.believed.or_else(|| between(Measure::Latency).map(RoundTrip::Expected)),
            open_seats: listed.open_seats,
        }
    }
}
