//! Row encoding of tickets and matches. A ticket's row has constant columns and state columns, each with its own
//! checksum. So a state change does not need the constant columns.

use std::borrow::Cow;
use std::sync::Arc;

use crate::domain::id::{MatchId, SetId, SiloId, TicketId};
use crate::domain::lifecycle::Match;
use crate::domain::queue::seat_vectors::SeatBeaconVectors;
use crate::domain::queue::ticket::{Ticket, TicketEndReason};
use crate::domain::time::UnixMs;
use crate::store::error::StoreError;
use crate::store::queues::match_body::{decode_match, encode_match};
use crate::store::queues::queue_rows::match_purge_at;
use crate::store::queues::ticket_body::{decode_ticket, encode_ticket};
use crate::store::queues::{StoredTicket, TicketState};
use crate::store::rows::{
    RowChecksum, blob_with_checksum, body_error, from_ms, to_ms, unknown_row_error, verify_and_strip_checksum,
};

/// Constant columns of a row of `ticket`.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::store) struct TicketConstantColumns<'a> {
    pub(in crate::store) id: [u8; 16],
    pub(in crate::store) silo_id: i64,
    pub(in crate::store) set_id: i64,
    pub(in crate::store) entered_ms: i64,
    pub(in crate::store) request_digest: [u8; 16],
    pub(in crate::store) body: Cow<'a, str>,
}

/// State columns of a row of `ticket`.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::store) struct TicketStateColumns {
    /// 0: waiting. 1: in `match_id`. 2: ended.
    pub(in crate::store) state: i64,
    pub(in crate::store) match_id: Option<[u8; 16]>,
    /// Index in [`TICKET_END_REASONS`].
    pub(in crate::store) end_reason: Option<i64>,
    pub(in crate::store) expires_ms: i64,
    pub(in crate::store) purge_at_ms: Option<i64>,
    pub(in crate::store) version: i64,
    /// A bit per player. No checksum covers it: an older server leaves it as it is.
    pub(in crate::store) acknowledged: i64,
    /// `SeatBeaconVectors`; null without any. No checksum covers it either.
    pub(in crate::store) seat_vectors: Option<Vec<u8>>,
}

/// End reasons of tickets, in the order of their stored numbers.
const TICKET_END_REASONS: [TicketEndReason; 8] = [
    TicketEndReason::Left,
    TicketEndReason::Expired,
    TicketEndReason::Played,
    TicketEndReason::MatchedElsewhere,
    TicketEndReason::Declined,
    TicketEndReason::NotAcceptedInTime,
    TicketEndReason::EndedByServer,
    TicketEndReason::RulesetRetired,
];

impl TicketConstantColumns<'_> {
    pub(in crate::store) fn encode(ticket: &Ticket, request_digest: [u8; 16]) -> TicketConstantColumns<'static> {
        TicketConstantColumns {
            id: *ticket.id.as_bytes(),
            silo_id: ticket.session.silo.0.cast_signed(),
            set_id: i64::from(ticket.set_id.0),
            entered_ms: to_ms(ticket.entered_at),
            request_digest,
            body: encode_ticket(ticket).into(),
        }
    }

    pub(in crate::store) fn checksum(&self) -> i64 {
        let mut sum = RowChecksum::new();
        sum.add_bytes(&self.id);
        [self.silo_id, self.set_id, self.entered_ms].into_iter().for_each(|number| sum.add_number(number));
        sum.add_bytes(&self.request_digest);
        sum.add_bytes(self.body.as_bytes());
        sum.finish()
    }

    /// Decodes the ticket with its state.
    pub(in crate::store) fn decode(self, state_row: TicketStateColumns) -> Result<StoredTicket, StoreError> {
        let corrupt = |column, reason| StoreError::CorruptRow { table: "ticket", column, reason };
        let set_id = u32::try_from(self.set_id).map_err(|error| corrupt("set_id", error.to_string()))?;
        let mut ticket = decode_ticket(&self.body).map_err(|error| body_error("ticket", &error))?;
        ticket.id = TicketId::from_bytes(self.id);
        ticket.set_id = SetId(set_id);
        ticket.entered_at = from_ms(self.entered_ms);
        ticket.session.silo = SiloId(self.silo_id.cast_unsigned());
        let vectors = state_row.seat_vectors.as_deref();
        let vectors = vectors.map(|blob| verify_and_strip_checksum("ticket", "seat_vectors", blob));
        Ok(StoredTicket {
            ticket: Arc::new(ticket),
            state: state_row.decode_state()?,
            expires_at: from_ms(state_row.expires_ms),
            version: state_row.version.cast_unsigned(),
            request_digest: self.request_digest,
            ready_check_delivered_mask: state_row.acknowledged.cast_unsigned(),
            seat_vectors: vectors.transpose()?.map(SeatBeaconVectors::decode).unwrap_or_default(),
        })
    }
}

impl TicketStateColumns {
    pub(in crate::store) fn encode(stored: &StoredTicket) -> Self {
        let (state, match_id, end_reason) = match stored.state {
            TicketState::Waiting => (0, None, None),
            TicketState::InMatch(id) => (1, Some(id), None),
            TicketState::Ended { end_reason, match_id, purge_at: _ } => {
                (2, match_id, TICKET_END_REASONS.iter().position(|known| *known == end_reason))
            }
        };
        Self {
            state,
            match_id: match_id.map(|id| *id.as_bytes()),
            end_reason: end_reason.map(|index| index as i64),
            expires_ms: to_ms(stored.expires_at),
            purge_at_ms: stored.purge_at().map(to_ms),
            version: stored.version.cast_signed(),
            acknowledged: stored.ready_check_delivered_mask.cast_signed(),
            seat_vectors: stored.seat_vectors.encode().map(blob_with_checksum),
        }
    }

    /// Checksum over the ticket id and the state columns. The id is included so that the state of another ticket is not
    /// accepted.
    pub(in crate::store) fn checksum(&self, id: &[u8; 16]) -> i64 {
        let mut sum = RowChecksum::new();
        sum.add_bytes(id);
        sum.add_bytes(self.match_id.as_ref().map_or(&[], <[u8; 16]>::as_slice));
        [self.state, self.expires_ms, self.version].into_iter().for_each(|number| sum.add_number(number));
        [self.end_reason, self.purge_at_ms].into_iter().for_each(|number| sum.add_optional_number(number));
        sum.finish()
    }

    fn decode_state(&self) -> Result<TicketState, StoreError> {
        let null = |column| {
            let reason = format!("null, but the state is {}", self.state);
            StoreError::CorruptRow { table: "ticket", column, reason }
        };
        let match_id = self.match_id.map(MatchId::from_bytes);
        match (self.state, match_id) {
            (0, _) => Ok(TicketState::Waiting),
            (1, match_id) => match_id.map(TicketState::InMatch).ok_or_else(|| null("match_id")),
            (2, match_id) => Ok(TicketState::Ended {
                end_reason: decode_end_reason(self.end_reason.ok_or_else(|| null("end_reason"))?)?,
                match_id,
                purge_at: self.purge_at_ms.map(from_ms).ok_or_else(|| null("purge_at_ms"))?,
            }),
            (state, _) => Err(unknown_row_error("ticket", "state", format!("unknown state {state}"))),
        }
    }
}

fn decode_end_reason(number: i64) -> Result<TicketEndReason, StoreError> {
    let known = usize::try_from(number).ok().and_then(|index| TICKET_END_REASONS.get(index).copied());
    known.ok_or_else(|| unknown_row_error("ticket", "end_reason", format!("unknown end reason {number}")))
}

/// Highest number of a match stage: a host must confirm.
const STAGE_NUMBER_MAX: i64 = 4;

/// Row of `match`.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::store) struct MatchRow<'a> {
    pub(in crate::store) id: [u8; 16],
    pub(in crate::store) silo_id: i64,
    pub(in crate::store) set_id: i64,
    pub(in crate::store) proposed_ms: i64,
    pub(in crate::store) version: i64,
    /// 0: ready check. 1: placing. 2: playing. 3: ended. 4: a host must confirm.
    pub(in crate::store) stage: i64,
    pub(in crate::store) purge_at_ms: Option<i64>,
    pub(in crate::store) body: Cow<'a, str>,
}

impl MatchRow<'_> {
    pub(in crate::store) fn encode(found: &Match) -> MatchRow<'static> {
        let (stage, body) = encode_match(found);
        MatchRow {
            id: *found.id.as_bytes(),
            silo_id: found.silo.0.cast_signed(),
            set_id: i64::from(found.set_id.0),
            proposed_ms: to_ms(found.proposed_at),
            version: found.version.cast_signed(),
            stage,
            purge_at_ms: match_purge_at(found).map(to_ms),
            body: body.into(),
        }
    }

    pub(in crate::store) fn checksum(&self) -> i64 {
        let mut sum = RowChecksum::new();
        sum.add_bytes(&self.id);
        let numbers = [self.silo_id, self.set_id, self.proposed_ms, self.version, self.stage];
        numbers.into_iter().for_each(|number| sum.add_number(number));
        sum.add_optional_number(self.purge_at_ms);
        sum.add_bytes(self.body.as_bytes());
        sum.finish()
    }

    pub(in crate::store) fn decode(self) -> Result<Arc<Match>, StoreError> {
        let corrupt = |column, reason| StoreError::CorruptRow { table: "match", column, reason };
        let set_id = u32::try_from(self.set_id).map_err(|error| corrupt("set_id", error.to_string()))?;
        if !(0..=STAGE_NUMBER_MAX).contains(&self.stage) {
            return Err(unknown_row_error("match", "stage", format!("unknown stage {}", self.stage)));
        }
        let purge_at: Option<UnixMs> = self.purge_at_ms.map(from_ms);
        let mut decoded =
            decode_match(&self.body, self.stage, purge_at).map_err(|error| body_error("match", &error))?;
        decoded.id = MatchId::from_bytes(self.id);
        decoded.set_id = SetId(set_id);
        decoded.silo = SiloId(self.silo_id.cast_unsigned());
        decoded.proposed_at = from_ms(self.proposed_ms);
        decoded.version = self.version.cast_unsigned();
        Ok(Arc::new(decoded))
    }
}

#[cfg(test)]
mod tests;
