//! What the end of a match does to what queues keep: the result is written down once, ratings follow it, the match ends.

use std::sync::Arc;

use crate::domain::id::{MatchId, SetId, UserKey};
use crate::domain::limit::RATING_HISTORY_ENTRIES_MAX;
use crate::domain::match_result::{MatchResult, RatingHistoryEntry, RatingUpdate, ResultReport, SatisfactionStats};
use crate::domain::queue::ticket::PlayerRating;
use crate::domain::rating::{SetActivity, Skill};
use crate::domain::ruleset::rating::RatingSpec;
use crate::domain::time::UnixMs;
use crate::store::queues::queue_rows::QueueRows;
use crate::store::queues::{QueueOutcome, QueueWrite, RatingRow};

impl QueueRows {
    /// `Conclude`.
    pub(super) fn record_result(&mut self, write: &QueueWrite) -> QueueOutcome {
        let QueueWrite::RecordResult {
            report,
            report_digest: payload,
            match_version: edition,
            end_transition: ends,
            rating_spec: spec,
            now,
        } = write
        else {
            return QueueOutcome::StaleMatchVersion(None);
        };
        if let Some(known) = self.results.get(&report.match_id) {
            return match known.report_digest == *payload {
                true => replayed_result(known),
                false => QueueOutcome::ConflictingResult(Arc::clone(known)),
            };
        }
        let Some(play) = self.matches.get(&report.match_id) else { return QueueOutcome::StaleMatchVersion(None) };
        if play.version != *edition {
            return QueueOutcome::StaleMatchVersion(Some(Arc::clone(play)));
        }
        let unrated = report.unrated_reason(spec.as_ref());
        let rated = match spec.as_ref().filter(|_| unrated.is_none()) {
            Some(spec) => {
                let played = if spec.decays_by_active_periods() {
                    self.periods_played(report.set_id)
                } else {
                    SetActivity::default()
                };
                report.rate_players(spec, |user| self.skill_of(spec, user, report.set_id), *now, played)
            }
            None => Ok(Vec::new()),
        };
        let rated = match rated {
            Ok(rated) => rated,
            Err(error) => return QueueOutcome::RatingFailed(error.to_string()),
        };
        let tickets = match ends.as_deref().map(|ends| self.apply_write(ends)) {
            None => Vec::new(),
            Some(QueueOutcome::MatchWritten { tickets }) => tickets,
            Some(refused) => return refused,
        };
        let changes = rated.iter().map(|(user, before, after)| RatingUpdate {
            user: *user,
            before: before.estimate,
            after: after.estimate,
        });
        let result = Arc::new(MatchResult {
            report: (**report).clone(),
            report_digest: *payload,
            reported_at: *now,
            rating_updates: changes.collect(),
            unrated_reason: unrated,
        });
        let mut ratings: Vec<RatingRow> = rated
            .into_iter()
            .map(|(user, before, after)| self.update_rating(report, user, before, after, *now))
            .collect();
        ratings.extend(self.count_abandoned(report, spec.as_ref(), *now));
        ratings.sort_unstable_by_key(|row| row.user);
        // Who left and is rated is in it twice: as it was before it was blamed, and as it is.
        ratings.dedup_by(|later, earlier| {
            let same = later.user == earlier.user;
            if same {
                *earlier = *later;
            }
            same
        });
        self.results.insert(report.match_id, Arc::clone(&result));
        QueueOutcome::ResultRecorded { result, is_replay: false, tickets, ratings }
    }

    /// What is stored of a user, or what newcomers have.
    fn skill_of(&self, spec: &RatingSpec, user: UserKey, set_id: SetId) -> Skill {
        self.ratings.get(&(user, set_id)).map_or_else(|| spec.initial_skill(), RatingRow::skill)
    }

    /// How far a set has been played, by all whose ratings are here or elsewhere.
    fn periods_played(&self, set_id: SetId) -> SetActivity {
        let elsewhere = self.periods_played_by_others.get(&set_id).copied().unwrap_or_default();
        let of_set = self.ratings.values().filter(|row| row.set_id == set_id);
        of_set.fold(elsewhere, |played, row| played.including_skill(&row.skill()))
    }

    /// A user's rating follows a match.
    fn update_rating(
        &mut self,
        report: &ResultReport,
        user: UserKey,
        before: Skill,
        after: Skill,
        now: UnixMs,
    ) -> RatingRow {
        let key = (user, report.set_id);
        let satisfaction = self.ratings.get(&key).map_or_else(SatisfactionStats::default, |row| row.satisfaction);
        let row = RatingRow {
            user,
            set_id: report.set_id,
            rating: without_negative_zero(after.estimate),
            volatility: after.volatility + 0.0,
            match_count: after.match_count,
            last_match_at: after.last_match_at.unwrap_or(now),
            streak: after.streak,
            satisfaction,
            periods_played: after.active_periods,
        };
        self.ratings.insert(key, row);
        let change = RatingHistoryEntry {
            user,
            set_id: report.set_id,
            rated_match_number: row.match_count,
            match_id: report.match_id,
            reported_at: now,
            rank: report.rank_of(user).unwrap_or(0),
            side_count: u32::try_from(report.sides.len()).unwrap_or(u32::MAX),
            before: without_negative_zero(before.estimate),
            after: row.rating,
        };
        self.rating_changes.insert((user, report.set_id, history_slot(row.match_count)), change);
        row
    }

    /// Whoever left before the end is remembered for it, where the set keeps anything of its users.
    fn count_abandoned(&mut self, report: &ResultReport, spec: Option<&RatingSpec>, now: UnixMs) -> Vec<RatingRow> {
        let Some(spec) = spec else { return Vec::new() };
        let mut rows = Vec::with_capacity(report.left_early.len());
        for user in &report.left_early {
            let row = self
                .ratings
                .entry((*user, report.set_id))
                .or_insert_with(|| new_rating_row(spec, *user, report.set_id, now));
            row.satisfaction.abandoned_matches = row.satisfaction.abandoned_matches.saturating_add(1);
            rows.push(*row);
        }
        rows
    }

    /// `Rate`.
    pub(super) fn import_ratings(&mut self, rows: &[RatingRow]) -> QueueOutcome {
        for row in rows {
            let known = self.ratings.get(&(row.user, row.set_id));
            let (streak, satisfaction) =
                known.map_or((row.streak, row.satisfaction), |known| (known.streak, known.satisfaction));
            self.ratings.insert((row.user, row.set_id), RatingRow { streak, satisfaction, ..*row });
        }
        QueueOutcome::RatingsImported
    }

    /// `Score`.
    pub(super) fn record_feedback(
        &mut self,
        match_id: MatchId,
        (user, set_id): (UserKey, SetId),
        score: u8,
        spec: Option<&RatingSpec>,
        now: UnixMs,
    ) -> QueueOutcome {
        if let Some((score, _)) = self.feedback.get(&(match_id, user)) {
            return QueueOutcome::FeedbackAlreadyGiven { stars: *score };
        }
        self.feedback.insert((match_id, user), (score, now));
        let key = (user, set_id);
        let known =
            self.ratings.get(&key).copied().or_else(|| spec.map(|spec| new_rating_row(spec, user, set_id, now)));
        let row = known.map(|mut row| {
            let all = &mut row.satisfaction;
            (all.feedback_count, all.feedback_sum) =
                (all.feedback_count.saturating_add(1), all.feedback_sum.saturating_add(score.into()));
            row
        });
        self.ratings.extend(row.map(|row| (key, row)));
        QueueOutcome::FeedbackRecorded(row)
    }
}

/// The result is there already.
fn replayed_result(known: &Arc<MatchResult>) -> QueueOutcome {
    QueueOutcome::ResultRecorded {
        result: Arc::clone(known),
        is_replay: true,
        tickets: Vec::new(),
        ratings: Vec::new(),
    }
}

/// Which of a user's remembered changes gives way to this one: numbers go round, so there are never more than so many.
pub(in crate::store) fn history_slot(number: u32) -> u32 {
    number % RATING_HISTORY_ENTRIES_MAX
}

/// Who had no rating before: has left a match that is not rated, or scored one of which nobody has said yet what came of it.
fn new_rating_row(spec: &RatingSpec, user: UserKey, set_id: SetId, now: UnixMs) -> RatingRow {
    let new = spec.initial_skill();
    RatingRow {
        user,
        set_id,
        rating: new.estimate,
        volatility: new.volatility,
        match_count: 0,
        last_match_at: now,
        streak: 0,
        satisfaction: SatisfactionStats::default(),
        periods_played: 0,
    }
}

/// A file keeps no sign of a zero, so nobody has one.
fn without_negative_zero(rated: PlayerRating) -> PlayerRating {
    PlayerRating { rating: rated.rating + 0.0, deviation: rated.deviation + 0.0 }
}
