//! Avoidance of a party in searched sessions, now: users in block lists of either side, and users whom it recently met. Searches,
//! measured rankings, reservations and explanations use it.

use parking_lot::RwLockReadGuard;

use crate::domain::id::{SiloId, UserKey};
use crate::domain::queue::avoidance::{self, AvoidanceSide, PastMatches};
use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::queue::{AvoidTarget, AvoidanceRule};
use crate::domain::time::UnixMs;
use crate::engine::block_lists::BlockLists;
use crate::engine::common::Common;
use crate::store::queues::QueueKey;

/// Avoidance of one party by the rules of one ruleset. Holds the lock of the block lists: create it before the advertisements
/// of a set are locked.
pub(crate) struct PartyAvoidance<'a> {
    rules: &'a [AvoidanceRule],
    /// Users of the party, sorted.
    users: &'a [UserKey],
    /// `None` if no rule is about blocked users.
    block_lists: Option<RwLockReadGuard<'a, BlockLists>>,
    /// Users whom the party has blocked, sorted.
    blocked: Vec<UserKey>,
    /// Recent matches of the party's users.
    past_matches: PastMatches,
    now: UnixMs,
}

impl<'a> PartyAvoidance<'a> {
    /// Avoidance of the party of `users`, sorted, in sessions of a silo; `None` if the ruleset has no such rules.
    pub(crate) fn new(
        common: &'a Common,
        ruleset: &'a Ruleset,
        silo: SiloId,
        users: &'a [UserKey],
        now: UnixMs,
    ) -> Option<Self> {
        let rules = &*ruleset.avoid;
        if rules.is_empty() {
            return None;
        }
        let uses_meetings = rules.iter().any(|rule| rule.whom != AvoidTarget::Blocked);
        let log = uses_meetings.then(|| common.past_matches.get(QueueKey { set_id: ruleset.set_id, silo })).flatten();
        let past_matches = log.map(|log| log.lock().recent_meetings_of(users, rules, now)).unwrap_or_default();
        let uses_blocks = rules.iter().any(|rule| rule.whom == AvoidTarget::Blocked);
        let block_lists = uses_blocks.then(|| common.block_lists.read());
        let blocked = block_lists.as_ref().map_or_else(Vec::new, |lists| lists.users_blocked_by(users.iter().copied()));
        Some(Self { rules, users, block_lists, blocked, past_matches, now })
    }

    /// Whether a session with `players`, sorted, does not exist for the party; otherwise the cost that it adds to the score.
    pub(crate) fn verdict(&self, players: &[UserKey]) -> SessionAvoidanceVerdict {
        let blocked =
            self.block_lists.as_ref().map_or_else(Vec::new, |lists| lists.users_blocked_by(players.iter().copied()));
        let party = AvoidanceSide { users: self.users, blocked_users: &self.blocked };
        let session = AvoidanceSide { users: players, blocked_users: &blocked };
        if avoidance::meeting_restriction_between(self.rules, &self.past_matches, party, session, self.now).never_meet {
            return SessionAvoidanceVerdict::Hidden;
        }
        let cost = |rule| avoidance::avoidance_rule_cost(rule, &self.past_matches, party, session, self.now);
        SessionAvoidanceVerdict::Cost(self.rules.iter().map(cost).sum())
    }

    /// Users in whose sessions a rule may apply. A user can occur several times.
    pub(crate) fn avoided_users(&self) -> impl Iterator<Item = UserKey> + '_ {
        let lists = self.block_lists.iter().map(|lists| &**lists);
        let kept_apart = lists.flat_map(|lists| self.users.iter().flat_map(|user| lists.kept_apart_from(*user)));
        kept_apart.chain(self.past_matches.all_met_users())
    }

    /// Number of users that [`avoided_users`](Self::avoided_users) returns, or a little more.
    pub(crate) fn avoided_user_count_bound(&self) -> usize {
        let lists = self.block_lists.iter();
        let kept_apart = lists.flat_map(|lists| self.users.iter().map(|user| lists.kept_apart_count(*user)));
        kept_apart.sum::<usize>() + self.past_matches.all_met_users().count()
    }
}

/// Verdict of the avoidance rules on a session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum SessionAvoidanceVerdict {
    /// The session does not exist for the party.
    Hidden,
    /// The session's score is higher by this cost, or the same for 0.
    Cost(f64),
}
