//! Answer to an update: captured from a record under the set's lock, built afterwards.

use crate::auth::token::AdvertisementClaim;
use crate::domain::advertisement::AdvertisementKind;
use crate::domain::id::RulesetHash;
use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::teams::HostingMode;
use crate::domain::time::UnixMs;
use crate::engine::adverts::advert_set::AdvertRecord;
use crate::engine::adverts::host_events::HostEventHub;
use crate::engine::adverts::reservation_view;
use crate::engine::command::{ReservationView, UpdateAdvertAnswer};
use crate::engine::common::Common;

/// Token for `claim`, signed with the current key, so that it need not be signed again while the claim is unchanged.
#[derive(Clone, Debug)]
pub(crate) struct TokenWithClaim {
    pub(crate) claim: AdvertisementClaim,
    pub(crate) token: Vec<u8>,
}

/// Data of a record that an update's answer needs.
#[derive(Debug)]
pub(crate) struct UpdateSnapshot {
    claim: AdvertisementClaim,
    ruleset_hash: RulesetHash,
    expires_at: UnixMs,
    /// Reservations for the host.
    pub(crate) reservations: Vec<ReservationView>,
}

impl UpdateSnapshot {
    /// Captures a record at `now`.
    pub(crate) fn from_record(record: &AdvertRecord, now: UnixMs) -> Self {
        let advertisement = &record.advertisement;
        let claim = AdvertisementClaim {
            advertisement_id: advertisement.id,
            set_id: advertisement.set_id,
            kind: advertisement.kind,
            subject: advertisement.publisher,
            advertised_since: advertisement.advertised_since,
        };
        let reservations = record
            .valid_reservations(now)
            .map(|reservation| reservation_view::client_view_of_reservation(reservation, Vec::new(), now))
            .collect();
        Self { claim, ruleset_hash: advertisement.ruleset_hash, expires_at: record.expires_at, reservations }
    }

    /// Answer for a captured record. Returns the caller's own token if its claim is unchanged.
    pub(crate) fn into_answer(
        self,
        common: &Common,
        host_events: &HostEventHub,
        signed_token: Option<TokenWithClaim>,
        now: UnixMs,
    ) -> UpdateAdvertAnswer {
        let ruleset = common.current_or_cached_ruleset(self.claim.set_id, Some(self.ruleset_hash)).ok();
        self.into_answer_with_ruleset(common, host_events, ruleset.as_deref(), signed_token, now)
    }

    /// Answer for a captured record whose ruleset is known.
    pub(crate) fn into_answer_with_ruleset(
        self,
        common: &Common,
        host_events: &HostEventHub,
        ruleset: Option<&Ruleset>,
        signed_token: Option<TokenWithClaim>,
        now: UnixMs,
    ) -> UpdateAdvertAnswer {
        let claim = self.claim;
        let token = match signed_token {
            Some(signed_token) if signed_token.claim == claim => signed_token.token,
            _ => common.token_signer.sign(&claim),
        };
        let next_beat_in_ms = ruleset.and_then(|ruleset| match_host_beat_interval_ms(ruleset, claim.kind));
        let hosted_match_ids = next_beat_in_ms.map_or_else(
            || host_events.hosted_match_ids(claim.advertisement_id),
            |interval_ms| host_events.schedule_beat_and_list_matches(claim.advertisement_id, interval_ms, now),
        );
        let advertised_ms = now.ms_since(claim.advertised_since);
        UpdateAdvertAnswer {
            id: claim.advertisement_id,
            advertisement_token: token,
            is_new_advert: false,
            expires_in_ms: u32::try_from(self.expires_at.ms_since(now)).unwrap_or(u32::MAX),
            ruleset_hash: self.ruleset_hash,
            next_expansion_in_ms: ruleset.and_then(|ruleset| ruleset.ms_until_next_expansion(advertised_ms)),
            reservations: self.reservations,
            not_yet_durable: false,
            ignored_fields: Vec::new(),
            hosted_match_ids,
            next_beat_in_ms,
        }
    }
}

/// Interval of the heartbeats of an advertisement that queues may give matches, so that its host confirms them in time;
/// `None` for other advertisements.
fn match_host_beat_interval_ms(ruleset: &Ruleset, kind: AdvertisementKind) -> Option<u64> {
    let takes_matches = match kind {
        AdvertisementKind::GameServer => ruleset.hosting.mode == HostingMode::GameServer,
        AdvertisementKind::Session => ruleset.queue.as_ref().is_some_and(|queue| queue.backfill),
    };
    takes_matches.then(|| ruleset.hosting.heartbeat_interval_before_confirm_ms())
}
