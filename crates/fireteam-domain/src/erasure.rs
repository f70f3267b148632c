//! Erasure of a user from the records of others: a match, its result and its tickets name a random key instead.
//!
//! The key is fresh for each match and carries a mark, so that no ratings, penalties or leaderboard entries arise for it.

use crate::advertisement::Advertisement;
use crate::attribute::ValueOrigin;
use crate::id::{RatingKey, UserKey};
use crate::lifecycle::{Assignment, KeptSkillOfErasedUser, Match, MatchStage};
use crate::match_result::MatchResult;
use crate::queue::ticket::Ticket;
use crate::rating::Skill;
use crate::session::Session;

/// User to erase, and the key that takes the user's place.
#[derive(Clone, Copy, Debug)]
pub struct UserKeyReplacement {
    /// User.
    pub user: UserKey,
    /// Key that takes the user's place.
    pub key: UserKey,
}

impl UserKeyReplacement {
    /// Replaces the user in a list. Returns whether it was there.
    fn replace_in<'k>(&self, keys: impl IntoIterator<Item = &'k mut UserKey>) -> bool {
        let mut is_changed = false;
        for key in keys.into_iter().filter(|key| **key == self.user) {
            *key = self.key;
            is_changed = true;
        }
        is_changed
    }

    /// Replaces the user in a sorted list. Returns whether it was there.
    fn replace_in_sorted(&self, keys: &mut [UserKey]) -> bool {
        let is_changed = self.replace_in(keys.iter_mut());
        keys.sort_unstable();
        is_changed
    }

    /// Replaces the user in a session. The user's own attributes and roles go.
    fn replace_in_players(&self, session: &mut Session) {
        for player in session.players.iter_mut().filter(|player| player.user == self.user) {
            (player.user, player.client_key, player.details) = (self.key, self.key, None);
        }
    }

    /// Next version of a match without the user; `None` if the user is not in it. `skill` is kept for its result.
    pub fn erase_from_match(&self, found: &Match, skill: Option<(RatingKey, Skill)>) -> Option<Match> {
        let mut erased = found.clone();
        let mut clients = Vec::new();
        for player in erased.tickets.iter_mut().flat_map(|ticket| &mut ticket.players) {
            if player.user == self.user {
                clients.push(player.client);
                (player.user, player.client) = (self.key, self.key);
            }
        }
        let reports = erased.side_reports.reports.iter_mut();
        let is_reporter = reports.fold(false, |is_changed, report| {
            let disconnected = self.replace_in_sorted(&mut report.claim.disconnected);
            self.replace_in([&mut report.user]) | disconnected | is_changed
        });
        if clients.is_empty() && !is_reporter {
            return None;
        }
        let assignment = match &mut erased.stage {
            MatchStage::Confirming { assignment, .. } | MatchStage::Playing { assignment, .. } => Some(assignment),
            MatchStage::Ended { assignment, .. } => assignment.as_mut(),
            MatchStage::ReadyCheck { .. } | MatchStage::Placing { .. } => None,
        };
        if let Some(Assignment::PeerHost { host }) = assignment
            && clients.contains(host)
        {
            *host = self.key;
        }
        erased.kept_skills_of_erased_users.extend(skill.map(|(rating_key, skill)| KeptSkillOfErasedUser {
            user: self.key,
            rating_key,
            skill,
        }));
        erased.version += 1;
        Some(erased)
    }

    /// Ticket without the user; `None` if it does not name the user. Location, latencies and attributes go if no other user is
    /// in it.
    pub fn erase_from_ticket(&self, ticket: &Ticket) -> Option<Ticket> {
        let is_blocked = ticket.blocked_users.contains(&self.user);
        let is_player = ticket.session.players.iter().any(|player| player.user == self.user);
        if !is_blocked && !is_player {
            return None;
        }
        let mut erased = ticket.clone();
        erased.blocked_users.retain(|user| *user != self.user);
        // The caller was one of the party's players, perhaps this one. Nothing that goes on needs to know which.
        if is_player && ticket.session.value_origin == ValueOrigin::Client {
            erased.subject = ticket.subject.map(|_| self.key);
        }
        self.replace_in_players(&mut erased.session);
        self.replace_in_sorted(&mut erased.self_answering_users);
        if erased.session.players.iter().all(|player| player.user.is_erased()) {
            erased.session.locality = None;
            erased.session.attributes.clear();
            erased.session.region_latencies = Box::default();
            erased.exact_round_trips_ms = None;
            erased.blocked_users.clear();
        }
        Some(erased)
    }

    /// Advertisement without the user; `None` if none of its players is the user. Its publisher is a caller, not a user.
    pub fn erase_from_advertisement(&self, advertisement: &Advertisement) -> Option<Advertisement> {
        if advertisement.session.players.iter().all(|player| player.user != self.user) {
            return None;
        }
        let mut erased = advertisement.clone();
        // The longest round trips of all players, also of this one.
        erased.session.set_published_beacon_vector(None);
        self.replace_in_players(&mut erased.session);
        Some(erased)
    }

    /// Result without the user; `None` if it does not name the user. The same report again still is the same.
    pub fn erase_from_result(&self, result: &MatchResult) -> Option<MatchResult> {
        let mut erased = result.clone();
        let report = &mut erased.report;
        let mut is_changed = self.replace_in(report.sides.iter_mut().flat_map(|side| &mut side.users));
        for list in [&mut report.left_early, &mut report.always_rated_leavers, &mut report.disputing_users] {
            is_changed |= self.replace_in_sorted(list);
        }
        is_changed |= self.replace_in(erased.rating_updates.iter_mut().map(|update| &mut update.user));
        if !is_changed {
            return None;
        }
        let durations = [None, result.report.duration_ms];
        let reported = durations.into_iter().find(|ms| result.report.digest(*ms) == result.report_digest);
        erased.report_digest = erased.report.digest(reported.flatten());
        Some(erased)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advertisement::AdvertisementKind;
    use crate::id::{AdvertisementId, RulesetHash, SetId, TicketId};
    use crate::locality::Locality;
    use crate::session::{Player, RegionLatency};
    use crate::time::UnixMs;

    fn party(users: &[&str], self_answering: &[&str]) -> Ticket {
        let user_key = |name: &&str| UserKey::from_name(name);
        let player = |name| Player::from_user(user_key(name));
        let mut self_answering: Vec<UserKey> = self_answering.iter().map(user_key).collect();
        self_answering.sort_unstable();
        Ticket {
            id: TicketId::from_bytes([1; 16]),
            set_id: SetId(1),
            subject: Some(user_key(&users[0])),
            entered_at: UnixMs(1),
            session: Session {
                party_sizes: [users.len() as u8].into(),
                players: users.iter().map(player).collect(),
                locality: Locality::from_degrees(1.5, 1.5),
                region_latencies: vec![RegionLatency { region: "eu".into(), round_trip_ms: 50.0 }].into(),
                ..Session::default()
            },
            exact_round_trips_ms: Some([61.0].into()),
            player_ratings: Vec::new(),
            rating_digest_key: None,
            blocked_users: Vec::new(),
            excludes_other_tickets: true,
            self_answering_users: self_answering,
        }
    }

    #[test]
    fn erasure_replaces_the_user_in_every_list_of_a_ticket() {
        let ticket = party(&["ann", "bob", "cid"], &["bob", "cid"]);
        let erased = UserKey::of_erased(&[7; 16], &[1; 16]);
        let after =
            UserKeyReplacement { user: UserKey::from_name("bob"), key: erased }.erase_from_ticket(&ticket).unwrap();
        assert!(!format!("{after:?}").contains(&format!("{:?}", UserKey::from_name("bob"))), "{after:?}");
        assert!(after.self_answering_users.is_sorted() && after.self_answering_users.contains(&erased), "{after:?}");
        assert!(after.exact_round_trips_ms.is_some() && after.session.locality.is_some(), "others are still in it");
        assert_eq!(
            UserKeyReplacement { user: UserKey::from_name("dan"), key: erased }.erase_from_ticket(&ticket),
            None
        );
    }

    #[test]
    fn erasure_replaces_the_user_in_an_advertisement() {
        let session = party(&["ann", "bob"], &[]).session;
        let advertisement = Advertisement {
            id: AdvertisementId::from_bytes([1; 16]),
            set_id: SetId(1),
            kind: AdvertisementKind::Session,
            publisher: Some(UserKey::from_name("a caller")),
            advertised_since: UnixMs(1),
            ruleset_hash: RulesetHash(1),
            session,
            ttl_ms: None,
            allowed_ranges: Box::default(),
            connect_data: Box::default(),
            probe: None,
        };
        let key = UserKey::of_erased(&[7; 16], &[1; 16]);
        let erase = |name: &str| {
            let erased =
                UserKeyReplacement { user: UserKey::from_name(name), key }.erase_from_advertisement(&advertisement);
            erased.map(|erased| {
                let players = &erased.session.players;
                (erased.publisher == advertisement.publisher, players[0].user == key, players[1].client_key == key)
            })
        };
        assert_eq!(erase("ann"), Some((true, true, false)));
        assert_eq!(erase("bob"), Some((true, false, true)));
        assert_eq!(erase("cid"), None);
    }

    #[test]
    fn erasure_of_the_last_player_removes_places_and_round_trips() {
        let ticket = party(&["ann"], &[]);
        let erased = UserKey::of_erased(&[7; 16], &[1; 16]);
        let after =
            UserKeyReplacement { user: UserKey::from_name("ann"), key: erased }.erase_from_ticket(&ticket).unwrap();
        let places = (after.exact_round_trips_ms, after.session.locality, after.session.region_latencies.len());
        assert_eq!(places, (None, None, 0));
    }
}
