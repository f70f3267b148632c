//! Rating queries: a user's rating, leaderboard pages and skills for predictions.

use crate::domain::id::UserKey;
use crate::domain::match_result::UserSatisfactionStatistics;
use crate::domain::rating::Skill;
use crate::domain::rating::leaderboard::LeaderboardEntry;
use crate::domain::ruleset::rating::RatingSpec;
use crate::domain::ruleset::rating::scale::KeyedRatingSpec;
use crate::domain::time::UnixMs;
use crate::engine::ratings::command::{LeaderboardPage, LeaderboardQuery, LeaderboardRange, RatingView};
use crate::engine::ratings::{RatingCache, leaderboard_entry};

impl RatingCache {
    /// Rating of a user at `now`.
    pub(crate) fn rating_view(&mut self, rating: &KeyedRatingSpec, user: UserKey, now: UnixMs) -> RatingView {
        let KeyedRatingSpec { key, spec } = rating;
        let Some(row) = self.rating_row(*key, user).copied() else {
            let newcomer = spec.initial_skill();
            return view_of_skill(spec, newcomer, newcomer);
        };
        let rank = self.leaderboard(rating).index_of(&leaderboard_entry(&row, spec.leaderboard_z));
        let stored = row.skill();
        let view = view_of_skill(
            spec,
            stored,
            spec.skill_at_with_activity(stored, now, self.match_activity_of_all_users(*key)),
        );
        RatingView { leaderboard_index: Some(rank), satisfaction: row.satisfaction, ..view }
    }

    /// Page of a leaderboard. Empty around a user who is not on it.
    pub(crate) fn leaderboard_page(&mut self, rating: &KeyedRatingSpec, query: LeaderboardQuery) -> LeaderboardPage {
        let KeyedRatingSpec { key, spec } = rating;
        let own_entry = match query.range {
            LeaderboardRange::AroundUser(user, _) => {
                self.rating_row(*key, user).map(|row| leaderboard_entry(row, spec.leaderboard_z))
            }
            LeaderboardRange::FromIndex(_) | LeaderboardRange::AfterEntry(_) => None,
        };
        let leaderboard = self.leaderboard(rating);
        let total_entries = leaderboard.len();
        let (first_rank, max_entries) = match query.range {
            LeaderboardRange::FromIndex(rank) => (rank, query.max_entries),
            LeaderboardRange::AfterEntry(last) => {
                let rank = leaderboard.index_of(&last);
                (first_index_of_next_page(rank, leaderboard.iter_from(rank).next(), last), query.max_entries)
            }
            LeaderboardRange::AroundUser(_, neighbors) => match own_entry.map(|entry| leaderboard.index_of(&entry)) {
                None => (total_entries, 0),
                Some(rank) => {
                    let first_rank = rank.saturating_sub(neighbors);
                    (first_rank, (rank - first_rank) + 1 + neighbors)
                }
            },
        };
        let ranked: Vec<(usize, LeaderboardEntry)> = leaderboard.iter_from(first_rank).take(max_entries).collect();
        let has_more = ranked.last().is_some_and(|(rank, _)| rank + 1 < total_entries);
        let view = |(rank, entry): (usize, LeaderboardEntry)| {
            let stored = self.rating_row(*key, entry.user)?.skill();
            Some((rank, entry, RatingView { leaderboard_index: Some(rank), ..view_of_skill(spec, stored, stored) }))
        };
        LeaderboardPage { entries: ranked.into_iter().filter_map(view).collect(), total_entries, has_more }
    }

    /// Skills of the users of each side at `now`.
    pub(crate) fn skills_of_sides(
        &self,
        rating: &KeyedRatingSpec,
        sides: &[Vec<UserKey>],
        now: UnixMs,
    ) -> Vec<Vec<Skill>> {
        sides.iter().map(|side| side.iter().map(|user| self.skill_at(rating, *user, now)).collect()).collect()
    }
}

/// Rank after `last`, which is still at `rank` or has moved away.
fn first_index_of_next_page(rank: usize, at_rank: Option<(usize, LeaderboardEntry)>, last: LeaderboardEntry) -> usize {
    match at_rank {
        Some((_, current))
            if current.user == last.user
                && current.conservative_rating.to_bits() == last.conservative_rating.to_bits() =>
        {
            rank + 1
        }
        _ => rank,
    }
}

/// View of a user with stored skill `stored` and current skill `skill`.
fn view_of_skill(spec: &RatingSpec, stored: Skill, skill: Skill) -> RatingView {
    RatingView {
        skill,
        conservative_rating: spec.conservative_rating(stored.estimate),
        interval_95: spec.confidence_interval_95(skill.estimate),
        is_provisional: spec.is_provisional(&stored),
        category: spec.categories.map(|categories| categories.category_of(stored.estimate.rating)),
        leaderboard_index: None,
        satisfaction: UserSatisfactionStatistics::default(),
    }
}
