//! Recording of match results and feedback: stores a result once, updates ratings and ends the match.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::domain::id::{MatchId, RatingKey, UserKey};
use crate::domain::lifecycle::Match;
use crate::domain::limit::RATING_HISTORY_ENTRIES_PER_RATING_MAX;
use crate::domain::match_result::{
    MatchResult, RatingHistoryEntry, RatingUpdate, ResultReport, UserSatisfactionStatistics,
};
use crate::domain::queue::ticket::PlayerRating;
use crate::domain::rating::{AllUsersMatchActivity, RatingError, Skill};
use crate::domain::ruleset::rating::scale::KeyedRatingSpec;
use crate::domain::time::UnixMs;
use crate::store::queues::queue_rows::QueueRows;
use crate::store::queues::{QueueOutcome, QueueWrite, RatingRow};

impl QueueRows {
    /// Applies [`QueueWrite::RecordResult`].
    pub(super) fn record_result(&mut self, write: &QueueWrite) -> QueueOutcome {
        let QueueWrite::RecordResult { report, report_digest, match_version, end_transition, rating, now } = write
        else {
            return QueueOutcome::StaleMatchVersion(None);
        };
        if let Some(stored) = self.results.get(&report.match_id) {
            return if stored.report_digest == *report_digest {
                replayed_result(stored)
            } else {
                QueueOutcome::ConflictingResult(Arc::clone(stored))
            };
        }
        let Some(found) = self.matches.get(&report.match_id) else { return QueueOutcome::StaleMatchVersion(None) };
        if found.version != *match_version {
            return QueueOutcome::StaleMatchVersion(Some(Arc::clone(found)));
        }
        let unrated_reason = report.unrated_reason(rating.as_ref().map(|rating| &rating.spec));
        let is_rated = |user| report.is_user_rated(user, unrated_reason);
        let rated_by = rating.filter(|_| report.users().any(is_rated));
        let skills_before_and_after = match rated_by
            .map_or_else(|| Ok(Vec::new()), |rating| self.skills_before_and_after(found, report, &rating, *now))
        {
            Ok(skills_before_and_after) => skills_before_and_after,
            Err(error) => return QueueOutcome::RatingFailed(error.to_string()),
        };
        let skills_before_and_after: Vec<_> =
            skills_before_and_after.into_iter().filter(|(user, ..)| is_rated(*user)).collect();
        // Who left the match during play was counted then.
        let mut disconnected = report.left_early.clone();
        disconnected.retain(|user| !has_left(found, *user));
        let tickets = match end_transition.as_deref().map(|end_transition| self.apply_write(end_transition)) {
            None => Vec::new(),
            Some(QueueOutcome::MatchWritten { tickets, .. }) => tickets,
            Some(rejected) => return rejected,
        };
        let categories = rating.as_ref().and_then(|rating| rating.spec.categories);
        let updates = skills_before_and_after.iter().map(|(user, before, after)| RatingUpdate {
            user: *user,
            before: before.estimate,
            after: after.estimate,
            category_after: categories.map(|categories| categories.category_of(after.estimate.rating)),
        });
        let result = Arc::new(MatchResult {
            report: (**report).clone(),
            report_digest: *report_digest,
            reported_at: *now,
            rating_updates: updates.collect(),
            unrated_reason,
        });
        let mut ratings: Vec<RatingRow> = rating.map_or_else(Vec::new, |KeyedRatingSpec { key, .. }| {
            let update = |(user, before, after)| self.update_rating(report, (user, key), before, after, *now);
            skills_before_and_after.into_iter().filter(|(user, ..)| !user.is_erased()).map(update).collect()
        });
        ratings.extend(
            self.increment_count_of_users(&disconnected, rating.as_ref(), *now, |counts| &mut counts.abandoned_matches),
        );
        let disputing = &report.disputing_users;
        ratings.extend(
            self.increment_count_of_users(disputing, rating.as_ref(), *now, |counts| &mut counts.disputed_matches),
        );
        ratings.sort_by_key(|row| row.user);
        // A user can be in the list several times: before and after the abandoned match and the dispute were counted.
        ratings.dedup_by(|later, earlier| {
            let same = later.user == earlier.user;
            if same {
                *earlier = *later;
            }
            same
        });
        self.results.insert(report.match_id, Arc::clone(&result));
        QueueOutcome::ResultOnRecord { result, is_repeated_report: false, tickets, ratings }
    }

    /// Skills of all users before and after a match.
    fn skills_before_and_after(
        &self,
        found: &Match,
        report: &ResultReport,
        KeyedRatingSpec { key, spec }: &KeyedRatingSpec,
        now: UnixMs,
    ) -> Result<Vec<(UserKey, Skill, Skill)>, RatingError> {
        let activity = if spec.decays_by_active_periods() {
            self.activity_of_all_users(*key)
        } else {
            AllUsersMatchActivity::default()
        };
        let stored_skill = |user| {
            let erased = found.kept_skill_of_erased_user(user, *key);
            let stored = || self.ratings.get(&(user, *key)).map(RatingRow::skill);
            erased.or_else(stored).unwrap_or_else(|| spec.initial_skill())
        };
        report.rate_players(spec, stored_skill, now, activity)
    }

    /// Match activity of the ratings with `key`, over all users, read or not.
    fn activity_of_all_users(&self, key: RatingKey) -> AllUsersMatchActivity {
        let others = self.activity_of_other_users.get(&key).copied().unwrap_or_default();
        let ratings = self.ratings.values().filter(|row| row.key == key);
        ratings.fold(others, |activity, row| activity.including_last_match_of(&row.skill()))
    }

    /// Stores a user's new rating and the change in the user's history.
    fn update_rating(
        &mut self,
        report: &ResultReport,
        (user, key): (UserKey, RatingKey),
        before: Skill,
        after: Skill,
        now: UnixMs,
    ) -> RatingRow {
        let stored = self.ratings.get(&(user, key));
        let row = RatingRow {
            user,
            key,
            rating: without_negative_zero(after.estimate),
            volatility: after.volatility + 0.0,
            rated_match_count: after.match_count,
            last_match_at: after.last_match_at.unwrap_or(now),
            streak: after.streak,
            satisfaction: stored.map_or_else(UserSatisfactionStatistics::default, |row| row.satisfaction),
            last_match_active_period: after.last_match_active_period,
        };
        self.ratings.insert((user, key), row);
        let entry = RatingHistoryEntry {
            user,
            key,
            rated_match_number: row.rated_match_count,
            match_id: report.match_id,
            reported_at: now,
            rank: report.rank_of_user(user).unwrap_or(0),
            side_count: u32::try_from(report.sides.len()).unwrap_or(u32::MAX),
            before: without_negative_zero(before.estimate),
            after: row.rating,
        };
        self.rating_changes.insert((user, key, history_slot(row.rated_match_count)), entry);
        row
    }

    /// Counts an abandoned match for each user who leaves between `before` and `after`, if the set has ratings. Returns the
    /// changed rows, in user order.
    pub(super) fn increment_abandoned_matches(
        &mut self,
        before: &Match,
        after: &Match,
        rating: Option<&KeyedRatingSpec>,
        now: UnixMs,
    ) -> Vec<RatingRow> {
        let players = after.tickets.iter().flat_map(|ticket| &ticket.players);
        let leavers: BTreeSet<UserKey> =
            players.filter(|player| player.left_at.is_some()).map(|player| player.user).collect();
        let leavers: Vec<UserKey> = leavers.into_iter().filter(|user| !has_left(before, *user)).collect();
        self.increment_count_of_users(&leavers, rating, now, |counts| &mut counts.abandoned_matches)
    }

    /// Adds one to a count of each of `users`, if the set has ratings.
    fn increment_count_of_users(
        &mut self,
        users: &[UserKey],
        rating: Option<&KeyedRatingSpec>,
        now: UnixMs,
        count: impl Fn(&mut UserSatisfactionStatistics) -> &mut u32,
    ) -> Vec<RatingRow> {
        let Some(rating) = rating else { return Vec::new() };
        let mut rows = Vec::with_capacity(users.len());
        for user in users.iter().filter(|user| !user.is_erased()) {
            let row = self.ratings.entry((*user, rating.key)).or_insert_with(|| new_rating_row(rating, *user, now));
            let count = count(&mut row.satisfaction);
            *count = count.saturating_add(1);
            rows.push(*row);
        }
        rows
    }

    /// Applies [`QueueWrite::ImportRatings`].
    pub(super) fn import_ratings(&mut self, rows: &[RatingRow]) -> QueueOutcome {
        for row in rows {
            let stored = self.ratings.get(&(row.user, row.key));
            let (streak, satisfaction) =
                stored.map_or((row.streak, row.satisfaction), |stored| (stored.streak, stored.satisfaction));
            self.ratings.insert((row.user, row.key), RatingRow { streak, satisfaction, ..*row });
        }
        QueueOutcome::RatingsImported
    }

    /// Applies [`QueueWrite::RecordFeedback`].
    pub(super) fn record_feedback(
        &mut self,
        match_id: MatchId,
        user: UserKey,
        stars: u8,
        rating: Option<&KeyedRatingSpec>,
        now: UnixMs,
    ) -> QueueOutcome {
        if let Some((stars, _)) = self.feedback.get(&(match_id, user)) {
            return QueueOutcome::FeedbackAlreadyGiven { stars: *stars };
        }
        self.feedback.insert((match_id, user), (stars, now));
        let row = rating.filter(|_| !user.is_erased()).map(|rating| {
            let row = self.ratings.entry((user, rating.key)).or_insert_with(|| new_rating_row(rating, user, now));
            let UserSatisfactionStatistics {
                given_feedback_count: feedback_count,
                given_feedback_sum: feedback_sum,
                ..
            } = &mut row.satisfaction;
            *feedback_count = feedback_count.saturating_add(1);
            *feedback_sum = feedback_sum.saturating_add(stars.into());
            *row
        });
        QueueOutcome::FeedbackRecorded(row)
    }
}

/// Whether `user` left the match during play.
fn has_left(found: &Match, user: UserKey) -> bool {
    let mut players = found.tickets.iter().flat_map(|ticket| &ticket.players);
    players.any(|player| player.user == user && player.left_at.is_some())
}

/// Outcome for a result that is already stored.
fn replayed_result(stored: &Arc<MatchResult>) -> QueueOutcome {
    QueueOutcome::ResultOnRecord {
        result: Arc::clone(stored),
        is_repeated_report: true,
        tickets: Vec::new(),
        ratings: Vec::new(),
    }
}

/// Ring-buffer slot in a user's rating history. `rated_match_number` counts the user's rated matches.
pub(in crate::store) fn history_slot(rated_match_number: u32) -> u32 {
    rated_match_number % RATING_HISTORY_ENTRIES_PER_RATING_MAX
}

/// Rating row of a user without one: the user disconnected from an unrated match, or gave feedback before the result.
fn new_rating_row(rating: &KeyedRatingSpec, user: UserKey, now: UnixMs) -> RatingRow {
    let new = rating.spec.initial_skill();
    RatingRow {
        user,
        key: rating.key,
        rating: new.estimate,
        volatility: new.volatility,
        rated_match_count: 0,
        last_match_at: now,
        streak: 0,
        satisfaction: UserSatisfactionStatistics::default(),
        last_match_active_period: 0,
    }
}

/// Replaces -0.0 by 0.0, because SQLite does not store the sign of a zero.
fn without_negative_zero(estimate: PlayerRating) -> PlayerRating {
    PlayerRating { rating: estimate.rating + 0.0, deviation: estimate.deviation + 0.0 }
}
