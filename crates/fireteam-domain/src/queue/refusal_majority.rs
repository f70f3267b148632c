//! Refusals of the candidates of one ticket: the rule that refused most of them, and the count by rule.

use crate::filter::Refusal;

/// Leading refusal of one ticket by the majority vote of Boyer and Moore, and its first refusal.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RefusalMajority {
    first_refusal: Option<u16>,
    leading_refusal: u16,
    lead: u32,
}

impl RefusalMajority {
    /// Adds a refusal by its `Refusal::counter_index`.
    pub(super) fn add(&mut self, counter: u16) {
        self.first_refusal.get_or_insert(counter);
        self.add_lead(counter, 1);
    }

    /// Adds later refusals.
    pub(super) fn add_all(&mut self, later: RefusalMajority) {
        self.first_refusal = self.first_refusal.or(later.first_refusal);
        self.add_lead(later.leading_refusal, later.lead);
    }

    fn add_lead(&mut self, counter: u16, lead: u32) {
        if self.leading_refusal == counter {
            self.lead = self.lead.saturating_add(lead);
        } else if self.lead < lead {
            (self.leading_refusal, self.lead) = (counter, lead - self.lead);
        } else {
            self.lead -= lead;
        }
    }

    /// Rule that refused most candidates, otherwise the first. `None` if no rule refused any.
    pub(super) fn leading_refusal(self) -> Option<Refusal> {
        let first = self.first_refusal?;
        Some(Refusal::from_counter_index(usize::from(if self.lead > 0 { self.leading_refusal } else { first })))
    }
}

/// Refusals of a search's candidates.
#[derive(Clone, Debug, Default)]
pub(super) struct SearchRefusals {
    pub(super) majority: RefusalMajority,
    /// Refusals by `Refusal::counter_index`, without zeros.
    pub(super) counts: Vec<(u16, u32)>,
}

impl SearchRefusals {
    /// Adds the refusal of one more candidate.
    pub(super) fn add(&mut self, refusal: Refusal) {
        let counter = refusal.counter_index() as u16;
        self.majority.add(counter);
        match self.counts.iter_mut().find(|(known, _)| *known == counter) {
            Some((_, count)) => *count = count.saturating_add(1),
            None => self.counts.push((counter, 1)),
        }
    }
}
