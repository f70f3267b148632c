//! Statistics of matches that this server has proposed or brought into play, and of their results and feedback.

use std::sync::Arc;

use crate::domain::id::{RulesetHash, SetId};
use crate::domain::lifecycle::{Match, MatchStage, MatchTicket};
use crate::domain::locality::{KM_PER_MILE, Locality};
use crate::domain::match_result::ResultReport;
use crate::domain::statistic::StatisticKind;
use crate::domain::time::UnixMs;
use crate::engine::queues::shared_state::SharedState;
use crate::engine::statistics::Sample;
use crate::rules::catalog::MatchRulesetLookup;
use crate::store::queues::StoredTicket;

impl SharedState {
    /// Records a match that is proposed, and one whose play begins, before the cache has this version of it. A match of a searched
    /// session has no queue.
    pub(super) fn record_match_progress(&self, written: &Match, now: UnixMs) {
        let begins_play = matches!(written.stage, MatchStage::Playing { .. });
        if written.session_match_start_by_host.is_some() || !(begins_play || written.version == 1) {
            return;
        }
        let cache = self.cache.read();
        let before = cache.match_by_id(written.id);
        let begins_play = begins_play && before.is_none_or(|before| before.stage.started_at().is_none());
        if before.is_some() && !begins_play {
            return;
        }
        let tickets: Vec<(&MatchTicket, Option<&StoredTicket>)> =
            written.tickets.iter().map(|ticket| (ticket, cache.ticket(ticket.ticket_id))).collect();
        let samples = MatchSamples::new(self, written, &tickets, now);
        let metrics = &self.common.metrics;
        if before.is_none() {
            self.common.statistics.record(samples.of_waits(StatisticKind::EnterToMatch), metrics);
        }
        if begins_play {
            self.common.statistics.record(samples.of_waits(StatisticKind::EnterToPlay), metrics);
            self.common.statistics.record(samples.of_match(), metrics);
            self.common.statistics.record(samples.of_round_trips(), metrics);
        }
    }

    /// Records a match with a result.
    pub(super) fn record_result_statistic(&self, report: &ResultReport, now: UnixMs) {
        if report.disputing_users.is_empty() {
            self.record_by_ruleset(StatisticKind::Results, (report.set_id, report.ruleset_hash), 0.0, now);
        }
    }

    /// Records the feedback of a player on a match of a ruleset.
    pub(super) fn record_feedback(&self, ruleset: (SetId, RulesetHash), stars: u8, now: UnixMs) {
        self.record_by_ruleset(StatisticKind::Feedback, ruleset, stars.into(), now);
    }

    fn record_by_ruleset(&self, kind: StatisticKind, (set_id, hash): (SetId, RulesetHash), value: f64, now: UnixMs) {
        let sample = Sample { ruleset_hash: Some(hash), ..Sample::new(kind, set_id, value, now) };
        self.common.statistics.record([sample], &self.common.metrics);
    }
}

/// Samples of one match.
struct MatchSamples<'a> {
    match_: &'a Match,
    tickets: &'a [(&'a MatchTicket, Option<&'a StoredTicket>)],
    /// Region of the match, if the ruleset lists it.
    region: Option<Arc<str>>,
    /// Nearest region of each ticket, for a match without a region.
    nearest_regions_of_tickets: Vec<Option<Arc<str>>>,
    now: UnixMs,
}

impl<'a> MatchSamples<'a> {
    fn new(
        shared: &SharedState,
        match_: &'a Match,
        tickets: &'a [(&'a MatchTicket, Option<&'a StoredTicket>)],
        now: UnixMs,
    ) -> Self {
        let ruleset = match shared.common.ruleset_of_match(match_.set_id, match_.ruleset_hash) {
            MatchRulesetLookup::Known(ruleset) => Some(ruleset),
            MatchRulesetLookup::NotLoaded | MatchRulesetLookup::Unrecoverable => None,
        };
        let region_of_match = ruleset
            .as_ref()
            .and_then(|ruleset| ruleset.statistics_region_if_listed(match_.region.as_deref()?))
            .map(Arc::from);
        let nearest = |stored: Option<&StoredTicket>| {
            let ruleset = ruleset.as_ref().filter(|_| match_.region.is_none())?;
            ruleset.nearest_region_if_in_statistics(&stored?.ticket.session).map(Arc::from)
        };
        Self {
            match_,
            tickets,
            region: region_of_match,
            nearest_regions_of_tickets: tickets.iter().map(|(_, stored)| nearest(*stored)).collect(),
            now,
        }
    }

    fn sample(&self, kind: StatisticKind, value: f64) -> Sample {
        Sample { region: self.region.clone(), ..Sample::new(kind, self.match_.set_id, value, self.now) }
    }

    /// Time since each ticket has entered.
    fn of_waits(&self, kind: StatisticKind) -> impl Iterator<Item = Sample> {
        self.tickets.iter().zip(&self.nearest_regions_of_tickets).map(move |((ticket, _), nearest)| {
            let sample = self.sample(kind, self.now.ms_since(ticket.entered_at) as f64);
            let region = sample.region.clone().or_else(|| nearest.clone());
            Sample { region, ..sample.with_party_size(ticket.players.len()) }
        })
    }

    /// Quality, and the largest distance of two parties whose places are known.
    fn of_match(&self) -> impl Iterator<Item = Sample> {
        let quality = self.sample(StatisticKind::MatchQuality, self.match_.quality);
        let places: Vec<Locality> =
            self.tickets.iter().filter_map(|(_, stored)| stored.and_then(|it| it.ticket.session.locality)).collect();
        let distances = places
            .iter()
            .enumerate()
            .flat_map(|(index, one)| places[index + 1..].iter().map(|it| one.chord_miles(*it)));
        let farthest = distances.reduce(f64::max);
        let distance = farthest.map(|miles| self.sample(StatisticKind::MatchDistance, miles * KM_PER_MILE));
        [quality].into_iter().chain(distance)
    }

    /// Round trip of each ticket that has measured the region of the match.
    fn of_round_trips(&self) -> impl Iterator<Item = Sample> {
        self.tickets.iter().filter_map(|(ticket, stored)| {
            let (region, stored) = (self.match_.region.as_deref()?, (*stored)?);
            let latencies = &stored.ticket.session.region_latencies;
            let measured = latencies.iter().find(|latency| &*latency.region == region)?;
            let sample = self.sample(StatisticKind::MatchRoundTrip, measured.round_trip_ms.into());
            Some(sample.with_party_size(ticket.players.len()))
        })
    }
}
