//! Results, ratings and feedback of the reference model.

use std::collections::BTreeSet;
use std::sync::Arc;

use fireteam::domain::id::{MatchId, RatingKey, UserKey};
use fireteam::domain::limit::RATING_HISTORY_ENTRIES_PER_RATING_MAX;
use fireteam::domain::match_result::{
    MatchResult, RatingHistoryEntry, RatingUpdate, ResultReport, SideRank, UserSatisfactionStatistics,
};
use fireteam::domain::rating::{AllUsersMatchActivity, Side, Skill};
use fireteam::domain::ruleset::rating::scale::KeyedRatingSpec;
use fireteam::domain::time::UnixMs;
use fireteam::store::queues::{FinishedMatch, QueueOutcome as Out, QueueWrite, RatingRow};

use crate::store::queue_model::Model;

impl Model {
    pub(super) fn record_feedback(
        &mut self,
        match_id: MatchId,
        user: UserKey,
        score: u8,
        rating: Option<KeyedRatingSpec>,
        now: UnixMs,
    ) -> Out {
        if let Some((.., score)) = self.scores.iter().find(|it| (it.0, it.1) == (match_id, user)) {
            return Out::FeedbackAlreadyGiven { stars: *score };
        }
        self.scores.push((match_id, user, score));
        let Some(rating) = rating else { return Out::FeedbackRecorded(None) };
        let mut row = self.rating(user, rating.key).unwrap_or(new_rating_row(&rating, user, now));
        row.satisfaction.given_feedback_count += 1;
        row.satisfaction.given_feedback_sum += u32::from(score);
        self.set_rating(row);
        Out::FeedbackRecorded(Some(row))
    }

    pub(super) fn rating(&self, user: UserKey, key: RatingKey) -> Option<RatingRow> {
        self.ratings.iter().find(|it| (it.user, it.key) == (user, key)).copied()
    }

    /// Users who left a match during play.
    pub(super) fn gone_from(&self, id: MatchId) -> BTreeSet<UserKey> {
        let known = self.matches.iter().filter(|it| it.id == id);
        let seats = known.flat_map(|it| &it.tickets).flat_map(|it| &it.players);
        seats.filter(|seat| seat.left_at.is_some()).map(|seat| seat.user).collect()
    }

    pub(super) fn count_abandoned(
        &mut self,
        users: &[UserKey],
        rating: &KeyedRatingSpec,
        now: UnixMs,
    ) -> Vec<RatingRow> {
        let mut rows = vec![];
        for user in users {
            let mut row = self.rating(*user, rating.key).unwrap_or(new_rating_row(rating, *user, now));
            row.satisfaction.abandoned_matches += 1;
            self.set_rating(row);
            rows.push(row);
        }
        rows
    }

    pub(super) fn set_rating(&mut self, row: RatingRow) {
        self.ratings.retain(|it| (it.user, it.key) != (row.user, row.key));
        self.ratings.push(row);
    }

    /// Adds a disputed match to each user; returns the users.
    fn count_disputed(&mut self, users: &[UserKey], rating: &KeyedRatingSpec, now: UnixMs) -> Vec<UserKey> {
        for user in users {
            let mut row = self.rating(*user, rating.key).unwrap_or(new_rating_row(rating, *user, now));
            row.satisfaction.disputed_matches += 1;
            self.set_rating(row);
        }
        users.to_vec()
    }

    /// Ends the match, then updates each player's rating, then counts the players who left early.
    pub(super) fn record_result(
        &mut self,
        report: &ResultReport,
        digest: [u8; 16],
        ends: Option<Box<QueueWrite>>,
        rating: Option<KeyedRatingSpec>,
        now: UnixMs,
    ) -> Out {
        let gone = self.gone_from(report.match_id);
        let tickets = match ends.map(|ends| self.apply(*ends)) {
            None => vec![],
            Some(Out::MatchWritten { tickets, .. }) => tickets,
            Some(other) => panic!("a transition of the current version is written: {other:?}"),
        };
        let unrated = report.unrated_reason(rating.as_ref().map(|rating| &rating.spec));
        let (mut changes, mut touched) = (Vec::new(), BTreeSet::new());
        if let Some(KeyedRatingSpec { key, spec }) =
            rating.filter(|_| report.users().any(|user| report.is_user_rated(user, unrated)))
        {
            let known = |user: &UserKey| self.rating(*user, key).map_or(spec.initial_skill(), |row| row.skill());
            let side = |side: &SideRank| Side { players: side.users.iter().map(known).collect(), rank: side.rank };
            let before: Vec<Side> = report.sides.iter().map(side).collect();
            let of_key = self.ratings.iter().filter(|row| row.key == key);
            let played = of_key
                .fold(AllUsersMatchActivity::default(), |played, row| played.including_last_match_of(&row.skill()));
            let after = spec.rate_match_with_activity(&before, now, played).expect("valid skills");
            for ((side, before), after) in report.sides.iter().zip(&before).zip(&after) {
                for ((user, old), new) in side.users.iter().zip(&before.players).zip(after) {
                    if !report.is_user_rated(*user, unrated) {
                        continue;
                    }
                    let category = spec.categories.map(|it| it.category_of(new.estimate.rating));
                    changes.push(RatingUpdate {
                        user: *user,
                        before: old.estimate,
                        after: new.estimate,
                        category_after: category,
                    });
                    touched.insert(*user);
                    let row = self.rating(*user, key);
                    self.set_rating(rating_row_after_match(row, (*user, key), new, now));
                    self.changes.push(RatingHistoryEntry {
                        user: *user,
                        key,
                        rated_match_number: new.match_count,
                        match_id: report.match_id,
                        reported_at: now,
                        rank: side.rank,
                        side_count: report.sides.len() as u32,
                        before: old.estimate,
                        after: new.estimate,
                    });
                }
            }
        }
        if let Some(rating) = rating {
            // Who left during play was counted then.
            let disconnected: Vec<UserKey> =
                report.left_early.iter().copied().filter(|user| !gone.contains(user)).collect();
            touched.extend(self.count_abandoned(&disconnected, &rating, now).iter().map(|row| row.user));
        }
        if let Some(rating) = rating {
            touched.extend(self.count_disputed(&report.disputing_users, &rating, now));
        }
        let ratings = touched.into_iter().filter_map(|user| self.rating(user, rating?.key)).collect();
        let result = Arc::new(MatchResult {
            report: report.clone(),
            report_digest: digest,
            reported_at: now,
            rating_updates: changes,
            unrated_reason: unrated,
        });
        self.results.push(Arc::clone(&result));
        Out::ResultOnRecord { result, is_repeated_report: false, tickets, ratings }
    }

    /// Finished matches, as they are exported.
    pub(crate) fn finished(&self) -> Vec<FinishedMatch> {
        let mut all: Vec<&Arc<MatchResult>> = self.results.iter().collect();
        all.sort_by_key(|it| (it.reported_at, it.report.match_id));
        let of = |result: &&Arc<MatchResult>| {
            let of = self.scores.iter().filter(|(id, ..)| *id == result.report.match_id);
            let scores: Vec<u32> = of.map(|(.., score)| u32::from(*score)).collect();
            FinishedMatch {
                result: Arc::clone(result),
                feedback_count: scores.len() as u32,
                feedback_sum: scores.iter().sum(),
            }
        };
        all.iter().map(of).collect()
    }

    /// A user's stored rating changes, latest first. Of changes that share a slot, the last one is kept.
    pub(crate) fn rating_changes(&self, user: UserKey, key: RatingKey) -> Vec<RatingHistoryEntry> {
        let mut kept: Vec<RatingHistoryEntry> = Vec::new();
        for change in self.changes.iter().filter(|it| (it.user, it.key) == (user, key)) {
            kept.retain(|it| {
                it.rated_match_number % RATING_HISTORY_ENTRIES_PER_RATING_MAX
                    != change.rated_match_number % RATING_HISTORY_ENTRIES_PER_RATING_MAX
            });
            kept.push(*change);
        }
        kept.sort_by_key(|it| std::cmp::Reverse((it.reported_at, it.rated_match_number)));
        kept
    }
}

/// Rating row of a user without a rating.
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

/// Rating row of a user after a match.
fn rating_row_after_match(
    before: Option<RatingRow>,
    (user, key): (UserKey, RatingKey),
    after: &Skill,
    now: UnixMs,
) -> RatingRow {
    RatingRow {
        user,
        key,
        rating: after.estimate,
        volatility: after.volatility,
        rated_match_count: after.match_count,
        last_match_at: after.last_match_at.unwrap_or(now),
        streak: after.streak,
        satisfaction: before.map(|row| row.satisfaction).unwrap_or_default(),
        last_match_active_period: after.last_match_active_period,
    }
}
