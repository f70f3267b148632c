//! What a pass did, and for every ticket that it left, which rule kept it waiting.

use crate::domain::filter::Refusal;
use crate::domain::id::TicketId;
use crate::domain::queue::gate::Closed;
use crate::domain::time::UnixMs;

/// What a pass did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PassReport {
    /// Why the pass did not begin, if it did not.
    pub closed: Option<Closed>,
    /// Tickets that it was given.
    pub tickets: u32,
    /// Tickets that it put into proposals.
    pub placed: u32,
    /// Every ticket left, in the order of their ids.
    pub left: Vec<Left>,
    /// How often each rule refused, in the order of `Refusal::counter`; rules that never did are left out. A pair that was
    /// looked at from both sides counts twice.
    pub refusals: Vec<(Refusal, u64)>,
    /// Pairs that were judged.
    pub looks: u64,
    /// The pass ran out of looks before it had come to every ticket.
    pub out_of_looks: bool,
    /// `MaximumWeight` was asked for, and the nearest were taken instead: too many tickets, or matches of more than two.
    pub fell_back: bool,
    /// There were more candidates than `look_at`, and only the nearest of them were looked at.
    pub narrowed: bool,
    /// As many matches began as may run.
    pub at_capacity: bool,
    /// The next moment at which something changes for a ticket left, with nobody coming or going: a range grows, a limit
    /// relaxes, a neighbouring group opens, a bonus suffices, a grudge ends.
    pub next_change: Option<UnixMs>,
    /// The widest range of any ticket, buckets.
    pub widest_range: u32,
}

/// A ticket that still waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// Which.
    pub ticket: TicketId,
    /// The rule that kept it waiting: of those that refused, the one that did so most of the time, or else the first.
    pub refusal: Refusal,
}
