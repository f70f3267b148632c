//! Prepared ticket: values that do not change between passes, computed once.

use std::sync::Arc;

use crate::attribute::AttributeValue;
use crate::attribute_values::AttributeValues;
use crate::id::UserKey;
use crate::latency::round_trip_estimate::PredictionEnd;
use crate::player_details;
use crate::queue::rating_group::group_of_rating;
use crate::queue::ticket::Ticket;
use crate::queue::ticket_vector::TicketBeaconVector;
use crate::queue::user_filter::UserBloomFilter;
use crate::queue::window::bucket_of;
use crate::ruleset::Ruleset;
use crate::ruleset::queue::{FrustratedPlayerSpec, QueueSpec};
use crate::team::{self, TeamParty};
use crate::time::UnixMs;

/// Waiting ticket with derived values. Prepared when the ticket enters and when the ruleset changes.
#[derive(Clone, Debug)]
pub struct PreparedTicket {
    /// Ticket as entered.
    pub ticket: Arc<Ticket>,
    /// Attribute values of its session.
    pub attribute_values: AttributeValues,
    /// Numbers by which its players are matched, in player order: `PlayerRating::matching_rating`.
    pub matching_ratings: Box<[f64]>,
    /// Rating of the party, aggregated by `QueueSpec::party_rating`.
    pub party_rating: f64,
    /// Leaderboard position, 0 for the best; for a party the mean of its players. `None` if unknown. The engine sets it
    /// before each pass that uses positions.
    pub leaderboard_position: Option<f64>,
    /// One of its players counts as frustrated by `FrustratedPlayerSpec`. The engine sets it before each pass that uses it.
    pub frustrated: bool,
    /// Its completed beacon vector, if the ruleset predicts round trips and the ticket has a vector that counts. The engine sets it
    /// before each pass.
    pub vector: Option<Arc<TicketBeaconVector>>,
    /// Number of players.
    pub player_count: u16,
    /// Its users, sorted.
    pub users: Box<[UserKey]>,
    /// Users whom its players have blocked, sorted: those sent with the ticket, and those in durable block lists.
    pub blocked_users: Arc<[UserKey]>,
    /// Filter for `blocked_users`, of which there may be thousands.
    pub blocked_filter: UserBloomFilter,
    /// Index of its rating group; 0 without groups.
    pub rating_group: u16,
    /// Rating bucket; 0 without a window.
    pub rating_bucket: i64,
    /// Roles that its players offer: indices into `TeamsSpec::roles`. All roles if the ticket names none.
    pub offered_roles: Box<[u16]>,
    /// Roles that each of its players wants, the most wanted first; empty if none of them wants any.
    pub wanted_roles: Box<[Box<[u16]>]>,
}

impl PreparedTicket {
    /// Prepares `ticket` for `ruleset` and its `queue`.
    pub fn new(ruleset: &Ruleset, queue: &QueueSpec, ticket: Arc<Ticket>, leaderboard_position: Option<f64>) -> Self {
        let attribute_values = AttributeValues::from_ticket(ruleset, &ticket);
        let match_z = ruleset.match_z();
        let player_ratings: Box<[f64]> = ticket.player_ratings.iter().map(|it| it.matching_rating(match_z)).collect();
        let party_rating = queue.party_rating.aggregate(&player_ratings).unwrap_or(0.0);
        Self {
            party_rating,
            leaderboard_position: leaderboard_position.filter(|it| it.is_finite()),
            frustrated: false,
            vector: None,
            player_count: ticket.session.player_count(),
            blocked_users: ticket.blocked_users.as_slice().into(),
            blocked_filter: UserBloomFilter::new(&ticket.blocked_users),
            users: ticket.session.sorted_users().into(),
            rating_group: queue.groups.as_ref().map_or(0, |groups| group_of_rating(groups, party_rating)),
            rating_bucket: queue.window.as_ref().map_or(0, |window| bucket_of(window, party_rating)),
            offered_roles: default_offered_roles(ruleset, &attribute_values),
            wanted_roles: player_details::wanted_roles_by_player(ruleset, &ticket.session),
            matching_ratings: player_ratings,
            attribute_values,
            ticket,
        }
    }
}

impl PreparedTicket {
    /// Input of a team split.
    pub fn team_party(&self) -> TeamParty<'_> {
        TeamParty {
            ratings: &self.matching_ratings,
            offered_roles: &self.offered_roles,
            wanted_roles: &self.wanted_roles,
        }
    }

    /// The party as one end of a prediction, unless its vector has expired by `now`.
    pub fn as_prediction_end(&self, now: UnixMs) -> Option<PredictionEnd<'_>> {
        self.vector_at(now).map(TicketBeaconVector::prediction_input)
    }

    /// Its vector, unless it has expired by `now`.
    pub(in crate::queue) fn vector_at(&self, now: UnixMs) -> Option<&TicketBeaconVector> {
        self.vector.as_deref().filter(|vector| now < vector.expires_at)
    }

    /// Users whom its players have blocked, if `durable` are those in their durable block lists, sorted; `None` if they have not
    /// changed.
    pub fn blocked_users_if_changed(&self, durable: &[UserKey]) -> Option<Vec<UserKey>> {
        let mut blocked = self.ticket.blocked_users.clone();
        if !durable.is_empty() {
            blocked.extend(durable);
            blocked.sort_unstable();
            blocked.dedup();
        }
        (blocked != *self.blocked_users).then_some(blocked)
    }

    /// The ticket with other blocked users, sorted.
    pub fn with_blocked_users(self, blocked: Vec<UserKey>) -> Self {
        Self { blocked_filter: UserBloomFilter::new(&blocked), blocked_users: blocked.into(), ..self }
    }

    /// The ticket, with the limits of a party that counts as frustrated by the ruleset's own rule, or with its usual limits.
    pub fn with_limits_if_frustrated(self, ruleset: &Ruleset, is_frustrated: bool) -> Self {
        Self { attribute_values: self.attribute_values.with_frustration(ruleset, is_frustrated), ..self }
    }

    /// Whether its limits are wider, because its party counts as frustrated.
    pub fn has_wider_limits(&self) -> bool {
        self.attribute_values.limit_factor() != 1.0
    }

    /// Factor on the window range. `None` unless the satisfaction rule applies and changes it.
    pub fn range_factor(&self, queue: &QueueSpec) -> Option<f64> {
        self.satisfaction_rule(queue).map(|rule| rule.window_widen_factor).filter(|factor| *factor != 1.0)
    }

    /// Rating points by which the window center is lower. `None` unless the satisfaction rule applies and changes it.
    pub fn window_center_lowered_by(&self, queue: &QueueSpec) -> Option<f64> {
        self.satisfaction_rule(queue).map(|rule| rule.window_shift_down_points).filter(|points| *points != 0.0)
    }

    /// Center bucket of its window.
    pub fn center_bucket(&self, queue: &QueueSpec) -> i64 {
        match (&queue.window, self.window_center_lowered_by(queue)) {
            (Some(window), Some(points)) => bucket_of(window, self.party_rating - points),
            _ => self.rating_bucket,
        }
    }

    fn satisfaction_rule<'q>(&self, queue: &'q QueueSpec) -> Option<&'q FrustratedPlayerSpec> {
        queue.frustrated_player_window.as_ref().filter(|_| self.frustrated)
    }
}

/// Roles that each player of a party offers who wants none: those that its attribute names, or all.
pub fn default_offered_roles(ruleset: &Ruleset, attribute_values: &AttributeValues) -> Box<[u16]> {
    let Some(teams) = &ruleset.teams else { return Box::default() };
    let named_roles = match teams.offered_roles_attribute.and_then(|attribute| attribute_values.get(attribute)) {
        Some(AttributeValue::StringList(named_roles)) => Some(&**named_roles),
        _ => None,
    };
    team::role_indexes_offered_by_party(teams, named_roles).into()
}
