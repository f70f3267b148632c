//! Handles: ids of advertisements as one party receives them, where the ruleset tells no ids.

use crate::auth::token::AdvertisementHandleCipher;
use crate::domain::id::AdvertisementId;
use crate::domain::ruleset::{AdvertisementIdForm, Ruleset};
use crate::domain::time::UnixMs;
use crate::engine::adverts::advert_state::AdvertState;

impl AdvertState {
    /// Cipher for the ids that a party receives; `None` where it receives the ids themselves.
    pub(super) fn handle_cipher(
        &self,
        ruleset: &Ruleset,
        party_digest: [u8; 16],
        now: UnixMs,
    ) -> Option<AdvertisementHandleCipher> {
        match ruleset.advertisement_id_form {
            AdvertisementIdForm::Ids => None,
            AdvertisementIdForm::PerSearcher => {
                Some(self.common.token_signer.advertisement_handle_cipher(party_digest, now))
            }
        }
    }

    /// Id of the advertisement that a party calls by `handle`. `None` if the ruleset tells handles and this is none of an
    /// advertisement in memory.
    pub(crate) fn advert_id_of_handle(
        &self,
        ruleset: &Ruleset,
        party_digest: [u8; 16],
        handle: AdvertisementId,
        now: UnixMs,
    ) -> Option<AdvertisementId> {
        if ruleset.advertisement_id_form == AdvertisementIdForm::Ids {
            return Some(handle);
        }
        let set = self.advert_sets.get(ruleset.set_id)?;
        let set = set.lock_for_read();
        self.common
            .token_signer
            .advertisement_ids_of_handle(party_digest, handle, now)
            .find(|id| set.get(*id).is_some())
    }
}
