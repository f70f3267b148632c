//! Offers of matches to allocators: a row per match, so that a match is offered to one allocator at a time.
//!
//! Every backend decides writes with the code of this file, on the row that it has locked.

use async_trait::async_trait;

use crate::domain::id::{AdvertisementId, MatchId};
use crate::domain::time::UnixMs;
use crate::store::error::StoreError;

/// Retention of a row after the time to answer, milliseconds: longer than any wait for a game server, and than the time in
/// which answers are repeated.
pub const OFFER_RETENTION_MS: u64 = 24 * 60 * 60 * 1_000;

/// Last offer of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredOffer {
    /// Match.
    pub match_id: MatchId,
    /// Number of the offer, from 1.
    pub number: u32,
    /// Round over all allocators, from 1.
    pub round: u32,
    /// Advertisement id for the game server that this offer asks for; no two offers have the same.
    pub assigned_advertisement_id: AdvertisementId,
    /// Until when the offer may be answered.
    pub answer_by: UnixMs,
}

/// Write to the offer of one match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfferWrite {
    /// Makes an offer, if the stored one has the number before it and is over. Number 1 follows no row.
    OpenNext(StoredOffer),
    /// Ends an offer early, if it is the stored one.
    Close {
        /// Match.
        match_id: MatchId,
        /// Number of the offer.
        number: u32,
    },
    /// Changes nothing.
    Read {
        /// Match.
        match_id: MatchId,
    },
}

impl OfferWrite {
    /// Match of the row.
    pub(super) fn match_id(&self) -> MatchId {
        match self {
            OfferWrite::OpenNext(StoredOffer { match_id, .. })
            | OfferWrite::Close { match_id, .. }
            | OfferWrite::Read { match_id } => *match_id,
        }
    }

    /// The row after the write at `now`, if it changes `stored`.
    pub(super) fn changed_row(&self, stored: Option<&StoredOffer>, now: UnixMs) -> Option<StoredOffer> {
        match (self, stored) {
            (OfferWrite::OpenNext(offer), None) => (offer.number == 1).then_some(*offer),
            (OfferWrite::OpenNext(offer), Some(stored)) => {
                let follows = stored.number.checked_add(1) == Some(offer.number);
                (follows && stored.answer_by <= now).then_some(*offer)
            }
            (OfferWrite::Close { number, .. }, Some(stored)) => {
                let is_open = stored.number == *number && now < stored.answer_by;
                is_open.then_some(StoredOffer { answer_by: now, ..*stored })
            }
            (OfferWrite::Close { .. }, None) | (OfferWrite::Read { .. }, _) => None,
        }
    }
}

/// Store of offers.
#[async_trait]
pub trait OfferStore: Send + Sync + 'static {
    /// Applies writes of different matches in one transaction, and returns the row of each match afterwards. Durable on
    /// return.
    ///
    /// On an error nothing was applied, or the outcome is unknown.
    async fn apply_offer_writes(
        &self,
        writes: &[OfferWrite],
        now: UnixMs,
    ) -> Result<Vec<Option<StoredOffer>>, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(number: u32, answer_by: u64) -> StoredOffer {
        let id = |byte| [byte; 16];
        StoredOffer {
            match_id: MatchId::from_bytes(id(1)),
            number,
            round: 1,
            assigned_advertisement_id: AdvertisementId::from_bytes(id(number as u8)),
            answer_by: UnixMs(answer_by),
        }
    }

    #[test]
    fn offer_is_claimed_once_and_only_after_the_one_before_it_is_over() {
        let claim = |number| OfferWrite::OpenNext(offer(number, 100));
        assert_eq!(claim(1).changed_row(None, UnixMs(0)), Some(offer(1, 100)));
        assert_eq!(claim(2).changed_row(None, UnixMs(0)), None, "there is no offer before it");
        assert_eq!(claim(1).changed_row(Some(&offer(1, 50)), UnixMs(60)), None, "another server was first");
        assert_eq!(claim(2).changed_row(Some(&offer(1, 50)), UnixMs(49)), None, "the former offer is open");
        assert_eq!(claim(2).changed_row(Some(&offer(1, 50)), UnixMs(50)), Some(offer(2, 100)));
        assert_eq!(claim(3).changed_row(Some(&offer(1, 50)), UnixMs(50)), None);
    }

    #[test]
    fn offer_is_closed_by_its_own_number_only() {
        let close = |number| OfferWrite::Close { match_id: offer(1, 0).match_id, number };
        assert_eq!(close(2).changed_row(Some(&offer(2, 50)), UnixMs(20)), Some(offer(2, 20)));
        assert_eq!(close(1).changed_row(Some(&offer(2, 50)), UnixMs(20)), None);
        assert_eq!(close(2).changed_row(Some(&offer(2, 50)), UnixMs(50)), None, "it is over");
        assert_eq!(close(1).changed_row(None, UnixMs(0)), None);
    }
}
