//! Counts of tickets and matches that have not ended, by set, for metrics. Each change of the cache changes them, so that a scrape
//! does not read all tickets.

use std::collections::BTreeMap;

use crate::domain::id::SetId;
use crate::domain::lifecycle::Match;
use crate::store::queues::{StoredTicket, TicketState};
use crate::telemetry::label::{MatchStageLabel, TicketStateLabel};
use crate::telemetry::metric::set_gauges::QueueCounts;

/// Counts of each set that has any.
#[derive(Debug, Default)]
pub(super) struct LiveCounts(BTreeMap<SetId, QueueCounts>);

impl LiveCounts {
    /// Counts of each set that has any.
    pub(super) fn by_set(&self) -> impl Iterator<Item = (SetId, QueueCounts)> + '_ {
        self.0.iter().map(|(set_id, counts)| (*set_id, *counts))
    }

    /// A ticket of the cache was added, replaced or removed.
    pub(super) fn replace_ticket(&mut self, previous: Option<&StoredTicket>, next: Option<&StoredTicket>) {
        for (stored, is_added) in [(previous, false), (next, true)] {
            let Some(stored) = stored else { continue };
            let state = match stored.state {
                TicketState::Waiting => TicketStateLabel::Waiting,
                TicketState::InMatch(_) => TicketStateLabel::InMatch,
                TicketState::Ended { .. } => continue,
            };
            let players = u64::from(stored.ticket.session.player_count());
            self.change(stored.ticket.set_id, |counts| {
                step(&mut counts.tickets[state as usize], 1, is_added);
                if state == TicketStateLabel::Waiting {
                    step(&mut counts.waiting_players, players, is_added);
                }
            });
        }
    }

    /// A match of the cache was added, replaced or removed.
    pub(super) fn replace_match(&mut self, previous: Option<&Match>, next: Option<&Match>) {
        for (match_, is_added) in [(previous, false), (next, true)] {
            let Some(match_) = match_ else { continue };
            let Some(stage) = MatchStageLabel::from_stage(&match_.stage) else { continue };
            self.change(match_.set_id, |counts| step(&mut counts.matches[stage as usize], 1, is_added));
        }
    }

    fn change(&mut self, set_id: SetId, change: impl FnOnce(&mut QueueCounts)) {
        let counts = self.0.entry(set_id).or_default();
        change(counts);
        if *counts == QueueCounts::default() {
            self.0.remove(&set_id);
        }
    }
}

/// Adds or subtracts `amount`.
fn step(count: &mut u64, amount: u64, is_added: bool) {
    *count = if is_added { *count + amount } else { count.saturating_sub(amount) };
}
