//! Applies committed changes to memory: own commits, and other replicas' changes from the feed.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::domain::id::{MatchId, TicketId, UserKey};
use crate::domain::lifecycle::event::MatchEffect;
use crate::domain::lifecycle::{Match, MatchStage};
use crate::domain::time::UnixMs;
use crate::engine::queues::shared_state::SharedState;
use crate::engine::queues::shared_state::hosted_matches::MatchBeforeAndAfter;
use crate::engine::queues::shared_state::match_events::EndedTicket;
use crate::engine::queues::stored_ticket::nearest_region;
use crate::engine::queues::wait_estimator::WaitClass;
use crate::store::queues::{QueueFeedBatch, QueueKey, QueueOutcome, QueueWrite, RatingRow, StoredTicket};

/// Time for which an ended ticket stays in memory for watchers, milliseconds.
const ENDED_TICKET_VISIBLE_MS: u64 = 60_000;

/// Margin for a full read, milliseconds. Newer tickets and matches may have been created after it, so they are kept.
/// Nothing that new has been purged: the retention is much longer.
pub(super) const FULL_READ_REMOVAL_MARGIN_MS: u64 = 10_000;

/// Server whose commit a change is. Each event is counted and logged by that server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChangeOrigin {
    OwnCommit,
    OtherServer,
}

impl SharedState {
    /// Applies one committed write to memory.
    pub(crate) fn apply_write(
        &self,
        write: &QueueWrite,
        outcome: &QueueOutcome,
        now: UnixMs,
        changed_queues: &mut BTreeSet<QueueKey>,
    ) {
        match (write, outcome) {
            (QueueWrite::ImportRatings { rows }, QueueOutcome::RatingsImported) => {
                self.apply_own_ratings(rows, now, changed_queues)
            }
            (_, QueueOutcome::RatingsRemoved(removed)) => {
                self.ratings.lock().remove(removed);
                self.mark_queues_of_users_changed(removed.iter().map(|(user, _)| *user), changed_queues);
            }
            (_, QueueOutcome::BlockListUpdated(list)) => {
                self.apply_block_lists(std::slice::from_ref(list), Some(now), changed_queues);
            }
            (
                QueueWrite::EraseUser(erasure),
                QueueOutcome::UserErased { tickets, matches, block_lists, is_member, .. },
            ) => {
                if erasure.removes_own_rows && !is_member {
                    self.ratings.lock().remove_unlisted_of(erasure.user, &[]);
                    self.forget_block_list(erasure.user, changed_queues);
                }
                self.apply_block_lists(block_lists, Some(now), changed_queues);
                self.apply_own_commit(tickets, matches, now, changed_queues);
            }
            (
                QueueWrite::RecordResult { end_transition, report, .. },
                QueueOutcome::ResultOnRecord { tickets, ratings, is_repeated_report, .. },
            ) => {
                if !is_repeated_report {
                    self.record_result_statistic(report, now);
                }
                self.apply_own_ratings(ratings, now, changed_queues);
                if let Some(QueueWrite::TransitionMatch { updated_match: next_match, .. }) = end_transition.as_deref() {
                    self.apply_own_commit(tickets, std::slice::from_ref(next_match), now, changed_queues);
                }
            }
            (QueueWrite::RecordFeedback { ruleset, stars, .. }, QueueOutcome::FeedbackRecorded(row)) => {
                self.record_feedback(*ruleset, *stars, now);
                self.apply_own_ratings(row.as_slice(), now, changed_queues);
            }
            (
                QueueWrite::ProposeMatch { proposed: match_, .. }
                | QueueWrite::TransitionMatch { updated_match: match_, .. },
                QueueOutcome::MatchWritten { tickets, ratings },
            ) => {
                self.record_match_progress(match_, now);
                self.apply_own_ratings(ratings, now, changed_queues);
                self.apply_own_commit(tickets, std::slice::from_ref(match_), now, changed_queues);
            }
            (_, QueueOutcome::MatchStarted { started, tickets }) => {
                self.apply_own_commit(tickets, std::slice::from_ref(started), now, changed_queues);
            }
            // The feed brings the ticket together with its match, so that watchers see the reason of the end.
            (_, QueueOutcome::CurrentTicket(stored)) if self.outdated_match_of_ended_ticket(stored).is_some() => {}
            (_, QueueOutcome::Entered { ticket: stored, .. } | QueueOutcome::CurrentTicket(stored)) => {
                self.apply_own_commit(std::slice::from_ref(stored), &[], now, changed_queues);
            }
            (_, QueueOutcome::StaleMatchVersion(Some(match_))) => self.apply_tickets_and_matches(
                [],
                [Arc::clone(match_)],
                (now, ChangeOrigin::OtherServer),
                changed_queues,
            ),
            _ => {}
        }
    }

    /// Applies the tickets and matches of an own commit to memory, and records their events.
    fn apply_own_commit(
        &self,
        tickets: &[StoredTicket],
        matches: &[Arc<Match>],
        now: UnixMs,
        changed_queues: &mut BTreeSet<QueueKey>,
    ) {
        let (tickets, matches) = (tickets.iter().cloned(), matches.iter().cloned());
        self.apply_tickets_and_matches(tickets, matches, (now, ChangeOrigin::OwnCommit), changed_queues);
    }

    /// Applies other replicas' changes to memory.
    pub(crate) fn apply_feed(&self, feed_batch: QueueFeedBatch) {
        let now = self.common.clock.now();
        let mut changed_queues = BTreeSet::new();
        let listed = feed_batch.is_snapshot.then(|| {
            let tickets: BTreeSet<TicketId> = feed_batch.tickets.iter().map(|stored| stored.ticket.id).collect();
            let matches: BTreeSet<MatchId> = feed_batch.matches.iter().map(|match_| match_.id).collect();
            (tickets, matches)
        });
        self.apply_ratings(&feed_batch.ratings, &mut changed_queues);
        self.forget_removed_ratings(&feed_batch, &mut changed_queues);
        self.apply_block_lists(&feed_batch.block_lists, None, &mut changed_queues);
        self.forget_removed_block_lists(&feed_batch, &mut changed_queues);
        let (tickets, matches) = (feed_batch.tickets, feed_batch.matches);
        self.apply_tickets_and_matches(tickets, matches, (now, ChangeOrigin::OtherServer), &mut changed_queues);
        let mut cache = self.cache.write();
        if let Some((tickets, matches)) = listed {
            let newer_than = UnixMs(feed_batch.read_at.0.saturating_sub(FULL_READ_REMOVAL_MARGIN_MS));
            changed_queues.extend(cache.remove_unlisted_older_than(&tickets, &matches, newer_than));
        }
        changed_queues.extend(feed_batch.removed_tickets.into_iter().filter_map(|id| cache.remove_ticket(id)));
        changed_queues.extend(feed_batch.removed_matches.into_iter().filter_map(|id| cache.remove_match(id)));
        drop(cache);
        self.notify_queues_changed(changed_queues);
    }

    /// Forgets the ratings that other replicas have removed: of erased users, and of those that were not rated for long.
    fn forget_removed_ratings(&self, feed_batch: &QueueFeedBatch, changed_queues: &mut BTreeSet<QueueKey>) {
        if feed_batch.has_all_ratings_and_block_lists {
            let newer_than = UnixMs(feed_batch.read_at.0.saturating_sub(FULL_READ_REMOVAL_MARGIN_MS));
            self.ratings.lock().remove_unlisted_older_than(&feed_batch.ratings, newer_than);
            return;
        }
        let mut removed_users = feed_batch.fully_read_users.clone();
        {
            let mut ratings = self.ratings.lock();
            removed_users.retain(|user| {
                let from = feed_batch.ratings.partition_point(|row| row.user < *user);
                let count = feed_batch.ratings[from..].partition_point(|row| row.user == *user);
                ratings.remove_unlisted_of(*user, &feed_batch.ratings[from..from + count])
            });
        }
        self.mark_queues_of_users_changed(removed_users, changed_queues);
    }

    /// Applies ratings that this replica has stored.
    fn apply_own_ratings(&self, rows: &[RatingRow], now: UnixMs, changed_queues: &mut BTreeSet<QueueKey>) {
        if self.has_replicas && !rows.is_empty() {
            self.ratings.lock().record_own_writes(rows, now);
        }
        self.apply_ratings(rows, changed_queues);
    }

    /// Marks the queues in which users wait as changed.
    pub(super) fn mark_queues_of_users_changed(
        &self,
        users: impl IntoIterator<Item = UserKey>,
        changed_queues: &mut BTreeSet<QueueKey>,
    ) {
        let mut cache = self.cache.write();
        users.into_iter().for_each(|user| changed_queues.extend(cache.mark_user_queues_changed(user)));
    }

    /// Applies stored ratings. They may change how passes treat the users' waiting tickets.
    fn apply_ratings(&self, rows: &[RatingRow], changed_queues: &mut BTreeSet<QueueKey>) {
        if rows.is_empty() {
            return;
        }
        {
            let mut ratings = self.ratings.lock();
            rows.iter().for_each(|row| ratings.upsert(*row));
        }
        self.mark_queues_of_users_changed(rows.iter().map(|row| row.user), changed_queues);
    }

    /// Applies stored tickets and matches. Matches first: a status must not show a ticket without its match.
    fn apply_tickets_and_matches(
        &self,
        tickets: impl IntoIterator<Item = StoredTicket>,
        matches: impl IntoIterator<Item = Arc<Match>>,
        (now, origin): (UnixMs, ChangeOrigin),
        changed_queues: &mut BTreeSet<QueueKey>,
    ) {
        let (mut started_matches, mut ended_tickets) = (Vec::new(), Vec::new());
        let mut hosted_changes: Vec<MatchBeforeAndAfter> = Vec::new();
        {
            let mut cache = self.cache.write();
            for match_ in matches {
                let before = cache.match_by_id(match_.id).cloned();
                if before.as_ref().is_none_or(|before| before.version < match_.version) {
                    hosted_changes.push((before.clone(), Arc::clone(&match_)));
                }
                let was_playing = before.is_some_and(|existing| matches!(existing.stage, MatchStage::Playing { .. }));
                let is_of_queue = match_.session_match_start_by_host.is_none();
                if !was_playing && is_of_queue && matches!(match_.stage, MatchStage::Playing { .. }) {
                    started_matches.push(Arc::clone(&match_));
                }
                changed_queues.extend(cache.upsert_match(match_));
            }
            for stored in tickets {
                // A server of an earlier version stores tickets with a finer locality and exact round trips.
                let locator = &self.common.geo_locator;
                let center_of = |place| locator.session_cell_center(place);
                let ticket = stored.ticket.coarsened_for_location_privacy(locator.region_places(), center_of);
                let stored = StoredTicket { ticket, ..stored };
                if origin == ChangeOrigin::OwnCommit {
                    ended_tickets.extend(EndedTicket::of_change(&cache, &stored, now));
                }
                changed_queues.extend(cache.upsert_ticket(stored));
            }
        }
        if origin == ChangeOrigin::OwnCommit {
            self.record_match_events(&hosted_changes);
            self.record_ticket_ends(&ended_tickets);
        }
        self.notify_hosts(hosted_changes, now);
        if !started_matches.is_empty() {
            self.record_waits(&started_matches, now);
        }
    }

    /// Records the waits of tickets whose matches have started.
    fn record_waits(&self, started_matches: &[Arc<Match>], now: UnixMs) {
        let cache = self.cache.read();
        let mut wait_estimator = self.wait_estimator.lock();
        for match_ in started_matches {
            let MatchStage::Playing { started_at, .. } = match_.stage else { continue };
            wait_estimator.record_quality(match_.set_id, match_.quality, now);
            for match_ticket in &match_.tickets {
                let region = cache.ticket(match_ticket.ticket_id).map_or_else(|| "".into(), nearest_region);
                let party_size = u16::try_from(match_ticket.players.len()).unwrap_or(u16::MAX);
                wait_estimator.record_wait(
                    WaitClass { set_id: match_.set_id, region, party_size },
                    started_at.ms_since(match_ticket.entered_at),
                    now,
                );
            }
        }
    }

    /// Removes ended tickets and matches from memory once watchers have had time to see them. The store keeps them
    /// longer.
    pub(crate) fn purge_ended_from_cache(&self, now: UnixMs) {
        let retention_ms = self.common.settings.ended_ticket_retention_ms.saturating_sub(ENDED_TICKET_VISIBLE_MS);
        self.cache.write().remove_ended(now.plus_ms(retention_ms), now);
    }

    /// Forgets the placement problems of matches that are no longer being placed.
    pub(crate) fn forget_stale_placement_problems(&self) {
        let cache = self.cache.read();
        let is_placing =
            |id| cache.match_by_id(id).is_some_and(|match_| matches!(match_.stage, MatchStage::Placing { .. }));
        self.placement_problems.lock().retain(is_placing);
    }

    /// Releases seats that a match no longer needs. If the release fails, the hold expires.
    pub(crate) fn release_unneeded_seats(&self, match_: &Match, effects: &[MatchEffect]) {
        for effect in effects {
            if let MatchEffect::ReleaseReservation { advertisement, reservation } = effect {
                self.adverts.release_seats(*advertisement, match_.set_id, *reservation);
            }
        }
    }
}
