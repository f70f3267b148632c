//! Reserve and release commands: validates them and sends them to the writer.

use tokio::sync::oneshot;

use crate::auth::token::{ConsentPurpose, HmacTokenSigner, MeasuredSearchClaim, ReservationClaim};
use crate::domain::advertisement::AdvertisementKind;
use crate::domain::id::{AdvertisementId, SetId};
use crate::engine::adverts::advert_engine::AdvertEngine;
use crate::engine::adverts::owner_limits;
use crate::engine::adverts::probe_results::probe_results_of_search;
use crate::engine::adverts::search_claim::{renew_or_start_search_claim, verify_search_token};
use crate::engine::adverts::writer_command::{AdvertWriterCommand, ReserveSeats};
use crate::engine::command::{Caller, ReleaseReservationOrSeatCommand, ReserveAnswer, ReserveCommand};
use crate::engine::error::{EngineError, field_error};
use crate::engine::party_consent::check_party_consents;
use crate::engine::searching_party::SearchingParty;
use crate::engine::writer_inbox::PendingAnswer;
use crate::store::queues::ConsentConsumer;

impl AdvertEngine {
    /// Reserves seats for the whole party or for none. The search's rules are checked again when the writer processes
    /// it.
    pub(crate) fn reserve_seats(
        &self,
        caller: &Caller,
        reserve: ReserveCommand,
    ) -> Result<PendingAnswer<ReserveAnswer>, EngineError> {
        let now = self.state.common.clock.now();
        if reserve.search_token.is_empty() {
            return Err(field_error(
                "search_token",
                "is required; send the token of the search that found the session",
            ));
        }
        let Some(searched) = verify_search_token(&self.state.common, &reserve.search_token) else {
            return Err(field_error("search_token", "is not valid on this server; search again"));
        };
        let search = searched.search;
        if reserve.set_id.is_some_and(|set_id| set_id != search.set_id) {
            let problem = format!("must be {}, the set of the search", search.set_id);
            return Err(field_error("matchmaking_set_id", problem));
        }
        let set_id: SetId = search.set_id;
        let ruleset = self.state.common.current_or_cached_ruleset(set_id, Some(search.ruleset_hash))?;
        let (party, purpose) = (&reserve.session, (&*ruleset, ConsentPurpose::Search));
        let consents = check_party_consents(&self.state.common, caller, purpose, party, &reserve.consents, now)?;
        let tokens = &reserve.latency_tokens;
        let SearchingParty { checked, predictor } =
            SearchingParty::new(&self.state.common, caller, &ruleset, reserve.session, tokens, now)?;
        let MeasuredSearchClaim { search, measured } =
            renew_or_start_search_claim(&self.state.common, &ruleset, &checked, &reserve.search_token, now)?;
        let advertisement_id = self
            .state
            .advert_id_of_handle(&ruleset, search.party_digest, reserve.advertisement_id, now)
            .ok_or(EngineError::AdvertisementNotFound)?;
        let key = &reserve.idempotency_key;
        let id = self.state.common.token_signer.derive_reservation_id(caller.subject, advertisement_id, key);
        let request_digest =
            HmacTokenSigner::searching_party_digest(checked.subject, &checked.users, &checked.session.party_sizes);
        let settings = &self.state.common.settings;
        let owner = owner_limits::reservation_owner(settings, caller, &ruleset, &checked.session, &checked.users);
        let command = ReserveSeats {
            reservation_id: id,
            advertisement_id,
            required_kind: AdvertisementKind::Session,
            set_id,
            silo: checked.session.silo,
            ruleset,
            searching_since: search.started_at,
            probes: probe_results_of_search(&measured, search.started_at, now).into(),
            predictor: predictor.map(Box::new),
            hold_ms: settings.granted_hold_ms(reserve.hold_for_ms),
            request_digest,
            session: checked.session,
            attribute_values: checked.attribute_values,
            users: checked.users,
            subject: checked.subject,
            owner,
            is_of_search: true,
            measures: None,
            joining_tickets: None,
        };
        let (reply, answer) = oneshot::channel();
        let command = AdvertWriterCommand::ReserveSeats(
            Box::new(command),
            reply,
            self.state.in_flight_changes.begin_change(advertisement_id),
        );
        self.take_consents_and_submit(
            (|| ConsentConsumer(HmacTokenSigner::search_id(&searched.search)), consents),
            command,
            answer,
        )
    }

    /// Releases a reservation. Idempotent.
    pub(crate) fn release_reservation(
        &self,
        caller: &Caller,
        release: ReleaseReservationOrSeatCommand,
    ) -> Result<PendingAnswer<()>, EngineError> {
        let release = match release {
            ReleaseReservationOrSeatCommand::OwnSeat(advertisement_id) => {
                return self.release_own_seat(caller, advertisement_id);
            }
            ReleaseReservationOrSeatCommand::Reservation(release) => release,
        };
        let claim = self
            .state
            .common
            .token_signer
            .verify::<ReservationClaim>(&release.reservation_token)
            .ok_or(EngineError::NotOwner)?;
        if claim.reservation_id != release.id || claim.subject != caller.subject {
            return Err(EngineError::NotOwner);
        }
        let (reply, answer) = oneshot::channel();
        let in_flight = self.state.in_flight_changes.begin_change(claim.advertisement_id);
        self.submit(AdvertWriterCommand::ReleaseReservation(
            claim.reservation_id,
            claim.advertisement_id,
            claim.set_id,
            reply,
            in_flight,
        ))?;
        Ok(PendingAnswer::Pending(answer))
    }

    /// Releases the seat that a reservation in an advertisement holds for the caller's user, also if another caller reserved it. No effect
    /// without one, also if the advertisement does not exist: the answer says nothing about others.
    fn release_own_seat(
        &self,
        caller: &Caller,
        advertisement_id: AdvertisementId,
    ) -> Result<PendingAnswer<()>, EngineError> {
        let user = caller.user.ok_or(EngineError::NotOwner)?;
        let Some((set_id, reservation_id)) = self.state.reservation_of_user(advertisement_id, user) else {
            return Ok(PendingAnswer::Ready(()));
        };
        let (reply, answer) = oneshot::channel();
        let in_flight = self.state.in_flight_changes.begin_change(advertisement_id);
        self.submit(AdvertWriterCommand::ReleaseSeat(
            user,
            reservation_id,
            advertisement_id,
            set_id,
            reply,
            in_flight,
        ))?;
        Ok(PendingAnswer::Pending(answer))
    }
}
