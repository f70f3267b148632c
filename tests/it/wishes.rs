//! Wishes of parties over the wire, through both doors.

pub(crate) mod changes;
pub(crate) mod choices;
pub(crate) mod fixture;
pub(crate) mod intent;
pub(crate) mod invalid;
pub(crate) mod least_recent;
pub(crate) mod round_trips;
pub(crate) mod searches;
pub(crate) mod tickets;
