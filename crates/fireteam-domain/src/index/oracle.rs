//! Oracle for index searches: filters all entries, scores them and sorts. Slow; tests compare the index with it.

use crate::filter::admit_advertisement;
use crate::id::AdvertisementId;
use crate::index::{AdvertisementIndex, SearchQuery};
use crate::score::score;

/// Best advertisements for `query`, best first, ties by id. Equal to the result of `AdvertisementIndex::search` if the
/// evaluation limit does not truncate it.
pub fn search(index: &AdvertisementIndex, query: &SearchQuery<'_>) -> Vec<(AdvertisementId, f64)> {
    let candidates = index.entries().filter(|entry| {
        let advertisement = &entry.advertisement;
        advertisement.session.silo == query.silo && advertisement.kind == query.kind
    });
    let admitted = candidates
        .filter(|entry| admit_advertisement(query.ruleset, &query.searcher, &entry.view(), query.now).is_ok());
    let scored = admitted.map(|entry| (entry.advertisement.id, score(query.ruleset, &query.searcher, &entry.view())));
    let mut best: Vec<(AdvertisementId, f64)> = scored.collect();
    best.sort_by(|one, other| one.1.total_cmp(&other.1).then(one.0.cmp(&other.0)));
    best.truncate(query.limits.max_results as usize);
    best
}
