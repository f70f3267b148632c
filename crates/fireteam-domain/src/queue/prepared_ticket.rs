//! A ticket as a pass sees it: everything about it that does not change from pass to pass, worked out once.

use std::sync::Arc;

use crate::attribute::AttributeValue;
use crate::attribute_values::AttributeValues;
use crate::id::UserKey;
use crate::queue::rating_group::group_of_rating;
use crate::queue::ticket::Ticket;
use crate::queue::window::bucket_of;
use crate::ruleset::Ruleset;
use crate::ruleset::queue::{QueueSpec, SatisfactionSpec};
use crate::team;

/// A ticket that waits. Made when the ticket enters, and again when the ruleset changes.
#[derive(Clone, Debug)]
pub struct PreparedTicket {
    /// The ticket.
    pub ticket: Arc<Ticket>,
    /// What the ruleset sees of its session.
    pub attribute_values: AttributeValues,
    /// Its players' ratings, in the order of its players; those that are no numbers are 0.
    pub player_ratings: Box<[f64]>,
    /// The party's one rating, by `QueueSpec::party_rating` (S0-26).
    pub party_rating: f64,
    /// Its place on the leaderboard, 0 for the best; a party's is the mean of its players'. `None` when it is not known.
    /// The engine sets it before each pass that goes by places (S2-9).
    pub leaderboard_position: Option<f64>,
    /// One of its players is frustrated, as the queue has it (S1-97). The engine sets it before each pass that goes by it.
    pub frustrated: bool,
    /// How many players it has.
    pub player_count: u16,
    /// Its users, sorted.
    pub users: Box<[UserKey]>,
    /// Its rating group (S3-2); 0 where there are none.
    pub rating_group: u16,
    /// Its bucket (S0-13); 0 where there is no window.
    pub rating_bucket: i64,
    /// What its players offer to play: places in `TeamsSpec::roles`; all of them where it does not say.
    pub offered_roles: Box<[u16]>,
}

impl PreparedTicket {
    /// Looks at `ticket` through `ruleset`, whose queue is `queue`.
    pub fn new(ruleset: &Ruleset, queue: &QueueSpec, ticket: Arc<Ticket>, place: Option<f64>) -> Self {
        let facts = AttributeValues::from_ticket(ruleset, &ticket);
        let ratings: Box<[f64]> = ticket.player_ratings.iter().map(|it| finite_or_zero(it.rating)).collect();
        let rating = queue.party_rating.aggregate(&ratings).unwrap_or(0.0);
        Self {
            party_rating: rating,
            leaderboard_position: place.filter(|it| it.is_finite()),
            frustrated: false,
            player_count: ticket.session.player_count(),
            users: ticket.session.sorted_users().into(),
            rating_group: queue.groups.as_ref().map_or(0, |groups| group_of_rating(groups, rating)),
            rating_bucket: queue.window.as_ref().map_or(0, |window| bucket_of(window, rating)),
            offered_roles: offered_roles(ruleset, &facts),
            player_ratings: ratings,
            attribute_values: facts,
            ticket,
        }
    }
}

impl PreparedTicket {
    /// By how much its window is wider, where it is looked after so.
    pub fn range_factor(&self, queue: &QueueSpec) -> Option<f64> {
        self.satisfaction_rule(queue).map(|rule| rule.widen).filter(|factor| *factor != 1.0)
    }

    /// By how many rating points the middle of its window lies below its rating, where it is looked after so.
    pub fn rating_shift(&self, queue: &QueueSpec) -> Option<f64> {
        self.satisfaction_rule(queue).map(|rule| rule.shift_down).filter(|points| *points != 0.0)
    }

    /// The bucket around which it looks.
    pub fn window_center(&self, queue: &QueueSpec) -> i64 {
        match (&queue.window, self.rating_shift(queue)) {
            (Some(window), Some(points)) => bucket_of(window, self.party_rating - points),
            _ => self.rating_bucket,
        }
    }

    fn satisfaction_rule<'q>(&self, queue: &'q QueueSpec) -> Option<&'q SatisfactionSpec> {
        queue.satisfaction.as_ref().filter(|_| self.frustrated)
    }
}

fn finite_or_zero(rating: f64) -> f64 {
    if rating.is_finite() { rating } else { 0.0 }
}

fn offered_roles(ruleset: &Ruleset, facts: &AttributeValues) -> Box<[u16]> {
    let Some(teams) = &ruleset.teams else { return Box::default() };
    let said = match teams.role_attribute.and_then(|attribute| facts.get(attribute)) {
        Some(AttributeValue::StringList(said)) => Some(&**said),
        _ => None,
    };
    team::offered_roles(teams, said).into()
}
