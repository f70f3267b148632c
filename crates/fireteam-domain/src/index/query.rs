//! Search query: ruleset, searcher, silo, kind, limits and time of one search.

use crate::advertisement::AdvertisementKind;
use crate::filter::Searcher;
use crate::id::SiloId;
use crate::ruleset::{Ruleset, SearchLimits};
use crate::time::UnixMs;

/// Search query.
#[derive(Clone, Copy, Debug)]
pub struct SearchQuery<'a> {
    /// Ruleset of the index, or the same ruleset with overridden weights and limits.
    pub ruleset: &'a Ruleset,
    /// The searching session.
    pub searcher: Searcher<'a>,
    /// Silo to search.
    pub silo: SiloId,
    /// Kind of advertisement to search for.
    pub kind: AdvertisementKind,
    /// Maximum rows to evaluate and hits to return.
    pub limits: SearchLimits,
    /// Time of the search.
    pub now: UnixMs,
}
