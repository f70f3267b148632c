//! Pages of leaderboards, rating histories and exports: the history query, and the page token that continues a list.

use crate::domain::id::{SetId, UserKey};
use crate::domain::time::UnixMs;

/// Page of a user's rating history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RatingHistoryQuery {
    /// Matchmaking set.
    pub set_id: SetId,
    /// User whose history is read.
    pub user: UserKey,
    /// Entries per page.
    pub page_size: usize,
    /// End of the previous page: only entries older than this time, or at it with a lower match number.
    pub before: Option<(UnixMs, u32)>,
}

/// Splits a page token into its number and its id; `None` if it is malformed.
pub(super) fn decode_page_token(token: &[u8]) -> Option<(u64, [u8; 16])> {
    let (number, id) = token.split_at_checked(8)?;
    Some((u64::from_be_bytes(number.try_into().ok()?), id.try_into().ok()?))
}

/// Builds a page token from a number and an id.
pub(super) fn encode_page_token(number: u64, id: &[u8; 16]) -> Vec<u8> {
    number.to_be_bytes().into_iter().chain(*id).collect()
}
