//! Taking seats and giving them back: from a command to a job for the writer.

use tokio::sync::oneshot;

use crate::auth::token::{ReservationClaim, SearchClaim, TokenSigner};
use crate::domain::advertisement::AdvertisementKind;
use crate::domain::id::SetId;
use crate::engine::adverts::checked_session::{CheckedSession, field_error};
use crate::engine::adverts::writer_command::{AdvertWriterCommand, ReserveSeats};
use crate::engine::command::{Caller, ReleaseReservationCommand, ReserveAnswer, ReserveCommand};
use crate::engine::error::EngineError;
use crate::engine::{Engine, PendingAnswer};

impl Engine {
    /// Takes all the party's seats or none. The rules are judged again, those that the search went by, against the
    /// advertisement as it is when the writer comes to it.
    pub fn reserve_seats(
        &self,
        caller: &Caller,
        reserve: ReserveCommand,
    ) -> Result<PendingAnswer<ReserveAnswer>, EngineError> {
        let now = self.core.clock.now();
        if reserve.search_token.is_empty() {
            return Err(field_error("search_token", "is required: send the one of the search that found the session"));
        }
        let Some(searched) = self.core.token_signer.verify::<SearchClaim>(&reserve.search_token) else {
            return Err(field_error("search_token", "is not one of this server's: search again"));
        };
        if reserve.set_id.is_some_and(|set_id| set_id != searched.set_id) {
            let what = format!("the search was in set {}", searched.set_id);
            return Err(field_error("matchmaking_set_id", what));
        }
        let set_id: SetId = searched.set_id;
        let ruleset = self.core.ruleset(set_id, Some(searched.ruleset_hash))?;
        self.core.check_party_consents(caller, &ruleset, &reserve.session, &reserve.consents, now)?;
        let (session, ignored) = self.core.with_resolved_locality(caller, reserve.session)?;
        let seeker = CheckedSession::new(&ruleset, caller, session, ignored)?;
        let claim = self.core.renew_search_claim(&ruleset, &seeker, &reserve.search_token, now)?;
        let key = &reserve.idempotency_key;
        let id = self.core.token_signer.derive_reservation_id(caller.subject, reserve.advertisement_id, key);
        let payload = TokenSigner::party_digest(seeker.subject, &seeker.users, &seeker.session.party_sizes);
        let take = ReserveSeats {
            reservation_id: id,
            advertisement_id: reserve.advertisement_id,
            required_kind: AdvertisementKind::Session,
            set_id,
            silo: seeker.session.silo,
            ruleset,
            searching_since: claim.started_at,
            hold_ms: self.core.settings.granted_hold_ms(reserve.hold_for_ms),
            request_digest: payload,
            session: seeker.session,
            attribute_values: seeker.attribute_values,
            users: seeker.users,
            subject: seeker.subject,
        };
        let (reply, answer) = oneshot::channel();
        self.send_to_advert_writer(AdvertWriterCommand::ReserveSeats(
            Box::new(take),
            reply,
            self.core.in_flight_changes.begin(reserve.advertisement_id),
        ))?;
        Ok(PendingAnswer::Pending(answer))
    }

    /// Gives seats back. What has ended has ended: releasing twice succeeds.
    pub fn release_reservation(
        &self,
        caller: &Caller,
        release: ReleaseReservationCommand,
    ) -> Result<PendingAnswer<()>, EngineError> {
        let claim = self
            .core
            .token_signer
            .verify::<ReservationClaim>(&release.reservation_token)
            .ok_or(EngineError::NotOwner)?;
        if claim.reservation_id != release.id || claim.subject != caller.subject {
            return Err(EngineError::NotOwner);
        }
        let (reply, answer) = oneshot::channel();
        let in_flight = self.core.in_flight_changes.begin(claim.advertisement_id);
        self.send_to_advert_writer(AdvertWriterCommand::ReleaseReservation(
            claim.reservation_id,
            claim.advertisement_id,
            claim.set_id,
            reply,
            in_flight,
        ))?;
        Ok(PendingAnswer::Pending(answer))
    }
}
