//! Ticket of a match that joins an advertised session, as the reservation of its seats judges it.

use std::sync::Arc;

use crate::domain::attribute_values::AttributeValues;
use crate::domain::queue::ticket::Ticket;
use crate::domain::queue::ticket_vector::TicketBeaconVector;

/// Ticket that joins a session.
#[derive(Debug)]
pub(crate) struct JoiningTicket {
    pub(crate) ticket: Arc<Ticket>,
    pub(crate) attribute_values: AttributeValues,
    /// Its vector, if the ruleset predicts round trips and the vector counts.
    pub(crate) vector: Option<TicketBeaconVector>,
}
