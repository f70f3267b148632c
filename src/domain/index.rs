//! One set's advertisements in memory, laid out so that a search reads little and reads it in order.

use std::sync::Arc;

use crate::domain::advertisement::{Advertisement, Kind};
use crate::domain::facts::Facts;
use crate::domain::filter::{Listed, Refusal, Searcher};
use crate::domain::id::{AdvertisementId, SiloId};
use crate::domain::ruleset::{Ruleset, SearchLimits};
use crate::domain::time::UnixMs;

/// One advertisement in the index.
#[derive(Clone, Debug)]
pub struct Entry {
    /// As published.
    pub advertisement: Arc<Advertisement>,
    /// What the index's ruleset sees of it.
    pub facts: Facts,
    /// Until when it is believed.
    pub expires: UnixMs,
    /// Seats that nobody holds.
    pub open_seats: u16,
    /// The part of an answer that does not depend on the search, encoded by whoever fills the index; opaque here.
    pub encoded: Arc<[u8]>,
}

impl Entry {
    /// The entry as filters and scores see it.
    pub fn listed(&self) -> Listed<'_> {
        Listed {
            advertisement: &self.advertisement,
            facts: &self.facts,
            expires: self.expires,
            open_seats: self.open_seats,
        }
    }
}

/// One search.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// The rules to judge by: the index's own, or the same with overridden weights and limits.
    pub ruleset: &'a Ruleset,
    /// Who asks.
    pub searcher: Searcher<'a>,
    /// The population.
    pub silo: SiloId,
    /// What is looked for.
    pub kind: Kind,
    /// How much may be looked at and returned.
    pub limits: SearchLimits,
    /// The moment that it is judged at.
    pub now: UnixMs,
}

/// One advertisement found, and its exact score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hit {
    /// Where it is in the index; good until the index next changes.
    pub slot: u32,
    /// Lower is better.
    pub score: f64,
}

/// What a search found. Kept by the caller and used again, so that a search allocates nothing per candidate.
#[derive(Debug, Default)]
pub struct Found {
    /// Best first; ties by advertisement id.
    pub hits: Vec<Hit>,
    /// Rows looked at.
    pub evaluated: u32,
    /// Whether the evaluation limit cut the search short.
    pub truncated: bool,
    /// Of the rows looked at, how many each rule refused; in the order of `Refusal`.
    pub refusals: Vec<(Refusal, u32)>,
}

/// The advertisements of one set under one ruleset.
#[derive(Debug)]
pub struct Index {
    ruleset: Arc<Ruleset>,
}

impl Index {
    /// An empty index for `ruleset`.
    pub fn new(ruleset: Arc<Ruleset>) -> Self {
        Self { ruleset }
    }

    /// The ruleset that its facts are seen through.
    pub fn ruleset(&self) -> &Arc<Ruleset> {
        &self.ruleset
    }

    /// How many advertisements it holds.
    pub fn len(&self) -> usize {
        unimplemented!()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds `entry`, or replaces the one of the same id wholly.
    pub fn upsert(&mut self, _entry: Entry) {
        unimplemented!()
    }

    /// Takes an entry out; `None` when there is none.
    pub fn remove(&mut self, _id: AdvertisementId) -> Option<Entry> {
        unimplemented!()
    }

    /// The entry of that id.
    pub fn get(&self, _id: AdvertisementId) -> Option<&Entry> {
        unimplemented!()
    }

    /// The entry of a hit.
    pub fn entry(&self, _slot: u32) -> &Entry {
        unimplemented!()
    }

    /// All entries, in no particular order.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        std::iter::empty()
    }

    /// Sets until when an advertisement is believed. `false` when it is not there.
    pub fn set_expires(&mut self, _id: AdvertisementId, _expires: UnixMs) -> bool {
        unimplemented!()
    }

    /// Sets how many seats are open. `false` when it is not there.
    pub fn set_open_seats(&mut self, _id: AdvertisementId, _open_seats: u16) -> bool {
        unimplemented!()
    }

    /// Appends up to `most` ids of advertisements that are expired at `now`.
    pub fn expired(&self, _now: UnixMs, _most: usize, _out: &mut Vec<AdvertisementId>) {
        unimplemented!()
    }

    /// Recomputes the bounds of some leaves that removals have left wider than needed; call it now and then.
    pub fn tidy(&mut self) {
        unimplemented!()
    }

    /// The best advertisements for `query`, exactly as `filter::admit` and `score::score` define them.
    pub fn search(&self, _query: &Query<'_>, _found: &mut Found) {
        unimplemented!()
    }
}
