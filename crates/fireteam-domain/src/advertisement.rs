//! What a session says about itself so that others may join, and until when it is believed.

use crate::id::{AdvertisementId, RulesetHash, SetId, UserKey};
use crate::session::Session;
use crate::time::UnixMs;

/// Who waits behind an advertisement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AdvertisementKind {
    /// Players waiting for players.
    #[default]
    Session,
    /// A game server waiting for a match; found by queues, not by clients.
    GameServer,
}

/// A range that one advertisement publishes on top of its ruleset: the searcher's attribute must lie in it.
#[derive(Clone, Debug, PartialEq)]
pub struct AllowedRange {
    /// The name of a number attribute.
    pub attribute: Box<str>,
    /// Least value that passes.
    pub min: Option<f64>,
    /// Greatest value that passes.
    pub max: Option<f64>,
}

/// An advertisement as published. What changes under it by the minute, its expiry and its open seats, is kept beside it.
#[derive(Clone, Debug, PartialEq)]
pub struct Advertisement {
    /// Its name.
    pub id: AdvertisementId,
    /// The set that it belongs to.
    pub set_id: SetId,
    /// Who waits behind it. Never changes.
    pub kind: AdvertisementKind,
    /// The authenticated caller who published it; none when anonymous.
    pub publisher: Option<UserKey>,
    /// Since when it has been advertised, so that its limits relax from there.
    pub advertised_since: UnixMs,
    /// The ruleset that it was published under.
    pub ruleset_hash: RulesetHash,
    /// What it says.
    pub session: Session,
    /// Ranges tighter than the ruleset's.
    pub allowed_ranges: Vec<AllowedRange>,
    /// Given to whoever finds or joins it; opaque.
    pub connect_data: Vec<u8>,
}

/// There are a million of these, each behind an `Arc` that adds two counts: 256 bytes are a size that allocators have, and
/// one byte more costs 64.
const _: () = assert!(size_of::<Advertisement>() + 2 * size_of::<usize>() <= 256);
