//! Puts waiting parties together: tickets, a ruleset, a moment and dice in; proposals and a report out.

pub mod avoid;
pub mod backfill;
mod columns;
mod desk;
mod dice;
pub mod entrant;
pub mod explain;
mod field;
pub mod gate;
pub mod group;
mod lean;
mod line;
mod made;
#[cfg(test)]
mod oracle;
pub mod pass;
pub mod proposal;
pub mod quality;
mod region;
pub mod report;
pub mod satisfaction;
mod select;
#[cfg(test)]
mod tests;
pub mod ticket;
pub mod window;
