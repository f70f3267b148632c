//! Rows of what queues keep, to domain and back. What a ticket is never changes, how it stands does: two checksums, so that
//! a change of the one need not read the other.

use std::borrow::Cow;
use std::sync::Arc;

use crate::domain::id::{MatchId, SetId, SiloId, TicketId};
use crate::domain::lifecycle::Match;
use crate::domain::queue::ticket::{Ticket, TicketEndReason};
use crate::domain::time::UnixMs;
use crate::store::StoreError;
use crate::store::queues::queue_rows::forget_at;
use crate::store::queues::{StoredTicket, TicketState};
use crate::store::rows::queue_body::{decode_match, decode_ticket, encode_match, encode_ticket};
use crate::store::rows::{RowChecksum, from_ms, to_ms};

/// What never changes in a row of `ticket`.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::store) struct TicketRow<'a> {
    pub(in crate::store) id: [u8; 16],
    pub(in crate::store) silo_id: i64,
    pub(in crate::store) set_id: i64,
    pub(in crate::store) entered_ms: i64,
    pub(in crate::store) payload: [u8; 16],
    pub(in crate::store) body: Cow<'a, str>,
}

/// What does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::store) struct TicketStateRow {
    /// 0: waits. 1: in `match_id`. 2: over.
    pub(in crate::store) state: i64,
    pub(in crate::store) match_id: Option<[u8; 16]>,
    /// Why it is over, in the order of `Ending`.
    pub(in crate::store) ending: Option<i64>,
    pub(in crate::store) expires_ms: i64,
    pub(in crate::store) forget_at_ms: Option<i64>,
    pub(in crate::store) version: i64,
}

/// Why tickets end, by the number that stands for it.
const TICKET_END_REASONS: [TicketEndReason; 7] = [
    TicketEndReason::Left,
    TicketEndReason::Expired,
    TicketEndReason::Played,
    TicketEndReason::MatchedElsewhere,
    TicketEndReason::Declined,
    TicketEndReason::NotAcceptedInTime,
    TicketEndReason::Cancelled,
];

impl TicketRow<'_> {
    pub(in crate::store) fn encode(ticket: &Ticket, payload: [u8; 16]) -> TicketRow<'static> {
        TicketRow {
            id: *ticket.id.as_bytes(),
            silo_id: ticket.session.silo.0.cast_signed(),
            set_id: i64::from(ticket.set_id.0),
            entered_ms: to_ms(ticket.entered_at),
            payload,
            body: encode_ticket(ticket).into(),
        }
    }

    pub(in crate::store) fn checksum(&self) -> i64 {
        let mut sum = RowChecksum::new();
        sum.add_bytes(&self.id);
        [self.silo_id, self.set_id, self.entered_ms].into_iter().for_each(|number| sum.add_number(number));
        sum.add_bytes(&self.payload);
        sum.add_bytes(self.body.as_bytes());
        sum.finish()
    }

    /// The ticket, as it stands.
    pub(in crate::store) fn decode(self, standing: TicketStateRow) -> Result<StoredTicket, StoreError> {
        let corrupt = |column, what| StoreError::CorruptRow { table: "ticket", column, reason: what };
        let set_id = u32::try_from(self.set_id).map_err(|error| corrupt("set_id", error.to_string()))?;
        let mut ticket = decode_ticket(&self.body).map_err(|error| corrupt("body", error.to_string()))?;
        ticket.id = TicketId::from_bytes(self.id);
        ticket.set_id = SetId(set_id);
        ticket.entered_at = from_ms(self.entered_ms);
        ticket.session.silo = SiloId(self.silo_id.cast_unsigned());
        Ok(StoredTicket {
            ticket: Arc::new(ticket),
            state: standing.decode_state().map_err(|(column, what)| corrupt(column, what))?,
            expires_at: from_ms(standing.expires_ms),
            version: standing.version.cast_unsigned(),
            request_digest: self.payload,
        })
    }
}

impl TicketStateRow {
    pub(in crate::store) fn encode(stored: &StoredTicket) -> Self {
        let (state, match_id, ending) = match stored.state {
            TicketState::Waiting => (0, None, None),
            TicketState::InMatch(id) => (1, Some(id), None),
            TicketState::Ended { end_reason: how, match_id: by, purge_at: _ } => {
                (2, by, TICKET_END_REASONS.iter().position(|known| *known == how))
            }
        };
        Self {
            state,
            match_id: match_id.map(|id| *id.as_bytes()),
            ending: ending.map(|at| at as i64),
            expires_ms: to_ms(stored.expires_at),
            forget_at_ms: stored.purge_at().map(to_ms),
            version: stored.version.cast_signed(),
        }
    }

    /// Over the id that it belongs to as well: a standing must not be taken for another's.
    pub(in crate::store) fn checksum(&self, id: &[u8; 16]) -> i64 {
        let mut sum = RowChecksum::new();
        sum.add_bytes(id);
        sum.add_bytes(self.match_id.as_ref().map_or(&[], <[u8; 16]>::as_slice));
        [self.state, self.expires_ms, self.version].into_iter().for_each(|number| sum.add_number(number));
        [self.ending, self.forget_at_ms].into_iter().for_each(|number| sum.add_optional_number(number));
        sum.finish()
    }

    fn decode_state(&self) -> Result<TicketState, (&'static str, String)> {
        let by = self.match_id.map(MatchId::from_bytes);
        match (self.state, by) {
            (0, _) => Ok(TicketState::Waiting),
            (1, Some(id)) => Ok(TicketState::InMatch(id)),
            (2, by) => Ok(TicketState::Ended {
                end_reason: self
                    .ending
                    .and_then(|at| TICKET_END_REASONS.get(usize::try_from(at).ok()?).copied())
                    .ok_or_else(|| ("ending", format!("{:?} is no ending", self.ending)))?,
                match_id: by,
                purge_at: self.forget_at_ms.map(from_ms).ok_or(("forget_at_ms", "it has ended".to_owned()))?,
            }),
            (state, _) => Err(("state", format!("{state} is no state, or names no match"))),
        }
    }
}

/// A row of `match`.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::store) struct MatchRow<'a> {
    pub(in crate::store) id: [u8; 16],
    pub(in crate::store) silo_id: i64,
    pub(in crate::store) set_id: i64,
    pub(in crate::store) proposed_ms: i64,
    pub(in crate::store) version: i64,
    /// 0: ready check. 1: placing. 2: playing. 3: over.
    pub(in crate::store) stage: i64,
    pub(in crate::store) forget_at_ms: Option<i64>,
    pub(in crate::store) body: Cow<'a, str>,
}

impl MatchRow<'_> {
    pub(in crate::store) fn encode(play: &Match) -> MatchRow<'static> {
        let (stage, body) = encode_match(play);
        MatchRow {
            id: *play.id.as_bytes(),
            silo_id: play.silo.0.cast_signed(),
            set_id: i64::from(play.set_id.0),
            proposed_ms: to_ms(play.proposed_at),
            version: play.version.cast_signed(),
            stage,
            forget_at_ms: forget_at(play).map(to_ms),
            body: body.into(),
        }
    }

    pub(in crate::store) fn checksum(&self) -> i64 {
        let mut sum = RowChecksum::new();
        sum.add_bytes(&self.id);
        let numbers = [self.silo_id, self.set_id, self.proposed_ms, self.version, self.stage];
        numbers.into_iter().for_each(|number| sum.add_number(number));
        sum.add_optional_number(self.forget_at_ms);
        sum.add_bytes(self.body.as_bytes());
        sum.finish()
    }

    /// The match.
    pub(in crate::store) fn decode(self) -> Result<Arc<Match>, StoreError> {
        let corrupt = |column, what| StoreError::CorruptRow { table: "match", column, reason: what };
        let set_id = u32::try_from(self.set_id).map_err(|error| corrupt("set_id", error.to_string()))?;
        let forget_at: Option<UnixMs> = self.forget_at_ms.map(from_ms);
        let mut play =
            decode_match(&self.body, self.stage, forget_at).map_err(|error| corrupt("body", error.to_string()))?;
        play.id = MatchId::from_bytes(self.id);
        play.set_id = SetId(set_id);
        play.silo = SiloId(self.silo_id.cast_unsigned());
        play.proposed_at = from_ms(self.proposed_ms);
        play.version = self.version.cast_unsigned();
        Ok(Arc::new(play))
    }
}

#[cfg(test)]
mod tests;
