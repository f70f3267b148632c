//! Values that matches chose for their players, such as the maps that they played, with the latest match of each.

use std::collections::BTreeMap;

use hashbrown::HashMap;

use crate::chosen_value::ChosenValue;
use crate::id::{BuildIdHasher, UserKey};
use crate::time::UnixMs;

/// Start of the latest match in which each of some users played a chosen value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlayedValues(HashMap<UserKey, BTreeMap<ChosenValue, UnixMs>, BuildIdHasher>);

impl PlayedValues {
    /// Keeps the latest start for each user and value.
    pub fn from_plays_keeping_latest(plays: impl IntoIterator<Item = (UserKey, ChosenValue, UnixMs)>) -> Self {
        let mut by_user: HashMap<UserKey, BTreeMap<ChosenValue, UnixMs>, BuildIdHasher> = HashMap::default();
        for (user, value, started_at) in plays {
            let latest = by_user.entry(user).or_default().entry(value).or_insert(started_at);
            *latest = started_at.max(*latest);
        }
        Self(by_user)
    }

    /// Start of the latest match in which one of `users` played this value of an attribute.
    pub fn last_started_at(&self, users: &[UserKey], played: &ChosenValue) -> Option<UnixMs> {
        users.iter().filter_map(|user| self.0.get(user)?.get(played)).max().copied()
    }

    /// Each user and value, in the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (UserKey, &ChosenValue, UnixMs)> {
        let mut users: Vec<_> = self.0.iter().collect();
        users.sort_unstable_by_key(|(user, _)| **user);
        users.into_iter().flat_map(|(user, values)| values.iter().map(|(value, at)| (*user, value, *at)))
    }
}
