//! Which rows a batch of changes to the queues can touch: what a store has to read before it decides.

use std::collections::BTreeSet;

use crate::domain::id::{MatchId, TicketId, UserKey};
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
}

impl Touched {
    pub(in crate::store) fn by(batch: &[QueueWrite]) -> Self {
        let mut touched = Self::default();
        for write in batch {
            match write {
                QueueWrite::Enter { ticket, .. } => {
                    touched.tickets.insert(ticket.id);
                    let users = ticket.session.users();
                    touched.users.extend(&users);
                    touched.entering.extend(users.into_iter().map(|user| (user, ticket.alone)));
                }
                QueueWrite::Beat { id, .. } | QueueWrite::End { id, .. } => {
                    touched.tickets.insert(*id);
                }
                QueueWrite::Propose { proposed, .. } => {
                    touched.tickets.extend(proposed.members.iter().map(|member| member.ticket));
                    touched.matches.insert(proposed.id);
                    touched.users.extend(users_of(proposed));
                }
                QueueWrite::Move { next, fates, elsewhere, punished, .. } => {
                    touched.tickets.extend(fates.iter().map(|(id, ..)| *id));
                    touched.tickets.extend(elsewhere);
                    touched.matches.insert(next.id);
                    touched.users.extend(punished);
                    touched.punished.extend(punished);
                }
                QueueWrite::Rate { .. } => {}
            }
        }
        touched
    }
}
