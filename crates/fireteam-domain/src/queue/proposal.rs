//! What a pass suggests.

use crate::id::{AdvertisementId, TicketId};

/// A match that a pass suggests. Whether it comes about the store decides.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    /// The teams, in the order of `TeamsSpec::sizes`.
    pub teams: Vec<Vec<ProposedTicket>>,
    /// How good it is by the ruleset's quality, bonus and costs included; higher is better. 0 where quality is `Any`.
    pub quality: f64,
    /// The region where all meet, if the ruleset goes by regions and anybody has measured any.
    pub region: Option<Box<str>>,
    /// The session with open seats that these tickets join instead of starting a match.
    pub backfilled_session: Option<AdvertisementId>,
}

/// A ticket in a team.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProposedTicket {
    /// Which.
    pub ticket_id: TicketId,
    /// What each of its players plays: a place in `TeamsSpec::roles`, in the order of the ticket's players. Empty where
    /// there are no roles.
    pub roles: Vec<u16>,
}
