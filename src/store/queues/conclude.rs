//! What the end of a match does to what queues keep: the result is written down once, ratings follow it, the match ends.

use std::sync::Arc;

use crate::domain::id::{MatchId, SetId, UserKey};
use crate::domain::limit::RATING_CHANGES_MAX;
use crate::domain::queue::ticket::Rated;
use crate::domain::rating::{Played, Skill};
use crate::domain::result::{Change, MatchResult, RatingChange, Report, Satisfaction};
use crate::domain::ruleset::rating::RatingSpec;
use crate::domain::time::UnixMs;
use crate::store::queues::picture::Picture;
use crate::store::queues::{QueueOutcome, QueueWrite, RatingRow};

impl Picture {
    /// `Conclude`.
    pub(super) fn conclude(&mut self, write: &QueueWrite) -> QueueOutcome {
        let QueueWrite::Conclude { report, payload, edition, ends, spec, now } = write else {
            return QueueOutcome::Stale(None);
        };
        if let Some(known) = self.results.get(&report.match_id) {
            return match known.payload == *payload {
                true => replayed(known),
                false => QueueOutcome::Contradicted(Arc::clone(known)),
            };
        }
        let Some(play) = self.matches.get(&report.match_id) else { return QueueOutcome::Stale(None) };
        if play.edition != *edition {
            return QueueOutcome::Stale(Some(Arc::clone(play)));
        }
        let unrated = report.unrated(spec.as_ref());
        let rated = match spec.as_ref().filter(|_| unrated.is_none()) {
            Some(spec) => {
                let played = if spec.counts_played() { self.played(report.set_id) } else { Played::default() };
                report.rate(spec, |user| self.skill(spec, user, report.set_id), *now, played)
            }
            None => Ok(Vec::new()),
        };
        let rated = match rated {
            Ok(rated) => rated,
            Err(error) => return QueueOutcome::Unratable(error.to_string()),
        };
        let tickets = match ends.as_deref().map(|ends| self.apply(ends)) {
            None => Vec::new(),
            Some(QueueOutcome::Moved { tickets }) => tickets,
            Some(refused) => return refused,
        };
        let changes =
            rated.iter().map(|(user, before, after)| Change { user: *user, before: before.rated, after: after.rated });
        let result = Arc::new(MatchResult {
            report: (**report).clone(),
            payload: *payload,
            reported: *now,
            changes: changes.collect(),
            unrated,
        });
        let mut ratings: Vec<RatingRow> =
            rated.into_iter().map(|(user, before, after)| self.follow(report, user, before, after, *now)).collect();
        ratings.extend(self.blame(report, spec.as_ref(), *now));
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
        QueueOutcome::Concluded { result, replayed: false, tickets, ratings }
    }

    /// What is stored of a user, or what newcomers have.
    fn skill(&self, spec: &RatingSpec, user: UserKey, set_id: SetId) -> Skill {
        self.ratings.get(&(user, set_id)).map_or_else(|| spec.newcomer(), RatingRow::skill)
    }

    /// How far a set has been played, by all whose ratings are here or elsewhere.
    fn played(&self, set_id: SetId) -> Played {
        let elsewhere = self.played_elsewhere.get(&set_id).copied().unwrap_or_default();
        let of_set = self.ratings.values().filter(|row| row.set_id == set_id);
        of_set.fold(elsewhere, |played, row| played.with(&row.skill()))
    }

    /// A user's rating follows a match.
    fn follow(&mut self, report: &Report, user: UserKey, before: Skill, after: Skill, now: UnixMs) -> RatingRow {
        let key = (user, report.set_id);
        let satisfaction = self.ratings.get(&key).map_or_else(Satisfaction::default, |row| row.satisfaction);
        let row = RatingRow {
            user,
            set_id: report.set_id,
            rated: positive_zero(after.rated),
            volatility: after.volatility + 0.0,
            matches: after.matches,
            last: after.last.unwrap_or(now),
            streak: after.streak,
            satisfaction,
            played: after.played,
        };
        self.ratings.insert(key, row);
        let change = RatingChange {
            user,
            set_id: report.set_id,
            number: row.matches,
            match_id: report.match_id,
            at: now,
            rank: report.rank_of(user).unwrap_or(0),
            sides: u32::try_from(report.sides.len()).unwrap_or(u32::MAX),
            before: positive_zero(before.rated),
            after: row.rated,
        };
        self.changes.insert((user, report.set_id, slot(row.matches)), change);
        row
    }

    /// Whoever left before the end is remembered for it, where the set keeps anything of its users.
    fn blame(&mut self, report: &Report, spec: Option<&RatingSpec>, now: UnixMs) -> Vec<RatingRow> {
        let Some(spec) = spec else { return Vec::new() };
        let mut rows = Vec::with_capacity(report.disconnected.len());
        for user in &report.disconnected {
            let row =
                self.ratings.entry((*user, report.set_id)).or_insert_with(|| newcomer(spec, *user, report.set_id, now));
            row.satisfaction.abandoned = row.satisfaction.abandoned.saturating_add(1);
            rows.push(*row);
        }
        rows
    }

    /// `Rate`.
    pub(super) fn rate(&mut self, rows: &[RatingRow]) -> QueueOutcome {
        for row in rows {
            let known = self.ratings.get(&(row.user, row.set_id));
            let (streak, satisfaction) =
                known.map_or((row.streak, row.satisfaction), |known| (known.streak, known.satisfaction));
            self.ratings.insert((row.user, row.set_id), RatingRow { streak, satisfaction, ..*row });
        }
        QueueOutcome::Rated
    }

    /// `Score`.
    pub(super) fn score(
        &mut self,
        match_id: MatchId,
        (user, set_id): (UserKey, SetId),
        score: u8,
        spec: Option<&RatingSpec>,
        now: UnixMs,
    ) -> QueueOutcome {
        if let Some((score, _)) = self.scores.get(&(match_id, user)) {
            return QueueOutcome::ScoredBefore { score: *score };
        }
        self.scores.insert((match_id, user), (score, now));
        let key = (user, set_id);
        let known = self.ratings.get(&key).copied().or_else(|| spec.map(|spec| newcomer(spec, user, set_id, now)));
        let row = known.map(|mut row| {
            let all = &mut row.satisfaction;
            (all.scores, all.score_sum) = (all.scores.saturating_add(1), all.score_sum.saturating_add(score.into()));
            row
        });
        self.ratings.extend(row.map(|row| (key, row)));
        QueueOutcome::Scored(row)
    }
}

/// The result is there already.
fn replayed(known: &Arc<MatchResult>) -> QueueOutcome {
    QueueOutcome::Concluded { result: Arc::clone(known), replayed: true, tickets: Vec::new(), ratings: Vec::new() }
}

/// Which of a user's remembered changes gives way to this one: numbers go round, so there are never more than so many.
pub(in crate::store) fn slot(number: u32) -> u32 {
    number % RATING_CHANGES_MAX
}

/// Who had no rating before: has left a match that is not rated, or scored one of which nobody has said yet what came of it.
fn newcomer(spec: &RatingSpec, user: UserKey, set_id: SetId, now: UnixMs) -> RatingRow {
    let new = spec.newcomer();
    RatingRow {
        user,
        set_id,
        rated: new.rated,
        volatility: new.volatility,
        matches: 0,
        last: now,
        streak: 0,
        satisfaction: Satisfaction::default(),
        played: 0,
    }
}

/// A file keeps no sign of a zero, so nobody has one.
fn positive_zero(rated: Rated) -> Rated {
    Rated { rating: rated.rating + 0.0, deviation: rated.deviation + 0.0 }
}
