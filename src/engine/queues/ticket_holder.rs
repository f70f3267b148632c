//! Holder of a ticket token: who acts for which players of a ticket.

use crate::auth::token::{HmacTokenSigner, TicketClaim, TicketSeatClaim};
use crate::domain::id::{SetId, TicketId, UserKey};
use crate::domain::queue::ticket::Ticket;
use crate::engine::command::Caller;
use crate::engine::error::{EngineError, field_error};

/// Holder of a ticket token, verified for its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TicketTokenHolder {
    pub(crate) ticket_id: TicketId,
    pub(crate) set_id: SetId,
    /// Player whose client holds the token; `None` for a caller without a user, which acts for everyone it entered.
    pub(crate) user: Option<UserKey>,
    /// The token is of the seat of `user` alone, in a ticket that another caller entered.
    pub(crate) is_seat_token: bool,
}

impl TicketTokenHolder {
    /// Verifies the token of a ticket or of a seat. It is valid for the caller that it was issued to.
    pub(crate) fn verify(signer: &HmacTokenSigner, caller: &Caller, token: &[u8]) -> Result<Self, EngineError> {
        if let Some(claim) = signer.verify::<TicketClaim>(token) {
            let TicketClaim { ticket_id, set_id, subject } = claim;
            let holder = Self { ticket_id, set_id, user: caller.user, is_seat_token: false };
            return (subject == caller.subject).then_some(holder).ok_or(EngineError::NotOwner);
        }
        let TicketSeatClaim { ticket_id, set_id, user } = signer.verify(token).ok_or(EngineError::NotOwner)?;
        let holder = Self { ticket_id, set_id, user: Some(user), is_seat_token: true };
        (caller.user == Some(user)).then_some(holder).ok_or(EngineError::NotOwner)
    }

    /// Whether the holder acts for `user`, a player of the ticket.
    pub(crate) fn acts_for(&self, ticket: &Ticket, user: UserKey) -> bool {
        match self.user {
            Some(own) if own == user => true,
            _ if self.is_seat_token => false,
            Some(_) => ticket.self_answering_users.binary_search(&user).is_err(),
            None => true,
        }
    }

    /// Players whom the holder acts for, in the order of the ticket.
    pub(crate) fn users(&self, ticket: &Ticket) -> Vec<UserKey> {
        let users = ticket.session.players.iter().map(|player| player.user);
        users.filter(|user| self.acts_for(ticket, *user)).collect()
    }

    /// The same players as bits: bit `n` is player `n` of the ticket.
    pub(crate) fn player_bits(&self, ticket: &Ticket) -> u64 {
        let players = ticket.session.players.iter().zip(0..u64::BITS);
        players.filter(|(player, _)| self.acts_for(ticket, player.user)).fold(0, |bits, (_, index)| bits | 1 << index)
    }

    /// `named` players, or all whom the holder acts for if none is named. Fails if one answers for themselves.
    pub(crate) fn named_or_all_users(&self, ticket: &Ticket, named: &[UserKey]) -> Result<Vec<UserKey>, EngineError> {
        if named.is_empty() {
            return Ok(self.users(ticket));
        }
        let is_player = |user: &UserKey| ticket.session.players.iter().any(|player| player.user == *user);
        if named.iter().any(|user| is_player(user) && !self.acts_for(ticket, *user)) {
            let problem = "names a player who answers alone; that player's own client finds its token with Mine";
            return Err(field_error("user_ids", problem));
        }
        Ok(named.to_vec())
    }
}
