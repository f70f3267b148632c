//! Which rows a batch of changes to the queues can touch: what a store has to read before it decides.

use std::collections::BTreeSet;

use crate::domain::id::{MatchId, SetId, TicketId, UserKey};
use crate::domain::ruleset::rating::RatingSpec;
use crate::store::queues::QueueWrite;
use crate::store::queues::queue_rows::match_users;

/// The ids that a batch names, each once.
#[derive(Default)]
pub(in crate::store) struct TouchedQueueKeys {
    pub(in crate::store) tickets: BTreeSet<TicketId>,
    /// Those that are proposed, and those that move on: the users in them are asked for too.
    pub(in crate::store) matches: BTreeSet<MatchId>,
    /// Whose tickets, match and penalties are asked about.
    pub(in crate::store) users: BTreeSet<UserKey>,
    /// Who enters, and whether alone: what several servers must not do at once for one user.
    pub(in crate::store) entering_users: BTreeSet<(UserKey, bool)>,
    /// Those whose penalties may change.
    pub(in crate::store) penalized_users: BTreeSet<UserKey>,
    /// The ratings that may change.
    pub(in crate::store) ratings: BTreeSet<(UserKey, SetId)>,
    /// Sets of which it matters how far they have been played.
    pub(in crate::store) period_sets: BTreeSet<SetId>,
    /// Those whose result is asked for.
    pub(in crate::store) results: BTreeSet<MatchId>,
    /// Scores that may be there already.
    pub(in crate::store) feedback: BTreeSet<(MatchId, UserKey)>,
}

impl TouchedQueueKeys {
    pub(in crate::store) fn of_batch(batch: &[QueueWrite]) -> Self {
        let mut touched = Self::default();
        for write in batch {
            touched.add_write(write);
        }
        touched
    }

    fn add_write(&mut self, write: &QueueWrite) {
        match write {
            QueueWrite::EnterQueue { ticket, .. } => {
                self.tickets.insert(ticket.id);
                let users = ticket.session.sorted_users();
                self.users.extend(&users);
                self.entering_users.extend(users.into_iter().map(|user| (user, ticket.exclusive)));
            }
            QueueWrite::Heartbeat { ticket_id: id, .. } | QueueWrite::EndTicket { ticket_id: id, .. } => {
                self.tickets.insert(*id);
            }
            QueueWrite::ProposeMatch { proposed, .. } => {
                self.tickets.extend(proposed.tickets.iter().map(|member| member.ticket_id));
                self.matches.insert(proposed.id);
                self.users.extend(match_users(proposed));
            }
            QueueWrite::TransitionMatch {
                updated_match: next,
                ticket_fates: fates,
                other_tickets: elsewhere,
                penalized_users: punished,
                ..
            } => {
                self.tickets.extend(fates.iter().map(|(id, ..)| *id));
                self.tickets.extend(elsewhere);
                self.matches.insert(next.id);
                self.users.extend(punished);
                self.penalized_users.extend(punished);
            }
            QueueWrite::ImportRatings { rows } => {
                self.ratings.extend(rows.iter().map(|row| (row.user, row.set_id)));
            }
            QueueWrite::RecordResult { report, end_transition: ends, rating_spec: spec, .. } => {
                self.period_sets.extend(spec.filter(RatingSpec::decays_by_active_periods).map(|_| report.set_id));
                self.matches.insert(report.match_id);
                self.results.insert(report.match_id);
                self.ratings.extend(report.users().map(|user| (user, report.set_id)));
                self.ratings.extend(report.left_early.iter().map(|user| (*user, report.set_id)));
                if let Some(ends) = ends {
                    self.add_write(ends);
                }
            }
            QueueWrite::RecordFeedback { match_id, set_id, user, .. } => {
                self.ratings.insert((*user, *set_id));
                self.feedback.insert((*match_id, *user));
            }
        }
    }
}
