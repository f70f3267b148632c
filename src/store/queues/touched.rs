//! Which rows a batch of changes to the queues can touch: what a store has to read before it decides.

use std::collections::BTreeSet;

use crate::domain::id::{MatchId, SetId, TicketId, UserKey};
use crate::domain::ruleset::rating::RatingSpec;
use crate::store::queues::QueueWrite;
use crate::store::queues::picture::users_of;

/// The ids that a batch names, each once.
#[derive(Default)]
pub(in crate::store) struct Touched {
    pub(in crate::store) tickets: BTreeSet<TicketId>,
    /// Those that are proposed, and those that move on: the users in them are asked for too.
    pub(in crate::store) matches: BTreeSet<MatchId>,
    /// Whose tickets, match and penalties are asked about.
    pub(in crate::store) users: BTreeSet<UserKey>,
    /// Who enters, and whether alone: what several servers must not do at once for one user.
    pub(in crate::store) entering: BTreeSet<(UserKey, bool)>,
    /// Those whose penalties may change.
    pub(in crate::store) punished: BTreeSet<UserKey>,
    /// The ratings that may change.
    pub(in crate::store) ratings: BTreeSet<(UserKey, SetId)>,
    /// Sets of which it matters how far they have been played.
    pub(in crate::store) played: BTreeSet<SetId>,
    /// Those whose result is asked for.
    pub(in crate::store) results: BTreeSet<MatchId>,
    /// Scores that may be there already.
    pub(in crate::store) scores: BTreeSet<(MatchId, UserKey)>,
}

impl Touched {
    pub(in crate::store) fn by(batch: &[QueueWrite]) -> Self {
        let mut touched = Self::default();
        for write in batch {
            touched.add(write);
        }
        touched
    }

    fn add(&mut self, write: &QueueWrite) {
        match write {
            QueueWrite::Enter { ticket, .. } => {
                self.tickets.insert(ticket.id);
                let users = ticket.session.users();
                self.users.extend(&users);
                self.entering.extend(users.into_iter().map(|user| (user, ticket.alone)));
            }
            QueueWrite::Beat { id, .. } | QueueWrite::End { id, .. } => {
                self.tickets.insert(*id);
            }
            QueueWrite::Propose { proposed, .. } => {
                self.tickets.extend(proposed.members.iter().map(|member| member.ticket));
                self.matches.insert(proposed.id);
                self.users.extend(users_of(proposed));
            }
            QueueWrite::Move { next, fates, elsewhere, punished, .. } => {
                self.tickets.extend(fates.iter().map(|(id, ..)| *id));
                self.tickets.extend(elsewhere);
                self.matches.insert(next.id);
                self.users.extend(punished);
                self.punished.extend(punished);
            }
            QueueWrite::Rate { rows } => {
                self.ratings.extend(rows.iter().map(|row| (row.user, row.set_id)));
            }
            QueueWrite::Conclude { report, ends, spec, .. } => {
                self.played.extend(spec.filter(RatingSpec::counts_played).map(|_| report.set_id));
                self.matches.insert(report.match_id);
                self.results.insert(report.match_id);
                self.ratings.extend(report.users().map(|user| (user, report.set_id)));
                self.ratings.extend(report.disconnected.iter().map(|user| (*user, report.set_id)));
                if let Some(ends) = ends {
                    self.add(ends);
                }
            }
            QueueWrite::Score { match_id, set_id, user, .. } => {
                self.ratings.insert((*user, *set_id));
                self.scores.insert((*match_id, *user));
            }
        }
    }
}
