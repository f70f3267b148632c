//! Values of parties as rules see them: one function of their claims, the origins that the ruleset trusts, and the standing of
//! their players. Searches, advertisements, reservations, game servers and queues use it.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::clock::Clock;
use crate::domain::attribute_values::AttributeValues;
use crate::domain::id::{RatingKey, UserKey};
use crate::domain::player_standing::{self, PlayerStanding};
use crate::domain::queue::entry::{EnteredSession, build_entered_session};
use crate::domain::queue::ticket::{PlayerRating, Ticket};
use crate::domain::ruleset::Ruleset;
use crate::domain::session::Session;
use crate::engine::ratings::{RatingCache, rating_key_unless_first_scale};

/// Reads the attribute values and ratings of parties.
#[derive(Clone)]
pub(crate) struct PartyValueReader {
    ratings: Arc<Mutex<RatingCache>>,
    clock: Arc<dyn Clock>,
}

impl PartyValueReader {
    pub(crate) fn new(ratings: Arc<Mutex<RatingCache>>, clock: Arc<dyn Clock>) -> Self {
        Self { ratings, clock }
    }

    /// Attribute values of a party under `ruleset`.
    pub(crate) fn attribute_values(&self, ruleset: &Ruleset, session: &Session) -> AttributeValues {
        if !player_standing::uses_standings(ruleset) || session.players.is_empty() {
            return AttributeValues::from_session_without_standings(ruleset, session);
        }
        AttributeValues::from_session_and_standings(
            ruleset,
            session,
            self.player_standings(ruleset, session).as_deref(),
        )
    }

    /// Attribute values of a waiting ticket under `ruleset`, with the limits that its pass gives it.
    pub(crate) fn ticket_attribute_values(&self, ruleset: &Ruleset, ticket: &Ticket) -> AttributeValues {
        let values = AttributeValues::from_ticket(ruleset, ticket);
        if ruleset.frustrated_player_limits.is_none() {
            return values;
        }
        let standings = self.player_standings(ruleset, &ticket.session).unwrap_or_default();
        values.with_frustration(ruleset, standings.iter().any(|player| player.is_frustrated))
    }

    /// Rating of each player of a session, in their order; `None` for a player of whom none is known.
    pub(crate) fn player_ratings(&self, ruleset: &Ruleset, session: &Session) -> Vec<Option<PlayerRating>> {
        let standings = self.player_standings(ruleset, session);
        player_standing::session_ratings(ruleset, session, standings.as_deref()).collect()
    }

    /// The server's rating of each user; `None` without a rating system.
    pub(crate) fn ratings_of_users(&self, ruleset: &Ruleset, users: &[UserKey]) -> Option<Vec<PlayerRating>> {
        let standings = self.player_standings_of(ruleset, users.iter().copied());
        Some(standings?.iter().map(|standing| standing.rating).collect())
    }

    /// Pool and scale of a ruleset's ratings, as tickets are stored with.
    pub(crate) fn rating_key_unless_first_scale(&self, ruleset: &Ruleset) -> Option<RatingKey> {
        self.ratings.lock().keyed_spec_of_ruleset(ruleset).and_then(rating_key_unless_first_scale)
    }

    /// Session of a party that enters a queue, with the ratings of its players.
    pub(crate) fn build_entered_session(&self, ruleset: &Ruleset, session: Session) -> EnteredSession {
        let standings = self.player_standings(ruleset, &session);
        build_entered_session(ruleset, session, standings.as_deref())
    }

    /// Ticket with ratings on the scale of `ruleset`, whose digest key is given. On the same scale it keeps those of its
    /// entry.
    pub(crate) fn ticket_on_scale(
        &self,
        rating_digest_key: Option<RatingKey>,
        ruleset: &Ruleset,
        ticket: Arc<Ticket>,
    ) -> Arc<Ticket> {
        if ticket.rating_digest_key == rating_digest_key {
            return ticket;
        }
        let EnteredSession { session, player_ratings } = self.build_entered_session(ruleset, ticket.session.clone());
        Arc::new(Ticket { player_ratings, rating_digest_key, session, ..(*ticket).clone() })
    }

    /// Standings of the players of a session, in their order; `None` without a rating system.
    fn player_standings(&self, ruleset: &Ruleset, session: &Session) -> Option<Vec<PlayerStanding>> {
        self.player_standings_of(ruleset, session.players.iter().map(|player| player.user))
    }

    fn player_standings_of(
        &self,
        ruleset: &Ruleset,
        users: impl Iterator<Item = UserKey>,
    ) -> Option<Vec<PlayerStanding>> {
        ruleset.rating.as_ref()?;
        let now = self.clock.now();
        let ratings = self.ratings.lock();
        let rating = ratings.keyed_spec_of_ruleset(ruleset)?;
        Some(users.map(|user| ratings.player_standing(ruleset, &rating, user, now)).collect())
    }
}

impl fmt::Debug for PartyValueReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartyValueReader").finish_non_exhaustive()
    }
}
