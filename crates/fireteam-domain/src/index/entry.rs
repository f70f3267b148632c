//! Index entry: an advertisement with its attribute values, expiry and open seats.

use std::sync::Arc;

use crate::advertisement::Advertisement;
use crate::attribute_values::AttributeValues;
use crate::filter::AdvertisementView;
use crate::time::UnixMs;

/// Advertisement in the index.
#[derive(Clone, Debug)]
pub struct IndexEntry {
    /// The published advertisement.
    pub advertisement: Arc<Advertisement>,
    /// Attribute values under the ruleset of the index.
    pub attribute_values: AttributeValues,
    /// Expiry; the advertisement is expired from this time on.
    pub expires_at: UnixMs,
    /// Seats that are neither taken nor reserved.
    pub open_seats: u16,
}

impl IndexEntry {
    /// The entry in the form that filters and scores read.
    pub fn view(&self) -> AdvertisementView<'_> {
        AdvertisementView {
            advertisement: &self.advertisement,
            attribute_values: &self.attribute_values,
            expires_at: self.expires_at,
            open_seats: self.open_seats,
            completed_vector: None,
        }
    }
}
