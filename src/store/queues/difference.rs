//! What to write so that a store's rows say what the changes came to: by kind of row, each once, in the order of names.

use std::sync::Arc;

use crate::domain::id::{MatchId, SetId, UserKey};
use crate::domain::life::Match;
use crate::domain::life::penalty::Penalty;
use crate::domain::result::{MatchResult, RatingChange};
use crate::domain::time::UnixMs;
use crate::store::queues::picture::{Picture, Spot, queue_of};
use crate::store::queues::{QueueKey, RatingRow, StoredTicket};

/// The difference between what was found and what the changes came to. What goes must go before what comes: a user may
/// leave one ticket or match and be in another.
#[derive(Debug, Default)]
pub(in crate::store) struct Difference<'a> {
    pub(in crate::store) made_tickets: Vec<&'a StoredTicket>,
    /// State, expiry and edition: nothing else about a ticket ever changes.
    pub(in crate::store) changed_tickets: Vec<&'a StoredTicket>,
    pub(in crate::store) made_matches: Vec<&'a Arc<Match>>,
    pub(in crate::store) changed_matches: Vec<&'a Arc<Match>>,
    pub(in crate::store) removed_spots: Vec<(UserKey, QueueKey)>,
    pub(in crate::store) made_spots: Vec<(UserKey, Spot)>,
    pub(in crate::store) removed_players: Vec<UserKey>,
    pub(in crate::store) made_players: Vec<(UserKey, MatchId)>,
    pub(in crate::store) made_penalties: Vec<((UserKey, SetId), Penalty)>,
    pub(in crate::store) changed_penalties: Vec<((UserKey, SetId), Penalty)>,
    pub(in crate::store) made_ratings: Vec<&'a RatingRow>,
    pub(in crate::store) changed_ratings: Vec<&'a RatingRow>,
    pub(in crate::store) made_results: Vec<&'a MatchResult>,
    /// Changes of ratings to remember, each in the place of one that was there before.
    pub(in crate::store) rating_changes: Vec<&'a RatingChange>,
    pub(in crate::store) made_scores: Vec<(MatchId, UserKey, u8, UnixMs)>,
}

impl<'a> Difference<'a> {
    /// `before` is what was found, `after` a copy of it that the changes were made in. Remembered changes of
    /// ratings are never found, only set.
    pub(in crate::store) fn between(before: &Picture, after: &'a Picture) -> Self {
        let mut difference = Self::default();
        difference.tickets(before, after);
        for (id, play) in &after.matches {
            match before.matches.get(id) {
                None => difference.made_matches.push(play),
                Some(known) if !Arc::ptr_eq(known, play) => difference.changed_matches.push(play),
                Some(_) => {}
            }
        }
        for (user, in_match) in &before.playing {
            if after.playing.get(user) != Some(in_match) {
                difference.removed_players.push(*user);
            }
        }
        for (user, in_match) in &after.playing {
            if before.playing.get(user) != Some(in_match) {
                difference.made_players.push((*user, *in_match));
            }
        }
        for (key, penalty) in &after.penalties {
            match before.penalties.get(key) {
                None => difference.made_penalties.push((*key, *penalty)),
                Some(known) if known != penalty => difference.changed_penalties.push((*key, *penalty)),
                Some(_) => {}
            }
        }
        for (key, row) in &after.ratings {
            match before.ratings.get(key) {
                None => difference.made_ratings.push(row),
                Some(known) if known != row => difference.changed_ratings.push(row),
                Some(_) => {}
            }
        }
        let made = after.results.iter().filter(|(id, _)| !before.results.contains_key(*id));
        difference.made_results.extend(made.map(|(_, result)| &**result));
        difference.rating_changes.extend(after.changes.values());
        let made = after.scores.iter().filter(|(key, _)| !before.scores.contains_key(*key));
        difference.made_scores.extend(made.map(|((id, user), (score, at))| (*id, *user, *score, *at)));
        difference.sort();
        difference
    }

    fn tickets(&mut self, before: &Picture, after: &'a Picture) {
        for (id, stored) in &after.tickets {
            let (queue, known) = (queue_of(&stored.ticket), before.tickets.get(id));
            match known {
                None => self.made_tickets.push(stored),
                Some(known) if known.edition != stored.edition => self.changed_tickets.push(stored),
                Some(_) => {}
            }
            match (known.is_some_and(StoredTicket::is_open), stored.is_open()) {
                (true, false) => {
                    let users = stored.ticket.session.users();
                    self.removed_spots.extend(users.into_iter().map(|user| (user, queue)));
                }
                (false, true) => {
                    let spot = Spot { queue, ticket: *id, alone: stored.ticket.alone };
                    let users = stored.ticket.session.users();
                    self.made_spots.extend(users.into_iter().map(|user| (user, spot)));
                }
                _ => {}
            }
        }
    }

    /// Servers that write the same rows write them in the same order, and so wait for each other rather than each other's.
    fn sort(&mut self) {
        self.made_tickets.sort_unstable_by_key(|it| it.ticket.id);
        self.changed_tickets.sort_unstable_by_key(|it| it.ticket.id);
        self.made_matches.sort_unstable_by_key(|it| it.id);
        self.changed_matches.sort_unstable_by_key(|it| it.id);
        self.made_results.sort_unstable_by_key(|it| it.report.match_id);
        self.removed_spots.sort_unstable();
        self.made_spots.sort_unstable_by_key(|(user, spot)| (*user, spot.queue));
    }
}
