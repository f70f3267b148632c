//! A party that waits.

use crate::attribute::{AttributeSource, ValueOrigin};
use crate::id::{SetId, TicketId, UserKey};
use crate::ruleset::Ruleset;
use crate::session::Session;
use crate::time::UnixMs;

/// A party that waits in the queue of a set, for the players of its silo.
#[derive(Clone, Debug, PartialEq)]
pub struct Ticket {
    /// Its name.
    pub id: TicketId,
    /// The set whose queue it is in.
    pub set_id: SetId,
    /// The authenticated caller who entered it; none when anonymous.
    pub subject: Option<UserKey>,
    /// Since when its one clock runs: limits, range and bonus all go by it, and it keeps running when the ticket comes back
    /// from a match that failed (B-33).
    pub entered_at: UnixMs,
    /// The party: one entry in `party_sizes`, every player named.
    pub session: Session,
    /// The players' ratings when they entered, in the order of `session.players`; they keep them until the ticket ends. Where the
    /// set has a rating system these, and not what is said in `session`, are the attribute `skill`.
    pub player_ratings: Vec<PlayerRating>,
    /// Users whom any of the players has blocked, sorted, each once; at most `limit::BLOCKED_MAX`.
    pub blocked_users: Vec<UserKey>,
    /// May wait beside no other ticket of any of its users.
    pub exclusive: bool,
}

/// How good a player is, on the scale of the set's rating system (B-32).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PlayerRating {
    /// Elo's and Glicko's rating, TrueSkill's and OpenSkill's mu.
    pub rating: f64,
    /// How uncertain it is: a standard deviation; 0 for systems without.
    pub deviation: f64,
}

impl PlayerRating {
    /// What a player waits with: what the set knows of them, where it rates anybody; else what `origin` says of their skill, where
    /// the ruleset believes it; else nothing, which is 0.
    pub fn at_queue_entry(
        ruleset: &Ruleset,
        known: Option<PlayerRating>,
        said: Option<f64>,
        origin: ValueOrigin,
    ) -> Self {
        let skill = ruleset.attributes.iter().find(|attribute| attribute.source == AttributeSource::Skill);
        let believed = skill.is_some_and(|attribute| attribute.trust.accepts(origin));
        let said = said.filter(|_| believed).map(|rating| PlayerRating { rating, deviation: 0.0 });
        known.or(said).unwrap_or_default()
    }
}

/// Why a ticket no longer waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TicketEndReason {
    /// Its party left.
    Left,
    /// Nobody kept it alive.
    Expired,
    /// It was in a match that began.
    Played,
    /// Another ticket of one of its users was in a match that began.
    MatchedElsewhere,
    /// One of its players declined.
    Declined,
    /// One of its players did not answer.
    NotAcceptedInTime,
    /// An operator, or a ruleset that no longer has a queue, ended it.
    Cancelled,
}
