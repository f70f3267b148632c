//! First scales of sets: recorded when a set first uses a ruleset with ratings, so that its stored ratings have a scale.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::domain::id::{RatingKey, SetId};
use crate::domain::ruleset::Ruleset;
use crate::engine::ratings::RatingCache;
use crate::store::{Store, StoreError};

/// Records the first scales of the sets of `rulesets`. Call it before the rulesets are used. Uses the store only if a set
/// has a scale that this server has not used before.
pub(crate) async fn record_first_scales(
    store: &dyn Store,
    ratings: &Mutex<RatingCache>,
    rulesets: impl IntoIterator<Item = &Arc<Ruleset>>,
) -> Result<(), StoreError> {
    let own_scale = |ruleset: &Arc<Ruleset>| Some((ruleset.set_id, ruleset.own_rating_digest_key()?));
    let mut current: Vec<(SetId, RatingKey)> = rulesets.into_iter().filter_map(own_scale).collect();
    current.sort_unstable();
    {
        let ratings = ratings.lock();
        current.retain(|scale_of_set| !ratings.compared_scales.contains(scale_of_set));
    }
    if current.is_empty() {
        return Ok(());
    }
    let recorded = store.record_first_scales(&current).await?;
    let mut ratings = ratings.lock();
    ratings.first_scales.extend(recorded);
    ratings.compared_scales.extend(current);
    Ok(())
}
