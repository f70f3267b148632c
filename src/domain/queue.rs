//! Puts waiting parties together: tickets, a ruleset, a moment and dice in; proposals and a report out.

pub mod avoid;
pub mod backfill;
pub mod entrant;
pub mod explain;
pub mod gate;
pub mod group;
pub mod pass;
pub mod proposal;
pub mod report;
pub mod ticket;
pub mod window;
