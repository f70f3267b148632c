//! Puts waiting parties together: tickets, a ruleset, a moment and dice in; proposals and a report out.

pub mod proposal;
pub mod ticket;
