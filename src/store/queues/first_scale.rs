//! First scale of a set's ratings, as the store has it, with the default constants that the set uses.

use crate::domain::id::{RatingKey, SetId};
use crate::domain::ruleset::rating::defaults::{OwnRatingKeys, RatingDefaults};

/// First scale of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstRatingScaleOfSet {
    /// The set.
    pub set_id: SetId,
    /// Key of the set's own ratings on its first scale.
    pub key: RatingKey,
    /// Default constants that the set uses.
    pub defaults_version: RatingDefaults,
}

impl FirstRatingScaleOfSet {
    /// Scale of a set that has none yet. A set that has played used the former defaults, with a server of version 0.2.0.
    pub(in crate::store) fn of_unrecorded_set(keys: &OwnRatingKeys, has_played: bool) -> Self {
        let defaults = if has_played { RatingDefaults::Former } else { RatingDefaults::Current };
        Self { set_id: keys.set_id, key: keys.key_for_defaults(defaults), defaults_version: defaults }
    }

    /// Whether a server of version 0.2.0 would rate the set's matches otherwise than on the ratings' own scale: it knows one
    /// scale of each set, and the former default constants.
    pub(in crate::store) fn differs_for_older_servers(&self, keys: &OwnRatingKeys) -> bool {
        self.key != keys.former || keys.key_for_defaults(self.defaults_version) != keys.former
    }
}

/// Default constants as the store has them.
pub(in crate::store) fn defaults_version_to_number(defaults: RatingDefaults) -> i64 {
    match defaults {
        RatingDefaults::Former => 0,
        RatingDefaults::Current => 1,
    }
}

/// Default constants of a stored number. Numbers of later versions are not below 1.
pub(in crate::store) fn defaults_version_from_number(number: i64) -> RatingDefaults {
    if number == 0 { RatingDefaults::Former } else { RatingDefaults::Current }
}
