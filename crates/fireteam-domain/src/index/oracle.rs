//! Search the obvious way: filter all, score all, sort. Slow, and the judge of every fast path.

use crate::filter::admit;
use crate::id::AdvertisementId;
use crate::index::{AdvertisementIndex, SearchQuery};
use crate::score::score;

/// The best for `query`, best first, ties by id: what `Index::search` finds when no limit on rows cuts it short.
pub fn search(index: &AdvertisementIndex, query: &SearchQuery<'_>) -> Vec<(AdvertisementId, f64)> {
    let near = index.entries().filter(|entry| {
        let advertisement = &entry.advertisement;
        advertisement.session.silo == query.silo && advertisement.kind == query.kind
    });
    let admitted = near.filter(|it| admit(query.ruleset, &query.searcher, &it.view(), None, query.now).is_ok());
    let scored =
        admitted.map(|entry| (entry.advertisement.id, score(query.ruleset, &query.searcher, &entry.view(), None)));
    let mut found: Vec<(AdvertisementId, f64)> = scored.collect();
    found.sort_by(|one, other| one.1.total_cmp(&other.1).then(one.0.cmp(&other.0)));
    found.truncate(query.limits.max_results as usize);
    found
}
