//! What is asked of ratings: how good somebody is, who leads, how a match would end.

use crate::domain::id::{SetId, UserKey};
use crate::domain::match_result::SatisfactionStats;
use crate::domain::rating::Skill;
use crate::domain::rating::leaderboard::LeaderboardEntry;
use crate::domain::ruleset::rating::RatingSpec;
use crate::domain::time::UnixMs;
use crate::engine::ratings::command::{LeaderboardPage, LeaderboardQuery, LeaderboardRange, RatingView};
use crate::engine::ratings::{RatingCache, leaderboard_entry};

impl RatingCache {
    /// How good a user is at `now`.
    pub(in crate::engine) fn rating_view(
        &mut self,
        set_id: SetId,
        spec: &RatingSpec,
        user: UserKey,
        now: UnixMs,
    ) -> RatingView {
        let Some(row) = self.rating_row(set_id, user).copied() else {
            let new = spec.initial_skill();
            return view_of_skill(spec, new, new);
        };
        let place = self.leaderboard(set_id, spec).index_of(&leaderboard_entry(&row, spec.z));
        let stored = row.skill();
        let view = view_of_skill(spec, stored, spec.skill_at_with_activity(stored, now, self.set_activity(set_id)));
        RatingView { leaderboard_rank: Some(place), satisfaction: row.satisfaction, ..view }
    }

    /// A part of a set's leaderboard. Around somebody who is not on it there is nothing.
    pub(in crate::engine) fn leaderboard_page(&mut self, spec: &RatingSpec, look: LeaderboardQuery) -> LeaderboardPage {
        let own = match look.range {
            LeaderboardRange::AroundUser(user, _) => {
                self.rating_row(look.set_id, user).map(|row| leaderboard_entry(row, spec.z))
            }
            LeaderboardRange::FromRank(_) | LeaderboardRange::AfterEntry(_) => None,
        };
        let board = self.leaderboard(look.set_id, spec);
        let total = board.len();
        let (from, most) = match look.range {
            LeaderboardRange::FromRank(place) => (place, look.max_entries),
            LeaderboardRange::AfterEntry(last) => {
                let place = board.index_of(&last);
                (rank_after(place, board.iter_from(place).next(), last), look.max_entries)
            }
            LeaderboardRange::AroundUser(_, to_either_side) => match own.map(|own| board.index_of(&own)) {
                None => (total, 0),
                Some(place) => {
                    let from = place.saturating_sub(to_either_side);
                    (from, (place - from) + 1 + to_either_side)
                }
            },
        };
        let there: Vec<(usize, LeaderboardEntry)> = board.iter_from(from).take(most).collect();
        let more = there.last().is_some_and(|(place, _)| place + 1 < total);
        let view = |(place, at): (usize, LeaderboardEntry)| {
            let stored = self.rating_row(look.set_id, at.user)?.skill();
            Some((place, at, RatingView { leaderboard_rank: Some(place), ..view_of_skill(spec, stored, stored) }))
        };
        LeaderboardPage { entries: there.into_iter().filter_map(view).collect(), total_entries: total, has_more: more }
    }

    /// What rating systems see of the users of each side, at `now`.
    pub(in crate::engine) fn skills_of_sides(
        &self,
        set_id: SetId,
        spec: &RatingSpec,
        sides: &[Vec<UserKey>],
        now: UnixMs,
    ) -> Vec<Vec<Skill>> {
        sides.iter().map(|side| side.iter().map(|user| self.skill_at(set_id, spec, *user, now)).collect()).collect()
    }
}

/// The place after `last`, which is at `place` still, or has gone from there.
fn rank_after(place: usize, there: Option<(usize, LeaderboardEntry)>, last: LeaderboardEntry) -> usize {
    match there {
        Some((_, known))
            if known.user == last.user && known.conservative_rating.to_bits() == last.conservative_rating.to_bits() =>
        {
            place + 1
        }
        _ => place,
    }
}

/// What is told of somebody who is stored as `stored` and is `skill` by now.
fn view_of_skill(spec: &RatingSpec, stored: Skill, skill: Skill) -> RatingView {
    RatingView {
        skill,
        conservative_rating: spec.conservative_rating(stored.estimate),
        interval_95: spec.confidence_interval_95(skill.estimate),
        is_provisional: spec.is_provisional(&stored),
        leaderboard_rank: None,
        satisfaction: SatisfactionStats::default(),
    }
}
