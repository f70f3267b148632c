//! Reads of ratings, histories, leaderboards and predictions, and the callers who may make them.
//!
//! A player reads its own ratings and those of users whom it has played with, as far as this server knows the match. A game
//! server reads those of users whose match it hosts or whose ticket it entered. Operators read all, and so does a caller without
//! identity: such a server is for development. The refusal does not depend on whether the user exists.

use std::collections::BTreeSet;

use crate::auth::public_user_keys::PublicUserKeySecret;
use crate::domain::id::{SetId, UserKey};
use crate::domain::lifecycle::Assignment;
use crate::domain::match_result::RatingHistoryEntry;
use crate::domain::ruleset::rating::LeaderboardAccess;
use crate::domain::ruleset::rating::scale::KeyedRatingSpec;
use crate::engine::command::Caller;
use crate::engine::error::{EngineError, field_error};
use crate::engine::queues::queue_engine::QueueEngine;
use crate::engine::queues::queue_engine::match_results::log_and_return_unavailable;
use crate::engine::queues::ticket_match_cache::TicketMatchCache;
use crate::engine::ratings::command::{LeaderboardPage, LeaderboardQuery, LeaderboardRange, RatingView};

/// Use of ratings that a caller asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RatingPermission {
    /// Read the ratings.
    Read,
    /// Predict a match, for which a player may also name the players of its own tickets.
    Predict,
}

impl QueueEngine {
    /// Keys by which answers name users.
    pub fn public_user_key_secret(&self) -> &PublicUserKeySecret {
        &self.shared.common.public_user_keys
    }

    /// Ratings of users in a set's pool, on its scale.
    pub async fn user_ratings(
        &self,
        caller: &Caller,
        set_id: SetId,
        users: &[UserKey],
    ) -> Result<Vec<RatingView>, EngineError> {
        let rating = self.rating_spec_of_set(set_id)?;
        self.check_readable(caller, set_id, users, RatingPermission::Read).await?;
        let now = self.shared.common.clock.now();
        let mut ratings = self.shared.ratings.lock();
        Ok(users.iter().map(|user| ratings.rating_view(&rating, *user, now)).collect())
    }

    /// Page of the leaderboard of a set's pool and scale.
    pub async fn leaderboard_page(
        &self,
        caller: &Caller,
        query: LeaderboardQuery,
    ) -> Result<LeaderboardPage, EngineError> {
        let rating = self.rating_spec_of_set(query.set_id)?;
        if !reads_all(caller) && rating.spec.leaderboard != LeaderboardAccess::Public {
            return Err(EngineError::LeaderboardNotPublic(query.set_id));
        }
        // Around a user, a page tells which key is that user's.
        if let LeaderboardRange::AroundUser(user, _) = query.range {
            self.check_readable(caller, query.set_id, &[user], RatingPermission::Read).await?;
        }
        Ok(self.shared.ratings.lock().leaderboard_page(&rating, query))
    }

    /// Win probability of each side, in a match that starts now.
    pub async fn predict_win_probabilities(
        &self,
        caller: &Caller,
        set_id: SetId,
        sides: &[Vec<UserKey>],
    ) -> Result<Vec<f64>, EngineError> {
        let rating = self.rating_spec_of_set(set_id)?;
        self.check_readable(caller, set_id, &sides.concat(), RatingPermission::Predict).await?;
        let now = self.shared.common.clock.now();
        let skills = self.shared.ratings.lock().skills_of_sides(&rating, sides, now);
        rating.spec.win_probabilities(&skills).map_err(|error| field_error("sides", error.to_string()))
    }

    /// Latest changes of a user's rating in a set's pool, on its scale, latest first.
    pub async fn rating_history(
        &self,
        caller: &Caller,
        set_id: SetId,
        user: UserKey,
    ) -> Result<Vec<RatingHistoryEntry>, EngineError> {
        let rating = self.rating_spec_of_set(set_id)?;
        self.check_readable(caller, set_id, &[user], RatingPermission::Read).await?;
        self.shared
            .common
            .store
            .read_rating_changes(user, rating.key)
            .await
            .map_err(|error| log_and_return_unavailable(&error))
    }

    /// Rating system of a set's current ruleset, and its ratings.
    pub(super) fn rating_spec_of_set(&self, set_id: SetId) -> Result<KeyedRatingSpec, EngineError> {
        let ruleset = self.shared.common.current_or_cached_ruleset(set_id, None)?;
        self.shared.ratings.lock().keyed_spec_of_ruleset(&ruleset).ok_or(EngineError::NoRatingSystem(set_id))
    }

    /// Fails unless the caller may use the ratings of all `users`. With replicas, waits for a match that another server has
    /// just started.
    async fn check_readable(
        &self,
        caller: &Caller,
        set_id: SetId,
        users: &[UserKey],
        rating_use: RatingPermission,
    ) -> Result<(), EngineError> {
        let Some(subject) = caller.subject.filter(|_| !reads_all(caller)) else { return Ok(()) };
        let readable = self.shared.wait_for_cached(|cache| {
            let is_readable = match caller.user {
                Some(own_user) => may_player_use_ratings(cache, own_user, set_id, users, rating_use),
                None => users.iter().all(|user| self.is_user_of_game_server(cache, subject, *user)),
            };
            is_readable.then_some(())
        });
        readable.await.ok_or(EngineError::UserNotReadable)
    }

    /// Whether a game server has entered a ticket of the user that has not ended, or hosts the user's match.
    fn is_user_of_game_server(&self, cache: &TicketMatchCache, subject: UserKey, user: UserKey) -> bool {
        if cache.live_tickets_of(user).any(|stored| stored.ticket.subject == Some(subject)) {
            return true;
        }
        let running = cache.live_match_of([user]).and_then(|id| cache.match_by_id(id));
        running.is_some_and(|found| match found.stage.assignment_in_play() {
            Some(Assignment::GameServer { advertisement, .. }) => {
                self.shared.adverts.publisher_of(*advertisement, found.set_id) == Some(subject)
            }
            Some(Assignment::PeerHost { .. } | Assignment::Unhosted) | None => false,
        })
    }
}

/// Whether a caller reads the ratings of all users.
fn reads_all(caller: &Caller) -> bool {
    caller.may_read_all || caller.subject.is_none()
}

/// Whether a player may use the ratings of all `users`: its own, those of users whom it has played with in the set, and for
/// a prediction those of its own parties.
fn may_player_use_ratings(
    cache: &TicketMatchCache,
    own_user: UserKey,
    set_id: SetId,
    users: &[UserKey],
    rating_use: RatingPermission,
) -> bool {
    let mut others: BTreeSet<UserKey> = users.iter().copied().filter(|user| *user != own_user).collect();
    if rating_use == RatingPermission::Predict {
        for stored in cache.live_tickets_of(own_user) {
            others.retain(|user| stored.ticket.session.players.iter().all(|player| player.user != *user));
        }
    }
    for log in cache.past_match_logs_of_set(set_id) {
        if others.is_empty() {
            return true;
        }
        let log = log.lock();
        others.retain(|user| !log.have_met(own_user, *user));
    }
    others.is_empty()
}
