//! Offer task: offers matches that need a game server to the allocators that are connected to this server.
//!
//! A row in the store decides which server makes the next offer of a match, so that a match is offered to one allocator
//! at a time (`store/allocation_offers.rs`). Runs on each server, for the matches of all servers: the allocator for a
//! match may be connected to another server than the one with the queue's lease.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::auth::token::{AdvertisementClaim, AllocationOfferClaim};
use crate::domain::advertisement::AdvertisementKind;
use crate::domain::id::{AdvertisementId, BuildIdHasher, MatchId};
use crate::domain::lifecycle::{Match, MatchStage};
use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::teams::MatchesOfferedToAllocators;
use crate::domain::time::UnixMs;
use crate::engine::queues::allocation::HostFinder;
use crate::engine::queues::allocators::AllocatorConnectionId;
use crate::engine::queues::command::MatchOffer;
use crate::engine::queues::shared_state::SharedState;
use crate::rules::catalog::MatchRulesetLookup;
use crate::store::allocation_offers::{OfferWrite, StoredOffer};
use crate::telemetry::label::OfferEvent;

/// Interval between rounds while allocators are connected.
const ROUND_INTERVAL: Duration = Duration::from_millis(100);

/// Interval between reads of the rows of open offers: an allocator at another server may have refused.
const OPEN_OFFERS_READ_INTERVAL: Duration = Duration::from_millis(500);

/// Maximum rows of open offers read at a time.
const OPEN_OFFERS_READ_MAX: usize = 1_000;

/// Maximum offers made per round.
const OFFERS_PER_ROUND_MAX: usize = 256;

/// Pause after all allocators have had a match, milliseconds.
const ALL_ALLOCATORS_TRIED_PAUSE_MS: u64 = 1_000;

/// Time in which advertised game servers are tried before a match is offered as a fallback, milliseconds: two attempts.
const ADVERTISED_SERVERS_ONLY_MS: u64 = 500;

/// Offers matches until stopped.
pub(crate) async fn offer_matches_to_allocators(shared: Arc<SharedState>, shutdown: CancellationToken) {
    let mut task = OfferTask { shared, offers_by_match: HashMap::default(), refreshed_at: None, has_failed: false };
    loop {
        let has_allocators = task.shared.allocators.lock().count() > 0;
        if has_allocators {
            task.run_round().await;
        } else {
            task.offers_by_match.clear();
            task.shared.common.metrics.matches_to_allocate.set(0);
        }
        tokio::select! {
            () = shutdown.cancelled() => break,
            () = tokio::time::sleep(ROUND_INTERVAL), if has_allocators => {}
            // An allocator has connected or answered.
            () = task.shared.allocation_offer_wakeup.notified() => task.refreshed_at = None,
        }
    }
}

/// State of the task. After a restart it is read from the store again.
struct OfferTask {
    shared: Arc<SharedState>,
    offers_by_match: HashMap<MatchId, MatchOfferState, BuildIdHasher>,
    /// When the rows of open offers were last read.
    refreshed_at: Option<Instant>,
    /// The last round could not write.
    has_failed: bool,
}

/// Offers of one match, as this server knows them.
#[derive(Debug, Default)]
struct MatchOfferState {
    /// Number of the last offer; 0 before the first.
    number: u32,
    /// Round of the last offer.
    allocator_cycle: u32,
    /// Until when the last offer may be answered.
    answer_by: UnixMs,
    /// Allocators that have had the match in this round.
    tried: BTreeSet<AllocatorConnectionId>,
}

impl MatchOfferState {
    fn update(&mut self, row: &StoredOffer) {
        if row.round != self.allocator_cycle {
            self.tried.clear();
        }
        (self.number, self.allocator_cycle, self.answer_by) = (row.number, row.round, row.answer_by);
    }
}

/// Offer to make, if the store agrees.
struct PlannedOffer {
    claim: StoredOffer,
    allocator: AllocatorConnectionId,
    offer: MatchOffer,
}

impl OfferTask {
    async fn run_round(&mut self) {
        let now = self.shared.common.clock.now();
        let unanswered = self.shared.allocators.lock().expire_offers(now);
        self.count_offer_events(OfferEvent::Unanswered, unanswered);
        let matches = self.matches_to_offer(now);
        let known_ids: BTreeSet<MatchId> = matches.iter().map(|(match_, _)| match_.id).collect();
        self.offers_by_match.retain(|id, _| known_ids.contains(id));
        self.shared.common.metrics.matches_to_allocate.set(i64::try_from(matches.len()).unwrap_or(i64::MAX));
        if self.refreshed_at.is_none_or(|at| at + OPEN_OFFERS_READ_INTERVAL <= Instant::now()) {
            self.refreshed_at = Some(Instant::now());
            self.read_open_offers(now).await;
        }
        let mut planned = Vec::new();
        for (match_, ruleset) in &matches {
            if planned.len() >= OFFERS_PER_ROUND_MAX || !self.shared.allocators.lock().has_room() {
                break;
            }
            planned.extend(self.plan_offer_to_allocator(match_, ruleset, now));
        }
        if !planned.is_empty() {
            self.make_offers(planned, now).await;
        }
    }

    /// Matches that wait for a place and may be offered, longest wait first.
    fn matches_to_offer(&self, now: UnixMs) -> Vec<(Arc<Match>, Arc<Ruleset>)> {
        let mut placing: Vec<Arc<Match>> = {
            let cache = self.shared.cache.read();
            let ids = cache.queues().flat_map(|(_, index)| index.placing_matches());
            ids.filter_map(|id| cache.match_by_id(id).cloned()).collect()
        };
        placing.retain(|match_| match_.backfilled_session.is_none() && placing_deadline(match_) > Some(now));
        placing.sort_unstable_by_key(|match_| (match_.proposed_at, match_.id));
        let with_ruleset = |match_: Arc<Match>| {
            let MatchRulesetLookup::Known(ruleset) =
                self.shared.common.ruleset_of_match(match_.set_id, match_.ruleset_hash)
            else {
                return None;
            };
            let is_offered = match ruleset.hosting.allocator_offers.mode {
                MatchesOfferedToAllocators::Never => false,
                MatchesOfferedToAllocators::Always => true,
                MatchesOfferedToAllocators::Fallback => {
                    let deadline = placing_deadline(&match_)?;
                    let left_ms = deadline.ms_since(now);
                    left_ms + ADVERTISED_SERVERS_ONLY_MS <= u64::from(ruleset.hosting.allocation_timeout_ms)
                }
            };
            is_offered.then_some((match_, ruleset))
        };
        placing.into_iter().filter_map(with_ruleset).collect()
    }

    /// Chooses an allocator for a match, and takes one of its places.
    fn plan_offer_to_allocator(
        &mut self,
        match_: &Arc<Match>,
        ruleset: &Arc<Ruleset>,
        now: UnixMs,
    ) -> Option<PlannedOffer> {
        let known = self.offers_by_match.entry(match_.id).or_default();
        if now < known.answer_by {
            return None;
        }
        let finder = HostFinder::new(&self.shared, match_, ruleset);
        let region = finder.region();
        let (allocator, round) = {
            let allocators = self.shared.allocators.lock();
            if allocators.has_untried(match_.set_id, region, &known.tried) {
                (allocators.choose(match_.set_id, region, &known.tried)?, known.allocator_cycle.max(1))
            } else if known.answer_by.plus_ms(ALL_ALLOCATORS_TRIED_PAUSE_MS) <= now {
                (allocators.choose(match_.set_id, region, &BTreeSet::new())?, known.allocator_cycle.saturating_add(1))
            } else {
                return None;
            }
        };
        let is_fallback = ruleset.hosting.allocator_offers.mode == MatchesOfferedToAllocators::Fallback;
        if is_fallback && finder.has_advertised_server() {
            return None;
        }
        let deadline = placing_deadline(match_)?;
        let answer_by = now.plus_ms(ruleset.hosting.allocator_offers.offer_ms.into()).min(deadline);
        let number = known.number.checked_add(1)?;
        let subjects = self.shared.allocators.lock().open_offer(allocator, match_.id, number, answer_by)?;
        let advertisement_id = AdvertisementId::from_bytes(self.shared.common.clock.random_bytes());
        let signer = &self.shared.common.token_signer;
        let offer_claim =
            AllocationOfferClaim { match_id: match_.id, number, advertisement_id, subject: subjects.allocator };
        let host_claim = AdvertisementClaim {
            advertisement_id,
            set_id: match_.set_id,
            kind: AdvertisementKind::GameServer,
            subject: subjects.host,
            advertised_since: now,
        };
        let offer = MatchOffer {
            offer_token: signer.sign(&offer_claim),
            match_id: match_.id,
            set_id: match_.set_id,
            ruleset_hash: match_.ruleset_hash,
            silo: match_.silo,
            region: region.map(Box::from),
            seats: finder.player_count(),
            attributes: finder.shared_attributes().to_vec(),
            answer_within_ms: answer_by.ms_since(now),
            advertisement_id,
            host_token: signer.sign(&host_claim),
        };
        let claim =
            StoredOffer { match_id: match_.id, number, round, assigned_advertisement_id: advertisement_id, answer_by };
        Some(PlannedOffer { claim, allocator, offer })
    }

    /// Reads the rows of offers that are open as far as this server knows.
    async fn read_open_offers(&mut self, now: UnixMs) {
        let open = self.offers_by_match.iter().filter(|(_, known)| now < known.answer_by);
        let reads: Vec<OfferWrite> =
            open.take(OPEN_OFFERS_READ_MAX).map(|(id, _)| OfferWrite::Read { match_id: *id }).collect();
        if reads.is_empty() {
            return;
        }
        // After an error, the offers are taken to be open until their time is over.
        let rows = self.shared.common.store.apply_offer_writes(&reads, now).await.unwrap_or_default();
        for row in rows.into_iter().flatten() {
            self.offers_by_match.entry(row.match_id).or_default().update(&row);
        }
    }

    /// Claims the planned offers in the store, and sends those that no other server made first.
    async fn make_offers(&mut self, planned: Vec<PlannedOffer>, now: UnixMs) {
        let writes: Vec<OfferWrite> = planned.iter().map(|plan| OfferWrite::OpenNext(plan.claim)).collect();
        let rows = match self.shared.common.store.apply_offer_writes(&writes, now).await {
            Ok(rows) => rows,
            Err(error) => {
                if !std::mem::replace(&mut self.has_failed, true) {
                    tracing::warn!(%error, offers = planned.len(), "allocation offers not written, retrying");
                }
                vec![None; planned.len()]
            }
        };
        self.has_failed &= rows.iter().all(Option::is_none);
        for (plan, row) in planned.into_iter().zip(rows) {
            let PlannedOffer { claim, allocator, offer } = plan;
            let known = self.offers_by_match.entry(claim.match_id).or_default();
            if let Some(row) = &row {
                known.update(row);
            }
            if row != Some(claim) && !fail_point_ignores_offer_rows() {
                self.shared.allocators.lock().close_offer(claim.match_id, claim.number);
                continue;
            }
            known.tried.insert(allocator);
            if self.shared.allocators.lock().send(allocator, offer) {
                self.count_offer_events(OfferEvent::Sent, 1);
            }
        }
    }

    fn count_offer_events(&self, event: OfferEvent, number: u64) {
        self.shared.common.metrics.allocation_offers.get_or_create(&event).inc_by(number);
    }
}

/// Time at which the match's wait for a game server is over, while it waits.
fn placing_deadline(match_: &Match) -> Option<UnixMs> {
    match match_.stage {
        MatchStage::Placing { deadline } => Some(deadline),
        _ => None,
    }
}

/// Whether the fail point is on that makes an offer also if another server has made one.
fn fail_point_ignores_offer_rows() -> bool {
    fail::fail_point!("ignore_offer_rows", |_| true);
    false
}
