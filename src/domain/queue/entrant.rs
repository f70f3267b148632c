//! A ticket as a pass sees it: everything about it that does not change from pass to pass, worked out once.

use std::sync::Arc;

use crate::domain::attribute::Value;
use crate::domain::facts::Facts;
use crate::domain::id::UserKey;
use crate::domain::queue::group::group_of;
use crate::domain::queue::ticket::Ticket;
use crate::domain::queue::window::bucket_of;
use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::queue::{QueueSpec, Satisfaction};
use crate::domain::team;

/// A ticket that waits. Made when the ticket enters, and again when the ruleset changes.
#[derive(Clone, Debug)]
pub struct Entrant {
    /// The ticket.
    pub ticket: Arc<Ticket>,
    /// What the ruleset sees of its session.
    pub facts: Facts,
    /// Its players' ratings, in the order of its players; those that are no numbers are 0.
    pub ratings: Box<[f64]>,
    /// The party's one rating, by `QueueSpec::party_rating` (S0-26).
    pub rating: f64,
    /// Its place on the leaderboard, 0 for the best; a party's is the mean of its players'. `None` when it is not known.
    /// The engine sets it before each pass that goes by places (S2-9).
    pub place: Option<f64>,
    /// One of its players is frustrated, as the queue has it (S1-97). The engine sets it before each pass that goes by it.
    pub frustrated: bool,
    /// How many players it has.
    pub size: u16,
    /// Its users, sorted.
    pub users: Box<[UserKey]>,
    /// Its rating group (S3-2); 0 where there are none.
    pub group: u16,
    /// Its bucket (S0-13); 0 where there is no window.
    pub bucket: i64,
    /// What its players offer to play: places in `TeamsSpec::roles`; all of them where it does not say.
    pub roles: Box<[u16]>,
}

impl Entrant {
    /// Looks at `ticket` through `ruleset`, whose queue is `queue`.
    pub fn of(ruleset: &Ruleset, queue: &QueueSpec, ticket: Arc<Ticket>, place: Option<f64>) -> Self {
        let facts = Facts::of_ticket(ruleset, &ticket);
        let ratings: Box<[f64]> = ticket.ratings.iter().map(|it| number_or_zero(it.rating)).collect();
        let rating = queue.party_rating.reduce(&ratings).unwrap_or(0.0);
        Self {
            rating,
            place: place.filter(|it| it.is_finite()),
            frustrated: false,
            size: ticket.session.player_count(),
            users: ticket.session.users().into(),
            group: queue.groups.as_ref().map_or(0, |groups| group_of(groups, rating)),
            bucket: queue.window.as_ref().map_or(0, |window| bucket_of(window, rating)),
            roles: roles(ruleset, &facts),
            ratings,
            facts,
            ticket,
        }
    }
}

impl Entrant {
    /// By how much its window is wider, where it is looked after so.
    pub fn widened(&self, queue: &QueueSpec) -> Option<f64> {
        self.looked_after(queue).map(|rule| rule.widen).filter(|factor| *factor != 1.0)
    }

    /// By how many rating points the middle of its window lies below its rating, where it is looked after so.
    pub fn shifted_down(&self, queue: &QueueSpec) -> Option<f64> {
        self.looked_after(queue).map(|rule| rule.shift_down).filter(|points| *points != 0.0)
    }

    /// The bucket around which it looks.
    pub fn centre(&self, queue: &QueueSpec) -> i64 {
        match (&queue.window, self.shifted_down(queue)) {
            (Some(window), Some(points)) => bucket_of(window, self.rating - points),
            _ => self.bucket,
        }
    }

    fn looked_after<'q>(&self, queue: &'q QueueSpec) -> Option<&'q Satisfaction> {
        queue.satisfaction.as_ref().filter(|_| self.frustrated)
    }
}

fn number_or_zero(rating: f64) -> f64 {
    if rating.is_finite() { rating } else { 0.0 }
}

fn roles(ruleset: &Ruleset, facts: &Facts) -> Box<[u16]> {
    let Some(teams) = &ruleset.teams else { return Box::default() };
    let said = match teams.role_attribute.and_then(|attribute| facts.get(attribute)) {
        Some(Value::Texts(said)) => Some(&**said),
        _ => None,
    };
    team::offered(teams, said).into()
}
