//! Rows of advertisements and reservations: the effect of each write on them, and their encoding.

pub(super) mod apply_writes;
pub(super) mod row_body;
pub(super) mod touched_keys;
