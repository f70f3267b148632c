//! Lists of waiting tickets and of matches for operators, in domain types.

use std::sync::Arc;

use crate::domain::id::{SetId, SiloId, TicketId};
use crate::domain::lifecycle::Match;

/// Maximum number of tickets that one list reads.
pub const LISTED_TICKETS_READ_MAX: usize = 10_000;

/// Waiting tickets to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TicketListQuery {
    /// Matchmaking set.
    pub set_id: SetId,
    /// Only this silo.
    pub silo: Option<SiloId>,
    /// Only tickets with this nearest region; empty for all.
    pub region: String,
    /// Only tickets that this rule keeps waiting; empty for all.
    pub blocking_rule: String,
    /// Maximum number of tickets.
    pub max: usize,
}

/// Waiting tickets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TicketList {
    /// The longest wait first.
    pub tickets: Vec<ListedTicket>,
    /// There are more, or not all were read.
    pub is_truncated: bool,
    /// Number of tickets that were read.
    pub read_count: usize,
}

/// Waiting ticket in a list.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedTicket {
    /// Ticket id.
    pub id: TicketId,
    /// Silo.
    pub silo: SiloId,
    /// Time since entry, milliseconds.
    pub waited_ms: u64,
    /// Number of players.
    pub player_count: u16,
    /// Region with the least measured round trip.
    pub nearest_region: Option<Box<str>>,
    /// Rule that keeps it waiting, if this server knows it.
    pub blocking_rule: Option<Arc<str>>,
}

/// Matches to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatchListQuery {
    /// Only this set.
    pub set_id: Option<SetId>,
    /// Only matches that have not ended.
    pub only_live: bool,
    /// Maximum number of matches.
    pub max: usize,
}

/// Matches in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MatchList {
    /// The latest proposal first.
    pub matches: Vec<Arc<Match>>,
    /// There are more.
    pub is_truncated: bool,
}
