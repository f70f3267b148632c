//! Writes of consents: a consent is taken once, or revoked.

use crate::domain::id::ConsentId;
use crate::store::queues::QueueOutcome;
use crate::store::queues::consents::{ConsentConsumer, GrantedConsent, StoredConsent};
use crate::store::queues::queue_rows::QueueRows;

impl QueueRows {
    /// First consent that `taken_by` cannot have: it was revoked, or taken by something else.
    pub(super) fn find_unavailable_consent(
        &self,
        taken_by: ConsentConsumer,
        consents: &[GrantedConsent],
    ) -> Option<ConsentId> {
        let is_spent = |consent: &&GrantedConsent| {
            let stored = self.consents.get(&consent.id);
            stored.is_some_and(|stored| stored.is_revoked || stored.consumer.is_some_and(|taker| taker != taken_by))
        };
        consents.iter().find(is_spent).map(|spent| spent.id)
    }

    /// Takes consents of which none is spent.
    pub(super) fn take_consents(&mut self, taken_by: ConsentConsumer, consents: &[GrantedConsent]) {
        for GrantedConsent { id, expires_at } in consents {
            let taken = StoredConsent { consumer: Some(taken_by), is_revoked: false, expires_at: *expires_at };
            self.consents.entry(*id).or_insert(taken);
        }
    }

    pub(super) fn revoke_consent(&mut self, consent: GrantedConsent) -> QueueOutcome {
        let unused = StoredConsent { consumer: None, is_revoked: false, expires_at: consent.expires_at };
        let stored = self.consents.entry(consent.id).or_insert(unused);
        stored.is_revoked = true;
        QueueOutcome::ConsentRevoked { was_taken: stored.consumer.is_some() }
    }
}
