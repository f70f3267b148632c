//! What is asked of ratings: how good somebody is, who leads, how a match would end.

use crate::domain::id::{SetId, UserKey};
use crate::domain::rating::Skill;
use crate::domain::rating::board::Standing;
use crate::domain::result::Satisfaction;
use crate::domain::ruleset::rating::RatingSpec;
use crate::domain::time::UnixMs;
use crate::engine::ratings::command::{BoardPage, LookAtBoard, Part, RatingView};
use crate::engine::ratings::{Ratings, standing};

impl Ratings {
    /// How good a user is at `now`.
    pub(in crate::engine) fn view(
        &mut self,
        set_id: SetId,
        spec: &RatingSpec,
        user: UserKey,
        now: UnixMs,
    ) -> RatingView {
        let Some(row) = self.row(set_id, user).copied() else {
            let new = spec.newcomer();
            return seen(spec, new, new);
        };
        let place = self.board(set_id, spec).place(&standing(&row, spec.z));
        let stored = row.skill();
        let view = seen(spec, stored, spec.at_in(stored, now, self.played(set_id)));
        RatingView { place: Some(place), satisfaction: row.satisfaction, ..view }
    }

    /// A part of a set's leaderboard. Around somebody who is not on it there is nothing.
    pub(in crate::engine) fn look_at(&mut self, spec: &RatingSpec, look: LookAtBoard) -> BoardPage {
        let own = match look.part {
            Part::Around(user, _) => self.row(look.set_id, user).map(|row| standing(row, spec.z)),
            Part::From(_) | Part::After(_) => None,
        };
        let board = self.board(look.set_id, spec);
        let total = board.len();
        let (from, most) = match look.part {
            Part::From(place) => (place, look.most),
            Part::After(last) => {
                let place = board.place(&last);
                (after(place, board.from(place).next(), last), look.most)
            }
            Part::Around(_, to_either_side) => match own.map(|own| board.place(&own)) {
                None => (total, 0),
                Some(place) => {
                    let from = place.saturating_sub(to_either_side);
                    (from, (place - from) + 1 + to_either_side)
                }
            },
        };
        let there: Vec<(usize, Standing)> = board.from(from).take(most).collect();
        let more = there.last().is_some_and(|(place, _)| place + 1 < total);
        let view = |(place, at): (usize, Standing)| {
            let stored = self.row(look.set_id, at.user)?.skill();
            Some((place, at, RatingView { place: Some(place), ..seen(spec, stored, stored) }))
        };
        BoardPage { entries: there.into_iter().filter_map(view).collect(), total, more }
    }

    /// What rating systems see of the users of each side, at `now`.
    pub(in crate::engine) fn sides(
        &self,
        set_id: SetId,
        spec: &RatingSpec,
        sides: &[Vec<UserKey>],
        now: UnixMs,
    ) -> Vec<Vec<Skill>> {
        sides.iter().map(|side| side.iter().map(|user| self.skill(set_id, spec, *user, now)).collect()).collect()
    }
}

/// The place after `last`, which is at `place` still, or has gone from there.
fn after(place: usize, there: Option<(usize, Standing)>, last: Standing) -> usize {
    match there {
        Some((_, known)) if known.user == last.user && known.score.to_bits() == last.score.to_bits() => place + 1,
        _ => place,
    }
}

/// What is told of somebody who is stored as `stored` and is `skill` by now.
fn seen(spec: &RatingSpec, stored: Skill, skill: Skill) -> RatingView {
    RatingView {
        skill,
        score: spec.score(stored.rated),
        interval: spec.interval(skill.rated),
        provisional: spec.is_provisional(&stored),
        place: None,
        satisfaction: Satisfaction::default(),
    }
}
