//! Match proposals of a pass.

use crate::chosen_value::ChosenValue;
use crate::id::{AdvertisementId, TicketId};

/// Proposed match. It takes effect when the store accepts it.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    /// Tickets by team, in the order of `TeamsSpec::team_sizes`.
    pub teams: Vec<Vec<ProposedTicket>>,
    /// Quality by the ruleset, with bonus and costs; higher is better. 0 for quality `Any`.
    pub quality: f64,
    /// Region shared by all tickets, if the ruleset uses regions and a ticket has measured any.
    pub region: Option<Box<str>>,
    /// Session with open seats that the tickets join. `None` for a new match.
    pub backfilled_session: Option<AdvertisementId>,
    /// Entries of string lists that all its parties share, and the session that they join; see `Ruleset::chooses_values`.
    pub chosen: Box<[ChosenValue]>,
    /// Bots of each team, in the order of `teams`. Empty if there are none.
    pub bots_by_team: Box<[u16]>,
}

/// Ticket in a team.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProposedTicket {
    /// Ticket id.
    pub ticket_id: TicketId,
    /// Role of each player: indices into `TeamsSpec::roles`, in player order. Empty without roles.
    pub roles: Vec<u16>,
}
