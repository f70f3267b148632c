//! Outcomes of the search loop as a structure and bytes.

use std::borrow::Cow;

use fireteam_client::matching::{EndReason, Outcome};

use crate::identifier::{NO_ID, id_text, reason_text};
use crate::types::{
    FT_END_CANCELLED, FT_END_FAILED, FT_END_GAVE_UP, FT_OUTCOME_ABANDON_CONNECT, FT_OUTCOME_ADVERTISED,
    FT_OUTCOME_CONNECT, FT_OUTCOME_ENDED, FT_OUTCOME_JOINED, FT_OUTCOME_PARTY_COMING, FT_OUTCOME_PARTY_GONE,
    FT_OUTCOME_SESSION_FULL, FT_OUTCOME_WITHDRAWN, FtOutcome,
};

/// Structure and bytes of an outcome.
pub(crate) fn outcome_parts(outcome: &Outcome) -> (FtOutcome, Cow<'_, [u8]>) {
    let mut parts = empty();
    let mut data: &[u8] = &[];
    match outcome {
        Outcome::Connect(invitation) => {
            parts.kind = FT_OUTCOME_CONNECT;
            parts.seats = invitation.seats;
            parts.round_trip_ms = invitation.round_trip_ms.unwrap_or(-1.0);
            parts.again = invitation.is_reconnect.into();
            parts.advertisement_id = id_text(&invitation.advertisement_id);
            parts.reservation_id = id_text(&invitation.reservation_id);
            data = &invitation.connect_data;
        }
        Outcome::AbandonConnect { reservation_id } => {
            parts.kind = FT_OUTCOME_ABANDON_CONNECT;
            parts.reservation_id = id_text(reservation_id);
        }
        Outcome::Joined { advertisement_id, reservation_id } => {
            parts.kind = FT_OUTCOME_JOINED;
            parts.advertisement_id = id_text(advertisement_id);
            parts.reservation_id = id_text(reservation_id);
        }
        Outcome::Advertised(session) => {
            parts.kind = FT_OUTCOME_ADVERTISED;
            parts.advertisement_id = id_text(&session.advertisement_id);
            data = &session.advertisement_token;
        }
        Outcome::PartyComing { reservation_id, seats } => {
            parts.kind = FT_OUTCOME_PARTY_COMING;
            parts.seats = *seats;
            parts.reservation_id = id_text(reservation_id);
        }
        Outcome::PartyGone { reservation_id } => {
            parts.kind = FT_OUTCOME_PARTY_GONE;
            parts.reservation_id = id_text(reservation_id);
        }
        Outcome::SessionFull => parts.kind = FT_OUTCOME_SESSION_FULL,
        Outcome::Withdrawn => parts.kind = FT_OUTCOME_WITHDRAWN,
        Outcome::Ended(reason) => {
            parts.kind = FT_OUTCOME_ENDED;
            match reason {
                EndReason::Cancelled => parts.end_reason = FT_END_CANCELLED,
                EndReason::GaveUp => parts.end_reason = FT_END_GAVE_UP,
                EndReason::Failed(error) => {
                    parts.end_reason = FT_END_FAILED;
                    parts.status = error.code.into();
                    parts.reason = reason_text(error);
                    data = error.message.as_bytes();
                }
            }
        }
    }
    (parts, data.into())
}

fn empty() -> FtOutcome {
    FtOutcome {
        kind: 0,
        seats: 0,
        round_trip_ms: -1.0,
        end_reason: 0,
        status: 0,
        again: 0,
        advertisement_id: NO_ID,
        reservation_id: NO_ID,
        reason: NO_ID,
    }
}
