//! Word columns of every index.

/// Expiry, in ticks.
pub(super) const EXPIRES_AT: usize = 0;
/// Open seats in the low 16 bits, owner tag in the high 16 bits.
pub(super) const SEATS_AND_OWNER: usize = 1;
/// Start of the advertisement, in ticks.
pub(super) const ADVERTISED_SINCE: usize = 2;
/// Number of these columns.
pub(super) const FIXED_COUNT: usize = 3;
