//! First scales of sets: recorded when a set first uses a ruleset with ratings, so that its stored ratings have a scale. With
//! them, each set's default constants: a set with ratings from version 0.2.0 keeps the former ones.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::domain::id::SetId;
use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::rating::defaults::{OwnRatingKeys, RatingDefaults};
use crate::engine::common::Common;
use crate::engine::ratings::RatingCache;
use crate::rules::catalog::ActiveRuleset;
use crate::store::{Store, StoreError};

/// Records the first scales of the sets of `rulesets`. Call it before the rulesets are used. Uses the store only if a set
/// has a scale that this server has not used before.
pub(crate) async fn record_first_scales(
    store: &dyn Store,
    ratings: &Mutex<RatingCache>,
    rulesets: impl IntoIterator<Item = &Arc<Ruleset>>,
) -> Result<(), StoreError> {
    let mut current: Vec<OwnRatingKeys> =
        rulesets.into_iter().filter_map(|ruleset| ruleset.own_rating_keys()).collect();
    current.sort_unstable();
    {
        let ratings = ratings.lock();
        current.retain(|keys| !ratings.scales_compared_with_first.contains(keys));
    }
    if current.is_empty() {
        return Ok(());
    }
    let recorded = store.record_first_scales(&current).await?;
    let mut ratings = ratings.lock();
    ratings.first_scales.extend(recorded.into_iter().map(|first| (first.set_id, first)));
    ratings.scales_compared_with_first.extend(current);
    Ok(())
}

/// Records the first scales of the active rulesets, and lets them use their sets' default constants. For the start of the
/// server, before the rulesets are used.
pub(crate) async fn prepare_active_rulesets(common: &Common) -> Result<(), StoreError> {
    let active = common.rulesets.snapshot().active.clone();
    let rulesets: Vec<(PathBuf, Arc<Ruleset>)> =
        active.into_values().map(|active| (active.file, active.ruleset)).collect();
    record_first_scales(&*common.store, &common.ratings, rulesets.iter().map(|(_, ruleset)| ruleset)).await?;
    let in_use = with_rating_defaults_of_sets(&common.ratings.lock(), &rulesets);
    common.rulesets.update_state(|state| {
        state.active =
            in_use.into_iter().map(|(file, ruleset)| (ruleset.set_id, ActiveRuleset { file, ruleset })).collect();
    });
    Ok(())
}

/// `rulesets` as their sets use them: with the former default constants where a set keeps them.
///
/// The sets of one pool use the same constants: the former ones if one of them keeps them, unless the pool would have two
/// scales by that, because one ruleset states a constant that another leaves out.
pub(crate) fn with_rating_defaults_of_sets<F: Clone>(
    ratings: &RatingCache,
    rulesets: &[(F, Arc<Ruleset>)],
) -> Vec<(F, Arc<Ruleset>)> {
    let keeps_former = |set_id: SetId| {
        ratings.first_scales.get(&set_id).is_some_and(|first| first.defaults_version == RatingDefaults::Former)
    };
    let pool_of = |ruleset: &Ruleset| ruleset.rating_pool.clone();
    let former_of =
        |ruleset: &Arc<Ruleset>| ruleset.with_former_rating_defaults().map_or(Arc::clone(ruleset), Arc::new);
    let mut pools: BTreeMap<Box<str>, Vec<&Arc<Ruleset>>> = BTreeMap::new();
    for (_, ruleset) in rulesets {
        if let Some(pool) = pool_of(ruleset) {
            pools.entry(pool).or_default().push(ruleset);
        }
    }
    let is_former_pool = |members: &[&Arc<Ruleset>]| {
        let keys: BTreeSet<_> =
            members.iter().filter_map(|ruleset| former_of(ruleset).rating_key_of_pool_and_scale()).collect();
        members.iter().any(|ruleset| keeps_former(ruleset.set_id)) && keys.len() == 1
    };
    let former_pools: BTreeSet<Box<str>> =
        pools.into_iter().filter(|(_, members)| is_former_pool(members)).map(|(pool, _)| pool).collect();
    let in_use = |(file, ruleset): &(F, Arc<Ruleset>)| {
        let is_former = match pool_of(ruleset) {
            Some(pool) => former_pools.contains(&pool),
            None => keeps_former(ruleset.set_id),
        };
        (file.clone(), if is_former { former_of(ruleset) } else { Arc::clone(ruleset) })
    };
    rulesets.iter().map(in_use).collect()
}
