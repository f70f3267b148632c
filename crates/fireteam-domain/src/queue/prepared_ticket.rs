//! Prepared ticket: values that do not change between passes, computed once.

use std::sync::Arc;

use crate::attribute::AttributeValue;
use crate::attribute_values::AttributeValues;
use crate::id::UserKey;
use crate::queue::rating_group::group_of_rating;
use crate::queue::ticket::Ticket;
use crate::queue::user_filter::UserFilter;
use crate::queue::window::bucket_of;
use crate::ruleset::Ruleset;
use crate::ruleset::queue::{QueueSpec, SatisfactionSpec};
use crate::team;

/// Waiting ticket with derived values. Prepared when the ticket enters and when the ruleset changes.
#[derive(Clone, Debug)]
pub struct PreparedTicket {
    /// Ticket as entered.
    pub ticket: Arc<Ticket>,
    /// Attribute values of its session.
    pub attribute_values: AttributeValues,
    /// Ratings of its players, in player order. Ratings that are not finite are 0.
    pub player_ratings: Box<[f64]>,
    /// Rating of the party, aggregated by `QueueSpec::party_rating`.
    pub party_rating: f64,
    /// Leaderboard position, 0 for the best; for a party the mean of its players. `None` if unknown. The engine sets it
    /// before each pass that uses positions.
    pub leaderboard_position: Option<f64>,
    /// One of its players counts as frustrated by `SatisfactionSpec`. The engine sets it before each pass that uses it.
    pub frustrated: bool,
    /// Number of players.
    pub player_count: u16,
    /// Its users, sorted.
    pub users: Box<[UserKey]>,
    /// Filter for `Ticket::blocked_users`, of which there may be thousands.
    pub blocked_filter: UserFilter,
    /// Index of its rating group; 0 without groups.
    pub rating_group: u16,
    /// Rating bucket; 0 without a window.
    pub rating_bucket: i64,
    /// Roles that its players offer: indices into `TeamsSpec::roles`. All roles if the ticket names none.
    pub offered_roles: Box<[u16]>,
}

impl PreparedTicket {
    /// Prepares `ticket` for `ruleset` and its `queue`.
    pub fn new(ruleset: &Ruleset, queue: &QueueSpec, ticket: Arc<Ticket>, leaderboard_position: Option<f64>) -> Self {
        let attribute_values = AttributeValues::from_ticket(ruleset, &ticket);
        let player_ratings: Box<[f64]> = ticket.player_ratings.iter().map(|it| finite_or_zero(it.rating)).collect();
        let party_rating = queue.party_rating.aggregate(&player_ratings).unwrap_or(0.0);
        Self {
            party_rating,
            leaderboard_position: leaderboard_position.filter(|it| it.is_finite()),
            frustrated: false,
            player_count: ticket.session.player_count(),
            blocked_filter: UserFilter::new(&ticket.blocked_users),
            users: ticket.session.sorted_users().into(),
            rating_group: queue.groups.as_ref().map_or(0, |groups| group_of_rating(groups, party_rating)),
            rating_bucket: queue.window.as_ref().map_or(0, |window| bucket_of(window, party_rating)),
            offered_roles: offered_roles(ruleset, &attribute_values),
            player_ratings,
            attribute_values,
            ticket,
        }
    }
}

impl PreparedTicket {
    /// Factor on the window range. `None` unless the satisfaction rule applies and changes it.
    pub fn range_factor(&self, queue: &QueueSpec) -> Option<f64> {
        self.satisfaction_rule(queue).map(|rule| rule.widen).filter(|factor| *factor != 1.0)
    }

    /// Rating points by which the window center is lower. `None` unless the satisfaction rule applies and changes it.
    pub fn rating_shift(&self, queue: &QueueSpec) -> Option<f64> {
        self.satisfaction_rule(queue).map(|rule| rule.shift_down).filter(|points| *points != 0.0)
    }

    /// Center bucket of its window.
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

fn offered_roles(ruleset: &Ruleset, attribute_values: &AttributeValues) -> Box<[u16]> {
    let Some(teams) = &ruleset.teams else { return Box::default() };
    let named_roles = match teams.role_attribute.and_then(|attribute| attribute_values.get(attribute)) {
        Some(AttributeValue::StringList(named_roles)) => Some(&**named_roles),
        _ => None,
    };
    team::offered_roles(teams, named_roles).into()
}
