//! Places of the regions to which clients measure round trips.

use std::sync::Arc;

use crate::locality::Locality;

/// Places of regions by name. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RegionPlaces(Arc<[(Box<str>, Locality)]>);

impl RegionPlaces {
    /// Places by name. Of several with one name, any counts.
    pub fn new(places: impl IntoIterator<Item = (Box<str>, Locality)>) -> Self {
        let mut places: Vec<(Box<str>, Locality)> = places.into_iter().collect();
        places.sort_by(|one, other| one.0.cmp(&other.0));
        Self(places.into())
    }

    /// Place of a region, if known.
    pub fn place_of(&self, region: &str) -> Option<Locality> {
        let position = self.0.binary_search_by(|(name, _)| (**name).cmp(region)).ok()?;
        Some(self.0[position].1)
    }
}
