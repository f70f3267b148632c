//! Values of parties, as rules see them: one function of its claims, the origins that the ruleset trusts, and what the server keeps
//! about its players. Searches, advertisements, reservations, game servers and queues use it.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::clock::Clock;
use crate::domain::attribute_values::{self, AttributeValues};
use crate::domain::id::RatingKey;
use crate::domain::player_facts::{self, PlayerFacts};
use crate::domain::queue::ticket::{PlayerRating, Ticket};
use crate::domain::ruleset::Ruleset;
use crate::domain::session::Session;
use crate::engine::ratings::{RatingCache, digest_key};

/// Reads the attribute values and ratings of parties.
#[derive(Clone)]
pub(crate) struct PartyValues {
    ratings: Arc<Mutex<RatingCache>>,
    clock: Arc<dyn Clock>,
}

impl PartyValues {
    pub(crate) fn new(ratings: Arc<Mutex<RatingCache>>, clock: Arc<dyn Clock>) -> Self {
        Self { ratings, clock }
    }

    /// Attribute values of a party under `ruleset`.
    pub(crate) fn attribute_values(&self, ruleset: &Ruleset, session: &Session) -> AttributeValues {
        if !player_facts::are_used_by(ruleset) || session.players.is_empty() {
            return AttributeValues::from_session(ruleset, session);
        }
        AttributeValues::of_party(ruleset, session, self.facts(ruleset, session).as_deref())
    }

    /// Ratings of the players of a session, in their order, as passes use them. 0 for a player of whom none is known.
    pub(crate) fn player_ratings(&self, ruleset: &Ruleset, session: &Session) -> Vec<PlayerRating> {
        let facts = self.facts(ruleset, session);
        let ratings = player_facts::session_ratings(ruleset, session, facts.as_deref());
        ratings.map(Option::unwrap_or_default).collect()
    }

    /// Ratings of the players of a session, in their order; `None` unless all are known.
    pub(crate) fn known_player_ratings(&self, ruleset: &Ruleset, session: &Session) -> Option<Box<[f64]>> {
        let facts = self.facts(ruleset, session);
        let ratings = player_facts::session_ratings(ruleset, session, facts.as_deref());
        ratings.map(|rating| Some(rating?.rating)).collect()
    }

    /// Pool and scale of a ruleset's ratings, as tickets are stored with.
    pub(crate) fn rating_digest_key(&self, ruleset: &Ruleset) -> Option<RatingKey> {
        self.ratings.lock().rating_of(ruleset).and_then(digest_key)
    }

    /// Session with the values that the server counts as attributes, to be stored as part of a ticket.
    pub(crate) fn with_kept_attributes(&self, ruleset: &Ruleset, mut session: Session) -> Session {
        if player_facts::are_used_by(ruleset) {
            let facts = self.facts(ruleset, &session);
            for (name, value) in attribute_values::kept_attributes(ruleset, &session, facts.as_deref()) {
                match session.attributes.binary_search_by(|(known, _)| known.cmp(&name)) {
                    Ok(position) => session.attributes[position].1 = value,
                    Err(position) => session.attributes.insert(position, (name, value)),
                }
            }
        }
        session
    }

    /// Ticket with ratings on the scale of `ruleset`, whose digest key is given. On the same scale it keeps those of its
    /// entry.
    pub(crate) fn on_scale(
        &self,
        rating_digest_key: Option<RatingKey>,
        ruleset: &Ruleset,
        ticket: Arc<Ticket>,
    ) -> Arc<Ticket> {
        if ticket.rating_digest_key == rating_digest_key {
            return ticket;
        }
        let player_ratings = self.player_ratings(ruleset, &ticket.session);
        let session = self.with_kept_attributes(ruleset, ticket.session.clone());
        Arc::new(Ticket { player_ratings, rating_digest_key, session, ..(*ticket).clone() })
    }

    /// Facts that the server keeps about the players of a session, in their order; `None` without a rating system.
    fn facts(&self, ruleset: &Ruleset, session: &Session) -> Option<Vec<PlayerFacts>> {
        ruleset.rating.as_ref()?;
        let now = self.clock.now();
        let ratings = self.ratings.lock();
        let rating = ratings.rating_of(ruleset)?;
        Some(session.players.iter().map(|player| ratings.player_facts(&rating, player.user, now)).collect())
    }
}

impl fmt::Debug for PartyValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartyValues").finish_non_exhaustive()
    }
}
